"""The head of a task: everything that is told of it besides its rows, tests and totals.

It is known when a run begins, is kept with the run as JSON, and is all that documents and tables need of a
suite: they never look at the suite itself, which may be gone or changed when they are made.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from trioeval.errors import StoreError
from trioeval.providers.secrets import hide_in
from trioeval.report.config import config_json, options_json
from trioeval.suite import Column, Expansion, Suite
from trioeval.suite.column_models import folder_of
from trioeval.suite.sizes import stretch_sizes


@attrs.frozen(kw_only=True)
class HeadColumn:
    """One provider with one prompt; its `promptIdx` is its place in the head."""

    id: str
    """Of its prompt."""
    raw: str
    """The text of its prompt, not rendered."""
    label: str
    provider: str
    """Label or id."""


@attrs.frozen(kw_only=True)
class HeadCase:
    """A case of a task of type `agent`."""

    name: str
    depends_on: tuple[str, ...] = ()
    """Names of others."""
    rows: int = 1
    """How many it has, over all columns."""

    def json(self) -> dict[str, Any]:
        """All of it, ready for `json.dumps`."""
        return {"name": self.name, "dependsOn": list(self.depends_on), "rows": self.rows}

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> "HeadCase":
        """What `json` made."""
        own, needs = found["name"], tuple(found["dependsOn"])
        return cls(name=own, depends_on=needs, rows=found.get("rows", 1))


@attrs.frozen(kw_only=True)
class Head:
    """What is told of a task of a run."""

    eval_id: str
    utc_created: str
    """ISO 8601."""
    columns: Sequence[HeadColumn]
    config: Mapping[str, Any]
    """As `config_json` makes it: the suite without its tests."""
    runtime_options: Mapping[str, Any]
    versions: Mapping[str, str]
    """`trioevalVersion`, `pythonVersion`, `platform`, `arch`."""
    task: str | None = None
    """Its id; None where the suite has no tasks but is one."""
    depends_on: tuple[str, ...] = ()
    """Ids of the tasks that came before."""
    questions_file: str | None = None
    """Of a task of type `question_eval`: the file of its questions, from the folder of the suite."""
    dataset_folder: str | None = None
    """Of a task of type `columns`: the folder of its files."""
    cases: tuple[HeadCase, ...] = ()
    """Of a task of type `agent`."""
    cluster: str | None = None
    """What names the cluster of a row, if the suite says it; see `trioeval.report.clusters`."""

    def json(self) -> dict[str, Any]:
        """All of it, ready for `json.dumps`."""
        return {
            "evalId": self.eval_id,
            "task": self.task,
            "dependsOn": list(self.depends_on),
            "timestamp": self.utc_created,
            "columns": [attrs.asdict(column) for column in self.columns],
            "config": dict(self.config),
            "runtimeOptions": dict(self.runtime_options),
            "versions": dict(self.versions),
            **({} if self.questions_file is None else {"questionsFile": self.questions_file}),
            **({} if self.dataset_folder is None else {"datasetFolder": self.dataset_folder}),
            **({"cases": [case.json() for case in self.cases]} if self.cases else {}),
            **({} if self.cluster is None else {"cluster": self.cluster}),
        }

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> "Head":
        """What `json` made.

        Raises:
            StoreError: It says nothing, since the program that began the run never ran a suite in it.

        Example:
            >>> head = Head(
            ...     eval_id="e",
            ...     utc_created="2026-01-01T00:00:00.000Z",
            ...     columns=[HeadColumn(id="p", raw="{{x}}", label="x", provider="echo")],
            ...     config={"prompts": ["{{x}}"]},
            ...     runtime_options={},
            ...     versions={},
            ... )
            >>> Head.read(head.json()) == head
            True
        """
        if "evalId" not in found:
            raise StoreError(
                "the run does not say what it is of: the program that began it gave it to no "
                "`run_suite(…, journal=run)`, so there are no results to show"
            )
        return cls(
            eval_id=found["evalId"],
            utc_created=found["timestamp"],
            columns=[HeadColumn(**column) for column in found["columns"]],
            config=found["config"],
            runtime_options=found["runtimeOptions"],
            versions=found["versions"],
            task=found["task"],
            depends_on=tuple(found["dependsOn"]),
            questions_file=found.get("questionsFile"),
            dataset_folder=found.get("datasetFolder"),
            cases=tuple(HeadCase.read(case) for case in found.get("cases", ())),
            cluster=found.get("cluster"),
        )


def head_of(
    suite: Suite,
    steps: Expansion,
    *,
    eval_id: str,
    utc_created: str,
    versions: Mapping[str, str],
    task: str | None = None,
    depends_on: tuple[str, ...] = (),
    keys: Sequence[str] = (),
) -> Head:
    """The head of a task that is about to begin.

    Args:
        suite: What it runs.
        steps: What that expands to.
        eval_id: Of the run.
        utc_created: ISO 8601.
        versions: `trioevalVersion`, `pythonVersion`, `platform`, `arch`.
        task: Its id; None where the suite has no tasks but is one.
        depends_on: Ids of the tasks that come before.
        keys: Texts that must not stand in it; see `keys_of`.
    """
    return Head(
        eval_id=eval_id,
        utc_created=utc_created,
        columns=[_column(suite, column, keys) for column in steps.columns],
        config=config_json(suite, keys),
        runtime_options=options_json(suite),
        versions=versions,
        task=task,
        depends_on=depends_on,
        questions_file=_questions_file(suite),
        dataset_folder=None
        if suite.columns is None
        else str(folder_of(suite.columns, task or "dataset")),
        cases=_cases(suite, steps),
        cluster=suite.evaluate_options.cluster,
    )


def _cases(suite: Suite, steps: Expansion) -> tuple[HeadCase, ...]:
    if suite.agents is None:
        return ()
    cases = [test.case for test in suite.tests if test.case is not None]
    rows = Counter[str]()
    for stretch, several in stretch_sizes(steps):
        for test in steps.tests[stretch.first_place : stretch.first_place + several]:
            if test.case is not None:
                rows[test.case.name] += stretch.shape.steps
    return tuple(
        HeadCase(name=case.name, depends_on=case.depends_on, rows=rows[case.name]) for case in cases
    )


def _questions_file(suite: Suite) -> str | None:
    if suite.questions is None or suite.questions.file is None:
        return None
    file, folder = suite.questions.file, suite.directory
    return str(file.relative_to(folder) if file.is_relative_to(folder) else file)


def _column(suite: Suite, column: Column, keys: Sequence[str]) -> HeadColumn:
    entry = suite.providers[column.provider_index]
    prompt = column.prompt
    return HeadColumn(
        id=prompt.id,
        raw=hide_in(prompt.raw, keys),
        label=hide_in(prompt.label, keys),
        provider=entry.label or entry.id,
    )

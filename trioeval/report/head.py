"""The head of a task: everything that reports show of it besides its rows, tests and totals.

The head is known when a run begins and is stored with the run as JSON. Documents and tables need nothing else
of a suite: they never read the suite itself, which may be gone or changed by then.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from trioeval.agent import is_agent
from trioeval.columns import is_columns
from trioeval.errors import StoreError
from trioeval.grading.registry import COMMAND, WEBHOOK
from trioeval.providers.secrets import hide_in
from trioeval.question_eval import is_question_eval
from trioeval.report.formats.json import read_record, record_json, shallow
from trioeval.report.records import STRIPPED_PROMPT, left
from trioeval.report.redact import REDACTED, redacted, redacted_command, redacted_judges
from trioeval.report.strip import KEEP_ALL, Strip
from trioeval.suite.expand import Column, Expansion
from trioeval.suite.model import WIDTH, Suite, Test
from trioeval.suite.plain import plain_data, plain_prompt, plain_test
from trioeval.suite.sizes import stretch_sizes
from trioeval.suite.tests import Joined, SparseTests
from trioeval.text import KEY

# The suite of a run in documents: as a suite file would define it, without secrets.
#
# Tests are written one by one, as they may be many; those of a large file are represented by its name.


_OWN = ("TRIOEVAL_", "PROMPTFOO_")
"""Prefixes of the variables that configure a run; any other variable may hold a key."""


def config_json(suite: Suite, keys: Sequence[str] = ()) -> dict[str, Any]:
    """Return the suite of a run without its tests.

    Args:
        suite: Any suite.
        keys: Texts that must not appear in it; see `keys_of`.
    """
    default = None if suite.default_test is None else _test(suite.default_test)
    rest = {
        "scenarios": _scenarios(suite),
        "defaultTest": default,
        "env": _env(suite.env),
        "lanes": plain_data(suite.lanes),
        "nunjucksFilters": dict(suite.nunjucks_filters),
        "assertionTypes": dict(suite.assertion_types),
        "derivedMetrics": plain_data(suite.derived_metrics),
        "extensions": list(suite.extensions),
        "outputPath": list(suite.output_path),
        "metadata": plain_data(suite.metadata),
        "commandLineOptions": plain_data(suite.command_line_options),
    }
    found: dict[str, Any] = hide_in(
        {
            "description": suite.description,
            "tags": dict(suite.tags),
            "providers": [_provider(plain_data(entry)) for entry in suite.providers],
            "prompts": [_prompt(plain_prompt(prompt)) for prompt in suite.prompts],
            **{key: shallow(part) for key, part in rest.items() if part},
            "evaluateOptions": {**options_json(suite), **plain_data(suite.evaluate_options)},
        },
        keys,
    )
    return found


def config_tests(suite: Suite, keys: Sequence[str] = ()) -> Iterator[Any]:
    """Yield the tests of a suite one by one; a large file of tests is represented by its name."""
    return (hide_in(test, keys) for test in _tests(suite.tests))


def stripped_config(config: Mapping[str, Any], strip: Strip) -> dict[str, Any]:
    """Return the result of `config_json` without the parts that must not be shown."""
    if strip == KEEP_ALL:
        return dict(config)
    found = {
        **config,
        "prompts": [_stripped_prompt(prompt, strip) for prompt in config["prompts"]],
    }
    if "scenarios" in config:
        found["scenarios"] = [
            {
                **scenario,
                "config": [stripped_test(test, strip) for test in scenario["config"]],
                "tests": [stripped_test(test, strip) for test in scenario["tests"]],
            }
            for scenario in config["scenarios"]
        ]
    rest = {
        "defaultTest": stripped_test(config.get("defaultTest", {}), strip),
        "metadata": {} if strip.metadata else config.get("metadata"),
        "commandLineOptions": _without(
            config.get("commandLineOptions", {}), {"var"} if strip.test_vars else ()
        ),
    }
    return {name: rest.get(name, part) for name, part in found.items() if rest.get(name, True)}


def stripped_test(test: Any, strip: Strip) -> Any:
    """Return a test from `config_tests` without the parts that must not be shown."""
    if not isinstance(test, Mapping):
        return test
    hidden = {
        "vars": strip.test_vars,
        "metadata": strip.metadata,
        "providerOutput": strip.response_output,
    }
    found = left(test, (key for key, hides in hidden.items() if hides))
    # Foreign files may hold any values.
    if strip.prompt_text and isinstance(found.get("options"), Mapping):
        found["options"] = left(found["options"], ("prefix", "suffix"))
    return found


def _without(found: Any, hidden: Iterable[str]) -> Any:
    return left(found, hidden) if isinstance(found, Mapping) else found


def _stripped_prompt(prompt: Any, strip: Strip) -> Any:
    hidden = dict.fromkeys(("raw", "label"), STRIPPED_PROMPT) if strip.prompt_text else {}
    return {**prompt, **hidden} if isinstance(prompt, Mapping) else hidden or prompt


def options_json(suite: Suite) -> dict[str, Any]:
    """Return the run options that promptfoo has as well."""
    options = suite.evaluate_options
    return {
        "maxConcurrency": options.max_concurrency or WIDTH,
        "repeat": options.repeat,
        "delay": options.delay,
        "timeoutMs": options.timeout_ms,
        "maxEvalTimeMs": options.max_eval_time_ms,
    }


def _tests(tests: Sequence[Test]) -> Iterator[Any]:
    if isinstance(tests, Joined):
        for part in tests.parts:
            yield from _tests(part)
    elif isinstance(tests, SparseTests):
        yield f"file://{tests.file}"
    else:
        for test in tests:
            yield _test(test)


def _test(test: Test) -> dict[str, Any]:
    found: dict[str, Any] = shallow(plain_test(test))
    if "provider" in found:
        found["provider"] = _provider(found["provider"])
    if "options" in found:
        found["options"] = redacted(_judged(found["options"]))
    if "assert" in found:
        found["assert"] = [_assertion(one) for one in found["assert"]]
    return found


def _assertion(found: Mapping[str, Any]) -> dict[str, Any]:
    members = [_assertion(one) for one in found.get("assert", ())]
    is_webhook = found["type"].endswith(WEBHOOK)
    value = {"value": redacted_judges(found["value"])} if is_webhook else {}
    if found["type"].endswith(COMMAND) and "value" in found:
        value = {"value": redacted_command(found["value"])}
    return {**_judged(found), **value, **({"assert": members} if members else {})}


def _judged(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options without credentials of judges."""
    judges = {"provider": redacted_judges(found["provider"])} if "provider" in found else {}
    return {**found, **judges}


def _scenarios(suite: Suite) -> list[dict[str, Any]]:
    return [
        {
            **({"description": scenario.description} if scenario.description else {}),
            "config": [_test(test) for test in scenario.config],
            "tests": [_test(test) for test in scenario.tests],
        }
        for scenario in suite.scenarios or ()
    ]


def _prompt(prompt: Mapping[str, Any]) -> dict[str, Any]:
    config = {"config": redacted(shallow(prompt["config"]))} if "config" in prompt else {}
    return {**prompt, **config}


def _provider(entry: Mapping[str, Any]) -> dict[str, Any]:
    config = redacted(shallow(entry.get("config", {})))
    env = {"env": _env(entry["env"])} if "env" in entry else {}
    return {"label": None, **entry, "config": config, **env}


def _env(env: Mapping[str, str]) -> dict[str, str]:
    return {
        name: redacted({name: value})[name] if name.startswith(_OWN) else REDACTED
        for name, value in env.items()
    }


@attrs.frozen(kw_only=True)
class HeadColumn:
    """One provider with one prompt; its `promptIdx` is its position in the head."""

    id: str
    """The id of its prompt."""
    raw: str
    """The text of its prompt, not rendered."""
    label: str
    provider: str
    """The label or id of its provider."""


@attrs.frozen(kw_only=True)
class HeadCase:
    """A case of a task of type `agent`."""

    name: str
    depends_on: tuple[str, ...] = ()
    """The names of the cases that it depends on."""
    rows: int = 1
    """The number of its rows, over all columns."""


@attrs.frozen(kw_only=True)
class Head:
    """The head of a task of a run."""

    eval_id: str
    utc_created: str = attrs.field(metadata={KEY: "timestamp"})
    """ISO 8601."""
    columns: Sequence[HeadColumn]
    config: Mapping[str, Any]
    """The suite without its tests, from `config_json`."""
    runtime_options: Mapping[str, Any]
    versions: Mapping[str, str]
    """`trioevalVersion`, `pythonVersion`, `platform`, `arch`."""
    task: str | None = None
    """The id of the task; None if the suite has only one."""
    depends_on: tuple[str, ...] = ()
    """Ids of the tasks that it depends on."""
    questions_file: str | None = None
    """The file of the questions of a `question_eval` task, relative to the folder of the suite."""
    dataset_folder: str | None = None
    """The folder of the dataset of a `columns` task."""
    cases: tuple[HeadCase, ...] = ()
    """The cases of an `agent` task."""
    cluster: str | None = None
    """The key that names the cluster of a row, if the suite sets it; see `trioeval.report.totals`."""

    def json(self) -> dict[str, Any]:
        """Return JSON data."""
        return record_json(self, sparse=True)

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> "Head":
        """Read the result of `json`.

        Raises:
            StoreError: The head is empty: the program that started the run never ran a suite in it.

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
                "the run has no results to show: the program that started it did not pass it to "
                "`run_suite(…, journal=run)`"
            )
        return read_record(cls, found)


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
    """Return the head of a task that is about to start.

    Args:
        suite: The suite of the task.
        steps: Its expansion.
        eval_id: The id of the run.
        utc_created: ISO 8601.
        versions: `trioevalVersion`, `pythonVersion`, `platform`, `arch`.
        task: Its id; None if the suite has only one.
        depends_on: Ids of the tasks that it depends on.
        keys: Texts that must not appear in it; see `keys_of`.
    """
    folder = None
    if is_columns(suite.settings):
        from trioeval.columns.model import folder_of

        folder = str(folder_of(suite.settings, task or "dataset"))
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
        dataset_folder=folder,
        cases=_cases(suite, steps),
        cluster=suite.evaluate_options.cluster,
    )


def _cases(suite: Suite, steps: Expansion) -> tuple[HeadCase, ...]:
    if not is_agent(suite.settings):
        return ()
    from trioeval.agent.model import case_of

    cases = [case for test in suite.tests if (case := case_of(test)) is not None]
    rows = Counter[str]()
    for stretch, several in stretch_sizes(steps):
        for test in steps.tests[stretch.first_place : stretch.first_place + several]:
            if test.extra is not None:
                rows[test.extra.name] += stretch.shape.steps
    return tuple(
        HeadCase(name=case.name, depends_on=case.depends_on, rows=rows[case.name]) for case in cases
    )


def _questions_file(suite: Suite) -> str | None:

    settings, folder = suite.settings, suite.directory
    if not is_question_eval(settings) or settings.file is None:
        return None
    file = settings.file
    return str(file.relative_to(folder) if file.is_relative_to(folder) else file)


def _column(suite: Suite, column: Column, keys: Sequence[str]) -> HeadColumn:
    entry = suite.providers[column.provider_index]
    prompt = column.prompt
    return HeadColumn(
        id=prompt.id,
        raw=hide_in(prompt.raw, keys),
        label=hide_in(prompt.label, keys),
        provider=entry.name,
    )

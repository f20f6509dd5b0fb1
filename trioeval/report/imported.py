"""Result files of promptfoo, and of ours, as heads and records, so that old results can be compared.

Read are documents of version 3 (also ours, of one task or several), those of version 2 with a table, and
JSON Lines of rows. A file is read whole: it needs about ten times its size of memory.

What is missing is filled in; what is of a wrong kind is told with its place, all of it at once, and then
nothing is imported.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from trioeval.errors import Problem, SuiteError
from trioeval.grading import quote
from trioeval.report.head import Head, HeadColumn
from trioeval.report.imported_rows import Reader, imported_row, numbers
from trioeval.report.json_text import shallow
from trioeval.report.records import left
from trioeval.report.redact import REDACTED, redacted

_MANY = 20  # problems that are told
_NO_RESULTS = "promptfoo and trioeval write them with -o FILE.json or FILE.jsonl, and with `export`"
_STAMPS = frozenset({"exportedAt", "evaluationCreatedAt"})


@attrs.frozen(kw_only=True)
class ImportedTask:
    """One task of a run that was read."""

    head: Head
    records: Sequence[Mapping[str, Any]] = attrs.field(repr=False)
    """By test and column, as `row_json` would have made them."""
    tests: Sequence[Any] = attrs.field(repr=False)
    """As the file tells them."""
    derived: Sequence[Mapping[str, float]]
    """Derived metrics of each column."""
    duration_ms: float


@attrs.frozen
class Imported:
    """A run that was read."""

    tasks: Sequence[ImportedTask]

    @property
    def eval_id(self) -> str:
        """The run's id; made of the content of the file where that says none."""
        return self.tasks[0].head.eval_id

    @property
    def duration_ms(self) -> float:
        """That of its longest task."""
        return max(task.duration_ms for task in self.tasks)


def imported(data: bytes, file: Path) -> Imported:
    """A run, from the content of a result file.

    Args:
        data: The content.
        file: Whose it is; a name that ends in `.jsonl` has a row in each line.

    Raises:
        SuiteError: Something of it cannot be read; all problems with their places.
    """
    reader = Reader(str(file))
    eval_id = f"eval-import-{hashlib.sha256(data).hexdigest()[:8]}"
    found: list[ImportedTask] = []
    try:
        text = data.decode("utf-8-sig")
        if file.suffix.lower() == ".jsonl":
            found = [_of_lines(text, reader, eval_id)]
        else:
            found = [*_of_document(json.loads(text), reader, eval_id)]
    except UnicodeDecodeError as error:
        reader.problem("$", f"must be UTF-8, got byte {data[error.start]:#04x} at {error.start}")
    except json.JSONDecodeError as error:
        place = {"line": error.lineno, "column": error.colno}
        reader.problems.append(
            Problem("$", f"is not JSON: {error.msg}", _NO_RESULTS, reader.file, **place)
        )
    except RecursionError:
        reader.problem("$", "is nested too deeply")
    if reader.problems:
        told = reader.problems[:_MANY]
        if more := len(reader.problems) - len(told):
            told.append(Problem("$", f"and {more} more problems", file=reader.file))
        raise SuiteError(told)
    return Imported(found)


def _of_document(document: Any, reader: Reader, eval_id: str) -> Iterator[ImportedTask]:
    whole = reader.mapping(document, "$")
    eval_id = reader.text(whole.get("evalId"), "$.evalId") or eval_id
    tasks = whole.get("tasks")
    if tasks is None:
        yield _task(whole, "$", reader, eval_id, None)
        return
    for name, part in reader.mapping(tasks, "$.tasks").items():
        path = f"$.tasks.{name}"
        yield _task(reader.mapping(part, path), path, reader, eval_id, name)


def _task(
    whole: Mapping[str, Any], path: str, reader: Reader, eval_id: str, task: str | None
) -> ImportedTask:
    inner = whole.get("results")
    if not isinstance(inner, Mapping):
        reader.problems.append(
            Problem(
                f"{path}.results",
                f"must be an object with the results of a run, got {quote(inner)}",
                _NO_RESULTS,
                reader.file,
            )
        )
        inner = {}
    rows, prompts = _rows_of(inner, f"{path}.results", reader)
    records = _records(rows, reader, eval_id)
    columns = [_column(prompt, at, reader) for at, prompt in prompts] or _columns_of(records)
    for (at, _), record in zip(rows, records, strict=True):
        if record["promptIdx"] >= len(columns):
            reader.problem(
                f"{at}.promptIdx", f"must be less than {len(columns)}, got {record['promptIdx']}"
            )
    stats = reader.mapping(inner.get("stats"), f"{path}.results.stats")
    about = reader.mapping(whole.get("metadata"), f"{path}.metadata")
    config = reader.mapping(whole.get("config"), f"{path}.config")
    tests = config.get("tests")
    created = inner.get("timestamp") or about.get("evaluationCreatedAt") or whole.get("createdAt")
    return ImportedTask(
        head=Head(
            eval_id=eval_id,
            utc_created=str(created or ""),
            columns=columns,
            config=_config(config),
            runtime_options=reader.mapping(whole.get("runtimeOptions"), f"{path}.runtimeOptions"),
            versions={name: str(part) for name, part in left(about, _STAMPS).items()},
            task=task,
            depends_on=tuple(reader.sequence(whole.get("dependsOn"), f"{path}.dependsOn")),
        ),
        records=_sorted(records),
        tests=tests if isinstance(tests, list) else [] if tests is None else [tests],
        derived=[_derived(prompt, at, reader) for at, prompt in prompts] or [{} for _ in columns],
        duration_ms=reader.number(stats.get("durationMs"), f"{path}.results.stats.durationMs", 0.0),
    )


_Placed = Sequence[tuple[str, Any]]
"""Parts of a document with their paths."""


def _rows_of(inner: Mapping[str, Any], path: str, reader: Reader) -> tuple[_Placed, _Placed]:
    """The rows and the columns of a document."""
    table = inner.get("table")
    if isinstance(table, Mapping):
        head = reader.mapping(table.get("head"), f"{path}.table.head")
        rows = list(_table_rows(table, f"{path}.table", reader))
        at = f"{path}.table.head.prompts"
        return rows, _placed(head.get("prompts"), at, reader)
    rows = list(_placed(inner.get("results"), f"{path}.results", reader))
    return rows, _placed(inner.get("prompts"), f"{path}.prompts", reader)


def _placed(parts: Any, path: str, reader: Reader) -> _Placed:
    return [(f"{path}[{n}]", part) for n, part in enumerate(reader.sequence(parts, path))]


def _table_rows(
    table: Mapping[str, Any], path: str, reader: Reader
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The cells of a table of version 2, as rows."""
    head = reader.mapping(table.get("head"), f"{path}.head")
    names, prompts = head.get("vars") or [], reader.sequence(head.get("prompts"), f"{path}.head")
    for nth, (at, line) in enumerate(_placed(table.get("body"), f"{path}.body", reader)):
        said = reader.mapping(line, at)
        test = reader.mapping(said.get("test"), f"{at}.test")
        values = said.get("vars") or []
        cells = _placed(said.get("outputs"), f"{at}.outputs", reader)
        for column, (place, cell) in enumerate(cells):
            if cell is None:  # the table has cells that were never run
                continue
            told = reader.mapping(cell, place)
            of = prompts[column] if column < len(prompts) else {}
            prompt = of if isinstance(of, Mapping) else {}
            yield (
                place,
                {
                    "testIdx": said.get("testIdx", nth),
                    "promptIdx": column,
                    "success": told.get("pass"),
                    "vars": test.get("vars") or dict(zip(names, values, strict=False)),
                    "provider": prompt.get("provider"),
                    "response": told.get("response") or {"output": told.get("text")},
                    **left(told, ("pass", "text", "prompt", "response", "testCase")),
                    "prompt": {"raw": told.get("prompt"), "label": prompt.get("label")},
                    "testCase": told.get("testCase") or test,
                },
            )


def _of_lines(text: str, reader: Reader, eval_id: str) -> ImportedTask:
    records = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            reader.line = number
            try:
                row = reader.mapping(json.loads(line), "$")
            except json.JSONDecodeError as error:
                reader.problem("$", f"is not JSON: {error.msg}")
            else:
                records += _records([("$", row)], reader, eval_id)
    reader.line = None
    _tell_twins(records, reader)
    if not records and not reader.problems:
        reader.problem("$", "has no rows")
    columns = _columns_of(records)
    head = Head(
        eval_id=eval_id,
        utc_created="",
        columns=columns,
        config=_config({}),
        runtime_options={},
        versions={},
    )
    return ImportedTask(
        head=head,
        records=_sorted(records),
        tests=[],
        derived=[{} for _ in columns],
        duration_ms=0.0,
    )


def _records(rows: _Placed, reader: Reader, eval_id: str) -> list[dict[str, Any]]:
    records = [imported_row(reader.mapping(row, at), at, reader, eval_id) for at, row in rows]
    if reader.line is None:
        _tell_twins(records, reader)
    return records


def _tell_twins(records: Sequence[Mapping[str, Any]], reader: Reader) -> None:
    seen = set()
    for record in records:
        place = record["testIdx"], record["promptIdx"]
        if place in seen and -1 not in place:
            reader.problem("$", f"has two rows of testIdx {place[0]} and promptIdx {place[1]}")
        seen.add(place)


def _sorted(records: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    return sorted(records, key=lambda record: (record["testIdx"], record["promptIdx"]))


def _column(prompt: Any, path: str, reader: Reader) -> HeadColumn:
    said = reader.mapping(prompt, path)
    raw = reader.text(said.get("raw"), f"{path}.raw") or ""
    return HeadColumn(
        id=str(said.get("id") or ""),
        raw=raw,
        label=reader.text(said.get("label") or said.get("display"), f"{path}.label") or raw,
        provider=reader.text(said.get("provider"), f"{path}.provider") or "",
    )


def _columns_of(records: Sequence[Mapping[str, Any]]) -> Sequence[HeadColumn]:
    """The columns that rows stand in; one that has none is left without a name."""
    by_place = {record["promptIdx"]: record for record in records}
    return [
        _column_of(by_place[place]) if place in by_place else _NO_COLUMN
        for place in range(max(by_place, default=-1) + 1)
    ]


_NO_COLUMN = HeadColumn(id="", raw="", label="", provider="")


def _column_of(record: Mapping[str, Any]) -> HeadColumn:
    provider, label = record["provider"], record["prompt"]["label"]
    name = provider["label"] or provider["id"]
    return HeadColumn(id=record["promptId"], raw=label, label=label, provider=name)


def _derived(prompt: Any, path: str, reader: Reader) -> dict[str, float]:
    """Metrics of a column that no row has counted towards."""
    metrics = reader.mapping(reader.mapping(prompt, path).get("metrics"), f"{path}.metrics")
    counted = metrics.get("namedScoresCount")
    scores = numbers(metrics.get("namedScores"), f"{path}.metrics.namedScores", reader)
    return left(scores, counted) if isinstance(counted, Mapping) else {}


def _config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config in the shape of ours, as far as it is one, without what looks like a credential."""
    prompts = config.get("prompts")
    found = {
        **left(config, {"tests"}),
        "description": config.get("description"),
        "providers": redacted(config.get("providers", [])),
        "prompts": prompts if isinstance(prompts, list) else [] if prompts is None else [prompts],
    }
    if isinstance(env := found.get("env"), Mapping):
        found["env"] = dict.fromkeys(env, REDACTED)
    if not _are_scenarios(found.get("scenarios")):
        found.pop("scenarios", None)
    return shallow(found)  # type: ignore[no-any-return]


def _are_scenarios(found: Any) -> bool:
    return isinstance(found, list) and all(
        isinstance(one, Mapping)
        and all(isinstance(one.get(name), list) for name in ("config", "tests"))
        for one in found
    )

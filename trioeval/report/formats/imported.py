# Apart from `cli.commands.exchange`: it belongs to this package, which the other only uses.
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
from trioeval.report.formats.json import shallow
from trioeval.report.head import Head, HeadColumn
from trioeval.report.records import left
from trioeval.report.redact import REDACTED, redacted
from trioeval.report.usage import usage_json

# Rows of result files of others as records of ours: what is missing is filled in, what is more is kept.
#
# Older versions of promptfoo tell less of a row, and name no outcome. Nothing is changed that is there; what
# has no place to be read from, such as the class of a row before there was one, follows from what is.


_REASONS = (0, 1, 2)  # passed, failed, without a verdict
_ERROR = 2
OUTCOMES = ("done", "failed", "timed_out", "interrupted", "blocked", "not_run")
"""How a row may have ended."""
_HUGE = 1e300  # sums of numbers stay finite
_NO_USAGE = left(usage_json(), {"assertions"})
_DETAILS = "completionDetails"


@attrs.define
class Reader:
    """Reads parts of a document, each of its kind; what is of another kind is a problem, and is left out."""

    file: str
    line: int | None = None
    """Of the file, where each line is a document."""
    problems: list[Problem] = attrs.field(factory=list)

    def problem(self, path: str, message: str) -> None:
        """Take note of a problem."""
        self.problems.append(Problem(path, message, file=self.file, line=self.line))

    def mapping(self, value: Any, path: str) -> Mapping[str, Any]:
        """An object; an empty one for nothing."""
        found: Mapping[str, Any] = self._of(Mapping, value, path, "an object", {})
        return found

    def sequence(self, value: Any, path: str) -> Sequence[Any]:
        """A list; an empty one for nothing."""
        found: Sequence[Any] = self._of(list, value, path, "a list", [])
        return found

    def number(self, value: Any, path: str, default: float | None) -> Any:
        """A number; the default for nothing."""
        if isinstance(value, int | float) and (isinstance(value, bool) or not abs(value) < _HUGE):
            self.problem(path, f"must be a number, got {quote(value)}")
            return default
        return self._of((int, float), value, path, "a number", default)

    def place(self, value: Any, path: str) -> int:
        """A number of a row or column, ≥ 0; -1 for what is none, which is a problem."""
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        self.problem(path, f"must be a whole number ≥ 0, got {quote(value)}")
        return -1

    def text(self, value: Any, path: str) -> str | None:
        """A text; None for nothing."""
        found: str | None = self._of(str, value, path, "a text", None)
        return found

    def _of(self, kind: Any, value: Any, path: str, name: str, default: Any) -> Any:
        if value is None or isinstance(value, kind):
            return default if value is None else value
        self.problem(path, f"must be {name}, got {quote(value)}")
        return default


def imported_row(
    found: Mapping[str, Any], path: str, reader: Reader, eval_id: str
) -> dict[str, Any]:
    """A record of a row.

    Args:
        found: The row, as promptfoo writes it or we do.
        path: Where it stands.
        reader: Told of what is wrong with it.
        eval_id: Of its run.
    """
    test_idx, prompt_idx = (
        reader.place(found.get(name), f"{path}.{name}") for name in ("testIdx", "promptIdx")
    )
    graded = _graded(found.get("gradingResult"), f"{path}.gradingResult", reader)
    error = reader.text(found.get("error"), f"{path}.error")
    reason = _failure_reason(found, graded, path, reader)
    used = usage_of(found.get("tokenUsage"), f"{path}.tokenUsage", reader)
    provider = _named(found.get("provider"), "id", f"{path}.provider", reader)
    prompt = _named(found.get("prompt"), "raw", f"{path}.prompt", reader)
    metadata = reader.mapping(found.get("metadata"), f"{path}.metadata")
    record = {
        "id": str(found.get("id") or f"{eval_id}-test-{test_idx}-prompt-{prompt_idx}-repeat-0"),
        **({"task": found["task"]} if found.get("task") is not None else {}),
        "testIdx": test_idx,
        "promptIdx": prompt_idx,
        "promptId": str(found.get("promptId") or prompt.get("id") or ""),
        "provider": {"id": "", "label": "", **provider},
        "prompt": {"raw": None, "label": str(prompt.get("raw") or ""), **prompt},
        "vars": reader.mapping(found.get("vars"), f"{path}.vars"),
        "testCase": _test_case(found.get("testCase"), f"{path}.testCase", reader),
        "response": _response(found.get("response"), used, f"{path}.response", reader),
        "success": reason == 0,
        "score": reader.number(found.get("score"), f"{path}.score", float(reason == 0)),
        "namedScores": numbers(found.get("namedScores"), f"{path}.namedScores", reader),
        "failureReason": reason,
        "error": error,
        "gradingResult": graded,
        "latencyMs": reader.number(found.get("latencyMs"), f"{path}.latencyMs", None),
        "cost": reader.number(found.get("cost"), f"{path}.cost", None),
        "tokenUsage": used,
    }
    own = _own(metadata.get("trioeval"), record, f"{path}.metadata.trioeval", reader)
    record["metadata"] = {**metadata, "trioeval": own}
    return shallow({**record, **left(found, record)})  # type: ignore[no-any-return]


def usage_of(found: Any, path: str, reader: Reader) -> dict[str, Any]:
    """Token usage with all of its numbers, and with that of judges."""
    told = reader.mapping(found, path)
    judges = _tokens(told.get("assertions"), f"{path}.assertions", reader)
    return {**_tokens(told, path, reader), "assertions": judges}


def _tokens(found: Any, path: str, reader: Reader) -> dict[str, Any]:
    told = reader.mapping(found, path)
    details = reader.mapping(told.get(_DETAILS), f"{path}.{_DETAILS}")
    return {
        **dict(_numbers(told, left(_NO_USAGE, {_DETAILS}), path, reader)),
        _DETAILS: dict(_numbers(details, _NO_USAGE[_DETAILS], f"{path}.{_DETAILS}", reader)),
    }


def _numbers(
    told: Mapping[str, Any], names: Mapping[str, Any], path: str, reader: Reader
) -> Iterator[tuple[str, Any]]:
    for name in names:
        yield name, reader.number(told.get(name), f"{path}.{name}", 0)


def _failure_reason(
    found: Mapping[str, Any], graded: Mapping[str, Any] | None, path: str, reader: Reader
) -> int:
    said = found.get("failureReason")
    if said in _REASONS and not isinstance(said, bool):
        return int(said)
    if said is not None:
        reader.problem(f"{path}.failureReason", f"must be 0, 1 or 2, got {quote(said)}")
    is_success = found.get("success", None if graded is None else graded["pass"])
    if not isinstance(is_success, bool):
        reader.problem(f"{path}.success", f"must be true or false, got {quote(is_success)}")
    if is_success is True:
        return 0
    return _ERROR if graded is None and found.get("error") else 1


def _named(found: Any, key: str, path: str, reader: Reader) -> Mapping[str, Any]:
    """An object that may be a text instead; what is null in it counts as missing."""
    said = {key: found} if isinstance(found, str) else reader.mapping(found, path)
    for name in (key, "label"):
        reader.text(said.get(name), f"{path}.{name}")
    return {name: part for name, part in said.items() if part is not None}


def _test_case(found: Any, path: str, reader: Reader) -> dict[str, Any]:
    said = reader.mapping(found, path)
    return {
        "description": reader.text(said.get("description"), f"{path}.description"),
        "vars": reader.mapping(said.get("vars"), f"{path}.vars"),
        "assert": reader.sequence(said.get("assert"), f"{path}.assert"),
        "threshold": said.get("threshold"),
        "options": reader.mapping(said.get("options"), f"{path}.options"),
        "metadata": reader.mapping(said.get("metadata"), f"{path}.metadata"),
        **left(said, ("description", "vars", "assert", "threshold", "options", "metadata")),
    }


def _response(
    found: Any, used: Mapping[str, Any], path: str, reader: Reader
) -> dict[str, Any] | None:
    if found is None:
        return None
    said = reader.mapping(found, path)
    told = said.get("tokenUsage")
    return {
        "output": said.get("output"),
        "cached": said.get("cached") is True,
        "cost": reader.number(said.get("cost"), f"{path}.cost", None),
        "tokenUsage": usage_of(told, f"{path}.tokenUsage", reader)
        if told
        else {**used, "assertions": usage_json()["assertions"]},
        "finishReason": said.get("finishReason"),
        "isRefusal": said.get("isRefusal") is True,
        "metadata": reader.mapping(said.get("metadata"), f"{path}.metadata"),
        **left(
            said,
            ("output", "cached", "cost", "tokenUsage", "finishReason", "isRefusal", "metadata"),
        ),
    }


def _graded(found: Any, path: str, reader: Reader) -> dict[str, Any] | None:
    if found is None:
        return None
    said = reader.mapping(found, path)
    parts = reader.sequence(said.get("componentResults"), f"{path}.componentResults")
    return {
        **_verdict(said, path, reader),
        "componentResults": [
            _verdict(reader.mapping(part, at), at, reader)
            for at, part in (
                (f"{path}.componentResults[{n}]", part) for n, part in enumerate(parts)
            )
        ],
    }


def _verdict(said: Mapping[str, Any], path: str, reader: Reader) -> dict[str, Any]:
    passed = said.get("pass")
    if not isinstance(passed, bool):
        reader.problem(f"{path}.pass", f"must be true or false, got {quote(passed)}")
    weights = numbers(said.get("namedScoreWeights"), f"{path}.namedScoreWeights", reader)
    metadata = reader.mapping(said.get("metadata"), f"{path}.metadata")
    reader.mapping(metadata.get("assertionSet"), f"{path}.metadata.assertionSet")
    assertion = reader.mapping(said.get("assertion"), f"{path}.assertion")
    for name in ("type", "metric"):
        reader.text(assertion.get(name), f"{path}.assertion.{name}")
    return {
        **left(said, ("assertion", "namedScoreWeights", "metadata")),
        "pass": passed is True,
        "score": reader.number(said.get("score"), f"{path}.score", float(passed is True)),
        "reason": reader.text(said.get("reason"), f"{path}.reason") or "",
        "namedScores": numbers(said.get("namedScores"), f"{path}.namedScores", reader),
        "tokensUsed": _tokens(said.get("tokensUsed"), f"{path}.tokensUsed", reader),
        **({"namedScoreWeights": weights} if weights else {}),
        **({"assertion": assertion} if assertion else {}),
        **({"metadata": metadata} if metadata else {}),
    }


def numbers(found: Any, path: str, reader: Reader) -> dict[str, Any]:
    """An object of numbers, without those that are null."""
    said = reader.mapping(found, path)
    return {
        name: score
        for name, score in said.items()
        if reader.number(score, f"{path}.{name}", None) is not None
    }


def _own(found: Any, record: Mapping[str, Any], path: str, reader: Reader) -> Mapping[str, Any]:
    """What only we tell of a row; the rest of its record where that says nothing."""
    said = reader.mapping(found, path)
    outcome = said.get("outcome", "failed" if record["failureReason"] == _ERROR else "done")
    if outcome not in OUTCOMES:
        reader.problem(
            f"{path}.outcome", f"must be one of {', '.join(OUTCOMES)}, got {quote(outcome)}"
        )
    waits = reader.mapping(said.get("waits"), f"{path}.waits")
    cost = reader.number(said.get("gradingCost"), f"{path}.gradingCost", None)
    lane, provider = reader.text(said.get("lane"), f"{path}.lane"), record["provider"]
    return {
        **left(said, ("waits", "gradingCost")),
        "outcome": outcome,
        "lane": provider["label"] or provider["id"] if lane is None else lane,
        "attempts": reader.number(
            said.get("attempts"), f"{path}.attempts", record["tokenUsage"]["numRequests"]
        ),
        "waitMs": reader.number(said.get("waitMs"), f"{path}.waitMs", 0.0),
        **({"waits": numbers(waits, f"{path}.waits", reader)} if waits else {}),
        **({} if cost is None else {"gradingCost": cost}),
    }


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

# Separate from `cli.commands.exchange`: it belongs to this package.
"""Result files of promptfoo and trioeval as heads and records, so that old results can be compared.

Documents of version 3 (also ours, of one or several tasks), documents of version 2 with a table, and JSON
Lines of rows are read. A file is read whole: it needs about ten times its size of memory.

Missing values are filled in. Values of a wrong type are reported with their paths, all together, and then
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
from trioeval.text import counted

# Rows of foreign result files as records: missing values are filled in, additional ones are kept.
#
# Older versions of promptfoo write less of a row, and no outcome. Present values are never changed; values
# that are missing, such as the class of a row in old files, are derived from others.


_REASONS = (0, 1, 2)  # passed, failed, without a verdict
_ERROR = 2
OUTCOMES = ("done", "failed", "timed_out", "interrupted", "blocked", "not_run")
"""The outcomes that a row may have."""
_HUGE = 1e300  # sums of numbers stay finite
_NO_USAGE = left(usage_json(), {"assertions"})
_DETAILS = "completionDetails"


@attrs.define
class Problems:
    """The problems of a file."""

    file: str
    line: int | None = None
    """The index of the document that is read, if the file has several."""
    found: list[Problem] = attrs.field(factory=list)

    def add(self, path: str, message: str, hint: str | None = None, **place: int) -> None:
        """Add a problem."""
        at = {"line": self.line, **place}
        self.found.append(Problem(path, message, hint, self.file, **at))


@attrs.frozen
class DocumentPart:
    """A part of a document. A value of an unexpected type is a problem, and is left out."""

    value: Any
    path: str
    problems: Problems

    def problem(self, message: str) -> None:
        """Add a problem with this part."""
        self.problems.add(self.path, message)

    def at(self, key: str) -> "DocumentPart":
        """Return the member of an object; nothing if this is not an object."""
        found = self.value.get(key) if isinstance(self.value, Mapping) else None
        return DocumentPart(found, f"{self.path}.{key}", self.problems)

    def of(self, value: Any) -> "DocumentPart":
        """Return another value at the same path."""
        return DocumentPart(value, self.path, self.problems)

    def mapping(self) -> Mapping[str, Any]:
        """Return the object; an empty one without a value."""
        found: Mapping[str, Any] = self._of(Mapping, "an object", {})
        return found

    def sequence(self) -> Sequence[Any]:
        """Return the list; an empty one without a value."""
        found: Sequence[Any] = self._of(list, "a list", [])
        return found

    def parts(self) -> Sequence["DocumentPart"]:
        """Return the members of the list."""
        return [
            DocumentPart(value, f"{self.path}[{n}]", self.problems)
            for n, value in enumerate(self.sequence())
        ]

    def number(self, default: float | None) -> Any:
        """Return the number; the default without a value."""
        value = self.value
        if isinstance(value, int | float) and (isinstance(value, bool) or not abs(value) < _HUGE):
            self.problem(f"must be a number, got {quote(value)}")
            return default
        return self._of((int, float), "a number", default)

    def numbers(self) -> dict[str, Any]:
        """Return an object of numbers without those that are null."""
        scores = {name: self.at(name).number(None) for name in self.mapping()}
        return {name: score for name, score in scores.items() if score is not None}

    def place(self) -> int:
        """Return the number of a row or column, ≥ 0; -1, and a problem, if the value is not one."""
        value = self.value
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        self.problem(f"must be a whole number ≥ 0, got {quote(value)}")
        return -1

    def text(self) -> str | None:
        """Return the text; None without a value."""
        found: str | None = self._of(str, "a text", None)
        return found

    def truth(self) -> bool:
        """Return true or false; any other value is a problem."""
        if not isinstance(self.value, bool):
            self.problem(f"must be true or false, got {quote(self.value)}")
        return self.value is True

    def _of(self, kind: Any, name: str, default: Any) -> Any:
        if self.value is None or isinstance(self.value, kind):
            return default if self.value is None else self.value
        self.problem(f"must be {name}, got {quote(self.value)}")
        return default


def imported_row(row: DocumentPart, eval_id: str) -> dict[str, Any]:
    """Return the record of a row.

    Args:
        row: The row as promptfoo or trioeval writes it.
        eval_id: The id of its run.
    """
    found = row.mapping()
    test_idx, prompt_idx = row.at("testIdx").place(), row.at("promptIdx").place()
    graded = _graded(row.at("gradingResult"))
    error = row.at("error").text()
    reason = _failure_reason(row, graded)
    used = usage_of(row.at("tokenUsage"))
    provider, prompt = _named(row.at("provider"), "id"), _named(row.at("prompt"), "raw")
    metadata, about = row.at("metadata"), row.at("metadata").mapping()
    record = {
        "id": str(found.get("id") or f"{eval_id}-test-{test_idx}-prompt-{prompt_idx}-repeat-0"),
        **({"task": found["task"]} if found.get("task") is not None else {}),
        "testIdx": test_idx,
        "promptIdx": prompt_idx,
        "promptId": str(found.get("promptId") or prompt.get("id") or ""),
        "provider": {"id": "", "label": "", **provider},
        "prompt": {"raw": None, "label": str(prompt.get("raw") or ""), **prompt},
        "vars": row.at("vars").mapping(),
        "testCase": _test_case(row.at("testCase")),
        "response": _response(row.at("response"), used, is_own="trioeval" in about),
        "success": reason == 0,
        "score": row.at("score").number(float(reason == 0)),
        "namedScores": row.at("namedScores").numbers(),
        "failureReason": reason,
        "error": error,
        "gradingResult": graded,
        "latencyMs": row.at("latencyMs").number(None),
        "cost": row.at("cost").number(None),
        "tokenUsage": used,
    }
    own = _own(metadata.at("trioeval"), record)
    record["metadata"] = {**about, "trioeval": own}
    return shallow(_with_rest(record, found))  # type: ignore[no-any-return]


def _with_rest(record: dict[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that were read of an object, followed by all others."""
    return {**record, **left(found, record)}


def usage_of(part: DocumentPart) -> dict[str, Any]:
    """Return the token usage with all of its numbers, those of judges included."""
    judges = _tokens(part.at("assertions"))
    return {**_tokens(part), "assertions": judges}


def _tokens(usage: DocumentPart) -> dict[str, Any]:
    details = usage.at(_DETAILS)
    for part in (usage, details):
        part.mapping()
    return {
        **{name: usage.at(name).number(0) for name in left(_NO_USAGE, {_DETAILS})},
        _DETAILS: {name: details.at(name).number(0) for name in _NO_USAGE[_DETAILS]},
    }


def _failure_reason(row: DocumentPart, graded: Mapping[str, Any] | None) -> int:
    reason = row.at("failureReason")
    if reason.value in _REASONS and not isinstance(reason.value, bool):
        return int(reason.value)
    if reason.value is not None:
        reason.problem(f"must be 0, 1 or 2, got {quote(reason.value)}")
    success = row.at("success")
    if graded is not None and "success" not in row.mapping():
        success = success.of(graded["pass"])
    if success.truth():
        return 0
    return _ERROR if graded is None and row.at("error").value else 1


def _named(part: DocumentPart, key: str) -> Mapping[str, Any]:
    """Return an object that may be written as a text; null members count as missing."""
    part = part.of({key: part.value}) if isinstance(part.value, str) else part
    facts = part.mapping()
    for name in (key, "label"):
        part.at(name).text()
    return {name: fact for name, fact in facts.items() if fact is not None}


def _test_case(part: DocumentPart) -> dict[str, Any]:
    data = part.mapping()
    record = {
        "description": part.at("description").text(),
        "vars": part.at("vars").mapping(),
        "assert": part.at("assert").sequence(),
        "threshold": data.get("threshold"),
        "options": part.at("options").mapping(),
        "metadata": part.at("metadata").mapping(),
    }
    return _with_rest(record, data)


def _response(
    part: DocumentPart, used: Mapping[str, Any], *, is_own: bool
) -> dict[str, Any] | None:
    """Return a response; an empty usage is zero in trioeval's own files, and unknown in others."""
    if part.value is None:
        return None
    data, usage = part.mapping(), part.at("tokenUsage")
    record = {
        "output": data.get("output"),
        "cached": data.get("cached") is True,
        "cost": part.at("cost").number(None),
        "tokenUsage": usage_of(usage)
        if usage.value or (is_own and usage.value is not None)
        else {**used, "assertions": usage_json()["assertions"]},
        "finishReason": data.get("finishReason"),
        "isRefusal": data.get("isRefusal") is True,
        "metadata": part.at("metadata").mapping(),
    }
    return _with_rest(record, data)


def _graded(part: DocumentPart) -> dict[str, Any] | None:
    if part.value is None:
        return None
    parts = part.at("componentResults").parts()
    return {**_verdict(part), "componentResults": [*map(_verdict, parts)]}


def _verdict(part: DocumentPart) -> dict[str, Any]:
    data, passed = part.mapping(), part.at("pass").truth()
    weights, metadata = part.at("namedScoreWeights").numbers(), part.at("metadata").mapping()
    part.at("metadata").at("assertionSet").mapping()
    assertion = part.at("assertion").mapping()
    for name in ("type", "metric"):
        part.at("assertion").at(name).text()
    return {
        **left(data, ("assertion", "namedScoreWeights", "metadata")),
        "pass": passed,
        "score": part.at("score").number(float(passed)),
        "reason": part.at("reason").text() or "",
        "namedScores": part.at("namedScores").numbers(),
        "tokensUsed": _tokens(part.at("tokensUsed")),
        **({"namedScoreWeights": weights} if weights else {}),
        **({"assertion": assertion} if assertion else {}),
        **({"metadata": metadata} if metadata else {}),
    }


def _own(part: DocumentPart, record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the members that only trioeval writes; for rows of other programs they are derived."""
    data = part.mapping()
    outcome = data.get("outcome", "failed" if record["failureReason"] == _ERROR else "done")
    if outcome not in OUTCOMES:
        part.at("outcome").problem(f"must be one of {', '.join(OUTCOMES)}, got {quote(outcome)}")
    waits, cost = part.at("waits").numbers(), part.at("gradingCost").number(None)
    lane, provider = part.at("lane").text(), record["provider"]
    return {
        **left(data, ("waits", "gradingCost")),
        "outcome": outcome,
        "lane": provider["label"] or provider["id"] if lane is None else lane,
        "attempts": part.at("attempts").number(record["tokenUsage"]["numRequests"]),
        "waitMs": part.at("waitMs").number(0.0),
        **({"waits": waits} if waits else {}),
        **({} if cost is None else {"gradingCost": cost}),
    }


_MANY = 20  # problems that are reported
_NO_RESULTS = "promptfoo and trioeval write them with -o FILE.json or FILE.jsonl, and with `export`"
_STAMPS = frozenset({"exportedAt", "evaluationCreatedAt"})


@attrs.frozen(kw_only=True)
class ImportedTask:
    """One task of an imported run."""

    head: Head
    records: Sequence[Mapping[str, Any]] = attrs.field(repr=False)
    """The rows by test and column, as `row_json` would have made them."""
    tests: Sequence[Any] = attrs.field(repr=False)
    """The tests as the file has them."""
    derived: Sequence[Mapping[str, float]]
    """The derived metrics of each column."""
    duration_ms: float


@attrs.frozen
class Imported:
    """An imported run."""

    tasks: Sequence[ImportedTask]

    @property
    def eval_id(self) -> str:
        """The id of the run; a digest of the file's content if the file has none."""
        return self.tasks[0].head.eval_id

    @property
    def duration_ms(self) -> float:
        """The duration of its longest task."""
        return max(task.duration_ms for task in self.tasks)


def imported(data: bytes, file: Path) -> Imported:
    """Read the content of a result file.

    Args:
        data: The content.
        file: The name of the file; a name that ends in `.jsonl` has a row in each line.

    Raises:
        SuiteError: The content is not valid; all problems with their paths.
    """
    problems = Problems(str(file))
    eval_id = f"eval-import-{hashlib.sha256(data).hexdigest()[:8]}"
    found: list[ImportedTask] = []
    try:
        text = data.decode("utf-8-sig")
        if file.suffix.lower() == ".jsonl":
            found = [_of_lines(text, problems, eval_id)]
        else:
            found = [*_of_document(DocumentPart(json.loads(text), "$", problems), eval_id)]
    except UnicodeDecodeError as error:
        problems.add("$", f"must be UTF-8, got byte {data[error.start]:#04x} at {error.start}")
    except json.JSONDecodeError as error:
        place = {"line": error.lineno, "column": error.colno}
        problems.add("$", f"is not JSON: {error.msg}", _NO_RESULTS, **place)
    except RecursionError:
        problems.add("$", "is nested too deeply")
    if mistakes := problems.found[:_MANY]:
        if more := len(problems.found) - len(mistakes):
            mistakes.append(
                Problem(
                    "$", f"and {counted(more, 'more problem', 'more problems')}", file=problems.file
                )
            )
        raise SuiteError(mistakes)
    return Imported(found)


def _of_document(whole: DocumentPart, eval_id: str) -> Iterator[ImportedTask]:
    eval_id = whole.at("evalId").text() or eval_id
    tasks = whole.at("tasks")
    if tasks.value is None:
        yield _task(whole, eval_id, None)
        return
    for name in tasks.mapping():
        yield _task(tasks.at(name), eval_id, name)


def _task(whole: DocumentPart, eval_id: str, task: str | None) -> ImportedTask:
    whole.mapping()
    inner = whole.at("results")
    if not isinstance(inner.value, Mapping):
        message = f"must be an object with the results of a run, got {quote(inner.value)}"
        whole.problems.add(inner.path, message, _NO_RESULTS)
        inner = inner.of({})
    rows, prompts = _rows_of(inner)
    records = _records(rows, eval_id)
    columns = [*map(_column, prompts)] or _columns_of(records)
    for row, record in zip(rows, records, strict=True):
        if record["promptIdx"] >= len(columns):
            row.at("promptIdx").problem(
                f"must be less than {len(columns)}, got {record['promptIdx']}"
            )
    inner.at("stats").mapping()
    about, config = whole.at("metadata").mapping(), whole.at("config").mapping()
    tests = config.get("tests")
    instants = (inner.at("timestamp"), whole.at("metadata").at("evaluationCreatedAt"))
    created = next((one.value for one in (*instants, whole.at("createdAt")) if one.value), "")
    return ImportedTask(
        head=Head(
            eval_id=eval_id,
            utc_created=str(created),
            columns=columns,
            config=_config(config),
            runtime_options=whole.at("runtimeOptions").mapping(),
            versions={name: str(part) for name, part in left(about, _STAMPS).items()},
            task=task,
            depends_on=tuple(whole.at("dependsOn").sequence()),
        ),
        records=_sorted(records),
        tests=tests if isinstance(tests, list) else [] if tests is None else [tests],
        derived=[*map(_derived, prompts)] or [{} for _ in columns],
        duration_ms=inner.at("stats").at("durationMs").number(0.0),
    )


def _rows_of(inner: DocumentPart) -> tuple[Sequence[DocumentPart], Sequence[DocumentPart]]:
    """Return the rows and the columns of a document."""
    table = inner.at("table")
    if isinstance(table.value, Mapping):
        head = table.at("head")
        head.mapping()
        prompts = head.at("prompts").parts()
        return list(_table_rows(table, prompts)), prompts
    return inner.at("results").parts(), inner.at("prompts").parts()


def _table_rows(table: DocumentPart, prompts: Sequence[DocumentPart]) -> Iterator[DocumentPart]:
    """Return the cells of a table of version 2 as rows."""
    names = table.at("head").at("vars").value or []
    for nth, line in enumerate(table.at("body").parts()):
        line_data = line.mapping()
        test, values = line.at("test").mapping(), line_data.get("vars") or []
        for column, cell in enumerate(line.at("outputs").parts()):
            if cell.value is None:  # the table has cells of tests that were not run
                continue
            data = cell.mapping()
            of = prompts[column].value if column < len(prompts) else None
            prompt = of if isinstance(of, Mapping) else {}
            yield cell.of(
                {
                    "testIdx": line_data.get("testIdx", nth),
                    "promptIdx": column,
                    "success": data.get("pass"),
                    "vars": test.get("vars") or dict(zip(names, values, strict=False)),
                    "provider": prompt.get("provider"),
                    "response": data.get("response") or {"output": data.get("text")},
                    **left(data, ("pass", "text", "prompt", "response", "testCase")),
                    "prompt": {"raw": data.get("prompt"), "label": prompt.get("label")},
                    "testCase": data.get("testCase") or test,
                }
            )


def _of_lines(text: str, problems: Problems, eval_id: str) -> ImportedTask:
    records = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            problems.line = number
            try:
                row = DocumentPart(json.loads(line), "$", problems)
            except json.JSONDecodeError as error:
                problems.add("$", f"is not JSON: {error.msg}")
            else:
                records.append(imported_row(row, eval_id))
    problems.line = None
    _report_twins(records, problems)
    if not records and not problems.found:
        problems.add("$", "has no rows")
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


def _records(rows: Sequence[DocumentPart], eval_id: str) -> list[dict[str, Any]]:
    records = [imported_row(row, eval_id) for row in rows]
    if rows:
        _report_twins(records, rows[0].problems)
    return records


def _report_twins(records: Sequence[Mapping[str, Any]], problems: Problems) -> None:
    seen = set()
    for record in records:
        place = record["testIdx"], record["promptIdx"]
        if place in seen and -1 not in place:
            problems.add("$", f"has two rows of testIdx {place[0]} and promptIdx {place[1]}")
        seen.add(place)


def _sorted(records: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    return sorted(records, key=lambda record: (record["testIdx"], record["promptIdx"]))


def _column(prompt: DocumentPart) -> HeadColumn:
    data = prompt.mapping()
    raw = prompt.at("raw").text() or ""
    label = prompt.at("label").of(data.get("label") or data.get("display")).text()
    provider = prompt.at("provider").text() or ""
    return HeadColumn(id=str(data.get("id") or ""), raw=raw, label=label or raw, provider=provider)


def _columns_of(records: Sequence[Mapping[str, Any]]) -> Sequence[HeadColumn]:
    """Return the columns of rows; a column without rows has no name."""
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


def _derived(prompt: DocumentPart) -> dict[str, float]:
    """Return metrics of a column that no row contributed to."""
    metrics = prompt.at("metrics")
    counted = metrics.mapping().get("namedScoresCount")
    scores = metrics.at("namedScores").numbers()
    return left(scores, counted) if isinstance(counted, Mapping) else {}


def _config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config in our format, as far as it is valid, without values that look like credentials."""
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

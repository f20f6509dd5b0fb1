"""Rows of result files of others as records of ours: what is missing is filled in, what is more is kept.

Older versions of promptfoo tell less of a row, and name no outcome. Nothing is changed that is there; what
has no place to be read from, such as the class of a row before there was one, follows from what is.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from trioeval.errors import Problem
from trioeval.grading import quote
from trioeval.report.json_text import shallow
from trioeval.report.records import left
from trioeval.report.usage import usage_json

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

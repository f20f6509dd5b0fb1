"""What of a record and of a call stands in columns of its own, for queries and for people.

Records are those of `trioeval.report.row_json`, or what other programs wrote that is like them: of what is
not there, the column is empty.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from trioeval.store.payloads import plain
from trioeval.tasks import Status
from trioeval.tasks.retries import has_ended

Value: TypeAlias = str | bytes | float | None

RESULT = [
    "key",
    "row_id",
    "content",
    "test",
    "prompt",
    "repeat",
    "status",
    "outcome",
    "error_kind",
    "score",
    "latency_ms",
    "wait_ms",
    "calls",
    "tokens",
    "cost",
    "cached",
]
"""The columns of a result."""

SCORE = ["key", "position", "type", "metric", "passed", "score", "weight", "reason"]
"""The columns of one assertion's verdict."""

_STATUSES = (Status.PASS, Status.FAIL, Status.ERROR)
"""By `failureReason`."""

_LONGEST_REASON = 2000  # characters; the record has all of it
_LARGEST = 2**63 - 1


def result_columns(record: Mapping[str, Any]) -> tuple[Value, ...]:
    """What stands in the columns from `test` on, without `repeat`.

    Example:
        >>> result_columns(
        ...     {"failureReason": 1, "score": 0.5, "testIdx": 3, "tokenUsage": {"total": 7}}
        ... )
        (3, 0, 'fail', 'done', None, 0.5, None, None, None, 7, None, 0)
    """
    metadata, response = _object(record.get("metadata")), _object(record.get("response"))
    own = _object(metadata.get("trioeval"))
    usage = _object(record.get("tokenUsage"))
    cost, judges = _number(record.get("cost")), _number(own.get("gradingCost"))
    return (
        _count(record.get("testIdx")),
        _count(record.get("promptIdx")),
        status_of(record),
        plain(outcome_of(record)),
        _text(own.get("errorKind")),
        _number(record.get("score")),
        _number(record.get("latencyMs")),
        _number(own.get("waitMs")),
        None if own.get("attempts") is None else _count(own["attempts"]),
        _used(usage, is_cached=bool(response.get("cached")))
        + _used(_object(usage.get("assertions")), is_cached=True),
        None if cost is None and judges is None else (cost or 0.0) + (judges or 0.0),
        int(bool(response.get("cached"))),
    )


def _used(usage: Mapping[str, Any], *, is_cached: bool) -> int:
    """Tokens that were used for a row; none for replies from the cache, for which there was no request."""
    return 0 if is_cached and usage.get("numRequests") == 0 else _count(usage.get("total"))


def status_of(record: Mapping[str, Any]) -> str:
    """Whether a row passed, failed, has no verdict or was not run, as `trioeval.tasks.Status` says it."""
    reason = record.get("failureReason")
    if isinstance(reason, int) and 0 <= reason < len(_STATUSES):
        return (_STATUSES[reason] if has_ended(outcome_of(record)) else Status.NOT_RUN).value
    return "pass" if record.get("success") else "fail"


def outcome_of(record: Mapping[str, Any]) -> str:
    """How its job ended; `done` where that is not told."""
    own = _object(_object(record.get("metadata")).get("trioeval"))
    return str(own.get("outcome") or "done")


def score_columns(record: Mapping[str, Any]) -> Iterator[tuple[Value, ...]]:
    """A line an assertion that was judged, from `position` on."""
    graded = record.get("gradingResult")
    if type(graded) is not dict:
        graded = _object(_object(record.get("metadata")).get("trioeval"))
    parts = graded.get("componentResults")
    for position, part in enumerate(parts if isinstance(parts, list | tuple) else ()):
        if type(part) is not dict:
            continue
        said = part.get("assertion")
        if type(said) is not dict:
            said = _object(_object(part.get("metadata")).get("assertionSet"))
        reason = _text(part.get("reason"))
        yield (
            position,
            _text(said.get("type")),
            _text(said.get("metric")),
            int(bool(part.get("pass"))),
            _number(part.get("score")),
            _number(said.get("weight", 1.0)),
            None if reason is None else reason[:_LONGEST_REASON],
        )


def number(value: Any) -> float | None:
    """A finite number for a column; None of what is none."""
    return _number(value)


def count(value: Any) -> int | None:
    """A whole number for a column; None of what is none."""
    return None if value is None else _count(value)


def _object(value: Any) -> Mapping[str, Any]:
    # The type first: asking whether it is a mapping is slow.
    return value if type(value) is dict or isinstance(value, Mapping) else {}


def _text(value: Any) -> str | None:
    return plain(value) if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    if type(value) is float and math.isfinite(value):
        return value
    if not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def _count(value: Any) -> int:
    return min(int(value), _LARGEST) if isinstance(value, int) and value > 0 else 0

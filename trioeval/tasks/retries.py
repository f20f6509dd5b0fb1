"""Which rows of a stored run are run again, and which of those ask for everything anew."""

import re
from typing import Literal, TypeAlias

import attrs

from trioeval.errors import UsageError
from trioeval.tasks.rows import LEFT

Which: TypeAlias = Literal["rest", "none", "errors", "timeouts", "failed", "rows"]
"""What is run again besides the rows that never came to an end, which always are.

`rest` is what an earlier execution was to run again and did not, and `none` is not even that.
"""

_WORDS: tuple[Which, ...] = ("failed", "errors", "timeouts", "none")
_RANGE = re.compile(r"\s*(\d{1,18})\s*(?:-\s*(\d{1,18})\s*)?")

_TIMED_OUT = "timed_out"


@attrs.frozen
class Retry:
    """What is run again."""

    which: Which = "rest"
    rows: tuple[range, ...] = ()
    """With `rows`: their indices, in order, none of them twice."""

    def beyond(self, size: int) -> int | None:
        """The largest row that is named and that a run with so many rows does not have, if any."""
        last = max((part.stop - 1 for part in self.rows), default=-1)
        return last if last >= size else None

    def __str__(self) -> str:
        if self.which != "rows":
            return self.which
        return ",".join(
            str(part.start) if len(part) == 1 else f"{part.start}-{part.stop - 1}"
            for part in self.rows
        )


def parse_retry(text: str) -> Retry:
    """What a text says that is run again: `failed`, `errors`, `timeouts`, `none`, or the indices of rows.

    Raises:
        UsageError: It says none of these.

    Example:
        >>> str(parse_retry("errors")), str(parse_retry("20-25, 3,17,4"))
        ('errors', '3-4,17,20-25')
    """
    word = text.strip().lower()
    for known in _WORDS:
        if word == known:
            return Retry(known)
    parts = [_RANGE.fullmatch(part) for part in text.split(",")]
    ranges = [
        range(int(part[1]), int(part[2] or part[1]) + 1) for part in parts if part is not None
    ]
    if len(ranges) < len(parts) or not all(ranges):
        msg = f"cannot run {text!r} again; write failed, errors, timeouts, none, or rows such as 3,17,20-25"
        raise UsageError(msg)
    return Retry("rows", _joined(ranges))


def _joined(ranges: list[range]) -> tuple[range, ...]:
    """The same indices, ascending, each once, in as few ranges as there can be."""
    found: list[range] = []
    for part in sorted(ranges, key=lambda one: one.start):
        if found and part.start <= found[-1].stop:
            found[-1] = range(found[-1].start, max(found[-1].stop, part.stop))
        else:
            found.append(part)
    return tuple(found)


def has_ended(outcome: str) -> bool:
    """Whether a row came to an end: it stays until another one that did takes its place.

    Args:
        outcome: How its job ended, as in `Row.outcome`.

    Example:
        >>> has_ended("failed"), has_ended("not_run")
        (True, False)
    """
    return outcome not in LEFT


def runs_again(retry: Retry, outcome: str, *, passed: bool | None, index: int) -> bool:
    """Whether a recorded row is run again.

    Args:
        retry: What is asked for.
        outcome: How its job ended, as in `Row.outcome`.
        passed: Its verdict; None where it has none.
        index: Its index.

    Example:
        >>> runs_again(Retry(), "interrupted", passed=None, index=0)
        True
        >>> runs_again(Retry(), "failed", passed=None, index=0)
        False
    """
    if not has_ended(outcome):
        return True
    match retry.which:
        case "rest" | "none":
            return False
        case "errors":
            return passed is None
        case "timeouts":
            return outcome == _TIMED_OUT
        case "failed":
            return passed is False
        case "rows":
            return any(index in part for part in retry.rows)


def asks_anew(retry: Retry, outcome: str, *, passed: bool | None, index: int) -> bool:
    """Whether a recorded row is run again and asks for everything anew, also for replies that are there.

    Where a row has no verdict, the replies that it has are good, and only what failed is asked again. Where
    it has one, another can come of other replies only. Of a row that is named everything is asked.
    """
    if not has_ended(outcome) or retry.which not in ("failed", "rows"):
        return False
    return runs_again(retry, outcome, passed=passed, index=index)

"""What it means for a row that something of it was not made. Pure."""

from collections.abc import Sequence

import attrs

from trioeval.datasets.graph import ColumnGraph
from trioeval.datasets.result import Cause, DroppedRow
from trioeval.datasets.tracker import FINISH, PREPARE, MakeJob
from trioeval.errors import (
    BudgetError,
    CallError,
    GradingError,
    LaneClosedError,
    ProviderError,
    QuotaError,
    TooLateError,
    TrioevalError,
    leaves,
)
from trioeval.faults import Fault

_STAGES = {PREPARE: "its processors", FINISH: "its end"}
_SHOWN = 5  # jobs that a message names


@attrs.frozen
class Trouble:
    """How a maker failed."""

    error: Exception
    attempts: int
    """Requests that its job has made."""
    is_own: bool = False
    """Whether its call was refused while the lane served others."""

    @property
    def reason(self) -> str | None:
        """Why it is no failure of the row, which may be made in another run; None if it is one."""
        if self.is_own:
            return None
        reasons = [_reason(leaf) for leaf in leaves(self.error)]
        return next((reason for reason in reasons if reason is not None), None)

    @property
    def is_mishap(self) -> bool:
        """Whether it might have gone well."""
        return all(_is_mishap(leaf) for leaf in leaves(self.error))

    def dropped(self, row: int, column: str) -> DroppedRow:
        """What becomes of a row."""
        first = next(leaves(self.error))
        return DroppedRow(
            row=row,
            cause="failed",
            column=column,
            error=say(self.error),
            kind=first.kind if isinstance(first, ProviderError) else None,
            attempts=self.attempts,
        )


def say(error: BaseException) -> str:
    """What went wrong, for a person."""
    first = next(leaves(error))
    if isinstance(first, TrioevalError) and str(first):
        return str(first)
    return f"{type(first).__name__}: {first}"


def timed_out(row: int, column: str, seconds: float, attempts: int) -> DroppedRow:
    """What becomes of a row one job of which took too long."""
    return DroppedRow(
        row=row,
        cause="failed",
        column=column,
        error=f"timed out after {seconds:g} s of working time (timeoutMs)",
        kind="attempt_timeout",
        attempts=attempts,
    )


def left_out(row: int, cause: Cause, column: str | None = None) -> DroppedRow:
    """A row that somebody did not want, or nobody will finish."""
    return DroppedRow(row=row, cause=cause, column=column)


def failed_producer(graph: ColumnGraph, row: DroppedRow) -> int | None:
    """Who failed to make something of a row that is gone; None if that is not why."""
    if row.cause != "failed" or row.column is None:
        return None
    return graph.maker.get(row.column)


def behind_processors(graph: ColumnGraph, gone: dict[int, DroppedRow]) -> Sequence[DroppedRow]:
    """Take out the rows that were dropped when processors before the batch had seen them, or by these.

    They may look at all rows of a group: they see the same ones as the first time.
    """
    scratch = {
        column for column, place in graph.maker.items() if graph.producers[place].scope == "scratch"
    }
    seen = [one for one in gone.values() if one.column not in scratch]
    for one in seen:
        del gone[one.row]
    return seen


def stuck(graph: ColumnGraph, group: int, needed: Sequence[MakeJob]) -> str:
    """That nothing of a group goes on, although nothing of it is lost."""
    said = [
        (_STAGES.get(job.producer) or f"column {graph.producers[job.producer].name!r}")
        + ("" if job.row is None else f" of row {job.row}")
        for job in needed[:_SHOWN]
    ]
    more = f", and {len(needed) - _SHOWN} more" if len(needed) > _SHOWN else ""
    shown = ", ".join(said)
    return f"group {group} waits for what will never be made: {shown}{more}; please report this"


def _reason(error: BaseException) -> str | None:
    match error:
        case LaneClosedError():
            return "lane"
        case BudgetError() if error.wanted <= error.limit:
            return "budget_exceeded"
        case TooLateError():
            return "deadline"
        case QuotaError(reason="budget_exhausted" | "limiter_unavailable"):
            return "quota"
        case CallError(fault=Fault.RATE_LIMITED):
            return "rate_limited"
        case _:
            return None


def _is_mishap(error: BaseException) -> bool:
    if isinstance(error, GradingError):
        return error.mishap
    return isinstance(error, CallError) and error.fault in (Fault.TRANSIENT, Fault.RATE_LIMITED)

"""The interface of makers: one maker makes the values of each producer of a graph."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast

import attrs
import trio

from trioeval.columns.cell_types import ColumnType, fits
from trioeval.columns.files.formats import as_read
from trioeval.columns.graph import MakeJob, Producer
from trioeval.columns.journal import MadeRecord
from trioeval.columns.lanes import LOCAL
from trioeval.columns.result import DroppedRow
from trioeval.errors import (
    BudgetError,
    CallError,
    Fault,
    GradingError,
    LaneClosedError,
    LimitError,
    ProviderError,
    TooLateError,
    TrioevalError,
    leaves,
)
from trioeval.evaluation.journal import RecordedReply
from trioeval.kernel import Calls
from trioeval.text import counted
from trioeval.usage import Usage


class CellError(TrioevalError):
    """A value cannot be made, and a retry would not help."""


class NotMadeError(TrioevalError):
    """Rows were not made, and another run may make them.

    Args:
        reason: The reason, a key of `DatasetResult.not_run`.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@attrs.define(eq=False, repr=False)
class JobCosts:
    """The costs of the calls of one job; a `trioeval.evaluation.provider_calls.CallObserver`."""

    calls: int = 0
    recalled: int = 0
    """Replies of earlier executions."""
    usages: list[Usage] = attrs.field(factory=list)
    cost: float | None = None
    seconds: float = 0.0

    def on_request(self, _tokens: int, /) -> None:
        """Count a request."""
        self.calls += 1

    def on_failure(self, error: ProviderError, _tokens: int, /) -> None:
        """Count the costs of a failed request."""
        self._count(error.usage, error.money)

    def on_reply(self, paid: RecordedReply, /, *, recalled: bool) -> None:
        """Count the costs of a reply."""
        self.recalled += recalled
        self.seconds += paid.latency_ms / 1000
        self._count(paid.reply.usage, paid.reply.cost)

    def _count(self, usage: Usage, cost: float | None) -> None:
        self.usages.append(usage)
        if cost is not None:
            self.cost = (self.cost or 0.0) + cost

    def plus(self, other: "JobCosts") -> "JobCosts":
        """Return the sum of two rounds of one job."""
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        return JobCosts(
            calls=self.calls + other.calls,
            recalled=self.recalled + other.recalled,
            usages=[*self.usages, *other.usages],
            cost=sum(costs) if costs else None,
            seconds=self.seconds + other.seconds,
        )

    def json(self) -> Mapping[str, Any]:
        """Return the members that are not empty, for the journal.

        Example:
            >>> JobCosts(calls=1, usages=[Usage(total=3)], seconds=0.5).json()
            {'calls': 1, 'seconds': 0.5, 'usage': {'total': 3}}
        """
        data: dict[str, Any] = {}
        for name in ("calls", "recalled", "seconds"):
            if getattr(self, name):
                data[name] = getattr(self, name)
        if self.cost is not None:
            data["cost"] = self.cost
        if self.usages:
            usage = Usage.sum(self.usages)
            data["usage"] = {
                name: count for name, count in attrs.asdict(usage).items() if count is not None
            }
        return data

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> "JobCosts":
        """Return the tally of the output of `json`."""
        members = {**data}
        usage = members.pop("usage", None)
        return cls(**members, usages=[] if usage is None else [Usage(**usage)])


@attrs.frozen
class MakerFailure:
    """The failure of a maker."""

    error: Exception
    attempts: int
    """Requests that its job has made."""
    is_own: bool = False
    """True if its call was refused while the lane served others."""

    @property
    def reason(self) -> str | None:
        """The reason if the row may still be made in another run; None if its failure is permanent."""
        if self.is_own:
            return None
        reasons = [_reason(leaf) for leaf in leaves(self.error)]
        return next((reason for reason in reasons if reason is not None), None)

    @property
    def is_transient(self) -> bool:
        """True if the failure was transient."""
        return all(_is_transient(leaf) for leaf in leaves(self.error))

    def dropped(self, row: int, column: str) -> DroppedRow:
        """Return the record of a row that this failure drops."""
        first = next(leaves(self.error))
        return DroppedRow(
            row=row,
            cause="failed",
            column=column,
            error=error_text(self.error),
            kind=first.kind if isinstance(first, ProviderError) else None,
            attempts=self.attempts,
        )


def error_text(error: BaseException) -> str:
    """Return the message of an error for the user."""
    first = next(leaves(error))
    if isinstance(first, TrioevalError) and str(first):
        return str(first)
    return f"{type(first).__name__}: {first}"


def _reason(error: BaseException) -> str | None:
    match error:
        case NotMadeError():
            return error.reason
        case LaneClosedError():
            return "lane"
        case BudgetError() if error.wanted <= error.limit:
            return "budget_exceeded"
        case TooLateError():
            return "deadline"
        case LimitError(reason="budget_exhausted" | "limiter_unavailable"):
            return "shared_limit"
        case CallError(fault=Fault.RATE_LIMITED):
            return "rate_limited"
        case _:
            return None


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, GradingError):
        return error.is_transient
    return isinstance(error, CallError) and error.fault in (Fault.TRANSIENT, Fault.RATE_LIMITED)


@attrs.frozen
class SkippedRows:
    """Rows for which a job makes no calls."""

    skipped: frozenset[int] = frozenset()
    """Rows that are skipped."""
    faults: Mapping[int, CellError] = attrs.field(factory=dict)
    """Rows whose condition cannot be evaluated."""

    @property
    def rows(self) -> frozenset[int]:
        """All of these rows."""
        return self.skipped | self.faults.keys()


@attrs.define(eq=False, repr=False)
class JobOrder:
    """A job from the moment it may start until its outcome; the payload of the kernel's job."""

    job: MakeJob
    lane: str = LOCAL
    """The lane of its maker, or `LOCAL` if no call is needed."""
    known: MadeRecord | SkippedRows | None = None
    """The result of an earlier execution, or the rows that are skipped."""
    rank: tuple[float, float] | None = None
    """The rank on a lane that columns share; set when the kernel asks for it."""
    tally: JobCosts = attrs.field(init=False)
    """Requests and tokens of this round; set by `begin`."""
    scope: trio.CancelScope | None = None
    """Contains the body while it runs."""
    earlier: JobCosts | None = None
    """The tally of the rounds before this one; None in the first round."""
    trouble: MakerFailure | None = None
    """The failure of the maker in this round."""
    is_gone: bool = False
    """True if its result is no longer needed."""

    def begin(self) -> trio.CancelScope:
        """Start a round; return the cancel scope of its body."""
        self.tally, self.scope = JobCosts(), trio.CancelScope()
        return self.scope

    def fail(self, error: Exception, calls: Calls[Any]) -> Exception:
        """Note the failure of the maker until the kernel decides whether another round follows."""
        self.trouble = MakerFailure(error, calls.count, calls.refused_alone)
        return error

    def set_aside(self) -> None:
        """Let the job wait for another round."""
        self.earlier = self.used
        self.scope = self.trouble = None

    @property
    def used(self) -> JobCosts:
        """The tally of all rounds."""
        return self.tally if self.earlier is None else self.earlier.plus(self.tally)

    def give_up(self) -> None:
        """Cancel the body; the result is no longer needed."""
        self.is_gone = True
        if self.scope is not None:
            self.scope.cancel("its row was dropped")


@attrs.define(eq=False, repr=False)
class CellOrder(JobOrder):
    """The order of one cell."""

    values: Mapping[str, Any] = attrs.field(factory=dict)
    """The columns that the maker needs, by name: a copy that it may change."""

    @property
    def row(self) -> int:
        """The row of the cell."""
        return cast("int", self.job.row)


@attrs.define(eq=False, repr=False)
class GroupOrder(JobOrder):
    """The order of a group."""

    start: int = 0
    """The number of its first row, also if that row was dropped: an ordered source continues there."""
    rows: Sequence[int] = ()
    """The numbers of the requested rows, ascending: all rows of the group for a scratch maker, the rows that
    are neither dropped nor skipped for a full maker."""
    values: Sequence[Mapping[str, Any]] = ()
    """The needed columns of each row, copied; empty mappings for a scratch maker."""
    follows: bool = False
    """True if the maker may have been called for an earlier group, in this execution or a previous one."""

    @property
    def group(self) -> int:
        """The number of the group."""
        return self.job.group


Made: TypeAlias = Sequence[tuple[int, Mapping[str, Any] | CellError]]
"""Row numbers with their new values, or with the error by which a single row is dropped (`failed`). A maker
returns each requested row once. Only the maker of an expression may leave out rows, which are then
dropped."""


# Checks of the results of makers. Pure.


_SHOWN = 60  # characters of a value in a message


def cell_values(
    producer: Producer,
    columns: Sequence[str],
    types: Mapping[str, ColumnType],
    made: Mapping[str, Any],
) -> Mapping[str, Any]:
    """Return the values that a maker made for one row, in the form in which they are stored and read again.

    Args:
        producer: The producer of the maker.
        columns: Its outputs, and its side-effect columns that are not ignored.
        types: The types of all columns.
        made: The values by column. Missing side-effect columns become null.

    Raises:
        CellError: A column is missing, is not one of its own, or is not of its type.
    """
    values: dict[str, Any] = {}
    for name in columns:
        value, kind = made.get(name), types[name]
        if value is None:
            if name not in made and name in producer.outputs:
                given = ", ".join(map(repr, made)) or "nothing"
                raise CellError(f'it did not return column "{name}", only {given}')
            values[name] = None
        elif fits(value, kind):
            values[name] = as_read(value, kind)
        else:
            raise CellError(_misfit(producer, name, kind, value))
    own = (*producer.outputs, *producer.extras)
    for name in made:
        if name not in values and name not in own:
            allowed = ", ".join(map(repr, own))
            raise CellError(f"it returned column {name!r}, which is not one of its own ({allowed})")
    return values


def _misfit(producer: Producer, name: str, kind: ColumnType, value: Any) -> str:
    shown = repr(value)
    if len(shown) > _SHOWN:
        shown = f"{shown[:_SHOWN]}…"
    of = "" if name == producer.name else f" of column {name!r}"
    return f"its value{of} is {shown}, which is not a valid {kind}"


def check_rows(rows: Sequence[int], made: Sequence[tuple[int, Any]], *, leaves_out: bool) -> None:
    """Raise if a maker of groups returned other rows than the requested ones.

    Args:
        rows: The requested rows, ascending.
        made: The returned rows with their values, in any order.
        leaves_out: True if rows may be missing.

    Raises:
        CellError: A row was returned twice, was not requested, or is missing.

    Example:
        >>> check_rows([3, 4], [(4, "x")], leaves_out=True)
        >>> check_rows([3, 4], [(4, "x"), (3, "y")], leaves_out=False)
        >>> check_rows([3, 4], [(4, "x")], leaves_out=False)
        Traceback (most recent call last):
        trioeval.columns.makers.base.CellError: 1 of 2 rows returned; row 3 is missing
    """
    requested, seen = set(rows), set[int]()
    for row, _ in made:
        if row not in requested:
            raise CellError(f"it returned row {row!r}, which was not requested")
        if row in seen:
            raise CellError(f"it returned row {row} twice")
        seen.add(row)
    if len(seen) < len(requested) and not leaves_out:
        first = min(requested - seen)
        raise CellError(
            f"{len(seen)} of {counted(len(requested), 'row')} returned; row {first} is missing"
        )


class CellMaker(Protocol):
    """Makes one row at a time."""

    @property
    def lane(self) -> str:
        """The lane of its first call; `LOCAL` if it makes none, `CODE` if it runs code of the suite."""
        ...

    async def make(self, order: CellOrder, calls: Calls[Any], /) -> Mapping[str, Any]:
        """Return the values of its outputs and side-effect columns, and of no others.

        Raises:
            CallError: A call failed; the kernel knows whether it may be retried.
            CellError: It cannot be made; so does any other exception.
        """
        ...


class GroupMaker(Protocol):
    """Makes a group at a time."""

    @property
    def lane(self) -> str:
        """The lane, as in `CellMaker`."""
        ...

    async def make(self, order: GroupOrder, calls: Calls[Any], /) -> Made:
        """Return the values of all rows. Long work must include checkpoints (`trio.lowlevel.checkpoint`)."""
        ...


Maker: TypeAlias = CellMaker | GroupMaker

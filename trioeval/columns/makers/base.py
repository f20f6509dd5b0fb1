"""What makes values: one maker for each producer of a graph."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast

import attrs
import trio

from trioeval.columns.cell_types import ColumnType, fits
from trioeval.columns.files.formats import as_read
from trioeval.columns.graph import MakeJob, Producer
from trioeval.columns.journal import MadeRecord
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
from trioeval.evaluation.journal import Paid
from trioeval.kernel import Calls
from trioeval.usage import Usage

LOCAL = "columns"
"""The lane of what asks nobody and takes no time. No provider's lane has its name."""

CODE = "columns: code"
"""The lane of what runs the suite's own code, in other processes: what takes no time must not wait for it."""

OWN_LANES = frozenset({LOCAL, CODE})
"""The lanes on which nobody is asked."""

LOCAL_WIDTH = 8
"""Jobs under way on each of them at once: those that wait for a process or a file let others go on."""


class CellError(TrioevalError):
    """A value could not be made, and trying again would not help."""


@attrs.define(eq=False)
class Tally:
    """What the calls of one job used; a `trioeval.evaluation.provider_calls.Listener`."""

    calls: int = 0
    recalled: int = 0
    """Replies of earlier executions."""
    usages: list[Usage] = attrs.field(factory=list)
    cost: float | None = None
    seconds: float = 0.0

    def sent(self, _tokens: int, /) -> None:
        """A request is made."""
        self.calls += 1

    def failed(self, error: ProviderError, _tokens: int, /) -> None:
        """It failed, and may have been paid for."""
        self._count(error.usage, error.money)

    def heard(self, paid: Paid, /, *, recalled: bool) -> None:
        """There is a reply."""
        self.recalled += recalled
        self.seconds += paid.latency_ms / 1000
        self._count(paid.reply.usage, paid.reply.cost)

    def _count(self, usage: Usage, cost: float | None) -> None:
        self.usages.append(usage)
        if cost is not None:
            self.cost = (self.cost or 0.0) + cost

    def plus(self, other: "Tally") -> "Tally":
        """The sum of two rounds of one job."""
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Tally(
            calls=self.calls + other.calls,
            recalled=self.recalled + other.recalled,
            usages=[*self.usages, *other.usages],
            cost=sum(costs) if costs else None,
            seconds=self.seconds + other.seconds,
        )

    def json(self) -> Mapping[str, Any]:
        """The members that are not empty, for the journal.

        Example:
            >>> Tally(calls=1, usages=[Usage(total=3)], seconds=0.5).json()
            {'calls': 1, 'seconds': 0.5, 'usage': {'total': 3}}
        """
        told: dict[str, Any] = {}
        for name in ("calls", "recalled", "seconds"):
            if getattr(self, name):
                told[name] = getattr(self, name)
        if self.cost is not None:
            told["cost"] = self.cost
        if self.usages:
            usage = Usage.sum(self.usages)
            told["usage"] = {
                name: count for name, count in attrs.asdict(usage).items() if count is not None
            }
        return told

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> "Tally":
        """A tally of the JSON of `json`."""
        members = {**told}
        usage = members.pop("usage", None)
        return cls(**members, usages=[] if usage is None else [Usage(**usage)])


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
        """The end of a row."""
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
    """An error in words for a person."""
    first = next(leaves(error))
    if isinstance(first, TrioevalError) and str(first):
        return str(first)
    return f"{type(first).__name__}: {first}"


def _reason(error: BaseException) -> str | None:
    match error:
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


def _is_mishap(error: BaseException) -> bool:
    if isinstance(error, GradingError):
        return error.mishap
    return isinstance(error, CallError) and error.fault in (Fault.TRANSIENT, Fault.RATE_LIMITED)


@attrs.frozen
class Skips:
    """Rows for which a job asks nobody."""

    skipped: frozenset[int] = frozenset()
    """Rows that are left out."""
    faults: Mapping[int, CellError] = attrs.field(factory=dict)
    """Rows whose condition fails."""

    @property
    def rows(self) -> frozenset[int]:
        """All of them."""
        return self.skipped | self.faults.keys()


@attrs.define(eq=False)
class Order:
    """A job from the moment it may start until its outcome; the payload of the kernel's job."""

    job: MakeJob
    lane: str = LOCAL
    """The lane of its maker, or `LOCAL` if there is nothing to ask."""
    known: MadeRecord | Skips | None = None
    """The result of an earlier execution, or the rows that are left out."""
    rank: tuple[float, float] | None = None
    """The place on a lane that columns share; set when the kernel asks for it."""
    tally: Tally = attrs.field(init=False)
    """Requests and tokens of this round; set by `begin`."""
    scope: trio.CancelScope | None = None
    """Holds the body while it runs."""
    earlier: Tally | None = None
    """The tally of the rounds before this one; None in the first round."""
    trouble: Trouble | None = None
    """How the maker failed in this round."""
    is_gone: bool = False
    """Whether its result is not wanted any more."""

    def begin(self) -> trio.CancelScope:
        """Begin a round; returns the scope of its body."""
        self.tally, self.scope = Tally(), trio.CancelScope()
        return self.scope

    def fail(self, error: Exception, calls: Calls[Any]) -> Exception:
        """Note how the maker failed, until the kernel decides whether another round follows."""
        self.trouble = Trouble(error, calls.count, calls.refused_alone)
        return error

    def set_aside(self) -> None:
        """Let the job wait for another round."""
        self.earlier = self.used
        self.scope = self.trouble = None

    @property
    def used(self) -> Tally:
        """The tally of all rounds."""
        return self.tally if self.earlier is None else self.earlier.plus(self.tally)

    def give_up(self) -> None:
        """Cancel the body; the result is not wanted any more."""
        self.is_gone = True
        if self.scope is not None:
            self.scope.cancel("its row was dropped")


@attrs.define(eq=False)
class CellOrder(Order):
    """One cell that is wanted."""

    values: Mapping[str, Any] = attrs.field(factory=dict)
    """The columns that it needs, by name: a copy that the maker may change."""

    @property
    def row(self) -> int:
        """The row of the cell."""
        return cast("int", self.job.row)


@attrs.define(eq=False)
class GroupOrder(Order):
    """A group that is wanted."""

    start: int = 0
    """The number of its first row among all, dropped ones too: where an ordered source goes on."""
    rows: Sequence[int] = ()
    """The numbers of the rows that are wanted, ascending: of a scratch maker all of the group, of a full one
    those that are neither dropped nor skipped."""
    values: Sequence[Mapping[str, Any]] = ()
    """Of each the columns that are needed, copied; empty mappings for a scratch maker."""
    follows: bool = False
    """Whether the maker may have been asked for a group before this one, in this execution or an earlier."""

    @property
    def group(self) -> int:
        """The number of the group."""
        return self.job.group


Made: TypeAlias = Sequence[tuple[int, Mapping[str, Any] | CellError]]
"""Row numbers with their new values, or with why a row has none, which then is dropped alone (`failed`). A
scratch maker gives each row that is wanted once. A full one as well, but that of an expression may leave out
rows: they are dropped."""


# Whether a maker gave what it was asked for. Pure.


_SHOWN = 60  # characters of a value in a message


def cell_values(
    producer: Producer,
    columns: Sequence[str],
    types: Mapping[str, ColumnType],
    made: Mapping[str, Any],
) -> Mapping[str, Any]:
    """What a maker made of one row, as it is kept, and as it will be read again.

    Args:
        producer: Whose it is.
        columns: What comes of it: outputs, and the side-effect columns that are there.
        types: Of all columns.
        made: By column. Side-effect columns may be missing, which are null then.

    Raises:
        CellError: A column is missing, is not one of its own, or is not of its type.
    """
    kept: dict[str, Any] = {}
    for name in columns:
        value, kind = made.get(name), types[name]
        if value is None:
            if name not in made and name in producer.outputs:
                given = ", ".join(map(repr, made)) or "nothing"
                raise CellError(f'it made no column "{name}", only {given}')
            kept[name] = None
        elif fits(value, kind):
            kept[name] = as_read(value, kind)
        else:
            raise CellError(_misfit(producer, name, kind, value))
    own = (*producer.outputs, *producer.extras)
    for name in made:
        if name not in kept and name not in own:
            allowed = ", ".join(map(repr, own))
            raise CellError(f"it made column {name!r}, which is not one of its own ({allowed})")
    return kept


def _misfit(producer: Producer, name: str, wanted: ColumnType, value: Any) -> str:
    shown = repr(value)
    if len(shown) > _SHOWN:
        shown = f"{shown[:_SHOWN]}…"
    of = "" if name == producer.name else f" of column {name!r}"
    return f"its value{of} is {shown}, which is no {wanted}"


def check_rows(wanted: Sequence[int], made: Sequence[tuple[int, Any]], *, leaves_out: bool) -> None:
    """Refuse what a maker of groups made of others than the rows that it was asked for.

    Args:
        wanted: The rows, ascending.
        made: Rows with what was made of them, in any order.
        leaves_out: Whether rows may be missing.

    Raises:
        CellError: A row is there twice, is none of them, or is missing.

    Example:
        >>> check_rows([3, 4], [(4, "x")], leaves_out=True)
        >>> check_rows([3, 4], [(4, "x"), (3, "y")], leaves_out=False)
        >>> check_rows([3, 4], [(4, "x")], leaves_out=False)
        Traceback (most recent call last):
        trioeval.columns.makers.base.CellError: 1 of 2 rows came back; row 3 is missing
    """
    asked, seen = set(wanted), set[int]()
    for row, _ in made:
        if row not in asked:
            raise CellError(f"it made row {row!r}, which it was not asked for")
        if row in seen:
            raise CellError(f"it made row {row} twice")
        seen.add(row)
    if len(seen) < len(asked) and not leaves_out:
        first = min(asked - seen)
        raise CellError(f"{len(seen)} of {len(asked)} rows came back; row {first} is missing")


class CellMaker(Protocol):
    """Makes one row at a time."""

    @property
    def lane(self) -> str:
        """Where its first call is made; `LOCAL` if it makes none, `CODE` if it runs code of the suite."""
        ...

    async def make(self, order: CellOrder, calls: Calls[Any], /) -> Mapping[str, Any]:
        """The values of its outputs and side-effect columns. Nothing else is allowed in it.

        Raises:
            CallError: A call failed; the kernel knows whether it may be made again.
            CellError: It cannot be made. Any other exception means that too.
        """
        ...


class GroupMaker(Protocol):
    """Makes a group at a time."""

    @property
    def lane(self) -> str:
        """As of `CellMaker`."""
        ...

    async def make(self, order: GroupOrder, calls: Calls[Any], /) -> Made:
        """The values of all rows. Long work looks up for others now and then (`trio.lowlevel.checkpoint`)."""
        ...


Maker: TypeAlias = CellMaker | GroupMaker

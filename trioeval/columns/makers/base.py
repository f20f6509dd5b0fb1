"""What makes values: one maker for each producer of a graph."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import attrs

from trioeval.errors import ProviderError, TrioevalError
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


@attrs.frozen
class CellOrder:
    """One cell that is wanted."""

    row: int
    values: Mapping[str, Any]
    """The columns that it needs, by name: a copy that the maker may change."""
    tally: Tally


@attrs.frozen
class GroupOrder:
    """A group that is wanted."""

    group: int
    start: int
    """The number of its first row among all, dropped ones too: where an ordered source goes on."""
    rows: Sequence[int]
    """The numbers of the rows that are wanted, ascending: of a scratch maker all of the group, of a full one
    those that are neither dropped nor skipped."""
    values: Sequence[Mapping[str, Any]]
    """Of each the columns that are needed, copied; empty mappings for a scratch maker."""
    tally: Tally
    follows: bool = False
    """Whether the maker may have been asked for a group before this one, in this execution or an earlier."""


Made: TypeAlias = Sequence[tuple[int, Mapping[str, Any] | CellError]]
"""Row numbers with their new values, or with why a row has none, which then is dropped alone (`failed`). A
scratch maker gives each row that is wanted once. A full one as well, but that of an expression may leave out
rows: they are dropped."""


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

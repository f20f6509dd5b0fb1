"""How leases end: told in the background, until whoever keeps the limits has heard it.

A call that is over waits for nobody: what it used is put down here in the same step, and a task of its
own sends it, everything that came meanwhile in one message.

The hard case is a request that nobody knows the answer of, because its call was cancelled or gave up.
To complete its lease is not enough: the request may still be on its way, and be granted after that, for
ever. So the same is asked again under the same id, until there is an answer: from then on the id is
decided, whatever arrives later. If the answer is a grant, the lease is given back unused. Rejected: to
shield the request in its call (a cancelled call would wait for the network).

A message that is refused altogether is sent once more in parts, one for each lease: what is refused of one
must not leave the others untold.

Law: LEASE.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

import attrs
import trio

from trioeval.errors import QuotaError
from trioeval.quota.amounts import nothing_of
from trioeval.quota.client_rules import after_silence
from trioeval.quota.leases import Ask, Granted, Settlement, Unknown
from trioeval.quota.reach import Reach
from trioeval.quota.trouble import ToldTrouble, Trouble

T = TypeVar("T")

_MOST = 256
"""Leases in one message."""


@attrs.define(eq=False)
class Settling:
    """What is not yet told of the leases of one program."""

    _reach: Reach
    _spread: Callable[[], float]
    _told: ToldTrouble
    _has_room: Callable[[Iterable[str]], None]
    """Called with limits of leases that are over now, for whoever waits for them."""
    _settlements: "_Outbox[Settlement]" = attrs.field(init=False)
    _doubts: "_Outbox[Ask]" = attrs.field(init=False)
    """Requests of which nobody knows the answer, and whose calls do not want it any more."""

    def __attrs_post_init__(self) -> None:
        told, spread = self._told, self._spread
        self._settlements = _Outbox("what calls used", self._complete, spread, told)
        self._doubts = _Outbox("whether leases were granted", self._ask_again, spread, told)

    @property
    def left(self) -> int:
        """How many leases there are of which something is still to be told."""
        return len(self._settlements.items) + len(self._doubts.items)

    def settle(self, settlement: Settlement, keys: Iterable[str]) -> None:
        """A lease is over, and of these limits there may be more room for that. Synchronous."""
        self._settlements.put(settlement.lease_id, settlement, keys)

    def clear_up(self, ask: Ask) -> None:
        """It may have been granted, and nobody uses it. Synchronous."""
        self._doubts.put(ask.lease_id, ask, [one.key for one in ask.requirements])

    async def run(self) -> None:
        """Tell what there is, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._settlements.run)
            nursery.start_soon(self._doubts.run)

    async def wait_idle(self) -> None:
        """Wait until everything is told that is over by now. A checkpoint."""
        await self._doubts.wait_empty()  # first: they become settlements
        await self._settlements.wait_empty()

    def leave(self, within: float) -> None:
        """Say what is left to expire, because nobody has heard it. Synchronous.

        Args:
            within: Seconds that there were at the end.
        """
        self._settlements.leave(within)
        self._doubts.leave(within)

    async def _ask_again(self, asks: Sequence[Ask]) -> str | None:
        """Get one step further with doubts."""
        trouble: str | None = None
        for ask, decision in zip(asks, await self._reach.reserve(asks), strict=True):
            if isinstance(decision, Unknown):
                trouble = decision.message
                continue
            keys = self._doubts.take(ask.lease_id)
            # One that has expired holds nothing any more, and still counts in windows and budgets.
            if isinstance(decision, Granted) or decision.reason == "lease_expired":
                unused = Settlement(ask.lease_id, ask.job_id, nothing_of(ask.requirements))
                self.settle(unused, keys)
        return trouble

    async def _complete(self, settlements: Sequence[Settlement]) -> str | None:
        """Likewise with what leases have used."""
        try:
            await self._reach.complete(settlements)
        except QuotaError as error:
            if error.reason == "limiter_unavailable":
                return error.message
            raise
        freed = {key for one in settlements for key in self._settlements.take(one.lease_id)}
        if freed:
            self._has_room(freed)
        return None


@attrs.define(eq=False)
class _Outbox(Generic[T]):
    """Things to tell, each until it is told."""

    _what: str
    """It is, for people."""
    _deliver: Callable[[Sequence[T]], Awaitable[str | None]]
    """Takes out what is told; returns what is in the way of the rest, None if nothing is."""
    _spread: Callable[[], float]
    _told: ToldTrouble
    items: dict[str, tuple[T, Iterable[str]]] = attrs.field(factory=dict)
    """By lease id, with the limits that have more room after it."""
    _news: trio.Event = attrs.field(factory=trio.Event)
    _empty: trio.Event = attrs.field(factory=trio.Event)
    _trouble: str = "nobody was asked"
    """What was in the way last."""

    def put(self, lease_id: str, item: T, keys: Iterable[str]) -> None:
        self.items[lease_id] = item, keys
        self._empty = trio.Event()
        self._news.set()

    def take(self, lease_id: str) -> Iterable[str]:
        """It is told; which limits have more room for that."""
        _item, keys = self.items.pop(lease_id)
        return keys

    async def wait_empty(self) -> None:
        while self.items:
            await self._empty.wait()
        await trio.lowlevel.checkpoint()

    async def run(self) -> None:
        failures = 0
        while True:
            if not self.items:
                self._empty.set()
                await self._news.wait()
            # Re-armed before looking: what comes while a message is under way is sent with the next.
            self._news = trio.Event()
            ids = list(self.items)[:_MOST]
            trouble = await self._try([self.items[one][0] for one in ids], ids)
            if trouble is None:
                failures = 0
                continue
            failures += 1
            self._trouble = trouble
            if failures == 1:
                self._tell(f"cannot be told now, and will be: {trouble}", ids)
            await trio.sleep(after_silence(failures, self._spread()))

    def leave(self, within: float) -> None:
        if self.items:
            left = (
                f"was not told within {within:g} s: {self._trouble}; holds come back by themselves"
            )
            self._tell(left, tuple(self.items))

    async def _try(self, items: Sequence[T], ids: Sequence[str]) -> str | None:
        try:
            return await self._deliver(items)
        except QuotaError as error:
            refused = {ids[0]: error}
        if len(items) > 1:
            refused = {}
            for one, item in zip(ids, items, strict=True):
                try:
                    trouble = await self._deliver([item])
                except QuotaError as error:
                    refused[one] = error
                else:
                    if trouble is not None:
                        break
        self._forget(refused)
        return None

    def _forget(self, refused: Mapping[str, QuotaError]) -> None:
        """They are refused now and for ever, and left to expire."""
        by_reason: defaultdict[str, list[str]] = defaultdict(list)
        for one, error in refused.items():
            self.items.pop(one, None)
            by_reason[str(error)].append(one)
        for reason, ids in by_reason.items():
            self._tell(f"is refused: {reason}; holds come back by themselves", ids)

    def _tell(self, what: str, ids: Sequence[str]) -> None:
        leases = f"{len(ids)} lease{'s' * (len(ids) > 1)}"
        self._told(Trouble("settling", f"{self._what} ({leases}) {what}", tuple(ids)))

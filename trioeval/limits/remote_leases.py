# Apart from `limits.remote`: together they exceed 600 lines.
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

import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Generic, NoReturn, TypeVar

import attrs
import trio

from trioeval.errors import QuotaError
from trioeval.limits.availability import Reach, after_silence
from trioeval.limits.backend import ToldTrouble, Trouble, nothing_of
from trioeval.limits.ledger import LEAST_RETENTION
from trioeval.limits.model import Ask, Granted, Settlement, Unknown

# Leases do not expire while their calls run.
#
# Whoever keeps a concurrency limit gives a hold back after its timeout, because its holder may be gone.
# One that is still there says so every third of the timeout, for all of its leases at once, so that two
# messages in a row may be lost. A lease without holds is forgotten after ten minutes, and what its call has
# used would not count then; so it is extended in the same way. What was said counts from when it was sent:
# it may have been long on its way.
#
# A failed heartbeat is told, and ends no call.


_BEATS = 3
"""Heartbeats in one timeout."""
_MOST = 256
"""Leases in one message."""


@attrs.define(eq=False)
class _Held:
    """A lease whose call runs."""

    keys: frozenset[str]
    said_at: float
    """Instant at which its last message that was answered was sent."""


@attrs.define(eq=False)
class Heartbeat:
    """The live leases of one program."""

    _reach: Reach
    _spread: Callable[[], float]
    _told: ToldTrouble
    _timeouts: dict[str, float] | None = None
    """Of all limits, in seconds; inf of those that hold nothing; None before they are known."""
    _held: dict[str, _Held] = attrs.field(factory=dict)
    _news: trio.Event = attrs.field(factory=trio.Event)

    _due_at: float = -math.inf
    """Instant of the next message."""

    def add(self, lease_id: str, keys: frozenset[str], said_at: float) -> None:
        """A lease is granted. Synchronous.

        Args:
            lease_id: Its id.
            keys: Its limits.
            said_at: Instant at which it was asked for.
        """
        self._held[lease_id] = held = _Held(keys, said_at)
        if self._due_of(held) < self._due_at:
            self._news.set()

    def remove(self, lease_id: str) -> None:
        """It is over. Synchronous."""
        self._held.pop(lease_id, None)

    def may_hold(self, key: str) -> bool:
        """Whether what a lease takes of a limit comes back when it is over, as far as is known."""
        return self._timeouts is None or self._timeouts.get(key, 0.0) < math.inf

    def is_stale(self, keys: frozenset[str], said_at: float, now: float) -> bool:
        """Whether a lease that was asked for then may have expired by now."""
        return now - said_at >= _BEATS * self._period(keys)

    async def run(self) -> None:
        """Keep the leases alive, until cancelled."""
        failures = 0
        while True:
            self._news = trio.Event()
            self._due_at = min(map(self._due_of, self._held.values()), default=math.inf)
            if self._timeouts is not None:
                with trio.move_on_at(self._due_at):
                    await self._news.wait()
                    continue
            trouble = await self._beat()
            if trouble is None:
                failures = 0
                continue
            failures += 1
            if self._held:
                held = tuple(self._held)
                message = (
                    f"the holds of calls under way ({len(held)}) cannot be put off now: {trouble}"
                )
                self._told(Trouble("heartbeat", message, held))
            # Half a beat at most, so that the next attempt may still be in time.
            beat = min((self._period(held.keys) for held in self._held.values()), default=math.inf)
            await trio.sleep(min(after_silence(failures, self._spread()), beat / 2))

    def _period(self, keys: frozenset[str]) -> float:
        """Seconds between two messages for a lease of such limits."""
        timeouts = self._timeouts or {}
        return min([LEAST_RETENTION, *(timeouts.get(key, math.inf) for key in keys)]) / _BEATS

    def _due_of(self, held: _Held) -> float:
        if self._timeouts is None or not held.keys <= self._timeouts.keys():
            return -math.inf  # a limit that nothing is known of
        return held.said_at + self._period(held.keys)

    async def _beat(self) -> str | None:
        """Say that all are still there; what is in the way, if anything is."""
        try:
            await self._learn()
            await self._extend()
        except QuotaError as error:
            return error.message
        return None

    async def _learn(self) -> None:
        """Read the timeouts, which others may change."""
        states = await self._reach.states()
        self._timeouts = {one.limit.key: one.limit.timeout or math.inf for one in states}
        for held in self._held.values():  # of limits that were taken away meanwhile
            for key in held.keys - self._timeouts.keys():
                self._timeouts[key] = math.inf

    async def _extend(self) -> None:
        """Put off the expiry of every lease."""
        leases = list(self._held)
        for start in range(0, len(leases), _MOST):
            part, said_at = leases[start : start + _MOST], trio.current_time()
            for lease_id, lives in zip(part, await self._reach.extend(part), strict=True):
                held = self._held.get(lease_id)
                if held is None:  # its call ended meanwhile
                    continue
                if lives:
                    held.said_at = said_at
                    continue
                del self._held[lease_id]
                message = (
                    "the hold of a call expired while it runs: more may run than the limit allows"
                )
                self._told(Trouble("expired", message, (lease_id,)))


# Whoever asks and hears nothing is told so, when an answer would usually be there.
#
# A lane that asks for a permit keeps its turn at the cap over all lanes until it is told to wait, and whoever
# keeps the limits may be silent for seconds. Meanwhile other lanes could use the slot that is kept for it.
#
# How long an answer usually takes is what the last one took. To tell sooner would cost a lane whose keeper is
# far away its turn with every question, on a cap that is always full again when the answer comes.


MOMENT = 0.05
"""Seconds of silence that are told at the earliest."""


@attrs.define(eq=False)
class Silence:
    """The time since something was asked; made by `Silences.begin`."""

    began_at: float
    told_at: float
    """The instant at which it is told."""
    tell: Callable[[], None]


@attrs.define(eq=False)
class Silences:
    """What was asked, and neither answered nor told to be silent."""

    _usual: float = 0.0
    """Seconds that the last answer took."""
    _open: dict[Silence, None] = attrs.field(factory=dict)
    _wake_at: float = -math.inf
    """The instant until which `run` sleeps."""
    _sooner: trio.Event = attrs.field(factory=trio.Event)

    def begin(self, tell: Callable[[], None]) -> Silence:
        """Something is asked. Synchronous.

        Args:
            tell: Called synchronously if this lasts: for 50 ms, and twice as long as the last answer took.
        """
        now = trio.current_time()
        silence = Silence(now, now + max(MOMENT, 2 * self._usual), tell)
        self._open[silence] = None
        if silence.told_at < self._wake_at:
            self._sooner.set()
        return silence

    def end(self, silence: Silence, *, is_answered: bool) -> None:
        """There is an answer, or nobody waits for one. Synchronous."""
        self._open.pop(silence, None)
        if is_answered:
            self._usual = trio.current_time() - silence.began_at

    async def run(self) -> NoReturn:
        """Tell of those that last, until cancelled."""
        while True:
            self._wake_at = min((one.told_at for one in self._open), default=math.inf)
            self._sooner = trio.Event()
            with trio.move_on_at(self._wake_at):
                await self._sooner.wait()
            now = trio.current_time()
            for silence in [one for one in self._open if one.told_at <= now]:
                del self._open[silence]
                silence.tell()


T = TypeVar("T")


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

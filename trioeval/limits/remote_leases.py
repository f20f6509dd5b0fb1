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
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Generic, TypeAlias, TypeVar

import attrs
import trio

from trioeval.errors import LimitError
from trioeval.limits.backend import Backend
from trioeval.limits.denials import unavailable
from trioeval.limits.ledger import LEAST_RETENTION
from trioeval.limits.model import Ask, Decision, Unknown

Warn: TypeAlias = Callable[[str], None]
"""Called synchronously with what people should know; must not raise."""

# When a client asks again: after a denial, and after no answer.


SPREAD = 0.025
"""Most seconds that chance adds to a wait that the keeper named: who was denied together comes back apart."""
FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
"""Seconds between two attempts to get an answer, at first and at most."""


def after_denial(retry_after: float, spread: float) -> float:
    """Seconds until it is worth asking with a new id.

    Args:
        retry_after: What the denial says, in seconds, ≥ 0.
        spread: By chance, from 0 to 1 without 1.

    Example:
        >>> after_denial(10.0, 0.5), after_denial(0.0, 0.5)
        (10.0125, 0.0125)
    """
    return retry_after + spread * (min(SPREAD, retry_after) or SPREAD)


def after_silence(failures: int, spread: float) -> float:
    """Seconds until the same is asked again, with the same id: half of the bound at least.

    Not down to nothing: whoever keeps the limits for everybody is asked by all of them.

    Args:
        failures: Attempts in a row without an answer, ≥ 1.
        spread: By chance, from 0 to 1 without 1.

    Example:
        >>> [after_silence(failures, 0.0) for failures in (1, 2, 7, 2000)]
        [0.05, 0.1, 2.5, 2.5]
    """
    bound = min(LONGEST_WAIT, math.ldexp(FIRST_WAIT, min(failures - 1, 64)))
    return bound * (1 + spread) / 2


# All that a program asks goes through here, so that one that waits knows what others have found out: after a
# long outage not every call has to wait for its own patience to end. Any answer ends an outage. One begins
# only with a request that is repeated until there is an answer; else nobody might ever hear one.


@attrs.define(eq=False)
class Reach:
    """A backend, and whether it answers."""

    backend: Backend
    patience: float
    """Seconds after which an outage is taken as one that lasts, ≥ 0."""
    since: float | None = None
    """Instant of the first failure after the last answer; None while all is well."""
    reason: str = "nobody was asked"
    """The last failure, with who failed."""

    @property
    def lasts_at(self) -> float:
        """The instant from which on the outage lasts if nobody answers before; inf while all is well."""
        return math.inf if self.since is None else self.since + self.patience

    @contextmanager
    def asking(self, *, is_repeated: bool = True) -> Iterator[None]:
        """Note whether there is an answer to what is asked in the block.

        Args:
            is_repeated: Whether it is asked again until there is one; else it begins no outage.
        """
        try:
            yield
        except LimitError as error:
            if error.reason != "limiter_unavailable":
                self.since = None
            elif is_repeated:
                self.reason = error.message
                self.since = trio.current_time() if self.since is None else self.since
            raise
        self.since = None

    async def reserve(self, asks: Sequence[Ask]) -> Sequence[Decision]:
        """Decide about each, in order; `Unknown` about all of them if there is no answer.

        Raises:
            LimitError: The backend refuses altogether.
        """
        try:
            with self.asking():
                decisions = await self.backend.reserve(asks)
                if len(decisions) != len(asks):
                    raise unavailable(f"{len(decisions)} answers to {len(asks)} requests")
                unknown = [one for one in decisions if isinstance(one, Unknown)]
                if unknown and len(unknown) == len(decisions):
                    raise unavailable(unknown[-1].message)
                return decisions
        except LimitError as error:
            if error.reason != "limiter_unavailable":
                raise
            return [Unknown(error.message)] * len(asks)


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
    _warn: Warn
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
                holds = f"the holds of calls under way ({len(self._held)})"
                self._warn(f"{holds} cannot be put off now: {trouble}")
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
        except LimitError as error:
            return error.message
        return None

    async def _learn(self) -> None:
        """Read the timeouts, which others may change."""
        with self._reach.asking(is_repeated=False):
            states = await self._reach.backend.states()
        self._timeouts = {one.limit.key: one.limit.timeout or math.inf for one in states}
        for held in self._held.values():  # of limits that were taken away meanwhile
            for key in held.keys - self._timeouts.keys():
                self._timeouts[key] = math.inf

    async def _extend(self) -> None:
        """Put off the expiry of every lease."""
        leases = list(self._held)
        for start in range(0, len(leases), _MOST):
            part, said_at = leases[start : start + _MOST], trio.current_time()
            with self._reach.asking():
                answers = await self._reach.backend.extend(part)
            for lease_id, lives in zip(part, answers, strict=True):
                held = self._held.get(lease_id)
                if held is None:  # its call ended meanwhile
                    continue
                if lives:
                    held.said_at = said_at
                    continue
                del self._held[lease_id]
                self._warn(
                    "the hold of a call expired while it runs: more may run than the limit allows"
                )


T = TypeVar("T")


@attrs.define(eq=False)
class Outbox(Generic[T]):
    """Messages of one kind about leases, each until it is delivered."""

    _what: str
    """It is, for people."""
    _deliver: Callable[[Sequence[T]], Awaitable[str | None]]
    """Takes out what is told; returns what is in the way of the rest, None if nothing is."""
    _spread: Callable[[], float]
    _warn: Warn
    items: dict[str, tuple[T, Iterable[str]]] = attrs.field(factory=dict)
    """By lease id, with the limits that have more room after it."""
    _news: trio.Event = attrs.field(factory=trio.Event)
    _empty: trio.Event = attrs.field(factory=trio.Event)
    _trouble: str = "nobody was asked"
    """What was in the way last."""

    def put(self, lease_id: str, item: T, keys: Iterable[str]) -> None:
        """Put down something to tell. Synchronous.

        Args:
            lease_id: The lease that it is about.
            item: The message.
            keys: The limits that have more room when it is told.
        """
        self.items[lease_id] = item, keys
        self._empty = trio.Event()
        self._news.set()

    def take(self, lease_id: str) -> Iterable[str]:
        """It is told; which limits have more room for that."""
        _item, keys = self.items.pop(lease_id)
        return keys

    async def wait_empty(self) -> None:
        """Wait until everything is told. A checkpoint."""
        while self.items:
            await self._empty.wait()
        await trio.lowlevel.checkpoint()

    async def run(self) -> None:
        """Tell what there is, until cancelled."""
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
                self._tell(f"cannot be told now, and will be: {trouble}", len(ids))
            await trio.sleep(after_silence(failures, self._spread()))

    def leave(self, within: float) -> None:
        """Report what is left to expire after so many seconds at the end. Synchronous."""
        if self.items:
            left = (
                f"was not told within {within:g} s: {self._trouble}; holds come back by themselves"
            )
            self._tell(left, len(self.items))

    async def _try(self, items: Sequence[T], ids: Sequence[str]) -> str | None:
        try:
            return await self._deliver(items)
        except LimitError as error:
            refused = {ids[0]: error}
        if len(items) > 1:
            refused = {}
            for one, item in zip(ids, items, strict=True):
                try:
                    trouble = await self._deliver([item])
                except LimitError as error:
                    refused[one] = error
                else:
                    if trouble is not None:
                        break
        self._forget(refused)
        return None

    def _forget(self, refused: Mapping[str, LimitError]) -> None:
        """They are refused now and for ever, and left to expire."""
        for one in refused:
            self.items.pop(one, None)
        for reason, count in Counter(map(str, refused.values())).items():
            self._tell(f"is refused: {reason}; holds come back by themselves", count)

    def _tell(self, what: str, count: int) -> None:
        leases = f"{count} lease{'s' * (count > 1)}"
        self._warn(f"{self._what} ({leases}) {what}")

"""The ends of leases, reported in the background until the backend has confirmed them.

A call that is over does not wait: its usage is stored in the same step, and a background task sends it,
together with everything stored meanwhile.

The hard case is a request with an unknown outcome whose call was cancelled or gave up. To complete its lease
is not enough: the request may still be on its way, and be granted after that, for ever. So it is repeated
with the
same id until an answer arrives: from then on the id is decided, whatever arrives later. If the answer is a
grant, the lease is returned unused. Rejected: to shield the request in its call (a cancelled call would wait
for the network).

A message that is refused altogether is sent once more in parts, one per lease: a refused lease must not keep
the others from being reported.

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
from trioeval.limits.ledger import MIN_RETENTION
from trioeval.limits.model import Decision, LeaseRequest, Unknown

Warn: TypeAlias = Callable[[str], None]
"""Called synchronously with warnings; must not raise."""

# Retry delays: after a denial, and after a missing answer.


SPREAD = 0.025
"""Most seconds of jitter added to a wait that the backend named, to spread clients denied together."""
FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
"""Seconds between two attempts to get an answer, at first and at most."""


def after_denial(retry_after: float, spread: float) -> float:
    """Return the seconds until a request with a new id is worth sending.

    Args:
        retry_after: The seconds that the denial names, ≥ 0.
        spread: A random number from 0 to 1 without 1.

    Example:
        >>> after_denial(10.0, 0.5), after_denial(0.0, 0.5)
        (10.0125, 0.0125)
    """
    return retry_after + spread * (min(SPREAD, retry_after) or SPREAD)


def after_failure(failures: int, spread: float) -> float:
    """Return the seconds until the same request is repeated: at least half of the bound.

    Never close to 0, because the backend gets the requests of all clients.

    Args:
        failures: Attempts in a row without an answer, ≥ 1.
        spread: A random number from 0 to 1 without 1.

    Example:
        >>> [after_failure(failures, 0.0) for failures in (1, 2, 7, 2000)]
        [0.05, 0.1, 2.5, 2.5]
    """
    bound = min(LONGEST_WAIT, math.ldexp(FIRST_WAIT, min(failures - 1, 64)))
    return bound * (1 + spread) / 2


# All requests of a program go through here, so that a waiting call knows what others found out: after a long
# outage not every call has to wait for its own patience to end. Any answer ends an outage. Only a request
# that is repeated until it is answered starts one; otherwise an outage might never end.


@attrs.define(eq=False, repr=False)
class BackendHealth:
    """A backend, and its availability."""

    backend: Backend
    patience: float
    """Seconds after which an outage counts as long, ≥ 0."""
    since: float | None = None
    """Instant of the first failure after the last answer; None without an outage."""
    reason: str = "no request was sent"
    """The last failure, with the name of the backend."""

    @property
    def lasts_at(self) -> float:
        """The instant from which the outage counts as long; inf without an outage."""
        return math.inf if self.since is None else self.since + self.patience

    @contextmanager
    def asking(self, *, is_repeated: bool = True) -> Iterator[None]:
        """Record whether the request in the block is answered.

        Args:
            is_repeated: True for a request that is repeated until it is answered; any other starts no outage.
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

    async def reserve(self, asks: Sequence[LeaseRequest]) -> Sequence[Decision]:
        """Decide about each request, in order; `Unknown` about all of them without an answer.

        Raises:
            LimitError: The backend refuses altogether.
        """
        try:
            with self.asking():
                decisions = await self.backend.reserve(asks)
                if len(decisions) != len(asks):
                    raise unavailable(f"{len(decisions)} answers for {len(asks)} requests")
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
# The backend returns the hold of a concurrency limit after its timeout, because its holder may be gone. A
# living holder extends all of its leases every third of the timeout, so that two messages in a row may be
# lost. A lease without holds is forgotten after ten minutes, and the usage of its call would not count then;
# so it is extended in the same way. An extension counts from when it was sent: it may have been long on its
# way.
#
# A failed heartbeat is warned of, and ends no call.


_BEATS = 3
"""Heartbeats per timeout."""
_MOST = 256
"""Leases in one message."""


@attrs.define(eq=False, repr=False)
class _Held:
    """A lease whose call is running."""

    keys: frozenset[str]
    requested_at: float
    """Instant at which its last answered message was sent."""


@attrs.define(eq=False, repr=False)
class Heartbeat:
    """The extensions of the live leases of one program."""

    _health: BackendHealth
    _spread: Callable[[], float]
    _warn: Warn
    _timeouts: dict[str, float] | None = None
    """Of all limits, in seconds; inf for limits without holds; None before they are known."""
    _held: dict[str, _Held] = attrs.field(factory=dict)
    _news: trio.Event = attrs.field(factory=trio.Event)

    _due_at: float = -math.inf
    """Instant of the next message."""

    def add(self, lease_id: str, keys: frozenset[str], requested_at: float) -> None:
        """Start extending a lease that was granted. Synchronous.

        Args:
            lease_id: Its id.
            keys: Its limits.
            requested_at: Instant at which it was requested.
        """
        self._held[lease_id] = lease = _Held(keys, requested_at)
        if self._due_of(lease) < self._due_at:
            self._news.set()

    def remove(self, lease_id: str) -> None:
        """Stop extending a lease that is over. Synchronous."""
        self._held.pop(lease_id, None)

    def may_hold(self, key: str) -> bool:
        """Return whether a lease returns its share of a limit when it ends, as far as is known."""
        return self._timeouts is None or self._timeouts.get(key, 0.0) < math.inf

    def is_stale(self, keys: frozenset[str], requested_at: float, now: float) -> bool:
        """Return whether a lease that was requested at an instant may have expired by now."""
        return now - requested_at >= _BEATS * self._period(keys)

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
                holds = f"the holds of {len(self._held)} running call{'s' * (len(self._held) != 1)}"
                self._warn(f"{holds} cannot be extended now: {trouble}")
            # At most half a beat, so that the next attempt may still be in time.
            beat = min(
                (self._period(lease.keys) for lease in self._held.values()), default=math.inf
            )
            await trio.sleep(min(after_failure(failures, self._spread()), beat / 2))

    def _period(self, keys: frozenset[str]) -> float:
        """Return the seconds between two messages for a lease of such limits."""
        timeouts = self._timeouts or {}
        return min([MIN_RETENTION, *(timeouts.get(key, math.inf) for key in keys)]) / _BEATS

    def _due_of(self, lease: _Held) -> float:
        if self._timeouts is None or not lease.keys <= self._timeouts.keys():
            return -math.inf  # a limit whose timeout is unknown
        return lease.requested_at + self._period(lease.keys)

    async def _beat(self) -> str | None:
        """Extend all leases; return what prevents it, if anything."""
        try:
            await (
                self._extend()
            )  # first: a grant may have been so long on its way that it expires soon
            await self._learn()
        except LimitError as error:
            return error.message
        return None

    async def _learn(self) -> None:
        """Read the timeouts, which may have been changed."""
        with self._health.asking(is_repeated=False):
            states = await self._health.backend.states()
        self._timeouts = {one.limit.key: one.limit.timeout or math.inf for one in states}
        for lease in self._held.values():  # of limits that were removed meanwhile
            for key in lease.keys - self._timeouts.keys():
                self._timeouts[key] = math.inf

    async def _extend(self) -> None:
        """Postpone the expiry of every lease."""
        leases = list(self._held)
        for start in range(0, len(leases), _MOST):
            part, requested_at = leases[start : start + _MOST], trio.current_time()
            with self._health.asking():
                answers = await self._health.backend.extend(part)
            for lease_id, lives in zip(part, answers, strict=True):
                lease = self._held.get(lease_id)
                if lease is None:  # its call ended meanwhile
                    continue
                if lives:
                    lease.requested_at = requested_at
                    continue
                del self._held[lease_id]
                self._warn(
                    "the hold of a running call expired: more calls may run than the limit allows"
                )


T = TypeVar("T")


@attrs.define(eq=False, repr=False)
class Outbox(Generic[T]):
    """Messages of one kind about leases, each stored until it is delivered."""

    _noun: str
    """The content of the messages, for warnings."""
    _deliver: Callable[[Sequence[T]], Awaitable[str | None]]
    """Sends messages and removes the delivered ones; returns what prevents the rest, or None."""
    _spread: Callable[[], float]
    _warn: Warn
    items: dict[str, tuple[T, Iterable[str]]] = attrs.field(factory=dict)
    """By lease id, with the limits that get more room by the delivery."""
    _news: trio.Event = attrs.field(factory=trio.Event)
    _empty: trio.Event = attrs.field(factory=trio.Event)
    _trouble: str = "no request was sent"
    """The last reason for a failed delivery."""

    def put(self, lease_id: str, item: T, keys: Iterable[str]) -> None:
        """Store a message. Synchronous.

        Args:
            lease_id: The lease that it concerns.
            item: The message.
            keys: The limits that get more room when it is delivered.
        """
        self.items[lease_id] = item, keys
        self._empty = trio.Event()
        self._news.set()

    def take(self, lease_id: str) -> Iterable[str]:
        """Remove a delivered message; return the limits that have more room."""
        _item, keys = self.items.pop(lease_id)
        return keys

    async def wait_empty(self) -> None:
        """Wait until everything is delivered. A checkpoint."""
        while self.items:
            await self._empty.wait()
        await trio.lowlevel.checkpoint()

    async def run(self) -> None:
        """Send all messages, until cancelled."""
        failures = 0
        while True:
            if not self.items:
                self._empty.set()
                await self._news.wait()
            # Reset before looking: messages that arrive during a delivery are sent with the next one.
            self._news = trio.Event()
            ids = list(self.items)[:_MOST]
            trouble = await self._try([self.items[one][0] for one in ids], ids)
            if trouble is None:
                failures = 0
                continue
            failures += 1
            self._trouble = trouble
            if failures == 1:
                self._report(f"cannot be reported now, will be retried: {trouble}", len(ids))
            await trio.sleep(after_failure(failures, self._spread()))

    def leave(self, within: float) -> None:
        """Warn of messages that are left to expire after so many seconds at the end. Synchronous."""
        if self.items:
            left = f"not reported within {within:g} s: {self._trouble}; holds end by their timeout"
            self._report(left, len(self.items))

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
        """Drop messages that are refused for good; their leases are left to expire."""
        for one in refused:
            self.items.pop(one, None)
        for reason, count in Counter(map(str, refused.values())).items():
            self._report(f"refused: {reason}; holds end by their timeout", count)

    def _report(self, problem: str, count: int) -> None:
        leases = f"{count} lease{'s' * (count != 1)}"
        self._warn(f"{self._noun} ({leases}) {problem}")

# Separate from `limits.open`: together they exceed 600 lines.
"""Limits of a remote backend as lanes use them: over Redis, over HTTP, over any `Backend`.

**The problem.** A message may be lost, and so may its answer: then the client does not know whether a lease
was granted. A new request would take the limit's room twice; no request would keep it taken until it expires.

**The rules.** A lease is requested under an id of its own. Without an answer the request is repeated with the
same id, which grants at most once. After a denial a new id is used, at the instant that the denial names plus
some jitter, or as soon as a lease of this program ends, or the backend reports room. A terminal denial is
never retried. A call that is cancelled without an answer leaves the request to an `Outbox`, which ends the
lease if it was granted. After a long outage calls fail at once, or run without a lease, until the backend
answers; a call that finds no other request in progress sends one. Limits that this program defines and that
have disappeared are created again, since the backend may have lost its state.

Law: LEASE.
"""

import random
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Literal, TypeAlias

import attrs
import trio

from trioeval.errors import LimitError
from trioeval.kernel import Shortage
from trioeval.limits.backend import Backend, LanePermits, create_missing, nothing_of
from trioeval.limits.denials import denial_error, denied
from trioeval.limits.model import (
    Actual,
    Decision,
    Denied,
    Granted,
    LeaseRequest,
    LimitKey,
    LimitState,
    Requirement,
    Settlement,
    SharedLimit,
    Unknown,
    lease_ids,
)
from trioeval.limits.remote_leases import (
    BackendHealth,
    Heartbeat,
    Outbox,
    Warn,
    after_denial,
    after_failure,
)
from trioeval.limits.turns import RequestTurn, RequestTurns
from trioeval.nurseries import open_plain_nursery

Wakes: TypeAlias = Callable[[Callable[[Sequence[str]], None]], Awaitable[None]]
"""Runs until cancelled and reports which limits may have room again; no keys means all of them."""


Kind: TypeAlias = Literal["rate_limit", "limit_decreasing", "limiter_error"]

PATIENCE = 30.0
"""Seconds without an answer after which calls no longer wait for one."""
FLUSH_WITHIN = 5.0
"""Seconds at the end of a block in which pending messages are sent; the rest is left to expire."""
LONG_WAIT = 2.0
"""Seconds that no retry hint of a backend exceeds: the length of a longer wait is known."""
OUTAGE_WARNING_AFTER = 5.0
"""Seconds without an answer after which a warning is given."""
MOMENT = 0.05
"""Seconds without an answer after which a lane reports a wait, or twice the time of the last answer."""


@asynccontextmanager
async def open_remote(
    backend: Backend,
    *,
    wakes: Wakes | None = None,
    patience: float = PATIENCE,
    unreachable: Literal["closed", "open"] = "closed",
    limits: Sequence[SharedLimit] = (),
    warn: Warn = lambda _message: None,
    ids: Callable[[], str] | None = None,
    spread: Callable[[], float] = random.random,
) -> AsyncGenerator["RemoteLimits"]:
    """Open limits over a backend that stays open for longer; their lanes must be done before the block ends.

    At the end the usage of all leases is reported, for at most `FLUSH_WITHIN` seconds, also if the block is
    cancelled.

    Args:
        backend: The backend of the limits.
        wakes: The backend's notifications of room; without them a waiter notices what other programs return
            when it retries.
        patience: Seconds without an answer after which calls do not wait for one, ≥ 0.
        unreachable: What happens to them then: they fail (`closed`), or are made without a lease (`open`).
        limits: Limits that are created when a call needs one of them and it does not exist (any more).
        warn: Called synchronously with problems that end no call; must not raise.
        ids: Makes the ids of leases.
        spread: Draws a number from 0 to 1 without 1.

    Example:
        ```python
        async with open_remote(backend) as limits:
            permits = limits.permits("gpt", [LimitKey("team:rpm", "requests")])
        ```
    """
    new_id = ids or lease_ids(time.time, secrets.randbits)
    health, brought = BackendHealth(backend, patience), tuple(limits)
    shared = RemoteLimits(health, brought, unreachable, warn, new_id, spread)
    async with open_plain_nursery() as nursery:
        opened = trio.Event()
        # Not `start`: a shielded task that is started in a cancelled block would never end.
        nursery.start_soon(shared.serve, wakes, opened)  # noqa: ASYNC113 - waited for below
        try:
            await opened.wait()
            yield shared
        finally:
            await shared.flush(FLUSH_WITHIN)  # noqa: ASYNC102 - shielded inside
            shared.stop_serving()


@attrs.define(eq=False, repr=False)
class RemoteLimits:
    """Limits over a backend; obtained from `open_remote` only."""

    _health: BackendHealth
    _limits: tuple[SharedLimit, ...]
    _unreachable: Literal["closed", "open"]
    _warn: Warn
    _new_id: Callable[[], str]
    _spread: Callable[[], float]
    _turns: RequestTurns = attrs.field(init=False, factory=RequestTurns)
    _heartbeat: Heartbeat = attrs.field(init=False)
    _settlements: Outbox[Settlement] = attrs.field(init=False)
    _unresolved: Outbox[LeaseRequest] = attrs.field(init=False)
    """Requests with an unknown outcome whose calls do not need them any more."""
    _background: trio.Nursery = attrs.field(init=False)
    _serving: trio.CancelScope = attrs.field(
        init=False, factory=lambda: trio.CancelScope(shield=True)
    )
    """The shield around it: the messages of a cancelled block are sent too."""
    _usual: float = attrs.field(init=False, default=0.0)
    """Seconds that the last answer took."""
    _unleased_since: float | None = attrs.field(init=False, default=None)
    """The start of the outage in which the last call without a lease was made."""
    _silent_since: float | None = attrs.field(init=False, default=None)
    """The start of the last outage that was warned of."""
    _making: trio.Lock = attrs.field(init=False, factory=trio.Lock)

    def __attrs_post_init__(self) -> None:
        warn, spread = self._warn, self._spread
        self._heartbeat = Heartbeat(self._health, spread, warn)
        self._settlements = Outbox("usage of calls", self._complete, spread, warn)
        self._unresolved = Outbox("unconfirmed lease requests", self._resolve, spread, warn)

    @property
    def undelivered(self) -> int:
        """The number of leases with messages that are still to be sent."""
        return len(self._settlements.items) + len(self._unresolved.items)

    def permits(self, lane: str, keys: Sequence[LimitKey]) -> LanePermits:
        """Return the permits that the calls of one lane acquire before they start.

        Args:
            lane: Its name, for messages.
            keys: The limits that each of its calls counts against.
        """
        return LanePermits(self, lane, tuple(keys))

    async def states(self) -> Sequence[LimitState]:
        """Return all limits, by key. A checkpoint.

        Raises:
            LimitError: The backend is unreachable, or refuses.
        """
        with self._health.asking(is_repeated=False):
            return await self._health.backend.states()

    async def serve(self, wakes: Wakes | None, opened: trio.Event) -> None:
        """Report the usage of leases, and keep them alive, until `stop_serving`; nothing else ends it."""
        with self._serving:
            async with trio.open_nursery() as self._background:
                for run in (self._settlements.run, self._unresolved.run, self._heartbeat.run):
                    self._background.start_soon(run)
                if wakes is not None:
                    self._background.start_soon(wakes, self._turns.notify_room)
                opened.set()

    def stop_serving(self) -> None:
        """End `serve`, also if it has not started. Synchronous."""
        self._serving.cancel("the limits are closed")

    async def flush(self, within: float) -> None:
        """Wait until the ends of all leases are reported, for so many seconds also if cancelled."""
        with trio.move_on_after(within, shield=True):
            await self._unresolved.wait_empty()  # first: they become settlements
            await self._settlements.wait_empty()
        self._settlements.leave(within)
        self._unresolved.leave(within)

    def take_nowait(self, job_id: str, requirements: tuple[Requirement, ...]) -> None:
        """Return None: a lease always needs a message."""

    async def take(
        self,
        job_id: str,
        requirements: tuple[Requirement, ...],
        on_shortage: Callable[[Shortage], None],
    ) -> LeaseRequest | None:
        """Wait for a lease. A checkpoint.

        Returns:
            The granted request; None if the call is to be made without a lease.

        Raises:
            LimitError: The lease will not be granted.
        """

        def report_behind(keys: frozenset[str]) -> None:
            kind: Kind = "rate_limit" if self._health.since is None else "limiter_error"
            on_shortage(Shortage(kind, tuple(sorted(keys))))

        missing_since: float | None = None
        is_made = False
        turn = self._turns.join([one.key for one in requirements], report_behind)
        try:
            while True:
                await turn.wait()
                ask = LeaseRequest(self._new_id(), job_id, requirements)
                requested_at, decision = await self._decide(turn, ask, on_shortage)
                if isinstance(decision, Granted):
                    self._heartbeat.add(ask.lease_id, turn.keys, requested_at)
                    return ask
                if decision is None:
                    self._give_up(turn.keys)
                    return None
                if decision.reason == "lease_expired":
                    # During an outage; a new id may be granted.
                    self.end(ask, nothing_of(requirements))
                    continue
                if not is_made and self._lacks_defined_limit(decision):
                    if missing_since is None:
                        missing_since = trio.current_time()
                    is_made = await self._create_missing(turn, on_shortage, missing_since)
                    continue
                if decision.terminal:
                    raise denial_error(decision)
                await self._wait(turn, decision, on_shortage)
        finally:
            self._turns.leave(turn)

    def end(self, ask: LeaseRequest, actuals: tuple[Actual, ...]) -> None:
        """End a lease. Synchronous."""
        self._heartbeat.remove(ask.lease_id)
        used = {one.key: one.amount for one in actuals}
        freed = [
            one.key
            for one in ask.requirements
            if used.get(one.key, one.amount) < one.amount or self._heartbeat.may_hold(one.key)
        ]
        settlement = Settlement(ask.lease_id, ask.job_id, actuals)
        self._settlements.put(ask.lease_id, settlement, freed)

    async def _complete(self, settlements: Sequence[Settlement]) -> str | None:
        """Report the usage of leases; return what prevents it, if anything."""
        try:
            with self._health.asking():
                await self._health.backend.complete(settlements)
        except LimitError as error:
            if error.reason == "limiter_unavailable":
                return error.message
            raise
        freed = {key for one in settlements for key in self._settlements.take(one.lease_id)}
        if freed:
            self._turns.notify_room(freed)
        return None

    async def _resolve(self, asks: Sequence[LeaseRequest]) -> str | None:
        """Resolve requests with an unknown outcome; return what prevents the rest, if anything."""
        trouble: str | None = None
        for ask, decision in zip(asks, await self._health.reserve(asks), strict=True):
            if isinstance(decision, Unknown):
                trouble = decision.message
                continue
            keys = self._unresolved.take(ask.lease_id)
            # An expired lease holds nothing any more, but still counts in windows and budgets.
            if isinstance(decision, Granted) or decision.reason == "lease_expired":
                unused = Settlement(ask.lease_id, ask.job_id, nothing_of(ask.requirements))
                self._settlements.put(ask.lease_id, unused, keys)
        return trouble

    async def _decide(
        self, turn: RequestTurn, ask: LeaseRequest, on_shortage: Callable[[Shortage], None]
    ) -> tuple[float, Granted | Denied | None]:
        """Request a lease until an answer arrives; None if none arrives for too long.

        Returns:
            An instant at which the backend had not yet granted or extended the lease; and the answer.

        Raises:
            LimitError: The backend refuses altogether, or does not answer.
        """
        requested_at, failures, in_doubt = trio.current_time(), 0, False
        try:
            while not self._is_probed_elsewhere(has_requested=failures > 0):
                in_doubt = True
                decision = await self._reserve(turn, ask, on_shortage)
                if isinstance(decision, Granted) and self._is_stale(turn, requested_at):
                    now, decision = trio.current_time(), await self._extended(ask, decision)
                    requested_at = now if isinstance(decision, Granted) else requested_at
                in_doubt = isinstance(decision, Unknown)
                if not isinstance(decision, Unknown):
                    return requested_at, decision
                failures += 1
                until = trio.current_time() + after_failure(failures, self._spread())
                until = min(until, self._health.lasts_at)
                self._warn_of_outage()
                on_shortage(
                    Shortage("limiter_error", tuple(sorted(turn.keys)), until, decision.message)
                )
                self._turns.mark_unanswered(turn)
                await trio.sleep_until(until)
        except LimitError:
            in_doubt = False
            raise
        finally:
            if in_doubt:
                self._unresolved.put(ask.lease_id, ask, turn.keys)
        return requested_at, None

    async def _reserve(
        self, turn: RequestTurn, ask: LeaseRequest, on_shortage: Callable[[Shortage], None]
    ) -> Decision:
        """Send one request; its lane keeps its turn at the cap of all lanes until the request takes long."""
        asked_at, waiting = trio.current_time(), trio.CancelScope()

        async def report_silence() -> None:
            with waiting:
                # Sooner would cost a lane far from its backend that turn with every request.
                await trio.sleep(max(MOMENT, 2 * self._usual))
                on_shortage(
                    Shortage("limiter_error", tuple(sorted(turn.keys)), None, "no answer yet")
                )
                self._turns.mark_unanswered(turn)

        self._background.start_soon(report_silence)
        try:
            [decision] = await self._health.reserve((ask,))
            if not isinstance(decision, Unknown):
                self._usual = trio.current_time() - asked_at
            return decision
        finally:
            waiting.cancel("an answer arrived")

    def _is_probed_elsewhere(self, *, has_requested: bool) -> bool:
        """Return whether an outage lasts, and another request probes the backend, or this one already has."""
        is_lasting = trio.current_time() >= self._health.lasts_at
        return is_lasting and (has_requested or self.undelivered > 0)

    def _warn_of_outage(self) -> None:
        """Warn once in each outage that lasts for a while."""
        since = self._health.since
        if since is None or since == self._silent_since:
            return
        if (seconds := trio.current_time() - since) >= OUTAGE_WARNING_AFTER:
            self._silent_since = since
            message = f"no lease decision for {seconds:.0f} s: {self._health.reason}"
            patience = f"calls wait for up to {self._health.patience:g} s"
            self._warn(f"{message}; {patience}")

    def _lacks_defined_limit(self, denial: Denied) -> bool:
        """Return whether a limit is missing that this program defines."""
        own = {one.key for one in self._limits}
        return denial.reason == "unknown_limit_key" and not own.isdisjoint(denial.keys)

    async def _create_missing(
        self, turn: RequestTurn, on_shortage: Callable[[Shortage], None], since: float
    ) -> bool:
        """Create the limits that were found missing at an instant; return whether an answer arrived.

        Raises:
            LimitError: They cannot be created.
        """
        try:
            async with self._making:
                with self._health.asking(is_repeated=False):
                    await create_missing(self._health.backend, self._limits)
        except LimitError as error:
            now = trio.current_time()
            if error.reason != "limiter_unavailable" or now >= since + self._health.patience:
                raise
            until = now + after_failure(1, self._spread())
            on_shortage(Shortage("limiter_error", tuple(sorted(turn.keys)), until, error.message))
            await trio.sleep_until(until)
            return False
        return True

    def _is_stale(self, turn: RequestTurn, requested_at: float) -> bool:
        return self._heartbeat.is_stale(turn.keys, requested_at, trio.current_time())

    async def _extended(self, ask: LeaseRequest, granted: Granted) -> Granted | Denied | Unknown:
        """Extend a grant that took so long to arrive that its hold may have expired."""
        try:
            with self._health.asking():
                [lives] = await self._health.backend.extend((ask.lease_id,))
        except LimitError as error:
            return Unknown(error.message)
        return granted if lives else denied("lease_expired")

    async def _wait(
        self, turn: RequestTurn, denial: Denied, on_shortage: Callable[[Shortage], None]
    ) -> None:
        """Wait until a denied lease is worth requesting again, and it is this waiter's turn."""
        until = trio.current_time() + after_denial(denial.retry_after, self._spread())
        is_long = denial.retry_after > LONG_WAIT
        keys = await self._limits_of_long_wait(turn, denial) if is_long else denial.keys
        self._turns.denied(turn, keys, trio.current_time(), is_long=is_long)
        kind: Kind = "limit_decreasing" if denial.reason == "limit_decreasing" else "rate_limit"
        on_shortage(Shortage(kind, denial.keys, until, denial.message))
        with trio.move_on_at(until):
            await turn.wait()
        self._turns.want(turn)

    async def _limits_of_long_wait(self, turn: RequestTurn, denial: Denied) -> Collection[str]:
        """Return the limits that a long wait is for: paused ones, which grant nothing; else windows.

        A long wait is never announced for what other leases return, since they may do so at any instant.
        """
        try:
            states = await self.states()
        except LimitError:
            return denial.keys
        paused = {one.limit.key for one in states if one.paused_until is not None}
        windows = {one.limit.key for one in states if one.limit.kind == "rolling"}
        return turn.keys & paused or windows.intersection(denial.keys) or denial.keys

    def _give_up(self, keys: frozenset[str]) -> None:
        """Handle an outage longer than the patience.

        Raises:
            LimitError: Calls fail in an outage.
        """
        seconds, reason = self._health.patience, self._health.reason
        message = f"no lease decision for {seconds:g} s, last failure: {reason}"
        if self._unreachable == "closed":
            raise LimitError("limiter_unavailable", message, keys=tuple(sorted(keys)))
        if self._unleased_since != self._health.since:  # once in each outage
            self._unleased_since = self._health.since
            self._warn(f"{message}: calls are made without a lease")

# Apart from `limits.open`: together they exceed 600 lines.
"""Limits that somebody else keeps, as lanes use them: over Redis, over HTTP, over any `Backend`.

**The problem.** A message may be lost, and so may its answer: then nobody knows whether a lease was
granted. To ask anew would take the limit's room twice; not to ask would keep it taken until it expires.

**The rules.** A lease is asked for under an id of its own. Without an answer the same id asks again,
which grants at most once. After a denial a new id asks, at the instant that the denial names and a
little chance later, or as soon as a lease of this program is over, or the keeper tells of room. A
denial for good is never asked again. Who is cancelled without an answer leaves the question to an
`Outbox`, which ends the lease if there is one. After a long outage calls fail at once, or go on
without a lease, until somebody answers; who finds nobody that still asks, asks once. Limits that this
program has brought and that are gone are made again: whoever keeps them may have lost everything.

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
from trioeval.limits.backend import Backend, LanePermits, make_missing, nothing_of
from trioeval.limits.denials import denied, refusal
from trioeval.limits.model import (
    Actual,
    Ask,
    Decision,
    Denied,
    Granted,
    Limit,
    LimitKey,
    LimitState,
    Requirement,
    Settlement,
    Unknown,
    lease_ids,
)
from trioeval.limits.remote_leases import (
    Heartbeat,
    Outbox,
    Reach,
    Warn,
    after_denial,
    after_silence,
)
from trioeval.limits.turns import Turn, Turns
from trioeval.nurseries import open_plain_nursery

Wakes: TypeAlias = Callable[[Callable[[Sequence[str]], None]], Awaitable[None]]
"""Runs until it is cancelled and tells which limits may have room again; none named means all of them."""


Kind: TypeAlias = Literal["rate_limit", "limit_decreasing", "limiter_error"]

PATIENCE = 30.0
"""Seconds without an answer after which nobody waits for one."""
FLUSH_WITHIN = 5.0
"""Seconds at the end of a block in which what is left is told; what is not told then is left to expire."""
LONG_WAIT = 2.0
"""Seconds that no hint of a keeper exceeds: a longer wait is known to be that long."""
LONG_SILENCE = 5.0
"""Seconds without an answer after which people are told so."""
MOMENT = 0.05
"""Seconds without an answer after which a lane is told to wait, or twice as long as the last answer took."""


@asynccontextmanager
async def open_remote(
    backend: Backend,
    *,
    wakes: Wakes | None = None,
    patience: float = PATIENCE,
    unreachable: Literal["closed", "open"] = "closed",
    limits: Sequence[Limit] = (),
    warn: Warn = lambda _message: None,
    ids: Callable[[], str] | None = None,
    spread: Callable[[], float] = random.random,
) -> AsyncGenerator["RemoteLimits"]:
    """Open limits over a backend that stays open for longer; their lanes must be done before the block ends.

    At the end everything is told that leases have used, for at most `FLUSH_WITHIN` seconds, also
    if the block is cancelled.

    Args:
        backend: Whoever keeps the limits.
        wakes: What the backend has to tell of room; without it a waiter learns of what other programs give
            back when it asks again.
        patience: Seconds without an answer after which calls do not wait for one, ≥ 0.
        unreachable: What becomes of them then: they fail (`closed`), or are made without a lease (`open`).
        limits: Those that are made when a call needs one of them and it is not there (any more).
        warn: Called synchronously with what goes wrong and ends no call; must not raise.
        ids: Makes the ids of leases.
        spread: Draws a number from 0 to 1 without 1.

    Example:
        ```python
        async with open_remote(backend) as limits:
            permits = limits.permits("gpt", [LimitKey("team:rpm", "requests")])
        ```
    """
    new_id = ids or lease_ids(time.time, secrets.randbits)
    reach, brought = Reach(backend, patience), tuple(limits)
    shared = RemoteLimits(reach, brought, unreachable, warn, new_id, spread)
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


@attrs.define(eq=False)
class RemoteLimits:
    """Limits over a backend; obtained from `open_remote` only."""

    _reach: Reach
    _limits: tuple[Limit, ...]
    _unreachable: Literal["closed", "open"]
    _warn: Warn
    _new_id: Callable[[], str]
    _spread: Callable[[], float]
    _turns: Turns = attrs.field(init=False, factory=Turns)
    _heartbeat: Heartbeat = attrs.field(init=False)
    _settlements: Outbox[Settlement] = attrs.field(init=False)
    _doubts: Outbox[Ask] = attrs.field(init=False)
    """Requests of which nobody knows the answer, and whose calls do not want it any more."""
    _background: trio.Nursery = attrs.field(init=False)
    _serving: trio.CancelScope = attrs.field(
        init=False, factory=lambda: trio.CancelScope(shield=True)
    )
    """The shield around it: what a cancelled block leaves is told too."""
    _usual: float = attrs.field(init=False, default=0.0)
    """Seconds that the last answer took."""
    _unleased_since: float | None = attrs.field(init=False, default=None)
    """The beginning of the outage in which the last call without a lease was made."""
    _silent_since: float | None = attrs.field(init=False, default=None)
    """Likewise, of the last one that people were told of."""
    _making: trio.Lock = attrs.field(init=False, factory=trio.Lock)

    def __attrs_post_init__(self) -> None:
        warn, spread = self._warn, self._spread
        self._heartbeat = Heartbeat(self._reach, spread, warn)
        self._settlements = Outbox("what calls used", self._complete, spread, warn)
        self._doubts = Outbox("whether leases were granted", self._ask_again, spread, warn)

    @property
    def untold(self) -> int:
        """How many leases there are of which something is still to be told."""
        return len(self._settlements.items) + len(self._doubts.items)

    def permits(self, lane: str, keys: Sequence[LimitKey]) -> LanePermits:
        """What the calls of one lane ask before they start.

        Args:
            lane: Its name, for people.
            keys: What each of its calls counts against.
        """
        return LanePermits(self, lane, tuple(keys))

    async def states(self) -> Sequence[LimitState]:
        """All limits, by key. A checkpoint.

        Raises:
            LimitError: They cannot be asked for.
        """
        with self._reach.asking(is_repeated=False):
            return await self._reach.backend.states()

    async def serve(self, wakes: Wakes | None, opened: trio.Event) -> None:
        """Tell what leases have used, and keep them alive, until `stop_serving`; nothing else ends it."""
        with self._serving:
            async with trio.open_nursery() as self._background:
                for run in (self._settlements.run, self._doubts.run, self._heartbeat.run):
                    self._background.start_soon(run)
                if wakes is not None:
                    self._background.start_soon(wakes, self._turns.tell)
                opened.set()

    def stop_serving(self) -> None:
        """End `serve`, also if it has not begun. Synchronous."""
        self._serving.cancel("the limits are closed")

    async def flush(self, within: float) -> None:
        """Wait until everything is told of leases that are over, for so many seconds also if cancelled."""
        with trio.move_on_after(within, shield=True):
            await self._doubts.wait_empty()  # first: they become settlements
            await self._settlements.wait_empty()
        self._settlements.leave(within)
        self._doubts.leave(within)

    def take_nowait(self, job_id: str, requirements: tuple[Requirement, ...]) -> None:
        """No lease can be had without a message."""

    async def take(
        self,
        job_id: str,
        requirements: tuple[Requirement, ...],
        told: Callable[[Shortage], None],
    ) -> Ask | None:
        """Wait for a lease. A checkpoint.

        Returns:
            What it was granted for; None if the call is to be made without a lease.

        Raises:
            LimitError: There will be none.
        """

        def told_behind(keys: frozenset[str]) -> None:
            kind: Kind = "rate_limit" if self._reach.since is None else "limiter_error"
            told(Shortage(kind, tuple(sorted(keys))))

        missing_since: float | None = None
        is_made = False
        turn = self._turns.join([one.key for one in requirements], told_behind)
        try:
            while True:
                await turn.wait()
                ask = Ask(self._new_id(), job_id, requirements)
                said_at, decision = await self._decide(turn, ask, told)
                if isinstance(decision, Granted):
                    self._heartbeat.add(ask.lease_id, turn.keys, said_at)
                    return ask
                if decision is None:
                    self._give_up(turn.keys)
                    return None
                if decision.reason == "lease_expired":
                    # While nobody answered; a new id may be granted.
                    self.end(ask, nothing_of(requirements))
                    continue
                if not is_made and self._lacks_own(decision):
                    if missing_since is None:
                        missing_since = trio.current_time()
                    is_made = await self._make_missing(turn, told, missing_since)
                    continue
                if decision.terminal:
                    raise refusal(decision)
                await self._wait(turn, decision, told)
        finally:
            self._turns.leave(turn)

    def end(self, ask: Ask, actuals: tuple[Actual, ...]) -> None:
        """A lease is over. Synchronous."""
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
        """Tell what leases have used; returns what is in the way, if anything is."""
        try:
            with self._reach.asking():
                await self._reach.backend.complete(settlements)
        except LimitError as error:
            if error.reason == "limiter_unavailable":
                return error.message
            raise
        freed = {key for one in settlements for key in self._settlements.take(one.lease_id)}
        if freed:
            self._turns.tell(freed)
        return None

    async def _ask_again(self, asks: Sequence[Ask]) -> str | None:
        """Find out about doubtful leases; returns what is in the way of the rest, if anything is."""
        trouble: str | None = None
        for ask, decision in zip(asks, await self._reach.reserve(asks), strict=True):
            if isinstance(decision, Unknown):
                trouble = decision.message
                continue
            keys = self._doubts.take(ask.lease_id)
            # One that has expired holds nothing any more, and still counts in windows and budgets.
            if isinstance(decision, Granted) or decision.reason == "lease_expired":
                unused = Settlement(ask.lease_id, ask.job_id, nothing_of(ask.requirements))
                self._settlements.put(ask.lease_id, unused, keys)
        return trouble

    async def _decide(
        self, turn: Turn, ask: Ask, told: Callable[[Shortage], None]
    ) -> tuple[float, Granted | Denied | None]:
        """Ask until there is an answer; None if nobody gives one for too long.

        Returns:
            An instant at which the keeper had not yet granted or extended the lease; and the answer.

        Raises:
            LimitError: The backend refuses altogether, or does not answer.
        """
        said_at, failures, in_doubt = trio.current_time(), 0, False
        try:
            while not self._is_in_vain(has_asked=failures > 0):
                in_doubt = True
                decision = await self._reserve(turn, ask, told)
                if isinstance(decision, Granted) and self._is_stale(turn, said_at):
                    now, decision = trio.current_time(), await self._revive(ask, decision)
                    said_at = now if isinstance(decision, Granted) else said_at
                in_doubt = isinstance(decision, Unknown)
                if not isinstance(decision, Unknown):
                    return said_at, decision
                failures += 1
                until = trio.current_time() + after_silence(failures, self._spread())
                until = min(until, self._reach.lasts_at)
                self._tell_silence()
                told(Shortage("limiter_error", tuple(sorted(turn.keys)), until, decision.message))
                self._turns.unheard(turn)
                await trio.sleep_until(until)
        except LimitError:
            in_doubt = False
            raise
        finally:
            if in_doubt:
                self._doubts.put(ask.lease_id, ask, turn.keys)
        return said_at, None

    async def _reserve(self, turn: Turn, ask: Ask, told: Callable[[Shortage], None]) -> Decision:
        """Ask once; a lane keeps its turn at the cap over all lanes meanwhile, until it is told to wait."""
        asked_at, waiting = trio.current_time(), trio.CancelScope()

        async def tell_silence() -> None:
            with waiting:
                # Sooner would cost a lane far from its keeper that turn with every question.
                await trio.sleep(max(MOMENT, 2 * self._usual))
                told(Shortage("limiter_error", tuple(sorted(turn.keys)), None, "no answer yet"))
                self._turns.unheard(turn)

        self._background.start_soon(tell_silence)
        try:
            [decision] = await self._reach.reserve((ask,))
            if not isinstance(decision, Unknown):
                self._usual = trio.current_time() - asked_at
            return decision
        finally:
            waiting.cancel("nobody waits for an answer")

    def _is_in_vain(self, *, has_asked: bool) -> bool:
        """Whether an outage lasts, and to ask is for others, or was done."""
        is_lasting = trio.current_time() >= self._reach.lasts_at
        return is_lasting and (has_asked or self.untold > 0)

    def _tell_silence(self) -> None:
        """Once in each outage that takes a while."""
        since = self._reach.since
        if since is None or since == self._silent_since:
            return
        if (seconds := trio.current_time() - since) >= LONG_SILENCE:
            self._silent_since = since
            message = f"no lease was decided about for {seconds:.0f} s: {self._reach.reason}"
            patience = f"calls wait until it is {self._reach.patience:g} s"
            self._warn(f"{message}; {patience}")

    def _lacks_own(self, denial: Denied) -> bool:
        """Whether a limit is not there that this program has brought."""
        own = {one.key for one in self._limits}
        return denial.reason == "unknown_limit_key" and not own.isdisjoint(denial.keys)

    async def _make_missing(
        self, turn: Turn, told: Callable[[Shortage], None], since: float
    ) -> bool:
        """Make the limits that were found to be gone at an instant; whether there was an answer.

        Raises:
            LimitError: They cannot be made.
        """
        try:
            async with self._making:
                with self._reach.asking(is_repeated=False):
                    await make_missing(self._reach.backend, self._limits)
        except LimitError as error:
            now = trio.current_time()
            if error.reason != "limiter_unavailable" or now >= since + self._reach.patience:
                raise
            until = now + after_silence(1, self._spread())
            told(Shortage("limiter_error", tuple(sorted(turn.keys)), until, error.message))
            await trio.sleep_until(until)
            return False
        return True

    def _is_stale(self, turn: Turn, said_at: float) -> bool:
        return self._heartbeat.is_stale(turn.keys, said_at, trio.current_time())

    async def _revive(self, ask: Ask, granted: Granted) -> Granted | Denied | Unknown:
        """What a grant is worth that was so long on its way that its hold may be over."""
        try:
            with self._reach.asking():
                [lives] = await self._reach.backend.extend((ask.lease_id,))
        except LimitError as error:
            return Unknown(error.message)
        return granted if lives else denied("lease_expired")

    async def _wait(self, turn: Turn, denial: Denied, told: Callable[[Shortage], None]) -> None:
        """Wait until a denied lease is worth asking for again, and it is its turn."""
        until = trio.current_time() + after_denial(denial.retry_after, self._spread())
        is_long = denial.retry_after > LONG_WAIT
        keys = await self._long_lacks(turn, denial) if is_long else denial.keys
        self._turns.denied(turn, keys, trio.current_time(), is_long=is_long)
        kind: Kind = "limit_decreasing" if denial.reason == "limit_decreasing" else "rate_limit"
        told(Shortage(kind, denial.keys, until, denial.message))
        with trio.move_on_at(until):
            await turn.wait()
        self._turns.want(turn)

    async def _long_lacks(self, turn: Turn, denial: Denied) -> Collection[str]:
        """The limits for which a long wait is: paused ones, which nobody gets; else windows.

        For what others give back no long wait is named, and they may do so at any instant.
        """
        try:
            states = await self.states()
        except LimitError:
            return denial.keys
        paused = {one.limit.key for one in states if one.paused_until is not None}
        windows = {one.limit.key for one in states if one.limit.kind == "rolling"}
        return turn.keys & paused or windows.intersection(denial.keys) or denial.keys

    def _give_up(self, keys: frozenset[str]) -> None:
        """Nobody has answered for too long.

        Raises:
            LimitError: Calls are not made then.
        """
        seconds, reason = self._reach.patience, self._reach.reason
        message = f"no lease was decided about for {seconds:g} s, at last: {reason}"
        if self._unreachable == "closed":
            raise LimitError("limiter_unavailable", message, keys=tuple(sorted(keys)))
        if self._unleased_since != self._reach.since:  # once in each outage
            self._unleased_since = self._reach.since
            self._warn(f"{message}: calls are made without a lease")

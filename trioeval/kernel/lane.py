"""Everything that limits one provider key: slots, rates, and a first-in, first-out queue.

A call starts on a lane at the first instant at which all of this holds together: it is first in the queue,
the lane is neither paused nor closed, nothing blocks it, the paces of requests and tokens are open, and a
slot is free (with a budget, a cap over all lanes or permits, those too). All of it is taken in one
synchronous step, so

* a slot is never held while something else is waited for (SLOT), and calls start in the order of the queue,
* a waiter that is cancelled has taken nothing and leaves no hole in the pace (PACE).

`rates.throttle` decides what may start when; this module holds the slots, the queue, and the wake-ups. With
an empty queue the start costs no trip through the scheduler.

**New jobs.** A lane not only serves calls but also admits jobs: the next job of a run may start when its
first call could start at once (`wait_ready`). Admission takes nothing, because the body may do something else
first. To make the call really start in the same step, before the calls in the queue, the job is the lane's
*admitted* one until anything else uses the lane: a job that proceeds to its first call without a checkpoint
finds the slot it was admitted for, and one that pauses waits in the queue like all others.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import attrs
import trio

from trioeval.errors import CallError, Fault, PlanError
from trioeval.kernel.events import (
    CallEnded,
    CallStarted,
    LaneClosed,
    LimitChanged,
    Observer,
    Reserving,
    Throttled,
    Waiting,
    WaitReason,
)
from trioeval.kernel.lane_spec import LaneSpec, LaneStatistics, Rng
from trioeval.kernel.reservations import CallRequest, Permits
from trioeval.kernel.wait_queue import Cap, Obstacle, WaitQueue
from trioeval.rates import BreakerState, Follower, RateHint, Throttle


class LaneFollower(Follower, Protocol):
    """An object that starts jobs on a lane."""

    def on_release(self) -> None:
        """Check again, because a call has released its slot. Synchronous."""


@attrs.define(eq=False, repr=False)
class Lane:
    """One lane; created by `Lanes`, not by users.

    Users read `statistics()`, set `max_concurrency`, and call `retune`, `pause` and `resume`.
    """

    spec: LaneSpec
    _rng: Rng
    _cap: Cap | None
    _permits: Permits | None
    followers: list["LaneFollower"] = attrs.field(factory=list)
    """The workers of the runs that start jobs here."""
    throttle: Throttle = attrs.field(init=False)
    """The state of rates and limits."""
    in_flight: int = attrs.field(init=False, default=0)
    """Calls that hold a slot. Counted here: reading the limiter costs more than taking a slot of it."""
    _slots: int = attrs.field(init=False)
    _limiter: trio.CapacityLimiter = attrs.field(init=False)
    _queue: WaitQueue = attrs.field(init=False)
    _resting: int = 0
    """Calls in their back-off."""
    _was_closed: trio.Event = attrs.field(factory=trio.Event)
    """Set when the lane is closed; replaced when it is opened again."""
    admitted: object | None = None
    """The job whose first call passes the queue, until anything else uses the lane."""
    shared: bool = attrs.field(init=False)
    """True if calls need permits."""
    _alone: bool = attrs.field(init=False)
    """True if calls need only the lane and, possibly, a budget."""
    _paused: bool = False
    _started: int = 0
    served: int = 0
    """Calls that succeeded."""
    refused: int = 0
    """Calls that the provider refused because there were too many."""
    retried: int = 0
    """Number of retries."""

    def __attrs_post_init__(self) -> None:
        self.throttle = self.spec.make_throttle()
        self._slots = self.throttle.allowed
        self._limiter = trio.CapacityLimiter(self._slots)
        self._queue = WaitQueue(self.spec.name, self.throttle.breaker, self._cap, self._permits)
        self.shared = self._permits is not None
        self._alone = self._cap is None and not self.shared

    def __repr__(self) -> str:
        busy = f"{self.in_flight} of {self.throttle.allowed} in flight"
        facts = [busy, f"{len(self._queue.waiters)} queued"]
        facts += ["paused"] if self._paused else []
        state = self.throttle.state
        facts += [] if state is BreakerState.CLOSED else [f"breaker {state.value}"]
        return f"<Lane {self.spec.name!r}: {', '.join(facts)}>"

    @property
    def max_concurrency(self) -> int:
        """The most calls that may be in flight; may be set at any time, ≥ 1."""
        return self.throttle.limit.max_concurrency

    @max_concurrency.setter
    def max_concurrency(self, max_concurrency: int) -> None:
        attrs.evolve(self.spec, max_concurrency=max_concurrency)  # raises if out of range
        self.throttle.retune(max_concurrency)
        self._apply_limit()

    def retune(self, *, rpm: float | None = None, tpm: float | None = None) -> None:
        """Change the rates from now on, inside of `trio.run`; earlier starts still count.

        Args:
            rpm: Requests per minute, > 0 and finite; None leaves the rate unchanged.
            tpm: Tokens per minute, > 0 and finite; None leaves the rate unchanged.

        Raises:
            PlanError: A rate is out of range, or the lane was configured without a rate of tokens.
        """
        attrs.evolve(self.spec, rpm=rpm, tpm=tpm)  # raises if out of range
        if tpm is not None and self.spec.tpm is None:
            # Running calls have reserved no tokens of it.
            msg = f"lane {self.spec.name!r}: tpm cannot be changed on a lane without one, got tpm={tpm!r}"
            raise PlanError(msg)
        self.throttle.repace(trio.current_time(), rpm, tpm)
        self._news()

    def narrow(self, limit: int) -> None:
        """Cut the adaptive limit, if it is larger, to one that another process has learned for the provider.

        Args:
            limit: The calls in flight, ≥ 1.
        """
        self.throttle.narrow(limit)
        self._apply_limit()

    def pause(self) -> None:
        """Start nothing until `resume`; calls in flight continue."""
        self._paused = True
        self._apply_limit()

    def resume(self) -> None:
        """End a pause, and open a closed lane again."""
        self._paused = False
        self.throttle.reset()
        if self._was_closed.is_set():
            self._was_closed = trio.Event()
        self._apply_limit()

    @property
    def slots_free(self) -> int:
        """The number of calls that could be in flight besides the present ones; ≤ 0 for none."""
        return self._slots - self.in_flight

    @property
    def in_line(self) -> bool:
        """True if the queue has waiters."""
        return bool(self._queue.waiters)

    @property
    def closed(self) -> str | None:
        """The reason why the lane serves no more calls; None if it does."""
        return self.throttle.breaker.reason

    def ready(self, now: float, *, first: bool = False) -> bool:
        """Return whether a newcomer could start at `now` without passing a waiter, or as the first waiter."""
        return (first or not self._queue.waiters) and self._obstacle(now) is None

    def check(self, call: CallRequest) -> None:
        """Raise if a call can never be served.

        Raises:
            CallError: It needs more than a minute's tokens, and the lane does not serve such calls.
            BudgetError: It is larger than the whole budget.
        """
        pace = None if self.spec.oversize == "alone" else self.throttle.tokens
        if pace is not None and not pace.fits(call.tokens):
            allowed = f"lane {self.spec.name!r} allows {pace.largest:g} per minute"
            raise CallError(Fault.REFUSED, f"the call needs {call.tokens} tokens; {allowed}")
        call.check_budget()

    def start_nowait(self, call: CallRequest, job: object, now: float) -> bool:
        """Start a call of `job` if it may start at `now`; return whether it did.

        Raises:
            BudgetError: The call needs more than its budget has left.
            LimitError: A permit for it can never be granted.
        """
        is_admitted, self.admitted = self.admitted is job, None
        if self._queue.waiters and not is_admitted:
            return False
        if self.throttle.free and self._alone and call.budget is None:
            try:
                self._limiter.acquire_on_behalf_of_nowait(call)
            except trio.WouldBlock:
                return False
            self.in_flight += 1
            self._started += 1
            if not self.throttle.calm:
                self.throttle.limit.started(self.in_flight)
            return True
        obstacle = self._try_start(call, now, at_once=True, is_admitted=is_admitted)
        if obstacle is None and self._permits is not None and call.observe is not None:
            call.observe(Reserving(now, call.index, self.spec.name))
        if (
            is_admitted
            and self._cap is not None
            and obstacle == (WaitReason.SHARED_LIMIT, math.inf)
        ):
            self._cap.join(self._queue, again=True)  # the caller joins the queue in this very step
        return obstacle is None

    async def wait_start(
        self, call: CallRequest, refuse: Callable[[float], None], *, passes: bool = False
    ) -> float:
        """Wait for the queue, the rates and a slot, and take them. A checkpoint. Returns the instant.

        Args:
            call: The call to start.
            refuse: Called at the instant of the start; raises if it is too late for the call, which has then
                taken nothing.
            passes: Whether the call is a retry, which goes before new calls.

        Raises:
            LaneClosedError: The lane serves no more calls.
            BudgetError: The call needs more than its budget has left.
            LimitError: A permit for it can never be granted, or the limits are unreachable.
        """

        def start(now: float) -> Obstacle | None:
            self.admitted = None
            refuse(now)
            return self._try_start(call, now)

        return await self._queue.wait(start, call.observe, call, passes=passes)

    async def wait_ready(self, observe: Observer | None) -> None:
        """Wait until a call could start; take nothing. A checkpoint.

        The caller starts that call, or admits the job that will, before its next checkpoint.

        Raises:
            LaneClosedError: The lane serves no more calls.
        """
        await self._queue.wait(self._look, observe)

    async def rest(self, call: CallRequest, until: float) -> None:
        """Wait for the end of a call's back-off, or until the lane is closed. A checkpoint."""
        now = trio.current_time()
        if call.observe is not None:
            call.observe(Waiting(now, self.spec.name, WaitReason.BACKOFF, until, call.index))
        self._resting += 1
        try:
            while trio.current_time() < until and self.closed is None:
                with trio.move_on_at(until):
                    await self._was_closed.wait()
        finally:
            self._resting -= 1
        self.retried += self.closed is None

    def begin(self, call: CallRequest, now: float) -> None:
        """Note that a call, which has taken everything that it needs, is in flight."""
        call.mark, call.started_at = self.throttle.mark, now
        call.used, call.is_reported = None, False
        if call.observe is not None:
            call.observe(CallStarted(now, call.index, self.spec.name))

    def end(self, call: CallRequest, failure: Exception | None) -> None:
        """Release what a call that is over does not need any more."""
        if call.used is None:  # cancelled in flight: the provider may still charge for it
            call.used = call.tokens, call.money
            with self._reporting(call) as now:
                self.throttle.cancelled_in_flight(now)
                if self.closed is not None:
                    self._apply_limit()
        if not self.throttle.calm:
            self.throttle.ended(call.mark)
        self._limiter.release_on_behalf_of(call)
        self.in_flight -= 1
        if not self._alone or call.reservation is not None or call.hold is not None:
            call.settle(self.throttle, *call.used)
        if self._cap is not None:
            self._cap.release(call)
        now = trio.current_time()
        self._on_release(now)
        if call.observe is not None:
            name = self.spec.name
            call.observe(CallEnded(now, call.index, name, failure, *call.used, call.is_reported))

    def succeeded(self, call: CallRequest, *, retried: bool) -> None:
        """Learn from a call that succeeded."""
        self.served += 1
        if not self.throttle.calm:
            with self._reporting(call) as now:
                self.throttle.succeeded(now - call.started_at, call.mark, retried=retried)
                self._apply_limit()

    def apply_hint(self, hint: RateHint) -> None:
        """Learn from the server's limits that a reply reports."""
        self.throttle.apply_hint(trio.current_time(), hint)
        self._queue.notify()

    def failed(self, call: CallRequest, error: CallError) -> float | None:
        """Learn from a failed call; return the instant of the next attempt, as `Throttle.failed` does."""
        is_refusal = error.fault is Fault.RATE_LIMITED
        self.refused += is_refusal
        with self._reporting(call) as now:
            again_at = self.throttle.failed(
                error,
                now,
                mark=call.mark,
                in_flight=self.in_flight,
                mishaps=call.transient_failures,
                refusals=call.refusals,
                spread=self._rng(),
            )
            self._apply_limit()
            if is_refusal and call.observe is not None:
                blocked, retry_after = self.throttle.blocked_until, error.retry_after
                call.observe(Throttled(now, call.index, self.spec.name, retry_after, blocked))
        return again_at

    @contextmanager
    def _reporting(self, call: CallRequest) -> Iterator[float]:
        """Report to the observer of a call the changes of the lane that the body of the context causes."""
        now, before, was_open = trio.current_time(), self.throttle.limits, self.closed is None
        yield now
        if call.observe is not None:
            if was_open and self.closed is not None:
                call.observe(LaneClosed(now, self.spec.name, self.closed))
            if self.throttle.limits != before:
                call.observe(LimitChanged(now, self.spec.name, *self.throttle.limits))

    def statistics(self) -> LaneStatistics:
        """Return a snapshot. Not a checkpoint."""
        throttle = self.throttle
        return LaneStatistics(
            name=self.spec.name,
            max_concurrency=self.max_concurrency,
            limit=0 if self._paused else throttle.allowed,
            in_flight=self.in_flight,
            waiting=len(self._queue.waiters),
            resting=self._resting,
            why=self._queue.why if self._queue.waiters else None,
            next_start_at=throttle.open_at(-math.inf),
            blocked_until=throttle.blocked_until,
            state=throttle.state,
            paused=self._paused,
            reason=self.closed,
            started=self._started,
            succeeded=self.served,
            refused=self.refused,
            retried=self.retried,
            cuts=throttle.limit.epoch,
            rpm=throttle.pace.rpm,
            tpm=None if throttle.tokens is None else throttle.tokens.tpm,
        )

    def _look(self, now: float) -> Obstacle | None:
        """Return the obstacle for the first waiter at `now` if it wants to take nothing."""
        self.admitted = None
        return self._obstacle(now)

    def _obstacle(self, now: float, *, is_admitted: bool = False) -> Obstacle | None:
        """Return the obstacle to a start at `now`, apart from the queue and the budget.

        An admitted job has waited its turn for the cap, up to this step.
        """
        throttle = self.throttle
        if self._paused:
            return WaitReason.PAUSED, math.inf
        if not throttle.free:
            open_at = throttle.open_at(now)
            if open_at > now:
                return _pacer(throttle, open_at, now), open_at
        if self.in_flight >= self._slots:
            return WaitReason.SLOT, math.inf
        cap = self._cap
        if cap is not None and not (cap.free if is_admitted else cap.admits(self._queue)):
            return WaitReason.CAP, math.inf
        return None

    def _try_start(
        self,
        call: CallRequest,
        now: float,
        *,
        at_once: bool = False,
        is_admitted: bool = False,
    ) -> Obstacle | None:
        """Take everything that `call` needs; or nothing, and return the obstacle.

        With `at_once`, also take a permit if one is available in this step.
        """
        obstacle = self._obstacle(now, is_admitted=is_admitted)
        if obstacle is not None:
            return obstacle
        if not call.fits_budget(self._queue):
            return WaitReason.BUDGET, math.inf
        if self._permits is not None:
            if at_once:
                call.permit = self._permits.take_nowait(call.index, call.tokens, call.money)
            if call.permit is None:
                return WaitReason.SHARED_LIMIT, math.inf
        if call.budget is not None:
            call.hold = call.budget.reserve(tokens=call.tokens, money=call.money)
        self._limiter.acquire_on_behalf_of_nowait(call)
        self.in_flight += 1
        if self._cap is not None:
            self._cap.leave(self._queue)
            self._cap.take(call)
        throttle = self.throttle
        call.reservation = None if throttle.free else throttle.take(now, call.tokens)
        self._started += 1
        throttle.limit.started(self.in_flight)
        return None

    def _apply_limit(self) -> None:
        """Set the number of slots to the current limit, and wake the waiters and workers."""
        if self.closed is not None:
            self._queue.dismiss()
            self._was_closed.set()
        self._slots = 0 if self._paused else self.throttle.allowed
        self._limiter.total_tokens = self._slots
        self._news()

    def _on_release(self, now: float) -> None:
        """Wake the first waiter and the workers if the slot that a call has released may help them."""
        queue = self._queue
        if queue.waiters and not now < queue.until <= self.throttle.open_at(now):
            queue.notify()
        for follower in self.followers:
            follower.on_release()

    def _news(self) -> None:
        if self._queue.waiters:
            self._queue.notify()
        for follower in self.followers:
            follower.notify()


def _pacer(throttle: Throttle, open_at: float, now: float) -> WaitReason:
    """Return the reason why nothing may start at `now`, but only at `open_at`."""
    if open_at == throttle.blocked_until:
        return WaitReason.BLOCKED
    if open_at == throttle.pace.next_gap_at > throttle.rated_until(now):
        return WaitReason.DELAY
    return WaitReason.PACE if open_at == throttle.rated_until(now) else WaitReason.TOKENS

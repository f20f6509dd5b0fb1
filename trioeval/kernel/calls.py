"""The handle through which a job's body makes calls; it owns retries and the working time.

**Retries.** A call that failed is retried here and nowhere else. Its slot is released before any wait; it
waits for its back-off, then queues before all new calls.

**Working time.** The timeout of a job counts work: the body's own steps and calls in flight. While all that
the job does is wait (for a lane, or in a back-off), its clock is stopped: the deadline of its timer is
infinite and the remaining time is stored. A body that makes several calls at once is working as long as any
of them is in flight. Its own work beside calls that all wait cannot be detected here, and does not count.

Laws: LIMIT, SLOT, ATTEMPTS, BUDGET, LEASE, DRAIN.
"""

import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NoReturn, TypeVar, TypeVarTuple, overload

import attrs
import trio

from trioeval.errors import (
    BudgetError,
    CallError,
    Fault,
    GradingError,
    PlanError,
    TooLateError,
    leaves,
)
from trioeval.kernel.arguments import NOTHING, check_async_function, not_awaitable
from trioeval.kernel.events import Noted, Observer
from trioeval.kernel.jobs import Job, P
from trioeval.kernel.lane import Lane
from trioeval.kernel.lanes import Lanes
from trioeval.kernel.reservations import CallRequest, Metered
from trioeval.kernel.timeouts import Timer
from trioeval.rates import Budget

# The decision whether a failed call is retried.
#
# Law: ATTEMPTS. Transient failures are bounded by the lane's `retries`; refusals by its patience, which
# closes the lane; all attempts together by `max_retries`, where it is set, over all salvage rounds.
#
# **Refusals of one call.** A lane that serves other calls never runs out of patience, so a call that its
# provider always refuses (it is too large, and the reply does not say so) would be retried for ever. Such
# refusals belong to the call: it fails as soon as they are unlikely to be chance. The share of refusals among
# the other calls of the lane since this one started is the probability of one refusal; this probability to
# the power of the refusals of this call must be below one in a million. Where everything is refused often,
# this takes many refusals; among calls that are all served, a few. A fixed number of refusals would either
# drop calls of a busy provider or wait long for a hopeless one.
#
# Refusals beside which nothing else was served may be those of a provider that is busy for a while, even if
# it served others before: they are not independent of each other. They decide alone only after they have
# lasted for a part of the patience, long enough for a per-minute limit to reset.


_OFTEN = 2

_CHANCE = 1e-6
"""Probability below which the refusals of one call are not chance."""
_LASTING = 4
"""The part of the patience after which refusals decide although nothing was served beside them."""


class Call(CallRequest):
    """A call of a body, with its failures."""

    seen: tuple[int, int] | None = None
    """The numbers of calls that the lane had served and refused at the first start; None before that."""
    failures: int = 0
    """All failures so far, including those of earlier salvage rounds."""
    is_exhausted: bool = False
    """True if `max_retries` allows no further attempt, not even in a salvage round."""
    is_own: bool = False
    """True if the last failure is a refusal that the other calls of the lane do not share."""
    _served: int = 0
    """Calls that the lane had served at the last refusal, since this call began."""
    _alone_since: float = 0.0
    """The instant of the first refusal since that number last changed."""

    @property
    def passes(self) -> bool:
        """True if the call, as a retry, goes before new calls.

        A call that was refused several times does not: it may be refused for ever, and on a lane of small max
        concurrency nothing else would be served.
        """
        return self.refusals < _OFTEN

    def again(self, error: CallError, now: float, lane: Lane, *, salvaging: bool) -> bool:
        """Count a failure; return whether the number of attempts allows a retry.

        Args:
            error: The failure.
            now: The instant.
            lane: The lane of the call; it has not learned of the failure yet.
            salvaging: Whether the job is salvaged: it has one attempt left for transient failures.
        """
        spec, is_refusal = lane.spec, error.fault is Fault.RATE_LIMITED
        self.refusals += is_refusal
        self.transient_failures += error.fault is Fault.TRANSIENT
        self.failures += 1
        served_before, refused_before = self.seen or (0, 0)
        served = lane.served - served_before
        self.is_exhausted = spec.max_retries is not None and self.failures > spec.max_retries
        if self.is_exhausted:
            self.is_own = is_refusal and served > 0
            return False
        if error.retries is not None and self.failures > error.retries:
            self.is_own = salvaging and is_refusal and served > 0
            return False
        if error.fault is Fault.TRANSIENT:
            return not salvaging and self.transient_failures <= spec.retries
        if is_refusal and served:
            others = lane.refused - refused_before - (self.refusals - 1)
            share = (others + 1) / (served + others + 2)
            is_independent = self._is_independent(served, now, spec.patience / _LASTING)
            self.is_own = is_independent and share**self.refusals < _CHANCE
        return not self.is_own

    def _is_independent(self, served: int, now: float, lasting: float) -> bool:
        """Return whether this refusal and the last one are separated by a call that the lane served."""
        if served != self._served:
            self._served, self._alone_since = served, now
            return True
        return now - self._alone_since >= lasting


def call_error(error: Exception) -> CallError | None:
    """Return the failure as the lane understands it, also from an exception group; None if unknown to it."""
    if isinstance(error, CallError):
        return error
    if isinstance(error, ExceptionGroup):
        inside = list(leaves(error))
        if len(inside) == 1 and isinstance(inside[0], CallError):
            return inside[0]
    return None


def worth_salvaging(error: Exception) -> bool:
    """Return whether a job that ended with `error` may succeed later."""
    found = [leaf for leaf in leaves(error) if isinstance(leaf, CallError | GradingError)]
    return bool(found) and all(map(_is_mishap, found))


def _is_mishap(error: CallError | GradingError) -> bool:
    if isinstance(error, GradingError):
        return error.is_transient
    return error.fault in (Fault.TRANSIENT, Fault.RATE_LIMITED)


R = TypeVar("R")
Ts = TypeVarTuple("Ts")


@attrs.define(eq=False, repr=False)
class CallContext:
    """The part of a run's state that the calls of all its jobs share."""

    lanes: Lanes
    deadline: float
    stop: trio.Event
    """When set, no new job starts, and no permit is requested for a first request."""
    observe: Observer | None = attrs.field(default=None, kw_only=True)
    budget: Budget | None = attrs.field(default=None, kw_only=True)
    first_requests: "dict[Call, Calls[Any]]" = attrs.field(factory=dict, kw_only=True)
    """First requests that wait for a permit, each with its job.

    The limits of a lane itself hold its next job back before that is started, so a stop finds no started job
    that waits for them. A permit is different: only the body knows what its request needs, so the job is
    started first and requests the permit then, and may have to wait for as long as other processes require.
    Such a job has caused no cost, and can be run later without a loss: at a stop it is *withdrawn*,
    as if its time were over. If its permit is granted in the same step, it is given back.

    Rejected: holding the job back until there is a permit (of what size?), and letting it have the permits
    that are granted at once (then the end of a run depends on where its limits are stored).
    """

    def exhaust(self, error: BudgetError) -> None:
        """Note that a call found the budget exhausted."""

    def fail(self, error: Exception) -> None:
        """End the run because of an error that does not belong to one job."""


@attrs.define(eq=False, repr=False)
class Calls(Generic[P]):
    """The handle with which a job's body calls providers; one for each job, invalid after its end.

    Obtained from the kernel only: it is the second argument of every body.
    """

    job: Job[P]
    _context: CallContext
    _timer: Timer
    """The timer that cuts the job off."""
    started_at: float
    _rested: Callable[[int], None]
    """Called with 1 when the first call of the job begins to rest in a back-off, with -1 when the last one
    ends."""
    count: int = 0
    """Requests started so far, including those of earlier rounds.

    A job that has been run before is salvaged: its calls then have one attempt each.
    """
    failed: Call | None = None
    """The call that failed last, possibly in an earlier round; None if none has failed."""
    withdrawn: bool = False
    """True if the job was cut off because of a stop."""
    _made: int = attrs.field(init=False)
    """Requests of earlier rounds."""
    _over: bool = False
    _resting: int = 0
    """Calls that rest in their back-off."""
    _waiting: int = 0
    """Branches of the body that wait."""
    _in_flight: int = 0
    _paused_at: float | None = None
    """The instant at which the clock was stopped; None if it runs."""
    _left: float = 0.0
    """Seconds of working time that were left then."""
    _waited: float = 0.0

    def __attrs_post_init__(self) -> None:
        self._made = self.count
        self._timer.set(self.started_at + self.job.timeout)

    @property
    def refused_alone(self) -> bool:
        """True if the call that failed last was refused several times while others were served."""
        return self.failed is not None and self.failed.is_own

    @property
    def alone(self) -> bool:
        """True if no call is in flight on any lane of the run."""
        return not any(lane.in_flight for lane in self._context.lanes.by_name.values())

    def waited(self, now: float) -> float:
        """Return the seconds until `now` in which the clock was stopped."""
        return self._waited + (0.0 if self._paused_at is None else now - self._paused_at)

    def course(self, now: float) -> tuple[int, float, float, float, int]:
        """Return the first fields of the outcome of a job that ends `now`: see `Started`."""
        return self.job.index, self.started_at, now, self.waited(now), self.count

    @overload
    async def __call__(
        self,
        lane: str | None,
        send: Callable[[*Ts], Awaitable[Metered[R]]],
        *args: *Ts,
        tokens: int = 0,
        money: float = 0.0,
        ahead: bool = False,
    ) -> R: ...
    @overload
    async def __call__(
        self,
        lane: str | None,
        send: Callable[[*Ts], Awaitable[R]],
        *args: *Ts,
        tokens: int = 0,
        money: float = 0.0,
        ahead: bool = False,
    ) -> R: ...
    async def __call__(
        self,
        lane: str | None,
        send: Callable[[*Ts], Awaitable[object]],
        *args: *Ts,
        tokens: int = 0,
        money: float = 0.0,
        ahead: bool = False,
    ) -> object:
        """Run `send(*args)` in a slot of `lane` when it is its turn; retry it where that may help.

        A checkpoint if it has to wait for the lane or if `send` is one.

        Args:
            lane: The lane's name; None, the lane of a job on no lane, is an error.
            send: An async callable that makes one request, never retries by itself, and makes no calls
                through this handle: it holds a slot. It raises `CallError` to describe a failure to the lane;
                other exceptions have no meaning for it. It may return a `Metered`.
            *args: Passed to `send`.
            tokens: The most tokens that the call may use, ≥ 0; settled to the number that a `Metered`
                reports.
            money: The most that the call may cost, ≥ 0; settled likewise.
            ahead: Whether it goes before new calls, by the index of its job, as a retry does.

        Returns:
            The result of `send`, without its `Metered`.

        Raises:
            PlanError: The lane does not exist, or an amount is negative. Or `send` is not an async function:
                this ends the run as well.
            TooLateError: The job is over, or its run's deadline has passed.
            LaneClosedError: The lane serves no more calls.
            BudgetError: The call needs more than the run's budget has left.
            LimitError: A shared limit will never allow the call, or the limits are unreachable.
            Exception: The last that `send` raised.
        """
        context = self._context
        target = context.lanes.by_name.get(lane or "") or self._refuse_lane(lane)
        call = self._request(target, send, tokens, money)
        now = trio.current_time()
        if self._over or now >= context.deadline or (target.shared and self._stopped_first):
            await trio.lowlevel.checkpoint()  # mostly cancelled here; not in a shield
            self._refuse_if_late(now)
        again_at: float | None = None
        while True:
            try:
                if again_at is not None or not target.start_nowait(call, self, now):
                    passes = call.passes if call.failures else ahead
                    now = await self._wait(target, call, again_at, passes=passes)
            except BudgetError as error:
                context.exhaust(error)
                raise
            self._begin(target, call, now)
            failure: Exception | None = None
            sending: Any = NOTHING
            try:
                sending = send(*args)
                result = await sending
                call.used, call.is_reported = (tokens, money), True
                if type(result) is Metered:
                    self._hear(target, call, result)
                    result = result.value
                target.succeeded(call, retried=call.failures > 0)
            except Exception as error:
                failure = error
                again_at = self._learn_failure(target, call, error)
                if again_at is None:
                    self._refuse_send(send, sending)
                    raise
            else:
                return result
            finally:
                self._in_flight -= 1
                if self._waiting:
                    self._pause_if_idle()
                target.end(call, failure)
                failure = (
                    None  # its traceback refers to this frame and would keep all arguments alive
                )

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Mark a wait of the body itself: it is not working time, like a wait for a lane.

        Several branches of a body may wait at once, and make calls inside.
        """
        self._waiting += 1
        self._pause_if_idle()
        try:
            yield
        finally:  # also when the wait was cancelled or another branch continues alone
            self._waiting -= 1
            if not self._waiting:
                self._resume(trio.current_time())

    def note(self, what: str, /, **details: Any) -> None:
        """Report to the run's observer what the body does. Not a checkpoint.

        Args:
            what: A word or two.
            **details: Details by name; passed on unchanged.

        Raises:
            TooLateError: The job is over.
        """
        if self._over and not self.withdrawn:
            raise TooLateError(f"job {self.job.index} reported {what!r} after it was over")
        if self._context.observe is not None:
            self._context.observe(Noted(trio.current_time(), self.job.index, what, details))

    def withdraw(self) -> None:
        """Cut the job off because the run is stopped, if it has made no request."""
        if self.count == self._made and not self._over:
            self.withdrawn = self._over = True
            self._timer.cut()

    def close(self) -> None:
        """Note that the job has its outcome. Its timer belongs to the next job now."""
        self._over = True
        self._paused_at = None

    def _refuse_lane(self, lane: str | None) -> NoReturn:
        known = sorted(self._context.lanes)
        msg = f"job {self.job.index} calls lane {lane!r}, which is not one of {known}"
        raise PlanError(msg)

    def _refuse_send(self, send: object, result: object = NOTHING) -> None:
        """End the run if `send`, which has returned `result`, is not an async function: a fault of all jobs.

        Raises:
            PlanError: It is not.
        """
        error = not_awaitable("send", send, result)
        try:
            if error is None:
                check_async_function("send", send, takes="*args")
        except PlanError as found:
            error = found
        if error is not None:
            self._context.fail(error)
            raise error

    def _request(self, lane: Lane, send: object, tokens: int, money: float) -> Call:
        """Create a call; raise if its arguments are invalid or its amounts can never be served."""
        if not callable(send):
            self._refuse_send(send)
        context = self._context
        call = Call(self.job.index, context.observe, context.budget, tokens, money)
        if tokens or money:
            if type(tokens) is not int or tokens < 0 or not 0 <= money < math.inf:
                amounts = f"job {self.job.index} requests {tokens!r} tokens and {money!r} of money"
                rule = "tokens must be a whole number and money finite, both at least 0"
                raise PlanError(f"{amounts}; {rule}")
            lane.check(call)
        return call

    @property
    def _stopped_first(self) -> bool:
        """True if the run was stopped before the job has made a request; it is withdrawn then."""
        if self._context.stop.is_set():
            self.withdraw()
        return self.withdrawn

    def _refuse_if_late(self, now: float) -> None:
        if self._over or now >= self._context.deadline:
            cause = "it was over" if self._over else "the run's deadline"
            cause = "the run's stop" if self.withdrawn else cause
            raise TooLateError(f"job {self.job.index} requested a call after {cause}")

    def _begin(self, lane: Lane, call: Call, now: float) -> None:
        if call.seen is None:
            call.seen = lane.served, lane.refused
        self.count += 1
        self._in_flight += 1
        if self._paused_at is not None:
            self._resume(now)
        lane.begin(call, now)

    def _hear(self, lane: Lane, call: Call, result: Metered[Any]) -> None:
        """Learn from a reply: the server's limits, and what the call used."""
        if result.hint is not None:
            lane.apply_hint(result.hint)
        tokens = call.tokens if result.tokens is None else result.tokens
        call.used = tokens, call.money if result.money is None else result.money
        call.is_reported = result.tokens is not None

    def _learn_failure(self, lane: Lane, call: Call, failure: Exception) -> float | None:
        """Learn from a failure; return the instant before which the call is not retried, None if never."""
        before, self.failed = self.failed, call
        if not call.failures and self._made and before is not None:
            call.failures, call.is_exhausted = before.failures, before.is_exhausted
        error = call_error(failure)
        if error is None:
            call.used = call.tokens, call.money
            return None
        call.used, call.is_reported = error.used(call.tokens, call.money), error.tokens is not None
        again = call.again(error, trio.current_time(), lane, salvaging=self._made > 0)
        again_at = lane.failed(call, error)
        return again_at if again else None

    async def _wait(self, lane: Lane, call: Call, again_at: float | None, *, passes: bool) -> float:
        """Wait for a start; after a failure, rest until `again_at` first. Returns the instant."""
        context = self._context
        if lane.shared and self.count == self._made:
            context.first_requests[call] = self
        try:
            with self.waiting():
                if again_at is not None:
                    await self._rest(lane, call, again_at)
                return await lane.wait_start(call, self._refuse_if_late, passes=passes)
        except TooLateError as error:
            late = error
        finally:
            context.first_requests.pop(call, None)
        await trio.lowlevel.checkpoint()  # cancelled here, unless in a shield
        raise late

    async def _rest(self, lane: Lane, call: Call, until: float) -> None:
        """Wait for the back-off of a call, in which the job keeps no other one from starting."""
        self._resting += 1
        if self._resting == 1:
            self._rested(1)
        try:
            await lane.rest(call, until)
        finally:
            self._resting -= 1
            if not self._resting:
                self._rested(-1)

    def _pause_if_idle(self) -> None:
        if self._paused_at is None and not self._in_flight and not self._over:
            self._paused_at = trio.current_time()
            self._left = self._timer.deadline - self._paused_at
            self._timer.set(math.inf)

    def _resume(self, now: float) -> None:
        if self._paused_at is not None:
            self._waited += now - self._paused_at
            self._timer.set(now + self._left)
            self._paused_at = None

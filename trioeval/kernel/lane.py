"""Everything that limits one provider key: slots, rates, and an orderly line.

A call starts on a lane at the first instant at which all of this holds together: it stands first in line,
the lane is neither paused nor closed, nothing blocks it, the paces of requests and tokens are open, and a
slot is free (with a budget, a cap over all lanes or permits, those too). All of it is taken in one
synchronous step, so

* a slot is never held while something else is waited for (SLOT), and calls start in the order of the line,
* a waiter that is cancelled has taken nothing and leaves no hole in the pace (PACE).

What may start when is decided in `rates.throttle`; here are only the slots, the line, and the waking.
Where nobody stands in line the start costs no trip through the scheduler.

**New jobs.** A lane does not only serve calls, it also admits jobs: the next job of a run may begin when
its first call could start at once (`wait_ready`). Admission takes nothing, because the body may do
something else first. So that the call really starts in the same step, and no call in line comes between,
the job is the lane's *favourite* until anyone else touches the lane: a job that goes to its first call
without a pause finds the slot it was admitted for, one that pauses stands in line like everybody.
"""

import math
from collections.abc import Callable
from functools import partial

import attrs
import trio

from trioeval.errors import CallError, Fault
from trioeval.kernel.events import Observer, Why
from trioeval.kernel.lane_spec import (
    LaneSpec,
    LaneStatistics,
    Rng,
    check_rates,
    make_throttle,
    pacer,
)
from trioeval.kernel.reservations import Account, Need, Permit, Permits
from trioeval.kernel.wait_queue import Asking, Caller, Cap, Line, Obstacle, Place, Turns
from trioeval.rates import BreakerState, Follower, RateHint, Throttle


@attrs.define(eq=False, repr=False)
class Lane:
    """One lane; made by `Lanes`, not by users.

    Users read `statistics()`, set `width`, and call `retune`, `pause` and `resume`.
    """

    spec: LaneSpec
    _rng: Rng
    _cap: Cap | None
    _permits: Permits | None
    followers: list[Follower] = attrs.field(factory=list)
    """The crews of the runs that start jobs here."""
    throttle: Throttle = attrs.field(init=False)
    """What the lane has learned."""
    in_flight: int = attrs.field(init=False, default=0)
    """Calls that hold a slot. Counted: to ask the limiter costs more than to take a slot of it."""
    _slots: int = attrs.field(init=False)
    _limiter: trio.CapacityLimiter = attrs.field(init=False)
    _line: Line = attrs.field(factory=Line)
    _turns: Turns = attrs.field(init=False)
    _resting: set[Place] = attrs.field(factory=set)
    """Calls in their back-off."""
    _accounts: dict[object, Account] = attrs.field(factory=dict)
    """Of calls in flight that reserved more than a slot."""
    favourite: object | None = None
    """Whose first call passes the line, until anyone else touches the lane."""
    shared: bool = attrs.field(init=False)
    """Whether calls need permits."""
    _alone: bool = attrs.field(init=False)
    """Whether calls need nothing but the lane and what pays for them."""
    _paused: bool = False
    _started: int = 0
    served: int = 0
    """Calls that succeeded; who makes them counts."""
    _refused: int = 0
    retried: int = 0
    """Calls that are made again; who makes them counts."""

    def __attrs_post_init__(self) -> None:
        self.throttle = make_throttle(self.spec)
        self._slots = self.throttle.allowed
        self._limiter = trio.CapacityLimiter(self._slots)
        self._turns = Turns(self.spec.name, self.throttle.breaker, self._cap, self._line)
        self.shared = self._permits is not None
        self._alone = self._cap is None and not self.shared

    def __repr__(self) -> str:
        busy = f"{self.in_flight} of {self.throttle.allowed} in flight"
        said = [busy, f"{len(self._line.places)} in line"]
        said += ["paused"] if self._paused else []
        state = self.throttle.state
        said += [] if state is BreakerState.CLOSED else [f"breaker {state.value}"]
        return f"<Lane {self.spec.name!r}: {', '.join(said)}>"

    @property
    def width(self) -> int:
        """Calls that may be in flight at most; may be set at any time, ≥ 1."""
        return self.throttle.limit.width

    @width.setter
    def width(self, width: int) -> None:
        attrs.evolve(self.spec, width=width)  # refuses what no lane could have
        self.throttle.retune(width)
        self._apply_limit()

    def retune(self, *, rpm: float | None = None, tpm: float | None = None) -> None:
        """Keep to other rates from now on, inside of `trio.run`; what was started before still counts.

        Args:
            rpm: Requests per minute, > 0 and finite; None leaves them.
            tpm: Likewise tokens.

        Raises:
            PlanError: A rate is out of its range, or the lane has no rate of tokens.
        """
        check_rates(self.spec, rpm, tpm)
        self.throttle.repace(trio.current_time(), rpm, tpm)
        self._news()

    def pause(self) -> None:
        """Start nothing until `resume`; what is in flight goes on."""
        self._paused = True
        self._apply_limit()

    def resume(self) -> None:
        """End a pause, and open a closed lane again."""
        self._paused = False
        self.throttle.reset()
        self._apply_limit()

    @property
    def seen(self) -> tuple[int, int]:
        """Calls that were served, and refused because there were too many, so far."""
        return self.served, self._refused

    @property
    def slot_free(self) -> bool:
        """Whether one more call could be in flight."""
        return self.in_flight < self._slots

    @property
    def in_line(self) -> bool:
        """Whether somebody stands in line."""
        return bool(self._line.places)

    @property
    def closed(self) -> str | None:
        """Why the lane serves no more calls; None if it does."""
        return self.throttle.breaker.reason

    def ready(self, now: float, *, first: bool = False) -> bool:
        """Whether a newcomer could start at `now` without passing anybody in line, or as the first in it."""
        return (first or not self._line.places) and self._obstacle(0, now) is None

    def check(self, need: Need) -> None:
        """Refuse at once what can never be served; see `Need.check`."""
        alone = self.spec.oversize == "alone"
        need.check(self.spec.name, None if alone else self.throttle.tokens)

    def start_nowait(self, call: object, job: Caller, need: Need, now: float) -> bool:
        """Start `call`, if the call of `job` may start at `now`.

        Raises:
            BudgetError: The call needs more than its budget has left.
            QuotaError: Its permit can never be had.
        """
        favourite, self.favourite = self.favourite, None
        if self._line.places and favourite is not job:
            return False
        if self.throttle.free and self._alone and need.purse is None:
            try:
                self._limiter.acquire_on_behalf_of_nowait(call)
            except trio.WouldBlock:
                return False
            self.in_flight += 1
            self._started += 1
            if not self.throttle.calm:
                self.throttle.limit.begun(self.in_flight)
            return True
        permit = None
        if self._permits is not None:
            permit = partial(self._permits.take_nowait, job.index, need.tokens, need.money)
        favoured = favourite is job
        obstacle = self._try_start(call, need, now, permit, favoured=favoured)
        if obstacle is None and permit is not None:
            job.tell_reserving(self.spec.name, now)
        if favoured and self._cap is not None and obstacle == (Why.QUOTA, math.inf):
            self._cap.join(self._turns, again=True)  # the caller stands in line in this very step
        return obstacle is None

    async def wait_start(
        self,
        call: object,
        index: int,
        need: Need,
        refuse: Callable[[float], None],
        observe: Observer | None,
        *,
        passes: bool = False,
    ) -> float:
        """Wait for the line, the rates and a slot, and take them. A checkpoint. Returns the instant.

        Args:
            call: What holds the slot.
            index: Of the job that calls.
            need: What it takes.
            refuse: Asked at the instant of the start; raises if it is too late for the call, which has
                then taken nothing.
            observe: Told of every wait.
            passes: Whether the call is made again, and stands before what is new.

        Raises:
            LaneClosedError: The lane serves no more calls.
            BudgetError: The call needs more than its budget has left.
            QuotaError: Its permit can never be had, or nobody can be asked for it.
        """
        asking, get_permit = None, None
        if self._permits is not None:
            name, short = self.spec.name, self._turns.leave_cap
            asking = Asking(self._permits, name, index, need, observe, short)
            get_permit = asking.hand_over

        def start(now: float) -> Obstacle | None:
            self.favourite = None
            refuse(now)
            return self._try_start(call, need, now, get_permit)

        place = self._line.join(index if passes else None)
        return await self._turns.stand(place, start, index, observe, asking)

    async def wait_ready(self, observe: Observer | None) -> None:
        """Wait until a call could start; take nothing. A checkpoint.

        The caller starts that call, or favours the job that will, before its next checkpoint.

        Raises:
            LaneClosedError: The lane serves no more calls.
        """
        await self._turns.stand(self._line.join(), self._look, None, observe)

    async def rest(self, until: float) -> None:
        """The back-off of a failed call, cut short when the lane is closed. A checkpoint."""
        place = Place((0, 0, 0))
        self._resting.add(place)
        try:
            while trio.current_time() < until and self.closed is None:
                place.rearm()
                await place.wait_called(until)
        finally:
            self._resting.discard(place)

    def end(self, call: object, mark: int, used: tuple[int, float]) -> None:
        """A call that started at `mark` is over and has used so much: give back what it does not need."""
        if not self.throttle.calm:
            self.throttle.ended(mark)
        self._limiter.release_on_behalf_of(call)
        self.in_flight -= 1
        if self._accounts and (account := self._accounts.pop(call, None)) is not None:
            account.settle(self.throttle, used)
        if self._cap is not None:
            self._cap.release(call)
        self._news()

    def succeeded(self, latency: float, mark: int, *, retried: bool) -> None:
        """A call was served after `latency` seconds in flight: learn from it."""
        self.throttle.succeeded(latency, mark, retried=retried)
        self._apply_limit()

    def hear(self, now: float, hint: RateHint) -> None:
        """A reply said what is left of the server's limits."""
        self.throttle.hear(now, hint)
        self._line.call_first()

    def failed(
        self, error: CallError, now: float, mark: int, *, mishaps: int, refusals: int
    ) -> float | None:
        """A call failed: learn from it, as `Throttle.failed` says."""
        self._refused += error.fault is Fault.RATE_LIMITED
        again_at = self.throttle.failed(
            error,
            now,
            mark=mark,
            in_flight=self.in_flight,
            mishaps=mishaps,
            refusals=refusals,
            spread=self._rng(),
        )
        self._apply_limit()
        return again_at

    def unanswered(self, now: float) -> None:
        """A call was given up in flight."""
        self.throttle.unanswered(now)
        if self.closed is not None:
            self._apply_limit()

    def statistics(self) -> LaneStatistics:
        """A snapshot. Not a checkpoint."""
        throttle = self.throttle
        return LaneStatistics(
            name=self.spec.name,
            width=self.width,
            limit=0 if self._paused else throttle.allowed,
            in_flight=self.in_flight,
            waiting=len(self._line.places),
            resting=len(self._resting),
            why=self._turns.why if self._line.places else None,
            next_start_at=throttle.open_at(-math.inf, 0),
            blocked_until=throttle.blocked_until,
            state=throttle.state,
            paused=self._paused,
            reason=self.closed,
            started=self._started,
            succeeded=self.served,
            refused=self._refused,
            retried=self.retried,
            cuts=throttle.limit.epoch,
            rpm=throttle.pace.rpm,
            tpm=None if throttle.tokens is None else throttle.tokens.tpm,
        )

    def _look(self, now: float) -> Obstacle | None:
        """What the first in line finds at `now`, if it wants to take nothing."""
        self.favourite = None
        return self._obstacle(0, now)

    def _obstacle(self, tokens: int, now: float, *, favoured: bool = False) -> Obstacle | None:
        """What is in the way of a start at `now`, but for the line and the budget.

        A favoured job was admitted in this very step: it has waited its turn for the cap.
        """
        throttle = self.throttle
        if self._paused:
            return Why.PAUSED, math.inf
        if not throttle.free:
            open_at = throttle.open_at(now, tokens)
            if open_at > now:
                return pacer(throttle, open_at, now), open_at
        if self.in_flight >= self._slots:
            return Why.SLOT, math.inf
        cap = self._cap
        if cap is not None and not (cap.free if favoured else cap.admits(self._turns)):
            return Why.CAP, math.inf
        return None

    def _try_start(
        self,
        call: object,
        need: Need,
        now: float,
        get_permit: Callable[[], Permit | None] | None = None,
        *,
        favoured: bool = False,
    ) -> Obstacle | None:
        """Take everything that `call` needs; or nothing, and say what is in the way."""
        obstacle = self._obstacle(need.tokens, now, favoured=favoured)
        if obstacle is not None:
            return obstacle
        permit = hold = None
        if get_permit is not None:
            if not need.fits(self._turns):
                return Why.BUDGET, math.inf
            if (permit := get_permit()) is None:
                return Why.QUOTA, math.inf
        if need.purse is not None:
            hold = need.purse.take(need.tokens, need.money, self._turns)
            if hold is None:
                return Why.BUDGET, math.inf
        self._limiter.acquire_on_behalf_of_nowait(call)
        self.in_flight += 1
        if self._cap is not None:
            self._cap.leave(self._turns)
            self._cap.take(call)
        throttle = self.throttle
        reservation = None if throttle.free else throttle.take(now, need.tokens)
        if reservation is not None or hold is not None or permit is not None:
            self._accounts[call] = Account(need, reservation, hold, permit)
        self._started += 1
        throttle.limit.begun(self.in_flight)
        return None

    def _apply_limit(self) -> None:
        """Make the slots follow what was decided, and wake whoever that concerns."""
        if self.closed is not None:
            self._line.dismiss()
            for place in self._resting:
                place.call()
        self._slots = 0 if self._paused else self.throttle.allowed
        self._limiter.total_tokens = self._slots
        self._news()

    def _news(self) -> None:
        if self._line.places:
            self._line.call_first()
        for follower in self.followers:
            follower.notify()

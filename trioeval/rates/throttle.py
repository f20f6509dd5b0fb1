"""The rates and limits of one lane as one decision: when a call may start, and how many may be in flight.

The lane asks for the first instant at which a call may start (`open_at`) and for the number of calls that may
be in flight (`allowed`), and reports the result of each call. All arithmetic of rates is combined here,
without a clock, waiting or randomness.

* **Blocked.** A refusal or transient failure that names a wait blocks the lane until then, and the instant
  never moves back. One that names none costs its own call a back-off and affects no other call.
* **Recovering.** After a block every waiting call would start at once. So one call probes; each success
  doubles the number that may be in flight, until the limit is reached again.
* **Outage.** The calls in flight at a refusal form a generation. If none of them succeeds, the server may
  serve no requests at all: after some such generations the lane recovers too, and rests for longer and
  longer.
* **Hints.** A successful reply may report that little is left. This paces the lane before the server has to
  refuse: a spent allowance blocks until its reset, a nearly spent one slows starts down to the rate that the
  server sustains.

Laws: RETRY_AFTER, AIMD, PACE.
"""

import math

import attrs

from trioeval.errors import CallError, Fault
from trioeval.rates.adaptive_limit import Limit, Refusal
from trioeval.rates.backoff import Backoff, Breaker, BreakerState
from trioeval.rates.pace import Pace, Reservation, TokenPace

# The rate that a server proves to serve, if it does not report it.
#
# A server that refuses and names a wait is full at that instant. What it served between two such instants is
# what it serves in the long run, whatever burst it allows in between; so starts are paced a little above
# that, and a little faster again as long as it serves. Without this a lane fills the server's bucket, is
# refused with all calls in flight, waits, and does the same again.
#
# Two things make the measured rate too low: a lane that had nothing to do for a while, and a wait that was
# named for another reason (too many in flight), which counts as time. So a start never waits longer than the
# server asked for, after which it served at least one; and the rate recovers by growing.


_MARGIN = 1.1
"""The factor by which the lane goes faster than measured, and by which it grows each time."""
_SLACK = 2
"""Burst of a reported or measured rate: a late start must not delay all that follow."""
_LEAST_MEASURED = 4
"""Calls served that are enough for a measurement."""
_FASTEST = 0.001
"""Seconds between two starts below which no pace is needed any more."""


@attrs.define(eq=False, repr=False)
class MeasuredRate:
    """The rate of one lane, measured between refusals."""

    pace: Pace | None = None
    """The pace of the lane; None if nothing was measured, or the measurement was dropped."""
    _since: float | None = None
    _served: int = 0
    _grow_after: int = 0

    @property
    def measuring(self) -> bool:
        """True if starts and successes are counted."""
        return self._since is not None

    def served(self) -> None:
        """Count a call that was served."""
        self._served += 1
        if self.pace is not None and self._served >= self._grow_after:
            faster = attrs.evolve(self.pace, period=self.pace.period / _MARGIN)
            self.pace = faster if faster.period > _FASTEST else None
            if self.pace is None:
                self._since = None
            self._plan_growth()

    def refused(self, now: float, wait: float, *, full: bool) -> None:
        """Count a wave of refusals: the server asks to wait so many seconds.

        Args:
            now: The instant.
            wait: The seconds, > 0.
            full: Whether the refusal is evidence of a rate: several calls were refused, or one soon after a
                wait. A single refusal may have any reason.
        """
        if not full:
            if self.pace is not None:
                slower = min(self.pace.period * _MARGIN, max(self.pace.period, wait))
                self.pace = attrs.evolve(self.pace, period=slower)
                self._plan_growth()
            return
        if self._since is None:
            self._since, self._served = now, 0
        elif self._served >= _LEAST_MEASURED and now > self._since:
            period = min((now - self._since) / self._served, wait)
            self.pace = Pace(period / _MARGIN, _SLACK)
            self._since, self._served = now, 0
        self._plan_growth()

    def take(self, now: float) -> None:
        """Count a start."""
        if self.pace is not None:
            self.pace = self.pace.take(now)

    def _plan_growth(self) -> None:
        # Grow about once per second.
        if self.pace is not None:
            self._grow_after = self._served + max(2 * _LEAST_MEASURED, int(1 / self.pace.period))


# A server's own limits as it reports them, in successful replies and in errors. Data only.


@attrs.frozen
class Allowance:
    """The remaining amount in one dimension: requests or tokens."""

    limit: float | None = None
    """The amount that the server allows in `window` seconds, > 0."""
    remaining: float | None = None
    """The part of it that is left, ≥ 0."""
    reset_after: float | None = None
    """Seconds, counted from the reply, until all of it is available again, ≥ 0."""
    window: float = 60.0
    """Seconds to which `limit` refers, > 0."""

    @property
    def is_sound(self) -> bool:
        """True if the values are consistent; if not, they are not a hint."""
        counts = (self.remaining, self.reset_after)
        spans = (self.limit, self.window)
        sound = all(value is None or 0 <= value < math.inf for value in counts)
        return sound and all(value is None or 0 < value < math.inf for value in spans)

    @property
    def until_some(self) -> float:
        """Seconds until a spent, or nearly spent, allowance allows calls again; their needs differ."""
        if self.remaining is None or self.reset_after is None:
            return 0.0
        if self.remaining == 0 or self.limit is None:
            return self.reset_after if self.remaining == 0 else 0.0
        missing = _LITTLE * self.limit - self.remaining
        return min(self.reset_after, max(0.0, missing) * self.window / self.limit)


@attrs.frozen
class RateHint:
    """A server's limits as one reply reports them; None for what it does not report."""

    requests: Allowance | None = None
    tokens: Allowance | None = None


_BRIEF = 0.01
"""A named wait of fewer seconds does not count as an outage: it is observed, without further effects."""
_RECOVER_AFTER = 4
"""Generations without a success after which the lane probes, even if no wait was named."""
_SOON = 4
"""Calls served after a wait, before which a refusal is evidence of a rate."""
_TELLING = 2
"""Refusals of one call that are evidence of a rate; a call refused more often may be refused for itself."""
_LITTLE = 0.1
"""Share of an allowance below which starts are paced by it."""
_PLENTY = 0.2
"""Share above which they are not paced any more."""


@attrs.define(eq=False, repr=False)
class Throttle:
    """The state of one lane's rates.

    Args:
        limit: The limit of calls in flight.
        pace: The pace of requests.
        tokens: The pace of tokens; None sets no rate.
        breaker: The circuit breaker.
        backoff: The delay of a call that failed transiently.
        busy_backoff: The delay of a call that was refused without a named wait.
        measured_rate: The measurement of a rate that the server does not report; None measures none.
    """

    limit: Limit
    pace: Pace
    tokens: TokenPace | None
    breaker: Breaker
    backoff: Backoff
    busy_backoff: Backoff
    measured_rate: MeasuredRate | None = None
    blocked_until: float = -math.inf
    """Nothing starts before this instant; it only moves forward."""
    calm: bool = attrs.field(init=False)
    """True if starts and plain successes have no effect now."""
    free: bool = attrs.field(init=False)
    """True if every instant is open, regardless of earlier starts: no pace, no block."""
    congestions: int = attrs.field(init=False, default=0)
    """Generations without a success since the last success. A generation is the set of calls in flight at a
    refusal. One refused call among many says nothing about the others."""
    _generation_mark: int = attrs.field(init=False, default=0)
    """The mark at the start of the present generation."""
    _in_flight_at_refusal: int = attrs.field(init=False, default=0)
    """Calls of the present generation that are in flight."""
    _wave_confirmed: bool = attrs.field(init=False, default=False)
    """True if the present wave has been counted as evidence of the server's rate."""
    _served_since_wait: int = attrs.field(init=False, default=_SOON)
    """Calls served since the server asked for a wait; before that a meaningless number."""
    mark: int = attrs.field(init=False, default=0)
    """Counts what calls in flight cannot know of; a call remembers it at its start. Instants would not do:
    many calls may start, and be refused, at one instant."""
    _wave_mark: int = attrs.field(init=False, default=0)
    """The mark at the last wave of refusals."""
    _cut_mark: int = attrs.field(init=False, default=0)
    """The mark at the last cut of the limit."""
    _recovery_mark: int = attrs.field(init=False, default=0)
    """The mark at the start of the recovery."""
    _probes: int | None = attrs.field(init=False, default=None)
    """The number of calls that may be in flight while the lane recovers; None if it does not."""
    _hinted: Pace | None = attrs.field(init=False, default=None)
    """The rate that the server reports as sustained, while little is left."""

    def __attrs_post_init__(self) -> None:
        self._settle_flags()

    @property
    def allowed(self) -> int:
        """Calls that may be in flight; 0 if the breaker is open."""
        if self.breaker.reason is not None:
            return 0
        return self.limit.limit if self._probes is None else min(self._probes, self.limit.limit)

    @property
    def limits(self) -> tuple[int, int]:
        """The number of calls that may be in flight, and the number without a recovery."""
        return self.allowed, self.limit.limit

    @property
    def state(self) -> BreakerState:
        """True if calls pass."""
        if self.breaker.reason is not None:
            return BreakerState.OPEN
        return BreakerState.CLOSED if self._probes is None else BreakerState.HALF_OPEN

    def open_at(self, now: float) -> float:
        """Return the first instant at or after `now` at which a call may start, regardless of its tokens."""
        at = max(self.rated_until(now), self.pace.next_gap_at)
        if self.tokens is not None:
            at = max(at, self.tokens.earliest(now))
        return max(at, self.blocked_until)

    def rated_until(self, now: float) -> float:
        """Return the first instant at or after `now` that every rate of requests allows."""
        at = max(now, self.pace.rate_allows_at)
        if self._hinted is not None:
            at = max(at, self._hinted.earliest(now))
        if self.measured_rate is not None and self.measured_rate.pace is not None:
            at = max(at, self.measured_rate.pace.earliest(now))
        return at

    def take(self, now: float, tokens: int) -> Reservation | None:
        """Start a call at `now`, not before `open_at`; return its reservation of tokens, if any."""
        self.pace = self.pace.take(now)
        if self._hinted is not None:
            self._hinted = self._hinted.take(now)
        if self.measured_rate is not None:
            self.measured_rate.take(now)
        return None if self.tokens is None else self.tokens.reserve(now, tokens)

    def settle(self, reservation: Reservation, tokens: int) -> None:
        """Settle a call that has used so many tokens."""
        if self.tokens is not None:
            self.tokens.settle(reservation, tokens)

    def succeeded(self, latency: float, mark: int, *, retried: bool) -> None:
        """Learn from the success of a call that started at `mark`, after `latency` seconds in flight."""
        self.breaker.succeeded()
        self.congestions = self._in_flight_at_refusal = 0
        self._served_since_wait += 1
        if self.measured_rate is not None:
            self.measured_rate.served()
        self.limit.succeeded(latency, retried=retried)
        if self._probes is not None and mark >= self._recovery_mark:
            self._probes *= 2
            if self._probes >= self.limit.limit:
                self._probes = None
        self._settle_flags()

    def ended(self, mark: int) -> None:
        """Note the end of a call that started at `mark`, successful or not."""
        if self._in_flight_at_refusal and mark < self._generation_mark:
            self._in_flight_at_refusal -= 1

    def failed(
        self,
        error: CallError,
        now: float,
        *,
        mark: int,
        in_flight: int,
        mishaps: int,
        refusals: int,
        spread: float,
    ) -> float | None:
        """Learn from a failed call.

        Args:
            error: The failure as its sender classified it.
            now: The instant.
            mark: `mark` when the call started.
            in_flight: Calls in flight, including this one.
            mishaps: Transient failures of this call, including this one.
            refusals: Refusals of this call, including this one: a call that is always refused (it may be too
                large) rests longer each time, and counts as evidence about the lane only once.
            spread: A random number from 0 to 1.

        Returns:
            The instant before which the call does not start again; None if it never does.
        """
        why, again_at = str(error), None
        if isinstance(error.hint, RateHint) and error.hint.requests is not None:
            self._follow(error.hint.requests)  # the wait itself is in `retry_after`
        match error.fault:
            case Fault.RATE_LIMITED:
                again_at = self._congested(
                    error, now, mark, spread, in_flight=in_flight, refusals=refusals
                )
            case Fault.TRANSIENT:
                again_at = self._disturbed(error, now, mishaps - 1, spread)
            case Fault.FATAL:
                self.limit.failed()
                self.breaker.refused(why)
            case Fault.QUOTA_EXHAUSTED:
                self.breaker.exhausted(why)
            case Fault.REFUSED:
                pass
        self._settle_flags()
        return None if self.breaker.reason is not None else again_at

    def cancelled_in_flight(self, now: float) -> None:
        """Note a call that was cancelled in flight. This is not a sign of recovery."""
        if self._probes is not None:
            self.breaker.troubled(now, 0.0, "calls get no reply")
            self._settle_flags()

    def apply_hint(self, now: float, hint: RateHint) -> None:
        """Apply what a reply reports as left."""
        if hint.requests is not None and hint.requests.is_sound:
            self._block(now, self._until_request(hint.requests))
            self._follow(hint.requests)
        if hint.tokens is not None and hint.tokens.is_sound:
            self._block(now, hint.tokens.until_some)
        self._settle_flags()

    def retune(self, max_concurrency: int) -> None:
        """Change the max concurrency."""
        self.limit.retune(max_concurrency)
        self._settle_flags()

    def narrow(self, limit: int) -> None:
        """Cut the limit of calls in flight to one that another process has learned, ≥ 1, if it is smaller."""
        before = self.limit.epoch
        self.limit.narrow(limit)
        if self.limit.epoch != before:
            self._cut_mark = self._step()
        self._settle_flags()

    @property
    def reported_period(self) -> float | None:
        """Seconds between two starts that the server reports as sustained while little is left; else None."""
        return None if self._hinted is None else self._hinted.period

    def repace(self, now: float, rpm: float | None, tpm: float | None) -> None:
        """Change the configured rates from `now` on; None leaves a rate unchanged."""
        if rpm is not None:
            self.pace = self.pace.at(now, rpm)
        if tpm is not None and self.tokens is not None:
            self.tokens.retune(now, tpm)
        self._settle_flags()

    def reset(self) -> None:
        """Close the breaker again."""
        self.breaker.reset()
        # A calm lane does not report ends: calls counted here would never be subtracted.
        self.congestions = self._in_flight_at_refusal = 0
        self._settle_flags()

    def _congested(
        self,
        error: CallError,
        now: float,
        mark: int,
        spread: float,
        *,
        in_flight: int,
        refusals: int,
    ) -> float:
        """Learn from a refused call; return the instant before which it does not start again."""
        why, retry_after = str(error), error.retry_after
        if not self._in_flight_at_refusal:
            self.congestions += 1
            self._generation_mark, self._in_flight_at_refusal = self._step(), in_flight
        begins_wave = mark >= self._wave_mark
        if begins_wave:
            self._wave_mark, self._wave_confirmed = self._step(), False
        if retry_after and refusals <= _TELLING:
            # "Retry after 0 s" names an instant but no remedy.
            self._measure_refusal(now, retry_after, begins_wave=begins_wave)
        is_long = (retry_after or 0.0) >= _BRIEF
        self._cut(
            mark, in_flight - 1, retry_after or 0.0 if is_long else 0.0, repeated=refusals > 1
        )
        if retry_after:
            self._keep_wait(now, retry_after, why)
            again_at = now + self.backoff.after_hint(retry_after, spread)
        else:
            doublings = max(0 if self.limit.refused_by_chance else refusals, self.congestions) - 1
            again_at = now + self.busy_backoff.delay(max(0, doublings), spread)
        if is_long or self.congestions >= _RECOVER_AFTER:
            self._recover(now, hinted=is_long)
        self.breaker.troubled(now, max(again_at, self.blocked_until) - now, why)
        return again_at

    def _disturbed(self, error: CallError, now: float, attempt: int, spread: float) -> float:
        """Learn from a transient failure at attempt number `attempt`, from 0; return its restart.

        A wait that the server named applies to the whole lane.
        """
        why, retry_after = str(error), error.retry_after
        rest = self.backoff.delay(attempt, spread, self.breaker.failing_for(now))
        if retry_after is not None:
            rest = self.backoff.after_hint(retry_after, spread)
        self.limit.failed()
        if retry_after:
            self._keep_wait(now, retry_after, why)
            if retry_after >= _BRIEF:
                self._recover(now, hinted=True)
        self.breaker.troubled(now, max(now + rest, self.blocked_until) - now, why)
        return now + rest

    def _measure_refusal(self, now: float, wait: float, *, begins_wave: bool) -> None:
        """Report a refusal to the rate measurement as evidence: one of several, or soon after a wait."""
        soon = self._served_since_wait < _SOON
        if self.measured_rate is not None and not self._wave_confirmed:
            self._wave_confirmed = soon or not begins_wave
            if self._wave_confirmed or self.measured_rate.pace is not None:
                self.measured_rate.refused(now, wait, full=self._wave_confirmed)
        self._served_since_wait = 0

    def _cut(self, mark: int, beside: int, wait: float, *, repeated: bool) -> None:
        before = self.limit.epoch
        epoch = before if mark >= self._cut_mark else before - 1
        self.limit.congested(Refusal(epoch, beside, wait, repeated))
        if self.limit.epoch != before:
            self._cut_mark = self._step()

    def _keep_wait(self, now: float, seconds: float, why: str) -> None:
        """Observe a wait that the server asked for, > 0: nothing starts before it is over."""
        self.breaker.observe_wait(seconds, why)
        self.blocked_until = max(self.blocked_until, now + seconds)

    def _recover(self, now: float, *, hinted: bool) -> None:
        self._probes, self._recovery_mark = 1, self._step()
        # A named wait that did not help is doubled, and so on.
        doublings = self.congestions - (1 if hinted else _RECOVER_AFTER)
        if doublings >= hinted:
            rest = self.busy_backoff.delay(doublings, 1.0)
            self.blocked_until = max(self.blocked_until, now + rest)

    def _step(self) -> int:
        self.mark += 1
        return self.mark

    def _until_request(self, left: Allowance) -> float:
        """Return the seconds until a spent allowance of requests lets one start again."""
        if left.remaining != 0 or left.reset_after is None:
            return 0.0
        if self.pace.period and left.limit is not None:
            # A lane with its own rate has not used up a minute's requests at once: the next one is available
            # as soon as the server's rate allows.
            return min(left.reset_after, left.window / left.limit)
        return left.reset_after

    def _block(self, now: float, wait: float) -> None:
        # A wait beyond the patience is accepted here: it may mean a day's allowance.
        if 0 < wait <= self.breaker.patience:
            self.blocked_until = max(self.blocked_until, now + wait)

    def _follow(self, left: Allowance) -> None:
        """Use the rate that the server reports as allowed, while little is left."""
        if left.limit is None or left.remaining is None or not left.is_sound:
            return
        share = left.remaining / left.limit
        period = left.window / left.limit
        if share < _LITTLE:
            known = self._hinted is not None and self._hinted.period == period
            if not known and period > self.pace.period:
                self._hinted = Pace(period, _SLACK)
        elif share > _PLENTY:
            self._hinted = None

    def _settle_flags(self) -> None:
        learning = self.measured_rate is not None and self.measured_rate.measuring
        counting = self.measured_rate is not None and self._served_since_wait < _SOON
        self.calm = (
            self.limit.calm
            and self._probes is None
            and self.breaker.untroubled
            and not (learning or counting)
        )
        self.free = (
            self.pace.unlimited
            and self._hinted is None
            and not learning
            and self.tokens is None
            and self.blocked_until == -math.inf
        )

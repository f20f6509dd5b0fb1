"""When and how many: everything that a lane has learned, as one decision.

The lane asks two things: the first instant at which a call may start (`open_at`), and how many calls may
be in flight (`allowed`). It tells what became of each call. All arithmetic of rates meets here; there is
no clock, no waiting and no chance inside.

* **Blocked.** A refusal or a mishap that names a wait blocks the lane until then, and the instant never
  moves back. One that names none costs its own call a back-off and no other call anything.
* **Recovering.** After a block the server has had its rest, and every waiting call would start at once.
  So one call probes; each success doubles how many may be in flight, until the limit is reached again.
* **Outage.** What is in flight at a refusal is a generation. If none of it succeeds, the server may serve
  nobody: after some such generations the lane recovers too, and rests for longer and longer.
* **Hints.** A good reply may say that little is left. What is left then paces the lane before the server
  has to refuse: a spent allowance blocks until its reset, a nearly spent one slows starts down to the rate
  that the server sustains.

Laws: RETRY_AFTER, AIMD, PACE.
"""

import math

import attrs

from trioeval.errors import CallError, Fault
from trioeval.rates.adaptive_limit import Limit, Refusal
from trioeval.rates.backoff import Backoff, Breaker, BreakerState
from trioeval.rates.pace import Pace, Reservation, TokenPace

# The rate that a server turns out to serve, where nobody tells it.
#
# A server that refuses and names a wait is full at that instant. What it served between two such instants is
# what it serves in the long run, whatever burst it allows in between; so starts are paced a little above
# that, and a little faster again as long as it serves. Without this a lane fills the server's bucket, is
# refused with everything that is in flight, waits, and does the same again.
#
# Two things make the measured rate too low: a lane that had nothing to do for a while, and a wait that was
# named for another reason (too many in flight), which counts as time. So a start never waits longer than the
# server asked for, after which it served at least one; and the rate heals by growing.


_MARGIN = 1.1
"""How much faster than measured the lane goes, and how much faster it grows each time."""
_SLACK = 2
"""Burst of a rate that was told or measured: a start that comes late must not delay all that follow."""
_LEAST_MEASURED = 4
"""Calls served that make a measurement."""
_FASTEST = 0.001
"""Seconds between two starts at which no pace is needed any more."""


@attrs.define(eq=False)
class Delivery:
    """Measures one lane between refusals."""

    pace: Pace | None = None
    """What the lane keeps to; None if nothing was measured, or it is forgotten."""
    _since: float | None = None
    _served: int = 0
    _grow_after: int = 0

    @property
    def measuring(self) -> bool:
        """Whether starts and successes tell something."""
        return self._since is not None

    def served(self) -> None:
        """A call was served."""
        self._served += 1
        if self.pace is not None and self._served >= self._grow_after:
            faster = attrs.evolve(self.pace, period=self.pace.period / _MARGIN)
            self.pace = faster if faster.period > _FASTEST else None
            if self.pace is None:
                self._since = None
            self._plan_growth()

    def refused(self, now: float, wait: float, *, full: bool) -> None:
        """The server refuses and asks to wait so many seconds; once for each wave of refusals.

        Args:
            now: The instant.
            wait: What it asks for, > 0.
            full: Whether that says something of its rate: several calls were refused, or one that came soon
                after a wait. A lone refusal may mean anything.
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
        """A call starts."""
        if self.pace is not None:
            self.pace = self.pace.take(now)

    def _plan_growth(self) -> None:
        # About once a second.
        if self.pace is not None:
            self._grow_after = self._served + max(2 * _LEAST_MEASURED, int(1 / self.pace.period))


# What a server says of its own limits, on good replies and on bad ones. Data only.


@attrs.frozen
class Allowance:
    """What is left of one dimension: requests or tokens."""

    limit: float | None = None
    """How much the server allows in `window` seconds, > 0."""
    remaining: float | None = None
    """How much of it is left, ≥ 0."""
    reset_after: float | None = None
    """Seconds, counted from the reply, until all of it is back, ≥ 0."""
    window: float = 60.0
    """Seconds that `limit` speaks of, > 0."""

    @property
    def is_sound(self) -> bool:
        """Whether all of it can be true; if not, it is no hint."""
        counts = (self.remaining, self.reset_after)
        spans = (self.limit, self.window)
        sound = all(value is None or 0 <= value < math.inf for value in counts)
        return sound and all(value is None or 0 < value < math.inf for value in spans)

    @property
    def until_some(self) -> float:
        """Seconds until a spent, or nearly spent, allowance is none; calls need different amounts."""
        if self.remaining is None or self.reset_after is None:
            return 0.0
        if self.remaining == 0 or self.limit is None:
            return self.reset_after if self.remaining == 0 else 0.0
        missing = _LITTLE * self.limit - self.remaining
        return min(self.reset_after, max(0.0, missing) * self.window / self.limit)


@attrs.frozen
class RateHint:
    """What one reply says of the server's limits; what it does not say is None."""

    requests: Allowance | None = None
    tokens: Allowance | None = None


_RECOVER_AFTER = 4
"""Barren generations of calls after which the lane probes, even if no wait was named."""
_SOON = 4
"""Calls served after a wait, before which a refusal shows that the server has a rate."""
_TELLING = 2
"""Refusals of one call that can show a rate; one that is refused more often may be refused for itself."""
_LITTLE = 0.1
"""Share of an allowance below which starts are paced by it."""
_PLENTY = 0.2
"""Share above which they are not any more."""


@attrs.define(eq=False)
class Throttle:
    """The state of one lane's rates.

    Args:
        limit: How many calls may be in flight.
        pace: When requests may start.
        tokens: When tokens may be used; None sets no rate.
        breaker: When the lane is given up.
        backoff: How long a call waits that failed by mishap.
        busy_backoff: How long a call waits that was refused and not told how long.
        delivery: What finds a rate that nobody tells; None does not look for one.
    """

    limit: Limit
    pace: Pace
    tokens: TokenPace | None
    breaker: Breaker
    backoff: Backoff
    busy_backoff: Backoff
    delivery: Delivery | None = None
    blocked_until: float = -math.inf
    """Nothing starts before; only moves forward."""
    calm: bool = attrs.field(init=False)
    """Whether starts and plain successes tell nothing now."""
    free: bool = attrs.field(init=False)
    """Whether every instant is open, whatever happened before: no pace, no block."""
    congestions: int = attrs.field(init=False, default=0)
    """Barren generations since the last success. A generation are the calls that are in flight at a refusal;
    it is barren if none of them succeeds. One call among many that is refused says nothing of the others."""
    _generation_mark: int = attrs.field(init=False, default=0)
    """Since the present generation."""
    _elders: int = attrs.field(init=False, default=0)
    """Calls of the present generation that are in flight."""
    _company: bool = attrs.field(init=False, default=False)
    """Whether the present wave has told of the server's rate."""
    _served_since_wait: int = attrs.field(init=False, default=_SOON)
    """Calls served since the server asked for a wait; before that as many as show nothing."""
    mark: int = attrs.field(init=False, default=0)
    """Counts what calls in flight cannot know of; a call remembers it at its start. Instants would not do:
    many calls may start, and be refused, at one."""
    _wave_mark: int = attrs.field(init=False, default=0)
    """The mark since the last wave of refusals."""
    _cut_mark: int = attrs.field(init=False, default=0)
    """Since the last cut of the limit."""
    _recovery_mark: int = attrs.field(init=False, default=0)
    """Since the lane recovers."""
    _probes: int | None = attrs.field(init=False, default=None)
    """How many may be in flight while the lane recovers; None if it does not."""
    _hinted: Pace | None = attrs.field(init=False, default=None)
    """The rate that the server says it sustains, while little is left."""

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
        """How many may be in flight, and how many might if the lane did not recover from anything."""
        return self.allowed, self.limit.limit

    @property
    def state(self) -> BreakerState:
        """Whether calls pass."""
        if self.breaker.reason is not None:
            return BreakerState.OPEN
        return BreakerState.CLOSED if self._probes is None else BreakerState.HALF_OPEN

    def open_at(self, now: float) -> float:
        """The first instant at or after `now` at which a call may start, whatever its tokens."""
        at = max(self.rated_until(now), self.pace.next_gap_at)
        if self.tokens is not None:
            at = max(at, self.tokens.earliest(now))
        return max(at, self.blocked_until)

    def rated_until(self, now: float) -> float:
        """The first instant at or after `now` that every rate of requests allows."""
        at = max(now, self.pace.rate_allows_at)
        if self._hinted is not None:
            at = max(at, self._hinted.earliest(now))
        if self.delivery is not None and self.delivery.pace is not None:
            at = max(at, self.delivery.pace.earliest(now))
        return at

    def take(self, now: float, tokens: int) -> Reservation | None:
        """A call starts at `now`, not before `open_at`; what it reserved of the tokens, if anything."""
        self.pace = self.pace.take(now)
        if self._hinted is not None:
            self._hinted = self._hinted.take(now)
        if self.delivery is not None:
            self.delivery.take(now)
        return None if self.tokens is None else self.tokens.reserve(now, tokens)

    def settle(self, reservation: Reservation, tokens: int) -> None:
        """A call has used so many tokens after all."""
        if self.tokens is not None:
            self.tokens.settle(reservation, tokens)

    def succeeded(self, latency: float, mark: int, *, retried: bool) -> None:
        """A call that started at `mark` has succeeded after `latency` seconds in flight."""
        self.breaker.succeeded()
        self.congestions = self._elders = 0
        self._served_since_wait += 1
        if self.delivery is not None:
            self.delivery.served()
        self.limit.succeeded(latency, retried=retried)
        if self._probes is not None and mark >= self._recovery_mark:
            self._probes *= 2
            if self._probes >= self.limit.limit:
                self._probes = None
        self._settle_flags()

    def ended(self, mark: int) -> None:
        """A call that started at `mark` is over, in whatever way."""
        if self._elders and mark < self._generation_mark:
            self._elders -= 1

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
            error: What the call's sender made of the failure.
            now: The instant.
            mark: `mark` when the call started.
            in_flight: Calls in flight, this one included.
            mishaps: Transient failures of this very call, this one included.
            refusals: Likewise refusals: a call that is always refused (it may be too large) rests longer
                each time, and tells of the lane only once.
            spread: A number from 0 to 1, by chance.

        Returns:
            The instant before which the call does not start again; None if it never does.
        """
        why, again_at = str(error), None
        if isinstance(error.hint, RateHint) and error.hint.requests is not None:
            self._follow(error.hint.requests)  # how long to wait the refusal says elsewhere
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

    def unanswered(self, now: float) -> None:
        """A call was given up in flight. While the lane recovers, that is no sign of recovery."""
        if self._probes is not None:
            self.breaker.troubled(now, 0.0, "calls get no answer")
            self._settle_flags()

    def hear(self, now: float, hint: RateHint) -> None:
        """Heed what a reply says is left."""
        if hint.requests is not None and hint.requests.is_sound:
            self._block(now, self._until_request(hint.requests))
            self._follow(hint.requests)
        if hint.tokens is not None and hint.tokens.is_sound:
            self._block(now, hint.tokens.until_some)
        self._settle_flags()

    def retune(self, max_concurrency: int) -> None:
        """The configured width is another now."""
        self.limit.retune(max_concurrency)
        self._settle_flags()

    def repace(self, now: float, rpm: float | None, tpm: float | None) -> None:
        """The configured rates are others from `now` on; None leaves one."""
        if rpm is not None:
            self.pace = self.pace.at(now, rpm)
        if tpm is not None and self.tokens is not None:
            self.tokens.retune(now, tpm)
        self._settle_flags()

    def reset(self) -> None:
        """Close the breaker again."""
        self.breaker.reset()
        # A calm lane tells no ends: elders that were left would never be gone.
        self.congestions = self._elders = 0
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
        """A call was one too many; returns the instant before which it does not start again."""
        why, retry_after = str(error), error.retry_after
        if not self._elders:
            self.congestions += 1
            self._generation_mark, self._elders = self._step(), in_flight
        begins_wave = mark >= self._wave_mark
        if begins_wave:
            self._wave_mark, self._company = self._step(), False
        if retry_after and refusals <= _TELLING:
            # "Retry after 0 s" says when, but not that it helps.
            self._tell_delivery(now, retry_after, begins_wave=begins_wave)
        self._cut(mark, in_flight - 1, retry_after or 0.0, repeated=refusals > 1)
        if retry_after:
            self._keep_wait(now, retry_after, why)
            again_at = now + self.backoff.after_hint(retry_after, spread)
        else:
            doublings = max(refusals, self.congestions) - 1
            again_at = now + self.busy_backoff.delay(doublings, spread)
        if retry_after or self.congestions >= _RECOVER_AFTER:
            self._recover(now, hinted=bool(retry_after))
        self.breaker.troubled(now, max(again_at, self.blocked_until) - now, why)
        return again_at

    def _disturbed(self, error: CallError, now: float, attempt: int, spread: float) -> float:
        """A call failed by mishap at its `attempt`-th attempt, from 0; returns when it may start again.

        A wait that the server named holds for the whole lane.
        """
        why, retry_after = str(error), error.retry_after
        rest = self.backoff.delay(attempt, spread)
        if retry_after is not None:
            rest = self.backoff.after_hint(retry_after, spread)
        self.limit.failed()
        if retry_after:
            self._keep_wait(now, retry_after, why)
            self._recover(now, hinted=True)
        self.breaker.troubled(now, max(now + rest, self.blocked_until) - now, why)
        return now + rest

    def _tell_delivery(self, now: float, wait: float, *, begins_wave: bool) -> None:
        """Whether a refusal shows the server's rate: it has company, or comes soon after a wait."""
        soon = self._served_since_wait < _SOON
        if self.delivery is not None and not self._company:
            self._company = soon or not begins_wave
            if self._company or self.delivery.pace is not None:
                self.delivery.refused(now, wait, full=self._company)
        self._served_since_wait = 0

    def _cut(self, mark: int, beside: int, wait: float, *, repeated: bool) -> None:
        before = self.limit.epoch
        epoch = before if mark >= self._cut_mark else before - 1
        self.limit.congested(Refusal(epoch, beside, wait, repeated))
        if self.limit.epoch != before:
            self._cut_mark = self._step()

    def _keep_wait(self, now: float, seconds: float, why: str) -> None:
        """The server asked for a wait, > 0: nothing starts before it is over."""
        self.breaker.asked_to_wait(seconds, why)
        self.blocked_until = max(self.blocked_until, now + seconds)

    def _recover(self, now: float, *, hinted: bool) -> None:
        self._probes, self._recovery_mark = 1, self._step()
        # A wait that was named and did not help is doubled, and so on.
        doublings = self.congestions - (1 if hinted else _RECOVER_AFTER)
        if doublings >= hinted:
            rest = self.busy_backoff.delay(doublings, 1.0)
            self.blocked_until = max(self.blocked_until, now + rest)

    def _step(self) -> int:
        self.mark += 1
        return self.mark

    def _until_request(self, left: Allowance) -> float:
        """Seconds until a spent allowance of requests lets one start again."""
        if left.remaining != 0 or left.reset_after is None:
            return 0.0
        if self.pace.period and left.limit is not None:
            # A lane that keeps a rate of its own has not used up a minute's requests at once: there is
            # a next one as soon as the server's rate gives it.
            return min(left.reset_after, left.window / left.limit)
        return left.reset_after

    def _block(self, now: float, wait: float) -> None:
        # A wait beyond the patience is the server's to insist on: it may mean a day's allowance.
        if 0 < wait <= self.breaker.patience:
            self.blocked_until = max(self.blocked_until, now + wait)

    def _follow(self, left: Allowance) -> None:
        """Keep to the rate that the server says it allows, while little is left."""
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
        learning = self.delivery is not None and self.delivery.measuring
        counting = self.delivery is not None and self._served_since_wait < _SOON
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

# Separate from `testing.model`: together they exceed 600 lines.
"""The lanes of the reference scheduler: a second implementation of `trioeval.rates`.

Nothing is accumulated where a list suffices: a lane stores all of its past starts, its failures and its
rounds, and computes its rates from their definition at each use. What a call knows of is what had ended when
it started, so each call remembers the number of ends.

`adaptive="latency"` is excluded: its rule is a formula over latencies, and implementing that formula a second
time would check nothing.
"""

import itertools
import math
from typing import Literal

import attrs

from trioeval.kernel import LaneSpec
from trioeval.rates import Allowance, RateHint
from trioeval.testing.model_parts import PredictedLane
from trioeval.testing.scenario import AttemptScript

_RECOVER_AFTER = 4  # refusals in a row after which a lane recovers, hinted or not
_BRIEF = 0.01  # seconds of a named wait below which the lane does not recover from it
_NO_CHANCE = 0.01  # share of refusals by chance that is forgotten
_A_TRY = 60.0  # seconds that a call may take until it fails
_TELLING = 2  # refusals of one call that are evidence of a rate; later ones may be its own
_SOON = 4  # calls served after a wait, before which a refusal is evidence of a rate
_ENOUGH = 4  # calls served that are enough for a measurement
_FASTER = 1.1
_NO_PACE_BELOW = 0.001
_LITTLE, _PLENTY = 0.1, 0.2  # shares of an allowance


@attrs.define(eq=False, repr=False)
class ModelPace:
    """A reported or measured rate; two calls may start together. It counts only starts since its creation."""

    period: float
    starts: list[float] = attrs.field(factory=list)
    costs: list[float] = attrs.field(factory=list)
    """Seconds that each start cost, at the period of its time."""

    def take(self, now: float) -> None:
        """Count a start."""
        self.starts.append(now)
        self.costs.append(self.period)

    def opens_at(self) -> float:
        """The first instant at which it allows a start."""
        return _due_at(self.starts, self.costs) - self.period if self.starts else -math.inf


@attrs.define(eq=False, repr=False)
class ModelLimit:
    """The limit of calls in flight on a lane with `adaptive="aimd"`."""

    max_concurrency: int
    doubling: bool
    """True if a clean round doubles the limit."""
    limit: int = attrs.field(init=False)
    ceiling: int | None = None
    """The limit just below the one that was refused last, while that is remembered."""
    cut_at: int = 0
    """Number of calls of the lane that had ended at the last cut."""
    cuts: int = 0
    trials: int = 0
    round: list[Literal["served", "failed"]] = attrs.field(factory=list)
    """Completions of the present round."""
    busiest: int = 0
    """The most calls in flight in the present round."""
    refusals: int = 0
    """Refusals in the present round."""
    until_refusals: int = 0
    """Completions between the refusal that began the present round and the one before, at most one round."""
    quiet: int = 0
    """Completions since the last refusal."""
    chance: float = 0.0
    """Share of refusals that come whatever the limit is."""
    examined: tuple[int, float, int | None] | None = None
    """Limit, share of refusals and ceiling before the cut whose effect is not known yet."""
    after_cut: list[Literal["refused", "ended"]] = attrs.field(factory=list)
    """Calls at a limit at which the examined cut should have ended the refusals."""
    clean_rounds: int = 0
    """Clean rounds at the ceiling since the last trial."""
    patience: int = 3
    """Clean rounds before a trial."""
    by_wave: bool = False
    """True if the ceiling was learned from a wave of refusals."""
    wave: tuple[int, int] | None = None
    """Limit and ceiling after a cut by a wave if nothing else is in flight, until the next start."""
    trial_cost: float = 0.0
    """Seconds that the server asked to wait when it refused the last trial."""
    latencies: list[float] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.limit = 1 if self.doubling else self.max_concurrency

    @property
    def in_trial(self) -> bool:
        """True if one more call is tried than was remembered as too many."""
        return self.ceiling is not None and self.limit > self.ceiling

    def started(self, in_flight: int) -> None:
        """Count a start; `in_flight` includes it."""
        self.wave = None
        self.busiest = max(self.busiest, in_flight)

    def served(self, latency: float, *, again: bool) -> None:
        """Count a served call; one that was refused before says nothing about the limit."""
        self.latencies.append(latency)
        if not again:
            self._complete("served")

    def failed(self) -> None:
        """Count a failure for a reason other than too many calls."""
        self._complete("failed")

    def congested(self, mark: int, ends: int, beside: int, wait: float, *, again: bool) -> None:
        """Count a refusal of a call that started after `mark` ends, at the end with the number `ends`.

        Args:
            mark: Ends before its start.
            ends: Ends, including this one.
            beside: Calls that are left in flight.
            wait: Seconds that the server asks for; 0 if it names no wait.
            again: Whether it was refused before.
        """
        if mark < self.cut_at:  # it knows nothing of the last cut
            if self.wave is not None and not again:
                self._keep(beside, *self.wave)
            return
        if again and not (self.in_trial and wait):
            return
        self.doubling = False
        if self.refusals == 0 and self.chance == 0:
            self._begin_round()
            self.until_refusals = min(self.quiet, self.limit)
        self.quiet = 0
        self.refusals += 1
        if self._is_low_enough:
            self.after_cut.append("refused")
        few = self._are_few
        if self._cut_was_useless:
            self._undo()
        elif self.in_trial and not (self.chance and few):
            self.limit, self.patience = max(1, self.limit - 1), min(8 * self.patience, 24)
            self.trial_cost, self.wave = wait, None
            self._cut(ends)
        elif not few or (wait and beside and self.ceiling is None):
            is_wave = bool(wait) or not self.round
            self._examine(is_wave=is_wave)
            usual = max(1, int(0.7 * self.limit)), max(1, self.limit - 1)
            self.by_wave, self.wave = is_wave and bool(wait or beside), None
            self.limit, self.ceiling = usual
            self.patience, self.trial_cost = 3, 0.0
            self._cut(ends)
            if is_wave:
                self.wave = usual
                self._keep(beside, *usual)

    @property
    def _are_few(self) -> bool:
        """True if the refusals of the round are a single one, or as many as chance explains."""
        expected = self.chance * (len(self.round) + self.refusals)
        return self.refusals <= 1 + expected + 3 * math.sqrt(expected)

    @property
    def _is_low_enough(self) -> bool:
        """True if the server serves this limit, provided that the examined cut was right."""
        if self.examined is None:
            return False
        limit, share, _ = self.examined
        return self.limit <= (1 - share) * limit

    @property
    def _cut_was_useless(self) -> bool:
        if self.examined is None:
            return False
        refused, calls = self.after_cut.count("refused"), len(self.after_cut)
        return refused > 1 and 0.1 * self.examined[1] * calls <= refused <= calls / 2

    def _examine(self, *, is_wave: bool) -> None:
        calls = self.until_refusals + len(self.round) + self.refusals
        share = 1.0 if is_wave else self.refusals / calls
        served = 0.0 if self.examined is None else (1 - self.examined[1]) * self.examined[0]
        if (1 - share) * self.limit > served:
            self.examined, self.after_cut = (self.limit, share, self.ceiling), []
        self.chance = 0.0

    def _undo(self) -> None:
        """Return to the limit before the examined cut."""
        if self.examined is None:
            return
        limit, share, self.ceiling = self.examined
        now = self.after_cut.count("refused") / len(self.after_cut)
        self.limit, self.chance = min(limit, self.max_concurrency), min(0.5, max(share, now))
        self.doubling, self.by_wave, self.wave = True, False, None
        self.patience, self.trial_cost, self.clean_rounds = 3, 0.0, 0
        self.examined, self.after_cut = None, []
        self._begin_round()

    def _keep(self, beside: int, limit: int, ceiling: int) -> None:
        """Cut to the number of calls in flight beside a refused call, which the server accepts."""
        self.ceiling = min(ceiling, beside) if beside else ceiling
        self.limit = self.ceiling if beside else limit

    def _cut(self, ends: int) -> None:
        self.cut_at, self.clean_rounds = ends, 0
        self.cuts += 1
        self._begin_round()

    def _begin_round(self) -> None:
        self.round, self.busiest, self.refusals, self.until_refusals = [], 0, 0, 0

    def _complete(self, how: Literal["served", "failed"]) -> None:
        self.round.append(how)
        self.quiet += 1
        if self._is_low_enough:
            self.after_cut.append("ended")
        if len(self.round) < max(4, self.limit):
            return
        clean = not (self.refusals and not self.chance) and "failed" not in self.round
        if self.chance:
            share = self.refusals / (len(self.round) + self.refusals)
            self.chance += (share - self.chance) * 0.2
            self.chance = 0.0 if self.chance < _NO_CHANCE else self.chance
        if clean and self.busiest >= 0.8 * self.limit:
            self._grow()
        self._begin_round()

    def _grow(self) -> None:
        more = self.limit + 1
        if self.doubling and (self.ceiling is None or self.limit < self.ceiling):
            more = 2 * self.limit if self.ceiling is None else min(2 * self.limit, self.ceiling)
        elif self.in_trial:  # it was served: the memory is dropped
            self.ceiling, self.patience, self.trial_cost = None, 3, 0.0
            self.doubling = self.by_wave
        elif self.limit == self.ceiling:
            self.clean_rounds += 1
            if self.clean_rounds < self.patience or not self._has_paid:
                return
            self.clean_rounds = 0
            self.trials += 1
        self.limit = min(more, self.max_concurrency)

    @property
    def _has_paid(self) -> bool:
        """Return whether a refused trial would be at most a sixteenth of the time since the last one."""
        if not self.trial_cost or not self.latencies:
            return True
        average = self.latencies[0]
        for latency in self.latencies[1:]:
            average += 0.2 * (latency - average)
        return self.clean_rounds * average >= 16 * (self.trial_cost + average)


@attrs.define(eq=False, repr=False)
class ModelLane:
    """A lane of the reference scheduler."""

    spec: LaneSpec
    limit: ModelLimit | None = attrs.field(init=False)
    """None if it does not adapt."""
    in_flight: int = 0
    starts: list[float] = attrs.field(factory=list)
    used: list[int] = attrs.field(factory=list)
    """Tokens of each start: what was reserved, and after the end what was used."""
    ends: int = 0
    """Calls that have ended; a call remembers this number at its start."""
    served: int = 0
    refused: int = 0
    blocked_until: float = -math.inf
    congestions: int = 0
    """Generations without a success; a generation is the set of calls in flight at a refusal."""
    generation_at: int = 0
    """Number of calls that had ended when the present generation began; likewise for all `…_at` numbers."""
    in_flight_at_refusal: int = 0
    """Calls in flight that belong to the present generation or an earlier one."""
    allowance: int | None = None
    """Calls that may be in flight while it recovers."""
    recovery_at: int = 0
    recoveries: int = 0
    wave_at: int = 0
    wave_confirmed: bool = False
    """True if the present wave of refusals was counted as evidence of the server's rate."""
    served_since_wait: int = _SOON
    hinted: ModelPace | None = None
    """The server's own rate, while little is left."""
    measured: ModelPace | None = None
    """A rate a little above the measured one."""
    measured_since: float | None = None
    measured_served: int = 0
    faster_after: int = 0
    """Calls served since then after which the measured rate grows."""
    fatal: int = 0
    """Fatal refusals since the last success."""
    troubles: list[tuple[float, float]] = attrs.field(factory=list)
    """Failures since the last success: the instant, and the seconds in which no attempt was due."""
    closed_at: float = math.inf
    """The instant at which its breaker opened."""
    rates: set[str] = attrs.field(factory=set)
    looked_at: float = -math.inf
    """The instant of the next scheduled check."""

    def __attrs_post_init__(self) -> None:
        adapts = self.spec.adaptive == "aimd"
        self.limit = ModelLimit(self.spec.max_concurrency, self.spec.slow_start) if adapts else None

    def opens_at(self) -> float:
        """The first instant at which its rates allow a start; -inf if they are open."""
        opens_at, spec = self.blocked_until, self.spec
        if not self.starts:
            return opens_at
        for pace in (self.hinted, self.measured):
            opens_at = max(opens_at, pace.opens_at() if pace is not None else -math.inf)
        if spec.rpm is not None:
            period = 60 / spec.rpm
            due = _due_at(self.starts, [period] * len(self.starts))
            opens_at = max(opens_at, due - (spec.burst - 1) * period)
        if spec.tpm is not None:
            period = 60 / spec.tpm
            due = _due_at(self.starts, [period * tokens for tokens in self.used])
            opens_at = max(opens_at, due - spec.token_burst * period)
        return max(opens_at, self.starts[-1] + spec.min_gap)

    @property
    def has_slot(self) -> bool:
        """True if one more call may be in flight."""
        most = self._full if self.allowance is None else min(self.allowance, self._full)
        return self.in_flight < most and not self.closed

    @property
    def closed(self) -> bool:
        """True if its breaker is open."""
        return self.closed_at < math.inf

    def predicted(self) -> PredictedLane:
        """Return its final state."""
        limit = self.limit
        return PredictedLane(
            self.spec.name,
            self._full,
            0 if limit is None else limit.cuts,
            0 if limit is None else limit.trials,
            self.recoveries,
            frozenset(self.rates),
            self.closed_at,
        )

    @property
    def _full(self) -> int:
        return self.spec.max_concurrency if self.limit is None else self.limit.limit

    @property
    def _learns(self) -> bool:
        """True if a success would change its state."""
        limit = self.limit
        if limit is not None and (
            limit.limit < limit.max_concurrency or limit.refusals or limit.chance or limit.in_trial
        ):
            return True
        unsettled = self.allowance is not None or self.measured_since is not None
        return unsettled or bool(self.fatal or self.troubles)

    def start(self, now: float, tokens: int) -> None:
        """Count a start."""
        self.in_flight += 1
        self.starts.append(now)
        self.used.append(tokens)
        for pace in (self.hinted, self.measured):
            if pace is not None:
                pace.take(now)
        if self.limit is not None:
            self.limit.started(self.in_flight)

    def end(self) -> None:
        """Count an end; its meaning is reported next."""
        self.in_flight -= 1
        self.ends += 1

    def leave_generation(self, mark: int) -> None:
        """Count the end of a call that started after `mark` ends and was not served."""
        if self.in_flight_at_refusal and mark < self.generation_at:
            self.in_flight_at_refusal -= 1

    def succeeded(self, latency: float, mark: int, *, again: bool) -> None:
        """Count a served call that started after `mark` ends."""
        self.served += 1
        self.served_since_wait += 1
        if self.limit is not None and self._learns:
            self.limit.served(latency, again=again)
        self.congestions = self.in_flight_at_refusal = self.fatal = 0
        self.troubles = []
        self._measure_success()
        if self.allowance is not None and mark >= self.recovery_at:
            self.allowance *= 2
            if self.allowance >= self._full:
                self.allowance = None

    def congested(
        self, now: float, attempt: AttemptScript, mark: int, refusals: int, spread: float
    ) -> float:
        """Count a refusal because of too many calls; return the seconds that the call rests.

        If all calls in flight at a refusal end without a success, the server serves none. If the wait that
        it named did not help, or this has happened several times without a named wait, the lane is blocked
        for longer each time.
        """
        wait = attempt.retry_after or 0.0
        self.refused += 1
        if self.in_flight_at_refusal:
            self.leave_generation(mark)
        else:
            self.congestions += 1
            self.generation_at, self.in_flight_at_refusal = self.ends, self.in_flight
        begins_wave = mark >= self.wave_at
        if begins_wave:
            self.wave_at, self.wave_confirmed = self.ends, False
        if wait and refusals <= _TELLING:
            self._measure_refusal(now, wait, begins_wave=begins_wave)
        if self.limit is not None:
            again = refusals > 1
            long = 0.0 if wait < _BRIEF else wait
            self.limit.congested(mark, self.ends, self.in_flight, long, again=again)
        by_chance = self.limit is not None and self.limit.chance > 0
        doublings = max(1 if by_chance else refusals, self.congestions) - 1
        rest = self._rest(self.spec.refusal_delay, wait or None, doublings, spread)
        self._keep_wait(now, wait)
        if wait >= _BRIEF or self.congestions >= _RECOVER_AFTER:
            self._recover(now, named=wait >= _BRIEF)
        self._trouble(now, rest)
        return rest

    def failed(self, now: float, attempt: AttemptScript, mishaps: int, spread: float) -> float:
        """Count a transient failure of a call that has failed before; return the seconds that it rests."""
        failing_for = now - self.troubles[0][0] if self.troubles else 0.0
        rest = self._rest(self.spec.retry_delay, attempt.retry_after, mishaps, spread, failing_for)
        if self.limit is not None:
            self.limit.failed()
        if attempt.retry_after:
            self._keep_wait(now, attempt.retry_after)
            if attempt.retry_after >= _BRIEF:
                self._recover(now, named=True)
        self._trouble(now, rest)
        return rest

    def cancelled_in_flight(self, now: float) -> None:
        """Count a call that was cancelled in flight."""
        if self.allowance is not None:
            self._trouble(now, 0.0)

    def refused_for_good(self, now: float) -> None:
        """Count a permanent refusal."""
        if self.limit is not None:
            self.limit.failed()
        self.fatal += 1
        if self.fatal >= self.spec.breaker_threshold:
            self._close(now)

    def exhausted(self, now: float) -> None:
        """Close the lane: the account is exhausted."""
        self._close(now)

    def _close(self, now: float) -> None:
        self.closed_at = min(self.closed_at, now)

    def hear(self, now: float, hint: RateHint) -> None:
        """Apply the remaining amounts of a successful reply."""
        self.follow(hint)
        for left, wait in ((hint.requests, self._until_request), (hint.tokens, _until_tokens)):
            if left is not None and _is_possible(left) and 0 < wait(left) <= self.spec.patience:
                self.blocked_until = max(self.blocked_until, now + wait(left))

    def follow(self, hint: RateHint) -> None:
        """Apply the remaining requests of a reply: if few are left, use the server's rate."""
        left = hint.requests
        if left is None or not _is_possible(left) or left.limit is None or left.remaining is None:
            return
        period, share = left.window / left.limit, left.remaining / left.limit
        own = 0.0 if self.spec.rpm is None else 60 / self.spec.rpm
        if share > _PLENTY:
            self.hinted = None
        elif share < _LITTLE and period > own and not self._keeps(period):
            self.hinted = ModelPace(period)
            self.rates.add("declared")

    def _keeps(self, period: float) -> bool:
        return self.hinted is not None and self.hinted.period == period

    def _until_request(self, left: Allowance) -> float:
        if left.remaining != 0 or left.reset_after is None:
            return 0.0
        if self.spec.rpm is not None and left.limit is not None:
            return min(left.reset_after, left.window / left.limit)
        return left.reset_after

    def _keep_wait(self, now: float, wait: float) -> None:
        """Block until a named wait is over; one that is longer than the patience closes the lane."""
        if wait:
            self.blocked_until = max(self.blocked_until, now + wait)
        if wait > self.spec.patience:
            self._close(now)

    def _recover(self, now: float, *, named: bool) -> None:
        """Recover with one probing call, after a rest that grows while it does not help."""
        self.allowance, self.recovery_at = 1, self.ends
        self.recoveries += 1
        longer = self.congestions - (1 if named else _RECOVER_AFTER)
        if longer >= (1 if named else 0):
            rest = self._rest(self.spec.refusal_delay, None, longer, 1.0)
            self.blocked_until = max(self.blocked_until, now + rest)

    def _rest(
        self, first: float, hint: float | None, exponent: int, spread: float, most: float = math.inf
    ) -> float:
        if hint is not None:
            return hint + spread * min(1.0, hint / 5)
        cap = max(first, self.spec.max_retry_delay)
        return spread * min(cap, first * 2.0**exponent, max(first, most))

    def _trouble(self, now: float, rest: float) -> None:
        """Count failures: time without due attempts is excluded, so at most the rest plus a minute counts."""
        self.troubles.append((now, max(rest, self.blocked_until - now)))
        seconds = sum(
            min(later - before, rested + _A_TRY)
            for (before, rested), (later, _) in itertools.pairwise(self.troubles)
        )
        if seconds >= self.spec.patience:
            self._close(now)

    def _measure_success(self) -> None:
        if self.measured_since is None:
            return
        self.measured_served += 1
        pace = self.measured
        if pace is not None and self.measured_served >= self.faster_after:
            pace.period /= _FASTER
            if pace.period <= _NO_PACE_BELOW:
                self.measured = self.measured_since = None
            self._plan_faster()

    def _measure_refusal(self, now: float, wait: float, *, begins_wave: bool) -> None:
        """Measure the rate at a refusal of several calls, or of one soon after a wait: the server is full."""
        soon, self.served_since_wait = self.served_since_wait < _SOON, 0
        if self.limit is None or self.wave_confirmed:
            return
        pace = self.measured
        if begins_wave and not soon:  # a single refusal may have any reason
            if pace is not None:
                pace.period = min(pace.period * _FASTER, max(pace.period, wait))
                self._plan_faster()
            return
        self.wave_confirmed = True
        since = self.measured_since
        if since is None:
            self.measured_since, self.measured_served = now, 0
        elif self.measured_served >= _ENOUGH and now > since:
            period = min((now - since) / self.measured_served, wait)
            self.measured = ModelPace(period / _FASTER)
            self.rates.add("measured")
            self.measured_since, self.measured_served = now, 0
        self._plan_faster()

    def _plan_faster(self) -> None:
        if self.measured is not None:
            more = max(2 * _ENOUGH, int(1 / self.measured.period))
            self.faster_after = self.measured_served + more


def _due_at(starts: list[float], costs: list[float]) -> float:
    """Return the instant at which all starts are paid for, at one second per second, without credit."""
    return max(start + sum(costs[first:]) for first, start in enumerate(starts))


def _until_tokens(left: Allowance) -> float:
    if left.remaining is None or left.reset_after is None:
        return 0.0
    if left.remaining == 0:
        return left.reset_after
    if left.limit is None:
        return 0.0
    return min(
        left.reset_after, max(0.0, (0.1 * left.limit - left.remaining) * left.window / left.limit)
    )


def _is_possible(left: Allowance) -> bool:
    """Return whether the values are consistent; if not, they are not a hint."""
    counts, spans = (left.remaining, left.reset_after), (left.limit, left.window)
    possible = all(value is None or 0 <= value < math.inf for value in counts)
    return possible and all(value is None or 0 < value < math.inf for value in spans)

"""RETRY_AFTER, AIMD and PACE, on the arithmetic alone: how a lane reacts to the ends of its calls."""

import math
from collections.abc import Iterator

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import CallError, Fault
from trioeval.rates import (
    AimdLimit,
    Allowance,
    Backoff,
    Breaker,
    BreakerState,
    Limit,
    MeasuredRate,
    Pace,
    RateHint,
    Throttle,
    TokenPace,
)

pytestmark = pytest.mark.slow

PATIENCE = 64.0
BUSY = Backoff(base=0.5, cap=16.0)


@attrs.frozen
class Begin:
    """A call starts as soon as possible, if one more may be in flight."""

    tokens: int


@attrs.frozen
class Succeed:
    """One of the calls in flight (modulo their number) succeeds."""

    place: int
    retried: bool
    hint: RateHint | None


@attrs.frozen
class Refuse:
    """One of the calls in flight is refused, with its number of refusals so far."""

    place: int
    retry_after: float | None
    refusals: int


@attrs.frozen
class Fail:
    place: int
    retry_after: float | None


@attrs.frozen
class GiveUp:
    """One of the calls in flight is cancelled."""

    place: int


@attrs.frozen
class Wait:
    seconds: float


@attrs.frozen
class Retune:
    width: int


Step = Begin | Succeed | Refuse | Fail | GiveUp | Wait | Retune

some = st.sampled_from
places = st.integers(0, 9)
waits = some((None, None, 0.0, 0.5, 2.0, 8.0))
allowances = st.builds(
    Allowance,
    some((None, 20.0, 100.0)),
    some((None, 0.0, 1.0, 15.0, 20.0)),
    some((None, 0.0, 4.0, 60.0, 500.0)),
)
hints = st.builds(RateHint, st.none() | allowances, st.none() | allowances)
steps = st.lists(
    st.one_of(
        st.builds(Begin, st.integers(0, 3)),
        st.builds(Begin, st.just(0)),
        st.builds(Succeed, places, st.booleans(), st.none() | hints),
        st.builds(Refuse, places, waits, some((1, 1, 2, 5))),
        st.builds(Refuse, places, waits, some((1, 1, 2, 5))),
        st.builds(Fail, places, waits),
        st.builds(Wait, st.integers(0, 32).map(lambda n: n / 4)),
        st.builds(GiveUp, places),
        st.builds(Retune, st.integers(1, 8)),
    ),
    max_size=60,
)


def make(
    width: int = 8,
    *,
    adaptive: bool = True,
    rpm: float | None = None,
    tpm: float | None = None,
    measured_rate: MeasuredRate | None = None,
    patience: float = PATIENCE,
) -> Throttle:
    return Throttle(
        limit=AimdLimit(width) if adaptive else Limit(width),
        pace=Pace.per_minute(rpm, burst=2),
        tokens=None if tpm is None else TokenPace.per_minute(tpm),
        breaker=Breaker(patience=patience),
        backoff=Backoff(base=1.0),
        busy_backoff=BUSY,
        measured_rate=measured_rate,
    )


throttles = st.builds(
    make,
    st.integers(1, 8),
    adaptive=st.booleans(),
    rpm=some((None, None, 60.0)),
    tpm=some((None, None, 240.0)),
    measured_rate=st.builds(MeasuredRate) | st.none(),
    patience=some((PATIENCE, PATIENCE, math.inf)),
)


@attrs.define
class Lane:
    """A lane that applies steps to a throttle."""

    throttle: Throttle
    now: float = 0.0
    marks: list[int] = attrs.field(factory=list)
    """Calls in flight."""

    def play(self, steps: list[Step]) -> Iterator[Step]:
        """Yield each step after it was applied."""
        for step in steps:
            self.make(step)
            yield step

    def make(self, step: Step) -> None:
        throttle = self.throttle
        match step:
            case Wait(seconds):
                self.now += seconds
            case Retune(width):
                throttle.retune(width)
            case Begin(tokens):
                self.begin(tokens)
            case Succeed(place, retried, hint) if self.marks:
                if hint is not None:
                    throttle.apply_hint(self.now, hint)
                self.succeed(place % len(self.marks), retried=retried)
            case Refuse(place, retry_after, refusals) if self.marks:
                self.refuse(retry_after, place % len(self.marks), refusals=refusals)
            case Fail(place, retry_after) if self.marks:
                fail(throttle, self.now, 0, retry_after)
                self.end(place % len(self.marks))
            case GiveUp(place) if self.marks:
                throttle.cancelled_in_flight(self.now)
                self.end(place % len(self.marks))
            case _:
                pass

    def begin(self, tokens: int = 0) -> None:
        throttle = self.throttle
        if len(self.marks) < throttle.allowed:
            self.now = throttle.open_at(self.now)
            throttle.take(self.now, tokens)
            self.marks.append(throttle.mark)
            throttle.limit.started(len(self.marks))

    def succeed(self, place: int = 0, *, retried: bool = False) -> None:
        self.throttle.succeeded(1.0, self.marks[place], retried=retried)
        self.end(place)

    def refuse(self, retry_after: float | None, place: int = 0, *, refusals: int = 1) -> float:
        error = CallError(Fault.RATE_LIMITED, "busy", retry_after=retry_after)
        again_at = self.throttle.failed(
            error,
            self.now,
            mark=self.marks[place],
            in_flight=len(self.marks),
            mishaps=0,
            refusals=refusals,
            spread=0.5,
        )
        self.end(place)
        return math.inf if again_at is None else again_at

    def end(self, place: int) -> None:
        """End a call; a calm throttle is not notified."""
        mark = self.marks.pop(place)
        if not self.throttle.calm:
            self.throttle.ended(mark)


def fail(
    throttle: Throttle, now: float, attempt: int, retry_after: float | None, spread: float = 0.5
) -> float | None:
    """Fail a call transiently at attempt number `attempt`, from 0."""
    error = CallError(Fault.TRANSIENT, "why", retry_after=retry_after)
    return throttle.failed(
        error, now, mark=0, in_flight=1, mishaps=attempt + 1, refusals=0, spread=spread
    )


def refuse_for_good(throttle: Throttle, fault: Fault, why: str) -> None:
    """Refuse a call permanently."""
    error = CallError(fault, why)
    again_at = throttle.failed(error, 0.0, mark=0, in_flight=1, mishaps=0, refusals=0, spread=0.5)
    assert again_at is None


def is_open(throttle: Throttle) -> bool:
    """Return the current state of the breaker."""
    return throttle.state is BreakerState.OPEN


@given(throttles, steps)
def test_a_block_never_ends_earlier_than_requested(throttle: Throttle, script: list[Step]) -> None:
    """RETRY_AFTER: `blocked_until` never moves back, and covers each named wait."""
    lane, blocked = Lane(throttle), -math.inf
    for step in script:
        asked = isinstance(step, Refuse | Fail) and bool(lane.marks) and step.retry_after
        lane.make(step)
        assert throttle.blocked_until >= blocked
        blocked = throttle.blocked_until
        if asked:
            assert blocked >= lane.now + asked
        assert throttle.open_at(lane.now) >= max(lane.now, blocked)


@given(st.integers(1, 32), st.integers(1, 32))
def test_the_longest_of_several_waits_applies(first: int, second: int) -> None:
    """RETRY_AFTER: shorter waits of later replies do not shorten it."""
    lane = Lane(make(2))
    lane.begin()
    lane.begin()
    lane.refuse(first)
    lane.now = 0.5
    lane.refuse(second)
    assert lane.throttle.blocked_until == max(first, 0.5 + second)


@given(throttles, steps)
def test_the_allowed_calls_are_within_the_limit_and_the_max_concurrency(
    throttle: Throttle, script: list[Step]
) -> None:
    """WIDTH: 1 ≤ allowed ≤ limit ≤ max concurrency on an open lane, 0 on a closed one."""
    lane = Lane(throttle)
    for _ in lane.play(script):
        allowed, limit = throttle.limits
        assert limit <= throttle.limit.max_concurrency
        if throttle.state is BreakerState.OPEN:
            assert allowed == 0
        else:
            assert 1 <= allowed <= limit
        assert (throttle.state is BreakerState.CLOSED) <= (allowed == limit)


@given(throttles, steps)
def test_a_free_throttle_never_delays(throttle: Throttle, script: list[Step]) -> None:
    """A free throttle allows every instant, so a lane may skip the check."""
    lane = Lane(throttle)
    for _ in lane.play(script):
        if throttle.free:
            before = (throttle.pace, throttle.blocked_until)
            assert throttle.take(lane.now, 5) is None
            assert throttle.open_at(lane.now) == lane.now
            assert before[1] == throttle.blocked_until


@given(throttles, steps)
def test_a_calm_throttle_is_not_changed_by_success(throttle: Throttle, script: list[Step]) -> None:
    """A lane therefore need not report successes to it."""
    lane = Lane(throttle)
    for _ in lane.play(script):
        if throttle.calm:
            before = (throttle.limits, throttle.state, throttle.blocked_until, throttle.congestions)
            throttle.succeeded(1.0, throttle.mark, retried=False)
            after = (throttle.limits, throttle.state, throttle.blocked_until, throttle.congestions)
            assert after[:3] == before[:3]
            assert throttle.calm


@given(throttles, steps)
def test_a_throttle_cuts_at_most_once_for_calls_of_one_epoch(
    throttle: Throttle, script: list[Step]
) -> None:
    """AIMD: after a cut only calls that started after it can cut again, each by its first refusal.

    A refusal that names a wait also ends a trial if it is not the call's first.
    """
    lane = Lane(throttle)
    began: dict[int, int] = {}  # epoch by mark
    for step in script:
        epoch = throttle.limit.epoch
        marks = list(lane.marks)
        lane.make(step)
        for mark in lane.marks:
            began.setdefault(mark, throttle.limit.epoch)
        if throttle.limit.epoch > epoch:
            assert isinstance(step, Refuse)
            assert step.refusals == 1 or step.retry_after
            assert throttle.limit.epoch == epoch + 1
            assert began[marks[step.place % len(marks)]] == epoch


@given(st.integers(1, 8), st.sampled_from((0.5, 2.0, 64.0)))
def test_after_a_block_one_call_probes_and_each_success_doubles(width: int, wait: float) -> None:
    """After a block at most one call is in flight until a success, then 2, 4, … up to the limit."""
    lane = Lane(make(width, adaptive=False))
    throttle = lane.throttle
    lane.begin()
    again_at = lane.refuse(wait)
    assert wait <= again_at <= wait + 1
    assert (throttle.blocked_until, throttle.open_at(0.0)) == (wait, wait)
    seen = [throttle.allowed]
    for _ in range(8):
        if throttle.state is BreakerState.HALF_OPEN:
            throttle.succeeded(1.0, throttle.mark, retried=False)
            seen.append(throttle.allowed)
    assert seen == [min(2**n, width) for n in range(len(seen))]
    assert seen[-1] == width


@given(st.integers(2, 8), st.integers(1, 8))
def test_successes_of_calls_from_before_the_block_have_no_effect(width: int, replies: int) -> None:
    """Such a success does not end the recovery."""
    lane = Lane(make(width, adaptive=False))
    for _ in range(2):
        lane.begin()
    before = lane.marks[1]
    lane.refuse(2.0)
    for _ in range(replies):
        lane.throttle.succeeded(1.0, before, retried=False)
        assert lane.throttle.allowed == 1
    lane.throttle.succeeded(1.0, lane.throttle.mark, retried=False)
    assert lane.throttle.allowed == 2


@given(throttles, st.sampled_from((None, 0.0)))
def test_an_isolated_refusal_without_a_wait_blocks_no_other_call(
    throttle: Throttle, retry_after: float | None
) -> None:
    """It costs its own call a short back-off; "after 0 s" counts as no wait."""
    lane, limits = Lane(throttle), throttle.limits
    lane.begin()
    again_at = lane.refuse(retry_after)
    assert again_at == lane.now + 0.25  # half of the first bound
    assert (throttle.blocked_until, throttle.limits) == (-math.inf, limits)
    assert throttle.state is BreakerState.CLOSED


@given(st.integers(1, 8), st.integers(1, 6))
def test_a_generation_without_success_indicates_an_outage(width: int, generations: int) -> None:
    """It counts once, whatever its size; the fourth in a row starts a probe."""
    lane = Lane(make(width, adaptive=False, patience=math.inf))
    throttle = lane.throttle
    for barren in range(1, generations + 1):
        for _ in range(width):
            lane.begin()
        while lane.marks:
            lane.refuse(None)
            assert throttle.congestions == barren
            assert (throttle.state is BreakerState.HALF_OPEN) == (barren >= 4)


@given(st.integers(1, 9))
def test_one_success_clears_an_outage(generations: int) -> None:
    """The back-off of a refusal after a success is that of the first one."""
    lane = Lane(make(adaptive=False, patience=math.inf))
    for _ in range(generations):
        lane.begin()
        lane.refuse(None)
    lane.begin()
    lane.succeed()
    assert lane.throttle.congestions == 0
    blocked = lane.throttle.blocked_until
    lane.begin()
    assert lane.refuse(None) == lane.now + 0.25
    assert (lane.throttle.congestions, lane.throttle.blocked_until) == (1, blocked)


@given(width=st.integers(2, 8), waves=st.integers(1, 60), late=st.booleans())
def test_a_call_refused_among_successes_indicates_no_outage(
    width: int, waves: int, *, late: bool
) -> None:
    """Its refusals never make the lane probe, block or back off longer."""
    lane = Lane(make(width, adaptive=False))
    for _ in range(waves):
        for _ in range(width):
            lane.begin()
        if late:
            lane.succeed()
        assert lane.refuse(None) == lane.now + 0.25
        while lane.marks:
            lane.succeed()
        lane.now += 1
    assert lane.throttle.congestions <= 1
    assert lane.throttle.blocked_until == -math.inf
    assert lane.throttle.state is BreakerState.CLOSED


def test_a_generation_ends_with_its_last_call() -> None:
    """Later calls do not belong to it."""
    lane = Lane(make(4, adaptive=False))
    seen = []
    for _ in range(3):
        lane.begin()
    for place in (0, 2, 2, 0):  # an older call, two that started after it, an older call
        lane.refuse(None, place)
        seen.append(lane.throttle.congestions)
        lane.begin()
    lane.make(Fail(0, None))  # the last older call
    lane.refuse(None)
    assert [*seen, lane.throttle.congestions] == [1, 1, 1, 1, 2]


def test_a_success_ends_the_generation_too() -> None:
    """A later refusal starts the next one, even of an older call."""
    lane = Lane(make(3, adaptive=False))
    for _ in range(3):
        lane.begin()
    seen = []
    for step in (Refuse(0, None, 1), Succeed(0, retried=False, hint=None), Refuse(0, None, 1)):
        lane.make(step)
        seen.append(lane.throttle.congestions)
    assert seen == [1, 0, 1]


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_reset_drops_the_generation(*, adaptive: bool) -> None:
    """Its unseen ends must not hide a later outage."""
    lane = Lane(make(3, adaptive=adaptive))
    for _ in range(3):
        lane.begin()
    lane.refuse(None)
    lane.throttle.reset()
    for _ in range(2):
        lane.end(0)
    for barren in range(1, 5):
        lane.begin()
        lane.refuse(None)
        assert lane.throttle.congestions == barren


def worst_rest(refusals: int) -> float:
    """Return the longest back-off after a number of refusals."""
    return min(BUSY.cap, BUSY.base * 2.0 ** (refusals - 1))


@given(st.integers(2, 8), st.integers(2, 12), waits)
def test_a_repeatedly_refused_call_cuts_once_and_backs_off_longer_each_time(
    width: int, times: int, retry_after: float | None
) -> None:
    """This holds for a call that is always refused."""
    lane, cuts = Lane(make(width, patience=math.inf)), []
    for _ in range(2):  # the first starts a round, and is not a signal yet
        lane.begin()
    lane.refuse(None)
    rests = [lane.refuse(retry_after) - lane.now]
    for refusals in range(2, times + 1):
        lane.begin()
        lane.succeed()
        lane.begin()
        rests.append(lane.refuse(retry_after, refusals=refusals) - lane.now)
        cuts.append(lane.throttle.limit.epoch)
    assert set(cuts) == {1}
    if not retry_after:
        assert rests == [worst_rest(n) / 2 for n in range(1, times + 1)]


def test_first_refusals_of_other_calls_cut_again() -> None:
    """First refusals of other calls cut the limit again."""
    lane = Lane(make(patience=math.inf))
    for _ in range(8):
        lane.begin()
        lane.succeed()
        lane.begin()
        lane.refuse(None)
    assert lane.throttle.limit.epoch > 1


def test_an_outage_is_probed_less_often_over_time() -> None:
    """Back-offs of bare refusals are 0.5, 1, 2, … s; from the fourth generation on, for the whole lane."""
    lane = Lane(make(patience=math.inf))
    bounds, blocks, states = [], [], []
    for _ in range(9):
        lane.begin()
        again_at = lane.refuse(None)
        bounds.append(2 * (again_at - lane.now))
        blocks.append(max(0.0, lane.throttle.blocked_until - lane.now))
        states.append(lane.throttle.state is BreakerState.HALF_OPEN)
    assert bounds == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 16.0, 16.0, 16.0]
    assert blocks == [0.0] * 3 + [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]
    assert states == [False] * 3 + [True] * 6
    lane.throttle.succeeded(1.0, lane.throttle.mark, retried=False)
    assert lane.throttle.congestions == 0


def test_a_named_wait_without_effect_is_doubled() -> None:
    """The first named wait is observed unchanged; each later one without a success grows."""
    lane = Lane(make(patience=math.inf))
    blocks = []
    for _ in range(6):
        lane.begin()
        lane.refuse(0.5)
        blocks.append(lane.throttle.blocked_until - lane.now)
    assert blocks == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]


@given(throttles, st.integers(0, 9), some((None, 0.0)))
def test_a_transient_failure_without_a_wait_delays_only_its_call(
    throttle: Throttle, attempt: int, retry_after: float | None
) -> None:
    """It blocks no other call and cuts nothing; its delay is bounded by the seconds of failures."""
    limits = throttle.limits
    for now in (4.0, 6.0, 132.0):
        again_at = fail(throttle, now, attempt, retry_after)
        bound = min(60.0, 2.0**attempt, max(1.0, now - 4.0))
        if throttle.state is not BreakerState.OPEN:
            assert again_at == now + (0.0 if retry_after == 0.0 else 0.5 * bound)
    assert (throttle.blocked_until, throttle.limits) == (-math.inf, limits)
    assert not throttle.calm


@given(throttles, st.integers(0, 9), st.sampled_from((0.5, 2.0, 64.0)))
def test_a_wait_of_a_transient_failure_blocks_the_lane(
    throttle: Throttle, attempt: int, wait: float
) -> None:
    """RETRY_AFTER: nothing starts before its end, then one call probes."""
    limit, epoch = throttle.limit.limit, throttle.limit.epoch
    again_at = fail(throttle, 4.0, attempt, wait)
    assert again_at == 4.0 + wait + 0.5 * min(1.0, wait / 5)
    assert (throttle.blocked_until, throttle.open_at(4.0)) == (4.0 + wait, 4.0 + wait)
    assert (throttle.limits, throttle.limit.epoch) == ((1, limit), epoch)


@given(throttles, st.integers(0, 9))
def test_a_transient_failure_with_a_wait_beyond_the_patience_closes_the_lane(
    throttle: Throttle, attempt: int
) -> None:
    """A wait equal to the patience does not close it."""
    fail(throttle, 4.0, attempt, PATIENCE, 0.0)
    assert not is_open(throttle)
    fail(throttle, 4.0, attempt, PATIENCE + 0.5, 0.0)
    assert is_open(throttle) == (throttle.breaker.patience == PATIENCE)


def test_an_unanswered_call_counts_as_failure_only_during_a_recovery() -> None:
    """A cancelled probe counts as a failure; a slow call outside a recovery does not."""
    lane = Lane(make())
    for _ in range(9):
        lane.begin()
        lane.now += PATIENCE
        lane.make(GiveUp(0))
        assert lane.throttle.calm
    lane.begin()
    lane.refuse(8.0)
    opens = []
    for _ in range(2):
        lane.begin()
        lane.now += 32
        lane.make(GiveUp(0))
        opens.append(is_open(lane.throttle))
    assert opens == [False, True]


def spent(reset: float | None, *, limit: float | None = None, remaining: float = 0.0) -> Allowance:
    return Allowance(limit, remaining, reset)


@given(st.integers(1, 64), st.integers(1, 64))
def test_an_exhausted_allowance_blocks_until_its_own_reset(requests: int, tokens: int) -> None:
    """This holds for an allowance of requests or of tokens."""
    plenty = Allowance(100.0, 90.0, 60.0)
    for hint, until in (
        (RateHint(spent(requests), plenty), requests),
        (RateHint(plenty, spent(tokens)), tokens),
        (RateHint(spent(requests), spent(tokens)), max(requests, tokens)),
    ):
        throttle = make()
        throttle.apply_hint(1.0, hint)
        assert throttle.blocked_until == 1.0 + until


@pytest.mark.parametrize(
    "hint",
    [
        RateHint(),
        RateHint(Allowance(), Allowance()),
        RateHint(spent(None), spent(None)),
        RateHint(spent(0.0), spent(0.0)),
        RateHint(spent(8.0, remaining=1.0), spent(8.0, remaining=1.0)),
        RateHint(spent(PATIENCE + 0.5), spent(PATIENCE + 0.5)),
        RateHint(None, Allowance(100.0, 10.0, 60.0)),
    ],
    ids=["nothing", "no numbers", "no reset", "reset now", "some left", "too long", "a tenth left"],
)
def test_a_hint_without_a_usable_wait_does_not_block(hint: RateHint) -> None:
    """Such a hint has no reset, or one beyond the patience."""
    throttle = make()
    throttle.apply_hint(1.0, hint)
    assert throttle.blocked_until == -math.inf


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (field, value)
        for field in ("limit", "remaining", "reset_after", "window")
        for value in (0.0, -1.0, math.nan, math.inf)
        if value != 0.0 or field in {"limit", "window"}
    ],
)
def test_an_inconsistent_allowance_is_ignored(field: str, value: float) -> None:
    """The other allowance of the same reply applies."""
    sound = Allowance(100.0, 0.0, 8.0)
    garbage = attrs.evolve(sound, **{field: value})
    throttle = make()
    throttle.apply_hint(1.0, RateHint(garbage, garbage))
    assert (throttle.free, throttle.calm, throttle.blocked_until) == (True, True, -math.inf)
    for hint in (RateHint(garbage, sound), RateHint(sound, garbage)):
        throttle = make()
        throttle.apply_hint(1.0, hint)
        assert throttle.blocked_until == 9.0


def test_a_lane_with_a_declared_rate_waits_only_for_the_next_request() -> None:
    """An exhausted minute of 100 requests returns one after 0.6 s, or at its reset."""
    for allowance, until in (
        (spent(30.0, limit=100.0), 1.6),
        (spent(0.5, limit=100.0), 1.5),
        (spent(30.0), 31.0),
    ):
        throttle = make(rpm=60.0)
        throttle.apply_hint(1.0, RateHint(allowance))
        assert throttle.blocked_until == until


def test_with_few_tokens_left_starts_wait_until_a_tenth_is_available() -> None:
    """With 4 of 100 tokens left, they wait for a tenth, at most until the reset."""
    for allowance, until in (
        (Allowance(100.0, 4.0, 60.0), 4.6),
        (Allowance(100.0, 4.0, 2.0), 3.0),
        (Allowance(100.0, 4.0, None), -math.inf),
    ):
        throttle = make()
        throttle.apply_hint(1.0, RateHint(None, allowance))
        assert throttle.blocked_until == pytest.approx(until)


def starts_of(throttle: Throttle, count: int, now: float) -> list[float]:
    """Return the start times of calls that start as early as allowed."""
    starts = []
    for _ in range(count):
        now = throttle.open_at(now)
        throttle.take(now, 0)
        starts.append(now)
    return starts


def test_a_low_allowance_slows_starts_down_to_the_rate_of_the_server() -> None:
    """Below a tenth of the requests, starts follow that rate until a fifth is left."""
    throttle, little = make(), RateHint(Allowance(60.0, 5.0, 30.0))
    throttle.apply_hint(0.0, little)
    assert starts_of(throttle, 4, 0.0) == [0.0, 0.0, 1.0, 2.0]
    throttle.apply_hint(2.0, little)
    assert starts_of(throttle, 2, 2.0) == [3.0, 4.0]
    throttle.apply_hint(4.0, RateHint(Allowance(60.0, 12.0, 30.0)))
    assert starts_of(throttle, 2, 4.0) == [5.0, 6.0]
    throttle.apply_hint(6.0, RateHint(Allowance(60.0, 12.5, 30.0)))
    assert throttle.free
    assert starts_of(throttle, 3, 6.0) == [6.0, 6.0, 6.0]


def test_the_slower_of_the_declared_and_the_reported_rate_applies() -> None:
    """A reported rate replaces an earlier reported one."""
    throttle = make(rpm=30.0)
    throttle.apply_hint(0.0, RateHint(Allowance(60.0, 1.0, 30.0)))
    assert starts_of(throttle, 4, 0.0) == [0.0, 0.0, 2.0, 4.0]
    throttle.apply_hint(4.0, RateHint(Allowance(15.0, 1.0, 30.0)))
    assert starts_of(throttle, 4, 8.0) == [8.0, 8.0, 12.0, 16.0]


def test_a_refusal_with_a_wait_beyond_the_patience_closes_the_lane() -> None:
    """The patience is the longest time without a success."""
    lane = Lane(make())
    lane.begin()
    lane.refuse(PATIENCE)
    assert not is_open(lane.throttle)
    lane.now = lane.throttle.open_at(lane.now)
    lane.begin()
    lane.refuse(PATIENCE + 0.5)
    assert is_open(lane.throttle)
    assert lane.throttle.allowed == 0


def test_fatal_refusals_and_an_exhausted_account_close_a_lane_and_a_reset_opens_it() -> None:
    """It takes three fatal refusals in a row, or one exhausted account."""
    throttle = make()
    refuse_for_good(throttle, Fault.FATAL, "no such key")
    throttle.succeeded(1.0, 0, retried=False)
    for _ in range(2):
        refuse_for_good(throttle, Fault.FATAL, "no such key")
        assert not is_open(throttle)
    refuse_for_good(throttle, Fault.FATAL, "no such key")
    assert is_open(throttle)
    throttle.reset()
    assert (throttle.state, throttle.allowed, throttle.calm) == (BreakerState.CLOSED, 8, True)
    refuse_for_good(throttle, Fault.QUOTA_EXHAUSTED, "no credit")
    assert throttle.breaker.reason == "no credit"


def test_unused_tokens_are_returned() -> None:
    """PACE: a lane that reserved too many tokens is as free as if it had not."""
    throttle = make(tpm=60.0)
    reservation = throttle.take(0.0, 10)
    assert reservation is not None
    assert throttle.open_at(0.0) == 10.0
    throttle.settle(reservation, 4)
    assert throttle.open_at(0.0) == 4.0
    free = make()
    free.settle(reservation, 4)  # on a lane without a rate of tokens: no effect
    assert free.open_at(0.0) == 0.0


def delivery_of(throttle: Throttle) -> MeasuredRate:
    """Return the measured rate, which must exist."""
    assert throttle.measured_rate is not None
    return throttle.measured_rate


def refuse_wave(lane: Lane, calls: int, wait: float) -> None:
    """Start some calls together, and refuse all of them."""
    for _ in range(calls):
        lane.begin()
    assert len(lane.marks) == calls
    while lane.marks:
        lane.refuse(wait)


def serve(lane: Lane, calls: int) -> None:
    """Serve calls one after the other, at one instant if the pace allows."""
    for _ in range(calls):
        lane.begin()
        lane.succeed()


def test_an_unreported_rate_is_measured_between_waves_of_refusals() -> None:
    """PACE: it is given by the calls served between two waves of several refusals."""
    lane = Lane(make(2, adaptive=False, measured_rate=MeasuredRate()))
    throttle = lane.throttle
    refuse_wave(lane, 2, 1.0)
    assert not throttle.calm
    serve(lane, 11)
    lane.now = 10.0
    refuse_wave(lane, 2, 1.0)
    pace = delivery_of(throttle).pace
    assert pace is not None
    assert pace.period == pytest.approx(10 / 11 / 1.1)
    assert throttle.rated_until(11.0) == 11.0
    assert not throttle.free


def test_the_last_refusal_of_a_wave_does_not_measure_again() -> None:
    """A later refusal of the same wave does not measure again."""
    lane = Lane(make(8, adaptive=False, measured_rate=MeasuredRate()))
    throttle = lane.throttle
    for _ in range(3):
        lane.begin()
    for _ in range(2):
        lane.refuse(1.0)
    assert delivery_of(throttle).measuring
    for _ in range(4):
        throttle.succeeded(1.0, 0, retried=False)
    lane.now = 1.0
    lane.refuse(1.0)
    assert delivery_of(throttle).pace is None


@given(st.integers(1, 8), st.integers(4, 20), st.integers(1, 9), st.sampled_from((0.5, 2.0, 8.0)))
def test_a_single_refusal_with_a_wait_gives_no_rate(
    width: int, served: int, waves: int, wait: float
) -> None:
    """It is not measured, unless it comes soon after another wait."""
    lane = Lane(make(width, adaptive=False, measured_rate=MeasuredRate()))
    measured_rate = delivery_of(lane.throttle)
    for _ in range(waves):
        refuse_wave(lane, 1, wait)
        serve(lane, served)
        lane.now += 4
    assert (measured_rate.pace, measured_rate.measuring) == (None, False)


@given(st.integers(5, 8), st.integers(0, 2))
def test_a_refusal_soon_after_a_wait_starts_a_measurement(width: int, served: int) -> None:
    """This holds for a single refusal."""
    lane = Lane(make(width, adaptive=False, measured_rate=MeasuredRate()))
    refuse_wave(lane, 1, 2.0)
    serve(lane, served)  # the third success would end the recovery
    refuse_wave(lane, 1, 2.0)
    assert delivery_of(lane.throttle).measuring


def test_a_single_refusal_slows_a_measured_rate_by_a_tenth() -> None:
    """The wave of the measurement does not count."""
    lane = Lane(make(2, adaptive=False, measured_rate=MeasuredRate()))
    measured_rate = delivery_of(lane.throttle)
    refuse_wave(lane, 2, 8.0)
    serve(lane, 5)
    lane.now = 18.0
    refuse_wave(lane, 2, 8.0)
    assert measured_rate.pace is not None
    period = measured_rate.pace.period
    serve(lane, 4)
    assert measured_rate.pace.period == period
    refuse_wave(lane, 1, 8.0)
    assert measured_rate.pace.period == pytest.approx(1.1 * period)


def test_a_rate_below_four_calls_a_wave_is_measured_over_several_waves() -> None:
    """PACE: two calls served between any two waves, 10 s apart, give a rate after two of them."""
    lane = Lane(make(2, adaptive=False, measured_rate=MeasuredRate()))
    measured_rate = delivery_of(lane.throttle)
    paces = []
    for wave in range(3):
        lane.now = 10.0 * wave
        refuse_wave(lane, 2, 8.0)
        paces.append(measured_rate.pace)
        serve(lane, 2)
    assert paces[:2] == [None, None]
    assert paces[2] is not None
    assert paces[2].period == pytest.approx(20 / 4 / 1.1)


def test_refusals_without_a_wait_give_no_rate() -> None:
    """They have no effect on the pace."""
    lane = Lane(make(measured_rate=MeasuredRate()))
    for _ in range(3):
        lane.begin()
        lane.refuse(None)
        for _ in range(9):
            lane.throttle.succeeded(1.0, lane.throttle.mark, retried=False)
        lane.now += 4
    assert lane.throttle.measured_rate is not None
    assert not lane.throttle.measured_rate.measuring

"""AIMD, on the arithmetic alone: the limit of a lane under any sequence of events."""

import math
from collections.abc import Sequence

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trioeval.rates import AimdLimit, Limit, Refusal

pytestmark = pytest.mark.slow

widths = st.integers(1, 40)


@attrs.frozen
class Begun:
    """A call starts; the share of the limit in flight then."""

    share: float


@attrs.frozen
class Succeeded:
    retried: bool


@attrs.frozen
class Failed:
    pass


@attrs.frozen
class Refused:
    """A refusal of a call that started a number of cuts ago."""

    cuts_ago: int
    beside: int = 0
    wait: float = 0.0
    repeated: bool = False


@attrs.frozen
class Retuned:
    width: int


@attrs.frozen
class Narrowed:
    """Another process has learned a limit."""

    limit: int


Event = Begun | Succeeded | Failed | Refused | Retuned | Narrowed

begun = st.builds(Begun, st.sampled_from((0.0, 0.5, 0.75, 0.8, 1.0)))
succeeded = st.builds(Succeeded, st.sampled_from((False, False, False, True)))
refused = st.builds(Refused, st.sampled_from((0, 0, 0, 1, 2))) | st.builds(
    Refused,
    st.sampled_from((0, 0, 1, 2)),
    st.integers(0, 12),
    st.sampled_from((0.0, 1.0, 1.0, 4.0)),
    st.booleans(),
)
outcomes = succeeded | succeeded | st.just(Failed()) | refused
events = st.lists(
    begun | outcomes | st.builds(Retuned, widths) | st.builds(Narrowed, widths), max_size=120
)
limits = st.builds(AimdLimit, widths, st.booleans())


def apply(limit: AimdLimit, event: Event) -> None:
    match event:
        case Begun(share):
            limit.started(math.ceil(share * limit.limit))
        case Succeeded(retried):
            limit.succeeded(1.0, retried=retried)
        case Failed():
            limit.failed()
        case Refused(cuts_ago, beside, wait, repeated):
            limit.congested(Refusal(limit.epoch - cuts_ago, beside, wait, repeated))
        case Retuned(width):
            limit.retune(width)
        case Narrowed(learned):
            limit.narrow(learned)


def apply_all(limit: AimdLimit, several: Sequence[Event]) -> None:
    for event in several:
        apply(limit, event)


def serve_round(limit: AimdLimit, *, share: float = 1.0) -> None:
    """Serve one round of calls, with a share of the limit in use."""
    limit.started(math.ceil(share * limit.limit))
    for _ in range(max(4, limit.limit)):
        limit.succeeded(1.0, retried=False)


def serve_until(limit: AimdLimit, wanted: int) -> int:
    """Serve rounds until the limit has a value; bounded."""
    for rounds in range(200):
        if limit.limit >= wanted:
            return rounds
        serve_round(limit)
    msg = f"the limit stays at {limit.limit}, and never is {wanted}"
    raise AssertionError(msg)


def refuse_burst(limit: AimdLimit, size: int) -> None:
    """Refuse calls that started together, one after another."""
    epoch = limit.epoch
    for _ in range(size):
        limit.congested(Refusal(epoch))


@given(limits, events)
def test_aimd_stays_between_one_and_the_max_concurrency(
    limit: AimdLimit, several: list[Event]
) -> None:
    """AIMD: 1 ≤ limit ≤ max concurrency, after any sequence of events."""
    for event in several:
        apply(limit, event)
        assert 1 <= limit.limit <= limit.max_concurrency


@given(limits, events)
@example(
    AimdLimit(3, slow_start=False),
    [
        Refused(0, 2, 1.0),
        Failed(),
        Refused(0),
        Failed(),
        Refused(0),
        Failed(),
        Failed(),
        Refused(0),
        Refused(0),
    ],
)
def test_aimd_shrinks_only_by_a_refusal_of_the_current_epoch(
    limit: AimdLimit, several: list[Event]
) -> None:
    """AIMD: at most one cut for each epoch, by a refusal of a call of that epoch.

    A call from before the last cut only adds evidence of the calls served beside it. A refusal may also undo
    a cut that has not helped, because its refusals were random.
    """
    for event in several:
        epoch, before = limit.epoch, limit.limit
        apply(limit, event)
        cut = limit.epoch - epoch
        assert cut in (0, 1)
        match event:
            case Refused(0):
                is_undone = limit.limit > before and limit.slow_start and not cut
                assert limit.limit == before or (limit.limit < before and cut) or is_undone
            case Refused(_, beside, _wait, repeated):
                in_wave = not repeated
                told = in_wave and (limit.limit == min(beside, limit._ceiling) or not beside)
                assert limit.limit == before or told
                assert not cut
            case Retuned():
                assert not cut
            case Narrowed(learned):
                assert limit.limit == min(before, learned)
                assert cut == (learned < before)
            case _:
                assert limit.limit >= before
                assert not cut


@given(widths, st.integers(2, 50))
def test_aimd_cuts_once_for_a_burst_of_refusals_of_one_epoch(width: int, size: int) -> None:
    """AIMD: a burst of refusals cuts the limit once, to seven tenths."""
    limit = AimdLimit(width)
    refuse_burst(limit, size)
    assert (limit.limit, limit.epoch) == (max(1, int(0.7 * width)), 1)


def test_aimd_cuts_8_to_5_and_3() -> None:
    """Two bursts of refusals at a limit of 8 cut it to 5 and then to 3."""
    limit, seen = AimdLimit(8), []
    for _ in range(2):
        refuse_burst(limit, 8)
        seen.append(limit.limit)
    assert seen == [5, 3]


@given(widths, st.integers(1, 30), st.integers(0, 5))
def test_aimd_does_not_cut_for_isolated_refusals(width: int, times: int, more: int) -> None:
    """A refusal followed by a round without one never cuts the limit."""
    limit = AimdLimit(width)
    for _ in range(times):
        limit.congested(Refusal(limit.epoch))
        assert not limit.calm
        for _ in range(max(4, width) + more):
            limit.succeeded(1.0, retried=False)
        assert (limit.limit, limit.epoch, limit.calm) == (width, 0, True)


@given(limits, events, st.integers(1, 20))
def test_aimd_grows_only_if_the_limit_is_used(
    limit: AimdLimit, several: list[Event], rounds: int
) -> None:
    """Rounds that use less than eight tenths of the limit do not raise it."""
    apply_all(limit, several)
    refuse_burst(limit, 2)  # a round starts
    before = limit.limit
    for _ in range(rounds):
        limit.started(math.ceil(0.8 * limit.limit) - 1)
        for _ in range(max(4, limit.limit)):
            limit.succeeded(1.0, retried=False)
    assert limit.limit == before


@given(limits, events, st.integers(1, 20))
def test_aimd_does_not_grow_in_a_round_with_a_failure(
    limit: AimdLimit, several: list[Event], rounds: int
) -> None:
    """A round with one transient failure does not raise the limit."""
    apply_all(limit, several)
    refuse_burst(limit, 2)
    before = limit.limit
    for _ in range(rounds):
        limit.started(limit.limit)
        limit.failed()
        for _ in range(max(4, limit.limit) - 1):
            limit.succeeded(1.0, retried=False)
    assert limit.limit == before


@given(limits, events, st.integers(1, 200))
def test_aimd_learns_nothing_from_retries_that_succeed(
    limit: AimdLimit, several: list[Event], times: int
) -> None:
    """Successful retries do not raise the limit."""
    apply_all(limit, several)
    before = limit.limit
    for _ in range(times):
        limit.started(limit.limit)
        limit.succeeded(1.0, retried=True)
    assert limit.limit == before


@given(st.integers(2, 40))
def test_aimd_ends_a_refused_trial_and_doubles_the_wait(width: int) -> None:
    """One refusal ends a trial above the ceiling; trials come after 3, 24, 24, … clean rounds."""
    limit = AimdLimit(width)
    refuse_burst(limit, 2)
    serve_until(limit, width - 1)
    waited = []
    for _ in range(5):
        waited.append(serve_until(limit, width))
        limit.congested(Refusal(limit.epoch))
        assert limit.limit == width - 1
    assert waited == [3, 24, 24, 24, 24]


def refuse_wave(limit: AimdLimit, served: int, wait: float = 1.0) -> None:
    """Refuse all but some calls of a full lane, one after another, with a wait."""
    epoch = limit.epoch
    for beside in range(limit.limit - 1, served - 1, -1):
        limit.congested(Refusal(epoch, beside, wait))


@given(st.integers(4, 40), st.integers(1, 40))
def test_aimd_is_cut_to_the_calls_served_beside_a_wave_with_waits(width: int, served: int) -> None:
    """A wave of refusals with a wait cuts the limit once, to the number of calls served beside it."""
    limit, served = AimdLimit(width), min(served, width - 1)
    refuse_wave(limit, served)
    assert (limit.limit, limit.epoch) == (served, 1)
    assert serve_until(limit, served + 1) == 3


@given(st.integers(4, 40))
def test_aimd_makes_a_usual_cut_for_a_wave_without_served_calls(width: int) -> None:
    """A wave of refusals beside which nothing is served makes one usual cut."""
    limit, bare = AimdLimit(width), AimdLimit(width)
    refuse_wave(limit, 0)
    refuse_burst(bare, width)
    assert (limit.limit, limit.epoch) == (bare.limit, bare.epoch)


def test_aimd_ignores_late_refusals_of_a_wave_when_calls_start_again() -> None:
    """A late refusal of a wave has no effect once calls start again."""
    limit = AimdLimit(16)
    epoch = limit.epoch
    refuse_wave(limit, 8)
    limit.started(1)
    limit.congested(Refusal(epoch, 1, 1.0))
    assert limit.limit == 8


def test_aimd_is_not_cut_by_a_single_refusal_at_a_served_limit() -> None:
    """This holds even with a wait; a second refusal cuts it."""
    limit = AimdLimit(16)
    refuse_wave(limit, 8)
    serve_round(limit)
    limit.congested(Refusal(limit.epoch, 3, 1.0))
    assert limit.limit == 8
    limit.congested(Refusal(limit.epoch, 2, 1.0))
    assert limit.limit == 2


@given(st.integers(2, 20), st.sampled_from((0.5, 1.0, 8.0)))
def test_aimd_repeats_a_trial_after_16_times_its_cost(served: int, wait: float) -> None:
    """The cost is the wait of the refused trial and the second of its probe."""
    limit, waited = AimdLimit(40), []
    refuse_wave(limit, served, wait)
    for _ in range(4):
        waited.append(serve_until(limit, served + 1))
        limit.congested(Refusal(limit.epoch, served, wait, repeated=True))
        assert limit.limit == served
    assert waited[0] == 3
    assert all(rounds == max(16 * (wait + 1), 24) for rounds in waited[3:])
    assert all(rounds >= 16 * (wait + 1) for rounds in waited[1:])


def test_aimd_doubles_if_a_trial_above_the_ceiling_of_a_wave_is_served() -> None:
    """The ceiling was then not a limit of calls."""
    limit, seen = AimdLimit(40), []
    refuse_wave(limit, 3)
    for _ in range(8):
        serve_round(limit)
        seen.append(limit.limit)
    assert seen == [3, 3, 4, 5, 10, 20, 40, 40]


def test_aimd_forgets_the_ceiling_when_a_trial_is_served() -> None:
    """After a served trial the limit grows by one per clean round, and a single refusal is isolated again."""
    limit = AimdLimit(20)
    refuse_burst(limit, 2)
    refuse_burst(limit, 2)  # at 14: the ceiling is 13
    seen = []
    for _ in range(13):
        serve_round(limit)
        seen.append(limit.limit)
    assert seen == [10, 11, 12, 13, 13, 13, 14, 15, 16, 17, 18, 19, 20]
    limit.congested(Refusal(limit.epoch))
    assert limit.limit == 20


@given(limits, events)
def test_aimd_returns_to_the_max_concurrency(limit: AimdLimit, several: list[Event]) -> None:
    """AIMD: from any state, saturated success leads back to the max concurrency.

    If a refused trial costs a wait, the next one comes after 16 times that time of service.
    """
    apply_all(limit, several)
    waits = [event.wait for event in several if isinstance(event, Refused)]
    paid = 16 * (max(waits) + 1) if any(waits) else 0
    for _ in range(2 * limit.max_concurrency + 30 + int(paid)):
        serve_round(limit)
    assert limit.limit == limit.max_concurrency
    assert limit.calm


@given(st.integers(1, 100))
def test_aimd_starts_slowly_and_doubles(width: int) -> None:
    """With slow start the limit is 1, 2, 4, … up to the max concurrency, doubled per clean round."""
    limit = AimdLimit(width, slow_start=True)
    for doublings in range(8):
        assert limit.limit == min(2**doublings, width)
        serve_round(limit)


def test_aimd_stops_doubling_after_the_first_refusal() -> None:
    """The first refusal ends the slow start."""
    limit = AimdLimit(40, slow_start=True)
    for _ in range(3):
        serve_round(limit)
    limit.congested(Refusal(0))
    serve_round(limit)  # the round of the refusal
    serve_round(limit)
    assert limit.limit == 9


@given(limits, events, widths)
def test_aimd_keeps_a_full_limit_full_and_only_bounds_a_learned_one(
    limit: AimdLimit, several: list[Event], width: int
) -> None:
    """A new max concurrency keeps a full limit full, and only bounds a learned one."""
    apply_all(limit, several)
    before, full = limit.limit, limit.limit == limit.max_concurrency
    never_refused = not any(isinstance(event, Refused) for event in several)
    limit.retune(width)
    assert min(before, width) <= limit.limit <= (width if full else min(before, width))
    if full and never_refused and not limit.slow_start:
        assert limit.limit == width


def test_aimd_keeps_the_learned_limit_over_a_small_max_concurrency() -> None:
    """The slow start is kept too."""
    limit = AimdLimit(10)
    for _ in range(2):
        limit.congested(Refusal(0))
    for _ in range(4):
        limit.congested(Refusal(limit.epoch))
    learned = limit.limit
    limit.retune(1)
    assert limit.limit == 1
    limit.retune(10)
    assert learned <= limit.limit <= learned + 2
    slow = AimdLimit(1, slow_start=True)
    slow.retune(64)
    assert slow.limit == 1
    serve_round(slow)
    assert slow.limit == 2


@given(limits, events)
def test_aimd_is_calm_if_events_have_no_effect(limit: AimdLimit, several: list[Event]) -> None:
    """Events that are not reported while the limit is calm would not change it."""
    apply_all(limit, several)
    if limit.calm:
        before = limit.limit
        for _ in range(100):
            limit.started(limit.limit)
            limit.succeeded(1.0, retried=False)
            assert limit.limit == before
    else:
        assert limit.limit < limit.max_concurrency or limit._refusals or limit._chance


@given(widths, widths, st.integers(1, 20))
def test_a_fixed_limit_always_equals_the_max_concurrency(
    width: int, other: int, times: int
) -> None:
    """It is always calm."""
    limit = Limit(width)
    for _ in range(times):
        limit.started(width)
        limit.succeeded(1.0, retried=False)
        limit.failed()
        limit.congested(Refusal(0))
    assert (limit.limit, limit.epoch, limit.calm) == (width, 0, True)
    limit.retune(other)
    assert limit.limit == limit.max_concurrency == other

"""The limits of lanes as shared limits: what they grant is what one lane would allow, over all workers."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import LimitError
from trioeval.kernel import LaneSpec
from trioeval.limits.memory import MemoryLimits
from trioeval.limits.model import LimitKey, LimitState, SharedLimit
from trioeval.loading.load import parse_suite
from trioeval.run import prepare
from trioeval.scaleout.facts import lane_uses, owned_lanes
from trioeval.scaleout.lane_sharing import (
    HOLD_SECONDS,
    LaneLimits,
    most_of,
    reported_rates,
    shared_lane,
    shared_lanes,
    with_shared_lanes,
)
from trioeval.scaleout.shards import owner_groups
from trioeval.testing import run_virtual

REDIS = {"backend": "redis", "url": "redis://127.0.0.1:9"}


def suite(*providers: Any, **more: Any) -> dict[str, Any]:
    return {
        "providers": [*providers],
        "prompts": ["{{word}}"],
        "tests": [{"vars": {"word": "a"}}],
        **more,
    }


def remote(name: str, **lane: Any) -> dict[str, Any]:
    return {
        "id": "openai:chat:m",
        "label": name,
        "config": {"apiKey": "k", "apiBaseUrl": "http://127.0.0.1:9/v1"},
        "lane": {"key": name, **lane},
    }


rates = st.floats(0.5, 60_000)
specs = st.builds(
    LaneSpec,
    st.just("a"),
    st.integers(1, 30),
    rpm=rates,
    burst=st.integers(1, 8),
    min_gap=st.sampled_from((0.0, 0.0, 0.001, 0.3)),
)


@given(specs, st.lists(st.integers(0, 400_000), min_size=1, max_size=60))
def test_starts_within_the_windows_of_a_lane_keep_its_pace(
    spec: LaneSpec, pauses: Sequence[int]
) -> None:
    """PACE: whatever the windows grant, in any T seconds at most burst + T · rpm / 60 calls start."""
    windows = [one for one in shared_lane(spec, "r").limits if one.kind == "rolling"]
    starts: list[int] = []  # microseconds
    now = 0
    for pause in pauses:
        now += pause
        for limit in windows:
            span = round((limit.window or 0) * 1_000_000)
            if len(starts) >= limit.capacity:
                now = max(now, starts[-limit.capacity] + span)
        starts.append(now)
    assert spec.rpm is not None
    for place, first in enumerate(starts):
        for count, last in enumerate(starts[place:], 1):
            allowed = spec.burst + (last - first) * spec.rpm / 60_000_000
            assert count <= allowed + 1e-9
    gaps = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert all(gap >= spec.min_gap * 1_000_000 - 1e-6 for gap in gaps)


@given(specs)
def test_the_windows_of_a_lane_serve_its_whole_rate(spec: LaneSpec) -> None:
    """They are no longer than the rate and the gap demand, but for the rounding to microseconds."""
    assert spec.rpm is not None
    fastest = min(
        one.capacity / (one.window or math.inf)
        for one in shared_lane(spec, "r").limits
        if one.kind == "rolling"
    )
    expected = min(spec.rpm / 60, 1 / spec.min_gap if spec.min_gap else math.inf)
    assert fastest == pytest.approx(expected, rel=0.002)


def test_a_lane_shares_its_slots_rates_and_tokens_under_the_id_of_the_run() -> None:
    """The reported rate is open until a worker learns one."""
    spec = LaneSpec("gpt", 8, rpm=600, burst=3, tpm=9000, min_gap=0.05)
    lane = shared_lane(spec, "run-1", cap=5)
    found = {one.key.rpartition(":")[2]: one for one in lane.limits}
    assert [*found] == ["slots", "reported", "gap", "rpm", "tpm"]
    own = [one for one in lane.limits if one.key != "run:run-1:all:slots"]
    assert all(one.key.startswith("run:run-1:gpt:") for one in own)
    facts = [(one.kind, one.capacity, one.span) for one in own if "reported" not in one.key]
    assert facts == [
        ("concurrency", 8, HOLD_SECONDS),
        ("rolling", 1, 0.05),
        ("rolling", 3, 0.3),
        ("rolling", 9000, 60.0),
    ]
    assert [key.unit for key in lane.keys] == [
        *("slots", "requests", "requests", "requests", "tokens", "slots")
    ]
    assert (lane.slots, lane.reported_rate) == (lane.limits[0].key, lane.limits[1].key)


def test_keys_of_lanes_with_long_and_similar_names_are_different() -> None:
    names = ["x" * 300, "x" * 301, "ä\udc80", "a b"]
    keys = [shared_lane(LaneSpec(name), "r").slots for name in names]
    assert len({*keys}) == len(names)
    assert max(map(len, keys)) <= 256


def test_lanes_with_nothing_to_share_have_no_limits() -> None:
    """A free lane without a rate is not counted, and one with a rate is."""
    prepared = prepare(
        parse_suite(
            suite(
                "echo", {"id": "echo", "label": "b", "lane": {"key": "b", "rpm": 60}}, remote("c")
            )
        )
    )
    assert [lane.lane for lane in shared_lanes(prepared, "r")] == ["b", "c"]


def test_with_redis_no_lane_has_an_owner_unless_it_is_wanted() -> None:
    providers = [remote("a", rpm=60), remote("b"), "echo"]
    shared = prepare(parse_suite(suite(*providers, limits=REDIS)))
    assert owned_lanes(shared) == frozenset()
    assert owned_lanes(shared, lane_owner=True) == {"a", "b"}
    assert owned_lanes(prepare(parse_suite(suite(*providers)))) == {"a", "b"}


def test_a_judge_with_nothing_to_share_ties_no_rows_to_an_owner() -> None:
    """Rows of a lane with an owner and rows that any worker may run are judged where they run."""
    judged = [{"vars": {"word": "a"}, "assert": [{"type": "llm-rubric", "value": "short"}]}]
    more = {"defaultTest": {"options": {"provider": "echo"}}, "tests": judged}
    prepared = prepare(parse_suite(suite(remote("a"), "echo", **more)))
    groups = owner_groups(lane_uses(prepared), owned_lanes(prepared))
    assert sorted(groups.values(), key=str) == [None, "a"]


@pytest.mark.parametrize("is_apart", [False, True])
def test_a_judge_ties_what_it_judges_to_its_owner_unless_it_judges_in_a_task_of_its_own(
    *, is_apart: bool
) -> None:
    """Rows are graded where they run, and all rows of a task on one lane have one owner."""
    judged = {
        "defaultTest": {"options": {"provider": remote("judge")}},
        "assert": [{"type": "llm-rubric", "value": "short"}],
    }
    ask: dict[str, Any] = {"id": "ask", "type": "prompt_eval", "prompts": ["{{word}}"]}
    tests = [{"vars": {"word": "a"}, "assert": [] if is_apart else judged["assert"]}]
    tasks = [{**ask, "tests": [*tests, {"vars": {"word": "b"}}]}]
    if is_apart:
        said = {"fromTask": "ask", "vars": {"word": "output"}, "assert": judged["assert"]}
        tasks.append({**ask, "id": "grade", "providers": ["echo"], "tests": said})
    default = {"defaultTest": judged["defaultTest"]}
    providers = [remote("a"), remote("b")]
    prepared = prepare(parse_suite({"providers": providers, **default, "tasks": tasks}))
    groups = owner_groups(lane_uses(prepared), owned_lanes(prepared))
    right = {("ask", "a"): "a", ("ask", "b"): "b", ("grade", "echo"): "judge"}
    assert groups == (right if is_apart else {("ask", "a"): "a", ("ask", "b"): "a"})


def test_a_suite_with_shared_lanes_defines_their_limits_and_keeps_its_own() -> None:
    own = {"key": "team", "kind": "rolling", "capacity": 5, "windowSeconds": 1}
    prepared = prepare(
        parse_suite(
            suite(
                remote("a", rpm=60, limits=[{"key": "team", "unit": "requests"}]),
                limits={**REDIS, "define": [own]},
            )
        )
    )
    lanes = shared_lanes(prepared, "r")
    found = with_shared_lanes(prepared, lanes)
    limits = found.suite.limits
    assert limits is not None
    assert [one.key for one in limits.define or ()] == ["team", *(o.key for o in lanes[0].limits)]
    assert [key.key for key in found.lane_limits["a"]] == ["team", *(k.key for k in lanes[0].keys)]
    assert with_shared_lanes(prepared, ()) is prepared


def test_a_call_of_more_tokens_than_a_minute_grants_counts_as_a_whole_minute() -> None:
    """A lane serves it alone; its window would never grant it."""
    lane = shared_lane(LaneSpec("a", 4, tpm=100), "r")

    async def main() -> None:
        memory = MemoryLimits([LimitState(limit=one) for one in lane.limits])
        limits = LaneLimits(memory, reported_rates([lane]), most_of([lane]), ())
        permits = limits.permits("a", lane.keys)
        permit = permits.take_nowait(0, 5000, 0.0)
        assert permit is not None
        permit.settle(5000, 0.0)
        assert permits.take_nowait(1, 1, 0.0) is None
        with trio.move_on_after(0) as scope:
            await permits.take(1, 5000, 0.0, lambda _shortage: None)
        assert scope.cancelled_caught
        states = {state.limit.key: state for state in await limits.states()}
        assert states[lane.limits[-1].key].used == 100

    trio.run(main)


def test_a_call_that_waits_follows_a_window_that_becomes_smaller() -> None:
    """Its tokens would exceed the window: it counts as a whole minute of the new rate, and is not refused."""
    lane, smaller = (shared_lane(LaneSpec("a", 4, tpm=tpm), "r") for tpm in (100, 10))

    async def main() -> float:
        memory, most = MemoryLimits([LimitState(limit=one) for one in lane.limits]), most_of([lane])
        limits = LaneLimits(memory, reported_rates([lane]), most, ())
        permits = limits.permits("a", lane.keys)
        first = permits.take_nowait(0, 100, 0.0)
        assert first is not None
        first.settle(100, 0.0)
        began = trio.current_time()

        async def retune() -> None:
            await trio.sleep(1)
            most["a"] = 10
            await memory.define(smaller.limits[-1])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(retune)
            await permits.take(1, 100, 0.0, lambda _shortage: None)
        with pytest.raises(LimitError, match="unknown"):
            await limits.permits("a", [LimitKey("x", "tokens")]).take(
                1, 100, 0.0, lambda _shortage: None
            )
        return trio.current_time() - began

    assert run_virtual(main) == pytest.approx(60)


def test_a_large_call_is_served_while_a_window_becomes_larger() -> None:
    """The worker knows the new rate before the window has it. Another limit refuses as ever."""
    lane = shared_lane(LaneSpec("a", 4, tpm=100), "r")
    own = SharedLimit(key="own", kind="rolling", capacity=50, window=60.0)

    async def main() -> None:
        memory = MemoryLimits([LimitState(limit=one) for one in (*lane.limits, own)])
        limits = LaneLimits(memory, reported_rates([lane]), {"a": 1000}, ())
        permits = limits.permits("a", lane.keys)
        permit = await permits.take(0, 700, 0.0, lambda _shortage: None)
        permit.settle(700, 0.0)
        states = {state.limit.key: state for state in await limits.states()}
        assert states[lane.limits[-1].key].used == 100
        both = limits.permits("a", [LimitKey("own", "tokens"), *lane.keys])
        with pytest.raises(LimitError, match="own"):
            await both.take(1, 60, 0.0, lambda _shortage: None)

    run_virtual(main)


def test_calls_count_against_a_reported_rate_only_while_there_is_one() -> None:
    lane, reported = shared_lane(LaneSpec("a"), "r"), set[str]()

    async def main() -> list[int]:
        memory = MemoryLimits([LimitState(limit=one) for one in lane.limits])
        limits = LaneLimits(memory, reported_rates([lane]), most_of([lane]), reported)
        permits, counts = limits.permits("a", lane.keys), list[int]()
        for lanes in (set[str](), {"a"}, {"b"}):
            reported.clear()
            reported.update(lanes)
            assert permits.take_nowait(0, 5, 0.0) is not None
            states = {state.limit.key: state for state in await limits.states()}
            assert states[lane.slots].used == len(counts) + 1
            counts.append(states[lane.reported_rate].used)
        other = limits.permits("others have none", lane.keys[:1])
        assert type(other) is type(memory.permits("b", lane.keys[:1]))
        return counts

    assert run_virtual(main) == [0, 1, 1]


def test_two_workers_together_start_no_more_than_one_lane_would() -> None:
    lane = shared_lane(LaneSpec("a", 2, rpm=60, burst=2), "r")

    async def main() -> None:
        memory = MemoryLimits([LimitState(limit=one) for one in lane.limits])
        workers = [memory.permits(name, lane.keys) for name in ("worker 1", "worker 2")]
        taken = [one.take_nowait(0, 0, 0.0) for one in workers]
        for permit in taken:
            assert permit is not None
            permit.settle(0, 0.0)
        assert [one.take_nowait(1, 0, 0.0) for one in workers] == [None, None]

    trio.run(main)

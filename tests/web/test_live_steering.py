"""The commands of a run, and refusals."""

import json
from collections.abc import Mapping
from typing import Any

import attrs
import pytest
import trio
from hypothesis import event, given, settings
from hypothesis import strategies as st
from live_runs import watched_run

from trioeval.kernel import Calls, CallStarted, Event, Job, Lanes, LaneSpec, Plan, collect
from trioeval.testing import run_virtual


def refusal_of(command: Mapping[str, Any]) -> tuple[str | None, Lanes, int]:
    """A run with its lanes, and the number of its stops."""

    async def main() -> tuple[str | None, Lanes, int]:  # noqa: ASYNC124 - lanes are used in Trio
        run = watched_run(LaneSpec("a", 4, rpm=60, tpm=600), LaneSpec("b"), LaneSpec("local"))
        refused = run.steering().obey(command)
        return refused, run.lanes, run.stops + run.cancelled.cancel_called

    return run_virtual(main)


def standing(lanes: Lanes) -> list[tuple[int, float | None, float | None, bool]]:
    return [
        (lane.max_concurrency, lane.rpm, lane.tpm, lane.paused)
        for lane in lanes.statistics().values()
    ]


def test_a_command_that_other_processes_cannot_follow_changes_nothing() -> None:
    """ONCE for all: a lane and its shared limits never differ."""
    forwarded: list[Mapping[str, Any]] = []

    async def main() -> None:  # noqa: ASYNC124 - lanes are used in Trio
        run = watched_run()
        steering = attrs.evolve(
            run.steering(),
            forward=forwarded.append,
            refusal=lambda command: "no rate there" if "rpm" in command else None,
        )
        both = {"do": "retune", "lane": "a", "rpm": 5, "maxConcurrency": 2}
        assert steering.obey(both) == "no rate there"
        assert run.lanes["a"].max_concurrency == 4
        assert steering.obey({"do": "pause", "lane": "a"}) is None

    run_virtual(main)
    assert forwarded == [{"do": "pause", "lane": "a"}]


@pytest.mark.parametrize(
    ("command", "after"),
    [
        ({"do": "pause", "lane": "a"}, (4, 60, 600, True)),
        ({"do": "resume", "lane": "a"}, (4, 60, 600, False)),
        ({"do": "retune", "lane": "a", "maxConcurrency": 9}, (9, 60, 600, False)),
        ({"do": "retune", "lane": "a", "rpm": 120.5}, (4, 120.5, 600, False)),
        ({"do": "retune", "lane": "a", "maxConcurrency": 1, "rpm": 5, "tpm": 7}, (1, 5, 7, False)),
        (
            {"do": "retune", "lane": "a", "maxConcurrency": None, "rpm": None, "tpm": 7},
            (4, 60, 7, False),
        ),
    ],
)
def test_a_lane_obeys_commands(
    command: Mapping[str, Any], after: tuple[int, float, float, bool]
) -> None:
    """A paused lane starts no calls; other lanes do."""
    refused, lanes, stopped = refusal_of(command)
    assert (refused, stopped) == (None, 0)
    width, rpm, tpm, paused = standing(lanes)[0]
    assert (width, paused) == (after[0], after[3])
    assert (rpm, tpm) == pytest.approx(after[1:3])
    assert standing(lanes)[1:] == [(4, None, None, False)] * 2


def test_a_lane_without_a_rate_of_requests_gets_one() -> None:
    """A rate of tokens cannot be added: calls in flight have reserved none."""
    refused, lanes, _ = refusal_of({"do": "retune", "lane": "b", "rpm": 30})
    assert (refused, lanes["b"].statistics().rpm) == (None, 30)
    refused, lanes, _ = refusal_of(
        {"do": "retune", "lane": "b", "rpm": 30, "maxConcurrency": 2, "tpm": 9}
    )
    assert refused == "lane 'b': tpm cannot be changed on a lane without one, got tpm=9"
    assert standing(lanes)[1] == (4, None, None, False)  # all or nothing


@pytest.mark.parametrize("do", ["stop", "cancel"])
def test_a_run_is_stopped_and_cancelled(do: str) -> None:
    """A run stops once."""
    assert refusal_of({"do": do})[::2] == (None, 1)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ({}, "do must be one of pause, resume, retune, stop, cancel, got None"),
        ({"do": "halt"}, "got 'halt'"),
        ({"do": ["stop"]}, r"got \['stop'\]"),
        ({"do": "stop", "lane": "a"}, "stop does not accept 'lane'"),
        (
            {"do": "pause", "lane": "a", "maxConcurrency": 3},
            "pause does not accept 'maxConcurrency'",
        ),
        ({"do": "pause"}, "unknown lane None; the lanes are 'a', 'b'$"),
        ({"do": "resume", "lane": "c"}, "unknown lane 'c'"),
        ({"do": "resume", "lane": ["a"]}, r"unknown lane \['a'\]"),
        (
            {"do": "pause", "lane": "local"},
            "unknown lane 'local'",
        ),  # it makes no calls to a provider
        ({"do": "pause", "lane": "x" * 5000}, r"unknown lane 'x+\.\.\.x+';"),
        ({"do": "retune", "lane": "a"}, "retune needs maxConcurrency, rpm or tpm"),
        (
            {"do": "retune", "lane": "a", "maxConcurrency": 0},
            "maxConcurrency must be a whole number from 1 to 10000",
        ),
        ({"do": "retune", "lane": "a", "maxConcurrency": 10**400}, "maxConcurrency must be"),
        ({"do": "retune", "lane": "a", "maxConcurrency": 2.0}, "maxConcurrency must be .* got 2.0"),
        (
            {"do": "retune", "lane": "a", "maxConcurrency": True},
            "maxConcurrency must be .* got True",
        ),
        ({"do": "retune", "lane": "a", "maxConcurrency": "3"}, "maxConcurrency must be .* got '3'"),
        ({"do": "retune", "lane": "a", "rpm": 0}, "rpm must be a number from 0.001 to 1e"),
        ({"do": "retune", "lane": "a", "rpm": -1, "tpm": "x"}, "rpm must be .*; tpm must be"),
        ({"do": "retune", "lane": "a", "rpm": float("nan")}, "rpm must be .* got nan"),
        ({"do": "retune", "lane": "a", "rpm": float("inf")}, "rpm must be .* got inf"),
        ({"do": "retune", "lane": "a", "rpm": 5e-324}, "rpm must be"),
        ({"do": "retune", "lane": "a", "tpm": True}, "tpm must be .* got True"),
        ({"do": "retune", "lane": "a", "maxConcurrency": 8, "rpm": 10**400}, "rpm must be"),
    ],
)
def test_bad_commands_are_refused_and_change_nothing(
    command: Mapping[str, Any], message: str
) -> None:
    """A refusal states what is valid, and is not as long as the command."""
    refused, lanes, stopped = refusal_of(command)
    assert refused is not None
    assert len(refused) < 250
    with pytest.raises(ValueError, match=message):
        raise ValueError(refused)
    assert standing(lanes) == [(4, 60, 600, False), (4, None, None, False), (4, None, None, False)]
    assert stopped == 0


@given(
    st.dictionaries(
        st.sampled_from(["do", "lane", "maxConcurrency", "rpm", "tpm", "id"]) | st.text(max_size=3),
        st.sampled_from(["pause", "resume", "retune", "stop", "a", "b"])
        | st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
            lambda some: st.lists(some) | st.dictionaries(st.text(max_size=3), some),
            max_leaves=4,
        ),
    )
)
def test_every_command_is_obeyed_or_refused(command: Mapping[str, Any]) -> None:
    """No command raises; the answer can be sent; a refused command changes nothing."""
    refused, lanes, stopped = refusal_of(command)
    event("refused" if refused else "obeyed")
    json.dumps(refused)
    assert all(1 <= lane.max_concurrency <= 10_000 for lane in lanes.values())
    if refused is not None:
        assert standing(lanes)[0] == (4, 60, 600, False)
        assert stopped == 0


@attrs.frozen
class Turn:
    """A command, `after` seconds after the last one."""

    after: float
    command: Mapping[str, Any]


turns = st.lists(
    st.builds(
        Turn,
        st.integers(0, 16).map(lambda n: n / 4),
        st.one_of(
            st.builds(lambda do: {"do": do, "lane": "a"}, st.sampled_from(["pause", "resume"])),
            st.builds(
                lambda numbers: {"do": "retune", "lane": "a", **numbers},
                st.fixed_dictionaries(
                    {},
                    optional={
                        "maxConcurrency": st.integers(1, 4),
                        "rpm": st.sampled_from((30, 60, 240, 960)),
                    },
                ).filter(bool),
            ),
            st.just({"do": "stop"}),
        ),
    ),
    max_size=6,
)


@settings(max_examples=settings().max_examples // 2)
@given(
    turns,
    st.lists(st.integers(0, 12).map(lambda n: n / 4), min_size=1, max_size=14),
    st.integers(1, 3),
    st.sampled_from((0.0, 0.25, 1.0)),
    st.random_module(),
)
def test_no_command_breaks_a_law(
    turns: list[Turn], durations: list[float], burst: int, gap: float, _schedule: object
) -> None:
    """WIDTH and PACE hold at each moment; a paused lane starts no call, a stopped run no job."""
    starts, jobs, commands = drive(turns, durations, burst, gap)
    first = {"maxConcurrency": 3, "rpm": 60, "paused": False, "stopped": False}
    eras: list[tuple[float, dict[str, Any]]] = [(0.0, first)]
    for at, command in commands:
        new = dict(eras[-1][1])
        match command["do"]:
            case "pause":
                new["paused"] = True
            case "resume":
                new["paused"] = False
            case "stop":
                new["stopped"] = True
            case _:
                new |= {key: command[key] for key in ("maxConcurrency", "rpm") if key in command}
        eras.append((at, new))

    def at_once(at: float) -> list[dict[str, Any]]:
        """The rules in force at an instant."""
        before = [era for since, era in eras if since < at][-1:]
        return [*before, *(era for since, era in eras if since == at)]

    for place, (at, until) in enumerate(starts):
        assert any(not era["paused"] for era in at_once(at))
        in_flight = sum(begun <= at < ended for begun, ended in starts[: place + 1])
        assert in_flight <= max(era["maxConcurrency"] for era in at_once(at)) or until == at
        assert place == 0 or at - starts[place - 1][0] >= gap
        for one in range(place + 1):
            assert place - one + 1 <= burst + worth(eras, starts[one][0], at)
    stopped_at = min((at for at, era in eras if era["stopped"]), default=None)
    assert stopped_at is None or all(at <= stopped_at for at in jobs)


def worth(eras: list[tuple[float, dict[str, Any]]], begin: float, end: float) -> float:
    """Return the requests that the rates of a time allow."""
    edges = [*(at for at, _ in eras[1:]), float("inf")]
    total = 0.0
    for (since, era), until in zip(eras, edges, strict=True):
        total += max(0.0, min(until, end) - max(since, begin)) * era["rpm"] / 60
    return total


def drive(
    turns: list[Turn], durations: list[float], burst: int, gap: float
) -> tuple[list[tuple[float, float]], list[float], list[tuple[float, Mapping[str, Any]]]]:
    """Return starts and ends of calls, starts of jobs, and times of commands."""
    starts: list[list[float]] = []
    jobs: list[float] = []
    commands: list[tuple[float, Mapping[str, Any]]] = []

    async def main() -> None:
        run = watched_run(LaneSpec("a", 3, rpm=60, burst=burst, min_gap=gap, adaptive="off"))
        stop = trio.Event()
        steering = attrs.evolve(run.steering(), stop=lambda _process: stop.set())

        async def take(job: Job[float], calls: Calls[float]) -> None:
            jobs.append(trio.current_time())

            async def send() -> None:
                begun = [trio.current_time(), float("inf")]
                starts.append(begun)
                await trio.sleep(job.payload)
                begun[1] = trio.current_time()

            await calls("a", send)

        async def turn() -> None:
            for one in turns:
                await trio.sleep(one.after)
                assert steering.obey(one.command) is None
                commands.append((trio.current_time(), one.command))
            await trio.sleep(0.25)
            steering.obey({"do": "resume", "lane": "a"})
            commands.append((trio.current_time(), {"do": "resume"}))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(turn)
            plan = Plan.of(Job(i, "a", seconds) for i, seconds in enumerate(durations))
            outcomes = await collect(plan, take, lanes=run.lanes, stop=stop)
            assert len(outcomes) == len(durations)

    run_virtual(main)
    return [(begun, ended) for begun, ended in starts], jobs, commands


def test_a_raised_rate_applies_at_once() -> None:
    """PACE: from that instant on the new rate holds, for requests and for owed tokens."""

    async def main(command: Mapping[str, Any]) -> list[float]:
        run = watched_run(LaneSpec("a", 4, rpm=60, tpm=600))
        steering, starts = run.steering(), list[float]()

        def observe(event: Event) -> None:
            if isinstance(event, CallStarted):
                starts.append(event.at)

        async def take(job: Job[int], calls: Calls[int]) -> None:
            await calls("a", trio.sleep, 0.0, tokens=job.payload)

        async with trio.open_nursery() as nursery:
            plan = Plan.of(Job(i, "a", tokens) for i, tokens in enumerate([100, 1, 1, 1]))

            async def work() -> None:
                await collect(plan, take, lanes=run.lanes, observe=observe)

            nursery.start_soon(work)
            await trio.sleep_until(2.0)
            assert steering.obey({"do": "retune", "lane": "a", **command}) is None
        return starts

    assert run_virtual(main, {"maxConcurrency": 2}) == pytest.approx([0, 10, 11, 12])
    # 80 tokens are owed at 2 s: 1 s at 4,800 a minute; then 4 requests a second.
    assert run_virtual(main, {"tpm": 4800, "rpm": 240}) == pytest.approx([0, 3, 3.25, 3.5])
    # At 300 a minute they take 16 s, and so does each of the next two.
    assert run_virtual(main, {"tpm": 300}) == pytest.approx([0, 18, 19, 20])

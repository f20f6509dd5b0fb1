"""Runs scenarios with the kernel on a virtual clock, and returns their traces."""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

import attrs
import trio

from trioeval.errors import CallError
from trioeval.kernel import Budget, Calls, Job, Lanes, LaneStatistics, Metered, Plan, run_plan
from trioeval.testing.scenario import (
    CallScript,
    JobScript,
    Pause,
    Retune,
    RunScenario,
    ScriptedError,
    Together,
)
from trioeval.testing.shared import PermitServer
from trioeval.testing.trace import RunTrace, TraceRecorder
from trioeval.testing.virtual import run_virtual

_SAMPLES = 128  # one a second from the start
_SAMPLE_OFFSET = 0.3828125  # between the quarters on which drawn scenarios move


def run_scenario(scenario: RunScenario) -> RunTrace:
    """Run a scenario in a Trio run of its own and return its trace.

    Example:
        >>> lane = LaneSpec("a", max_concurrency=1)
        >>> trace = run_scenario(RunScenario((lane,), (JobScript("a", (CallScript("a", 2),)),) * 3))
        >>> [span.started_at for span in trace.calls]
        [0.0, 2.0, 4.0]
    """
    return run_side_by_side([scenario])[0]


def run_side_by_side(scenarios: Sequence[RunScenario]) -> list[RunTrace]:
    """Run several scenarios at once on the lanes of the first, under its shared limits.

    The sequence numbers of their traces form one series, so that the traces can be compared. The lanes'
    statistics and the permits belong to all runs together: statistics are sampled only for a single run,
    permits are in every trace.
    """
    return run_virtual(_run_all, scenarios)


async def _run_all(scenarios: Sequence[RunScenario]) -> list[RunTrace]:
    first, ticks = scenarios[0], itertools.count(1)
    keepers = [PermitServer(shared, ticks) for shared in first.shared]
    permits = {name: keeper.permits(name) for keeper in keepers for name in keeper.shared.lanes}
    lanes = Lanes(first.lanes, rng=lambda: first.spread, cap=first.cap, permits=permits)
    recorders = [TraceRecorder(ticks) for _ in scenarios]
    ended_at: dict[int, float] = {}

    async def run(position: int) -> None:
        await _run(scenarios[position], recorders[position], lanes)
        ended_at[position] = trio.current_time()

    living = trio.lowlevel.current_statistics().tasks_living
    async with trio.open_nursery() as world:
        if len(scenarios) == 1:
            world.start_soon(_sample, recorders[0], lanes)
        for retune in first.retunes:
            world.start_soon(_retune, retune, lanes)
        async with trio.open_nursery() as runs:
            for position in range(len(scenarios)):
                runs.start_soon(run, position)
        world.cancel_scope.cancel("every run is over")
    left_over = _left_over(lanes)
    left_over += [message for keeper in keepers if (message := keeper.left_over())]
    lent = sorted((one for keeper in keepers for one in keeper.lent), key=lambda one: one.granted)
    if trio.lowlevel.current_statistics().tasks_living != living:
        left_over.append("tasks")
    return [
        RunTrace(
            scenario=scenario,
            ended_at=ended_at[position],
            bodies=recorder.bodies,
            calls=recorder.calls,
            requests=recorder.requests,
            emissions=recorder.emissions,
            samples=recorder.samples,
            events=recorder.events,
            left_over=left_over,
            settled=recorder.settled,
            permits=lent,
            stopped=recorder.stopped,
        )
        for position, (scenario, recorder) in enumerate(zip(scenarios, recorders, strict=True))
    ]


async def _run(scenario: RunScenario, recorder: TraceRecorder, lanes: Lanes) -> None:
    jobs = [
        Job(index, script.lane, script, script.timeout, script.key)
        for index, script in enumerate(scenario.scripts)
    ]
    plan = Plan.of(
        jobs,
        serial_indices=scenario.serial_indices,
        serial=scenario.serial,
        edges=scenario.edges,
    )
    if any(script.known is not None for script in scenario.scripts):
        plan = attrs.evolve(plan, needs_no_lane=needs_no_lane)
    stop = trio.Event()
    caps = scenario.budget

    # Requests of each call so far: a job that is salvaged continues its scripts.
    made: dict[tuple[int, ...], Iterator[int]] = defaultdict(itertools.count)

    async def perform(job: Job[JobScript], calls: Calls[JobScript]) -> int:
        with recorder.body(job.index, job.lane):
            for place, action in enumerate(job.payload.actions):
                match action:
                    case Pause(duration):
                        await trio.sleep(duration)
                    case CallScript():
                        await _call(recorder, calls, job.index, action, made[job.index, place])
                    case Together(several):
                        async with trio.open_nursery() as nursery:
                            for part, call in enumerate(several):
                                numbers = made[job.index, place, part]
                                nursery.start_soon(_call, recorder, calls, job.index, call, numbers)
            return job.index

    await trio.sleep_until(scenario.start_at)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_at, recorder, stop, scenario)
        with trio.move_on_at(scenario.cancel_at):
            await run_plan(
                plan,
                perform,
                lanes=lanes,
                emit=recorder.emit,
                settled=recorder.settle,
                deadline=scenario.deadline,
                stop=stop,
                observe=recorder.events.append,
                max_live_jobs=scenario.max_live_jobs,
                salvage_rounds=scenario.salvage_rounds,
                reorder_window=scenario.reorder_window,
                budget=None if caps is None else Budget(caps.requests, caps.tokens),
            )
        nursery.cancel_scope.cancel("the run is over")


def needs_no_lane(job: Job[JobScript]) -> bool:
    """Return whether the script of a job says that it needs no lane.

    Raises:
        ScriptedError: The script says so.
    """
    if job.payload.known == "fails":
        msg = f"job {job.index} was configured to fail"
        raise ScriptedError(msg)
    return job.payload.known == "yes"


async def _call(
    recorder: TraceRecorder,
    calls: Calls[JobScript],
    index: int,
    call: CallScript,
    numbers: Iterator[int],
) -> None:
    async def send() -> Metered[None]:
        number = next(numbers)
        attempt = call.attempt(number)
        with recorder.call(request, call.lane, number, call.tokens) as span:
            await trio.sleep(attempt.duration)
            span.used = attempt.tokens
            if attempt.fault is not None:
                raise CallError(
                    attempt.fault,
                    f"job {index} was configured to",
                    retry_after=attempt.retry_after,
                    tokens=attempt.tokens,
                    hint=attempt.hint,
                )
            if call.fails:
                msg = f"job {index} was configured to fail"
                raise ScriptedError(msg)
            return Metered(None, attempt.tokens, hint=attempt.hint)

    with trio.move_on_after(call.patience), recorder.asking(index, call.lane) as request:
        await calls(call.lane, send, tokens=call.tokens)


async def _retune(retune: Retune, lanes: Lanes) -> None:
    await trio.sleep_until(retune.at)
    lane = lanes[retune.lane]
    if retune.to == "pause":
        lane.pause()
    elif retune.to == "resume":
        lane.resume()
    else:
        lane.max_concurrency = retune.to


async def _stop_at(recorder: TraceRecorder, stop: trio.Event, scenario: RunScenario) -> None:
    await trio.sleep_until(scenario.stop_at)
    for _ in range(scenario.stop_steps):
        await trio.lowlevel.checkpoint()
    recorder.stop()
    stop.set()


async def _sample(recorder: TraceRecorder, lanes: Lanes) -> None:
    for second in range(_SAMPLES):  # bounded, so that a deadlock is still seen at once
        await trio.sleep_until(second + _SAMPLE_OFFSET)
        recorder.sample(lanes)


def _left_over(lanes: Lanes) -> list[str]:
    found = [
        f"lane {name} has {seen}"
        for name, lane in lanes.items()
        if (seen := _alive(lane.statistics()))
    ]
    found += [f"lane {name} has workers" for name, lane in lanes.items() if lane.followers]
    if not lanes.gate.idle:
        found.append("a job in the serial gate")
    if lanes.cap is not None and not lanes.cap.idle:
        found.append("a call under the cap")
    return found


def _alive(seen: LaneStatistics) -> str:
    parts = {"in flight": seen.in_flight, "in line": seen.waiting, "resting": seen.resting}
    return ", ".join(f"{number} {noun}" for noun, number in parts.items() if number)

"""Scripted runs: what every job does and how long it takes, run by the kernel on a virtual clock."""

import itertools
import math
from collections.abc import Sequence
from typing import TypeAlias

import attrs
import trio

from trioeval.kernel import Calls, Job, Lanes, LaneSpec, Plan, run_plan
from trioeval.testing.trace import Recorder, Trace
from trioeval.testing.virtual import run_virtual

_SAMPLES = 128  # one a second from the start
_SAMPLE_OFFSET = 0.3828125  # between the quarters on which drawn scenarios move


class ScriptedError(Exception):
    """The failure that a scripted call was told to end in."""


@attrs.frozen
class Pause:
    """The body works by itself for some seconds, in no slot."""

    duration: float


@attrs.frozen
class Call:
    """One call that takes some seconds and then succeeds or fails."""

    lane: str
    duration: float
    fails: bool = False
    patience: float = math.inf
    """Seconds after which the body gives it up, waiting or in flight."""


@attrs.frozen
class Together:
    """Several calls at once, in a nursery of the body."""

    calls: tuple[Call, ...]


Action: TypeAlias = Pause | Call | Together


@attrs.frozen
class Script:
    """What one job does."""

    lane: str
    actions: tuple[Action, ...]
    timeout: float = math.inf


@attrs.frozen
class Scenario:
    """A whole run: jobs, lanes, and what befalls it."""

    lanes: tuple[LaneSpec, ...]
    scripts: tuple[Script, ...]
    serial_indices: tuple[int, ...] = ()
    serial: bool = False
    deadline: float = math.inf
    stop_at: float = math.inf
    cancel_at: float = math.inf
    max_live_jobs: int = 256
    start_at: float = 0.0
    """When the run begins; the other instants do not move with it."""

    @property
    def simple(self) -> bool:
        """Whether every job is exactly one call on its own lane and nothing cuts or gates the run."""
        return (
            not self.serial_indices
            and not self.serial
            and not self.start_at
            and min(self.deadline, self.stop_at, self.cancel_at) == math.inf
            and all(
                len(script.actions) == 1
                and isinstance(script.actions[0], Call)
                and script.actions[0].lane == script.lane
                for script in self.scripts
            )
        )


def run_scenario(scenario: Scenario) -> Trace:
    """Run a scenario in a Trio run of its own and return what was seen.

    Example:
        >>> lane = LaneSpec("a", width=1)
        >>> trace = run_scenario(Scenario((lane,), (Script("a", (Call("a", 2),)),) * 3))
        >>> [span.started_at for span in trace.calls]
        [0.0, 2.0, 4.0]
    """
    return run_side_by_side([scenario])[0]


def run_side_by_side(scenarios: Sequence[Scenario]) -> list[Trace]:
    """Run several scenarios at once on the lanes of the first.

    The sequence numbers of their traces are of one series, so that the traces can be compared. What the
    lanes say of themselves belongs to all runs together; it is sampled only where there is one.
    """
    return run_virtual(_run_all, scenarios)


async def _run_all(scenarios: Sequence[Scenario]) -> list[Trace]:
    lanes, ticks = Lanes(scenarios[0].lanes), itertools.count(1)
    recorders = [Recorder(ticks) for _ in scenarios]
    ended_at: dict[int, float] = {}

    async def run(position: int) -> None:
        await _run(scenarios[position], recorders[position], lanes)
        ended_at[position] = trio.current_time()

    living = trio.lowlevel.current_statistics().tasks_living
    async with trio.open_nursery() as world:
        if len(scenarios) == 1:
            world.start_soon(_sample, recorders[0], lanes)
        async with trio.open_nursery() as runs:
            for position in range(len(scenarios)):
                runs.start_soon(run, position)
        world.cancel_scope.cancel("every run is over")
    left_over = _left_over(lanes)
    if trio.lowlevel.current_statistics().tasks_living != living:
        left_over.append("tasks")
    return [
        Trace(
            size=len(scenario.scripts),
            lanes=scenarios[0].lanes,
            serial=frozenset(
                range(len(scenario.scripts)) if scenario.serial else scenario.serial_indices
            ),
            timeouts=[script.timeout for script in scenario.scripts],
            max_live_jobs=scenario.max_live_jobs,
            deadline=scenario.deadline,
            stopped_at=scenario.stop_at,
            cancelled_at=scenario.cancel_at,
            ended_at=ended_at[position],
            bodies=recorder.bodies,
            calls=recorder.calls,
            waits=recorder.waits,
            emissions=recorder.emissions,
            samples=recorder.samples,
            events=recorder.events,
            left_over=left_over,
        )
        for position, (scenario, recorder) in enumerate(zip(scenarios, recorders, strict=True))
    ]


async def _run(scenario: Scenario, recorder: Recorder, lanes: Lanes) -> None:
    jobs = [
        Job(index, script.lane, script, script.timeout)
        for index, script in enumerate(scenario.scripts)
    ]
    plan = Plan.of(jobs, serial_indices=scenario.serial_indices, serial=scenario.serial)
    stop = trio.Event()

    async def perform(job: Job[Script], calls: Calls[Script]) -> int:
        with recorder.body(job.index, job.lane):
            for action in job.payload.actions:
                await _act(recorder, calls, job.index, action)
            return job.index

    await trio.sleep_until(scenario.start_at)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_set_at, stop, scenario.stop_at)
        with trio.move_on_at(scenario.cancel_at):
            await run_plan(
                plan,
                perform,
                lanes=lanes,
                emit=recorder.emit,
                deadline=scenario.deadline,
                stop=stop,
                observe=recorder.events.append,
                max_live_jobs=scenario.max_live_jobs,
            )
        nursery.cancel_scope.cancel("the run is over")


async def _act(recorder: Recorder, calls: Calls[Script], index: int, action: Action) -> None:
    match action:
        case Pause(duration):
            await trio.sleep(duration)
        case Call():
            await _call(recorder, calls, index, action)
        case Together(several):
            async with trio.open_nursery() as nursery:
                for call in several:
                    nursery.start_soon(_call, recorder, calls, index, call)


async def _call(recorder: Recorder, calls: Calls[Script], index: int, call: Call) -> None:
    async def send() -> None:
        with recorder.call(wait, call.lane):
            await trio.sleep(call.duration)
            if call.fails:
                msg = f"job {index} was told to fail"
                raise ScriptedError(msg)

    with trio.move_on_after(call.patience), recorder.asking(index) as wait:
        await calls(call.lane, send)


async def _set_at(event: trio.Event, at: float) -> None:
    await trio.sleep_until(at)
    event.set()


async def _sample(recorder: Recorder, lanes: Lanes) -> None:
    for second in range(_SAMPLES):  # bounded, so that a deadlock is still seen at once
        await trio.sleep_until(second + _SAMPLE_OFFSET)
        recorder.sample(lanes)


def _left_over(lanes: Lanes) -> list[str]:
    found = [
        f"lane {name} has {lane.in_flight} in flight, in line: {lane.in_line}, "
        f"{len(lane.followers)} crews"
        for name, lane in lanes.items()
        if lane.in_flight or lane.in_line or lane.followers
    ]
    if not lanes.gate.idle:
        found.append("somebody in the serial gate")
    return found

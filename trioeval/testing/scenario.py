"""Scripted runs: what every job does and how long it takes, run by the kernel on a virtual clock."""

import math
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

    @property
    def simple(self) -> bool:
        """Whether every job is exactly one call on its own lane and nothing cuts or gates the run."""
        return (
            not self.serial_indices
            and not self.serial
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
    return run_virtual(_run, scenario)


async def _run(scenario: Scenario) -> Trace:
    recorder, lanes = Recorder(), Lanes(scenario.lanes)
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

    async def world() -> None:
        """What befalls the run from outside, and who looks at it."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_set_at, stop, scenario.stop_at)
            nursery.start_soon(_sample, recorder, lanes)

    living = trio.lowlevel.current_statistics().tasks_living
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world)
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
        ended_at = trio.current_time()
        nursery.cancel_scope.cancel("the run is over")
    left_over = _left_over(lanes)
    if trio.lowlevel.current_statistics().tasks_living != living:
        left_over.append("tasks")
    return Trace(
        size=len(jobs),
        lanes=scenario.lanes,
        serial=frozenset(range(len(jobs)) if scenario.serial else scenario.serial_indices),
        timeouts=[job.timeout for job in jobs],
        deadline=scenario.deadline,
        stopped_at=scenario.stop_at,
        cancelled_at=scenario.cancel_at,
        ended_at=ended_at,
        bodies=recorder.bodies,
        calls=recorder.calls,
        waits=recorder.waits,
        emissions=recorder.emissions,
        samples=recorder.samples,
        events=recorder.events,
        left_over=left_over,
    )


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

    with recorder.asking(index) as wait:
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
    if not lanes.gate.open:
        found.append("the serial gate is closed")
    return found

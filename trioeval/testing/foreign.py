"""A recorded run of a foreign scheduler, which knows nothing of this kernel, through `send` and `emit`."""

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import trio
import trio.testing

from trioeval.errors import CallError, Fault, leaves
from trioeval.kernel import Done, LaneSpec
from trioeval.testing.scenario import CallScript, JobScript, RunScenario
from trioeval.testing.trace import RequestedCall, RunTrace, TraceRecorder, TraceSpan
from trioeval.testing.virtual import run_virtual

_GRAIN = 2**20
_SLOWEST = 4.0
_SLACK = 60.0
# A scheduler hangs if it needs more than this multiple of the serial time, although it may poll.


@attrs.frozen
class ForeignJob:
    """The job as a scheduler sees it."""

    index: int
    """Its position in the plan, from 0; its result is emitted with it."""
    lane: str
    """The name of the lane of its calls."""
    timeout: float = math.inf
    """Seconds that its calls may be in flight, all together; waits do not count."""


@attrs.frozen
class ForeignReply:
    """The result of a successful call of a job; equal only to itself in a run."""

    index: int


Send: TypeAlias = Callable[[ForeignJob], Awaitable[ForeignReply]]
"""Makes a request of a job: takes some seconds, then returns, or raises a `CallError`."""

Emit: TypeAlias = Callable[[int, object], Awaitable[None]]
"""Takes the result of the job with this index: the `ForeignReply`, or any object if there is none."""

Scheduler: TypeAlias = Callable[..., Awaitable[object]]
"""`await scheduler(jobs, lanes, send, emit, deadline=..., stop=...)` runs all jobs.

It returns when all results are emitted. Arguments for capabilities that it lacks are not passed.
"""


@attrs.frozen
class ForeignRun:
    """The record of one run."""

    trace: RunTrace
    """Its calls are requests; its bodies span from the first request of a job to the last."""
    results: Sequence[tuple[int, object]]
    fault: str | None
    """The failure of the scheduler itself, if it failed."""


def run_foreign(
    make: Callable[[], Scheduler], scenario: RunScenario, terms: frozenset[str] = frozenset()
) -> ForeignRun:
    """Run a fresh scheduler on the virtual clock.

    Args:
        make: Returns the scheduler.
        scenario: Each job makes calls on its own lane, one at a time.
        terms: The arguments among `deadline` and `stop` to pass.
    """
    return run_virtual(_run, make, scenario, terms)


def call_of(script: JobScript) -> CallScript:
    """Return the call of a job, which makes one request or several."""
    return next(action for action in script.actions if isinstance(action, CallScript))


async def _run(
    make: Callable[[], Scheduler], scenario: RunScenario, terms: frozenset[str]
) -> ForeignRun:
    recorder = TraceRecorder()
    results: list[tuple[int, object]] = []
    jobs = [
        ForeignJob(index, call_of(script).lane, script.timeout)
        for index, script in enumerate(scenario.scripts)
    ]
    send, emit = _make_send(scenario, recorder), _make_emit(recorder, results)
    stop = trio.Event()
    given: Mapping[str, Any] = {"deadline": scenario.deadline, "stop": stop}
    given = {name: value for name, value in given.items() if name in terms}
    fault, patience = None, _SLACK + _SLOWEST * sum(_one_by_one(scenario))
    async with trio.open_nursery() as world:
        if scenario.stop_at < math.inf:
            world.start_soon(_set_at, stop, scenario.stop_at)
        living = trio.lowlevel.current_statistics().tasks_living
        with (
            trio.move_on_after(patience) as in_time,
            trio.move_on_at(scenario.cancel_at),
        ):
            try:
                await make()(jobs, scenario.lanes, send, emit, **given)
            except Exception as error:  # noqa: BLE001 - any error of foreign code is reported
                fault = "it raised " + "; ".join(
                    f"{type(leaf).__name__}: {leaf}" for leaf in leaves(error)
                )
        if in_time.cancel_called:
            fault = f"it had not returned after {patience:g} s"
        ended_at = trio.current_time()
        await trio.testing.wait_all_tasks_blocked()
        # The task that sets `stop` was counted, and is over if it has done so.
        alive = trio.lowlevel.current_statistics().tasks_living - living + stop.is_set()
        world.cancel_scope.cancel("the run is over")
    calls = [_rounded(span) for span in recorder.calls]
    trace = RunTrace(
        scenario=scenario,
        ended_at=_instant(ended_at),
        bodies=list(_bodies(calls)),
        calls=calls,
        requests=recorder.requests,
        emissions=[attrs.evolve(one, at=_instant(one.at)) for one in recorder.emissions],
        samples=(),
        events=(),
        left_over=[f"{alive} tasks"] if alive > 0 else [],
    )
    return ForeignRun(trace, results, fault)


def _make_send(scenario: RunScenario, recorder: TraceRecorder) -> Send:
    made: Counter[int] = Counter()

    async def send(job: ForeignJob) -> ForeignReply:
        call, number = call_of(scenario.scripts[job.index]), made[job.index]
        made[job.index] += 1
        attempt = call.attempt(number)
        request = RequestedCall(job.index, call.lane, job.index, trio.current_time())
        with recorder.call(request, call.lane, number):
            await trio.sleep(attempt.duration)
            if attempt.fault is not None:
                msg = f"request {number + 1} of job {job.index} was configured to fail"
                raise CallError(attempt.fault, msg, retry_after=attempt.retry_after)
            if call.fails:
                raise CallError(Fault.REFUSED, f"job {job.index} was configured to fail")
        return ForeignReply(job.index)

    return send


def _make_emit(recorder: TraceRecorder, results: list[tuple[int, object]]) -> Emit:
    async def emit(index: int, result: object) -> None:
        results.append((index, result))
        now = trio.current_time()
        await recorder.emit(Done(index, now, now, waited=0.0, calls=1, value=result))
        await trio.lowlevel.checkpoint()

    return emit


async def _set_at(event: trio.Event, at: float) -> None:
    await trio.sleep_until(at)
    event.set()


def _rounded(span: TraceSpan) -> TraceSpan:
    return attrs.evolve(
        span,
        asked_at=_instant(span.asked_at),
        started_at=_instant(span.started_at),
        ended_at=_instant(span.ended_at),
    )


def _instant(at: float) -> float:
    """Return the instant without the rounding errors of arithmetic, so that instants can be compared exactly.

    Durations in scenarios are multiples of a sixteenth of a second; back-offs are arbitrary.
    """
    return round(at * _GRAIN) / _GRAIN if at < math.inf else at


def _bodies(calls: Sequence[TraceSpan]) -> Iterator[TraceSpan]:
    first = {span.index: span for span in reversed(calls)}
    for span in {span.index: span for span in calls}.values():
        first_span = first[span.index]
        yield attrs.evolve(
            span, started_at=first_span.started_at, started=first_span.started, call=-1
        )


def _one_by_one(scenario: RunScenario) -> Iterator[float]:
    """Yield the seconds that each job takes at most if nothing else runs."""
    lanes: dict[str, LaneSpec] = {lane.name: lane for lane in scenario.lanes}
    for script in scenario.scripts:
        call = call_of(script)
        lane = lanes[call.lane]
        requests = call.attempts or (call.attempt(0),)
        for request in requests:
            yield request.duration + lane.min_gap + (60 / lane.rpm if lane.rpm else 0.0)
            yield (request.retry_after or 0.0) + _SLACK * (request.fault is not None)

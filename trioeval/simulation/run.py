"""A suite on a virtual clock: the real kernel, lanes, order, retries, budget and deadline.

The providers are models. What a row does between its calls is left out, as it takes no time on the clock:
rendering, grading by code, and the store. Hooks and tools of models are not simulated either. Shared limits
are those of the suite in memory, as if no other program used them.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import attrs
import trio

from trioeval.errors import CallError, Fault
from trioeval.evaluation.judging import WIDTH
from trioeval.evaluation.metering import CallEstimate, CallMeter, meter_of
from trioeval.kernel import (
    Budget,
    Calls,
    Job,
    Lanes,
    LaneSpec,
    Metered,
    NotRun,
    Outcome,
    WaitReason,
    run_plan,
)
from trioeval.limits.memory import MemoryLimits
from trioeval.limits.model import LimitState
from trioeval.report.activity import Activity
from trioeval.simulation.clock import VirtualClock
from trioeval.simulation.datasets import SimulatedDataset
from trioeval.simulation.model import ProviderModel, SampledCall, ServerModel, draw, draw_rounds
from trioeval.simulation.rows import JudgeQuestions, SimulatedRow, SimulatedTask, TestCalls
from trioeval.simulation.suite import SimulatedSuite
from trioeval.usage import Usage

_UNUSED = ProviderModel(calls=(SampledCall(0.0),))
_DEADLOCK_AFTER = 1e12
"""Virtual seconds; reached at once when nothing can happen any more."""


@attrs.frozen(kw_only=True)
class LaneForecast:
    """The course of one lane."""

    name: str
    spec: LaneSpec
    requests: int
    refused: int
    """Requests that the server refused because there were too many."""
    failed: int
    """Requests that failed otherwise."""
    tokens: int
    money: float
    waits: Mapping[str, float]
    """Seconds waited, by reason; see `trioeval.kernel.WaitReason`. Waits for slots are part of `full`."""
    full: float
    """Seconds in which all of its slots were in use, to the length of a bucket."""
    bucket_s: float
    buckets: Sequence[Sequence[Any]]
    """As in `trioeval.report.activity.BUCKET_FIELDS`, one for each `bucket_s` seconds."""


@attrs.frozen(kw_only=True)
class Forecast:
    """The result of a simulation."""

    rows: int
    """Simulated rows, and comparisons."""
    done: int
    failed: int
    """Those that failed, or exceeded their timeout."""
    not_run: int
    """Those that the deadline or the budget cut off."""
    makespan: float
    """Seconds from the start to the last outcome."""
    lanes: Mapping[str, LaneForecast]

    @property
    def requests(self) -> int:
        """Requests on all lanes."""
        return sum(lane.requests for lane in self.lanes.values())

    @property
    def refused(self) -> int:
        """Refused requests on all lanes."""
        return sum(lane.refused for lane in self.lanes.values())

    @property
    def retried(self) -> int:
        """Requests that failed or were refused, on all lanes."""
        return sum(lane.refused + lane.failed for lane in self.lanes.values())

    @property
    def tokens(self) -> int:
        """Tokens on all lanes."""
        return sum(lane.tokens for lane in self.lanes.values())

    @property
    def money(self) -> float:
        """US dollars on all lanes."""
        return math.fsum(lane.money for lane in self.lanes.values())

    @property
    def waits(self) -> Mapping[str, float]:
        """Seconds waited on all lanes, by reason, the longest first."""
        sums: dict[str, float] = {}
        for lane in self.lanes.values():
            for why, seconds in lane.waits.items():
                sums[why] = sums.get(why, 0.0) + seconds
        return dict(sorted(sums.items(), key=lambda item: -item[1]))


def never() -> bool:
    """Return False: nothing stops a simulation by default."""
    return False


def simulate(suite: SimulatedSuite, *, is_stopped: Callable[[], bool] = never) -> Forecast:
    """Run a suite on a virtual clock. Equal arguments give equal results. Not inside a Trio run.

    Args:
        suite: The suite.
        is_stopped: Called after each row. Once it returns True the simulation ends, and its result is that
            of the rows so far.

    Raises:
        RuntimeError: Nothing can happen any more although rows are left; a fault of trioeval.
    """
    clock = VirtualClock()

    async def main() -> Forecast:
        try:
            with trio.fail_after(_DEADLOCK_AFTER):
                return await _SuiteSimulation(suite, clock, is_stopped).run()
        except trio.TooSlowError:
            msg = "the simulation stands still; please report this fault of trioeval"
            raise RuntimeError(msg) from None

    with seeded_scheduler(suite.seed):
        return trio.run(main, clock=clock)


@contextmanager
def seeded_scheduler(seed: int) -> Iterator[None]:
    """Seed the generator by which Trio orders the tasks of one instant, and restore it afterwards.

    No public name exists for it; without it, only figures of single instants would vary.
    """
    generator = getattr(trio._core._run, "_r", None)  # noqa: SLF001
    if not isinstance(generator, Random):
        yield
        return
    state = generator.getstate()
    generator.seed(seed)
    try:
        yield
    finally:
        generator.setstate(state)


@attrs.define(eq=False, repr=False)
class _SuiteSimulation:
    """One simulation."""

    suite: SimulatedSuite
    clock: VirtualClock
    is_stopped: Callable[[], bool]
    scope: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    lanes: Lanes = attrs.field(init=False)
    activity: Activity = attrs.field(init=False)
    servers: dict[str, ServerModel] = attrs.field(init=False)
    """The limited servers, by lane."""
    budget: Budget | None = attrs.field(init=False)
    counts: dict[str, int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        suite = self.suite
        specs = [
            attrs.evolve(spec, name=name)
            for spec in suite.specs
            for name in suite.lanes_of(spec.name)
        ]
        rng = Random(suite.seed).random  # noqa: S311 - a simulation keeps no secrets
        shared = MemoryLimits(LimitState(limit=limit) for limit in suite.shared)
        permits = {
            name: shared.permits(name, keys)
            for lane, keys in suite.lane_limits.items()
            for name in suite.lanes_of(lane)
        }
        self.lanes = Lanes(specs, rng=rng, permits=permits, cap=suite.cap)
        lanes = self.lanes
        self.activity = Activity(0.0, lambda name: lanes[name].statistics().limit)
        self.servers = {
            name: ServerModel(limits)
            for lane, limits in suite.limits.items()
            if not limits.is_unlimited
            for name in suite.lanes_of(lane)
        }
        given = suite.budget
        self.budget = None if given is None else Budget(given.requests, given.tokens, given.usd)
        self.counts = dict.fromkeys(("done", "failed", "not_run"), 0)

    async def run(self) -> Forecast:
        over = {task.part.id: trio.Event() for task in self.suite.tasks}

        async def perform(task: SimulatedTask | SimulatedDataset) -> None:
            for needed in task.part.depends_on:
                await over[needed].wait()
            if isinstance(task, SimulatedDataset):
                await self._run_dataset(task)
            else:
                await self._run_task(task)
            over[task.part.id].set()

        with self.scope:
            async with trio.open_nursery() as nursery:
                for task in self.suite.tasks:
                    nursery.start_soon(perform, task)
        now = self.clock.now
        return Forecast(
            rows=sum(self.counts.values()), makespan=now, lanes=self._forecasts(now), **self.counts
        )

    async def _run_task(self, task: SimulatedTask) -> None:
        options, prepared = task.prepared.suite.evaluate_options, task.prepared
        lanes = [self.suite.lanes_of(lane) for lane in prepared.lane_names]
        limits = prepared.suite.settings.rows_at_once(prepared.suite.limits)
        is_questions = prepared.suite.settings.type == "question_eval"
        body = _RowSimulation(_TaskSimulation(self, task, lanes), task)
        summary = await run_plan(
            task.plan(lanes),
            body.perform,
            lanes=self.lanes,
            emit=self._on_outcome,
            never_ran=_ignore,
            deadline=self.suite.deadline,
            observe=self.activity.observe,
            max_live_jobs=limits if is_questions else options.max_live_jobs,
            salvage_rounds=options.salvage_rounds,
            budget=self.budget,
            pause_after=math.inf,
        )
        self.counts["done"] += summary.done
        self.counts["failed"] += summary.failed + summary.timed_out
        cut = summary.interrupted + summary.blocked + summary.not_run
        self.counts["not_run"] += cut

    async def _run_dataset(self, task: SimulatedDataset) -> None:
        """Build a dataset in memory.

        Raises:
            RuntimeError: Its rows cannot be made; a fault of trioeval.
        """
        prepared = task.prepared
        body = _TaskSimulation(
            self, task, [self.suite.lanes_of(one) for one in prepared.lane_names]
        )

        async def ask(place: int, number: int, calls: Calls[Any]) -> None:
            if self.is_stopped():
                self.scope.cancel("the simulation is stopped")
            await body.ask(place, number, calls)

        result = await task.run(body.lanes, ask).build(
            self.lanes,
            deadline=self.suite.deadline,
            observe=self.activity.observe,
            budget=self.budget,
            max_live_jobs=prepared.suite.evaluate_options.max_live_jobs,
        )
        if result.error is not None:
            msg = f"a dataset cannot be simulated; please report this fault of trioeval: {result.error}"
            raise RuntimeError(msg)
        self.counts["done"] += result.written
        self.counts["failed"] += sum(result.dropped.values())
        self.counts["not_run"] += sum(result.not_run.values())

    async def _on_outcome(self, _outcome: Outcome[None]) -> None:  # noqa: ASYNC124 - a question does not wait
        if self.is_stopped():
            self.scope.cancel("the simulation is stopped")

    def _forecasts(self, now: float) -> Mapping[str, LaneForecast]:
        found = {}
        for name, lane in self.lanes.by_name.items():
            activity = self.activity.lane(name)
            if not activity.calls:
                continue
            known = activity.json(now)
            found[name] = LaneForecast(
                name=name,
                spec=lane.spec,
                requests=activity.calls,
                refused=activity.refused,
                failed=activity.failed - activity.refused,
                tokens=activity.tokens,
                money=activity.money,
                waits={
                    why: seconds
                    for why, seconds in known["waits"].items()
                    # Reported only for some rows, depending on the order of tasks within an instant.
                    if seconds and why != WaitReason.SLOT.value
                },
                full=known["bucketS"]
                * sum(bucket[0] >= (bucket[1] or math.inf) for bucket in known["buckets"]),
                bucket_s=known["bucketS"],
                buckets=known["buckets"],
            )
        return found


@attrs.define(eq=False, repr=False)
class _TaskSimulation:
    """The requests of one task."""

    whole: _SuiteSimulation
    task: SimulatedTask | SimulatedDataset
    lanes: Sequence[Sequence[str]]
    """The lanes of each provider, including judges."""
    meter: CallMeter = attrs.field(init=False)
    models: Sequence[ProviderModel] = attrs.field(init=False)
    _bounds: Sequence[tuple[int, float]] = attrs.field(init=False)
    """The bound of the tokens of a prompt of each provider: a constant, and a multiple of its real tokens."""
    _learns: bool = attrs.field(init=False)
    """True if reservations matter, so that they are learned from replies."""
    _replies: dict[int, Metered[None]] = attrs.field(init=False, factory=dict)
    """Replies by the identity of their sampled call; a million rows share a thousand."""

    def __attrs_post_init__(self) -> None:
        prepared, suite = self.task.prepared, self.whole.suite
        metering = [spec.metering for spec in prepared.specs]
        # The lanes of further keys have the settings of the first.
        self.meter = meter_of(
            prepared.suite, metering, prepared.lane_names, prepared.lane_limits, suite.specs
        )
        self.models = [
            suite.models.get(
                spec.name, _UNUSED
            )  # a provider of the suite that this task does not call
            for spec in prepared.specs
        ]
        self._learns = (
            suite.budget is not None
            or bool(suite.lane_limits)
            or any(spec.tpm is not None for spec in suite.specs)
        )
        self._bounds = [self._prompt_bound(place) for place in range(len(prepared.specs))]

    async def ask(self, place: int, index: int, calls: Calls[Any], *, ahead: bool = False) -> None:
        """Make a request to a provider.

        Args:
            place: The index of the provider.
            index: The number of the row, or of the cell, that pays.
            calls: The handle of its job.
            ahead: Whether it goes before new requests.
        """
        lanes = self.lanes[place]
        lane = lanes[index % len(lanes)] if len(lanes) > 1 else lanes[0]
        if not self._learns:  # reservations have no effect
            await calls(lane, self._send, place, lane, index, calls, None, ahead=ahead)
            return
        bound, factor = self._bounds[place]
        if factor:
            drawn = draw(self.models[place], self.whole.suite.seed, index, calls.count + 1)
            bound += math.ceil(drawn.call.prompt_tokens * factor)
        estimate = self.meter.expect(place, bound)
        await calls(
            lane,
            self._send,
            place,
            lane,
            index,
            calls,
            estimate,
            tokens=estimate.tokens,
            money=estimate.money,
            ahead=ahead,
        )

    async def _send(
        self,
        place: int,
        lane: str,
        index: int,
        calls: Calls[Any],
        estimate: CallEstimate | None,
    ) -> Metered[None]:
        clock, server = self.whole.clock, self.whole.servers.get(lane)
        model = self.models[place]
        drawn = draw(model, self.whole.suite.seed, index, calls.count)
        call, hint = drawn.call, None
        if drawn.is_refused:
            await clock.sleep(model.refusal_latency)
            raise CallError(Fault.RATE_LIMITED, "too many requests")
        if server is None:
            await clock.sleep(call.latency)
        else:
            if (refusal := server.refuse(clock.now, call.tokens)) is not None:
                if model.refusal_latency:
                    await clock.sleep(model.refusal_latency)
                raise refusal
            hint = server.hint(clock.now)  # services write these headers when they admit a request
            server.in_flight += 1
            try:
                await clock.sleep(call.latency)
            finally:  # also when the call was cut off
                server.in_flight -= 1
        if drawn.fails:
            raise CallError(Fault.TRANSIENT, "the provider failed")
        if estimate is not None:
            usage = Usage(prompt=call.prompt_tokens, completion=call.reply_tokens)
            self.meter.learn(place, estimate, usage)
        if hint is not None:
            return Metered(None, tokens=call.tokens, money=call.money, hint=hint)
        return self._reply(call)

    def _reply(self, call: SampledCall) -> Metered[None]:
        found = self._replies.get(id(call))
        if found is None:
            found = Metered(None, tokens=call.tokens, money=call.money)
            self._replies[id(call)] = found
        return found

    def _prompt_bound(self, place: int) -> tuple[int, float]:
        model, prepared = self.models[place], self.task.prepared
        known = prepared.specs[place].metering
        is_judge = place >= len(prepared.steps.providers)
        texts = () if is_judge else self.task.prompts(place)
        real = sum(call.prompt_tokens for call in model.calls) / len(model.calls)
        if not texts or not real:  # the prompts of judges are only known after a reply
            return known.overhead, 1.0
        mean = sum(known.count(text) for text in texts) / len(texts)
        return known.overhead, mean / real


@attrs.define(eq=False, repr=False)
class _RowSimulation:
    """The body of the jobs of one task with rows."""

    requests: _TaskSimulation
    task: SimulatedTask
    width: int = attrs.field(init=False)
    """Maximum number of concurrent assertions of one row that call judges."""

    _is_agent: bool = attrs.field(init=False)

    @_is_agent.default
    def _find_agent(self) -> bool:
        return self.task.is_agent

    @width.default
    def _find_width(self) -> int:
        return self.task.prepared.suite.evaluate_options.assertions_max_concurrency or WIDTH

    async def perform(self, job: Job[SimulatedRow], calls: Calls[SimulatedRow]) -> None:
        """Make the calls of a row: its provider's, then those of its judges."""
        row = job.payload
        known = self.task.calls_of(row.place)
        if row.compares:
            await self._judge(known.comparisons, job, calls)
            return
        if known.asks and row.user is not None:
            await self._converse(row.user, known, job, calls)
        elif known.asks and self._is_agent:
            await self._work(row.provider, job, calls)
        elif known.asks:
            await self.requests.ask(row.provider, job.index, calls)
        if known.judges:
            await self._judge(known.judges, job, calls)
        if not calls.count:  # every body must have a checkpoint
            await trio.lowlevel.checkpoint()

    async def _converse(
        self, user: int, known: TestCalls, job: Job[SimulatedRow], calls: Calls[SimulatedRow]
    ) -> None:
        """Make the calls of a conversation. One that has begun goes before new ones, as in a run."""
        provider = job.payload.provider
        if known.begins:
            await self.requests.ask(provider, job.index, calls)
        for _ in range(known.turns):
            for place in (user, provider):
                await self.requests.ask(place, job.index, calls, ahead=calls.count > 0)

    async def _judge(
        self,
        questions: Sequence[JudgeQuestions],
        job: Job[SimulatedRow],
        calls: Calls[SimulatedRow],
    ) -> None:
        if len(questions) == 1:
            await self._consult(questions[0], job, calls)
            return
        places = trio.CapacityLimiter(self.width)

        async def consult(question: JudgeQuestions) -> None:
            with calls.waiting():
                await places.acquire()
            try:
                await self._consult(question, job, calls)
            finally:
                places.release()

        async with trio.open_nursery() as nursery:
            for question in questions:
                nursery.start_soon(consult, question)

    async def _consult(
        self, question: JudgeQuestions, job: Job[SimulatedRow], calls: Calls[SimulatedRow]
    ) -> None:
        judge, count = question
        for _ in range(count):
            await self.requests.ask(judge, job.index, calls)

    async def _work(
        self, provider: int, job: Job[SimulatedRow], calls: Calls[SimulatedRow]
    ) -> None:
        """Make the requests of an agent for its case, one after another."""
        seed = self.requests.whole.suite.seed
        number = draw_rounds(self.requests.models[provider], seed, job.index)
        for nth in range(number):
            await self.requests.ask(provider, job.index, calls, ahead=nth > 0)


async def _ignore(_jobs: range, _outcome: NotRun) -> None:
    """Discard the outcomes of jobs that were never started."""

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

from trioeval.errors import CallError, Fault, UsageError
from trioeval.evaluation.judging import WIDTH
from trioeval.evaluation.metering import CallEstimate, CallMeter, meter_of
from trioeval.evaluation.prepared import PreparedSuite
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
from trioeval.limits import SharedLimit
from trioeval.limits.backend import definitions_of
from trioeval.limits.limits_file import read_limits
from trioeval.limits.memory import MemoryLimits
from trioeval.limits.model import LimitKey, LimitState
from trioeval.report.activity import Activity
from trioeval.simulation.clock import VirtualClock
from trioeval.simulation.model import ProviderModel, SampledCall, ServerLimits, ServerModel, draw
from trioeval.simulation.rows import (
    JudgeQuestions,
    SimulatedRow,
    SimulatedTask,
    TestCalls,
    simulated_tasks,
)
from trioeval.suite.model import BudgetSettings
from trioeval.usage import Usage

_DEADLOCK_AFTER = 1e12
"""Virtual seconds; reached at once when nothing can happen any more."""


@attrs.frozen(kw_only=True)
class SimulatedSuite:
    """Everything that a simulation depends on."""

    tasks: Sequence[SimulatedTask]
    specs: Sequence[LaneSpec]
    """The lanes."""
    models: Mapping[str, ProviderModel]
    """The model of each provider and judge, by its label or id."""
    limits: Mapping[str, ServerLimits] = attrs.field(factory=dict)
    """The limits of the server of each lane; other lanes have an unlimited one."""
    keys: Mapping[str, int] = attrs.field(factory=dict)
    """Lanes whose rows are divided between several keys, each with a lane and limits of its own."""
    cap: int | None = None
    """Calls in flight on all lanes together."""
    budget: BudgetSettings | None = None
    deadline: float = math.inf
    """Seconds after which the run is cut."""
    shared: Sequence[SharedLimit] = ()
    """The limits that its lanes share with other programs, which are assumed to be idle."""
    lane_limits: Mapping[str, tuple[LimitKey, ...]] = attrs.field(factory=dict)
    """Those of them that the calls of each lane count against."""
    seed: int = 0

    @classmethod
    def of(
        cls,
        prepared: PreparedSuite,
        models: Mapping[str, ProviderModel],
        *,
        limits: Mapping[str, ServerLimits] | None = None,
        seed: int = 0,
    ) -> "SimulatedSuite":
        """Return the simulation of a prepared suite, with its own lanes, budget and deadline.

        Args:
            prepared: The suite.
            models: The model of each provider and judge that it calls, by label or id.
            limits: The limits of some of their servers, by label or id.
            seed: The seed of all random choices.

        Raises:
            SuiteError: A task cannot be simulated.
            UsageError: A provider has no model, or the suite has no provider of a name.
        """
        tasks = simulated_tasks(prepared)
        lanes = {
            spec.name: task.prepared.lane_names[place]
            for task in tasks
            for place, spec in task.called()
        }
        named = {} if limits is None else limits
        if missing := [name for name in lanes if name not in models]:
            raise UsageError(f"provider {missing[0]} has no model")
        if strange := [name for name in (*models, *named) if name not in lanes]:
            raise UsageError(f"the suite calls no provider {strange[0]}: it has {', '.join(lanes)}")
        options, shared = prepared.suite.evaluate_options, shared_limits(prepared)
        known = {limit.key for limit in shared}
        keys = {
            lane: tuple(one for one in own if one.key in known)
            for lane, own in prepared.lane_limits.items()
        }
        return cls(
            tasks=tasks,
            specs=prepared.lane_specs,
            models=models,
            limits={lanes[name]: one for name, one in named.items()},
            cap=options.max_total_concurrency,
            budget=options.budget,
            deadline=options.max_eval_time_ms / 1000 if options.max_eval_time_ms else math.inf,
            shared=shared,
            lane_limits={lane: own for lane, own in keys.items() if own},
            seed=seed,
        )

    @property
    def rows(self) -> int:
        """The number of simulated rows."""
        return sum(task.rows for task in self.tasks)

    @property
    def all_rows(self) -> int:
        """The number of rows of the suite."""
        return sum(len(task.prepared.steps) for task in self.tasks)

    def lanes_of(self, lane: str) -> tuple[str, ...]:
        """Return the lanes that replace a lane: itself, or one for each key."""
        keys = self.keys.get(lane, 1)
        return (lane, *(f"{lane}#{number}" for number in range(2, keys + 1)))

    def first(self, most: int) -> "SimulatedSuite":
        """Return the suite with about as many rows, the first ones of each task."""
        if self.rows <= most:
            return self
        share = most / self.rows
        tasks = [task.first(math.ceil(task.rows * share)) for task in self.tasks]
        return attrs.evolve(self, tasks=tasks)


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


def shared_limits(prepared: PreparedSuite) -> Sequence[SharedLimit]:
    """Return the shared limits that a suite defines; in other backends there may be more.

    Raises:
        SuiteError: The file of limits is invalid.
        LimitError: Two of them have the same key.
    """
    settings = prepared.suite.limits
    if settings is None or not prepared.lane_limits:
        return ()
    states = [LimitState(limit=limit) for limit in settings.define or ()]
    if settings.file is not None:
        states += read_limits(settings.file)
    return definitions_of(states)


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

        async def perform(task: SimulatedTask) -> None:
            for needed in task.part.depends_on:
                await over[needed].wait()
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
        body = _TaskSimulation(self, task, lanes)
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
    """The body of the jobs of one task."""

    whole: _SuiteSimulation
    task: SimulatedTask
    lanes: Sequence[Sequence[str]]
    """The lanes of each provider, including judges."""
    meter: CallMeter = attrs.field(init=False)
    models: Sequence[ProviderModel] = attrs.field(init=False)
    width: int = attrs.field(init=False)
    """Maximum number of concurrent assertions of one row that call judges."""
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
        self.models = [suite.models[spec.name] for spec in prepared.specs]
        self.width = prepared.suite.evaluate_options.assertions_max_concurrency or WIDTH
        self._learns = (
            suite.budget is not None
            or bool(suite.lane_limits)
            or any(spec.tpm is not None for spec in suite.specs)
        )
        self._bounds = [self._prompt_bound(place) for place in range(len(prepared.specs))]

    async def perform(self, job: Job[SimulatedRow], calls: Calls[SimulatedRow]) -> None:
        """Make the calls of a row: its provider's, then those of its judges."""
        row = job.payload
        known = self.task.calls_of(row.place)
        if row.compares:
            await self._judge(known.comparisons, job, calls)
            return
        if known.asks and row.user is not None:
            await self._converse(row.user, known, job, calls)
        elif known.asks:
            await self._ask(row.provider, job, calls)
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
            await self._ask(provider, job, calls)
        for _ in range(known.turns):
            for place in (user, provider):
                await self._ask(place, job, calls, ahead=calls.count > 0)

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
            await self._ask(judge, job, calls)

    async def _ask(
        self,
        place: int,
        job: Job[SimulatedRow],
        calls: Calls[SimulatedRow],
        *,
        ahead: bool = False,
    ) -> None:
        lanes = self.lanes[place]
        lane = lanes[job.index % len(lanes)] if len(lanes) > 1 else lanes[0]
        if not self._learns:  # reservations have no effect
            await calls(lane, self._send, place, lane, job.index, calls, None, ahead=ahead)
            return
        bound, factor = self._bounds[place]
        if factor:
            drawn = draw(self.models[place], self.whole.suite.seed, job.index, calls.count + 1)
            bound += math.ceil(drawn.call.prompt_tokens * factor)
        estimate = self.meter.expect(place, bound)
        await calls(
            lane,
            self._send,
            place,
            lane,
            job.index,
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
        calls: Calls[SimulatedRow],
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


async def _ignore(_jobs: range, _outcome: NotRun) -> None:
    """Discard the outcomes of jobs that were never started."""

"""Runs a suite: opens its providers, and gives its rows in order.

The one call that the command line and Trio applications share. Everything that is wrong with a suite is
said before anything is asked of a provider.
"""

import functools
import logging
import math
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

import attrs
import trio

from trioeval.agent.open import AgentTerms, open_agents
from trioeval.columns.events import DatasetEvent
from trioeval.columns.model import ColumnsSettings
from trioeval.columns.open import DatasetsTold, SeedFiles, read_seeds
from trioeval.columns.result import DatasetResult
from trioeval.columns.spec import Rows
from trioeval.errors import ProviderError, UsageError
from trioeval.evaluation.journal import RecordObserver
from trioeval.evaluation.lanes import merge_lane_specs
from trioeval.evaluation.prepared import PreparedSuite, PreparedTask
from trioeval.evaluation.provider_calls import ReplyCache
from trioeval.evaluation.row import Row, RowsLeft, Status
from trioeval.evaluation.task_run import Emit, EmitMany, Observers, TaskRun
from trioeval.grading import KINDS, Kinds
from trioeval.kernel import Budget, Lanes, Observer
from trioeval.kernel.events import guarded
from trioeval.limits.backend import SharedLimits
from trioeval.providers import Provider, Recorder
from trioeval.question_eval.events import QuestionObserver, QuestionRun
from trioeval.question_eval.model import QuestionSettings
from trioeval.run.journal import RunJournal
from trioeval.run.open_task import Terms, check_judge_lanes, open_task
from trioeval.run.prepare import prepare
from trioeval.run.shared_limits import open_suite_limits, permits_of
from trioeval.run.task_graph import TaskOrder, one_at_a_time, run_tasks
from trioeval.suite.model import BudgetSettings, Suite
from trioeval.suite.sources.code import Calls

# Runs a suite that is prepared: opens its tasks, runs them, closes them.
#
# What the front doors have in common: `run_suite`, and those that build datasets.


log = logging.getLogger("trioeval")

OPENED_WITHIN = 60.0
"""Seconds in which all providers of a suite have to be open."""

_ENDED_WITHIN = 5.0
"""Seconds in which processes that are killed have ended."""


@attrs.frozen(kw_only=True)
class RunTerms:
    """How a suite is run, and who is told; as for `trioeval.run.run_suite`."""

    emit: Emit
    emit_many: EmitMany | None
    lanes: Lanes | None
    stop: trio.Event
    observe: Observer | None
    observers: Observers | None
    recorder: Recorder | None
    run_id: str | None
    warn: Callable[[str], None]
    journal: RunJournal | None
    record_observers: Sequence[RecordObserver]
    cache: ReplyCache | None
    refresh_cache: bool
    questions: QuestionObserver | None
    settled: Callable[[PreparedTask], None]
    datasets: DatasetsTold
    agents: AgentTerms


@attrs.frozen
class RunTotals:
    """How a run ended."""

    counts: Mapping[Status, int]
    is_finished: bool
    """Whether nothing is left to be run."""
    duration: float
    """Seconds on the Trio clock."""


def make_lanes(*suites: PreparedSuite, limits: SharedLimits | None = None) -> Lanes:
    """Lanes that serve all of these suites; where two give a lane different limits, the stricter hold.

    Args:
        *suites: Those that share the lanes.
        limits: Who keeps the limits that they share with others, see `open_suite_limits`; with None, calls
            count against none of those.
    """
    specs = merge_lane_specs(prepared.lane_specs for prepared in suites)
    permits = {} if limits is None else permits_of(limits, *suites)
    said = (prepared.suite.evaluate_options.max_total_concurrency for prepared in suites)
    cap = min((one for one in said if one is not None), default=None)
    # Chance, so that programs that share a provider do not come back to it in step.
    return Lanes(specs, rng=Random().random, permits=permits, cap=cap)  # noqa: S311 - no secret


async def run_prepared(prepared: PreparedSuite, how: RunTerms) -> RunTotals:
    """Run a suite. A checkpoint.

    Raises:
        SuiteError: A seed of a dataset cannot be read; nothing was called.
        ProviderError: A provider cannot be opened, or not within `OPENED_WITHIN`; nothing was called.
        LimitError: Whoever keeps the shared limits of the suite cannot be asked; nothing was called.
        DatasetError: A folder of a dataset cannot be used; nothing was called.
        PlanError: A lane is missing, or tasks wait for each other.
        Exception: Whatever `emit` raised; the run is ended for it.
    """
    journal = how.journal
    if journal is None:
        return await _run(prepared, how)
    journal.begin(prepared)
    is_left = False

    def tell(result: DatasetResult, rows: Rows) -> None:
        nonlocal is_left
        is_left = is_left or result.is_left
        journal.dataset_ended(result)
        how.datasets.tell(result, rows)

    datasets = attrs.evolve(how.datasets, tell=tell)
    totals = await _run(prepared, attrs.evolve(how, datasets=datasets))
    return attrs.evolve(totals, is_finished=totals.is_finished and not is_left)


@attrs.define
class JournalEnd:
    """What is written down of a run when it is over."""

    is_finished: bool = False
    """Whether nothing is left to be run."""


@asynccontextmanager
async def ended(journal: RunJournal | None) -> AsyncIterator[JournalEnd]:
    """A block in which a run is under way; whatever ends it, its journal is ended, and the run is free.

    Args:
        journal: Of the run; None where it is not kept.
    """
    end, began_at = JournalEnd(), trio.current_time()
    try:
        yield end
    finally:
        if journal is not None:
            duration = trio.current_time() - began_at
            with trio.move_on_after(_ENDED_WITHIN, shield=True):
                await journal.end(finished=end.is_finished, duration=duration)


async def _run(prepared: PreparedSuite, how: RunTerms) -> RunTotals:
    options = prepared.suite.evaluate_options
    limit_ms = options.max_eval_time_ms
    left = _left(prepared)
    opened = prepared.opened
    seeds = opened if isinstance(opened, SeedFiles) else SeedFiles({})
    has_datasets = any(
        isinstance(part.prepared.suite.settings, ColumnsSettings) for part in prepared.parts
    )
    if has_datasets and opened is not seeds:
        # These may be huge, and have nothing to do with providers.
        read = functools.partial(read_seeds, prepared)
        seeds = await trio.to_thread.run_sync(read, abandon_on_cancel=True)
    # Cancelled while it is opened, a suite would end without its rows: test_interrupts.py.
    with trio.move_on_after(OPENED_WITHIN, shield=True) as opening:
        async with AsyncExitStack() as stack:
            terms = Terms(
                how.recorder,
                how.run_id,
                how.warn,
                how.journal,
                how.record_observers,
                how.cache,
                refresh=how.refresh_cache,
                questions=QuestionRun(how.questions, any(map(_asks_questions, prepared.parts))),
                left=left,
                settled=how.settled,
                datasets=how.datasets,
                seeds=seeds,
                agents=await stack.enter_async_context(
                    open_agents(prepared, how.agents, how.run_id, stop=how.stop, warn=how.warn)
                ),
            )
            tasks = [await open_task(part, stack, terms) for part in prepared.parts]
            lanes = how.lanes
            if lanes is None:
                limits = await stack.enter_async_context(open_suite_limits(prepared, warn=how.warn))
                lanes = make_lanes(prepared, limits=limits)
            opening.shield, opening.deadline = False, math.inf
            started_at = trio.current_time()
            emit, emit_many = how.emit, how.emit_many
            if prepared.tasks:
                emit, emit_many = one_at_a_time(emit, emit_many)
            run = TaskRun(
                emit,
                lanes,
                started_at + (limit_ms / 1000 if limit_ms else float("inf")),
                how.stop,
                how.observe,
                _budget(options.budget),
                how.journal,
                how.record_observers,
                how.observers,
                emit_many,
            )
            check_judge_lanes(prepared, run.lanes)
            terms.questions.begin(trio.current_time())
            try:
                if prepared.tasks:
                    await run_tasks(tasks, TaskOrder.of(prepared.tasks), run, how.warn)
                else:
                    await tasks[0].perform(run, None)
            finally:
                terms.questions.end(trio.current_time())
            duration = trio.current_time() - started_at
    if opening.cancelled_caught:
        msg = f"the providers were not open within {OPENED_WITHIN:g} seconds"
        raise ProviderError("attempt_timeout", msg)
    return RunTotals(run.counts, not run.unended, duration)


async def prepared_of(
    suite: Suite | PreparedSuite | str | os.PathLike[str],
    providers: Mapping[str, Provider] | None,
    kinds: Kinds | None,
    *,
    trusted: bool = True,
    allow_env: Collection[str] = (),
) -> PreparedSuite:
    """A suite, prepared if it is not. A checkpoint if files are read.

    Raises:
        SuiteError: As for `prepare`.
        UsageError: As for `trioeval.run.run_suite`.
    """
    if kinds is not None and isinstance(suite, Suite | PreparedSuite):
        raise UsageError("a suite that is loaded has its kinds: give them to `load_suite`")
    if isinstance(suite, PreparedSuite) and (allow_env or not trusted):
        raise UsageError("a suite that is loaded has its trust: give it to `load_suite`")
    if isinstance(suite, PreparedSuite):
        if providers is not None:
            raise UsageError("a prepared suite has its providers: give them to `prepare`")
        return suite
    make = functools.partial(
        prepare,
        suite,
        providers=providers,
        kinds=KINDS if kinds is None else kinds,
        trusted=trusted,
        allow_env=allow_env,
    )
    if isinstance(suite, Suite) and not suite.extensions:
        return make()
    started = Calls()

    def load() -> PreparedSuite:
        with started.noted():
            return make()

    # Files are read, and generators of tests may run: others go on meanwhile.
    try:
        return await trio.to_thread.run_sync(load, abandon_on_cancel=True)
    finally:
        # Of a thread that is left alone no process may stay: test_sources_prompts_code.py.
        with trio.move_on_after(_ENDED_WITHIN, shield=True):
            await trio.to_thread.run_sync(started.end, abandon_on_cancel=True)


def _asks_questions(part: PreparedTask) -> bool:
    return isinstance(part.prepared.suite.settings, QuestionSettings)


def _left(prepared: PreparedSuite) -> Mapping[str, RowsLeft]:
    """What gets the rows of the tasks that others are made of."""
    suites = [part.prepared.suite for part in prepared.parts]
    wanted = {suite.rows_of.task for suite in suites if suite.rows_of is not None}
    for suite in suites:
        wanted |= {source.task for source in suite.settings.sources()}
    return {task: RowsLeft() for task in wanted}


def nobody(_told: object) -> None:
    """Hears what nobody wants to hear."""


def _budget(settings: BudgetSettings | None) -> Budget | None:
    if settings is None:
        return None
    return Budget(settings.requests, settings.tokens, settings.usd)


@attrs.frozen
class SuiteSummary:
    """How a suite ended, in numbers. Every row is in exactly one of the four, kept ones among them."""

    passed: int
    failed: int
    errors: int
    duration: float
    """Seconds on the Trio clock."""
    datasets: tuple[DatasetResult, ...] = ()
    """What became of the datasets that it built, as they were over."""
    not_run: int = 0
    """Rows that were left before their end: they are not among the errors."""

    @property
    def rows(self) -> int:
        """All rows."""
        return self.passed + self.failed + self.errors + self.not_run


async def run_suite(
    suite: Suite | PreparedSuite | str | os.PathLike[str],
    *,
    emit: Emit,
    emit_many: EmitMany | None = None,
    lanes: Lanes | None = None,
    providers: Mapping[str, Provider] | None = None,
    kinds: Kinds | None = None,
    stop: trio.Event | None = None,
    observe: Observer | None = None,
    observers: Observers | None = None,
    recorder: Recorder | None = None,
    run_id: str | None = None,
    warn: Callable[[str], None] | None = None,
    journal: RunJournal | None = None,
    record_observers: Sequence[RecordObserver] = (),
    cache: ReplyCache | None = None,
    refresh_cache: bool = False,
    questions: QuestionObserver | None = None,
    settled: Callable[[PreparedTask], None] | None = None,
    datasets: Callable[[DatasetResult], None] | None = None,
    dataset_events: Callable[[str | None, DatasetEvent], None] | None = None,
    reconcile: bool = False,
    agents: AgentTerms | None = None,
    trusted: bool = True,
    allow_env: Collection[str] = (),
) -> SuiteSummary:
    """Run a suite and emit its rows in index order. A checkpoint.

    Tasks that do not depend on each other run side by side on the same lanes; their rows come in any
    mixture, those of one task in index order.

    Cancelling the surrounding scope ends the calls at once; every row is still emitted, those that were
    not finished as errors that say so.

    Args:
        suite: A suite, a prepared suite, or the path of a suite file.
        emit: Awaited with one row after another, each as soon as all before it in its task are known.
        emit_many: Awaited in place of `emit` with rows that never began, many at once and in their place,
            but for the first ones; None emits each of them.
        lanes: Lanes to run on, shared with other runs; its own if None, which count against the limits of
            the suite. See `make_lanes`.
        providers: Async callables by the id that stands for them in the suite.
        kinds: The assertion types that a suite may use that is loaded here; None is all that are built in.
        stop: When set, no new row starts and those under way run to their end; one that waits for its
            first permit of a shared limit counts as new.
        observe: Told of everything that lanes and jobs do.
        observers: Gives who is told of what the jobs of one task do, by the id of that task and by what
            tells which row a job is for; asked once for each task. What a lane does is told to that of
            the task whose call is concerned.
        recorder: Writes down everything that providers answer; not what is had without asking them.
        run_id: What templates see as `__evalId`.
        warn: Told of what fails without harm, such as an extension behind a row; None logs it.
        journal: Where the suite, calls and rows are written down, each as soon as it ends, and how the run
            ended, whatever ended it: then it can go on at once. A row is emitted when it is safe there.
            Rows that it keeps are not run and not emitted, but counted; replies that it has are not asked
            for again. They count in their rows as if they were asked for now, and use nothing of a budget.
        record_observers: Told of each call and row as soon as it ends, behind the journal.
        cache: Where replies are looked for and kept; None asks for each.
        refresh_cache: Ask for each reply, and keep it in place of the one that is in the cache.
        questions: Told of what becomes of each question of tasks of type `question_eval`, as it happens.
        settled: Told of each task whose tests are the rows of an earlier one, as soon as they are known.
        datasets: Told of each dataset when its task is over, however that ended.
        dataset_events: Told of what happens to datasets, with the ids of their tasks.
        reconcile: Whether a dataset of the run may be another one now than when it was begun: what was made
            of columns that are as they were is kept.
        agents: How tasks of type `agent` are worked on; None keeps their folders only as long as it runs.
        trusted: Whether a suite that is loaded here may run code, see the environment and use keys as it
            likes.
        allow_env: Variables of the environment that templates of an untrusted suite may see.

    Returns:
        How many rows ended in which way.

    Raises:
        SuiteError: The suite is wrong; nothing was called.
        ProviderError: A provider cannot be opened, or not within `OPENED_WITHIN`; nothing was called.
        LimitError: Whoever keeps the shared limits of the suite cannot be asked; nothing was called.
        UsageError: `providers` for a suite that was prepared with its own, `kinds` for one that is loaded,
            `trusted` or `allow_env` as well, or a `journal` whose run is over.
        PlanError: `lanes` lacks a lane that the suite needs, or tasks made in Python wait for each other.
        Exception: Whatever `emit` raised; the run is ended for it.

    Example:
        >>> from trioeval import parse_suite
        >>> async def shout(request):
        ...     return request.prompt.upper()
        >>> async def show(row):
        ...     print(row.output, row.status.value)
        >>> suite = parse_suite(
        ...     {
        ...         "providers": ["shout"],
        ...         "prompts": ["say {{word}}"],
        ...         "tests": [
        ...             {"vars": {"word": "hi"}, "assert": [{"type": "contains", "value": "HI"}]}
        ...         ],
        ...     }
        ... )
        >>> async def main():
        ...     return await run_suite(suite, emit=show, providers={"shout": shout})
        >>> trio.run(main).passed
        SAY HI pass
        1
    """
    built: list[DatasetResult] = []

    def tell(result: DatasetResult, _rows: object) -> None:
        built.append(result)
        if datasets is not None:
            datasets(result)

    async with ended(journal) as end:
        totals = await run_prepared(
            await prepared_of(suite, providers, kinds, trusted=trusted, allow_env=allow_env),
            RunTerms(
                emit=emit,
                emit_many=emit_many,
                lanes=lanes,
                stop=trio.Event() if stop is None else stop,
                observe=guarded(observe),
                observers=observers,
                recorder=recorder,
                run_id=run_id,
                warn=warn or log.warning,
                journal=journal,
                record_observers=record_observers,
                cache=cache,
                refresh_cache=refresh_cache,
                questions=guarded(questions),
                settled=settled or nobody,
                datasets=DatasetsTold(tell=tell, observe=dataset_events, reconcile=reconcile),
                agents=agents or AgentTerms(),
            ),
        )
        end.is_finished = totals.is_finished
    found = totals.counts
    return SuiteSummary(
        found[Status.PASS],
        found[Status.FAIL],
        found[Status.ERROR],
        totals.duration,
        tuple(built),
        found[Status.NOT_RUN],
    )


async def collect(
    suite: Suite | PreparedSuite | str | os.PathLike[str],
    *,
    lanes: Lanes | None = None,
    providers: Mapping[str, Provider] | None = None,
    kinds: Kinds | None = None,
    trusted: bool = True,
    allow_env: Collection[str] = (),
) -> list[Row]:
    """Run a suite and return its rows, `rows[i].index == i`. A checkpoint.

    Of a suite with tasks, the rows of the first task come first, and so on.

    A caller that may cancel it and wants what was finished gives `run_suite` an `emit` of its own. `trusted`
    and `allow_env` are those of `run_suite`.

    Raises:
        SuiteError: The suite is wrong; nothing was called.
    """
    rows: list[Row] = []

    async def keep(row: Row) -> None:  # noqa: ASYNC124 - lists do not wait
        rows.append(row)

    prepared = await prepared_of(suite, providers, kinds, trusted=trusted, allow_env=allow_env)
    await run_suite(prepared, emit=keep, lanes=lanes)
    places = {part.id: place for place, part in enumerate(prepared.parts)}
    return sorted(rows, key=lambda row: places[row.task]) if prepared.tasks else rows

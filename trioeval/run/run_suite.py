"""Runs a suite: opens its providers, and emits its rows in order.

The command line and Trio applications share this call. All problems of a suite are reported before the first
call of a provider.
"""

from __future__ import annotations

import functools
import logging
import math
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import TYPE_CHECKING

import attrs
import trio

from trioeval.columns.options import DatasetOptions
from trioeval.errors import ProviderError, UsageError
from trioeval.evaluation.journal import RecordObserver
from trioeval.evaluation.lanes import merge_lane_specs
from trioeval.evaluation.prepared import PreparedSuite, PreparedTask
from trioeval.evaluation.provider_calls import ReplyCache
from trioeval.evaluation.row import Row, TaskRows
from trioeval.evaluation.status import Status
from trioeval.evaluation.task_run import AdaptTask, Emit, EmitMany, Observers, TaskRun
from trioeval.grading import KINDS, Kinds
from trioeval.kernel import Budget, Lanes, Observer
from trioeval.kernel.events import guarded
from trioeval.loading.load import load_suite
from trioeval.providers import Provider
from trioeval.run.budgets import suite_budget, with_budget
from trioeval.run.journal import RunJournal
from trioeval.run.prepare import prepare
from trioeval.run.shared_limits import open_suite_limits, permits_of
from trioeval.suite.model import BudgetSettings, Suite

if TYPE_CHECKING:
    from trioeval.agent.open import AgentOptions, AgentRunContext
    from trioeval.columns.open import SeedFiles
    from trioeval.columns.result import DatasetResult
    from trioeval.columns.spec import Rows
    from trioeval.limits.backend import SharedLimits
    from trioeval.providers.open import CallRecorder
    from trioeval.question_eval.events import QuestionObserver

# Running of a prepared suite: its tasks are opened, run and closed.
#
# The common part of `run_suite` and of the functions that build datasets.


log = logging.getLogger("trioeval")

OPENED_WITHIN = 60.0
"""The timeout for opening all providers of a suite, in seconds."""

_ENDED_WITHIN = 5.0
"""The timeout for the end of killed processes, in seconds."""


def ignore(_event: object) -> None:
    """Do nothing: the default observer."""


@attrs.frozen(kw_only=True)
class RunOptions:
    """The settings of a run and its observers."""

    emit: Emit
    """Awaited with one row after another, each as soon as all rows before it in its task are known."""
    emit_many: EmitMany | None = None
    """Awaited instead of `emit` with many rows at once that were never started, in their place in the order,
    except for the first ones; None emits each of them."""
    lanes: Lanes | None = None
    """Lanes that are shared with other runs; None makes those of the suite, with its limits."""
    budget: Budget | None = None
    """The budget of all calls, which other runs may share; None is that of the suite."""
    stop: trio.Event = attrs.field(factory=trio.Event)
    """Once it is set, no new row starts and running rows continue to their end."""
    observe: Observer | None = None
    """Called with the events of lanes and jobs."""
    observers: Observers | None = None
    """Returns the observer for the jobs of one task, from the id of the task and a function that maps a job
    to its row; called once for each task."""
    recorder: CallRecorder | None = None
    """Records every provider reply, except cached ones."""
    run_id: str | None = None
    """The value of `__evalId` in templates."""
    warn: Callable[[str], None] = log.warning
    """Called with harmless failures, such as that of an extension after a row."""
    journal: RunJournal | None = None
    """Records the suite, calls and rows, each as soon as it ends, and the end of the run in any case."""
    record_observers: Sequence[RecordObserver] = ()
    """Called with each call and row as soon as it ends, after the journal."""
    cache: ReplyCache | None = None
    """The cache of replies; None requests each reply."""
    refresh_cache: bool = False
    """True if each reply is requested and replaces the one in the cache."""
    questions: QuestionObserver | None = None
    """Called with each event of questions in tasks of type `question_eval`."""
    settled: Callable[[PreparedTask], None] = ignore
    """Called with each task whose tests are the rows of an earlier one, as soon as they are known."""
    datasets: DatasetOptions = attrs.field(factory=DatasetOptions)
    agents: AgentOptions | None = None
    """The settings of tasks of type `agent`; None keeps their folders only during the run."""
    adapt: AdaptTask | None = None
    """Changes each open task before it runs; None leaves them as they are."""


@attrs.frozen
class RunTotals:
    """The totals of a run."""

    counts: Mapping[Status, int]
    is_finished: bool
    """True if everything has been run."""
    duration: float
    """Seconds on the Trio clock."""


def make_lanes(*suites: PreparedSuite, limits: SharedLimits | None = None) -> Lanes:
    """Return lanes that serve all of these suites; if two limit a lane differently, the stricter limit holds.

    Args:
        *suites: The suites that share the lanes.
        limits: Their shared limits, see `open_suite_limits`; with None, calls do not count against them.
    """
    specs = merge_lane_specs(prepared.lane_specs for prepared in suites)
    permits = {} if limits is None else permits_of(limits, *suites)
    caps = (prepared.suite.evaluate_options.max_total_concurrency for prepared in suites)
    cap = min((one for one in caps if one is not None), default=None)
    # Random jitter, so that programs that share a provider do not retry at the same time.
    return Lanes(specs, rng=Random().random, permits=permits, cap=cap)  # noqa: S311 - no secret


async def run_prepared(prepared: PreparedSuite, how: RunOptions) -> RunTotals:
    """Run a suite. A checkpoint.

    Raises:
        SuiteError: A seed of a dataset cannot be read; nothing was called.
        ProviderError: A provider cannot be opened, or not within `OPENED_WITHIN`; nothing was called.
        LimitError: The limit server of the suite is unreachable; nothing was called.
        DatasetError: A folder of a dataset cannot be used; nothing was called.
        PlanError: A lane is missing, or tasks depend on each other in a cycle.
        Exception: Whatever `emit` raised; it ends the run.
    """
    journal = how.journal
    if journal is None:
        return await _run(prepared, how)
    journal.begin(prepared)
    is_left = False

    def on_result(result: DatasetResult, rows: Rows) -> None:
        nonlocal is_left
        is_left = is_left or result.is_left
        journal.dataset_ended(result)
        how.datasets.on_result(result, rows)

    datasets = attrs.evolve(how.datasets, on_result=on_result)
    totals = await _run(prepared, attrs.evolve(how, datasets=datasets))
    return attrs.evolve(totals, is_finished=totals.is_finished and not is_left)


@attrs.define(eq=False, repr=False)
class RunEnd:
    """The final state of a run for its journal."""

    is_finished: bool = False
    """True if everything has been run."""


@asynccontextmanager
async def ended(journal: RunJournal | None) -> AsyncIterator[RunEnd]:
    """Open a block for a run, which ends its journal and releases the run in any case.

    Args:
        journal: The journal of the run; None without one.
    """
    end, began_at = RunEnd(), trio.current_time()
    try:
        yield end
    finally:
        if journal is not None:
            duration = trio.current_time() - began_at
            with trio.move_on_after(_ENDED_WITHIN, shield=True):
                await journal.end(finished=end.is_finished, duration=duration)


async def _run(prepared: PreparedSuite, how: RunOptions) -> RunTotals:
    from trioeval.run.open_task import TaskOptions, check_judge_lanes, open_task
    from trioeval.run.task_graph import TaskOrder, one_at_a_time, run_tasks

    options = prepared.suite.evaluate_options
    limit_ms = options.max_eval_time_ms
    left = _remaining_rows(prepared)
    seeds = await _seeds(prepared) if "columns" in prepared.task_types else None
    questions = None
    if "question_eval" in prepared.task_types:
        from trioeval.question_eval.events import QuestionRun

        questions = QuestionRun(how.questions)
    # If cancelled while it is opened, a suite would end without its rows: test_interrupts.py.
    with trio.move_on_after(OPENED_WITHIN, shield=True) as opening:
        async with AsyncExitStack() as stack:
            terms = TaskOptions(
                how.recorder,
                how.run_id,
                how.warn,
                how.journal,
                how.record_observers,
                how.cache,
                refresh=how.refresh_cache,
                questions=questions,
                left=left,
                settled=how.settled,
                datasets=how.datasets,
                seeds=seeds,
                adapt=how.adapt,
                agents=await _open_agents(prepared, how, stack)
                if "agent" in prepared.task_types
                else None,
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
                how.budget or suite_budget(prepared.suite),
                how.journal,
                how.record_observers,
                how.observers,
                emit_many,
            )
            check_judge_lanes(prepared, run.lanes)
            if questions is not None:
                questions.begin(trio.current_time())
            try:
                if prepared.tasks:
                    await run_tasks(tasks, TaskOrder.of(prepared.tasks), run, how.warn)
                else:
                    await tasks[0].perform(run, None)
            finally:
                if questions is not None:
                    questions.end(trio.current_time())
            duration = trio.current_time() - started_at
    if opening.cancelled_caught:
        msg = f"the providers could not be opened within {OPENED_WITHIN:g} seconds"
        raise ProviderError("attempt_timeout", msg)
    return RunTotals(run.counts, not run.interrupted_rows, duration)


async def _seeds(prepared: PreparedSuite) -> SeedFiles:
    from trioeval.columns.open import SeedFiles, read_seeds

    if isinstance(prepared.opened, SeedFiles):
        return prepared.opened
    # They may be huge, and are independent of providers.
    read = functools.partial(read_seeds, prepared)
    return await trio.to_thread.run_sync(read, abandon_on_cancel=True)


async def _open_agents(
    prepared: PreparedSuite, how: RunOptions, stack: AsyncExitStack
) -> AgentRunContext:
    from trioeval.agent.open import AgentOptions, open_agents

    options = how.agents or AgentOptions()
    return await stack.enter_async_context(
        open_agents(prepared, options, how.run_id, stop=how.stop, warn=how.warn)
    )


async def prepared_of(
    suite: Suite | PreparedSuite | str | os.PathLike[str],
    providers: Mapping[str, Provider] | None,
    kinds: Kinds | None,
    *,
    trusted: bool = True,
    allow_env: Collection[str] = (),
    budget: BudgetSettings | None = None,
) -> PreparedSuite:
    """Return a prepared suite. A checkpoint if files are read.

    Args:
        suite: A suite, a prepared suite, or the path of a suite file.
        providers: As for `prepare`.
        kinds: As for `prepare`, for a path; None is all built-in types.
        trusted: As for `prepare`, for a path.
        allow_env: As for `prepare`, for a path.
        budget: Bounds of calls besides those of the suite's own budget.

    Raises:
        SuiteError: As for `prepare`.
        UsageError: As for `run_suite`.
    """
    from trioeval.suite.sources.code import LoadProcesses

    _check_suite(suite)
    if kinds is not None and isinstance(suite, Suite | PreparedSuite):
        raise UsageError("kinds are set when a suite is loaded: pass them to `load_suite`")
    if isinstance(suite, PreparedSuite) and (allow_env or not trusted):
        raise UsageError(
            "trust is set when a suite is loaded: pass trusted or allow_env to `load_suite`"
        )
    if isinstance(suite, PreparedSuite):
        if providers is not None:
            raise UsageError("providers are set when a suite is prepared: pass them to `prepare`")
        return suite

    def make() -> PreparedSuite:
        loaded = suite
        if not isinstance(loaded, Suite):
            own = KINDS if kinds is None else kinds
            loaded = load_suite(loaded, kinds=own, trusted=trusted, allow_env=allow_env)
        elif not trusted or allow_env:
            raise UsageError(
                "trust is set when a suite is loaded: pass trusted or allow_env to `load_suite`"
            )
        return prepare(with_budget(loaded, budget), providers=providers)

    if isinstance(suite, Suite) and not suite.extensions:
        return make()
    started = LoadProcesses()

    def load() -> PreparedSuite:
        with started.noted():
            return make()

    # Files are read, and generators of tests may run, in a thread, so that other tasks continue.
    try:
        return await trio.to_thread.run_sync(load, abandon_on_cancel=True)
    finally:
        # No process of an abandoned thread may remain: test_sources_prompts_code.py.
        with trio.move_on_after(_ENDED_WITHIN, shield=True):
            await trio.to_thread.run_sync(started.end, abandon_on_cancel=True)


def _check_suite(suite: object) -> None:
    if not isinstance(suite, Suite | PreparedSuite | str | os.PathLike):
        right = "the path of a suite file, or what load_suite, parse_suite or prepare returns"
        raise UsageError(f"a suite is {right}; got {type(suite).__name__}")


def check_on_trio(name: str) -> None:
    """Raise unless the caller runs on Trio.

    Args:
        name: The called function of `trioeval`, which `trioeval.asyncio` has as well, for the message.

    Raises:
        UsageError: It runs on asyncio, or on no event loop.
    """
    if not trio.lowlevel.in_trio_task():
        raise UsageError(
            f"trioeval.{name} runs on Trio, as by trio.run; an asyncio program calls trioeval.asyncio.{name}"
        )


def _remaining_rows(prepared: PreparedSuite) -> Mapping[str, TaskRows]:
    """Return receivers for the rows of tasks that are used by other tasks."""
    suites = [part.prepared.suite for part in prepared.parts]
    sources = {suite.rows_of.task for suite in suites if suite.rows_of is not None}
    for suite in suites:
        sources |= {source.task for source in suite.settings.sources()}
    return {task: TaskRows() for task in sources}


@attrs.frozen
class SuiteSummary:
    """The totals of a suite. Every row, including recorded ones, is counted in exactly one of the five."""

    passed: int
    failed: int
    errors: int
    duration: float
    """Seconds on the Trio clock."""
    datasets: tuple[DatasetResult, ...] = ()
    """The results of its datasets, in the order in which they ended."""
    not_run: int = 0
    """Rows that were not run or not finished; not counted as errors."""
    not_graded: int = 0
    """Rows with a reply that nothing graded: no assertion, no question, no agent."""

    @property
    def rows(self) -> int:
        """The number of all rows."""
        return self.passed + self.failed + self.errors + self.not_graded + self.not_run


async def run_with_options(
    suite: Suite | PreparedSuite | str | os.PathLike[str],
    options: RunOptions,
    *,
    providers: Mapping[str, Provider] | None = None,
    kinds: Kinds | None = None,
    trusted: bool = True,
    allow_env: Collection[str] = (),
) -> SuiteSummary:
    """Run a suite with all options that a run has; see `run_suite`. A checkpoint.

    Args:
        suite: A suite, a prepared suite, or the path of a suite file.
        options: The options.
        providers: As for `run_suite`, like the following ones.
        kinds: The assertion types of a suite that is loaded here.
        trusted: True if a suite that is loaded here may run code.
        allow_env: Variables of the environment that templates may see.

    Returns:
        The numbers of rows by outcome.

    Raises:
        SuiteError: The suite is not valid; nothing was called.
        UsageError: As for `run_suite`, or the run of `options.journal` has ended.
    """
    built: list[DatasetResult] = []
    on_result = options.datasets.on_result

    def on_dataset(result: DatasetResult, rows: Rows) -> None:
        built.append(result)
        on_result(result, rows)

    async with ended(options.journal) as end:
        totals = await run_prepared(
            await prepared_of(suite, providers, kinds, trusted=trusted, allow_env=allow_env),
            attrs.evolve(
                options,
                observe=guarded(options.observe),
                questions=guarded(options.questions),
                datasets=attrs.evolve(options.datasets, on_result=on_dataset),
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
        found[Status.NOT_GRADED],
    )


async def run_suite(
    suite: Suite | PreparedSuite | str | os.PathLike[str],
    *,
    emit: Emit,
    lanes: Lanes | None = None,
    providers: Mapping[str, Provider] | None = None,
    kinds: Kinds | None = None,
    stop: trio.Event | None = None,
    observe: Observer | None = None,
    run_id: str | None = None,
    warn: Callable[[str], None] | None = None,
    trusted: bool = True,
    allow_env: Collection[str] = (),
) -> SuiteSummary:
    """Run a suite, store nothing, and emit its rows in index order. A checkpoint.

    Tasks that do not depend on each other run concurrently on the same lanes; their rows are interleaved,
    and the rows of each task are in index order.

    Cancelling the surrounding scope ends the calls at once; every row is still emitted, unfinished ones as
    errors. `open_session` stores runs, and can resume them.

    Args:
        suite: A suite, a prepared suite, or the path of a suite file.
        emit: Awaited with one row after another, each as soon as all rows before it in its task are known.
        lanes: Lanes that are shared with other runs; None creates lanes that count against the limits of the
            suite. See `make_lanes`.
        providers: Async callables by their provider ids in the suite.
        kinds: The assertion types of a suite that is loaded here; None is all built-in types.
        stop: Once it is set, no new row starts and running rows continue to their end; a row that waits for
            its first permit of a shared limit counts as new.
        observe: Called with the events of lanes and jobs.
        run_id: The value of `__evalId` in templates.
        warn: Called with harmless failures, such as that of an extension after a row; None logs them.
        trusted: True if a suite that is loaded here may run code, see the environment and use keys without
            restrictions.
        allow_env: Variables of the environment that templates of an untrusted suite may see.

    Returns:
        The numbers of rows by outcome.

    Raises:
        SuiteError: The suite is not valid; nothing was called.
        ProviderError: A provider cannot be opened, or not within `OPENED_WITHIN`; nothing was called.
        LimitError: The limit server of the suite is unreachable; nothing was called.
        UsageError: `providers` is given for a prepared suite, or `kinds`, `trusted` or `allow_env` for a
            loaded one.
        PlanError: `lanes` lacks a lane that the suite needs, or tasks made in Python form a cycle.
        Exception: Whatever `emit` raised; it ends the run.

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
    check_on_trio("run_suite")
    options = RunOptions(
        emit=emit,
        lanes=lanes,
        stop=trio.Event() if stop is None else stop,
        observe=observe,
        run_id=run_id,
        warn=warn or log.warning,
    )
    return await run_with_options(
        suite, options, providers=providers, kinds=kinds, trusted=trusted, allow_env=allow_env
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

    For a suite with tasks, the rows of the first task come first, and so on.

    A caller that may cancel it and needs partial results should pass its own `emit` to `run_suite`. The
    arguments are those of `run_suite`.

    Raises:
        SuiteError: The suite is not valid; nothing was called.
    """
    check_on_trio("collect")
    rows: list[Row] = []

    async def keep(row: Row) -> None:  # noqa: ASYNC124 - it does not wait
        rows.append(row)

    prepared = await prepared_of(suite, providers, kinds, trusted=trusted, allow_env=allow_env)
    await run_suite(prepared, emit=keep, lanes=lanes)
    return in_task_order(prepared, rows)


def in_task_order(prepared: PreparedSuite, rows: list[Row]) -> list[Row]:
    """Return the emitted rows of a suite by task, in the order of its tasks."""
    places = {part.id: place for place, part in enumerate(prepared.parts)}
    return sorted(rows, key=lambda row: places[row.task]) if prepared.tasks else rows

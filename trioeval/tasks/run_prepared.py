"""Runs a suite that is prepared: opens its tasks, runs them, closes them.

What the front doors have in common: `run_suite`, and those that build datasets.
"""

import functools
import logging
import math
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

import attrs
import trio

from trioeval.datasets.result import DatasetResult
from trioeval.errors import ProviderError, UsageError
from trioeval.grading import KINDS, Kinds
from trioeval.kernel import Budget, Lanes, Observer
from trioeval.providers import Provider, Recorder
from trioeval.quota.backend import Quota
from trioeval.suite import BudgetSettings, Suite
from trioeval.suite.column_models import SeedColumns
from trioeval.suite.sources.functions import Calls
from trioeval.tasks.agents.agent_terms import AgentTerms
from trioeval.tasks.agents.opening import open_agents
from trioeval.tasks.caching import ReplyCache
from trioeval.tasks.columns.dataset_stages import Rows
from trioeval.tasks.columns.opening import DatasetsTold, read_seeds
from trioeval.tasks.journal import Journal
from trioeval.tasks.lanes import merge_lane_specs
from trioeval.tasks.opening import Terms, check_judge_lanes, open_task
from trioeval.tasks.prepare import PreparedSuite, PreparedTask, prepare
from trioeval.tasks.question_events import QuestionObserver
from trioeval.tasks.question_run import QuestionRun
from trioeval.tasks.quotas import open_suite_quota, permits_of
from trioeval.tasks.rows import Status
from trioeval.tasks.rows_left import RowsLeft
from trioeval.tasks.task_crew import one_at_a_time, run_tasks
from trioeval.tasks.task_order import TaskOrder
from trioeval.tasks.task_run import Emit, EmitMany, Observers, TaskRun

log = logging.getLogger("trioeval")

OPENED_WITHIN = 60.0
"""Seconds in which all providers of a suite have to be open."""

_ENDED_WITHIN = 5.0
"""Seconds in which processes that are killed have ended."""


@attrs.frozen(kw_only=True)
class RunTerms:
    """How a suite is run, and who is told; as for `trioeval.tasks.run_suite`."""

    emit: Emit
    emit_many: EmitMany | None
    lanes: Lanes | None
    stop: trio.Event
    observe: Observer | None
    observers: Observers | None
    recorder: Recorder | None
    run_id: str | None
    warn: Callable[[str], None]
    journal: Journal | None
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


def make_lanes(*suites: PreparedSuite, quota: Quota | None = None) -> Lanes:
    """Lanes that serve all of these suites; where two give a lane different limits, the stricter hold.

    Args:
        *suites: Those that share the lanes.
        quota: Who keeps the limits that they share with others, see `open_suite_quota`; with None, calls
            count against none of those.
    """
    specs = merge_lane_specs(prepared.lane_specs for prepared in suites)
    permits = {} if quota is None else permits_of(quota, *suites)
    said = (prepared.suite.evaluate_options.max_total_concurrency for prepared in suites)
    cap = min((one for one in said if one is not None), default=None)
    # Chance, so that programs that share a provider do not come back to it in step.
    return Lanes(specs, rng=Random().random, permits=permits, cap=cap)  # noqa: S311 - no secret


async def run_prepared(prepared: PreparedSuite, how: RunTerms) -> RunTotals:
    """Run a suite. A checkpoint.

    Raises:
        SuiteError: A seed of a dataset cannot be read; nothing was called.
        ProviderError: A provider cannot be opened, or not within `OPENED_WITHIN`; nothing was called.
        QuotaError: Whoever keeps the shared limits of the suite cannot be asked; nothing was called.
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
async def ended(journal: Journal | None) -> AsyncIterator[JournalEnd]:
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
    seeds = prepared.seeds
    if seeds is None:
        seeds = {}
        if any(part.prepared.suite.columns is not None for part in prepared.parts):
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
                how.cache,
                refresh=how.refresh_cache,
                questions=QuestionRun(
                    how.questions, any(part.prepared.suite.questions for part in prepared.parts)
                ),
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
                quota = await stack.enter_async_context(open_suite_quota(prepared, warn=how.warn))
                lanes = make_lanes(prepared, quota=quota)
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
        SuiteError: Everything that is wrong with it.
        UsageError: As for `trioeval.tasks.run_suite`.
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


def _left(prepared: PreparedSuite) -> Mapping[str, RowsLeft]:
    """What gets the rows of the tasks that others are made of."""
    suites = [part.prepared.suite for part in prepared.parts]
    wanted = {suite.rows_of.task for suite in suites if suite.rows_of is not None}
    for suite in suites:
        columns = () if suite.columns is None else suite.columns.columns
        wanted |= {
            one.from_task
            for one in columns
            if isinstance(one, SeedColumns) and one.from_task is not None
        }
    return {task: RowsLeft() for task in wanted}


def nobody(_told: object) -> None:
    """Hears what nobody wants to hear."""


def _budget(settings: BudgetSettings | None) -> Budget | None:
    if settings is None:
        return None
    return Budget(settings.requests, settings.tokens, settings.usd)

"""Runs a suite: opens its providers, and gives its rows in order.

The one call that the command line and Trio applications share. Everything that is wrong with a suite is
said before anything is asked of a provider.
"""

import functools
import logging
import math
import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from random import Random

import attrs
import trio

from trioeval.datasets.result import DatasetResult
from trioeval.errors import ProviderError, UsageError
from trioeval.grading import KINDS, Kinds
from trioeval.kernel import Budget, Lanes, Observer
from trioeval.kernel.events import guarded
from trioeval.providers import Provider, Recorder
from trioeval.quota.backend import Quota
from trioeval.suite import BudgetSettings, Suite
from trioeval.suite.column_models import SeedColumns
from trioeval.suite.sources.functions import Calls
from trioeval.tasks.caching import ReplyCache
from trioeval.tasks.columns.dataset_events import DatasetEvent
from trioeval.tasks.columns.opening import DatasetsTold
from trioeval.tasks.journal import Journal
from trioeval.tasks.lanes import merge_lane_specs
from trioeval.tasks.opening import Terms, check_judge_lanes, open_task
from trioeval.tasks.prepare import PreparedSuite, PreparedTask, prepare
from trioeval.tasks.question_events import QuestionObserver
from trioeval.tasks.question_run import QuestionRun
from trioeval.tasks.quotas import open_suite_quota, permits_of
from trioeval.tasks.rows import Row, Status
from trioeval.tasks.rows_left import RowsLeft
from trioeval.tasks.task_crew import one_at_a_time, run_tasks
from trioeval.tasks.task_order import TaskOrder
from trioeval.tasks.task_run import Emit, TaskRun

_log = logging.getLogger("trioeval")

OPENED_WITHIN = 60.0
"""Seconds in which all providers of a suite have to be open."""

_ENDED_WITHIN = 5.0
"""Seconds in which processes that are killed have ended."""


@attrs.frozen
class SuiteSummary:
    """How a suite ended, in numbers. Every row is in exactly one of the three, kept ones among them."""

    passed: int
    failed: int
    errors: int
    duration: float
    """Seconds on the Trio clock."""
    datasets: tuple[DatasetResult, ...] = ()
    """What became of the datasets that it built, as they were over."""

    @property
    def rows(self) -> int:
        """All rows."""
        return self.passed + self.failed + self.errors


def make_lanes(*suites: PreparedSuite, quota: Quota | None = None) -> Lanes:
    """Lanes that serve all of these suites; where two give a lane different limits, the stricter hold.

    Args:
        *suites: Those that share the lanes.
        quota: Who keeps the limits that they share with others, see `open_suite_quota`; with None, calls
            count against none of those.
    """
    specs = merge_lane_specs(prepared.lane_specs for prepared in suites)
    permits = {} if quota is None else permits_of(quota, *suites)
    # Chance, so that programs that share a provider do not come back to it in step.
    return Lanes(specs, rng=Random().random, permits=permits)  # noqa: S311 - no secret


async def run_suite(
    suite: Suite | PreparedSuite | str | os.PathLike[str],
    *,
    emit: Emit,
    lanes: Lanes | None = None,
    providers: Mapping[str, Provider] | None = None,
    kinds: Kinds | None = None,
    stop: trio.Event | None = None,
    observe: Observer | None = None,
    recorder: Recorder | None = None,
    run_id: str | None = None,
    warn: Callable[[str], None] | None = None,
    journal: Journal | None = None,
    cache: ReplyCache | None = None,
    refresh_cache: bool = False,
    questions: QuestionObserver | None = None,
    settled: Callable[[PreparedTask], None] | None = None,
    datasets: Callable[[DatasetResult], None] | None = None,
    dataset_events: Callable[[str | None, DatasetEvent], None] | None = None,
    reconcile: bool = False,
) -> SuiteSummary:
    """Run a suite and emit its rows in index order. A checkpoint.

    Tasks that do not depend on each other run side by side on the same lanes; their rows come in any
    mixture, those of one task in index order.

    Cancelling the surrounding scope ends the calls at once; every row is still emitted, those that were
    not finished as errors that say so.

    Args:
        suite: A suite, a prepared suite, or the path of a suite file.
        emit: Awaited with one row after another, each as soon as all before it in its task are known.
        lanes: Lanes to run on, shared with other runs; its own if None, which count against the quota of
            the suite. See `make_lanes`.
        providers: Async callables by the id that stands for them in the suite.
        kinds: The assertion types that a suite may use that is loaded here; None is all that are built in.
        stop: When set, no new row starts and those under way run to their end; one that waits for its
            first permit of a shared limit counts as new.
        observe: Told of everything that lanes and jobs do.
        recorder: Writes down everything that providers answer; not what is had without asking them.
        run_id: What templates see as `__evalId`.
        warn: Told of what fails without harm, such as an extension behind a row; None logs it.
        journal: Where calls and rows are written down, each as soon as it ends; a row is emitted when it
            is safe there. Rows that it keeps are not run and not emitted, but counted; replies that it
            has are not asked for again. They count in their rows as if they were asked for now, and use
            nothing of a budget.
        cache: Where replies are looked for and kept; None asks for each.
        refresh_cache: Ask for each reply, and keep it in place of the one that is in the cache.
        questions: Told of what becomes of each question of tasks of type `question_eval`, as it happens.
        settled: Told of each task whose tests are the rows of an earlier one, as soon as they are known.
        datasets: Told of each dataset when its task is over, however that ended.
        dataset_events: Told of what happens to datasets, with the ids of their tasks.
        reconcile: Whether a dataset of the run may be another one now than when it was begun: what was made
            of columns that are as they were is kept.

    Returns:
        How many rows ended in which way.

    Raises:
        SuiteError: The suite is wrong; nothing was called.
        ProviderError: A provider cannot be opened, or not within `OPENED_WITHIN`; nothing was called.
        QuotaError: Whoever keeps the shared limits of the suite cannot be asked; nothing was called.
        UsageError: `providers` for a suite that was prepared with its own, or `kinds` for one that is
            loaded.
        PlanError: `lanes` lacks a lane that the suite needs, or tasks made in Python wait for each other.
        Exception: Whatever `emit` raised; the run is ended for it.

    Example:
        >>> from trioeval.suite import parse_suite
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
    prepared = await _prepared(suite, providers, kinds)
    built: list[DatasetResult] = []

    def tell(result: DatasetResult, _rows: object) -> None:
        built.append(result)
        if datasets is not None:
            datasets(result)

    options = prepared.suite.evaluate_options
    limit_ms = options.max_eval_time_ms
    # Cancelled while it is opened, a suite would end without its rows: test_interrupts.py.
    with trio.move_on_after(OPENED_WITHIN, shield=True) as opening:
        async with AsyncExitStack() as stack:
            terms = Terms(
                recorder,
                run_id,
                warn or _log.warning,
                journal,
                cache,
                refresh=refresh_cache,
                questions=QuestionRun(
                    guarded(questions),
                    any(part.prepared.suite.questions for part in prepared.parts),
                ),
                left=_left(prepared),
                settled=settled or _nobody,
                datasets=DatasetsTold(tell=tell, observe=dataset_events, reconcile=reconcile),
            )
            tasks = [await open_task(part, stack, terms) for part in prepared.parts]
            if lanes is None:
                quota = await stack.enter_async_context(open_suite_quota(prepared, warn=warn))
                lanes = make_lanes(prepared, quota=quota)
            opening.shield, opening.deadline = False, math.inf
            started_at = trio.current_time()
            run = TaskRun(
                one_at_a_time(emit) if prepared.tasks else emit,
                lanes,
                started_at + (limit_ms / 1000 if limit_ms else float("inf")),
                trio.Event() if stop is None else stop,
                guarded(observe),
                _budget(options.budget),
                journal,
            )
            check_judge_lanes(prepared, run.lanes)
            terms.questions.begin(trio.current_time())
            try:
                if prepared.tasks:
                    await run_tasks(tasks, TaskOrder.of(prepared.tasks), run)
                else:
                    await tasks[0].perform(run, None)
            finally:
                terms.questions.end(trio.current_time())
            duration = trio.current_time() - started_at
    if opening.cancelled_caught:
        msg = f"the providers were not open within {OPENED_WITHIN:g} seconds"
        raise ProviderError("attempt_timeout", msg)
    found = run.counts
    return SuiteSummary(
        found[Status.PASS], found[Status.FAIL], found[Status.ERROR], duration, tuple(built)
    )


async def collect(
    suite: Suite | PreparedSuite | str | os.PathLike[str],
    *,
    lanes: Lanes | None = None,
    providers: Mapping[str, Provider] | None = None,
    kinds: Kinds | None = None,
) -> list[Row]:
    """Run a suite and return its rows, `rows[i].index == i`. A checkpoint.

    Of a suite with tasks, the rows of the first task come first, and so on.

    A caller that may cancel it and wants what was finished gives `run_suite` an `emit` of its own.

    Raises:
        SuiteError: The suite is wrong; nothing was called.
    """
    rows: list[Row] = []

    async def keep(row: Row) -> None:  # noqa: ASYNC124 - lists do not wait
        rows.append(row)

    prepared = await _prepared(suite, providers, kinds)
    await run_suite(prepared, emit=keep, lanes=lanes)
    places = {part.id: place for place, part in enumerate(prepared.parts)}
    return sorted(rows, key=lambda row: places[row.task]) if prepared.tasks else rows


async def _prepared(
    suite: Suite | PreparedSuite | str | os.PathLike[str],
    providers: Mapping[str, Provider] | None,
    kinds: Kinds | None,
) -> PreparedSuite:
    if kinds is not None and isinstance(suite, Suite | PreparedSuite):
        raise UsageError("a suite that is loaded has its kinds: give them to `load_suite`")
    if isinstance(suite, PreparedSuite):
        if providers is not None:
            raise UsageError("a prepared suite has its providers: give them to `prepare`")
        return suite
    make = functools.partial(
        prepare, suite, providers=providers, kinds=KINDS if kinds is None else kinds
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


def _nobody(_told: object) -> None:
    """Hears what nobody wants to hear."""


def _budget(settings: BudgetSettings | None) -> Budget | None:
    if settings is None:
        return None
    return Budget(settings.requests, settings.tokens, settings.usd)

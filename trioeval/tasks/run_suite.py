"""Runs a suite: opens its providers, and gives its rows in order.

The one call that the command line and Trio applications share. Everything that is wrong with a suite is
said before anything is asked of a provider.
"""

import os
from collections.abc import Callable, Collection, Mapping

import attrs
import trio

from trioeval.datasets.result import DatasetResult
from trioeval.grading import Kinds
from trioeval.kernel import Lanes, Observer
from trioeval.kernel.events import guarded
from trioeval.providers import Provider, Recorder
from trioeval.suite import Suite
from trioeval.tasks.agents.agent_terms import AgentTerms
from trioeval.tasks.caching import ReplyCache
from trioeval.tasks.columns.dataset_events import DatasetEvent
from trioeval.tasks.columns.opening import DatasetsTold
from trioeval.tasks.journal import Journal
from trioeval.tasks.prepare import PreparedSuite, PreparedTask
from trioeval.tasks.question_events import QuestionObserver
from trioeval.tasks.rows import Row, Status
from trioeval.tasks.run_prepared import RunTerms, ended, log, nobody, prepared_of, run_prepared
from trioeval.tasks.task_run import Emit, EmitMany, Observers


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
    journal: Journal | None = None,
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
        lanes: Lanes to run on, shared with other runs; its own if None, which count against the quota of
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
        QuotaError: Whoever keeps the shared limits of the suite cannot be asked; nothing was called.
        UsageError: `providers` for a suite that was prepared with its own, `kinds` for one that is loaded,
            `trusted` or `allow_env` as well, or a `journal` whose run is over.
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

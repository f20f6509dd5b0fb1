"""Opens one task of a suite: its providers, the code that it runs, and the body of its type.

A task whose tests are the rows of an earlier one is opened when that has ended, and closed after it has run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import attrs
import trio

from trioeval.agent import is_agent
from trioeval.columns import is_columns
from trioeval.documents.files import FileContext
from trioeval.errors import PlanError
from trioeval.evaluation.answerer import ProviderAnswerer
from trioeval.evaluation.grader_calls import OpenGraders
from trioeval.evaluation.groups import Layout
from trioeval.evaluation.journal import Journal, RecordObserver
from trioeval.evaluation.judge_services import open_judge_services
from trioeval.evaluation.judging import WIDTH, Judges
from trioeval.evaluation.metering import meter_of
from trioeval.evaluation.outcomes import TaskEnd
from trioeval.evaluation.prepared import PreparedSuite, PreparedTask
from trioeval.evaluation.prompt import PromptBuilder, VariableSource
from trioeval.evaluation.provider_calls import ReplyCache, ReplySource
from trioeval.evaluation.row import RowIds, TaskRows
from trioeval.evaluation.scoring import Scoring
from trioeval.evaluation.scripts import Scripts, open_scripts
from trioeval.evaluation.shared_data import SharedData
from trioeval.evaluation.task_part import TaskPart
from trioeval.evaluation.task_run import AdaptTask, Body, KeptTaskRows, OpenTask, TaskRun
from trioeval.evaluation.transforms import read_output_transform
from trioeval.kernel import Lanes
from trioeval.loading.structure import converter_of
from trioeval.prompt_eval.task import PromptEval
from trioeval.providers import open_providers
from trioeval.question_eval import is_question_eval
from trioeval.run.journal import RunJournal
from trioeval.run.same_rows import same_rows
from trioeval.run.task_graph import LateTask, OpenedTask, Runnable
from trioeval.suite.dependencies import Unsatisfied

if TYPE_CHECKING:
    from trioeval.agent.open import AgentRunContext
    from trioeval.agent.task import AgentAnswerer
    from trioeval.columns.model import ColumnsSettings
    from trioeval.columns.open import SeedFiles
    from trioeval.columns.options import DatasetOptions
    from trioeval.providers.open import CallRecorder
    from trioeval.question_eval.events import QuestionRun
    from trioeval.question_eval.model import QuestionSettings


@attrs.frozen
class TaskOptions:
    """The settings that all tasks of a run share."""

    recorder: CallRecorder | None
    run_id: str | None
    warn: Callable[[str], None]
    journal: RunJournal | None
    record_observers: Sequence[RecordObserver]
    cache: ReplyCache | None
    refresh: bool
    questions: QuestionRun | None
    """Reports the events of the tasks of questions; None without any."""
    left: Mapping[str, TaskRows]
    """Receives the rows of tasks that are used by other tasks, by their ids."""
    settled: Callable[[PreparedTask], None]
    """Called with a task whose tests were not known when the run started, as soon as they are."""
    datasets: DatasetOptions
    """The observers and options of datasets."""
    seeds: SeedFiles | None
    """The rows of the seed files of datasets; None without datasets."""
    agents: AgentRunContext | None
    """The shared state of agent tasks; None if there are none."""
    adapt: AdaptTask | None = None
    """Changes each open task before it runs; None leaves them as they are."""


@attrs.frozen(eq=False, repr=False)
class _OpenParts:
    """The open parts of a task of any type."""

    part: PreparedTask
    asker: ReplySource
    tools: PromptBuilder
    scripts: Scripts


async def open_task(part: PreparedTask, stack: AsyncExitStack, options: TaskOptions) -> Runnable:
    """Open everything that a task needs, as far as it is known. A checkpoint.

    Args:
        part: The task.
        stack: Closes it again.
        options: The settings of the run.

    Raises:
        ProviderError: A provider cannot be opened.
    """
    if part.prepare_with_rows is not None:
        await trio.lowlevel.checkpoint()
        lanes = dict.fromkeys(part.prepared.lane_names)
        return LateTask(
            lanes, functools.partial(_perform_late, part, part.prepare_with_rows, options)
        )
    if is_columns(settings := part.prepared.suite.settings):
        return await _open_dataset(part, settings, stack, options)
    return OpenedTask(await _open(part, stack, options))


async def _perform_late(
    part: PreparedTask,
    settle: Callable[[Sequence[Mapping[str, Any]]], PreparedSuite],
    options: TaskOptions,
    run: TaskRun,
    lacking: Unsatisfied | None,
) -> TaskEnd:
    """Open a task in its turn and run it; without rows if the task that provides them is incomplete."""
    rows_of = part.prepared.suite.rows_of
    left = None if rows_of is None else options.left[rows_of.task]
    if left is None or not left.is_complete:
        await trio.lowlevel.checkpoint()
        return "cut" if lacking is not None and lacking.how == "cut" else "incomplete"
    # Files are read in a thread, so that other tasks continue.
    prepared = await trio.to_thread.run_sync(lambda: settle(left.rows()), abandon_on_cancel=True)
    part = attrs.evolve(part, prepared=prepared, prepare_with_rows=None, source_rows=left.rows())
    options.settled(part)
    async with AsyncExitStack() as stack:
        return await run.perform(await _open(part, stack, options), lacking)


async def _open_dataset(
    part: PreparedTask, settings: ColumnsSettings, stack: AsyncExitStack, options: TaskOptions
) -> Runnable:
    from trioeval.columns.open import DatasetParts, dataset_row, open_dataset

    asker, scripts = await _open_asker(part, stack, options, row_ids=dataset_row, are_data=True)
    task = part.id
    for observer in options.record_observers:
        observer.on_dataset(task)
    journal = None
    if options.journal is not None and not options.datasets.in_memory:
        journal = options.journal.dataset(task)
    parts = DatasetParts(
        prepared=part.prepared,
        settings=settings,
        asker=asker,
        scripts=scripts,
        task=task,
        journal=journal,
        left=options.left,
        warn=options.warn,
        seeds={} if options.seeds is None else options.seeds.by_task[task],
        options=options.datasets,
    )
    return await open_dataset(parts, stack)


async def _open_asker(
    part: PreparedTask,
    stack: AsyncExitStack,
    options: TaskOptions,
    *,
    row_ids: Callable[[int], str],
    are_data: bool,
) -> tuple[ReplySource, Scripts]:
    """Open the providers of a task, and the code that it runs.

    Args:
        part: The task.
        stack: Closes them again.
        options: The settings of the run.
        row_ids: Returns the id of a row by its index.
        are_data: True if its rows are data, in which templates of providers must not be rendered.
    """
    prepared = part.prepared
    context = prepared.context
    templates = prepared.templates.for_data() if are_data else prepared.templates
    opened = await stack.enter_async_context(
        open_providers(
            prepared.specs, templates, options.recorder, tls=prepared.trust, hosts=prepared.hosts
        )
    )
    scripts = await stack.enter_async_context(
        open_scripts(context.directory, context.environ, trust=context.trust)
    )
    asker = ReplySource(
        providers=opened,
        entries=(*prepared.steps.providers, *prepared.graders.entries),
        lanes=prepared.lane_names,
        meter=meter_of(
            prepared.suite,
            [spec.metering for spec in prepared.specs],
            prepared.lane_names,
            prepared.lane_limits,
            prepared.lane_specs,
        ),
        row_ids=row_ids,
        task=part.id,
        journal=options.journal,
        observers=options.record_observers,
        cache=options.cache,
        refresh=options.refresh,
        estimates=is_question_eval(prepared.suite.settings),
        warn=options.warn,
    )
    return asker, scripts


async def _open(part: PreparedTask, stack: AsyncExitStack, options: TaskOptions) -> OpenTask:
    prepared, is_late = part.prepared, part.source_rows is not None
    asker, scripts = await _open_asker(
        part, stack, options, row_ids=RowIds(prepared.steps), are_data=is_late
    )
    tools = _tools(prepared, scripts, options.run_id)
    has = _OpenParts(part, asker, tools, scripts)
    if is_question_eval(settings := prepared.suite.settings) and options.questions is not None:
        task = _question_task(has, settings, options.questions)
    else:
        task = await _prompt_task(has, stack, options)
    if part.id is not None:
        task = attrs.evolve(task, id=part.id, rows_for_later_tasks=options.left.get(part.id))
    task = await _resumed(part, task, tools, options.journal, is_late=is_late)
    return task if options.adapt is None else options.adapt(part, task)


def check_judge_lanes(prepared: PreparedSuite, lanes: Lanes) -> None:
    """Raise if a lane of a judge is missing; the lanes of jobs are checked when they are run.

    Raises:
        PlanError: A lane is missing.
    """
    named = {lane for part in prepared.parts for lane in part.prepared.judge_lanes}
    if unknown := sorted(named - set(lanes)):
        msg = f"judges need the lanes {unknown}; the lanes are {sorted(lanes)}"
        raise PlanError(msg)


async def _prompt_task(has: _OpenParts, stack: AsyncExitStack, options: TaskOptions) -> OpenTask:
    prepared, tools, scripts = has.part.prepared, has.tools, has.scripts
    context, steps = prepared.context, prepared.steps
    suite_options = prepared.suite.evaluate_options
    hooks = None
    if prepared.extensions:
        from trioeval.evaluation.hooks import Hooks

        given = (prepared.extensions, prepared.suite, options.run_id)
        hooks = Hooks(*given, scripts, converter_of(prepared.suite, context), options.warn)
    graders = OpenGraders(
        graders=prepared.graders,
        reply_source=has.asker,
        default=prepared.suite.default_test,
        open_objects=context.switch("DISABLE_OBJECT_STRINGIFY"),
    )
    services = await stack.enter_async_context(
        open_judge_services(context, prepared.trust, hosts=prepared.hosts)
    )
    agents = await _agents(has, options)
    body = PromptEval(
        steps,
        ProviderAnswerer(has.asker) if agents is None else agents,
        lanes=has.asker.lanes,
        tools=tools,
        judges=Judges(
            steps=steps,
            scripts=scripts,
            services=services,
            graders=graders,
            read_transform=tools.read_transform,
            scoring=Scoring(context, services.scripts, services.limit),
            kinds=prepared.suite.kinds,
            width=suite_options.assertions_max_concurrency or _width(context),
            short_circuit=context.switch("SHORT_CIRCUIT_TEST_FAILURES"),
        ),
        order=prepared.order,
        task=has.part.id,
        hooks=hooks,
    )
    whole: Body = body
    layout = Layout.of(steps.spans)
    if layout.compares:
        from trioeval.prompt_eval.comparison import ComparedEval

        whole = ComparedEval(body, steps, layout, prepared.lane_names, graders)
    task = OpenTask(
        whole,
        suite_options.salvage_rounds,
        hooks,
        max_live_jobs=suite_options.max_live_jobs,
        memory=tools,
    )
    if layout.compares:
        alone = TaskPart(body, range(len(steps)))
        task = attrs.evolve(task, row_of=layout.step, rows_alone=alone)
    if agents is None:
        return task
    from trioeval.agent.placed import PlacedCases

    # Cases that wait for others must be started, because they may wait for later cases.
    return attrs.evolve(
        task,
        max_live_jobs=max(1, len(steps)),
        early=True,
        elsewhere=PlacedCases(agents, tools.build),
    )


async def _agents(has: _OpenParts, options: TaskOptions) -> AgentAnswerer | None:
    """Return the agents that answer in place of providers, if the task has agents."""
    prepared, task = has.part.prepared, has.part.id
    settings = prepared.suite.settings
    if not is_agent(settings) or options.agents is None:
        return None
    from trioeval.agent.task import AgentAnswerer

    journal = None if options.journal is None else options.journal.agents(task)
    work = AgentAnswerer(
        prepared, settings, has.asker, task=task, journal=journal, run=options.agents
    )
    await work.end_survivors()
    if options.journal is not None and len(kept := options.journal.reused_rows(task)):
        for index in range(len(prepared.steps)):
            if index in kept:
                work.register_kept(index, kept.record(index))
    return work


def _question_task(has: _OpenParts, settings: QuestionSettings, questions: QuestionRun) -> OpenTask:
    from trioeval.question_eval.task import QuestionEval, ToolBox

    part, prepared = has.part, has.part.prepared
    events = questions.task(part.id, range(len(prepared.steps)))
    stop = trio.Event()
    body = QuestionEval(
        steps=prepared.steps,
        settings=settings,
        asker=has.asker,
        tools=has.tools,
        templates=prepared.templates,
        box=ToolBox.of(settings.tools, has.scripts.call),
        events=events,
        stop=stop,
        task=part.id,
    )
    options = prepared.suite.evaluate_options
    return OpenTask(
        body,
        # A failure that would be retried later must not stop the task.
        0 if settings.fail_fast else options.salvage_rounds,
        observer=events,
        stop=stop if settings.fail_fast else None,
        max_live_jobs=settings.rows_at_once(prepared.suite.limits),
    )


async def _resumed(
    part: PreparedTask,
    task: OpenTask,
    tools: PromptBuilder,
    journal: Journal | None,
    *,
    is_late: bool,
) -> OpenTask:
    """Return a task without the rows that exist from an earlier execution of the run."""
    rows = None if journal is None else journal.reused_rows(part.id)
    if not rows:
        return task
    from trioeval.evaluation.resumed import ResumedTask
    from trioeval.question_eval.events import QuestionEvents

    steps = part.prepared.steps
    if is_late:
        rows = same_rows(rows, steps)
    resumed = ResumedTask(task.body, rows, steps, Layout.of(steps.spans), tools)
    await resumed.restore()
    if isinstance(task.observer, QuestionEvents):
        task.observer.rows = resumed.remaining
    row_of = task.row_of
    return attrs.evolve(
        task,
        body=resumed,
        kept=KeptTaskRows(rows, resumed.kept_rows()),
        rows_alone=None if task.rows_alone is None else resumed.without_kept(task.rows_alone),
        row_of=lambda place: row_of(resumed.job(place)),
    )


def _tools(prepared: PreparedSuite, scripts: Scripts, run_id: str | None) -> PromptBuilder:
    variables = VariableSource(
        context=prepared.context,
        scripts=scripts,
        history=SharedData(prepared.suite.evaluate_options.register_scope),
        sharing=prepared.sharing,
        visible=prepared.access.visible,
        in_order=prepared.in_order,
        provider_names=prepared.provider_names,
        run_id=run_id,
    )
    return PromptBuilder(
        steps=prepared.steps,
        templates=prepared.templates,
        variables=variables,
        scripts=scripts,
        read_transform=functools.lru_cache(
            functools.partial(read_output_transform, context=prepared.context)
        ),
        hooked=bool(prepared.extensions),
    )


def _width(context: FileContext) -> int:
    """Return the maximum number of concurrent external assertions of a row."""
    setting = context.variable("ASSERTIONS_MAX_CONCURRENCY")
    return max(1, int(setting)) if setting.isdecimal() else WIDTH

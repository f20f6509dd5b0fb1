"""The opening of tasks of type `columns`: makers of columns, the rows of seeds, the folder of the dataset."""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack

import attrs
import trio

from trioeval.columns.files import HELPS, DatasetFolder, Header, chosen_format, open_folder
from trioeval.columns.files.open import check_unused
from trioeval.columns.fingerprints import fingerprint, producer_digests, surroundings_mark
from trioeval.columns.finish import FolderOutput, MemoryOutput, Output, stages_of
from trioeval.columns.graph import ColumnGraph, RowGrouping
from trioeval.columns.journal import DatasetJournal
from trioeval.columns.makers.base import Maker
from trioeval.columns.makers.code import (
    PythonCellMaker,
    PythonExpressionMaker,
    PythonGroupMaker,
    TemplateMaker,
    ValidationMaker,
    drop_conditions,
    skip_condition,
)
from trioeval.columns.makers.conversations import CellServices
from trioeval.columns.makers.llm import EmbeddingMaker, JudgeMaker, LlmMaker
from trioeval.columns.makers.samplers import SamplerMaker
from trioeval.columns.makers.seeds import SeedMaker, Source, open_seed_file, seed_rows
from trioeval.columns.model import (
    Column,
    ColumnsSettings,
    EmbeddingColumn,
    ExpressionColumn,
    JudgeColumn,
    LlmColumn,
    PythonColumn,
    SamplerColumn,
    SeedColumns,
    ValidationColumn,
    folder_of,
)
from trioeval.columns.options import DatasetOptions
from trioeval.columns.result import DatasetResult
from trioeval.columns.run import DatasetRun
from trioeval.columns.spec import DatasetSpec, ProducerSetup
from trioeval.columns.types import column_types, producers_of, written_columns
from trioeval.errors import DatasetError, Problem, SuiteError
from trioeval.evaluation.outcomes import TaskEnd
from trioeval.evaluation.prepared import PreparedSuite
from trioeval.evaluation.provider_calls import ReplySource, provider_digest
from trioeval.evaluation.row import TaskRows
from trioeval.evaluation.scripts import Scripts
from trioeval.evaluation.suite_files import CodeFiles
from trioeval.evaluation.task_run import TaskRun
from trioeval.kernel import StopReason
from trioeval.suite.dependencies import Unsatisfied
from trioeval.suite.model import ProviderEntry

PREVIEW_GROUP = 100  # rows

_RECONCILE = (
    "--reconcile moves it away, and keeps the values of unchanged columns; "
    "or start another run with another folder (outputDir)"
)


def dataset_row(row: int) -> str:
    """Return the key of a row of a dataset in the journal: its number, which never changes."""
    return f"{row:032x}"


@attrs.frozen(eq=False, kw_only=True)
class DatasetParts:
    """The open parts of one dataset, independent of its seeds."""

    prepared: PreparedSuite
    settings: ColumnsSettings
    asker: ReplySource
    scripts: Scripts
    task: str | None
    journal: DatasetJournal | None
    left: Mapping[str, TaskRows]
    """Receives the rows of tasks that are used by other tasks, by their ids."""
    warn: Callable[[str], None]
    seeds: Mapping[str, Source]
    """The rows of seed files, by the names of their first columns."""
    options: DatasetOptions


@attrs.frozen
class SeedFiles:
    """The rows of all seed files of a suite."""

    by_task: Mapping[str | None, Mapping[str, Source]]
    """For each task that builds a dataset, by the names of their first columns."""


def read_seeds(prepared: PreparedSuite) -> SeedFiles:
    """Open all seed files. Blocks.

    Raises:
        SuiteError: Files cannot be read, or are not valid; lists all of them.
    """
    found: dict[str | None, dict[str, Source]] = {}
    problems: list[Problem] = []
    files = []
    for part in prepared.parts:
        settings = part.prepared.suite.settings
        if not isinstance(settings, ColumnsSettings):
            continue
        own = found.setdefault(part.id, {})
        task = "$" if part.place is None else f"$.tasks[{part.place}]"
        for place, column in enumerate(settings.columns):
            if not isinstance(column, SeedColumns) or column.file is None:
                continue
            try:
                own[column.name] = open_seed_file(
                    column.file,
                    column.columns,
                    f"{task}.columns[{place}].file",
                    empty_as_null=column.empty_as_null,
                )
            except SuiteError as error:
                problems += error.problems
                files.append(column.file)
    if problems:
        raise SuiteError(problems, files=files)
    return SeedFiles(found)


async def open_run(
    parts: DatasetParts, sources: Mapping[str, Source], stack: ExitStack | AsyncExitStack
) -> DatasetRun:
    """Return a dataset whose seeds are known, ready to be built. A checkpoint.

    Args:
        parts: The open parts.
        sources: The rows of all of its seeds, by the names of their first columns.
        stack: Releases its folder when the run ends.

    Raises:
        DatasetError: The folder cannot be used.
    """
    settings, options, prepared = parts.settings, parts.options, parts.prepared
    graph = ColumnGraph.of(producers_of(settings))
    code = CodeFiles(prepared.suite.directory)
    filters = {name: code(file) for name, file in prepared.suite.nunjucks_filters.items()}
    marks = {
        column.name: (_mark(column, prepared.suite.providers, sources, code) or "")
        + surroundings_mark(column, prepared.templates.env, filters)
        for column in settings.columns
    }
    header_fingerprint = fingerprint(
        settings, marks, [code(one.target or "") or "" for one in settings.processors]
    )
    types, kinds = dict(column_types(settings)), dict[str, str]()
    for source in sources.values():
        types.update(source.types)
        kinds.update(source.kinds)
    columns = [name for name in _written(settings) if name in types]
    grouping = _grouping(parts, sources)
    output: Output | None = MemoryOutput(grouping) if options.in_memory else None
    if options.place is not None:
        output = options.place.output(grouping)
    if output is None:
        folder = await trio.to_thread.run_sync(
            functools.partial(
                _open_folder,
                parts,
                Header(
                    columns={name: types[name] for name in columns},
                    grouping=grouping,
                    fingerprint=header_fingerprint,
                ),
                kinds,
            )
        )
        output = FolderOutput(folder)
        stack.callback(output.close)
        if folder.moved is not None:
            parts.warn(f"the previous dataset of {folder.path} was moved to {folder.moved}")
        grouping = folder.header.grouping
    digests = producer_digests(graph, settings, marks)
    limit_ms = prepared.suite.evaluate_options.timeout_ms
    spec = DatasetSpec(
        task=parts.task,
        settings=settings,
        graph=graph,
        makings=_makings(parts, graph, sources, digests),
        types=types,
        columns=columns,
        grouping=grouping,
        fingerprint=header_fingerprint,
        stages=stages_of(settings.processors, parts.scripts),
        timeout=limit_ms / 1000 if limit_ms else float("inf"),
    )
    observe = None if options.on_event is None else functools.partial(options.on_event, parts.task)
    if options.place is not None:
        spec = options.place.adapt(spec)
    run = DatasetRun(spec, output, journal=parts.journal, observe=observe, warn=parts.warn)
    if options.place is not None:
        options.place.on_open(run)
    return run


def check_folders(prepared: PreparedSuite) -> None:
    """Raise if the folder of a new dataset already contains something.

    Seeds from earlier tasks are not checked.

    Raises:
        DatasetError: Some folders do; lists all of them.
    """
    troubles = []
    for part in prepared.parts:
        settings = part.prepared.suite.settings
        if not isinstance(settings, ColumnsSettings) or settings.existing != "never":
            continue
        path = folder_of(settings, part.id or "dataset")
        try:
            check_unused(path)
        except DatasetError as error:
            troubles.append(str(error))
        except OSError as error:
            troubles.append(f"{path}: the folder cannot be read: {error.strerror or error}")
    if troubles:
        raise DatasetError("\n".join(troubles))


def _mark(
    column: Column,
    providers: Sequence[ProviderEntry],
    sources: Mapping[str, Source],
    code: CodeFiles,
) -> str | None:
    """Return a digest of the inputs of a column besides its settings, if it has any."""
    match column:
        case SeedColumns():
            return sources[column.name].digest
        case LlmColumn() | JudgeColumn():
            return provider_digest(providers[column.asking.provider])
        case EmbeddingColumn():
            return provider_digest(providers[column.provider])
        case PythonColumn():
            return code(column.target)
        case _:
            return None


def _first_seed(settings: ColumnsSettings) -> str:
    """Return the first column of the seed that determines the number of rows if the settings do not."""
    return next(one.name for one in settings.columns if isinstance(one, SeedColumns))


def _written(settings: ColumnsSettings) -> Sequence[str]:
    """Return the columns in the files of groups: columns that are removed at the end are still written."""
    before = [one for one in settings.processors if one.stage != "after_generation"]
    return written_columns(attrs.evolve(settings, processors=tuple(before)))


def _grouping(parts: DatasetParts, sources: Mapping[str, Source]) -> RowGrouping:
    settings, preview = parts.settings, parts.options.preview
    rows = settings.rows or len(sources[_first_seed(settings)])
    if preview is not None:
        return RowGrouping(min(settings.group_size, PREVIEW_GROUP), (min(rows, preview),))
    before = None if parts.journal is None else parts.journal.grouping
    if before is not None and before.size == settings.group_size and before.rows <= rows:
        return before.extended(rows)
    return RowGrouping(settings.group_size, (rows,))


def _open_folder(parts: DatasetParts, header: Header, kinds: Mapping[str, str]) -> DatasetFolder:
    settings, journal = parts.settings, parts.journal
    existing, helps = settings.existing, HELPS
    if journal is not None and journal.grouping is not None:  # a resumed run
        existing = "if_possible" if parts.options.reconcile else "always"
        helps = _RECONCILE
    return open_folder(
        folder_of(settings, parts.task or "dataset"),
        header,
        file_format=chosen_format(settings.format, header.columns),
        existing=existing,
        known=() if journal is None else journal.groups(),
        again=() if journal is None else journal.groups_to_rewrite(),
        helps=helps,
        kinds=kinds,
    )


# A task that starts when its dependencies are complete.
#
# Everything that is known when the run starts is opened and checked then, so that a folder that cannot be
# used is reported before the first call. A seed from the rows of an earlier task is opened when that task has
# ended.


@attrs.frozen(eq=False)
class DatasetTask:
    """A dataset that starts in its turn; see `trioeval.run.task_graph.Runnable`."""

    parts: DatasetParts
    run: DatasetRun | None
    """The dataset; None if its seeds are known later."""

    @property
    def lanes(self) -> Collection[str]:
        """The lanes of its prepared suite."""
        return [spec.name for spec in self.parts.prepared.lane_specs]

    async def perform(self, run: TaskRun, lacking: Unsatisfied | None, /) -> TaskEnd:
        """Build the dataset. A checkpoint.

        Raises:
            TrioevalError: A seed cannot be read, or the folder cannot be used.
        """
        missing = [one for one in _of_tasks(self.parts.settings) if not self._is_there(one)]
        if lacking is not None or missing:
            await trio.lowlevel.checkpoint()
            is_cut = lacking is not None and lacking.how == "cut"
            why = StopReason.BUDGET.value if is_cut else "stop" if lacking is None else "blocked"
            task, rows = self.parts.task, self.parts.settings.rows or 0
            result = DatasetResult(task=task, requested=rows, written=0, not_run={why: rows})
            self.parts.options.on_result(result, ())
            return "cut" if is_cut else "incomplete"
        with ExitStack() as stack:
            dataset = self.run
            if dataset is None:
                dataset = await open_run(self.parts, await self._all_seeds(), stack)
            return await self._build(dataset, run)

    async def _build(self, dataset: DatasetRun, run: TaskRun) -> TaskEnd:
        parts, output = self.parts, dataset.output
        result: DatasetResult | None = None
        try:
            result = await dataset.build(
                run.lanes,
                deadline=run.deadline,
                stop=run.stop,
                observe=run.observer(parts.task, dataset.job_name),
                budget=run.budget,
                max_live_jobs=parts.prepared.suite.evaluate_options.max_live_jobs,
            )
        finally:
            if result is None:
                result = dataset.result(trio.current_time())
            output.close()
            left = None if parts.task is None else parts.left.get(parts.task)
            if left is not None and result.outcome == "complete":
                left.put(output.rows_written())
                left.is_complete = True
            parts.options.on_result(
                result, output.numbered if isinstance(output, MemoryOutput) else ()
            )
        if result.outcome == "complete":
            return "complete"
        is_cut = result.error is None and set(result.not_run) == {StopReason.BUDGET.value}
        return "cut" if is_cut else "incomplete"

    async def _all_seeds(self) -> Mapping[str, Source]:
        """Return the seeds from files, and those from the rows of earlier tasks."""
        seeds, left = _of_tasks(self.parts.settings), self.parts.left

        def read() -> dict[str, Source]:
            return {
                seed.name: seed_rows(left[task].rows(), seed.columns, f"task {task}")
                for seed in seeds
                if (task := seed.from_task) is not None
            }

        found = await trio.to_thread.run_sync(read, abandon_on_cancel=True)
        return {**self.parts.seeds, **found}

    def _is_there(self, seed: SeedColumns) -> bool:
        if seed.name in self.parts.seeds:
            return True
        return seed.from_task is not None and self.parts.left[seed.from_task].is_complete


async def open_dataset(parts: DatasetParts, stack: AsyncExitStack) -> DatasetTask:
    """Open a dataset as far as its inputs are known. A checkpoint.

    Args:
        parts: The open parts.
        stack: Releases its folder, also if the dataset is never started.

    Raises:
        SuiteError: A seed cannot be read; lists all problems.
        DatasetError: The folder cannot be used.
    """
    if parts.options.place is not None:
        parts = attrs.evolve(parts, seeds={**parts.seeds, **parts.options.place.seeds()})
    if any(seed.name not in parts.seeds for seed in _of_tasks(parts.settings)):
        await trio.lowlevel.checkpoint()
        return DatasetTask(parts, None)
    return DatasetTask(parts, await open_run(parts, parts.seeds, stack))


def _of_tasks(settings: ColumnsSettings) -> Sequence[SeedColumns]:
    """Return the seeds that are rows of earlier tasks."""
    seeds = [one for one in settings.columns if isinstance(one, SeedColumns)]
    return [one for one in seeds if one.from_task is not None]


# The makers of columns, from the settings of the suite and the open parts.


_RECORDED = (LlmColumn, JudgeColumn, EmbeddingColumn, PythonColumn)
"""Kinds whose values cost money or time, or may differ the next time."""


def _makings(
    parts: DatasetParts,
    graph: ColumnGraph,
    sources: Mapping[str, Source],
    digests: Sequence[str],
) -> Sequence[ProducerSetup]:
    """Return the makers of the producers, in the order of the graph.

    Raises:
        TemplateError: A condition or a template is not valid.
    """
    settings, templates = parts.settings, parts.prepared.templates
    cells = CellServices(
        asker=parts.asker,
        templates=attrs.evolve(templates, strict=True).for_data(),
        seed=settings.seed,
    )
    numbers = {column.name: number for number, column in enumerate(settings.columns)}
    found = []
    for producer, digest in zip(graph.producers, digests, strict=True):
        number = numbers[producer.name]
        column = settings.columns[number]
        making = ProducerSetup(
            maker=_maker(parts, number, cells, sources),
            kind=column.kind,
            digest=digest,
            is_recorded=isinstance(column, _RECORDED),
            leaves_out=isinstance(column, ExpressionColumn),
            skip=column.skip,
            skip_when=skip_condition(column, templates.filters, templates.env),
            drops=drop_conditions(column, templates.filters, templates.env),
        )
        found.append(making)
    return found


def _maker(
    parts: DatasetParts, number: int, cells: CellServices, sources: Mapping[str, Source]
) -> Maker:
    settings, scripts, prepared = parts.settings, parts.scripts, parts.prepared
    filters, env = prepared.templates.filters, prepared.templates.env
    match _without_hidden_effects(settings, number):
        case SeedColumns() as column:
            return SeedMaker(column, sources[column.name], settings.seed)
        case SamplerColumn() as column:
            return SamplerMaker(column, settings.seed)
        case ExpressionColumn(python=None) as column:
            return TemplateMaker(column, filters, env)
        case ExpressionColumn() as column:
            return PythonExpressionMaker(column, scripts)
        case LlmColumn() as column:
            return LlmMaker(column, number, cells)
        case JudgeColumn() as column:
            return JudgeMaker(column, number, cells)
        case EmbeddingColumn() as column:
            return EmbeddingMaker(column, number, cells)
        case PythonColumn() as column:
            is_cell = column.scope == "cell"
            return (
                PythonCellMaker(column, scripts) if is_cell else PythonGroupMaker(column, scripts)
            )
        case ValidationColumn() as column:
            return ValidationMaker(column, prepared.suite.kinds, filters, env)


def _without_hidden_effects(settings: ColumnsSettings, number: int) -> Column:
    """Return a column without side effects that have the name of a real column: the real one wins."""
    column = settings.columns[number]
    if not isinstance(column, LlmColumn | JudgeColumn):
        return column
    real = {name for one in settings.columns for name in one.outputs}
    return attrs.evolve(
        column,
        reasoning=None if column.reasoning in real else column.reasoning,
        trace=None if column.trace in real else column.trace,
    )

"""Opens a task of type `columns`: its providers, its code, the rows of its seeds, and its folder.

What is known when the run begins is opened and looked at then, so that a folder that may not be used is told
before anything is asked. A seed that is made of the rows of an earlier task is known when that is over.
"""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs
import trio

from trioeval.datasets.files import HELPS, DatasetFolder, DatasetRows, Header, chosen_format
from trioeval.datasets.graph import ColumnGraph
from trioeval.datasets.grouping import Grouping
from trioeval.datasets.result import DatasetResult
from trioeval.datasets.types import ColumnType
from trioeval.suite import ProviderEntry
from trioeval.suite.column_models import (
    Column,
    ColumnsSettings,
    EmbeddingColumn,
    JudgeColumn,
    LlmColumn,
    PythonColumn,
    SeedColumns,
    folder_of,
)
from trioeval.suite.column_producers import column_types, producers_of
from trioeval.tasks.asking import Asker, mark_of
from trioeval.tasks.columns.conversations import Cells
from trioeval.tasks.columns.dataset_events import DatasetEvent
from trioeval.tasks.columns.dataset_journal import DatasetJournal
from trioeval.tasks.columns.dataset_output import FolderOutput, MemoryOutput, Output
from trioeval.tasks.columns.dataset_run import DatasetRun, build
from trioeval.tasks.columns.dataset_spec import DatasetSpec
from trioeval.tasks.columns.fingerprints import fingerprint, producer_digests
from trioeval.tasks.columns.makers import Means, makings_of
from trioeval.tasks.columns.processors import stages_of
from trioeval.tasks.columns.seeds import Source, open_seed_file, seed_rows
from trioeval.tasks.prepare import PreparedSuite
from trioeval.tasks.rows_left import RowsLeft
from trioeval.tasks.scripts import Scripts
from trioeval.tasks.suite_files import CodeFiles
from trioeval.tasks.task_run import TaskRun

PREVIEW_GROUP = 100  # rows

_RECONCILE = (
    "--reconcile moves it away, and keeps what was made for columns that are as they were; "
    "or begin another run with another folder (outputDir)"
)


def dataset_row(row: int) -> str:
    """What a row of a dataset is known by in the journal: its number, which is never another one."""
    return f"{row:032x}"


@attrs.frozen(kw_only=True)
class DatasetsTold:
    """What is told of all datasets of a run, and how they go on."""

    tell: Callable[[DatasetResult, Sequence[Mapping[str, Any]]], None]
    """As in `DatasetTerms`."""
    observe: Callable[[str | None, DatasetEvent], None] | None = None
    """Told of what happens, with the id of the task."""
    reconcile: bool = False
    in_memory: bool = False
    preview: int | None = None


@attrs.frozen(kw_only=True)
class DatasetTerms:
    """What holds for the dataset of one task."""

    task: str | None
    journal: DatasetJournal | None
    left: Mapping[str, RowsLeft]
    """Gets the rows of tasks that others are made of, by their ids."""
    warn: Callable[[str], None]
    tell: Callable[[DatasetResult, Sequence[Mapping[str, Any]]], None]
    """Told once what became of it, with its rows if they are kept in memory."""
    observe: Callable[[DatasetEvent], None] | None
    """Told of what happens."""
    seeds: Mapping[str, Source]
    """The rows of seeds that are files, by the names of their first columns."""
    reconcile: bool = False
    """Whether a run that goes on may find another configuration than it began with."""
    in_memory: bool = False
    """Whether its rows are kept in memory, and no files are written."""
    preview: int | None = None
    """Make so many rows at most."""


@attrs.frozen(eq=False)
class DatasetTask:
    """A dataset whose turn comes; see `trioeval.tasks.task_crew.Runnable`."""

    prepared: PreparedSuite
    settings: ColumnsSettings
    asker: Asker
    scripts: Scripts
    terms: DatasetTerms
    ready: "Ready | None"
    """What is open; None if it is known later."""

    @property
    def lanes(self) -> Collection[str]:
        """Those that its prepared suite describes."""
        return [spec.name for spec in self.prepared.lane_specs]

    async def perform(self, run: TaskRun, blocked_by: str | None, /) -> bool:
        """Build it. A checkpoint.

        Raises:
            TrioevalError: A seed cannot be read, or the folder not be used.
        """
        terms = self.terms
        missing = [one.from_task for one in _of_tasks(self.settings) if not self._is_there(one)]
        if blocked_by is not None or missing:
            await trio.lowlevel.checkpoint()
            self._tell_blocked("blocked" if blocked_by is not None else "stop")
            return False
        ready = self.ready or await open_ready(self, await self._all_seeds())
        dataset = DatasetRun(
            ready.spec,
            ready.output,
            journal=terms.journal,
            observe=terms.observe,
            warn=terms.warn,
        )
        result: DatasetResult | None = None
        try:
            result = await build(
                dataset,
                run.lanes,
                deadline=run.deadline,
                stop=run.stop,
                observe=run.observe,
                budget=run.budget,
            )
        finally:
            if result is None:
                result = dataset.result(trio.current_time())
            result = attrs.evolve(result, folder=ready.folder, format=ready.format)
            ready.close()
            self._leave(ready, result)
            terms.tell(result, ready.rows() if terms.in_memory else ())
        return result.outcome == "complete"

    async def _all_seeds(self) -> Mapping[str, Source]:
        """Those of files, and those that earlier tasks have left."""
        seeds, left = _of_tasks(self.settings), self.terms.left

        def read() -> dict[str, Source]:
            return {
                seed.name: seed_rows(left[task].rows(), seed.columns, f"task {task}")
                for seed in seeds
                if (task := seed.from_task) is not None
            }

        found = await trio.to_thread.run_sync(read, abandon_on_cancel=True)
        return {**self.terms.seeds, **found}

    def _is_there(self, seed: SeedColumns) -> bool:
        return seed.from_task is not None and self.terms.left[seed.from_task].is_complete

    def _leave(self, ready: "Ready", result: DatasetResult) -> None:
        left = None if self.terms.task is None else self.terms.left.get(self.terms.task)
        if left is not None and result.outcome == "complete":
            left.put(ready.rows())
            left.is_complete = True

    def _tell_blocked(self, reason: str) -> None:
        rows = self.settings.rows or 0
        not_run = {reason: rows} if rows else {reason: 0}
        self.terms.tell(
            DatasetResult(task=self.terms.task, requested=rows, written=0, not_run=not_run), ()
        )


@attrs.frozen(eq=False, kw_only=True)
class Ready:
    """A dataset that may begin."""

    spec: DatasetSpec
    output: Output

    @property
    def folder(self) -> Path | None:
        """Where its files go; None if there are none."""
        return self.output.folder.path if isinstance(self.output, FolderOutput) else None

    @property
    def format(self) -> Any:
        """Of its files."""
        return self.output.folder.format if isinstance(self.output, FolderOutput) else None

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Those that are written."""
        if isinstance(self.output, FolderOutput):
            return DatasetRows(self.output.folder.path)
        if isinstance(self.output, MemoryOutput):
            groups = self.output.rows
            return [values for group in sorted(groups) for _, values in groups[group]]
        return ()

    def close(self) -> None:
        """Let others write to its folder."""
        if isinstance(self.output, FolderOutput):
            self.output.folder.close()


async def open_dataset(
    prepared: PreparedSuite,
    settings: ColumnsSettings,
    asker: Asker,
    scripts: Scripts,
    terms: DatasetTerms,
) -> DatasetTask:
    """A dataset, opened as far as it can be known. A checkpoint.

    Raises:
        SuiteError: A seed cannot be read; tells of all that is wrong with it.
        DatasetError: The folder cannot be used.
    """
    task = DatasetTask(prepared, settings, asker, scripts, terms, None)
    if _of_tasks(settings):
        await trio.lowlevel.checkpoint()
        return task
    return attrs.evolve(task, ready=await open_ready(task, terms.seeds))


async def read_seeds(settings: ColumnsSettings) -> Mapping[str, Source]:
    """The rows of all seeds that are files, by the names of their first columns. A checkpoint.

    Raises:
        SuiteError: A file cannot be read, or is wrong.
    """

    def read() -> Mapping[str, Source]:
        found: dict[str, Source] = {}
        for place, column in enumerate(settings.columns):
            if isinstance(column, SeedColumns) and column.file is not None:
                found[column.name] = open_seed_file(
                    column.file, column.columns, f"$.columns[{place}].file"
                )
        return found

    return await trio.to_thread.run_sync(read, abandon_on_cancel=True)


async def open_ready(task: DatasetTask, sources: Mapping[str, Source]) -> Ready:
    """Everything about a dataset that is known when its seeds are. A checkpoint.

    Raises:
        DatasetError: The folder cannot be used.
    """
    settings, terms, prepared = task.settings, task.terms, task.prepared
    graph = ColumnGraph.of(producers_of(settings))
    code = CodeFiles(prepared.suite.directory)
    marks = {
        column.name: mark
        for column in settings.columns
        if (mark := _mark(column, prepared.suite.providers, sources, code)) is not None
    }
    header_fingerprint = fingerprint(
        settings, marks, [code(one.target or "") or "" for one in settings.processors]
    )
    types = dict(column_types(settings))
    for source in sources.values():
        types.update(source.types)
    columns = _written(settings, types)
    grouping = _grouping(settings, sources, terms)
    output: Output = MemoryOutput(grouping)
    if not terms.in_memory:
        folder = await trio.to_thread.run_sync(
            functools.partial(
                _open_folder,
                task,
                Header(
                    columns={name: types[name] for name in columns},
                    grouping=grouping,
                    fingerprint=header_fingerprint,
                ),
            )
        )
        if folder.moved is not None:
            terms.warn(f"the dataset that was in {folder.path} is in {folder.moved} now")
        grouping, output = folder.header.grouping, FolderOutput(folder)
    templates = prepared.templates
    cells = Cells(
        asker=task.asker,
        templates=attrs.evolve(templates, strict=True).for_data(),
        seed=settings.seed,
    )
    means = Means(
        cells=cells,
        scripts=task.scripts,
        filters=templates.filters,
        env=templates.env,
        kinds=prepared.suite.kinds,
        sources=sources,
    )
    digests = producer_digests(graph, settings, marks)
    limit_ms = prepared.suite.evaluate_options.timeout_ms
    spec = DatasetSpec(
        task=terms.task,
        settings=settings,
        graph=graph,
        makings=makings_of(settings, graph, means, digests),
        types=types,
        columns=columns,
        grouping=grouping,
        fingerprint=header_fingerprint,
        stages=stages_of(settings.processors, task.scripts),
        timeout=limit_ms / 1000 if limit_ms else float("inf"),
    )
    return Ready(spec=spec, output=output)


def _mark(
    column: Column,
    providers: Sequence[ProviderEntry],
    sources: Mapping[str, Source],
    code: CodeFiles,
) -> str | None:
    """What the values of a column depend on beside what is said of it, if anything."""
    match column:
        case SeedColumns():
            return sources[column.name].digest
        case LlmColumn() | JudgeColumn():
            return mark_of(providers[column.asking.provider])
        case EmbeddingColumn():
            return mark_of(providers[column.provider])
        case PythonColumn():
            return code(column.target)
        case _:
            return None


def _of_tasks(settings: ColumnsSettings) -> Sequence[SeedColumns]:
    """The seeds that are rows of earlier tasks."""
    seeds = [one for one in settings.columns if isinstance(one, SeedColumns)]
    return [one for one in seeds if one.from_task is not None]


def _written(settings: ColumnsSettings, types: Mapping[str, ColumnType]) -> Sequence[str]:
    """The columns that are written, as they stand in the suite; side effects behind what makes them."""
    found: dict[str, None] = {}
    for column, producer in zip(settings.columns, producers_of(settings), strict=True):
        if column.keep:
            found.update(dict.fromkeys((*producer.outputs, *producer.extras)))
    return [name for name in found if name in types]


def _grouping(
    settings: ColumnsSettings, sources: Mapping[str, Source], terms: DatasetTerms
) -> Grouping:
    rows = settings.rows or len(next(iter(sources.values())))
    if terms.preview is not None:
        return Grouping(min(settings.group_size, PREVIEW_GROUP), (min(rows, terms.preview),))
    before = None if terms.journal is None else terms.journal.grouping
    if before is not None and before.size == settings.group_size and before.rows <= rows:
        return before.extended(rows)
    return Grouping(settings.group_size, (rows,))


def _when_there(terms: DatasetTerms) -> Literal["if_possible", "always"]:
    """What a run that goes on does with the files of its folder."""
    return "if_possible" if terms.reconcile else "always"


def _open_folder(task: DatasetTask, header: Header) -> DatasetFolder:
    settings, terms = task.settings, task.terms
    journal = terms.journal
    goes_on = journal is not None and journal.grouping is not None
    return DatasetFolder.open(
        folder_of(settings, terms.task or "dataset"),
        header,
        file_format=chosen_format(settings.format, header.columns),
        existing=_when_there(terms) if goes_on else settings.existing,
        known=() if journal is None else journal.groups(),
        helps=_RECONCILE if goes_on else HELPS,
    )

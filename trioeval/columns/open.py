"""Opens a dataset: what makes its columns, the rows of its seeds, and its folder."""

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any, Literal

import attrs
import trio

from trioeval.columns.events import DatasetEvent
from trioeval.columns.files import HELPS, DatasetFolder, DatasetRows, Header, chosen_format
from trioeval.columns.files.open import check_unused
from trioeval.columns.fingerprints import fingerprint, producer_digests, surroundings_mark
from trioeval.columns.finish import FolderOutput, MemoryOutput, Output
from trioeval.columns.graph import ColumnGraph, Grouping
from trioeval.columns.journal import DatasetJournal
from trioeval.columns.makers.conversations import Cells
from trioeval.columns.makers.seeds import Source, open_seed_file
from trioeval.columns.model import (
    Column,
    ColumnsSettings,
    EmbeddingColumn,
    JudgeColumn,
    LlmColumn,
    PythonColumn,
    SeedColumns,
    folder_of,
)
from trioeval.columns.open_makers import Means, makings_of
from trioeval.columns.processors import stages_of
from trioeval.columns.result import DatasetResult
from trioeval.columns.spec import DatasetSpec, Rows
from trioeval.columns.types import column_types, producers_of, written_columns
from trioeval.errors import DatasetError, Problem, SuiteError
from trioeval.evaluation.prepared import PreparedSuite
from trioeval.evaluation.provider_calls import Asker, mark_of
from trioeval.evaluation.rows_left import RowsLeft
from trioeval.evaluation.scripts import Scripts
from trioeval.evaluation.suite_files import CodeFiles
from trioeval.suite.model import ProviderEntry

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

    tell: Callable[[DatasetResult, Rows], None]
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
    tell: Callable[[DatasetResult, Rows], None]
    """Told once what became of it, with its rows and their numbers if they are kept in memory."""
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
class DatasetParts:
    """What is open of the task of a dataset, whatever its seeds are."""

    prepared: PreparedSuite
    settings: ColumnsSettings
    asker: Asker
    scripts: Scripts
    terms: DatasetTerms


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
        return [values for _, values in self.in_memory()]

    def in_memory(self) -> Rows:
        """Those that are kept in memory, with their numbers."""
        if isinstance(self.output, MemoryOutput):
            groups = self.output.last
            return [row for group in sorted(groups) for row in groups[group]]
        return ()

    def close(self) -> None:
        """Let others write to its folder."""
        if isinstance(self.output, FolderOutput):
            self.output.folder.close()


@attrs.frozen
class SeedFiles:
    """The rows of all seeds of a suite that are files."""

    by_task: Mapping[str | None, Mapping[str, Source]]
    """For each task that builds a dataset, by the names of their first columns."""


def read_seeds(prepared: PreparedSuite) -> SeedFiles:
    """The rows of all seeds that are files. Blocks.

    Raises:
        SuiteError: Files cannot be read, or are wrong; tells of all of them.
    """
    found: dict[str | None, dict[str, Source]] = {}
    problems: list[Problem] = []
    files: list[Path] = []
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


async def open_ready(
    parts: DatasetParts, sources: Mapping[str, Source], stack: ExitStack | AsyncExitStack
) -> Ready:
    """Everything about a dataset that is known when its seeds are. A checkpoint.

    Args:
        parts: What is open.
        sources: The rows of all of its seeds, by the names of their first columns.
        stack: What lets go of its folder, however the run ends.

    Raises:
        DatasetError: The folder cannot be used.
    """
    settings, terms, prepared = parts.settings, parts.terms, parts.prepared
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
    grouping = _grouping(settings, sources, terms)
    output: Output = MemoryOutput(grouping)
    if not terms.in_memory:
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
        stack.callback(folder.close)
        if folder.moved is not None:
            terms.warn(f"the dataset that was in {folder.path} is in {folder.moved} now")
        grouping, output = folder.header.grouping, FolderOutput(folder)
    templates = prepared.templates
    cells = Cells(
        asker=parts.asker,
        templates=attrs.evolve(templates, strict=True).for_data(),
        seed=settings.seed,
    )
    means = Means(
        cells=cells,
        scripts=parts.scripts,
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
        stages=stages_of(settings.processors, parts.scripts),
        timeout=limit_ms / 1000 if limit_ms else float("inf"),
    )
    return Ready(spec=spec, output=output)


def check_folders(prepared: PreparedSuite) -> None:
    """See that no dataset is to be begun in a folder that holds something else.

    What can only be found out with the rows of an earlier task is not looked at.

    Raises:
        DatasetError: Some are; tells of all of them.
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


def _first_seed(settings: ColumnsSettings) -> str:
    """The seed that says how many rows there are, where nothing else does, by its first column."""
    return next(one.name for one in settings.columns if isinstance(one, SeedColumns))


def _written(settings: ColumnsSettings) -> Sequence[str]:
    """The columns that the files of groups have: what is left out at last is written before."""
    before = [one for one in settings.processors if one.stage != "after_generation"]
    return written_columns(attrs.evolve(settings, processors=tuple(before)))


def _grouping(
    settings: ColumnsSettings, sources: Mapping[str, Source], terms: DatasetTerms
) -> Grouping:
    rows = settings.rows or len(sources[_first_seed(settings)])
    if terms.preview is not None:
        return Grouping(min(settings.group_size, PREVIEW_GROUP), (min(rows, terms.preview),))
    before = None if terms.journal is None else terms.journal.grouping
    if before is not None and before.size == settings.group_size and before.rows <= rows:
        return before.extended(rows)
    return Grouping(settings.group_size, (rows,))


def _when_there(terms: DatasetTerms) -> Literal["if_possible", "always"]:
    """What a run that goes on does with the files of its folder."""
    return "if_possible" if terms.reconcile else "always"


def _open_folder(parts: DatasetParts, header: Header, kinds: Mapping[str, str]) -> DatasetFolder:
    settings, terms = parts.settings, parts.terms
    journal = terms.journal
    goes_on = journal is not None and journal.grouping is not None
    return DatasetFolder.open(
        folder_of(settings, terms.task or "dataset"),
        header,
        file_format=chosen_format(settings.format, header.columns),
        existing=_when_there(terms) if goes_on else settings.existing,
        known=() if journal is None else journal.groups(),
        again=() if journal is None else journal.again(),
        helps=_RECONCILE if goes_on else HELPS,
        kinds=kinds,
    )

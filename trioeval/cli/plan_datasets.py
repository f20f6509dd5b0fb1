"""What a plan tells of datasets, and of tests that are their rows."""

from collections import Counter
from collections.abc import Iterator, Mapping

from trioeval.datasets.graph import ColumnGraph, Producer
from trioeval.datasets.grouping import Grouping
from trioeval.report import inert
from trioeval.report.dataset_text import shown_path
from trioeval.suite.column_models import (
    Column,
    ColumnsSettings,
    EmbeddingColumn,
    JudgeColumn,
    LlmColumn,
    SeedColumns,
    folder_of,
)
from trioeval.suite.column_producers import producers_of
from trioeval.tasks import PreparedTask
from trioeval.tasks.columns.makers import kind_of

_NAME = 60  # characters of a name
_SCOPES = {"cell": "a job a row", "full": "a job a group", "scratch": "a job a group, from nothing"}


def dataset_lines(
    part: PreparedTask, settings: ColumnsSettings, cells: Counter[str]
) -> Iterator[str]:
    """What a task makes: its rows and groups, and its columns in the order in which they are made.

    Args:
        part: The task.
        settings: Of its dataset.
        cells: Gets the calls that its columns make at the least, by lane.
    """
    graph = ColumnGraph.of(producers_of(settings))
    after = f", after {', '.join(part.depends_on)}" if part.depends_on else ""
    yield f"task {inert(part.id, _NAME)}{after}: {_size(settings, graph)}"
    folder = folder_of(settings, part.id or "dataset")
    yield f"  files in {shown_path(folder, folder.cwd())}, {settings.format}"
    columns = {column.name: column for column in settings.columns}
    for producer in graph.producers:
        column = columns[producer.name]
        place = _provider(column)
        lane = ""
        if place is not None:
            name = part.prepared.lane_names[place]
            lane = f" on lane {inert(name, _NAME)}"
            cells[name] += settings.rows or 0
        yield f"  column {_names(producer)}: {kind_of(column)}, {_SCOPES[producer.scope]}{lane}"


def _size(settings: ColumnsSettings, graph: ColumnGraph) -> str:
    if settings.rows is None:
        return f"a dataset; {_rows_of(settings)}"
    grouping = Grouping(settings.group_size, (settings.rows,))
    jobs = graph.jobs(settings.rows, len(grouping))
    return f"a dataset of {settings.rows} rows in {len(grouping)} groups, {jobs} jobs"


def _rows_of(settings: ColumnsSettings) -> str:
    """Where the number of rows comes from that nobody has said."""
    seed = next(column for column in settings.columns if isinstance(column, SeedColumns))
    if seed.file is not None:
        return f"as many rows as {inert(seed.file.name, _NAME)} has"
    return f"rows known when {inert(seed.from_task or '', _NAME)} is over"


def rows_later(part: PreparedTask, wanted: Mapping[str | None, int | None]) -> str:
    """How many rows a task will have whose tests are those of a dataset.

    Args:
        part: The task.
        wanted: How many rows each dataset is to have, where that is known.
    """
    source = part.prepared.suite.rows_of
    if source is None:
        return ""
    bounds = [one for one in (source.limit, wanted.get(source.task)) if one is not None]
    each = len(part.prepared.steps)
    most = f" (at most {min(bounds) * each})" if bounds else ""
    return f"rows known when {inert(source.task, _NAME)} is over{most}"


def _provider(column: Column) -> int | None:
    """The place of who is asked; None if nobody is."""
    match column:
        case LlmColumn() | JudgeColumn():
            return column.asking.provider
        case EmbeddingColumn():
            return column.provider
        case _:
            return None


def _names(producer: Producer) -> str:
    return ", ".join(inert(name, _NAME) for name in producer.outputs)

"""The datasets of a suite in a simulation: the real order of cells and groups, with modelled calls.

Columns that call a model make one request for each cell; other columns take no time. All cells have the value
null, so no cell is skipped and no row is dropped: a forecast is an upper bound where conditions decide that.
"""

import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from trioeval.columns.finish import MemoryOutput
from trioeval.columns.graph import ColumnGraph, RowGrouping
from trioeval.columns.lanes import LOCAL
from trioeval.columns.makers.base import CellOrder, GroupOrder, Maker
from trioeval.columns.model import (
    Column,
    ColumnsSettings,
    EmbeddingColumn,
    JudgeColumn,
    LlmColumn,
    SeedColumns,
)
from trioeval.columns.open import read_seeds
from trioeval.columns.run import DatasetRun
from trioeval.columns.spec import DatasetSpec, ProducerSetup
from trioeval.columns.types import producers_of
from trioeval.evaluation.prepared import PreparedSuite, PreparedTask
from trioeval.kernel import Calls
from trioeval.providers import ProviderSpec

Ask = Callable[[int, int, Calls[Any]], Awaitable[None]]
"""Makes a request to a provider for a cell with a number, unique in the dataset."""


@attrs.frozen
class _CellCall:
    """Makes the cells of a column by one request each."""

    ask: Ask
    lane: str
    provider: int
    first: int
    """The number of the cell of row 0."""
    columns: tuple[str, ...]

    async def make(self, order: CellOrder, calls: Calls[Any], /) -> Mapping[str, Any]:
        """Make one request."""
        await self.ask(self.provider, self.first + order.row, calls)
        return dict.fromkeys(self.columns)


@attrs.frozen
class _InstantCells:
    """Makes the cells of a column in no time."""

    columns: tuple[str, ...]
    lane: str = LOCAL

    async def make(self, _order: CellOrder, _calls: Calls[Any], /) -> Mapping[str, Any]:  # noqa: ASYNC124
        """Return the cell."""
        return dict.fromkeys(self.columns)


@attrs.frozen
class _InstantGroups:
    """Makes the columns of groups in no time."""

    columns: tuple[str, ...]
    lane: str = LOCAL

    async def make(  # noqa: ASYNC124
        self, order: GroupOrder, _calls: Calls[Any], /
    ) -> Sequence[tuple[int, Mapping[str, Any]]]:
        """Return the rows."""
        return [(row, dict.fromkeys(self.columns)) for row in order.rows]


@attrs.frozen(eq=False)
class SimulatedDataset:
    """One task of type `columns`, for any number of simulations."""

    part: PreparedTask
    settings: ColumnsSettings
    rows: int
    """The number of its rows that are simulated, from the first."""
    all_rows: int

    @property
    def prepared(self) -> PreparedSuite:
        """The suite of the task."""
        return self.part.prepared

    def first(self, rows: int) -> "SimulatedDataset":
        """Return the dataset with its first rows only."""
        return attrs.evolve(self, rows=rows)

    def called(self) -> Iterator[tuple[int, ProviderSpec]]:
        """Yield the providers of its columns, with their indices."""
        for place in sorted(set(self.settings.called())):
            yield place, self.prepared.specs[place]

    def prompts(self, provider: int) -> Sequence[str]:
        """Return the templates of the prompts of a provider; their values are made only in a run."""
        texts = []
        for column in self.settings.columns:
            if _provider_of(column) != provider:
                continue
            match column:
                case EmbeddingColumn():
                    texts.append(column.text)
                case LlmColumn() | JudgeColumn():
                    texts.append(str(column.asking.prompt))
                case _:
                    pass
        return texts

    def run(self, lanes: Sequence[Sequence[str]], ask: Ask) -> DatasetRun:
        """Return the dataset, ready to be built in memory.

        Args:
            lanes: The lanes of each provider.
            ask: Makes a request.
        """
        settings = self.settings
        graph = ColumnGraph.of(producers_of(settings))
        by_name = {column.name: column for column in settings.columns}
        makings = []
        for place, producer in enumerate(graph.producers):
            columns, provider = graph.columns[place], _provider_of(by_name[producer.name])
            maker: Maker = _InstantGroups(columns)
            if provider is not None:
                maker = _CellCall(ask, lanes[provider][0], provider, place * self.rows, columns)
            elif producer.scope == "cell":
                maker = _InstantCells(columns)
            kind = by_name[producer.name].kind
            makings.append(ProducerSetup(maker=maker, kind=kind, digest=""))
        limit_ms = self.prepared.suite.evaluate_options.timeout_ms
        spec = DatasetSpec(
            task=self.part.id,
            settings=settings,
            graph=graph,
            makings=makings,
            types=dict.fromkeys((name for several in graph.columns for name in several), "text"),
            columns=(),
            grouping=RowGrouping(settings.group_size, (self.rows,)),
            timeout=limit_ms / 1000 if limit_ms else math.inf,
        )
        return DatasetRun(spec, MemoryOutput(spec.grouping))


def _provider_of(column: Column) -> int | None:
    """Return the index of the provider that a column calls; None if it calls none."""
    match column:
        case LlmColumn() | JudgeColumn():
            return column.asking.provider
        case EmbeddingColumn():
            return column.provider
        case _:
            return None


def dataset_of(part: PreparedTask, sizes: Mapping[str | None, int]) -> SimulatedDataset | str:
    """Return the simulation of a dataset, or the reason why its number of rows is unknown.

    Args:
        part: The task.
        sizes: The rows of the tasks before it, by id, as far as they are datasets.

    Raises:
        SuiteError: Its seed file cannot be read.
    """
    settings = part.prepared.suite.settings
    assert isinstance(settings, ColumnsSettings)  # noqa: S101 - the caller has looked
    rows = settings.rows
    if rows is None:
        seed = next(one for one in settings.columns if isinstance(one, SeedColumns))
        if seed.from_task is not None:
            if seed.from_task not in sizes:
                return f"its rows are those of task {seed.from_task}, which only a run generates"
            rows = sizes[seed.from_task]
        else:
            rows = len(read_seeds(part.prepared).by_task[None][seed.name])
    return SimulatedDataset(part, settings, rows, rows)

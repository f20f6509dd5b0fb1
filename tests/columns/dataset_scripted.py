"""Datasets in virtual time: columns with scripted makers, and their results."""

import copy
import json
import math
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import attrs
import trio

from trioeval.columns.cell_types import ColumnType
from trioeval.columns.events import DatasetEvent
from trioeval.columns.files import GroupFile
from trioeval.columns.finish import MemoryOutput
from trioeval.columns.graph import ColumnGraph, Producer, RowGrouping
from trioeval.columns.journal import MadeRecord, RestoredGroup
from trioeval.columns.lanes import LOCAL, OWN_LANES
from trioeval.columns.makers.base import CellOrder, GroupOrder, Made
from trioeval.columns.model import ColumnsSettings, ErrorWindow, Skip
from trioeval.columns.result import Cause, DatasetResult, DroppedRow
from trioeval.columns.run import DatasetRun
from trioeval.columns.spec import Condition, DatasetSpec, ProducerSetup, Stages
from trioeval.errors import CallError, Fault
from trioeval.kernel import Calls, Event, Lanes, LaneSpec
from trioeval.testing import run_virtual

Values = Mapping[str, Any]
Cell = Callable[[CellOrder, Calls[Any]], Awaitable[Values]]
Group = Callable[[GroupOrder, Calls[Any]], Awaitable[Made]]
NO_SHUTDOWN = ErrorWindow(enabled=False)


@attrs.frozen
class CellOf:
    """A maker of cells from a function."""

    lane: str
    function: Cell

    async def make(self, order: CellOrder, calls: Calls[Any], /) -> Values:
        return await self.function(order, calls)


@attrs.frozen
class GroupOf:
    """A maker of groups from a function."""

    lane: str
    function: Group

    async def make(self, order: GroupOrder, calls: Calls[Any], /) -> Made:
        return await self.function(order, calls)


@attrs.frozen(kw_only=True)
class Col:
    """A producer and its maker."""

    producer: Producer
    maker: CellOf | GroupOf
    kind: str = "python"
    is_recorded: bool = True
    leaves_out: bool = False
    skip: Skip = attrs.field(factory=Skip)
    skip_when: Condition | None = None
    drops: Sequence[tuple[Cause, Condition]] = ()
    weight: float = 1.0
    types: Mapping[str, ColumnType] = attrs.field(factory=dict)


def cell(
    name: str,
    function: Cell,
    *needs: str,
    lane: str = LOCAL,
    outputs: Sequence[str] = (),
    extras: Sequence[str] = (),
    **more: Any,
) -> Col:
    """Return a column of cells."""
    made = (name, *outputs)
    producer = Producer(name=name, outputs=made, extras=tuple(extras), requires=needs, scope="cell")
    return Col(producer=producer, maker=CellOf(lane, function), **more)


def whole(
    name: str,
    function: Group,
    *needs: str,
    lane: str = LOCAL,
    scope: Literal["full", "scratch"] | None = None,
    ordered: bool = False,
    outputs: Sequence[str] = (),
    **more: Any,
) -> Col:
    """Return a column of groups; from scratch if it needs nothing."""
    producer = Producer(
        name=name,
        outputs=(name, *outputs),
        requires=needs,
        scope=scope or ("full" if needs else "scratch"),
        ordered=ordered,
    )
    return Col(producer=producer, maker=GroupOf(lane, function), **more)


def dataset(
    *cols: Col, rows: int, size: int = 1000, stages: Stages | None = None, **more: Any
) -> DatasetSpec:
    """Return a specification; without an early shutdown unless one is given."""
    graph = ColumnGraph.of([col.producer for col in cols])
    by_name = {col.producer.name: col for col in cols}
    ordered = [by_name[producer.name] for producer in graph.producers]
    timeout = more.pop("timeout", math.inf)
    fingerprint = more.pop("fingerprint", {})
    grouping = more.pop("grouping", None) or RowGrouping(size, (rows,))
    types: dict[str, ColumnType] = {}
    for col in ordered:
        types |= dict.fromkeys((*col.producer.outputs, *col.producer.extras), "json")
        types |= col.types
    return DatasetSpec(
        task="t",
        settings=ColumnsSettings(columns=(), **{"shutdown": NO_SHUTDOWN, **more}),
        graph=graph,
        makings=[
            ProducerSetup(
                maker=col.maker,
                kind=col.kind,
                digest=f"digest of {col.producer.name}",
                is_recorded=col.is_recorded,
                leaves_out=col.leaves_out,
                skip=col.skip,
                skip_when=col.skip_when,
                drops=col.drops,
                weight=col.weight,
            )
            for col in ordered
        ],
        types=types,
        columns=list(types),
        grouping=grouping,
        fingerprint=fingerprint,
        stages=stages or Stages(),
        timeout=timeout,
    )


def seeds(seconds: float = 0.0, log: list[Any] | None = None) -> Group:
    """Returns ten times its number for each row."""

    async def make(order: GroupOrder, _calls: Calls[Any]) -> Made:
        if log is not None:
            log.append((trio.current_time(), order.group, order.start))
        if seconds:
            await trio.sleep(seconds)
        return [(row, {"seed": 10 * row}) for row in order.rows]

    return make


@attrs.define
class Provider:
    """A provider of cells in virtual time that records its calls."""

    name: str
    lane: str
    seconds: float | Callable[[int], float] = 1.0
    says: Callable[[int, int], Any] = lambda row, _attempt: row
    """The value for a row at an attempt (from 0), or an exception to raise."""
    starts: list[tuple[float, int]] = attrs.field(factory=list)
    """The instants of calls, with their rows."""
    ends: list[tuple[float, int]] = attrs.field(factory=list)
    cancelled: list[int] = attrs.field(factory=list)
    attempts: Counter[int] = attrs.field(factory=Counter)
    seen: dict[int, Values] = attrs.field(factory=dict)
    in_flight: int = 0
    most: int = 0

    def col(self, *needs: str, **more: Any) -> Col:
        """Return the column that it makes."""
        return cell(self.name, self.make, *needs, lane=self.lane, **more)

    async def make(self, order: CellOrder, calls: Calls[Any]) -> Values:
        """Make one cell."""
        self.seen[order.row] = copy.deepcopy(dict(order.values))
        value = await calls(self.lane, self._send, order)
        return {self.name: value}

    async def _send(self, order: CellOrder) -> Any:
        row = order.row
        attempt = self.attempts[row]
        self.attempts[row] += 1
        order.tally.on_request(0)
        self.starts.append((trio.current_time(), row))
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        seconds = self.seconds(row) if callable(self.seconds) else self.seconds
        done = False
        try:
            await trio.sleep(seconds)
            done = True
        finally:
            self.in_flight -= 1
            if not done:
                self.cancelled.append(row)
        self.ends.append((trio.current_time(), row))
        result = self.says(row, attempt)
        if isinstance(result, Exception):
            raise result
        return result

    @property
    def rows(self) -> list[int]:
        """Return the requested rows, in order."""
        return [row for _, row in self.starts]


def transient(message: str = "503") -> CallError:
    return CallError(Fault.TRANSIENT, message)


def refusal(message: str = "400") -> CallError:
    return CallError(Fault.REFUSED, message)


def busy(retry_after: float | None = None) -> CallError:
    return CallError(Fault.RATE_LIMITED, "429", retry_after=retry_after)


@attrs.define(eq=False)
class MemoryDatasetJournal:
    """A `DatasetJournal` that can be truncated after any of its writes, as by a crash.

    Its records are stored as JSON text, so that no caller can change it afterwards.
    """

    earlier: Sequence[tuple[str, Any]] = ()
    writes: list[tuple[str, Any]] = attrs.field(factory=list)
    _restored: dict[int, list[tuple[str, Any]]] = attrs.field(factory=lambda: defaultdict(list))
    _rows: dict[int, list[tuple[str, Any]]] = attrs.field(factory=lambda: defaultdict(list))

    @property
    def resumed(self) -> bool:
        return bool(self.earlier)

    @property
    def all(self) -> Sequence[tuple[str, Any]]:
        return (*self.earlier, *self.writes)

    def cut(self, after: int) -> "MemoryDatasetJournal":
        """Return the journal of an execution that was killed after the first writes."""
        return MemoryDatasetJournal(self.all[:after])

    @property
    def grouping(self) -> RowGrouping | None:
        states = [what for kind, what in self.earlier if kind == "begin"]
        return states[-1][0] if states else None

    def on_start(self, grouping: RowGrouping, fingerprint: Mapping[str, str]) -> None:
        self.writes.append(("begin", (grouping, dict(fingerprint))))

    def on_made(self, record: MadeRecord) -> None:
        values = json.dumps({str(row): dict(one) for row, one in record.values.items()})
        self.writes.append(("made", attrs.evolve(record, values={0: {"json": values}})))

    def on_dropped(self, row: DroppedRow) -> None:
        self.writes.append(("dropped", row))

    def on_written(self, group: GroupFile) -> None:
        self.writes.append(("written", group))

    def on_stage(self, name: str, state: str) -> None:
        self.writes.append(("stage", (name, state)))

    def stages(self) -> Mapping[str, str]:
        return dict(what for kind, what in self.earlier if kind == "stage")

    def groups(self) -> Sequence[GroupFile]:
        return [what for kind, what in self.earlier if kind == "written"]

    def groups_to_rewrite(self) -> frozenset[int]:
        return frozenset()

    def restored(self, group: int, rows: range) -> RestoredGroup:
        made: dict[tuple[str, int], MadeRecord] = {}  # the last one of a unit counts
        dropped = []
        for kind, what in self.earlier:
            if kind == "made":
                values = {int(row): one for row, one in json.loads(what.values[0]["json"]).items()}
                if (what.unit == group and not set(values).isdisjoint(rows)) or (
                    list(values) == [what.unit] and what.unit in rows
                ):
                    made[what.producer, what.unit] = attrs.evolve(what, values=values)
            elif kind == "dropped" and what.row in rows:
                dropped.append(what)
        return RestoredGroup(made=tuple(made.values()), dropped=dropped)

    async def durable(self) -> None:
        """Do nothing: memory is always durable."""

    @property
    def recorded(self) -> list[tuple[str, int]]:
        """Return the producers with the units that were made."""
        return [(what.producer, what.unit) for kind, what in self.all if kind == "made"]


@attrs.frozen
class Built:
    """The result of a dataset."""

    result: DatasetResult
    run: DatasetRun
    output: MemoryOutput
    events: Sequence[DatasetEvent]
    kernel: Sequence[Event]
    ended_at: float

    @property
    def rows(self) -> Mapping[int, Values]:
        """Return the written rows, by number."""
        return {row: values for group in self.output.last.values() for row, values in group}

    @property
    def numbers(self) -> list[int]:
        return sorted(self.rows)

    @property
    def recorded_once(self) -> list[tuple[str, int]]:
        """Return the records of all executions, each of which must be unique."""
        journal = self.run.progress.journal
        assert isinstance(journal, MemoryDatasetJournal)
        return journal.recorded

    def of(self, kind: type[Any]) -> list[Any]:
        """Return the events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]


def lanes_of(*specs: LaneSpec, cap: int | None = None) -> Lanes:
    """Return these lanes, and the dataset's own."""
    return Lanes([*specs, *(LaneSpec(name, 8) for name in sorted(OWN_LANES))], cap=cap)


async def building(
    spec: DatasetSpec,
    lanes: Lanes,
    *,
    journal: MemoryDatasetJournal | None = None,
    output: MemoryOutput | None = None,
    observe: Callable[[DatasetEvent], None] | None = None,
    warn: Callable[[str], None] | None = None,
    **more: Any,
) -> Built:
    """Build a dataset within a Trio run."""
    events: list[DatasetEvent] = []
    kernel: list[Event] = []
    output = output or MemoryOutput(spec.grouping)

    def tell(event: DatasetEvent) -> None:
        events.append(event)
        if observe is not None:
            observe(event)

    run = DatasetRun(spec, output, journal=journal, observe=tell, warn=warn)
    result = await run.build(lanes, observe=kernel.append, **more)
    built = Built(result, run, output, events, kernel, trio.current_time())
    check(built)
    return built


def built(spec: DatasetSpec, *specs: LaneSpec, cap: int | None = None, **more: Any) -> Built:
    """Build a dataset in virtual time."""

    async def main() -> Built:
        return await building(spec, lanes_of(*specs, cap=cap), **more)

    return run_virtual(main)


def check(built: Built) -> None:
    """Check the laws of every end of a dataset: COMPLETE, ORDER, and one outcome per row."""
    result, spec = built.result, built.run.spec
    assert (
        result.written + sum(result.dropped.values()) + sum(result.not_run.values())
        == result.requested
        == spec.grouping.rows
    ), result
    for group, rows in built.output.last.items():
        numbers = [row for row, _ in rows]
        assert numbers == sorted(set(numbers))
        assert set(numbers) <= set(spec.grouping.rows_of(group))
        assert all(list(values) == list(spec.columns) for _, values in rows)
    assert result.written == sum(map(len, built.output.last.values()))

"""Laws of datasets: over random columns, failures, drops, skips, budgets and ends."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import trio
from dataset_scripted import (
    Built,
    Col,
    MemoryDatasetJournal,
    Values,
    building,
    built,
    busy,
    cell,
    dataset,
    lanes_of,
    refusal,
    transient,
    whole,
)
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from trioeval.columns.buffer import Buffer
from trioeval.columns.finish import MemoryOutput
from trioeval.columns.lanes import CODE, LOCAL, OWN_LANES
from trioeval.columns.makers.base import CellOrder, GroupOrder, Made
from trioeval.columns.model import ErrorWindow, Skip
from trioeval.columns.spec import DatasetSpec, Processed, Rows, StageProcessor, Stages
from trioeval.kernel import Calls, LaneSpec
from trioeval.testing import run_virtual

EXAMPLES = settings().max_examples


@attrs.frozen
class Column:
    """The behaviour of a column of a drawn dataset. Everything follows from the numbers of rows."""

    name: str
    scope: str
    needs: tuple[str, ...]
    lane: str
    seconds: int
    """Row r takes r + this value modulo 4."""
    troubles: Mapping[int, tuple[str, int]]
    """By row (or group): the kind of failure, and the number of failures before it succeeds."""
    skips: int
    """Rows with the remainder 1 modulo this value are skipped; 0 skips none."""
    drops: int
    """Rows with the remainder 1 modulo this value are dropped; 0 drops none."""
    ordered: bool = False

    def value(self, values: Values, row: int) -> str:
        """Return the value for a row."""
        return f"{self.name}{row}({','.join(str(values[need]) for need in self.needs)})"


@attrs.frozen
class Drawn:
    """A dataset, and its events."""

    columns: tuple[Column, ...]
    rows: int
    size: int
    cells: int
    width: int
    prepares: bool
    shutdown: ErrorWindow


ERRORS: Mapping[str, Callable[[], Exception]] = {
    "mishap": transient,
    "refusal": refusal,
    "busy": busy,
    "bug": lambda: KeyError("x"),
}


@st.composite
def drawn_datasets(draw: st.DrawFn, *, calm: bool = False) -> Drawn:
    """Draw random columns with random dependencies."""
    shuts_down = not calm and draw(st.booleans())
    # An early end is only interesting if many groups are open and waiting.
    rows, size = draw(st.integers(4 if shuts_down else 1, 9)), draw(st.integers(1, 4))
    columns: list[Column] = []
    for number in range(draw(st.integers(1, 5))):
        before = [column.name for column in columns]
        needs = (
            tuple(draw(st.lists(st.sampled_from(before), unique=True, max_size=3)))
            if before
            else ()
        )
        scope = draw(st.sampled_from(["cell", "cell", "full"] if needs else ["cell", "scratch"]))
        lane = draw(st.sampled_from(["p", "q", LOCAL, CODE]))
        if lane in OWN_LANES:  # a maker without calls is never rate limited
            kinds = ["mishap"] if calm else ["mishap", "mishap", "mishap", "refusal", "bug"]
        elif shuts_down:
            kinds = ["refusal", "refusal", "refusal", "mishap", "busy"]
        else:
            kinds = ["mishap", "busy"] if calm else ["mishap", "mishap", "refusal", "bug", "busy"]
        trouble = st.tuples(st.sampled_from(kinds), st.integers(1, 2 if calm else 5))
        columns.append(
            Column(
                name="abcde"[number],
                scope=scope,
                needs=needs,
                lane=lane,
                seconds=draw(st.integers(0, 3)),
                troubles=draw(
                    st.dictionaries(
                        st.integers(0, rows - 1), trouble, min_size=shuts_down, max_size=3
                    )
                ),
                skips=draw(st.sampled_from([0, 2, 3])) if needs else 0,
                drops=draw(st.sampled_from([0, 0, 0, 4])),
                ordered=scope != "cell" and draw(st.booleans()),
            )
        )
    calls = draw(st.integers(1, 2))
    return Drawn(
        columns=tuple(columns),
        rows=rows,
        size=size,
        cells=draw(st.sampled_from([20, 1000] if shuts_down else [1, 6, 20, 1000])),
        width=draw(st.integers(1, 2 if shuts_down else 3)),
        prepares=draw(st.booleans()),
        shutdown=ErrorWindow(calls=calls, error_rate=1 / calls, enabled=shuts_down),
    )


@attrs.define
class Play:
    """The makers of a drawn dataset, which record what they made."""

    drawn: Drawn
    made: Counter[tuple[str, int]] = attrs.field(factory=Counter)
    """The returned values, by column and row or group."""
    tries: Counter[tuple[str, int]] = attrs.field(factory=Counter)
    begun: list[tuple[str, int]] = attrs.field(factory=list)
    """The groups in the order of the ordered makers."""

    def spec(self) -> DatasetSpec:
        """The specification to build."""
        stages = Stages(before_batch=(StageProcessor(name="pre", run=self._prepare),))
        return dataset(
            *[self._col(column) for column in self.drawn.columns],
            rows=self.drawn.rows,
            size=self.drawn.size,
            max_open_cells=self.drawn.cells,
            shutdown=self.drawn.shutdown,
            stages=stages if self.drawn.prepares else None,
        )

    def lanes(self) -> list[LaneSpec]:
        """The lanes of its calls."""
        width = self.drawn.width
        return [
            LaneSpec("p", width, adaptive="off", retries=1, patience=1e5),
            LaneSpec("q", 1, adaptive="off", retries=0, patience=1e5),
        ]

    async def _prepare(self, _group: int | None, rows: Rows) -> Processed:
        await trio.sleep(1)
        return Processed([(row, values) for row, values in rows if row % 7 != 6])

    def _col(self, column: Column) -> Col:
        more: dict[str, Any] = {"skip": Skip(value="-")}
        if column.skips:
            more["skip_when"] = self._remainder(column)
        if column.drops:
            more["drops"] = [("filtered", self._of_value(column))]
        if column.scope == "cell":
            return cell(column.name, self._cell(column), *column.needs, lane=column.lane, **more)
        return whole(
            column.name,
            self._group(column),
            *column.needs,
            lane=column.lane,
            ordered=column.ordered,
            **more,
        )

    def _remainder(self, column: Column) -> Any:
        def says(values: Values) -> bool:
            texts = [str(values[need]) for need in column.needs]
            numbers = [int(text[1:].partition("(")[0]) for text in texts if text != "-"]
            return bool(numbers) and numbers[0] % column.skips == 1

        return says

    def _of_value(self, column: Column) -> Any:
        def says(values: Values) -> bool:
            text = str(values[column.name])
            return text != "-" and int(text[1:].partition("(")[0]) % column.drops == 1

        return says

    def _cell(self, column: Column) -> Any:
        async def make(order: CellOrder, calls: Calls[Any]) -> Values:
            await self._work(column, order.row, calls, order)
            return {column.name: column.value(order.values, order.row)}

        return make

    def _group(self, column: Column) -> Any:
        async def make(order: GroupOrder, calls: Calls[Any]) -> Made:
            if column.ordered:
                self.begun.append((column.name, order.group))
            await self._work(column, order.group, calls, order)
            return [
                (row, {column.name: column.value(values, row)})
                for row, values in zip(order.rows, order.values, strict=True)
            ]

        return make

    async def _work(
        self, column: Column, unit: int, calls: Calls[Any], order: CellOrder | GroupOrder
    ) -> None:
        async def send() -> None:
            order.tally.on_request(0)
            await trio.sleep((unit + column.seconds) % 4)
            attempt = self.tries[column.name, unit]
            self.tries[column.name, unit] += 1
            kind, times = column.troubles.get(unit, ("", 0))
            if attempt < times:
                error = ERRORS[kind]()
                raise error

        if column.lane in OWN_LANES:
            await send()
        else:
            await calls(column.lane, send)
        self.made[column.name, unit] += 1


def check(play: Play, found: Built) -> None:
    """Check ONCE, and the values of every written row."""
    assert all(times == 1 for times in play.made.values()), play.made
    for name in {name for name, _ in play.begun}:
        groups = [group for one, group in play.begun if one == name]
        assert groups == sorted(groups)
    by_name = {column.name: column for column in play.drawn.columns}
    for row, values in found.rows.items():
        for name, value in values.items():
            assert value == "-" or value == by_name[name].value(values, row)
    assert found.run.failure is None
    progress = found.run.progress
    left = [row for group in progress.groups.values() for row in group.rows_left()]
    anew = Buffer()
    anew.open(left)
    for row in left:
        anew.set(row, progress.buffer.view(row))
    assert progress.buffer.bytes == anew.bytes
    assert not any(order.is_gone for order in progress.orders.values())
    assert all(line._groups.keys() <= progress.groups.keys() for line in progress._lines.values())


AT_ONCE = Drawn(
    columns=(
        Column(
            name="a",
            scope="scratch",
            needs=(),
            lane="p",
            seconds=0,
            troubles={0: ("refusal", 1)},
            skips=0,
            drops=0,
            ordered=True,
        ),
    ),
    rows=2,
    size=1,
    cells=6,
    width=1,
    prepares=False,
    shutdown=ErrorWindow(calls=1, error_rate=1.0),
)
"""The failure of group 0 makes group 1 ready, and ends the dataset in the same step."""

PLAIN = Column(
    name="a", scope="cell", needs=(), lane=LOCAL, seconds=1, troubles={}, skips=0, drops=0
)
ASIDE = Drawn(
    columns=(
        PLAIN,
        attrs.evolve(
            PLAIN,
            name="b",
            needs=("a",),
            lane="p",
            seconds=3,
            troubles={0: ("refusal", 1)},
            skips=2,
        ),
        attrs.evolve(PLAIN, name="c", needs=("a",), seconds=2, troubles={3: ("mishap", 1)}),
    ),
    rows=4,
    size=2,
    cells=1000,
    width=1,
    prepares=False,
    shutdown=ErrorWindow(calls=1, error_rate=1.0),
)
"""The failure of group 0 ends the jobs of group 1, except a cell that is set aside."""


@example(drawn=AT_ONCE, _seed=None)
@example(drawn=ASIDE, _seed=None)
@given(drawn=drawn_datasets(), _seed=st.random_module())
@settings(max_examples=EXAMPLES * 2 // 3)
def test_every_row_has_one_outcome(drawn: Drawn, _seed: Any) -> None:
    """COMPLETE, ONCE, ORDER: the totals add up; nothing remains, and nothing hangs."""
    play = Play(drawn)
    found = built(play.spec(), *play.lanes())
    check(play, found)
    result = found.result
    for cause in result.dropped:
        event(f"dropped: {cause}")
    assert not found.run.progress.groups
    assert not found.run.progress.orders
    assert result.early_shutdown or not result.not_run
    if not result.early_shutdown:
        assert result.groups == len(found.run.spec.grouping)


@given(drawn=drawn_datasets(calm=True), _seed=st.random_module())
@settings(max_examples=EXAMPLES // 3)
def test_transient_failures_lose_no_row(drawn: Drawn, _seed: Any) -> None:
    """With transient failures and refusals within the rounds, only rows with a true condition are dropped."""
    play = Play(drawn)
    found = built(play.spec(), *play.lanes())
    check(play, found)
    assert not found.result.lost
    assert not found.result.not_run


@given(
    drawn=drawn_datasets(),
    how=st.sampled_from(["stop", "cancel", "deadline"]),
    at=st.integers(0, 30),
    _seed=st.random_module(),
)
@settings(max_examples=EXAMPLES // 3)
def test_an_interrupted_and_resumed_run_ends_like_an_uninterrupted_one(
    drawn: Drawn, how: str, at: int, _seed: Any
) -> None:
    """RESUME and ONCE hold over both executions; every row has an outcome after the interruption too."""
    drawn = lasting(drawn)
    reference = built(Play(drawn).spec(), *Play(drawn).lanes())
    play, journal = Play(drawn), MemoryDatasetJournal()
    spec = play.spec()
    output = MemoryOutput(spec.grouping)

    async def main() -> Built | None:
        stop, first = trio.Event(), None
        deadline = at + 0.5 if how == "deadline" else math.inf

        async def stops() -> None:
            await trio.sleep(at)
            stop.set()

        async with trio.open_nursery() as nursery:
            if how == "stop":
                nursery.start_soon(stops)
            with trio.move_on_after(at + 0.5 if how == "cancel" else math.inf):
                first = await building(
                    spec,
                    lanes_of(*play.lanes()),
                    journal=journal,
                    output=output,
                    deadline=deadline,
                    stop=stop,
                )
            nursery.cancel_scope.cancel()
        return first

    first = run_virtual(main)
    if first is not None:
        event(f"{how}: {first.result.outcome}")
        check(play, first)
    recorded = journal.recorded
    play.made = Counter(dict.fromkeys(recorded, 1))
    play.begun.clear()
    second = built(play.spec(), *play.lanes(), journal=journal.cut(10**9), output=output)
    check(play, second)
    assert second.rows == reference.rows
    # The first of two causes is random.
    assert sum(second.result.dropped.values()) == sum(reference.result.dropped.values())
    assert max(Counter(second.recorded_once).values(), default=1) == 1


@given(drawn=drawn_datasets(), data=st.data(), _seed=st.random_module())
@settings(max_examples=EXAMPLES // 3)
def test_a_killed_and_resumed_run_ends_like_an_uninterrupted_one(
    drawn: Drawn, data: st.DataObject, _seed: Any
) -> None:
    """RESUME holds after any record: equal rows, and no recorded cell is made again."""
    drawn = lasting(drawn)
    play, journal = Play(drawn), MemoryDatasetJournal()
    reference = built(play.spec(), *play.lanes(), journal=journal)
    at = data.draw(st.integers(0, len(journal.all)))
    cut = journal.cut(at)
    files = {file.group: file for file in cut.groups()}
    again = Play(drawn)
    again.made = Counter(dict.fromkeys(cut.recorded, 1))
    output = MemoryOutput(
        reference.run.spec.grouping,
        files,
        {group: reference.output.rows[group] for group in files},
    )
    found = built(again.spec(), *again.lanes(), journal=cut, output=output)
    check(again, found)
    assert found.rows == reference.rows
    assert sum(found.result.dropped.values()) == sum(reference.result.dropped.values())


def lasting(drawn: Drawn) -> Drawn:
    """Draw troubles that do not depend on the number of attempts, without an early shutdown."""
    columns = [attrs.evolve(column, troubles=for_good(column)) for column in drawn.columns]
    return attrs.evolve(drawn, columns=tuple(columns), shutdown=ErrorWindow(enabled=False))


def for_good(column: Column) -> Mapping[int, tuple[str, int]]:
    """Return the troubles of a column that come at no attempt, or at each."""
    return {
        unit: (kind, 10**6)
        for unit, (kind, _) in column.troubles.items()
        if kind in ("refusal", "bug")
    }

"""The stages of a group: what processors do with it, and how its rows are written."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import attrs
import trio

from trioeval.columns.cell_types import ColumnType, fits
from trioeval.columns.events import ProcessorBegun, ProcessorEnded
from trioeval.columns.files import DatasetFolder, DatasetRows, GroupFile
from trioeval.columns.files.formats import as_read
from trioeval.columns.graph import FINISH, Grouping, MakeJob
from trioeval.columns.groups import OpenGroup
from trioeval.columns.makers.base import CellError, Order, say
from trioeval.columns.makers.code import called, function_of
from trioeval.columns.model import Processor
from trioeval.columns.profile import Profiles
from trioeval.columns.progress import Progress
from trioeval.columns.result import DroppedRow
from trioeval.columns.spec import Process, Processed, Rows, StageProcessor, Stages, mistake
from trioeval.columns.types import means
from trioeval.documents.mistakes import kind
from trioeval.errors import DatasetError
from trioeval.evaluation.scripts import Scripts
from trioeval.grading import quote

# Where the rows of a dataset go: to the files of a folder, or, of a preview, to memory.


T = TypeVar("T")


@attrs.define(eq=False)
class MemoryOutput:
    """The rows of a preview; it has the members of `FolderOutput`."""

    grouping: Grouping
    written: dict[int, GroupFile] = attrs.field(factory=dict)
    rows: dict[int, Rows] = attrs.field(factory=dict)
    """By group."""
    aside: dict[int, Rows] = attrs.field(factory=dict)
    """What was left out of groups."""
    aside_final: dict[int, Rows] = attrs.field(factory=dict)
    """What was left out of the whole."""
    processed: dict[int, Rows] | None = None
    """The rows that took their place."""
    path = None
    format = None

    @property
    def is_processed(self) -> bool:
        """Whether others took their place."""
        return self.processed is not None

    @property
    def last(self) -> Mapping[int, Rows]:
        """The rows as they are in the end, by group."""
        return self.rows if self.processed is None else self.processed

    async def write(self, group: int, rows: Rows, dropped: Mapping[str, int], /) -> GroupFile:
        """Keep the rows of a group."""
        self.rows[group] = rows
        numbers = group_numbers(self.grouping.rows_of(group), rows)
        done = GroupFile(group=group, rows=numbers, file=None, digest=None, dropped=dropped)
        self.written[group] = done
        return done

    async def write_aside(
        self, group: int, rows: Rows, _columns: Mapping[str, ColumnType], /, *, final: bool = False
    ) -> None:
        """Keep what processors have left out of a group."""
        (self.aside_final if final else self.aside)[group] = rows

    async def read(self, group: int | None = None, /, *, processed: bool = False) -> Rows:
        """The rows of a group, or all."""
        kept = self.last if processed else self.rows
        groups = sorted(kept) if group is None else [group]
        return [row for number in groups for row in kept[number]]

    async def replace(
        self, groups: Iterable[tuple[int, Rows]], _columns: Mapping[str, ColumnType], /
    ) -> None:
        """Keep others in their place."""
        self.processed = dict(groups)

    async def finish(self, _result: Mapping[str, Any], /) -> None:
        """Nothing is left to do."""

    @property
    def numbered(self) -> Rows:
        """All rows as they are in the end, with their numbers."""
        return [row for group in sorted(self.last) for row in self.last[group]]

    def rows_written(self) -> Sequence[Mapping[str, Any]]:
        """All rows, as they are in the end."""
        return [values for _, values in self.numbered]

    def close(self) -> None:
        """Nothing is held."""


class FolderOutput:
    """The rows in the files of a folder; one thing after another, in threads."""

    def __init__(self, folder: DatasetFolder) -> None:
        self.folder = folder
        self.path = folder.path
        self.format = folder.format
        self.written = folder.written
        """The groups that are there; grows with `write`."""
        self._one = trio.CapacityLimiter(1)
        self._held: dict[bool, DatasetRows] = {}
        """What is read, by whether it was processed."""

    @property
    def is_processed(self) -> bool:
        """Whether all groups were written anew by `replace`, now or in an earlier run."""
        return self.folder.is_processed

    async def write(self, group: int, rows: Rows, dropped: Mapping[str, int], /) -> GroupFile:
        """Write the rows of a group."""
        return await self._in_thread(lambda: self.folder.write(group, rows, dropped))

    async def write_aside(
        self, group: int, rows: Rows, columns: Mapping[str, ColumnType], /, *, final: bool = False
    ) -> None:
        """Write what processors have left out of a group."""
        await self._in_thread(lambda: self.folder.write_aside(group, rows, columns, final=final))

    async def read(self, group: int | None = None, /, *, processed: bool = False) -> Rows:
        """The rows of a group that was there from the beginning, or all.

        Args:
            group: The group; None for all.
            processed: Whether they are read as `replace` got them, if it was called.
        """
        return await self._in_thread(lambda: self._read(group, processed=processed))

    async def replace(
        self, groups: Iterable[tuple[int, Rows]], columns: Mapping[str, ColumnType], /
    ) -> None:
        """Write all groups anew, all or none."""
        await self._in_thread(lambda: self.folder.replace(groups, columns=columns))

    async def finish(self, result: Mapping[str, Any], /) -> None:
        """Note that all of it is there."""
        await self._in_thread(lambda: self.folder.finish(result))

    def rows_written(self) -> Sequence[Mapping[str, Any]]:
        """All rows as they are in the end, read as they are looked at."""
        return DatasetRows(self.path)

    def close(self) -> None:
        """Let others write to the folder."""
        self.folder.close()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, limiter=self._one)

    def _read(self, group: int | None, *, processed: bool) -> Rows:
        if processed not in self._held:
            self._held[processed] = DatasetRows(self.path, processed=processed)
        rows = self._held[processed]
        places = range(len(rows))
        if group is not None:
            wanted = self.folder.header.grouping.rows_of(group)
            first = bisect_left(places, wanted.start, key=rows.number)
            places = range(first, bisect_left(places, wanted.stop, lo=first, key=rows.number))
        return [(rows.number(place), rows[place]) for place in places]


Output: TypeAlias = FolderOutput | MemoryOutput


def group_numbers(group: range, rows: Rows) -> tuple[int, ...] | int:
    """The numbers of rows of a group, as a `GroupFile` has them."""
    return len(rows) if len(rows) == len(group) else tuple(row for row, _ in rows)


_AFTER_GENERATION = "after_generation"
_STRIDE = 500  # rows that are checked between two looks at the rest of the world


@attrs.define(eq=False)
class Finishing:
    """The bodies of the jobs that end something."""

    progress: Progress
    output: Output
    profiles: Profiles

    async def prepare(self, order: Order) -> None:
        """Let processors see a group that has its seeds, and nothing else. A checkpoint if one is.

        Raises:
            DatasetError: One failed, and the run is to fail with it.
        """
        progress = self.progress
        scope, group = progress.start(order), progress.groups[order.job.group]
        stages = progress.spec.stages.before_batch
        before = self._rows(group)
        processed: Processed | str | None = None
        with scope:
            processed = await self._process(stages, group.number, before)
        if order.is_gone or processed is None:
            return
        if isinstance(processed, str):
            progress.drop(group, _lost(before, processed))
            return
        kept = {row for row, _ in processed.rows}
        for row, values in processed.rows:
            if not group.is_gone(row):
                progress.buffer.set(row, values)
        progress.drop(group, _left_out(before, kept))
        progress.drop_again(group)
        if group.left:
            progress.complete(order.job)

    async def finish(self, order: Order) -> None:
        """Write a group that is complete. Always a checkpoint.

        Raises:
            DatasetError: It cannot be written, or a processor failed and the run is to fail with it.
        """
        progress, number = self.progress, order.job.group
        progress.start(order)
        group, stages = progress.groups[number], progress.spec.stages.after_batch
        view = progress.buffer.view
        rows = self._rows(group) if stages else [(row, view(row)) for row in group.rows_left()]
        aside: Rows = ()
        gone: Sequence[DroppedRow] = ()
        if rows and stages:
            processed = await self._process(stages, number, rows)
            if isinstance(processed, str):
                gone, rows = _lost(rows, processed), ()
            else:
                gone = _left_out(rows, {row for row, _ in processed.rows})
                rows, aside = processed.rows, processed.aside
        written = [(row, self._columns(row, values)) for row, values in rows]
        counts = Counter[str](group.dropped) + Counter(one.cause for one in gone)
        if aside:
            await self.output.write_aside(number, aside, progress.spec.types)
        file = await self.output.write(number, written, dict(counts))
        await self.profiles.add(written, group.skipped)
        progress.drop(group, gone)
        progress.write(group, file)

    async def generation(self, deadline: float = math.inf) -> bool:
        """Let processors see the whole dataset, once. A checkpoint if there are any.

        They see it as it was written. Whether they have done so is seen by what they have left, and by
        nothing else: a process that is killed leaves all of that or nothing.

        Args:
            deadline: Instant at which they are cut off.

        Returns:
            Whether they have done so.

        Raises:
            DatasetError: One failed, or what it leaves cannot be written.
        """
        stages = self.progress.spec.stages.after_generation
        if not stages:
            return True
        if not self.output.is_processed:
            with trio.CancelScope(deadline=deadline):
                await trio.lowlevel.checkpoint_if_cancelled()
                await self._process_all(stages)
            if not self.output.is_processed:
                return False
        left = 0
        self.profiles.begin_anew()
        for number in sorted(self.output.written):
            rows = await self.output.read(number, processed=True)
            await self.profiles.add_processed(rows)
            left += len(rows)
        self.progress.account.left_out_at_last(self.progress.account.written - left)
        return True

    async def _process_all(self, stages: Sequence[StageProcessor]) -> None:
        progress, journal = self.progress, self.progress.journal
        grouping = progress.spec.grouping
        if journal is not None:
            journal.stage(_AFTER_GENERATION, "begun")
        processed = await self._process(stages, None, await self.output.read())
        if isinstance(processed, str):
            raise DatasetError(processed)
        columns = {
            name: progress.spec.types[name]
            for name in progress.spec.columns
            if name not in processed.left_out
        }
        by_group: dict[int, list[tuple[int, Mapping[str, Any]]]] = {
            number: [] for number in sorted(self.output.written)
        }
        for row, values in processed.rows:
            by_group[grouping.group_of(row)].append((row, values))
        aside: dict[int, list[tuple[int, Mapping[str, Any]]]] = {}
        for row, values in processed.aside:
            aside.setdefault(grouping.group_of(row), []).append((row, values))
        for number, several in aside.items():
            await self.output.write_aside(number, several, progress.spec.types, final=True)
        await self.output.replace(by_group.items(), columns)
        if journal is not None:
            journal.stage(_AFTER_GENERATION, "done")

    def complete_groups(self) -> Sequence[Order]:
        """The last stages of groups that are open, and lack nothing else."""
        ends = {number: MakeJob(FINISH, number) for number in self.progress.groups}
        return [
            Order(end)
            for number, end in ends.items()
            if self.progress.groups[number].needed() == (end,)
        ]

    async def _process(
        self, stages: Sequence[StageProcessor], group: int | None, rows: Rows
    ) -> Processed | str:
        """What all processors of a stage leave; or why the group is lost."""
        left_out_columns: frozenset[str] = frozenset()
        aside: dict[int, dict[str, Any]] = {}
        for processor in stages:
            try:
                processed = await self._run(processor, group, rows)
            except DatasetError as error:
                if processor.on_error == "abort" or group is None:
                    raise
                return str(error)
            rows = processed.rows
            left_out_columns |= processed.left_out
            for row, values in processed.aside:
                aside.setdefault(row, {}).update(values)
        return Processed(rows, sorted(aside.items()), left_out_columns)

    async def _run(self, processor: StageProcessor, group: int | None, rows: Rows) -> Processed:
        notify = self.progress.notify
        error: str | None = None
        notify(ProcessorBegun, processor.name, group)
        try:
            processed = await processor.run(group, rows)
            back = await self._back(rows, processed)
        except Exception as caught:
            error = say(caught)
            where = "" if group is None else f" (group {group})"
            raise DatasetError(f"{processor.name}{where}: {error}") from caught
        finally:
            notify(ProcessorEnded, processor.name, group, error)
        return attrs.evolve(processed, rows=back)

    async def _back(self, rows: Rows, processed: Processed) -> Rows:
        """What a processor gives back, as it will be read again. A checkpoint if it is much.

        Raises:
            DatasetError: It has other rows or columns, or values of other types.
        """
        if what := mistake(rows, processed.rows):
            raise DatasetError(what)
        given = dict(rows)
        back: list[tuple[int, Mapping[str, Any]]] = []
        for place, (row, values) in enumerate(processed.rows, 1):
            if added := values.keys() - given[row].keys():
                raise DatasetError(f"it added column {min(added)!r} to row {row}")
            if lost := given[row].keys() - values.keys() - processed.left_out:
                raise DatasetError(f"it lost column {min(lost)!r} of row {row}")
            back.append((row, self._as_read(row, values)))
            if not place % _STRIDE:
                await trio.lowlevel.checkpoint()
        return back

    def _rows(self, group: OpenGroup) -> Rows:
        """The rows of a group, copied."""
        buffer = self.progress.buffer
        return [(row, buffer.copy(row, buffer.view(row))) for row in group.rows_left()]

    def _columns(self, row: int, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Those that are written."""
        try:
            return {name: values[name] for name in self.progress.spec.columns}
        except KeyError as error:
            raise DatasetError(f"row {row} lacks column {error} after its processors") from None

    def _as_read(self, row: int, values: Mapping[str, Any]) -> Mapping[str, Any]:
        types, found = self.progress.spec.types, dict[str, Any]()
        for column, value in values.items():
            if not fits(value, types[column]):
                raise DatasetError(
                    f"column {column!r} of row {row} is {value!r} now, which is no {types[column]}"
                )
            found[column] = None if value is None else as_read(value, types[column])
        return found


def _left_out(rows: Rows, kept: Container[int]) -> Sequence[DroppedRow]:
    """The rows that processors did not want."""
    return [DroppedRow(row=row, cause="processor") for row, _ in rows if row not in kept]


def _lost(rows: Rows, error: str) -> Sequence[DroppedRow]:
    """The rows of a group on which a processor failed."""
    return [DroppedRow(row=row, cause="failed", error=error) for row, _ in rows]


# Processors of a suite: functions of its own, and lists of columns to leave out.
#
# A function gets a list of rows and a list of their numbers, and returns both. It may change values and leave
# out rows; `spec` says what it may not do. Nor may it add or take away columns: all files of a
# dataset have the same ones.


def stages_of(processors: Iterable[Processor], scripts: Scripts) -> Stages:
    """The processors of a dataset by stage, ready to be called.

    Args:
        processors: As the suite lists them.
        scripts: What runs their functions.
    """
    by_stage: dict[str, list[StageProcessor]] = {}
    for place, processor in enumerate(processors):
        name = f"processors[{place}]"
        ready = StageProcessor(
            name=name,
            run=_dropping(processor)
            if processor.target is None
            else _calling(processor, processor.target, scripts),
            on_error=processor.on_error,
        )
        by_stage.setdefault(processor.stage, []).append(ready)
    return Stages(**{stage: tuple(ready) for stage, ready in by_stage.items()})


def _calling(processor: Processor, target: str, scripts: Scripts) -> Process:
    file, name = function_of(target)

    async def run(_group: int | None, rows: Rows) -> Processed:
        arguments = [[dict(row) for _, row in rows], [number for number, _ in rows]]
        answer = await called(lambda: scripts.call(file, name, arguments, processor.timeout_s))
        return Processed(read_answer(rows, answer, f"{file.name}:{name}"))

    return run


def _dropping(processor: Processor) -> Process:
    async def run(_group: int | None, rows: Rows) -> Processed:  # noqa: ASYNC124 - computes only
        return without_columns(processor, rows)

    return run


def without_columns(processor: Processor, rows: Rows) -> Processed:
    """Rows without the columns that a processor leaves out. Pure.

    Example:
        >>> drops = Processor(stage="after_batch", drop_columns=("*_raw",))
        >>> found = without_columns(drops, [(4, {"a": 1, "a_raw": 2})])
        >>> found.rows, found.aside
        ([(4, {'a': 1})], [(4, {'a_raw': 2})])
    """
    columns = dict.fromkeys(name for _, row in rows for name in row)
    dropped = frozenset(
        name for name in columns if any(means(one, name) for one in processor.drop_columns)
    )
    if not dropped:
        return Processed(rows)
    left = [(number, _part(row, row.keys() - dropped)) for number, row in rows]
    aside: Rows = ()
    if processor.keep_aside:
        aside = [(number, _part(row, row.keys() & dropped)) for number, row in rows]
    return Processed(left, aside, dropped)


def read_answer(given: Rows, answer: Any, name: str) -> Rows:
    """The rows that a function returned, if it is what it may return. Pure.

    Args:
        given: What it got.
        answer: What it returned, as JSON.
        name: What messages call it.

    Raises:
        CellError: It is not.
    """
    match answer:
        case [list() as rows, list() as numbers]:
            pass
        case _:
            raise CellError(
                f"{name} must return a list of rows and a list of their numbers, got {kind(answer)}"
            )
    if len(rows) != len(numbers):
        raise CellError(
            f"{name} must return a number for each row, got {len(rows)} rows and {len(numbers)} numbers"
        )
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool):
            raise CellError(f"{name}: the number of a row is {kind(number)}")
    back = list(zip(numbers, rows, strict=True))
    if what := mistake(given, back):
        raise CellError(f"{name}: {what}")
    before = dict(given)
    for number, row in back:
        _check_row(name, number, before[number], row)
    return back


def _check_row(name: str, number: int, before: Mapping[str, Any], row: Any) -> None:
    if not isinstance(row, dict):
        raise CellError(f"{name}: row {number} must be an object, got {kind(row)}")
    for what, names in (
        ("lacks the column", before.keys() - row.keys()),
        ("has the new column", row.keys() - before.keys()),
    ):
        if names:
            raise CellError(f"{name}: row {number} {what} {', '.join(map(quote, sorted(names)))}")


def _part(row: Mapping[str, Any], names: Iterable[str]) -> Mapping[str, Any]:
    kept = frozenset(names)
    return {name: value for name, value in row.items() if name in kept}

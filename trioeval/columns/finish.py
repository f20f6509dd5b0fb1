"""The last stages of a group: processors change its rows, and its rows are written."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import attrs
import trio

from trioeval.columns.cell_types import ColumnType, fits
from trioeval.columns.events import ProcessorEnded, ProcessorStarted
from trioeval.columns.files import DatasetFolder, DatasetRows, GroupFile
from trioeval.columns.files.formats import as_read
from trioeval.columns.graph import FINISH, MakeJob, RowGrouping
from trioeval.columns.groups import OpenGroup
from trioeval.columns.makers.base import CellError, JobOrder, error_text
from trioeval.columns.makers.code import call_with_retry, function_of
from trioeval.columns.model import Processor
from trioeval.columns.profile import Profiles
from trioeval.columns.progress import DatasetProgress
from trioeval.columns.result import DroppedRow
from trioeval.columns.spec import Process, Processed, Rows, StageProcessor, Stages, mistake
from trioeval.columns.types import matches
from trioeval.documents.mistakes import kind
from trioeval.errors import DatasetError
from trioeval.evaluation.scripts import Scripts
from trioeval.grading import quote
from trioeval.text import counted

# The destinations of rows: the files of a folder, or memory (for a preview).


T = TypeVar("T")


@attrs.define(eq=False, repr=False)
class MemoryOutput:
    """The rows of a preview; it has the same members as `FolderOutput`."""

    grouping: RowGrouping
    written: dict[int, GroupFile] = attrs.field(factory=dict)
    rows: dict[int, Rows] = attrs.field(factory=dict)
    """By group."""
    aside: dict[int, Rows] = attrs.field(factory=dict)
    """Columns that were removed from groups."""
    aside_final: dict[int, Rows] = attrs.field(factory=dict)
    """Columns that were removed from the whole dataset."""
    processed: dict[int, Rows] | None = None
    """The rows after the processors of the whole dataset."""
    path = None
    format = None

    @property
    def is_processed(self) -> bool:
        """True if processors of the whole dataset have replaced the rows."""
        return self.processed is not None

    @property
    def last(self) -> Mapping[int, Rows]:
        """The final rows, by group."""
        return self.rows if self.processed is None else self.processed

    async def write(self, group: int, rows: Rows, dropped: Mapping[str, int], /) -> GroupFile:
        """Store the rows of a group."""
        self.rows[group] = rows
        numbers = group_numbers(self.grouping.rows_of(group), rows)
        done = GroupFile(group=group, rows=numbers, file=None, digest=None, dropped=dropped)
        self.written[group] = done
        return done

    async def write_aside(
        self, group: int, rows: Rows, _columns: Mapping[str, ColumnType], /, *, final: bool = False
    ) -> None:
        """Store the columns that processors removed from a group."""
        (self.aside_final if final else self.aside)[group] = rows

    async def read(self, group: int | None = None, /, *, processed: bool = False) -> Rows:
        """Return the rows of a group, or of all groups."""
        kept = self.last if processed else self.rows
        groups = sorted(kept) if group is None else [group]
        return [row for number in groups for row in kept[number]]

    async def replace(
        self, groups: Iterable[tuple[int, Rows]], _columns: Mapping[str, ColumnType], /
    ) -> None:
        """Store the rows that replace the present ones."""
        self.processed = dict(groups)

    async def finish(self, _result: Mapping[str, Any], /) -> None:
        """Do nothing: the rows are already in memory."""

    @property
    def numbered(self) -> Rows:
        """All final rows, with their numbers."""
        return [row for group in sorted(self.last) for row in self.last[group]]

    def rows_written(self) -> Sequence[Mapping[str, Any]]:
        """Return all final rows."""
        return [values for _, values in self.numbered]

    def close(self) -> None:
        """Do nothing: no resource is held."""


class FolderOutput:
    """The rows in the files of a folder; one operation at a time, in threads."""

    def __init__(self, folder: DatasetFolder) -> None:
        self.folder = folder
        self.path = folder.path
        self.format = folder.format
        self.written = folder.written
        """The groups that are written; grows with `write`."""
        self._one = trio.CapacityLimiter(1)
        self._held: dict[bool, DatasetRows] = {}
        """The rows for reading, by `processed`."""

    @property
    def is_processed(self) -> bool:
        """True if `replace` has written all groups again, now or in an earlier run."""
        return self.folder.is_processed

    async def write(self, group: int, rows: Rows, dropped: Mapping[str, int], /) -> GroupFile:
        """Write the rows of a group."""
        return await self._in_thread(lambda: self.folder.write(group, rows, dropped))

    async def write_aside(
        self, group: int, rows: Rows, columns: Mapping[str, ColumnType], /, *, final: bool = False
    ) -> None:
        """Write the columns that processors removed from a group."""
        await self._in_thread(lambda: self.folder.write_aside(group, rows, columns, final=final))

    async def read(self, group: int | None = None, /, *, processed: bool = False) -> Rows:
        """Return the rows of a group that existed when the folder was opened, or of all groups.

        Args:
            group: The group; None for all.
            processed: Read the rows as `replace` wrote them, if it was called.
        """
        return await self._in_thread(lambda: self._read(group, processed=processed))

    async def replace(
        self, groups: Iterable[tuple[int, Rows]], columns: Mapping[str, ColumnType], /
    ) -> None:
        """Write all groups again: either all or none."""
        await self._in_thread(lambda: self.folder.replace(groups, columns=columns))

    async def finish(self, result: Mapping[str, Any], /) -> None:
        """Record in the folder that the dataset is complete."""
        await self._in_thread(lambda: self.folder.finish(result))

    def rows_written(self) -> Sequence[Mapping[str, Any]]:
        """Return all final rows, read on access."""
        return DatasetRows(self.path)

    def close(self) -> None:
        """Release the lock of the folder, so that others can write to it."""
        self.folder.close()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, limiter=self._one)

    def _read(self, group: int | None, *, processed: bool) -> Rows:
        if processed not in self._held:
            self._held[processed] = DatasetRows(self.path, processed=processed)
        rows = self._held[processed]
        places = range(len(rows))
        if group is not None:
            numbers = self.folder.header.grouping.rows_of(group)
            first = bisect_left(places, numbers.start, key=rows.number)
            places = range(first, bisect_left(places, numbers.stop, lo=first, key=rows.number))
        return [(rows.number(place), rows[place]) for place in places]


Output: TypeAlias = FolderOutput | MemoryOutput


def group_numbers(group: range, rows: Rows) -> tuple[int, ...] | int:
    """Return the numbers of the rows of a group, in the form of `GroupFile`."""
    return len(rows) if len(rows) == len(group) else tuple(row for row, _ in rows)


_AFTER_GENERATION = "after_generation"
_STRIDE = 500  # rows that are checked between two checkpoints


@attrs.define(eq=False, repr=False)
class GroupStages:
    """The bodies of the jobs that prepare and finish groups."""

    progress: DatasetProgress
    output: Output
    profiles: Profiles

    async def prepare(self, order: JobOrder) -> None:
        """Run the processors of a group that has only its seed columns. A checkpoint if there are any.

        Raises:
            DatasetError: A processor failed whose `onError` ends the run.
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
            progress.drop(group, _lost_rows(before, processed))
            return
        kept = {row for row, _ in processed.rows}
        for row, values in processed.rows:
            if not group.is_gone(row):
                progress.buffer.set(row, values)
        progress.drop(group, _left_out(before, kept))
        progress.drop_again(group)
        if group.left:
            progress.complete(order.job)

    async def finish(self, order: JobOrder) -> None:
        """Write a complete group. Always a checkpoint.

        Raises:
            DatasetError: It cannot be written, or a processor failed whose `onError` ends the run.
        """
        progress, number = self.progress, order.job.group
        progress.start(order)
        group, stages = progress.groups[number], progress.spec.stages.after_batch
        view = progress.buffer.view
        rows = self._rows(group) if stages else [(row, view(row)) for row in group.rows_left()]
        aside: Rows = ()
        dropped: Sequence[DroppedRow] = ()
        if group.processed is not None:
            aside, dropped = group.processed.aside, group.processed.dropped
            gone = {one.row for one in dropped}
            rows = [(row, values) for row, values in rows if row not in gone]
        elif rows and stages:
            processed = await self._process(stages, number, rows)
            if isinstance(processed, str):
                dropped, rows = _lost_rows(rows, processed), ()
            else:
                dropped = _left_out(rows, {row for row, _ in processed.rows})
                rows, aside = processed.rows, processed.aside
        written = [(row, self._columns(row, values)) for row, values in rows]
        counts = Counter[str](group.dropped) + Counter(one.cause for one in dropped)
        if aside:
            await self.output.write_aside(number, aside, progress.spec.types)
        file = await self.output.write(number, written, dict(counts))
        await self.profiles.add(written, group.skipped)
        progress.drop(group, dropped)
        progress.write(group, file)

    async def generation(self, deadline: float = math.inf) -> bool:
        """Run the processors of the whole dataset, once. A checkpoint if there are any.

        They get the rows as they were written. Only their output shows that they have run: a process that is
        killed leaves either all of it or nothing.

        Args:
            deadline: Instant at which they are cut off.

        Returns:
            True if they have run.

        Raises:
            DatasetError: One failed, or its output cannot be written.
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
            journal.on_stage(_AFTER_GENERATION, "begun")
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
            journal.on_stage(_AFTER_GENERATION, "done")

    def complete_groups(self) -> Sequence[JobOrder]:
        """Return the last stages of open groups in which everything else is complete."""
        ends = {number: MakeJob(FINISH, number) for number in self.progress.groups}
        return [
            JobOrder(end)
            for number, end in ends.items()
            if self.progress.groups[number].needed() == (end,)
        ]

    async def _process(
        self, stages: Sequence[StageProcessor], group: int | None, rows: Rows
    ) -> Processed | str:
        """Return the output of all processors of a stage, or the error by which the group is lost."""
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
        notify(ProcessorStarted, processor.name, group)
        try:
            processed = await processor.run(group, rows)
            back = await self._back(rows, processed)
        except Exception as caught:
            error = error_text(caught)
            where = "" if group is None else f" (group {group})"
            raise DatasetError(f"{processor.name}{where}: {error}") from caught
        finally:
            notify(ProcessorEnded, processor.name, group, error)
        return attrs.evolve(processed, rows=back)

    async def _back(self, rows: Rows, processed: Processed) -> Rows:
        """Return the output of a processor as it will be read again. A checkpoint if it is large.

        Raises:
            DatasetError: It has other rows or columns, or values of other types.
        """
        if problem := mistake(rows, processed.rows):
            raise DatasetError(problem)
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
        """Return a copy of the rows of a group."""
        buffer = self.progress.buffer
        return [(row, buffer.copy(row, buffer.view(row))) for row in group.rows_left()]

    def _columns(self, row: int, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the columns of a row that are written."""
        try:
            return {name: values[name] for name in self.progress.spec.columns}
        except KeyError as error:
            raise DatasetError(f"row {row} has no column {error} after its processors") from None

    def _as_read(self, row: int, values: Mapping[str, Any]) -> Mapping[str, Any]:
        types, found = self.progress.spec.types, dict[str, Any]()
        for column, value in values.items():
            if not fits(value, types[column]):
                raise DatasetError(
                    f"column {column!r} of row {row} is now {value!r}, which is not a valid {types[column]}"
                )
            found[column] = None if value is None else as_read(value, types[column])
        return found


def _left_out(rows: Rows, kept: Container[int]) -> Sequence[DroppedRow]:
    """Return the rows that processors removed."""
    return [DroppedRow(row=row, cause="processor") for row, _ in rows if row not in kept]


def _lost_rows(rows: Rows, error: str) -> Sequence[DroppedRow]:
    """Return the rows of a group on which a processor failed."""
    return [DroppedRow(row=row, cause="failed", error=error) for row, _ in rows]


# Processors of a suite: functions of its own, and lists of columns to remove.
#
# A function gets a list of rows and a list of their numbers, and returns both. It may change values and
# remove rows (for the other rules see `spec`). It must not add or remove columns: all files of a dataset have
# the same columns.


def stages_of(processors: Iterable[Processor], scripts: Scripts) -> Stages:
    """Return the processors of a dataset by stage, ready to be called.

    Args:
        processors: The processors as the suite lists them.
        scripts: Runs their functions.
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
        answer = await call_with_retry(
            lambda: scripts.call(file, name, arguments, processor.timeout_s)
        )
        return Processed(read_answer(rows, answer, f"{file.name}:{name}"))

    return run


def _dropping(processor: Processor) -> Process:
    async def run(_group: int | None, rows: Rows) -> Processed:  # noqa: ASYNC124 - computes only
        return without_columns(processor, rows)

    return run


def without_columns(processor: Processor, rows: Rows) -> Processed:
    """Return rows without the columns that a processor removes. Pure.

    Example:
        >>> drops = Processor(stage="after_batch", drop_columns=("*_raw",))
        >>> found = without_columns(drops, [(4, {"a": 1, "a_raw": 2})])
        >>> found.rows, found.aside
        ([(4, {'a': 1})], [(4, {'a_raw': 2})])
    """
    columns = dict.fromkeys(name for _, row in rows for name in row)
    dropped = frozenset(
        name for name in columns if any(matches(one, name) for one in processor.drop_columns)
    )
    if not dropped:
        return Processed(rows)
    left = [(number, _part(row, row.keys() - dropped)) for number, row in rows]
    aside: Rows = ()
    if processor.keep_aside:
        aside = [(number, _part(row, row.keys() & dropped)) for number, row in rows]
    return Processed(left, aside, dropped)


def read_answer(given: Rows, answer: Any, name: str) -> Rows:
    """Return the rows that a function returned, if they are valid. Pure.

    Args:
        given: The rows that it got.
        answer: Its return value, as JSON.
        name: Its name in messages.

    Raises:
        CellError: The return value is not valid.
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
            f"{name} must return a number for each row, got {counted(len(rows), 'row')} and"
            f" {counted(len(numbers), 'number')}"
        )
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool):
            raise CellError(f"{name}: a row number must be a whole number, got {kind(number)}")
    back = list(zip(numbers, rows, strict=True))
    if problem := mistake(given, back):
        raise CellError(f"{name}: {problem}")
    before = dict(given)
    for number, row in back:
        _check_row(name, number, before[number], row)
    return back


def _check_row(name: str, number: int, before: Mapping[str, Any], row: Any) -> None:
    if not isinstance(row, dict):
        raise CellError(f"{name}: row {number} must be an object, got {kind(row)}")
    for problem, names in (
        ("has no column", before.keys() - row.keys()),
        ("has an additional column", row.keys() - before.keys()),
    ):
        if names:
            raise CellError(
                f"{name}: row {number} {problem} {', '.join(map(quote, sorted(names)))}"
            )


def _part(row: Mapping[str, Any], names: Iterable[str]) -> Mapping[str, Any]:
    included = frozenset(names)
    return {name: value for name, value in row.items() if name in included}

"""Where the rows of a dataset go: to the files of a folder, or, of a preview, to memory."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import attrs
import trio

from trioeval.datasets.files import DatasetFolder, DatasetRows, GroupFile
from trioeval.datasets.grouping import Grouping
from trioeval.datasets.types import ColumnType
from trioeval.tasks.columns.dataset_stages import Rows

T = TypeVar("T")


class Output(Protocol):
    """Where the rows go."""

    @property
    def written(self) -> Mapping[int, GroupFile]:
        """The groups that are there."""
        ...

    @property
    def is_processed(self) -> bool:
        """Whether what `replace` has left in an earlier run, if it was called, is there still."""
        ...

    async def write(self, group: int, rows: Rows, dropped: Mapping[str, int], /) -> GroupFile:
        """Write the rows of a group."""
        ...

    async def write_aside(self, group: int, rows: Rows, /) -> None:
        """Write what processors have left out of a group."""
        ...

    async def read(self, group: int | None = None, /) -> Rows:
        """The rows of a group that was there from the beginning, or all rows; by number."""
        ...

    async def replace(
        self, groups: Iterable[tuple[int, Rows]], columns: Mapping[str, ColumnType], /
    ) -> None:
        """Write all groups anew, all or none."""
        ...

    async def finish(self, result: Mapping[str, Any], /) -> None:
        """All of it is there."""
        ...


@attrs.define(eq=False)
class MemoryOutput:
    """The rows of a preview."""

    grouping: Grouping
    written: dict[int, GroupFile] = attrs.field(factory=dict)
    rows: dict[int, Rows] = attrs.field(factory=dict)
    """By group."""
    aside: dict[int, Rows] = attrs.field(factory=dict)
    is_processed: bool = True
    """Nothing here is ever lost."""

    async def write(self, group: int, rows: Rows, dropped: Mapping[str, int], /) -> GroupFile:
        """Keep the rows of a group."""
        self.rows[group] = rows
        numbers = group_numbers(self.grouping.rows_of(group), rows)
        done = GroupFile(group=group, rows=numbers, file=None, digest=None, dropped=dropped)
        self.written[group] = done
        return done

    async def write_aside(self, group: int, rows: Rows, /) -> None:
        """Keep what processors have left out of a group."""
        self.aside[group] = rows

    async def read(self, group: int | None = None, /) -> Rows:
        """The rows of a group, or all."""
        if group is not None:
            return self.rows[group]
        return [row for group in sorted(self.rows) for row in self.rows[group]]

    async def replace(
        self, groups: Iterable[tuple[int, Rows]], _columns: Mapping[str, ColumnType], /
    ) -> None:
        """Keep others in their place."""
        self.rows = dict(groups)

    async def finish(self, _result: Mapping[str, Any], /) -> None:
        """Nothing is left to do."""


class FolderOutput:
    """The rows in the files of a folder; one thing after another, in threads."""

    def __init__(self, folder: DatasetFolder) -> None:
        self.folder = folder
        self._one = trio.CapacityLimiter(1)
        self._held: tuple[DatasetRows, Sequence[int], Mapping[int, int]] | None = None

    @property
    def written(self) -> Mapping[int, GroupFile]:
        """The groups that are there."""
        return self.folder.written

    @property
    def is_processed(self) -> bool:
        """Whether the files are there, and as they were written."""
        return self.folder.is_processed

    async def write(self, group: int, rows: Rows, dropped: Mapping[str, int], /) -> GroupFile:
        """Write the rows of a group."""
        return await self._in_thread(lambda: self.folder.write(group, rows, dropped))

    async def write_aside(self, group: int, rows: Rows, /) -> None:
        """Write what processors have left out of a group."""
        await self._in_thread(lambda: self.folder.write_aside(group, rows))

    async def read(self, group: int | None = None, /) -> Rows:
        """The rows of a group, or all."""
        return await self._in_thread(lambda: self._read(group))

    async def replace(
        self, groups: Iterable[tuple[int, Rows]], columns: Mapping[str, ColumnType], /
    ) -> None:
        """Write all groups anew."""
        await self._in_thread(lambda: self.folder.replace(groups, columns=columns))

    async def finish(self, result: Mapping[str, Any], /) -> None:
        """Note that all of it is there."""
        await self._in_thread(lambda: self.folder.finish(result))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, limiter=self._one)

    def _read(self, group: int | None) -> Rows:
        if group is None:
            rows, numbers, _ = self._reader()
            return list(zip(numbers, rows, strict=True))
        if self._held is None:
            self._held = self._reader()
        rows, numbers, begins = self._held
        part = slice(begins[group], begins[group] + self.folder.written[group].count)
        return list(zip(numbers[part], rows[part], strict=True))

    def _reader(self) -> tuple[DatasetRows, Sequence[int], Mapping[int, int]]:
        """The rows that are there now, their numbers, and where each group begins among them."""
        written, grouping = self.folder.written, self.folder.header.grouping
        numbers: list[int] = []
        begins: dict[int, int] = {}
        for group in sorted(written):
            begins[group] = len(numbers)
            numbers += numbers_of(written[group], grouping)
        return DatasetRows(self.folder.path), numbers, begins


def group_numbers(group: range, rows: Rows) -> tuple[int, ...] | int:
    """The numbers of rows of a group, as a `GroupFile` has them."""
    return len(rows) if len(rows) == len(group) else tuple(row for row, _ in rows)


def numbers_of(file: GroupFile, grouping: Grouping) -> Sequence[int]:
    """The numbers of the rows of a group that is written."""
    if isinstance(file.rows, int):  # all of the group, or none
        return grouping.rows_of(file.group) if file.rows else ()
    return file.rows

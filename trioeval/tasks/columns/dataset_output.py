"""Where the rows of a dataset go: to the files of a folder, or, of a preview, to memory."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
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
        """Whether all groups were written anew by `replace`, now or in an earlier run."""
        ...

    async def write(self, group: int, rows: Rows, dropped: Mapping[str, int], /) -> GroupFile:
        """Write the rows of a group."""
        ...

    async def write_aside(
        self, group: int, rows: Rows, columns: Mapping[str, ColumnType], /, *, final: bool = False
    ) -> None:
        """Write what processors have left out of a group."""
        ...

    async def read(self, group: int | None = None, /) -> Rows:
        """The rows of a group that was there from the beginning, or all rows, as `write` got them."""
        ...

    async def read_processed(self, group: int, /) -> Rows:
        """Those of a group as `replace` got them, if it was called."""
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
    """What was left out of groups."""
    aside_final: dict[int, Rows] = attrs.field(factory=dict)
    """What was left out of the whole."""
    processed: dict[int, Rows] | None = None
    """Those that took their place."""

    @property
    def is_processed(self) -> bool:
        """Whether others took their place."""
        return self.processed is not None

    @property
    def last(self) -> Mapping[int, Rows]:
        """What there is in the end, by group."""
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

    async def read(self, group: int | None = None, /) -> Rows:
        """The rows of a group, or all."""
        if group is not None:
            return self.rows[group]
        return [row for group in sorted(self.rows) for row in self.rows[group]]

    async def read_processed(self, group: int, /) -> Rows:
        """Those that took the place of a group."""
        return self.last[group]

    async def replace(
        self, groups: Iterable[tuple[int, Rows]], _columns: Mapping[str, ColumnType], /
    ) -> None:
        """Keep others in their place."""
        self.processed = dict(groups)

    async def finish(self, _result: Mapping[str, Any], /) -> None:
        """Nothing is left to do."""


class FolderOutput:
    """The rows in the files of a folder; one thing after another, in threads."""

    def __init__(self, folder: DatasetFolder) -> None:
        self.folder = folder
        self._one = trio.CapacityLimiter(1)
        self._held: dict[bool, DatasetRows] = {}
        """What is read, by whether it was processed."""

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

    async def write_aside(
        self, group: int, rows: Rows, columns: Mapping[str, ColumnType], /, *, final: bool = False
    ) -> None:
        """Write what processors have left out of a group."""
        await self._in_thread(lambda: self.folder.write_aside(group, rows, columns, final=final))

    async def read(self, group: int | None = None, /) -> Rows:
        """The rows of a group, or all."""
        return await self._in_thread(lambda: self._read(group, processed=False))

    async def read_processed(self, group: int, /) -> Rows:
        """The rows of a group after the whole was processed."""
        return await self._in_thread(lambda: self._read(group, processed=True))

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

    def _read(self, group: int | None, *, processed: bool) -> Rows:
        if processed not in self._held:
            self._held[processed] = DatasetRows(self.folder.path, processed=processed)
        rows = self._held[processed]
        places = range(len(rows))
        if group is not None:
            wanted = self.folder.header.grouping.rows_of(group)
            first = bisect_left(places, wanted.start, key=rows.number)
            places = range(first, bisect_left(places, wanted.stop, lo=first, key=rows.number))
        return [(rows.number(place), rows[place]) for place in places]


def group_numbers(group: range, rows: Rows) -> tuple[int, ...] | int:
    """The numbers of rows of a group, as a `GroupFile` has them."""
    return len(rows) if len(rows) == len(group) else tuple(row for row, _ in rows)

"""The journal of one dataset, written while it is built and read when its run is resumed."""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from trioeval.columns.files import GroupFile
from trioeval.columns.files.formats import encode_json
from trioeval.columns.graph import RowGrouping
from trioeval.columns.journal import DatasetJournal, MadeRecord, RestoredGroup
from trioeval.columns.result import LOST, DroppedRow
from trioeval.errors import DatasetError
from trioeval.store.dataset_writes import (
    CELL,
    DROPPED,
    WRITTEN,
    cell_write,
    drop_write,
    dropped_of,
    first_row,
    grouping_text,
    is_longer,
    is_of_group,
    made_of,
    written_line,
)
from trioeval.store.records import read_text
from trioeval.store.run_list import key_range
from trioeval.store.schema import INDEX_BITS
from trioeval.store.writer import StoredTask
from trioeval.store.writes import InsertTable, insert

# Lost rows of a dataset are retried: their groups are written again.


_INDEX = (1 << INDEX_BITS) - 1


def try_lost_again(connection: sqlite3.Connection, part: int, *, is_wanted: bool) -> None:
    """Forget which rows of a dataset were lost and mark their groups, or remove such marks.

    Cells made for those groups stay, and so do their files until others are written.

    Args:
        connection: In a transaction.
        part: The number of the part; a part without a dataset is left unchanged.
        is_wanted: Whether they are retried. If not, marks of an earlier execution stay unchanged.
    """
    if not is_wanted:
        connection.execute("DELETE FROM group_again WHERE part = ?", (part,))
        return
    line = connection.execute("SELECT grouping FROM dataset WHERE part = ?", (part,)).fetchone()
    if line is None:
        return
    try:
        stored = json.loads(line[0])
        grouping = RowGrouping(stored["size"], tuple(stored["targets"]))
    except (ValueError, TypeError, KeyError, DatasetError):
        return  # damaged: the dataset starts again, which is reported when it is read
    lost = f"key BETWEEN ? AND ? AND cause IN ({', '.join('?' * len(LOST))})"
    parameters = (*key_range(part), *sorted(LOST))
    keys = connection.execute(f"SELECT key FROM dropped_row WHERE {lost}", parameters)  # noqa: S608
    rows = [key & _INDEX for (key,) in keys]
    groups = {grouping.group_of(row) for row in rows if row < grouping.rows}
    if not groups:
        return
    connection.executemany(
        "INSERT OR IGNORE INTO group_again (part, number) VALUES (?, ?)",
        ((part, group) for group in groups),
    )
    connection.execute(f"DELETE FROM dropped_row WHERE {lost}", parameters)  # noqa: S608
    # Processors must process the whole dataset again.
    connection.execute("DELETE FROM dataset_stage WHERE part = ?", (part,))


_DATASET = InsertTable("dataset", ("part", "grouping", "fingerprint"))
_STAGE = InsertTable("dataset_stage", ("part", "name", "state"))
_OTHERS = ("written_group", "group_again", "dataset_stage")


@attrs.frozen(kw_only=True)
class _Before:
    """The stored facts of earlier executions about a dataset, except its cells."""

    grouping: RowGrouping | None = None
    fingerprint: Mapping[str, str] = attrs.field(factory=dict)
    groups: Sequence[GroupFile] = ()
    again: frozenset[int] = frozenset()
    """Groups that are written again, whatever exists of them."""
    stages: Mapping[str, str] = attrs.field(factory=dict)


@attrs.define(eq=False, repr=False, slots=False)
class StoredDataset(StoredTask, DatasetJournal):
    """The dataset of one task of a run. Created by `StoredRun.dataset`.

    Another configuration makes another dataset: of the stored data only cells count for it, each by its
    digest.
    """

    _has_warned: bool = attrs.field(init=False, default=False)
    _has_warned_of_unkept: bool = attrs.field(init=False, default=False)
    _before: _Before = attrs.field(init=False)
    _stages: dict[str, str] = attrs.field(init=False)
    _grouping: RowGrouping | None = attrs.field(init=False)
    _is_other: bool = attrs.field(init=False, default=False)
    _is_regrouped: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._before = self._read_before() or _Before()
        self._stages = dict(self._before.stages)
        self._grouping = self._before.grouping

    @property
    def resumed(self) -> bool:
        """True if an earlier execution stored anything."""
        return self._before.grouping is not None

    @property
    def grouping(self) -> RowGrouping | None:
        """The grouping of rows in earlier executions; None if nothing was started."""
        return self._before.grouping

    def on_start(self, grouping: RowGrouping, fingerprint: Mapping[str, str], /) -> None:
        """Record the identity of the dataset, before any of it is made."""
        old, new = self._before, dict(fingerprint)
        self._grouping = grouping
        if old.grouping is not None:
            self._is_regrouped = not is_longer(old.grouping, grouping)
            self._is_other = self._is_regrouped or old.fingerprint != new
        if self._is_other:
            self._before, self._stages = _Before(grouping=old.grouping), {}
        is_other, is_regrouped = self._is_other, self._is_regrouped

        def write(connection: sqlite3.Connection) -> None:
            part = self._place.parts[self._task]
            connection.execute("DELETE FROM dataset_result WHERE part = ?", (part,))
            if is_other:
                for table in _OTHERS:
                    connection.execute(f"DELETE FROM {table} WHERE part = ?", (part,))  # noqa: S608
                connection.execute(
                    "DELETE FROM dropped_row WHERE key BETWEEN ? AND ?", key_range(part)
                )
            if is_regrouped:
                connection.execute(
                    "DELETE FROM cell WHERE key BETWEEN ? AND ? AND is_group", key_range(part)
                )
            line = (part, grouping_text(grouping), encode_json(new))
            insert(connection, _DATASET, [line])

        self._step(write)

    def on_made(self, record: MadeRecord, /) -> None:
        """Record the result of a job, which does not change any more."""
        is_group, row = is_of_group(record), record.unit
        if is_group and self._grouping is not None:
            row = first_row(record, self._grouping)
        place, warn = self._place, self._warn_of_unkept
        self._writer.put(cell_write(place, self._task, row, record, warn, is_group=is_group))

    def on_dropped(self, row: DroppedRow, /) -> None:
        """Record that a row was dropped."""
        self._writer.put(drop_write(self._place, self._task, row))

    def on_written(self, group: GroupFile, /) -> None:
        """Record that a group is written."""

        def write(connection: sqlite3.Connection) -> None:
            line = written_line(self._place.parts[self._task], group)
            insert(connection, WRITTEN, [line])
            connection.execute(
                "DELETE FROM group_again WHERE part = ? AND number = ?",
                (self._place.parts[self._task], group.group),
            )

        self._step(write)

    def on_stage(self, name: str, state: str, /) -> None:
        """Record that a stage of the whole dataset has started, or is over."""
        self._stages[name] = state

        def write(connection: sqlite3.Connection) -> None:
            line = (self._place.parts[self._task], name, state)
            insert(connection, _STAGE, [line])

        self._step(write)

    def stages(self) -> Mapping[str, str]:
        """Return the recorded states of such stages, including this execution's."""
        return dict(self._stages)

    def groups(self) -> Sequence[GroupFile]:
        """Return the groups that earlier executions have written, except those that are written again."""
        return self._before.groups

    def groups_to_rewrite(self) -> frozenset[int]:
        """Return the groups that are written again, since lost rows of them are retried."""
        return self._before.again

    def restored(self, group: int, rows: range, /) -> RestoredGroup:
        """Return what earlier executions stored of a group. Damaged parts are left out."""
        if self._part is None:
            return RestoredGroup()
        base = self._part << INDEX_BITS
        keys = (base | rows.start, base | (rows.stop - 1))
        try:
            made = (*self._made(group, keys),)
            dropped = () if self._is_other else (*self._dropped(keys),)
        except sqlite3.Error as error:
            self._warn(
                f"the stored cells of group {group} cannot be read ({error}); they are made again"
            )
            return RestoredGroup()
        return RestoredGroup(made=made, dropped=dropped)

    def _made(self, group: int, keys: tuple[int, int]) -> Iterator[MadeRecord]:
        of_rows = "AND NOT is_group" if self._is_regrouped else ""
        statement = (
            f"SELECT {', '.join(CELL.columns)} FROM cell WHERE key BETWEEN ? AND ? {of_rows}"  # noqa: S608
        )
        for values in self._read().execute(statement, keys):
            line = dict(zip(CELL.columns, values, strict=True))
            try:
                yield made_of(line, read_text(line["made"]))
            except (ValueError, TypeError, AttributeError) as error:
                self._warn(
                    f"the result of {line['producer']} for group {group} is damaged ({error}); "
                    "it is made again, and so are all other damaged ones"
                )

    def _dropped(self, keys: tuple[int, int]) -> Iterator[DroppedRow]:
        statement = (
            f"SELECT key & {(1 << INDEX_BITS) - 1}, {', '.join(DROPPED.columns[1:])} FROM dropped_row "  # noqa: S608
            "WHERE key BETWEEN ? AND ?"
        )
        return map(dropped_of, self._read().execute(statement, keys))

    def _read_before(self) -> _Before | None:
        if self._part is None:
            return None
        of = (self._part,)
        read = self._read()
        try:
            found = read.execute(
                "SELECT grouping, fingerprint FROM dataset WHERE part = ?", of
            ).fetchone()
            if found is None:
                return None
            grouping, fingerprint = map(json.loads, found)
            columns = ", ".join(WRITTEN.columns[1:])
            groups = read.execute(
                f"SELECT {columns} FROM written_group WHERE part = ? ORDER BY number",  # noqa: S608
                of,
            )
            anew = read.execute("SELECT number FROM group_again WHERE part = ?", of)
            again = frozenset(number for (number,) in anew)
            stages = read.execute("SELECT name, state FROM dataset_stage WHERE part = ?", of)
            return _Before(
                grouping=RowGrouping(grouping["size"], tuple(grouping["targets"])),
                fingerprint=fingerprint,
                groups=tuple(one for one in map(_group, groups) if one.group not in again),
                again=again,
                stages=dict(stages),
            )
        except (sqlite3.Error, DatasetError, ValueError, TypeError, KeyError) as error:
            self._warn(f"the stored facts of the dataset cannot be read ({error}); it starts again")
            return None

    def _warn(self, text: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._report(text)

    def _warn_of_unkept(self, text: str) -> None:
        """Warn once; called in the writer's thread."""
        if not self._has_warned_of_unkept:
            self._has_warned_of_unkept = True
            self._report(
                f"{text}; a later execution makes it again, and so all others of this kind"
            )

    def _report(self, text: str) -> None:
        of = "" if self._task is None else f"task {self._task}: "
        self._writer.warn(f"{self._writer.path}: {of}{text}")


def _group(line: Sequence[Any]) -> GroupFile:
    number, rows, numbers, file, digest, dropped = line
    return GroupFile(
        group=number,
        rows=rows if numbers is None else tuple(json.loads(numbers)),
        file=file,
        digest=digest,
        dropped=json.loads(dropped),
    )

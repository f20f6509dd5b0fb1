# Separate from `agent.bus.bus`: together they exceed 600 lines.
"""The end of a bus, where messages are written. Used by the holder of the lock; blocks on files.

The last known end is remembered: if no other process has written meanwhile, nothing has to be read. Messages
that others have added are read from there; only the first access to a file searches for its end, backwards.

An incomplete record at the very end of the last file is from a writer that was killed, or a full disk: it was
never reported as written, and is removed. Other corrupt parts are kept.
"""

import math
import os
from collections.abc import Sequence
from pathlib import Path

import attrs

from trioeval.agent.bus.segments import (
    LAST_SEQ,
    is_at,
    last_records,
    last_seq,
    open_file,
    segment_numbers,
    segment_path,
    size_of,
)
from trioeval.agent.bus.settings import BusStats
from trioeval.errors import BusError


@attrs.define(eq=False, repr=False)
class BusTail:
    """The last file of a bus."""

    folder: Path
    rotate_bytes: int | None
    keep_segments: int | None
    fsync: bool
    """True if a file is flushed to the disk when it is closed."""
    stats: BusStats
    seq: int = attrs.field(init=False, default=0)
    """The number of the last message."""
    _number: int = attrs.field(init=False, default=0)
    _name: str = attrs.field(init=False, default="")
    """The path of the file, and of the next one: checked for each batch."""
    _following: str = attrs.field(init=False, default="")
    _end: int = attrs.field(init=False, default=0)
    _file: int | None = attrs.field(init=False, default=None)
    _is_new: bool = attrs.field(init=False, default=False)
    """True if its directory entry may not be on the disk yet."""

    def catch_up(self, at_most: float = math.inf) -> bool:
        """Find the current end of the bus, and prepare it for writing.

        Returns:
            False if others have added more bytes than `at_most`; then it has not caught up.
        """
        if self._file is None or not self._is_last(self._file):
            numbers = segment_numbers(self.folder)
            if self._size(numbers[-2:-1]) > at_most:
                return False
            self._file = self._open(numbers)
        size = size_of(self._file)
        if size - self._end > at_most:
            return False
        if size != self._end:
            self._read_added(self._file, size)
        return True

    def room(self) -> int | None:
        """Return the bytes until the file is closed, ≥ 0; None means no limit. Only after `catch_up`."""
        return None if self.rotate_bytes is None else max(0, self.rotate_bytes - self._end)

    def put(self, frames: Sequence[bytes], *, fsync: bool) -> int:
        """Append records to this file; return how many were written.

        All of them, if nothing fails. A record that was not written completely is removed; a complete one
        that may not be on the disk is kept, since others may have read it.

        Raises:
            BusError: The message numbers are used up.
            OSError: Not even the first was written, or they may not be on the disk.
        """
        if self.seq + len(frames) > LAST_SEQ:
            raise BusError(
                f"{self._name}: the last message has the number {self.seq}, and the largest one is {LAST_SEQ}"
            )
        file = self._opened()
        kept, failure = self._write(file, frames)
        end = self._end + sum(map(len, frames[:kept]))
        if failure is not None:
            try:
                os.ftruncate(file, end)
            except OSError:
                self.close()  # the end is searched for again
                raise
        self.stats.bytes += end - self._end
        self._end, self.seq = end, self.seq + kept
        if failure is not None and not kept:
            self.close()
            raise failure
        if fsync:
            try:
                self._sync(file)
            except OSError as error:
                self.close()
                raise BusError(
                    f"{self._name}: the messages are written, but may not be on the disk: "
                    f"{error.strerror or error}"
                ) from error
        if failure is not None:
            self.close()
        return kept

    def rotate(self) -> None:
        """Close the file, and start the next one."""
        if self.fsync:
            self._sync(self._opened())
        following = self._number + 1
        file = open_file(
            segment_path(self.folder, following), os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL
        )
        self.close()
        self._file, self._end, self._is_new = file, 0, True
        self._point_at(following)
        self.stats.rotations += 1

    def remove_old(self) -> None:
        """Remove the oldest files, if there are too many.

        Only when the newest contains a message, which determines the next number.
        """
        if self.keep_segments is None:
            return
        old = segment_numbers(self.folder)[: -self.keep_segments]
        if old and self.fsync:
            self._sync(self._opened())
        for number in old:
            segment_path(self.folder, number).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file; it is opened again when necessary."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _is_last(self, file: int) -> bool:
        is_last = is_at(file, self._name) and not os.path.lexists(self._following)
        if not is_last:
            self.close()
        return is_last

    def _size(self, numbers: Sequence[int]) -> int:
        """Return the total size of files in bytes."""
        return sum(os.stat(segment_path(self.folder, one)).st_size for one in numbers)  # noqa: PTH116

    def _open(self, numbers: Sequence[int]) -> int:
        """Open the newest file, or the very first one; its end is unknown."""
        # The number continues if the known bus does; not if the bus was replaced.
        known = self.seq if numbers and 0 < self._number < numbers[-1] else 0
        self._is_new = True
        self._point_at(numbers[-1] if numbers else 1)
        self.seq = max(known, last_seq(self.folder, numbers[:-1]))
        self._end = 0
        return open_file(self._path(), os.O_RDWR | os.O_CREAT | os.O_APPEND)

    def _point_at(self, number: int) -> None:
        self._number = number
        self._name = str(segment_path(self.folder, number))
        self._following = str(segment_path(self.folder, number + 1))

    def _read_added(self, file: int, size: int) -> None:
        floor = self._end if self._end <= size else 0
        # Two, since records of other writers may have any number.
        found = last_records(file, size, floor=floor, count=2)
        if found.torn < size:
            os.ftruncate(file, found.torn)
            self.stats.repaired += 1
        self.seq = max([self.seq, *(record.seq for record in found.records)]) + found.lost
        self._end = found.torn

    def _write(self, file: int, frames: Sequence[bytes]) -> tuple[int, OSError | None]:
        """Write records; return how many are complete, and the failure if not all are."""
        data = memoryview(b"".join(frames))
        written = 0
        try:
            while written < len(data):
                written += os.write(file, data[written:])
        except OSError as error:
            kept = 0
            while (written := written - len(frames[kept])) >= 0:
                kept += 1
            return kept, error
        return len(frames), None

    def _sync(self, file: int) -> None:
        os.fsync(file)
        if self._is_new:
            folder = os.open(self.folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
            self._is_new = False

    def _path(self) -> Path:
        return segment_path(self.folder, self._number)

    def _opened(self) -> int:
        if self._file is None:
            self._file = open_file(self._path(), os.O_RDWR | os.O_APPEND)
        return self._file

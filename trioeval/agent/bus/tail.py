# Apart from `agent.bus.bus`: together they exceed 600 lines.
"""The end of a bus, where messages are put down. Used by whoever has the lock; blocks on files.

The end that was left is remembered: if nobody else has written meanwhile, nothing has to be read. What others
have added is read from there; and only who comes to a file for the first time looks for its end, from behind.

A record that is cut off at the very end of the last file is of a writer that was killed, or of a disk that
was full: nobody was told that it is written, and it is cut off. What else is broken stays where it is.
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


@attrs.define(eq=False)
class Tail:
    """The last file of a bus."""

    folder: Path
    rotate_bytes: int | None
    keep_segments: int | None
    fsync: bool
    """Whether a file that is closed is written through to the disk."""
    stats: BusStats
    seq: int = attrs.field(init=False, default=0)
    """Of the last message."""
    _number: int = attrs.field(init=False, default=0)
    _name: str = attrs.field(init=False, default="")
    """Of the file, and of the next one: looked at for each batch."""
    _following: str = attrs.field(init=False, default="")
    _end: int = attrs.field(init=False, default=0)
    _file: int | None = attrs.field(init=False, default=None)
    _is_new: bool = attrs.field(init=False, default=False)
    """Its name may not be on the disk yet, whoever made it."""

    def catch_up(self, at_most: float = math.inf) -> bool:
        """Look where the bus ends now, and make that a place to write.

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
            self._read_on(self._file, size)
        return True

    def room(self) -> int | None:
        """Bytes until the file is to be closed, not below 0; None is no end. Only after `catch_up`."""
        return None if self.rotate_bytes is None else max(0, self.rotate_bytes - self._end)

    def put(self, frames: Sequence[bytes], *, fsync: bool) -> int:
        """Write records that follow those that are there, in this file; how many were written.

        All of them, if nothing fails. What was not written whole is not there afterwards; what is there and
        may not be on the disk stays, since others may have read it.

        Raises:
            BusError: There is no number for them.
            OSError: Not even the first was written, or they may not be on the disk.
        """
        if self.seq + len(frames) > LAST_SEQ:
            raise BusError(
                f"{self._name}: the last message has the number {self.seq}; there are none behind {LAST_SEQ}"
            )
        file = self._opened()
        kept, failure = self._write(file, frames)
        end = self._end + sum(map(len, frames[:kept]))
        if failure is not None:
            try:
                os.ftruncate(file, end)
            except OSError:
                self.close()  # the end is looked up again
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
                    f"{self._name}: what was written can be read, and may not be on the disk: "
                    f"{error.strerror or error}"
                ) from error
        if failure is not None:
            self.close()
        return kept

    def rotate(self) -> None:
        """Close the file, and begin the next one."""
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

        Only when the newest holds a message: it tells where numbers go on.
        """
        if self.keep_segments is None:
            return
        old = segment_numbers(self.folder)[: -self.keep_segments]
        if old and self.fsync:
            self._sync(self._opened())
        for number in old:
            segment_path(self.folder, number).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file; it is opened again when it is needed."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _is_last(self, file: int) -> bool:
        is_last = is_at(file, self._name) and not os.path.lexists(self._following)
        if not is_last:
            self.close()
        return is_last

    def _size(self, numbers: Sequence[int]) -> int:
        """Bytes of some files."""
        return sum(os.stat(segment_path(self.folder, one)).st_size for one in numbers)  # noqa: PTH116

    def _open(self, numbers: Sequence[int]) -> int:
        """Open the newest file, or the first one there ever was; nothing is known of its end."""
        # A bus that goes on where this one was known; not one that was put in its place.
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

    def _read_on(self, file: int, size: int) -> None:
        floor = self._end if self._end <= size else 0
        # Two, since what others have put there may have any number.
        found = last_records(file, size, floor=floor, count=2)
        if found.torn < size:
            os.ftruncate(file, found.torn)
            self.stats.repaired += 1
        self.seq = max([self.seq, *(record.seq for record in found.records)]) + found.lost
        self._end = found.torn

    def _write(self, file: int, frames: Sequence[bytes]) -> tuple[int, OSError | None]:
        """How many records stand there whole, and why not all of them do."""
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

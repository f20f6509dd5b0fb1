"""What a program writes, taken off its pipe and kept in a file, up to a limit.

Pipes and not the files themselves: a script that writes to `/dev/stderr` would empty the file, and a file
has no limit. So somebody has to read for as long as anything holds the pipe; nobody is ever made to wait,
because what is over the limit is read and forgotten.
"""

import os
import struct
from collections.abc import Sequence
from pathlib import Path

import attrs
import trio

from trioeval.agents.plain_files import open_plain
from trioeval.providers.programs.capture import Tail

LAST_WORDS = 1.0
"""Seconds in which what a program wrote is read when all of it has ended."""


@attrs.define(eq=False)
class AttemptLog:
    """A file that takes what was written behind what is there already; obtained from `open_log` only."""

    path: Path
    start: int
    """Bytes that were there before."""
    limit: int
    """Bytes that are kept, ≥ 1."""
    _descriptor: int = attrs.field(repr=False)
    tail: Tail = attrs.field(repr=False, factory=Tail)
    """The end of what was written, kept or not."""
    kept: int = attrs.field(init=False, default=0)
    """Bytes of what was written that are in the file."""
    is_cut: bool = attrs.field(init=False, default=False)
    """Whether more was written than is kept."""
    fault: str | None = attrs.field(init=False, default=None)
    """Why it could not be written on."""

    def feed(self, part: bytes) -> None:
        """Keep what was written now. Blocks on the file for a moment; never raises."""
        self.tail.feed(part)
        if self.is_cut or self.fault is not None:
            return
        room = self.limit - self.kept
        self.kept += self._write(part[:room])
        if len(part) > room and self.fault is None:
            self.is_cut = True
            self._write(f"\n[cut after {self.limit} bytes (maxOutputBytes)]\n".encode())

    def _write(self, part: bytes) -> int:
        done = 0
        try:
            while done < len(part):
                done += os.write(self._descriptor, part[done:])
        except OSError as error:  # a full disk: the program goes on all the same
            self.fault = f"{self.path} cannot be written on: {error.strerror}"
        return done

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def open_log(path: Path, limit: int, secrets: Sequence[str] = ()) -> AttemptLog:
    """Open the log of an attempt; what one that was cut off has written there is kept.

    Args:
        path: Where it is; its folder is there.
        limit: Bytes that are kept, ≥ 1.
        secrets: What its tail does not show, longest first.

    Raises:
        OSError: It cannot be opened, or is no regular file.
    """
    descriptor = open_plain(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    tail = Tail(secrets=secrets)
    return AttemptLog(path, os.fstat(descriptor).st_size, limit, descriptor, tail)


@attrs.define(eq=False)
class Pump:
    """Takes what is written off a pipe, until nobody holds its other end."""

    log: AttemptLog
    _stream: trio.abc.ReceiveStream = attrs.field(repr=False)
    _descriptor: int = attrs.field(repr=False)
    """That of the stream."""
    _taken: int = attrs.field(init=False, default=0)
    _more: trio.Event = attrs.field(init=False, repr=False, factory=trio.Event)
    """Set, and replaced, when something was taken."""
    _at_end: bool = attrs.field(init=False, default=False)
    """Whether nothing more comes; the stream is closed, or will be at once."""
    _over: trio.Event = attrs.field(init=False, repr=False, factory=trio.Event)
    _scope: trio.CancelScope = attrs.field(init=False, repr=False)

    @_scope.default
    def _shielded(self) -> trio.CancelScope:
        # What is written while the program is ended is wanted most. `bound` ends it.
        return trio.CancelScope(shield=True)

    async def run(self) -> None:
        """Take everything, until the pipe ends; then close both."""
        try:
            with self._scope:
                async with self._stream:
                    try:
                        await self._take_all()
                    finally:
                        self._at_end = True
                        self._tell()
        finally:
            self.log.close()
            self._over.set()

    async def _take_all(self) -> None:
        async for part in self._stream:
            self.log.feed(bytes(part))
            self._taken += len(part)
            self._tell()

    async def catch_up(self) -> None:
        """Return when everything that was written before this call is taken. A checkpoint."""
        await trio.lowlevel.checkpoint()
        if self._at_end:
            return
        goal = self._taken + _waiting_in(self._descriptor)
        while self._taken < goal and not self._at_end:
            await self._more.wait()

    def bound(self) -> None:
        """End soon, whoever holds the pipe: of a program all of which has ended, as far as can be seen."""
        self._scope.deadline = min(self._scope.deadline, trio.current_time() + LAST_WORDS)

    async def finish(self) -> None:
        """Return when the pipe has ended, soon, as for `bound`. A checkpoint."""
        self.bound()
        await self._over.wait()

    def _tell(self) -> None:
        self._more.set()
        self._more = trio.Event()


def _waiting_in(descriptor: int) -> int:
    """Bytes in a pipe that nobody has taken yet."""
    from fcntl import ioctl  # noqa: PLC0415 - not on Windows
    from termios import FIONREAD  # noqa: PLC0415

    (number,) = struct.unpack("i", ioctl(descriptor, FIONREAD, b"\0\0\0\0"))
    return int(number)

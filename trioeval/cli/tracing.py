"""`--trace FILE`: what lanes and calls did, and when, for a viewer of traces."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from io import FileIO
from pathlib import Path

import attrs
import trio

from trioeval.errors import OutputError, UsageError
from trioeval.kernel import Event
from trioeval.providers.secrets import hide
from trioeval.report.trace import Trace
from trioeval.tasks import PreparedSuite
from trioeval.tasks.task_run import Observers, RowOf


def check_trace(path: Path | None) -> None:
    """Refuse a file that could not be written, before anything is paid for; make its folder.

    Raises:
        UsageError: It is a folder, or its folder cannot be written to.
    """
    if path is None:
        return
    if path.is_dir():
        raise UsageError(f"--trace {path}: is a folder")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        msg = f"--trace {path}: the folder {path.parent} cannot be made: {reason}"
        raise UsageError(msg) from None
    is_new = not path.exists()
    try:
        with path.open("ab"):
            pass
        if is_new:
            path.unlink()
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"--trace {path}: cannot be written to: {reason}") from None


@contextmanager
def open_trace(
    path: Path | None,
    trace: Trace,
    warn: Callable[[str], None],
) -> Iterator[Observers | None]:
    """Write down everything that observers are told, for as long as the block; a whole file in any case.

    What stood in the file before is gone.

    Args:
        path: The file; None writes nothing.
        trace: Makes the records.
        warn: Told of the first thing that cannot be written; the run goes on.

    Yields:
        Gives the observer of a task; None where nothing is written.

    Raises:
        OutputError: The file cannot be begun; nothing was called.
    """
    if path is None:
        yield None
        return
    try:
        # Unbuffered: what a run did before it was killed is there.
        file = FileIO(path, "w", opener=_open_at_once)
    except OSError as error:
        raise OutputError(_cannot_write(path, error)) from error
    writing = _Writing(path, trace, file, warn)
    try:
        writing.write(trace.head())
        yield lambda task, row_of: partial(writing.observe, task, row_of)
    finally:
        writing.write(trace.tail(trio.current_time()))
        writing.close()


@attrs.define(eq=False)
class _Writing:
    """A file that gets records until one cannot be written. A full disk must not cost the run.

    What is written of that one is cut off: some viewers open no file with half a record.
    """

    path: Path
    trace: Trace
    file: FileIO
    warn: Callable[[str], None]
    is_broken: bool = False
    _size: int = 0
    """Bytes of whole records that are written."""

    def observe(self, task: str | None, row_of: RowOf, event: Event) -> None:
        if not self.is_broken and (text := self.trace.records(task, event, row_of=row_of)):
            self.write(text)

    def close(self) -> None:
        try:
            self.file.close()
        except OSError as error:
            self._give_up(error)

    def write(self, text: str) -> None:
        if self.is_broken:
            return
        whole = left = memoryview(text.encode("ascii"))
        try:
            while left:
                left = left[self.file.write(left) or 0 :]
        except OSError as error:
            with suppress(OSError):  # not every file can be cut
                self.file.truncate(self._size)
            self._give_up(error)
        self._size += len(whole)

    def _give_up(self, error: OSError) -> None:
        if not self.is_broken:
            self.is_broken = True
            self.warn(f"{_cannot_write(self.path, error)}; the run goes on without it")


def trace_of(
    prepared: PreparedSuite,
    *,
    run_id: str,
    began_at: float,
    limits: Mapping[str, int],
    keys: Mapping[str | None, Sequence[str]],
) -> Trace:
    """What makes the records of a run.

    Args:
        prepared: What is run.
        run_id: Of the run.
        began_at: When it began, on the Trio clock.
        limits: Calls that each lane allows at first.
        keys: What must not stand in it, by task.
    """
    hidden = [key for several in keys.values() for key in several]
    steps = {
        part.id: part.prepared.steps
        for part in prepared.parts
        if part.rows is not None and part.prepared.suite.columns is None
    }

    def name_of(task: str | None, row: int) -> str | None:
        of_task = steps.get(task)
        return None if of_task is None else of_task[row].test.description

    return Trace(
        began_at=began_at,
        run_id=run_id,
        limits=limits,
        name_of=name_of,
        hide=lambda text: hide(text, hidden),
    )


def _open_at_once(path: str, flags: int) -> int:
    """Open a file. A pipe that nobody reads is an error: nothing could end the waiting for somebody."""
    number = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)
    if hasattr(os, "O_NONBLOCK"):
        os.set_blocking(number, True)
    return number


def _cannot_write(path: Path, error: OSError) -> str:
    return f"--trace {path}: cannot be written: {error.strerror or error}"

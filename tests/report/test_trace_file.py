"""The file of a trace: it is opened before the run, and its errors never end the run."""

import errno
import json
import os
import re
from collections.abc import Callable
from io import FileIO
from pathlib import Path

import pytest
import trio
from trace_rules import check_trace as check_records
from trace_rules import read_cut

from trioeval.cli.flags import OutputFlags, RunFlags
from trioeval.cli.inputs import check_files
from trioeval.cli.run.observers import TraceFile, check_trace, open_trace
from trioeval.cli.run.run import _written
from trioeval.errors import OutputError, UsageError
from trioeval.kernel import CallStarted
from trioeval.report.trace import TraceRecords


def test_the_folder_of_a_trace_is_created_and_bad_paths_are_rejected(tmp_path: Path) -> None:
    check_trace(tmp_path / "a" / "b" / "run.json")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    for path, message in [
        (tmp_path, f"--trace {tmp_path}: is a folder"),
        (
            tmp_path / "file" / "run.json",
            f"--trace {tmp_path}/file/run.json: the folder {tmp_path}/file cannot be created: ",
        ),
    ]:
        with pytest.raises(UsageError, match=f"^{re.escape(message)}"):
            check_trace(path)


def test_a_trace_never_overwrites_an_input_file(tmp_path: Path) -> None:
    suite = tmp_path / "s.json"
    with pytest.raises(UsageError, match=r"^--trace .*s\.json is the same file as the suite"):
        check_files(
            [("the suite", suite)], written=_written(RunFlags(output=OutputFlags(trace=suite)))
        )


def write_one(path: Path, warn: Callable[[str], None]) -> bool:
    """Return whether anything of a call was written."""

    async def run() -> bool:  # noqa: ASYNC124 - within Trio for its clock
        with open_trace(path, TraceRecords(began_at=0.0, run_id="r"), warn) as file:
            file.observer("task", lambda job: job)(CallStarted(1.0, 0, "m"))
            return True

    return trio.run(run)


def test_an_existing_file_is_replaced_and_complete_after_the_block(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("x" * 10_000)
    assert write_one(path, pytest.fail)
    records = json.loads(path.read_text())
    assert [one["ph"] for one in records if one["ph"] in "BE"] == ["B", "E"]


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written: No such file"):
        write_one(tmp_path / "missing" / "run.json", pytest.fail)


class Shrinking(FileIO):
    """A file that accepts so many bytes, a few at a time, and then no more."""

    room = 1000

    def write(self, data: object) -> int:
        left = bytes(data)[: min(7, self.room)]  # type: ignore[call-overload]
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= len(left)
        return super().write(left)


def test_a_full_disk_is_reported_once_and_the_written_part_is_kept(tmp_path: Path) -> None:
    """A partially written record is removed: not every viewer opens half a record."""
    warnings: list[str] = []
    path = tmp_path / "run.json"
    trace = TraceRecords(began_at=0.0, run_id="r")
    writing = TraceFile(path, trace, Shrinking(path, "w"), warnings.append)
    writing.write(trace.head())
    for number in range(5):
        writing.observe(None, lambda job: job, CallStarted(1.0, number, "m"))
    writing.end(2.0)
    assert warnings == [
        f"--trace {path}: cannot be written: No space left on device; the run continues without it"
    ]
    text = path.read_text()
    assert 500 < len(text) < 1000
    check_records(read_cut(text), whole=False)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes do not exist")
def test_a_pipe_without_a_reader_is_an_error(tmp_path: Path) -> None:
    """Opening it would block for ever, and no signal would interrupt that."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OutputError, match="cannot be written: No such device"):
        write_one(tmp_path / "pipe", pytest.fail)

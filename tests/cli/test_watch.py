"""Waiting for files to change."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from trioeval.cli.interrupts import Interrupts
from trioeval.cli.run.watch import WatchedRun, marks_of, wait_changed, watch
from trioeval.testing import run_virtual

CHANGES: dict[str, Callable[[Path], object]] = {
    "written": lambda path: path.write_text("longer than it was"),
    "touched": lambda path: os.utime(path, ns=(1, 1)),
    "replaced": lambda path: path.with_suffix(".new").replace(path),
    "removed": lambda path: path.unlink(),
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_change_is_noticed_at_the_next_poll(tmp_path: Path, how: str) -> None:
    """This holds for any kind of change, and not before it happens."""
    (tmp_path / "still").write_text("as it is")
    changing = tmp_path / "changing"
    changing.write_text("text")
    os.utime(changing, ns=(2, 2))
    changing.with_suffix(".new").write_text("text")
    os.utime(changing.with_suffix(".new"), ns=(2, 2))

    async def main() -> tuple[Path, float]:
        marks = marks_of([tmp_path / "still", changing])
        async with trio.open_nursery() as nursery:

            async def change() -> None:
                await trio.sleep(10.1)
                CHANGES[how](changing)

            nursery.start_soon(change)
            found = await wait_changed(marks)
        return found, trio.current_time()

    found, at = run_virtual(main)
    assert found == changing
    assert at % 1000 == pytest.approx(10.5)


def test_a_new_file_is_a_change(tmp_path: Path) -> None:
    """It was missing, so the suite could not be loaded."""
    path = tmp_path / "later"

    async def main() -> Path:
        marks = marks_of([path])
        path.write_text("here")
        return await wait_changed(marks)

    assert run_virtual(main) == path


@pytest.mark.parametrize("code", [130, 100, 0])
def test_a_signal_during_a_run_ends_the_watch(code: int) -> None:
    """The exit code is that of the run."""
    interrupts = Interrupts()

    def run_once() -> WatchedRun:
        interrupts.received.append(signal.SIGINT)
        return WatchedRun(code, {})

    assert watch(run_once, interrupts) == code


@pytest.mark.parametrize("code", [2, 100, 130, 200])
def test_runs_follow_changes(tmp_path: Path, code: int) -> None:
    """This includes a run that could not start; changes during a run count."""
    path = tmp_path / "suite"
    path.write_text("")
    runs: list[str] = []
    interrupts = Interrupts()

    def run_once() -> WatchedRun:
        marks = marks_of([path])
        runs.append(path.read_text())
        path.write_text("x" * len(runs))
        if len(runs) == 3:
            interrupts.received.append(signal.SIGTERM)
            return WatchedRun(143, marks)
        return WatchedRun(code, marks)

    assert watch(run_once, interrupts) == 143
    assert runs == ["", "x", "xx"]

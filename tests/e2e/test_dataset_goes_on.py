"""Continued datasets: with more rows, and after a changed suite, a signal, a deadline, or a wrong key."""

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from built_datasets import (
    CALLS,
    GROUP,
    ROWS,
    WIDTH,
    files_of,
    finish,
    lane_of,
    llm,
    made,
    note_of,
    number,
    recorded,
    rows_of,
    start,
    stored,
    suite_of,
    wait_until,
    whole,
    write,
)
from held_server import HeldServer, held_server
from test_command_line import ENV

from trioeval.cli.app import run_command_line

pytestmark = pytest.mark.slow


@pytest.fixture(name="server", scope="module")
def fixture_server() -> Iterator[HeldServer]:
    with held_server() as server:
        yield server


def test_co_73_to_76_a_dataset_that_changes_is_extended_refused_or_reconciled(
    tmp_path: Path,
    server: HeldServer,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """More rows are new groups, and an ordered seed continues; other changes need --reconcile."""
    (tmp_path / "names.csv").write_text("name\nann\nbo\ncy\n")

    def write_suite(rows: int, prompt: str = "and {{ first }}", size: int = 2) -> None:
        seed = {"type": "seed", "file": "names.csv", "columns": ["name"], "order": "ordered"}
        columns = (seed, llm("first", "greet {{ name }}"), llm("second", prompt))
        task = made(*columns, rows=rows, groupSize=size)
        write(tmp_path, {"providers": [lane_of(server.url)], "tasks": [task]})

    def refused(command: str, code: int) -> str:
        """The output of this process; a refusal needs no separate process."""
        assert run_command_line([command, "--no-cache", "--no-table", "--no-progress"]) == code
        return capfd.readouterr().err

    monkeypatch.chdir(tmp_path)
    write_suite(5)
    count_before = len(server.prompts)
    finish(tmp_path, "s.json", "--no-cache")
    assert len(server.prompts) == count_before + 10
    first = files_of(tmp_path)

    write_suite(7)  # CO-73, CO-74
    finish(tmp_path, "resume", "--no-cache")
    assert len(server.prompts) == count_before + 14
    assert [row["name"] for row in rows_of(tmp_path)] == [
        "ann",
        "bo",
        "cy",
        "ann",
        "bo",
        "cy",
        "ann",
    ]
    note = note_of(tmp_path)
    assert note["targets"] == [5, 7]
    assert [group["rows"] for group in note["groups"]] == [2, 2, 1, 2]
    files = files_of(tmp_path)
    assert {name: files[name] for name in first if name != "dataset.json"} == {
        name: first[name] for name in first if name != "dataset.json"
    }

    write_suite(7, prompt="but {{ first }}")  # CO-75
    stderr = refused("resume", 1)
    assert "columns.second has changed" in stderr
    assert "--reconcile" in stderr
    write_suite(6)
    assert "7 rows, which is more than 6" in refused("resume", 1)
    write_suite(7, size=3)
    assert "groups have 2 rows, not 3" in refused("resume", 1)
    assert files_of(tmp_path) == files
    assert len(server.prompts) == count_before + 14
    write_suite(7, prompt="but {{ first }}")
    stderr = finish(tmp_path, "resume", "--reconcile", "--no-cache")
    assert "made-old-1" in stderr
    new = server.prompts[count_before + 14 :]
    assert len(new) == 7
    assert all(prompt.startswith("but ") for prompt in new)
    assert [row["second"] for row in rows_of(tmp_path)] == [
        f"<but <greet {name}>>" for name in ["ann", "bo", "cy", "ann", "bo", "cy", "ann"]
    ]
    moved = {one.name: one.read_bytes() for one in (tmp_path / "datasets/made-old-1").iterdir()}
    assert moved == files

    runs = len(stored(tmp_path, "SELECT 1 FROM run"))
    stderr = refused("s.json", 2)  # CO-76
    assert "datasets/made is not empty" in stderr
    assert len(stored(tmp_path, "SELECT 1 FROM run")) == runs > 0
    assert len(server.prompts) == count_before + 21


def test_interrupted_datasets_have_complete_groups_and_can_continue(
    tmp_path: Path, server: HeldServer
) -> None:
    """The first signal lets running calls end, the second does not; continuing makes only missing calls."""
    suite = suite_of(server.url)
    wanted = whole(tmp_path / "whole", suite)
    group = rows_of(tmp_path / "whole")[:GROUP]
    write(tmp_path, suite)
    count_before = len(server.prompts)

    server.hold_after(
        13,
        [f"first {row['a']}" for row in group]
        + [f"second {row['size']} of {row['first']}" for row in group],
    )
    process = start(tmp_path, "s.json", "--no-cache")
    server.wait_held(WIDTH)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert "stopping" in process.stderr.readline()
    server.release()
    stderr = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "interrupted by SIGINT; continue with: trioeval resume" in stderr
    known = len(server.prompts) - count_before
    assert known >= 13 + WIDTH
    assert recorded(tmp_path) == known
    complete = set(files_of(tmp_path)) - {"dataset.json", "groups.jsonl"}
    assert complete
    assert all(files_of(tmp_path)[name] == wanted[name] for name in complete)

    server.hold_after(6)
    process = start(tmp_path, "resume", "--no-cache")
    server.wait_held(1)
    wait_until(lambda: recorded(tmp_path) == known + 6, process)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert "stopping" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    stderr = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "continue with: trioeval resume" in stderr
    # How many were in flight depends on what the first signal has let end.
    held = len(server.prompts) - count_before - known - 6
    assert 0 < held <= WIDTH
    server.forget_held()

    finish(tmp_path, "resume", "--no-cache")
    assert files_of(tmp_path) == wanted
    assert len(server.prompts) == count_before + CALLS + held


def test_a_deadline_leaves_rows_that_were_not_run(tmp_path: Path, server: HeldServer) -> None:
    """They are reported as not run, and the next execution makes only their calls."""
    write(tmp_path, suite_of(server.url))
    count_before = len(server.prompts)
    server.hold_after(13)
    stderr = finish(tmp_path, "s.json", "--no-cache", "--max-time", "5", code=100)
    assert "deadline" in stderr
    assert "continue with: trioeval resume" in stderr
    server.forget_held()
    known, before = recorded(tmp_path, "call"), len(server.prompts)  # paid calls
    assert known <= 13
    assert before <= count_before + known + WIDTH
    finish(tmp_path, "resume", "--no-cache", "--max-time", "0")
    assert len(server.prompts) == before + CALLS - known
    assert len(rows_of(tmp_path)) == ROWS


def test_co_42_a_lane_that_closes_leaves_the_columns_of_others(
    tmp_path: Path, server: HeldServer
) -> None:
    """Cells of the other lane are kept; with the right key, only the rest is called.

    Rows that were refused before the lane closed are lost: that was not a transient failure.
    """
    columns = (number("a"), llm("good", "good {{ a }}"), llm("bad", "bad {{ a }}", model="locked"))
    task = made(*columns, shutdown={"enabled": False})
    other = {**made(number("a"), llm("good", "also {{ a }}")), "id": "other"}
    lanes = [lane_of(server.url), lane_of(server.url, "locked")]
    write(tmp_path, {"providers": lanes, "tasks": [task, other]})
    server.refuse("locked")
    count_before = len(server.prompts)
    stderr = finish(tmp_path, "s.json", "--no-cache", code=100)
    assert "a closed lane" in stderr
    assert "continue with: trioeval resume" in stderr
    assert len(rows_of(tmp_path, "other")) == ROWS
    words = Counter(prompt.split()[0] for prompt in server.prompts[count_before:])
    gone = words["bad"]
    assert gone < ROWS - GROUP
    assert words["also"] == ROWS
    assert ROWS - gone <= words["good"] <= ROWS  # rows without a first text need no second one
    server.refuse()
    before = len(server.prompts)
    stderr = finish(tmp_path, "resume", "--no-cache", code=100)
    assert f"{gone} dropped: bad failed {gone}" in stderr
    assert Counter(prompt.split()[0] for prompt in server.prompts[before:]) == {"bad": ROWS - gone}
    rows = rows_of(tmp_path)
    assert len(rows) == ROWS - gone
    assert all(
        (row["good"], row["bad"]) == (f"<good {row['a']}>", f"<bad {row['a']}>") for row in rows
    )


_WITHOUT_DUCKDB = """\
import sys

sys.modules["duckdb"] = None
from trioeval.cli import Interrupts, run_command_line

sys.exit(run_command_line(sys.argv[1:], Interrupts.installed()))
"""


def test_without_duckdb_rows_are_json_lines(tmp_path: Path) -> None:
    """Parquet is refused with a hint."""
    write(tmp_path, {"tasks": [made(number("a"), rows=GROUP + 1)]})
    command = [sys.executable, "-c", _WITHOUT_DUCKDB, "s.json", "--no-table", "--no-progress"]
    done = subprocess.run(
        command, cwd=tmp_path, env=ENV, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    names = {"batch_00000.jsonl", "batch_00001.jsonl", "dataset.json"}
    assert set(files_of(tmp_path)) == names
    assert len(rows_of(tmp_path)) == GROUP + 1
    write(tmp_path, {"tasks": [made(number("a"), format="parquet", outputDir="other")]})
    done = subprocess.run(
        command, cwd=tmp_path, env=ENV, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert b"pip install 'trioeval[parquet]'" in done.stderr

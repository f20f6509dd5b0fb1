"""Killed datasets: recorded replies are not requested again, and the files are the same."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from built_datasets import (
    CALLS,
    GROUP,
    ROWS,
    WIDTH,
    files_of,
    finish,
    kill,
    lane_of,
    llm,
    made,
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
from server_process import fake_provider, stats_of
from test_command_line import ENV

pytestmark = pytest.mark.slow


@pytest.fixture(name="server", scope="module")
def fixture_server() -> Iterator[HeldServer]:
    with held_server() as server:
        yield server


def is_recorded(folder: Path, wanted: int, table: str = "cell") -> bool:
    return recorded(folder, table) == wanted


def has_written(folder: Path, url: str, but: int) -> bool:
    """True if all requests are recorded, up to a maximum."""
    return int(stats_of(url)["requests"]) <= recorded(folder, "call") + but


def has_requested(url: str, wanted: int) -> bool:
    return bool(stats_of(url)["requests"] >= wanted)


def test_co_70_a_killed_dataset_repeats_only_calls_in_flight(
    tmp_path: Path, server: HeldServer
) -> None:
    """It is killed in the first column, between groups, and near the end; the files are those of one run."""
    suite = suite_of(server.url)
    wanted = whole(tmp_path / "whole", suite)
    ideal = Counter(server.prompts[-CALLS:])
    write(tmp_path, suite)
    count_before, known, lost = len(server.prompts), 0, 0
    for more in (3, 14, 13):
        server.hold_after(more)
        process = start(tmp_path, "resume" if known else "s.json", "--no-cache")
        server.wait_held(WIDTH)
        known += more
        wait_until(partial(is_recorded, tmp_path, known), process)
        if known > 2 * 2 * GROUP + WIDTH:  # whole groups; a busy disk writes them later
            wait_until(lambda: recorded(tmp_path, "written_group") > 0, process)
        kill(process, server)
        lost += WIDTH
    assert 0 < recorded(tmp_path, "written_group") < ROWS // GROUP + 1
    assert "exit 0" in finish(tmp_path, "resume", "--no-cache")
    requests = Counter(server.prompts[count_before:])
    assert requests.keys() == ideal.keys()
    assert requests.total() == CALLS + lost
    assert files_of(tmp_path) == wanted

    finish(tmp_path, "resume", "--no-cache")  # CO-77
    assert len(server.prompts) == count_before + CALLS + lost
    assert files_of(tmp_path) == wanted


def test_a_dataset_that_is_killed_at_any_instant_loses_at_most_the_latest_replies(
    tmp_path: Path,
) -> None:
    """It is killed twice, after different numbers of replies; no stored reply is requested again."""
    with fake_provider("--latency", "0.02", "--jitter", "0.5") as url:
        write(tmp_path, suite_of(url))
        for place, replies in enumerate((7, 11)):
            process = start(tmp_path, "resume" if place else "s.json", "--no-cache")
            wanted = stats_of(url)["requests"] + replies
            wait_until(partial(has_requested, url, wanted), process)
            # A disk may pause for a moment; replies that are lost then are not lost by the program.
            wait_until(partial(has_written, tmp_path, url, (place + 1) * 2 * WIDTH), process)
            with process:
                process.kill()
            wait_until(lambda: stats_of(url)["in_flight"] == 0)
        known, before = recorded(tmp_path, "call"), stats_of(url)["requests"]
        finish(tmp_path, "resume", "--no-cache")
        assert stats_of(url)["requests"] == before + CALLS - known
        assert before <= known + 2 * 2 * WIDTH  # in flight, and not recorded yet
    assert len(rows_of(tmp_path)) == ROWS


_DIES = """\
import os, signal, sqlite3, sys, time

from trioeval.cli import Interrupts, run_command_line
from trioeval.columns.files.layout import Disk

point, cells = sys.argv[1], int(sys.argv[2])


def die():
    connection = sqlite3.connect(".trioeval/results.db")
    while len(connection.execute("SELECT 1 FROM cell").fetchall()) < cells:
        time.sleep(0.002)
    os.kill(os.getpid(), signal.SIGKILL)


def dying(name, is_it, *, before):
    plain = getattr(Disk, name)

    def step(self, *arguments):
        if before and is_it(*arguments):
            die()
        plain(self, *arguments)
        if not before and is_it(*arguments):
            die()

    setattr(Disk, name, step)


POINTS = {
    "headed": ("rename", lambda old, new: new.name == "dataset.json", False),
    "filled": ("fill", lambda path, write: "batch_" in path.name, False),
    "renamed": ("rename", lambda old, new: "batch_" in new.name, False),
    "noted": ("append", lambda path, line: True, False),
    "finished": ("remove", lambda path: path.name == "groups.jsonl", True),
}
name, is_it, before = POINTS[point]
dying(name, is_it, before=before)
sys.exit(run_command_line(sys.argv[3:], Interrupts.installed()))
"""


def test_co_71_and_72_a_dataset_that_is_killed_while_writing_needs_no_calls(
    tmp_path: Path, server: HeldServer
) -> None:
    """It is killed before its first file, around a rename, before the store is updated, and at its end.

    A file that is cut off meanwhile is written again from the store.
    """
    rows = 2 * GROUP
    suite = suite_of(server.url, rows)
    wanted = whole(tmp_path / "whole", suite)
    write(tmp_path, suite)
    (tmp_path / "dies.py").write_text(_DIES)
    batch = tmp_path / "datasets" / "made" / "batch_00000.parquet"
    count_before = len(server.prompts)
    for place, point in enumerate(("headed", "filled", "renamed", "noted", "finished")):
        again = ["resume" if place else "s.json", "--no-cache", "--no-progress"]
        cells = 0 if point == "headed" else 2 * rows
        done = subprocess.run(
            [sys.executable, "dies.py", point, str(cells), *again],
            cwd=tmp_path,
            env=ENV,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == -9, (point, done.stderr.decode())
        assert batch.exists() is (point not in ("headed", "filled"))
        assert len(stored(tmp_path, "SELECT 1 FROM written_group")) <= (point == "finished") * 2
        if point == "noted":
            batch.write_bytes(batch.read_bytes()[:-9])
    batch.write_bytes(batch.read_bytes()[:-9])
    finish(tmp_path, "resume", "--no-cache")
    assert files_of(tmp_path) == wanted
    assert len(server.prompts) == count_before + 2 * rows


_SLOW_PROCESSOR = """\
import os, time


def last(rows, numbers):
    open("begun", "a").write("x")
    if not os.path.exists("quick"):
        time.sleep(600)
    kept = [(row, number) for row, number in zip(rows, numbers) if number % 2]
    return [{**row, "first": row["first"].upper()} for row, _ in kept], [number for _, number in kept]
"""


def test_co_78_a_dataset_that_is_killed_in_its_last_stage_runs_the_stage_again(
    tmp_path: Path, server: HeldServer
) -> None:
    """A finished stage does not run again."""
    (tmp_path / "gen.py").write_text(_SLOW_PROCESSOR)
    suite = suite_of(
        server.url,
        2 * GROUP,
        processors=[{"stage": "afterGeneration", "target": "file://gen.py:last"}],
    )
    write(tmp_path, suite)
    begun = tmp_path / "begun"
    process = start(tmp_path, "s.json", "--no-cache")
    wait_until(lambda: begun.exists() and begun.read_text() == "x", process)
    kill(process, server)
    before = files_of(tmp_path)
    rows = rows_of(tmp_path)
    assert len(rows) == 2 * GROUP
    (tmp_path / "quick").touch()
    requests = len(server.prompts)
    finish(tmp_path, "resume", "--no-cache")
    assert begun.read_text() == "xx"
    left = [{**row, "first": row["first"].upper()} for row in rows[1::2]]
    assert rows_of(tmp_path) == left
    after = files_of(tmp_path)
    assert {name: after[name] for name in before if "batch" in name} == {
        name: before[name] for name in before if "batch" in name
    }
    finish(tmp_path, "resume", "--no-cache")
    assert begun.read_text() == "xx"
    assert len(server.prompts) == requests


def test_a_killed_chain_of_tasks_over_a_dataset_continues(
    tmp_path: Path, server: HeldServer
) -> None:
    """Replies make seeds, seeds make a dataset, and its rows are tests and questions: each is called once."""
    tests = [{"vars": {"word": f"w{place}"}} for place in range(6)]
    asks = {"fromTask": "made", "question": "ask", "answers": "said", "correctAnswers": "said"}
    suite = {
        "providers": [lane_of(server.url)],
        "tasks": [
            {"id": "words", "type": "prompt_eval", "prompts": ["say {{word}}"], "tests": tests},
            {
                **made(
                    {
                        "type": "seed",
                        "fromTask": "words",
                        "columns": {"word": "vars.word", "said": "output"},
                    },
                    number("a"),
                    llm("ask", "what of {{ said }} and {{ a }}?"),
                    rows=6,
                ),
            },
            {
                "id": "exam",
                "type": "prompt_eval",
                "prompts": ["exam {{ask}}"],
                "tests": {
                    "fromTask": "made",
                    "vars": {"ask": "ask", "word": "word"},
                    "assert": [{"type": "contains", "value": "{{word}}"}],
                },
            },
            {"id": "quiz", "type": "question_eval", "questions": asks},
        ],
    }
    write(tmp_path, suite)
    count_before, calls, lost = len(server.prompts), 0, 0
    for more, held in ((4, 2), (5, 3), (5, WIDTH)):
        server.hold_after(more)
        process = start(tmp_path, "resume" if calls else "s.json", "--no-cache")
        server.wait_held(held)
        calls += more
        wait_until(partial(is_recorded, tmp_path, calls, "call"), process)
        kill(process, server)
        lost += held
    stderr = finish(tmp_path, "resume", "--no-cache", code=100)
    assert "6 passed, 6 failed, 0 errors, 6 not graded" in stderr  # an echo answers no question
    assert len(server.prompts) == count_before + 4 * 6 + lost

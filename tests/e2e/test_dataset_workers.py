"""Datasets on workers: killed workers, killed and interrupted runs; the files are those of one process."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from built_datasets import (
    CALLS,
    GROUP,
    ROWS,
    WIDTH,
    files_of,
    finish,
    llm,
    made,
    number,
    recorded,
    rows_of,
    stored,
    suite_of,
    wait_until,
    whole,
    write,
)
from distributed import LocalCluster
from held_server import HeldServer, held_server
from scaleout_command import command, processes_of, wait_gone
from test_dataset_kills import is_recorded

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.timeout(400),  # two or three clusters start
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
]

ON = ("--on", "local:2", "--no-cache")
"""Workers of the run, which tests kill or end with it."""


@pytest.fixture
def on(cluster: LocalCluster) -> tuple[str, ...]:
    """Return the flags of a run on the workers that all tests share."""
    return ("--on", cluster.scheduler_address, "--no-cache")


@pytest.fixture(name="server", scope="module")
def fixture_server() -> Iterator[HeldServer]:
    with held_server() as server:
        yield server


_CODE = """\
def before(rows, numbers):
    kept = [(row, number) for row, number in zip(rows, numbers) if number != 5]
    return [row for row, _ in kept], [number for _, number in kept]


def after(rows, numbers):
    return [{**row, "first": row["first"] + "!"} for row in rows], numbers


def last(rows, numbers):
    return [{**row, "place": place} for place, row in enumerate(rows)], numbers


def place(rows, numbers):
    return numbers
"""


def columns_of_all_kinds(server: HeldServer) -> dict[str, Any]:
    """A seed file, functions of whole groups, validations, skipped cells, and all stages of processors."""
    suite = suite_of(
        server.url,
        processors=[
            {"stage": "beforeBatch", "target": "file://gen.py:before"},
            {"stage": "afterBatch", "target": "file://gen.py:after"},
            {"stage": "afterBatch", "dropColumns": ["raw"]},
            {"stage": "afterGeneration", "target": "file://gen.py:last"},
        ],
    )
    (task,) = suite["tasks"]
    task["columns"] += [
        {"type": "seed", "file": "seed.csv", "columns": ["word", "raw"], "order": "shuffled"},
        {
            "name": "place",
            "type": "python",
            "scope": "full",
            "target": "file://gen.py:place",
            "requires": ["first"],
            "as": "int",
        },
        llm("third", "third {{ word }}", skip={"when": "place % 3 == 0", "value": "none"}),
        {
            "name": "valid",
            "type": "validation",
            "assert": [{"type": "not-contains", "value": "third w2"}],
            "target": "third",
            "drop": True,
        },
    ]
    return suite


def served(server: HeldServer, since: int) -> Counter[str]:
    return Counter(server.prompts[since:])


def test_a_dataset_on_workers_has_the_bytes_of_one_process(
    tmp_path: Path, server: HeldServer, on: tuple[str, ...]
) -> None:
    """Each request is made once, and the run is stored as any other."""
    suite = suite_of(server.url)
    wanted = whole(tmp_path / "whole", suite)
    ideal = Counter(server.prompts[-CALLS:])
    write(tmp_path, suite)
    since = len(server.prompts)
    assert "exit 0" in finish(tmp_path, "s.json", *on)
    assert served(server, since) == ideal
    assert files_of(tmp_path) == wanted
    assert recorded(tmp_path) == recorded(tmp_path, "call") == CALLS
    assert recorded(tmp_path, "written_group") == ROWS // GROUP + 1


def worker_processes(process: "subprocess.Popen[str]") -> list[int]:
    """The workers of a run with `local:2`."""
    found = [one for one in processes_of(process.pid) if one != process.pid]
    return [one for one in found if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()]


def test_groups_of_killed_workers_are_made_with_their_recorded_cells(
    tmp_path: Path, server: HeldServer
) -> None:
    """RESUME: only calls in flight are made again, and the files are the same."""
    suite = suite_of(server.url)
    wanted = whole(tmp_path / "whole", suite)
    ideal = Counter(server.prompts[-CALLS:])
    write(tmp_path, suite)
    since = len(server.prompts)
    server.hold_after(10)
    with command(tmp_path, "s.json", *ON) as process:
        server.wait_held(WIDTH)
        wait_until(partial(is_recorded, tmp_path, 10), process)
        for one in worker_processes(process):
            os.kill(one, signal.SIGKILL)
        server.forget_held()
        _, text = process.communicate(timeout=300)
    assert process.returncode == 0, text
    requests = served(server, since)
    assert requests.keys() == ideal.keys()
    assert requests.total() == CALLS + WIDTH
    assert files_of(tmp_path) == wanted
    assert "Traceback" not in text


@pytest.mark.parametrize("where", ["workers", "one process"])
def test_an_interrupted_dataset_continues_on_workers_and_without(
    tmp_path: Path, server: HeldServer, on: tuple[str, ...], where: str
) -> None:
    """DRAIN, RESUME: what runs at Ctrl-C ends, and no request is repeated."""
    suite = suite_of(server.url)
    wanted = whole(tmp_path / "whole", suite)
    ideal = Counter(server.prompts[-CALLS:])
    write(tmp_path, suite)
    since = len(server.prompts)
    server.hold_after(10)
    with command(tmp_path, "s.json", *ON) as process:
        server.wait_held(WIDTH)
        wait_until(partial(is_recorded, tmp_path, 10), process)
        os.killpg(process.pid, signal.SIGINT)
        # The program says so before its workers know it: they must know before anything is served.
        assert process.stderr is not None
        process.stderr.readline()
        server.release()
        _, text = process.communicate(timeout=300)
        wait_gone(process.pid)
    assert process.returncode == 130, text
    assert recorded(tmp_path) >= 10 + WIDTH
    finish(tmp_path, "resume", *(on if where == "workers" else ("--no-cache",)))
    assert served(server, since) == ideal
    assert files_of(tmp_path) == wanted


def test_a_killed_run_of_a_dataset_continues_on_workers(
    tmp_path: Path, server: HeldServer, on: tuple[str, ...]
) -> None:
    """RESUME: the recorded cells are sent to the workers of the next execution."""
    suite = suite_of(server.url)
    wanted = whole(tmp_path / "whole", suite)
    ideal = Counter(server.prompts[-CALLS:])
    write(tmp_path, suite)
    since = len(server.prompts)
    server.hold_after(2 * 2 * GROUP + 5)
    with command(tmp_path, "s.json", *ON) as process:
        server.wait_held(WIDTH)
        wait_until(partial(is_recorded, tmp_path, 2 * 2 * GROUP + 5), process)
        process.kill()
        process.wait()
        server.forget_held()
        wait_gone(process.pid)
    assert "exit 0" in finish(tmp_path, "resume", *on)
    requests = served(server, since)
    assert requests.keys() == ideal.keys()
    assert requests.total() == CALLS + WIDTH
    assert files_of(tmp_path) == wanted


def test_columns_and_processors_of_all_kinds_run_on_workers(
    tmp_path: Path, server: HeldServer, on: tuple[str, ...]
) -> None:
    """Also those that need a whole group, or the whole dataset."""
    suite = columns_of_all_kinds(server)
    seed = "word,raw\n" + "".join(f"w{number},r{number}\n" for number in range(7))
    for folder in (tmp_path, tmp_path / "whole"):
        folder.mkdir(exist_ok=True)
        (folder / "gen.py").write_text(_CODE)
        (folder / "seed.csv").write_text(seed)
    write(tmp_path / "whole", suite)
    write(tmp_path, suite)
    since = len(server.prompts)
    finish(tmp_path / "whole", "s.json", "--no-cache")
    ideal, since = served(server, since), len(server.prompts)
    finish(tmp_path, "s.json", *on)
    assert served(server, since) == ideal
    assert files_of(tmp_path) == files_of(tmp_path / "whole")
    rows = rows_of(tmp_path)
    assert 0 < len(rows) < ROWS - 1
    assert all(row["first"].endswith("!") for row in rows)
    dropped = "SELECT cause, count(*) FROM dropped_row GROUP BY cause ORDER BY cause"
    assert stored(tmp_path, dropped) == stored(tmp_path / "whole", dropped)


def test_rows_of_an_earlier_task_are_seeds_on_workers(
    tmp_path: Path, server: HeldServer, on: tuple[str, ...]
) -> None:
    """Each worker gets the rows of its groups, also if they are in files."""
    size = {"name": "length", "type": "expression", "template": "{{ said | length }}", "as": "int"}
    words = [{"vars": {"word": f"w{place}"}} for place in range(7)]
    suite = suite_of(server.url)
    suite["tasks"] = [
        {"id": "words", "type": "prompt_eval", "prompts": ["say {{word}}"], "tests": words},
        {
            **made(
                {
                    "type": "seed",
                    "fromTask": "words",
                    "columns": {"word": "vars.word", "said": "output"},
                    "order": "shuffled",
                },
                size,
                llm("first", "about {{ said }} of {{ word }}"),
            ),
            "id": "texts",
        },
        made(
            {"type": "seed", "fromTask": "texts", "columns": ["first"]}, llm("more", "{{ first }}")
        ),
    ]
    folders = tmp_path / "whole", tmp_path / "workers"
    requests = []
    for folder, more in zip(folders, [("--no-cache",), on], strict=True):
        folder.mkdir()
        write(folder, suite)
        since = len(server.prompts)
        assert "exit 0" in finish(folder, "s.json", *more)
        requests.append(served(server, since))
    assert requests[0] == requests[1]
    for task in ("texts", "made"):
        assert files_of(folders[1], task) == files_of(folders[0], task) != {}


_ORDERED = """\
import pathlib


def count(start, rows):
    with (pathlib.Path(__file__).parent / "starts").open("a") as file:
        file.write(f"{start}\\n")
    return [start + rows] * rows
"""


def test_a_column_in_the_order_of_groups_is_made_by_one_worker(
    tmp_path: Path, server: HeldServer, on: tuple[str, ...]
) -> None:
    """The groups come in their order, in one process."""
    column = {
        "name": "count",
        "type": "python",
        "scope": "scratch",
        "target": "file://gen.py:count",
        "ordered": True,
        "as": "int",
    }
    suite = suite_of(server.url)
    suite["tasks"] = [made(column, llm("first", "first {{ count }}"))]
    folders = tmp_path / "whole", tmp_path / "workers"
    for folder, more in zip(folders, [("--no-cache",), on], strict=True):
        folder.mkdir()
        (folder / "gen.py").write_text(_ORDERED)
        write(folder, suite)
        finish(folder, "s.json", *more)
    assert files_of(folders[1]) == files_of(folders[0])
    assert [row["count"] for row in rows_of(folders[1])][::GROUP] == [4, 8, 12, 16, 18]
    assert (folders[1] / "starts").read_text().split() == ["0", "4", "8", "12", "16"]


_REFUSES = """\
def refuse(row):
    raise ValueError("no")
"""


def test_too_many_failures_end_a_dataset_on_all_workers(
    tmp_path: Path, server: HeldServer, on: tuple[str, ...]
) -> None:
    """Every row has an outcome, and most of them are never asked for."""
    column = {"name": "bad", "type": "python", "target": "file://gen.py:refuse", "requires": ["a"]}
    suite = suite_of(server.url)
    suite["tasks"] = [made(number("a"), column, llm("first", "first {{ bad }}"), rows=2000)]
    (tmp_path / "gen.py").write_text(_REFUSES)
    write(tmp_path, suite)
    since = len(server.prompts)
    text = finish(tmp_path, "s.json", *on, code=100)
    assert "too many calls failed permanently" in text
    assert not served(server, since)
    counts = dict(stored(tmp_path, "SELECT cause, count(*) FROM dropped_row GROUP BY cause"))
    assert counts["failed"] >= 5
    assert sum(counts.values()) < 1000

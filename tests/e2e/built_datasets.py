"""Suites that build datasets, run as by a user: real processes, a real store, real files."""

import contextlib
import functools
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import trio
from held_server import PATIENCE, HeldServer
from test_command_line import ENV, trioeval

import trioeval as package

WIDTH = 4
ROWS, GROUP = 18, 4
CALLS = 2 * ROWS


def lane_of(url: str, model: str = "fake", **lane: Any) -> dict[str, Any]:
    """A provider with a label, which is the model."""
    return {
        "id": f"openai:chat:{model}",
        "label": model,
        "config": {"apiBaseUrl": url},
        "lane": {"maxConcurrency": WIDTH, "adaptive": "off"} | lane,
    }


def llm(name: str, prompt: str, model: str = "fake", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "llm", "provider": model, "prompt": prompt, **more}


def number(name: str) -> dict[str, Any]:
    sampler = {"type": "sampler", "sampler": "uniform", "low": 1, "high": 10**9, "decimals": 0}
    return {"name": name, **sampler}


def made(*columns: Mapping[str, Any], rows: int = ROWS, **more: Any) -> dict[str, Any]:
    """A task of type `columns`."""
    task = {"id": "made", "type": "columns", "rows": rows, "groupSize": GROUP, "seed": 5}
    return {**task, "columns": list(columns), **more}


def suite_of(url: str, rows: int = ROWS, **more: Any) -> dict[str, Any]:
    """A number, a text about it, its length, and a text about both: two calls a row."""
    size = {"name": "size", "type": "expression", "template": "{{ first | length }}", "as": "int"}
    columns = (
        number("a"),
        llm("first", "first {{ a }}"),
        size,
        llm("second", "second {{ size }} of {{ first }}"),
    )
    return {"providers": [lane_of(url)], "tasks": [made(*columns, rows=rows, **more)]}


def write(folder: Path, suite: Mapping[str, Any]) -> None:
    (folder / "s.json").write_text(json.dumps(suite))


def start(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    """The command, in a folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "trioeval", *arguments, "--no-progress", "--no-table"],
        cwd=folder,
        env=ENV,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill(process: "subprocess.Popen[str]", server: HeldServer) -> None:
    with process:
        process.kill()
    server.forget_held()


def finish(folder: Path, *arguments: str, code: int = 0) -> str:
    """Run the command to its end, and return its output."""
    done = trioeval(*arguments, "--no-table", "--no-progress", cwd=folder)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def files_of(folder: Path, task: str = "made") -> Mapping[str, bytes]:
    """All files of a dataset with their bytes."""
    root = folder / "datasets" / task
    files = [one for one in sorted(root.rglob("*")) if one.is_file()]
    return {str(one.relative_to(root)): one.read_bytes() for one in files}


def note_of(folder: Path, task: str = "made") -> Any:
    """The contents of `dataset.json`."""
    return json.loads((folder / "datasets" / task / "dataset.json").read_text())


def rows_of(folder: Path, task: str = "made") -> list[dict[str, Any]]:
    """The rows of a dataset."""
    from trioeval.columns.files import DatasetRows

    return [dict(row) for row in DatasetRows(folder / "datasets" / task)]


def stored(folder: Path, query: str) -> list[Any]:
    """Lines of the store; none if it does not exist yet."""
    path = folder / ".trioeval" / "results.db"
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as connection:
        try:
            return connection.execute(query).fetchall()
        except sqlite3.OperationalError:  # it is being created
            return []


def recorded(folder: Path, table: str = "cell") -> int:
    """The number of recorded cells, or other records."""
    return len(stored(folder, f"SELECT 1 FROM {table}"))  # noqa: S608 - a name of ours


def wait_until(met: Callable[[], bool], process: "subprocess.Popen[str] | None" = None) -> None:
    """Poll until a condition holds."""
    until = time.monotonic() + PATIENCE
    while not met():
        if process is not None and process.poll() is not None:
            raise AssertionError(process.communicate()[1])
        if time.monotonic() > until:
            raise AssertionError("this never happens" if process is None else end(process))
        time.sleep(0.002)  # between two polls


def end(process: "subprocess.Popen[str]") -> str:
    """Kill a process, and return its output."""
    process.kill()
    return process.communicate()[1]


def whole(folder: Path, suite: Mapping[str, Any]) -> Mapping[str, bytes]:
    """The files of an uninterrupted run, in a separate folder."""
    folder.mkdir()

    async def forget(_row: object) -> None:
        pass

    with contextlib.chdir(folder):
        ready = package.parse_suite(suite, directory=folder)
        done = trio.run(functools.partial(package.run_suite, ready, emit=forget))
    assert [one.outcome for one in done.datasets] == ["complete"]
    return files_of(folder)

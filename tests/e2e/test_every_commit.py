"""A power failure at any instant: from the commits so far, a run continues as if nothing had happened."""

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest
import trio
from chaos import lasting

from trioeval.errors import ProviderError
from trioeval.loading.load import parse_suite
from trioeval.providers import Reply, Request
from trioeval.report.stored import RunStart
from trioeval.run import Row, RunOptions, run_with_options
from trioeval.store.reader import read_store
from trioeval.store.run import StoredRun
from trioeval.store.store import open_store

pytestmark = pytest.mark.slow

DEEP = os.environ.get("TRIOEVAL_PROFILE") == "deep"
COPIES = 40 if DEEP else 10
START = RunStart(id="eval-1", utc_created="2026-01-01T00:00:00.000Z")
CHECKS = [
    {"type": "contains", "value": "a"},
    {
        "type": "llm-rubric",
        "value": "fair",
        "provider": "judge",
        "rubricPrompt": "judge {{output}}",
    },
]
SUITE = {
    "providers": ["one", "two"],
    "prompts": [
        "{% for turn in _conversation %}{% if loop.last %}{{turn.output}} {% endif %}{% endfor %}{{n}}"
    ],
    "tests": [
        {
            "vars": {"n": f"n{number}"},
            "assert": CHECKS[: 1 + number % 2],
            "metadata": {"conversationId": f"talk {number % 8}"},
        }
        for number in range(48)
    ],
    "serialize": "conversation",
}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@attrs.define(eq=False)
class Models:
    """The models; a reply depends only on the question."""

    requests: Counter[tuple[str, str]] = attrs.field(factory=Counter)

    async def ask(self, name: str, request: Request) -> Reply:
        """The reply of a model; some questions are always refused."""
        self.requests[name, request.prompt] += 1
        await trio.sleep(0.0005)
        if request.prompt.endswith("n7"):
            raise ProviderError("bad_request", "not for me")
        letters = digest(name + request.prompt)
        if name != "judge":
            return Reply(output=letters)
        return Reply(output=json.dumps({"pass": letters > "4", "score": 0.5, "reason": letters}))


async def perform(run: StoredRun, models: Models) -> list[Any]:
    """Run the suite, and return its rows as the store has them."""

    async def emit(_row: Row) -> None:  # noqa: ASYNC124 - rows are not observed
        pass

    providers = {name: partial(models.ask, name) for name in ("one", "two", "judge")}
    await run_with_options(
        parse_suite(SUITE), RunOptions(emit=emit, journal=run), providers=providers
    )
    run.finish("finished", duration_ms=0)
    return [lasting(record) for record in run.records(None)]


def stored_run(
    path: Path, models: Models, *, resumes: bool, after_commit: Callable[[], None] | None = None
) -> list[Any]:
    """Start or continue the run in a store."""

    async def main() -> list[Any]:
        async with open_store(path, after_commit=after_commit) as store:
            run = await store.resume("eval-1", START) if resumes else store.begin(START)
            return await perform(run, models)

    return trio.run(main)


def test_every_commit_opens_and_continues_to_the_same_end(tmp_path: Path) -> None:
    """Copies of the disk after each commit, some of them cut within the last write."""
    random = Random(7)  # noqa: S311 - repeatable cuts
    path, copies, models = tmp_path / "results.db", list[Path](), Models()

    def copy() -> None:
        target = tmp_path / f"copy{len(copies)}"
        target.mkdir()
        # In another process: one that closes a file of SQLite gives up its own locks of it.
        subprocess.run(["cp", path, path.with_name("results.db-wal"), target], check=True)
        copies.append(target)

    whole = stored_run(path, models, resumes=False, after_commit=copy)
    assert len(whole) == 96
    assert {*models.requests.values()} == {1}
    first = (copies[0] / "results.db").read_bytes()
    for taken in random.sample(copies, min(COPIES, len(copies))):
        log = taken / "results.db-wal"
        if (taken / "results.db").read_bytes() == first:  # otherwise the disk had the log before
            size = log.stat().st_size
            os.truncate(log, random.randint(size * 2 // 3, size))
        check_continues(taken, whole)


def check_continues(folder: Path, whole: list[Any]) -> None:
    """Check that the store of a folder is intact, and that its run ends like the undisturbed one."""
    look = shutil.copytree(folder, folder / "look")  # inspecting must change nothing
    with closing(sqlite3.connect(look / "results.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        begun = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'run'").fetchone()
        if not begun or not database.execute("SELECT 1 FROM run").fetchone():
            return
        known = {*database.execute("SELECT provider, prompt FROM calls WHERE error IS NULL")}
    models = Models()
    assert stored_run(folder / "results.db", models, resumes=True) == whole
    assert not known & {*models.requests}
    with read_store(folder / "results.db") as reader:
        assert reader.run("latest").rows == len(whole)

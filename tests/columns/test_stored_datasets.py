"""Datasets with a real store: the next execution finds the records of the last one."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio

import trioeval
from trioeval.columns.events import DatasetEvent, RowDropped
from trioeval.columns.files.layout import Disk
from trioeval.columns.result import DatasetResult
from trioeval.errors import ProviderError
from trioeval.providers import Request
from trioeval.report.stored import RunStart
from trioeval.store.store import open_store

START = RunStart(
    id="eval-1", utc_created="2026-01-01T00:00:00Z", heads=[{"task": "dataset", "columns": []}]
)
NUMBER = {"type": "sampler", "sampler": "uniform", "low": 1, "high": 9, "decimals": 0}
PLAIN = {"rows": 6, "groupSize": 2, "format": "jsonl", "columns": [{"name": "a", **NUMBER}]}


async def execution(
    folder: Path, document: Mapping[str, Any], *, first: bool = True, **more: Any
) -> DatasetResult:
    async with open_store(folder / "runs.db") as store:
        run = store.begin(START) if first else await store.resume(START.id, START)
        dataset = await trioeval.build_columns(
            document, output_dir=folder / "made", journal=run, **more
        )
    return dataset.result


def test_a_dataset_is_recorded_in_the_store_before_its_folder_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a run that is killed at once would find a folder that it does not know."""
    known: list[int] = []
    plain = Disk.rename

    def rename(disk: Disk, old: Path, new: Path) -> None:
        if new.name.startswith("batch_"):
            with closing(sqlite3.connect(tmp_path / "runs.db")) as store:
                known.append(len(store.execute("SELECT 1 FROM dataset").fetchall()))
        plain(disk, old, new)

    monkeypatch.setattr(Disk, "rename", rename)
    assert trio.run(execution, tmp_path, PLAIN).written == 6
    assert known == [1, 1, 1]


@pytest.mark.parametrize("rows", [2, 6])
def test_rows_dropped_before_an_interruption_stay_dropped(tmp_path: Path, rows: int) -> None:
    """This includes the first groups that are opened again; no job waits for them."""
    scope = trio.CancelScope()
    refused: list[str] = []

    async def model(request: Request) -> str:
        if not refused:
            refused.append(request.prompt)
            raise ProviderError("bad_request", "no")
        if not scope.cancelled_caught:
            await trio.sleep_forever()
        assert request.prompt != refused[0]
        return f"<{request.prompt}>"

    def watch(event: DatasetEvent) -> None:
        if isinstance(event, RowDropped):
            scope.cancel("a row is gone")

    number = {**NUMBER, "high": 10**9}
    column = {"name": "x", "type": "llm", "provider": "model", "prompt": "{{ a }}"}
    columns = [{"name": "a", **number}, column, {**column, "name": "y", "prompt": "{{ x }}"}]
    document = {**PLAIN, "rows": rows, "columns": columns, "shutdown": {"enabled": False}}

    async def both() -> DatasetResult:
        with scope:
            await execution(tmp_path, document, providers={"model": model}, events=watch)
        return await execution(tmp_path, document, first=False, providers={"model": model})

    done = trio.run(both)
    assert scope.cancelled_caught
    assert (done.error, done.dropped, done.written) == (None, {"failed": 1}, rows - 1)

"""A complete dataset whose files have changed since."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from built_datasets import GROUP, files_of, finish, suite_of, write
from held_server import HeldServer, held_server

pytestmark = pytest.mark.slow

_PROCESSOR = """\
def last(rows, numbers):
    open("ran", "a").write("x")
    return [{**row, "first": row["first"] + "!"} for row in rows], numbers
"""


@pytest.fixture(name="server", scope="module")
def fixture_server() -> Iterator[HeldServer]:
    with held_server() as server:
        yield server


def test_co_72_files_of_a_finished_run_are_repaired_without_a_call(
    tmp_path: Path, server: HeldServer
) -> None:
    """Missing and cut files are repaired; if nothing is damaged, no cell or processor runs."""
    (tmp_path / "gen.py").write_text(_PROCESSOR)
    last = {"stage": "afterGeneration", "target": "file://gen.py:last"}
    write(tmp_path, suite_of(server.url, GROUP + 1, format="jsonl", processors=[last]))
    finish(tmp_path, "s.json", "--no-cache")
    wanted, count_before = files_of(tmp_path), len(server.prompts)
    assert {"batch_00001.jsonl", "final/batch_00001.jsonl"} <= wanted.keys()
    root = tmp_path / "datasets" / "made"
    batch, processed = root / "batch_00001.jsonl", root / "final" / "batch_00001.jsonl"
    runs = 1
    harms: Sequence[tuple[Callable[[], object], int]] = [
        (lambda: batch.write_bytes(batch.read_bytes()[:-9]), 1),
        (lambda: processed.write_bytes(processed.read_bytes()[:-9]), 1),
        (lambda: shutil.rmtree(root), 1),
        (lambda: None, 0),
    ]
    for harm, again in harms:
        harm()
        finish(tmp_path, "resume", "--no-cache")
        runs += again
        assert files_of(tmp_path) == wanted
        assert (tmp_path / "ran").read_text() == "x" * runs
    assert len(server.prompts) == count_before

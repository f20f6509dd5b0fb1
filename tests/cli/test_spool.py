"""Rows that wait on disk."""

import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.cli.spool import Spool
from trioeval.errors import OutputError
from trioeval.report import to_json


@given(rows=st.lists(st.tuples(st.integers(0, 3), st.text()), max_size=20))
def test_rows_come_back_as_often_as_they_are_wanted(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, str]]
) -> None:
    """All of them or those of one column, in order, whatever text is in them; no file is left."""
    folder = tmp_path_factory.mktemp("spool")
    spool = Spool(folder)
    spool.open()
    for column, text in rows:
        spool.add(to_json({"column": column, "text": text}), column)
    for _ in range(2):
        assert [(row["column"], row["text"]) for row in spool.rows()] == rows
        for wanted in range(5):
            assert [row["text"] for row in spool.rows(wanted)] == [
                text for column, text in rows if column == wanted
            ]
    spool.close()
    assert list(folder.iterdir()) == []
    assert spool.error is None


def test_rows_take_no_memory(tmp_path: Path) -> None:
    """Eight bytes each, and what the doubling of their list wastes."""
    spool = Spool(tmp_path)
    spool.open()
    text = to_json({"output": "x" * 200})
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(10_000):
        spool.add(text, 0)
    assert sum(1 for _ in spool.rows()) == 10_000
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    spool.close()
    assert after - before < 200_000


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    """And rows that come all the same are not missed."""
    spool = Spool(tmp_path / "no")
    with pytest.raises(OutputError, match=r"rows cannot be kept in .*: No such file"):
        spool.open()
    spool.add("{}", 0)
    assert list(spool.rows()) == []
    spool.close()


def test_a_disk_that_fills_up_is_kept_as_an_error_and_closing_is_none(tmp_path: Path) -> None:
    """Rows in the buffer of the file are given up with it."""
    script = """
import resource, sys
from pathlib import Path
from trioeval.cli.spool import Spool
from trioeval.errors import OutputError
spool = Spool(Path(sys.argv[1]))
spool.open()
resource.setrlimit(resource.RLIMIT_FSIZE, (40_960, 40_960))
for _ in range(1000):
    spool.add("x" * 100, 0)
try:
    list(spool.rows())
except OutputError as error:
    print(error)
spool.close()
print(spool.error)
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "kept rows cannot be read: File too large",
        f"rows cannot be kept in {tmp_path}: File too large",
    ]
    assert list(tmp_path.iterdir()) == []

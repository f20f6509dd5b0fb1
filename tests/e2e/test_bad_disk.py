"""Runs on a full disk or with a locked store keep and report their results."""

import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from chaos import ENV, Audit, open_provider, rows_of, start_run, wait_replies

pytestmark = [
    pytest.mark.attack("damaged databases"),
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.timeout(300),
]

DEEP = os.environ.get("TRIOEVAL_PROFILE") == "deep"
FLAGS = ("--latency", "0.02", "--jitter", "1")
OUTPUTS = ("-o", "out.csv", "-o", "out.junit.xml")
LIMITED = """
import os, resource, sys
size = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
os.execv(sys.executable, [sys.executable, "-m", "trioeval", *sys.argv[2:]])
"""
"""Runs the command with a maximum size of each file that it writes, like a full disk."""


ROWS = 424
LOCKED = 35 if DEEP else 3
"""Seconds; a run waits for at most 30 of them."""


def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Return the exit code and stderr."""
    _, stderr = process.communicate(timeout=120)
    assert "Traceback" not in stderr
    return process.returncode, stderr


def check_continues(audit: Audit, folder: Path) -> None:
    """Check that nothing recorded is lost and that the rest follows."""
    audit.look(time.time())
    code, stderr = ended(start_run(folder, "resume", "--no-cache", "-o", "out.json"))
    assert code == 100, stderr
    audit.look(time.time())
    assert audit.repeated == []
    assert len(rows_of(folder)) == ROWS


def test_a_full_disk_ends_a_run_that_keeps_its_records(tmp_path: Path) -> None:
    """It makes no more calls, writes files that still have room, and names the command that continues it."""
    with open_provider(tmp_path, *FLAGS) as provider:
        audit = Audit(provider, tmp_path)
        command = [sys.executable, "-c", LIMITED, "420000", "run", "suite.json", "--no-cache"]
        process = subprocess.Popen(
            [*command, "--no-table", "--no-progress", *OUTPUTS],
            cwd=tmp_path,
            env=ENV,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        code, stderr = ended(process)
        assert code == 1, stderr
        assert "results.db" in stderr
        assert "trioeval resume" in stderr.strip().rpartition("\n")[2]
        assert len((tmp_path / "out.csv").read_text().splitlines()) > 1
        assert (tmp_path / "out.junit.xml").exists()
        assert provider.stats()["requests"] < ROWS
        check_continues(audit, tmp_path)
        assert audit.recorded.rows.total() == ROWS


def test_a_run_waits_for_a_locked_store_only_for_a_while(tmp_path: Path) -> None:
    """After a few seconds it warns, and after half a minute the run ends."""
    with open_provider(tmp_path, *FLAGS) as provider:
        audit = Audit(provider, tmp_path)
        process = start_run(tmp_path, "run", "suite.json", "--no-cache", "-o", "out.json")
        wait_replies(process, provider, 50)
        with closing(sqlite3.connect(tmp_path / ".trioeval" / "results.db")) as other:
            other.execute("BEGIN IMMEDIATE")
            time.sleep(LOCKED)  # time.sleep(LOCKED)  # the duration of the lock is tested
            other.rollback()
        code, stderr = ended(process)
        assert "results.db" in stderr
        assert "locked" in stderr
        if DEEP:
            assert code == 1, stderr
            assert "trioeval resume" in stderr.strip().rpartition("\n")[2]
            assert len(rows_of(tmp_path)) > 50
            check_continues(audit, tmp_path)
        else:
            assert code == 100, stderr
            assert audit.look(time.time()) == []
        assert audit.recorded.rows.total() == ROWS

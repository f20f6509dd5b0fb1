"""Several processes share one cache: one call for equal requests, even if the caller is killed."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

LEASE = 3.0
"""Seconds; on a busy machine a heartbeat may be a second late."""

ASKER = """
import sys, time
from contextlib import contextmanager
from pathlib import Path
import trio
from trioeval.errors import ProviderError
from trioeval.providers import Reply
from trioeval.store.cache.cache import open_cache
from trioeval.evaluation.journal import RecordedReply

path, name, lease, what, count = sys.argv[1:]

@contextmanager
def waiting():
    if what == "reports-wait":
        print("waits", flush=True)
    yield

async def main():
    async def fetch():
        print("asks", flush=True)
        if what == "never":
            await trio.sleep(60)
        if what in {"slow", "fails"}:
            await trio.to_thread.run_sync(sys.stdin.readline)
        if what == "fails":
            raise ProviderError("server", "down")
        await trio.sleep(0.01)
        return RecordedReply(Reply(output=name), 50.0, cached=False)

    async with open_cache(Path(path), lease_s=float(lease)) as cache:
        for number in range(int(count)):
            try:
                paid = await cache.reply(number.to_bytes(32, "big"), fetch, waiting)
            except ProviderError as error:
                print(f"failed {error.kind}", flush=True)
            else:
                print(f"{number} {paid.reply.output} {paid.cached}", flush=True)

trio.run(main)
"""


@contextmanager
def asker(
    path: Path, name: str, what: str = "", count: int = 1, *, lease: float = 600.0
) -> Iterator["subprocess.Popen[str]"]:
    """A process that requests replies."""
    arguments = [str(path), name, str(lease), what, str(count)]
    with subprocess.Popen(
        [sys.executable, "-c", ASKER, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def line(child: "subprocess.Popen[str]") -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def go_on(child: "subprocess.Popen[str]") -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def test_a_call_of_another_process_is_not_repeated(tmp_path: Path) -> None:
    """Its reply is awaited, even if it takes longer than a lease: the thread of the process renews it."""
    path = tmp_path / "c.db"
    with asker(path, "one", "slow", lease=LEASE) as first:
        assert line(first) == "asks"
        with asker(path, "two", "reports-wait") as second:
            assert line(second) == "waits"
            wait_for_signs(path, 4)
            go_on(first)
            assert line(second) == "0 one True"
        assert line(first) == "0 one False"


def test_a_failure_in_another_process_is_not_shared(tmp_path: Path) -> None:
    """After a failure in another process the call is made here."""
    path = tmp_path / "c.db"
    with asker(path, "one", "fails") as first:
        assert line(first) == "asks"
        with asker(path, "two") as second:
            wait_for_lease(path, 1)
            go_on(first)
            assert line(first) == "failed server"
            assert [line(second), line(second)] == ["asks", "0 two False"]


@pytest.mark.parametrize("runs_out", [True, False], ids=["runs out", "has a dead owner"])
def test_a_killed_process_is_not_awaited(
    tmp_path: Path,
    runs_out: bool,  # noqa: FBT001
) -> None:
    """After a killed process one of the waiters makes the call for all."""
    path = tmp_path / "c.db"
    with asker(path, "one", "never") as first:
        assert line(first) == "asks"
        if runs_out:  # as on systems without locks
            [lock] = tmp_path.glob("*.lock")
            lock.unlink()
        with (
            asker(path, "two", "reports-wait") as second,
            asker(path, "three", "reports-wait") as third,
        ):
            assert [line(second), line(third)] == ["waits", "waits"]
            os.kill(first.pid, signal.SIGKILL)
            first.wait()
            if runs_out:  # time passes, and the lease is not renewed
                with sqlite3.connect(path) as file:
                    file.execute("UPDATE lease SET utc_expires = ?", (time.time(),))
            outputs = [child.communicate(timeout=60)[0].splitlines() for child in (second, third)]
    found = [[text for text in lines if text != "waits"] for lines in outputs]
    assert sorted(map(len, found)) == [1, 2], found
    [caller_lines] = [lines for lines in found if len(lines) == 2]
    name = caller_lines[1].split()[1]
    assert sorted(lines[-1] for lines in found) == [f"0 {name} False", f"0 {name} True"]
    with sqlite3.connect(path) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert file.execute("SELECT count(*) FROM lease").fetchone() == (0,)
    assert list(tmp_path.glob("*.lock")) == []


def test_a_call_of_a_killed_process_is_made_at_once_by_the_next(tmp_path: Path) -> None:
    """A resumed run makes the calls of a killed process at once."""
    path = tmp_path / "c.db"
    with asker(path, "one", "never") as first:
        assert line(first) == "asks"
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    assert len(list(tmp_path.glob("*.lock"))) == 1
    with asker(path, "two") as second:
        assert second.communicate(timeout=60)[0].splitlines() == ["asks", "0 two False"]
    assert list(tmp_path.glob("*.lock")) == []


def test_two_processes_make_many_calls_once(tmp_path: Path) -> None:
    """Two processes together make each of many calls once."""
    path = tmp_path / "c.db"
    with asker(path, "one", count=40) as first, asker(path, "two", count=40) as second:
        found = [child.communicate(timeout=60)[0].splitlines() for child in (first, second)]
    assert [sum(text != "asks" for text in lines) for lines in found] == [40, 40]
    assert sum(lines.count("asks") for lines in found) == 40


def wait_for_lease(path: Path, count: int) -> None:
    """Wait until a number of leases are held."""
    with sqlite3.connect(path) as file:
        while file.execute("SELECT count(*) FROM lease").fetchone() != (count,):
            pass


def wait_for_signs(path: Path, count: int) -> None:
    """Wait until the first caller has sent a number of heartbeats; it sends three per lease time."""
    with sqlite3.connect(path) as file:
        [(owner, beat)] = file.execute("SELECT owner, beat FROM lease")
        first = owner
        while beat < count:
            time.sleep(0.01)
            [(owner, beat)] = file.execute("SELECT owner, beat FROM lease")
            assert owner == first

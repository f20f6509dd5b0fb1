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
"""Seconds; a machine that has other things to do may come a second too late to say that it is alive."""

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
    if what == "tells":
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
    """A process that asks."""
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


def test_what_another_process_asks_is_not_asked_again(tmp_path: Path) -> None:
    """Its reply is waited for, however much longer than a lease it takes: its thread keeps it alive."""
    path = tmp_path / "c.db"
    with asker(path, "one", "slow", lease=LEASE) as first:
        assert line(first) == "asks"
        with asker(path, "two", "tells") as second:
            assert line(second) == "waits"
            wait_for_signs(path, 4)
            go_on(first)
            assert line(second) == "0 one True"
        assert line(first) == "0 one False"


def test_a_failure_in_another_process_is_nobody_elses(tmp_path: Path) -> None:
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
def test_a_process_that_is_killed_is_not_waited_for(
    tmp_path: Path,
    runs_out: bool,  # noqa: FBT001
) -> None:
    """After a killed process one of the waiters makes the call for all."""
    path = tmp_path / "c.db"
    with asker(path, "one", "never") as first:
        assert line(first) == "asks"
        if runs_out:  # as where the system can lock nothing
            [lock] = tmp_path.glob("*.lock")
            lock.unlink()
        with asker(path, "two", "tells") as second, asker(path, "three", "tells") as third:
            assert [line(second), line(third)] == ["waits", "waits"]
            os.kill(first.pid, signal.SIGKILL)
            first.wait()
            if runs_out:  # what time does, once nobody renews it
                with sqlite3.connect(path) as file:
                    file.execute("UPDATE lease SET utc_expires = ?", (time.time(),))
            heard = [child.communicate(timeout=60)[0].splitlines() for child in (second, third)]
    said = [[told for told in lines if told != "waits"] for lines in heard]
    assert sorted(map(len, said)) == [1, 2], said
    [asked] = [told for told in said if len(told) == 2]
    name = asked[1].split()[1]
    assert sorted(told[-1] for told in said) == [f"0 {name} False", f"0 {name} True"]
    with sqlite3.connect(path) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert file.execute("SELECT count(*) FROM lease").fetchone() == (0,)
    assert list(tmp_path.glob("*.lock")) == []


def test_what_a_killed_process_asked_is_asked_at_once_by_the_next(tmp_path: Path) -> None:
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


def test_two_processes_ask_for_many_things_once(tmp_path: Path) -> None:
    """Two processes together make each of many calls once."""
    path = tmp_path / "c.db"
    with asker(path, "one", count=40) as first, asker(path, "two", count=40) as second:
        said = [child.communicate(timeout=60)[0].splitlines() for child in (first, second)]
    assert [sum(told != "asks" for told in lines) for lines in said] == [40, 40]
    assert sum(lines.count("asks") for lines in said) == 40


def wait_for_lease(path: Path, count: int) -> None:
    """Until so many are held."""
    with sqlite3.connect(path) as file:
        while file.execute("SELECT count(*) FROM lease").fetchone() != (count,):
            pass


def wait_for_signs(path: Path, count: int) -> None:
    """Until whoever asked first has said so often that it is alive; three times a lease it does."""
    with sqlite3.connect(path) as file:
        [(owner, beat)] = file.execute("SELECT owner, beat FROM lease")
        first = owner
        while beat < count:
            time.sleep(0.01)
            [(owner, beat)] = file.execute("SELECT owner, beat FROM lease")
            assert owner == first

"""Messages are written completely, once and in order; failures are reported."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing
from bus_files import QUICK, bodies, draft, files, in_trio, opened, written
from filelock import FileLock

from trioeval.agent.bus.bus import Bus, open_bus
from trioeval.agent.bus.messages import MessageDraft
from trioeval.agent.bus.reading import read_bus
from trioeval.agent.bus.segments import LARGEST
from trioeval.agent.bus.settings import BusSettings, BusStats
from trioeval.errors import BusError, BusLockedError, UsageError
from trioeval.testing import run_virtual


def open_files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


async def until_written(bus: Bus) -> None:
    """Wait until a message is being written."""
    for _ in range(10**6):
        if any(entry.is_taken for entry in bus._queue.entries()):
            return
        await trio.lowlevel.checkpoint()
    raise AssertionError("nothing is written")


LOCKED = attrs.evolve(QUICK, lock_timeout=0.05)


def test_ag_52_ten_writers_get_numbers_in_file_order(tmp_path: Path) -> None:
    """Each writer's own order is preserved, and writers share batches."""

    async def main() -> None:
        async def write(name: int) -> None:
            last = 0
            for number in range(100):
                message = await bus.append(draft(f"{name} {number}"))
                assert message.seq > last
                last = message.seq

        async with opened(tmp_path) as bus:
            async with trio.open_nursery() as nursery:
                for name in range(10):
                    nursery.start_soon(write, name)
            assert bus.stats.appends == 1000
            assert bus.stats.largest_batch == 10
            assert bus.stats.batches == bus.stats.lock_attempts < 1000

    in_trio(main)
    reading = read_bus(tmp_path)
    assert [one.seq for one in reading.messages] == list(range(1, 1001))
    assert len({one.msg_id for one in reading.messages}) == 1000
    for name in range(10):
        own = [body for body in bodies([*reading.messages]) if body.startswith(f"{name} ")]
        assert own == [f"{name} {number}" for number in range(100)]
    assert reading.corrupt == []


def test_ag_50_a_message_is_read_as_it_was_appended(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path, now=1_767_323_045.000006) as bus:
            message = await bus.append(draft("a\nb\x00\ud800 ☃"))
            assert message.utc == "2026-01-02T03:04:05.000006Z"
            assert read_bus(tmp_path).messages == [message]

    in_trio(main)


def test_ag_51_no_body_ends_a_message_or_forges_another_one(tmp_path: Path) -> None:
    """Bodies contain lines that look like headers, also those of a whole record as it is in the file."""
    written(tmp_path, "first")
    record = files(tmp_path)[0].read_text()
    crafted = ["x\n---\ny", record, f"\n{record}", record * 2, record.replace("\n", "\r\n")]
    written(tmp_path, *crafted)
    reading = read_bus(tmp_path)
    assert bodies([*reading.messages]) == ["first", *crafted]
    assert reading.corrupt == []


def test_ag_54_a_lock_held_longer_than_one_try_is_tried_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path, LOCKED, rng=lambda: 1.0) as bus:
            lock = FileLock(tmp_path / ".lock")
            lock.acquire()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(bus.append, draft())
                await trio.sleep(0.08)
                lock.release()
            assert trio.current_time() == pytest.approx(0.15)
            stats = bus.stats
            assert (stats.appends, stats.lock_attempts, stats.retries, stats.timeouts) == (
                1,
                2,
                1,
                1,
            )
            assert stats.lock_wait_s == stats.longest_lock_wait_s == pytest.approx(0.05)

    run_virtual(main)
    assert len(read_bus(tmp_path).messages) == 1


def test_ag_55_a_writer_that_never_gets_the_lock_fails_with_attempts_and_cause(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        settings = attrs.evolve(LOCKED, append_attempts=2)
        async with opened(tmp_path, settings, rng=lambda: 1.0) as bus:
            with FileLock(tmp_path / ".lock"), pytest.raises(BusLockedError) as caught:
                await bus.append(draft())
            assert caught.value.attempts == 2
            assert str(caught.value) == (
                f"{tmp_path}: the message bus was locked by another process, 2 times for 0.05 s"
            )
            assert isinstance(caught.value.__cause__, TimeoutError)
            assert str(caught.value.__cause__) == (
                f"{tmp_path / '.lock'}: others held the lock for 0.05 s"
            )
            assert trio.current_time() == pytest.approx(0.05 + 0.1 + 0.05)
            stats = bus.stats
            assert (stats.appends, stats.lock_attempts, stats.retries, stats.timeouts) == (
                0,
                2,
                1,
                2,
            )
            assert (await bus.append(draft())).seq == 1

    run_virtual(main)


def test_ag_55_a_later_writer_has_all_its_attempts(tmp_path: Path) -> None:
    """It fails later than earlier writers, also when it takes over from one that left."""
    ended: dict[str, float] = {}

    async def main() -> None:
        async def one(name: str, limit: float = 1e9) -> None:
            with trio.move_on_after(limit):
                with pytest.raises(BusLockedError):
                    await bus.append(draft(name))
            ended[name] = trio.current_time()

        settings = attrs.evolve(LOCKED, append_attempts=2)
        async with opened(tmp_path, settings, rng=lambda: 1.0) as bus:
            with FileLock(tmp_path / ".lock"):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(one, "leaves", 0.01)
                    await trio.testing.wait_all_tasks_blocked()
                    nursery.start_soon(one, "stays")
                    await trio.sleep(0.02)
                    nursery.start_soon(one, "late")

    run_virtual(main)
    assert ended == {
        "leaves": pytest.approx(0.01),
        "stays": pytest.approx(0.01 + 0.05 + 0.1 + 0.05),
        "late": pytest.approx(0.01 + 0.05 + 0.1 + 0.05 + 0.05),
    }


def test_ag_56_uncontended_appends_do_not_wait(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as bus:
            for _ in range(5):
                await bus.append(draft())
            stats = bus.stats
            assert (stats.appends, stats.retries, stats.timeouts) == (5, 0, 0)
            assert (stats.batches, stats.largest_batch, stats.lock_attempts) == (5, 1, 5)
            assert stats.bytes == files(tmp_path)[0].stat().st_size
            assert stats.lock_wait_s == 0

    run_virtual(main)


def test_writers_that_share_counters_are_counted_together(tmp_path: Path) -> None:
    async def main() -> BusStats:
        stats = BusStats()
        for name, count in (("one", 3), ("other", 2)):
            async with (
                open_bus(tmp_path / name, rng=lambda: 0.5, stats=stats) as bus,
                trio.open_nursery() as nursery,
            ):
                for _ in range(count):
                    nursery.start_soon(bus.append, draft())
        return stats

    stats = run_virtual(main)
    assert (stats.appends, stats.batches, stats.largest_batch) == (5, 2, 3)


def test_ag_62_a_bus_is_a_folder_of_regular_files(tmp_path: Path) -> None:
    """A link is not followed, and opening a pipe never waits for its other end."""
    real, link, plain = tmp_path / "real", tmp_path / "link", tmp_path / "plain"
    real.mkdir()
    link.symlink_to(real)
    plain.write_text("")
    for path, what in ((link, "a symbolic link"), (plain, "not a folder")):
        with pytest.raises(BusError) as caught:
            written(path, "hello")
        assert str(caught.value) == f"{path} is {what}; a message bus must be a folder"
        with pytest.raises(BusError, match="a message bus must be a folder"):
            read_bus(path)
    for name in ("bus-00000001.log", ".lock", ".claim"):
        for number, what in enumerate(("folder", "pipe", "plain", "nothing")):
            folder = tmp_path / f"{name}-{number}"
            folder.mkdir()
            if what == "folder":
                (folder / name).mkdir()
            elif what == "pipe":
                os.mkfifo(folder / name)
            else:
                (folder / name).symlink_to(tmp_path / what)
            with pytest.raises(BusError) as caught:
                written(folder, "hello")
            assert str(caught.value) == (
                f"{folder / name} is a link, a folder or a device; a message bus has regular files"
            )
            if name not in {".lock", ".claim"}:
                with pytest.raises(BusError, match="regular files"):
                    read_bus(folder)
    assert plain.read_text() == ""
    assert not (tmp_path / "nothing").exists()


def test_ag_66_a_writer_cancelled_while_it_waits_for_the_lock_writes_nothing(
    tmp_path: Path,
) -> None:
    """The cancelled writer is the writing caller or a waiting one.

    The messages of the others are written once.
    """

    async def main() -> None:
        async def one(name: str, limit: float) -> None:
            with trio.move_on_after(limit):
                await bus.append(draft(name))

        async with opened(tmp_path) as bus:
            lock = FileLock(tmp_path / ".lock")
            lock.acquire()
            async with trio.open_nursery() as nursery:
                for name, limit in (("first", 1), ("second", 2), ("third", 9), ("fourth", 1)):
                    nursery.start_soon(one, name, limit)
                await trio.sleep(0.5)
                nursery.start_soon(one, "fifth", 9)
                await trio.sleep(3)
                lock.release()
            assert len(bus._queue) == 0
            assert not bus._queue.is_led

    run_virtual(main)
    assert bodies([*read_bus(tmp_path).messages]) == ["third", "fifth"]


def test_ag_66_a_writer_cancelled_during_the_write_writes_once(tmp_path: Path) -> None:
    """The cancellation comes in the step in which the write ends, or while a thread syncs it to disk."""
    numbers: list[int] = []

    async def main() -> None:
        async def one(scope: trio.CancelScope) -> None:
            with scope:
                numbers.append((await bus.append(draft(type="FACT"))).seq)

        async with opened(tmp_path, BusSettings()) as bus:
            for _ in range(4):
                scopes = [trio.CancelScope() for _ in range(3)]
                async with trio.open_nursery() as nursery:
                    for scope in scopes:
                        nursery.start_soon(one, scope)
                    await until_written(bus)
                    for scope in scopes:
                        scope.cancel("enough")

    in_trio(main)
    assert [one.seq for one in read_bus(tmp_path).messages] == list(range(1, 13))
    assert sorted(numbers) == list(range(1, 13))


def test_a_cancelled_scope_appends_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as bus:
            with trio.CancelScope() as scope:
                scope.cancel("before")
                await bus.append(draft())
            assert scope.cancelled_caught
            with trio.testing.assert_checkpoints():
                await bus.append(draft("after"))

    run_virtual(main)
    assert bodies([*read_bus(tmp_path).messages]) == ["after"]


FULL = """
import random, resource, sys
from pathlib import Path
import trio
from trioeval.agent.bus.bus import Bus, open_bus
from trioeval.agent.bus.messages import MessageDraft
from trioeval.errors import BusError

async def main():
    async def one(name):
        try:
            message = await bus.append(MessageDraft(type=sys.argv[2], project_id="p", body=name * 300))
        except BusError as error:
            print("failed", name, error)
        else:
            print("written", name, message.seq)
    async with open_bus(Path(sys.argv[1]), rng=random.random) as bus:
        await one("a")
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1200, hard))
        async with trio.open_nursery() as nursery:
            for name in "bcd":
                nursery.start_soon(one, name)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        await one("e")

trio.run(main)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["INFO", "FACT"])
def test_a_message_truncated_by_a_full_disk_does_not_exist(tmp_path: Path, kind: str) -> None:
    """A message is reported as written exactly if it is; the next one follows the last complete one."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path), kind],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    kept = [line.split()[1] for line in lines if line.startswith("written")]
    failed = [line for line in lines if line.startswith("failed")]
    assert len(kept) == 3
    assert len(failed) == 2
    reason = os.strerror(errno.EFBIG)
    assert all(line.endswith(f": the message bus cannot be written: {reason}") for line in failed)
    reading = read_bus(tmp_path)
    assert [body[0] for body in bodies([*reading.messages])] == kept
    assert [one.seq for one in reading.messages] == [1, 2, 3]
    assert reading.corrupt == []


def test_a_folder_error_is_raised_at_once_and_may_be_temporary(tmp_path: Path) -> None:
    folder = tmp_path / "bus"

    async def main() -> None:
        async with opened(folder) as bus:
            await bus.append(draft("a"))
            folder.rename(tmp_path / "away")
            with pytest.raises(BusError) as caught:
                await bus.append(draft("b"))
            assert str(caught.value) == (
                f"{folder}: the message bus cannot be written: {os.strerror(errno.ENOENT)}"
            )
            assert isinstance(caught.value.__cause__, FileNotFoundError)
            assert bus.stats.retries == 0
            (tmp_path / "away").rename(folder)
            await bus.append(draft("c"))

    run_virtual(main)
    assert bodies([*read_bus(folder).messages]) == ["a", "c"]


def test_a_replaced_bus_is_written_at_its_new_place(tmp_path: Path) -> None:
    """A lock on a deleted file blocks no writer, and deleted files are not read."""
    folder = tmp_path / "bus"

    async def main() -> None:
        async with opened(folder) as bus:
            await bus.append(draft("a"))
            for path in folder.iterdir():
                path.unlink()
            assert (await bus.append(draft("b"))).seq == 1

    run_virtual(main)
    assert bodies([*read_bus(folder).messages]) == ["b"]


def test_a_message_that_is_too_large_is_rejected_before_it_waits(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as bus:
            with pytest.raises(BusError, match="too large for a message bus"):
                await bus.append(draft("x" * LARGEST))
            assert (await bus.append(draft("x" * 2**20))).seq == 1

    in_trio(main)
    assert len(read_bus(tmp_path).messages[0].draft.body) == 2**20


def test_a_closed_bus_rejects_messages_and_leaves_no_file_open(tmp_path: Path) -> None:
    async def main() -> None:
        before = open_files()
        async with trio.open_nursery() as nursery:
            async with opened(tmp_path) as bus:
                await bus.append(draft("a"))
                lock = FileLock(tmp_path / ".lock")
                lock.acquire()
                failed: list[BusError] = []

                async def late() -> None:
                    with pytest.raises(BusError) as caught:
                        await bus.append(draft("b"))
                    failed.append(caught.value)

                nursery.start_soon(late)
                nursery.start_soon(late)
                await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(BusError) as caught:
                await bus.append(draft("c"))
            assert "the message bus is closed" in str(caught.value)
        assert [str(error) for error in failed] == [str(caught.value)] * 2
        lock.release()
        assert open_files() == before

    run_virtual(main)
    assert bodies([*read_bus(tmp_path).messages]) == ["a"]


def test_an_exception_of_the_block_is_raised_unchanged(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as bus:
            await bus.append(draft())
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run_virtual(main)
    with pytest.raises(UsageError):
        MessageDraft(type="INFO", project_id="")


def test_a_relative_folder_is_resolved_when_the_bus_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def main() -> None:
        async with open_bus(Path("some/bus"), QUICK, rng=lambda: 0.5) as bus:
            assert bus.path == tmp_path / "some" / "bus"
            await bus.append(draft())

    run_virtual(main)
    assert len(read_bus(Path("some/bus")).messages) == 1


@pytest.mark.parametrize(
    ("fsync", "kind", "is_slow"),
    [
        (None, "INFO", False),
        (None, "FACT", True),
        ("never", "FACT", False),
        ("batch", "INFO", True),
        ("always", "INFO", True),
    ],
)
def test_a_synced_write_runs_in_a_thread(
    tmp_path: Path, fsync: str | None, kind: str, *, is_slow: bool
) -> None:
    """The event loop continues while a disk is slow."""

    async def main() -> None:
        async with opened(tmp_path, BusSettings(fsync=fsync)) as bus:  # type: ignore[arg-type]
            taken = 0

            async def watch() -> None:
                nonlocal taken
                while bus.stats.appends < 2:
                    taken += any(entry.is_taken for entry in bus._queue.entries())
                    await trio.lowlevel.checkpoint()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(watch)
                nursery.start_soon(bus.append, draft(type=kind))
                nursery.start_soon(bus.append, draft("second", kind))
            assert bool(taken) == is_slow

    in_trio(main)
    assert [one.seq for one in read_bus(tmp_path).messages] == [1, 2]

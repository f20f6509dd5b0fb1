"""The effects of disks, foreign writers and large messages on a bus, its writers and its readers."""

import errno
import os
import threading
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing
from bus_files import QUICK, bodies, draft, files, in_trio, opened, written
from filelock import FileLock

from trioeval.agent.bus.lock import PATIENCE, LockFile
from trioeval.agent.bus.messages import Message, message_id, payload_head, payload_of
from trioeval.agent.bus.reading import (
    BusFollower,
    CorruptRange,
    WriteSignal,
    follow_bus,
    last_messages,
    read_bus,
    read_parts,
)
from trioeval.agent.bus.segments import LAST_SEQ, MAGIC, frame, next_record, record_at
from trioeval.agent.bus.settings import BusSettings
from trioeval.agent.bus.tail import BusTail
from trioeval.errors import BusError, CursorExpiredError
from trioeval.testing import run_virtual


def record(seq: int, body: str = "forged") -> bytes:
    """Write like another program that knows the format."""
    head = payload_head(seq, message_id(seq, 1), "2026-01-01T00:00:00.000000Z")
    return frame(seq, head + payload_of(draft(body)))


def add(folder: Path, data: bytes) -> tuple[int, int]:
    """Append bytes to a bus without its lock, and return their position."""
    with files(folder)[-1].open("ab") as file:
        return file.tell(), file.tell() + file.write(data)


def test_a_follower_sees_a_message_with_the_size_and_time_of_a_torn_end(tmp_path: Path) -> None:
    """The torn end of a dead writer is cut off, and replaced by as many bytes."""
    written(tmp_path, "a")
    file = files(tmp_path)[0]
    add(tmp_path, file.read_bytes()[:-1])
    stat = file.stat()
    seen: list[str] = []

    async def main() -> None:
        async def follow() -> None:
            messages = follow_bus(tmp_path)
            while True:
                seen.append((await anext(messages)).draft.body)

        async with trio.open_nursery() as nursery, opened(tmp_path) as bus:
            nursery.start_soon(follow)
            await trio.testing.wait_all_tasks_blocked()
            await bus.append(draft(""))
            os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
            assert file.stat().st_size == stat.st_size
            await trio.sleep(1)
            nursery.cancel_scope.cancel("seen")

    run_virtual(main)
    assert seen == ["a", ""]


def test_a_follower_continues_in_a_file_that_became_shorter(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as bus:
            messages = bus.follow()
            await bus.append(draft("a"))
            size = files(tmp_path)[0].stat().st_size
            await bus.append(draft("b"))
            assert [(await anext(messages)).draft.body for _ in range(2)] == ["a", "b"]
            os.truncate(files(tmp_path)[0], size)
            with trio.move_on_after(1):
                await anext(messages)
            assert (await bus.append(draft("c" * 100))).seq == 3
            with trio.fail_after(1):
                assert (await anext(messages)).seq == 3

    run_virtual(main)
    assert read_bus(tmp_path).corrupt == []


def test_a_record_that_may_not_be_on_disk_stays_and_its_number_is_not_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other processes may have read it; the caller of `append` gets an error."""

    def fails(_file: int) -> None:
        raise OSError(errno.EIO, "no luck")

    async def main() -> None:
        async with opened(tmp_path, BusSettings()) as bus:
            await bus.append(draft("a"))
            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", fails)
                with pytest.raises(BusError, match="may not be on the disk: no luck"):
                    await bus.append(draft("b", "FACT"))
            assert (await bus.append(draft("c"))).seq == 3

    in_trio(main)
    assert bodies([*read_bus(tmp_path).messages]) == ["a", "b", "c"]


def test_no_error_writes_a_message_twice(tmp_path: Path) -> None:
    """For any failure, callers of written messages succeed, others fail, and the next message is written."""
    numbers = iter([0.5, 0.5, None])

    def rng() -> float:
        number = next(numbers, 0.5)
        if number is None:
            raise MemoryError("once")
        return number

    messages: list[str] = []
    failed: list[str] = []

    async def main() -> None:
        async def one(body: str) -> None:
            try:
                await bus.append(draft(body))
            except BusError as error:
                failed.append(str(error))
            else:
                messages.append(body)

        async with opened(tmp_path, BusSettings(fsync="always"), rng=rng) as bus:
            async with trio.open_nursery() as nursery:
                for body in "abcd":
                    nursery.start_soon(one, body)
            await one("e")

    in_trio(main)
    assert len(messages) == 3
    assert failed == [f"{tmp_path}: the message bus cannot be written: MemoryError('once')"] * 2
    assert bodies([*read_bus(tmp_path).messages]) == messages


def test_a_follower_of_large_messages_stores_few_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trioeval.agent.bus.reading.AT_ONCE_BYTES", 500)
    written(tmp_path, *(letter * 300 for letter in "abcdefg"))

    async def main() -> None:
        following = BusFollower(tmp_path, None, WriteSignal())
        found = []
        for _ in range(7):
            found.append((await anext(following)).draft.body[0])
            assert len(following._ready) <= 1
        assert found == [*"abcdefg"]

    run_virtual(main)


def test_the_rest_of_a_large_older_file_is_read_in_a_thread(tmp_path: Path) -> None:
    async def main() -> None:
        following = BusFollower(tmp_path, None, WriteSignal())
        async with opened(tmp_path, attrs.evolve(QUICK, rotate_bytes=50_000)) as bus:
            await bus.append(draft("a"))
            await anext(following)
            await bus.append(draft("b" * 100_000))
            await bus.append(draft("c"))
        assert len(files(tmp_path)) == 2
        assert not following._is_quick(following._state())
        assert [(await anext(following)).draft.body[0] for _ in range(2)] == ["b", "c"]

    in_trio(main)


def test_a_body_full_of_header_starts_is_scanned_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[int] = []

    def spied(data: bytes, start: int) -> object:
        looked.append(start)
        return record_at(data, start)

    data = MAGIC * 1000 + frame(7, b"{}")
    monkeypatch.setattr("trioeval.agent.bus.segments.record_at", spied)
    found = next_record(data, 0)
    assert found is not None
    assert looked == [found.start] == [len(MAGIC) * 1000]


def test_many_foreign_messages_are_read_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trioeval.agent.bus.bus._NEAR", 1000)
    catch_up, by = BusTail.catch_up, list[int]()

    def spied(tail: BusTail, at_most: float = float("inf")) -> bool:
        is_done = catch_up(tail, at_most)
        by.extend([threading.get_ident()] * is_done)
        return is_done

    async def main() -> None:
        async with opened(tmp_path) as bus, opened(tmp_path) as other:
            await bus.append(draft("a"))
            monkeypatch.setattr(BusTail, "catch_up", spied)
            for body, is_here in (("b", True), ("c" * 2000, False)):
                await other.append(draft(body))
                by.clear()
                await bus.append(draft("d"))
                assert [one == threading.get_ident() for one in by] == [is_here]

    in_trio(main)
    assert [one.seq for one in read_bus(tmp_path).messages] == [1, 2, 3, 4, 5]


def test_a_batch_is_bounded_and_has_at_least_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trioeval.agent.bus.bus._TOGETHER", 1000)

    async def main() -> None:
        async with opened(tmp_path) as bus:
            async with trio.open_nursery() as nursery:
                for body in ("a" * 2000, "b" * 2000, *"cdefghijkl"):
                    nursery.start_soon(bus.append, draft(body))
            assert bus.stats.appends == 12
            assert bus.stats.batches >= 3
            assert 1 < bus.stats.largest_batch < 12

    run_virtual(main)


def test_a_record_with_a_reused_number_is_corrupt(tmp_path: Path) -> None:
    """Writers that are open and later ones assign ascending numbers."""

    async def main() -> None:
        async with opened(tmp_path) as bus:
            for body in "abc":
                await bus.append(draft(body))
            place = add(tmp_path, record(1))
            async with opened(tmp_path) as other:
                assert (await other.append(draft("d"))).seq == 4
            add(tmp_path, record(2))
            assert (await bus.append(draft("e"))).seq == 5
            found = read_bus(tmp_path)
            assert bodies([*found.messages]) == [*"abcde"]
            assert found.corrupt[0] == CorruptRange(files(tmp_path)[0], *place)
            assert len(found.corrupt) == 2
            assert bodies([*last_messages(tmp_path, 4).messages]) == [*"bcde"]

    run_virtual(main)


def test_nothing_is_written_after_the_largest_number(tmp_path: Path) -> None:
    written(tmp_path, "a")
    add(tmp_path, record(LAST_SEQ - 1))
    assert written(tmp_path, "b")[0].seq == LAST_SEQ
    size = files(tmp_path)[0].stat().st_size
    with pytest.raises(BusError, match=f"the largest one is {LAST_SEQ}"):
        written(tmp_path, "c")
    assert files(tmp_path)[0].stat().st_size == size
    assert read_bus(tmp_path).corrupt == []


def test_a_payload_that_is_nested_too_deeply_is_a_corrupt_range(tmp_path: Path) -> None:
    written(tmp_path, "a")
    payload = payload_head(2, message_id(2, 1), "") + b'"x":' + b"[" * 99_999 + b"]" * 99_999 + b"}"
    place = add(tmp_path, frame(2, payload))
    written(tmp_path, "b")
    found = read_bus(tmp_path)
    assert bodies([*found.messages]) == ["a", "b"]
    assert found.corrupt == [CorruptRange(files(tmp_path)[0], *place)]


def test_a_stopped_waiter_is_yielded_to_only_once_a_second(tmp_path: Path) -> None:
    """The waiter is a writer that was stopped while it waited."""

    async def main() -> None:
        async with opened(tmp_path) as bus:
            with FileLock(tmp_path / ".claim"):
                for _ in range(50):
                    await bus.append(draft())
                assert PATIENCE < trio.current_time() < 2 * PATIENCE
                await trio.sleep(2)
                started_at = trio.current_time()
                await bus.append(draft())
                assert trio.current_time() > started_at + PATIENCE

    run_virtual(main)


def test_a_lock_is_released_although_a_child_process_has_its_file_open(tmp_path: Path) -> None:
    first, second = LockFile(tmp_path / ".lock"), LockFile(tmp_path / ".lock")
    assert first.take_nowait()
    inherited = os.dup(first._file or 0)
    first.close()
    assert second.take_nowait()
    second.close()
    os.close(inherited)


def test_pauses_are_randomised(tmp_path: Path) -> None:
    """A pause lasts between half of the configured time and all of it."""
    settings = attrs.evolve(QUICK, lock_timeout=0.05, append_attempts=2)

    async def main(chance: float) -> float:
        async with opened(tmp_path, settings, rng=lambda: chance) as bus:
            with FileLock(tmp_path / ".lock"), pytest.raises(BusError):
                await bus.append(draft())
        return trio.current_time()

    for chance, pause in ((0.0, 0.05), (1.0, 0.1)):
        assert run_virtual(main, chance) == pytest.approx(0.1 + pause)


def test_the_cursor_of_the_last_messages_is_after_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that arrives while they are read is included."""
    written(tmp_path, *"ab")
    real = read_bus.__globals__["last_seq"]

    def late(folder: Path, numbers: list[int]) -> int:
        found: int = real(folder, numbers)
        add(tmp_path, record(3, "c"))
        return found

    with monkeypatch.context() as patch:
        patch.setattr("trioeval.agent.bus.reading.last_seq", late)
        found = last_messages(tmp_path, 2)
    assert bodies([*found.messages]) == ["b", "c"]
    assert read_bus(tmp_path, since=found.cursor).messages == []


def test_a_bus_is_read_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All contents are read, of any length, and files that are removed meanwhile are reported."""
    monkeypatch.setattr("trioeval.agent.bus.reading.AT_ONCE", 3)
    small = attrs.evolve(QUICK, rotate_bytes=400)
    messages = written(tmp_path, *"abcdefghijkl", settings=small)
    for since in (None, 1, 3, 12, messages[4].msg_id):
        parts = [*read_parts(tmp_path, since=since)]
        assert [one for part in parts for one in part.messages] == (
            [*read_bus(tmp_path, since=since).messages]
        )
        assert max(len(part.messages) for part in parts) <= 3
    found: list[Message] = []
    for part in read_parts(tmp_path):
        found += part.messages
        written(tmp_path, *"xyz", settings=small)
    assert found[:12] == messages
    assert len(found) < 16
    rest = read_parts(tmp_path)
    next(rest)
    written(tmp_path, "z", settings=attrs.evolve(QUICK, rotate_bytes=1, keep_segments=1))
    written(tmp_path, "z", settings=attrs.evolve(QUICK, rotate_bytes=1, keep_segments=1))
    with pytest.raises(CursorExpiredError):
        next(rest)


def test_a_bus_that_is_not_a_folder_is_reported_once(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    with pytest.raises(BusError) as caught:
        read_bus(plain)
    assert str(caught.value) == f"{plain} is not a folder; a message bus must be a folder"

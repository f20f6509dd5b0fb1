"""A follower of a bus gets each message once and soon, until it stops."""

import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing
from bus_files import QUICK, bodies, draft, files, in_trio, opened, written

from trioeval.agent.bus.messages import Message
from trioeval.agent.bus.reading import POLL, follow_bus
from trioeval.errors import BusError, CursorExpiredError, CursorNotFoundError
from trioeval.testing import run_virtual


async def take(messages: AsyncIterator[Message], count: int) -> list[str]:
    return [(await anext(messages)).draft.body for _ in range(count)]


def test_ag_65_an_append_wakes_a_follower_without_polling(tmp_path: Path) -> None:
    """In virtual time a poll would be visible: the clock does not advance."""

    async def main() -> None:
        async with opened(tmp_path) as bus:
            messages = bus.follow()
            await bus.append(draft("a"))
            assert await take(messages, 1) == ["a"]
            started_at = trio.current_time()
            for number in range(20):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(take, messages, 1)
                    for _ in range(number):
                        await trio.lowlevel.checkpoint()
                    await bus.append(draft(str(number)))
            assert trio.current_time() == started_at

    run_virtual(main)


def test_ag_65_a_follower_ends_with_its_scope_and_can_be_restarted(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path) as bus:
            messages = bus.follow()
            await bus.append(draft("a"))
            assert await take(messages, 1) == ["a"]
            with trio.move_on_after(3) as scope:
                await anext(messages)
            assert scope.cancelled_caught
            await bus.append(draft("b"))
            await bus.append(draft("c"))
            assert await take(messages, 2) == ["b", "c"]
            with trio.testing.assert_checkpoints():
                await bus.append(draft("d"))
                await anext(messages)

    run_virtual(main)


def test_ag_65_messages_of_other_processes_are_found_by_polling(tmp_path: Path) -> None:
    """A bus that is created later and a rotation in between are found too."""
    small = attrs.evolve(QUICK, rotate_bytes=300)

    async def main() -> None:
        messages = aiter(follow_bus(tmp_path / "bus"))
        async with trio.open_nursery() as nursery:
            seen: list[str] = []

            async def follow() -> None:
                async for message in messages:
                    seen.append(message.draft.body)
                    reported.release()

            async def until(count: int) -> None:
                with trio.fail_after(POLL * 5):
                    for _ in range(count):
                        await reported.acquire()

            reported = trio.Semaphore(0)
            nursery.start_soon(follow)
            await trio.sleep(POLL / 10)
            async with opened(tmp_path / "bus", small) as bus:
                for number in range(5):
                    await bus.append(draft(str(number)))
                await until(5)
                await bus.append(draft("last"))
                await until(1)
            nursery.cancel_scope.cancel("seen")
        assert seen == ["0", "1", "2", "3", "4", "last"]

    in_trio(main)


@pytest.mark.parametrize("since", [lambda one: one.seq, lambda one: one.msg_id])
def test_a_follower_starts_after_its_cursor(
    tmp_path: Path, since: Callable[[Message], int | str]
) -> None:
    messages = written(tmp_path, *"abcd")

    async def main() -> None:
        assert await take(follow_bus(tmp_path, since=since(messages[1])), 2) == ["c", "d"]

    in_trio(main)


def test_an_unknown_cursor_raises_in_the_follower(tmp_path: Path) -> None:
    written(tmp_path, *"abcd", settings=attrs.evolve(QUICK, rotate_bytes=1, keep_segments=1))

    async def main() -> None:
        with pytest.raises(CursorExpiredError):
            await anext(follow_bus(tmp_path, since=1))
        with pytest.raises(CursorNotFoundError):
            await anext(follow_bus(tmp_path, since="nothing"))
        assert await take(follow_bus(tmp_path), 1) == ["d"]
        files(tmp_path)[0].rename(tmp_path / "away")
        files(tmp_path)
        (tmp_path / "bus-00000009.log").mkdir()
        with pytest.raises(BusError, match="regular files"):
            await anext(follow_bus(tmp_path))

    in_trio(main)


def test_a_follower_overtaken_by_removals_gets_an_error(tmp_path: Path) -> None:
    """A follower that is not overtaken continues although its last file was removed."""
    one = attrs.evolve(QUICK, rotate_bytes=1, keep_segments=1)
    written(tmp_path, "a", settings=one)

    async def main() -> None:
        slow, quick = follow_bus(tmp_path), follow_bus(tmp_path)
        assert await take(slow, 1) == await take(quick, 1) == ["a"]
        async with opened(tmp_path, one) as bus:
            await bus.append(draft("b"))
            assert await take(quick, 1) == ["b"]
            await bus.append(draft("c"))
            assert await take(quick, 1) == ["c"]
            with pytest.raises(CursorExpiredError) as caught:
                await anext(slow)
            assert caught.value.oldest == 2

    in_trio(main)


def test_a_corrupt_range_is_logged_once_and_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A range at the end is reported only when something follows.

    Until then a writer may be in the middle of it.
    """
    written(tmp_path, *"ab")
    file = files(tmp_path)[0]
    whole = file.read_bytes()
    start = whole.index(b"\n@") + 1
    file.write_bytes(whole[:-3] + b"?" + whole[-2:])

    async def main() -> None:
        async with opened(tmp_path) as bus:
            messages = bus.follow()
            assert await take(messages, 1) == ["a"]
            with trio.move_on_after(POLL / 10):
                await anext(messages)
            assert caplog.messages == []
            for body in "cd":
                await bus.append(draft(body))
                assert await take(messages, 1) == [body]

    with caplog.at_level(logging.WARNING, "trioeval.agent.bus"):
        in_trio(main)
    assert caplog.messages == [f"{file}: bytes {start} to {len(whole)} are not a message"]


def test_a_large_bus_is_followed_in_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trioeval.agent.bus.reading.AT_ONCE", 3)
    messages = written(tmp_path, *"abcdefgh")

    async def main() -> None:
        async with opened(tmp_path) as bus:
            following = bus.follow()
            assert await take(following, 8) == bodies(messages)
            await bus.append(draft("i"))
            assert await take(following, 1) == ["i"]

    in_trio(main)

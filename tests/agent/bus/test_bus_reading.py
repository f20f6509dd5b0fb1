"""A bus is read completely, from a cursor, from its end, and while it is written."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest
from bus_files import QUICK, bodies, draft, files, in_trio, opened, written

from trioeval.agent.bus.reading import CorruptRange, last_messages, read_bus
from trioeval.agent.bus.segments import WINDOW, frame
from trioeval.errors import BusError, CursorExpiredError, CursorNotFoundError

SMALL = attrs.evolve(QUICK, rotate_bytes=400)


def test_a_missing_bus_is_empty(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nothing"):
        for reading in (read_bus(folder), read_bus(folder, since=0), last_messages(folder, 3)):
            assert (reading.messages, reading.corrupt, reading.cursor) == ([], [], 0)


def test_ag_59_a_cursor_from_before_a_rotation_returns_exactly_the_later_messages(
    tmp_path: Path,
) -> None:
    messages = written(tmp_path, *"abcdefghijkl", settings=SMALL)
    assert len(files(tmp_path)) > 3
    for message in messages:
        for since in (message.seq, message.msg_id):
            reading = read_bus(tmp_path, since=since)
            assert reading.messages == messages[message.seq :]
            assert reading.cursor == 12
        some = read_bus(tmp_path, since=message.seq, limit=2)
        assert some.messages == messages[message.seq : message.seq + 2]
        assert some.cursor == min(12, message.seq + 2)
    assert read_bus(tmp_path, since=0).messages == messages


def test_an_unknown_cursor_is_reported(tmp_path: Path) -> None:
    messages = written(tmp_path, *"abc")
    other = f"{messages[1].msg_id[:-12]}{0:012x}"
    for since in (4, -1, "nothing", other, "0000000004-000000000000"):
        with pytest.raises(CursorNotFoundError) as caught:
            read_bus(tmp_path, since=since)
        assert str(caught.value) == f"{tmp_path}: the message bus has no message {since}"
    with pytest.raises(CursorNotFoundError):
        read_bus(tmp_path / "nothing", since=1)


def test_a_cursor_older_than_the_oldest_message_is_reported_with_the_oldest_valid_one(
    tmp_path: Path,
) -> None:
    """Reading from that one works, and so does reading from the beginning of what is left."""
    messages = written(tmp_path, *"abcdefghijkl", settings=attrs.evolve(SMALL, keep_segments=2))
    assert len(files(tmp_path)) == 2
    left = read_bus(tmp_path).messages
    oldest = left[0].seq - 1
    assert [*left] == messages[oldest:]
    for since in (0, oldest - 1, messages[0].msg_id):
        with pytest.raises(CursorExpiredError) as caught:
            read_bus(tmp_path, since=since)
        assert caught.value.oldest == oldest
        assert str(caught.value) == (
            f"{tmp_path}: messages after {since} were removed; the remaining ones start after {oldest}"
        )
    assert read_bus(tmp_path, since=oldest).messages == left


def test_numbers_continue_after_all_older_files_were_removed(tmp_path: Path) -> None:
    one = attrs.evolve(QUICK, rotate_bytes=1, keep_segments=1)
    for body in "abc":
        written(tmp_path, body, settings=one)
        assert len(files(tmp_path)) == 1
    assert [(m.seq, m.draft.body) for m in read_bus(tmp_path).messages] == [(3, "c")]
    # A writer that was killed between two files left an empty one.
    (tmp_path / "bus-00000004.log").touch()
    assert written(tmp_path, "d")[0].seq == 4
    assert bodies([*read_bus(tmp_path, since=2).messages]) == ["c", "d"]


def test_ag_60_a_file_truncated_anywhere_keeps_the_messages_before(tmp_path: Path) -> None:
    """Readers ignore the incomplete record at the end, and the next append removes it."""
    written(tmp_path, "a", "b")
    file = files(tmp_path)[0]
    start = file.stat().st_size
    written(tmp_path, "c")
    whole = file.read_bytes()

    async def append() -> int:
        async with opened(tmp_path) as bus:
            await bus.append(draft("d"))
            return bus.stats.repaired

    for cut in range(start, len(whole)):
        file.write_bytes(whole[:cut])
        reading = read_bus(tmp_path)
        assert (bodies([*reading.messages]), reading.corrupt) == (["a", "b"], [])
        assert bodies([*last_messages(tmp_path, 9).messages]) == ["a", "b"]
        assert in_trio(append) == (cut > start)
        reading = read_bus(tmp_path)
        assert (bodies([*reading.messages]), reading.corrupt) == (["a", "b", "d"], [])


def test_ag_61_a_flipped_byte_is_one_corrupt_range_and_the_rest_is_readable(
    tmp_path: Path,
) -> None:
    messages = written(tmp_path, *"abc")
    file = files(tmp_path)[0]
    whole = file.read_bytes()
    start, end = whole.index(b"\n@") + 1, whole.rindex(b"\n@") + 1
    for place in range(start, end):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        for reading in (read_bus(tmp_path), last_messages(tmp_path, 3)):
            assert reading.messages == [messages[0], messages[2]]
            assert reading.corrupt == [CorruptRange(file, start, end)]
        assert read_bus(tmp_path, since=1).corrupt == [CorruptRange(file, start, end)]
        assert read_bus(tmp_path, since=2).messages == messages[2:]
        assert read_bus(tmp_path, since=messages[2].msg_id).messages == []
    assert written(tmp_path, "d")[0].seq == 4


def test_a_corrupt_end_stays_and_its_number_is_not_reused(tmp_path: Path) -> None:
    """Only an incomplete record is removed: a complete one may still be useful."""
    written(tmp_path, *"ab")
    file = files(tmp_path)[0]
    whole = file.read_bytes()
    start = whole.index(b"\n@") + 1
    file.write_bytes(whole[:-3] + b"?" + whole[-2:])
    broken = [CorruptRange(file, start, len(whole))]
    assert read_bus(tmp_path).corrupt == last_messages(tmp_path, 2).corrupt == broken
    assert written(tmp_path, "c")[0].seq == 3
    reading = read_bus(tmp_path)
    assert (bodies([*reading.messages]), reading.corrupt) == (["a", "c"], broken)


def test_a_foreign_record_with_an_invalid_payload_is_a_corrupt_range(tmp_path: Path) -> None:
    """Its frame is valid and its payload is not, or has another number."""
    (message,) = written(tmp_path, "a")
    file = files(tmp_path)[0]
    start = file.stat().st_size
    second = frame(2, b'{"body":"nobody"}')
    third = frame(3, b'{"seq":1,' + file.read_bytes().split(b'"seq":1,')[1].rstrip())
    with file.open("ab") as end:
        end.write(second + third)
    reading = read_bus(tmp_path)
    assert reading.messages == [message]
    middle = start + len(second)
    assert reading.corrupt == [
        CorruptRange(file, start, middle),
        CorruptRange(file, middle, middle + len(third)),
    ]
    assert written(tmp_path, "d")[0].seq == 4


def test_a_truncated_record_in_an_older_file_is_a_corrupt_range(tmp_path: Path) -> None:
    written(tmp_path, *"abcd", settings=SMALL)
    first = files(tmp_path)[0]
    size = first.stat().st_size
    with first.open("ab") as end:
        end.write(b"@trioeval-bus/1 2")
    reading = read_bus(tmp_path)
    assert len(reading.messages) == 4
    assert reading.corrupt == [CorruptRange(first, size, size + 17)]


def test_ag_63_the_last_messages_are_read_from_the_end(tmp_path: Path) -> None:
    """The count is zero, smaller than, equal to or larger than the number of messages."""
    assert last_messages(tmp_path, 5).messages == []
    messages = written(tmp_path, *"abcdefghijkl", settings=SMALL)
    for count in (-1, 0, 1, 2, 3, 5, 11, 12, 13, 1000):
        reading = last_messages(tmp_path, count)
        assert reading.messages == messages[max(0, 12 - max(0, count)) :]
        assert (reading.cursor, reading.corrupt) == (12, [])
    large = tmp_path / "large"
    messages = written(large, *(str(number) * 40 for number in range(3000)), "x" * 3 * WINDOW, "y")
    for count in (1, 2, 3, 700, 3001, 4000):
        assert last_messages(large, count).messages == messages[-count:]


def test_any_cursor_of_a_large_file_is_found(tmp_path: Path) -> None:
    """The file is not read completely, and messages may be larger than one read."""
    messages = written(
        tmp_path, *("x" * (3 * WINDOW if number % 97 == 5 else 300) for number in range(400))
    )
    for since in [0, 1, 4, 5, 6, 101, 102, 103, 199, 398, 399, 400]:
        assert read_bus(tmp_path, since=since).messages == messages[since:]
        assert read_bus(tmp_path, since=since, limit=1).messages == messages[since : since + 1]


def test_a_follower_started_at_the_end_of_a_large_file_reads_only_its_end(tmp_path: Path) -> None:
    """The beginning of the file may contain anything."""
    written(tmp_path, *("x" * 1000 for _ in range(200)))
    file = files(tmp_path)[0]
    with file.open("r+b") as start:
        start.write(b"\x00" * 100_000)
    assert written(tmp_path, "y")[0].seq == 201
    assert last_messages(tmp_path, 5).corrupt == []
    assert len(read_bus(tmp_path).corrupt) == 1


@pytest.mark.slow
def test_ag_64_a_reader_never_sees_a_partial_message(tmp_path: Path) -> None:
    """Messages are long, files are rotated, and the reader never pauses."""
    seen: list[int] = []
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            reading = read_bus(tmp_path)
            assert reading.corrupt == []
            assert [one.seq for one in reading.messages] == list(
                range(1, len(reading.messages) + 1)
            )
            assert {len(one.draft.body) for one in reading.messages} <= {30_000}
            seen.append(len(reading.messages))

    async def main() -> None:
        async with opened(tmp_path, attrs.evolve(QUICK, rotate_bytes=200_000)) as bus:
            for _ in range(50):
                await bus.append(draft("x" * 30_000))

    with ThreadPoolExecutor(1) as thread:
        reader = thread.submit(read)
        try:
            in_trio(main)
        finally:
            is_over.set()
        reader.result()
    assert seen == sorted(seen)
    assert len(read_bus(tmp_path).messages) == 50


def test_an_unreadable_bus_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 300)
    with pytest.raises(BusError, match="the message bus cannot be read: File name too long"):
        read_bus(folder)

"""A bus is a list of messages, in spite of concurrent writers, rotations, removals, crashes and bad disks.

A script is drawn and executed; after each step all ways to read are compared with a plain list.
"""

import tempfile
from pathlib import Path
from typing import TypeAlias

import attrs
import pytest
import trio
from bus_files import draft, files, in_trio, opened
from hypothesis import event, given, settings
from hypothesis import strategies as st

from trioeval.agent.bus.bus import Bus
from trioeval.agent.bus.messages import Message
from trioeval.agent.bus.reading import BusFollower, WriteSignal, last_messages, read_bus
from trioeval.agent.bus.segments import frame, scan
from trioeval.agent.bus.settings import BusSettings
from trioeval.errors import CursorExpiredError, CursorNotFoundError


@attrs.frozen
class Append:
    """Some messages at the same time, each by one of three writers."""

    bodies: tuple[tuple[int, str], ...]


@attrs.frozen
class Tear:
    """A writer was killed: the beginning of a record is left."""

    length: int


@attrs.frozen
class Flip:
    """A byte of some file is corrupt."""

    place: int
    bit: int


Step: TypeAlias = Append | Tear | Flip

some_bodies = st.sampled_from(
    ["", "short", "x" * 300, "y" * 2000, "\n---\n", frame(1, b"{}").decode()]
)
appends = st.builds(
    Append, st.lists(st.tuples(st.integers(0, 2), some_bodies), min_size=1, max_size=4).map(tuple)
)
steps = st.lists(
    appends
    | appends
    | st.builds(Tear, st.integers(1, 200))
    | st.builds(Flip, st.integers(0, 10**6), st.integers(0, 7)),
    max_size=8,
)
written_as = st.builds(
    BusSettings,
    rotate_bytes=st.sampled_from([None, 1, 600]),
    keep_segments=st.sampled_from([None, 1, 2]),
    fsync=st.just("never"),
)


@attrs.define
class Model:
    """The expected contents of the bus."""

    messages: list[Message] = attrs.field(factory=list)
    highest: int = 0
    """The numbers of all messages that were ever appended."""
    is_damaged: bool = False
    broken_lines: int = 0
    """Flipped line ends: messages lost at the end are counted by lines."""

    def left(self, folder: Path) -> list[Message]:
        """Return the messages that were not removed: all from some message on."""
        found = read_bus(folder).messages
        first = found[0].seq if found else self.highest + 1
        return [one for one in self.messages if one.seq >= first]


async def append(step: Append, buses: list[Bus], model: Model) -> None:
    results: list[Message] = []

    async def one(bus: Bus, body: str) -> None:
        message = await bus.append(draft(body))
        assert message.draft.body == body
        results.append(message)

    async with trio.open_nursery() as nursery:
        for writer, body in step.bodies:
            nursery.start_soon(one, buses[writer], body)
    results.sort(key=lambda message: message.seq)
    assert results[0].seq > model.highest or model.broken_lines > 1
    if not model.is_damaged:
        assert [one.seq for one in results] == [model.highest + 1 + n for n in range(len(results))]
    assert len({one.seq for one in results}) == len(results)
    model.highest = results[-1].seq
    model.messages += results


def tear(step: Tear, folder: Path, model: Model) -> None:
    found = files(folder)
    if found:
        data = found[-1].read_bytes()
        model.is_damaged |= scan(data).end < len(
            data
        )  # after another truncated record it is not a record
        record = frame(99, b'{"body":"' + b"z" * 200 + b'"}')
        with found[-1].open("ab") as end:
            end.write(record[: step.length])


def flip(step: Flip, folder: Path, model: Model) -> None:
    """Corrupt a byte of a whole record; a torn end is cut off and not counted."""
    found = files(folder)
    if not found:
        return
    path = found[step.place % len(found)]
    data = bytearray(path.read_bytes())
    records = scan(bytes(data)).records
    if not records:
        return
    place = step.place % records[-1].end
    hit = [one for one in records if one.start <= place < one.end]
    if not hit:  # it is corrupt already; flipping it again might repair it
        return
    model.broken_lines += data[place] == ord("\n")
    data[place] ^= 1 << step.bit
    path.write_bytes(data)
    model.is_damaged = True
    event("a byte was flipped")
    model.messages = [one for one in model.messages if one.seq not in {it.seq for it in hit}]


def expired(folder: Path, since: int) -> int | None:
    """Return the oldest cursor if this one is too old."""
    try:
        read_bus(folder, since=since)
    except CursorExpiredError as error:
        return error.oldest
    return None


def check(folder: Path, model: Model, keep: int | None) -> None:
    left = model.left(folder)
    reading = read_bus(folder)
    assert [*reading.messages] == left
    assert bool(reading.corrupt) <= model.is_damaged
    if keep is None and not model.is_damaged:
        assert left == model.messages
    for count in (0, 1, len(left) // 2, len(left) + 3):
        assert [*last_messages(folder, count).messages] == (left[-count:] if count else [])
    for since in {0, model.highest // 2, *(one.seq for one in left[-1:])}:
        expected = [one for one in left if one.seq > since]
        oldest = expired(folder, since)
        if oldest is None:
            assert [*read_bus(folder, since=since).messages] == expected
        else:
            assert keep is not None
            assert oldest > since
            assert [*read_bus(folder, since=oldest).messages] == left
            event("a cursor was too old")
    for message in left[:1]:
        after = [one for one in left if one.seq > message.seq]
        assert [*read_bus(folder, since=message.msg_id).messages] == after
    with pytest.raises(CursorNotFoundError):
        read_bus(folder, since=model.highest + 1000)


class Follower:
    """A follower of a bus that polls only on request."""

    def __init__(self, folder: Path) -> None:
        self._following = BusFollower(folder, None, WriteSignal())
        self.seen: list[int] = []
        self.is_overtaken = False
        """The number of messages that the follower lost by removals."""

    def look(self) -> None:
        following = self._following
        try:
            for _ in range(2):  # the first poll may only find its position again
                following._look(following._state())
        except CursorExpiredError:
            self.is_overtaken = True
        self.seen += [message.seq for message in following._ready]
        following._ready.clear()


async def perform(folder: Path, script: list[Step], written: BusSettings) -> None:
    model = Model()
    async with (
        opened(folder, written) as one,
        opened(folder, written) as two,
        opened(folder, written) as three,
    ):
        follower = Follower(folder)
        for step in script:
            match step:
                case Append():
                    await append(step, [one, two, three], model)
                case Tear():
                    tear(step, folder, model)
                case Flip():
                    follower.look()  # what it has seen cannot be corrupted any more
                    flip(step, folder, model)
            if written.keep_segments is not None and not read_bus(folder).messages:
                return  # no remaining record shows the numbers
            check(folder, model, written.keep_segments)
        follower.look()
        assert follower.seen == sorted(set(follower.seen))
        if written.keep_segments is None:
            assert not follower.is_overtaken
            assert {one.seq for one in model.messages} <= {*follower.seen}
        if written.keep_segments is not None and one.stats.rotations:
            assert len(files(folder)) <= written.keep_segments
            event("files were removed")


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 3)
@given(st.random_module(), steps, written_as)
def test_a_bus_is_a_list_of_messages(
    _random: object, script: list[Step], written: BusSettings
) -> None:
    """The laws AG-52, AG-58 to AG-61 and AG-63 hold in any order and all at once."""
    with tempfile.TemporaryDirectory() as root:
        in_trio(lambda: perform(Path(root, "bus"), script, written))

# Apart from `agent.bus.bus`: what a message must be before it is written asks nothing of the bus.
"""Puts drafts down at the end of a bus, as messages. Used by whoever has the lock; blocks on files."""

import logging
from collections.abc import Callable, Sequence

import attrs

from trioeval.agent.bus.messages import DURABLE, Draft, Message, message_id, payload_of, posted
from trioeval.agent.bus.segments import LARGEST, frame
from trioeval.agent.bus.settings import BusSettings
from trioeval.agent.bus.tail import Tail
from trioeval.errors import BusError

_logger = logging.getLogger(__name__)

_HEAD = 256  # bytes that come before what is known of a payload, at most
_AT_ONCE = 64 * 2**10  # bytes that are written without a thread: far below what a disk holds back
_TOGETHER = 2**20  # bytes that are written under one lock: others wait for it
_MARKS = 2**48


@attrs.frozen
class Prepared:
    """A draft, and what is known of its payload before it is written."""

    draft: Draft
    rest: bytes = attrs.field(repr=False)


def prepared(draft: Draft) -> Prepared:
    """A draft that can be written.

    Raises:
        BusError: It is too large.
    """
    rest = payload_of(draft)
    if len(rest) > LARGEST - _HEAD:
        raise BusError(
            f"a message of {len(rest):,} bytes is too large for a message bus; at most {LARGEST - _HEAD:,}"
        )
    return Prepared(draft, rest)


@attrs.frozen
class Posted:
    """What became of drafts."""

    messages: Sequence[Message]
    """Of the first ones."""
    failure: Exception | None = None
    """Why the others are not written."""


def batch_size(drafts: Sequence[Prepared]) -> int:
    """How many of the first ones are written together: at least one, and not many more bytes than fit."""
    size = 0
    for count, one in enumerate(drafts):
        size += len(one.rest)
        if count and size > _TOGETHER:
            return count
    return len(drafts)


def is_quick(drafts: Sequence[Prepared], tail: Tail, settings: BusSettings) -> bool:
    """Whether writing them does not have to wait for a disk."""
    size = sum(len(one.rest) + _HEAD for one in drafts)
    room = tail.room()
    return (
        size <= _AT_ONCE
        and (room is None or room > size)
        and not any(_is_durable(one, settings) for one in drafts)
    )


def post(
    drafts: Sequence[Prepared],
    tail: Tail,
    settings: BusSettings,
    *,
    utc: str,
    rng: Callable[[], float],
) -> Posted:
    """Write drafts in their order, as many as can be written.

    Args:
        drafts: What to write.
        tail: Where; it has caught up.
        settings: How.
        utc: When that is.
        rng: Numbers from 0 to 1.
    """
    messages: list[Message] = []
    rotated = False
    try:
        while len(messages) < len(drafts):
            if tail.room() == 0:
                tail.rotate()
                rotated = True
            messages += _post_some(drafts[len(messages) :], tail, settings, utc, rng)
    except Exception as error:  # noqa: BLE001 - whatever it is, what is written is not to be written again
        return Posted(messages, error)
    if rotated:
        try:
            tail.remove_old()
        except OSError as error:  # the messages are there; the next rotation tries again
            _logger.warning("%s: old files are not removed: %s", tail.folder, error)
    return Posted(messages)


def _post_some(
    drafts: Sequence[Prepared],
    tail: Tail,
    settings: BusSettings,
    utc: str,
    rng: Callable[[], float],
) -> list[Message]:
    """Write as many as go into one file, or are to be safe before the next ones; at least one."""
    messages: list[Message] = []
    frames: list[bytes] = []
    room = tail.room()
    for seq, one in enumerate(drafts, tail.seq + 1):
        mark = int(rng() * _MARKS) % _MARKS
        message, payload = posted(
            one.draft, one.rest, seq=seq, msg_id=message_id(seq, mark), utc=utc
        )
        messages.append(message)
        frames.append(frame(seq, payload))
        if room is not None:
            room -= len(frames[-1])
        if settings.fsync == "always" or (room is not None and room <= 0):
            break
    fsync = any(_is_durable(one, settings) for one in drafts[: len(messages)])
    return messages[: tail.put(frames, fsync=fsync)]


def _is_durable(one: Prepared, settings: BusSettings) -> bool:
    if settings.fsync is None:
        return one.draft.type in DURABLE
    return settings.fsync != "never"

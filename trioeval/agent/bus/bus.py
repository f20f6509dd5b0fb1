"""A message bus that is open for writing: one of the waiting callers writes the messages of all."""

import logging
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import attrs
import trio
from outcome import Value

from trioeval.agent.bus.lock import BusLock
from trioeval.agent.bus.messages import (
    DURABLE,
    Message,
    MessageDraft,
    message_id,
    message_of,
    payload_of,
)
from trioeval.agent.bus.reading import BusFollower, WriteSignal
from trioeval.agent.bus.segments import LARGEST, bus_error, frame, is_folder
from trioeval.agent.bus.settings import BusSettings, BusStats
from trioeval.agent.bus.tail import BusTail
from trioeval.errors import BusError, BusLockedError

# Callers that wait until their message is written: one of them, the leader, writes for all.
#
# The first caller writes, together with messages that others add meanwhile; then the first remaining one
# writes. It has no separate task: an unused bus costs nothing, errors are raised in the caller they belong
# to, and nothing has to be ended. The alternative, one task that serves all, would put a nursery around the
# user's code.


@attrs.define(eq=False, repr=False)
class PendingMessage:
    """A queued message, with its waiting caller."""

    draft: MessageDraft
    rest: bytes
    """Its `payload_of`."""
    tries: int = 0
    """Number of failed attempts to take the lock while this was waiting."""
    message: Message | None = None
    error: BusError | None = None
    is_taken: bool = False
    """True while it is being written and cannot be cancelled."""
    task: trio.lowlevel.Task | None = None

    @property
    def is_over(self) -> bool:
        """True if it is written or has failed."""
        return self.message is not None or self.error is not None


@attrs.define(eq=False, repr=False)
class MessageQueue:
    """Queued messages."""

    _entries: dict[PendingMessage, None] = attrs.field(init=False, factory=dict)
    is_led: bool = attrs.field(init=False, default=False)
    """True if a caller is writing, or about to."""

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> Sequence[PendingMessage]:
        """Return all of them, in the order of arrival."""
        return list(self._entries)

    def add(self, entry: PendingMessage) -> bool:
        """Add a message; return whether its caller is the one that writes."""
        self._entries[entry] = None
        leads, self.is_led = not self.is_led, True
        return leads

    async def wait(self, entry: PendingMessage) -> None:
        """Wait until a message is written or has failed, or until it is the turn of its caller to write.

        When cancelled, it is not written, unless it is being written: then this returns after that.
        """

        def abort(_: object) -> trio.lowlevel.Abort:
            if entry.is_taken:
                return trio.lowlevel.Abort.FAILED
            entry.task = None
            del self._entries[entry]
            return trio.lowlevel.Abort.SUCCEEDED

        entry.task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(abort)

    def end(self, entry: PendingMessage, result: Message | BusError) -> None:
        """Set the result of a message; do nothing if it was cancelled."""
        if entry not in self._entries:
            return
        if isinstance(result, Message):
            entry.message = result
        else:
            entry.error = result
        del self._entries[entry]
        self._wake(entry)

    def pass_leadership(self, entry: PendingMessage) -> None:
        """Pass the writing to the first remaining caller."""
        self._entries.pop(entry, None)
        following = next(iter(self._entries), None)
        self.is_led = following is not None
        if following is not None:
            self._wake(following)

    def _wake(self, entry: PendingMessage) -> None:
        task, entry.task = entry.task, None
        if task is not None:
            trio.lowlevel.reschedule(task, Value(None))


_logger = logging.getLogger(__name__)

_NEAR = 2**20  # bytes that are read without a thread: other writers add little at a time
_HEAD = 256  # maximum bytes before the known part of a payload
_AT_ONCE = 64 * 2**10  # bytes that are written without a thread: far below the size of disk buffers
_TOGETHER = 2**20  # bytes that are written under one lock, for which others wait
_MARKS = 2**48


def _known_part(draft: MessageDraft) -> bytes:
    """Return the part of a message that is known before it is written."""
    rest = payload_of(draft)
    if len(rest) > LARGEST - _HEAD:
        raise BusError(
            f"a message of {len(rest):,} bytes is too large for a message bus; at most {LARGEST - _HEAD:,}"
        )
    return rest


def _batch_size(entries: Sequence[PendingMessage]) -> int:
    """Return how many of the first ones are written together: at least one, within the size limit."""
    size = 0
    for count, entry in enumerate(entries):
        size += len(entry.rest)
        if count and size > _TOGETHER:
            return count
    return len(entries)


@attrs.define(eq=False, repr=False)
class Bus:
    """A bus that is open for writing; obtained from `open_bus` only."""

    path: Path
    """Its folder, absolute."""
    stats: BusStats
    _settings: BusSettings
    _rng: Callable[[], float]
    _utc: Callable[[], float]
    _tail: BusTail
    _lock: BusLock
    _queue: MessageQueue = attrs.field(init=False, factory=MessageQueue)
    _news: WriteSignal = attrs.field(init=False, factory=WriteSignal)
    _thread: trio.CapacityLimiter = attrs.field(init=False, factory=lambda: trio.CapacityLimiter(1))
    """Ensures that the holder of the lock never waits for a thread."""
    _is_closed: bool = attrs.field(init=False, default=False)

    async def append(self, draft: MessageDraft, /) -> Message:
        """Write a message, and return when it is as durable as configured. A checkpoint.

        When cancelled, the message is either written completely, once, or not at all.

        Raises:
            BusLockedError: Other processes held the lock all the time.
            BusError: It cannot be written; or it is written, but may not survive a failure of the machine.
        """
        entry = PendingMessage(draft, _known_part(draft))
        if self._is_closed:
            raise self._closed()
        if not self._queue.add(entry):
            await self._queue.wait(entry)
        if not entry.is_over:
            try:
                # Those who are about to append do so now, and are written together.
                await trio.lowlevel.checkpoint()
                await self._write_as_leader(entry)
            finally:
                self._pass_leadership(entry)
        if entry.message is not None:
            return entry.message
        raise entry.error if entry.error is not None else self._closed()

    def follow(self, since: int | str | None = None) -> AsyncIterator[Message]:
        """Yield all messages after a cursor, existing and new ones; never ends by itself.

        Args:
            since: A `seq` or a `msg_id`; None is the beginning.

        Raises:
            CursorExpiredError: Messages after the cursor were removed.
            CursorNotFoundError: The message does not exist.
        """
        return BusFollower(self.path, since, self._news)

    def close(self) -> None:
        """Refuse new messages. A running write is completed."""
        self._is_closed = True
        if not self._queue.is_led:
            self._close_files()

    async def _write_as_leader(self, entry: PendingMessage) -> None:
        """Write queued messages until one's own message is written or has failed."""
        while not entry.is_over and not self._is_closed:
            witnesses = self._queue.entries()
            started_at = trio.current_time()
            self.stats.lock_attempts += 1
            self.stats.retries += entry.tries > 0
            try:
                await self._lock.take(self._settings.lock_timeout)
            except TimeoutError as error:
                self._count_wait(started_at)
                self.stats.timeouts += 1
                self._give_up(witnesses, error)
                if not entry.is_over:
                    await trio.sleep(self._settings.pause(entry.tries) * (1 + self._rng()) / 2)
            except OSError as error:
                self._fail(witnesses, error)
            else:
                self._count_wait(started_at)
                await self._write()

    def _pass_leadership(self, entry: PendingMessage) -> None:
        self._queue.pass_leadership(entry)
        if self._is_closed:
            self._close_files()

    async def _write(self) -> None:
        """Write the queued messages; the lock is held, and is released."""
        entries: Sequence[PendingMessage] = ()
        messages: Sequence[Message]
        failure: Exception | None
        try:
            if not self._tail.catch_up(_NEAR):
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(self._tail.catch_up, limiter=self._thread)
            entries = self._queue.entries()
            entries = entries[: _batch_size(entries)]
            if self._is_quick(entries):
                messages, failure = self._post(entries)
            else:
                for entry in entries:
                    entry.is_taken = True
                # A thread that writes cannot be stopped: it is short, and its end is awaited.
                with trio.CancelScope(shield=True):
                    messages, failure = await trio.to_thread.run_sync(
                        self._post, entries, limiter=self._thread
                    )
        except Exception as error:  # noqa: BLE001 - raised in the waiting callers
            entries = entries or self._queue.entries()
            messages, failure = (), error
        finally:
            self._lock.release()
            for entry in entries:
                entry.is_taken = False
        self._finish_entries(entries, messages, failure)

    def _is_quick(self, entries: Sequence[PendingMessage]) -> bool:
        """Return whether they can be written without waiting for a disk."""
        size = sum(len(entry.rest) + _HEAD for entry in entries)
        room = self._tail.room()
        fits = size <= _AT_ONCE and (room is None or room > size)
        return fits and not any(map(self._is_durable, entries))

    def _is_durable(self, entry: PendingMessage) -> bool:
        fsync = self._settings.fsync
        return entry.draft.type in DURABLE if fsync is None else fsync != "never"

    def _post(
        self, entries: Sequence[PendingMessage]
    ) -> tuple[Sequence[Message], Exception | None]:
        """Write as many messages as possible in order; return these and the failure of the others.

        Blocks on files; the lock is held, and the tail has caught up.
        """
        utc = datetime.fromtimestamp(self._utc(), UTC).isoformat(timespec="microseconds")
        messages: list[Message] = []
        rotated = False
        try:
            while len(messages) < len(entries):
                if self._tail.room() == 0:
                    self._tail.rotate()
                    rotated = True
                messages += self._post_some(entries[len(messages) :], f"{utc[:-6]}Z")
        except Exception as error:  # noqa: BLE001 - written messages must not be written again, whatever it is
            return messages, error
        if rotated:
            try:
                self._tail.remove_old()
            except OSError as error:  # the messages are written; the next rotation tries again
                _logger.warning("%s: old files cannot be removed: %s", self.path, error)
        return messages, None

    def _post_some(self, entries: Sequence[PendingMessage], utc: str) -> list[Message]:
        """Write messages up to the end of a file or the next required sync; at least one."""
        messages: list[Message] = []
        frames: list[bytes] = []
        room = self._tail.room()
        for seq, entry in enumerate(entries, self._tail.seq + 1):
            id_ = message_id(seq, int(self._rng() * _MARKS) % _MARKS)
            message, payload = message_of(entry.draft, entry.rest, seq=seq, msg_id=id_, utc=utc)
            messages.append(message)
            frames.append(frame(seq, payload))
            if room is not None:
                room -= len(frames[-1])
            if self._settings.fsync == "always" or (room is not None and room <= 0):
                break
        fsync = any(map(self._is_durable, entries[: len(messages)]))
        return messages[: self._tail.put(frames, fsync=fsync)]

    def _finish_entries(
        self,
        entries: Sequence[PendingMessage],
        messages: Sequence[Message],
        failure: Exception | None,
    ) -> None:
        count = len(messages)
        for entry, message in zip(entries, messages, strict=False):
            self._queue.end(entry, message)
        if failure is not None:
            self._fail(entries[count:], failure)
        if count:
            self.stats.appends += count
            self.stats.batches += 1
            self.stats.largest_batch = max(self.stats.largest_batch, count)
            self._news.notify()

    def _give_up(self, witnesses: Sequence[PendingMessage], error: TimeoutError) -> None:
        """Count a failed attempt to take the lock; callers without further attempts fail."""
        attempts = self._settings.append_attempts
        for entry in witnesses:
            entry.tries += 1
            if entry.tries >= attempts:
                failure = BusLockedError(
                    f"{self.path}: the message bus was locked by another process, {attempts} "
                    f"{'times' if attempts > 1 else 'time'} for {self._settings.lock_timeout:g} s",
                    attempts=attempts,
                )
                failure.__cause__ = error
                self._queue.end(entry, failure)

    def _fail(self, entries: Sequence[PendingMessage], error: Exception) -> None:
        for entry in entries:
            # A separate one for each: an exception raised by several tasks collects all of their tracebacks.
            if isinstance(error, BusError):
                failure = BusError(str(error))
            elif isinstance(error, OSError):
                failure = bus_error(self.path, "written", error)
            else:
                failure = BusError(f"{self.path}: the message bus cannot be written: {error!r}")
            failure.__cause__ = error
            self._queue.end(entry, failure)

    def _count_wait(self, started_at: float) -> None:
        self.stats.waited(trio.current_time() - started_at)

    def _close_files(self) -> None:
        self._lock.close()
        self._tail.close()

    def _closed(self) -> BusError:
        return BusError(f"{self.path}: the message bus is closed; append messages while it is open")


@asynccontextmanager
async def open_bus(
    folder: Path,
    settings: BusSettings | None = None,
    *,
    rng: Callable[[], float],
    utc: Callable[[], float] = time.time,
    stats: BusStats | None = None,
) -> AsyncGenerator[Bus]:
    """Open a bus for writing; the folder is created if necessary.

    Args:
        folder: The folder of its files, which must contain nothing else.
        settings: Its settings; None is `BusSettings()`.
        rng: Returns random numbers from 0 to 1, so that writers do not retry in step.
        utc: Returns the time, in seconds since 1970.
        stats: Counts the cost of writing, also that of other writers; None uses a separate one.

    Raises:
        BusError: It is not a folder, or is a link.
    """
    await trio.lowlevel.checkpoint()
    settings = settings if settings is not None else BusSettings()
    stats = stats if stats is not None else BusStats()
    path = Path(os.path.abspath(folder))  # noqa: ASYNC240, PTH100 - no access to the disk, no link is followed
    try:
        if not is_folder(path):
            path.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - brief
    except BusError:
        raise
    except OSError as error:
        raise bus_error(path, "written", error) from error
    bus = Bus(
        path=path,
        stats=stats,
        settings=settings,
        rng=rng,
        utc=utc,
        tail=BusTail(
            path,
            rotate_bytes=settings.rotate_bytes,
            keep_segments=settings.keep_segments,
            fsync=settings.fsync != "never",
            stats=stats,
        ),
        lock=BusLock(path, rng),
    )
    try:
        yield bus
    finally:
        bus.close()

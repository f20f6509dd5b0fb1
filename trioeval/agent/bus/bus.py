"""A bus that is open for writing: the first who appends writes what has gathered, for all who wait."""

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
from trioeval.agent.bus.messages import Draft, Message
from trioeval.agent.bus.posting import Posted, Prepared, batch_size, is_quick, post, prepared
from trioeval.agent.bus.reading import Following, News
from trioeval.agent.bus.segments import is_folder, trouble
from trioeval.agent.bus.settings import BusSettings, BusStats
from trioeval.agent.bus.tail import Tail
from trioeval.errors import BusError, BusLockedError

# Those who wait until their message is written: one of them writes for all.
#
# Whoever comes first writes, and takes along what others put down meanwhile; then the first of those who are
# left writes. There is no task beside them: a bus that nobody writes to costs nothing, an error comes out
# where it belongs, and nothing has to be ended. The alternative, one task that serves all, would put a
# nursery around the code of the user.


@attrs.define(eq=False)
class Entry:
    """A message that is to be written, and who waits for it."""

    prepared: Prepared
    tries: int = 0
    """How often the lock was not to be had, as long as this has waited."""
    message: Message | None = None
    error: BusError | None = None
    is_taken: bool = False
    """It is being written: nobody can take it back."""
    task: trio.lowlevel.Task | None = None

    @property
    def is_over(self) -> bool:
        """Whether it is known what became of it."""
        return self.message is not None or self.error is not None


@attrs.define(eq=False)
class Queue:
    """Messages that are to be written."""

    _entries: dict[Entry, None] = attrs.field(init=False, factory=dict)
    is_led: bool = attrs.field(init=False, default=False)
    """Somebody writes, or is about to."""

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> Sequence[Entry]:
        """All of them, in the order in which they came."""
        return list(self._entries)

    def add(self, entry: Entry) -> bool:
        """Put a message down; whether whoever does so is the one who writes."""
        self._entries[entry] = None
        leads, self.is_led = not self.is_led, True
        return leads

    async def wait(self, entry: Entry) -> None:
        """Return when it is known what became of a message, or when it is the turn of its task to write.

        Cancelled, it is not written; unless it is being written: then this returns when that is done.
        """

        def abort(_: object) -> trio.lowlevel.Abort:
            if entry.is_taken:
                return trio.lowlevel.Abort.FAILED
            entry.task = None
            del self._entries[entry]
            return trio.lowlevel.Abort.SUCCEEDED

        entry.task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(abort)

    def end(self, entry: Entry, result: Message | BusError) -> None:
        """Say what became of a message; nothing, if it was taken back."""
        if entry not in self._entries:
            return
        if isinstance(result, Message):
            entry.message = result
        else:
            entry.error = result
        del self._entries[entry]
        self._wake(entry)

    def lead_no_more(self, entry: Entry) -> None:
        """Leave the writing to the first of those who are left.

        Args:
            entry: Of whoever has led; it is taken back if it is not over.
        """
        self._entries.pop(entry, None)
        following = next(iter(self._entries), None)
        self.is_led = following is not None
        if following is not None:
            self._wake(following)

    def _wake(self, entry: Entry) -> None:
        task, entry.task = entry.task, None
        if task is not None:
            trio.lowlevel.reschedule(task, Value(None))


_NEAR = 2**20  # bytes that are read without a thread: others write in small steps


@attrs.define(eq=False)
class Bus:
    """A bus that is open for writing; obtained from `open_bus` only."""

    path: Path
    """Its folder, absolute."""
    stats: BusStats
    _settings: BusSettings
    _rng: Callable[[], float] = attrs.field(repr=False)
    _utc: Callable[[], float] = attrs.field(repr=False)
    _tail: Tail = attrs.field(repr=False)
    _lock: BusLock = attrs.field(repr=False)
    _queue: Queue = attrs.field(init=False, factory=Queue, repr=False)
    _news: News = attrs.field(init=False, factory=News, repr=False)
    _thread: trio.CapacityLimiter = attrs.field(
        init=False, factory=lambda: trio.CapacityLimiter(1), repr=False
    )
    """Whoever holds the lock never waits for a thread."""
    _is_closed: bool = attrs.field(init=False, default=False, repr=False)

    async def append(self, draft: Draft, /) -> Message:
        """Write a message, and return when that is as durable as it is to be. A checkpoint.

        Cancelled, the message is either written whole, once, or not at all.

        Raises:
            BusLockedError: Others held the lock all the time.
            BusError: It cannot be written; or it is, and may not outlast a failure of the machine.
        """
        entry = Entry(prepared(draft))
        if self._is_closed:
            raise self._closed()
        if not self._queue.add(entry):
            await self._queue.wait(entry)
        if not entry.is_over:
            try:
                # Those who are about to append do so now, and are written together.
                await trio.lowlevel.checkpoint()
                await self._lead(entry)
            finally:
                self._lead_no_more(entry)
        if entry.message is not None:
            return entry.message
        raise entry.error if entry.error is not None else self._closed()

    def follow(self, since: int | str | None = None) -> AsyncIterator[Message]:
        """All messages after a cursor, those that are there and then each as it comes; never ends by itself.

        Args:
            since: A `seq` or a `msg_id`; None is the beginning.

        Raises:
            CursorExpiredError: Messages after the cursor were removed.
            CursorNotFoundError: There is no such message.
        """
        return Following(self.path, since, self._news)

    def close(self) -> None:
        """Write no more. What is being written is."""
        self._is_closed = True
        if not self._queue.is_led:
            self._close_files()

    async def _lead(self, entry: Entry) -> None:
        """Write what has gathered, until it is known what became of one message."""
        while not entry.is_over and not self._is_closed:
            witnesses = self._queue.entries()
            begun = trio.current_time()
            self.stats.lock_attempts += 1
            self.stats.retries += entry.tries > 0
            try:
                await self._lock.take(self._settings.lock_timeout)
            except TimeoutError as error:
                self._count_wait(begun)
                self.stats.timeouts += 1
                self._give_up(witnesses, error)
                if not entry.is_over:
                    await trio.sleep(self._settings.pause(entry.tries) * (1 + self._rng()) / 2)
            except OSError as error:
                self._fail(witnesses, error)
            else:
                self._count_wait(begun)
                await self._write()

    def _lead_no_more(self, entry: Entry) -> None:
        self._queue.lead_no_more(entry)
        if self._is_closed:
            self._close_files()

    async def _write(self) -> None:
        """Write all there is; the lock is held, and is given back."""
        entries: Sequence[Entry] = ()
        try:
            if not self._tail.catch_up(_NEAR):
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(self._tail.catch_up, limiter=self._thread)
            entries = self._queue.entries()
            drafts = [entry.prepared for entry in entries]
            count = batch_size(drafts)
            entries, drafts = entries[:count], drafts[:count]
            if is_quick(drafts, self._tail, self._settings):
                done = self._post(entries)
            else:
                for entry in entries:
                    entry.is_taken = True
                # A thread that writes cannot be stopped: it is short, and its end is waited for.
                with trio.CancelScope(shield=True):
                    done = await trio.to_thread.run_sync(self._post, entries, limiter=self._thread)
        except Exception as error:  # noqa: BLE001 - nobody but who waits for it could tell it
            entries = entries or self._queue.entries()
            done = Posted((), error)
        finally:
            self._lock.release()
            for entry in entries:
                entry.is_taken = False
        self._tell(entries, done)

    def _post(self, entries: Sequence[Entry]) -> Posted:
        drafts = [entry.prepared for entry in entries]
        utc = datetime.fromtimestamp(self._utc(), UTC).isoformat(timespec="microseconds")
        return post(drafts, self._tail, self._settings, utc=f"{utc[:-6]}Z", rng=self._rng)

    def _tell(self, entries: Sequence[Entry], done: Posted) -> None:
        count = len(done.messages)
        for entry, message in zip(entries, done.messages, strict=False):
            self._queue.end(entry, message)
        if done.failure is not None:
            self._fail(entries[count:], done.failure)
        if count:
            self.stats.appends += count
            self.stats.batches += 1
            self.stats.largest_batch = max(self.stats.largest_batch, count)
            self._news.tell()

    def _give_up(self, witnesses: Sequence[Entry], error: TimeoutError) -> None:
        """Count a time that the lock was not to be had; those who have seen enough of them fail."""
        attempts = self._settings.append_attempts
        for entry in witnesses:
            entry.tries += 1
            if entry.tries >= attempts:
                failure = BusLockedError(
                    f"{self.path}: the message bus was locked by others, {attempts} "
                    f"{'times' if attempts > 1 else 'time'} for {self._settings.lock_timeout:g} s",
                    attempts=attempts,
                )
                failure.__cause__ = error
                self._queue.end(entry, failure)

    def _fail(self, entries: Sequence[Entry], error: Exception) -> None:
        for entry in entries:
            # One for each: an exception that several tasks raise collects the tracebacks of all.
            if isinstance(error, BusError):
                failure = BusError(str(error))
            elif isinstance(error, OSError):
                failure = trouble(self.path, "written", error)
            else:
                failure = BusError(f"{self.path}: the message bus cannot be written: {error!r}")
            failure.__cause__ = error
            self._queue.end(entry, failure)

    def _count_wait(self, begun: float) -> None:
        self.stats.waited(trio.current_time() - begun)

    def _close_files(self) -> None:
        self._lock.close()
        self._tail.close()

    def _closed(self) -> BusError:
        return BusError(
            f"{self.path}: the message bus is closed; messages are appended while it is open"
        )


@asynccontextmanager
async def open_bus(
    folder: Path,
    settings: BusSettings | None = None,
    *,
    rng: Callable[[], float],
    utc: Callable[[], float] = time.time,
) -> AsyncGenerator[Bus]:
    """Open a bus for writing; the folder is made if there is none.

    Args:
        folder: Of its files, which nobody else keeps files in.
        settings: How it is written; None is `BusSettings()`.
        rng: Numbers from 0 to 1, so that writers do not try in step.
        utc: The time, in seconds since 1970.

    Raises:
        BusError: It is no folder, or leads somewhere else.
    """
    await trio.lowlevel.checkpoint()
    settings = settings if settings is not None else BusSettings()
    stats = BusStats()
    path = Path(os.path.abspath(folder))  # noqa: ASYNC240, PTH100 - nothing is looked up, no link is followed
    try:
        if not is_folder(path):
            path.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - a moment
    except BusError:
        raise
    except OSError as error:
        raise trouble(path, "written", error) from error
    bus = Bus(
        path=path,
        stats=stats,
        settings=settings,
        rng=rng,
        utc=utc,
        tail=Tail(
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

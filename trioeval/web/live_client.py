"""The watching side: how a run that is under way is seen and steered from another process."""

import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import attrs
import trio

from trioeval.errors import NotLiveError
from trioeval.nurseries import open_plain_nursery
from trioeval.web.sockets import connect_to, reachable_runs

# What goes over the connection between a run and whoever watches it: JSON, one message a line.
#
# The run says first `{"type": "hello", "version": 1, "run": id}`, then a few times a second
#
# * `{"type": "state", "state": …}`: what `RunState.json` says;
# * `{"type": "rows", "rows": [{"index": …, "task": …}, …], "missed": …}`: what is new since the last one.
#
# The other side sends commands, `{"id": 7, "do": "pause", "lane": "gpt"}`, and gets for each
# `{"type": "answer", "id": 7, "ok": true}`, or `"ok": false` and an `error`.


VERSION = 1

LONGEST_COMMAND = 64 * 1024
"""Bytes of a line that a run reads."""
LONGEST_NEWS = 64 * 1024 * 1024
"""Bytes of a line that a watcher reads: the state of a run has all its lanes."""
MOST_ROWS = 1000
"""Rows that are named; whoever was told of none while there were more is to look at the store."""

_CHUNK = 64 * 1024


class NotAMessageError(ValueError):
    """A line that cannot be read; the text says why. Never leaves `trioeval.web`."""


def to_line(message: Mapping[str, Any]) -> bytes:
    """A message as it is sent: pure ASCII, so that half characters in names do no harm."""
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


def to_message(line: bytes) -> dict[str, Any]:
    """What a line says.

    Raises:
        NotAMessageError: It is no JSON object.
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise NotAMessageError(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise NotAMessageError("a message is a JSON object")
    return found


@attrs.define(eq=False)
class Lines:
    """Reads a stream line by line.

    Args:
        stream: What is read.
        longest: Bytes of a line at most.
    """

    _stream: trio.abc.ReceiveStream
    _longest: int
    _read: bytearray = attrs.field(init=False, factory=bytearray)
    _searched: int = attrs.field(init=False, default=0)

    async def next(self) -> bytes | None:
        """The next line; None at the end, where half a line is none. A checkpoint, unless it is there.

        Raises:
            NotAMessageError: It is too long; nothing after it can be read.
            BrokenResourceError: The connection is gone.
        """
        while (end := self._read.find(b"\n", self._searched)) < 0:
            self._searched = len(self._read)
            if self._searched > self._longest:
                raise NotAMessageError(f"a line has at most {self._longest} bytes")
            more = await self._stream.receive_some(_CHUNK)
            if not more:
                return None
            self._read += more
        line = bytes(self._read[:end])
        del self._read[: end + 1]
        self._searched = 0
        return line


@attrs.define(eq=False)
class NewRows:
    """The last rows, for readers who each come when they like; one who comes late misses some.

    Example:
        >>> rows = NewRows()
        >>> rows.add(3, None)
        >>> rows.since(0)
        ([{'index': 3, 'task': None}], False)
        >>> rows.since(rows.count)
        ([], False)
    """

    count: int = 0
    """Rows until now. A reader keeps it, and asks for those since."""
    _last: deque[tuple[int | None, str | None]] = attrs.field(
        factory=lambda: deque(maxlen=MOST_ROWS)
    )

    def add(self, index: int | None, task: str | None) -> None:
        """There is a new row."""
        self.count += 1
        self._last.append((index, task))

    def skip(self) -> None:
        """There were rows that nobody can name."""
        self.count += 1
        self._last.clear()

    def since(self, count: int) -> tuple[list[dict[str, Any]], bool]:
        """Those since there were so many, the oldest first, and whether some are missing."""
        new = self.count - count
        known = list(self._last)[-new:] if new else []
        return [{"index": index, "task": task} for index, task in known], new > len(known)


_GREETED_WITHIN = 5.0  # seconds; a run's loop may be busy for a moment
_ANSWERED_WITHIN = 10.0


@attrs.define(eq=False)
class _Question:
    """A command that is not answered yet."""

    answered: trio.Event = attrs.field(factory=trio.Event)
    answer: Mapping[str, Any] | None = None


@attrs.define(eq=False)
class Live:
    """A connection to a run that is under way; made by `open_live`.

    Several tasks may use it at once. When the run is over, its iterators end, and `ask` raises.
    """

    run_id: str
    _stream: trio.SocketStream
    _lines: Lines
    _sending: trio.StrictFIFOLock = attrs.field(init=False, factory=trio.StrictFIFOLock)
    _state: Mapping[str, Any] | None = attrs.field(init=False, default=None)
    _states: int = attrs.field(init=False, default=0)
    """How many there were."""
    _rows: NewRows = attrs.field(init=False, factory=NewRows)
    _questions: dict[int, _Question] = attrs.field(init=False, factory=dict)
    _asked: int = attrs.field(init=False, default=0)
    _over: bool = attrs.field(init=False, default=False)
    _news: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Set, and replaced, when there is anything new."""

    def states(self) -> AsyncIterator[Mapping[str, Any]]:
        """How the run stands: what `RunState.json()` says, at most four times a second.

        The first at once; then the newest that there is when it is asked for. One that nobody asked for is
        gone: nothing piles up. Ends when the run does, or is not heard of any more.
        """
        return _Newest(self, self._newest_state)

    def rows(self) -> AsyncIterator[Mapping[str, Any]]:
        """Which rows are new, as `{"rows": [{"index": 3, "task": None}, …], "missed": False}`.

        Those since it was asked for last, together; at first those since the connection was made.
        `missed`: there were more than are named here, because somebody who does not read gets no growing
        list; look at the store again. Ends as `states` does.
        """
        return _Newest(self, self._newest_rows)

    async def ask(self, command: Mapping[str, Any]) -> Mapping[str, Any]:
        """Have the run do something, and wait for its answer.

        Args:
            command: `{"do": "pause" | "resume", "lane": name}`,
                `{"do": "retune", "lane": name, "maxConcurrency": 8, "rpm": 60, "tpm": 1000}`
                (at least one number),
                `{"do": "stop"}` or `{"do": "cancel"}`.

        Returns:
            `{"ok": True}`, or `{"ok": False, "error": text}` if the run refuses; it goes on as before.

        Raises:
            NotLiveError: The run is over, or does not answer.
        """
        self._asked += 1
        number = self._asked
        question = self._questions[number] = _Question()
        with trio.move_on_after(_ANSWERED_WITHIN) as scope:
            try:
                if not self._over:
                    async with self._sending:
                        await self._stream.send_all(to_line({**command, "id": number}))
                    await question.answered.wait()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
            finally:
                del self._questions[number]
        if question.answer is None:
            why = "does not answer" if scope.cancelled_caught else "is over"
            raise NotLiveError(f"run {self.run_id}: {why}")
        return question.answer

    async def greeted(self) -> None:
        """Who listens is the run, and speaks as this version does; `open_live` asks for it.

        Raises:
            NotLiveError: Neither is known.
        """
        hello: Mapping[str, Any] = {}
        with trio.move_on_after(_GREETED_WITHIN):
            with suppress(trio.BrokenResourceError, NotAMessageError):
                hello = to_message(await self._lines.next() or b"{}")
        match hello:
            case {"type": "hello", "version": version, "run": run} if (
                version == VERSION and run == self.run_id
            ):
                return
            case {"type": "hello", "version": version} if version != VERSION:
                raise NotLiveError(
                    f"run {self.run_id}: it is run by another version of trioeval than this one"
                )
            case _:
                raise NotLiveError(f"run {self.run_id}: who listens does not answer")

    async def hear(self) -> None:
        """Take what the run says, until it is over; `open_live` sees to it."""
        try:
            while (line := await self._lines.next()) is not None:
                self._take(to_message(line))
        except (trio.BrokenResourceError, trio.ClosedResourceError, NotAMessageError):
            pass
        finally:
            self._over = True
            for question in self._questions.values():
                question.answered.set()
            self._tell()

    def _take(self, message: Mapping[str, Any]) -> None:
        match message:
            case {"type": "state", "state": dict(state)}:
                self._state = state
                self._states += 1
                self._tell()
            case {"type": "rows", "rows": [*rows], "missed": missed}:
                if missed:
                    self._rows.skip()
                for row in rows:
                    match row:
                        case {"index": int() | None as index, "task": str() | None as task}:
                            self._rows.add(index, task)
                self._tell()
            case {"type": "answer", "id": int(number), "ok": bool(done)}:
                question = self._questions.get(number)
                if question is not None:
                    error = {} if done else {"error": str(message.get("error"))}
                    question.answer = {"ok": done, **error}
                    question.answered.set()
            case _:
                pass

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()

    def _newest_state(self, seen: int) -> tuple[int, Mapping[str, Any] | None]:
        return self._states, self._state if self._states > seen else None

    def _newest_rows(self, seen: int) -> tuple[int, Mapping[str, Any] | None]:
        rows, missed = self._rows.since(seen)
        new = {"rows": rows, "missed": missed} if rows or missed else None
        return self._rows.count, new

    async def more(self) -> bool:
        """Wait for something new; False if there is nothing any more."""
        if self._over:
            return False
        await self._news.wait()
        return True


@attrs.define(eq=False)
class _Newest(AsyncIterator[Mapping[str, Any]]):
    """What is new whenever somebody asks. No generator: who stops asking need not close it."""

    _live: Live
    _look: Callable[[int], tuple[int, Mapping[str, Any] | None]]
    """How many there were by now, and what is new since there were so many."""
    _seen: int = 0

    async def __anext__(self) -> Mapping[str, Any]:
        await trio.lowlevel.checkpoint()
        while True:
            self._seen, found = self._look(self._seen)
            if found is not None:
                return found
            if not await self._live.more():
                raise StopAsyncIteration


@asynccontextmanager
async def open_live(run_id: str) -> AsyncIterator[Live]:
    """Watch and steer a run that is under way on this machine, of this user.

    Args:
        run_id: All of it.

    Raises:
        NotLiveError: Nobody listens under that name: the run is over, was started with `--no-live`, by
            another user or elsewhere; or who listens does not speak as this version does.

    Example:
        ```python
        async with open_live("eval-20260115T093000-5f0c21") as live:
            async for state in live.states():
                print(state["done"], "of", state["total"])
        ```
    """
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(connect_to(run_id)))
    async with stream:
        live = Live(run_id, stream, Lines(stream, LONGEST_NEWS))
        await live.greeted()
        async with open_plain_nursery() as nursery:
            nursery.start_soon(live.hear)
            try:
                yield live
            finally:
                nursery.cancel_scope.cancel("nobody watches any more")


def live_run_ids() -> list[str]:
    """The runs of this user that can be watched now, in the order in which they began. Blocks shortly."""
    return reachable_runs()

"""The client side of a running run: it is watched and steered from another process."""

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

# The protocol between a run and its watchers: JSON, one message for each line.
#
# The run first sends `{"type": "hello", "version": 1, "run": id}`, then a few times a second
#
# * `{"type": "state", "state": …}`: the result of `RunState.json`;
# * `{"type": "rows", "rows": [{"index": …, "task": …}, …], "missed": …}`: the rows since the last message.
#
# The watcher sends commands, `{"id": 7, "do": "pause", "lane": "gpt"}`, and gets for each
# `{"type": "answer", "id": 7, "ok": true}`, or `"ok": false` and an `error`.


VERSION = 1

LONGEST_COMMAND = 64 * 1024
"""The most bytes of a line that a run reads."""
LONGEST_NEWS = 64 * 1024 * 1024
"""The most bytes of a line that a watcher reads: the state of a run has all its lanes."""
MOST_ROWS = 1000
"""The most rows that a message names; a watcher that missed rows reads them from the store."""

_CHUNK = 64 * 1024


class NotAMessageError(ValueError):
    """An invalid line; the text states why. Never leaves `trioeval.web`."""


def to_line(message: Mapping[str, Any]) -> bytes:
    """Return a message as a line of pure ASCII, so that lone surrogates in names are harmless."""
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


def to_message(line: bytes) -> dict[str, Any]:
    """Return the message of a line.

    Raises:
        NotAMessageError: The line is not a JSON object.
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise NotAMessageError(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise NotAMessageError("a message is a JSON object")
    return found


@attrs.define(eq=False, repr=False)
class LineReader:
    """A reader of the lines of a stream.

    Args:
        stream: The stream.
        longest: The most bytes of a line.
    """

    _stream: trio.abc.ReceiveStream
    _longest: int
    _read: bytearray = attrs.field(init=False, factory=bytearray)
    _searched: int = attrs.field(init=False, default=0)

    async def next(self) -> bytes | None:
        """Return the next line; None at the end, without a partial line. A checkpoint unless a line is there.

        Raises:
            NotAMessageError: The line is too long; no further line can be read.
            BrokenResourceError: The connection is closed.
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


@attrs.define(eq=False, repr=False)
class NewRows:
    """The last rows, for readers that poll at any time; a late reader misses some.

    Example:
        >>> rows = NewRows()
        >>> rows.add(3, None)
        >>> rows.since(0)
        ([{'index': 3, 'task': None}], False)
        >>> rows.since(rows.count)
        ([], False)
    """

    count: int = 0
    """The number of rows so far. A reader stores it and requests the rows since then."""
    _last: deque[tuple[int | None, str | None]] = attrs.field(
        factory=lambda: deque(maxlen=MOST_ROWS)
    )

    def add(self, index: int | None, task: str | None) -> None:
        """Add a row."""
        self.count += 1
        self._last.append((index, task))

    def skip(self) -> None:
        """Count rows without naming them."""
        self.count += 1
        self._last.clear()

    def since(self, count: int) -> tuple[list[dict[str, Any]], bool]:
        """Return the rows after a number of rows, the oldest first, and whether some are missing."""
        new = self.count - count
        known = list(self._last)[-new:] if new else []
        return [{"index": index, "task": task} for index, task in known], new > len(known)


_GREETED_WITHIN = 5.0  # seconds; the event loop of a run may be busy for a moment
_ANSWERED_WITHIN = 10.0


@attrs.define(eq=False, repr=False)
class _PendingCommand:
    """A command without an answer yet."""

    answered: trio.Event = attrs.field(factory=trio.Event)
    answer: Mapping[str, Any] | None = None


@attrs.define(eq=False, repr=False)
class Live:
    """A connection to a running run; made by `open_live`.

    Several tasks may use it at once. When the run ends, its iterators end and `ask` raises.
    """

    run_id: str
    _stream: trio.SocketStream
    _lines: LineReader
    _sending: trio.StrictFIFOLock = attrs.field(init=False, factory=trio.StrictFIFOLock)
    _state: Mapping[str, Any] | None = attrs.field(init=False, default=None)
    _states: int = attrs.field(init=False, default=0)
    """The number of states received."""
    _rows: NewRows = attrs.field(init=False, factory=NewRows)
    _questions: dict[int, _PendingCommand] = attrs.field(init=False, factory=dict)
    _last_id: int = attrs.field(init=False, default=0)
    _over: bool = attrs.field(init=False, default=False)
    _news: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Set and replaced when there is a new message."""

    def states(self) -> AsyncIterator[Mapping[str, Any]]:
        """Iterate over the states of the run from `RunState.json()`, at most four a second.

        The first state is immediate; later ones are the newest at each step. States in between are
        dropped, so nothing accumulates. Ends with the run, or with the connection.
        """
        return _Newest(self, self._newest_state)

    def rows(self) -> AsyncIterator[Mapping[str, Any]]:
        """Iterate over new rows, as `{"rows": [{"index": 3, "task": None}, …], "missed": False}`.

        Each step has all rows since the previous one; the first has those since the connection was made.
        `missed`: not all new rows are named, because the list does not grow without bound for a slow reader;
        read the store again. Ends as `states` does.
        """
        return _Newest(self, self._newest_rows)

    async def ask(self, command: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a command to the run, and wait for its answer.

        Args:
            command: `{"do": "pause" | "resume", "lane": name}`,
                `{"do": "retune", "lane": name, "maxConcurrency": 8, "rpm": 60, "tpm": 1000}`
                (at least one number),
                `{"do": "stop"}` or `{"do": "cancel"}`.

        Returns:
            `{"ok": True}`, or `{"ok": False, "error": text}` if the run refuses it and continues unchanged.

        Raises:
            NotLiveError: The run is over, or does not respond.
        """
        self._last_id += 1
        number = self._last_id
        question = self._questions[number] = _PendingCommand()
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
            why = "does not respond" if scope.cancelled_caught else "is over"
            raise NotLiveError(f"run {self.run_id}: {why}")
        return question.answer

    async def greeted(self) -> None:
        """Check that the server is the run, with the same version of the protocol; `open_live` calls it.

        Raises:
            NotLiveError: The greeting is missing or different.
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
                raise NotLiveError(f"run {self.run_id}: it runs with another version of trioeval")
            case _:
                raise NotLiveError(f"run {self.run_id}: the live server does not respond")

    async def hear(self) -> None:
        """Receive messages until the run is over; `open_live` starts it."""
        try:
            while (line := await self._lines.next()) is not None:
                self._take(to_message(line))
        except (trio.BrokenResourceError, trio.ClosedResourceError, NotAMessageError):
            pass
        finally:
            self._over = True
            for question in self._questions.values():
                question.answered.set()
            self._notify()

    def _take(self, message: Mapping[str, Any]) -> None:
        match message:
            case {"type": "state", "state": dict(state)}:
                self._state = state
                self._states += 1
                self._notify()
            case {"type": "rows", "rows": [*rows], "missed": missed}:
                if missed:
                    self._rows.skip()
                for row in rows:
                    match row:
                        case {"index": int() | None as index, "task": str() | None as task}:
                            self._rows.add(index, task)
                self._notify()
            case {"type": "answer", "id": int(number), "ok": bool(done)}:
                question = self._questions.get(number)
                if question is not None:
                    error = {} if done else {"error": str(message.get("error"))}
                    question.answer = {"ok": done, **error}
                    question.answered.set()
            case _:
                pass

    def _notify(self) -> None:
        self._news.set()
        self._news = trio.Event()

    def _newest_state(self, seen: int) -> tuple[int, Mapping[str, Any] | None]:
        return self._states, self._state if self._states > seen else None

    def _newest_rows(self, seen: int) -> tuple[int, Mapping[str, Any] | None]:
        rows, missed = self._rows.since(seen)
        new = {"rows": rows, "missed": missed} if rows or missed else None
        return self._rows.count, new

    async def more(self) -> bool:
        """Wait for a new message; return False if there will be none."""
        if self._over:
            return False
        await self._news.wait()
        return True


@attrs.define(eq=False, repr=False)
class _Newest(AsyncIterator[Mapping[str, Any]]):
    """New values on demand. Not a generator, so that readers need not close it."""

    _live: Live
    _look: Callable[[int], tuple[int, Mapping[str, Any] | None]]
    """Returns the present number of values, and the values after a number of them."""
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
    """Watch and steer a running run of this user on this machine.

    Args:
        run_id: The complete id of the run.

    Raises:
        NotLiveError: No run listens under this id: it is over, was started with `--no-live`, by another
            user or elsewhere; or it uses another version of the protocol.

    Example:
        ```python
        async with open_live("eval-20260115T093000-5f0c21") as live:
            async for state in live.states():
                print(state["done"], "of", state["total"])
        ```
    """
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(connect_to(run_id)))
    async with stream:
        live = Live(run_id, stream, LineReader(stream, LONGEST_NEWS))
        await live.greeted()
        async with open_plain_nursery() as nursery:
            nursery.start_soon(live.hear)
            try:
                yield live
            finally:
                nursery.cancel_scope.cancel("the connection is closed")


def live_run_ids() -> list[str]:
    """Return the runs of this user that can be watched now, in the order of their starts. Blocks shortly."""
    return reachable_runs()

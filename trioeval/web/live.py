"""The server side of a running run: a socket in the file system by which it is watched and steered.

Only the user who started the run can connect. Without connections it costs nothing, and connections cannot
slow the run down: a slow reader gets only the newest state, and is dropped if it does not read for too long;
at the end of the run no reader is waited for. Commands are refused or obeyed, and never harm the run.
"""

import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from reprlib import Repr
from typing import Any, TypeAlias

import attrs
import trio

from trioeval.errors import NotLiveError, PlanError
from trioeval.kernel import Lane, Lanes
from trioeval.nurseries import open_plain_nursery
from trioeval.report.run_state import RunSnapshot
from trioeval.web.live_client import (
    LONGEST_COMMAND,
    VERSION,
    LineReader,
    NewRows,
    NotAMessageError,
    to_line,
    to_message,
)
from trioeval.web.sockets import is_same_user, listen_for, process_of, remove

# The state of a running run that can be seen and changed.


_WIDEST = 10_000  # calls in flight; a larger number is a typing error
_RATES = (0.001, 1e9)  # per minute
_COMMANDS: Mapping[str, frozenset[str]] = {
    "pause": frozenset({"lane"}),
    "resume": frozenset({"lane"}),
    "retune": frozenset({"lane", "maxConcurrency", "rpm", "tpm"}),
    "stop": frozenset(),
    "cancel": frozenset(),
}
"""The further members of each command."""
_SHOWN = 80  # characters of a refused value in a message


@attrs.frozen(kw_only=True, eq=False)
class Steering:
    """The commands of one run. All methods are synchronous and run in the run's Trio thread."""

    run_id: str
    state: Callable[[], RunSnapshot]
    """Returns the state of the run. Its lanes are those that can be steered."""
    lanes: Lanes
    stop: Callable[[int | None], None]
    """Starts no more rows; running rows finish. Like the first Ctrl-C. Gets the number of the requesting
    process, or None."""
    cancel: Callable[[int | None], None]
    """Cancels running rows, like the second Ctrl-C."""
    forward: Callable[[Mapping[str, Any]], None] | None = None
    """Gets each executed command for a lane, for the same lanes in other processes."""
    refusal: Callable[[Mapping[str, Any]], str | None] | None = None
    """Returns the reason why other processes cannot execute a command for a lane; None if they can."""

    def obey(self, command: Mapping[str, Any], process: int | None = None) -> str | None:
        """Execute a command completely or not at all; synchronous, in the run's Trio thread.

        Args:
            command: The command, as for `trioeval.web.live_client.Live.ask`; nothing of it is trusted.
            process: The process that sent it; None if it is unknown.

        Returns:
            The reason of a refusal; None if the command was executed.
        """
        do = command.get("do")
        if not isinstance(do, str) or do not in _COMMANDS:
            return f"do must be one of {', '.join(_COMMANDS)}, got {_cut(do)}"
        if unknown := sorted(set(command) - _COMMANDS[do] - {"do"}):
            return f"{do} does not accept {_cut(unknown[0])}"
        if do == "stop":
            self.stop(process)
            return None
        if do == "cancel":
            self.cancel(process)
            return None
        lane = self._lane(command.get("lane"))
        if isinstance(lane, str):
            return lane
        refusal = None if self.refusal is None else self.refusal(command)
        if refusal is None:
            refusal = steer_lane(lane, command)
        if refusal is None and self.forward is not None:
            self.forward(command)
        return refusal

    def _lane(self, name: object) -> Lane | str:
        """Return a lane, or the message that its name is unknown."""
        known = [lane.name for lane in self.state().lanes]
        if not isinstance(name, str) or name not in known:
            return f"unknown lane {_cut(name)}; the lanes are {', '.join(map(_cut, known))}"
        return self.lanes[name]


def steer_lane(lane: Lane, command: Mapping[str, Any]) -> str | None:
    """Execute a command for a lane completely or not at all; return the reason of a refusal."""
    match command["do"]:
        case "pause":
            lane.pause()
        case "resume":
            lane.resume()
        case _:
            return _retune(lane, command)
    return None


def _retune(lane: Lane, command: Mapping[str, Any]) -> str | None:
    max_concurrency, rpm, tpm = (command.get(key) for key in ("maxConcurrency", "rpm", "tpm"))
    problems = [] if max_concurrency is None else _check_max_concurrency(max_concurrency)
    problems += [] if rpm is None else _check_rate("rpm", rpm)
    problems += [] if tpm is None else _check_rate("tpm", tpm)
    if problems:
        return "; ".join(problems)
    if max_concurrency is rpm is tpm is None:
        return "retune needs maxConcurrency, rpm or tpm"
    try:
        # Values that may be refused are set first, so that a refusal changes nothing.
        lane.retune(rpm=rpm, tpm=tpm)
    except PlanError as error:
        return str(error)
    if max_concurrency is not None:
        lane.max_concurrency = max_concurrency
    return None


def _check_max_concurrency(max_concurrency: object) -> list[str]:
    if type(max_concurrency) is int and 1 <= max_concurrency <= _WIDEST:
        return []
    return [
        f"maxConcurrency must be a whole number from 1 to {_WIDEST}, got {_cut(max_concurrency)}"
    ]


def _check_rate(name: str, rate: object) -> list[str]:
    least, most = _RATES
    if type(rate) in (int, float) and isinstance(rate, int | float) and least <= rate <= most:
        return []
    return [f"{name} must be a number from {least:g} to {most:g}, got {_cut(rate)}"]


def _cut(value: object) -> str:
    """Return a foreign value, short enough for a message."""
    short = Repr()
    short.maxstring = short.maxother = short.maxlong = _SHOWN
    return short.repr(value)


TellRow: TypeAlias = Callable[[int | None, str | None], None]

_EVERY = 0.25  # seconds between two states
_SHARE = 50  # least time between two states, as a multiple of the time that one takes
_PATIENCE = 5.0  # seconds in which a reader must read, or is dropped
_GOODBYE = 0.25  # seconds that disconnecting watchers may take at the end of the run
_REST = 0.01  # seconds between two commands of one watcher
_MOST = 64  # connections at once

_GONE = (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError)

_log = logging.getLogger(__name__)


@asynccontextmanager
async def serve_live(
    steering: Steering | None, warn: Callable[[str], None] | None
) -> AsyncIterator[TellRow]:
    """Serve the state of a run and its commands for the duration of the block, for `trioeval view`.

    Args:
        steering: The run; None serves nothing.
        warn: Called if no socket can be created; the run continues. None suppresses the warning.

    Yields:
        A function to call with the index and the task of each new row.
    """
    listening = None if steering is None else _listen(steering.run_id, warn)
    if steering is None or listening is None:
        await trio.lowlevel.checkpoint()
        yield _ignore
        return
    taken, path = listening
    server = _LiveServer(steering)
    try:
        async with open_plain_nursery() as nursery:
            nursery.start_soon(server.accept, taken, nursery)
            try:
                yield server.rows.add
            finally:
                remove(path)
                server.end()
                nursery.cancel_scope.deadline = trio.current_time() + _GOODBYE
    finally:
        remove(path)
        taken.close()


def _listen(run_id: str, warn: Callable[[str], None] | None) -> tuple[socket.socket, Path] | None:
    try:
        return listen_for(run_id)
    except NotLiveError as error:
        if warn is not None:
            warn(f"the live server cannot start: {error}")
        return None


def _ignore(_index: int | None, _task: str | None) -> None:
    """Ignore a new row: no socket is served."""


@attrs.define(eq=False, repr=False)
class _ConnectedWatcher:
    """A connected watcher."""

    stream: trio.SocketStream
    rows_sent: int
    """The number of rows when it was last notified."""
    sending: trio.StrictFIFOLock = attrs.field(factory=trio.StrictFIFOLock)

    async def send(self, *messages: bytes) -> None:
        """Send whole messages.

        Raises:
            TooSlowError: The watcher does not read.
            BrokenResourceError: The connection is closed.
        """
        with trio.fail_after(_PATIENCE):
            async with self.sending:
                await self.stream.send_all(b"".join(messages))


@attrs.define(eq=False, repr=False)
class _LiveServer:
    """The server of one run."""

    steering: Steering
    rows: NewRows = attrs.field(factory=NewRows)
    _watchers: int = 0
    _over: trio.Event = attrs.field(factory=trio.Event)
    _accepting: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _state: bytes = b""
    """The newest state as a message."""
    _state_until: float = float("-inf")
    """The time at which that state is outdated."""

    async def accept(self, listening: socket.socket, watchers: trio.Nursery) -> None:
        """Serve connections until `end` is called."""
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
        try:
            with self._accepting:
                await trio.serve_listeners(self._serve, [listener], handler_nursery=watchers)
        except Exception:  # noqa: BLE001 - logged; the run continues
            _log.exception("the live server failed; the run continues")

    def end(self) -> None:
        """Notify watchers that the run is over, and accept no more."""
        self._over.set()
        self._accepting.cancel("the run is over")

    async def _serve(self, stream: trio.SocketStream) -> None:
        async with stream:
            if self._watchers == _MOST or not is_same_user(stream.socket):
                return
            self._watchers += 1
            try:
                watcher = _ConnectedWatcher(stream, self.rows.count)
                async with trio.open_nursery() as nursery:
                    for work in (self._send_update, self._hear):
                        nursery.start_soon(_until_over, work, watcher, nursery.cancel_scope)
            finally:
                self._watchers -= 1

    async def _send_update(self, watcher: _ConnectedWatcher) -> None:
        """Send the state of the run to a watcher repeatedly, and once more at the end."""
        hello = {"type": "hello", "version": VERSION, "run": self.steering.run_id}
        await watcher.send(to_line(hello))
        over = False
        while not over:
            over = self._over.is_set()
            await watcher.send(*self._news(watcher, fresh=over))
            with trio.move_on_at(self._state_until):
                await self._over.wait()

    async def _hear(self, watcher: _ConnectedWatcher) -> None:
        """Execute the commands of a watcher, one after another."""
        lines = LineReader(watcher.stream, LONGEST_COMMAND)
        try:
            while (line := await lines.next()) is not None:
                await self._answer(watcher, line)
                await trio.sleep(_REST)
        except NotAMessageError as error:
            await watcher.send(_answer_line(None, str(error)))

    async def _answer(self, watcher: _ConnectedWatcher, line: bytes) -> None:
        try:
            command = to_message(line)
        except NotAMessageError as error:
            await watcher.send(_answer_line(None, str(error)))
            return
        number = command.pop("id", None)
        if type(number) is not int:
            await watcher.send(_answer_line(None, "a command needs an id, a whole number"))
            return
        refused = self.steering.obey(command, process_of(watcher.stream.socket))
        # Shielded: the command may have cancelled what this is a part of.
        with trio.CancelScope(shield=True, relative_deadline=_GOODBYE) as scope:
            await watcher.send(_answer_line(number, refused))
        if scope.cancelled_caught:  # perhaps in the middle of the line
            raise trio.TooSlowError

    def _news(self, watcher: _ConnectedWatcher, *, fresh: bool) -> list[bytes]:
        """Return the messages that are new for a watcher."""
        now = trio.current_time()
        if fresh or now >= self._state_until:
            self._state = to_line({"type": "state", "state": self.steering.state().json()})
            took = trio.current_time() - now
            self._state_until = now + max(_EVERY, _SHARE * took)
        rows, missed = self.rows.since(watcher.rows_sent)
        watcher.rows_sent = self.rows.count
        if not rows and not missed:
            return [self._state]
        return [to_line({"type": "rows", "rows": rows, "missed": missed}), self._state]


async def _until_over(
    work: Callable[[_ConnectedWatcher], Awaitable[None]],
    watcher: _ConnectedWatcher,
    scope: trio.CancelScope,
) -> None:
    """Run a task for a watcher, then cancel its other tasks; an internal error does not harm the run."""
    try:
        await work(watcher)
    except _GONE:
        pass
    except Exception:  # noqa: BLE001 - logged; the run continues
        _log.exception("a watcher of the run cannot be served; the run continues")
    scope.cancel("the watcher has disconnected")


def _answer_line(number: int | None, refused: str | None) -> bytes:
    answer: Mapping[str, Any] = {"type": "answer", "id": number, "ok": refused is None}
    return to_line(answer if refused is None else {**answer, "error": refused})

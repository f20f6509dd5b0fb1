# Apart from `cli.run.execution`: it belongs to this package, which the other only uses.
"""The running side: a socket of the file system on which a run can be watched and steered.

Nobody but the user who started the run can open it. It costs nothing while nobody is connected, and who is
connected cannot hold the run up: somebody who does not read is told the newest when he does, and is dropped
if that takes long; at the end nobody is waited for. What comes in is refused or obeyed, and never harms
the run.
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
from trioeval.report.run_state import RunState
from trioeval.web.live_client import (
    LONGEST_COMMAND,
    VERSION,
    Lines,
    NewRows,
    NotAMessageError,
    to_line,
    to_message,
)
from trioeval.web.sockets import is_same_user, listen_for, process_of, remove

# What a run lets be seen and changed of it while it goes on.


_WIDEST = 10_000  # calls in flight; more is a slip of the hand
_RATES = (0.001, 1e9)  # a minute
_COMMANDS: Mapping[str, frozenset[str]] = {
    "pause": frozenset({"lane"}),
    "resume": frozenset({"lane"}),
    "retune": frozenset({"lane", "maxConcurrency", "rpm", "tpm"}),
    "stop": frozenset(),
    "cancel": frozenset(),
}
"""What each may say besides."""
_SHOWN = 80  # characters of what is refused


@attrs.frozen(kw_only=True, eq=False)
class Steering:
    """The wheel of one run. Everything is synchronous and happens at once, in the run's Trio thread."""

    run_id: str
    state: Callable[[], RunState]
    """How the run stands now. Its lanes are those that can be steered."""
    lanes: Lanes
    stop: Callable[[int | None], None]
    """Start no more rows; those under way finish. As the first Ctrl-C. It is given the number of the process
    that asks, or None."""
    cancel: Callable[[int | None], None]
    """End what is under way. As the second one."""

    def obey(self, command: Mapping[str, Any], process: int | None = None) -> str | None:
        """Do what a command says, all of it or nothing; synchronous, in the run's Trio thread.

        Args:
            command: As `trioeval.web.live_client.Live.ask` has it; nothing of it is trusted.
            process: Who has sent it; None if that is not known.

        Returns:
            Why it is refused; None if it was done.
        """
        do = command.get("do")
        if not isinstance(do, str) or do not in _COMMANDS:
            return f"do must be one of {', '.join(_COMMANDS)}, got {_cut(do)}"
        if unknown := sorted(set(command) - _COMMANDS[do] - {"do"}):
            return f"{do} takes no {_cut(unknown[0])}"
        if do == "stop":
            self.stop(process)
            return None
        if do == "cancel":
            self.cancel(process)
            return None
        lane = self._lane(command.get("lane"))
        if isinstance(lane, str):
            return lane
        match do:
            case "pause":
                lane.pause()
            case "resume":
                lane.resume()
            case _:
                return _retune(lane, command)
        return None

    def _lane(self, name: object) -> Lane | str:
        """A lane, or why there is none of that name."""
        known = [lane.name for lane in self.state().lanes]
        if not isinstance(name, str) or name not in known:
            return f"there is no lane {_cut(name)}; the lanes are {', '.join(map(_cut, known))}"
        return self.lanes[name]


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
        # What it may refuse comes first: then nothing of it was done.
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
    """What somebody else has sent, short enough to be told."""
    short = Repr()
    short.maxstring = short.maxother = short.maxlong = _SHOWN
    return short.repr(value)


TellRow: TypeAlias = Callable[[int | None, str | None], None]

_EVERY = 0.25  # seconds between two states
_SHARE = 50  # a state that takes long to make comes more rarely: at most this part of the time goes into it
_PATIENCE = 5.0  # seconds in which somebody reads what he is sent, or is dropped
_GOODBYE = 0.25  # seconds that the end of a run may take for those who watch
_REST = 0.01  # seconds between two commands of one watcher
_MOST = 64  # watchers at once

_GONE = (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError)

_log = logging.getLogger(__name__)


@asynccontextmanager
async def serve_live(
    steering: Steering | None, warn: Callable[[str], None] | None
) -> AsyncIterator[TellRow]:
    """Let a run be watched and steered, for as long as the block. `trioeval view` does both.

    Args:
        steering: The run; None lets nobody.
        warn: Told where it cannot be; the run goes on all the same. None says nothing of it.

    Yields:
        What to call when there is a new row, with its index and task.
    """
    listening = None if steering is None else _listen(steering.run_id, warn)
    if steering is None or listening is None:
        await trio.lowlevel.checkpoint()
        yield _tell_nobody
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
            warn(f"this run cannot be watched: {error}")
        return None


def _tell_nobody(_index: int | None, _task: str | None) -> None:
    """Nobody watches."""


@attrs.define(eq=False)
class _Watcher:
    """Somebody who is connected."""

    stream: trio.SocketStream
    rows_told: int
    """How many rows there were when he was told of them last."""
    sending: trio.StrictFIFOLock = attrs.field(factory=trio.StrictFIFOLock)

    async def send(self, *messages: bytes) -> None:
        """Send whole messages.

        Raises:
            TooSlowError: He does not read.
            BrokenResourceError: He is gone.
        """
        with trio.fail_after(_PATIENCE):
            async with self.sending:
                await self.stream.send_all(b"".join(messages))


@attrs.define(eq=False)
class _LiveServer:
    """Everything that is served of one run."""

    steering: Steering
    rows: NewRows = attrs.field(factory=NewRows)
    _watchers: int = 0
    _over: trio.Event = attrs.field(factory=trio.Event)
    _accepting: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _state: bytes = b""
    """The newest one that was made."""
    _state_until: float = float("-inf")
    """When it is too old."""

    async def accept(self, listening: socket.socket, watchers: trio.Nursery) -> None:
        """Serve whoever connects, until `end`."""
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
        try:
            with self._accepting:
                await trio.serve_listeners(self._serve, [listener], handler_nursery=watchers)
        except Exception:  # noqa: BLE001 - told, and no harm to the run
            _log.exception("a run cannot be watched any more; it goes on")

    def end(self) -> None:
        """The run is over: tell it those who watch, and let no more come."""
        self._over.set()
        self._accepting.cancel("the run is over")

    async def _serve(self, stream: trio.SocketStream) -> None:
        async with stream:
            if self._watchers == _MOST or not is_same_user(stream.socket):
                return
            self._watchers += 1
            try:
                watcher = _Watcher(stream, self.rows.count)
                async with trio.open_nursery() as nursery:
                    for work in (self._tell, self._hear):
                        nursery.start_soon(_until_over, work, watcher, nursery.cancel_scope)
            finally:
                self._watchers -= 1

    async def _tell(self, watcher: _Watcher) -> None:
        """Tell somebody how the run stands, again and again, and at its end once more."""
        hello = {"type": "hello", "version": VERSION, "run": self.steering.run_id}
        await watcher.send(to_line(hello))
        over = False
        while not over:
            over = self._over.is_set()
            await watcher.send(*self._news(watcher, fresh=over))
            with trio.move_on_at(self._state_until):
                await self._over.wait()

    async def _hear(self, watcher: _Watcher) -> None:
        """Obey somebody's commands, one after another."""
        lines = Lines(watcher.stream, LONGEST_COMMAND)
        try:
            while (line := await lines.next()) is not None:
                await self._answer(watcher, line)
                await trio.sleep(_REST)
        except NotAMessageError as error:
            await watcher.send(_answer_line(None, str(error)))

    async def _answer(self, watcher: _Watcher, line: bytes) -> None:
        try:
            command = to_message(line)
        except NotAMessageError as error:
            await watcher.send(_answer_line(None, str(error)))
            return
        number = command.pop("id", None)
        if type(number) is not int:
            await watcher.send(_answer_line(None, "a command has an id, a whole number"))
            return
        refused = self.steering.obey(command, process_of(watcher.stream.socket))
        # Shielded: the command may have cancelled what this is a part of.
        with trio.CancelScope(shield=True, relative_deadline=_GOODBYE) as scope:
            await watcher.send(_answer_line(number, refused))
        if scope.cancelled_caught:  # perhaps in the middle of the line
            raise trio.TooSlowError

    def _news(self, watcher: _Watcher, *, fresh: bool) -> list[bytes]:
        """What somebody is to be told now."""
        now = trio.current_time()
        if fresh or now >= self._state_until:
            self._state = to_line({"type": "state", "state": self.steering.state().json()})
            took = trio.current_time() - now
            self._state_until = now + max(_EVERY, _SHARE * took)
        rows, missed = self.rows.since(watcher.rows_told)
        watcher.rows_told = self.rows.count
        if not rows and not missed:
            return [self._state]
        return [to_line({"type": "rows", "rows": rows, "missed": missed}), self._state]


async def _until_over(
    work: Callable[[_Watcher], Awaitable[None]], watcher: _Watcher, scope: trio.CancelScope
) -> None:
    """Do what is done for somebody, and end all of that with it; a fault of ours is no harm to the run."""
    try:
        await work(watcher)
    except _GONE:
        pass
    except Exception:  # noqa: BLE001 - told, and no harm to the run
        _log.exception("somebody who watches a run cannot be served; it goes on")
    scope.cancel("nobody is served any more")


def _answer_line(number: int | None, refused: str | None) -> bytes:
    answer: Mapping[str, Any] = {"type": "answer", "id": number, "ok": refused is None}
    return to_line(answer if refused is None else {**answer, "error": refused})

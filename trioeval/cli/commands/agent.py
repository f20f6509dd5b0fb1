"""Commands for agent programs, which connect to their run by a socket, and for queued cases."""

import json
import os
import signal
import socket
import subprocess
import sys
from typing import Annotated, Any, NoReturn

import attrs
import cyclopts
from cyclopts import Parameter

from trioeval.agent.slots import SOCKET_VARIABLE
from trioeval.cli.commands.bus import RUN_VARIABLE
from trioeval.cli.flag_types import Database, Whole
from trioeval.cli.terminal import Exit, say, show
from trioeval.errors import AgentError, UsageError

agent = cyclopts.App(name="agent")

_Word = Annotated[str, Parameter(allow_leading_hyphen=True)]
CHILD_VARIABLE = "TRIOEVAL_CHILD"
_CANNOT_RUN = 127


@agent.command(name="submit")
def submit(command: str, /, *words: _Word) -> int:
    """Submit a child run, which starts when it has a run slot, and print its number at once.

    Parameters
    ----------
    command
        The program.
    words
        Its arguments; no shell is involved. Write `--` before a `--help` that is one of them.
    """
    channel = _Channel.open()
    number = channel.ask(do="submit", by=_speaker())["id"]
    show(number)
    sys.stdout.flush()
    if os.fork() == 0:
        _run_child(channel, number, [command, *words])
    return Exit.OK


@agent.command(name="wait")
def wait(*children: int) -> int:
    """Release the run slot until child runs have ended; fail if one of them failed.

    Parameters
    ----------
    children
        The numbers of the child runs; by default all that the same attempt or child has submitted.
    """
    reply = _Channel.open().ask(do="wait", by=_speaker(), ids=[*children])
    if "refused" in reply:
        raise UsageError(reply["refused"])
    for number, code in reply["ended"].items():
        show(f"{number} {'killed' if code is None else code}")
    return Exit.FAILED if any(reply["ended"].values()) else Exit.OK


@agent.command(name="cancel")
def cancel(case: str, /, *, db: Database = None) -> int:
    """Cancel a queued case: its agent is not started, and its row is an error.

    Parameters
    ----------
    case
        Its number in `trioeval runs --queue`, or its id there.
    """
    from trioeval.cli.commands.run_queue import cancel_case

    return cancel_case(db, case)


@agent.command(name="limit")
def limit(most: Whole, /, *, db: Database = None) -> int:
    """Set how many cases run at once, over all programs that share the database; no running case is stopped.

    Parameters
    ----------
    most
        The number of cases, overriding suites; 0 restores the settings of the suites.
    """
    from trioeval.cli.commands.run_queue import limit_line

    return limit_line(db, most)


def _speaker() -> list[Any]:
    """Return the attempt in which this is called, and the number of the child or 0."""
    child = os.environ.get(CHILD_VARIABLE, "")
    return [os.environ.get(RUN_VARIABLE, ""), int(child) if child.isdecimal() else 0]


def _run_child(channel: "_Channel", number: int, command: list[str]) -> NoReturn:
    """Hold the slot for as long as the command runs, in the process that a submission leaves behind."""
    code = _CANNOT_RUN
    try:
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, signal.SIG_DFL)
        os.dup2(2, 1)  # the reader of the number must not wait for the end of the child
        message = channel.receive()
        if "begin" in message:
            environ = {**os.environ, CHILD_VARIABLE: str(number)}
            code = subprocess.run(command, env=environ, check=False).returncode  # noqa: S603
        else:
            say(f"child run {number} does not start: {message.get('refused', 'the run has ended')}")
        channel.send(exit=code)
    except OSError as error:
        say(f"child run {number} cannot be started: {error}")
        channel.send(exit=code)
    finally:
        os._exit(0)


@attrs.frozen
class _Channel:
    """The connection to the run that has started this program."""

    _socket: socket.socket

    @classmethod
    def open(cls) -> "_Channel":
        """Connect to the run.

        Raises:
            UsageError: The caller is not an agent of a run.
            AgentError: Its case has ended.
        """
        path = os.environ.get(SOCKET_VARIABLE)
        if not path:
            raise UsageError(
                f"child runs are only available to agent programs of a run: {SOCKET_VARIABLE} is not set"
            )
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            channel.connect(path)
        except OSError as error:
            channel.close()
            raise AgentError(f"{path}: the run is unreachable: {error.strerror}") from error
        return cls(channel)

    def ask(self, **message: Any) -> dict[str, Any]:
        """Send a line, and return the next one.

        Raises:
            AgentError: The case has ended.
        """
        self.send(**message)
        answer = self.receive()
        if not answer:
            raise AgentError(
                "the case has ended: child runs cannot be submitted or awaited any more"
            )
        return answer

    def send(self, **message: Any) -> None:
        """Send a line."""
        self._socket.sendall(f"{json.dumps(message)}\n".encode())

    def receive(self) -> dict[str, Any]:
        """Return the next line; empty at the end."""
        line = b""
        while not line.endswith(b"\n"):
            part = self._socket.recv(1)
            if not part:
                return {}
            line += part
        found: dict[str, Any] = json.loads(line)
        return found

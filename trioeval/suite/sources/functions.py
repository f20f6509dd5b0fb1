"""Functions of the user's that are called while a suite is loaded, each time in a process of its own.

Nothing that such a function does can hurt the run: it has a limit of time, and with it ends everything in
its process group. So it does when this process is killed, by a pipe whose other end nobody else holds, and
when whoever wants the suite gives up (`Calls`). Question and answer are files without a name, so that
neither what the function prints nor what it leaves unread can stop the other side.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from trioeval.grading import quote
from trioeval.suite.mistakes import Mistake, MistakenError
from trioeval.suite.sources import one_shot
from trioeval.suite.sources.around import Around

LIMIT = 60.0
"""Seconds that the calls of one function may take together."""

_PRINTED = 2048

_calls: ContextVar["Calls | None"] = ContextVar("calls", default=None)


class Calls:
    """The processes that one thread starts while it loads a suite, so that another can end them.

    They are noted in the context of that thread: what loads a suite goes through many hands that have
    nothing to do with processes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._ended = False

    @contextmanager
    def noted(self) -> Generator[None]:
        """Note what is started within the block."""
        token = _calls.set(self)
        try:
            yield
        finally:
            _calls.reset(token)

    def start(self, start: Callable[[], "subprocess.Popen[bytes]"]) -> "subprocess.Popen[bytes]":
        """Start a process, unless all have been ended.

        Raises:
            MistakenError: Nobody waits any more for what it would say.
            OSError: It cannot be started.
        """
        with self._lock:
            if self._ended:
                raise MistakenError(Mistake("loading was given up"))
            process = start()
            self._running.add(process)
        return process

    def forget(self, process: "subprocess.Popen[bytes]") -> None:
        """Note that a process has ended."""
        with self._lock:
            self._running.discard(process)

    def end(self) -> None:
        """End all processes and let none be started any more; waits until they have ended."""
        with self._lock:
            self._ended = True
            running = tuple(self._running)
        for process in running:
            _kill(process)


def call_function(
    file: Path, function: str, arguments: Sequence[Any], around: Around, limit: float = LIMIT
) -> Any:
    """What a function of a Python file returns.

    Args:
        file: Absolute.
        function: Its name; it may be async, for asyncio.
        arguments: JSON.
        around: Where it runs, with which environment and, by its `PYTHON`, with which interpreter.
        limit: Seconds that it may take, > 0.

    Raises:
        MistakenError: It cannot be called, raises, takes longer, or returns what is not JSON.
    """
    return call_for_each(file, function, [arguments], around, limit=limit)[0]


def call_for_each(
    file: Path,
    function: str,
    calls: Sequence[Sequence[Any]],
    around: Around,
    *,
    limit: float = LIMIT,
    executable: str | None = None,
    shown: str | None = None,
) -> list[Any]:
    """What a function returns for each of several lists of arguments, in one process.

    Args:
        file: As for `call_function`, and so the others.
        function: Its name.
        calls: The arguments of each call.
        around: Where it runs.
        limit: Seconds for all calls together.
        executable: The interpreter; None takes the one that the environment names.
        shown: What messages call it, if that is no function of the user's.

    Raises:
        MistakenError: As for `call_function`. For the first call that fails its path begins with the
            position of that call, if there are several.
    """
    name = shown or f"{function} of {quote(file.name)}"
    around.check_code(name)
    if around.trust.code == "later":
        raise MistakenError(Mistake(f"{name} runs when the suite runs, and not before"))
    question = {"file": str(file), "function": function, "calls": [list(call) for call in calls]}
    with (
        tempfile.TemporaryFile() as asked,
        tempfile.TemporaryFile() as answered,
        tempfile.TemporaryFile() as printed,
    ):
        asked.write(json.dumps(question, default=str).encode())
        asked.seek(0)
        interpreter = executable or around.variable("PYTHON") or sys.executable
        under_way = _calls.get() or Calls()
        with _lifeline() as lifeline:
            descriptors = [asked.fileno(), answered.fileno(), lifeline]
            try:
                process = under_way.start(
                    lambda: subprocess.Popen(  # noqa: S603 - the user's own code, by an absolute path
                        [interpreter, one_shot.__file__, *map(str, descriptors)],
                        cwd=around.directory,
                        env=dict(around.environ),
                        stdin=subprocess.DEVNULL,
                        stdout=printed,
                        stderr=subprocess.STDOUT,
                        pass_fds=descriptors,
                        start_new_session=True,
                    )
                )
            except OSError as error:
                message = f"{name}: {quote(interpreter)} cannot be started: {error.strerror}"
                raise MistakenError(Mistake(message)) from None
            ended = _wait(process, limit)
            under_way.forget(process)
        answered.seek(0)
        printed.seek(-min(_PRINTED, printed.seek(0, os.SEEK_END)), os.SEEK_END)
        answer, said = answered.read(), printed.read().decode("utf-8", "replace").strip()
    hint = f"it printed: {said.splitlines()[-1]}" if said else None
    if not ended:
        raise MistakenError(Mistake(f"{name} did not end within {limit:g} seconds", hint))
    if not answer:
        message = f"{name} ended without an answer, with exit code {process.returncode}"
        raise MistakenError(Mistake(message, hint))
    told = json.loads(answer)
    if failure := told.get("error"):
        line = None if shown else failure["line"]
        where = f"in line {line} of {file.name}" if line else None
        at = (failure["call"],) if len(calls) > 1 else ()
        hint = "; ".join(filter(None, (where, hint))) or None
        raise MistakenError(Mistake(f"{name} failed: {failure['what']}", hint, at=at))
    values: list[Any] = told["values"]
    return values


@contextmanager
def _lifeline() -> Generator[int]:
    """The end of a pipe for a process whose group is to end when this process is killed."""
    watched, held = os.pipe()
    try:
        yield watched
    finally:
        os.close(watched)
        os.close(held)


def _wait(process: subprocess.Popen[bytes], limit: float) -> bool:
    """Wait for a process, and end what is left of its group; whether it ended by itself."""
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        return False
    finally:
        _kill(process)
    return True


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

"""Functions of the user's that are called while a suite is loaded, each time in a process of its own.

Nothing that such a function does can hurt the run: it has a limit of time, and with it ends everything in
its process group. Question and answer are files without a name, so that neither what the function prints
nor what it leaves unread can stop the other side.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from trioeval.grading import quote
from trioeval.suite.mistakes import Mistake, MistakenError
from trioeval.suite.sources import one_shot
from trioeval.suite.sources.around import Around

LIMIT = 60.0
"""Seconds that the calls of one function may take together."""

_PRINTED = 2048


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
    question = {"file": str(file), "function": function, "calls": [list(call) for call in calls]}
    with (
        tempfile.TemporaryFile() as asked,
        tempfile.TemporaryFile() as answered,
        tempfile.TemporaryFile() as printed,
    ):
        asked.write(json.dumps(question, default=str).encode())
        asked.seek(0)
        interpreter = executable or around.variable("PYTHON") or sys.executable
        command = [interpreter, one_shot.__file__, str(asked.fileno()), str(answered.fileno())]
        try:
            process = subprocess.Popen(  # noqa: S603 - the user's own code, by an absolute path
                command,
                cwd=around.directory,
                env=dict(around.environ),
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                pass_fds=[asked.fileno(), answered.fileno()],
                start_new_session=True,
            )
        except OSError as error:
            message = f"{name}: {quote(interpreter)} cannot be started: {error.strerror}"
            raise MistakenError(Mistake(message)) from None
        ended = _wait(process, limit)
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


def _wait(process: subprocess.Popen[bytes], limit: float) -> bool:
    """Wait for a process, and end what is left of its group; whether it ended by itself."""
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        return False
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return True

"""Calls a function of the user while a suite is loaded, and ends.

Run by path, with any Python from 3.9 on, and so made of the standard library alone. Its arguments are three
descriptors: of a file with `{"file", "function", "calls"}`, where each call is a list of arguments; of one
for `{"values"}`, or for `{"error": {"what", "line", "call"}}` of the first call that fails; and of a pipe.
The output of the user's code goes elsewhere.

Nothing is written to the pipe: when its other end is closed, the parent process was killed. The process group
of this process is then killed as well, on Linux by the kernel itself, at any point.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import json
import os
import select
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_SHOWN = 200


def main() -> None:
    """Answer one request, and end without waiting for threads of the user's code."""
    request_file, answered, lifeline = map(int, sys.argv[1:])
    _end_with(lifeline)
    with os.fdopen(request_file, encoding="utf-8") as file:
        request = json.load(file)
    os.set_inheritable(answered, False)  # noqa: FBT003 - it takes no names
    sys.argv = [request["file"]]
    sys.path[0] = str(
        Path(request["file"]).parent
    )  # not the folder of this file: its modules are not the user's
    answer = json.dumps(_answer(request["file"], request["function"], request["calls"]))
    with os.fdopen(answered, "w", encoding="utf-8") as file:
        file.write(answer)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _end_with(lifeline: int) -> None:
    """Kill this process group as soon as the other end of a pipe is closed."""
    os.set_inheritable(lifeline, False)  # noqa: FBT003 - it takes no names
    try:
        from fcntl import F_GETFL, F_SETFL, F_SETOWN, F_SETSIG, fcntl
    except ImportError:
        threading.Thread(target=_watch, args=(lifeline,), daemon=True).start()
        return
    fcntl(lifeline, F_SETOWN, -os.getpgrp())
    fcntl(lifeline, F_SETSIG, signal.SIGKILL)
    fcntl(lifeline, F_SETFL, fcntl(lifeline, F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # it was closed before
        os.killpg(0, signal.SIGKILL)


def _watch(lifeline: int) -> None:
    os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)


def _answer(file: str, name: str, calls: list[list[Any]]) -> dict[str, Any]:
    values: list[Any] = []
    try:
        function = _load(file, name)
        for arguments in calls:
            value = function(*arguments)
            if inspect.isawaitable(value):
                value = asyncio.run(_wait(value))
            values.append(_checked(value))
    except Exception as error:  # noqa: BLE001 - any exception of the user's code is an answer
        return {"error": {**_describe(error, file), "call": len(values)}}
    return {"values": values}


async def _wait(value: Any) -> Any:
    return await value


def _load(file: str, name: str) -> Callable[..., Any]:
    module_name = f"trioeval_suite_{Path(file).stem}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        msg = f"{file} is not a Python file"
        raise ImportError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # before it runs: classes look up their module there
    spec.loader.exec_module(module)
    function: Any = module
    for part in name.split("."):  # a class, and one of its static methods
        function = getattr(function, part, None)
    if not callable(function):
        known = sorted(key for key, value in vars(module).items() if inspect.isfunction(value))
        msg = f"function {name} not found; known are {', '.join(known) or 'none'}"
        raise TypeError(msg)
    return function  # type: ignore[no-any-return] # it is callable


def _checked(value: Any) -> Any:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        got = f"{type(value).__name__}: {value!r}"
        msg = f"the result must be JSON, got {got[:_SHOWN]}"
        raise TypeError(msg) from error
    return value


def _describe(error: Exception, file: str) -> dict[str, Any]:
    """Return the error on one line, and the last line of the user's file in its traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    if isinstance(error, SyntaxError) and error.filename == file:
        lines = [error.lineno]
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return {"what": what[:_SHOWN], "line": lines[-1] if lines else None}


if __name__ == "__main__":
    main()

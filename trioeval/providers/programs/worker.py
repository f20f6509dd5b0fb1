"""A worker process: loads one of the user's files, and calls one of its functions for each request.

Run by path, with any Python from 3.9 on, so it uses the standard library only. Its arguments are the
descriptors of a socket and of a pipe, the file, the name of the function, the maximum bytes of a message, and
the maximum mebibytes of memory, or 0. Messages on the socket are JSON after four bytes of length: `{"id",
"arguments"}` is answered by `{"id", "value"}` or by `{"id", "error": {"what", "trace", "loading", "spent",
"keeps", "large"}}`. A worker that is spent takes no further request. A request with `"continues": true`
continues earlier calls of the same execution: the first one in a process is refused if the function keeps
state in its modules, because that state is in another process, or lost. Output of the user's code is
redirected, and a process that it forks ends when it returns from that code, so that only one process answers.

When the other end of the socket is closed, the worker ends; if that takes too long, its process group is
killed. Nothing is ever written to the pipe: its other end is closed only when the process that has started
the worker was killed. On Linux the system itself then kills the process group, whatever the worker is doing,
even if it never lets another thread run. A signal tied to the death of the parent would not work: it is sent
when the thread that has started the worker ends.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import copy
import importlib.util
import inspect
import json
import os
import pickle
import queue
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

GRACE = 1.5
"""Maximum seconds for a worker to end by itself."""

_ENVELOPE = 64
"""Bytes of an answer besides its result."""

LENGTH = struct.Struct("!I")
"""The length before each message."""

FAILURES: tuple[type[BaseException], ...] = (
    Exception,
    asyncio.CancelledError,
    getattr(builtins, "BaseExceptionGroup", Exception),  # from 3.11 on
)
"""Exceptions that concern only the call that raises them."""

_SHOWN = 200
_TRACE = 2048


def main() -> None:
    """Answer requests until the socket is closed."""
    descriptor, lifeline, file, name, largest, memory = sys.argv[1:]
    _end_with(int(lifeline))
    _bound_memory(int(memory))
    own = os.getpid()
    channel = socket.socket(fileno=int(descriptor))
    channel.set_inheritable(False)
    requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(channel, requests), daemon=True).start()
    sys.argv = [file]
    sys.path[0] = str(Path(file).parent)  # not this folder: its modules are not the user's
    function = _Function(file, name)
    while (request := requests.get()) is not None:
        try:
            answer = function.answer(json.loads(request), int(largest))
        finally:
            if error := sys.exc_info()[1]:
                _exit(error)
            if os.getpid() != own:
                os._exit(0)
        channel.sendall(LENGTH.pack(len(answer)) + answer)


def _exit(error: BaseException) -> NoReturn:
    """End like Python, but without waiting for threads of the user's code."""
    with contextlib.suppress(OSError, ValueError):  # it may be closed
        sys.stderr.write(describe(error)["trace"])
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    code = error.code if isinstance(error, SystemExit) else 1
    if code is None:
        code = 0
    os._exit(code & 0xFF if isinstance(code, int) else 1)


def _end_with(lifeline: int) -> None:
    """Let the system kill this process group as soon as the other end of a pipe is closed."""
    os.set_inheritable(lifeline, False)  # noqa: FBT003 - it accepts no keyword
    try:
        from fcntl import F_GETFL, F_SETFL, F_SETOWN, F_SETSIG, fcntl
    except ImportError:  # elsewhere `_listen` has to suffice
        return
    fcntl(lifeline, F_SETOWN, -os.getpgrp())
    fcntl(lifeline, F_SETSIG, signal.SIGKILL)
    fcntl(lifeline, F_SETFL, fcntl(lifeline, F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # closed already
        os.killpg(0, signal.SIGKILL)


def _bound_memory(mebibytes: int) -> None:
    """Limit the writable memory of this process, and of each that it starts."""
    if mebibytes:
        from resource import RLIMIT_DATA, getrlimit, setrlimit

        most = getrlimit(RLIMIT_DATA)[1]
        bound = mebibytes * 1024 * 1024
        bound = bound if most < 0 else min(bound, most)  # RLIM_INFINITY may be -1
        setrlimit(RLIMIT_DATA, (bound, bound))


class _Function:
    """The user's function; loaded on the first request, so that a failure to load is an answer."""

    def __init__(self, file: str, name: str) -> None:
        self._file = file
        self._name = name
        self._function: Callable[..., Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_fresh = True

    def answer(self, request: dict[str, Any], largest: int) -> bytes:
        try:
            if self._function is None:
                self._function = load(self._file, self._name)
            continues = request.get("continues", False) and self._is_fresh
            self._is_fresh = False
            arguments = request["arguments"]
            value = self._continue(arguments) if continues else self._call(arguments)
            return _encode(request["id"], value, largest)
        except FAILURES as error:  # any exception of the user's code is an answer
            # An exception may still reference the memory, which would make the next call fail.
            spent = isinstance(error, MemoryError)
            failure = {
                **describe(error),
                "loading": self._function is None,
                "spent": spent,
                "keeps": isinstance(error, _StateInThisProcessError),
                "large": isinstance(error, ResultTooLargeError),
            }
            return json.dumps({"id": request["id"], "error": failure}).encode()

    def _call(self, arguments: list[Any]) -> Any:
        value = self._function(*arguments)  # type: ignore[misc] # it is loaded
        return self._wait_for(value) if inspect.isawaitable(value) else value

    def _continue(self, arguments: list[Any]) -> Any:
        """Make the first call of this process, for a function that other processes have called before.

        Data that only the first call changes was loaded; data that the second call changes too is state.
        """
        again = copy.deepcopy(arguments)
        before = _module_state(self._file)
        value = self._call(arguments)
        between = _module_state(self._file)
        if any(before.get(name) != now for name, now in between.items()):
            self._call(again)
            after = _module_state(self._file)
            names = sorted(name for name in after if between.get(name) != after[name])
            if names:
                raise _StateInThisProcessError(", ".join(names))
        return value

    def _wait_for(self, value: Any) -> Any:
        # One loop for all calls: clients that the user's code keeps belong to it.
        if self._loop is None:
            self._loop = asyncio.new_event_loop()

        async def wait() -> Any:
            return await value

        return self._loop.run_until_complete(wait())


class ResultTooLargeError(ValueError):
    """A result with more bytes than its caller accepts."""


class _StateInThisProcessError(Exception):
    """A function keeps state between calls that this process does not have."""


def _module_state(file: str) -> dict[str, Any]:
    """Return the data of the modules in a file's folder, by name, as comparable values."""
    folder, found = str(Path(file).parent), dict[str, Any]()
    for module in tuple(sys.modules.values()):
        origin = getattr(module, "__file__", None)
        if not isinstance(origin, str) or str(Path(origin).parent) != folder:
            continue
        for name, value in tuple(vars(module).items()):
            if not name.startswith("__") and not inspect.ismodule(value):
                found[name] = _comparable(_data_of(value))
    generator = sys.modules.get("random")
    if generator is not None:
        found["random"] = generator.getstate()
    return found


def _data_of(value: Any) -> Any:
    """Return the data of a function or a class besides its code; any other value itself."""
    if inspect.isfunction(value):
        cells = [_cell(cell) for cell in value.__closure__ or ()]
        return [value.__defaults__, value.__kwdefaults__, value.__dict__, cells]
    if inspect.isclass(value):
        own = vars(value).items()
        return {k: v for k, v in own if not k.startswith("__") and not inspect.isroutine(v)}
    if inspect.isgenerator(value):
        return [value.gi_frame and (value.gi_frame.f_lasti, dict(value.gi_frame.f_locals))]
    return value


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # an empty cell
        return None


def _comparable(value: Any) -> Any:
    with contextlib.suppress(Exception):  # the user's code may raise anything
        return pickle.dumps(value)
    if isinstance(value, (list, tuple)):
        return [_comparable(one) for one in value]
    if isinstance(value, dict):
        return {repr(key): _comparable(one) for key, one in value.items()}
    attributes = getattr(value, "__dict__", None)
    return id(value) if attributes is None else {key: id(one) for key, one in attributes.items()}


def load(file: str, name: str) -> Callable[..., Any]:
    """Load a function of a file, or `Class.method`; the file is run as a module with a unique name.

    Raises:
        Exception: Any exception of the file; `AttributeError`, `TypeError`: it has no such function.
    """
    module_name = f"trioeval_provider_{Path(file).stem}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        msg = f"{file} is not a Python file"
        raise ImportError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # before it runs: classes look up their module there
    spec.loader.exec_module(module)
    function: Any = module
    for part in name.split("."):  # a class, and a method of it that needs no object
        function = getattr(function, part, None)
    if not callable(function):
        msg = f"function {name} not found in {file}"
        raise TypeError(msg)
    return function  # type: ignore[no-any-return] # it is callable


def describe(error: BaseException) -> dict[str, str]:
    """Return the error on one line, and the end of its traceback, without the frames of this file."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace)
    what = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    return {"what": what[:_SHOWN], "trace": "".join(lines)[-_TRACE:]}


def _encode(call: int, value: Any, largest: int) -> bytes:
    try:
        message = json.dumps({"id": call, "value": value}, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        got = f"{type(value).__name__}: {value!r}"
        msg = f"the result must be JSON, got {got[:_SHOWN]}"
        raise TypeError(msg) from error
    if len(message) > largest + _ENVELOPE:
        msg = f"the result is {len(message)} bytes of JSON, more than the maximum of {largest}"
        raise ResultTooLargeError(msg)
    return message


def _listen(channel: socket.socket, requests: queue.SimpleQueue[bytes | None]) -> None:
    """Queue received requests; after the end of the socket, make sure that this process ends."""
    while (request := _receive(channel)) is not None:
        requests.put(request)
    requests.put(None)
    time.sleep(GRACE)  # this thread ends with the process, if that ends by itself
    os.killpg(0, signal.SIGKILL)


def _receive(channel: socket.socket) -> bytes | None:
    head = _receive_exactly(channel, LENGTH.size)
    return None if head is None else _receive_exactly(channel, LENGTH.unpack(head)[0])


def _receive_exactly(channel: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        try:
            part = channel.recv(min(size - len(data), 1 << 16))
        except OSError:
            return None
        if not part:
            return None
        data += part
    return bytes(data)


if __name__ == "__main__":
    main()

"""Worker processes that call a function of the user's: reused, one call at a time, replaced after failures.

A worker is started when a call finds no idle one, and stays for later calls. It communicates over its own
socket, so that output of the user's code cannot be mistaken for an answer. A worker whose call was cancelled,
took too long or ended without an answer may be in an unknown state, and is ended with all processes it has
started. Calls wait in order, so that there are never more workers than allowed.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from trioeval.errors import Fault, ProviderError
from trioeval.executables import start_failure
from trioeval.providers.bounds import has_more_marks, most_marks
from trioeval.providers.http.replies import read_json
from trioeval.providers.programs import worker as program
from trioeval.providers.programs.exec import OutputTail, last_line, read_stream
from trioeval.providers.programs.processes import (
    GRACE,
    KILLED_WITHIN,
    Tree,
    describe_end,
    start_tree,
)
from trioeval.scripting import WORKER
from trioeval.scripting.node import node_command

LARGEST = 64 * 1024 * 1024
"""Maximum bytes of a message to or from a worker."""

CRASHES = 3
"""Number of consecutive crashes after which the file counts as broken."""

GOODBYE = 1.0
"""Maximum seconds for idle workers to end by themselves when they are no longer needed."""

_LAST_WORDS = 1.0


class OutOfMemoryError(ProviderError):
    """A call that used up its memory."""


class KeptStateError(ProviderError):
    """A call that continues others, of a function with state that its new process does not have."""


@attrs.frozen
class Encoded:
    """An argument that is already JSON, so that a long value for many calls is serialised once."""

    json: bytes = attrs.field(repr=lambda json: f"<{len(json)} bytes>")

    @classmethod
    def of(cls, value: Any) -> "Encoded":
        """Serialise a value as JSON; members of a list may already be encoded.

        Example:
            >>> Encoded.of([1, Encoded.of({"a": 2})]).json
            b'[1,{"a": 2}]'
        """
        if not isinstance(value, list):
            return cls(json.dumps(value).encode())
        return cls(b"[%b]" % b",".join(_encoded(member) for member in value))


def _encoded(value: Any) -> bytes:
    return value.json if isinstance(value, Encoded) else json.dumps(value).encode()


@attrs.frozen(kw_only=True)
class WorkerSpec:
    """The configuration of workers."""

    name: str
    """Name for messages."""
    executable: str
    file: Path
    """Absolute path."""
    function: str
    cwd: Path
    """Absolute path."""
    environ: Mapping[str, str] = attrs.field(repr=False)
    workers: int = 1
    """Maximum number of workers, ≥ 1."""
    memory_mb: int = 0
    """Maximum memory of each for its data in mebibytes, where the system supports it; 0 for no limit."""
    program: Path = Path(program.__file__)
    """The script that the executable runs: a worker in its language."""
    grace: float = GRACE
    """Seconds between the request to terminate and the kill, ≥ 0."""
    limit_key: str | None = "timeoutMs"
    """The suite key of the time limit of a call, for messages."""
    largest: int = LARGEST
    """Maximum bytes of a result as JSON."""
    size_key: str | None = None
    """The suite key of that maximum, for messages."""

    @classmethod
    def in_node(
        cls,
        name: str,
        file: Path,
        target: str,
        cwd: Path,
        environ: Mapping[str, str],
        **more: Any,
    ) -> "WorkerSpec":
        """Return workers of Node that call a function of JavaScript.

        Args:
            name: Name for messages.
            file: Absolute; `WORKER` for code outside of files.
            target: The function, as `worker.mjs` describes.
            cwd: Working directory; absolute.
            environ: Their environment.
            more: Further attributes.
        """
        return cls(
            name=name,
            executable="node",
            file=file,
            function=target,
            cwd=cwd,
            environ=environ,
            program=WORKER,
            **more,
        )

    @classmethod
    def of_own(
        cls, name: str, file: str, cwd: Path, environ: Mapping[str, str], workers: int
    ) -> "WorkerSpec":
        """Return workers of this interpreter that call `run` of one of our own files.

        Args:
            name: Name for messages.
            file: The `__file__` of its module.
            cwd: Working directory; absolute.
            environ: Their environment.
            workers: Maximum number, ≥ 1.
        """
        return cls(
            name=name,
            executable=sys.executable,
            file=Path(file),
            function="run",
            cwd=cwd,
            environ=environ,
            workers=workers,
        )


@asynccontextmanager
async def open_workers(spec: WorkerSpec) -> AsyncGenerator["Workers"]:
    """Open workers for the time of the block; each is started when first needed, and ends with the block."""
    workers = Workers(spec)
    try:
        yield workers
        await workers.dismiss()
    finally:
        # No worker may outlive the run, even a cancelled one: test_workers.py.
        with trio.move_on_after(spec.grace + 2 * KILLED_WITHIN, shield=True):
            await workers.aclose()


@attrs.define(eq=False, repr=False)
class Workers:
    """The workers of one provider; obtained from `open_workers` only."""

    _spec: WorkerSpec
    _places: trio.CapacityLimiter = attrs.field(init=False)
    _idle: list["_Worker"] = attrs.field(init=False, factory=list)
    _crashes: int = attrs.field(init=False, default=0)
    """Number of consecutive crashes."""

    @_places.default
    def _as_many_as_allowed(self) -> trio.CapacityLimiter:
        return trio.CapacityLimiter(self._spec.workers)

    async def call(self, arguments: Sequence[Any], limit: float, *, continues: bool = False) -> Any:
        """Call the function in a worker, when one is free. Always a checkpoint.

        Args:
            arguments: JSON, or encoded.
            limit: Maximum seconds of the call, > 0; the wait for a worker does not count, the start of one
                does.
            continues: Whether it may depend on earlier calls, perhaps in another process.

        Returns:
            The function's result.

        Raises:
            OutOfMemoryError: `unexpected` (the function used up its memory).
            KeptStateError: `unexpected` (the call continues others, whose state is missing).
            ProviderError: `unexpected` (the function raised), `attempt_timeout`, `worker_crashed` or
                `bad_request` (the arguments are too large).
        """
        message = Encoded.of(list(arguments)).json
        if len(message) > LARGEST:
            size = f"{len(message)} bytes, more than the maximum of {LARGEST}"
            raise ProviderError(
                "bad_request", f"{self._spec.name}: prompt and variables are {size}"
            )
        async with self._places:
            worker: _Worker | None = None
            answer: Mapping[str, Any] | None = None
            try:
                with trio.move_on_after(limit) as scope:
                    worker = await self._take()
                    answer = await worker.ask(message, continues=continues)
            finally:
                if answer is not None and worker is not None and not _is_spent(answer):
                    self._idle.append(worker)
                elif worker is not None:
                    # Its state is unknown: test_workers.py, …_is_replaced.
                    with trio.move_on_after(self._spec.grace + 2 * KILLED_WITHIN, shield=True):
                        await worker.aclose()
            if answer is None:
                raise self._failure(worker, limit, timed_out=scope.cancelled_caught)
        self._crashes = 0
        return self._read(answer)

    async def dismiss(self) -> None:
        """Let idle workers end by themselves, within a short time. A checkpoint if there are any."""
        with trio.move_on_after(GOODBYE):
            async with trio.open_nursery() as nursery:
                for worker in self._idle:
                    nursery.start_soon(worker.wait)

    async def aclose(self) -> None:
        """End all idle workers at once; no call may be running."""
        async with trio.open_nursery() as nursery:
            while self._idle:
                nursery.start_soon(self._idle.pop().aclose)

    async def _take(self) -> "_Worker":
        """Return an idle worker, or a new one."""
        while self._idle:
            worker = self._idle.pop()
            if worker.is_alive:
                return worker
            await worker.aclose()
        try:
            return await _start_worker(self._spec)
        except OSError as error:
            what = start_failure(self._spec.executable, error)
            raise ProviderError("server", f"{self._spec.name}: {what}") from error

    def _failure(self, worker: "_Worker | None", limit: float, *, timed_out: bool) -> ProviderError:
        """Return the error for a call without an answer."""
        printed = None if worker is None else worker.printed
        if timed_out or worker is None:
            key = f" ({self._spec.limit_key})" if self._spec.limit_key else ""
            message = f"{self._spec.name} did not answer within {limit:g} seconds{key}"
            return ProviderError("attempt_timeout", message, body_excerpt=printed)
        self._crashes += 1
        message = f"{self._spec.name}: the worker {worker.fate}{last_line(printed)}"
        if self._crashes < CRASHES:
            return ProviderError("worker_crashed", message, body_excerpt=printed)
        message = f"{message}; {self._crashes} crashes in a row"
        return ProviderError("worker_crashed", message, body_excerpt=printed, fault=Fault.FATAL)

    def _read(self, answer: Mapping[str, Any]) -> Any:
        error = answer.get("error")
        if error is None:
            return answer.get("value")
        # A file that cannot be loaded fails every call; an exception of the function fails only its own.
        if error.get("keeps"):
            state = error["what"].rpartition(": ")[2]
            raise KeptStateError(
                "unexpected", f"{self._spec.name} keeps state from call to call: {state}"
            )
        failure = OutOfMemoryError if _is_spent(answer) else ProviderError
        key = f" ({self._spec.size_key})" if error.get("large") and self._spec.size_key else ""
        raise failure(
            "unexpected",
            f"{self._spec.name}: {error['what']}{key}",
            body_excerpt=error["trace"] or None,
            fault=Fault.FATAL if error["loading"] else None,
        )


def _is_spent(answer: Mapping[str, Any]) -> bool:
    """Return whether a worker that gave this answer must not be used again."""
    return bool((answer.get("error") or {}).get("spent"))


@trio.lowlevel.enable_ki_protection  # as for `start_tree`
async def _start_worker(spec: WorkerSpec) -> "_Worker":
    with ExitStack() as theirs, ExitStack() as unless_started:
        ours, channel = socket.socketpair()
        unless_started.callback(ours.close)
        theirs.callback(channel.close)
        watched, write_end = os.pipe()
        unless_started.callback(os.close, write_end)
        theirs.callback(os.close, watched)
        if spec.program == WORKER:
            command = [*node_command(spec.environ, spec.memory_mb), str(WORKER)]
        else:
            unbuffered = ["-u"] if spec.program.suffix == ".py" else []
            command = [spec.executable, *unbuffered, str(spec.program)]
        descriptors = [str(channel.fileno()), str(watched)]
        limits = [str(spec.largest), str(spec.memory_mb)]
        tree = await start_tree(
            [*command, *descriptors, str(spec.file), spec.function, *limits],
            cwd=spec.cwd,
            environ=spec.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[channel.fileno(), watched],
            grace=spec.grace,
        )
        unless_started.pop_all()
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
    return _Worker(tree, stream, write_end, spec.largest)


@attrs.define(eq=False, repr=False)
class _Worker(trio.abc.AsyncResource):
    """One worker process."""

    _tree: Tree
    _channel: trio.SocketStream
    _lifeline: int
    """A descriptor; when its last copy is closed, the system kills the worker."""
    _largest: int
    """Maximum bytes of a result."""
    fate: str = attrs.field(init=False, default="is running")
    """The reason for a missing answer."""
    _printed: OutputTail = attrs.field(init=False, factory=OutputTail)
    _last_id: int = attrs.field(init=False, default=0)

    @property
    def is_alive(self) -> bool:
        """True if it has not ended."""
        return self._tree.process.poll() is None

    @property
    def printed(self) -> str | None:
        """The end of its output since the last call."""
        return self._printed.text

    async def ask(self, arguments: bytes, *, continues: bool) -> Mapping[str, Any] | None:
        """Return the answer to a call; None if there will be none, and the worker must be closed."""
        self._last_id += 1
        self._printed.clear()
        async with trio.open_nursery() as nursery:
            if self._tree.process.stdout is not None:
                nursery.start_soon(read_stream, self._tree.process.stdout, self._printed.feed)
            nursery.start_soon(self._watch)
            answer = await self._exchange(arguments, continues=continues)
            if answer is not None:
                nursery.cancel_scope.cancel("answered")
            else:  # if it has ended, its last output and its exit code arrive shortly
                nursery.cancel_scope.deadline = trio.current_time() + _LAST_WORDS
        if answer is None:
            code = self._tree.process.poll()
            self.fate = "sent no answer" if code is None else describe_end(code)
        return answer

    async def wait(self) -> None:
        """Close the socket, and wait until the worker has ended."""
        await self._channel.aclose()
        await self._tree.wait()

    async def aclose(self) -> None:
        """End it with all processes it has started, even if cancelled."""
        try:
            await self._tree.aclose()
        finally:
            self._channel.socket.close()
            os.close(self._lifeline)

    async def _watch(self) -> None:
        # A process left behind by a dead worker may hold the other end of the socket open.
        await self._tree.wait()
        await self._tree.end()

    async def _exchange(self, arguments: bytes, *, continues: bool) -> Mapping[str, Any] | None:
        member = b', "continues": true' if continues else b""
        request = b'{"id": %d%b, "arguments": %b}' % (self._last_id, member, arguments)
        try:
            await self._channel.send_all(program.LENGTH.pack(len(request)) + request)
            (size,) = program.LENGTH.unpack(await self._receive(program.LENGTH.size))
            answer = self._parsed(await self._receive(size)) if size <= LARGEST else None
        except trio.BrokenResourceError:
            return None
        known = isinstance(answer, Mapping) and answer.get("id") == self._last_id
        return answer if known else None

    def _parsed(self, written: bytes) -> Any:
        most = most_marks(self._largest)
        if not has_more_marks(written, most):
            return read_json(written)
        message = f"the result has more than {most:,} texts, brackets and commas as JSON"
        error = {"what": message, "trace": "", "loading": False, "large": True}
        return {"id": self._last_id, "error": error}

    async def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = await self._channel.receive_some(min(size - len(data), 1 << 16))
            if not part:
                raise trio.BrokenResourceError
            data += part
        return bytes(data)

"""Worker processes that call a function of the user's: warm, one call at a time, replaced when they fail.

A worker is started when a call finds none that is idle, and stays for later calls. It is asked over a
socket of its own, so that nothing that the user's code prints can be taken for an answer. A worker that is
not known to be fit for the next call, because its call was cancelled, took too long or ended without an
answer, is ended with everything it started. Calls wait meanwhile, in their order, so that there are never
more workers than allowed.
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
from trioeval.providers.bounds import has_more_marks, most_marks
from trioeval.providers.http.replies import read_json
from trioeval.providers.programs import worker as program
from trioeval.providers.programs.exec import Tail, last_line, read_stream
from trioeval.providers.programs.processes import (
    GRACE,
    KILLED_WITHIN,
    Tree,
    describe_end,
    start_tree,
)

LARGEST = 64 * 1024 * 1024
"""Bytes that a message to or from a worker may have."""

CRASHES = 3
"""Crashes in a row after which the file is given up."""

GOODBYE = 1.0
"""Seconds that idle workers have to end by themselves when no more is asked of them."""

_LAST_WORDS = 1.0


class OutOfMemoryError(ProviderError):
    """A call that took all the memory that there is for it."""


class KeptStateError(ProviderError):
    """A call that continues others, of a function that keeps state which its new process does not have."""


@attrs.frozen
class Encoded:
    """An argument that is JSON already: what is long, and told to many calls, is written once."""

    json: bytes = attrs.field(repr=lambda json: f"<{len(json)} bytes>")

    @classmethod
    def of(cls, value: Any) -> "Encoded":
        """A value as JSON; members of a list may be encoded.

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
    """What workers run."""

    name: str
    """For messages."""
    executable: str
    file: Path
    """Absolute."""
    function: str
    cwd: Path
    """Absolute."""
    environ: Mapping[str, str] = attrs.field(repr=False)
    workers: int = 1
    """How many at most, ≥ 1."""
    memory_mb: int = 0
    """Mebibytes that each may have for its data, where the system can tell; 0 does not limit them."""
    program: Path = Path(program.__file__)
    """What the executable runs: a worker in its language."""
    grace: float = GRACE
    """Seconds between the request to terminate and the kill, ≥ 0."""
    limit_key: str | None = "timeoutMs"
    """The suite key of the limit of a call, for messages."""
    largest: int = LARGEST
    """Bytes that a result may have as JSON."""
    size_key: str | None = None
    """The suite key of that bound, for messages."""

    @classmethod
    def of_own(
        cls, name: str, file: str, cwd: Path, environ: Mapping[str, str], workers: int
    ) -> "WorkerSpec":
        """Workers of this interpreter that call `run` of one of our own files.

        Args:
            name: See the fields, as for `cwd`, `environ` and `workers`.
            file: The `__file__` of its module.
            cwd: Absolute.
            environ: What they inherit.
            workers: How many at most, ≥ 1.
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
    """Workers for as long as the block; none is started before it is needed, and none outlives it."""
    workers = Workers(spec)
    try:
        yield workers
        await workers.dismiss()
    finally:
        # No worker may outlive the run, also when that is cancelled: test_workers.py.
        with trio.move_on_after(spec.grace + 2 * KILLED_WITHIN, shield=True):
            await workers.aclose()


@attrs.define(eq=False)
class Workers:
    """The workers of one provider; obtained from `open_workers` only."""

    _spec: WorkerSpec
    _places: trio.CapacityLimiter = attrs.field(init=False)
    _idle: list["_Worker"] = attrs.field(init=False, factory=list)
    _crashes: int = attrs.field(init=False, default=0)
    """In a row."""

    @_places.default
    def _as_many_as_allowed(self) -> trio.CapacityLimiter:
        return trio.CapacityLimiter(self._spec.workers)

    async def call(self, arguments: Sequence[Any], limit: float, *, continues: bool = False) -> Any:
        """Call the function in a worker, when one is free. Always a checkpoint.

        Args:
            arguments: JSON, or encoded.
            limit: Seconds that the call may take, > 0; those until a worker is free do not count, those
                in which one is started do.
            continues: Whether calls came before that it may depend on, perhaps in another process.

        Returns:
            What the function returned.

        Raises:
            OutOfMemoryError: `unexpected` (the function took all memory that there is for it).
            KeptStateError: `unexpected` (the call continues others, and what they left is not there).
            ProviderError: `unexpected` (the function raised), `attempt_timeout`, `worker_crashed` or
                `bad_request` (the arguments are too large).
        """
        message = Encoded.of(list(arguments)).json
        if len(message) > LARGEST:
            size = f"{len(message)} bytes, more than {LARGEST}"
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
                    # It may be in the middle of anything: test_workers.py, …_is_replaced.
                    with trio.move_on_after(self._spec.grace + 2 * KILLED_WITHIN, shield=True):
                        await worker.aclose()
            if answer is None:
                raise self._failure(worker, limit, timed_out=scope.cancelled_caught)
        self._crashes = 0
        return self._read(answer)

    async def dismiss(self) -> None:
        """Let idle workers end by themselves, for a short time. A checkpoint if there are any."""
        with trio.move_on_after(GOODBYE):
            async with trio.open_nursery() as nursery:
                for worker in self._idle:
                    nursery.start_soon(worker.wait)

    async def aclose(self) -> None:
        """End all idle workers at once; calls are over before."""
        async with trio.open_nursery() as nursery:
            while self._idle:
                nursery.start_soon(self._idle.pop().aclose)

    async def _take(self) -> "_Worker":
        """An idle worker, or a new one."""
        while self._idle:
            worker = self._idle.pop()
            if worker.is_alive:
                return worker
            await worker.aclose()
        try:
            return await _start_worker(self._spec)
        except OSError as error:
            what = f"{self._spec.executable} cannot be started: {error.strerror}"
            raise ProviderError("server", f"{self._spec.name}: {what}") from error

    def _failure(self, worker: "_Worker | None", limit: float, *, timed_out: bool) -> ProviderError:
        """What a call without an answer is."""
        printed = None if worker is None else worker.printed
        if timed_out or worker is None:
            key = f" ({self._spec.limit_key})" if self._spec.limit_key else ""
            what = f"{self._spec.name} did not answer within {limit:g} seconds{key}"
            return ProviderError("attempt_timeout", what, body_excerpt=printed)
        self._crashes += 1
        what = f"{self._spec.name}: the worker {worker.fate}{last_line(printed)}"
        if self._crashes < CRASHES:
            return ProviderError("worker_crashed", what, body_excerpt=printed)
        what = f"{what}; {self._crashes} crashes in a row"
        return ProviderError("worker_crashed", what, body_excerpt=printed, fault=Fault.FATAL)

    def _read(self, answer: Mapping[str, Any]) -> Any:
        error = answer.get("error")
        if error is None:
            return answer.get("value")
        # A file that cannot be loaded serves nobody; what a function raises concerns its call.
        if error.get("keeps"):
            kept = error["what"].rpartition(": ")[2]
            raise KeptStateError(
                "unexpected", f"{self._spec.name} keeps state from call to call: {kept}"
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
    """Whether a worker that gave an answer must not be asked again."""
    return bool((answer.get("error") or {}).get("spent"))


@trio.lowlevel.enable_ki_protection  # as for `start_tree`
async def _start_worker(spec: WorkerSpec) -> "_Worker":
    with ExitStack() as theirs, ExitStack() as unless_started:
        ours, channel = socket.socketpair()
        unless_started.callback(ours.close)
        theirs.callback(channel.close)
        watched, held = os.pipe()
        unless_started.callback(os.close, held)
        theirs.callback(os.close, watched)
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
    return _Worker(tree, stream, held, spec.largest)


@attrs.define(eq=False)
class _Worker(trio.abc.AsyncResource):
    """One worker process."""

    _tree: Tree
    _channel: trio.SocketStream
    _lifeline: int
    """A descriptor; when the last copy of it is closed, the system kills the worker."""
    _largest: int
    """Bytes of a result."""
    fate: str = attrs.field(init=False, default="is well")
    """Why there was no answer."""
    _printed: Tail = attrs.field(init=False, factory=Tail)
    _asked: int = attrs.field(init=False, default=0)

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._tree.process.poll() is None

    @property
    def printed(self) -> str | None:
        """What it printed last, since it was asked."""
        return self._printed.text

    async def ask(self, arguments: bytes, *, continues: bool) -> Mapping[str, Any] | None:
        """What it answered; None if no answer will come, and it has to be closed."""
        self._asked += 1
        self._printed.clear()
        async with trio.open_nursery() as nursery:
            if self._tree.process.stdout is not None:
                nursery.start_soon(read_stream, self._tree.process.stdout, self._printed.feed)
            nursery.start_soon(self._watch)
            answer = await self._exchange(arguments, continues=continues)
            if answer is not None:
                nursery.cancel_scope.cancel("answered")
            else:  # its last words and its exit code are on their way, if it has ended
                nursery.cancel_scope.deadline = trio.current_time() + _LAST_WORDS
        if answer is None:
            code = self._tree.process.poll()
            self.fate = "sent no answer" if code is None else describe_end(code)
        return answer

    async def wait(self) -> None:
        """Tell it that no more is asked, and wait until it has ended."""
        await self._channel.aclose()
        await self._tree.wait()

    async def aclose(self) -> None:
        """End it with everything it started; also when it is cancelled."""
        try:
            await self._tree.aclose()
        finally:
            self._channel.socket.close()
            os.close(self._lifeline)

    async def _watch(self) -> None:
        # What a dead worker left behind may hold the other end of the channel, and then nothing ends.
        await self._tree.wait()
        await self._tree.end()

    async def _exchange(self, arguments: bytes, *, continues: bool) -> Mapping[str, Any] | None:
        said = b', "continues": true' if continues else b""
        request = b'{"id": %d%b, "arguments": %b}' % (self._asked, said, arguments)
        try:
            await self._channel.send_all(program.LENGTH.pack(len(request)) + request)
            (size,) = program.LENGTH.unpack(await self._receive(program.LENGTH.size))
            answer = self._parsed(await self._receive(size)) if size <= LARGEST else None
        except trio.BrokenResourceError:
            return None
        known = isinstance(answer, Mapping) and answer.get("id") == self._asked
        return answer if known else None

    def _parsed(self, written: bytes) -> Any:
        most = most_marks(self._largest)
        if not has_more_marks(written, most):
            return read_json(written)
        what = f"the result has more than {most:,} texts, brackets and commas as JSON"
        error = {"what": what, "trace": "", "loading": False, "large": True}
        return {"id": self._asked, "error": error}

    async def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = await self._channel.receive_some(min(size - len(data), 1 << 16))
            if not part:
                raise trio.BrokenResourceError
            data += part
        return bytes(data)

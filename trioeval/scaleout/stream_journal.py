"""The journal of a run in Redis Streams: what workers have sent, until the store of the run has it.

**The problem.** A worker sends each reply over Dask, in batches. If it is killed, or the coordinator is, what
was on its way is lost, although it was paid.

**The rule.** A worker adds each message to a stream of its own in the step in which the message is made; the
number of a message is its id in the stream. The last number of a batch is sent with it, so the coordinator
knows up to which message it has everything. What is durable in the store is removed from the stream. If a
worker is lost, the coordinator first reads the messages that it lacks, and places the rows of the worker
again after that. If the coordinator is lost, the run that continues reads what is left of all streams before
it starts a row.

One stream for each worker, and not one for all: numbers are in the order of their stream, so the stream can
be cut at a number without being read. Adding is pipelined: nothing waits for the server. If the server is
lost, the messages still go over Dask, and only what is on its way at the death of a worker is lost with it.

Law: RESUME.
"""

import contextlib
import io
import pickle
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import attrs
import trio
from coredis.connection import BaseConnection
from coredis.exceptions import RedisError

from trioeval.errors import LimitError, UsageError
from trioeval.evaluation.journal import CallRecord
from trioeval.evaluation.row import Row
from trioeval.limits.redis import RedisLink
from trioeval.scaleout.messages import ROW, Message, Needs, RejectedReply, pack, unpack
from trioeval.scaleout.needs import versions
from trioeval.scaleout.plain_rows import FindStep
from trioeval.scaleout.run_keys import RunKeys

FORMAT = 1
"""Increased with every change of the messages that an earlier reader would misread."""
KEPT_SECONDS = 7 * 86_400
"""Seconds without any message after which a stream is deleted, because its run was not continued."""
_READ = 200  # entries of one answer
_RECONNECT = 1.0
_LOST = (LimitError, RedisError, OSError, TimeoutError)
"""The exceptions of a server that does not answer, or not as it should."""

_DATA, _MASKED = b"d", b"m"
_RUN = "run"
"""The field of the hash of sessions that exists while the run runs."""
_BUILTINS = frozenset({"bytearray", "complex", "dict", "frozenset", "list", "set", "tuple"})
_OTHERS = frozenset(
    {
        *(("datetime", name) for name in ("date", "datetime", "time", "timedelta", "timezone")),
        ("trioeval.scaleout.messages", "mapping_of"),
        ("trioeval.errors", "_restored"),
    }
)
"""Other names that a message may contain."""


def journal_format() -> str:
    """Return the format of messages; others cannot be read."""
    found = dict(versions(Needs(packages=("trioeval",)), {}))
    return f"{FORMAT}: trioeval {found['trioeval']}, Python {found['python']}"


@attrs.frozen
class JournalKeys:
    """The names of a run's journal on the server."""

    namespace: str
    run_id: str

    @property
    def sessions(self) -> str:
        """The hash with the format of each worker's messages, by the id of its session."""
        return f"{{{self.namespace}}}:run:{self.run_id}:journal"

    def stream(self, session: str) -> str:
        """Return the name of the stream of a session."""
        return f"{self.sessions}:{session}"


# Messages as bytes.


class _SafeUnpickler(pickle.Unpickler):
    """Reads data only: other programs may write to the server, and a pickle may name any function."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class of this package, or a plain container.

        Raises:
            pickle.UnpicklingError: The data names something else.
        """
        if module == "builtins" and name in _BUILTINS:
            return super().find_class(module, name)
        if module.startswith("trioeval.") and "." not in name:
            found = super().find_class(module, name)
            if isinstance(found, type):
                return found
        if (module, name) in _OTHERS:
            return super().find_class(module, name)
        msg = f"the journal names {module}.{name}"
        raise pickle.UnpicklingError(msg)


def read_safely(data: bytes) -> Any:
    """Return unpickled data of this package.

    Raises:
        pickle.UnpicklingError: It names something else, or is not complete.
    """
    return _SafeUnpickler(io.BytesIO(data)).load()


def _without_rows(data: bytes) -> Any:
    """Return unpickled messages but rows."""
    replies, written = read_safely(data)
    return replies, [(kind, one) for kind, one in written if kind != ROW]


def _no_rows(_task: str | None, _index: int) -> NoReturn:
    raise LookupError("rows are left out")


@attrs.frozen
class JournalEntry:
    """A message in a stream."""

    number: int
    """From 1, in the order of its worker."""
    message: Message
    is_masked: bool = False
    """True if a secret was removed from it."""


# The side of a worker.


@attrs.define(eq=False, repr=False)
class WorkerJournal:
    """The stream of one worker; used in its Trio thread.

    Args:
        link: The server.
        keys: The names of the run.
        session: The id of the worker's session.
        run_keys: The keys that this worker has, which do not reach the server.
        warn: Called once in each outage of the server.
    """

    _link: RedisLink
    _keys: JournalKeys
    session: str
    _run_keys: RunKeys
    _warn: Callable[[str], None]
    number: int = 0
    """The number of the last message."""
    _connection: BaseConnection | None = None
    _requests: deque[Any] = attrs.field(factory=deque)
    """Requests without an answer yet, in order."""
    _added: trio.Event = attrs.field(factory=trio.Event)

    async def open(self) -> None:
        """Create the stream. A checkpoint.

        Raises:
            UsageError: The run has ended: this worker has joined too late.
            LimitError: The server is unreachable, or rejects this client.
            RedisError: It does not know streams.
        """
        stream, sessions = self._keys.stream(self.session), self._keys.sessions
        request = self._link.request
        if not await request(b"HEXISTS", sessions, _RUN):
            raise UsageError("the run has ended")
        await request(b"HSET", sessions, self.session, journal_format())
        await request(b"EXPIRE", sessions, KEPT_SECONDS)
        await request(b"XADD", stream, "0-1", "v", FORMAT)
        await request(b"EXPIRE", stream, KEPT_SECONDS)
        self._connection = await self._link.connect()

    def add(self, message: Message) -> None:
        """Send a message to the stream in this step, unless it is a warning; never waits or raises."""
        if not isinstance(message, CallRecord | Row | RejectedReply):
            return
        self.number += 1
        if self._connection is None:
            return
        data = pack([message])
        fields: tuple[bytes, ...] = (_DATA, data)
        if self._run_keys.may_be_in(data):
            masked = pack([message], self._run_keys.hide_in)
            fields = (_DATA, masked) if masked == data else (_DATA, masked, _MASKED, b"1")
        stream, number = self._keys.stream(self.session), f"{self.number}-0"
        try:
            # Not created again: the run has ended if the stream is gone.
            self._requests.append(
                self._connection.create_request(
                    b"XADD", stream, "NOMKSTREAM", number, *fields, decode=False
                )
            )
        except _LOST as error:
            self._lose(error)
        self._added.set()

    async def serve(self) -> None:
        """Read the answers of the server, and reconnect when it is lost, until cancelled."""
        while True:
            await self._added.wait()
            if not self._requests:
                self._added = trio.Event()
            while self._requests:
                await self._take_answer()
            if self._connection is None:
                await trio.sleep(_RECONNECT)
                with contextlib.suppress(*_LOST):
                    self._connection = await self._link.connect()

    async def _take_answer(self) -> None:
        request = self._requests[0]
        try:
            await request
        except _LOST as error:
            self._lose(error)
        else:
            if self._requests and self._requests[0] is request:
                self._requests.popleft()

    def _lose(self, error: Exception) -> None:
        self._requests.clear()
        self._added.set()
        if self._connection is not None:
            self._connection.invalidate("the journal is lost")
            self._connection = None
            self._warn(
                f"the journal in Redis is lost ({error}): replies go over Dask alone, and those that are on "
                "their way if a worker is lost may be requested again"
            )


# The side of the coordinator.


@attrs.define(eq=False, repr=False)
class JournalReader:
    """The streams of all workers of a run.

    Args:
        link: The server.
        keys: The names of the run.
        find: Returns what is not sent with a row; None leaves rows out.
    """

    _link: RedisLink
    _keys: JournalKeys
    _find: FindStep | None = None

    async def begin(self) -> None:
        """Note that the run runs, so that workers may create streams. A checkpoint.

        Raises:
            LimitError: The server is unreachable.
            RedisError: It refuses.
        """
        await self._link.request(b"HSET", self._keys.sessions, _RUN, journal_format())
        await self._link.request(b"EXPIRE", self._keys.sessions, KEPT_SECONDS)

    async def end(self) -> None:
        """Note that the run does not run any more. A checkpoint.

        Raises:
            LimitError: The server is unreachable.
            RedisError: It refuses.
        """
        await self._link.request(b"HDEL", self._keys.sessions, _RUN)

    async def formats(self) -> Mapping[str, str]:
        """Return the format of the messages of each session. A checkpoint.

        Raises:
            LimitError: The server is unreachable.
            RedisError: It refuses.
        """
        found = await self._link.request(b"HGETALL", self._keys.sessions)
        pairs = (
            found.items()
            if isinstance(found, Mapping)
            else zip(found[::2], found[1::2], strict=True)
        )
        return {session: text for session, text in pairs if session != _RUN}

    async def is_empty(self, session: str) -> bool:
        """Return whether the stream of a session has no messages. A checkpoint.

        Raises:
            LimitError: The server is unreachable.
            RedisError: It refuses.
        """
        stream = self._keys.stream(session)
        return not await self._link.request(b"XRANGE", stream, "1-0", "+", "COUNT", 1, decode=False)

    async def read(self, session: str, after: int = 0) -> AsyncGenerator[Sequence[JournalEntry]]:
        """Yield the messages of a session after a number, in order. A checkpoint.

        Raises:
            LimitError: The server is unreachable.
            RedisError: It refuses.
            UsageError: They cannot be read.
        """
        stream = self._keys.stream(session)
        while True:
            start = f"{after + 1}-0"
            found = await self._link.request(
                b"XRANGE", stream, start, "+", "COUNT", _READ, decode=False
            )
            entries = [entry for line in found for entry in self._entries(line)]
            if not entries:
                return
            yield entries
            after = entries[-1].number

    def _entries(self, line: Any) -> Iterator[JournalEntry]:
        name, pairs = line
        fields = (
            pairs if isinstance(pairs, Mapping) else dict(zip(pairs[::2], pairs[1::2], strict=True))
        )
        number = int(bytes(name).partition(b"-")[0])
        try:
            if self._find is None:
                messages = unpack(fields[_DATA], _no_rows, loads=_without_rows)
            else:
                messages = unpack(fields[_DATA], self._find, loads=read_safely)
        except (
            pickle.UnpicklingError,
            AttributeError,
            ImportError,
            EOFError,
            KeyError,
            TypeError,
            ValueError,
            IndexError,
        ) as error:
            msg = f"message {number} of the journal in Redis cannot be read: {error}"
            raise UsageError(msg) from error
        for message in messages:
            yield JournalEntry(number, message, _MASKED in fields)

    async def trim(self, stored: Mapping[str, int]) -> None:
        """Remove the messages up to a number from the stream of each session. A checkpoint.

        Raises:
            LimitError: The server is unreachable.
            RedisError: It refuses.
        """
        for session, number in stored.items():
            stream = self._keys.stream(session)
            await self._link.request(b"XTRIM", stream, "MINID", f"{number + 1}-0")
            await self._link.request(b"EXPIRE", stream, KEPT_SECONDS)
        await self._link.request(b"EXPIRE", self._keys.sessions, KEPT_SECONDS)

    async def delete(self) -> None:
        """Delete everything of the run. A checkpoint.

        Raises:
            LimitError: The server is unreachable.
            RedisError: It refuses.
        """
        streams = [self._keys.stream(session) for session in await self.formats()]
        await self._link.request(b"DEL", self._keys.sessions, *streams)

"""The journal of a run in Redis Streams: what workers have sent, until the store of the run has it.

**The problem.** A worker sends each reply over Dask, in batches. If it is killed, or the coordinator is, what
was on its way is lost, although it was paid.

**The rule.** A worker adds each message to a stream of its own as soon as it is made. The messages of two
milliseconds are one entry, whose id is the number of its last message; a batch over Dask ends where an entry
ends, too. The last number of a batch is sent with it, so the coordinator knows up to which message it has
everything. What is durable in the store is removed from the stream. If a worker is lost, the coordinator
first reads the messages that it lacks, and places the rows of the worker again after that. If the coordinator
is lost, the run that continues reads what is left of all streams before it starts a row.

One stream for each worker, and not one for all: numbers are in the order of their stream, so the stream can
be cut at a number without being read. Adding is pipelined: nothing waits for the server. If the server is
lost, the messages still go over Dask, and only what is on its way at the death of a worker is lost with it.

An entry that cannot be read is left out with a warning, and the rest is read: others may write to the server.

Laws: RESUME, ONCE.
"""

import contextlib
import io
import pickle
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, NoReturn

import attrs
import trio
from coredis.connection import BaseConnection
from coredis.exceptions import RedisError

from trioeval.columns.journal import MadeRecord
from trioeval.columns.result import DroppedRow
from trioeval.errors import LimitError, UsageError
from trioeval.evaluation.journal import CallRecord
from trioeval.evaluation.row import Row
from trioeval.limits.redis import RedisLink
from trioeval.scaleout.dataset_messages import DatasetMessage, JobCost
from trioeval.scaleout.messages import (
    ROW,
    AttemptGone,
    AttemptProcess,
    CreatedJob,
    Message,
    Needs,
    RejectedReply,
    WorkerWarning,
    unpack,
)
from trioeval.scaleout.needs import versions
from trioeval.scaleout.plain_rows import FindStep

FORMAT = 2
"""Increased with every change of the messages that an earlier reader would misread."""
KEPT_SECONDS = 7 * 86_400
"""Seconds without any message after which a stream is deleted, because its run was not continued."""
_READ = 200  # entries of one answer
_GATHERED_FOR = (
    0.002  # seconds; a call and its row are often one entry, which costs the server the half
)
_RECONNECT = 1.0
_LOST = (LimitError, RedisError, OSError, TimeoutError)
"""The exceptions of a server that does not answer, or not as it should."""

JOURNALLED = (CallRecord, Row, RejectedReply, CreatedJob, AttemptProcess, AttemptGone)
"""The messages whose loss would break a promise: rows and replies, the jobs of calls, which are paid as well,
and the processes of agents, which the next worker must end."""
_MADE = (MadeRecord, DroppedRow, JobCost)
"""The same of news of datasets: the costs of cells count once if all or none of these arrive."""
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


def _no_row(_task: str | None, _index: int) -> NoReturn:
    raise LookupError("rows are left out")


@attrs.frozen
class JournalEntry:
    """A message in a stream."""

    number: int
    """From 1, in the order of its worker."""
    message: Message
    """A `WorkerWarning` instead of one that cannot be read."""
    is_masked: bool = False
    """True if a secret was removed from it."""


def is_journalled(message: Message) -> bool:
    """Return whether a message is also added to the stream of its worker."""
    if isinstance(message, DatasetMessage):
        return isinstance(message.news, _MADE)
    return isinstance(message, JOURNALLED)


def read_entry(stream: str, line: Any, find: FindStep | None) -> Sequence[JournalEntry]:
    """Return the messages of an entry of a stream; a warning if they cannot be read.

    Args:
        stream: The name of the stream.
        line: The entry as the server returns it.
        find: Returns what is not sent with a row; None leaves rows out.
    """
    name, pairs = line
    number = _number(line)
    fields = (
        pairs if isinstance(pairs, Mapping) else dict(zip(pairs[::2], pairs[1::2], strict=True))
    )
    try:
        data = fields[_DATA]
        messages = unpack(data, find or _no_row, loads=read_safely if find else _without_rows)
        if not all(map(is_journalled, messages)):
            raise ValueError("it has messages of other kinds")  # noqa: TRY301 - as of other bytes
    except Exception as error:  # noqa: BLE001 - other bytes may raise anything as they are unpickled
        reason = str(error) or type(error).__name__
        text = (
            f"entry {bytes(name).decode()} of the stream {stream} in Redis cannot be read ({reason}): "
            "it is left out, and what it recorded is made again"
        )
        return [JournalEntry(number, WorkerWarning(text))]
    first = number - len(messages) + 1
    return [
        JournalEntry(first + place, one, _MASKED in fields) for place, one in enumerate(messages)
    ]


def _number(line: Any) -> int:
    """Return the number of the last message of an entry."""
    return int(bytes(line[0]).partition(b"-")[0])


# The side of a worker.


@attrs.define(eq=False, repr=False)
class WorkerJournal:
    """The stream of one worker; used in its Trio thread.

    Args:
        link: The server.
        keys: The names of the run.
        session: The id of the worker's session.
        warn: Called once in each outage of the server.
        pack: Returns messages as bytes without keys, and whether there were keys.
    """

    _link: RedisLink
    _keys: JournalKeys
    session: str
    _warn: Callable[[str], None]
    _pack: Callable[[Sequence[Message]], tuple[bytes, bool]]
    number: int = 0
    """The number of the last message."""
    _connection: BaseConnection | None = None
    _waiting: list[Message] = attrs.field(factory=list)
    """The messages that are not sent yet; the last one has the last number."""
    _added: trio.Event = attrs.field(factory=trio.Event)
    _requests: deque[Any] = attrs.field(factory=deque)
    """Requests without an answer yet, in order."""
    _requested: trio.Event = attrs.field(factory=trio.Event)

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
        """Send a message to the stream soon, if its loss matters; never waits or raises."""
        if not is_journalled(message):
            return
        self.number += 1
        if self._connection is not None:
            self._waiting.append(message)
            self._added.set()

    def send(self) -> None:
        """Send the messages that wait, as one entry; never waits or raises."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        data, has_keys = self._pack(waiting)
        if not has_keys or len(waiting) == 1:
            self._request(self.number, data, is_masked=has_keys)
            return
        for number, one in enumerate(waiting, self.number - len(waiting) + 1):
            data, has_keys = self._pack([one])  # the others can be used as replies
            self._request(number, data, is_masked=has_keys)

    def _request(self, number: int, data: bytes, *, is_masked: bool) -> None:
        """Add an entry whose last message has a number."""
        if self._connection is None:
            return
        fields = (_DATA, data, _MASKED, b"1") if is_masked else (_DATA, data)
        stream = self._keys.stream(self.session)
        try:
            # Not created again: the run has ended if the stream is gone.
            self._requests.append(
                self._connection.create_request(
                    b"XADD", stream, "NOMKSTREAM", f"{number}-0", *fields, decode=False
                )
            )
        except _LOST as error:
            self._lose(error)
        self._requested.set()

    async def serve(self) -> None:
        """Send messages, read the answers of the server, and reconnect when it is lost, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send_continuously)
            nursery.start_soon(self._take_answers)

    async def _send_continuously(self) -> None:
        while True:
            await self._added.wait()
            self._added = trio.Event()
            await trio.sleep(_GATHERED_FOR)
            self.send()

    async def _take_answers(self) -> None:
        while True:
            await self._requested.wait()
            if not self._requests:
                self._requested = trio.Event()
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
        self._waiting.clear()
        self._requested.set()
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

    async def begin(self) -> bool:
        """Note that the run runs, so that workers may create streams. A checkpoint.

        Returns:
            True if that was not noted yet.

        Raises:
            LimitError: The server is unreachable.
            RedisError: It refuses.
        """
        added = await self._link.request(b"HSET", self._keys.sessions, _RUN, journal_format())
        await self._link.request(b"EXPIRE", self._keys.sessions, KEPT_SECONDS)
        return bool(added)

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
        """
        stream = self._keys.stream(session)
        while True:
            start = f"{after + 1}-0"
            found = await self._link.request(
                b"XRANGE", stream, start, "+", "COUNT", _READ, decode=False
            )
            if not found:
                return
            read = (one for line in found for one in read_entry(stream, line, self._find))
            if entries := [one for one in read if one.number > after]:
                yield entries
            after = _number(found[-1])

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

"""The messages between the coordinator and its workers.

Secrets are not sent: keys of providers come from the environment of each worker. Steps and providers are not
sent with a row either, because both sides have the same expansion of the suite.
"""

import copyreg
import io
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import attrs

from trioeval.evaluation.journal import CallKey, CallRecord, RecordedReply
from trioeval.evaluation.row import Row
from trioeval.evaluation.shared_data import SharedPart
from trioeval.rates import Amounts
from trioeval.scaleout.plain_rows import FindStep, PlainReader, PlainWriter


@attrs.frozen(kw_only=True)
class Shard:
    """Rows that a worker runs."""

    number: int
    """Its number in the run; each placement of rows has its own."""
    task: str | None
    rows: tuple[int, ...]
    """The indices of the rows, ascending."""
    replies: tuple[tuple[CallKey, RecordedReply], ...] = ()
    """The replies to these rows that are recorded, and are not requested again."""
    anew: frozenset[int] = frozenset()
    """The rows that ignore recorded and cached replies."""
    used_before: Amounts | None = None
    """What the shard must regard as used of the run's budget; None without a budget."""
    shared: SharedPart | None = None
    """The data that rows which have ended left for these."""
    jobs: tuple[tuple[CallKey, str], ...] = ()
    """The jobs at services that calls of these rows have created, as long as they have no reply."""


@attrs.frozen
class ListedFile:
    """A file that the suite reads."""

    path: str
    """Its absolute path on the coordinator."""
    digest: str
    """The SHA-256 of its content, in hexadecimal."""
    size: int
    is_program: bool = False
    """True if it may be executed."""


@attrs.frozen(kw_only=True)
class FileList:
    """The files that the suite reads."""

    files: tuple[ListedFile, ...] = ()
    folders: tuple[str, ...] = ()
    """Folders that are read as a whole, also if they are empty."""
    withheld: tuple[str, ...] = ()
    """Paths of files that are never sent, because they hold keys; a worker may have its own ones."""
    repositories: tuple[str, ...] = ()
    """The repositories that the suite may read from."""


@attrs.frozen(kw_only=True)
class Needs:
    """What the suite needs of each worker. Contains no values of variables."""

    packages: tuple[str, ...]
    """The packages whose versions are compared."""
    node: bool = False
    """Whether code of the suite runs in Node."""
    present: tuple[str, ...] = ()
    """Environment variables that must be set; each worker may have its own key."""
    equal: tuple[str, ...] = ()
    """Environment variables that must have the same value."""
    salt: str = ""
    """A random text that makes the digests of values useless in other runs."""
    files: FileList = FileList()


@attrs.frozen(kw_only=True)
class WorkerFacts:
    """The facts about a worker that are compared with those of the coordinator."""

    session: str
    """Different for each start of a worker process."""
    versions: tuple[tuple[str, str], ...]
    """The versions of Python, Node and packages that both sides must share, by name."""
    variables: tuple[tuple[str, str], ...] = ()
    """Digests of the needed environment variables that are set, by name; "" for keys."""
    digest: str | None = None
    """The digest of the loaded suite; None if it cannot be loaded."""
    error: str | None = None
    """The reason why the suite cannot be loaded."""


@attrs.frozen
class WorkerWarning:
    """A harmless failure on a worker."""

    text: str


@attrs.frozen
class RejectedReply:
    """A reply that is not to be used again."""

    key: CallKey


@attrs.frozen
class ShardUsage:
    """What a shard that has ended has used of the run's budget."""

    number: int
    used: Amounts


@attrs.frozen
class CreatedJob:
    """A job that a call has created at its service."""

    key: CallKey
    name: str | None
    """The name of the job; None if it has ended."""


Message: TypeAlias = CallRecord | Row | RejectedReply | WorkerWarning | ShardUsage | CreatedJob
"""A message of a worker, sent as soon as its event happens."""

Change: TypeAlias = Callable[[Any], Any]


def _mapping(data: dict[Any, Any]) -> Mapping[Any, Any]:
    return MappingProxyType(data)


def _reduce_mapping(value: Mapping[Any, Any]) -> tuple[Any, ...]:
    return _mapping, (dict(value),)


_REDUCERS = copyreg.dispatch_table | {MappingProxyType: _reduce_mapping}
"""The reducers of objects that Python itself cannot pickle."""


_ROW, _CALL, _OTHER = "r", "c", "o"
"""The kinds of messages as they are pickled."""


def pack(messages: Iterable[Message], change: Change | None = None) -> bytes:
    """Return messages as bytes.

    Args:
        messages: The messages.
        change: Changes what is sent of all of them; None changes nothing.
    """
    plain = PlainWriter()
    written: list[tuple[str, Any]] = []
    for one in messages:
        match one:
            case Row():
                written.append((_ROW, plain.row(one)))
            case CallRecord():
                written.append((_CALL, plain.call(one)))
            case _:
                written.append((_OTHER, one))
    sent = (plain.replies, written)
    return _pickled(sent if change is None else change(sent))


def pack_shard(shard: Shard) -> bytes:
    """Return a shard as bytes, which Dask neither inspects nor shows.

    Raises:
        Exception: A reply cannot be pickled.
    """
    return _pickled(shard)


def unpack_shard(data: bytes) -> Shard:
    """Return the shard of `pack_shard`."""
    # Dask itself unpickles everything that the run sends.
    found: Shard = pickle.loads(data)  # noqa: S301
    return found


def _pickled(value: object) -> bytes:
    file = io.BytesIO()
    pickler = pickle.Pickler(file, protocol=5)
    pickler.dispatch_table = _REDUCERS
    pickler.dump(value)
    return file.getvalue()


def unpack(data: bytes, find: FindStep) -> Sequence[Message]:
    """Return the messages of `pack`.

    Args:
        data: The bytes, from a worker of the own run.
        find: Returns what is not sent with a row.
    """
    # Dask itself unpickles everything that workers send.
    replies, written = pickle.loads(data)  # noqa: S301
    plain = PlainReader.of(replies, find)
    readers: Mapping[str, Callable[[Any], Message]] = {_ROW: plain.row, _CALL: plain.call}
    return [readers[kind](one) if kind in readers else one for kind, one in written]

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
from trioeval.evaluation.prepared import PreparedSuite
from trioeval.evaluation.row import Row
from trioeval.scaleout.plain_rows import FindStep, PlainReader, PlainWriter
from trioeval.suite.expand import Step
from trioeval.suite.model import ProviderEntry


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


@attrs.frozen(kw_only=True)
class WorkerFacts:
    """The facts about a worker that are compared with those of the coordinator."""

    session: str
    """Different for each start of a worker process."""
    versions: tuple[tuple[str, str], ...]
    """The versions of Python and of the packages that both sides must share, by name."""
    directory: str
    """The working directory, to which the paths of flags are relative."""
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
class JournalPosition:
    """The number of the last message before it that is also in its worker's journal; see `stream_journal`."""

    session: str
    number: int


Message: TypeAlias = CallRecord | Row | RejectedReply | WorkerWarning | JournalPosition
"""A message of a worker, sent as soon as its event happens."""


def steps_of(prepared: PreparedSuite) -> FindStep:
    """Return a function that finds the step of a row and its provider."""
    parts = {part.id: part.prepared for part in prepared.parts}

    def find(task: str | None, index: int) -> tuple[Step, ProviderEntry]:
        steps = parts[task].steps
        step = steps[index]
        return step, steps.suite.providers[step.column.provider_index]

    return find


def mapping_of(data: dict[Any, Any]) -> Mapping[Any, Any]:
    """Return a read-only mapping."""
    return MappingProxyType(data)


def _reduce_mapping(value: Mapping[Any, Any]) -> tuple[Any, ...]:
    return mapping_of, (dict(value),)


_REDUCERS = copyreg.dispatch_table | {MappingProxyType: _reduce_mapping}
"""The reducers of objects that Python itself cannot pickle."""


ROW, _CALL, _OTHER = "r", "c", "o"
"""The kinds of messages as they are pickled."""


def pack(messages: Iterable[Message]) -> bytes:
    """Return messages as bytes."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file, protocol=5)
    pickler.dispatch_table = _REDUCERS
    plain = PlainWriter()
    written: list[tuple[str, Any]] = []
    for one in messages:
        match one:
            case Row():
                written.append((ROW, plain.row(one)))
            case CallRecord():
                written.append((_CALL, plain.call(one)))
            case _:
                written.append((_OTHER, one))
    pickler.dump((plain.replies, written))
    return file.getvalue()


def unpack(
    data: bytes, find: FindStep, *, loads: Callable[[bytes], Any] = pickle.loads
) -> Sequence[Message]:
    """Return the messages of `pack`.

    Args:
        data: The bytes, from a worker of the own run.
        find: Returns what is not sent with a row.
        loads: Unpickles them. Dask itself unpickles everything that workers send.
    """
    replies, written = loads(data)
    plain = PlainReader.of(replies, find)
    readers: Mapping[str, Callable[[Any], Message]] = {ROW: plain.row, _CALL: plain.call}
    return [readers[kind](one) if kind in readers else one for kind, one in written]

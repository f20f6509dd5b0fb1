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

from trioeval.agent.journal import RunningAttempt
from trioeval.agent.protocols import AgentEvent
from trioeval.evaluation.journal import CallKey, CallRecord, RecordedReply
from trioeval.evaluation.row import Row
from trioeval.evaluation.shared_data import SharedPart
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
    processes: tuple[RunningAttempt, ...] = ()
    """The attempts at these rows whose processes may still run, because their workers were lost."""
    shared: SharedPart | None = None
    """The data that rows which have ended left for these."""
    jobs: tuple[tuple[CallKey, str], ...] = ()
    """The jobs at services that calls of these rows have created, as long as they have no reply."""


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
    obstacle: str | None = None
    """The reason why it cannot work in the folder of agents."""


@attrs.frozen
class WorkerWarning:
    """A harmless failure on a worker."""

    text: str


@attrs.frozen
class RejectedReply:
    """A reply that is not to be used again."""

    key: CallKey


@attrs.frozen
class AttemptProcess:
    """A process of an agent that starts, or has started."""

    task: str | None
    attempt: RunningAttempt


@attrs.frozen
class AttemptGone:
    """The end of all processes of an attempt."""

    task: str | None
    index: int
    """The index of the row."""
    run_id: str
    """The run id of the attempt."""


@attrs.frozen
class CreatedJob:
    """A job that a call has created at its service."""

    key: CallKey
    name: str | None
    """The name of the job; None if it has ended."""


Message: TypeAlias = (
    CallRecord
    | Row
    | RejectedReply
    | WorkerWarning
    | CreatedJob
    | AttemptProcess
    | AttemptGone
    | AgentEvent
)
"""A message of a worker, sent as soon as its event happens."""


def _mapping(data: dict[Any, Any]) -> Mapping[Any, Any]:
    return MappingProxyType(data)


def _reduce_mapping(value: Mapping[Any, Any]) -> tuple[Any, ...]:
    return _mapping, (dict(value),)


_REDUCERS = copyreg.dispatch_table | {MappingProxyType: _reduce_mapping}
"""The reducers of objects that Python itself cannot pickle."""


_ROW, _CALL, _OTHER = "r", "c", "o"
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
                written.append((_ROW, plain.row(one)))
            case CallRecord():
                written.append((_CALL, plain.call(one)))
            case _:
                written.append((_OTHER, one))
    pickler.dump((plain.replies, written))
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

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
from trioeval.evaluation.journal import CallKey, CallRecord
from trioeval.evaluation.prepared import PreparedSuite, PreparedTask
from trioeval.evaluation.row import Row
from trioeval.evaluation.shared_data import SharedPart
from trioeval.kernel.events import Event
from trioeval.rates import Amounts
from trioeval.report.worker_lanes import WorkerReport
from trioeval.scaleout.dataset_messages import DatasetMessage, DatasetShard
from trioeval.scaleout.placed import PlacedWork
from trioeval.scaleout.plain_rows import FindStep, PlainReader, PlainWriter
from trioeval.suite.expand import Step
from trioeval.suite.model import ProviderEntry


@attrs.frozen(kw_only=True)
class Shard(PlacedWork):
    """Rows that a worker runs."""

    rows: tuple[int, ...]
    """The indices of the rows, ascending."""
    shared: SharedPart | None = None
    """The data that rows which have ended left for these."""


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
    """The needs of a suite on each worker. Contains no values of variables."""

    packages: tuple[str, ...]
    """The packages whose versions are compared."""
    modules: tuple[str, ...] = ()
    """The modules of the program's own providers, whose files are compared."""
    node: bool = False
    """True if code of the suite runs in Node."""
    present: tuple[str, ...] = ()
    """Environment variables that must be set; each worker may have its own key."""
    equal: tuple[str, ...] = ()
    """Environment variables that must have the same value."""
    salt: str = ""
    """A random text that makes the digests of values useless in other runs."""
    files: FileList = FileList()


AnyShard: TypeAlias = Shard | DatasetShard
"""A unit of work that is placed on a worker: rows, or groups of a dataset."""


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
    """The reason why the suite cannot be loaded; None if only variables are missing."""
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
class ShardUsage:
    """The part of the run's budget that an ended shard has used."""

    number: int
    used: Amounts


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


@attrs.frozen
class WorkerEvent:
    """An event of a lane or a row on a worker, for traces and telemetry."""

    worker: str
    """The address of the worker."""
    task: str | None
    event: Event
    """The indices of its jobs are those of their rows, and negative for jobs without one.

    Its instants are those of the clock of the worker. Values and messages of errors are left out.
    """

    @staticmethod
    def row_of(index: int) -> int | None:
        """Return the row of a job of the event; None for a job without one."""
        return index if index >= 0 else None


@attrs.frozen
class RecordingLine:
    """The line of a call for the file of `--record`."""

    text: str


@attrs.frozen
class JournalPosition:
    """The number of the last message before it that is also in its worker's journal; see `stream_journal`."""

    session: str
    number: int


Message: TypeAlias = (
    CallRecord
    | Row
    | RejectedReply
    | WorkerWarning
    | ShardUsage
    | CreatedJob
    | DatasetMessage
    | WorkerReport
    | WorkerEvent
    | RecordingLine
    | JournalPosition
    | AttemptProcess
    | AttemptGone
    | AgentEvent
)
"""A message of a worker, sent as soon as its event happens."""

Change: TypeAlias = Callable[[Any], Any]


@attrs.frozen(eq=False, repr=False)
class StepFinder:
    """Finds the step of a row and its provider; a `FindStep`."""

    _parts: dict[str | None, PreparedSuite]

    @classmethod
    def of(cls, prepared: PreparedSuite) -> "StepFinder":
        """Return the finder of a suite."""
        return cls({part.id: part.prepared for part in prepared.parts})

    def __call__(self, task: str | None, index: int) -> tuple[Step, ProviderEntry]:
        """Return the step of a row and its provider."""
        steps = self._parts[task].steps
        step = steps[index]
        return step, steps.suite.providers[step.column.provider_index]

    def add(self, part: PreparedTask) -> None:
        """Set the tests of a task, which were not known before."""
        self._parts[part.id] = part.prepared


def mapping_of(data: dict[Any, Any]) -> Mapping[Any, Any]:
    """Return a read-only mapping."""
    return MappingProxyType(data)


def _reduce_mapping(value: Mapping[Any, Any]) -> tuple[Any, ...]:
    return mapping_of, (dict(value),)


_REDUCERS = copyreg.dispatch_table | {MappingProxyType: _reduce_mapping}
"""The reducers of objects that Python itself cannot pickle."""


ROW, _CALL, _OTHER = "r", "c", "o"
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
                written.append((ROW, plain.row(one)))
            case CallRecord():
                written.append((_CALL, plain.call(one)))
            case _:
                written.append((_OTHER, one))
    sent = (plain.replies, written)
    return _pickled(sent if change is None else change(sent))


def pack_shard(shard: AnyShard) -> bytes:
    """Return a shard as bytes, which Dask neither inspects nor shows.

    Raises:
        Exception: A reply cannot be pickled.
    """
    return _pickled(shard)


def unpack_shard(data: bytes) -> AnyShard:
    """Return the shard of `pack_shard`."""
    # Dask itself unpickles everything that the run sends.
    found: AnyShard = pickle.loads(data)  # noqa: S301
    return found


def _pickled(value: object) -> bytes:
    file = io.BytesIO()
    pickler = pickle.Pickler(file, protocol=5)
    pickler.dispatch_table = _REDUCERS
    pickler.dump(value)
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

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

FindStep: TypeAlias = Callable[[str | None, int], tuple[Step, ProviderEntry]]
"""Returns the step of a row and its provider, by the id of its task and its index."""


def steps_of(prepared: PreparedSuite) -> FindStep:
    """Return a function that finds the step of a row and its provider."""
    parts = {part.id: part.prepared for part in prepared.parts}

    def find(task: str | None, index: int) -> tuple[Step, ProviderEntry]:
        steps = parts[task].steps
        step = steps[index]
        return step, steps.suite.providers[step.column.provider_index]

    return find


_LEFT_OUT = frozenset({"step", "provider", "planned"})
_FIELDS = tuple(field.name for field in attrs.fields(Row) if field.name not in _LEFT_OUT)


def mapping_of(data: dict[Any, Any]) -> Mapping[Any, Any]:
    """Return a read-only mapping."""
    return MappingProxyType(data)


def _reduce_mapping(value: Mapping[Any, Any]) -> tuple[Any, ...]:
    return mapping_of, (dict(value),)


_REDUCERS = copyreg.dispatch_table | {MappingProxyType: _reduce_mapping}
"""The reducers of objects that Python itself cannot pickle."""


def pack(messages: Iterable[Message]) -> bytes:
    """Return messages as bytes."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file, protocol=5)
    pickler.dispatch_table = _REDUCERS
    pickler.dump([_values(one) if isinstance(one, Row) else one for one in messages])
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
    found: list[Any] = loads(data)
    return [_row(one, find) if isinstance(one, list) else one for one in found]


def _values(row: Row) -> list[Any]:
    return [getattr(row, name) for name in _FIELDS]


def _row(values: list[Any], find: FindStep) -> Row:
    named = dict(zip(_FIELDS, values, strict=True))
    step, provider = find(named["task"], named["index"])
    return Row(step=step, provider=provider, planned=None, **named)

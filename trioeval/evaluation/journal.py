"""The records that tasks write during a run, and read again when it is resumed.

Tasks do not know the database, only this interface. Everything is recorded synchronously, in the step in
which it becomes known, so that nothing can happen between a reply that was paid for and its record; the owner
of the journal makes it durable later, and reports when it is.
"""

import datetime as dt
import hashlib
import json
from collections.abc import Container, Mapping
from typing import Any, Literal, Protocol, TypeAlias

import attrs

from trioeval.errors import ProviderError
from trioeval.evaluation.row import Row, RowsNotRun
from trioeval.providers import Reply, Request
from trioeval.providers.base import KeptJob, ModelIdentity
from trioeval.suite.plain import plain_data

CallRole: TypeAlias = Literal["provider", "user", "grader", "cell", "attempt"]
"""The role of the called provider: under test, the player of a simulated user, a judge, the maker of a
column's cell, or an agent."""


@attrs.frozen
class CallKey:
    """The identity of a call within a run. The same in every execution of the run."""

    task: str | None
    """The id of its task; None if the suite is a single task."""
    index: int
    """The index of the row that pays for it."""
    role: CallRole
    question: bytes
    """See `question_digest`; 16 bytes."""
    row: str = ""
    """The id of that row, independent of its position, see `row_id`. The reply is used for no other row."""


@attrs.frozen(kw_only=True)
class CallRecord:
    """One ended attempt of a call; a key may have several."""

    key: CallKey
    provider: str
    """The label or id of the provider, without secrets."""
    prompt: str
    """The prompt, without what is surely a key."""
    answer: Reply | ProviderError
    latency_ms: float
    """The latency of this attempt alone; for a reply from the cache, that of the original call."""
    cached: bool = False
    """True if it came from the cache, and cost nothing."""
    model: ModelIdentity | None = None
    """The identity of the model; None if it is unknown."""


@attrs.define  # not frozen: every row has one
class RecordedReply:
    """A reply that is available."""

    reply: Reply
    latency_ms: float
    cached: bool


class ReusedRows(Container[int], Protocol):
    """The rows of one task that have results and are not run again, by their index."""

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def record(self, index: int, /) -> Mapping[str, Any]:
        """Return the record of one, as made by `trioeval.report.row_json`."""
        ...


class Journal(Protocol):
    """Record of the calls and rows of one run.

    The synchronous methods never wait or raise: a journal that cannot write stores its data in memory, and
    reports that to its owner.
    """

    @property
    def resumed(self) -> bool:
        """True if it has earlier records: False in the first execution of a run."""
        ...

    def call(self, call: CallRecord, /) -> None:
        """Record a call."""
        ...

    def recorded_reply(self, key: CallKey, /) -> RecordedReply | None:
        """Return the reply to this call that an earlier execution of the run recorded, if any."""
        ...

    def job(self, key: CallKey, /) -> KeptJob:
        """Return the record of the job that a call of a provider that keeps jobs has created."""
        ...

    def row(self, row: Row, /) -> None:
        """Record a row, replacing what was recorded of it before.

        A row that did not run to its end never replaces one that did: the old record is kept, and the row
        is still to be run again.
        """
        ...

    def first_single_row(self, task: str | None, rows: range, /) -> int:
        """Return the first row that must be passed to `row` even if it never started; else the stop."""
        ...

    def rows_not_run(self, rows: RowsNotRun, /) -> None:
        """Record many rows that never started, replacing what was recorded of them before."""
        ...

    def superseding_record(self, row: Row, /) -> Mapping[str, Any] | None:
        """Return the record that is kept instead of this durable row; None if the row itself is kept."""
        ...

    def reject(self, key: CallKey, /) -> None:
        """Discard the reply to this call: no later execution recalls it."""
        ...

    def needs_new_reply(self, task: str | None, index: int, /) -> bool:
        """Return whether a row needs new replies, ignoring the recorded and the cached ones."""
        ...

    async def durable(self, row: Row | None = None, /, *, urgent: bool = True) -> None:
        """Wait until the records are durable, or cannot be. A checkpoint only if it has to wait.

        Args:
            row: A recorded row, which includes everything recorded before it; None means everything so far.
            urgent: False if other calls go on meanwhile, so that the journal may gather more records.
        """
        ...

    def reused_rows(self, task: str | None, /) -> ReusedRows:
        """Return the rows of a task that are not run again."""
        ...


class RecordObserver:
    """Observer of the calls and rows of a run; a subclass defines the methods that it needs.

    Each is called synchronously, after the record in the journal, if there is one. It must not raise.
    """

    def on_call(self, call: CallRecord, /) -> None:
        """Handle the end of a call."""

    def on_recall(self, key: CallKey, /) -> None:
        """Handle the reuse of a reply from an earlier execution of the run."""

    def on_row(self, row: Row, /) -> None:
        """Handle the end of a row, perhaps before its turn to be emitted."""

    def on_dataset(self, task: str | None, /) -> None:
        """Handle the start of a task that builds a dataset: its calls belong to no row."""


def question_digest(
    provider: str, request: Request, *more: Any, variables: Mapping[str, Any] | None = None
) -> bytes | None:
    """Return a digest that identifies a call among those of a row, in every process: 16 bytes.

    None if parts of it are not JSON data, and so cannot be compared between processes.

    Args:
        provider: The name of the provider.
        request: The request; its variables are ignored.
        *more: JSON data that distinguishes equal requests: their branch, and their number.
        variables: The variables that the provider may read; None if it sees only the prompt.

    Example:
        >>> request = Request(prompt="a")
        >>> question_digest("m", request) == question_digest("m", request, 1)
        False
        >>> question_digest("m", request, variables={"x": object()})
    """
    try:
        options = _json(dict(request.options)) if request.options else ""
        seen = _json(variables) if variables else ""
        place = _json(more) if more else ""
    except (TypeError, ValueError, RecursionError):
        return None
    sizes = f"{len(provider)} {len(request.prompt)} {len(options)} {len(seen)}"
    text = f"{sizes}\n{provider}{request.prompt}{options}{seen}{place}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _json(data: Any) -> str:
    try:
        return _encode(data)
    except TypeError:
        return _encode(plain_data(data))


def _dated(value: object) -> str:
    if isinstance(value, dt.date | dt.time):  # YAML has them
        return value.isoformat()
    raise TypeError(type(value).__qualname__)


_encode = json.JSONEncoder(sort_keys=True, default=_dated).encode

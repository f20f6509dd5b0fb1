"""What tasks write down as they go, and find again when their run is resumed.

Tasks know no database: they know this. Everything is written down synchronously, in the step in which it
becomes known, so that nothing can come between a reply that was paid for and its record; whoever keeps the
journal makes it durable behind that, and says when it is.
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
from trioeval.providers.base import Asked
from trioeval.suite.plain import plain_data

CallRole: TypeAlias = Literal["provider", "grader", "cell", "attempt"]
"""Who is asked: what is tested, a judge, the maker of a column's cell, or an agent."""


@attrs.frozen
class CallKey:
    """Which question of which job a call asks. The same in every execution of a run."""

    task: str | None
    """The id of its task; None where the suite has no tasks but is one."""
    index: int
    """Of the row that pays for it."""
    role: CallRole
    question: bytes
    """See `question_digest`; 16 bytes."""
    row: str = ""
    """The id of that row, see `row_id`: what it is wherever it stands. No other row is given the reply."""


@attrs.frozen(kw_only=True)
class CallRecord:
    """One call that ended: an attempt, not a question, so a key may have several."""

    key: CallKey
    provider: str
    """Label or id of who was asked, without secrets."""
    prompt: str
    """What was asked, without what is surely a key."""
    answer: Reply | ProviderError
    latency_ms: float
    """Of this call alone; of a reply from the cache, that of the call that it came from."""
    cached: bool = False
    """Whether it came from the cache, and cost nothing."""
    asked: Asked | None = None
    """Who was asked, in other words; None where nobody says."""


@attrs.frozen
class Paid:
    """A reply that is there already."""

    reply: Reply
    latency_ms: float
    cached: bool


class KeptRows(Container[int], Protocol):
    """The rows of one task that are there already and are not run again, by their index."""

    def __len__(self) -> int:
        """How many."""
        ...

    def record(self, index: int, /) -> Mapping[str, Any]:
        """What was recorded of one, as `trioeval.report.row_json` made it."""
        ...


class Journal(Protocol):
    """Record of the calls and rows of one run.

    Nothing that is synchronous here waits or raises: a journal that cannot write keeps what it has in
    memory, and tells whoever opened it.
    """

    @property
    def resumed(self) -> bool:
        """Whether there is anything to find: False if this is the first execution of the run."""
        ...

    def call(self, call: CallRecord, /) -> None:
        """Write down a call."""
        ...

    def recall(self, key: CallKey, /) -> Paid | None:
        """The reply to this question that an earlier execution of the run has written down, if any."""
        ...

    def row(self, row: Row, /) -> None:
        """Write down a row, in place of what was known of it before.

        One that did not come to an end never takes the place of one that did: that one stands, and is
        still to be run again.
        """
        ...

    def first_alone(self, task: str | None, rows: range, /) -> int:
        """The first of some rows that `row` is to be given also if it never began; else their stop."""
        ...

    def rows_not_run(self, rows: RowsNotRun, /) -> None:
        """Write down many rows that never began, in place of what was known of them before."""
        ...

    def standing(self, row: Row, /) -> Mapping[str, Any] | None:
        """What stands in place of a row of this execution that is durable; None where it stands itself."""
        ...

    def reject(self, key: CallKey, /) -> None:
        """Nothing came of the reply to this question: no later execution recalls it."""
        ...

    def asks_anew(self, task: str | None, index: int, /) -> bool:
        """Whether other replies are wanted for a row than those that it had, also those of a cache."""
        ...

    async def durable(self, row: Row | None = None, /) -> None:
        """Return when it is safe, or cannot be made so. A checkpoint only if it has to wait.

        Args:
            row: A row that was written down, with all that was before it; None is everything until now.
        """
        ...

    def kept(self, task: str | None, /) -> KeptRows:
        """The rows of a task that are not run again."""
        ...


class RecordObserver:
    """Observer of the calls and rows of a run; a subclass defines the methods that it needs.

    Each is called synchronously, behind the record in the journal, if there is one. It must not raise.
    """

    def on_call(self, call: CallRecord, /) -> None:
        """A call ended."""

    def on_recall(self, key: CallKey, /) -> None:
        """An earlier execution of the run had the reply to a question."""

    def on_row(self, row: Row, /) -> None:
        """A row ended, perhaps before its turn to be emitted."""

    def on_dataset(self, task: str | None, /) -> None:
        """A task begins that builds a dataset: its calls belong to no row."""


def question_digest(
    provider: str, request: Request, *more: Any, variables: Mapping[str, Any] | None = None
) -> bytes | None:
    """What tells one question of a row from another, in every process: 16 bytes.

    None where something of it is no JSON data: nobody can say in another process whether it is the same.

    Args:
        provider: Who is asked, by name.
        request: What is asked, but for its variables.
        *more: JSON data that tells equal requests apart: their place among others, and their number.
        variables: Those that whoever is asked may look at; None if they see the prompt alone.

    Example:
        >>> asked = Request(prompt="a")
        >>> question_digest("m", asked) == question_digest("m", asked, 1)
        False
        >>> question_digest("m", asked, variables={"x": object()})
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

"""What the store is told of a run when it begins, and what it tells of runs that it holds."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import attrs

RunState: TypeAlias = Literal["running", "finished", "interrupted", "died"]
"""`interrupted` ended before all was done, and said so; `died` said nothing."""

EndState: TypeAlias = Literal["finished", "interrupted"]


@attrs.frozen(kw_only=True)
class RunStart:
    """What is known of a run before anything is asked. All mappings are JSON data without secrets."""

    id: str
    utc_created: str
    """ISO 8601; for people. Runs are ordered as they were begun, whatever their clocks said."""
    suite: str | None = None
    """The absolute path of its first file; None where it came from no file."""
    description: str | None = None
    versions: Mapping[str, Any] = attrs.field(factory=dict)
    flags: Mapping[str, Any] = attrs.field(factory=dict)
    files: Mapping[str, str | None] = attrs.field(factory=dict)
    """The files that the suite was read from, each with its SHA-256; None where there is none."""
    heads: Sequence[Mapping[str, Any]] = ()
    """What is told of each task beside its rows, in their order; `task` is its id, if it has one.

    Where there are none, `run_suite` says what they are when it is given the run as its journal, and with
    them all that is below here, the versions, the description and the path of the suite.
    """
    rows: Mapping[str | None, int] = attrs.field(factory=dict)
    """How many rows each task will have, where that is known."""
    sources: Callable[[str], str | None] | None = attrs.field(default=None, repr=False)
    """As for `trioeval.evaluation.identity.Identities`; used in the writer's thread, and by nobody else."""
    keys: Mapping[str | None, Sequence[str]] = attrs.field(factory=dict, repr=False)
    """Texts that are hidden in the records of each task; never stored."""

    @property
    def tasks(self) -> tuple[str | None, ...]:
        """The ids of its tasks, in their order."""
        return tuple(head.get("task") for head in self.heads) or (None,)


@attrs.frozen(kw_only=True)
class RunFacts:
    """What is known of a stored run without its rows."""

    number: int
    """Counts the runs of a store, and orders them."""
    id: str
    suite: str | None
    description: str | None
    state: RunState
    utc_created: str
    utc_finished: str | None
    executions: int
    """How often it was begun or gone on with."""
    duration_ms: float
    """Of all executions that said how long they took."""
    rows: int
    passed: int
    failed: int
    errors: int
    """Rows without a verdict that came to an end."""
    not_run: int = 0
    """Rows that were left before their end."""
    outcomes: Mapping[str, int]
    tokens: int
    cost: float
    """US dollars, as far as prices are known."""
    versions: Mapping[str, Any]
    flags: Mapping[str, Any]
    files: Mapping[str, str | None]
    derived: Any
    """What `finish` was given of derived metrics."""
    tasks: tuple[str | None, ...]
    """The ids of its tasks, in their order."""
    sizes: tuple[int | None, ...]
    """How many rows each of them will have; None where that is not known."""
    parts: tuple[int, ...] = attrs.field(repr=False)
    """Their numbers in the store."""
    dataset_rows: int | None = None
    """Rows of its datasets that are written; None if it makes none."""

    @property
    def expected(self) -> int | None:
        """Rows that it will have, those of datasets not among them; None where that is not known."""
        return None if None in self.sizes else sum(size or 0 for size in self.sizes)

    def part(self, task: str | None) -> int | None:
        """The number of a task; None if there is none of this id."""
        return dict(zip(self.tasks, self.parts, strict=True)).get(task)


@attrs.frozen
class StoredOutcome:
    """How one stored row ended."""

    index: int
    outcome: str
    has_verdict: bool
    passed: bool


@attrs.frozen(kw_only=True)
class DatasetFacts:
    """What is known of the dataset of a task of a stored run."""

    task: str | None
    fingerprint: Mapping[str, str]
    """As its files have it, see `trioeval.columns.files.Header`; empty if it was never begun."""
    requested: int | None
    """Rows that were wanted; None if it was never begun."""
    written: int
    """Rows of groups that are written."""
    dropped: int
    """Rows that were dropped until now."""
    result: Mapping[str, Any] | None
    """How it ended, as `trioeval.report.columns` tells it; None while nobody knows."""
    is_processed: bool
    """Whether processors are done with the whole of it."""


@attrs.frozen(kw_only=True)
class StoredCall:
    """One call of a row, in the order in which they ended."""

    role: str
    """`provider` for what is tested, `grader` for a judge, `attempt` for one of an agent."""
    provider: str
    execution: int
    """Of the run, from 1."""
    prompt: str
    reply: Mapping[str, Any] | None
    """As `trioeval.store.records.reply_json` made it; None if the call failed."""
    error: Mapping[str, Any] | None
    """`kind`, `message` and what else is known of a failure; None if it did not fail."""
    latency_ms: float | None
    tokens: int | None
    cost: float | None
    cached: bool

"""The data that the store gets about a run when it begins, and returns about stored runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.evaluation.status import Status

RunState: TypeAlias = Literal["running", "finished", "interrupted", "died"]
"""The state of a stored run. An `interrupted` run recorded that it ended early; a `died` run did not."""

EndState: TypeAlias = Literal["finished", "interrupted"]


@attrs.frozen(kw_only=True)
class RunStart:
    """The data about a run before its first call. All mappings are JSON data without secrets."""

    id: str
    utc_created: str
    """ISO 8601, for people. Runs are ordered by their start, whatever their clocks said."""
    suite: str | None = None
    """The absolute path of its first file; None if it did not come from a file."""
    description: str | None = None
    versions: Mapping[str, Any] = attrs.field(factory=dict)
    flags: Mapping[str, Any] = attrs.field(factory=dict)
    files: Mapping[str, str | None] = attrs.field(factory=dict)
    """The files of the suite, each with its SHA-256; None for a missing file."""
    heads: Sequence[Mapping[str, Any]] = ()
    """The head of each task, in order; `task` is its id, if it has one.

    If there are none, `run_suite` sets them when it gets the run as its journal, and with them all fields
    below, the versions, the description and the path of the suite.
    """
    rows: Mapping[str | None, int] = attrs.field(factory=dict)
    """The number of rows of each task, as far as it is known."""
    sources: Callable[[str], str | None] | None = attrs.field(default=None, repr=False)
    """As for `trioeval.evaluation.identity.Identities`; called only in the writer's thread."""
    keys: Mapping[str | None, Sequence[str]] = attrs.field(factory=dict, repr=False)
    """Texts that are hidden in the records of each task; never stored."""

    @property
    def tasks(self) -> tuple[str | None, ...]:
        """The ids of its tasks, in order."""
        return tuple(head.get("task") for head in self.heads) or (None,)


@attrs.frozen(kw_only=True)
class StoredRunFacts:
    """The facts about a stored run, without its rows."""

    number: int
    """The number of the run in its store, in the order of starts."""
    id: str
    suite: str | None
    description: str | None
    state: RunState
    utc_created: str
    utc_finished: str | None
    executions: int
    """The number of executions: the start, and each resume."""
    duration_ms: float
    """The sum over all executions that recorded a duration."""
    rows: int
    passed: int
    failed: int
    errors: int
    """Rows that ended without a verdict."""
    not_graded: int = 0
    """Rows with a reply that nothing graded."""
    not_run: int = 0
    """Rows that did not end."""
    outcomes: Mapping[str, int]
    tokens: int
    cost: float
    """US dollars, as far as prices are known."""
    versions: Mapping[str, Any]
    flags: Mapping[str, Any]
    files: Mapping[str, str | None]
    derived: Any
    """The derived metrics from `finish`."""
    tasks: tuple[str | None, ...]
    """The ids of its tasks, in order."""
    sizes: tuple[int | None, ...]
    """The number of rows of each task; None if it is unknown."""
    parts: tuple[int, ...] = attrs.field(repr=False)
    """The numbers of its tasks in the store."""
    dataset_rows: int | None = None
    """Written rows of its datasets; None if it makes none."""

    @property
    def rated(self) -> int:
        """Rows that the pass rate is about: those that ended, except those that were not graded."""
        return self.rows - self.not_run - self.not_graded

    @property
    def expected(self) -> int | None:
        """The number of its rows, without those of datasets; None if it is unknown."""
        return None if None in self.sizes else sum(size or 0 for size in self.sizes)

    def part(self, task: str | None) -> int | None:
        """Return the number of a task in the store; None if the id is unknown."""
        return dict(zip(self.tasks, self.parts, strict=True)).get(task)


@attrs.frozen
class StoredOutcome:
    """The outcome of one stored row."""

    index: int
    outcome: str
    status: Status


@attrs.frozen(kw_only=True)
class DatasetFacts:
    """The facts about the dataset of a task of a stored run."""

    task: str | None
    fingerprint: Mapping[str, str]
    """The fingerprint in its files, see `trioeval.columns.files.Header`; empty if it was never started."""
    requested: int | None
    """Requested rows; None if it was never started."""
    written: int
    """Rows of written groups."""
    dropped: int
    """Rows dropped so far."""
    result: Mapping[str, Any] | None
    """The result as JSON, see `trioeval.report.columns`; None until the dataset has ended."""
    is_processed: bool
    """True if the processors of the whole dataset have finished."""


@attrs.frozen(kw_only=True)
class StoredCall:
    """One call of a row; calls are in the order of their ends."""

    role: str
    """`provider` for the tested provider, `grader` for a judge, `attempt` for an attempt of an agent."""
    provider: str
    execution: int
    """The execution of the run, from 1."""
    prompt: str
    reply: Mapping[str, Any] | None
    """The result of `trioeval.store.records.reply_json`; None if the call failed."""
    error: Mapping[str, Any] | None
    """`kind`, `message` and other facts of a failure; None if the call succeeded."""
    latency_ms: float | None
    tokens: int | None
    cost: float | None
    cached: bool

"""A row: all data about one test × prompt × provider after its end."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

import attrs

from trioeval.errors import ProviderError, ProviderErrorKind
from trioeval.evaluation.identity import column_names, row_id_in
from trioeval.evaluation.status import Status
from trioeval.grading import JudgeUsage, Verdict
from trioeval.grading.model import NOTHING_SPENT
from trioeval.kernel import StopReason
from trioeval.providers import Reply
from trioeval.suite.expand import Expansion, Step
from trioeval.suite.model import ProviderEntry

# The ids of rows, by their indices: records of a row's calls include its id.


_MANY = 4096  # about the number of rows in flight at a time


@attrs.define(eq=False, repr=False)
class RowIds:
    """The ids of the rows of one task. Those of rows in flight are computed only once."""

    steps: Expansion
    """The steps as written in the suite, without changes by extensions."""
    _known: dict[int, str] = attrs.field(init=False, factory=dict)
    _names: dict[int, str] = attrs.field(init=False, factory=dict)
    """The results of `column_names` by `prompt_idx`."""

    def __call__(self, index: int) -> str:
        """Return the id of a row; see `row_id`."""
        found = self._known.get(index)
        if found is None:
            if len(self._known) >= _MANY:
                self._known.clear()
            found = self._known[index] = self._of(index)
        return found

    def _of(self, index: int) -> str:
        step = self.steps[index]
        column = step.column
        names = self._names.get(column.prompt_idx)
        if names is None:
            entry = self.steps.providers[column.provider_index]
            names = column_names(entry.name, column.prompt.label)
            self._names[column.prompt_idx] = names
        return row_id_in(names, step.vars, step.test.description)


class RowResult(Protocol):
    """The result of a row specific to its task type, besides the data that rows of all types have."""

    @property
    def name(self) -> str:
        """The member of the row's record that contains it."""
        ...

    @property
    def steps(self) -> int:
        """Number of model calls whose usage the reply sums up."""
        ...

    def json(self) -> dict[str, Any]:
        """Return the result as JSON data; unknown facts are left out."""
        ...

    def blocked(self, why: str, *, is_stopped: bool) -> Self:
        """Return the result of a row that never started, because another task is not complete.

        Args:
            why: The reason, as text.
            is_stopped: Whether that task was stopped rather than failed.
        """
        ...


@attrs.frozen(kw_only=True)
class RowsNotRun:
    """Consecutive rows of one task that never started, without an object for each."""

    first: "Row"
    """The first of them; all have its outcome."""
    indices: range
    """The indices of all of them."""
    columns: Mapping[int, int]
    """The number of rows in each column, by the column's number."""

    def __len__(self) -> int:
        return len(self.indices)


@attrs.frozen(kw_only=True)
class Row:
    """One result, in the order of `index`."""

    index: int
    step: Step
    provider: ProviderEntry
    status: Status
    prompt: str | None
    """The rendered prompt; None if it was not rendered."""
    reply: Reply | None
    """The provider's reply, also if grading it failed or was cut off."""
    output: Any
    """The reply's output after all transforms; None without one."""
    verdict: Verdict | None
    error: str | None
    """The reason for a missing or a failed verdict."""
    failure: ProviderError | None
    """The provider's failure; None without one."""
    outcome: str
    """The outcome of the job: `done`, `failed`, `timed_out`, `interrupted`, `blocked` or `not_run`."""
    lane: str
    latency_ms: float | None
    """Duration of the provider's call alone, without any wait."""
    wait_ms: float
    """Time that the row waited for lanes after its start."""
    calls: int
    """Requests to providers and judges, including retries and failed ones.

    Requests of earlier executions of its run count if their replies are used; replies from the cache do not.
    """
    cached: bool = False
    """True if the reply came from the cache, and cost nothing."""
    waits: Mapping[str, float] = attrs.field(factory=dict)
    """Seconds of waiting by reason (`trioeval.kernel.WaitReason`): before the start, as the next job of its
    lane, and after the start. Of several calls that wait for one lane at once, one counts. Empty for a run
    with neither a journal nor an observer."""
    graded: tuple[Verdict, ...] = ()
    """The verdicts of single assertions of a row without a verdict, in their order."""
    spent: JudgeUsage = NOTHING_SPENT
    """The usage of judges, including failed calls."""
    lost: JudgeUsage = NOTHING_SPENT
    """The usage of the provider's failed calls, as far as it reported it; not included in `reply`."""
    cut: StopReason | None = None
    """The reason why it did not run to its end; None if it did."""
    details: Mapping[str, Any] = attrs.field(factory=dict)
    """Additional data about why it could not be judged, as JSON data."""
    task: str | None = None
    """The id of its task; None if the suite is a single task."""
    result: RowResult | None = None
    """A `QuestionResult` for a task of type `question_eval`; None for other types."""
    planned: Step | None = None
    """The step as written in the suite, if an extension changed it."""

    @property
    def vars(self) -> Mapping[str, Any]:
        """The variables of its test, as written there."""
        return self.step.vars

    @property
    def label(self) -> str:
        """The name of its provider in tables."""
        return self.provider.name

    @property
    def error_kind(self) -> ProviderErrorKind | None:
        """The kind of the provider's failure."""
        return None if self.failure is None else self.failure.kind

    @property
    def body_excerpt(self) -> str | None:
        """The start of the provider's error response, at most 2 KB."""
        return None if self.failure is None else self.failure.body_excerpt or None

    @property
    def first_token_ms(self) -> float | None:
        """Time from the request to the reply's first token; None if it was not measured."""
        first = None if self.reply is None else self.reply.first_token
        return None if first is None else first * 1000

    @property
    def score(self) -> float:
        """The verdict's score; 0 without a verdict."""
        return 0.0 if self.verdict is None else self.verdict.score

    @property
    def named_scores(self) -> Mapping[str, float]:
        """The verdict's score per metric; empty without a verdict."""
        return {} if self.verdict is None else self.verdict.named_scores


# Rows of a task as input of later tasks: as seeds, tests or questions.


@attrs.define(eq=False, repr=False)
class TaskRows:
    """The rows of one task that other tasks use.

    Rows of a dataset consist of its columns. Those of other tasks consist of `vars`, `prompt`, `output`,
    `provider`, `pass`, `score` and `error`.
    """

    is_complete: bool = False
    """True if the task has ended and nothing of it is missing."""
    _by_index: dict[int, Mapping[str, Any]] = attrs.field(init=False, factory=dict)
    _whole: Sequence[Mapping[str, Any]] | None = attrs.field(init=False, default=None)

    def add(self, row: Row) -> None:
        """Add an ended row."""
        self._by_index[row.index] = {
            "vars": dict(row.vars),
            "prompt": row.prompt,
            "output": row.output,
            "provider": row.label,
            "pass": row.status.is_success,
            "score": row.score,
            "error": row.error,
        }

    def add_record(self, index: int, record: Mapping[str, Any]) -> None:
        """Add a row from the record of an earlier execution."""
        response, prompt, provider = (
            record.get(key) or {} for key in ("response", "prompt", "provider")
        )
        self._by_index[index] = {
            "vars": record.get("vars") or {},
            "prompt": prompt.get("raw"),
            "output": response.get("output"),
            "provider": provider.get("label") or provider.get("id"),
            "pass": record.get("success"),
            "score": record.get("score"),
            "error": record.get("error"),
        }

    def put(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Set all rows of a dataset."""
        self._whole = rows

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Return all rows in order."""
        if self._whole is not None:
            return self._whole
        return [self._by_index[index] for index in sorted(self._by_index)]

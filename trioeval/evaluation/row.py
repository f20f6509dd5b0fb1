"""A row: everything that is known of one test × prompt × provider when it is over."""

import enum
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

import attrs

from trioeval.errors import ProviderError, ProviderErrorKind
from trioeval.evaluation.identity import row_id
from trioeval.grading import Spent, Verdict
from trioeval.grading.model import NOTHING_SPENT
from trioeval.kernel import Cut
from trioeval.providers import Reply
from trioeval.suite.expand import Expansion, Step
from trioeval.suite.model import ProviderEntry

# The ids of rows, by their indices: whoever writes down what a row does says with it which row that is.


_MANY = 4096  # rows that are under way at a time, about


@attrs.define(eq=False)
class RowIds:
    """The ids of the rows of one task. Those of rows that are under way are computed once."""

    steps: Expansion
    """As the suite has them, whatever extensions make of them."""
    _known: dict[int, str] = attrs.field(init=False, factory=dict)

    def __call__(self, index: int) -> str:
        """What a row is known by; see `row_id`."""
        found = self._known.get(index)
        if found is None:
            if len(self._known) >= _MANY:
                self._known.clear()
            found = self._known[index] = self._of(index)
        return found

    def _of(self, index: int) -> str:
        step = self.steps[index]
        column, test = step.column, step.test
        entry = self.steps.providers[column.provider_index]
        label = entry.label or entry.id
        return row_id(label, column.prompt.label, step.vars, test.description)


LEFT = frozenset({"interrupted", "not_run", "blocked"})
"""How jobs ended that did not run to their end: they say nothing of who was asked."""


class Status(enum.Enum):
    """Every row is exactly one of these."""

    PASS = "pass"  # noqa: S105 - a verdict
    FAIL = "fail"
    """Assertions did not hold."""
    ERROR = "error"
    """There is no verdict: no reply, no grading, or no time."""
    NOT_RUN = "not_run"
    """It did not run to its end: the run was stopped before, or something that it depends on failed."""

    @classmethod
    def without_verdict(cls, outcome: str) -> "Status":
        """That of a row without a verdict, by how its job ended, as in `Row.outcome`.

        Example:
            >>> Status.without_verdict("timed_out"), Status.without_verdict("interrupted")
            (<Status.ERROR: 'error'>, <Status.NOT_RUN: 'not_run'>)
        """
        return cls.NOT_RUN if outcome in LEFT else cls.ERROR

    @property
    def has_verdict(self) -> bool:
        """Whether the row was judged."""
        return self in {Status.PASS, Status.FAIL}

    @property
    def label(self) -> str:
        """What tables call it."""
        return self.name.replace("_", " ")


class RowResult(Protocol):
    """The result of a row in the terms of its task type, beside what rows of all types have."""

    @property
    def name(self) -> str:
        """The member of the row's record that holds it."""
        ...

    @property
    def steps(self) -> int:
        """Calls of the model that the usage of the reply is the sum of."""
        ...

    def json(self) -> dict[str, Any]:
        """The result as JSON data; facts that are not known are left out."""
        ...

    def blocked(self, why: str, *, is_stopped: bool) -> Self:
        """The result of a row that never began, because another task is not complete.

        Args:
            why: The reason, in words.
            is_stopped: Whether that task was stopped, and did not fail.
        """
        ...


@attrs.frozen(kw_only=True)
class RowsNotRun:
    """Rows of one task that never began, one after another: as many as there are, and no object for each."""

    first: "Row"
    """The first of them; all end as it does."""
    indices: range
    """All of them."""
    columns: Mapping[int, int]
    """How many each column has, by its number."""

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
    """What the provider answered, also when grading it failed or was cut off."""
    output: Any
    """The reply's output after all transforms; None where there is none."""
    verdict: Verdict | None
    error: str | None
    """Why there is no verdict, or the reason of a failed one."""
    failure: ProviderError | None
    """How the provider failed; None if it did not."""
    outcome: str
    """How the job ended: `done`, `failed`, `timed_out`, `interrupted`, `blocked` or `not_run`."""
    lane: str
    latency_ms: float | None
    """Time of the provider's call alone, without any wait."""
    wait_ms: float
    """Time that the started row waited for lanes."""
    calls: int
    """Requests to providers and judges, retries and those that failed among them.

    Of earlier executions of its run those count whose replies are used; the cache makes none.
    """
    cached: bool = False
    """Whether the reply came from the cache, and cost nothing."""
    waits: Mapping[str, float] = attrs.field(factory=dict)
    """Seconds that it waited, by what for (`trioeval.kernel.Why`): before it was started, as the next one of
    its lane, and then. Of several calls that wait for one lane at once, one counts. Empty where a run has
    neither a journal nor an observer."""
    graded: tuple[Verdict, ...] = ()
    """The verdicts of single assertions that are there although the row has no verdict, in their order."""
    spent: Spent = NOTHING_SPENT
    """What asking judges used, also where that came to nothing."""
    lost: Spent = NOTHING_SPENT
    """What calls of the provider used that came to nothing, as far as it told that; not in `reply`."""
    cut: Cut | None = None
    """What kept it from running to its end; None if nothing did."""
    details: Mapping[str, Any] = attrs.field(factory=dict)
    """What else is known of why it could not be judged, as JSON data."""
    task: str | None = None
    """The id of its task; None where the suite has no tasks but is one."""
    result: RowResult | None = None
    """Of a task of type `question_eval` a `QuestionResult`; None of other types."""
    planned: Step | None = None
    """The step as the suite has it, where an extension made another one of it."""

    @property
    def vars(self) -> Mapping[str, Any]:
        """The variables of its test, as they stand there."""
        return self.step.vars

    @property
    def label(self) -> str:
        """What tables call its provider."""
        return self.provider.label or self.provider.id

    @property
    def error_kind(self) -> ProviderErrorKind | None:
        """The kind of the provider's failure."""
        return None if self.failure is None else self.failure.kind

    @property
    def body_excerpt(self) -> str | None:
        """The beginning of what the provider sent when it failed, at most 2 KB."""
        return None if self.failure is None else self.failure.body_excerpt or None

    @property
    def first_token_ms(self) -> float | None:
        """Time from the request to the reply's first token; None where it was not measured."""
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


# Rows of a task as later tasks use them: as seeds, tests or questions.


@attrs.define(eq=False)
class RowsLeft:
    """The rows of one task that others are made of.

    Those of a dataset are its columns. Those of other tasks are `vars`, `prompt`, `output`, `provider`,
    `pass`, `score` and `error`.
    """

    is_complete: bool = False
    """Whether the task is over and nothing of it is missing."""
    _by_index: dict[int, Mapping[str, Any]] = attrs.field(init=False, factory=dict, repr=False)
    _whole: Sequence[Mapping[str, Any]] | None = attrs.field(init=False, default=None, repr=False)

    def add(self, row: Row) -> None:
        """Take a row that is over."""
        self._by_index[row.index] = {
            "vars": dict(row.vars),
            "prompt": row.prompt,
            "output": row.output,
            "provider": row.label,
            "pass": row.status is Status.PASS,
            "score": row.score,
            "error": row.error,
        }

    def add_record(self, index: int, record: Mapping[str, Any]) -> None:
        """Take a row that an earlier execution has left."""
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
        """Take all rows of a dataset."""
        self._whole = rows

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """All of them, in their order."""
        if self._whole is not None:
            return self._whole
        return [self._by_index[index] for index in sorted(self._by_index)]

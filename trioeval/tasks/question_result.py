"""What became of one question."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import attrs

from trioeval.errors import QuotaReason
from trioeval.faults import ProviderErrorKind
from trioeval.grading.questions import ParseFaultKind

QuestionOutcome: TypeAlias = Literal[
    "correct",
    "incorrect",
    "parse_error",
    "budget_exceeded",
    "runtime_error",
    "cancelled",
    "skipped",
]
RunErrorKind: TypeAlias = (
    ProviderErrorKind
    | QuotaReason
    | Literal["budget_exceeded", "timed_out", "lane_closed", "deadline", "interrupted", "internal"]
)


@attrs.frozen(kw_only=True)
class ParseError:
    """Why a reply has no usable answer."""

    kind: ParseFaultKind
    message: str


@attrs.frozen(kw_only=True)
class RunError:
    """Why there is no reply to look at."""

    kind: RunErrorKind
    message: str
    retryable: bool = False
    """Whether it may go better when it is run again."""


@attrs.frozen(kw_only=True)
class QuestionEvent:
    """One thing that happened to a question, to its task, or to the whole run."""

    sequence: int
    """Counts the events of a run, from 0."""
    at: float
    """Seconds on the Trio clock."""
    task: str | None
    """None where the suite has no tasks, and of what happens to the whole run."""
    index: int | None
    """Of its row; None of what happens to the task itself, or to the run."""
    job: str | None
    """`<task id>-<index + 1>`, or the number alone where the suite has no tasks; None of the task itself."""
    name: str
    """`queued`, `scheduled`, `reserving`, `waiting_rate_limit`, …: see `trioeval.tasks.question_events`."""
    details: Mapping[str, object] = attrs.field(factory=dict)
    """JSON data: `retry_after_ms`, `keys`, `message`, `duration_ms`, …"""


@attrs.frozen(kw_only=True)
class QuestionResult:
    """What became of one question. Of what is not known nothing is told."""

    id: str | None
    question: str
    answers: tuple[str, ...]
    correct_answers: tuple[str, ...]
    outcome: QuestionOutcome
    agent_answer: str | None = None
    """What the reply chose, as it stands there."""
    answer_listed: bool | None = None
    """Whether that is one of `answers`; None where there is none."""
    parse_error: ParseError | None = None
    run_error: RunError | None = None
    tokens_total: int | None = None
    wall_time_s: float | None = None
    """Seconds in calls and tools."""
    wait_s: float | None = None
    """Seconds that it waited to be admitted, and between its calls."""
    attempts: int = 0
    """Calls made, those that failed among them."""
    steps: int = 0
    """Calls of the model that were answered."""
    tool_calls: Mapping[str, int] = attrs.field(factory=dict)
    """How often each tool was called."""
    events: tuple[QuestionEvent, ...] = ()
    """Its life, to the event of its end, which is named like `outcome`."""

    @property
    def correct(self) -> bool:
        """Whether it was answered right."""
        return self.outcome == "correct"

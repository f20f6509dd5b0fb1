"""Questions with answers to choose from: how a model is asked, and what its reply chose.

A reply may reason as long as it likes; it ends with `<answer>…</answer>`, in which stands one of the choices.
Choices are listed as they are, and what is copied from the list is that choice, whatever it looks like.
Anything else is read with care, but not as XML, which models do not write: `&` and `<` stand for themselves
wherever they cannot be meant otherwise, the five entities of XML and references by number are decoded, and
what begins like a tag makes the answer malformed.
"""

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self, TypeAlias

import attrs

from trioeval.documents.structure import camel
from trioeval.errors import LimitErrorReason, ProviderErrorKind
from trioeval.grading import Verdict, quote
from trioeval.question_eval.model import Question

ParseFaultKind: TypeAlias = Literal[
    "missing_answer", "trailing_text", "malformed_answer", "empty_answer"
]

_OPENING = "<answer>"
_CLOSING = "</answer>"
_INSTRUCTIONS = f"""\
Answer the question below with one of the choices that are listed under it.
Think it through first if that helps, and write down your reasoning.
Then end your reply with the choice, copied exactly from the list, like this:
{_OPENING}your choice{_CLOSING}
Nothing may follow {_CLOSING}."""

_MARKUP = re.compile(r"<(?=[^\W\d_]|[/!?])")
"""What begins like a tag, a comment or an instruction."""
_REFERENCE = re.compile(r"&(?:(amp|lt|gt|quot|apos)|#(\d{1,10})|#x([0-9A-Fa-f]{1,8}));", re.ASCII)
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_LAST = 0x10FFFF
_HALVES = range(0xD800, 0xE000)
"""Of surrogate pairs: no characters by themselves."""


@attrs.frozen
class ParseError:
    """Why a reply has no usable answer."""

    kind: ParseFaultKind
    message: str


def normalized(text: str) -> str:
    """What answers are compared by: composed, stripped and without cases.

    Example:
        >>> normalized(" Straße ") == normalized("STRASSE")
        True
    """
    folded = unicodedata.normalize("NFC", text).strip().casefold()
    # Folding takes some characters apart that are one character in lower case.
    return unicodedata.normalize("NFC", folded)


def question_prompt(question: str, answers: Sequence[str]) -> str:
    """The prompt of a question; what is sent, and what is estimated.

    Args:
        question: Its text.
        answers: The choices, in the order in which they are listed.

    Example:
        >>> question_prompt("Which colour is the sky?", ["Red", "Blue"]).splitlines()[-5:]
        ['Which colour is the sky?', '', 'Choices:', 'Red', 'Blue']
    """
    choices = "\n".join(answers)
    return f"{_INSTRUCTIONS}\n\nQuestion:\n{question}\n\nChoices:\n{choices}"


def parse_answer(text: str, answers: Collection[str] = ()) -> str | ParseError:
    r"""The answer at the end of a reply, stripped, with its references decoded.

    Args:
        text: The reply.
        answers: What there was to choose from; one of them that is copied is an answer as it is.

    Example:
        >>> parse_answer("It is the sky.\n<answer>Black & Blue</answer>\n")
        'Black & Blue'
        >>> parse_answer("<answer>Blue</answer> I think").kind
        'trailing_text'
        >>> parse_answer("<answer><br></answer>", ["<br>", "<hr>"])
        '<br>'
    """
    reply = text.strip()
    before, closing, after = reply.rpartition(_CLOSING)
    if not closing:
        what = f"the reply has no {_CLOSING}" if reply else "the reply is empty"
        return ParseError("missing_answer", what)
    if after:
        return ParseError("trailing_text", f"the reply goes on after {_CLOSING}")
    _, opening, content = before.rpartition(_OPENING)
    if not opening:
        return ParseError("missing_answer", f"there is no {_OPENING} before {_CLOSING}")
    if copied := _copied(before, answers):
        return copied
    if found := _MARKUP.search(content):
        shown = content[found.start() : found.start() + 20]
        return ParseError("malformed_answer", f"the answer has markup in it: {shown}")
    raw = _REFERENCE.sub(_decoded, content).strip()
    if not raw:
        return ParseError("empty_answer", f"nothing stands between {_OPENING} and {_CLOSING}")
    return raw


def _copied(before: str, answers: Collection[str]) -> str | None:
    """The choice that stands, as it is, behind an opening tag and ends a text; None if there is none."""
    end = before.rstrip()
    # The longest first: a choice may have tags in it, and another choice behind them.
    for choice in sorted(answers, key=len, reverse=True):
        if end.endswith(choice) and end[: -len(choice)].rstrip().endswith(_OPENING):
            return choice
    content = before.rpartition(_OPENING)[2].strip()
    return content if normalized(content) in map(normalized, answers) else None


def _decoded(found: re.Match[str]) -> str:
    entity, decimal, hexadecimal = found.groups()
    if entity:
        return _ENTITIES[entity]
    number = int(decimal) if decimal else int(hexadecimal, 16)
    is_character = 0 < number <= _LAST and number not in _HALVES
    return chr(number) if is_character else found[0]


# What became of one question.


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
    | LimitErrorReason
    | Literal["budget_exceeded", "timed_out", "lane_closed", "deadline", "interrupted", "internal"]
)


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
    task: str | None = None
    """None where the suite has no tasks, and for the whole run."""
    index: int | None = None
    """Of its row; None for the task itself, or for the run."""
    name: str
    """`queued`, `scheduled`, `reserving`, `waiting_rate_limit`, …: see `trioeval.question_eval.events`."""
    details: Mapping[str, object] = attrs.field(factory=dict)
    """JSON data: `retry_after_ms`, `keys`, `message`, `duration_ms`, …"""

    @property
    def job(self) -> str | None:
        """`<task id>-<index + 1>`, or the number alone where the suite has no tasks; None without a row."""
        if self.index is None:
            return None
        return str(self.index + 1) if self.task is None else f"{self.task}-{self.index + 1}"

    def json(self) -> dict[str, Any]:
        """The event as JSON data, where its row says which question that is."""
        details = {camel(name): fact for name, fact in self.details.items()}
        return {"sequence": self.sequence, "at": self.at, "event": self.name, **details}


@attrs.frozen(kw_only=True)
class QuestionResult:
    """What became of one question. Of what is not known nothing is told."""

    name: ClassVar[str] = "question"

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

    @classmethod
    def of(cls, question: Question, outcome: QuestionOutcome, **facts: Any) -> Self:
        """The result of a question that ended so, with what else is known of it, by the names of fields."""
        return cls(**attrs.asdict(question, recurse=False), outcome=outcome, **facts)

    @property
    def correct(self) -> bool:
        """Whether it was answered right."""
        return self.outcome == "correct"

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on a question that was run to its end; None on any other."""
        said = f"the answer {quote(self.agent_answer or '')}"
        match self:
            case QuestionResult(outcome="correct"):
                reason = f"{said} is right"
            case QuestionResult(outcome="incorrect"):
                why = "is wrong" if self.answer_listed else "is none of the choices"
                reason = f"{said} {why}; right is {' or '.join(map(quote, self.correct_answers))}"
            case QuestionResult(parse_error=ParseError(kind=kind, message=message)):
                reason = f"{kind}: {message}"
            case QuestionResult(outcome="budget_exceeded", run_error=RunError(message=message)):
                reason = f"budget_exceeded: {message}"
            case _:
                return None
        return Verdict(passed=self.correct, score=float(self.correct), reason=reason)

    def json(self) -> dict[str, Any]:
        """What became of the question, ready for `json.dumps`; of what is not known nothing is told."""
        told: dict[str, Any] = {
            "id": self.id,
            "question": self.question,
            "answers": list(self.answers),
            "correctAnswers": list(self.correct_answers),
            "outcome": self.outcome,
            "correct": self.correct,
            "agentAnswer": self.agent_answer,
            "answerListed": self.answer_listed,
            "parseError": None if self.parse_error is None else attrs.asdict(self.parse_error),
            "runError": None if self.run_error is None else attrs.asdict(self.run_error),
            "tokensTotal": self.tokens_total,
            "wallTimeSeconds": self.wall_time_s,
            "waitSeconds": self.wait_s,
            "attempts": self.attempts,
            "agentSteps": self.steps,
            "toolCalls": dict(self.tool_calls) or None,
            "events": [event.json() for event in self.events],
        }
        return {name: fact for name, fact in told.items() if fact is not None}

    def blocked(self, why: str, *, is_stopped: bool) -> Self:
        """The result of a question of a task that depends on one that is not complete."""
        error = self.run_error
        if error is None:
            return self
        kind: RunErrorKind = "budget_exhausted" if is_stopped else error.kind
        return attrs.evolve(self, run_error=attrs.evolve(error, kind=kind, message=why))

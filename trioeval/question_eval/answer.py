"""Multiple-choice questions: the prompt, the answer in a reply, and the result.

A reply may contain any reasoning; it must end with `<answer>…</answer>`, which contains one of the choices.
Choices are listed unchanged, and an exact copy is always accepted as that choice. Any other answer is parsed
leniently, but not as XML, which models do not write: `&` and `<` are literal unless they can be meant
otherwise, the five entities of XML and numeric references are decoded, and anything that starts like a tag
makes the answer malformed.
"""

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self, TypeAlias

import attrs

from trioeval.documents.structure import camel
from trioeval.errors import LimitErrorReason, ProviderErrorKind
from trioeval.grading import Verdict, quote
from trioeval.question_eval.counts import QuestionOutcome
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
"""The start of a tag, a comment or an instruction."""
_REFERENCE = re.compile(r"&(?:(amp|lt|gt|quot|apos)|#(\d{1,10})|#x([0-9A-Fa-f]{1,8}));", re.ASCII)
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_LAST = 0x10FFFF
_HALVES = range(0xD800, 0xE000)
"""Surrogates, which are not characters."""


@attrs.frozen
class ParseError:
    """The reason why a reply has no usable answer."""

    kind: ParseFaultKind
    message: str


def normalized(text: str) -> str:
    """Return an answer in the form in which answers are compared: composed, stripped and case-folded.

    Example:
        >>> normalized(" Straße ") == normalized("STRASSE")
        True
    """
    folded = unicodedata.normalize("NFC", text).strip().casefold()
    # Folding decomposes some characters that are one character in lower case.
    return unicodedata.normalize("NFC", folded)


def question_prompt(question: str, answers: Sequence[str]) -> str:
    """Return the prompt of a question.

    Args:
        question: Its text.
        answers: The choices, in order.

    Example:
        >>> question_prompt("Which colour is the sky?", ["Red", "Blue"]).splitlines()[-5:]
        ['Which colour is the sky?', '', 'Choices:', 'Red', 'Blue']
    """
    choices = "\n".join(answers)
    return f"{_INSTRUCTIONS}\n\nQuestion:\n{question}\n\nChoices:\n{choices}"


def parse_answer(text: str, answers: Collection[str] = ()) -> str | ParseError:
    r"""Return the answer at the end of a reply, stripped, with its references decoded.

    Args:
        text: The reply.
        answers: The choices; an exact copy of one of them is returned unchanged.

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
        message = f"the reply has no {_CLOSING}" if reply else "the reply is empty"
        return ParseError("missing_answer", message)
    if after:
        return ParseError("trailing_text", f"the reply continues after {_CLOSING}")
    _, opening, content = before.rpartition(_OPENING)
    if not opening:
        return ParseError("missing_answer", f"{_OPENING} is missing before {_CLOSING}")
    if copied := _copied(before, answers):
        return copied
    if found := _MARKUP.search(content):
        shown = content[found.start() : found.start() + 20]
        return ParseError("malformed_answer", f"the answer contains markup: {shown}")
    raw = _REFERENCE.sub(_decoded, content).strip()
    if not raw:
        return ParseError("empty_answer", f"nothing is between {_OPENING} and {_CLOSING}")
    return raw


def _copied(before: str, answers: Collection[str]) -> str | None:
    """Return the choice that is copied between an opening tag and the end of a text, or None."""
    end = before.rstrip()
    # The longest first: a choice may contain tags, followed by another choice.
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


# The result of one question.


RunErrorKind: TypeAlias = (
    ProviderErrorKind
    | LimitErrorReason
    | Literal["budget_exceeded", "timed_out", "lane_closed", "deadline", "interrupted", "internal"]
)


@attrs.frozen(kw_only=True)
class RunError:
    """The reason why a question has no reply to evaluate."""

    kind: RunErrorKind
    message: str
    retryable: bool = False
    """True if another run may succeed."""


@attrs.frozen(kw_only=True)
class QuestionEvent:
    """One event of a question, of its task, or of the whole run."""

    sequence: int
    """The number of the event in its run, from 0."""
    at: float
    """Seconds on the Trio clock."""
    task: str | None = None
    """None if the suite has no tasks, and for the whole run."""
    index: int | None = None
    """The index of its row; None for the task itself, or for the run."""
    name: str
    """`queued`, `scheduled`, `reserving`, `waiting_rate_limit`, …: see `trioeval.question_eval.events`."""
    details: Mapping[str, object] = attrs.field(factory=dict)
    """JSON data: `retry_after_ms`, `keys`, `message`, `duration_ms`, …"""

    @property
    def job(self) -> str | None:
        """`<task id>-<index + 1>`, or only the number if the suite has no tasks; None without a row."""
        if self.index is None:
            return None
        return str(self.index + 1) if self.task is None else f"{self.task}-{self.index + 1}"

    def json(self) -> dict[str, Any]:
        """Return the event as JSON data for the row of its question."""
        details = {camel(name): fact for name, fact in self.details.items()}
        return {"sequence": self.sequence, "at": self.at, "event": self.name, **details}


@attrs.frozen(kw_only=True)
class QuestionResult:
    """The result of one question. Unknown facts are left out."""

    name: ClassVar[str] = "question"

    id: str | None
    question: str
    answers: tuple[str, ...]
    correct_answers: tuple[str, ...]
    outcome: QuestionOutcome
    agent_answer: str | None = None
    """The answer in the reply."""
    answer_listed: bool | None = None
    """True if it is one of `answers`; None without an answer."""
    parse_error: ParseError | None = None
    run_error: RunError | None = None
    tokens_total: int | None = None
    wall_time_s: float | None = None
    """Seconds of calls and tools."""
    wait_s: float | None = None
    """Seconds of waiting before its first call and between its calls."""
    attempts: int = 0
    """Calls that were made, including failed ones."""
    steps: int = 0
    """Calls that the model answered."""
    tool_calls: Mapping[str, int] = attrs.field(factory=dict)
    """The number of calls of each tool."""
    events: tuple[QuestionEvent, ...] = ()
    """Its events in order; the last one is named after `outcome`."""

    @classmethod
    def of(cls, question: Question, outcome: QuestionOutcome, **facts: Any) -> Self:
        """Return the result of a question with an outcome, and further facts by the names of fields."""
        return cls(**attrs.asdict(question, recurse=False), outcome=outcome, **facts)

    @property
    def correct(self) -> bool:
        """True if it was answered correctly."""
        return self.outcome == "correct"

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on a question that was run to its end; None for any other."""
        answer = f"the answer {quote(self.agent_answer or '')}"
        match self:
            case QuestionResult(outcome="correct"):
                reason = f"{answer} is correct"
            case QuestionResult(outcome="incorrect"):
                why = "is wrong" if self.answer_listed else "is not one of the choices"
                reason = f"{answer} {why}; correct: {' or '.join(map(quote, self.correct_answers))}"
            case QuestionResult(parse_error=ParseError(kind=kind, message=message)):
                reason = f"{kind}: {message}"
            case QuestionResult(outcome="budget_exceeded", run_error=RunError(message=message)):
                reason = f"budget_exceeded: {message}"
            case _:
                return None
        return Verdict(passed=self.correct, score=float(self.correct), reason=reason)

    def json(self) -> dict[str, Any]:
        """Return the result as JSON data; unknown facts are left out."""
        data: dict[str, Any] = {
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
        return {name: fact for name, fact in data.items() if fact is not None}

    def blocked(self, why: str, *, is_stopped: bool) -> Self:
        """Return the result of a question whose task depends on an incomplete one."""
        error = self.run_error
        if error is None:
            return self
        kind: RunErrorKind = "budget_exhausted" if is_stopped else error.kind
        return attrs.evolve(self, run_error=attrs.evolve(error, kind=kind, message=why))

# Apart from `cli.progress.run`: one screen a task type.
"""What questions are doing: a line for each task of them, and with `--verbose` one for each event."""

from collections import Counter
from collections.abc import Callable, Sequence

import attrs

from trioeval.question_eval.answer import QuestionEvent
from trioeval.question_eval.result import OUTCOMES
from trioeval.report import inert

_MOST = 400  # characters of a line
_OVER = frozenset[str](OUTCOMES)
_STATES = {
    "scheduled": "running",
    "reserving": "waiting",
    "running": "running",
    "tool_start": "running",
    "tool_finish": "running",
    "parsing": "running",
}
"""What a line of progress calls the events that are no outcome; those that are missing are waits."""


@attrs.define
class _Task:
    """One task of questions."""

    queued: int = 0
    states: dict[int, str] = attrs.field(factory=dict)
    """Of those that are under way."""
    outcomes: Counter[str] = attrs.field(factory=Counter)


@attrs.define
class QuestionProgress:
    """Collects what is shown of questions; `observe` goes to the run."""

    tell: Callable[[str], None] | None = None
    """Told of each event as a line."""
    began_at: float = 0.0
    """The instant from which its seconds are counted."""
    _tasks: dict[str | None, _Task] = attrs.field(init=False, factory=dict)

    def observe(self, event: QuestionEvent) -> None:
        """Take note of an event."""
        if self.tell is not None:
            self.tell(event_line(event, self.began_at))
        if event.index is None:
            return
        task = self._tasks.setdefault(event.task, _Task())
        if event.name == "queued":
            task.queued += 1
        elif event.name in _OVER:
            task.states.pop(event.index, None)
            task.outcomes[event.name] += 1
        else:
            task.states[event.index] = _STATES.get(event.name, "waiting")

    def lines(self) -> Sequence[str]:
        """A line for each task that has begun."""
        return [_line(name, task) for name, task in self._tasks.items()]


def _line(name: str | None, task: _Task) -> str:
    states = Counter(task.states.values())
    told = [f"{task.outcomes[outcome]} {_words(outcome)}" for outcome in task.outcomes]
    told += [f"{states[state]} {state}" for state in ("running", "waiting") if states[state]]
    shown = "questions" if name is None else f"{inert(name, 50)}"
    return f"  {shown}: {task.outcomes.total()}/{task.queued} questions: {', '.join(told) or 'none yet'}"


def event_line(event: QuestionEvent, began_at: float) -> str:
    """An event as one line, whatever models and tools have written.

    Args:
        event: It.
        began_at: The instant from which seconds are counted.

    Example:
        >>> event = QuestionEvent(
        ...     sequence=7,
        ...     at=12.5,
        ...     task="quiz",
        ...     index=2,
        ...     name="correct",
        ...     details={"answer": "Blue"},
        ... )
        >>> event_line(event, 10.0)
        '2.500 s quiz-3: correct, answer "Blue"'
    """
    who = event.job or event.task or "questions"
    known = ((name, fact) for name, fact in event.details.items() if fact is not None)
    details = (f"{_words(name)} {_shown(name, fact)}" for name, fact in known)
    text = ", ".join([_words(event.name), *details])
    return inert(f"{event.at - began_at:.3f} s {who}: {text}", _MOST)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _shown(name: str, fact: object) -> str:
    match fact:
        case str():
            return f'"{fact}"'
        case float():
            return f"{fact:.0f}" if name.endswith("_ms") else f"{fact:.3f}"
        case list() | tuple():
            return " ".join(map(str, fact))
        case _:
            return str(fact)

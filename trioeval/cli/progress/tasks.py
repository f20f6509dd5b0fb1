"""The progress of question, dataset and agent tasks: a line for each, and for `--verbose` each event."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

import attrs

from trioeval.agent.protocols import (
    AgentEvent,
    AttemptContinued,
    AttemptEnded,
    AttemptStarted,
    AttemptWaiting,
    CaseBlocked,
    CaseEnded,
    CaseQueued,
)
from trioeval.columns.events import (
    DatasetEvent,
    DatasetShutDown,
    DatasetStarted,
    GroupAbandoned,
    GroupOpened,
    GroupWritten,
    ManyTransientFailures,
    ProcessorEnded,
    ProcessorStarted,
    RowDropped,
)
from trioeval.question_eval.answer import QuestionEvent
from trioeval.question_eval.counts import OUTCOMES
from trioeval.report.columns import failure_line
from trioeval.text import counted
from trioeval.text_safety import escape_control_characters

TaskEvent: TypeAlias = QuestionEvent | DatasetEvent | AgentEvent

_NAME = 50  # characters of a name
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
"""The state of a question by event; other events that are not outcomes are waits."""


@attrs.define
class TaskProgress:
    """The progress of tasks; `observe` is an observer of the run."""

    warn: Callable[[str], None]
    """Called with warnings."""
    wanted: Mapping[str | None, int | None] = attrs.field(factory=dict)
    """The number of rows of each dataset; None if it is not known beforehand."""
    print_line: Callable[[str], None] | None = None
    """Called with each event as a line."""
    began_at: float = 0.0
    """The zero of the times in event lines."""
    _questions: "dict[str | None, _Questions]" = attrs.field(init=False, factory=dict)
    _datasets: "dict[str | None, _DatasetLine]" = attrs.field(init=False, factory=dict)
    _agents: "dict[str | None, _Agents]" = attrs.field(init=False, factory=dict)

    def expect(self, task: str | None, cases: int) -> None:
        """Set the number of cases of an agent task that will run."""
        self._agents.setdefault(task, _Agents()).cases = cases

    def observe(self, event: TaskEvent, dataset: str | None = None) -> None:
        """Handle an event; `dataset` names the task of a dataset event, which does not have it."""
        if self.print_line is not None:
            self.print_line(event_line(event, self.began_at, dataset))
        match event:
            case QuestionEvent(index=index):
                if index is not None:
                    self._questions.setdefault(event.task, _Questions()).take(event, index)
            case AgentEvent():
                self._agents.setdefault(event.task, _Agents()).take(event)
            case _:
                if isinstance(event, DatasetShutDown | ManyTransientFailures):
                    name = escape_control_characters(dataset or "dataset", _NAME)
                    self.warn(f"dataset {name}: {_dataset_text(event)}")
                self._dataset(dataset).take(event)

    def ended(self, dataset: str | None) -> None:
        """Remove the line of a dataset that has ended."""
        self._dataset(dataset).is_over = True

    def lines(self) -> Sequence[str]:
        """Return a line for each task with progress, inert."""
        tasks: Sequence[tuple[str, Mapping[str | None, _ProgressLine]]] = (
            ("questions", self._questions),
            ("dataset", self._datasets),
            ("agents", self._agents),
        )
        return [
            f"  {escape_control_characters(name or kind, _NAME)}: {line}"
            for kind, some in tasks
            for name, task in some.items()
            if (line := task.line()) is not None
        ]

    def _dataset(self, name: str | None) -> "_DatasetLine":
        return self._datasets.setdefault(name, _DatasetLine(self.wanted.get(name)))


class _ProgressLine(Protocol):
    def line(self) -> str | None:
        """Return the progress; None if there is nothing to show."""


@attrs.define
class _Questions:
    queued: int = 0
    states: dict[int, str] = attrs.field(factory=dict)
    """The states of questions in progress."""
    outcomes: Counter[str] = attrs.field(factory=Counter)

    def take(self, event: QuestionEvent, index: int) -> None:
        if event.name == "queued":
            self.queued += 1
        elif event.name in _OVER:
            self.states.pop(index, None)
            self.outcomes[event.name] += 1
        else:
            self.states[index] = _STATES.get(event.name, "waiting")

    def line(self) -> str | None:
        states = Counter(self.states.values())
        counts = [f"{count} {_words(outcome)}" for outcome, count in self.outcomes.items()]
        counts += [f"{states[state]} {state}" for state in ("running", "waiting") if states[state]]
        over = f"{self.outcomes.total()}/{self.queued} questions"
        return f"{over}: {', '.join(counts) or 'none yet'}"


@attrs.define
class _DatasetLine:
    wanted: int | None
    written: int = 0
    dropped: int = 0
    open_groups: set[int] = attrs.field(factory=set)
    processor: str | None = None
    """The processor that is running."""
    is_over: bool = False

    def take(self, event: DatasetEvent) -> None:
        match event:
            case DatasetStarted():
                self.written, self.dropped = event.written, event.dropped
            case GroupOpened():
                self.open_groups.add(event.group)
            case GroupWritten():
                self.open_groups.discard(event.group.group)
                self.written += event.group.count
            case GroupAbandoned():
                self.open_groups.discard(event.group)
            case RowDropped():
                self.dropped += 1
            case ProcessorStarted():
                self.processor = event.name
            case ProcessorEnded():
                self.processor = None
            case DatasetShutDown() | ManyTransientFailures():
                pass

    def line(self) -> str | None:
        if self.is_over:
            return None
        if self.wanted is None:
            facts = [f"{counted(self.written, 'row')} written"]
        else:
            facts = [f"{self.written}/{self.wanted} rows written"]
        facts += [counted(len(self.open_groups), "open group")]
        facts += [f"{self.dropped} dropped"] if self.dropped else []
        facts += (
            []
            if self.processor is None
            else [f"processor {escape_control_characters(self.processor, _NAME)}"]
        )
        return ", ".join(facts)


@attrs.define
class _Agents:
    cases: int | None = None
    states: dict[str, str] = attrs.field(factory=dict)
    """The states of cases in progress, by name."""
    over: set[str] = attrs.field(factory=set)

    def take(self, event: AgentEvent) -> None:
        case, before = event.case, self.states.get(event.case)
        match event:
            case CaseBlocked(by=()) if before == "blocked":
                del self.states[case]
            case CaseQueued(position=0) if before == "queued":
                del self.states[case]
            case AttemptEnded() if before == "running":
                del self.states[case]
            case CaseBlocked(by=(_, *_)):
                self.states[case] = "blocked"
            case CaseQueued() if event.position:
                self.states[case] = "queued"
            case AttemptWaiting():
                self.states[case] = "waiting for a slot"
            case AttemptStarted() | AttemptContinued():
                self.states[case] = "running"
            case CaseEnded():
                self.states.pop(case, None)
                self.over.add(case)

    def line(self) -> str | None:
        is_over = self.cases is not None and len(self.over) >= self.cases
        if is_over or not (self.over or self.states):
            return None
        counts = Counter(self.states.values())
        states = ("running", "waiting for a slot", "blocked", "queued")
        parts = [f"{counts[state]} {state}" for state in states if counts[state]]
        of = "" if self.cases is None else f"/{self.cases}"
        return ", ".join([*parts, f"{len(self.over)}{of} over"])


def event_line(event: TaskEvent, began_at: float, dataset: str | None = None) -> str:
    """Return an event as one line, inert whatever text it has.

    Args:
        event: The event.
        began_at: The zero of the times.
        dataset: The id of the task of a dataset event.

    Example:
        >>> event = AttemptWaiting(at=12.5, task="repairs", case="words", agent="a", number=1)
        >>> event_line(event, 10.0)
        '2.500 s repairs/words: attempt 1 waits for a slot'
        >>> event_line(GroupOpened(at=12.5, group=3, restored=0), 10.0, "problems")
        '2.500 s problems: group 3 starts'
    """
    match event:
        case QuestionEvent():
            subject, text = event.job or event.task or "questions", _question_text(event)
        case AgentEvent():
            subject = event.case if event.task is None else f"{event.task}/{event.case}"
            text = _agent_text(event)
        case _:
            subject, text = dataset or "dataset", _dataset_text(event)
    return escape_control_characters(f"{event.at - began_at:.3f} s {subject}: {text}", _MOST)


def _question_text(event: QuestionEvent) -> str:
    known = ((name, fact) for name, fact in event.details.items() if fact is not None)
    details = (f"{_words(name)} {_shown(name, fact)}" for name, fact in known)
    return ", ".join([_words(event.name), *details])


def _agent_text(event: AgentEvent) -> str:
    match event:
        case CaseBlocked(by=()):
            return "waits for no other case"
        case CaseBlocked():
            return f"blocked by {', '.join(event.by)}"
        case CaseQueued(position=0):
            return "is next"
        case CaseQueued():
            return f"waits for its turn, at position {event.position}"
        case AttemptWaiting():
            return f"attempt {event.number} waits for a slot"
        case AttemptStarted():
            return f"attempt {event.number} of {event.agent} begins: run {event.run_id}"
        case AttemptContinued():
            return f"attempt {event.number} continues"
        case AttemptEnded():
            how = "was cancelled" if event.cancelled else "failed" if event.failed else "has ended"
            why = f": {event.reason}" if event.reason else ""
            return f"attempt {event.number} {how}{why}"
        case CaseEnded():
            return event.ending
        case _:
            return type(event).__name__


def _dataset_text(event: DatasetEvent) -> str:
    match event:
        case DatasetStarted():
            there = f", {event.written} of its rows exist already" if event.written else ""
            return f"it is begun{there}"
        case GroupOpened():
            there = f", {event.restored} of its jobs are done already" if event.restored else ""
            return f"group {event.group} starts{there}"
        case GroupWritten():
            group = event.group
            file = "no file" if group.file is None else group.file
            return f"group {group.group} is written: {group.count} rows, {file}"
        case GroupAbandoned():
            return f"group {event.group} is not finished: {event.reason.replace('_', ' ')}"
        case RowDropped():
            return failure_line(event.row)
        case ProcessorStarted():
            return f"processor {event.name} begins{_of_group(event.group)}"
        case ProcessorEnded():
            why = "" if event.error is None else f": {event.error}"
            return f"processor {event.name} is over{_of_group(event.group)}{why}"
        case DatasetShutDown():
            return "too many permanent failures; no further rows are started"
        case ManyTransientFailures():
            return "half of the last calls failed and are repeated"


def _of_group(group: int | None) -> str:
    return "" if group is None else f", group {group}"


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

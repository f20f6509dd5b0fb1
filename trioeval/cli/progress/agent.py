# Apart from `cli.progress.run`: one screen a task type.
"""What agents are doing: a line for each task of them, and with `--verbose` one for each event."""

from collections.abc import Callable, Sequence

import attrs

from trioeval.agent.protocols import (
    AgentEvent,
    AttemptEnded,
    AttemptGoesOn,
    AttemptStarted,
    AttemptWaiting,
    CaseBlocked,
    CaseEnded,
    CaseQueued,
)
from trioeval.report import inert

_NAME = 50  # characters of a name
_MOST = 400  # of a line


@attrs.define
class _Task:
    """One task of agents, by the names of its cases."""

    cases: int | None = None
    running: set[str] = attrs.field(factory=set)
    waiting: set[str] = attrs.field(factory=set)
    """For a slot."""
    blocked: set[str] = attrs.field(factory=set)
    queued: set[str] = attrs.field(factory=set)
    over: set[str] = attrs.field(factory=set)

    @property
    def is_over(self) -> bool:
        return self.cases is not None and len(self.over) >= self.cases

    def now_in(self, cases: set[str], case: str) -> None:
        """A case is in one of the sets, and in no other one."""
        for others in (self.running, self.waiting, self.blocked, self.queued):
            others.discard(case)
        cases.add(case)


@attrs.define
class AgentsProgress:
    """Collects what is shown of agents; `observe` goes to the run."""

    tell: Callable[[str], None] | None = None
    """Told of each event as a line."""
    began_at: float = 0.0
    """The instant from which its seconds are counted."""
    _tasks: dict[str | None, _Task] = attrs.field(init=False, factory=dict)

    def expect(self, task: str | None, cases: int) -> None:
        """It is known how many cases a task has that are to be worked on."""
        self._tasks.setdefault(task, _Task()).cases = cases

    def observe(self, event: AgentEvent) -> None:
        """Take note of an event."""
        if self.tell is not None:
            self.tell(event_line(event, self.began_at))
        task, case = self._tasks.setdefault(event.task, _Task()), event.case
        match event:
            case CaseBlocked(by=()):
                task.blocked.discard(case)
            case CaseBlocked():
                task.now_in(task.blocked, case)
            case CaseQueued(position=0):
                task.queued.discard(case)
            case CaseQueued():
                task.now_in(task.queued, case)
            case AttemptWaiting():
                task.now_in(task.waiting, case)
            case AttemptStarted() | AttemptGoesOn():
                task.now_in(task.running, case)
            case AttemptEnded():
                task.running.discard(case)
            case CaseEnded():
                task.now_in(task.over, case)

    def lines(self) -> Sequence[str]:
        """A line for each task that has begun and is not over."""
        return [
            _line(name, task)
            for name, task in self._tasks.items()
            if not task.is_over and (task.over or _states(task))
        ]


def _states(task: _Task) -> list[str]:
    counts = {
        "running": len(task.running),
        "waiting for a slot": len(task.waiting),
        "blocked": len(task.blocked),
        "queued": len(task.queued),
    }
    return [f"{count} {state}" for state, count in counts.items() if count]


def _line(name: str | None, task: _Task) -> str:
    of = "" if task.cases is None else f"/{task.cases}"
    told = [*_states(task), f"{len(task.over)}{of} over"]
    return f"  {inert(name or 'agents', _NAME)}: {', '.join(told)}"


def event_line(event: AgentEvent, began_at: float) -> str:
    """An event as one line, whatever stands in it.

    Args:
        event: It.
        began_at: The instant from which seconds are counted.

    Example:
        >>> event = AttemptWaiting(at=12.5, task="repairs", case="words", agent="a", number=1)
        >>> event_line(event, 10.0)
        '2.500 s repairs/words: attempt 1 waits for a slot'
    """
    name = event.case if event.task is None else f"{event.task}/{event.case}"
    return inert(f"{event.at - began_at:.3f} s {name}: {_told(event)}", _MOST)


def _told(event: AgentEvent) -> str:
    match event:
        case CaseBlocked(by=()):
            return "waits for no other case any more"
        case CaseBlocked():
            return f"blocked by {', '.join(event.by)}"
        case CaseQueued(position=0):
            return "has its turn"
        case CaseQueued():
            return f"waits for its turn, at position {event.position}"
        case AttemptWaiting():
            return f"attempt {event.number} waits for a slot"
        case AttemptStarted():
            return f"attempt {event.number} of {event.agent} begins: run {event.run_id}"
        case AttemptGoesOn():
            return f"attempt {event.number} goes on"
        case AttemptEnded():
            how = "was cancelled" if event.cancelled else "failed" if event.failed else "has ended"
            why = f": {event.reason}" if event.reason else ""
            return f"attempt {event.number} {how}{why}"
        case CaseEnded():
            return event.ending
        case _:
            return type(event).__name__

"""What a restart loop is given: who works, where, and whom it tells."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeVar

import attrs
import trio

from trioeval.agents.attempts import Attempt, AttemptEnd
from trioeval.agents.bus.messages import MessageType
from trioeval.agents.events import AgentEvent, AgentObserver
from trioeval.agents.restarts import RestartPolicy
from trioeval.errors import UsageError
from trioeval.kernel.events import guarded

R = TypeVar("R")


class Agent(Protocol):
    """What works on a task."""

    async def __call__(self, attempt: Attempt, /) -> AttemptEnd:
        """Work once. What it raises is a failure of the attempt of the kind `unexpected`.

        But for what says that the run is over, of calls on lanes: that cuts the attempt off.
        """
        ...


class Slots(Protocol):
    """What lets attempts run: a lane."""

    async def __call__(self, run: Callable[[], Awaitable[R]], /) -> R:
        """Run something in a slot, when it is its turn.

        What it raises by itself means that the run is over, and leaves the loop as it is.
        """
        ...


class Children(Protocol):
    """What attempts have started and that still lives."""

    def alive(self) -> Sequence[str]:
        """What each is called: run ids, process ids."""
        ...

    async def wait(self) -> None:
        """Return when none is left."""
        ...

    async def end(self) -> None:
        """End all of them, gently and then by force. Runs to its end also when it is cancelled.

        It takes as long as it takes: nothing else bounds it. With none left it does nothing.
        """
        ...


class Marker(Protocol):
    """Where the agent says that its task is done."""

    def is_set(self) -> bool:
        """Whether it is.

        Raises:
            MarkerError: The entry is not a file: a folder.
        """
        ...

    async def wait(self) -> None:
        """Return when it is set, perhaps a moment later."""
        ...


def _positive(_terms: object, field: "attrs.Attribute[float]", seconds: float) -> None:
    if not seconds > 0:
        raise UsageError(f"{field.name} must be more than 0 seconds, got {seconds!r}")


def _guarded(observe: AgentObserver | None) -> AgentObserver | None:
    return guarded(observe)


@attrs.frozen(kw_only=True)
class LoopTerms:
    """How one case is worked on.

    Raises:
        UsageError: A time is out of its range.
    """

    policy: RestartPolicy
    child_timeout: float = attrs.field(default=300.0, validator=_positive)
    """Seconds that children may go on when the task is done, > 0."""
    slots: Slots
    marker: Marker
    children: Children
    post: Callable[[MessageType, str], Awaitable[None]]
    """Tells the bus. What it raises is counted, and changes nothing."""
    begin: Callable[[int], Attempt]
    """Makes the attempt with a number; called when it has its slot."""
    ended: Callable[[Attempt, AttemptEnd], None]
    """Writes down synchronously how an attempt ended, in the step in which that is known.

    Not called of one that was cut off.
    """
    stop: trio.Event = attrs.field(factory=trio.Event)
    """Set when no further attempt is to begin; one that runs comes to its end."""
    idle: Callable[[], AbstractContextManager[object]] = nullcontext
    """Makes what is put around its waits for other things than slots: they are no work."""
    observe: AgentObserver | None = attrs.field(default=None, converter=_guarded)
    """Told of its attempts, and how it ended."""
    task: str | None = None
    """What the observer is told of it: the id of its task,"""
    case: str = ""
    """its name,"""
    agent: str = ""
    """and what its agent is called."""

    def tell(self, event: type[AgentEvent], **details: Any) -> None:
        """Tell the observer, if there is one.

        Args:
            event: What happens now.
            **details: Its fields, but for those of every event.
        """
        if self.observe is not None:
            about: dict[str, Any] = {"task": self.task, "case": self.case, "agent": self.agent}
            self.observe(event(at=trio.current_time(), **about, **details))

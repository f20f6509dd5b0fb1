"""The restart loop of one case: an agent is started again and again until its task is done."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol, TypeAlias, TypeVar

import attrs
import trio

from trioeval.agents.attempts import Attempt, AttemptEnd
from trioeval.agents.bus.messages import MessageType
from trioeval.agents.restarts import GaveUp, RestartPolicy

R = TypeVar("R")

LoopEnding: TypeAlias = Literal["done", "failed", "interrupted"]


class Agent(Protocol):
    """What works on a task."""

    async def __call__(self, attempt: Attempt, /) -> AttemptEnd:
        """Work once. What it raises is a failure of the attempt of the kind `unexpected`."""
        ...


class Slots(Protocol):
    """What lets attempts run: a lane."""

    async def __call__(self, run: Callable[[], Awaitable[R]], /) -> R:
        """Run something in a slot, when it is its turn."""
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
        """End all of them, gently and then by force. Runs to its end also when it is cancelled."""
        ...


class Marker(Protocol):
    """Where the agent says that its task is done."""

    def is_set(self) -> bool:
        """Whether it is.

        Raises:
            AgentError: What is there is not what says so: a folder.
        """
        ...

    async def wait(self) -> None:
        """Return when it is set, perhaps a moment later."""
        ...


@attrs.frozen(kw_only=True)
class LoopTerms:
    """How one case is worked on.

    Raises:
        UsageError: A time or a number is out of its range; tells of all that are.
    """

    policy: RestartPolicy
    child_timeout: float = 300.0
    """Seconds that children may go on when the task is done, > 0."""
    slots: Slots
    marker: Marker
    children: Children
    post: Callable[[MessageType, str], Awaitable[None]]
    """Tells the bus; never raises but when cancelled."""
    begin: Callable[[int], Attempt]
    """Makes the attempt with a number; called when it has its slot."""
    ended: Callable[[Attempt, AttemptEnd], None]
    """Writes down synchronously how an attempt ended, in the step in which that is known."""
    stop: trio.Event = attrs.field(factory=trio.Event)
    """Set when no further attempt is to begin; one that runs comes to its end."""


@attrs.frozen(kw_only=True)
class LoopEnd:
    """What became of a case."""

    ending: LoopEnding
    gave_up: GaveUp | None = None
    """Why, of one that failed."""
    message: str
    """In a sentence: `done after 3 attempts`."""
    attempts: tuple[AttemptEnd, ...]
    """Those of earlier executions among them."""
    children_ended: int = 0
    """Children that had to be ended."""


async def run_until_done(
    agent: Agent, terms: LoopTerms, earlier: Sequence[AttemptEnd] = ()
) -> LoopEnd:
    """Work on a case until it is done, given up, or stopped. A checkpoint.

    When it returns or raises, none of its children is alive.

    Args:
        agent: Who works.
        terms: How.
        earlier: How attempts of earlier executions of the run ended.

    Raises:
        AgentError: What is in the place of the marker is not what says so.
    """
    raise NotImplementedError

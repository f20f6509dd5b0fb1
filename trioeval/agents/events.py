"""What happens to agents, as frozen records for a synchronous observer: progress, metrics, the live view.

Instants are those of the Trio clock.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

import attrs

CaseEnding: TypeAlias = Literal["done", "failed", "interrupted", "blocked"]


@attrs.frozen(kw_only=True)
class AgentEvent:
    """Something that happens to the case of an agent."""

    at: float
    task: str | None
    """The id of its task of the suite."""
    case: str
    """Its name, unique in its task; of a child of an agent that is a function, behind it and a slash that of
    the child."""
    agent: str
    """What its agent is called."""


@attrs.frozen(kw_only=True)
class CaseBlocked(AgentEvent):
    """It waits for others; told again when the others change."""

    by: tuple[str, ...]
    """Names of cases, in the order in which it names them; empty when it waits no more and begins."""


@attrs.frozen(kw_only=True)
class CaseQueued(AgentEvent):
    """It waits for its turn among the root tasks of all programs."""

    position: int
    """From 1; 0 when it has got its turn."""


@attrs.frozen(kw_only=True)
class AttemptWaiting(AgentEvent):
    """An attempt has to wait for a run slot, to begin or to go on. Not told of one that gets it at once."""

    number: int


@attrs.frozen(kw_only=True)
class AttemptGoesOn(AgentEvent):
    """An attempt that began before, and had to wait for a slot to go on, has one."""

    number: int


@attrs.frozen(kw_only=True)
class AttemptStarted(AgentEvent):
    """An attempt has its slot, and begins."""

    number: int
    run_id: str


@attrs.frozen(kw_only=True)
class AttemptEnded(AgentEvent):
    """An attempt is over."""

    number: int
    run_id: str
    failed: bool
    cancelled: bool = False
    reason: str = ""
    """Why it failed: kind and message."""


@attrs.frozen(kw_only=True)
class CaseEnded(AgentEvent):
    """Nothing more is done for it."""

    ending: CaseEnding


AgentObserver: TypeAlias = Callable[[AgentEvent], None]
"""Told synchronously. What it raises is logged and dropped."""

"""How the agents of a run are worked on, and who is told."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from random import Random

import attrs

from trioeval.agents.events import AgentObserver
from trioeval.agents.planner import Planner
from trioeval.tasks.agents.bus_accounts import BusAccounts


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _chance() -> Callable[[], float]:
    return Random().random  # noqa: S311 - no secret


@attrs.frozen(kw_only=True)
class AgentTerms:
    """How the agents of a run are worked on, and who is told."""

    folder: Path | None = None
    """Where the folders of its cases are; None keeps them only as long as it runs."""
    planner: Planner | None = None
    """Whose turn it is among all programs; None lets every case begin at once."""
    observe: AgentObserver | None = None
    """Told of what happens."""
    buses: BusAccounts = attrs.field(factory=BusAccounts, repr=False)
    """What writing to all buses has cost."""
    now: Callable[[], dt.datetime] = attrs.field(default=_now, repr=False)
    """The wall clock, in UTC."""
    rng: Callable[[], float] = attrs.field(factory=_chance, repr=False)
    """Numbers from 0 to 1."""

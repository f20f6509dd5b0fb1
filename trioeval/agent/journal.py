"""Record of the processes of attempts, so that those of a program that died can be ended.

The end of an attempt is recorded like any other reply, as a call of the role `attempt`.
"""

from collections.abc import Sequence
from typing import Protocol

import attrs


@attrs.frozen(kw_only=True)
class ProcessIdentity:
    """The first process of a tree, distinguished from others with the same number earlier or later."""

    pid: int
    """0 if it is recorded before it starts."""
    started: int
    """Clock ticks from the system's start; 0 if unknown."""
    host: str
    """The machine, with its boot."""
    mark: str
    """A text in the environment of the whole tree, and of no other."""


@attrs.frozen(kw_only=True)
class RunningAttempt:
    """An attempt that has started and, as far as known, not ended."""

    run_id: str
    """The run id of the attempt."""
    index: int
    """The index of the row."""
    row: str
    """The id of the row."""
    number: int
    """≥ 0."""
    agent: str
    """The name of its agent."""
    process: ProcessIdentity


class AgentJournal(Protocol):
    """Record of the processes of one task. The synchronous methods neither wait nor raise."""

    def started(self, attempt: RunningAttempt, /) -> None:
        """Record a running process."""
        ...

    def gone(self, run_id: str, /) -> None:
        """Record that no process of an attempt is left."""
        ...

    def left(self) -> Sequence[RunningAttempt]:
        """Return the attempts whose end earlier executions of the run did not record."""
        ...

    async def durable(self) -> None:
        """Wait until the records so far are durable. A checkpoint only if it has to wait."""
        ...

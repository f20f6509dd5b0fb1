"""Record of the processes of attempts, so that those of a program that died can be ended.

How an attempt ended is recorded like any other reply, as a call of the role `attempt`.
"""

from collections.abc import Sequence
from typing import Protocol

import attrs


@attrs.frozen(kw_only=True)
class ProcessIdentity:
    """The first process of a tree, told from others that had or will have its number."""

    pid: int
    """0 where it is written down before it begins."""
    started: int
    """Clock ticks since the system was started; 0 where it does not tell."""
    host: str
    """Which machine, since which start of it."""
    mark: str
    """What the environment of the whole tree holds, and no other's."""


@attrs.frozen(kw_only=True)
class RunningAttempt:
    """An attempt that has begun and is not over, as far as anybody knows."""

    run_id: str
    """Of the attempt."""
    index: int
    """Of the row."""
    row: str
    """The id of the row."""
    number: int
    """≥ 0."""
    agent: str
    """What its agent is called."""
    process: ProcessIdentity


class AgentJournal(Protocol):
    """Where the processes of one task are written down. What is synchronous here neither waits nor raises."""

    def started(self, attempt: RunningAttempt, /) -> None:
        """Its process runs."""
        ...

    def gone(self, run_id: str, /) -> None:
        """Nothing of it is left."""
        ...

    def left(self) -> Sequence[RunningAttempt]:
        """What earlier executions of the run did not see the end of."""
        ...

    async def durable(self) -> None:
        """Return when what was written down so far is safe. A checkpoint only if it has to wait."""
        ...

"""What is written down of attempts as they go, and found again when a run is resumed."""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

import attrs

from trioeval.agents.attempts import Attempt, AttemptEnd

AttemptStatus: TypeAlias = Literal["running", "completed", "failed", "cancelled"]


@attrs.frozen(kw_only=True)
class ProcessIdentity:
    """A process, told from others that had or will have its number."""

    pid: int
    started: int
    """Clock ticks since the system was started; 0 where it does not tell."""
    host: str
    """Which machine, since which start of it."""
    mark: str
    """What the environment of its whole tree holds, and no other's."""


@attrs.frozen(kw_only=True)
class AttemptRecord:
    """One attempt, as it is known so far."""

    row: str
    """The id of its row."""
    digest: str
    """Of everything that makes it another case: what is recorded of another one does not count."""
    agent: str
    attempt: Attempt
    status: AttemptStatus
    process: ProcessIdentity | None = None
    end: AttemptEnd | None = None
    """None of one that runs, or was cut off."""


class AgentJournal(Protocol):
    """Where the attempts of one task are written down. What is synchronous here neither waits nor raises."""

    def begun(self, index: int, record: AttemptRecord, /) -> None:
        """An attempt begins; once more when its process is known."""
        ...

    def ended(self, index: int, record: AttemptRecord, /) -> None:
        """It is over."""
        ...

    def earlier(self, row: str, digest: str, /) -> Sequence[AttemptRecord]:
        """Those of earlier executions of the run, in order; the last may have been cut off."""
        ...

    async def durable(self) -> None:
        """Return when what was written down so far is safe. A checkpoint only if it has to wait."""
        ...

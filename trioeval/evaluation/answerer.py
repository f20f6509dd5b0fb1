"""Who answers the rows of a task in place of its providers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from trioeval.evaluation.prompt import Asked
from trioeval.kernel import Calls, Cut
from trioeval.providers import Reply
from trioeval.suite.expand import Step

ComeTo: TypeAlias = Callable[[Reply, float, int], None]
"""Takes a reply with what all attempts so far have used, how many milliseconds they took, and how many of
them an earlier execution of the run has made."""


class Agents(Protocol):
    """Who answers in place of the providers of a task: agents, each case in a folder of its own."""

    def begins_at_once(self, step: Step, /) -> bool:
        """Whether a row begins whatever its lane can serve, because it waits for other things first."""
        ...

    async def answer(self, step: Step, asked: Asked, calls: Calls[Any], told: ComeTo, /) -> Reply:
        """Work on a case. A checkpoint.

        Args:
            step: The row to be.
            asked: What is to be done.
            calls: Of the job that is under way.
            told: Told synchronously what the case has come to, whenever an attempt is over.

        Raises:
            AgentError: It cannot be worked on.
            BlockedError: It is not worked on.
        """
        ...

    def workspace(self, step: Step, /) -> Path:
        """The folder in which a case was worked on."""
        ...

    def with_cut_attempt(self, step: Step, reply: Reply | None, /) -> Reply | None:
        """What a case has come to, with what an attempt had used that was cut off. Looks at files."""
        ...

    def over(self, step: Step, cut: Cut | None, /) -> None:
        """A row is over.

        Args:
            step: The row.
            cut: What kept it from running to its end; None if nothing did.
        """
        ...

"""What a suite file says of agents, as frozen data."""

from collections.abc import Sequence
from typing import Any, ClassVar

import attrs

from trioeval.documents.structure import Count, Factor, NotNegative, Number, Positive, Texts
from trioeval.grading import Assertion
from trioeval.grading.services import MAX_PROCESSES
from trioeval.suite.dependencies import FailedDependency
from trioeval.suite.model import CodeDigests, ExtraKeys, TaskSettings, TaskType, Test
from trioeval.text import KEY

DONE_TYPE = "agent-done"
"""The assertion that every case has, first of all: its agent said that it is done."""


@attrs.frozen(kw_only=True)
class AgentSettings(TaskSettings):
    """How the agents of a task are started, and when they are given up."""

    type: ClassVar[TaskType] = "agent"

    workspace: str | None = None
    """A template of a folder, or of a file of `git bundle`, that each case gets a copy of; None begins with
    an empty folder."""
    done_file: str = "DONE"
    """In the workspace: the agent makes this file when its task is done."""
    max_restarts: Count = 100
    """Attempts in all."""
    restart_delay: NotNegative = 1
    """Seconds between two attempts."""
    restart_backoff: Factor = 2
    """Factor of the delay for each failure in a row, ≥ 1."""
    max_restart_delay: NotNegative = 60
    """Seconds."""
    identical_failures: Count = 5
    """Equal failures in a row after which the agent is given up."""
    attempt_timeout: Positive | None = None
    """Seconds of one attempt; None does not bound it."""
    child_timeout: Positive = 300
    """Seconds that what the agent has started may go on when its task is done."""
    grace: NotNegative = 1.5
    """Seconds between the request to end and the end by force."""
    max_processes: Number = MAX_PROCESSES
    """Processes that an attempt of a program, or a command of a model, may have at once, above which all of
    them are killed; 0 does not bound them."""
    max_tokens: Count | None = None
    """Tokens of all attempts of a case after which none begins; None does not bound them."""
    max_cost: Positive | None = None
    """US dollars, likewise."""
    max_steps: Count = 50
    """Replies of a model in one attempt."""
    allow_commands: bool = False
    """Whether a model may run commands in its workspace."""

    def identity(self, sources: CodeDigests | None) -> Sequence[Any]:
        """What an attempt begins with, what ends it, and what a model may do."""
        del sources
        return self.workspace, self.done_file, self.allow_commands


@attrs.frozen(kw_only=True)
class Case(ExtraKeys):
    """What a test of a task of type `agent` says besides what every test says."""

    name: str = attrs.field(metadata={KEY: "id"})
    """Different from those of all other tests of the task."""
    depends_on: Texts = ()
    """Names of cases that have to be done first."""
    when_failed: FailedDependency = attrs.field(
        default="skip", metadata={KEY: "onFailedDependency"}
    )
    dependency_timeout: Positive | None = None
    """Seconds that it waits for those; None does not bound it."""
    workspace: str | None = None
    """In place of that of the task."""

    @property
    def assertions(self) -> Sequence[Assertion]:
        """Whether its agent said that it is done."""
        return (_DONE,)

    def identity(self) -> Sequence[Any]:
        """What its first attempt begins with."""
        return (self.workspace,)


_DONE = Assertion(type=DONE_TYPE)


def case_of(test: Test) -> Case | None:
    """What a test says as a case; None if it is the test of a task of another type."""
    return test.extra if isinstance(test.extra, Case) else None

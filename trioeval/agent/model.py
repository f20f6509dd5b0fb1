"""The settings of agents in a suite file, as frozen data."""

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
"""The first assertion of every case: its agent reported that it is done."""


@attrs.frozen(kw_only=True)
class AgentSettings(TaskSettings):
    """Settings for starting the agents of a task, and for giving up."""

    type: ClassVar[TaskType] = "agent"

    workspace: str | None = None
    """A template of a folder, or of a file of `git bundle`, that each case gets a copy of; None starts with
    an empty folder."""
    done_file: str = "DONE"
    """Path in the workspace: the agent creates this file when its task is done."""
    max_restarts: Count = 100
    """Maximum number of attempts."""
    restart_delay: NotNegative = 1
    """Seconds between two attempts."""
    restart_backoff: Factor = 2
    """Factor of the delay for each consecutive failure, ≥ 1."""
    max_restart_delay: NotNegative = 60
    """Maximum delay in seconds."""
    identical_failures: Count = 5
    """Number of equal consecutive failures after which the case is given up."""
    attempt_timeout: Positive | None = None
    """Timeout of one attempt in seconds; None means no limit."""
    child_timeout: Positive = 300
    """Seconds that child runs may continue after the task is done."""
    grace: NotNegative = 1.5
    """Seconds between the request to end and the kill."""
    max_processes: Number = MAX_PROCESSES
    """Maximum number of concurrent processes of an attempt of a program, or of a command of a model; with
    more, all of them are killed; 0 means no limit."""
    max_tokens: Count | None = None
    """Tokens of all attempts of a case after which no further attempt starts; None means no limit."""
    max_cost: Positive | None = None
    """Cost of all attempts of a case in US dollars after which no further attempt starts; None means no
    limit."""
    max_steps: Count = 50
    """Maximum number of replies of a model in one attempt."""
    allow_commands: bool = False
    """True if a model may run commands in its workspace."""

    def identity(self, sources: CodeDigests | None) -> Sequence[Any]:
        """Return the settings that decide the start, the end and the permissions of an attempt."""
        del sources
        return self.workspace, self.done_file, self.allow_commands


@attrs.frozen(kw_only=True)
class Case(ExtraKeys):
    """The additional keys of a test in a task of type `agent`."""

    name: str = attrs.field(metadata={KEY: "id"})
    """Unique among the tests of the task."""
    depends_on: Texts = ()
    """Names of cases that must be done first."""
    when_failed: FailedDependency = attrs.field(
        default="skip", metadata={KEY: "onFailedDependency"}
    )
    dependency_timeout: Positive | None = None
    """Maximum wait for those in seconds; None means no limit."""
    workspace: str | None = None
    """Replaces that of the task."""

    @property
    def assertions(self) -> Sequence[Assertion]:
        """The assertion that its agent reported that it is done."""
        return (_DONE,)

    def identity(self) -> Sequence[Any]:
        """Return the settings that decide the start of its first attempt."""
        return (self.workspace,)


_DONE = Assertion(type=DONE_TYPE)


def case_of(test: Test) -> Case | None:
    """Return the case of a test; None for a test of a task of another type."""
    return test.extra if isinstance(test.extra, Case) else None

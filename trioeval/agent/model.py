"""What a suite file says of agents, as frozen data."""

import attrs

from trioeval.documents.structure import Count, Factor, NotNegative, Number, Positive
from trioeval.suite.dependencies import FailedDependency

MAX_PROCESSES = 256
"""Processes that what an agent starts, or wrote, may have at once where the suite says nothing."""


@attrs.frozen(kw_only=True)
class RunLimits:
    """What holds for all tasks of type `agent` of a suite: the key `agents` of the file."""

    max_concurrent_runs: Number | None = None
    """Attempts of programs that run at once, over all tasks; 0 does not bound them; None takes the
    `maxConcurrency` of `evaluateOptions`."""
    max_concurrent_root_tasks: Number = 0
    """Cases that are under way at once, over all programs that share the database of runs, each in its turn;
    0 does not bound them."""
    bus_rotate_bytes: Count | None = None
    """Size at which a file of a message bus is closed and the next one begun; None never does."""
    bus_keep_segments: Count | None = None
    """Files of a bus that are kept, the newest; None keeps all."""


@attrs.frozen(kw_only=True)
class AgentSettings:
    """How the agents of a task are started, and when they are given up."""

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


@attrs.frozen(kw_only=True)
class Case:
    """What a test of a task of type `agent` says besides what every test says."""

    name: str
    """Different from those of all other tests of the task."""
    depends_on: tuple[str, ...] = ()
    """Names of cases that have to be done first."""
    when_failed: FailedDependency = "skip"
    dependency_timeout: Positive | None = None
    """Seconds that it waits for those; None does not bound it."""
    workspace: str | None = None
    """In place of that of the task."""

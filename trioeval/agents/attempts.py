"""Attempts: what an agent is given, and how it ended, as frozen data."""

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.usage import Usage

FailureKind: TypeAlias = Literal[
    "exit",
    "timeout",
    "killed",
    "not_found",
    "permission",
    "auth",
    "quota_exhausted",
    "invalid",
    "reported",
    "unexpected",
]
"""How an attempt failed: its program ended with a code that is no success, took longer than an attempt may,
was ended by a signal; there is no such program; it may not be run, or may not do what it wants; its key is
refused; what it may use is used up; it cannot work as it is set up; it says itself that it failed; or it
raised."""

_PASSING = re.compile(
    r"""\b\d{4}([-/])\d\d\1\d\d(?:T(?=\d))?                   # a date
    | (?<![\d.:])\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)(?:Z|[+-]\d\d:?\d\d)?(?![\d:])  # a time
    | \b1\d{9}(?:\.\d+|\d{3})?\b                             # one in seconds of today
    | \b0[xX][0-9a-fA-F]+                                    # a place in memory
    | \b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b       # a random id
    | (?i:\b(?:pid|ppid|tid|process|thread|port)s?\b[ :=#]{0,2})\[?\d+
    | (?:\blocalhost|\b\d{1,3}(?:\.\d{1,3}){3}|\[::1\]):\d+\b
    | (?:/private)?(?:/var/folders/\w+/\w+/T|(?:/var)?/tmp|/dev/shm)/[^\s/:,;'")\]]+
    | (?<![\w.])(?:\d+h)?(?:\d+m)?\d+(?:\.\d+)?\ ?(?:[nuµm]?s|secs?|seconds?|mins?|minutes?|hours?)\b""",
    re.VERBOSE,
)
"""What differs each time although nothing else does: instants, durations, numbers of processes and ports,
names of temporary files. Other numbers tell how far an agent has come."""

PERMANENT: frozenset[FailureKind] = frozenset(
    {"not_found", "permission", "auth", "quota_exhausted", "invalid"}
)
"""Kinds after which another attempt would fail in the same way."""


@attrs.frozen
class AttemptFailure:
    """How an attempt failed."""

    kind: FailureKind
    message: str

    @property
    def is_permanent(self) -> bool:
        """Whether another attempt would fail in the same way."""
        return self.kind in PERMANENT

    @property
    def signature(self) -> tuple[str, str]:
        """Equal for failures that are the same, whatever times, processes and temporary files they name."""
        return self.kind, _PASSING.sub("#", self.message)


@attrs.frozen(kw_only=True)
class Attempt:
    """What an agent is given to work on."""

    number: int
    """≥ 0; counted over all executions of its run."""
    run_id: str
    """Of this attempt; sorts by the time of its start."""
    previous_run_id: str | None = None
    task_prompt: str
    """What is to be done."""
    is_resumed: bool = False
    """Whether an attempt of an earlier execution with the same number was cut off."""

    @property
    def prompt(self) -> str:
        """What the agent is told: the prompt, after a word on how it came to this if it has begun before."""
        if self.number or self.is_resumed:
            return f"{CONTINUATION}\n\n{self.task_prompt}"
        return self.task_prompt


CONTINUATION = (
    "You have begun this task before and it is not finished. What you did is still there: look at it first, "
    "then go on."
)
"""Stands before the prompt of every attempt but the first."""


@attrs.frozen(kw_only=True)
class AttemptEnd:
    """How an attempt ended."""

    output: Any = ""
    """What the agent said: text or JSON data."""
    failure: AttemptFailure | None = None
    """None of an attempt that ended well, whether or not the task is done."""
    exit_code: int | None = None
    """Of its program, or minus the signal that ended it; None of what is no program."""
    usage: Usage = attrs.field(factory=Usage)
    cost: float | None = None
    """US dollars; None where nobody knows."""
    duration_s: float = 0.0
    """Of its work, without waits for a slot or lane."""
    children_ended: int = 0
    """Children that were ended with it."""
    metadata: Mapping[str, Any] = attrs.field(factory=dict)
    """What else is known, as JSON data: where its logs are."""

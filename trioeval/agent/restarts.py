"""Decisions about restarts: whether an agent is started again, after how long, or given up. Pure."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.errors import UsageError
from trioeval.usage import Usage

# Attempts, and their ends, as frozen data.


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
"""The kind of a failure: the program ended with an unsuccessful code, timed out, or was killed by a signal;
it was not found; it may not be run, or lacks a permission; its key was refused; its quota is exhausted; its
setup is invalid; it reported a failure itself; or it raised an exception."""

_PASSING = re.compile(
    r"""\b\d{4}([-/])\d\d\1\d\d(?:T(?=\d))?                   # a date
    | (?<![\d.:])\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)(?:Z|[+-]\d\d:?\d\d)?(?![\d:])  # a time
    | \b1\d{9}(?:\.\d+|\d{3})?\b                             # a time in seconds since 1970
    | \b0[xX][0-9a-fA-F]+                                    # a memory address
    | \b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b       # a random id
    | (?i:\b(?:pid|ppid|tid|process|thread|port)s?\b[ :=#]{0,2})\[?\d+
    | (?:\blocalhost|\b\d{1,3}(?:\.\d{1,3}){3}|\[::1\]):\d+\b
    | (?:/private)?(?:/var/folders/\w+/\w+/T|(?:/var)?/tmp|/dev/shm)/[^\s/:,;'")\]]+
    | (?<![\w.])(?:\d+h)?(?:\d+m)?\d+(?:\.\d+)?\ ?(?:[nuµm]?s|secs?|seconds?|mins?|minutes?|hours?)\b""",
    re.VERBOSE,
)
"""Parts of messages that differ each time: instants, durations, numbers of processes and ports, names of
temporary files. Other numbers show the progress of an agent."""

PERMANENT: frozenset[FailureKind] = frozenset(
    {"not_found", "permission", "auth", "quota_exhausted", "invalid"}
)
"""Kinds after which another attempt would fail in the same way."""


@attrs.frozen
class AttemptFailure:
    """The failure of an attempt."""

    kind: FailureKind
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"

    @property
    def is_permanent(self) -> bool:
        """True if another attempt would fail in the same way."""
        return self.kind in PERMANENT

    @property
    def signature(self) -> tuple[str, str]:
        """Equal for failures that differ only in times, processes and temporary files."""
        return self.kind, _PASSING.sub("#", self.message)


@attrs.frozen(kw_only=True)
class Attempt:
    """An attempt, as passed to an agent."""

    number: int
    """≥ 0; counted over all executions of its run."""
    run_id: str
    """The id of this attempt; sorts by the time of its start."""
    previous_run_id: str | None = None
    task_prompt: str
    """The task."""
    is_resumed: bool = False
    """True if an attempt of an earlier execution with the same number was interrupted."""

    @property
    def prompt(self) -> str:
        """The prompt for the agent: that of the task, after a continuation note if it was started before."""
        if self.number or self.is_resumed:
            return f"{CONTINUATION}\n\n{self.task_prompt}"
        return self.task_prompt


CONTINUATION = (
    "You have started this task before and it is not finished. Your earlier work is still there: look at it "
    "first, then continue."
)
"""Precedes the prompt of every attempt except the first."""


@attrs.frozen(kw_only=True)
class AttemptEnd:
    """The end of an attempt."""

    output: Any = ""
    """The output of the agent: text or JSON data."""
    failure: AttemptFailure | None = None
    """None for a successful attempt, whether or not the task is done."""
    exit_code: int | None = None
    """The exit code of its program, or minus the signal that ended it; None without a program."""
    usage: Usage = attrs.field(factory=Usage)
    cost: float | None = None
    """US dollars; None if unknown."""
    duration_s: float = 0.0
    """Its working time, without waits for a slot or lane."""
    children_ended: int = 0
    """Number of children that were ended with it."""
    metadata: Mapping[str, Any] = attrs.field(factory=dict)
    """Additional JSON data, such as the paths of its logs."""


GiveUpReason: TypeAlias = Literal[
    "max_attempts", "permanent", "identical_failures", "max_tokens", "max_cost", "marker"
]
"""The reason why no further attempt is made."""


@attrs.frozen(kw_only=True)
class RestartPolicy:
    """The maximum number and the timing of attempts.

    Raises:
        UsageError: Numbers are out of range; the message lists all of them.

    Example:
        >>> RestartPolicy(max_attempts=3, max_cost=0.5).delay
        1.0
    """

    max_attempts: int = 100
    """In total, over all executions of a run, ≥ 0."""
    delay: float = 1.0
    """Seconds between the end of an attempt and the next one, ≥ 0 and finite."""
    backoff: float = 2.0
    """Factor of the delay for each consecutive failure, ≥ 1 and finite; a successful attempt resets it."""
    max_delay: float = 60.0
    """Maximum of the increased delay in seconds, ≥ 0 and finite; a longer `delay` is kept."""
    identical_failures: int = 5
    """Consecutive failures of one signature after which it gives up, ≥ 1; failures of the kind `timeout` are
    not counted: an attempt that reaches a limit may get further each time."""
    max_tokens: int | None = None
    """Tokens of all attempts after which no further one starts, ≥ 1; None means no limit."""
    max_cost: float | None = None
    """US dollars of all attempts after which no further one starts, > 0; None means no limit."""

    def __attrs_post_init__(self) -> None:
        if wrong := list(self._problems()):
            raise UsageError("; ".join(wrong))

    def _problems(self) -> Iterator[str]:
        whole = {
            "max_attempts": (self.max_attempts, 0),
            "identical_failures": (self.identical_failures, 1),
            "max_tokens": (self.max_tokens, 1),
        }
        for name, (count, least) in whole.items():
            if count is not None and (type(count) is not int or count < least):
                yield f"{name} must be a whole number of at least {least}, got {count!r}"
        finite = {
            "delay": (self.delay, 0),
            "backoff": (self.backoff, 1),
            "max_delay": (self.max_delay, 0),
        }
        for name, (number, least) in finite.items():
            if not least <= number < math.inf:
                yield f"{name} must be at least {least} and finite, got {number!r}"
        if self.max_cost is not None and not 0 < self.max_cost < math.inf:
            yield f"max_cost must be more than 0 and finite, got {self.max_cost!r}"


@attrs.frozen
class RestartAfter:
    """The decision to make another attempt."""

    delay: float
    """Seconds before it; 0 for the first one."""


@attrs.frozen
class GiveUp:
    """The decision to make no further attempt."""

    why: GiveUpReason
    message: str
    """A sentence with the numbers, and the failure of the last attempt, if any."""


def decide(policy: RestartPolicy, ends: Sequence[AttemptEnd]) -> RestartAfter | GiveUp:
    """Decide whether to make another attempt at a task that is not done.

    Of several reasons to give up, the most informative one is returned.

    Example:
        >>> failed = AttemptEnd(failure=AttemptFailure("exit", "its program ended with code 1"))
        >>> [decide(RestartPolicy(), [failed] * n) for n in range(4)]
        [RestartAfter(delay=0.0), RestartAfter(delay=1.0), RestartAfter(delay=2.0), RestartAfter(delay=4.0)]
    """
    streak = _streak(ends)
    if streak and streak[-1].is_permanent:
        return GiveUp("permanent", f"gave up after {attempts_text(len(ends))}: {streak[-1]}")
    alike = streak[-policy.identical_failures :]
    is_alike = len({one.signature for one in alike}) == 1 and alike[-1].kind != "timeout"
    if is_alike and len(alike) == policy.identical_failures:
        same = f"the last {len(alike)} failed in the same way: " if len(alike) > 1 else ""
        message = f"gave up after {attempts_text(len(ends))}: {same}{alike[-1]}"
        return GiveUp("identical_failures", message)
    if (used_up := _used_up(policy, ends)) is not None:
        last = f"; the last failed: {streak[-1]}" if streak else ""
        return attrs.evolve(used_up, message=used_up.message + last)
    return RestartAfter(_delay(policy, len(streak)) if ends else 0.0)


def _used_up(policy: RestartPolicy, ends: Sequence[AttemptEnd]) -> GiveUp | None:
    """Return the decision to stop if a limit of the task is used up."""
    if len(ends) >= policy.max_attempts:
        message = f"gave up: not done after {attempts_text(len(ends))} of {policy.max_attempts}"
        return GiveUp("max_attempts", message)
    if policy.max_tokens is not None:
        tokens = sum(end.usage.reported or 0 for end in ends)
        if tokens >= policy.max_tokens:
            spent = f"{tokens} of {policy.max_tokens} tokens are used"
            return GiveUp("max_tokens", f"gave up after {attempts_text(len(ends))}: {spent}")
    if policy.max_cost is not None:
        cost = math.fsum(end.cost or 0.0 for end in ends)
        if cost >= policy.max_cost:
            spent = f"{cost:g} of {policy.max_cost:g} US dollars are spent"
            return GiveUp("max_cost", f"gave up after {attempts_text(len(ends))}: {spent}")
    return None


def _delay(policy: RestartPolicy, failures: int) -> float:
    """Return the seconds before the next attempt, after a number of consecutive failures."""
    delay, longest = policy.delay, max(policy.delay, policy.max_delay)
    # Multiplied step by step: a power of a large factor raises an error instead of giving infinity.
    for _ in range(failures - 1):
        delay *= policy.backoff
        if delay >= longest:
            return longest
    return delay


def _streak(ends: Sequence[AttemptEnd]) -> list[AttemptFailure]:
    """Return the consecutive failures at the end, in order."""
    found: list[AttemptFailure] = []
    for end in reversed(ends):
        if end.failure is None:
            break
        found.append(end.failure)
    return found[::-1]


def attempts_text(attempts: int) -> str:
    """Return a number of attempts as text."""
    return "1 attempt" if attempts == 1 else f"{attempts} attempts"


def cost_of(costs: Iterable[float | None]) -> float | None:
    """Return the sum of costs; None if all are unknown."""
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None

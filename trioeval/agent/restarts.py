"""When an agent is started once more, after how long, and when it is given up. Pure."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.errors import UsageError
from trioeval.usage import Usage

# Attempts: what an agent is given, and how it ended, as frozen data.


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

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"

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


GaveUp: TypeAlias = Literal[
    "max_attempts", "permanent", "identical_failures", "max_tokens", "max_cost", "marker"
]
"""Why no further attempt is made."""


@attrs.frozen(kw_only=True)
class RestartPolicy:
    """How often and how soon an agent is started again.

    Raises:
        UsageError: Numbers are out of their range; tells of all that are.

    Example:
        >>> RestartPolicy(max_attempts=3, max_cost=0.5).delay
        1.0
    """

    max_attempts: int = 100
    """In all, over all executions of a run, ≥ 0."""
    delay: float = 1.0
    """Seconds between the end of an attempt and the next, ≥ 0 and finite."""
    backoff: float = 2.0
    """Factor of the delay for each failure in a row, ≥ 1 and finite; an attempt that ends well resets it."""
    max_delay: float = 60.0
    """Seconds that the factor makes of it at most, ≥ 0 and finite; a longer `delay` stays as it is."""
    identical_failures: int = 5
    """Failures of one signature in a row after which it is given up, ≥ 1; those of the kind `timeout` are
    none: who reaches a bound may get further each time."""
    max_tokens: int | None = None
    """Tokens of all attempts after which none begins, ≥ 1; None does not bound them."""
    max_cost: float | None = None
    """US dollars, > 0, likewise."""

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
class Again:
    """Another attempt is made."""

    delay: float
    """Seconds before it; 0 for the first one."""


@attrs.frozen
class Stop:
    """No further attempt is made."""

    why: GaveUp
    message: str
    """In a sentence, with the numbers, and how the last attempt failed if it did."""


def decide(policy: RestartPolicy, ends: Sequence[AttemptEnd]) -> Again | Stop:
    """Whether another attempt is made of a task that is not done.

    Of several reasons to give up, the one that says most is told.

    Example:
        >>> failed = AttemptEnd(failure=AttemptFailure("exit", "its program ended with code 1"))
        >>> [decide(RestartPolicy(), [failed] * n) for n in range(4)]
        [Again(delay=0.0), Again(delay=1.0), Again(delay=2.0), Again(delay=4.0)]
    """
    streak = _streak(ends)
    if streak and streak[-1].is_permanent:
        return Stop("permanent", f"gave up after {counted(len(ends))}: {streak[-1]}")
    alike = streak[-policy.identical_failures :]
    is_alike = len({one.signature for one in alike}) == 1 and alike[-1].kind != "timeout"
    if is_alike and len(alike) == policy.identical_failures:
        same = f"the last {len(alike)} failed alike: " if len(alike) > 1 else ""
        message = f"gave up after {counted(len(ends))}: {same}{alike[-1]}"
        return Stop("identical_failures", message)
    if (used_up := _used_up(policy, ends)) is not None:
        last = f"; the last failed: {streak[-1]}" if streak else ""
        return attrs.evolve(used_up, message=used_up.message + last)
    return Again(_delay(policy, len(streak)) if ends else 0.0)


def _used_up(policy: RestartPolicy, ends: Sequence[AttemptEnd]) -> Stop | None:
    """What the task was allowed and has used."""
    if len(ends) >= policy.max_attempts:
        message = f"gave up: not done after {counted(len(ends))} of {policy.max_attempts}"
        return Stop("max_attempts", message)
    if policy.max_tokens is not None:
        tokens = sum(_tokens(end.usage) for end in ends)
        if tokens >= policy.max_tokens:
            spent = f"{tokens} of {policy.max_tokens} tokens are used"
            return Stop("max_tokens", f"gave up after {counted(len(ends))}: {spent}")
    if policy.max_cost is not None:
        cost = math.fsum(end.cost or 0.0 for end in ends)
        if cost >= policy.max_cost:
            spent = f"{cost:g} of {policy.max_cost:g} US dollars are spent"
            return Stop("max_cost", f"gave up after {counted(len(ends))}: {spent}")
    return None


def _delay(policy: RestartPolicy, failures: int) -> float:
    """Seconds before the next attempt, after so many failures in a row."""
    delay, longest = policy.delay, max(policy.delay, policy.max_delay)
    # Factor by factor: a power of a large one is an error, not an infinity.
    for _ in range(failures - 1):
        delay *= policy.backoff
        if delay >= longest:
            return longest
    return delay


def _streak(ends: Sequence[AttemptEnd]) -> list[AttemptFailure]:
    """The failures in a row at the end, in order."""
    found: list[AttemptFailure] = []
    for end in reversed(ends):
        if end.failure is None:
            break
        found.append(end.failure)
    return found[::-1]


def _tokens(usage: Usage) -> int:
    """All that were used, as far as it is told."""
    if usage.total is not None:
        return usage.total
    return (usage.prompt or 0) + (usage.completion or 0)


def counted(attempts: int) -> str:
    """A number of attempts, in words."""
    return "1 attempt" if attempts == 1 else f"{attempts} attempts"


def cost_of(costs: Iterable[float | None]) -> float | None:
    """Several costs together; None where nobody knows any."""
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None

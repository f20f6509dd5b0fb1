"""Every exception that a user of trioeval can see, drawn as a tree.

    TrioevalError
    ├── SuiteError       the suite file is wrong: every problem found, with its place
    ├── UsageError       an argument or a flag is wrong
    ├── PlanError        a plan or a lane that cannot run as described
    ├── TooLateError     a call was asked for when its job, or the whole run, was over
    ├── TemplateError    a template cannot be rendered with the variables at hand
    ├── InputError       what a row is made of cannot be used: a file of a variable, a line of tests
    ├── ScriptError      code of the user's failed, took too long or gave what cannot be used
    ├── LaneClosedError  a lane serves no more calls: its provider refuses, or does not recover
    ├── BudgetError      what the caller allowed to be used is used up
    ├── LimitError       a shared limit will never allow a call, or whoever keeps it cannot be asked
    ├── CallError        a call failed; `fault` says what it means for its lane
    │   └── ProviderError    and `kind` says how
    ├── GradingError     an assertion could not be evaluated (not the same as failed)
    ├── OutputError      a result could not be written where it was asked for
    ├── DatasetError     a dataset cannot be built, gone on with, or read as it is
    ├── AgentError       the case of an agent cannot be worked on: its workspace, prompt or marker
    │   └── MarkerError      the agent left something in the place of its marker that is not a file
    ├── BlockedError     the case of an agent is not worked on: what it depends on is not done
    ├── NotLiveError     a run cannot be watched or steered: it is over, or nobody answers
    ├── BusError         a message bus cannot be written or read
    │   ├── BusLockedError       somebody else has held its lock all the time
    │   ├── CursorExpiredError   what is asked for was removed
    │   └── CursorNotFoundError  what is asked for was never there
    └── StoreError       the database of runs, or the cache, cannot be used as it is

The type says whose fault it is. What an exception knows is kept as data on it; its text is made from
that. Failures of single jobs never leave a run as exceptions: they are outcomes.
"""

import enum
import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.usage import Usage

# In which ways a call can fail, and what each means for its lane.


ProviderErrorKind: TypeAlias = Literal[
    "auth",
    "permission",
    "not_found",
    "unsupported",
    "bad_request",
    "context_window",
    "rate_limited",
    "overloaded",
    "quota_exhausted",
    "server",
    "connection",
    "tls",
    "attempt_timeout",
    "malformed_reply",
    "empty_reply",
    "bad_exit",
    "worker_crashed",
    "replay_miss",
    "unexpected",
]
"""The closed set of ways in which a call can fail."""


class Fault(enum.Enum):
    """What a failed call means for its lane: who is to blame, and whether to call again."""

    RATE_LIMITED = "rate_limited"
    """Too many calls: call again later, and less often."""
    TRANSIENT = "transient"
    """A mishap of the server or the network: call again."""
    REFUSED = "refused"
    """This request will never be served; others may be."""
    QUOTA_EXHAUSTED = "quota_exhausted"
    """The account will not be served any more in this run."""
    FATAL = "fatal"
    """The provider refuses whoever calls like this: a wrong key, a model that is not there."""


FAULT_BY_KIND: Mapping[ProviderErrorKind, Fault] = {
    "auth": Fault.FATAL,
    "permission": Fault.FATAL,
    "not_found": Fault.FATAL,
    "unsupported": Fault.REFUSED,
    "bad_request": Fault.REFUSED,
    "context_window": Fault.REFUSED,
    "rate_limited": Fault.RATE_LIMITED,
    "overloaded": Fault.RATE_LIMITED,
    "quota_exhausted": Fault.QUOTA_EXHAUSTED,
    "server": Fault.TRANSIENT,
    "connection": Fault.TRANSIENT,
    "tls": Fault.FATAL,
    "attempt_timeout": Fault.TRANSIENT,
    "malformed_reply": Fault.TRANSIENT,
    "empty_reply": Fault.TRANSIENT,
    "bad_exit": Fault.REFUSED,
    "worker_crashed": Fault.TRANSIENT,
    "replay_miss": Fault.REFUSED,
    "unexpected": Fault.REFUSED,
}
"""What each kind of failure means for the lane."""

ONCE_MORE: frozenset[ProviderErrorKind] = frozenset(
    {"malformed_reply", "empty_reply", "worker_crashed"}
)
"""Kinds that are worth one more call, and no further one."""


# A library: who uses it says where its records go. Every part of it imports this module.
logging.getLogger("trioeval").addHandler(logging.NullHandler())


class TrioevalError(Exception):
    """The base of every exception that trioeval raises on purpose."""


@attrs.frozen
class Problem:
    """One thing that is wrong with a suite, and where.

    Not an exception: a file has many problems, and they are reported together in a `SuiteError`.
    """

    path: str
    """Where in the document, as `$.tests[3].assert[0].type`."""
    message: str
    """What was found, with the value."""
    hint: str | None = None
    """What would be right, or what was probably meant."""
    file: str | None = None
    line: int | None = None
    """1-based line in `file`."""
    column: int | None = None
    """1-based column in `file`."""

    def __str__(self) -> str:
        where = ":".join(
            str(part) for part in (self.file, self.line, self.column) if part is not None
        )
        # Of a file as a whole there is no place to name.
        is_whole = self.path == "$" and self.file is not None and self.line is None
        text = ": ".join(
            part for part in (where, "" if is_whole else self.path, self.message) if part
        )
        return f"{text}\n  {self.hint}" if self.hint else text


class SuiteError(TrioevalError, ValueError):
    """A suite that cannot be run, with everything that is wrong with it.

    Args:
        problems: What is wrong.
        files: Those that were asked for; when one of them changes, it may be right.
    """

    def __init__(self, problems: Iterable[Problem], *, files: Iterable[Path] = ()) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        named = (Path(problem.file) for problem in self.problems if problem.file is not None)
        self.files: tuple[Path, ...] = tuple(dict.fromkeys([*files, *named]))
        super().__init__("\n".join(str(problem) for problem in self.problems))


class UsageError(TrioevalError, ValueError):
    """An argument of a call or a flag of a command that cannot be used."""


class PlanError(TrioevalError, ValueError):
    """A plan or a lane that cannot run as it is described."""


class TooLateError(TrioevalError):
    """A call that was asked for when its job was over, or at or after the run's deadline.

    A body gets it only where it hides from cancellation, or hands its calls to tasks that outlive it.
    """


class TemplateError(TrioevalError, ValueError):
    """A template that cannot be rendered with the variables of its row."""


class InputError(TrioevalError, ValueError):
    """What one row is made of cannot be used; other rows are not concerned."""


class ScriptError(TrioevalError):
    """Code of the user's that failed, took too long, or gave what cannot be used.

    Args:
        message: Which code, and what happened.
        trace: The end of its traceback, or what it printed last; None if there is nothing.
        timed_out: Whether it was given up because it took too long.
        at_limit: Whether it took more memory, or more computing, than what runs it may take.
    """

    def __init__(
        self,
        message: str,
        *,
        trace: str | None = None,
        timed_out: bool = False,
        at_limit: bool = False,
    ) -> None:
        self.message = message
        self.trace = trace
        self.timed_out = timed_out
        self.at_limit = at_limit
        super().__init__(message)


class GradingError(TrioevalError):
    """An assertion that could not be evaluated; the row is an error, never a failure.

    Args:
        message: What happened, for a person.
        mishap: Whether it may go better later: whoever was asked failed by mishap.
        metadata: What else is known of it, as JSON data: the reply that could not be used.
    """

    def __init__(
        self, message: str = "", *, mishap: bool = False, metadata: Mapping[str, Any] | None = None
    ) -> None:
        self.mishap = mishap
        self.metadata: Mapping[str, Any] = {} if metadata is None else metadata
        super().__init__(message)


class OutputError(TrioevalError, OSError):
    """A result file that could not be written."""


class DatasetError(TrioevalError):
    """A dataset cannot be built, gone on with, or read as it is; the text says where and why."""


class AgentError(TrioevalError):
    """The case of an agent cannot be worked on: which file or folder, and what would be right."""


class MarkerError(AgentError):
    """An agent left something in the place of its marker that is not a file; the agent has failed."""


class BlockedError(TrioevalError):
    """A case is not worked on, because something that it depends on is not done.

    Args:
        by: The name of that.
        message: In a sentence.
    """

    def __init__(self, by: str, message: str) -> None:
        self.by = by
        super().__init__(message)


class BusError(TrioevalError, OSError):
    """A message bus cannot be written or read: which file, and why."""


class BusLockedError(BusError):
    """The lock of a message bus was held by others all the time.

    Args:
        message: Which bus.
        attempts: How often it was tried, each time for the whole lock timeout.
    """

    def __init__(self, message: str, *, attempts: int = 1) -> None:
        self.attempts = attempts
        super().__init__(message)


class CursorExpiredError(BusError):
    """Messages after a cursor were removed since.

    Args:
        message: Which cursor of which bus.
        oldest: The oldest cursor after which nothing is missing.
    """

    def __init__(self, message: str, *, oldest: int) -> None:
        self.oldest = oldest
        super().__init__(message)


class CursorNotFoundError(BusError):
    """A message bus never had the message after which it is to be read."""


class StoreError(TrioevalError, OSError):
    """The database of runs, or the cache, cannot be opened, read or written: which file, and what helps."""


class NotLiveError(TrioevalError):
    """A run cannot be watched or steered from outside: it is over, does not listen, or does not answer."""


class LaneClosedError(TrioevalError):
    """A call that a lane will not serve, because its breaker is open.

    Args:
        lane: The lane's name.
        reason: Why it was closed.
    """

    def __init__(self, lane: str, reason: str) -> None:
        self.lane = lane
        self.reason = reason
        super().__init__(f"lane {lane!r} is closed: {reason}")


class BudgetError(TrioevalError):
    """A call that would use more than the budget of its run allows.

    Args:
        dimension: What is used up: `requests`, `tokens` or `money`.
        limit: What was allowed of it.
        used: What is spent.
        wanted: What the call would have needed at most.
    """

    def __init__(self, dimension: str, *, limit: float, used: float, wanted: float) -> None:
        self.dimension = dimension
        self.limit = limit
        self.used = used
        self.wanted = wanted
        super().__init__(
            f"budget_exceeded: {used:g} of {limit:g} {dimension} are spent, the call needs {wanted:g}"
        )


LimitErrorReason: TypeAlias = Literal[
    "invalid_request",
    "unknown_limit_key",
    "exceeds_capacity",
    "budget_exhausted",
    "lease_completed",
    "lease_expired",
    "limiter_unavailable",
]
"""The closed set of reasons for which a shared limit refuses a call for good."""


class LimitError(TrioevalError):
    """A call that a shared limit will never allow, or about which nobody can be asked.

    Args:
        reason: Which of the known ways.
        message: What happened, for a person.
        keys: The limits that it is about.
    """

    def __init__(
        self, reason: LimitErrorReason, message: str, *, keys: tuple[str, ...] = ()
    ) -> None:
        self.reason: LimitErrorReason = reason
        self.message = message
        self.keys = keys
        super().__init__(f"{reason}: {message}")


class CallError(TrioevalError):
    """A call that failed, said so that its lane knows what to do.

    What a `send` raises; any other exception is taken as a failure that says nothing of the lane.

    Args:
        fault: What it means for the lane.
        message: What happened, for a person.
        retry_after: Seconds that the provider asks to wait; less than 0 or NaN is taken as None.
        retries: How often such a call is worth repeating, ≥ 0, if that is less than the lane allows.
        tokens: What the failed call has used all the same; None if that is not known.
        money: Likewise.
        hint: What the failure told of the server's limits, a `trioeval.rates.RateHint`; None if nothing.
    """

    def __init__(
        self,
        fault: Fault,
        message: str = "",
        *,
        retry_after: float | None = None,
        retries: int | None = None,
        tokens: int | None = None,
        money: float | None = None,
        hint: Any = None,
    ) -> None:
        self.fault = fault
        self.hint = hint
        self.message = message
        # What cannot be true is no hint, and must not hide the failure that it came with.
        self.retry_after = None if retry_after is None or not retry_after >= 0 else retry_after
        self.retries = retries
        self.tokens = None if tokens is None or not 0 <= tokens < math.inf else tokens
        self.money = None if money is None or not 0 <= money < math.inf else money
        super().__init__(message or fault.value)

    def used(self, tokens: int, money: float) -> tuple[int, float]:
        """What the failed call used, of what it had reserved.

        Where that is not known, a call that was turned away used nothing, and any other one everything:
        its reply may have been lost on the way, and paid for.
        """
        turned_away = self.fault is not Fault.TRANSIENT
        if self.tokens is not None:
            tokens = self.tokens
        elif turned_away:
            tokens = 0
        if self.money is not None:
            money = self.money
        elif turned_away:
            money = 0.0
        return tokens, money


class ProviderError(CallError):
    """A call to a provider that failed.

    Args:
        kind: Which of the known ways it failed in.
        message: What happened, for a person.
        status: The HTTP status, if there was one.
        retry_after: Seconds that the provider asks to wait.
        body_excerpt: The beginning of the reply's body (at most 2 KB).
        fault: What it means for the lane; None takes what such a kind means.
        retries: How often such a call is worth repeating, ≥ 0; None takes what such a kind is worth.
        tokens: What the failed call has used all the same; None if that is not known, or `usage` says it.
        usage: Likewise, in more detail.
        money: Likewise, in US dollars.
        hint: What the failure told of the server's limits, a `trioeval.rates.RateHint`; None if nothing.
    """

    def __init__(
        self,
        kind: ProviderErrorKind,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        body_excerpt: str | None = None,
        fault: Fault | None = None,
        retries: int | None = None,
        tokens: int | None = None,
        usage: Usage | None = None,
        money: float | None = None,
        hint: Any = None,
    ) -> None:
        super().__init__(
            FAULT_BY_KIND[kind] if fault is None else fault,
            f"{kind}: {message}",
            retry_after=retry_after,
            retries=1 if retries is None and kind in ONCE_MORE else retries,
            tokens=tokens if usage is None else usage.in_all,
            money=money,
            hint=hint,
        )
        self.usage = Usage(total=self.tokens) if usage is None else usage
        self.kind: ProviderErrorKind = kind
        self.message = message
        self.status = status
        self.body_excerpt = body_excerpt

    def told_as(
        self,
        message: str,
        *,
        kind: ProviderErrorKind | None = None,
        fault: Fault | None = None,
        retries: int | None = None,
        body_excerpt: str | None = None,
    ) -> "ProviderError":
        """The same failure in an exception of its own, with other words.

        Args:
            message: What happened, for a person.
            kind: Another kind than its own, with the fault of that.
            fault: Another fault.
            retries: Another number of retries.
            body_excerpt: Another beginning of the body.
        """
        if fault is None:
            fault = self.fault if kind is None else FAULT_BY_KIND[kind]
        return ProviderError(
            kind or self.kind,
            message,
            status=self.status,
            retry_after=self.retry_after,
            body_excerpt=self.body_excerpt if body_excerpt is None else body_excerpt,
            fault=fault,
            retries=self.retries if retries is None else retries,
            usage=self.usage,
            money=self.money,
            hint=self.hint,
        )


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors that an exception group is made of, in order; an error that is no group is itself one."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from leaves(part)
    else:
        yield error

"""Every exception that a user of trioeval can see, as a tree.

    TrioevalError
    ├── SuiteError       the suite file is wrong: every problem found, with its place
    ├── UsageError       an argument or a flag is wrong
    ├── PlanError        a plan or a lane that cannot run as described
    ├── TooLateError     a call was requested after its job, or the whole run, was over
    ├── TemplateError    a template cannot be rendered with the given variables
    ├── InputError       an input of a row cannot be used: a file of a variable, a line of tests
    ├── ScriptError      user code failed, took too long or returned an unusable result
    ├── LaneClosedError  a lane serves no more calls: its provider refuses, or does not recover
    ├── BudgetError      the budget is exhausted
    ├── LimitError       a shared limit will never allow a call, or the limits are unreachable
    ├── CallError        a call failed; `fault` classifies the failure for its lane
    │   └── ProviderError    and `kind` says how
    ├── GradingError     an assertion could not be evaluated (not the same as failed)
    ├── OutputError      a result could not be written to its destination
    ├── DatasetError     a dataset cannot be built, continued, or read as it is
    ├── AgentError       a case cannot be run: its workspace, prompt or marker is wrong
    │   └── MarkerError      the agent left something other than a file in place of its marker
    ├── BlockedError     a case is not run: one of its dependencies is not done
    ├── NotLiveError     a run cannot be watched or steered: it is over, or does not respond
    ├── BusError         a message bus cannot be written or read
    │   ├── BusLockedError       its lock was never free
    │   ├── CursorExpiredError   the requested messages were removed
    │   └── CursorNotFoundError  the requested message never existed
    └── StoreError       the database of runs, or the cache, cannot be used as it is

The type says whose fault it is. The facts of an exception are attributes; its text is made from them.
Failures of single jobs never leave a run as exceptions: they are outcomes.
"""

import enum
import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.usage import Usage

# The ways in which a call can fail, and what each means for its lane.


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
    """The meaning of a failed call for its lane: the cause, and whether to call again."""

    RATE_LIMITED = "rate_limited"
    """Too many calls: call again later, and less often."""
    TRANSIENT = "transient"
    """A temporary failure of the server or the network: call again."""
    REFUSED = "refused"
    """This request will never be served; others may be."""
    QUOTA_EXHAUSTED = "quota_exhausted"
    """The account will not be served any more in this run."""
    FATAL = "fatal"
    """The provider refuses all calls of this kind: a wrong key, an unknown model."""


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
"""The meaning for the lane of each kind of failure."""

ONCE_MORE: frozenset[ProviderErrorKind] = frozenset(
    {"malformed_reply", "empty_reply", "worker_crashed"}
)
"""Kinds of failure for which exactly one retry is worthwhile."""


# A library: the application decides where log records go. Every part of the library imports this module.
logging.getLogger("trioeval").addHandler(logging.NullHandler())


class TrioevalError(Exception):
    """The base of every exception that trioeval raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Initialisers take other arguments than `args`, which Python would pass to them.
        return _restored, (type(self), self.args, vars(self))


def _restored(
    kind: type[TrioevalError], args: tuple[Any, ...], facts: Mapping[str, Any]
) -> TrioevalError:
    """Return a pickled exception."""
    error = kind.__new__(kind, *args)
    vars(error).update(facts)
    return error


@attrs.frozen
class Problem:
    """One problem of a suite, with its place.

    Not an exception: a file may have many problems, and they are reported together in a `SuiteError`.
    """

    path: str
    """The place in the document, such as `$.tests[3].assert[0].type`."""
    message: str
    """The problem, with the value."""
    hint: str | None = None
    """Valid values, or the probably intended one."""
    file: str | None = None
    line: int | None = None
    """1-based line in `file`."""
    column: int | None = None
    """1-based column in `file`."""

    def __str__(self) -> str:
        where = ":".join(
            str(part) for part in (self.file, self.line, self.column) if part is not None
        )
        # A problem of a whole file has no path.
        is_whole = self.path == "$" and self.file is not None and self.line is None
        text = ": ".join(
            part for part in (where, "" if is_whole else self.path, self.message) if part
        )
        return f"{text}\n  {self.hint}" if self.hint else text


class SuiteError(TrioevalError, ValueError):
    """A suite that cannot be run, with all of its problems.

    Args:
        problems: The problems.
        files: The files that were requested; a change of one of them may solve the problems.
    """

    def __init__(self, problems: Iterable[Problem], *, files: Iterable[Path] = ()) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        named = (Path(problem.file) for problem in self.problems if problem.file is not None)
        self.files: tuple[Path, ...] = tuple(dict.fromkeys([*files, *named]))
        super().__init__("\n".join(str(problem) for problem in self.problems))


class UsageError(TrioevalError, ValueError):
    """An argument of a call or a flag of a command that cannot be used."""


class PlanError(TrioevalError, ValueError):
    """A plan or a lane that cannot run as described."""


class TooLateError(TrioevalError):
    """A call that was requested when its job was over, or at or after the run's deadline.

    A body gets it only if it shields itself from cancellation, or passes its calls to tasks that outlive it.
    """


class TemplateError(TrioevalError, ValueError):
    """A template that cannot be rendered with the variables of its row."""


class InputError(TrioevalError, ValueError):
    """An input of one row cannot be used; other rows are not affected."""


class ScriptError(TrioevalError):
    """User code that failed, took too long, or returned an unusable result.

    Args:
        message: Which code, and what happened.
        trace: The end of its traceback, or of its output; None if there is nothing.
        timed_out: Whether it was stopped because it took too long.
        at_limit: Whether it exceeded a limit of memory or computing.
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
        message: What happened, for people.
        mishap: Whether it may succeed later: the judge failed transiently.
        metadata: More facts, as JSON data: the reply that could not be used.
    """

    def __init__(
        self, message: str = "", *, mishap: bool = False, metadata: Mapping[str, Any] | None = None
    ) -> None:
        self.is_transient = mishap
        self.metadata: Mapping[str, Any] = {} if metadata is None else metadata
        super().__init__(message)


class OutputError(TrioevalError, OSError):
    """A result file that could not be written."""


class DatasetError(TrioevalError):
    """A dataset cannot be built, continued, or read as it is; the text says where and why."""


class AgentError(TrioevalError):
    """A case of an agent cannot be run: which file or folder, and what would be valid."""


class MarkerError(AgentError):
    """An agent left something other than a file in place of its marker; the agent has failed."""


class BlockedError(TrioevalError):
    """A case is not run, because one of its dependencies is not done.

    Args:
        by: The name of the dependency.
        message: A sentence.
    """

    def __init__(self, by: str, message: str) -> None:
        self.by = by
        super().__init__(message)


class BusError(TrioevalError, OSError):
    """A message bus cannot be written or read: which file, and why."""


class BusLockedError(BusError):
    """The lock of a message bus was never free.

    Args:
        message: Which bus.
        attempts: The number of attempts, each for the whole lock timeout.
    """

    def __init__(self, message: str, *, attempts: int = 1) -> None:
        self.attempts = attempts
        super().__init__(message)


class CursorExpiredError(BusError):
    """The messages after a cursor have been removed.

    Args:
        message: Which cursor of which bus.
        oldest: The oldest cursor without missing messages after it.
    """

    def __init__(self, message: str, *, oldest: int) -> None:
        self.oldest = oldest
        super().__init__(message)


class CursorNotFoundError(BusError):
    """The message bus never had the message after which it is to be read."""


class StoreError(TrioevalError, OSError):
    """The database of runs, or the cache, cannot be opened, read or written: which file, and the remedy."""


class NotLiveError(TrioevalError):
    """A run cannot be watched or steered from outside: it is over, does not listen, or does not respond."""


class LaneClosedError(TrioevalError):
    """A call that a lane will not serve, because its breaker is open.

    Args:
        lane: The lane's name.
        reason: The reason why it was closed.
    """

    def __init__(self, lane: str, reason: str) -> None:
        self.lane = lane
        self.reason = reason
        super().__init__(f"lane {lane!r} is closed: {reason}")


class BudgetError(TrioevalError):
    """A call that would use more than the budget of its run allows.

    Args:
        dimension: The exhausted dimension: `requests`, `tokens` or `money`.
        limit: The amount allowed.
        used: The amount spent.
        wanted: The most that the call would have needed.
    """

    def __init__(self, dimension: str, *, limit: float, used: float, wanted: float) -> None:
        self.dimension = dimension
        self.limit = limit
        self.used = used
        self.wanted = wanted
        whole, needed = _amount(limit, dimension, unit=True), _amount(wanted, dimension)
        if wanted > limit:
            # Whatever is spent: so the text is the same in each process of a run.
            super().__init__(f"budget too small: the call needs {needed}, and all of it is {whole}")
            return
        needs = "" if used >= limit else f", the call needs {needed}"
        spent = f"{_amount(used, dimension)} of {whole} spent"
        super().__init__(f"budget exhausted: {spent}{needs}")


def _amount(value: float, dimension: str, *, unit: bool = False) -> str:
    if dimension == "money":
        return f"${value:.2f}" if value == round(value, 2) else f"${value:g}"
    name = dimension.removesuffix("s") if value == 1 else dimension
    return f"{value:,.0f} {name}" if unit else f"{value:,.0f}"


LimitErrorReason: TypeAlias = Literal[
    "invalid_request",
    "unknown_limit_key",
    "exceeds_capacity",
    "budget_exhausted",
    "lease_completed",
    "lease_expired",
    "limiter_unavailable",
]
"""The closed set of ways in which a shared limit refuses permanently."""


class LimitError(TrioevalError):
    """A call that a shared limit will never allow, or for which the limits are unreachable.

    Args:
        reason: One of the known ways.
        message: What happened, for people.
        keys: The limits concerned.
    """

    def __init__(
        self, reason: LimitErrorReason, message: str, *, keys: tuple[str, ...] = ()
    ) -> None:
        self.reason: LimitErrorReason = reason
        self.message = message
        self.keys = keys
        super().__init__(f"{reason}: {message}")


class CallError(TrioevalError):
    """A call that failed, with a classification for its lane.

    Raised by a `send`; any other exception counts as a failure that carries no information about the lane.

    Args:
        fault: The meaning for the lane.
        message: What happened, for people.
        retry_after: Seconds that the provider asks to wait; less than 0 or NaN counts as None.
        retries: The number of worthwhile retries, ≥ 0, if that is less than the lane allows.
        tokens: Tokens that the failed call has used nevertheless; None if unknown.
        money: Cost of the failed call; None if unknown.
        hint: The server's limits that the failure reported, a `trioeval.rates.RateHint`; None if none.
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
        # An impossible value is not a hint, and must not hide the failure that it came with.
        self.retry_after = None if retry_after is None or not retry_after >= 0 else retry_after
        self.retries = retries
        self.tokens = None if tokens is None or not 0 <= tokens < math.inf else tokens
        self.money = None if money is None or not 0 <= money < math.inf else money
        super().__init__(message or fault.value)

    def used(self, tokens: int, money: float) -> tuple[int, float]:
        """Return what the failed call used, of the amounts that it had reserved.

        If that is unknown, a call that was refused used nothing, and any other one everything: its reply may
        have been lost in transit, and charged.
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
        kind: One of the known ways in which calls fail.
        message: What happened, for people.
        status: The HTTP status, if there was one.
        retry_after: Seconds that the provider asks to wait.
        body_excerpt: The beginning of the reply's body (at most 2 KB).
        fault: The meaning for the lane; None takes that of the kind.
        retries: The number of worthwhile retries, ≥ 0; None takes that of the kind.
        tokens: Tokens that the failed call has used nevertheless; None if unknown, or given by `usage`.
        usage: The same, in more detail.
        money: Cost of the failed call in US dollars; None if unknown.
        hint: The server's limits that the failure reported, a `trioeval.rates.RateHint`; None if none.
        finish_reason: The reason why an unusable reply ended, as in `Reply.finish_reason`; None if unknown.
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
        finish_reason: str | None = None,
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
        self.finish_reason = finish_reason

    def restated(
        self,
        message: str,
        *,
        kind: ProviderErrorKind | None = None,
        fault: Fault | None = None,
        retries: int | None = None,
        body_excerpt: str | None = None,
        usage: Usage | None = None,
        money: float | None = None,
    ) -> "ProviderError":
        """Return the same failure as a new exception, with some changes.

        Args:
            message: What happened, for people.
            kind: Another kind, with its fault.
            fault: Another fault.
            retries: Another number of retries.
            body_excerpt: Another beginning of the body.
            usage: Another usage.
            money: Another cost, in US dollars.
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
            usage=self.usage if usage is None else usage,
            money=self.money if money is None else money,
            hint=self.hint,
            finish_reason=self.finish_reason,
        )

    @property
    def is_billed(self) -> bool:
        """True if the provider reported tokens or a cost for the failed call.

        Example:
            >>> (
            ...     ProviderError("server", "no").is_billed,
            ...     ProviderError("server", "no", tokens=3).is_billed,
            ... )
            (False, True)
        """
        return self.money is not None or self.usage != Usage()


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors inside an exception group, in order; another error yields itself."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from leaves(part)
    else:
        yield error

"""Every exception that a user of trioeval can see, drawn as a tree.

    TrioevalError
    ├── SuiteError       the suite file is wrong: every problem found, with its place
    ├── UsageError       an argument or a flag is wrong
    ├── PlanError        a plan or a lane that cannot run as described
    ├── TooLateError     a call was asked for when its job, or the whole run, was over
    ├── TemplateError    a template cannot be rendered with the variables at hand
    ├── ProviderError    a call failed; `kind` says how
    ├── GradingError     an assertion could not be evaluated (not the same as failed)
    └── OutputError      a result could not be written where it was asked for

The type says whose fault it is. What an exception knows is kept as data on it; its text is made from
that. Failures of single jobs never leave a run as exceptions: they are outcomes.
"""

from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

import attrs

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
    "malformed_reply",
    "empty_reply",
    "replay_miss",
    "unexpected",
]
"""The closed set of ways in which a call can fail."""


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
        text = f"{where}: {self.path}: {self.message}" if where else f"{self.path}: {self.message}"
        return f"{text}\n  {self.hint}" if self.hint else text


class SuiteError(TrioevalError, ValueError):
    """A suite that cannot be run, with everything that is wrong with it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
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


class GradingError(TrioevalError):
    """An assertion that could not be evaluated; the row is an error, never a failure."""


class OutputError(TrioevalError, OSError):
    """A result file that could not be written."""


class ProviderError(TrioevalError):
    """A call that failed.

    Args:
        kind: Which of the known ways it failed in.
        message: What happened, for a person.
        status: The HTTP status, if there was one.
        retry_after: Seconds that the provider asks to wait.
        body_excerpt: The beginning of the reply's body (at most 2 KB).
    """

    def __init__(
        self,
        kind: ProviderErrorKind,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        body_excerpt: str | None = None,
    ) -> None:
        self.kind: ProviderErrorKind = kind
        self.message = message
        self.status = status
        self.retry_after = retry_after
        self.body_excerpt = body_excerpt
        super().__init__(f"{kind}: {message}")


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors that an exception group is made of, in order; an error that is no group is itself one."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from leaves(part)
    else:
        yield error

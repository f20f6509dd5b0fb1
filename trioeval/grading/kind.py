"""Assertion types: the values they take, and how they judge.

A judge is a plain function wherever possible. Types that ask a model, run code or call a server have an async
judge; types that compare the rows of a test have no judge for a single row.

Judges do not handle `not-`: they report what is true of the output, and the grading inverts it.
"""

import inspect
import math
import numbers
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.errors import GradingError, Problem
from trioeval.grading.model import Assertion, Verdict
from trioeval.grading.services import ExternalServices
from trioeval.grading.subject import Subject
from trioeval.text import quote

AT_ONCE = 65_536
"""Most characters of an output that most types judge on the event loop, because that is quick enough."""

SLOW_AT_ONCE = 4096
"""The same for types that parse or compare their input."""

LONGEST_SEARCHED = 1_000_000
"""Most characters of an output of types that read it in single uninterruptible steps, such as a search or a
tag, each of which takes time proportional to the length."""

Role: TypeAlias = Literal["text", "embedding", "classification", "moderation"]
"""The tasks of judges."""


@attrs.frozen
class Finding:
    """The result of a judge: whether a type holds of an output."""

    holds: bool
    reason: str
    """A statement about the output, in words that also fit `not-`."""
    score: float | None = None
    """The degree to which it holds; by default 1 for an assertion that passes and 0 for one that fails."""
    negated: float | None = None
    """The score under `not-`; by default `1 - score`."""
    invertible: bool = True
    """False if nothing could be determined: that is a failure, also under `not-`."""
    named_scores: Mapping[str, float] = attrs.field(factory=dict)
    named_score_weights: Mapping[str, float] = attrs.field(factory=dict)
    parts: tuple[Verdict, ...] = ()
    """Verdicts that a script made itself."""
    metadata: Mapping[str, Any] = attrs.field(factory=dict)
    """Further data that is stored with the verdict."""


Judge: TypeAlias = Callable[[Subject, Any, Assertion], Finding]
"""Judges a subject by the rendered and valid value, and by the assertion's threshold and config. Raises
`GradingError` if it cannot, and `SlowError` if it would take long."""


class SlowError(Exception):
    """Raised by a judge that did not finish quickly enough for the event loop.

    Args:
        finish: Judges without that limit, within bounds of its own; runs in any thread.
    """

    def __init__(self, finish: Callable[[], Finding]) -> None:
        self.finish = finish
        super().__init__()


OutsideJudge: TypeAlias = Callable[[Subject, Any, Assertion, ExternalServices], Awaitable[Finding]]
"""The same for a judge with external calls."""


@attrs.frozen
class ExternalJudge:
    """The judge of a type with external calls: models, code, servers."""

    judge: OutsideJudge
    roles: frozenset[Role] = frozenset()
    """The judges that it needs; all of them are checked before a run."""


@attrs.frozen
class Contender:
    """One of the outputs that are compared."""

    subject: Subject
    verdict: Verdict
    """The verdict on its row, without comparisons."""


CompareJudge: TypeAlias = Callable[
    [Sequence[Contender | None], Any, Assertion, ExternalServices], Awaitable[Sequence[Finding]]
]
"""Compares the rows of all columns, None for a row without a verdict; returns a finding for each other row.

There are at least two of these, and the findings are in their order.
"""


@attrs.frozen
class ComparisonJudge:
    """The judge of a type that compares the outputs of one test, called when all of them exist."""

    judge: CompareJudge
    roles: frozenset[Role] = frozenset()


@attrs.frozen
class Extra:
    """The package that a type needs."""

    name: str
    """As in `pip install trioeval[name]`."""
    module: str
    """A module of the package."""


def _no_problems(_assertion: Assertion) -> Iterable[Problem]:
    return ()


@attrs.frozen
class Kind:
    """One assertion type."""

    right: str
    """A description of valid values, for the sentence "must be …"."""
    accepts: Callable[[Any], bool]
    """Returns whether a value is valid, as written in a suite or as rendered."""
    judge: Judge | ExternalJudge | ComparisonJudge
    bare: bool = False
    """True if it needs no value."""
    check: Callable[[Assertion], Iterable[Problem]] = _no_problems
    """Yields further problems of an assertion before a run; paths are `.value`, `.threshold`, `.config…`.
    Only called if the value is valid."""
    tolerant: bool = False
    """True if an invalid value is a warning before a run, and makes its rows ERRORs, as in promptfoo."""
    warn: Callable[[Assertion], Iterable[Problem]] = _no_problems
    """Yields what is probably not intended, with paths as of `check`; only called if the value is valid."""
    invertible: bool = True
    """False if it has no form with `not-`."""
    requires: Extra | None = None
    runs_code: bool = False
    """True if its value is code, which must not contain text of models. A file of code is then the judge;
    for other types such a file computes the value."""
    fills_objects: bool = False
    """True if a value that is an object is rendered: its texts, and those in lists that are its members."""
    at_once: int = AT_ONCE
    """Most characters of an output that is judged on the event loop; longer ones are judged in a thread."""
    longest: int | None = None
    """Most characters of an output that is judged at all, if longer ones would take too long."""

    @property
    def roles(self) -> frozenset[Role]:
        """The judges that it needs."""
        return (
            self.judge.roles
            if isinstance(self.judge, ExternalJudge | ComparisonJudge)
            else frozenset()
        )


# The expectation of an assertion, as reasons state it.


def expectation(assertion: Assertion, expected: str) -> str:
    """Return `expected …` for a reason; `expected not …` for an inverted assertion."""
    return (
        f"expected not {expected}" if assertion.type.startswith("not-") else f"expected {expected}"
    )


# Checks of values that several types share.


def is_anything(_value: Any) -> bool:
    """Return True."""
    return True


def is_any_text(value: Any) -> bool:
    """Return True for a text, empty or not."""
    return isinstance(value, str)


def is_text(value: Any) -> bool:
    """Return True for a text that is not empty."""
    return isinstance(value, str) and value != ""


def is_not_blank(value: Any) -> bool:
    """Return True for a text that is not blank."""
    return isinstance(value, str) and value.strip() != ""


def is_text_or_texts(value: Any) -> bool:
    """Return True for a text that is not blank, or a list of at least one such text."""
    texts = [value] if isinstance(value, str) else value
    return isinstance(texts, list | tuple) and bool(texts) and all(map(is_not_blank, texts))


def is_number(value: Any) -> bool:
    """Return True for a finite number; true and false are not numbers."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and -math.inf < value < math.inf


Kinds: TypeAlias = Mapping[str, Kind]
"""Assertion types by name."""


def kind_of(
    function: Callable[[Subject, Any], bool | float | Finding],
    *,
    right: str = "any value",
    accepts: Callable[[Any], bool] = lambda _: True,
) -> Kind:
    """Make an assertion type whose judge is a plain function.

    Args:
        function: Gets the subject and the rendered value; returns true or false, or a score from 0 to 1. A
            score passes if it reaches the assertion's threshold, or without one if it is more than 0.
            Whatever it raises is an error of the row, as is a score that is not finite.
        right: What a value must be, for the sentence "must be …".
        accepts: Returns whether a value is valid.

    Example:
        >>> def is_short(subject, value):
        ...     return len(subject.text) <= value
        >>> kind = kind_of(is_short, right="a number", accepts=lambda value: isinstance(value, int))
        >>> kind.judge(Subject.of("abc"), 5, Assertion(type="is-short", value=5)).holds
        True
    """

    def judge(subject: Subject, value: Any, assertion: Assertion) -> Finding:
        return finding_of(function(subject, value), function, assertion)

    return Kind(right, accepts, judge, bare=True)


def finding_of(found: Any, judge: Callable[..., Any], assertion: Assertion) -> Finding:
    """Return the result of a judge as a finding.

    Args:
        found: A finding, true or false, or a score, which passes if it reaches the threshold, or without one
            if it is more than 0.
        judge: The judge that returned it.
        assertion: The assertion that was judged.

    Raises:
        GradingError: It is something else, or a number that is not finite.

    Example:
        >>> found = finding_of(0.5, len, Assertion(type="long", threshold=0.6))
        >>> found.holds, found.reason, found.score
        (False, 'len returned 0.5', 0.5)
    """
    if isinstance(found, Finding):
        return found
    name = getattr(judge, "__name__", "the judge")
    if isinstance(found, bool):
        return Finding(found, f"{name} returned {'true' if found else 'false'}")
    if not isinstance(found, numbers.Real):
        got = f"{type(found).__name__}: {quote(found)}"
        hint = ""
        if inspect.iscoroutine(found):
            found.close()
            got, hint = "a coroutine", "; wrap an async judge in Asking(…)"
        msg = f"{name} must return true or false, a number or a Finding, got {got}{hint}"
        raise GradingError(msg)
    try:
        score = float(found)
    except OverflowError:
        score = math.inf
    if not math.isfinite(score):
        msg = f"{name} returned {score}, which is not a finite score"
        raise GradingError(msg)
    least = assertion.threshold
    holds = score > 0 if least is None else score >= least
    return Finding(holds, f"{name} returned {score:g}", score=score)


def findings_of(
    found: Any, judge: Callable[..., Any], assertion: Assertion, outputs: int
) -> list[Finding]:
    """Return the result of a comparing judge: one finding for each output.

    Raises:
        GradingError: It returned something else.
    """
    if not isinstance(found, list | tuple) or len(found) != outputs:
        name = getattr(judge, "__name__", "the judge")
        got = f"{type(found).__name__}: {quote(found)}"
        msg = f"{name} must return a list of findings, one for each of {outputs} outputs, got {got}"
        raise GradingError(msg)
    return [finding_of(one, judge, assertion) for one in found]

"""What an assertion type is: which values it takes, and how it judges.

A judge is a plain function wherever it can be one. Types that ask a model, run code or call a server have
a judge that awaits; types that compare the rows of a test have none, because there is no judging one row.

`not-` is no business of theirs: they say what is the case, and whoever grades turns it round.
"""

import inspect
import math
import numbers
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.errors import GradingError, Problem
from trioeval.grading.model import Assertion, Verdict
from trioeval.grading.services import Outside
from trioeval.grading.subject import Subject
from trioeval.text import quote

AT_ONCE = 65_536
"""Characters of an output that most types judge in so little time that others can wait for it."""

SLOW_AT_ONCE = 4096
"""The same of types that parse or compare what they read."""

LONGEST_SEARCHED = 1_000_000
"""Characters of the longest output of types that read it in single steps which nothing interrupts: a search,
one tag. Each step takes time that grows with the length alone."""

Role: TypeAlias = Literal["text", "embedding", "classification", "moderation"]
"""What a judge is needed for."""


@attrs.frozen
class Finding:
    """Whether a type holds of an output."""

    holds: bool
    reason: str
    """What is the case, in words that are also true under `not-`."""
    score: float | None = None
    """How far it holds; None is 1 for an assertion that passes and 0 for one that fails."""
    negated: float | None = None
    """The score under `not-` where there is a score; None is `1 - score`."""
    invertible: bool = True
    """False where nothing could be found out: that is a failure, also under `not-`."""
    named_scores: Mapping[str, float] = attrs.field(factory=dict)
    named_score_weights: Mapping[str, float] = attrs.field(factory=dict)
    parts: tuple[Verdict, ...] = ()
    """Verdicts that a script made itself."""
    metadata: Mapping[str, Any] = attrs.field(factory=dict)
    """What else is kept with the verdict."""


Judge: TypeAlias = Callable[[Subject, Any, Assertion], Finding]
"""From what is judged, the rendered value, which has been accepted, and the assertion for its threshold and
config. Raises `GradingError` where it cannot be evaluated, and `SlowError` where that would take long."""


class SlowError(Exception):
    """Raised by a judge that found nothing in so little time that others can wait for it.

    Args:
        finish: Judges however long that takes, within bounds of its own; runs in any thread.
    """

    def __init__(self, finish: Callable[[], Finding]) -> None:
        self.finish = finish
        super().__init__()


OutsideJudge: TypeAlias = Callable[[Subject, Any, Assertion, Outside], Awaitable[Finding]]
"""The same, with what it may ask."""


@attrs.frozen
class Asking:
    """The judge of a type that asks outside: models, code, servers."""

    judge: OutsideJudge
    roles: frozenset[Role] = frozenset()
    """Which judges it needs; all of them are checked before a run."""


@attrs.frozen
class Contender:
    """One of the outputs that are compared."""

    subject: Subject
    verdict: Verdict
    """On its row, without comparisons."""


CompareJudge: TypeAlias = Callable[
    [Sequence[Contender | None], Any, Assertion, Outside], Awaitable[Sequence[Finding]]
]
"""From what stands in each column, None for a row without a verdict, to one finding for each of the others.

There are at least two of these, and the findings are in their order.
"""


@attrs.frozen
class Comparing:
    """The judge of a type that compares the outputs of one test: it is asked when all of them are there."""

    judge: CompareJudge
    roles: frozenset[Role] = frozenset()


@attrs.frozen
class Extra:
    """What has to be installed for a type."""

    name: str
    """As in `pip install trioeval[name]`."""
    module: str
    """The module that is there then."""


def _no_problems(_assertion: Assertion) -> Iterable[Problem]:
    return ()


@attrs.frozen
class Kind:
    """One assertion type."""

    right: str
    """What its value must be, for the sentence "must be …"."""
    accepts: Callable[[Any], bool]
    """Whether a value can be judged with, as it stands in a suite or when it is rendered."""
    judge: Judge | Asking | Comparing
    bare: bool = False
    """Whether it can stand without a value."""
    check: Callable[[Assertion], Iterable[Problem]] = _no_problems
    """What else is wrong with an assertion, found before a run; paths are `.value`, `.threshold`, `.config…`.
    Only asked where the value is accepted."""
    invertible: bool = True
    """Whether `not-` may stand before it."""
    requires: Extra | None = None
    runs_code: bool = False
    """Whether its value is code, which is not made of what models wrote. A file of code is what judges then;
    elsewhere such a file computes the value."""
    fills_objects: bool = False
    """Whether a value that is an object is rendered: its texts, and those in lists that are its members."""
    at_once: int = AT_ONCE
    """Characters of the longest output that is judged while others wait; for a longer one they need not."""
    longest: int | None = None
    """Characters of the longest output that is judged at all, where that takes too long for others."""

    @property
    def roles(self) -> frozenset[Role]:
        """Which judges it needs."""
        return self.judge.roles if isinstance(self.judge, Asking | Comparing) else frozenset()


# Which values types take: what several of them accept.


def is_anything(_value: Any) -> bool:
    """Whatever it is."""
    return True


def is_any_text(value: Any) -> bool:
    """Whether it is text, empty or not."""
    return isinstance(value, str)


def is_text(value: Any) -> bool:
    """Whether it is text that is not empty."""
    return isinstance(value, str) and value != ""


def is_said(value: Any) -> bool:
    """Whether it is text that says something: not blank."""
    return isinstance(value, str) and value.strip() != ""


def are_said(value: Any) -> bool:
    """Whether it is such a text, or a list of at least one of them."""
    texts = [value] if isinstance(value, str) else value
    return isinstance(texts, list | tuple) and bool(texts) and all(map(is_said, texts))


def is_number(value: Any) -> bool:
    """Whether it is a finite number; true and false are none."""
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
    """An assertion type whose judge is a plain function.

    Args:
        function: From what is judged and the rendered value to whether it holds, or how far (from 0 to 1;
            it holds if that reaches the assertion's threshold, or is more than 0 where there is none).
            Whatever it raises makes an error of the row, as does a number that is not finite.
        right: What a value must be, for the sentence "must be …".
        accepts: Whether a value can be judged with.

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
    """What a judge gave, as a finding.

    Args:
        found: A finding, true or false, or a number that has to reach the threshold, or to be more than 0
            where there is none.
        judge: Who gave it.
        assertion: The one that was judged.

    Raises:
        GradingError: It is something else, or a number that is not finite.

    Example:
        >>> found = finding_of(0.5, len, Assertion(type="long", threshold=0.6))
        >>> found.holds, found.reason, found.score
        (False, 'len gives 0.5', 0.5)
    """
    if isinstance(found, Finding):
        return found
    name = getattr(judge, "__name__", "the judge")
    if isinstance(found, bool):
        return Finding(found, f"{name} says {'yes' if found else 'no'}")
    if not isinstance(found, numbers.Real):
        got = f"{type(found).__name__}: {quote(found)}"
        hint = ""
        if inspect.iscoroutine(found):
            found.close()
            got, hint = "a coroutine", "; one that is async is given as Asking(…)"
        msg = f"{name} must give true or false, a number or a Finding, got {got}{hint}"
        raise GradingError(msg)
    try:
        score = float(found)
    except OverflowError:
        score = math.inf
    if not math.isfinite(score):
        msg = f"{name} gives {score}, which is no score"
        raise GradingError(msg)
    least = assertion.threshold
    holds = score > 0 if least is None else score >= least
    return Finding(holds, f"{name} gives {score:g}", score=score)


def findings_of(
    found: Any, judge: Callable[..., Any], assertion: Assertion, outputs: int
) -> list[Finding]:
    """What a judge gave that compares outputs: one finding for each.

    Raises:
        GradingError: It gave something else.
    """
    if not isinstance(found, list | tuple) or len(found) != outputs:
        name = getattr(judge, "__name__", "the judge")
        got = f"{type(found).__name__}: {quote(found)}"
        msg = f"{name} must give a list of findings, one for each of {outputs} outputs, got {got}"
        raise GradingError(msg)
    return [finding_of(one, judge, assertion) for one in found]

"""`assertScoringFunction`: a function of the suite's that has the last word on what assertions add up to.

It is called with the named scores, and with the threshold, the results of all assertions and the tokens that
judges used. What it gives stands in place of the mean; if it fails, so does the row. That it has to be given
up because it takes too long says nothing of the row, and is an error.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.documents.files import Around
from trioeval.documents.mistakes import MistakenError
from trioeval.errors import ProviderError, ScriptError
from trioeval.evaluation.scripts import Scripts, given_up
from trioeval.grading import Spent, Verdict, quote
from trioeval.grading.algebra import components
from trioeval.grading.model import NOTHING_SPENT
from trioeval.scripting.javascript import Script
from trioeval.suite.plain import plain_data
from trioeval.suite.test_form import read_scoring
from trioeval.usage import Usage

# What was spent so far: on judges, and on calls that failed.


@attrs.define(eq=False)
class Spending:
    """What was spent so far."""

    _replies: list[Spent] = attrs.field(factory=list, init=False)

    @property
    def total(self) -> Spent:
        """By all replies: exactly the same in whatever order they came, because it is rounded once."""
        return Spent.sum(self._replies)

    def add(self, spent: Spent) -> None:
        """Count what one request used, or its reply."""
        self._replies.append(spent)


def spent_on_failure(error: ProviderError) -> Spent:
    """What a call used that failed, as far as its provider has told it; nothing if it has not.

    Example:
        >>> spent_on_failure(ProviderError("empty_reply", "no text", tokens=7)).usage.total
        7
    """
    if error.usage == Usage() and error.money is None:
        return NOTHING_SPENT
    return Spent(usage=error.usage, cost=error.money, calls=1)


WANTED = "an object with pass (true or false), score (a number) and reason (text)"


class Scoring:
    """Applies the scoring functions of one suite.

    Args:
        around: What their files are relative to.
        scripts: What runs them.
        limit: Seconds that one may take, > 0.
    """

    def __init__(self, around: Around, scripts: Scripts, limit: float) -> None:
        self._scripts = scripts
        self._limit = limit
        self._read = functools.lru_cache(functools.partial(read_scoring, around=around))

    async def __call__(self, text: str, verdict: Verdict, threshold: float | None) -> Verdict:
        """A verdict as a scoring function wants it. A checkpoint.

        Args:
            text: The function, as in the suite.
            verdict: What the assertions add up to.
            threshold: That of the test.

        Raises:
            GradingError: It took too long, or too much memory.
        """
        context = {
            "threshold": threshold,
            "componentResults": [_plain(part) for part in components(verdict.parts)],
            "tokensUsed": {
                "total": verdict.spent.usage.total or 0,
                "prompt": verdict.spent.usage.prompt or 0,
                "completion": verdict.spent.usage.completion or 0,
                "numRequests": verdict.spent.calls,
            },
        }
        arguments = [dict(verdict.named_scores), context]
        try:
            function = self._read(text)
            if isinstance(function, Script):
                found = await self._scripts.javascript(function, arguments, self._limit)
            else:
                file, name = function
                found = await self._scripts.call(file, name, arguments, self._limit)
            return _scored(verdict, found)
        except ScriptError as error:
            failure = given_up(error, "the scoring function", self._limit)
            if failure is not None:
                raise failure from error
            return _failed(verdict, error.message)
        except (MistakenError, ValueError) as error:
            return _failed(verdict, str(error))


def _failed(verdict: Verdict, why: str) -> Verdict:
    reason = f"the scoring function failed: {why}"
    return attrs.evolve(verdict, passed=False, score=0.0, reason=reason)


def _scored(verdict: Verdict, found: Any) -> Verdict:
    """The verdict that a function gives over the one that it got.

    Raises:
        ValueError: It gives something else.
    """
    match found:
        case {"pass": bool(passed), "score": score, "reason": str(reason)} if _is_number(score):
            named = found.get("namedScores", found.get("named_scores", verdict.named_scores))
            if isinstance(named, Mapping) and all(map(_is_number, named.values())):
                return attrs.evolve(
                    verdict,
                    passed=passed,
                    score=float(score),
                    reason=reason,
                    named_scores={str(name): float(value) for name, value in named.items()},
                )
    msg = f"it must give {WANTED}, got {quote(found)}"
    raise ValueError(msg)


def _is_number(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)


def _plain(part: Verdict) -> Mapping[str, Any]:
    """A result as the function gets it."""
    return {
        "pass": part.passed,
        "score": part.score,
        "reason": part.reason,
        "namedScores": dict(part.named_scores),
        "assertion": None if part.assertion is None else plain_data(part.assertion),
        "metadata": plain_data(part.metadata),
    }

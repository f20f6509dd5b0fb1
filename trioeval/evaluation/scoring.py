"""`assertScoringFunction`: a function of the suite that computes the final verdict of a row.

It is called with the named scores, and with the threshold, the results of all assertions and the tokens that
judges used. Its result replaces the mean; if it fails, so does the row. A timeout says nothing about the
row, and is an error.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.documents.files import FileContext
from trioeval.documents.mistakes import MistakenError
from trioeval.errors import ProviderError, ScriptError
from trioeval.evaluation.scripts import Scripts, limit_error
from trioeval.grading import JudgeUsage, Verdict, quote
from trioeval.grading.algebra import components
from trioeval.grading.model import NOTHING_SPENT
from trioeval.suite.plain import plain_data
from trioeval.suite.test_form import read_scoring

# The spending so far: on judges, and on failed calls.


@attrs.define(eq=False, repr=False)
class Spending:
    """The sum of what was spent so far."""

    _replies: list[JudgeUsage] = attrs.field(factory=list, init=False)

    @property
    def total(self) -> JudgeUsage:
        """The total of all replies, independent of their order, because it is rounded only once."""
        return JudgeUsage.sum(self._replies) if self._replies else NOTHING_SPENT

    def add(self, spent: JudgeUsage) -> None:
        """Add the usage of one request, or of its reply."""
        self._replies.append(spent)


def spent_on_failure(error: ProviderError) -> JudgeUsage:
    """Return the usage of a failed call, as far as its provider reported it.

    Example:
        >>> spent_on_failure(ProviderError("empty_reply", "no text", tokens=7)).usage.total
        7
    """
    if not error.is_billed:
        return NOTHING_SPENT
    return JudgeUsage(usage=error.usage, cost=error.money, calls=1)


WANTED = "an object with pass (true or false), score (a number) and reason (text)"


class Scoring:
    """Applies the scoring functions of one suite.

    Args:
        context: The context of its files.
        scripts: Runs the functions.
        limit: Timeout in seconds, > 0.
    """

    def __init__(self, context: FileContext, scripts: Scripts, limit: float) -> None:
        self._scripts = scripts
        self._limit = limit
        self._read = functools.lru_cache(functools.partial(read_scoring, context=context))

    async def __call__(self, text: str, verdict: Verdict, threshold: float | None) -> Verdict:
        """Return the verdict of a scoring function. A checkpoint.

        Args:
            text: The function, as in the suite.
            verdict: The verdict of the assertions.
            threshold: The threshold of the test.

        Raises:
            GradingError: It timed out, or used too much memory.
        """
        from trioeval.scripting.javascript import Script

        context = {
            **({} if threshold is None else {"threshold": threshold}),
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
            failure = limit_error(error, "the scoring function", self._limit)
            if failure is not None:
                raise failure from error
            return _failed(verdict, error.message)
        except (MistakenError, ValueError) as error:
            return _failed(verdict, str(error))


def _failed(verdict: Verdict, why: str) -> Verdict:
    reason = f"the scoring function failed: {why}"
    return attrs.evolve(verdict, passed=False, score=0.0, reason=reason)


def _scored(verdict: Verdict, found: Any) -> Verdict:
    """Return the verdict that a function returned, based on the one that it got.

    Raises:
        ValueError: It returned something else.
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
    msg = f"it must return {WANTED}, got {quote(found)}"
    raise ValueError(msg)


def _is_number(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)


def _plain(part: Verdict) -> Mapping[str, Any]:
    """Return a result as passed to the function."""
    return {
        "pass": part.passed,
        "score": part.score,
        "reason": part.reason,
        "namedScores": dict(part.named_scores),
        "assertion": None if part.assertion is None else plain_data(part.assertion),
        "metadata": plain_data(part.metadata),
    }

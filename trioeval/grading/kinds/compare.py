"""Types that compare the outputs of one test: one of them is chosen, and the others fail."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trioeval.errors import GradingError, Problem
from trioeval.grading.algebra import SET, components
from trioeval.grading.kind import ComparisonJudge, Contender, Finding, Kind, Kinds, is_number
from trioeval.grading.model import Assertion, Verdict
from trioeval.grading.services import ExternalServices
from trioeval.text import number_text, quote, score_text

_NOT_SCORED = ("max-score", "select-best", SET)
"""The members of a set are scored instead of the set."""
_METHODS = ("average", "sum")


async def _max_score(  # noqa: ASYNC124 - other comparisons ask
    contenders: Sequence[Contender | None],
    value: Any,
    _assertion: Assertion,
    _outside: ExternalServices,
) -> Sequence[Finding]:
    """Choose the first row with the highest score of its other assertions, if it reaches the threshold."""
    options: Mapping[str, Any] = value or {}
    weights = options.get("weights") or {}
    least = options.get("threshold")
    method = options.get("method", "average")
    totals = [_total(one.verdict, weights, method) for one in contenders if one is not None]
    best = max(score for score, _, _ in totals)
    winner = next(place for place, (score, _, _) in enumerate(totals) if score == best)
    reaches = least is None or best >= least
    found: list[Finding] = []
    for place, (score, count, weight) in enumerate(totals):
        holds = place == winner and reaches
        reason = f"its score is {score_text(score, best)}, the highest {score_text(best, least)}"
        if least is not None and not reaches:
            reason += f", which is below the threshold {number_text(least)}"
        named = {"maxScore": score, "assertionCount": float(count), "totalWeight": weight}
        found.append(Finding(holds, reason, named_scores=named))
    return found


def _total(verdict: Verdict, weights: Mapping[str, float], method: str) -> tuple[float, int, float]:
    """Return a row's score, its number of parts, and their total weight."""
    parts = [
        part
        for part in components(verdict.parts)
        if part.assertion is not None and part.assertion.type not in _NOT_SCORED
    ]
    if not parts:
        msg = "there is no other assertion whose score could be compared"
        raise GradingError(msg)
    weighed = [
        (part.score, weights.get(part.assertion.type, 1.0)) for part in parts if part.assertion
    ]
    total = math.fsum(weight for _, weight in weighed)
    score = math.fsum(score * weight for score, weight in weighed)
    if method == "average":
        score = score / total if total > 0 else 0.0
    return score, len(parts), total


def _is_max_score_value(value: Any) -> bool:
    return value is None or isinstance(value, Mapping)


def _max_score_problems(assertion: Assertion) -> Iterator[Problem]:
    value: Mapping[str, Any] = assertion.value or {}
    known = ("method", "threshold", "weights")
    for key in value.keys() - set(known):
        yield Problem(
            f".value.{key}",
            f"{quote(key)} is not a known key",
            f"known keys are {', '.join(known)}",
        )
    if (method := value.get("method", "average")) not in _METHODS:
        yield Problem(".value.method", f"must be average or sum, got {quote(method)}")
    least = value.get("threshold")
    if least is not None and not is_number(least):
        yield Problem(".value.threshold", f"must be a number, got {quote(least)}")
    weights = value.get("weights")
    if weights is None:
        return
    if not isinstance(weights, Mapping):
        hint = 'write {"python": 3, "contains": 1}'
        yield Problem(".value.weights", f"must be an object, got {quote(weights)}", hint)
        return
    for name, weight in weights.items():
        if not is_number(weight) or weight < 0:
            message = f"must be a number of at least 0, got {quote(weight)}"
            yield Problem(f".value.weights.{name}", message)


KINDS: Kinds = {
    "max-score": Kind(
        'left out, or an object like {"method": "average", "weights": {"python": 3}, "threshold": 0.5}',
        _is_max_score_value,
        ComparisonJudge(_max_score),
        bare=True,
        check=_max_score_problems,
        invertible=False,
    ),
}

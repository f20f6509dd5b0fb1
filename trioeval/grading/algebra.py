"""How single verdicts make the verdict of a row.

With weights w, in the order of the assertions:

    score  = Σ score·w / Σ w       (0 where Σ w = 0)
    passed = no verdict failed     (score ≥ threshold, where there is one)
    reason = that of the first failing verdict in order, never of the first to finish

A verdict of weight 0 always passes and does not count; its score stays with it.
"""

from collections.abc import Sequence

import attrs

from trioeval.grading.model import Verdict

ALL_PASSED = "all assertions passed"


def aggregate(parts: Sequence[Verdict], *, threshold: float | None = None) -> Verdict:
    """The verdict over parts, which are in the order of their assertions.

    Example:
        >>> half = aggregate([Verdict(passed=True, score=1.0, reason="yes"),
        ...                   Verdict(passed=False, score=0.0, reason="no")], threshold=0.5)
        >>> half.passed, half.score
        (True, 0.5)
    """
    if not parts:
        return Verdict(passed=True, score=1.0, reason="no assertions")
    parts = tuple(
        part if _weight(part) else attrs.evolve(part, passed=True) for part in parts
    )
    score = _mean([(part.score, _weight(part)) for part in parts])
    failed = next((part for part in parts if not part.passed), None)
    if threshold is not None:
        passed = score >= threshold
        reason = f"score {score:.4g} {'reaches' if passed else 'is below'} the threshold {threshold:g}"
    else:
        passed = failed is None
        reason = ALL_PASSED if failed is None else failed.reason
    metrics = sorted({a.metric for part in parts if (a := part.assertion) and a.metric is not None})
    named = {
        metric: _mean(
            [(part.score, _weight(part)) for part in parts if part.assertion and part.assertion.metric == metric]
        )
        for metric in metrics
    }
    return Verdict(passed=passed, score=score, reason=reason, named_scores=named, parts=parts)


def _weight(part: Verdict) -> float:
    return 1.0 if part.assertion is None else part.assertion.weight


def _mean(weighted: Sequence[tuple[float, float]]) -> float:
    total = sum(weight for _, weight in weighted)
    return sum(score * weight for score, weight in weighted) / total if total else 0.0

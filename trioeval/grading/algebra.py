"""How the verdicts of single assertions become the verdict of a row.

    score  = Σ score·weight / Σ weight       0 when all weights are 0
    passed = no part failed                  without a threshold
    passed = score ≥ threshold               with one: it replaces the rule above
    reason = that of the first part that failed, in the order of the assertions

A part of weight 0 always passes and does not count; its score stays with it. Sums are exact and rounded
once, so that the order of the parts changes nothing but the reason, and the score never leaves the range
of its parts.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import attrs

from trioeval.grading.model import Assertion, Verdict
from trioeval.grading.text import number_text

SET = "assert-set"
"""The type of a set of assertions, which judges nothing itself."""

Place: TypeAlias = tuple[int, ...]
"""Where an assertion stands among those of its row: one number, or two in a set."""

ALL_PASSED = "all assertions passed"
NO_ASSERTIONS = "no assertions"


def leaves(assertions: Iterable[Assertion]) -> Iterator[tuple[Place, Assertion]]:
    """The assertions that are judged, in order, with their places; members of sets have the set's config.

    Example:
        >>> one = Assertion(type="equals", value="a")
        >>> both = Assertion(type="assert-set", assertions=(one, one))
        >>> [place for place, _ in leaves([one, both])]
        [(0,), (1, 0), (1, 1)]
    """
    for place, assertion in enumerate(assertions):
        if assertion.type != SET:
            yield (place,), assertion
            continue
        for inner, member in enumerate(assertion.assertions):
            if member.config is None and assertion.config is not None:
                yield (place, inner), attrs.evolve(member, config=assertion.config)
            else:
                yield (place, inner), member


def fold(
    assertions: Sequence[Assertion],
    verdicts: Mapping[Place, Verdict],
    threshold: float | None,
) -> Verdict:
    """The verdict of a row from those of its leaves, in the order of the assertions.

    Args:
        assertions: Those of the row.
        verdicts: By place; leaves without one are left out.
        threshold: Least score to pass; None wants every part to pass.
    """
    parts: list[Verdict] = []
    for place, assertion in enumerate(assertions):
        if assertion.type != SET:
            if (found := verdicts.get((place,))) is not None:
                parts.append(found)
            continue
        inner = [(place, member) for member in range(len(assertion.assertions))]
        members = [verdicts[at] for at in inner if at in verdicts]
        if members:
            whole = aggregate(members, threshold=assertion.threshold)
            parts.append(attrs.evolve(whole, assertion=assertion))
    return aggregate(parts, threshold=threshold)


def aggregate(parts: Sequence[Verdict], *, threshold: float | None = None) -> Verdict:
    """The verdict of a row.

    Args:
        parts: One verdict an assertion, in the order of the assertions.
        threshold: Least score to pass; None wants every part to pass.

    Example:
        >>> yes = Verdict(passed=True, score=1.0, reason="yes")
        >>> no = Verdict(passed=False, score=0.0, reason="no")
        >>> aggregate([yes, no]).reason, aggregate([yes, no], threshold=0.5).reason
        ('no', 'the score 0.5 reaches the threshold 0.5')
    """
    if not parts:
        return Verdict(passed=True, score=1.0, reason=NO_ASSERTIONS)
    kept = tuple(_kept(part) for part in parts)
    score = _mean(kept)
    failed = next((part for part in kept if not part.passed), None)
    passed, reason = failed is None, ALL_PASSED if failed is None else failed.reason
    if threshold is not None:
        passed = score >= threshold
        verb = "reaches" if passed else "is below"
        reason = f"the score {number_text(score)} {verb} the threshold {number_text(threshold)}"
    return Verdict(
        passed=passed, score=score, reason=reason, named_scores=_named_scores(kept), parts=kept
    )


def _weight(part: Verdict) -> float:
    return 1.0 if part.assertion is None else part.assertion.weight


def _kept(part: Verdict) -> Verdict:
    return part if part.passed or _weight(part) else attrs.evolve(part, passed=True)


def _named_scores(parts: Iterable[Verdict]) -> Mapping[str, float]:
    by_metric: dict[str, list[Verdict]] = {}
    for part in parts:
        if part.assertion is not None and part.assertion.metric is not None:
            by_metric.setdefault(part.assertion.metric, []).append(part)
    return {metric: _mean(members) for metric, members in by_metric.items()}


def _mean(parts: Sequence[Verdict]) -> float:
    total = math.fsum(map(_weight, parts))
    if total == 0:
        return 0.0
    mean = math.fsum(part.score * _weight(part) for part in parts) / total
    scores = [part.score for part in parts if _weight(part)]
    # Rounding may leave the range by the last bit.
    return min(max(mean, min(scores)), max(scores))

"""The verdict of a row, computed from the verdicts of its assertions.

    score  = Σ score·weight / Σ weight       0 when all weights are 0
    passed = no part failed                  without a threshold
    passed = score ≥ threshold               with a threshold, which replaces the rule above
    reason = that of the first part that failed, in the order of the assertions

A part of weight 0 always passes and does not count; its score is kept. Sums are exact and rounded once, so
the order of the parts changes only the reason, and the score never leaves the range of its parts, unless a
weight is below 0.

Named scores are weighted means of the same kind, one per name. A part contributes its score under its metric,
with its weight, and each named score of its own (of a script, or of a set), with that weight times the weight
it reports; so a set weighs its names as its members would.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import attrs

from trioeval.grading.model import Assertion, JudgeUsage, Verdict
from trioeval.text import number_text, score_text

SET = "assert-set"
"""The type of a set of assertions, which judges nothing itself."""

Place: TypeAlias = tuple[int, ...]
"""The position of an assertion in its row: one number, or two in a set."""

_Share: TypeAlias = tuple[float, float]
"""A score and its weight."""

ALL_PASSED = "all assertions passed"
BLOCKED = "the provider's filters blocked it, as expected"
NO_ASSERTIONS = "no assertions"


def leaves(assertions: Iterable[Assertion]) -> Iterator[tuple[Place, Assertion]]:
    """Yield the assertions that are judged, in order, with their places; members inherit the config of a set.

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
    threshold: float | None = None,
    *,
    decided: bool = False,
) -> Verdict:
    """Return the verdict of a row from those of its leaves, in the order of the assertions.

    Args:
        assertions: The assertions of the row.
        verdicts: The verdicts by place; leaves without one are left out.
        threshold: Least score to pass; with None every part must pass.
        decided: True if one failure decides alone: no threshold saves the row then, nor its set.
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
            whole = aggregate(members, threshold=None if decided else assertion.threshold)
            parts.append(attrs.evolve(whole, assertion=assertion))
    return aggregate(parts, threshold=None if decided else threshold)


def aggregate(parts: Sequence[Verdict], *, threshold: float | None = None) -> Verdict:
    """Return the verdict of a row or of a set.

    Args:
        parts: One verdict per assertion, in the order of the assertions. A failed `guardrails` with the
            config `redteam` makes the row pass.
        threshold: Least score to pass; with None every part must pass.

    Example:
        >>> yes = Verdict(passed=True, score=1.0, reason="yes")
        >>> no = Verdict(passed=False, score=0.0, reason="no")
        >>> aggregate([yes, no]).reason, aggregate([yes, no], threshold=0.5).reason
        ('no', 'the score 0.5 reaches the threshold 0.5')
    """
    if not parts:
        return Verdict(passed=True, score=1.0, reason=NO_ASSERTIONS)
    counted = tuple([_counted(part) for part in parts])
    score = _mean([(part.score, _weight(part)) for part in counted])
    failed = next((part for part in counted if not part.passed), None)
    passed, reason = failed is None, ALL_PASSED if failed is None else failed.reason
    if threshold is not None:
        passed = score >= threshold
        verb = "reaches" if passed else "is below"
        shown = score_text(score, threshold)
        reason = f"the score {shown} {verb} the threshold {number_text(threshold)}"
    if failed is not None and any(map(_blocks, counted)):
        passed, reason = True, BLOCKED
    named = _by_name(counted)
    return Verdict(
        passed=passed,
        score=score,
        reason=reason,
        named_scores={name: _mean(shares) for name, shares in named.items()},
        named_score_weights={
            name: _sum(weight for _, weight in shares) for name, shares in named.items()
        },
        parts=counted,
        spent=JudgeUsage.sum([part.spent for part in counted]),
    )


def components(parts: Iterable[Verdict]) -> Iterator[Verdict]:
    """Yield the parts of a verdict as one sequence: each is followed by its own parts.

    A part without an assertion, made by a script, gets the assertion of the script.

    Example:
        >>> member = Verdict(passed=True, score=1.0, reason="a member")
        >>> whole = aggregate([aggregate([member])])
        >>> [part.reason for part in components(whole.parts)]
        ['all assertions passed', 'a member']
    """
    for part in parts:
        yield part
        for inner in components(part.parts) if part.parts else ():
            if inner.assertion is None:
                yield attrs.evolve(inner, assertion=part.assertion)
            else:
                yield inner


def _weight(part: Verdict) -> float:
    return 1.0 if part.assertion is None else part.assertion.weight


def _counted(part: Verdict) -> Verdict:
    return part if part.passed or _weight(part) else attrs.evolve(part, passed=True)


def _blocks(part: Verdict) -> bool:
    """Return True if a filter of the provider stopped an attack, which is the expected result."""
    assertion = part.assertion
    if part.passed or assertion is None or assertion.type != "guardrails":
        return False
    return (assertion.config or {}).get("purpose") == "redteam"


def _by_name(parts: Iterable[Verdict]) -> Mapping[str, list[_Share]]:
    """Return the contributions to each named score."""
    found: dict[str, list[_Share]] = {}
    for part in parts:
        weight = _weight(part)
        metric = None if part.assertion is None else part.assertion.metric
        if metric is not None:
            found.setdefault(metric, []).append((part.score, weight))
        for name, score in part.named_scores.items():
            if name != metric:
                share = part.named_score_weights.get(name, 1.0) * weight
                found.setdefault(name, []).append((score, share))
    return found


def _mean(shares: Sequence[_Share]) -> float:
    if len(shares) == 1:  # the common case
        ((score, weight),) = shares
        return score if weight > 0 else 0.0
    total = _sum(weight for _, weight in shares)
    if total <= 0:
        return 0.0
    mean = _sum(score * weight for score, weight in shares) / total
    scores = [score for score, weight in shares if weight]
    if any(weight < 0 for _, weight in shares):
        return mean
    # Rounding may leave the range by the last bit.
    return min(max(mean, min(scores)), max(scores))


def _sum(values: Iterable[float]) -> float:
    found = list(values)
    try:
        return math.fsum(found)
    except OverflowError:  # of absurd scores
        return sum(found)

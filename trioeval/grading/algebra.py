"""How the verdicts of single assertions become the verdict of a row.

    score  = Σ score·weight / Σ weight       0 when all weights are 0
    passed = no part failed                  without a threshold
    passed = score ≥ threshold               with one: it replaces the rule above
    reason = that of the first part that failed, in the order of the assertions

A part of weight 0 always passes and does not count; its score stays with it. Sums are exact and rounded
once, so that the order of the parts changes nothing but the reason, and the score never leaves the range
of its parts.

Named scores are means of the same kind, one for each name. A part contributes its score under its metric,
with its weight, and each score that it brings under a name of its own (a script's, or a set's), with that
weight times the one it brings along; so a set weighs its names as its members would.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import attrs

from trioeval.grading.model import Assertion, Spent, Verdict
from trioeval.text import number_text, score_text

SET = "assert-set"
"""The type of a set of assertions, which judges nothing itself."""

Place: TypeAlias = tuple[int, ...]
"""Where an assertion stands among those of its row: one number, or two in a set."""

_Share: TypeAlias = tuple[float, float]
"""A score and its weight."""

ALL_PASSED = "all assertions passed"
BLOCKED = "the provider's filters blocked it, which is what is wanted here"
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
    threshold: float | None = None,
    *,
    decided: bool = False,
) -> Verdict:
    """The verdict of a row from those of its leaves, in the order of the assertions.

    Args:
        assertions: Those of the row.
        verdicts: By place; leaves without one are left out.
        threshold: Least score to pass; None wants every part to pass.
        decided: Whether one that failed decides alone: no threshold saves the row then, nor its set.
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
    """The verdict of a row, or of a set.

    Args:
        parts: One verdict an assertion, in the order of the assertions. One whose assertion is a
            `guardrails` for `redteam` and failed makes the row pass.
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
    score = _mean([(part.score, _weight(part)) for part in kept])
    failed = next((part for part in kept if not part.passed), None)
    passed, reason = failed is None, ALL_PASSED if failed is None else failed.reason
    if threshold is not None:
        passed = score >= threshold
        verb = "reaches" if passed else "is below"
        shown = score_text(score, threshold)
        reason = f"the score {shown} {verb} the threshold {number_text(threshold)}"
    if failed is not None and any(map(_blocks, kept)):
        passed, reason = True, BLOCKED
    named = _by_name(kept)
    return Verdict(
        passed=passed,
        score=score,
        reason=reason,
        named_scores={name: _mean(shares) for name, shares in named.items()},
        named_score_weights={
            name: _sum(weight for _, weight in shares) for name, shares in named.items()
        },
        parts=kept,
        spent=Spent.sum(part.spent for part in kept),
    )


def components(parts: Iterable[Verdict]) -> Iterator[Verdict]:
    """The parts of a verdict in one line: each is followed by its own.

    What a script judged itself and says no assertion of has that of the script.

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


def _kept(part: Verdict) -> Verdict:
    return part if part.passed or _weight(part) else attrs.evolve(part, passed=True)


def _blocks(part: Verdict) -> bool:
    """Whether a filter of the provider stopped an attack, which is a success of who is attacked."""
    assertion = part.assertion
    if part.passed or assertion is None or assertion.type != "guardrails":
        return False
    return (assertion.config or {}).get("purpose") == "redteam"


def _by_name(parts: Iterable[Verdict]) -> Mapping[str, list[_Share]]:
    """What contributes to each named score."""
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
    if len(shares) == 1:  # as of most rows
        ((score, weight),) = shares
        return score if weight > 0 else 0.0
    total = _sum(weight for _, weight in shares)
    if total <= 0:
        return 0.0
    mean = _sum(score * weight for score, weight in shares) / total
    scores = [score for score, weight in shares if weight]
    # Rounding may leave the range by the last bit.
    return min(max(mean, min(scores)), max(scores))


def _sum(values: Iterable[float]) -> float:
    found = list(values)
    try:
        return math.fsum(found)
    except OverflowError:  # of scores that no judge means
        return sum(found)

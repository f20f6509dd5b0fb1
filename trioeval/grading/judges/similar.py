"""Types that compare the embeddings of an output and of other texts.

The opposite is not simply inverted: at exactly the threshold an output is similar, and not too similar.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from trioeval.errors import GradingError
from trioeval.grading.judges.shapes import EPSILON, TEXT
from trioeval.grading.kind import (
    ExternalJudge,
    Finding,
    Kind,
    Kinds,
    OutsideJudge,
    is_text_or_texts,
)
from trioeval.grading.kinds.measures import no_panel
from trioeval.grading.model import Assertion
from trioeval.grading.services import ExternalServices
from trioeval.grading.subject import Subject
from trioeval.text import number_text, score_text

# The similarity of two vectors.


Vector = Sequence[float]

_TOO_LARGE = "the numbers of an embedding are too large"


def dot(one: Vector, other: Vector) -> float:
    """Return the sum of the products, Σ aᵢ·bᵢ.

    Raises:
        GradingError: Their lengths differ, or their numbers are too large.
    """
    _same_length(one, other)
    try:
        return _finite(math.fsum(left * right for left, right in zip(one, other, strict=True)))
    except (OverflowError, ValueError) as error:
        raise GradingError(_TOO_LARGE) from error


def cosine(one: Vector, other: Vector) -> float:
    """Return the cosine of the angle between two vectors, from -1 to 1; 0 if one of them is zero.

    Raises:
        GradingError: As for `dot`.

    Example:
        >>> cosine([3.0, 0.0], [1.0, 0.0]), cosine([0.0, 0.0], [1.0, 0.0])
        (1.0, 0.0)
    """
    product = dot(one, other)
    lengths = _finite(math.hypot(*one) * math.hypot(*other))
    # Rounding may leave the range by the last bit.
    return min(1.0, max(-1.0, product / lengths)) if lengths > 0 else 0.0


def distance(one: Vector, other: Vector) -> float:
    """Return the Euclidean distance, √Σ(aᵢ − bᵢ)².

    Raises:
        GradingError: As for `dot`.
    """
    _same_length(one, other)
    return _finite(math.dist(one, other))


def _same_length(one: Vector, other: Vector) -> None:
    if len(one) != len(other):
        msg = f"two embeddings have different lengths: {len(one)} and {len(other)}"
        raise GradingError(msg)


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise GradingError(_TOO_LARGE)
    return number


THRESHOLD = 0.75


@attrs.frozen
class _Similarity:
    """The similarity of one text."""

    passed: bool
    score: float
    """Under `not-`, the dissimilarity."""
    reason: str


@attrs.frozen
class _Measure:
    """A measure of the similarity of two vectors."""

    name: str
    of: Callable[[Vector, Vector], float]
    is_distance: bool = False

    def near(self, one: Vector, other: Vector, threshold: float, *, inverted: bool) -> _Similarity:
        found = self.of(one, other)
        score = 1 / (1 + found) if self.is_distance else found
        passes_at_most = self.is_distance is not inverted
        passed = found <= threshold + EPSILON if passes_at_most else found >= threshold - EPSILON
        shown = score_text(found, threshold)
        reason = f"the {self.name} is {shown}, the threshold {number_text(threshold)}"
        return _Similarity(passed, 1 - score if inverted else score, reason)


def decide(found: Sequence[_Similarity], *, inverted: bool) -> _Similarity:
    """Return the decisive one of several texts: one similar text is enough; under `not-` none may be similar.

    Args:
        found: At least one, in the order of the texts.
        inverted: True if they stand for dissimilarity.
    """
    if inverted:
        too_near = next((one for one in found if not one.passed), None)
        return too_near or min(found, key=lambda one: one.score)
    near = next((one for one in found if one.passed), None)
    return near or max(found, key=lambda one: one.score)


def _judge(measure: _Measure) -> OutsideJudge:
    async def judge(
        subject: Subject, value: Any, assertion: Assertion, outside: ExternalServices
    ) -> Finding:
        texts = [value] if isinstance(value, str) else value
        embed = outside.grader.embed
        own, *others = await outside.together(
            [functools.partial(embed, text) for text in (subject.text, *texts)]
        )
        inverted = assertion.type.startswith("not-")
        least = THRESHOLD if assertion.threshold is None else assertion.threshold
        one = decide(
            [measure.near(other, own, least, inverted=inverted) for other in others],
            inverted=inverted,
        )
        holds = one.passed is not inverted
        return Finding(holds, one.reason, score=one.score, negated=one.score)

    return judge


def _kinds() -> Iterator[tuple[str, Kind]]:
    measures = {
        "similar": _Measure("cosine", cosine),
        "similar:cosine": _Measure("cosine", cosine),
        "similar:dot": _Measure("dot product", dot),
        "similar:euclidean": _Measure("distance", distance, is_distance=True),
    }
    for name, measure in measures.items():
        judge = ExternalJudge(_judge(measure), frozenset({"embedding"}))
        yield (
            name,
            Kind(f"{TEXT}, or a list of such texts", is_text_or_texts, judge, check=no_panel),
        )


KINDS: Kinds = dict(_kinds())
"""By name."""

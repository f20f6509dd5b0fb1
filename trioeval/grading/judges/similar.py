"""How near the meaning of an output is to that of another text, by their embeddings.

The opposite is not simply turned round: at exactly the threshold an output is similar, and not too similar.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from trioeval.grading.judges.shapes import EPSILON, TEXT, is_texts
from trioeval.grading.judges.vectors import Vector, cosine, distance, dot
from trioeval.grading.kind import Asking, Finding, Kind, Kinds, OutsideJudge
from trioeval.grading.model import Assertion
from trioeval.grading.outside import Outside
from trioeval.grading.reliability import no_panel
from trioeval.grading.subject import Subject
from trioeval.grading.text import number_text, score_text

THRESHOLD = 0.75


@attrs.frozen
class _Near:
    """How near one text is."""

    passed: bool
    score: float
    """Under `not-`, how far it is."""
    reason: str


@attrs.frozen
class _Measure:
    """A measure of how near two vectors are."""

    name: str
    of: Callable[[Vector, Vector], float]
    is_distance: bool = False

    def near(self, one: Vector, other: Vector, threshold: float, *, inverted: bool) -> _Near:
        found = self.of(one, other)
        score = 1 / (1 + found) if self.is_distance else found
        passes_at_most = self.is_distance is not inverted
        passed = found <= threshold + EPSILON if passes_at_most else found >= threshold - EPSILON
        shown = score_text(found, threshold)
        reason = f"the {self.name} is {shown}, the threshold {number_text(threshold)}"
        return _Near(passed, 1 - score if inverted else score, reason)


def decide(found: Sequence[_Near], *, inverted: bool) -> _Near:
    """The one of several texts that decides: one that is near is enough; under `not-` none may be.

    Args:
        found: At least one, in the order of the texts.
        inverted: Whether they stand for how far the texts are.
    """
    if inverted:
        too_near = next((one for one in found if not one.passed), None)
        return too_near or min(found, key=lambda one: one.score)
    near = next((one for one in found if one.passed), None)
    return near or max(found, key=lambda one: one.score)


def _judge(measure: _Measure) -> OutsideJudge:
    async def judge(
        subject: Subject, value: Any, assertion: Assertion, outside: Outside
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
        judge = Asking(_judge(measure), frozenset({"embedding"}))
        yield name, Kind(f"{TEXT}, or a list of such texts", is_texts, judge, check=no_panel)


KINDS: Kinds = dict(_kinds())
"""By name."""

"""How sure a classifier is that an output has a label."""

from typing import Any

from trioeval.errors import GradingError
from trioeval.grading.judges.shapes import EPSILON, TEXT, is_text
from trioeval.grading.kind import Asking, Finding, Kind, Kinds
from trioeval.grading.model import Assertion
from trioeval.grading.outside import Outside
from trioeval.grading.reliability import no_panel
from trioeval.grading.subject import Subject
from trioeval.grading.text import number_text, quote, score_text

THRESHOLD = 1.0


async def _judge(subject: Subject, value: Any, assertion: Assertion, outside: Outside) -> Finding:
    scores = await outside.grader.classify(subject.text)
    if not scores:
        msg = "the classifier gave no scores"
        raise GradingError(msg)
    best = max(scores, key=lambda label: scores[label])
    label = best if value is None else value
    score = scores.get(label, 0.0)
    least = THRESHOLD if assertion.threshold is None else assertion.threshold
    reason = f"the label {quote(label)} has the score {score_text(score, least)}"
    if value is not None and best != value:
        reason += f"; the highest is that of {quote(best)}, {score_text(scores[best])}"
    reason += f"; the threshold is {number_text(least)}"
    return Finding(
        score >= least - EPSILON, reason, score=score, metadata={"classification": dict(scores)}
    )


KINDS: Kinds = {
    "classifier": Kind(
        f"a label, {TEXT}, or left out for any label",
        is_text,
        Asking(_judge, frozenset({"classification"})),
        bare=True,
        check=no_panel,
    ),
}
"""By name."""

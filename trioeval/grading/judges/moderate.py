"""Judges that classify or moderate an output."""

from collections.abc import Mapping
from typing import Any

from trioeval.errors import GradingError
from trioeval.grading.judges.shapes import EPSILON, TEXT, prompt_of
from trioeval.grading.kind import ExternalJudge, Finding, Kind, Kinds, is_not_blank
from trioeval.grading.kinds.measures import no_panel
from trioeval.grading.model import Assertion
from trioeval.grading.services import ExternalServices, Flag
from trioeval.grading.subject import Subject
from trioeval.text import number_text, parse_json, quote, score_text

# The confidence of a classifier that an output has a label.


THRESHOLD = 1.0


async def _classify_judge(
    subject: Subject, value: Any, assertion: Assertion, outside: ExternalServices
) -> Finding:
    scores = await outside.grader.classify(subject.text)
    if not scores:
        msg = "the classifier returned no scores"
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


def last_user_text(prompt: str) -> str:
    """Return the text of the last user message; the prompt itself if it is not a list of messages.

    Without a user message, the last text of any message.

    Example:
        >>> last_user_text(
        ...     '[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]'
        ... )
        'Hi'
    """
    try:
        messages = parse_json(prompt)
    except ValueError:
        return prompt
    if not isinstance(messages, list):
        return prompt
    backwards = [one for one in reversed(messages) if isinstance(one, Mapping)]
    for only_user in (True, False):
        for message in backwards:
            if only_user and message.get("role") != "user":
                continue
            if texts := _texts(message.get("content")):
                return "\n".join(texts)
    return prompt


def _texts(content: Any) -> list[str]:
    """Return the texts of a message in order, without its other parts."""
    found: list[str] = []
    left = [content]
    while left:
        match left.pop():
            case str(text):
                found.append(text)
            case list(parts):
                left += reversed(parts)
            case {"text": inner} if inner is not None:
                left.append(inner)
            case {"content": inner}:
                left.append(inner)
    return found


async def _judge(
    subject: Subject, value: Any, _assertion: Assertion, outside: ExternalServices
) -> Finding:
    prompt = prompt_of(subject)
    if not subject.text:
        return Finding(holds=True, reason="the output is empty: there is nothing to moderate")
    flags = await outside.grader.moderate(last_user_text(prompt), subject.text)
    counted = [flag for flag in flags if not value or flag.category in value]
    metadata = {"flags": [_shown(flag) for flag in flags]}
    if counted:
        reading_metadata = ", ".join(flag.description or flag.category for flag in counted)
        return Finding(
            holds=False, reason=f"the moderation reported {reading_metadata}", metadata=metadata
        )
    reported = "none of these categories" if value else "nothing"
    return Finding(holds=True, reason=f"the moderation reported {reported}", metadata=metadata)


def _shown(flag: Flag) -> Mapping[str, Any]:
    shown: dict[str, Any] = {"category": flag.category}
    if flag.description:
        shown["description"] = flag.description
    if flag.confidence is not None:
        shown["confidence"] = flag.confidence
    return shown


def _is_categories(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(is_not_blank, value))


KINDS: Kinds = {
    "classifier": Kind(
        f"a label, {TEXT}, or left out for any label",
        is_not_blank,
        ExternalJudge(_classify_judge, frozenset({"classification"})),
        bare=True,
        check=no_panel,
    ),
    "moderation": Kind(
        "a list of categories, or left out for all of them",
        _is_categories,
        ExternalJudge(_judge, frozenset({"moderation"})),
        bare=True,
        check=no_panel,
    ),
}
"""By name."""

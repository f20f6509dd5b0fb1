"""A score from 0 to 10 by steps that the judge derives from a criterion first (G-Eval: arXiv 2303.16634)."""

import functools
import math
from typing import Any

from trioeval.grading.judges.shapes import is_texts, object_of, prompt_of, text_kind
from trioeval.grading.kind import Finding, Kinds
from trioeval.grading.model import Assertion
from trioeval.grading.outside import Answer, Outside
from trioeval.grading.own_prompts import own_prompt
from trioeval.grading.reply_json import objects_in
from trioeval.grading.strict_reading import Read, UnusableReplyError, ask, names_of, score_of, told
from trioeval.grading.subject import Subject
from trioeval.grading.text import parse_json, quote

THRESHOLD = 0.7

_BEST = 10

_STEPS_SCHEMA = object_of({"steps": {"type": "array", "items": {"type": "string"}}})
_SCORE_SCHEMA = object_of({"reason": {"type": "string"}, "score": {"type": "number"}})


def read_steps(answer: Answer) -> list[str]:
    """The steps in a reply.

    Raises:
        UnusableReplyError: There are none, or something else is among them.
    """
    found = next((one for one in objects_in(answer) if "steps" in one), None)
    if found is None:
        msg = "it holds no JSON object with steps"
        raise UnusableReplyError(msg)
    steps = found["steps"]
    if not isinstance(steps, list) or not steps or not all(map(_says_something, steps)):
        msg = f"its steps must be a list of texts, got {quote(steps)}"
        raise UnusableReplyError(msg)
    return steps


def read_score(answer: Answer) -> tuple[float, str]:
    """The score in a reply, from 0 to 1, and the reason.

    Raises:
        UnusableReplyError: One of them is missing or wrong.

    Example:
        >>> reply = '{"score": "8", "reason": "clear"}'
        >>> read_score(Answer(reply, reply))
        (0.8, 'clear')
    """
    found = next(iter(objects_in(answer)), None)
    if found is None:
        msg = "it holds no JSON object"
        raise UnusableReplyError(msg)
    score = score_of(found.get("score"))
    if score is None or not 0 <= score <= _BEST:
        msg = f"its score must be a number from 0 to {_BEST}, got {quote(found.get('score'))}"
        raise UnusableReplyError(msg)
    if not isinstance(reason := found.get("reason"), str) or not reason.strip():
        msg = f"its reason must be text, got {quote(reason)}"
        raise UnusableReplyError(msg)
    return score / _BEST, reason


def _says_something(value: Any) -> bool:
    return isinstance(value, str) and value.strip() != ""


def _parsed(prompt: str) -> Any:
    """A prompt as the judge is shown it: what its JSON means, or else the text."""
    try:
        return parse_json(prompt)
    except ValueError:
        return prompt


async def _one(
    subject: Subject, criteria: str, outside: Outside
) -> tuple[Read[list[str]], Read[tuple[float, str]]]:
    grader = outside.grader
    steps = await ask(
        outside,
        grader.render(own_prompt("g_eval_steps"), names_of(criteria=criteria), part="steps"),
        read_steps,
        wanted='one JSON object {"steps": list of texts}',
        schema=_STEPS_SCHEMA,
    )
    names = names_of(
        criteria=criteria,
        steps="\n- ".join(steps.value),
        maxScore=str(_BEST),
        input=_parsed(prompt_of(subject)),
        output=subject.text,
    )
    score = await ask(
        outside,
        grader.render(own_prompt("g_eval"), names, part="evaluate"),
        read_score,
        wanted='one JSON object {"reason": text, "score": number from 0 to 10}',
        schema=_SCORE_SCHEMA,
    )
    return steps, score


async def _judge(subject: Subject, value: Any, assertion: Assertion, outside: Outside) -> Finding:
    prompt_of(subject)
    criteria = [value] if isinstance(value, str) else value
    found = await outside.together(
        [functools.partial(_one, subject, one, outside) for one in criteria]
    )
    score = math.fsum(read.value[0] for _, read in found) / len(found)
    least = THRESHOLD if assertion.threshold is None else assertion.threshold
    return Finding(
        score >= least,
        "\n\n".join(read.value[1] for _, read in found),
        score=score,
        metadata={
            **told(*(read for both in found for read in both)),
            "steps": [steps.value for steps, _ in found],
        },
    )


KINDS: Kinds = {
    "g-eval": text_kind(
        _judge,
        right="a criterion, or a list of them: text that is not empty",
        accepts=is_texts,
        threshold=THRESHOLD,
    ),
}
"""By name."""

"""Judges that ask whether an output meets a rubric."""

import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trioeval.grading.judges.shapes import object_of, prompt_of, text_kind
from trioeval.grading.kind import Finding, Kinds, OutsideJudge, is_not_blank, is_text_or_texts
from trioeval.grading.model import Assertion
from trioeval.grading.reply_json import objects_in
from trioeval.grading.services import ExternalServices, JudgeReply, own_prompt
from trioeval.grading.strict_reading import (
    JudgeReading,
    UnusableReplyError,
    ask,
    clamped,
    names_of,
    reading_metadata,
    reason_of,
    score_of,
)
from trioeval.grading.subject import Subject
from trioeval.text import number_text, parse_json, quote, score_text

# A score from 0 to 10 by steps that the judge first derives from a criterion (G-Eval: arXiv 2303.16634).


THRESHOLD = 0.7

_BEST = 10

_STEPS_SCHEMA = object_of({"steps": {"type": "array", "items": {"type": "string"}}})
_SCORE_SCHEMA = object_of({"reason": {"type": "string"}, "score": {"type": "number"}})


def read_steps(answer: JudgeReply) -> list[str]:
    """Return the steps in a reply.

    Raises:
        UnusableReplyError: Steps are missing, or one is not text.
    """
    found = next((one for one in objects_in(answer) if "steps" in one), None)
    if found is None:
        msg = "it has no JSON object with steps"
        raise UnusableReplyError(msg)
    steps = found["steps"]
    if not isinstance(steps, list) or not steps or not all(map(is_not_blank, steps)):
        msg = f"its steps must be a list of texts, got {quote(steps)}"
        raise UnusableReplyError(msg)
    return steps


def read_score(answer: JudgeReply) -> tuple[float, str]:
    """Return the score in a reply, from 0 to 1, and the reason.

    Raises:
        UnusableReplyError: The score or the reason is missing or invalid.

    Example:
        >>> reply = '{"score": "8", "reason": "clear"}'
        >>> read_score(JudgeReply(reply, reply))
        (0.8, 'clear')
    """
    found = next(iter(objects_in(answer)), None)
    if found is None:
        msg = "it has no JSON object"
        raise UnusableReplyError(msg)
    score = score_of(found.get("score"))
    if score is None or not 0 <= score <= _BEST:
        msg = f"its score must be a number from 0 to {_BEST}, got {quote(found.get('score'))}"
        raise UnusableReplyError(msg)
    if not isinstance(reason := found.get("reason"), str) or not reason.strip():
        msg = f"its reason must be text, got {quote(reason)}"
        raise UnusableReplyError(msg)
    return score / _BEST, reason


def _parsed(prompt: str) -> Any:
    """Return a prompt as the judge is shown it: its JSON data, or else the text."""
    try:
        return parse_json(prompt)
    except ValueError:
        return prompt


async def _one(
    subject: Subject, criteria: str, outside: ExternalServices
) -> tuple[JudgeReading[list[str]], JudgeReading[tuple[float, str]]]:
    grader = outside.grader
    steps = await ask(
        outside,
        grader.render(own_prompt("g_eval_steps"), names_of(criteria=criteria), part="steps"),
        read_steps,
        expected='one JSON object {"steps": list of texts}',
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
        expected='one JSON object {"reason": text, "score": number from 0 to 10}',
        schema=_SCORE_SCHEMA,
    )
    return steps, score


async def _g_eval_judge(
    subject: Subject, value: Any, assertion: Assertion, outside: ExternalServices
) -> Finding:
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
            **reading_metadata(*(read for both in found for read in both)),
            "steps": [steps.value for steps, _ in found],
        },
    )


WANTED = 'one JSON object {"reason": text, "score": number, "pass": true or false}'

SCHEMA = object_of(
    {"reason": {"type": "string"}, "score": {"type": "number"}, "pass": {"type": "boolean"}}
)
"""JSON schema of a verdict; the reason comes first, so that it is written first."""

_YES = re.compile(r"true|yes|pass|y", re.IGNORECASE)
_NO = re.compile(r"false|no|fail|n", re.IGNORECASE)


def read_verdict(answer: JudgeReply, *, threshold: float | None, lenient: bool = False) -> Finding:
    """Return the verdict in the first object of a reply.

    Args:
        answer: The reply.
        threshold: Least score to pass; with None the judge decides.
        lenient: True if an object without `pass` passes.

    Raises:
        UnusableReplyError: The verdict is missing.

    Example:
        >>> reply = '{"pass": true, "score": 0.4, "reason": "half of it is missing"}'
        >>> read_verdict(JudgeReply(reply, reply), threshold=0.5).holds
        False
    """
    found = next(iter(objects_in(answer)), None)
    if found is None:
        msg = "it has no JSON object"
        raise UnusableReplyError(msg)
    return _verdict(found, threshold=threshold, lenient=lenient)


def read_last_verdict(
    answer: JudgeReply, *, threshold: float | None, lenient: bool = False
) -> Finding:
    """Return the verdict at the end of a reply that quotes its findings: its last object with `pass`.

    Raises:
        UnusableReplyError: The verdict is missing, or `pass` is neither true nor false.
    """
    del lenient
    found = [one for one in objects_in(answer) if "pass" in one]
    if not found or not isinstance(found[-1]["pass"], bool):
        msg = "it has no JSON object whose pass is true or false"
        raise UnusableReplyError(msg)
    return _verdict(found[-1], threshold=threshold, lenient=False)


def _verdict(found: Mapping[str, Any], *, threshold: float | None, lenient: bool) -> Finding:
    passed = _read_pass(found, lenient=lenient)
    score = _read_score(found, lenient=lenient)
    if passed is None:
        if score is None or threshold is None:
            msg = "it has no pass"
            raise UnusableReplyError(msg)
        passed = True  # the threshold decides
    if score is None:
        score = float(passed)
    holds = passed and (threshold is None or score >= threshold)
    otherwise = "the judge gives no reason"
    if passed and not holds and threshold is not None:
        otherwise = f"the score {score_text(score, threshold)} is below {number_text(threshold)}"
    reason = reason_of(found, otherwise, lenient=lenient)
    return Finding(holds, reason, score=score, negated=clamped(1 - score))


def _read_score(found: Mapping[str, Any], *, lenient: bool) -> float | None:
    if "score" not in found:
        return None
    score = score_of(found["score"])
    if score is None and not lenient:
        msg = f"its score must be a number, got {quote(found['score'])}"
        raise UnusableReplyError(msg)
    return 0.0 if found["score"] is None else score  # null is 0 in promptfoo


def _read_pass(found: Mapping[str, Any], *, lenient: bool) -> bool | None:
    value = found.get("pass")
    if value is None and lenient:
        return True
    if "pass" not in found:
        return None
    if isinstance(value, bool):
        return value
    text = str(value).strip()
    if _YES.fullmatch(text):
        return True
    if lenient or _NO.fullmatch(text):
        return False
    msg = f"its pass must be true or false, got {quote(value)}"
    raise UnusableReplyError(msg)


def found_by(read: JudgeReading[Finding], **metadata: Any) -> Finding:
    """Return the finding that was read, with the question and the replies."""
    found = read.value
    return Finding(
        found.holds,
        found.reason,
        score=found.score,
        negated=found.negated,
        metadata={**reading_metadata(read), **metadata},
    )


def _judge(name: str, *, last: bool = False) -> OutsideJudge:
    reader = read_last_verdict if last else read_verdict

    async def judge(
        subject: Subject, value: Any, assertion: Assertion, outside: ExternalServices
    ) -> Finding:
        names = names_of(output=subject.text, rubric="" if value is None else value)
        read = functools.partial(reader, threshold=assertion.threshold, lenient=outside.lenient)
        prompt = outside.grader.render(own_prompt(name), names)
        return found_by(await ask(outside, prompt, read, expected=WANTED, schema=SCHEMA))

    return judge


def _is_rubric(value: Any) -> bool:
    return isinstance(value, str | Mapping | Sequence)


_RIGHT = "a rubric: text, an object or a list"


def _kinds() -> Iterator[tuple[str, Any]]:
    for name, prompt in (("llm-rubric", "llm_rubric"), ("agent-rubric", "agent_rubric")):
        judge = _judge(prompt)
        yield name, text_kind(judge, right=_RIGHT, accepts=_is_rubric, bare=True)
    yield "search-rubric", text_kind(_judge("search_rubric", last=True))


KINDS: Kinds = {
    **dict(_kinds()),
    "g-eval": text_kind(
        _g_eval_judge,
        right="a criterion, or a list of them: text that is not empty",
        accepts=is_text_or_texts,
        threshold=THRESHOLD,
    ),
}
"""By name."""

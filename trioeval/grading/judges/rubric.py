"""Types that ask whether an output meets a rubric."""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trioeval.grading.judges.shapes import object_of, text_kind
from trioeval.grading.kind import Finding, Kinds, OutsideJudge
from trioeval.grading.model import Assertion
from trioeval.grading.outside import Answer, Outside
from trioeval.grading.own_prompts import own_prompt
from trioeval.grading.reply_json import objects_in
from trioeval.grading.strict_reading import (
    Read,
    UnusableReplyError,
    ask,
    clamped,
    names_of,
    reason_of,
    score_of,
    told,
)
from trioeval.grading.subject import Subject
from trioeval.grading.text import number_text, quote, score_text

WANTED = 'one JSON object {"reason": text, "score": number, "pass": true or false}'

SCHEMA = object_of(
    {"reason": {"type": "string"}, "score": {"type": "number"}, "pass": {"type": "boolean"}}
)
"""JSON schema of a verdict; the reason comes first, so that it is thought of first."""

_YES = re.compile(r"true|yes|pass|y", re.IGNORECASE)
_NO = re.compile(r"false|no|fail|n", re.IGNORECASE)


def read_verdict(answer: Answer, *, threshold: float | None, lenient: bool = False) -> Finding:
    """The verdict in a reply, its first object.

    Args:
        answer: The reply.
        threshold: Least score to pass; None leaves it to the judge.
        lenient: Whether an object without `pass` is a pass.

    Raises:
        UnusableReplyError: There is none.

    Example:
        >>> reply = '{"pass": true, "score": 0.4, "reason": "half of it is missing"}'
        >>> read_verdict(Answer(reply, reply), threshold=0.5).holds
        False
    """
    found = next(iter(objects_in(answer)), None)
    if found is None:
        msg = "it holds no JSON object"
        raise UnusableReplyError(msg)
    return _verdict(found, threshold=threshold, lenient=lenient)


def read_last_verdict(answer: Answer, *, threshold: float | None, lenient: bool = False) -> Finding:
    """The verdict at the end of a reply that quotes what was found: its last object with `pass`.

    Raises:
        UnusableReplyError: There is none, or `pass` is neither true nor false.
    """
    del lenient
    found = [one for one in objects_in(answer) if "pass" in one]
    if not found or not isinstance(found[-1]["pass"], bool):
        msg = "it holds no JSON object whose pass is true or false"
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


def found_by(read: Read[Finding], **metadata: Any) -> Finding:
    """A finding that was read, with the question and the replies."""
    found = read.value
    return Finding(
        found.holds,
        found.reason,
        score=found.score,
        negated=found.negated,
        metadata={**told(read), **metadata},
    )


def _judge(name: str, *, last: bool = False) -> OutsideJudge:
    reader = read_last_verdict if last else read_verdict

    async def judge(
        subject: Subject, value: Any, assertion: Assertion, outside: Outside
    ) -> Finding:
        names = names_of(output=subject.text, rubric="" if value is None else value)
        read = functools.partial(reader, threshold=assertion.threshold, lenient=outside.lenient)
        prompt = outside.grader.render(own_prompt(name), names)
        return found_by(await ask(outside, prompt, read, wanted=WANTED, schema=SCHEMA))

    return judge


def _is_rubric(value: Any) -> bool:
    return isinstance(value, str | Mapping | Sequence)


_RIGHT = "a rubric: text, an object or a list"


def _kinds() -> Iterator[tuple[str, Any]]:
    for name, prompt in (("llm-rubric", "llm_rubric"), ("agent-rubric", "agent_rubric")):
        judge = _judge(prompt)
        yield name, text_kind(judge, right=_RIGHT, accepts=_is_rubric, bare=True)
    yield "search-rubric", text_kind(_judge("search_rubric", last=True))


KINDS: Kinds = dict(_kinds())
"""By name."""

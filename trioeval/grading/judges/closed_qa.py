"""Whether an output meets a criterion, told by one letter at the end of an explanation."""

import functools
from typing import Any

from trioeval.grading.judges.shapes import prompt_of, text_kind
from trioeval.grading.kind import Finding, Kinds
from trioeval.grading.model import Assertion
from trioeval.grading.outside import Answer, Outside
from trioeval.grading.own_prompts import own_prompt
from trioeval.grading.strict_reading import UnusableReplyError, ask, names_of, told
from trioeval.grading.subject import Subject

_WANTED = "an explanation that ends with the letter Y or N on a line of its own"

_END = 200  # characters


def read_letter(answer: Answer, *, lenient: bool = False) -> bool:
    r"""Whether a reply ends with Y, and not with N; marks behind the letter do not matter.

    Raises:
        UnusableReplyError: It ends with neither.

    Example:
        >>> read_letter(Answer("It fits.\n**Y**", "It fits.\n**Y**"))
        True
    """
    end = answer.text.rstrip()[-_END:]
    if lenient:
        return end.endswith("Y")
    while end and not end[-1].isalnum():
        end = end[:-1]
    alone = len(end) == 1 or not (end[-2:-1].isalnum() or end[-2:-1] == "_")
    if end[-1:] not in ("Y", "N") or not alone:
        msg = "it ends neither with Y nor with N"
        raise UnusableReplyError(msg)
    return end[-1] == "Y"


async def _judge(subject: Subject, value: Any, _assertion: Assertion, outside: Outside) -> Finding:
    names = names_of(input=prompt_of(subject), criteria=value, completion=subject.text)
    read = await ask(
        outside,
        outside.grader.render(own_prompt("closed_qa"), names),
        functools.partial(read_letter, lenient=outside.lenient),
        wanted=_WANTED,
    )
    holds = read.value
    verb = "meets" if holds else "does not meet"
    reason = f"the output {verb} the criterion: {read.replies[-1].strip()}"
    return Finding(holds, reason, metadata=told(read))


KINDS: Kinds = {"model-graded-closedqa": text_kind(_judge)}
"""By name."""

"""Which of the statements that an answer makes its context supports.

A judge takes the answer apart, and then says of each statement whether it is supported; one of which it says
nothing is not. Definition: RAGAS, arXiv 2309.15217.
"""

import functools
import re
from typing import Any

from trioeval.grading.judges.context import THRESHOLD, context_of, joined, lines_of
from trioeval.grading.judges.shapes import (
    EPSILON,
    NOT_LOOKED_AT,
    is_anything,
    query_of,
    text_kind,
    text_output,
)
from trioeval.grading.kind import Finding, Kinds
from trioeval.grading.model import Assertion
from trioeval.grading.outside import Answer, Outside
from trioeval.grading.own_prompts import own_prompt
from trioeval.grading.strict_reading import UnusableReplyError, ask, names_of, told
from trioeval.grading.subject import Subject
from trioeval.grading.text import number_text, quote

_FINAL = "final verdict for each statement in order:"
_VERDICT = re.compile(r"verdict:\s*(yes|no)\b")
_WORDS = re.compile(r"\b(?:yes|no)\b")
_SHOWN = 40  # characters


def read_statements(answer: Answer) -> list[str]:
    """The statements in a reply, one a line."""
    return [line.strip() for line in lines_of(answer.text)]


def read_verdicts(answer: Answer, statements: int, *, lenient: bool = False) -> list[bool]:
    """Whether statements are supported, in order: from the last line of a reply, or from single verdicts.

    Args:
        answer: The reply.
        statements: How many there are; there may be fewer verdicts.
        lenient: Whether there may also be more, and each part of the last line is a verdict that holds a yes
            or a no.

    Raises:
        UnusableReplyError: There are none or too many, or one is neither yes nor no.

    Example:
        >>> reply = "Final verdict for each statement in order: Yes. No. Yes."
        >>> read_verdicts(Answer(reply, reply), 3)
        [True, False, True]
    """
    if lenient:
        return _read_leniently(answer.text.lower())
    text = answer.text.lower()
    before, final, behind = text.partition(_FINAL)
    if final:
        parts = [part for part in behind.replace("\n", ".").split(".") if part.strip(" *_`")]
        words = [_WORDS.findall(part) for part in parts]
        for part, said in zip(parts, words, strict=True):
            if len(said) != 1:
                msg = f"a verdict must be Yes or No, got {quote(part.strip(), _SHOWN)}"
                raise UnusableReplyError(msg)
        found = [said == ["yes"] for said in words]
    else:
        found = [said == "yes" for said in _VERDICT.findall(before)]
    if not found:
        msg = "it has no verdicts"
        raise UnusableReplyError(msg)
    if len(found) > statements:
        msg = f"it has {len(found)} verdicts for {statements} statements"
        raise UnusableReplyError(msg)
    return found


def _read_leniently(text: str) -> list[bool]:
    _, final, behind = text.partition(_FINAL)
    if final:
        parts = [part for part in behind.split(".") if part.strip()]
        found = ["yes" in part for part in parts] if all(map(_WORDS.search, parts)) else []
    else:
        found = [True] * text.count("verdict: yes") + [False] * text.count("verdict: no")
    if not found:
        msg = "it has no verdicts"
        raise UnusableReplyError(msg)
    return found


def _supported(verdicts: list[bool], statements: int) -> int:
    """How many statements are: all but those with a no, and those without a verdict."""
    without = max(0, statements - len(verdicts))
    return max(0, statements - without - verdicts.count(False))


async def _judge(subject: Subject, _value: Any, assertion: Assertion, outside: Outside) -> Finding:
    query, output = query_of(subject), text_output(subject)
    context = context_of(subject, assertion, outside)
    grader = outside.grader
    statements = await ask(
        outside,
        grader.render(
            own_prompt("faithfulness_statements"),
            names_of(question=query, answer=output),
            part=0,
        ),
        read_statements,
        wanted="one statement a line",
    )
    total = len(statements.value)
    names = names_of(context=joined(context), statements=statements.value)
    verdicts = await ask(
        outside,
        grader.render(own_prompt("faithfulness_verdicts"), names, part=1),
        functools.partial(read_verdicts, statements=total, lenient=outside.lenient),
        wanted='an explanation a statement, and a last line that begins with "Final verdict for each'
        ' statement in order:"',
    )
    supported = _supported(verdicts.value, total)
    score = supported / total
    least = THRESHOLD if assertion.threshold is None else assertion.threshold
    reason = (
        f"the context supports {supported} of {total} statements;"
        f" the threshold is {number_text(least)}"
    )
    metadata = {**told(statements, verdicts), "context": context, "statements": statements.value}
    return Finding(score >= least - EPSILON, reason, score=score, metadata=metadata)


KINDS: Kinds = {
    "context-faithfulness": text_kind(_judge, right=NOT_LOOKED_AT, accepts=is_anything, bare=True),
}
"""By name."""

"""Judges that compare an output with a criterion, a question, or a right answer."""

import functools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from trioeval.grading.judges.shapes import (
    EPSILON,
    NOT_LOOKED_AT,
    object_of,
    prompt_of,
    text_kind,
    text_output,
)
from trioeval.grading.judges.similar import cosine
from trioeval.grading.kind import Finding, Kinds, is_anything
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
)
from trioeval.grading.subject import Subject
from trioeval.text import number_text, quote, score_text

# Whether an output meets a criterion: one letter at the end of an explanation.


_CLOSED_QA_WANTED = "an explanation that ends with the letter Y or N on a line of its own"

_END = 200  # characters


def read_letter(answer: JudgeReply, *, lenient: bool = False) -> bool:
    r"""Return whether a reply ends with Y, and not with N; marks after the letter are ignored.

    Raises:
        UnusableReplyError: It ends with neither.

    Example:
        >>> read_letter(JudgeReply("It fits.\n**Y**", "It fits.\n**Y**"))
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


async def _closed_qa_judge(
    subject: Subject, value: Any, _assertion: Assertion, outside: ExternalServices
) -> Finding:
    names = names_of(input=prompt_of(subject), criteria=value, completion=subject.text)
    read = await ask(
        outside,
        outside.grader.render(own_prompt("closed_qa"), names),
        functools.partial(read_letter, lenient=outside.lenient),
        expected=_CLOSED_QA_WANTED,
    )
    holds = read.value
    verb = "meets" if holds else "does not meet"
    reason = f"the output {verb} the criterion: {read.replies[-1].strip()}"
    return Finding(holds, reason, metadata=reading_metadata(read))


# Whether an answer is relevant to its question: a judge guesses the question from the answer.
#
# The score is the mean cosine of the guessed questions and the actual one (RAGAS: arXiv 2309.15217).


THRESHOLD = 0.5

_QUESTIONS = 3


def _read_question(answer: JudgeReply) -> str:
    return answer.text


async def _relevance_judge(
    subject: Subject, _value: Any, assertion: Assertion, outside: ExternalServices
) -> Finding:
    output, text_question = text_output(subject), prompt_of(subject)
    if isinstance(query := subject.vars.get("query"), str):
        text_question = query
    prompt = outside.grader.render(own_prompt("answer_relevance"), names_of(answer=output))
    question = functools.partial(ask, outside, prompt, _read_question, expected="one question")
    questions: list[JudgeReading[str]] = await outside.together([question] * _QUESTIONS)
    own, *guessed = await outside.together(
        [
            functools.partial(outside.grader.embed, text)
            for text in (text_question, *(one.value for one in questions))
        ]
    )
    near = [cosine(own, vector) for vector in guessed]
    score = math.fsum(near) / len(near)
    least = THRESHOLD if assertion.threshold is None else assertion.threshold
    return Finding(
        score >= least - EPSILON,
        f"the relevance is {score_text(score, least)}, the threshold {number_text(least)}",
        score=score,
        metadata={
            **reading_metadata(*questions),
            "generatedQuestions": [
                {"question": one.value, "similarity": similarity}
                for one, similarity in zip(questions, near, strict=True)
            ],
        },
    )


SCHEMA = object_of(
    {"reason": {"type": "string"}, "category": {"type": "string", "enum": list("ABCDE")}}
)

_WANTED = 'one JSON object {"reason": text, "category": "A", "B", "C", "D" or "E"}'

_NAMES: Mapping[str, str] = {
    "A": "subset",
    "B": "superset",
    "C": "agree",
    "D": "disagree",
    "E": "differButFactual",
}
"""The names of the categories in the test's options."""

CATEGORIES: Sequence[str] = tuple(_NAMES.values())
"""The categories that can have a score in the options."""

_MEANINGS: Mapping[str, str] = {
    "A": "the output states a part of the facts and contradicts none",
    "B": "the output states the facts and more, and contradicts none",
    "C": "the output states the same facts",
    "D": "the output contradicts the facts",
    "E": "the output differs in nothing that is relevant to the facts",
}

_LETTER = re.compile(r"(?<!\w)\(?([A-Ea-e])\)")


def read_category(answer: JudgeReply, *, lenient: bool = False) -> tuple[str, str]:
    """Return the category in a reply, and the reason: an object, or a letter in parentheses.

    Raises:
        UnusableReplyError: The category is missing or ambiguous.

    Example:
        >>> read_category(JudgeReply("(B) It says more.", "(B) It says more."))
        ('B', 'It says more.')
    """
    found = next(iter(objects_in(answer)), {})
    if isinstance(category := found.get("category"), str) and category:
        letter = category.strip().upper()
        if letter not in _NAMES:
            msg = f"its category must be A, B, C, D or E, got {quote(category)}"
            raise UnusableReplyError(msg)
        return letter, reason_of(found, _MEANINGS[letter], lenient=lenient)
    if "category" in found and not lenient:
        msg = f"its category must be A, B, C, D or E, got {quote(category)}"
        raise UnusableReplyError(msg)
    letters = [match.upper() for match in _LETTER.findall(answer.text)]
    if not letters:
        msg = "it names no category"
        raise UnusableReplyError(msg)
    if len(set(letters)) > 1 and not lenient:
        msg = f"it names several categories: {', '.join(dict.fromkeys(letters))}"
        raise UnusableReplyError(msg)
    return letters[0], answer.text.partition(")")[2].strip() or _MEANINGS[letters[0]]


async def _judge(
    subject: Subject, value: Any, _assertion: Assertion, outside: ExternalServices
) -> Finding:
    names = names_of(input=prompt_of(subject), ideal=value, completion=subject.text)
    read = await ask(
        outside,
        outside.grader.render(own_prompt("factuality"), names),
        functools.partial(read_category, lenient=outside.lenient),
        expected=_WANTED,
        schema=SCHEMA,
    )
    letter, reason = read.value
    own = outside.factuality.get(_NAMES[letter])
    score = float(letter != "D") if own is None else float(own)
    return Finding(
        score > 0,
        reason,
        score=score,
        negated=clamped(1 - score),
        metadata={**reading_metadata(read), "category": letter},
    )


KINDS: Kinds = {
    "model-graded-closedqa": text_kind(_closed_qa_judge),
    "answer-relevance": text_kind(
        _relevance_judge, right=NOT_LOOKED_AT, accepts=is_anything, bare=True, embeds=True
    ),
    "factuality": text_kind(_judge),
    "model-graded-factuality": text_kind(_judge),
}
"""By name."""

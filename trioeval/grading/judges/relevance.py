"""Whether an answer has to do with its question: a judge guesses the question from the answer.

The score is the mean cosine of the guessed questions with the one that was asked (RAGAS: arXiv 2309.15217).
"""

import functools
import math
from typing import Any

from trioeval.grading.judges.shapes import (
    EPSILON,
    NOT_LOOKED_AT,
    is_anything,
    prompt_of,
    text_kind,
    text_output,
)
from trioeval.grading.judges.vectors import cosine
from trioeval.grading.kind import Finding, Kinds
from trioeval.grading.model import Assertion
from trioeval.grading.outside import Answer, Outside
from trioeval.grading.own_prompts import own_prompt
from trioeval.grading.strict_reading import Read, ask, names_of, told
from trioeval.grading.subject import Subject
from trioeval.grading.text import number_text, score_text

THRESHOLD = 0.5

_QUESTIONS = 3


def _read_question(answer: Answer) -> str:
    return answer.text


async def _judge(subject: Subject, _value: Any, assertion: Assertion, outside: Outside) -> Finding:
    output, asked = text_output(subject), prompt_of(subject)
    if isinstance(query := subject.vars.get("query"), str):
        asked = query
    prompt = outside.grader.render(own_prompt("answer_relevance"), names_of(answer=output))
    question = functools.partial(ask, outside, prompt, _read_question, wanted="one question")
    questions: list[Read[str]] = await outside.together([question] * _QUESTIONS)
    own, *guessed = await outside.together(
        [
            functools.partial(outside.grader.embed, text)
            for text in (asked, *(one.value for one in questions))
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
            **told(*questions),
            "generatedQuestions": [
                {"question": one.value, "similarity": similarity}
                for one, similarity in zip(questions, near, strict=True)
            ],
        },
    )


KINDS: Kinds = {
    "answer-relevance": text_kind(
        _judge, right=NOT_LOOKED_AT, accepts=is_anything, bare=True, embeds=True
    ),
}
"""By name."""

"""Questions as tests of a suite, and back."""

import hashlib

from trioeval.grading.questions import question_prompt
from trioeval.suite.models import Prompt, Test, TestOptions
from trioeval.suite.question_models import Question

_LABEL = "question"
_OPTIONS = TestOptions(disable_var_expansion=True)

QUESTION_PROMPT = Prompt(
    raw=question_prompt("{{question}}", ["{{answers}}"]),
    label=_LABEL,
    id=hashlib.sha256(_LABEL.encode()).hexdigest(),
)
"""The one prompt of a task of questions, to be shown and compared: what is sent is `question_prompt` of a
question, as questions are no templates."""


def as_test(question: Question) -> Test:
    """The test that stands for a question.

    Example:
        >>> sky = Question(question="Sky?", answers=("Red", "Blue"), correct_answers=("Blue",))
        >>> as_question(as_test(sky)) == sky
        True
    """
    variables = {
        "question": question.question,
        "answers": list(question.answers),
        "correctAnswers": list(question.correct_answers),
    }
    return Test(description=question.id, vars=variables, options=_OPTIONS)


def as_question(test: Test) -> Question:
    """The question that such a test stands for."""
    return Question(
        id=test.description,
        question=test.vars["question"],
        answers=tuple(test.vars["answers"]),
        correct_answers=tuple(test.vars["correctAnswers"]),
    )

"""The status of a task of questions, from the outcomes of its questions."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.question_eval.counts import (
    OUTCOMES,
    QuestionCounts,
    QuestionOutcome,
    TaskCounts,
    outcome_of,
)

some_outcomes = st.lists(st.sampled_from(get_args(QuestionOutcome)), max_size=8)


def expected(outcomes: list[QuestionOutcome]) -> tuple[str, str | None]:
    """Return the status and reason by the rules of the reference, in their order."""
    if not outcomes:
        return "error", "no_questions"
    if "runtime_error" in outcomes:
        return "error", "runtime_error"
    if "cancelled" in outcomes:
        return "error", "cancelled"
    if "budget_exceeded" in outcomes:
        return "fail", "budget_exceeded"
    if set(outcomes) == {"correct"}:
        return "pass", None
    return "fail", "incorrect_answers"


@given(some_outcomes)
def test_the_first_applicable_rule_decides(outcomes: list[QuestionOutcome]) -> None:
    """Neither the order of questions nor how counts are joined matters."""
    counts = QuestionCounts.of(outcomes)
    assert (counts.status, counts.reason) == expected(outcomes)
    half = len(outcomes) // 2
    joined = QuestionCounts.joined(map(QuestionCounts.of, (outcomes[half:], outcomes[:half])))
    assert (joined.status, joined.json()) == (counts.status, counts.json())


@given(some_outcomes)
def test_errors_never_reduce_the_denominator(outcomes: list[QuestionOutcome]) -> None:
    """Accuracy is a share of all questions that were run to their end, including errors."""
    counts = QuestionCounts()
    for outcome in outcomes:
        counts.add(outcome)
    values = counts.json()
    assert values["questionsTotal"] == len(outcomes)
    ended = len(outcomes) - outcomes.count("cancelled") - outcomes.count("skipped")
    assert values["questionsEnded"] == ended
    assert values["questionsCorrect"] + values["questionsIncorrect"] == ended
    assert values["accuracy"] * max(1, ended) == pytest.approx(outcomes.count("correct"))
    assert sum(values["questionsByOutcome"].values()) == len(outcomes)
    assert list(values["questionsByOutcome"]) == [name for name in OUTCOMES if name in outcomes]


@pytest.mark.slow
@given(st.lists(st.lists(st.tuples(st.sampled_from(OUTCOMES), st.integers(0, 9))), max_size=4))
def test_every_task_of_a_run_has_one_status(
    tasks: list[list[tuple[QuestionOutcome, int]]],
) -> None:
    """It is one of three; questions and tokens are totals."""
    each = []
    for questions in tasks:
        each.append(QuestionCounts())
        for outcome, tokens in questions:
            record = {
                "question": {"outcome": outcome, **({"tokensTotal": tokens} if tokens else {})}
            }
            each[-1].add_record(record)
            each[-1].add_record({})
    facts = TaskCounts(each).facts()
    statuses = [expected([outcome for outcome, _ in questions])[0] for questions in tasks]
    ended = [facts["tasks_passed"], facts["tasks_failed"], facts["tasks_errored"]]
    assert ended == [statuses.count(status) for status in ("pass", "fail", "error")]
    assert sum(ended) == facts["tasks_total"] == len(tasks)
    assert facts["pass_rate"] * max(1, len(tasks)) == pytest.approx(statuses.count("pass"))
    whole = [one for questions in tasks for one in questions]
    assert facts["tokens_total"] == sum(tokens for _, tokens in whole)
    assert facts["questions_total"] == len(whole)
    ended_ones = [outcome for outcome, _ in whole if outcome not in {"cancelled", "skipped"}]
    assert facts["questions_correct"] + facts["questions_incorrect"] == len(ended_ones)
    correct = ended_ones.count("correct")
    assert facts["question_accuracy"] * max(1, len(ended_ones)) == pytest.approx(correct)


def test_rows_without_a_question_have_no_outcome() -> None:
    """Their records contain no question."""
    assert outcome_of({}) is None
    assert outcome_of({"question": {"outcome": "skipped"}}) == "skipped"

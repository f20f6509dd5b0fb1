"""Rows that the run's own budget refuses are left for later, and keep their paid replies."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from journalled import Model, Notes, Ran, execute, without_times

from trioeval import Status
from trioeval.errors import BudgetError, GradingError
from trioeval.evaluation.outcomes import refusal_in, with_refusals
from trioeval.grading import Verdict
from trioeval.kernel import Done, Failed, Interrupted, NotRun, Outcome, StopReason
from trioeval.testing.journals import MemoryJournal

GOOD = '{"pass": true, "score": 1, "reason": "r"}'
RUBRIC: Mapping[str, Any] = {"type": "llm-rubric", "value": "is it good?", "provider": "judge"}
OTHER = {**RUBRIC, "value": "is it short?"}
THRICE = {**RUBRIC, "config": {"repeat": 3}}
BEST = {"type": "select-best", "value": "the best", "provider": "chooser"}
NO_REPLY = "not run: the budget of the run is used up: budget exhausted: 2 of 2 requests spent"
NO_JUDGE = "interrupted: the budget of the run is used up"


def suite(
    *assertions: Mapping[str, Any], words: str = "abc", requests: int | None = None, width: int = 1
) -> dict[str, Any]:
    budget = {} if requests is None else {"budget": {"requests": requests}}
    return {
        "providers": [{"id": "model", "lane": {"retries": 1}}],
        "prompts": ["{{word}}"],
        "tests": [{"vars": {"word": word}, "assert": list(assertions)} for word in words],
        "evaluateOptions": {"maxConcurrency": width, **budget},
    }


def run(document: Mapping[str, Any], journal: Any = None, **models: Any) -> tuple[Ran, int]:
    """Return the rows, and the number of requests."""
    judge, chooser = Model(says=lambda _: GOOD), Model(says=lambda _: "1")
    every = {"model": Model(), "judge": judge, "chooser": chooser, **models}
    ran = execute(document, every, journal)
    return ran, sum(model.requests for model in every.values())


def test_a_row_whose_first_call_is_refused_was_not_run() -> None:
    """It is reported like the later rows, although its call was the one that was refused."""
    ran, requests = run(suite(words="abcd", requests=2))
    assert [row.outcome for row in ran.rows] == ["done", "done", "not_run", "not_run"]
    assert {row.cut for row in ran.rows[2:]} == {StopReason.BUDGET}
    assert {row.error for row in ran.rows[2:]} == {NO_REPLY}
    assert (ran.rows[2].calls, requests) == (0, 2)


@pytest.mark.parametrize(
    ("assertions", "requests", "width"),
    [
        ([RUBRIC], 1, 1),
        ([THRICE], 3, 1),  # two of its judges have replied
        ([RUBRIC, OTHER], 2, 3),
        ([{**RUBRIC, "weight": 0}], 1, 1),  # its verdict does not count, but is reported
        ([{"type": "equals", "value": "no"}, RUBRIC], 1, 1),
    ],
)
def test_a_row_whose_judge_is_refused_keeps_its_reply_and_is_interrupted(
    assertions: Sequence[Mapping[str, Any]], requests: int, width: int
) -> None:
    """No result is lost: a resume makes only the missing calls."""
    whole, in_all = run(suite(*assertions, words="a", width=width))
    journal = MemoryJournal()
    ran, first = run(suite(*assertions, words="a", requests=requests, width=width), journal)
    row = ran.rows[0]
    assert (row.outcome, row.cut, row.error) == ("interrupted", StopReason.BUDGET, NO_JUDGE)
    assert (row.status, row.output, row.calls) == (Status.NOT_RUN, "a", requests)
    assert first == requests
    again = journal.cut(10**9)
    ran, second = run(suite(*assertions, words="a", width=width), again)
    assert first + second == in_all
    assert [without_times(row) for row in ran.rows] == [without_times(row) for row in whole.rows]


def test_rows_whose_comparison_is_refused_keep_their_replies() -> None:
    """They are compared in the resumed run."""
    document = {**suite(BEST, words="a", requests=2), "prompts": ["{{word}}", "{{word}}!"]}
    journal = MemoryJournal()
    ran, requests = run(document, journal)
    assert [(row.outcome, row.cut, row.output) for row in ran.rows] == [
        ("interrupted", StopReason.BUDGET, "a"),
        ("interrupted", StopReason.BUDGET, "a!"),
    ]
    assert requests == 2
    ran, requests = run(document, journal.cut(10**9))
    assert [row.status for row in ran.rows] == [Status.FAIL, Status.PASS]
    assert requests == 1


@pytest.mark.parametrize("assertions", [[], [RUBRIC], [THRICE, OTHER]])
@pytest.mark.parametrize("requests", [1, 3])
def test_a_run_that_budgets_cut_repeatedly_is_one_run(
    assertions: Sequence[Mapping[str, Any]], requests: int
) -> None:
    """RESUME: however small the budget of each execution, no row is an error and no call is repeated."""
    whole, in_all = run(suite(*assertions, words="abc"))
    journal, made = MemoryJournal(), 0
    for _ in range(in_all + 1):
        _, more = run(suite(*assertions, words="abc", requests=requests, width=2), journal)
        made += more
        journal = journal.cut(10**9)
        if not more:
            break
    assert made == in_all
    records = journal.records()
    assert [records[row.index]["response"] for row in whole.rows] == [
        without_times(row)["response"] for row in whole.rows
    ]
    assert all(record["success"] for record in records.values())
    assert len(journal.reused_rows(None)) == len(whole.rows)


def test_a_call_that_exceeds_every_such_budget_is_a_failure() -> None:
    """A resume would not help."""
    ran, _ = run(suite(words="ab", requests=0), Notes())
    assert [row.outcome for row in ran.rows] == ["failed", "failed"]
    assert refusal_in(BudgetError("tokens", limit=10, used=0, wanted=11)) is None


def error_of(*, used: int = 5, within: int = 0) -> Exception:
    """A refusal, wrapped in several other exceptions."""
    error: Exception = BudgetError("requests", limit=5, used=used, wanted=1)
    for _ in range(within):
        outer = GradingError("no judge")
        outer.__cause__ = ExceptionGroup("several", [ValueError("other"), error])
        error = outer
    return error


@pytest.mark.parametrize("within", [0, 1, 3])
def test_a_refusal_is_recognized_in_any_wrapping(within: int) -> None:
    """It may be in groups, or the cause of others; a loop of causes ends."""
    assert isinstance(refusal_in(error_of(within=within)), BudgetError)
    loop = ValueError("itself")
    loop.__cause__ = loop
    assert refusal_in(loop) is None


@pytest.mark.parametrize(
    ("calls", "begun", "expected"),
    [
        (0, False, NotRun(3, StopReason.BUDGET, str(error_of()))),
        (0, True, Interrupted(3, 1.0, 2.0, 0.5, 0, StopReason.BUDGET)),
        (1, False, Interrupted(3, 1.0, 2.0, 0.5, 1, StopReason.BUDGET)),
    ],
)
def test_a_row_with_a_paid_call_is_interrupted(
    *, calls: int, begun: bool, expected: Outcome[Verdict]
) -> None:
    """A first call that failed and may not be made again also counts."""
    failed = Failed(3, 1.0, 2.0, 0.5, calls, error_of())
    assert with_refusals(failed, has_started=begun) == expected
    other = Failed(3, 1.0, 2.0, 0.5, calls, ValueError("other"))
    assert with_refusals(other, has_started=begun) is other
    done: Outcome[None] = Done(3, 1.0, 2.0, 0.5, calls, None)
    assert with_refusals(done, has_started=begun) is done

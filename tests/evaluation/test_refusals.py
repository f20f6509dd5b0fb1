"""The jobs that leave their rows for later, and the reasons."""

import pytest

from trioeval.errors import BudgetError
from trioeval.evaluation.outcomes import StoppedError, cut_by, with_refusals
from trioeval.kernel import Failed, Interrupted, NotRun, StopReason

USED_UP = BudgetError("requests", limit=3, used=3, wanted=1)


@pytest.mark.parametrize("cut", [StopReason.STOP, StopReason.BUDGET])
def test_a_job_that_made_no_call_was_not_run(cut: StopReason) -> None:
    """This includes a job with a slot that was stopped before its first attempt started."""
    ended = Failed(7, 0.0, 1.0, 0.5, 1, StoppedError(cut))
    assert with_refusals(ended, has_started=False) == NotRun(7, cut)
    assert with_refusals(ended, has_started=True) == Interrupted(7, 0.0, 1.0, 0.5, 1, cut)


def test_forbidden_calls_are_left_and_impossible_calls_fail() -> None:
    """A call that is larger than the whole budget would fail again."""
    too_large = BudgetError("tokens", limit=3, used=0, wanted=4)
    assert cut_by(ExceptionGroup("nursery", [ValueError("beside"), USED_UP])) is StopReason.BUDGET
    assert cut_by(too_large) is cut_by(ValueError("no")) is None

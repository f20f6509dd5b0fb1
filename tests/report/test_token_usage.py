"""Tokens of replies and of judges, as files tell them."""

from trioeval.grading import Spent
from trioeval.grading.model import NOTHING_SPENT
from trioeval.providers import Usage
from trioeval.report.usage import UsageSum, spent_json, usage_json


def test_nothing_spent_is_told_like_any_other_sum() -> None:
    """The short way gives what the long way gives, and nobody shares it."""
    assert spent_json(NOTHING_SPENT) == UsageSum().own_json() == UsageSum().json()["assertions"]
    spent_json(NOTHING_SPENT)["prompt"] = 5
    usage_json()["assertions"]["completionDetails"]["reasoning"] = 5
    assert spent_json(NOTHING_SPENT) == UsageSum().own_json()
    assert usage_json()["assertions"] == UsageSum().own_json()


def test_sums_do_not_share_their_counts() -> None:
    """Each begins at nothing."""
    used = UsageSum()
    used.add(Usage(total=3))
    used.add_judges(Spent(usage=Usage(prompt=2), calls=1))
    assert used.json()["total"] == 3
    assert used.json()["assertions"]["prompt"] == 2
    assert UsageSum().json()["total"] == 0

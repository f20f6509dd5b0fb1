"""Tokens of replies and of judges in result files."""

from trioeval.grading import JudgeUsage
from trioeval.grading.model import NOTHING_SPENT
from trioeval.providers import Usage
from trioeval.report.usage import UsageSum, spent_json, usage_json


def test_zero_usage_is_written_like_any_other_sum() -> None:
    """The fast path returns the same as the slow one, and does not change the other counts."""
    used = UsageSum()
    used.add(usage_json(Usage(total=3, reasoning=2)))
    usage_json(Usage(cached=7, total=7), cached=True)["total"] = 5
    nothing = UsageSum().json()["assertions"]
    assert spent_json(NOTHING_SPENT) == usage_json()["assertions"] == nothing
    assert spent_json(JudgeUsage()) == nothing


def test_sums_do_not_share_their_counts() -> None:
    """Each starts at zero."""
    used = UsageSum()
    data = usage_json(Usage(total=3), judges=JudgeUsage(usage=Usage(prompt=2), calls=1))
    used.add(data)
    used.add_judges(data)
    assert used.json()["total"] == 3
    assert used.json()["assertions"]["prompt"] == 2
    assert UsageSum().json()["total"] == 0


def test_a_reply_from_the_cache_made_no_request() -> None:
    """The tokens that it saved are reported, and separate from those of the provider's own cache."""
    found = usage_json(Usage(cached=7, total=7), cached=True)
    assert (found["cached"], found["total"], found["numRequests"]) == (7, 7, 0)
    assert found["completionDetails"]["cacheReadInputTokens"] == 0


def test_cached_replies_of_judges_are_counted() -> None:
    """The judges were not called now."""
    used = UsageSum()
    used.add_judges(usage_json(judges=JudgeUsage(usage=Usage(cached=7, total=7), cost=0.0)))
    assert used.judges is not None
    assert (used.judges["total"], used.judges.requests) == (7, 0)

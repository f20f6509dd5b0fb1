"""Types that examine what is known about a reply: time, price, probability, ending, filters."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.errors import GradingError
from trioeval.grading import Assertion, Subject, grade
from trioeval.grading.grade import check_assertion
from trioeval.grading.kinds.measures import perplexity_of

PROBABLE = (-0.1, -0.2, -0.7)
CASES: list[tuple[dict[str, Any], dict[str, Any], bool, float, str]] = [
    ({"latency_ms": 5.0}, {"type": "latency", "threshold": 5}, True, 1,
     "the latency 5 ms is within the threshold 5 ms"),
    ({"latency_ms": 5.5}, {"type": "latency", "threshold": 5}, False, 0,
     "the latency 5.5 ms is above the threshold 5 ms"),
    ({"latency_ms": 5.5}, {"type": "not-latency", "threshold": 5}, True, 1,
     "the latency 5.5 ms is above the threshold 5 ms"),
    ({"cost": 0.25}, {"type": "cost", "threshold": 0.2}, False, 0,
     "the cost in dollars 0.25 is above the threshold 0.2"),
    ({"cost": 0.0}, {"type": "cost", "threshold": 0}, True, 1,
     "the cost in dollars 0 is within the threshold 0"),
    ({"log_probs": (-math.log(2),)}, {"type": "perplexity", "threshold": 2}, True, 1,
     "the perplexity 2 is within the threshold 2"),
    ({"log_probs": (-900.0,)}, {"type": "perplexity", "threshold": 2}, False, 0,
     "the perplexity Infinity is above the threshold 2"),
    ({"log_probs": (0.0,)}, {"type": "perplexity"}, True, 1,
     "the perplexity is 1, and no threshold is set"),
    ({"log_probs": (0.0,)}, {"type": "not-perplexity"}, True, 1,
     "the perplexity is 1, and no threshold is set"),
    ({"log_probs": (0.0, 0.0)}, {"type": "perplexity-score", "threshold": 0.5}, True, 0.5,
     "the perplexity score 0.5 reaches the threshold 0.5"),
    ({"log_probs": (-math.inf,)}, {"type": "perplexity-score", "threshold": 0.1}, False, 0,
     "the perplexity score 0 is below the threshold 0.1"),
    ({"log_probs": (-900.0,)}, {"type": "not-perplexity-score"}, True, 1,
     "the perplexity score is 0, and no threshold is set"),
    ({"finish_reason": "stop"}, {"type": "finish-reason", "value": "STOP"}, True, 1,
     'the finish reason is "stop"'),
    ({"finish_reason": "length"}, {"type": "not-finish-reason", "value": "stop"}, True, 1,
     'the finish reason is "length"'),
    ({}, {"type": "finish-reason", "value": "stop"}, False, 0,
     "the provider reported no finish reason"),
    ({}, {"type": "not-finish-reason", "value": "stop"}, True, 1,
     "the provider reported no finish reason"),
    ({}, {"type": "guardrails"}, True, 1, "the provider's filters did not flag the prompt or the reply"),
    ({"flagged": False}, {"type": "not-guardrails"}, False, 0,
     "the provider's filters did not flag the prompt or the reply"),
    ({"flagged": True}, {"type": "guardrails"}, False, 0,
     "the provider's filters flagged the prompt or the reply"),
    ({"flagged": True}, {"type": "not-guardrails"}, True, 1,
     "the provider's filters flagged the prompt or the reply"),
]  # fmt: skip


@pytest.mark.parametrize(("known", "assertion", "passed", "score", "says"), CASES)
def test_a_measure_states_its_finding(
    known: dict[str, Any],
    assertion: dict[str, Any],
    passed: bool,  # noqa: FBT001
    score: float,
    says: str,
) -> None:
    """The sentence is the same with and without `not-`."""
    (part,) = grade(Subject.of("x", **known), [Assertion(**assertion)]).parts
    assert (part.passed, part.score, part.reason) == (passed, score, says)


@pytest.mark.parametrize(
    ("type_", "known", "says"),
    [
        ("latency", {}, "the latency was not measured"),
        ("cost", {}, "the cost is unknown: neither the provider nor a price list has it"),
        ("perplexity", {}, "the provider returned no log probabilities"),
        ("perplexity", {"log_probs": ()}, "the provider returned no log probabilities"),
        ("perplexity-score", {"log_probs": (math.nan,)}, "a log probability is not a number"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "not-"])
def test_an_unknown_measure_is_an_error(
    type_: str, known: dict[str, Any], says: str, prefix: str
) -> None:
    """It is not a failure, so `not-` does not invert it."""
    with pytest.raises(GradingError, match=says):
        grade(Subject.of("x", **known), [Assertion(type=prefix + type_, threshold=1)])


@pytest.mark.parametrize(
    ("assertion", "says"),
    [
        ({"type": "latency"}, '"threshold" is missing\n  it must be the most milliseconds allowed'),
        ({"type": "not-cost"}, '"threshold" is missing\n  it must be the most dollars allowed'),
        ({"type": "latency", "threshold": -1}, ".threshold: must be 0 or more, got -1"),
        ({"type": "cost", "threshold": math.nan}, ".threshold: must be a finite number, got NaN"),
        ({"type": "perplexity", "threshold": -2}, ".threshold: must be 0 or more, got -2"),
        ({"type": "perplexity-score", "threshold": -2}, ".threshold: must be 0 or more, got -2"),
        (
            {"type": "finish-reason", "value": 5},
            '.value: must be text such as "stop" or "length", got 5',
        ),
    ],
)
def test_invalid_values_are_reported_at_load(assertion: dict[str, Any], says: str) -> None:
    """They are reported before the run starts."""
    (problem,) = check_assertion(Assertion(**assertion), value_given="value" in assertion)
    assert str(problem).removeprefix(": ") == says


def test_a_threshold_that_is_missing_is_found_in_a_library_too() -> None:
    """No earlier check is needed."""
    with pytest.raises(GradingError, match='"threshold" is missing'):
        grade(Subject.of("x", latency_ms=1.0), [Assertion(type="latency")])


@settings(max_examples=100)
@given(st.lists(st.floats(-50, 0), min_size=1, max_size=20))
def test_perplexity_laws(log_probs: list[float]) -> None:
    """It is at least 1, the same for a repeated text, and that of one token if all are equal."""
    found = perplexity_of(log_probs)
    assert found >= 1
    assert perplexity_of(log_probs * 2) == pytest.approx(found)
    assert perplexity_of(log_probs[:1] * 7) == pytest.approx(math.exp(-log_probs[0]))

"""Types that look not at the text of a reply but at what is known of it: time, price, probability, ending."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from trioeval.errors import GradingError, Problem
from trioeval.grading.kind import Finding, Kind, Kinds
from trioeval.grading.model import Assertion
from trioeval.grading.subject import Subject
from trioeval.grading.text import number_text, quote, score_text


def _latency(subject: Subject, _value: Any, assertion: Assertion) -> Finding:
    if subject.latency_ms is None:
        msg = "nobody measured how long the provider took"
        raise GradingError(msg)
    return _at_most("latency", subject.latency_ms, _threshold(assertion), unit=" ms")


def _cost(subject: Subject, _value: Any, assertion: Assertion) -> Finding:
    if subject.cost is None:
        msg = "no cost is known: neither the provider nor a price list tells it"
        raise GradingError(msg)
    return _at_most("cost in dollars", subject.cost, _threshold(assertion))


def _perplexity(subject: Subject, _value: Any, assertion: Assertion) -> Finding:
    perplexity = perplexity_of(_log_probs(subject))
    if assertion.threshold is None:
        return _without_threshold("perplexity", perplexity, assertion)
    return _at_most("perplexity", perplexity, assertion.threshold)


def _perplexity_score(subject: Subject, _value: Any, assertion: Assertion) -> Finding:
    score = 1 / (1 + perplexity_of(_log_probs(subject)))
    if assertion.threshold is None:
        return _without_threshold("perplexity score", score, assertion, score=score)
    holds = score >= assertion.threshold
    verb = "reaches" if holds else "is below"
    shown, threshold = score_text(score, assertion.threshold), number_text(assertion.threshold)
    reason = f"the perplexity score {shown} {verb} the threshold {threshold}"
    return Finding(holds, reason, score=score)


def perplexity_of(log_probs: Iterable[float]) -> float:
    """How surprised a model is by its own text, at least 1: as by a choice between so many tokens.

        exp( -mean of the logarithms of the tokens' probabilities )

    Args:
        log_probs: Natural logarithms, one a token, at least one.

    Example:
        >>> round(perplexity_of([-1.0986122886681098] * 4), 6)
        3.0
    """
    found = tuple(log_probs)
    # One after the other, not `fsum`: a score on a threshold is on the side that promptfoo puts it.
    total = 0.0
    for log_prob in found:
        total += log_prob
    try:
        return math.exp(-total / len(found))
    except OverflowError:
        return math.inf


def _finish_reason(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    if not subject.finish_reason:
        return Finding(holds=False, reason="the provider does not say why the reply ended")
    holds = subject.finish_reason.lower() == value.lower()
    relation = "is" if holds else "is not"
    reason = f"the finish reason {quote(subject.finish_reason)} {relation} {quote(value)}"
    return Finding(holds, reason)


def _guardrails(subject: Subject, _value: Any, _assertion: Assertion) -> Finding:
    verb = "flagged" if subject.flagged else "did not flag"
    return Finding(not subject.flagged, f"the provider's filters {verb} the prompt or the reply")


def _at_most(what: str, value: float, threshold: float, unit: str = "") -> Finding:
    holds = value <= threshold
    verb = "is within" if holds else "is above"
    shown = score_text(value, threshold)
    reason = f"the {what} {shown}{unit} {verb} the threshold {number_text(threshold)}{unit}"
    return Finding(holds, reason)


def _without_threshold(
    what: str, value: float, assertion: Assertion, score: float | None = None
) -> Finding:
    # It passes, and `not-` turns what it finds round.
    inverted = assertion.type.startswith("not-")
    reason = f"the {what} is {score_text(value)}, and no threshold is set"
    return Finding(not inverted, reason, score=score)


def _threshold(assertion: Assertion) -> float:
    if assertion.threshold is None:
        msg = '"threshold" is missing'
        raise GradingError(msg)
    return assertion.threshold


def _log_probs(subject: Subject) -> tuple[float, ...]:
    if not subject.log_probs:
        msg = "the provider gives no log probabilities"
        raise GradingError(msg)
    if any(map(math.isnan, subject.log_probs)):
        msg = "a log probability is not a number"
        raise GradingError(msg)
    return subject.log_probs


def _check(unit: str, *, required: bool = False) -> Callable[[Assertion], Iterator[Problem]]:
    def check(assertion: Assertion) -> Iterator[Problem]:
        if assertion.threshold is None:
            if required:
                yield Problem("", '"threshold" is missing', f"it must be the most {unit}")
        elif assertion.threshold < 0:
            yield Problem(".threshold", f"must be 0 or more, got {quote(assertion.threshold)}")

    return check


def _anything(_value: Any) -> bool:
    return True


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_UNUSED = "left out"

KINDS: Kinds = {
    "cost": Kind(
        _UNUSED, _anything, _cost, bare=True, check=_check("dollars allowed", required=True)
    ),
    "finish-reason": Kind('text such as "stop" or "length"', _is_text, _finish_reason),
    "guardrails": Kind(_UNUSED, _anything, _guardrails, bare=True),
    "latency": Kind(
        _UNUSED, _anything, _latency, bare=True, check=_check("milliseconds allowed", required=True)
    ),
    "perplexity": Kind(_UNUSED, _anything, _perplexity, bare=True, check=_check("perplexity")),
    "perplexity-score": Kind(
        _UNUSED, _anything, _perplexity_score, bare=True, check=_check("score")
    ),
}

"""Types that check the metadata of a reply: time, price, probability, finish reason."""

import difflib
import functools
import math
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import attrs

from trioeval.errors import GradingError, Problem
from trioeval.grading.kind import (
    Finding,
    Kind,
    Kinds,
    OutsideJudge,
    expectation,
    is_any_text,
    is_anything,
)
from trioeval.grading.model import Assertion, Verdict
from trioeval.grading.services import ExternalServices, Flag, Grader, JudgeReply
from trioeval.grading.strict_reading import or_failure
from trioeval.grading.subject import Subject
from trioeval.text import number_text, quote, score_text

# The reliability of a judge: it is asked several times, and its judgements are combined.
#
#     majority   holds as most of the judgements do; the score is their median
#     mean       the score is the mean; holds if it reaches the threshold
#
# A majority needs an odd number, so a tie is impossible; and if each judgement holds because its score
# reaches a threshold, the median reaches it exactly if the majority does. Both depend on the judgements, not
# on their order. Agreement is the share of the judgements on the majority's side. If one of the questions
# fails, the result is an error: a smaller panel would be another measurement.


Combine = Literal["majority", "mean"]

_MOST = 99
_PANEL = frozenset({"repeat", "combine", "swap"})
_HALF = 0.5


@attrs.frozen
class Panel:
    """The number of judgements, and how they are combined."""

    repeat: int = 1
    combine: Combine = "majority"
    swap: bool = False
    """True if comparisons are repeated with the outputs in reverse order."""

    @classmethod
    def of(cls, assertion: Assertion, *, compares: bool = False) -> "Panel":
        """Read the config of an assertion.

        Raises:
            GradingError: It is invalid.
        """
        for problem in panel_problems(assertion, compares=compares):
            msg = f"config{problem.path.removeprefix('.config')}: {problem.message}"
            raise GradingError(msg)
        config: Mapping[str, Any] = assertion.config or {}
        return cls(
            config.get("repeat", 1), config.get("combine", "majority"), config.get("swap", False)
        )


def panel_problems(assertion: Assertion, *, compares: bool = False) -> Iterator[Problem]:
    """Yield the problems of the settings for several judgements."""
    config: Mapping[str, Any] = assertion.config or {}
    repeat, combine = config.get("repeat", 1), config.get("combine", "majority")
    if combine not in get_args(Combine):
        yield Problem(".config.combine", f"must be majority or mean, got {quote(combine)}")
    elif combine == "mean" and compares:
        hint = "outputs are chosen by the majority"
        yield Problem(".config.combine", "choices have no mean", hint)
    if isinstance(repeat, bool) or not isinstance(repeat, int) or not 1 <= repeat <= _MOST:
        message = f"must be a whole number from 1 to {_MOST}, got {quote(repeat)}"
        yield Problem(".config.repeat", message)
    elif repeat % 2 == 0 and combine == "majority" and not compares:
        hint = f"write {repeat + 1}, or combine by the mean"
        yield Problem(".config.repeat", f"{repeat} judgements may end in a tie", hint)
    if (swap := config.get("swap", False)) is not False and not compares:
        hint = "only a comparison has positions to swap"
        yield Problem(".config.swap", f"{assertion.type} is not a comparison", hint)
    elif not isinstance(swap, bool):
        yield Problem(".config.swap", f"must be true or false, got {quote(swap)}")


def config_check(*more: str, compares: bool = False) -> Callable[[Assertion], Iterator[Problem]]:
    """Return a check for the config of a type whose judge may be asked several times.

    Args:
        more: Further keys; their values are not checked.
        compares: True if the type compares outputs.
    """
    known = (*(_PANEL if compares else _PANEL - {"swap"}), *more)

    def check(assertion: Assertion) -> Iterator[Problem]:
        yield from panel_problems(assertion, compares=compares)
        yield from _unknown_keys(assertion, known)

    return check


def no_panel(assertion: Assertion) -> Iterator[Problem]:
    """Yield the problems of the config of a measurement, which has no settings."""
    for key in sorted(_PANEL & (assertion.config or {}).keys()):
        hint = "only judges that are text models are asked several times"
        yield Problem(f".config.{key}", f"it has no effect on {assertion.type}", hint)
    yield from _unknown_keys(assertion, ())


def _unknown_keys(assertion: Assertion, known: Collection[str]) -> Iterator[Problem]:
    """Yield problems of unknown keys of a config; the settings of a panel are checked elsewhere."""
    for key in assertion.config or {}:
        if key in known or key in _PANEL:
            continue
        hint = f"known keys are {', '.join(sorted(known))}" if known else "leave it out"
        if close := difflib.get_close_matches(key, known, n=1):
            hint = f'did you mean "{close[0]}"?'
        yield Problem(f".config.{key}", f"{quote(key)} is not a key of {assertion.type}", hint)


def reliable(judge: OutsideJudge, *, threshold: float = _HALF) -> OutsideJudge:
    """Wrap a judge so that it is asked as often as the assertion's config says, concurrently.

    Args:
        judge: The judge.
        threshold: The default threshold of a mean.
    """
    one = or_failure(judge)

    async def several(
        subject: Subject, value: Any, assertion: Assertion, outside: ExternalServices
    ) -> Finding:
        panel = Panel.of(assertion)
        if panel.repeat == 1:
            return await one(subject, value, assertion, outside)
        # A recorded reply would only repeat the same judgement.
        afresh = attrs.evolve(outside, grader=_UncachedGrader(outside.grader))
        calls = [
            functools.partial(one, subject, value, assertion, afresh if place else outside)
            for place in range(panel.repeat)
        ]
        least = threshold if assertion.threshold is None else assertion.threshold
        return combined(await outside.together(calls), panel.combine, least)

    return several


def combined(findings: Sequence[Finding], combine: Combine, threshold: float) -> Finding:
    """Combine several judgements of the same output.

    Args:
        findings: At least one.
        combine: The method.
        threshold: The threshold of a mean.

    Example:
        >>> three = [
        ...     Finding(True, "good", 0.9),
        ...     Finding(False, "bad", 0.2),
        ...     Finding(True, "fine", 0.7),
        ... ]
        >>> found = combined(three, "majority", 0.5)
        >>> found.holds, found.score, found.metadata["agreement"]
        (True, 0.7, 0.6666666666666666)
    """
    scores = [_score(one) for one in findings]
    holding = sum(one.holds for one in findings)
    if combine == "majority":
        score = statistics.median_low(scores)
        holds = 2 * holding > len(findings)
    else:
        # Rounding may leave the range of the scores by the last bit.
        score = min(max(math.fsum(scores) / len(scores), min(scores)), max(scores))
        holds = score >= threshold
    agreement = max(holding, len(findings) - holding) / len(findings)
    # The representative judgement does not depend on the order.
    nearest = min(
        findings, key=lambda one: (one.holds is not holds, abs(_score(one) - score), one.reason)
    )
    return Finding(
        holds=holds,
        reason=f"{holding} of {len(findings)} judgements hold: {nearest.reason}",
        score=score,
        negated=min(1.0, max(0.0, 1 - score)),
        invertible=all(one.invertible for one in findings),
        parts=tuple(_part(one) for one in findings),
        metadata={
            **{name: entry for name, entry in nearest.metadata.items() if name != "graderReplies"},
            "graderReplies": [
                reply for one in findings for reply in one.metadata.get("graderReplies", ())
            ],
            "agreement": agreement,
        },
    )


def _score(finding: Finding) -> float:
    return float(finding.holds) if finding.score is None else finding.score


def _part(finding: Finding) -> Verdict:
    """Return one judgement as a verdict, not inverted by `not-`."""
    return Verdict(
        passed=finding.holds,
        score=_score(finding),
        reason=finding.reason,
        metadata=finding.metadata,
    )


@attrs.frozen
class _UncachedGrader:
    """A grader that uses no recorded replies."""

    grader: Grader

    def render(self, own: str, names: Mapping[str, Any], *, part: int | str | None = None) -> str:
        return self.grader.render(own, names, part=part)

    async def ask(
        self, prompt: str, *, schema: Mapping[str, Any] | None = None, again: bool = False
    ) -> JudgeReply:
        del again
        return await self.grader.ask(prompt, schema=schema, again=True)

    async def embed(self, text: str) -> Sequence[float]:
        return await self.grader.embed(text)

    async def classify(self, text: str) -> Mapping[str, float]:
        return await self.grader.classify(text)

    async def moderate(self, prompt: str, text: str) -> Sequence[Flag]:
        return await self.grader.moderate(prompt, text)


def _latency(subject: Subject, _value: Any, assertion: Assertion) -> Finding:
    if subject.latency_ms is None:
        msg = "the latency was not measured"
        raise GradingError(msg)
    return _at_most("latency", subject.latency_ms, _threshold(assertion), unit=" ms")


def _cost(subject: Subject, _value: Any, assertion: Assertion) -> Finding:
    if subject.cost is None:
        msg = "the cost is unknown: neither the provider nor a price list has it"
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
    """Return the perplexity of log probabilities, at least 1: the number of equally likely tokens.

        exp( -mean of the logarithms of the tokens' probabilities )

    Args:
        log_probs: Natural logarithms, one per token, at least one.

    Example:
        >>> round(perplexity_of([-1.0986122886681098] * 4), 6)
        3.0
    """
    found = tuple(log_probs)
    # A plain sum, not `fsum`: a score on a threshold is on the same side as in promptfoo.
    total = 0.0
    for log_prob in found:
        total += log_prob
    try:
        return math.exp(-total / len(found))
    except OverflowError:
        return math.inf


def _finish_reason(subject: Subject, value: Any, assertion: Assertion) -> Finding:
    if not subject.finish_reason:
        return Finding(holds=False, reason="the provider reported no finish reason")
    holds = subject.finish_reason.lower() == value.lower()
    reason = f"the finish reason is {quote(subject.finish_reason)}"
    if holds is assertion.type.startswith("not-"):
        reason = f"{reason}, {expectation(assertion, quote(value))}"
    return Finding(holds, reason)


def _guardrails(subject: Subject, _value: Any, _assertion: Assertion) -> Finding:
    verb = "flagged" if subject.flagged else "did not flag"
    return Finding(not subject.flagged, f"the provider's filters {verb} the prompt or the reply")


def _at_most(measure: str, value: float, threshold: float, unit: str = "") -> Finding:
    holds = value <= threshold
    verb = "is within" if holds else "is above"
    shown = score_text(value, threshold)
    reason = f"the {measure} {shown}{unit} {verb} the threshold {number_text(threshold)}{unit}"
    return Finding(holds, reason)


def _without_threshold(
    measure: str, value: float, assertion: Assertion, score: float | None = None
) -> Finding:
    # It passes, so the finding is inverted in advance for `not-`.
    inverted = assertion.type.startswith("not-")
    reason = f"the {measure} is {score_text(value)}, and no threshold is set"
    return Finding(not inverted, reason, score=score)


def _threshold(assertion: Assertion) -> float:
    if assertion.threshold is None:
        msg = '"threshold" is missing'
        raise GradingError(msg)
    return assertion.threshold


def _log_probs(subject: Subject) -> tuple[float, ...]:
    if not subject.log_probs:
        msg = "the provider returned no log probabilities"
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


_UNUSED = "left out"

KINDS: Kinds = {
    "cost": Kind(
        _UNUSED, is_anything, _cost, bare=True, check=_check("dollars allowed", required=True)
    ),
    "finish-reason": Kind('text such as "stop" or "length"', is_any_text, _finish_reason),
    "guardrails": Kind(_UNUSED, is_anything, _guardrails, bare=True),
    "latency": Kind(
        _UNUSED,
        is_anything,
        _latency,
        bare=True,
        check=_check("milliseconds allowed", required=True),
    ),
    "perplexity": Kind(_UNUSED, is_anything, _perplexity, bare=True, check=_check("perplexity")),
    "perplexity-score": Kind(
        _UNUSED, is_anything, _perplexity_score, bare=True, check=_check("score")
    ),
}

import math

import attrs
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from trioeval.grading import Assertion, Finding, Kind, Verdict
from trioeval.grading.algebra import aggregate
from trioeval.grading.grade import ReadyAssertion, verdict_of

WEIGHTS = st.sampled_from([0.0, 0.1, 0.2, 0.3, 1.0, 3.0]) | st.floats(0, 1e9)
METRICS = st.none() | st.sampled_from(["m", "n"])


@st.composite
def parts(draw: st.DrawFn) -> Verdict:
    """Return the parts of one assertion each, with any weight."""
    passed = draw(st.booleans())
    return Verdict(
        passed=passed,
        score=draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]) | st.floats(0, 1)),
        reason=draw(st.sampled_from(["one", "two", "three"])),
        assertion=Assertion(type="contains", value="x", weight=draw(WEIGHTS), metric=draw(METRICS)),
    )


def part(score: float, weight: float = 1, metric: str | None = None, reason: str = "") -> Verdict:
    assertion = Assertion(type="contains", value="x", weight=weight, metric=metric)
    return Verdict(passed=score == 1, score=score, reason=reason, assertion=assertion)


def weight_of(verdict: Verdict) -> float:
    assert verdict.assertion is not None
    return verdict.assertion.weight


def test_no_assertions_pass() -> None:
    """The score is 1, and no threshold applies."""
    assert aggregate([]) == Verdict(passed=True, score=1.0, reason="no assertions")
    assert aggregate([], threshold=2).passed


def test_the_score_is_the_weighted_mean() -> None:
    """3 of 4 shares pass."""
    verdict = aggregate([part(1, 3), part(0, reason="no")])
    assert (verdict.passed, verdict.score, verdict.reason) == (False, 0.75, "no")


def test_a_weight_below_0_lowers_the_score() -> None:
    """The score may leave the range of its parts, or be 0 without a sum; the part still has to pass."""
    assert aggregate([part(1, -1), part(1, 3, "m")]).score == 1
    assert aggregate([part(0, -1), part(1, 3)]).score == 1.5
    assert aggregate([part(1, -1), part(0, 3)]).score == -0.5
    assert aggregate([part(1, -1), part(1)]).score == 0
    assert aggregate([part(1, -1)]).score == 0
    assert not aggregate([part(0, -1, reason="no"), part(1, 3)]).passed
    assert aggregate([part(1, -1, "m"), part(1, 3, "m")]).named_scores == {"m": 1}


def test_as_32_the_reason_is_that_of_the_first_failure_in_order() -> None:
    """It is not that of the last failure, or of the one with the most weight."""
    verdict = aggregate([part(1), part(0, 1, reason="first"), part(0, 9, reason="second")])
    assert verdict.reason == "first"


@pytest.mark.parametrize(
    ("threshold", "passed", "reason"),
    [
        (0.7, True, "the score 0.75 reaches the threshold 0.7"),
        (0.75, True, "the score 0.75 reaches the threshold 0.75"),
        (0.76, False, "the score 0.75 is below the threshold 0.76"),
        (0, True, "the score 0.75 reaches the threshold 0"),
    ],
)
def test_a_threshold_replaces_the_rule_that_all_must_pass(
    threshold: float,
    passed: bool,  # noqa: FBT001
    reason: str,
) -> None:
    """The score alone decides, and the reason states it."""
    verdict = aggregate([part(1, 3), part(0)], threshold=threshold)
    assert (verdict.passed, verdict.reason) == (passed, reason)


def test_as_29_weight_0_alone_passes_with_score_0() -> None:
    """It cannot fail, and the weights sum to 0; the part keeps its own score."""
    verdict = aggregate([part(0, 0, reason="no")])
    assert (verdict.passed, verdict.score, verdict.reason) == (True, 0.0, "all assertions passed")
    assert (verdict.parts[0].passed, verdict.parts[0].score, verdict.parts[0].reason) == (
        True,
        0.0,
        "no",
    )
    assert not aggregate([part(1, 0)], threshold=0.1).passed


def test_named_scores_are_separate_weighted_means() -> None:
    """Each metric counts its own parts only; parts without a metric count for none."""
    verdict = aggregate(
        [part(1, 3, "m"), part(0, 1, "m"), part(1, 2, "n"), part(0, 0, "z"), part(1)]
    )
    assert verdict.named_scores == {"m": 0.75, "n": 1.0, "z": 0.0}


def test_a_part_without_an_assertion_has_weight_1() -> None:
    """This allows parts that are made by hand."""
    assert aggregate([Verdict(passed=True, score=1, reason=""), part(0)]).score == 0.5


@pytest.mark.slow
@given(st.lists(parts(), min_size=1, max_size=8))
def test_the_score_is_within_the_range_of_its_parts(verdicts: list[Verdict]) -> None:
    """A mean never leaves the range of its values, not even by rounding."""
    counted = [verdict.score for verdict in verdicts if weight_of(verdict)]
    score = aggregate(verdicts).score
    assert min(counted) <= score <= max(counted) if counted else score == 0


@pytest.mark.slow
@given(st.data(), st.lists(parts(), min_size=1, max_size=8), st.none() | st.floats(0, 1))
def test_order_changes_only_the_reason(
    data: st.DataObject, verdicts: list[Verdict], threshold: float | None
) -> None:
    """Scores, metrics and passing depend on the set of parts only, to the last bit."""
    one = aggregate(verdicts, threshold=threshold)
    other = aggregate(data.draw(st.permutations(verdicts)), threshold=threshold)
    assert attrs.evolve(one, parts=(), reason="") == attrs.evolve(other, parts=(), reason="")


@pytest.mark.slow
@given(
    st.lists(parts(), min_size=1, max_size=8), parts(), st.integers(0), st.none() | st.floats(0, 1)
)
def test_weight_0_is_neutral(
    verdicts: list[Verdict], extra: Verdict, place: int, threshold: float | None
) -> None:
    """A part of weight 0 at any position changes neither passing nor score nor reason."""
    assert extra.assertion is not None
    weightless = attrs.evolve(
        extra, assertion=attrs.evolve(extra.assertion, weight=0.0, metric=None)
    )
    place %= len(verdicts) + 1
    before = aggregate(verdicts, threshold=threshold)
    after = aggregate([*verdicts[:place], weightless, *verdicts[place:]], threshold=threshold)
    assert attrs.evolve(before, parts=()) == attrs.evolve(after, parts=())


@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(parts(), min_size=1, max_size=8), st.integers(-20, 20))
def test_only_the_ratio_of_weights_counts(verdicts: list[Verdict], power: int) -> None:
    """Doubling all weights changes nothing; powers of two are exact."""

    def heavier(one: Verdict) -> Verdict:
        assert one.assertion is not None
        weight = one.assertion.weight * 2.0**power
        return attrs.evolve(one, assertion=attrs.evolve(one.assertion, weight=weight))

    assume(all(weight_of(one) == 0 or weight_of(one) > 1e-200 for one in verdicts))
    before, after = aggregate(verdicts), aggregate([*map(heavier, verdicts)])
    assert (after.passed, after.reason) == (before.passed, before.reason)
    assert after.score == pytest.approx(before.score, rel=1e-12, abs=1e-300)
    assert after.named_scores == pytest.approx(before.named_scores, rel=1e-12, abs=1e-300)


@pytest.mark.slow
@given(st.booleans(), st.none() | st.floats(0, 1), st.booleans())
def test_inverting_twice_changes_nothing(
    holds: bool,  # noqa: FBT001
    score: float | None,
    invertible: bool,  # noqa: FBT001
) -> None:
    """This holds for types that can be inverted; an undetermined finding is a failure either way."""
    finding = Finding(holds, "", score=score, invertible=invertible)
    kind = Kind("any value", lambda _: True, lambda _subject, _value, _assertion: finding)
    plain = verdict_of(
        ReadyAssertion(Assertion(type="x"), kind, inverted=False, value=None), finding
    )
    turned = verdict_of(
        ReadyAssertion(Assertion(type="x"), kind, inverted=True, value=None), finding
    )
    if not invertible:
        assert (plain.passed, plain.score) == (turned.passed, turned.score) == (False, 0)
        return
    assert turned.passed is not plain.passed
    assert turned.score == 1 - plain.score
    back = attrs.evolve(finding, holds=turned.passed, score=None if score is None else 1 - score)
    again = verdict_of(ReadyAssertion(Assertion(type="x"), kind, inverted=True, value=None), back)
    assert again.passed is plain.passed
    assert again.score == pytest.approx(plain.score)


@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(parts(), min_size=1, max_size=4), st.lists(parts(), min_size=1, max_size=4))
def test_a_set_weighs_metrics_as_its_members_do(
    inside: list[Verdict], outside: list[Verdict]
) -> None:
    """A set without a metric that weighs as much as one assertion leaves all named scores unchanged."""
    whole = attrs.evolve(aggregate(inside), assertion=Assertion(type="assert-set"))
    one, other = aggregate([whole, *outside]), aggregate([*inside, *outside])
    assert one.named_scores == pytest.approx(other.named_scores, rel=1e-9, abs=1e-9)
    assert one.named_score_weights == pytest.approx(other.named_score_weights, rel=1e-9)


def test_named_scores_of_a_script_have_their_own_weights() -> None:
    """Their weights are multiplied by that of the assertion, whose own metric gets its score."""
    script = attrs.evolve(
        part(0.5, 2, "m"),
        named_scores={"m": 0.9, "n": 1.0, "o": 0.25},
        named_score_weights={"n": 3.0},
    )
    verdict = aggregate([script, part(0, 1, "n")])
    assert verdict.named_scores == {"m": 0.5, "n": 6 / 7, "o": 0.25}
    assert verdict.named_score_weights == {"m": 2, "n": 7, "o": 2}


def test_a_filter_that_blocks_an_attack_is_a_success() -> None:
    """Other failures do not matter; this applies only to guardrails with that purpose and a weight."""
    blocked = Verdict(
        passed=False,
        score=0,
        reason="flagged",
        assertion=Assertion(type="guardrails", config={"purpose": "redteam"}),
    )
    verdict = aggregate([part(0, reason="no"), blocked], threshold=0.5)
    assert (verdict.passed, verdict.score) == (True, 0)
    for config in (None, {"purpose": "else"}):
        other = attrs.evolve(blocked, assertion=Assertion(type="guardrails", config=config))
        assert not aggregate([other]).passed


def test_huge_scores_do_not_crash() -> None:
    """The mean of equal huge scores is that score, as far as floating point allows."""
    huge = part(1e308, 1e9)
    assert aggregate([huge, huge, part(0)]).score == 1e308


@pytest.mark.slow
@given(st.lists(parts(), min_size=1, max_size=8))
def test_without_a_threshold_all_parts_with_weight_must_pass(verdicts: list[Verdict]) -> None:
    """With a threshold, the score alone decides."""
    verdict = aggregate(verdicts)
    assert verdict.passed == all(part.passed or weight_of(part) == 0 for part in verdicts)
    assert aggregate(verdicts, threshold=verdict.score).passed
    assert not aggregate(verdicts, threshold=math.nextafter(verdict.score, math.inf)).passed

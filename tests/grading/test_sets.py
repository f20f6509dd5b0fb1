"""Sets of assertions: aggregated separately, and then one part of their row."""

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import GradingError, TemplateError
from trioeval.grading import Assertion, Verdict, grade
from trioeval.grading.algebra import components, leaves
from trioeval.grading.grade import check_assertion

YES = Assertion(type="contains", value="a")
NO = Assertion(type="contains", value="z")


def set_of(*members: Assertion, **fields: Any) -> Assertion:
    return Assertion(type="assert-set", assertions=members, **fields)


def parts_of(verdict: Verdict) -> list[tuple[str, bool, float]]:
    return [
        (part.assertion.type if part.assertion else "", part.passed, part.score)
        for part in components(verdict.parts)
    ]


def test_as_30_a_set_has_its_own_threshold() -> None:
    """It replaces "no member failed"; the set then passes as one part of the row."""
    verdict = grade("a", [set_of(YES, NO, threshold=0.5)])
    assert (verdict.passed, verdict.score) == (True, 0.5)
    assert parts_of(verdict) == [
        ("assert-set", True, 0.5),
        ("contains", True, 1),
        ("contains", False, 0),
    ]


def test_as_31_a_set_has_its_own_metric() -> None:
    """Its score is the weighted mean of its members."""
    verdict = grade("a", [set_of(attrs.evolve(YES, weight=3), NO, metric="m")])
    assert (verdict.passed, verdict.score, verdict.named_scores) == (False, 0.75, {"m": 0.75})
    assert verdict.reason == 'the output does not contain "z"'


def test_a_set_counts_with_its_weight() -> None:
    """It counts like one assertion, however many members it has."""
    assert grade("a", [set_of(NO, NO, NO, weight=3), YES]).score == 0.25
    assert grade("a", [set_of(NO, weight=0), YES]).passed


def test_the_named_scores_of_members_have_the_weight_of_the_set() -> None:
    """A name has the same meaning inside and outside of sets."""
    member = attrs.evolve(YES, metric="m")
    outside = attrs.evolve(NO, metric="m")
    verdict = grade("a", [set_of(member, member, weight=3), outside])
    assert verdict.named_scores == {"m": 6 / 7}
    assert verdict.named_score_weights == {"m": 7}


def test_the_metric_of_a_set_replaces_that_of_its_members() -> None:
    """Members do not count again under that name."""
    member = attrs.evolve(NO, metric="m")
    verdict = grade("a", [set_of(YES, member, metric="m")])
    assert (verdict.named_scores, verdict.named_score_weights) == ({"m": 0.5}, {"m": 1})


def test_members_without_a_config_use_that_of_their_set() -> None:
    """Configs are not merged."""
    own = attrs.evolve(YES, config={"b": 2})
    whole = set_of(YES, own, config={"a": 1})
    assert [member.config for _, member in leaves([whole])] == [{"a": 1}, {"b": 2}]


def test_a_failed_set_fails_the_row_at_its_position() -> None:
    """The reason is that of the first failed part, and within it of the first failed member."""
    first, second = (Assertion(type="equals", value=value) for value in ("1", "2"))
    verdict = grade("a", [YES, set_of(YES, first, second), NO])
    assert verdict.reason == 'the output does not equal "1"'


def test_the_deciding_failure_may_be_in_a_set() -> None:
    """Later assertions are not judged, in the set or outside; the set's threshold does not help."""
    verdict = grade(
        "a", [YES, set_of(YES, NO, YES, threshold=0.5), YES], short_circuit=True, threshold=0.1
    )
    assert not verdict.passed
    assert verdict.reason == 'the output does not contain "z"'
    assert parts_of(verdict)[1:] == [
        ("assert-set", False, 0.5),
        ("contains", True, 1),
        ("contains", False, 0),
    ]


def test_a_failure_of_weight_0_decides_nothing() -> None:
    """This holds for a member of weight 0 and for members of a set of weight 0."""
    free = attrs.evolve(NO, weight=0)
    verdict = grade("a", [set_of(free, YES), set_of(NO, weight=0), YES], short_circuit=True)
    assert (verdict.passed, len(parts_of(verdict))) == (True, 6)


def test_the_metric_of_a_set_is_a_template() -> None:
    """An empty name is ignored; one that cannot be rendered is an error, unless the set does not count."""

    def render(text: str) -> str:
        if "{{" in text:
            msg = "x is not defined"
            raise TemplateError(msg)
        return text.replace("$", "")

    assert grade("a", [set_of(YES, metric="$m")], render=render).named_scores == {"m": 1}
    assert grade("a", [set_of(YES, metric="$")], render=render).named_scores == {}
    broken = set_of(YES, metric="{{x}}")
    with pytest.raises(GradingError, match=r"^assert\[1\] \(assert-set\): x is not defined"):
        grade("a", [YES, broken], render=render)
    assert grade("a", [attrs.evolve(broken, weight=0), YES], render=render).passed


def test_an_error_in_a_set_names_its_position() -> None:
    """The message has the numbers of the set and of the member."""
    with pytest.raises(GradingError, match=r"^assert\[1\]\.assert\[0\] \(nothing\)"):
        grade("a", [YES, set_of(Assertion(type="nothing"))])


def test_members_are_checked_by_their_readers() -> None:
    """The set itself is valid if its members are of allowed types."""
    assert list(check_assertion(set_of(YES, threshold=0.5, weight=2, metric="m"))) == []
    (problem,) = check_assertion(set_of(YES, Assertion(type="max-score")))
    assert problem.path == ".assert[1].type"


@pytest.mark.slow
@given(
    st.lists(st.sampled_from([YES, NO]), min_size=1),
    st.none() | st.floats(0, 1),
    st.sampled_from([1.0, 0.5, 3.0]),
)
def test_a_single_set_equals_its_row(
    members: list[Assertion], threshold: float | None, weight: float
) -> None:
    """With the same threshold and any weight of the set, pass and score are those of the members."""
    whole = grade("a", [set_of(*members, threshold=threshold, weight=weight)])
    flat = grade("a", members, threshold=threshold)
    assert (whole.passed, whole.score) == (flat.passed, flat.score)

"""Sets of assertions: aggregated by themselves, and then one part of their row."""

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


def told(verdict: Verdict) -> list[tuple[str, bool, float]]:
    return [
        (part.assertion.type if part.assertion else "", part.passed, part.score)
        for part in components(verdict.parts)
    ]


def test_as_30_a_set_has_a_threshold_of_its_own() -> None:
    """It replaces "no member failed"; the set then passes as one part of the row."""
    verdict = grade("a", [set_of(YES, NO, threshold=0.5)])
    assert (verdict.passed, verdict.score) == (True, 0.5)
    assert told(verdict) == [
        ("assert-set", True, 0.5),
        ("contains", True, 1),
        ("contains", False, 0),
    ]


def test_as_31_a_set_has_a_metric_of_its_own() -> None:
    """Its score is what its members make with their weights."""
    verdict = grade("a", [set_of(attrs.evolve(YES, weight=3), NO, metric="m")])
    assert (verdict.passed, verdict.score, verdict.named_scores) == (False, 0.75, {"m": 0.75})
    assert verdict.reason == 'the output does not contain "z"'


def test_a_set_counts_with_its_weight() -> None:
    """As one assertion would, however many members it has."""
    assert grade("a", [set_of(NO, NO, NO, weight=3), YES]).score == 0.25
    assert grade("a", [set_of(NO, weight=0), YES]).passed


def test_the_scores_of_members_are_weighed_as_the_set_is() -> None:
    """So a name means the same in and out of sets."""
    member = attrs.evolve(YES, metric="m")
    outside = attrs.evolve(NO, metric="m")
    verdict = grade("a", [set_of(member, member, weight=3), outside])
    assert verdict.named_scores == {"m": 6 / 7}
    assert verdict.named_score_weights == {"m": 7}


def test_a_set_that_names_a_metric_speaks_for_its_members() -> None:
    """Under that name they are not counted once more."""
    member = attrs.evolve(NO, metric="m")
    verdict = grade("a", [set_of(YES, member, metric="m")])
    assert (verdict.named_scores, verdict.named_score_weights) == ({"m": 0.5}, {"m": 1})


def test_members_without_a_config_have_that_of_their_set() -> None:
    """All or nothing: configs are not merged."""
    own = attrs.evolve(YES, config={"b": 2})
    whole = set_of(YES, own, config={"a": 1})
    assert [member.config for _, member in leaves([whole])] == [{"a": 1}, {"b": 2}]


def test_a_set_fails_the_row_where_it_stands() -> None:
    """The reason is that of the first part that failed, and in it of the first member."""
    first, second = (Assertion(type="equals", value=value) for value in ("1", "2"))
    verdict = grade("a", [YES, set_of(YES, first, second), NO])
    assert verdict.reason == 'the output does not equal "1"'


def test_the_first_failure_that_decides_may_stand_in_a_set() -> None:
    """Later assertions are not judged, in the set or outside; the set's threshold does not help."""
    verdict = grade(
        "a", [YES, set_of(YES, NO, YES, threshold=0.5), YES], short_circuit=True, threshold=0.1
    )
    assert not verdict.passed
    assert verdict.reason == 'the output does not contain "z"'
    assert told(verdict)[1:] == [
        ("assert-set", False, 0.5),
        ("contains", True, 1),
        ("contains", False, 0),
    ]


def test_a_failure_of_weight_0_decides_nothing() -> None:
    """Neither that of a member nor those in a set of that weight."""
    free = attrs.evolve(NO, weight=0)
    verdict = grade("a", [set_of(free, YES), set_of(NO, weight=0), YES], short_circuit=True)
    assert (verdict.passed, len(told(verdict))) == (True, 6)


def test_the_metric_of_a_set_is_a_template() -> None:
    """An empty name is none; one that cannot be rendered is an error, unless the set does not count."""

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


def test_an_error_in_a_set_names_its_place() -> None:
    """By both numbers."""
    with pytest.raises(GradingError, match=r"^assert\[1\]\.assert\[0\] \(nothing\)"):
        grade("a", [YES, set_of(Assertion(type="nothing"))])


def test_members_are_checked_by_whoever_reads_them() -> None:
    """A set by itself is right if it has members that may stand there."""
    assert list(check_assertion(set_of(YES, threshold=0.5, weight=2, metric="m"))) == []
    (problem,) = check_assertion(set_of(YES, Assertion(type="max-score")))
    assert problem.path == ".assert[1].type"


@pytest.mark.slow
@given(
    st.lists(st.sampled_from([YES, NO]), min_size=1),
    st.none() | st.floats(0, 1),
    st.sampled_from([1.0, 0.5, 3.0]),
)
def test_a_set_alone_is_its_row(
    members: list[Assertion], threshold: float | None, weight: float
) -> None:
    """With the same threshold, whatever the set weighs: pass and score are those of the members."""
    whole = grade("a", [set_of(*members, threshold=threshold, weight=weight)])
    flat = grade("a", members, threshold=threshold)
    assert (whole.passed, whole.score) == (flat.passed, flat.score)

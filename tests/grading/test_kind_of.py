"""Assertion types that a user adds from Python."""

import math

import pytest

from trioeval.errors import GradingError
from trioeval.grading import KINDS, Assertion, Finding, Subject, grade, kind_of


def is_short(subject: Subject, value: int) -> bool:
    return len(subject.text) <= value


def vowels(subject: Subject, _value: object) -> float:
    return sum(letter in "aeiou" for letter in subject.text) / len(subject.text)


def strange(_subject: Subject, value: float) -> float:
    return value


def detailed(subject: Subject, _value: object) -> Finding:
    return Finding(subject.text == "yes", "it says so", score=0.75, negated=0.5)


OWN = {
    **KINDS,
    "is-short": kind_of(is_short, right="a number", accepts=lambda value: isinstance(value, int)),
    "vowels": kind_of(vowels),
    "strange": kind_of(strange),
    "detailed": kind_of(detailed),
}


@pytest.mark.parametrize(
    ("assertion", "passed", "score"),
    [
        (Assertion(type="is-short", value=5), True, 1),
        (Assertion(type="not-is-short", value=5), False, 0),
        (Assertion(type="vowels"), True, 0.5),
        (Assertion(type="vowels", threshold=0.6), False, 0.5),
        (Assertion(type="not-vowels", threshold=0.6), True, 0.5),
        (Assertion(type="detailed"), False, 0.75),
        (Assertion(type="not-detailed"), True, 0.5),
    ],
    ids=lambda value: getattr(value, "type", None),
)
def test_a_function_judges(assertion: Assertion, passed: bool, score: float) -> None:  # noqa: FBT001
    """By yes and no, by degrees, or with everything that there is to say."""
    verdict = grade("aabb", [assertion], kinds=OWN)
    assert (verdict.passed, verdict.score) == (passed, score)


@pytest.mark.parametrize(
    ("assertion", "message"),
    [
        (Assertion(type="is-short", value="x"), 'the value must be a number, got "x"'),
        (Assertion(type="strange", value=math.nan), "strange gives nan, which is no score"),
        (Assertion(type="strange", value=None), "its judge failed: TypeError"),
    ],
    ids=["value", "nan", "raises"],
)
def test_what_cannot_be_judged_is_an_error(assertion: Assertion, message: str) -> None:
    """Whatever the function does; also under `not-`."""
    inverted = Assertion(type=f"not-{assertion.type}", value=assertion.value)
    for one in (assertion, inverted):
        with pytest.raises(GradingError) as caught:
            grade("aabb", [one], kinds=OWN)
        assert message in str(caught.value)

"""Assertion types that a user adds from Python."""

import math
from typing import Any

import pytest
import trio

from trioeval.errors import GradingError
from trioeval.grading import KINDS, Assertion, Finding, Kind, Subject, grade, kind_of


def is_short(subject: Subject, value: int) -> bool:
    return len(subject.text) <= value


def vowels(subject: Subject, _value: object) -> float:
    return sum(letter in "aeiou" for letter in subject.text) / len(subject.text)


def strange(_subject: Subject, value: float) -> float:
    return value


def detailed(subject: Subject, _value: object) -> Finding:
    return Finding(subject.text == "yes", "it says so", score=0.75, negated=0.5)


async def later(_subject: Subject, _value: object) -> bool:
    await trio.lowlevel.checkpoint()
    return True


def strange_kind(_subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    return value  # type: ignore[no-any-return] # of the wrong type on purpose


OWN = {
    **KINDS,
    "is-short": kind_of(is_short, right="a number", accepts=lambda value: isinstance(value, int)),
    "vowels": kind_of(vowels),
    "strange": kind_of(strange),
    "detailed": kind_of(detailed),
    "later": kind_of(later),  # type: ignore[arg-type] # on purpose
    "plain": Kind("any value", lambda _: True, strange_kind, bare=True),
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
    """It returns a boolean, a score, or a complete result."""
    verdict = grade("aabb", [assertion], kinds=OWN)
    assert (verdict.passed, verdict.score) == (passed, score)


@pytest.mark.parametrize(
    ("assertion", "message"),
    [
        (Assertion(type="is-short", value="x"), 'the value must be a number, got "x"'),
        (
            Assertion(type="strange", value=math.nan),
            "strange returned nan, which is not a finite score",
        ),
        (
            Assertion(type="strange", value=None),
            "strange must return true or false, a number or a Finding, got NoneType: null",
        ),
        (Assertion(type="strange", value="yes"), 'a Finding, got str: "yes"'),
        (
            Assertion(type="strange", value=10**400),
            "strange returned inf, which is not a finite score",
        ),
        (Assertion(type="later"), "got a coroutine; wrap an async judge in Asking(…)"),
        (Assertion(type="plain", value="yes"), "strange_kind must return true or false, a number"),
    ],
    ids=["value", "nan", "nothing", "text", "huge", "async", "plain"],
)
def test_a_failing_function_is_an_error(assertion: Assertion, message: str) -> None:
    """This holds for any fault of the function, also under `not-`."""
    inverted = Assertion(type=f"not-{assertion.type}", value=assertion.value)
    for one in (assertion, inverted):
        with pytest.raises(GradingError) as caught:
            grade("aabb", [one], kinds=OWN)
        assert message in str(caught.value)

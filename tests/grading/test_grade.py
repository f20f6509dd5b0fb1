from typing import Any

import attrs
import pytest

from trioeval.errors import GradingError, TemplateError
from trioeval.grading import Assertion, grade

YES = Assertion(type="contains", value="a")
NO = Assertion(type="contains", value="z")


def no_template(text: str) -> str:
    if "{{" not in text:
        return text
    msg = "{{ x }} is not defined; the test has no variables"
    raise TemplateError(msg)


def test_parts_are_in_the_order_of_the_assertions() -> None:
    """There is one for each, and the verdict is their aggregate."""
    verdict = grade("a", [YES, NO, YES], threshold=0.5)
    assert [part.passed for part in verdict.parts] == [True, False, True]
    assert verdict.passed
    assert verdict.assertion is None


def test_the_first_assertion_that_fails_may_decide() -> None:
    """Later assertions are not judged, and a threshold does not help; one of weight 0 never fails."""
    free, broken = attrs.evolve(NO, weight=0), Assertion(type="contains", value="{{ x }}")
    verdict = grade(
        "a", [YES, free, NO, broken], threshold=0.1, short_circuit=True, render=no_template
    )
    assert [part.passed for part in verdict.parts] == [True, True, False]
    assert (verdict.passed, verdict.score, verdict.reason) == (False, 0.5, verdict.parts[2].reason)
    assert grade("a", [YES, free], threshold=0.5, short_circuit=True).passed


def test_an_output_without_assertions_passes() -> None:
    """The reply is sufficient."""
    assert grade("", []).passed


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("output", "assertion", "message"),
    [
        ({1, 2}, YES, "the output cannot be graded: a value of type set is not JSON data"),
        (nested(5000), YES, "the output cannot be graded: it is nested too deeply"),
        (
            "x",
            Assertion(type="contians", value="x"),
            'assert[1] (contians): "contians" is not an assertion type',
        ),
        (
            "x",
            Assertion(type="not-contains", value="{{x}}"),
            "assert[1] (not-contains): {{ x }} is not defined; the test has no variables",
        ),
        (
            "x",
            Assertion(type="contains", value=True),
            "assert[1] (contains): the value must be text that is not empty, or a number, got true",
        ),
        (
            "x",
            Assertion(type="contains", value="x", weight=-2e9),
            "assert[1] (contains): the weight must be from -1000000000 to 1000000000, got -2000000000",
        ),
        (
            "x",
            Assertion(type="contains", value="x", weight=1e308),
            "assert[1] (contains): the weight must be from -1000000000 to 1000000000, got 1e+308",
        ),
        (
            "x",
            Assertion(type="contains", value="x", metric="{{x}}"),
            "assert[1] (contains): {{ x }} is not defined; the test has no variables",
        ),
    ],
    ids=["set", "deep", "type", "template", "value", "negative", "heavy", "metric"],
)
def test_an_assertion_that_cannot_be_evaluated_is_an_error(
    output: Any, assertion: Assertion, message: str
) -> None:
    """It is not a failure, also under `not-`; the message names the assertion."""
    with pytest.raises(GradingError) as caught:
        grade(output, [YES, assertion], render=no_template)
    assert str(caught.value) == message


def test_a_value_that_renders_to_an_empty_text_is_an_error() -> None:
    """Every output contains the empty text, so the verdict would be meaningless."""
    with pytest.raises(GradingError) as caught:
        grade("x", [Assertion(type="contains", value="{{x}}")], render=lambda _: "")
    assert str(caught.value) == (
        "assert[0] (contains): the value must be text that is not empty, or a number, "
        'got "", from "{{x}}"'
    )


def test_the_first_error_is_raised() -> None:
    """The order is that of the assertions."""
    bad = [Assertion(type=name, value="x") for name in ("one", "two")]
    with pytest.raises(GradingError, match=r"^assert\[0\] \(one\)"):
        grade("x", bad)


def test_an_error_of_weight_0_is_reported_and_does_not_count() -> None:
    """It is treated like a failure of weight 0."""
    broken = Assertion(type="nothing", weight=0)
    verdict = grade("a", [broken, YES])
    assert (verdict.passed, verdict.score) == (True, 1.0)
    first = verdict.parts[0]
    assert (first.passed, first.score, first.assertion) == (True, 0.0, broken)
    assert first.reason == '"nothing" is not an assertion type'


def test_metrics_are_rendered() -> None:
    """Scores add up under the rendered name, and the assertion of the part carries it."""
    verdict = grade(
        "a",
        [
            Assertion(type="contains", value="a", metric="of {{x}}"),
            Assertion(type="contains", value="z", metric="of 1"),
            Assertion(type="contains", value="a", metric="own"),
        ],
        render=lambda text: text.replace("{{x}}", "1"),
    )
    assert verdict.named_scores == {"of 1": 0.5, "own": 1.0}
    assert [part.assertion and part.assertion.metric for part in verdict.parts] == [
        "of 1",
        "of 1",
        "own",
    ]

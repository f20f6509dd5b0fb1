"""Arithmetic of derived metrics."""

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pace import takes_less

from trioeval.grading.expressions import DEEPEST, ExpressionError, parse

NAMES = {"p": 0.5, "r": 0.25, "n": 3.0, "zero": 0.0, "__count": 4.0, "ünï": 2.0}

VALUES = [
    ("1", 1),
    (" .5e1 ", 5),
    ("2 * p * r / (p + r)", 1 / 3),
    ("p + r * 2", 1.0),
    ("(p + r) * 2", 1.5),
    ("1 - 2 - 3", -4),
    ("12 / 2 / 3", 2),
    ("2 ^ 3 ^ 2", 512),
    ("-2 ^ 2", -4),
    ("2 ^ -1", 0.5),
    ("--n", 3),
    ("7 % 4", 3),
    ("-7 % 4", 1),
    ("sqrt(p ^ 2 + r ^ 2)", math.hypot(0.5, 0.25)),
    ("min(n, p, r) + max(n, p)", 3.25),
    ("abs(-n) + floor(2.7) + ceil(2.1)", 8),
    ("exp(log(n))", 3),
    ("log(8, 2) + log10(100) + log2(4)", 7),
    ("pow(2, 10)", 1024),
    ("mean(p, r, zero) * 4", 1),
    ("sum(p, r)", 0.75),
    ("round(2.5)", 3),
    ("round(-2.5)", -3),
    ("round(1.005, 2)", 1.01),
    ("round(1234, -2)", 1200),
    ("n > 2", 1),
    ("n >= 3 == 1", 0),
    ("0 < p < 1", 1),
    ("0 < p < r", 0),
    ("p != r", 1),
    ("0.1 + 0.2 == 0.3", 1),
    ("0.1 + 0.2 > 0.3", 0),
    ("zero > 0 ? 1 / zero : 0", 0),
    ("zero ? 1 : p ? 2 : 3", 2),
    ("__count * ünï", 8),
]


@pytest.mark.parametrize(("text", "value"), VALUES, ids=[text for text, _ in VALUES])
def test_an_expression_has_a_value(text: str, value: float) -> None:
    """Precedence is the usual one."""
    assert parse(text).value(NAMES) == pytest.approx(value, abs=1e-12)


NONE = [
    ("", "it ends too early"),
    ("1 +", "it ends too early"),
    ("1 2", "'2' is not expected there"),
    ("2 ** 3", "'*' is not expected there"),
    ("(1", "')' is missing before the end"),
    ("1 ? 2", "':' is missing before the end"),
    ("a.b", "'.' is not expected there"),
    ("'a'", '"\'" is not expected there'),
    ("a = 1", "'=' is not expected there"),
    ("__import__('os')", '"\'" is not expected there'),
    ("f(1)", "unknown function f; known functions are abs, ceil, exp,"),
    ("sqrt(1, 2)", "sqrt does not take 2 arguments"),
    ("max()", "max does not take 0 arguments"),
    ("[1]", "'[' is not expected there"),
    ("1" * 10_001, "it is longer than 10000 characters"),
]


@pytest.mark.parametrize(("text", "reason"), NONE, ids=[text[:20] for text, _ in NONE])
def test_an_invalid_expression_is_reported(text: str, reason: str) -> None:
    """It is reported when it is read, before the run starts."""
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert str(caught.value).startswith(reason)


NO_VALUE = [
    ("1 / zero", "it divides by zero"),
    ("n % zero", "it divides by zero"),
    ("sqrt(-n)", "a function in it has no value there"),
    ("log(zero)", "a function in it has no value there"),
    ("(-8) ^ p", "a function in it has no value there"),
    ("9 ^ 9 ^ 9", "a number in it is too large"),
    ("1e400", "a number in it is too large"),
    ("floor(1e308) * 10", "a number in it is too large"),
    ("floor(1e308 * 10)", "a number in it is too large"),
    ("unknown + 1", "unknown metric unknown"),
]


@pytest.mark.parametrize(("text", "reason"), NO_VALUE, ids=[text for text, _ in NO_VALUE])
def test_an_undefined_value_is_reported(text: str, reason: str) -> None:
    """The value is never NaN or infinite."""
    with pytest.raises(ExpressionError) as caught:
        parse(text).value(NAMES)
    assert str(caught.value) == reason


def test_an_expression_lists_its_names() -> None:
    """Functions are not among the names, which may be equal to those of functions."""
    expression = parse("max(max, f1) + 2e3")
    assert expression.names == {"max", "f1"}
    assert expression.value({"max": 1, "f1": 2}) == 2002


HOSTILE = ["(" * 5000 + "1", "1?" * 2000 + "1", "2^" * 3000 + "2", "abs(" * 2000 + "1"]


@pytest.mark.parametrize("text", HOSTILE, ids=[text[:4] for text in HOSTILE])
def test_depth_is_bounded(text: str) -> None:
    """It is bounded before Python's own stack would overflow."""
    with pytest.raises(ExpressionError, match=f"nested more than {DEEPEST} times"):
        parse(text)


def test_long_expressions_are_fast() -> None:
    """This holds with the greatest possible number of operators too."""

    def both() -> None:
        assert parse("-" * 9_998 + "1").value({}) == 1
        assert parse("1+" * 4_999 + "1").value({}) == 5_000

    assert takes_less(2, both)  # some 20 ms on an idle machine


LEAVES = st.integers(0, 9).map(str) | st.sampled_from(["a", "b"])
TREES = st.recursive(
    LEAVES,
    lambda inner: st.builds(
        "({}{}{})".format, inner, st.sampled_from(["+", "-", "*", "/", "%", "<", "=="]), inner
    ),
    max_leaves=8,
)


@pytest.mark.slow
@given(TREES, st.integers(-5, 5), st.integers(-5, 5))
def test_values_equal_those_of_python(text: str, a: int, b: int) -> None:
    """Both are compared on their common syntax, with numbers that are exact."""
    try:
        expected = float(eval(text, {"a": a, "b": b}))  # noqa: S307 - of texts made here
    except ZeroDivisionError:
        with pytest.raises(ExpressionError):
            parse(text).value({"a": a, "b": b})
    else:
        assert parse(text).value({"a": a, "b": b}) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.slow
@given(st.text(alphabet="ab12.+-*/%^()?:,<=> minsqrt\n", max_size=30))
def test_any_text_is_an_expression_or_an_error(text: str) -> None:
    """No other exception is raised."""
    with suppress(ExpressionError):
        assert math.isfinite(parse(text).value({"a": 1.0, "b": 2.0}))

"""Expressions over a row: `skip.when`, `dropWhen`, and the names that they use."""

import pytest

from trioeval.columns.makers.code import drop_conditions, skip_condition
from trioeval.columns.model import (
    ExpressionColumn,
    SamplerColumn,
    Skip,
    UuidSampler,
    ValidationColumn,
)
from trioeval.errors import TemplateError
from trioeval.templates.expressions import (
    compile_condition,
    compile_expression,
    compile_template,
    expression_error,
    expression_names,
)

ROW = {"a": 5, "t": "x", "none": None, "q": {"clarity": {"score": 3}, "tags": []}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a > 3 and q.clarity.score == 3", True),
        ("-a < 0", True),
        ("a is even", False),
        ("t in ['x', 'y']", True),
        ("none", False),
        ("not none", True),
        ("q.nope is defined", False),
        ("q.nope | default(false)", False),
        ("q.tags | length", False),
        ("nope is undefined or nope > 3", True),
        ("t == '}}'", False),
        ("t > 3", False),
        ("q.tags.length === 0 and t.startsWith('x')", True),
        ("r/^[x-z]$/.test(t)", True),
    ],
)
def test_conditions_report_the_columns_and_fields_that_they_use(text: str, *, value: bool) -> None:
    assert compile_condition(text)(ROW) is value
    assert expression_error(text) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nope", '{{ nope }} is not defined; did you mean "none"?'),
        ("nope == 1", '{{ nope }} is not defined; did you mean "none"?'),
        ("not nope", '{{ nope }} is not defined; did you mean "none"?'),
        ("a > 3 and nope", '{{ nope }} is not defined; did you mean "none"?'),
        ("1 if nope else 2", '{{ nope }} is not defined; did you mean "none"?'),
        ("__result", "{{ __result }} is not defined; the row has a, none, q, t"),
        (
            "q.clarty.score == 3",
            '"clarty" is not defined in {"clarity":{"score":3},"tags":[]}; did you mean "clarity"?',
        ),
        ("q.tags", "a list as a condition, which is always true; write `x | length`"),
        ("q", "an object as a condition"),
        ("range(2000000)", "took more than 1000000 steps"),
    ],
)
def test_co_31_a_mistyped_name_is_an_error_and_never_false(text: str, message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        compile_condition(text)(ROW)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an expression must not be empty"),
        ("{{ a }}", '"{{ a }}" is a template, not an expression'),
        ("a }} b", '"a }} b" is not one expression'),
        ("a }}{{ b", '"a }}{{ b" is not one expression'),
        ("a -}} b", '"a -}} b" is not one expression'),
        ("a b", "not an expression: expected variable end, got b"),
        (
            "a ? b : c",
            "not an expression: expected variable end, got ?; write `a if condition else b`",
        ),
        ("a | nonsense", "not an expression: No filter named 'nonsense'."),
        ("(" * 9000 + "a" + ")" * 9000, "not an expression: nested too deeply"),
    ],
)
def test_co_32_an_invalid_expression_is_reported_before_any_row(text: str, message: str) -> None:
    assert str(expression_error(text)).startswith(message)
    with pytest.raises(TemplateError):
        compile_condition(text)


def test_names_are_those_of_columns_and_of_globals() -> None:
    assert expression_names("a.b[c] > 3 or not d | own(e)", {"own": str}) == {"a", "c", "d", "e"}
    assert expression_names("self.x ~ env.HOME ~ null ~ b.length") == {"self", "env", "b"}
    assert expression_names("{x: a}") == {"a"}
    assert expression_names("a b") == frozenset()


def test_filters_and_environment_of_the_suite_are_available() -> None:
    twice = compile_expression(
        "a | twice ~ env.HOME", {"twice": lambda value: value * 2}, {"HOME": "/h"}
    )
    assert twice(ROW) == "10/h"
    assert expression_error("a | twice", {"twice": str}) is None


def test_a_column_precedes_a_global_of_its_name() -> None:
    assert compile_expression("range + 1")({"range": 1}) == 2


def test_a_compiled_expression_stores_nothing_of_a_row() -> None:
    double = compile_expression("a + a")
    assert [double({"a": value}) for value in (1, 2, 3)] == [2, 4, 6]
    with pytest.raises(TemplateError):
        double({})


def test_values_that_look_like_templates_are_data() -> None:
    render = compile_template("<{{ a }}{{ b }}>")
    assert render({"a": "{{ b }}", "b": "{% raw %}"}) == "<{{ b }}{% raw %}>"


def test_a_text_without_template_marks_is_unchanged() -> None:
    assert compile_template("no { marks }")({}) == "no { marks }"


def test_a_template_reports_missing_names() -> None:
    with pytest.raises(TemplateError, match=r"\{\{ b \}\} is not defined; the row has a$"):
        compile_template("{{ b }}")({"a": 1})
    with pytest.raises(TemplateError, match="not a template: line 1: "):
        compile_template("{{ b c }}")


def test_conditions_of_a_column_are_those_of_its_entry() -> None:
    column = ExpressionColumn(
        name="x", template="{{ a }}", skip=Skip(when="a < 3"), drop_when="x == '9'"
    )
    skip = skip_condition(column, {})
    assert skip is not None
    assert (skip({"a": 2}), skip({"a": 3})) == (True, False)
    [(cause, holds)] = drop_conditions(column, {})
    assert (cause, holds({"x": "9"}), holds({"x": "8"})) == ("expression", True, False)
    drawn = SamplerColumn(name="x", sampler=UuidSampler(), drop_when="x == '9'")
    [(cause, _)] = drop_conditions(drawn, {})
    assert cause == "filtered"
    assert skip_condition(ExpressionColumn(name="x", template="1"), {}) is None


def test_a_validation_with_drop_drops_failed_rows() -> None:
    column = ValidationColumn(name="ok", target="a", assertions=(), drop=True, drop_when="a == 1")
    (_, filtered), (cause, failed) = drop_conditions(column, {})
    assert cause == "validation"
    verdicts = ({"pass": False}, {"pass": True}, None)
    assert [failed({"ok": verdict}) for verdict in verdicts] == [True, False, False]
    assert filtered({"a": 1})
    assert drop_conditions(ValidationColumn(name="ok", target="a", assertions=()), {}) == []

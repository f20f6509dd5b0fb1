"""Laws of templates, for generated texts, variables and documents."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.errors import TemplateError
from trioeval.templates import Templates, is_template
from trioeval.templates.expressions import compile_expression
from trioeval.templates.limits import TimeLeft
from trioeval.templates.nunjucks import Nunjucks
from trioeval.templates.plain import filled, plain_pieces
from trioeval.text import number_text

TEMPLATES = Templates()
MARKS = "{}%#|ab. \n'=+"
PIECES = st.sampled_from(
    [
        *("{{ a }}", "{{ b.c }}", "{{ c | upper }}", "{% if a %}x{% else %}{{ d }}{% endif %}"),
        *("{% for x in l %}{{ x }}{{ e }}{% endfor %}", "{{ f ~ g if h else i }}", "{{ j[k] }}"),
        *("{% macro m(y) %}{{ y }}{{ n }}{% endmacro %}{{ m(o) }}", "{% set p = q %}{{ p }}"),
        *(
            "{{ r and s or t }}",
            "{{ env.X }}",
            "{% raw %}{{ u }}{% endraw %}",
            "text",
            "{# {{ v }} #}",
        ),
    ]
)


def rendered(text: str, variables: Mapping[str, Any]) -> str | TemplateError:
    try:
        return TEMPLATES.render_prompt(text, variables)
    except TemplateError as error:
        return error


@pytest.mark.slow
@given(
    st.text() | st.text(MARKS, max_size=20),
    st.dictionaries(st.sampled_from("ab"), st.text() | st.text(MARKS, max_size=12)),
)
def test_rendering_ends_in_text_or_template_error(text: str, variables: dict[str, str]) -> None:
    """This holds for any text and any variables, also if nearly everything is a mark."""
    result = rendered(text, variables)
    assert isinstance(result, str) or str(result)


@pytest.mark.slow
@given(st.text(st.characters(exclude_characters="{")).filter(lambda text: not _is_json(text)))
def test_a_text_without_marks_is_unchanged(text: str) -> None:
    """It is equal byte for byte, whatever its line ends."""
    assert TEMPLATES.render_prompt(text, {"a": "b"}) == text
    assert TEMPLATES.render(text, {"a": "b"}) == text


@pytest.mark.slow
@given(
    st.text(st.characters(exclude_characters="{"), max_size=20),
    st.text(max_size=20).filter(lambda value: not is_template(value)),
)
def test_a_variable_prints_as_its_text(before: str, value: str) -> None:
    """One newline is removed from its end; marks that form no template stay."""
    printed = TEMPLATES.render_prompt(before + "{{ v }}", {"v": value})
    assert printed == before + value.removesuffix("\n")


DOCUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-99, 99)
    | st.just("{{ x }}")
    | st.just("<{{ x }}>{{ x }}"),
    lambda part: (
        st.lists(part, max_size=3) | st.dictionaries(st.text("ab1", max_size=2), part, max_size=3)
    ),
)


@pytest.mark.slow
@given(DOCUMENTS, st.text().filter(lambda value: not is_template(value)))
def test_json_stays_json_with_inserted_values(document: Any, value: str) -> None:
    """The result parses, and equals the document with each text rendered."""
    value = value.removesuffix("\n")

    def put(part: Any) -> Any:
        match part:
            case str():
                return part.replace("{{ x }}", value)
            case list():
                return [put(one) for one in part]
            case dict():
                return {name: put(one) for name, one in part.items()}
            case _:
                return part

    text = TEMPLATES.render_prompt(json.dumps(document), {"x": value})
    assert json.loads(text) == put(document)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.lists(PIECES, max_size=6).map("".join))
def test_references_include_all_variables_that_are_read(text: str) -> None:
    """A variable that a rendering reads is one of its references."""
    read: set[str] = set()
    for name in TEMPLATES.references(text) | set("abcdefghijklmnopqrstuvwxyz"):
        # A variable matters if removing or changing it changes the output.
        full = {one: one.upper() for one in "abcdefghijkmnopqrstuvwxyz"} | {"l": [1, 0]}
        other = {**full, name: [9, 9, 9] if name == "l" else "other"}
        if TEMPLATES.fill(text, full) != TEMPLATES.fill(text, other):
            read.add(name)
    assert read <= TEMPLATES.references(text)


PLAIN_PIECES = st.sampled_from(
    [
        *(
            "{{ a }}",
            "{{b}}",
            "{{\tc }}",
            "{{ d }}",
            "{{ env }}",
            "{{ range }}",
            "{{ true }}",
            "{{ not }}",
        ),
        *(
            "{",
            "}",
            "{{",
            "}}",
            "{ {",
            "#}",
            "{#",
            "%}",
            "{%",
            "-",
            "x",
            " ",
            "\n",
            "\r\n",
            "\u00a0",
            "é\u2028😀",
            "\0",
        ),
        *(
            "{{ a}",
            "{{- a }}",
            "{{ a -}}",
            "{{ a.b }}",
            "{{ a | upper }}",
            "{% raw %}",
            "{# {{ a }} #}",
        ),
    ]
)
VALUES = (
    st.text()
    | st.text(MARKS, max_size=8)
    | st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.lists(st.integers() | st.text(max_size=3), max_size=3)
)


@pytest.mark.slow
@settings(max_examples=400)
@given(
    st.lists(PLAIN_PIECES, max_size=7).map("".join),
    st.dictionaries(st.sampled_from(["a", "b", "c", "env", "range"]), VALUES),
    st.booleans(),
)
def test_a_text_that_only_names_variables_is_that_of_the_engine(
    text: str,
    variables: dict[str, Any],
    strict: bool,  # noqa: FBT001 - generated
) -> None:
    """The text put together without the engine equals that of the engine; so do the names."""
    pieces = plain_pieces(text)
    if pieces is None or not is_template(text):
        return
    engine = Nunjucks({}, {}, 1 if strict else 0)
    described = engine.describe(text, "")
    assert described.fault is None
    assert described.names == {name for _, name in pieces if name is not None}
    made = filled(pieces, variables, strict=strict)
    if made is not None:
        assert made == engine.render(text, variables, TimeLeft())


@pytest.mark.slow
@given(
    st.recursive(
        VALUES,
        lambda part: (
            st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=3), part, max_size=3)
        ),
    )
)
def test_values_go_in_and_out_of_the_engine_unchanged(value: Any) -> None:
    """This covers lone surrogates, U+0000, NaN, infinities and whole numbers of any size."""
    back = compile_expression("v")({"v": value})
    assert repr(_as_javascript(back)) == repr(_as_javascript(value))


def _as_javascript(value: Any) -> Any:
    """A value with the numbers that JavaScript does not distinguish made equal, its keys in order."""
    match value:
        case bool():
            return value
        case int() | float():
            return number_text(value) if abs(value) < 2**53 or value != value else float(value)  # noqa: PLR0124
        case list():
            return list(map(_as_javascript, value))
        case dict():
            return sorted((name, repr(_as_javascript(part))) for name, part in value.items())
        case _:
            return value


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True

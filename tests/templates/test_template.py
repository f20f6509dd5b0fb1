"""Recognition of templates, resolution of variables, and rendering of prompts."""

import json
from collections.abc import Mapping
from datetime import date
from typing import Any

import pytest

from trioeval.errors import TemplateError
from trioeval.templates import Templates, is_template


def render(text: str, variables: Mapping[str, Any], **settings: Any) -> str:
    return Templates(**settings).render_prompt(text, variables)


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "{ name }", "}} name", '["x"', "a } b %} c #}", "line\n", "a\r\nb\rc"),
        *("{{ name", "{{ name }} {{ x", "a {{ x\n {{ name }}", "{% if name", "{# never {{ name }}"),
        *("{{ name }} in {#section}", "{{ name\n}}", "{{ x\u2028}}"),
    ],
)
def test_sc_14_text_that_is_not_a_template_is_unchanged(text: str) -> None:
    """This covers texts without marks, and texts with a mark that is not closed on its line."""
    templates = Templates()
    assert templates.render(text, {"name": "Bob"}) == text
    assert templates.fill(text, {"name": "Bob"}) == text
    assert templates.render_prompt(text, {"name": "Bob"}) == text
    assert templates.references(text) == set()
    assert not is_template(text)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{{ name", 'line 1, column 1: "{{"'),
        ("{{ name }} {{ x", 'line 1, column 12: "{{"'),
        ("a\r\nb {% if c\n{% endif %}", 'line 2, column 3: "{%"'),
        ("a\n{# never {{ name }}", 'line 2, column 1: "{#"'),
        ("{{ a }}{# b\n{{ c", 'line 1, column 8: "{#"'),
        ("{{ name\n}}", 'line 1, column 1: "{{"'),
    ],
)
def test_an_unclosed_tag_is_an_error_with_its_position(text: str, place: str) -> None:
    """Otherwise the text would be sent with its tags."""
    error = (
        f"not a template: {place} is not closed on its line; "
        "close it, or write literal text between {% raw %} and {% endraw %}"
    )
    assert Templates().syntax_error(text) == error
    assert Templates().prompt_error(text) == error
    assert Templates().prompt_error(json.dumps([{"content": text}])) == error
    assert Templates().syntax_error(f"{{% raw %}}{text}{{% endraw %}}") is None
    assert Templates(enabled=False).syntax_error(text) is None


def test_a_raw_block_is_a_template_even_with_open_marks() -> None:
    """A `raw` block shows that the marks are intended."""
    assert render("{% raw %}{{ x\n{% endraw %} {{ name }}", {"name": "Bob"}) == "{{ x\n Bob"


def test_carriage_returns_are_kept() -> None:
    """This holds in the text of a template, between its marks and inside of blocks."""
    text = "{{ a }}\r\n{% if a %}x\r{% endif %}\n{{- a }}\r\n"
    assert render(text, {"a": "b\r\n"}) == "b\r\r\nx\rb\r\r\n"
    control = "\r\x1e\x1f\x1d\r\x1f\x1e|"
    assert render(control + "{{ a }}", {"a": "b"}) == control + "b"


def test_undefined_values_print_nothing() -> None:
    """This covers a variable, its members, and a name of `env`."""
    assert render("{{ a }}{{ a.b.c }}{{ d.e }}{{ env.F }}|", {"d": {}}) == "|"


def test_env_is_the_mapping_of_the_caller() -> None:
    """It is not the environment of the process, and a variable of that name hides it."""
    env = {"REGION": "eu"}
    assert render("{{ env.REGION | upper }}{{ env.PATH }}", {}, env=env) == "EU"
    assert render("{{ env }}", {"env": "mine"}, env=env) == "mine"


def test_filters_of_the_suite_take_precedence() -> None:
    """They get the value and their arguments."""

    def shout(text: str, mark: str = "!") -> str:
        return text.upper() + mark

    filters: dict[str, Any] = {"shout": shout, "trim": lambda _text: "own"}
    assert render(
        "{{ a | shout }} {{ a | shout('?') }} {{ a | trim }}", {"a": "x"}, filters=filters
    ) == ("X! X? own")


def test_templates_can_be_disabled() -> None:
    """Texts stay unchanged; a prompt that is JSON is still reformatted."""
    assert render("{{ a }} {% x", {"a": "1"}, enabled=False) == "{{ a }} {% x"
    assert render('["{{ a }}"]', {"a": "1"}, enabled=False) == '[\n  "{{ a }}"\n]'
    assert Templates(enabled=False).syntax_error("{% if %}") is None


def test_json_can_be_treated_as_text() -> None:
    """Then values are not escaped, and nothing is indented."""
    assert render('{"a": "{{ a }}"}', {"a": 'x"y'}, json_aware=False) == '{"a": "x"y"}'


def test_sc_11_a_prompt_of_json_stays_json() -> None:
    """Values are escaped, keys are not rendered, variables that are templates are."""
    prompt = '{"{{ a }}": ["{{ a }}", "{{ b }}", 1.0, null, {}]}'
    assert render(prompt, {"a": 'x"y\n\n', "b": "{{ 1 + 1 }}"}) == (
        '{\n  "{{ a }}": [\n    "x\\"y\\n",\n    "2",\n    1,\n    null,\n    {}\n  ]\n}'
    )


@pytest.mark.parametrize("text", ['{"a":  "{{ a"}', '["{% if %}"]', '["{{ a | nofilter }}"]'])
def test_json_with_an_invalid_template_is_a_text(text: str) -> None:
    """It is rendered as one, which may fail in turn."""
    if is_template(text):
        with pytest.raises(TemplateError, match=r"^not a template: "):
            render(text, {"a": "x"})
    else:
        assert render(text, {"a": "x"}) == text


def test_a_variable_that_is_not_a_template_is_an_error_only_in_a_text() -> None:
    """JSON gets it unchanged; the error of a text names it."""
    broken = {"a": "{% if %}"}
    assert render('["{{ a }}"]', broken) == '[\n  "{% if %}"\n]'
    with pytest.raises(TemplateError, match=r'^the variable "a": not a template: line 1: '):
        render("{{ a }}", broken)
    assert Templates().render("{{ a }}", broken) == "{% if %}"


def test_a_variable_that_exceeds_a_limit_is_refused_everywhere() -> None:
    """It would be rendered there, so it must not stay unchanged."""
    for text in ("{{ a }}", '["{{ a }}"]'):
        with pytest.raises(TemplateError, match="more than 1000000 steps"):
            render(text, {"a": "{% set x = range(2000000) %}"})


@pytest.mark.parametrize(
    ("variables", "kept"),
    [
        ({"a": "x\n\n", "b": 5, "c": ["y\n"]}, {"a": "x\n", "b": 5, "c": ["y\n"]}),
        ({"a": "{{ b }}{{b}}{{ c }}", "b": "1", "c": "2"}, {"a": "112", "b": "1", "c": "2"}),
        ({"a": "{{ b }}", "b": None}, {"a": "null", "b": None}),
        ({"a": "{{ b }}", "b": [1.0, {}]}, {"a": "1,[object Object]", "b": [1.0, {}]}),
        (
            {"a": "<{{ b }}>", "b": "$$|$`|$'|$1"},
            {"a": "<$|<|>|$1>", "b": "$$|$`|$'|$1"},
        ),
        ({"a": "{{ b | upper }}", "b": "x"}, {"a": "{{ b | upper }}", "b": "x"}),
        ({"a": "{{ nowhere }} {{ b }}", "b": "x"}, {"a": "{{ nowhere }} {{ b }}", "b": "x"}),
    ],
)
def test_assertions_see_variables_with_references_replaced(
    variables: dict[str, Any], kept: dict[str, Any]
) -> None:
    """One line feed is removed, plain references are replaced as text; nothing is rendered or mutated."""
    before = dict(variables)
    assert Templates().rendered_variables(variables) == kept
    assert variables == before


@pytest.mark.parametrize(
    ("length", "printed"), [(5, "end"), (6, "end"), (7, "end"), (70, "{{ v64 }}")]
)
def test_sc_10_chains_of_variables_are_followed_in_five_passes(length: int, printed: str) -> None:
    """The order of variables determines how far a pass gets; the rest is rendered once."""
    chain = {f"v{n}": f"{{{{ v{n + 1} }}}}" for n in range(length)} | {f"v{length}": "end"}
    assert render("{{ v0 }}", chain) == printed


@pytest.mark.parametrize(
    ("variables", "printed"),
    [
        ({"a": "{{ who | default('you') }}"}, "{{ who | default('you') }}"),
        ({"a": "{{ b | upper }}", "b": "x"}, "X"),
        ({"a": "{{ b.c }}", "b": {"c": "{{ d }}"}, "d": "e"}, "{{ d }}"),
        ({"a": "{% raw %}{{ b | upper }}{% endraw %}", "b": "x"}, "{{ b | upper }}"),
        ({"a": "{% for x in l %}{{ x }},{% endfor %}", "l": [1, 2]}, "1,2,"),
        ({"a": "{# {{ nope }} #}{{ env.X }}z"}, "z"),
        ({"a": "open {{ b", "b": "x"}, "open {{ b"),
    ],
)
def test_variables_that_are_templates_are_rendered_once(
    variables: dict[str, Any], printed: str
) -> None:
    """All variables that one seems to use must be defined; a printed variable is not a template."""
    assert render("{{ a }}", variables) == printed


def test_the_expansion_of_a_variable_that_doubles_itself_ends() -> None:
    """It grows in five passes, and not more."""
    doubled = Templates().rendered_variables({"a": "{{ a }}{{ a }}"})
    assert doubled == {"a": "{{ a }}" * 33}


def test_fill_uses_variables_unchanged() -> None:
    """Assertions use it, whose variables have been resolved before."""
    assert Templates().fill("{{ a }}|{{ b }}", {"a": "x\n", "b": "{{ a }}"}) == "x\n|{{ a }}"


def test_other_values_print_as_in_python() -> None:
    """A suite created in Python may contain any value; nunjucks does not define them."""
    day = date(2024, 1, 31)
    assert render("{{ day }} {{ [day] }} {{ day.year }}|{{ [day] | dump }}", {"day": day}) == (
        '2024-01-31 2024-01-31 |["2024-01-31"]'
    )


def test_a_text_is_compiled_once_and_rendered_often() -> None:
    """Renderings do not affect each other."""
    templates = Templates()
    text = "{% set x = (x | default(0)) + 1 %}{{ x }}{{ name }}"
    assert [templates.render(text, {"name": name}) for name in "ab"] == ["1a", "1b"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("{{ a }} {{ b.c[d] }} {{ e | default(g) }}", "a b d e g"),
        ("{% for a in b %}{{ a }}{{ loop.index }}{{ c }}{% else %}{{ d }}{% endfor %}", "b c d"),
        ("{% set a = b %}{{ a }}{% if c %}{% set d = 1 %}{% endif %}{{ d }}", "b c d"),
        ("{% macro m(a, b=c) %}{{ a }}{{ d }}{% endmacro %}{{ m(e) }}", "c d e"),
        ("{% raw %}{{ a }}{% endraw %}{# {{ b }} #}{{ 'c' }}", ""),
        ("{{ env.HOME }} {{ range(a) }} {{ self }}", "a env range self"),
        ("{{ a is defined and b == 'x' ~ c }}", "a b c"),
        ("{{ a.length }}{{ b['c'] }}{{ {d: e}['d'] }}", "a b e"),
        ("{% block f %}{{ a }}{% set b = 1 %}{% endblock %}{{ b }}", "a b"),
        ("{% switch a %}{% case b %}{{ c }}{% default %}{{ d }}{% endswitch %}", "a b c d"),
        ("{% for k, v in a %}{{ k }}{{ v }}{% endfor %}{{ k }}", "a k"),
        (
            "{% call m(a) %}{{ b }}{% endcall %}{% filter replace(c, d) %}{{ e }}{% endfilter %}",
            "a b c d e m",
        ),
        ("{% set a %}{{ b }}{% endset %}{{ a }}{% if a %}{{ x", ""),
    ],
)
def test_references_are_the_variables_that_a_text_may_read(text: str, names: str) -> None:
    """Uses in loops and macros are included; its own variables are not; an invalid text has none."""
    assert Templates().references(text) == set(names.split())

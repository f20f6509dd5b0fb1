"""Templates that are refused at load, templates that are refused when rendered, and bounds of rendering."""

from collections.abc import Mapping
from typing import Any

import pytest

from trioeval.errors import TemplateError
from trioeval.templates import Templates

VARIABLES: Mapping[str, Any] = {
    "name": "Bob",
    "n": 5,
    "none": None,
    "list": [1, 2],
    "empty": [],
    "user": {"id": 7},
    "nothing": {},
}

AT_LOAD: list[tuple[str, str]] = [
    (
        "a\n{% for k, v in user %}{% endfor %}",
        "`for` with several names, over what may be an object at line 2",
    ),
    (
        "{% for k, v in list | groupby('k') %}{% endfor %}",
        "`for` with several names, over what may be an object",
    ),
    ("\n\n{{ list.length }}", "`.length` at line 3; write `x | length`"),
    ("{{ name.toUpperCase() }}", "`.toUpperCase()` at line 1; write `x | upper`"),
    ("{{ user.name.split(',')[0] }}", "`.split()` at line 1; use a filter"),
    ("{{ n === 5 }}", "`===` at line 1; write `==`"),
    ("{% if n !== 5 %}{% endif %}", "`!==` at line 1; write `!=`"),
    ("{{ 'a' + 1 }}", "text + another value at line 1; write `a ~ b`"),
    ("{{ 1 + 'a' }}", "text + another value at line 1"),
    ("{{ name | replace(r/o/g, 'x') }}", "a regular expression, `r/…/` at line 1"),
    ("{% include 'x.txt' %}", "`{% include %}` at line 1"),
    ("{% extends 'x.txt' %}", "`{% extends %}` at line 1"),
    ("{% import 'x.txt' as x %}", "`{% import %}` at line 1"),
    ("{% from 'x.txt' import x %}", "`{% from %}` at line 1"),
    ("{% block x %}{% endblock %}", "`{% block %}` at line 1"),
    (
        "{% switch n %}{% case 5 %}{% endswitch %}",
        "`{% switch %}` at line 1; write `if` and `elif`",
    ),
    ("{% asyncEach x in list %}{% endeach %}", "`{% asyncEach %}` at line 1; write `for`"),
    ("{% asyncAll x in list %}{% endall %}", "`{% asyncAll %}` at line 1; write `for`"),
    ("{% ifAsync n %}{% endif %}", "`{% ifAsync %}` at line 1; write `if`"),
    ("{{ True }}", "`True` as a name at line 1; write `true`"),
    ("{{ 1e3 }}", "`1e3` as a name at line 1; write the number out"),
    (
        "{{ not n == 5 }}",
        "`not` before an operator, which applies to its first operand only at line 1",
    ),
    ("{{ not n + 1 }}", "`not` before an operator"),
    ("{{ 1 < n < 9 }}", "chained comparisons at line 1; write `a < b and b < c`"),
    (
        "{{ 2 * n // 3 }}",
        "`//` next to another operator, which binds more tightly at line 1; put it in parentheses",
    ),
    ("{{ n // 2 % 3 }}", "`//` next to another operator"),
    (
        "{{ n + 1 is even }}",
        "`is` next to an operator, which binds more tightly at line 1; put the test in parentheses",
    ),
    ("{{ n is even == true }}", "`is` next to an operator, which binds more tightly at line 1"),
    ("{{ 'a' ~ n is even }}", "`is` next to an operator, which binds more tightly at line 1"),
    ("{{ (1, 2) }}", "values in parentheses, of which the last one counts at line 1"),
    ("{% set a, b = 1 %}", "`set` of several names, which all get one value at line 1"),
    ("{% set x %}{% set y = 1 %}{% endset %}", "`set` inside of a block whose text is captured"),
    (
        "{% filter upper %}{% set y = 1 %}{% endfilter %}",
        "`set` inside of a block whose text is captured",
    ),
    ("{% for x in list if x %}{% endfor %}", "a condition of a loop at line 1"),
    (
        "{% for x in list %}{{ loop.cycle('a') }}{% endfor %}",
        "`loop.cycle`, which is undefined at line 1",
    ),
    (
        "{{ name | default(value='x') }}",
        "an argument of `default` by name, which is an object at line 1",
    ),
    (
        "{{ list | selectattr('a', 'eq', 1) }}",
        "`selectattr` with a test, which is not looked at at line 1",
    ),
    ("{% raw %}{% endraw %}{% verbatim %}{% endverbatim %}", "`verbatim` beside `raw` at line 1"),
    (
        "{% for x in list %}{% macro m() %}{% endmacro %}{% endfor %}",
        "a macro inside of a loop at line 1",
    ),
    (
        "{% set a = 0 %}{% for x in list %}\n{% set a = x %}{% endfor %}{{ a }}",
        "`set` of a inside of a loop, which changes it outside at line 2",
    ),
    (
        "{% for x in list %}{% for y in list %}{% set x = y %}{% endfor %}{% endfor %}",
        "`set` of x inside of a loop",
    ),
    (
        "{% for x in list %}{% set a = (a or 0) + x %}{% endfor %}",
        "a, which `set` keeps for the next round",
    ),
    (
        "{% for x in list %}{% if x %}{% set a = 1 %}{% endif %}{{ a }}{% endfor %}",
        "a, which `set` keeps",
    ),
    (
        "{% for x in list %}{% if x %}{% set a = 1 %}{% elif n %}{% endif %}{{ a }}{% endfor %}",
        "a, which `set` keeps",
    ),
    (
        "{% for x in list %}{% for y in list %}{{ a }}{% endfor %}{% set a = 1 %}{% endfor %}",
        "a, which `set` keeps",
    ),
]


@pytest.mark.parametrize(("text", "what"), AT_LOAD, ids=[text for text, _ in AT_LOAD])
def test_sc_13_syntax_that_only_nunjucks_supports_is_refused_at_load(text: str, what: str) -> None:
    """The message has the line and an alternative; rendering gives the same one."""
    templates = Templates()
    error = templates.syntax_error(text)
    assert error is not None
    assert error.startswith(f"nunjucks-only: {what}")
    assert "; " in error
    with pytest.raises(TemplateError) as caught:
        templates.render_prompt(text, VARIABLES)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    "text",
    [
        "{% for k, v in user | dictsort %}{% endfor %}{% for a, b in [[1, 2]] %}{% endfor %}",
        "{{ user['length'] }}{% for x in list %}{{ loop.length }}{% endfor %}",
        "{{ not (n == 5) }}{{ not n in list }}{{ not n is odd }}{{ (2 * n) // 3 }}{{ 2 // n * 3 }}",
        "{% for x in list %}{% set a = x %}{{ a }}{% set b %}{{ a }}{% endset %}{{ b }}{% endfor %}{{ a }}",
        "{% for x in list %}{% if x %}{% set a = 1 %}{% else %}{% set a = 2 %}{% endif %}{{ a }}{% endfor %}",
        "{% for x in list %}{% set a = x %}{% endfor %}{% for x in list %}{% set a = 1 %}{{ a }}{% endfor %}",
        "{% for x in list %}{% set a = x %}{% for y in list %}{{ a }}{% endfor %}{% endfor %}",
        "{% set a = 1 %}{% if n %}{% set a = 2 %}{% endif %}{{ a }}",
        "{{ n + (n is odd) }}{{ -n is odd and n is even or not n is odd }}{{ (n + 1) is odd }}",
        "{{ 'r/x' }}{{ '===' }}{# {{ a.length }} #}{% raw %}{{ a === b }}{% endraw %}",
    ],
)
def test_syntax_with_the_same_meaning_in_both_is_accepted(text: str) -> None:
    """Texts that only resemble refused ones are accepted as well."""
    assert Templates().syntax_error(text) is None


WHEN_RENDERED: list[tuple[str, str]] = [
    (
        "{% if empty %}{% endif %}",
        "an empty list as a condition, which counts as true at line 1; write `x | length`",
    ),
    ("\n{{ 'a' if nothing }}", "an empty object as a condition, which counts as true at line 2"),
    ("{{ empty or 1 }}", "an empty list as a condition"),
    ("{{ not empty }}", "an empty list as a condition"),
    ("{% if 0 / 0 %}{% endif %}", "NaN as a condition"),
    ("{{ '5' == n }}", '"5" == 5 at line 1'),
    ("{{ [5] == n }}", "[5] == 5 at line 1"),
    ("{{ list == [1, 2] }}", "`==` of two lists or objects, which are never equal at line 1"),
    ("{{ n < '9' }}", 'an order of values of different types, 5 and "9" at line 1'),
    ("{{ ['a', 1] | sort }}", "an order of values of different types"),
    ("{{ name + n }}", 'text + another value, "Bob" + 5 at line 1; write `a ~ b`'),
    ("{{ n + missing }}", "`+` with a value that is not a number, 5 + undefined at line 1"),
    ("{{ '5' * n }}", '`*` with a value that is not a number, "5" * 5 at line 1'),
    ("{{ -name }}", "`*` with a value that is not a number"),
    ("{{ none + 1 }}", "`+` with a value that is not a number, null + 1"),
    ("{{ list['length'] }}", "`.length` at line 1; write `x | length`"),
    ("{{ name.trim }}", "`.trim` at line 1; write `x | trim`"),
    (
        "{% for k, v in user | default({}) %}{% endfor %}",
        "`for` over the pairs of an object at line 1",
    ),
]


@pytest.mark.parametrize(("text", "what"), WHEN_RENDERED, ids=[text for text, _ in WHEN_RENDERED])
def test_errors_that_depend_on_values_are_raised_when_rendered(text: str, what: str) -> None:
    """The message is the same inside of JSON, where no fallback is tried."""
    templates = Templates()
    assert templates.syntax_error(text) is None
    with pytest.raises(TemplateError) as caught:
        templates.render_prompt(text, VARIABLES)
    assert str(caught.value).startswith(f"nunjucks-only: {what}")
    if '"' not in text and "\n" not in text:
        with pytest.raises(TemplateError, match=r"^nunjucks-only: "):
            templates.render_prompt(f'["{text}"]', VARIABLES)


FAULTS: list[tuple[str, str]] = [
    (
        "{% if x %}\n",
        (
            "not a template: line 1: Unexpected end of template. Jinja was looking for the following tags: "
            "'elif' or 'else' or 'endif'. The innermost block that needs to be closed is 'if'."
        ),
    ),
    ("a\n{{ name | nofilter }}", "not a template: line 2: No filter named 'nofilter'."),
    ("{{ name is notest }}", "not a template: line 1: No test named 'notest'."),
    ("a\n\n{{ }}", "not a template: line 3: Expected an expression, got 'end of print statement'"),
    ("{{ list | random }}", "not a template: line 1: No filter named 'random'."),
    ("{{ a && b }}", "not a template: line 1: unexpected char '&' at 5; write `and`"),
    ("{{ a || b }}", "not a template: line 1: expected token 'name', got '|'; write `or` for `||`"),
    ("{{ !a }}", "not a template: line 1: unexpected char '!' at 3; write `not`"),
    (
        "{{ a ? 1 : 2 }}",
        "not a template: line 1: unexpected char '?' at 5; write `a if condition else b`",
    ),
    ("{{ " + "(" * 1000 + ")" * 1000 + " }}", "not a template: nested too deeply"),
    ("{% for x in list %}" * 40 + "{% endfor %}" * 40, "not a template: nested too deeply"),
]


@pytest.mark.parametrize(("text", "message"), FAULTS, ids=[text[:40] for text, _ in FAULTS])
def test_an_invalid_template_is_reported_with_the_reason(text: str, message: str) -> None:
    """The message is the same at load and when it is rendered."""
    assert Templates().syntax_error(text) == message
    with pytest.raises(TemplateError) as caught:
        Templates().render(text, VARIABLES)
    assert str(caught.value) == message


INSIDE: list[tuple[str, str]] = [
    ("{{ name.__class__ }}{{ name['__class__'] }}{{ list.append }}{{ user.__dict__ }}", ""),
    ("{{ range.__globals__ }}{{ cycler('a').__class__ }}{{ env.__class__ }}{{ user.items }}", ""),
    ("{{ '{0.__class__}'.format(name) }}", '"format" is not defined in "{0.__class__}"'),
    (
        "{{ cycler('a').__init__() }}",
        "the template does what the sandbox refuses: access to attribute",
    ),
    ("{{ missing() }}", "{{ missing }} is not defined; the test has "),
    (
        "{{ name() }}",
        'the template cannot be rendered: "Bob" is not a function and cannot be called',
    ),
    ("{{ list.append(1) }}", '"append" is not defined in [1,2]'),
    ("{{ env.update({}) }}", "{{ env.update }} is not defined; the test has "),
    ("{{ range }}", "the template cannot be rendered: a function is printed, range_: call it"),
    ("{{ lipsum() }}{{ dict() }}", '{{ lipsum }} is not defined; did you mean "list"?'),
    (
        "{{ 'x' in n }}",
        "the template cannot be rendered: `in` requires a text, a list or an object on its right, got 5",
    ),
    ("{{ '{' | load }}", "the template cannot be rendered: `load` requires JSON: line 1, column 2"),
    (
        "{{ missing | trim }}",
        "the template cannot be rendered: `trim` requires a text, got undefined",
    ),
    (
        "{{ n | upper }}",
        "the template cannot be rendered: `upper` requires a text, got 5; `x | string` makes one",
    ),
    (
        "{{ name | join }}",
        'the template cannot be rendered: `join` needs a list, got "Bob"; `x | list` makes one',
    ),
    (
        "{{ missing | first }}",
        "the template cannot be rendered: `first` needs a list, got undefined",
    ),
    (
        "{{ list | dictsort }}",
        "the template cannot be rendered: `dictsort` needs an object, got [1,2]",
    ),
    (
        "{{ user | dictsort(false, 'x') }}",
        'the template cannot be rendered: `dictsort` sorts by "key" or "value"',
    ),
    ("{{ list | select('nope') }}", 'the template cannot be rendered: unknown test "nope"'),
    ("{{ range(1 / 0) }}", "the template cannot be rendered: `range` needs numbers"),
    (
        "{{ none | string }}",
        "the template cannot be rendered: `string` requires a value, got nothing",
    ),
    (
        "{{ none | urlencode }}",
        "the template cannot be rendered: `urlencode` requires a text, an object or pairs",
    ),
    ("{{ list | items }}", "the template cannot be rendered: `items` needs an object, got [1,2]"),
]


@pytest.mark.parametrize(("text", "message"), INSIDE, ids=[text[:40] for text, _ in INSIDE])
def test_python_objects_are_not_accessible(text: str, message: str) -> None:
    """Data has members and no methods; calling or accessing anything else is an error."""
    if not message:
        assert Templates(env={"A": "b"}).render(text, VARIABLES) == ""
        return
    with pytest.raises(TemplateError) as caught:
        Templates(env={"A": "b"}).render(text, VARIABLES)
    assert message in str(caught.value)


STEPS = "the template took more than 1000000 steps"
PRINTED = "the template printed more than 10000000 characters"
DOUBLED = "{% set a = a ~ a %}" * 40
ENDLESS: list[tuple[str, str]] = [
    ("{% for i in range(10**9) %}{% endfor %}", STEPS),
    ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", STEPS),
    ("{% set l = range(1000) %}" + "{% for i in l %}" * 4 + "{% endfor %}" * 4, STEPS),
    (
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(30) }}",
        STEPS,
    ),
    (
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "a call is nested more than 100 levels deep",
    ),
    ("{% set a = 'xx' %}" + DOUBLED + "{{ a }}", STEPS),
    ("{% set a = 'xx' %}" + DOUBLED.replace("~", "+") + "{{ a }}", PRINTED),
    ("{% set a %}{{ name }}{% endset %}" + "{% set a %}{{ a }}{{ a }}{% endset %}" * 40, PRINTED),
    ("{% set l = [1] %}" + "{% set l = [l, l] %}" * 40 + "{{ l }}", STEPS),
    ("{% set l = [1] %}" + "{% set l = [l, l] %}" * 40 + "{{ l | dump }}", STEPS),
    ("{% set a = name | center(900000) %}{% for i in range(50) %}{{ a }}{% endfor %}", PRINTED),
    ("{{ name | center(10**12) }}", PRINTED),
    ("{{ name | indent(10**12, true) }}", PRINTED),
    ("{{ list | batch(10**12, 'x') }}", STEPS),
    ("{{ list | slice(10**12) }}", STEPS),
    ("{{ list | join('x' | center(9000000)) | replace('', 'yyyy') }}", PRINTED),
    ("{% set a = 'x' | center(9000) %}{{ a | replace(' ', a) }}", PRINTED),
    ("{{ '1' | replace('1', '1' | center(900000) | replace(' ', '1')) | int }}", STEPS),
]


@pytest.mark.slow
@pytest.mark.parametrize(("text", "message"), ENDLESS, ids=[text[:40] for text, _ in ENDLESS])
def test_endless_templates_are_stopped(text: str, message: str) -> None:
    """Bounds are steps, printed characters, and the size of a value."""
    with pytest.raises(TemplateError) as caught:
        Templates().render(text, VARIABLES)
    assert str(caught.value).startswith(message)


def test_numbers_are_unbounded() -> None:
    """They are numbers of JavaScript, so a power is cheap."""
    assert Templates().render("{{ 10 ** 10 ** 10 }} {{ -1 * 9 ** 999 }} {{ (-8) ** 0.5 }}", {}) == (
        "1e+100 -Infinity NaN"
    )


def test_growing_variables_are_stopped() -> None:
    """This also holds if they only refer to each other."""
    variables = {"a": "x" * 3_000_000, "b": "{{ a }}" * 5}
    with pytest.raises(TemplateError, match=f"^{PRINTED}$"):
        Templates().rendered_variables(variables)

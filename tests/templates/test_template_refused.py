"""Templates that are refused at load, templates that fail when rendered, and what no template can reach."""

import contextlib
import json
import threading
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
    "user": {"id": 7},
}

FAULTS: list[tuple[str, str]] = [
    ("{% if x %}\n", "line 2: expected elif, else, or endif, got end of file"),
    ("a\n{{ name | nofilter }}", "line 2: No filter named 'nofilter'."),
    ("{{ name is notest }}", "line 1: No test named 'notest'."),
    ("a\n\n{{ }}", "line 3: unexpected token: }}"),
    ("{{ list | random }}", "line 1: No filter named 'random'."),
    ("{{ list | map('x') }}", "line 1: No filter named 'map'."),
    ("{{ a && b }}", "line 1: expected variable end, got &&; write `and`"),
    ("{{ !a }}", "line 1: unexpected token: !; write `not`"),
    ("{{ a ? 1 : 2 }}", "line 1: expected variable end, got ?; write `a if condition else b`"),
    ("a\n{{ a b }}", "line 2: expected variable end, got b"),
    ("{{ b }} #} {{ a }}\n#}", "line 1: unexpected end of comment"),
    ("\n{% nothing %}", "line 2: unknown block tag: nothing"),
    ("{% include 'x.txt' %}", "line 1: `{% include %}` is not supported; templates read no files: write its"),
    ("\n{% extends 'x.txt' %}", "line 2: `{% extends %}` is not supported; templates read no files"),
    ("{% import 'x.txt' as x %}", "line 1: `{% import %}` is not supported; templates read no files"),
    ("{% from 'x.txt' import x %}", "line 1: `{% from %}` is not supported; templates read no files"),
    ("{% asyncEach x in list %}{% endeach %}", "line 1: `{% asyncEach %}` is not supported; write `for`"),
    ("{% asyncAll x in list %}{% endall %}", "line 1: `{% asyncAll %}` is not supported; write `for`"),
    ("{% ifAsync n %}{% endif %}", "line 1: `{% ifAsync %}` is not supported; write `if`"),
    ("{{ " + "(" * 9000 + ")" * 9000 + " }}", "nested too deeply"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), FAULTS, ids=[text[:40] for text, _ in FAULTS])
def test_an_invalid_template_is_reported_with_line_and_reason(text: str, message: str) -> None:
    """The message is the same at load and when it is rendered."""
    found = Templates().syntax_error(text)
    assert found is not None
    assert found.startswith(f"not a template: {message}")
    with pytest.raises(TemplateError) as caught:
        Templates().render(text, VARIABLES)
    assert str(caught.value) == found


FAILING: list[tuple[str, str]] = [
    ("{{ missing() }}", "line 1: Unable to call `missing`, which is undefined or falsey"),
    ("\n{{ name() }}", "line 2: Unable to call `name`, which is not a function"),
    ("{{ range }}", "line 1: a function is printed: call it"),
    ("{{ name.trim }}", "line 1: a function is printed, trim: call it"),
    ("{{ 'x' in n }}", 'line 1: Cannot use "in" operator to search for "x" in unexpected types.'),
    ("\n{{ '{' | load }}", "line 2: SyntaxError: "),
    ("{{ n | upper }}", "line 1: TypeError: not a function"),
    ("{{ user | dictsort(false, 'x') }}", "line 1: dictsort filter: You can only sort by either"),
    ("{{ list | select('nope') }}", "line 1: test not found: nope"),
    ("{{ super() }}", "line 1: Unable to call `super`, which is undefined or falsey"),
    ("{% block a %}{{ super() }}{% endblock %}", 'line 1: no super block available for "a"'),
    ("{{ '(' | replace(r/(/, '') }}", "line 1: SyntaxError: "),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), FAILING, ids=[text for text, _ in FAILING])
def test_a_template_that_fails_is_reported_with_line_and_reason(text: str, message: str) -> None:
    """Its syntax is valid: it depends on values."""
    with pytest.raises(TemplateError) as caught:
        Templates().render(text, VARIABLES)
    assert str(caught.value).partition(": ")[2].startswith(message)


ESCAPES = [
    "{{ name.constructor.constructor('return globalThis')() }}",
    "{{ name['con' + 'structor'] }}",
    "{{ name[['constructor']] }}",
    "{{ list.__proto__ }}{{ user['__proto__'] }}{{ range.prototype }}{{ range.constructor }}",
    "{{ constructor }}{{ __proto__ }}{{ toString }}{{ hasOwnProperty }}{{ globalThis }}{{ Function }}",
    "{{ user.__defineGetter__ }}{{ user.__lookupGetter__ }}{{ cycler.caller }}{{ cycler.arguments }}",
    "{% set s = 'constructor' %}{{ name[s] }}{{ list.map(name.at)[s] }}",
    "{{ require }}{{ process }}{{ console }}{{ nunjucks }}{{ std }}{{ os }}",
    "{{ context }}{{ frame }}{{ env.globals }}",
]
QUOTES = [
    '{{ a"&Function`\\x61`&"b }}',
    "{% for a, 'b' in list %}{% endfor %}",
    "{% set 'a\"' = 1 %}",
    "{% macro m(a;b) %}{% endmacro %}",
    "{% macro m('a\"'=1) %}{% endmacro %}",
    "{% block a;b %}{% endblock %}",
    "{{ 1 is 'x\")' }}",
    "{{ 1 | a`b` }}",
    "{{ a\\u0061 }}",
]


@pytest.mark.parametrize("text", ESCAPES)
def test_nothing_but_data_is_reachable(text: str) -> None:
    """A template reaches no function that compiles code, no global object, and no member of the engine."""
    try:
        assert Templates(env={"A": "b"}).render(text, VARIABLES) == ""
    except TemplateError as error:
        assert "undefined or falsey" in str(error)  # noqa: PT017 - either is fine


@pytest.mark.parametrize("text", QUOTES)
def test_a_name_cannot_become_code(text: str) -> None:
    """The engine writes names into JavaScript as they are, so anything but a name is refused at load."""
    assert Templates().syntax_error(text) is not None


def test_a_called_expression_cannot_become_code() -> None:
    """The engine also writes the text of what is called into JavaScript."""
    with pytest.raises(TemplateError, match="Unable to call"):
        Templates().render("{{ user['a\\\\\"+globalThis+\"']() }}", VARIABLES)
    with pytest.raises(TemplateError, match="Unable to call"):
        Templates().render("{{ user['a\\n\\\\'].b['c\"']() }}", VARIABLES)


def test_data_may_have_the_names_that_are_closed() -> None:
    """Only the members that objects inherit are closed."""
    data = json.loads(
        '{"constructor": "ACME", "__proto__": {"a": 1}, "prototype": [2], "toString": 3}'
    )
    assert Templates().render(
        "{{ v.constructor }} {{ v.__proto__.a }} {{ v.prototype[0] }} {{ v.a }}", {"v": data}
    ) == ("ACME 1 2 ")


POLLUTING = [
    "{% set x = list.push(3) %}{% set x = user.toString.call.call(range) %}",
    "{{ [].concat.name }}{% set y = env.__proto__ %}{% set __proto__ = user %}{% set constructor = 1 %}",
    "{% for k, v in {'__proto__': {'id': 5} } %}{{ k }}{% endfor %}{% set toString = 1 %}",
    "{% set x = list.sort(cycler) %}{% set x = env.A %}{% set range = 1 %}{% set env = 2 %}",
]


@pytest.mark.parametrize("text", POLLUTING)
def test_no_template_changes_what_another_one_does(text: str) -> None:
    """This holds for the variables, the globals and the methods of all values."""
    templates = Templates(env={"A": "b"})
    check = "{{ env.A }}{{ range(2) }}{{ list }}{{ user.id }}{{ {}.id }}{{ [3, 1].sort() }}{{ '' + {} }}"
    before = templates.render(check, VARIABLES)
    with contextlib.suppress(TemplateError):
        templates.render(text, VARIABLES)
    assert templates.render(check, VARIABLES) == before == "b0,11,271,3[object Object]"
    assert VARIABLES["list"] == [1, 2]


STEPS = "the template took more than 1000000 steps"
PRINTED = "the template printed more than 10000000 characters"
SECONDS = "the template took longer than 2 seconds"
MEMORY = "the template needed more than 256 MB of memory"
DEEP = "the template or its values are nested too deeply"
DOUBLED = "{% set a = a ~ a %}" * 40
ENDLESS: list[tuple[str, str]] = [
    ("{% for i in range(10**9) %}{% endfor %}", STEPS),
    ("{{ range(0, 1 / 0) }}", STEPS),
    ("{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}", ""),
    ("{% set l = range(1000) %}" + "{% for i in l %}" * 4 + "{% endfor %}" * 4, ""),
    ("{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(30) }}", ""),
    ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", DEEP),
    ("{% set a = 'xx' %}" + DOUBLED + "{{ a }}", PRINTED),
    ("{% set a %}{{ name }}{% endset %}" + "{% set a %}{{ a }}{{ a }}{% endset %}" * 40, PRINTED),
    ("{% set a = 'x'.repeat(900000) %}{% for i in range(50) %}{{ a }}{% endfor %}", PRINTED),
    ("{{ name.padEnd(10**12) }}", PRINTED),
    ("{% set l = [1] %}" + "{% set l = [l, l] %}" * 40 + "{{ l }}", ""),
    ("{{ name | center(10**12) }}", ""),
    ("{{ list | batch(10**12, 'x') }}", ""),
    (
        ("{% set x = [] %}{% for i in range(400000) %}"
        "{% set y = x.push('x'.repeat(1000) + i) %}{% endfor %}"),
        "",
    ),
    ("{{ ('a'.repeat(40) + 'b') | replace(r/(a+)+$/, '') }}", SECONDS),
    ("{{ 'x'.repeat(300000000) | length }}", MEMORY),
    ("{{ 'x'.repeat(9000000).split('').sort() | length }}", ""),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("text", "message"), ENDLESS, ids=[text[:40] for text, _ in ENDLESS])
def test_endless_templates_are_stopped(text: str, message: str) -> None:
    """A bound ends each of them, in all forms of a prompt; the next text is rendered as always.

    On a busy machine the bound of time may come first.
    """
    templates = Templates()
    for prompt in (text, json.dumps([text])):
        with pytest.raises(TemplateError) as caught:
            templates.render_prompt(prompt, VARIABLES)
        assert str(caught.value) in (
            {message} if message else {STEPS, PRINTED, SECONDS, MEMORY, DEEP}
        )
        assert templates.render("{% for x in list %}{{ x + n }},{% endfor %}", VARIABLES) == "6,7,"


def test_growing_variables_are_stopped() -> None:
    """This also holds if they only refer to each other."""
    variables = {"a": "x" * 3_000_000, "b": "{{ a }}" * 5}
    with pytest.raises(TemplateError, match=f"^{PRINTED}$"):
        Templates().rendered_variables(variables)


def test_each_thread_has_its_own_engine() -> None:
    """The engine must not be used by two threads."""
    templates = Templates()
    text = "{% for x in list %}{{ x * n }},{% endfor %}"
    made: list[str] = []
    threads = [
        threading.Thread(target=lambda: made.append(templates.render(text, VARIABLES)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    made.append(templates.render(text, VARIABLES))
    for thread in threads:
        thread.join()
    assert made == ["5,10,"] * 5

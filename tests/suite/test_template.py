from collections.abc import Mapping
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import TemplateError
from trioeval.suite import Templates
from trioeval.suite.template import is_template

VARIABLES: Mapping[str, Any] = {
    "name": "Bob",
    "one": 1.0,
    "tiny": 1e-7,
    "yes": True,
    "nothing": None,
    "list": [1, 2.0, None, ["x", True]],
    "maps": [{"k": "a"}, {"k": 1.0}],
    "user": {"id": 7, "items": "two", "address": {"city": "Bonn"}},
    "line": "x\n",
    "lines": "x\n\n",
    "odd": "<&> ü/?'",
}


def render(text: str, variables: Mapping[str, Any] = VARIABLES) -> str:
    return Templates().render(text, variables)


def refused(text: str, variables: Mapping[str, Any] = VARIABLES) -> str:
    with pytest.raises(TemplateError) as caught:
        render(text, variables)
    return str(caught.value)


PRINTED: list[tuple[str, str]] = [
    ("hi {{ name }}\n", "hi Bob\n"),
    ("{{ yes }} {{ not yes }} {{ nothing }}|", "true false |"),
    ("{{ one }} {{ 1.5 }} {{ tiny }} {{ 10 / 4 }} {{ 4 / 2 }}", "1 1.5 1e-7 2.5 2"),
    ("{{ list }} {{ [] }}|", "1,2,,x,true |"),
    ("{{ user }} {{ maps }}", "[object Object] [object Object],[object Object]"),
    ("{{ line }}|{{ lines }}|", "x|x\n|"),
    ("{{ user.id }} {{ user['id'] }} {{ user.address.city }} {{ list[3][0] }}", "7 7 Bonn x"),
    ("{{ user.items }}", "two"),
    ("{{ list | dump }}", '[1,2,null,["x",true]]'),
    ("{{ odd | dump }} {{ user.address | dump(2) }}", '"<&> ü/?\'" {\n  "city": "Bonn"\n}'),
    ("{{ [1e-7, 2.5, 1e300] | dump }}", "[1e-7,2.5,1e+300]"),
    ("{{ list | join('-') }} {{ maps | join('+', 'k') }}", "1-2--x,true a+1"),
    ("{{ list | join }} {{ name | join('.') }}", "12x,true B.o.b"),
    (
        "{{ list | reverse }} {{ range(3) }} {{ maps | map(attribute='k') }}",
        "x,true,,2,1 0,1,2 a,1",
    ),
    ("{% for k, v in user.address | items %}{{ k }}={{ v }}{% endfor %}", "city=Bonn"),
    ("{{ odd | urlencode }}", "%3C%26%3E%20%C3%BC%2F%3F'"),
    ("{{ {'a b': one, 'c': yes} | urlencode }}", "a%20b=1&c=true"),
    ("{{ user.address | tojson }}", '{"city": "Bonn"}'),
    ("{{ name | upper }} {{ name ~ 1 }} {{ name | length }}", "BOB Bob1 3"),
    ("{% raw %}{{ name }} {% x %}{% endraw %} {{ name }}", "{{ name }} {% x %} Bob"),
    ("{#- note -#} {{ name }}", "Bob"),
    ("{% set x = 5 %}{{ x }}{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(name) }}", "5<Bob>"),
    ("{% for x in list %}{{ loop.index }}{{ x }};{% endfor %}", "11;22;3;4x,true;"),
]


@pytest.mark.parametrize(("text", "printed"), PRINTED, ids=[text for text, _ in PRINTED])
def test_sc_12_values_print_as_in_nunjucks(text: str, printed: str) -> None:
    """Booleans, null, numbers, lists and objects; keys before methods; one newline off the end."""
    assert render(text) == printed


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "{ name }", "}} name {{"[:7], '{"name": "x"}', "a } b %} c #}"),
        *("{{ name", "{{ name }} {{ x", "a {{ x\n {{ name }}", "{% if name", "{# never {{ name }}"),
        *("{{ name }} in {#section}", "{{ name\n}}"),
    ],
)
def test_sc_14_what_is_no_template_stays_as_it_is(text: str) -> None:
    """Texts without marks, and texts with a line on which a mark opens and does not close."""
    assert render(text) == text
    assert not is_template(text)
    assert Templates().syntax_error(text) is None


def test_a_raw_block_is_a_template_also_with_open_marks() -> None:
    """Who writes one knows what marks are."""
    assert render("{%- raw %}{{ x\n{% endraw %} {{ name }}") == "{{ x\n Bob"


NAMES = "line, lines, list, maps, name, nothing, odd, one, tiny, user, yes"
USES = [
    *("{{ missing }}", "{{ missing.attr.more }}", "{{ missing['a'].b }}", "{{ missing() }}"),
    *("{{ missing.a() }}", "{{ missing | upper }}", "{{ name ~ missing }}", "{{ missing + 1 }}"),
    *("{{ 1 - missing }}", "{{ -missing }}", "{{ missing < 1 }}", "{{ 1 in missing }}"),
    *("{{ [missing] }}", "{{ (missing, 1) }}", "{% for x in missing %}{% endfor %}"),
    *("{% set x = missing %}{{ x }}", "{{ missing and name }}", "{{ '%s' | format(missing) }}"),
    *(
        "{{ {'a': missing} | dump }}",
        "{{ list | join(missing) }}",
        "{{ name | replace('B', new=missing) }}",
    ),
    *(
        f"{{{{ missing | {name} }}}}"
        for name in (
            *("join(',')", "list", "sort", "first", "last", "length", "count", "reverse", "sum"),
            *("int", "float", "string", "trim", "lower", "title", "capitalize", "escape", "e"),
            *("replace('a', 'b')", "tojson", "dump", "items", "unique", "min", "max", "abs"),
            *("map('upper')", "batch(2)", "wordcount", "striptags", "truncate(3)", "round"),
            *(
                "sum",
                "map(attribute='x')",
                "reject",
                "selectattr('x')",
                "rejectattr('x')",
                "slice(2)",
            ),
            *(
                "attr('x')",
                "filesizeformat",
                "forceescape",
                "format",
                "wordwrap",
                "xmlattr",
                "urlize",
            ),
            *("dictsort", "groupby('x')", "indent", "center(3)", "select", "urlencode", "safe"),
        )
    ),
]


@pytest.mark.parametrize("text", USES)
def test_using_an_undefined_variable_is_an_error_that_names_it(text: str) -> None:
    """By itself, by a member, in an expression and in any filter; nothing prints an empty hole."""
    assert refused(text) == f"{{{{ missing }}}} is not defined; the test has {NAMES}"


def test_the_message_suggests_what_was_meant() -> None:
    """Or says that there is nothing."""
    assert refused("{{ nme }}") == (
        f'{{{{ nme }}}} is not defined; the test has {NAMES}; did you mean "name"?'
    )
    assert refused("{{ x }}", {}) == "{{ x }} is not defined; the test has no variables"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{{ user.naem }}",
            '"naem" is not defined in {"id":7,"items":"two","address":{"city":"Bonn"}}',
        ),
        (
            "{{ user.address.cty.more }}",
            '"cty" is not defined in {"city":"Bonn"}; did you mean "city"?',
        ),
        ("{{ maps[5] }}", '5 is not defined in [{"k":"a"},{"k":1}]'),
        ("{{ name.first | upper }}", '"first" is not defined in "Bob"'),
        ("{{ [] | first }}", "No first item, sequence was empty."),
    ],
)
def test_an_undefined_member_is_told_with_what_it_was_looked_for_in(
    text: str, message: str
) -> None:
    """It is not a variable that is missing."""
    assert refused(text) == message


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("{% if missing %}a{% else %}b{% endif %}", "b"),
        ("{% if missing.a.b %}a{% else %}b{% endif %}", "b"),
        ("{% if not missing %}a{% endif %}", "a"),
        (
            "{{ missing is defined }} {{ missing.x is defined }} {{ name is defined }}",
            "false false true",
        ),
        ("{{ user.x is defined }} {{ user.x is undefined }}", "false true"),
        ("{{ missing is sequence }} {{ missing is mapping }}", "false false"),
        ("{{ missing == 1 }} {{ missing != 1 }} {{ missing in [1] }}", "false true false"),
        (
            "{{ missing | default('z') }} {{ missing.a | d('y') }} {{ user.x | default(1.0) }}",
            "z y 1",
        ),
        ("{{ missing or name }} {{ name if not missing }}", "Bob Bob"),
        ("{% for x in missing | default([]) %}{% else %}none{% endfor %}", "none"),
    ],
)
def test_asking_about_an_undefined_variable_is_no_use_of_it(text: str, printed: str) -> None:
    """Conditions, tests, comparison and defaults work, along chains of members too."""
    assert render(text) == printed


REFUSED: list[tuple[str, str]] = [
    ("{% if x %}\n", ("not a template: line 1: Unexpected end of template. Jinja was looking for the "
     "following tags: 'elif' or 'else' or 'endif'. The innermost block that needs to be closed is 'if'.")),
    ("a\n{{ name | nofilter }}", "not a template: line 2: No filter named 'nofilter'."),
    ("a\n\n{{ }}", "not a template: line 3: Expected an expression, got 'end of print statement'"),
    ("{{ name | pprint }}", "not a template: line 1: No filter named 'pprint'."),
    ("{{ list | random }}", "not a template: line 1: No filter named 'random'."),
    ("{{ " + "(" * 1000 + ")" * 1000 + " }}", "not a template: nested too deeply"),
    ("{{ 1 / 0 }}", "the template cannot be rendered: ZeroDivisionError: division by zero"),
    ("{{ name + 1 }}", ('the template cannot be rendered: TypeError: can only concatenate str (not "int") '
     "to str")),
    ("{% for i in range(10**9) %}{% endfor %}", ("the template cannot be rendered: OverflowError: Range too "
     "big. The sandbox blocks ranges larger than MAX_RANGE (100000).")),
    ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", ("the template cannot be rendered: RecursionError: "
     "maximum recursion depth exceeded while calling a Python object")),
    ("{{ name.upper }}", ("the template cannot be rendered: TemplateRuntimeError: a function is printed, "
     "upper: call it")),
    ("{{ name.__class__ }}", ("the template does what the sandbox refuses: access to attribute "
     "'__class__' of 'str' object is unsafe.")),
    ("{{ name.__class__.__mro__[1] }}", ("the template does what the sandbox refuses: access to attribute "
     "'__class__' of 'str' object is unsafe.")),
    ("{{ list.append(1) }}", ("the template does what the sandbox refuses: access to attribute 'append' of "
     "'list' object is unsafe.")),
    ("{{ lipsum() }}", f'{{{{ lipsum }}}} is not defined; the test has {NAMES}; did you mean "list"?'),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[text[:40] for text, _ in REFUSED])
def test_what_cannot_be_rendered_says_why(text: str, message: str) -> None:
    """With the line where the text is no template at all; nothing but TemplateError is raised."""
    said = refused(text)
    if "RecursionError" in message:
        said, message = said[:55], message[:55]
    assert said == message
    known_before = Templates().syntax_error(text)
    assert known_before == (message if message.startswith("not a template") else None)


def test_variables_inside_variables_are_rendered_first() -> None:
    """In any order, each once: what a variable prints is not a template any more."""
    variables = {
        "c": "{{ b }}!",
        "a": "x\n",
        "b": "<{{ a }}>",
        "r": "{% raw %}{{ a }}{% endraw %}",
        "s": "{{ r }}",
    }
    assert render("{{ c }} {{ s }}", variables) == "<x>! {{ a }}"


@pytest.mark.parametrize("length", [1, 2, 6])
def test_sc_10_chains_of_six_variables_are_followed(length: int) -> None:
    """In five passes; what is further away stays as it is written."""
    chain = {f"v{n}": f"{{{{ v{n + 1} }}}}" for n in range(length - 1)} | {f"v{length - 1}": "end"}
    assert render("{{ v0 }}", chain) == "end"


def test_longer_chains_stop() -> None:
    """After five passes the two that are left print what they say."""
    chain = {f"v{n}": f"{{{{ v{n + 1} }}}}" for n in range(7)} | {"v7": "end"}
    assert [render(f"{{{{ v{n} }}}}", chain) for n in range(4)] == [
        "{{ v1 }}",
        "{{ v2 }}",
        "end",
        "end",
    ]


@pytest.mark.parametrize(
    "variables",
    [
        {"a": "{{ a }}{{ a }}"},
        {"a": "{{ b }}{{ b }}", "b": "{{ a }}{{ a }}"},
        {"a": "{{ b }}", "b": "{{ b }}"},
        {"a": "{{ nowhere }}"},
        {"a": "{% if %}"},
        {"a": "{{ " + "(" * 1000 + ")" * 1000 + " }}"},
        {"a": "{{ x"},
        {"a": "{{ 1 / 0 }}"},
    ],
    ids=["itself", "circle", "leads to a circle", "undefined", "broken", "deep", "open", "error"],
)
def test_variables_that_cannot_be_rendered_stay_as_they_are(variables: dict[str, str]) -> None:
    """Whether they are used or not, and without growing."""
    assert render("{{ a }}", variables) == variables["a"]
    assert render("{{ c }}", {**variables, "c": "fine"}) == "fine"


def test_defaults_inside_variables_work() -> None:
    """A reference to what there is not is no reason to leave a text alone if it can be rendered."""
    assert render("{{ a }}", {"a": "Hello {{ who | default('you') }}"}) == "Hello you"


def test_other_values_print_as_in_python() -> None:
    """A suite made in Python may hold any; nunjucks has nothing to say of them."""
    assert render("{{ day }} {{ [day] }}", {"day": date(2024, 1, 31)}) == "2024-01-31 2024-01-31"


def test_the_variables_of_the_caller_stay_as_they_are() -> None:
    """A template changes neither the mapping nor what is in it."""
    variables = {"a": "{{ b }}\n", "b": ["x"]}
    assert render("{% set b = 5 %}{{ a }}", variables) == "x"
    assert variables == {"a": "{{ b }}\n", "b": ["x"]}


def test_a_text_is_compiled_once_and_rendered_for_many() -> None:
    """Nothing of one rendering is left for the next."""
    templates = Templates()
    text = "{% set x = (x | default(0)) + 1 %}{{ x }}{{ name }}"
    assert [templates.render(text, {"name": name}) for name in "ab"] == ["1a", "1b"]


def rendered(text: str, variables: Mapping[str, Any]) -> str | TemplateError:
    try:
        return render(text, variables)
    except TemplateError as error:
        return error


@pytest.mark.slow
@given(
    st.text() | st.text("{}%#ab| .\n", max_size=20),
    st.dictionaries(st.sampled_from("ab"), st.text() | st.text("{}%ab ", max_size=12)),
)
def test_rendering_ends_in_text_or_template_error(text: str, variables: dict[str, str]) -> None:
    """For any text and any variables, also where nearly everything is a mark."""
    result = rendered(text, variables)
    assert isinstance(result, str) or str(result)


@pytest.mark.slow
@given(
    st.text(st.characters(exclude_characters="{\r"), max_size=20),
    st.text(max_size=20).filter(lambda value: not is_template(value)),
)
def test_a_variable_prints_as_its_text(before: str, value: str) -> None:
    """One newline off its end, and marks that are no template left alone."""
    printed = Templates().render(before + "{{ v }}", {"v": value})
    assert printed == before + value.removesuffix("\n")

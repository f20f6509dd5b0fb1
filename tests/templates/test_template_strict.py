"""`strict`: using an undefined variable is an error that names it; testing one is not."""

from collections.abc import Mapping
from typing import Any

import pytest

from trioeval.errors import TemplateError
from trioeval.templates import Templates

VARIABLES: Mapping[str, Any] = {
    "name": "Bob",
    "list": [1, 2.0, None, ["x", True]],
    "maps": [{"k": "a"}, {"k": 1.0}],
    "user": {"id": 7, "items": "two", "address": {"city": "Bonn"}},
}
NAMES = "list, maps, name, user"


def render(text: str, variables: Mapping[str, Any] = VARIABLES) -> str:
    return Templates(env={"HOME": "/h"}, strict=True).render(text, variables)


def refused(text: str, variables: Mapping[str, Any] = VARIABLES) -> str:
    with pytest.raises(TemplateError) as caught:
        render(text, variables)
    return str(caught.value)


FILTERS = (
    *("join(',')", "list", "sort", "first", "last", "length", "reverse", "sum", "int", "float"),
    *("string", "trim", "lower", "title", "capitalize", "escape", "e", "replace('a', 'b')", "dump"),
    *("nl2br", "batch(2)", "wordcount", "striptags", "truncate(3)", "round", "abs"),
    *("reject", "select", "selectattr('x')", "rejectattr('x')", "slice(2)", "forceescape"),
    *("urlize", "dictsort", "groupby('x')", "indent", "center(3)", "urlencode", "safe", "load"),
)
USES = [
    *("{{ missing }}", "{{ missing.attr.more }}", "{{ missing['a'].b }}", "{{ missing() }}"),
    *("{{ missing.a() }}", "{{ name ~ missing }}", "{{ missing + 1 }}", "{{ name + missing }}"),
    *("{{ 1 - missing }}", "{{ -missing }}", "{{ missing < 1 }}", "{{ 1 in missing }}"),
    *("{{ [missing] }}", "{% for x in missing %}{% endfor %}", "{{ {'a': missing} | dump }}"),
    *("{% set x = missing %}{{ x }}", "{{ missing and name }}", "{{ [missing] | dump }}"),
    *("{{ list | join(missing) }}", "{{ name | replace('B', missing) }}"),
    *(f"{{{{ missing | {name} }}}}" for name in FILTERS),
]


@pytest.mark.parametrize("text", USES)
def test_the_use_of_an_undefined_variable_is_an_error_that_names_it(text: str) -> None:
    """This covers the variable, a member, an expression and any filter; no gap is printed."""
    assert refused(text) == f"{{{{ missing }}}} is not defined; the test has {NAMES}"


def test_the_message_suggests_the_nearest_name() -> None:
    """A message without a similar name has no suggestion."""
    assert refused("{{ nme }}") == ('{{ nme }} is not defined; did you mean "name"?')
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
    ],
)
def test_an_undefined_member_is_reported_with_its_parent(text: str, message: str) -> None:
    """The message distinguishes it from an undefined variable."""
    assert refused(text) == message


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("{% if missing %}a{% else %}b{% endif %}", "b"),
        ("{% if missing.a.b %}a{% else %}b{% endif %}", "b"),
        ("{% if not missing %}a{% endif %}", "a"),
        ("{{ missing is defined }} {{ missing.x is defined }}", "false false"),
        ("{{ user.x is defined }} {{ user.x is undefined }}", "false true"),
        ("{{ missing is mapping }} {{ missing is falsy }}", "false true"),
        ("{{ missing == 1 }} {{ missing != 1 }} {{ missing in [1] }}", "false true false"),
        ("{{ missing | default('z') }} {{ missing.a | d('y') }} {{ user.x | d(1.0) }}", "z y 1"),
        ("{{ missing or name }} {{ name if not missing }}", "Bob Bob"),
        ("{% for x in missing | default([]) %}{% else %}none{% endfor %}", "none"),
        ("{{ env.HOME }} {{ env.NOT_THERE }}", "/h "),
    ],
)
def test_a_check_for_an_undefined_variable_is_not_a_use_of_it(text: str, printed: str) -> None:
    """Conditions, tests, comparison and defaults work, along chains of members; `env` has any name."""
    assert render(text) == printed

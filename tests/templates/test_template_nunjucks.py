"""SC-12: values, filters, tests, loops and everything else print as in nunjucks."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from trioeval.templates import Templates
from trioeval.templates.text_filters import dump
from trioeval.templates.values import less, number_of, same, text_of, truth

CASES = json.loads((Path(__file__).parents[1] / "compat/cases/templates.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_sc_12_prompts_are_those_of_promptfoo(case: Mapping[str, Any]) -> None:
    """Each expectation is the output of promptfoo 0.123.1 and nunjucks 3.2.4."""
    templates = Templates(env=case.get("env", {}))
    assert templates.render_prompt(case["prompt"], case["vars"]) == case["expect"]["output"]


@pytest.mark.parametrize(
    ("value", "text", "number", "is_true"),
    [
        (None, "null", 0, False),
        (True, "true", 1, True),
        (0.0, "0", 0, False),
        (-1.5e-7, "-1.5e-7", -1.5e-7, True),
        (math.nan, "NaN", math.nan, False),
        (math.inf, "Infinity", math.inf, True),
        (" 12 ", " 12 ", 12, True),
        ("0x1f", "0x1f", 31, True),
        ("0b11", "0b11", 3, True),
        ("-0x1", "-0x1", math.nan, True),
        ("1_0", "1_0", math.nan, True),
        ("inf", "inf", math.nan, True),
        ("", "", 0, False),
        ([], "", 0, True),
        ([7], "7", 7, True),
        ([1, [None, "x"]], "1,,x", math.nan, True),
        ({}, "[object Object]", math.nan, True),
    ],
    ids=str,
)
def test_values_convert_as_in_javascript(
    value: Any, text: str, number: float, *, is_true: bool
) -> None:
    """The conversions are `String`, `Number` and `Boolean`."""
    assert text_of(value) == text
    assert number_of(value) == pytest.approx(number, nan_ok=True, rel=0)
    assert truth(value) is is_true


def test_equality_and_order_agree_in_both_languages() -> None:
    """An error is raised for operands on which the languages differ; see the refusals."""
    assert same(1, 1.0)
    assert same("a", "a")
    assert not same(1, "one")
    assert not same([], {})
    assert not same(None, 0)
    assert less("a", "b")
    assert not less(math.nan, math.nan)


@pytest.mark.parametrize(
    ("value", "spaces", "text"),
    [
        ({"b": 1, "10": 2, "9": 3, "01": 4, "4294967295": 5}, None,
         '{"9":3,"10":2,"b":1,"01":4,"4294967295":5}'),
        ([1.0, 1e21, math.inf, "é<\u2028\ud800"], None, '[1,1e+21,null,"é<\u2028\\ud800"]'),
        ({"a": [], "b": {}, "c": [{}]}, 1, '{\n "a": [],\n "b": {},\n "c": [\n  {}\n ]\n}'),
        ([1], 99, f"[\n{' ' * 10}1\n]"),
        ([1], "-->", "[\n-->1\n]"),
        ((1, None), 0, "[1,null]"),
    ],
)  # fmt: skip
def test_dump_writes_like_json_stringify(value: Any, spaces: Any, text: str) -> None:
    """Numeric keys come first, only JSON escapes are used, the indent is at most ten spaces."""
    assert dump(value, spaces) == text


EDGES: list[tuple[str, str]] = [
    ("{{ '' is even }} {{ 'x' is even }} {{ 5 is divisibleby('5') }}", "true false true"),
    ("{{ (1 / 0) is even }} {{ 1 is divisibleby(0) }}", "false false"),
    ("{{ 'abcd' | slice(2) | join('|') }} {{ [1, 2, 3] | slice(0) | dump }}", "ab|cd []"),
    ("{{ false ** -1 }} {{ (-1) ** 0.5 }} {{ 10 ** 400 }}", "Infinity NaN Infinity"),
    ("{{ missing == missing }} {{ missing > 1 }}", "true false"),
    ("{{ {'0': 'z'} | first }} {{ {} | first }}|", "z |"),
    ("{{ '<' | e | upper | e }} {{ '<' | e | trim | e }} {{ [] | batch(2) | dump }}", "&amp;LT; &lt; []"),
    ("{{ 'zz' | int(1, 36) }} {{ '12' | int(1, 99) }} {{ '0x' | int(4, 16) }} {{ '-0x1F' | int(0, 16) }}",
     "1295 1 4 -31"),
    ("{{ (1 / 0) | round(2) }} {{ '' | round }}", "Infinity 0"),
    ("{{ [{'a': [1, {'b': 2}]}] | map('a.b') | dump }} {{ [[7]] | map(0) }}", "[null] 7"),
    ("{{ [1, 2] | batch(0) | dump }}", "[[1,2]]"),
    ("{{ [3, 1] | sort(attribute='x') }} {{ {'b': 1, 'a': 2} | dictsort(false) | dump }}",
     '3,1 [["a",2],["b",1]]'),
    ("{{ [['a'], 'bc', 5] | urlencode }}", "a=undefined&b=c&undefined=undefined"),
    ("{{ 'ab' | replace('a', null) }} {{ 'a' | replace(1, 2) }}", "nullb a"),
    ("{{ cycler().next() }}|{{ joiner('')() }}|", "||"),
    ("{{ range(2, 0) }}|{{ 2 in [1, '2'] }} {{ [1] in [[1]] }}", "|false false"),
    ("{{ missing is eq(missing) }} {{ missing is sameas(null) }}", "true false"),
    ("{{ {a: 1, 'b': {c: 2}} | dump }} {{ 9007199254740991 * 4 }}", '{"a":1,"b":{"c":2}} 36028797018963964'),
    ("{{ ('<' | e) == '&lt;' }} {{ 'abc' | center(2) }} {{ 'abc' | replace(null, 'x') }}", "true abc abc"),
    ("{% verbatim %}{{ x }}{% endverbatim %}{{ {'b': 1} | items | dump }}", '{{ x }}[["b",1]]'),
    ("{{ 'a' >= 'a' }} {{ [2.0][0.0] }} {{ 'ab'['1'] }}", "true 2 b"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "printed"), EDGES, ids=[text for text, _ in EDGES])
def test_edge_cases_of_filters_and_operators(text: str, printed: str) -> None:
    """This covers unsuitable values of filters, and empty ones."""
    assert Templates().render(text, {}) == printed

"""SC-12: values, filters, tests, loops and everything else print as in nunjucks."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from trioeval.templates import Templates
from trioeval.templates.values import dump, text_of

CASES = json.loads((Path(__file__).parents[1] / "compat/cases/templates.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_sc_12_prompts_are_those_of_promptfoo(case: Mapping[str, Any]) -> None:
    """Each expectation is the output of promptfoo 0.123.1 and nunjucks 3.2.4."""
    templates = Templates(env=case.get("env", {}))
    assert templates.render_prompt(case["prompt"], case["vars"]) == case["expect"]["output"]


CONSTRUCTS = json.loads(Path(__file__).with_name("constructs.json").read_text())


@pytest.mark.parametrize(("text", "printed"), CONSTRUCTS["texts"])
def test_sc_13_constructs_of_nunjucks_work(text: str, printed: str) -> None:
    """Each expectation is the output of nunjucks 3.2.4 in Node.js, with the filter `load` of promptfoo."""
    assert Templates().syntax_error(text) is None
    assert Templates().render(text, CONSTRUCTS["variables"]) == printed


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (0.0, "0"),
        (-1.5e-7, "-1.5e-7"),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (" 12 ", " 12 "),
        ([], ""),
        ([7], "7"),
        ([1, [None, "x"]], "1,,x"),
        ({}, "[object Object]"),
    ],
    ids=str,
)
def test_values_convert_as_in_javascript(value: Any, text: str) -> None:
    """The conversion in Python equals that of the engine."""
    assert text_of(value) == text
    assert Templates().render("{{ [] + v if v !== null else 'null' }}", {"v": value}) == text


@pytest.mark.parametrize(
    ("value", "step", "text"),
    [
        ({"b": 1, "10": 2, "9": 3, "01": 4, "4294967295": 5}, "",
         '{"9":3,"10":2,"b":1,"01":4,"4294967295":5}'),
        ([1.0, 1e21, math.inf, "é<\u2028\ud800"], "", '[1,1e+21,null,"é<\u2028\\ud800"]'),
        ({"a": [], "b": {}, "c": [{}]}, " ", '{\n "a": [],\n "b": {},\n "c": [\n  {}\n ]\n}'),
        ([1, None], "", "[1,null]"),
    ],
)  # fmt: skip
def test_a_prompt_of_json_is_written_like_json_stringify(value: Any, step: str, text: str) -> None:
    """Numeric keys come first, and only JSON escapes are used; the engine's `dump` gives the same."""
    assert dump(value, step) == text
    assert Templates().render(f"{{{{ v | dump('{step}') }}}}", {"v": value}) == text


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
    ("{{ [1, 2] | batch(0) | dump }}", "[[1,2]]"),
    ("{{ [3, 1] | sort(attribute='x') }} {{ {'b': 1, 'a': 2} | dictsort(false) | dump }}",
     '3,1 [["a",2],["b",1]]'),
    ("{{ [['a'], 'bc', 5] | urlencode }}", "a=undefined&b=c&undefined=undefined"),
    ("{{ 'ab' | replace('a', null) }} {{ 'a' | replace(1, 2) }}", "nullb a"),
    ("{{ cycler().next() }}|{{ joiner('')() }}|", "||"),
    ("{{ range(2, 0) }}|{{ 2 in [1, '2'] }} {{ [1] in [[1]] }}", "|false false"),
    ("{{ missing is eq(missing) }} {{ missing is sameas(null) }}", "true false"),
    ("{{ {a: 1, 'b': {c: 2} } | dump }} {{ 9007199254740991 * 4 }}", '{"a":1,"b":{"c":2}} 36028797018963964'),
    ("{{ ('<' | e) == '&lt;' }} {{ 'abc' | center(2) }} {{ 'abc' | replace(null, 'x') }}", "true abc abc"),
    ("{% verbatim %}{{ x }}{% endverbatim %}{{ {'b': 1} | dictsort | dump }}", '{{ x }}[["b",1]]'),
    ("{{ 'a' >= 'a' }} {{ [2.0][0.0] }} {{ 'ab'['1'] }}", "true 2 b"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "printed"), EDGES, ids=[text for text, _ in EDGES])
def test_edge_cases_of_filters_and_operators(text: str, printed: str) -> None:
    """This covers unsuitable values of filters, and empty ones."""
    assert Templates().render(text, {}) == printed

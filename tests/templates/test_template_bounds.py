"""No template, and no text that looks like one, takes long: scans are linear, and all work takes steps."""

import contextlib
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import TemplateError
from trioeval.templates import Templates, is_template
from trioeval.templates.limits import TooMuchError
from trioeval.templates.text_filters import striptags
from trioeval.templates.values import number_of
from trioeval.templates.variables import resolved, uses_undefined
from trioeval.text import quote

SECONDS = 15.0  # of this process, on a busy machine too; unbounded work takes minutes

# The semantics of the scans, as patterns that are short and slow.
_LINE = r"[^\n\r\u2028\u2029]*?"
_RAW = re.compile(r"\{%-?\s*(raw|verbatim)\s*-?%\}.*?\{%-?\s*end\1\s*-?%\}", re.DOTALL)
_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_USED = re.compile(
    r"\{\{\s*([^{}\s|]+)\s*(?:\|[^}]+)?\}\}"
    rf"|\{{%\s*(?:if|for)\s+([^{{}}\s]+)\s*{_LINE}%\}}"
)
_LOOP = re.compile(r"\{%\s*for\s+([A-Za-z0-9_]+)\s+in\s+([A-Za-z0-9_]+)\s*%\}")
_ROOT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNCLOSED = re.compile(
    r"(?:\{\{[^}\n\r\u2028\u2029]*|\{%[^%\n\r\u2028\u2029]*|\{#[^#\n\r\u2028\u2029]*)"
    r"(?:[\n\r\u2028\u2029]|\Z)"
)
_TAGS = re.compile(r"</?([a-z][a-z0-9]*)\b[^>]*>|<!--.*?-->", re.IGNORECASE | re.DOTALL | re.ASCII)

MARKED = st.lists(
    st.sampled_from(
        [
            *("{{", "}}", "{%", "%}", "{#", "#}", "{", "}", "%", "#", "|", "-", " ", "\n", "\r"),
            *("a", "b", "c.d", "if ", "for ", " in ", "raw", "endraw", "verbatim", "\u2028"),
            *("{% raw %}", "{% endraw %}", "{% verbatim %}", "{% endverbatim %}", "{% if a%}"),
            *("{{ b }}", "{{ a|", "{% for c in b %}", "{{%"),
        ]
    ),
    max_size=14,
).map("".join)
TAGGED = st.lists(
    st.sampled_from(["<", ">", "<a", "</b ", "<!--", "-->", "--", "!", "_", "1", " ", "\n", "é"]),
    max_size=14,
).map("".join)


def used_undefined(text: str, known: Mapping[str, Any]) -> bool:
    text = _COMMENT.sub("", _RAW.sub("", text))
    used = {first or second for first, second in _USED.findall(text)}
    for member, source in _LOOP.findall(text):
        used.discard(member)
        used.add(source)
    roots = (found[0] for name in used if (found := _ROOT.match(name)))
    return any(root != "env" and root not in known for root in roots)


@pytest.mark.slow
@given(MARKED)
def test_scans_of_marks_are_equivalent_to_their_patterns(text: str) -> None:
    """This holds for texts that consist mostly of marks."""
    for known in ({}, {"a": 1}, {"b": 1}, {"a": 1, "c": 1}):
        assert uses_undefined(text, known) is used_undefined(text, known)
    if re.search(r"\{[{%#]", text) and not re.search(r"\{%-?\s*raw\s*-?%\}", text):
        assert is_template(text) is (_UNCLOSED.search(text) is None)


@pytest.mark.slow
@given(TAGGED)
def test_tags_are_those_of_the_pattern(text: str) -> None:
    """Lines are stripped of spaces only."""
    without = _TAGS.sub("", text).strip()
    assert striptags(text) == re.sub(r"\s+", " ", without)
    lined = re.sub(r"^ +| +$", "", without, flags=re.MULTILINE)
    assert striptags(text, keep_lines=True) == re.sub(r"\n\n\n+", "\n\n", re.sub(r" +", " ", lined))


MEGABYTE = 1_000_000
UNITS = (
    *("{{", "{{a|", "{{ ", "{%", "{% if a ", "{% for ", "{% raw %}", "{%raw%}{%endverbatim%}"),
    *("{#", "{# }", "{{%", "{{a }", "{{a\n", "{% if a\n", "{", "}", "{{a}}", "<", "<a", "<!--"),
    *("<a <!--", " ", "  x", "\n", "1", "1.", "1e", "$'", "a@", "a.", "-->", "\\", "'"),
)
SCANS: Mapping[str, Callable[[str], object]] = {
    "is_template": is_template,
    "uses_undefined": lambda text: uses_undefined(text, {"a": 1}),
    "resolved": lambda text: resolved({"a": text, "b": "{{ a }}"}),
    "striptags": striptags,
    "striptags of lines": lambda text: striptags(text, keep_lines=True),
    "number_of": number_of,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("end", ["", "}", "}}", "%}", ">", "x", "{% endraw %}"])
def test_a_megabyte_is_scanned_quickly(name: str, end: str) -> None:
    """This holds for any contents; a scan that reads parts repeatedly takes minutes for one of these."""
    for unit in UNITS:
        text = "x" + unit * (MEGABYTE // len(unit)) + end
        started = time.process_time()
        with contextlib.suppress(TooMuchError):  # some texts double themselves
            SCANS[name](text)
        assert time.process_time() - started < SECONDS, (unit, end)


STEPS = "the template took more than 1000000 steps"
DEEP: Any = 1
for _ in range(900):
    DEEP = [DEEP]
VALUES: Mapping[str, Any] = {
    "x": list(range(1000)),
    "y": [{"a": n % 7, "b": "text" * 5} for n in range(1000)],
    "long": "ab " * 1_000_000,
    "other": "ab " * 999_999 + "abc",
    "chars": list("ab") * 50_000,
    "o": {str(n): n for n in range(1000)},
    "dots": "a." * 1000,
    "deep": DEEP,
}
SHARED = "{% set a = [1, 2] %}" + "{% set a = [a, a] %}" * 40
OTHER = "{% set b = [1, 2] %}" + "{% set b = [b, b] %}" * 40
OF_SHARED = (
    *("a == b", "a == 5", "a != 'x'", "a < 3", "a in 'x'", "o[a]", "a ~ 'x'", "a", "a is even"),
    *("a | dump", "a | string", "[a] | join", "[a, 1] | sort", "a | upper", "a | int"),
    *("[{'a': a}] | groupby('a')", "x | select('divisibleby', a)", "{'a': a} | dump(2)"),
    *("[a] | urlencode", "{'k': a} | dictsort(false, 'value')", "a | sum"),
)
REPEATED = (
    *("x | sort", "x == y", "'z' in long", "'z' in chars", "long | replace('z', 'y')"),
    *("long | upper", "y | groupby('a')", "y | sort(attribute='b') | reverse | batch(3)"),
    *("long ~ 'a'", "long + 'a'", "long == other", "long < other", "long is eq(other)"),
    *("long | title", "long | urlize", "long | striptags", "long | wordcount", "long | e"),
    *("long | urlencode", "long | list", "long | indent", "y | dump(10)", "o | dictsort"),
    *("x | slice(100000)", "[1] | batch(900000, 'x')", "x | sum", "x | map(dots)"),
    *("long | int", "long | float", "y | string | replace('', 'abc')", "o | urlencode"),
    *("x | select('divisibleby', 3)", "x | reject('odd')", "y | selectattr('a')", "o | items"),
)
STOPPED = [
    *(SHARED + OTHER + "{{ " + text + " }}" for text in OF_SHARED),
    *("{% for i in range(90000) %}{% set q = " + text + " %}{% endfor %}" for text in REPEATED),
    "{% for i in range(90000) %}{% if (x | sort | length) == 3 %}{% endif %}{% endfor %}",
    "{% for i in range(90000) %}{% set q %}{{ long }}{{ i }}{% endset %}{% endfor %}",
    "{% macro m() %}{{ long }}!{% endmacro %}{% for i in x %}{% set q = m() %}{% endfor %}",
    "{% for i in [" + "1," * 300 + "1] %}{% for j in 'x' | center(90000) %}{% endfor %}{% endfor %}",
    "{% for i in range(900000) %}" + "{% if i == 2 %}{% endif %}" * 300 + "{% endfor %}",
    "{% macro m(i) %}"
    + "{% if i == 2 %}{% endif %}" * 300
    + "{% endmacro %}{% for i in range(90000) %}{{ m(i) }}{% endfor %}",
    "{% for q in [x, x] recursive %}{{ loop(chars) if q is iterable else loop(x) }}{% endfor %}",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("text", STOPPED, ids=[text[-60:] for text in STOPPED])
def test_all_work_counts_as_steps(text: str) -> None:
    """It covers reading, comparing, copying and creating, also of values that are contained many times."""
    started = time.process_time()
    with pytest.raises(TemplateError) as caught:
        Templates().render(text, VALUES)
    message = str(caught.value)
    assert (
        STEPS in message
        or "nested more than 100 levels deep" in message
        or "a value that is not a number" in message
    )
    assert time.process_time() - started < SECONDS


@pytest.mark.parametrize(
    "text", ["{{ deep }}", "{{ deep | dump }}", "{{ deep == x }}", "{{ deep | upper }}"]
)
def test_the_error_of_a_deeply_nested_value_names_the_nesting(text: str) -> None:
    """This holds for every operation."""
    with pytest.raises(TemplateError, match=r"^a value is nested more than 100 levels deep$"):
        Templates().render(text, VALUES)


@pytest.mark.parametrize("levels", [101, 900, 9000])
def test_a_prompt_of_json_that_is_nested_too_deeply_is_refused_at_load(levels: int) -> None:
    """Rendering gives the same message; a hundred levels are accepted."""
    message = "the JSON of the prompt is nested more than 100 levels deep"
    prompt = "[" * levels + '"{{ a }}"' + "]" * levels
    assert Templates().prompt_error(prompt) == message
    with pytest.raises(TemplateError, match=f"^{message}$"):
        Templates().render_prompt(prompt, {"a": 1})
    assert Templates().prompt_error("[" * 100 + "]" * 100) is None
    assert '"1"' in Templates().render_prompt("[" * 100 + '"{{ a }}"' + "]" * 100, {"a": 1})


def test_calls_may_be_nested_a_hundred_levels() -> None:
    """More are refused; the next rendering begins at level 0."""
    text = "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{% endif %}.{% endmacro %}{{ m(levels - 1) }}"
    templates = Templates()
    for _ in range(3):
        with pytest.raises(TemplateError, match=r"^a call is nested more than 100 levels deep$"):
            templates.render(text, {"levels": 101})
        assert templates.render(text, {"levels": 100}) == "." * 100


def test_texts_of_one_prompt_share_its_steps() -> None:
    """Texts of its variables are included."""
    loop = "{% for i in range(300000) %}{% endfor %}"
    templates = Templates()
    assert templates.render_prompt(loop, {}) == ""
    with pytest.raises(TemplateError, match=f"^{STEPS}$"):
        templates.render_prompt(f'["{loop}", "{loop}"]', {})
    rounds = dict.fromkeys("abc", "{% for i in l %}{% endfor %}") | {"l": [0] * 350_000}
    with pytest.raises(TemplateError, match=f"{STEPS}$"):
        templates.render_prompt("{{ a }}{{ b }}{{ c }}", rounds)


def test_multiplying_references_are_stopped_before_they_are_inserted() -> None:
    """Each `$'` expands to all text after the reference."""
    variables = {"a": "{{ b }}" + "x" * 100_000, "b": "$'" * 100_000}
    with pytest.raises(TemplateError, match="printed more than 10000000 characters"):
        Templates().rendered_variables(variables)


def test_a_message_shows_the_beginning_of_a_value_at_once() -> None:
    """This also holds for a value whose full text could never be written."""
    value: Any = [1]
    for _ in range(60):
        value = [value, value]
    assert quote(value).startswith("[" * 61 + "1],[1]]")
    assert quote({"a": value}, limit=9) == '{"a":[[[…'

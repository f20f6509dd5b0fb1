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
from trioeval.templates.marks import tags
from trioeval.templates.plain import plain_pieces
from trioeval.templates.variables import resolved, uses_undefined
from trioeval.text import quote

SECONDS = 8.0  # of this process, on a busy machine too; unbounded work takes minutes

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


LONG = 500_000
UNITS = (
    *("{{", "{{a|", "{{ ", "{%", "{% if a ", "{% for ", "{% raw %}", "{%raw%}{%endverbatim%}"),
    *("{#", "{# }", "{{%", "{{a }", "{{a\n", "{% if a\n", "{", "}", "{{a}}", "<", "<a", "<!--"),
    *("<a <!--", " ", "  x", "\n", "1", "1.", "1e", "$'", "a@", "a.", "-->", "\\", "'"),
)
SCANS: Mapping[str, Callable[[str], object]] = {
    "is_template": is_template,
    "uses_undefined": lambda text: uses_undefined(text, {"a": 1}),
    "plain_pieces": plain_pieces,
    "tags": lambda text: list(tags(text)),
    "resolved": lambda text: resolved({"a": text, "b": "{{ a }}"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("end", ["", "}", "}}", "%}", ">", "x", "{% endraw %}"])
def test_a_long_text_is_scanned_quickly(name: str, end: str) -> None:
    """This holds for any contents; a scan that reads parts repeatedly takes minutes for one of these."""
    for unit in UNITS:
        text = "x" + unit * (LONG // len(unit)) + end
        started = time.process_time()
        with contextlib.suppress(TooMuchError):  # some texts double themselves
            SCANS[name](text)
        assert time.process_time() - started < SECONDS, (unit, end)


STEPS = "the template took more than 1000000 steps"
DEEP: Any = 1
for _ in range(3000):
    DEEP = [DEEP]
SHARED: Any = [1]
for _ in range(60):
    SHARED = [SHARED, SHARED]
ITSELF: Any = []
ITSELF.append(ITSELF)


@pytest.mark.parametrize("text", ["{{ deep }}", "{{ deep | dump }}", "{% if deep %}a{% endif %}"])
@pytest.mark.parametrize("value", [DEEP, {"a": DEEP}], ids=["list", "object"])
def test_a_deeply_nested_value_is_refused(text: str, value: Any) -> None:
    """This holds for every operation."""
    with pytest.raises(
        TemplateError, match=r"^(a value|the template or its values are|.*)nested too deeply$"
    ):
        Templates().render(text, {"deep": value})


@pytest.mark.slow
@pytest.mark.parametrize("value", [SHARED, {"a": SHARED}, ITSELF], ids=["list", "object", "itself"])
def test_a_value_that_contains_parts_many_times_is_refused_before_it_is_written(value: Any) -> None:
    """Each part counts as often as it would be written. A value that is not used costs nothing."""
    templates = Templates()
    with pytest.raises(TemplateError, match=f"^{STEPS}$"):
        templates.render("{{ v[0] | length }}", {"v": value})
    assert templates.render("{{ a | upper }}", {"v": value, "a": "x"}) == "X"


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
    """Endless ones are refused, and the next rendering is not affected."""
    text = "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{% endif %}.{% endmacro %}{{ m(levels - 1) }}"
    templates = Templates()
    for _ in range(3):
        with pytest.raises(
            TemplateError, match=r"^the template or its values are nested too deeply$"
        ):
            templates.render(text, {"levels": 90_000})
        assert templates.render(text, {"levels": 100}) == "." * 100


@pytest.mark.slow
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
    assert quote(SHARED).startswith("[" * 61 + "1],[1]]")
    assert quote({"a": SHARED}, limit=9) == '{"a":[[[…'


@pytest.mark.slow
@pytest.mark.parametrize("part", ["x", "\0é\u2028", "😀", "\ud800x"], ids=ascii)
def test_a_long_text_leaves_the_engine_unchanged(part: str) -> None:
    """It is put together in the engine, and has characters that the binding does not take as they are."""
    text = part * (9_000_000 // len(part.encode("utf-16", "surrogatepass")) * 2)
    templates = Templates()
    assert templates.render("{{ '' + text }}", {"text": text}) == text
    halves = {"a": text[: len(text) // 2], "b": text[len(text) // 2 :]}
    assert templates.render("{% if a %}{{ a }}{{ b + '' }}{% endif %}", halves) == text

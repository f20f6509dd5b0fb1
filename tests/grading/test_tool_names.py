"""Names of tools in replies; the compatibility cases have the forms of each provider."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pace import takes_less

from trioeval.grading.kinds.tool_names import UnreadableError, tool_names

CALL = '{"type": "function_call", "name": "a"}'
OTHER = '{"type": "function_call", "name": "b"}'
NAMES = st.text('ab\u00e9"\\ {', min_size=1, max_size=4)

TEXTS = [
    (CALL, "a"),
    (f"I do it.\n{CALL}\nDone.", "a"),
    (f"  {CALL}\t", "a"),
    (f"so: {CALL}", ""),
    (f"{CALL} and so", ""),
    (f"```\n{CALL}\n```", ""),
    (f"```\n```\n{CALL}", "a"),
    (f"```\n~~~\n{CALL}", ""),
    (f"````\n```\n{CALL}", ""),
    (f"    ```\n{CALL}", "a"),
    (f"``` `` ```\n{CALL}", "a"),
    (f"- ```\n  {CALL}\n{OTHER}", "b"),
    (f"12) ~~~\n\n    {CALL}\n\t~~~\n    {OTHER}", "b"),
    (f"{{\n{CALL}", "a"),
    (f"{{ not JSON\n{CALL}\n}}", "a"),
    (f"{{ not JSON\n[ nor this\n{CALL}\n]\n}}", "a"),
    (f"{{ not JSON {CALL}\n}}", ""),
    (f"]\n{CALL}", "a"),
    (f"[\n{CALL},\n{OTHER}\n]", "a b"),
    (f'[ "open\n{CALL}\n]', "a"),
    ('[\n{"name": "}"}\n]', "}"),
    ('[\n{"name": "\\u0061"}\n]', "a"),
    ('Here:\n[{"n\\u0061me": "a"}]', "a"),
    (json.dumps(CALL), "a"),
    (json.dumps(json.dumps([json.loads(CALL)])), "a"),
    ("", ""),
]


@pytest.mark.parametrize(("text", "names"), TEXTS)
def test_calls_are_on_separate_lines(text: str, names: str) -> None:
    """Other lines do not matter; fences and calls inside of other text do not count."""
    assert sorted(tool_names(text)) == names.split()


@pytest.mark.slow
@given(st.lists(NAMES, max_size=5), st.sampled_from(["name", "function", "functionCall"]))
def test_data_and_its_text_have_the_same_calls(names: list[str], form: str) -> None:
    """The same is true of lines of which each is a call."""
    calls: list[Any] = [
        {"name": name} if form == "name" else {form: {"name": name}} for name in names
    ]
    assert tool_names(calls) == set(names) == tool_names(json.dumps(calls))
    lines = "\n".join(json.dumps([call], ensure_ascii=False) for call in calls)
    assert tool_names(f"Well:\n{lines}") == set(names)


@given(st.text('{}[]"\\\n\t a1', max_size=60))
def test_a_call_is_found_after_any_text(text: str) -> None:
    """A string that does not end on its line is ignored."""
    assert "a" in tool_names(f'{text}\n"\n{CALL}')


@pytest.mark.parametrize(
    "piece", ["{", "{]", "{\n", "[[]\n", '{ "a\n'], ids=["open", "mixed", "lines", "pairs", "texts"]
)
def test_meaningless_brackets_are_bounded(piece: str) -> None:
    """They are reported as unreadable, at a low cost."""
    with pytest.raises(UnreadableError, match="unmatched brackets"):
        tool_names(piece * 66_000)


def test_unsuccessful_reading_is_bounded() -> None:
    """The text is nested brackets, none of which is JSON."""

    def read() -> None:
        with pytest.raises(UnreadableError, match="that are not JSON"):
            tool_names("{ name\n" * 500 + "}\n" * 500)

    assert takes_less(1, read)  # some 10 ms on an idle machine


@pytest.mark.parametrize("output", [None, True, 3, 1.5, {}, [[]], {"tool_calls": [None, 3]}])
def test_data_without_calls_has_no_names(output: Any) -> None:
    """No name is guessed."""
    assert tool_names(output) == frozenset()

"""What the texts of `__expected` cells stand for."""

from typing import Any

import pytest

from trioeval.grading import KINDS, kind_of
from trioeval.grading.lists import comma_list
from trioeval.suite.mistakes import MistakenError
from trioeval.suite.sources.expected import assertion_from_text

CELLS: list[tuple[str, dict[str, Any]]] = [
    ("Paris", {"type": "equals", "value": "Paris"}),
    (" Paris\u00a0", {"type": "equals", "value": "Paris"}),
    ("Contains: a", {"type": "equals", "value": "Contains: a"}),
    ("unknown: a", {"type": "equals", "value": "unknown: a"}),
    ("human: a", {"type": "equals", "value": "human: a"}),
    ("a: contains", {"type": "equals", "value": "a: contains"}),
    ("equals: a: b", {"type": "equals", "value": "a: b"}),
    ("equals", {"type": "equals"}),
    ("contains:a", {"type": "contains", "value": "a"}),
    ("contains: a\nb ", {"type": "contains", "value": "a\nb"}),
    ("not-contains: a", {"type": "not-contains", "value": "a"}),
    ("icontains: A", {"type": "icontains", "value": "A"}),
    ("starts-with: A", {"type": "starts-with", "value": "A"}),
    (r"regex: ^\d+$", {"type": "regex", "value": r"^\d+$"}),
    ("contains(0.5): a", {"type": "contains", "value": "a"}),
    ("contains (0.5): a", {"type": "equals", "value": "contains (0.5): a"}),
    ("is-json", {"type": "is-json"}),
    ("is-json:", {"type": "is-json"}),
    ("is-json: {a: 1} ", {"type": "is-json", "value": " {a: 1}"}),
    ("not-is-json", {"type": "not-is-json"}),
    ("contains-json: {}", {"type": "contains-json", "value": " {}"}),
    ("contains-any: a, b,,c ", {"type": "contains-any", "value": ["a", "b", "c"]}),
    ('not-icontains-all: "a, b",c', {"type": "not-icontains-all", "value": ["a, b", "c"]}),
    ("similar: a", {"type": "similar", "value": "a", "threshold": 0.8}),
    ("similar(0.9): a", {"type": "similar", "value": "a", "threshold": 0.9}),
    ("similar(.9): a", {"type": "equals", "value": "similar(.9): a"}),
    ("similar:dot(3): a", {"type": "similar:dot", "value": "a", "threshold": 3.0}),
    ("rouge-n: a", {"type": "rouge-n", "value": "a", "threshold": 0.75}),
    ("context-recall: a", {"type": "context-recall", "value": "a", "threshold": 0.75}),
    ("levenshtein(2): a", {"type": "levenshtein", "value": "a", "threshold": 2.0}),
    ("levenshtein: a", {"type": "levenshtein", "value": "a"}),
    ("latency(500)", {"type": "latency", "threshold": 500.0}),
    ("latency", {"type": "latency"}),
    ("grade: is kind ", {"type": "llm-rubric", "value": " is kind"}),
    ("llm-rubric: is kind", {"type": "llm-rubric", "value": " is kind"}),
    ("llm-rubric(0.5): is kind", {"type": "llm-rubric", "value": "is kind", "threshold": 0.5}),
    ("javascript: output.length > 1", {"type": "javascript", "value": "output.length > 1"}),
    ("fn: output", {"type": "javascript", "value": "output"}),
    ("eval: output", {"type": "javascript", "value": "output"}),
    ("file://a/b.mjs", {"type": "javascript", "value": "file://a/b.mjs"}),
    ("python: len(output)", {"type": "python", "value": "len(output)"}),
    ("file://a.py", {"type": "python", "value": "file://a.py"}),
    ("file://a.py:check", {"type": "python", "value": "file://a.py:check"}),
    ("file://a.txt", {"type": "equals", "value": "file://a.txt"}),
]


@pytest.mark.parametrize(("cell", "wanted"), CELLS, ids=[cell for cell, _ in CELLS])
def test_a_cell_stands_for_one_assertion(cell: str, wanted: dict[str, Any]) -> None:
    assert assertion_from_text(cell) == wanted


def test_types_of_a_suite_are_known_in_cells() -> None:
    """With their threshold, whatever they are called; without them it is a text as any other."""
    kinds = {**KINDS, "is-polite": kind_of(lambda _subject, _value: True)}
    wanted = {"type": "not-is-polite", "threshold": 0.5, "value": "very"}
    assert assertion_from_text("not-is-polite(0.5): very", kinds) == wanted
    assert assertion_from_text("is-polite: very")["type"] == "equals"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", []),
        (" , ,", []),
        ("a", ["a"]),
        ("a b , c", ["a b", "c"]),
        (r'"a \"b\" \\ c"', [r'a "b" \ c']),
        ('"a ""b"""', ['a "b"']),
        ('"",a', ["", "a"]),
        ('5" wide, 6"', ['5" wide', '6"']),
    ],
)
def test_the_elements_of_a_list_stand_between_commas(text: str, wanted: list[str]) -> None:
    assert comma_list(text) == wanted


@pytest.mark.parametrize("text", ['"a', '"a" b', 'c, "a'])
def test_quotes_of_a_list_must_fit_together(text: str) -> None:
    with pytest.raises(MistakenError, match="do not fit together"):
        assertion_from_text(f"contains-any: {text}")

"""The assertions of texts in `__expected` cells."""

from typing import Any

import pytest

from trioeval.documents.mistakes import MistakenError
from trioeval.grading import KINDS, kind_of
from trioeval.grading.kinds.text import comma_list
from trioeval.suite.sources.expected import assertion_from_text, looks_typed

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
    ("moderation: hate, self-harm", {"type": "moderation", "value": ["hate", "self-harm"]}),
    ("moderation", {"type": "moderation"}),
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
def test_a_cell_is_parsed_as_one_assertion(cell: str, wanted: dict[str, Any]) -> None:
    assert assertion_from_text(cell) == wanted


def test_types_of_a_suite_are_recognised_in_cells() -> None:
    """They may have a threshold; in other suites the same cell is a text."""
    kinds = {**KINDS, "is-polite": kind_of(lambda _subject, _value: True)}
    wanted = {"type": "not-is-polite", "threshold": 0.5, "value": "very"}
    assert assertion_from_text("not-is-polite(0.5): very", kinds) == wanted
    assert assertion_from_text("is-polite: very")["type"] == "equals"


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("select-best: x", "select-best cannot stand in a cell"),
        ("max-score", "max-score cannot stand in a cell"),
        ("latency(-1)", 'as in "latency(0.5)"'),
        ("rouge-n(1e-1): x", 'as in "rouge-n(0.5)"'),
        ("similar( 0.9 ): x", 'as in "similar(0.5)"'),
        ("contians: x", 'did you mean "contains"?'),
        ("Contains:x", 'did you mean "contains"?'),
        ("not-not-contains: x", 'did you mean "not-contains"?'),
        ("not-contians: x\ny", 'did you mean "not-contains"?'),
        ("trajectory:tool-usd: x", 'did you mean "trajectory:tool-used"?'),
        ("is-jsn", 'did you mean "is-json"?'),
    ],
)
def test_a_text_that_looks_like_an_assertion_is_reported(cell: str, message: str) -> None:
    """It is compared literally, as in promptfoo, which is hardly ever intended."""
    assert assertion_from_text(cell) == {"type": "equals", "value": cell}
    found = looks_typed(f" {cell} ")
    assert found is not None
    assert cell.startswith(found[0])
    assert message in f"{found[1].message}; {found[1].hint}"


@pytest.mark.parametrize(
    "cell",
    [
        *(
            "Paris",
            "Similar",
            "note: this",
            "http://x.y",
            "Human: hi",
            "It contains: a",
            "5:30",
            "",
        ),
        *("Python (programming language)", "equals: Contains: x", "contains: a", "file://x.txt"),
        *("x" * 100_000, "not-" * 30_000, "a:" * 50_000),
    ],
    ids=lambda cell: cell[:20],
)
def test_text_without_an_assertion_is_not_reported(cell: str) -> None:
    assert looks_typed(cell) is None


def test_similar_types_of_a_suite_are_reported_as_well() -> None:
    kinds = {**KINDS, "is-polite": kind_of(lambda _subject, _value: True)}
    assert looks_typed("is-polit: very") is None
    assert looks_typed("is-polit: very", kinds) is not None
    assert looks_typed("is-polite: very", kinds) is None


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
def test_the_elements_of_a_list_are_separated_by_commas(text: str, wanted: list[str]) -> None:
    assert comma_list(text) == wanted


@pytest.mark.parametrize("text", ['"a', '"a" b', 'c, "a'])
def test_quotes_of_a_list_must_be_balanced(text: str) -> None:
    with pytest.raises(MistakenError, match="do not match"):
        assertion_from_text(f"contains-any: {text}")

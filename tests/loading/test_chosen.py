"""Parts of a suite that the command line replaces."""

from pathlib import Path
from typing import Any

import pytest

from trioeval.loading.load import apply_given, chosen_providers, folders_of

ENTRIES = [
    "openai:chat:gpt-4.1",
    {"id": "openai:chat:gpt-4.1-mini", "label": "small"},
    {"exec:./a/model.sh": {"label": "own"}},
    {"http://localhost/v1": {}},
    {"no": "form"},
    7,
]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("small", [1]),
        ("openai:chat:gpt-4.1-mini", [1]),
        ("gpt-4.1", [0]),
        ("chat:gpt-4.1", [0]),
        ("own", [2]),
        ("model.sh", [2]),
        ("v1", [3]),
    ],
)
def test_a_name_selects_a_provider_by_label_id_or_suffix(name: str, meant: list[int]) -> None:
    """An equal name wins over one that only ends alike, and an end begins after a separator."""
    assert chosen_providers(ENTRIES, [name]) == [ENTRIES[place] for place in meant]


def test_an_unknown_name_is_a_new_provider() -> None:
    """No entry is used twice, and the order is that of the names."""
    names = ["4.1", "echo", "small", "gpt-4.1", "openai:chat:gpt-4.1-mini"]
    assert chosen_providers(ENTRIES, names) == ["4.1", "echo", ENTRIES[1], ENTRIES[0]]


@pytest.mark.parametrize("document", [{"providers": "echo"}, {"targets": ["echo"]}, {}])
def test_given_parts_replace_others(document: dict[str, Any]) -> None:
    """This holds for any spelling of the key, and for a single value."""
    assert apply_given({"tests": [], **document}, {"providers": ["echo"], "prompts": ["x"]}) == {
        "tests": [],
        "providers": ["echo"],
        "prompts": ["x"],
    }


def test_without_given_parts_nothing_changes() -> None:
    """A document that is not a suite stays unchanged as well."""
    document = {"targets": ["echo"]}
    assert apply_given(document, {}) is document
    assert apply_given([1], {"prompts": ["x"]}) == [1]


def test_folders_of_given_files_are_each_reported_once() -> None:
    """Prompts that are not files have no folder."""
    given = {
        "prompts": ["file:///p/a.txt", "file:///p/b.txt", "a text"],
        "tests": "file:///t/t.csv",
        "extensions": ["file:///x/hooks.py:name"],
        "providers": ["file:///r/list.yaml", "file://list.yaml", "echo"],
    }
    found = folders_of(given, Path("/s"))
    assert found == (Path("/p"), Path("/x"), Path("/r"), Path("/s"), Path("/t"))
    assert folders_of({}, Path("/s")) == ()
    ids = ["python:../p/a.py:f", "replay:/q/r.jsonl", "local:embedding:../m"]
    named = folders_of({"providers": ids}, Path("/s"))
    assert named == (Path("/s/../p"), Path("/q"), Path("/s/.."))

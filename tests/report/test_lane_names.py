"""Short names of lanes: unique, parts of their keys, and independent of the order."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

import trioeval
from trioeval.report.activity import lane_names
from trioeval.report.html_report.run_page import lanes_json
from trioeval.report.text import cut_middle
from trioeval.web.lane_cards import ended_cards, lane_id

HOST = "openai|http://127.0.0.1:8799/v1"
A, B = "0123456789ab", "ba9876543210"
PARTS = st.sampled_from(["", "-", "openai", "http://h/v1", "gpt", "6b", "http", "z" * 40, A, B])
KEYS = st.lists(PARTS, max_size=10).map("|".join) | st.text(max_size=5)


@pytest.mark.slow
@given(st.lists(KEYS, max_size=8), st.randoms(use_true_random=False))
def test_names_are_unique_and_stable_and_nothing_is_lost(keys: list[str], random: object) -> None:
    """Each key has a name made of its parts, whatever the order is."""
    names = lane_names(keys)
    assert [*names] == [*dict.fromkeys(keys)]
    assert len({*names.values()}) == len(names)
    for key, name in names.items():
        assert name == key or {*name.split("|")} <= {*key.split("|")} - {"", "-"}
    random.shuffle(keys)  # type: ignore[attr-defined]
    assert lane_names(keys) == names


@given(st.text(max_size=30), st.integers(1, 20))
def test_a_text_cut_in_the_middle_keeps_its_ends(text: str, cells: int) -> None:
    found = cut_middle(text, cells)
    assert cell_len(found) <= cells
    if cell_len(text) <= cells:
        assert found == text
    else:
        before, _, after = found.rpartition("…")
        assert text.endswith(after)
        assert text.startswith(before) or cell_len(text) > len(text)


def test_a_lane_has_the_label_of_its_provider() -> None:
    """A label that two lanes share, or that is the name of another lane, is not used."""
    keys = [f"{HOST}|-|-|6b", f"{HOST}|-|-|7b", "echo"]
    assert [*lane_names(keys, {keys[0]: "small model"}).values()] == ["small model", "7b", "echo"]
    same = dict.fromkeys(keys[:2], "model")
    assert [*lane_names(keys, same).values()] == ["6b", "7b", "echo"]
    assert [*lane_names(keys, {keys[0]: "echo"}).values()] == ["6b", "7b", "echo"]


def test_labels_of_lanes_are_those_of_the_suite() -> None:
    """Providers that share a lane are all named; a lane that the suite names itself keeps that name."""
    third = {"id": "openai:chat:c", "label": "third", "lane": {"key": "own"}}
    entries = [
        {"id": "openai:chat:a", "label": "first", "config": {"apiKey": "k"}},
        {"id": "openai:chat:a", "label": "second", "config": {"apiKey": "k"}},
        {**third, "config": {"apiKey": "k"}},
    ]
    suite = {"providers": entries, "prompts": ["x"]}
    prepared = trioeval.prepare(trioeval.parse_suite(suite))
    (part,) = prepared.parts
    first, second, named = part.prepared.lane_names
    assert (named, first == second) == ("own", True)
    assert prepared.lane_labels == {first: "first, second"}


def test_the_distinctive_part_is_the_name() -> None:
    """The model precedes the family, and both precede addresses and digests of keys."""

    def names(*keys: str) -> list[str]:
        return [*lane_names(keys).values()]

    assert names(f"{HOST}|-|-|6b_finetuning") == ["6b_finetuning"]
    assert names(f"{HOST}|-|-|6b", f"{HOST}|-|-|7b", "echo") == ["6b", "7b", "echo"]
    assert names(f"anthropic|https://a.b|{A}|-", f"{HOST}|{B}|-|6b") == ["anthropic", "6b"]
    assert names(f"http|https://a.b/c|{A}", f"http|https://a.b/d|{A}") == [
        "https://a.b/c",
        "https://a.b/d",
    ]
    assert names(f"{HOST}|{A}|-", f"{HOST}|{B}|-") == [f"openai|{A}", f"openai|{B}"]
    assert names("a|-|b", "a|b") == ["a|-|b", "a|b"]
    assert names(f"x|u|{A}|m", f"x|u|{B}|m", f"x|u|{A}|n", f"x|u|{B}|n") == [
        f"{A}|m", f"{B}|m", f"{A}|n", f"{B}|n",
    ]  # fmt: skip
    assert names("|".join("abcdefghi")) == ["a|b|c|d|e|f|g|h|i"]
    assert names("", "-") == ["", "-"]


def test_pages_show_the_name_and_have_the_key() -> None:
    """Commands of a page use the whole key."""
    keys = [f"{HOST}|-|-|6b", f"{HOST}|-|-|7b"]
    lane: dict[str, Any] = {
        "calls": 1, "failed": 0, "refused": 0, "tokens": 0, "cost": 0.0, "closed": None, "waits": {},
        "bucketS": 1, "buckets": [],
    }  # fmt: skip
    activity = [{"durationS": 1.0, "lanes": dict.fromkeys(keys, lane)}]
    (drawn,) = lanes_json(activity)
    assert [(one["name"], one["key"]) for one in drawn["lanes"]] == [
        ("6b", keys[0]),
        ("7b", keys[1]),
    ]
    cards = ended_cards(activity)
    assert [(card.shown, card.name, card.id) for card in cards] == [
        ("6b", keys[0], lane_id(keys[0])),
        ("7b", keys[1], lane_id(keys[1])),
    ]

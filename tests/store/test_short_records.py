"""Records of rows are stored in a shortened form, and are read as they were written."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.report.formats.json import compact
from trioeval.report.phrases import shortened
from trioeval.report.usage import usage_json
from trioeval.store.records import read_record, read_text, stored_record
from trioeval.usage import Usage

USED = usage_json(Usage())
"""The usage of a call that reported no tokens."""
TEXTS = st.text() | st.sampled_from(
    [compact(USED), r"\u007a", '"\\u007ac"', "\\u007an", '\\"\\u007ad":0', compact(compact(USED))]
)
RECORDS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | TEXTS
    | st.just(USED)
    | st.just({"tokensUsed": USED}),
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(TEXTS, parts, max_size=4),
    max_leaves=12,
)


@given(RECORDS)
def test_every_record_is_read_as_it_was_written(record: Any) -> None:
    """The text that is read is the one that was stored, whatever texts a user wrote."""
    text = compact(record)
    stored = stored_record(shortened(text))
    assert read_record(stored) == (text if isinstance(stored, str) else read_text(stored))


@given(RECORDS)
def test_a_shortened_record_is_json(record: Any) -> None:
    """SQLite can read a shortened record, and finds the output where it was."""
    stored = stored_record(shortened(compact({"response": {"output": "x", "usage": record}})))
    if isinstance(stored, str):
        assert json.loads(stored)["response"]["output"] == "x"


@pytest.mark.parametrize("usage", [Usage(), Usage(prompt=12, completion=3, total=15)])
def test_zero_counters_take_no_room(usage: Usage) -> None:
    """Token counts that are zero, and are in every record several times, are stored as tokens."""
    text = compact({"tokenUsage": usage_json(usage), "response": {"tokenUsage": usage_json(usage)}})
    assert len(stored_record(shortened(text))) < len(text) / 3

"""Records of rows are stored in a shortened form, and are read as they were written."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.report.formats.json import compact
from trioeval.report.phrases import compared_members, in_full, shortened
from trioeval.report.repeats import LABEL_DIGEST, SAME_VARIABLES, label_digest
from trioeval.report.usage import usage_json
from trioeval.store.records import quick_record, read_record, read_text, stored_record
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


@given(RECORDS, RECORDS, RECORDS, RECORDS)
def test_a_quick_record_has_what_a_comparison_reads(
    variables: Any, metadata: Any, output: Any, verdict: Any
) -> None:
    """Values of users are complete even if they hold phrases; without them nothing has to be read again."""
    record = {
        "vars": variables,
        "testCase": {"vars": variables, "threshold": None, "options": {}, "metadata": metadata},
        "response": {"output": output, "cached": False, "tokenUsage": USED},
        "score": 1.0,
        "namedScores": {},
        "failureReason": 0,
        "error": None,
        "gradingResult": {"reason": verdict, "namedScores": {}, "tokensUsed": USED["assertions"]},
    }
    text = compact(record)
    found = quick_record(stored_record(shortened(text)))
    if found is None:
        return
    whole = orjson.loads(text)  # rounds as well
    assert found["vars"] == whole["vars"]
    assert found["testCase"]["vars"] == whole["testCase"]["vars"]
    assert found["testCase"].get("metadata", {}) == whole["testCase"]["metadata"]
    assert found["response"]["output"] == whole["response"]["output"]
    assert found["score"] == 1.0
    assert found["gradingResult"]["namedScores"] == {}


@pytest.mark.parametrize("stored", ["[", "[]", '"\ud800"', '{"a":NaN}', b"damaged"])
def test_a_record_that_is_not_parsed_fast_is_left_to_be_read(stored: str | bytes) -> None:
    """Reading it again reports its damage, or reads what only Python reads."""
    assert quick_record(stored) is None


def test_a_phrase_of_a_user_is_read_in_full() -> None:
    """Here a variable has the form of token counts."""
    text = compact({"vars": {"a": USED}})
    stored = stored_record(shortened(text))
    assert quick_record(stored) is None
    assert json.loads(read_record(stored)) == {"vars": {"a": USED}}


BEGINNING = {
    "id": 'eval-1-"x"\\',
    "testIdx": 3,
    "promptIdx": 0,
    "promptId": label_digest('of {{n}}: "\\'),
    "provider": {"id": "echo", "label": ""},
    "prompt": {"raw": 'of 3: "\\', "label": 'of {{n}}: "\\'},
}


@given(RECORDS, RECORDS, st.none() | TEXTS)
def test_a_record_repeats_nothing(variables: Any, more: Any, description: str | None) -> None:
    """The id of the prompt and the variables of the test are read as they were written."""
    test: dict[str, Any] = {
        "description": description,
        "vars": {"a": variables, "b": more},
        "assert": [],
    }
    text = compact({**BEGINNING, "vars": test["vars"], "testCase": test})
    short = shortened(text)
    assert short.count(LABEL_DIGEST) == 1
    assert short.count(SAME_VARIABLES) == 1
    assert in_full(short) == text
    found = compared_members(short)
    assert found is None or found["testCase"]["vars"] == found["vars"]


@pytest.mark.parametrize(
    "changes",
    [
        {"vars": {}, "testCase": {"description": None, "vars": {"a": 1}}},
        {"vars": 1, "testCase": {"description": None, "vars": 12}},
        {"vars": {"a": 1}, "testCase": {"vars": {"a": 1}}},
        {"prompt": {"raw": None, "label": "", "config": {"vars": {"a": 1}}}, "vars": {"a": 1}},
        {"promptId": "own", "vars": {"a": 1}, "testCase": None},
        {"vars": {"testCase": {"description": None, "vars": {}}}, "testCase": {"vars": {}}},
    ],
)
def test_a_record_of_another_form_keeps_its_texts(changes: Any) -> None:
    """Nothing is taken for a repeated text."""
    text = compact(BEGINNING | {"promptId": "own"} | changes)
    assert SAME_VARIABLES not in shortened(text)
    assert in_full(shortened(text)) == text


def test_the_reply_of_a_judge_keeps_its_text() -> None:
    """Queries find its score, also in imported records."""
    output = {"pass": True, "score": 1.0, "reason": "all assertions passed"}
    text = compact({"vars": {"a": output}, "response": {"output": output}})
    assert shortened(text) == text

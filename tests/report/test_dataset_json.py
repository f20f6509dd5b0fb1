"""The result of a dataset as JSON: it is read back unchanged."""

import json

import pytest
from hypothesis import given, settings
from made_datasets import CUT, MADE, datasets

from trioeval.columns.result import DatasetResult
from trioeval.report.columns import dataset_json, read_dataset, stripped_dataset
from trioeval.report.formats.json import compact
from trioeval.report.strip import Strip


@pytest.mark.slow
@given(datasets)
@settings(max_examples=settings().max_examples // 2)
def test_a_result_is_read_back_as_it_was(result: DatasetResult) -> None:
    """A result survives JSON text, and its JSON is a function of it."""
    text = compact(dataset_json(result))
    again = read_dataset(json.loads(text))
    assert again == result
    assert compact(dataset_json(again)) == text


def test_derived_values_are_included() -> None:
    """Keys are those of all documents."""
    data = dataset_json(MADE)
    assert (data["outcome"], data["lost"]) == ("complete", 1)
    assert dataset_json(CUT)["outcome"] == "incomplete"
    assert data["failures"][0] == {
        "row": 7,
        "cause": "failed",
        "column": "problem",
        "error": "down",
        "kind": None,
        "attempts": 6,
    }
    assert data["usage"] == {"total": 1200}
    assert data["columns"][0]["common"][0] == {"value": "apples", "count": 52}


def test_numbers_that_json_cannot_represent_are_left_out() -> None:
    """A deviation may exceed all floats; the other numbers are kept."""
    column = dataset_json(MADE)["columns"][0] | {"numbers": {"min": 1.0, "std": float("inf")}}
    found = read_dataset(dataset_json(MADE) | {"columns": [column]})
    assert dataset_json(found)["columns"][0]["numbers"] == {"min": 1.0}


def test_stripped_values_are_left_out() -> None:
    """Counts are not stripped: they do not show replies."""
    assert stripped_dataset(MADE, Strip(prompt_text=True)) is MADE
    for strip in (Strip(response_output=True), Strip(test_vars=True)):
        data = dataset_json(stripped_dataset(MADE, strip))
        assert data["columns"][0]["common"] == []
        assert data["columns"][0]["distinct"] == 2

"""Records of rows: newer members, and stripped parts."""

import copy
import json
from typing import Any

import attrs
import pytest
from finished import records_of, results_of, rows_of

import trioeval
from trioeval.providers import Guardrails
from trioeval.report.head import Head
from trioeval.report.records import RowRecord
from trioeval.report.row import row_json
from trioeval.report.strip import KEEP_ALL, Strip
from trioeval.run import Status


def test_a_row_contains_its_cost_status_and_waits() -> None:
    """A row without waits has no members about them."""
    _, (row, *_) = rows_of()
    data = row_json(attrs.evolve(row, waits={"slot": 2e-5}), "e1")
    assert data["response"]["cached"] is False
    assert "waits" not in data["metadata"]["trioeval"]
    usage = trioeval.Usage(cached=5, total=5)
    assert row.reply is not None
    late = attrs.evolve(
        row,
        cached=True,
        reply=attrs.evolve(row.reply, usage=usage),
        waits={"slot": 1.5, "pace": 2e-5},
    )
    data = row_json(late, "e1")
    assert data["response"]["cached"] is True
    assert data["metadata"]["trioeval"]["waits"] == {"slot": 1.5}
    for used in (data["tokenUsage"], data["response"]["tokenUsage"]):
        assert (used["cached"], used["total"], used["numRequests"]) == (5, 5, 0)
        assert used["completionDetails"]["cacheReadInputTokens"] == 0


def test_a_row_contains_the_results_of_provider_filters() -> None:
    """Guardrails are spelled like promptfoo's; without any the member is absent."""
    _, (row, *_) = rows_of()
    assert row.reply is not None
    assert "guardrails" not in row_json(row, "e1")["response"]
    rails = Guardrails(flagged=True, flagged_input=True)
    flagged = attrs.evolve(row, reply=attrs.evolve(row.reply, guardrails=rails))
    assert row_json(flagged, "e1")["response"]["guardrails"] == {
        "flagged": True,
        "flaggedInput": True,
        "flaggedOutput": False,
    }


GROUNDS = [
    ({}, Status.NOT_GRADED),
    ({"assert": [{"type": "contains", "value": "hi"}]}, Status.PASS),
    ({"assert": [{"type": "contains", "value": "ho"}]}, Status.FAIL),
]


@pytest.mark.parametrize(("test", "status"), GROUNDS)
def test_a_row_and_its_record_have_the_same_status(test: dict[str, Any], status: Status) -> None:
    """Both are decided by the same rule, and stripped records keep their status."""
    suite = {
        "providers": ["mine"],
        "prompts": ["say {{word}}"],
        "tests": [{"vars": {"word": "hi"}, **test}],
    }
    _, (row,) = rows_of(suite)
    assert row.status is status
    (record,) = records_of([row])
    assert RowRecord.of(record).status is status
    assert record["success"] is (status is not Status.FAIL)
    strips = (Strip(**{field.name: True for field in attrs.fields(Strip)}), KEEP_ALL)
    assert {RowRecord.of(record).stripped(strip).status for strip in strips} == {status}


@pytest.mark.parametrize(
    "grounds",
    [
        {"namedScores": {"m": 1}},
        {"question": {"outcome": "correct"}},
        {"gradingResult": {"componentResults": [{"pass": True}]}},
        {"response": {"metadata": {"agent": {"message": "done"}}}},
    ],
)
def test_a_record_without_assertions_is_graded_by_other_grounds(grounds: dict[str, Any]) -> None:
    """Metrics of extensions, questions, verdicts of other programs, and agents are grounds."""
    record = {"success": True, "failureReason": 0}
    assert RowRecord.of(record).status is Status.NOT_GRADED
    assert RowRecord.of({**record, **grounds}).status is Status.PASS
    assert RowRecord.of({**record, "response": {"metadata": {"agent": "x"}}}).counted_score is None


@pytest.mark.parametrize("name", [field.name for field in attrs.fields(Strip)])
def test_stripping_changes_a_copy(name: str) -> None:
    """The stored record stays whole when a stripped one is shown."""
    for record in map(RowRecord.of, records_of(rows_of()[1])):
        before = copy.deepcopy(record)
        shown = record.stripped(Strip(**{name: True}))
        assert record == before
        assert set(shown.json) == set(record.json)
        assert shown.status is record.status
        assert record.stripped(KEEP_ALL) is record


def test_imported_records_have_verdict_output_and_name() -> None:
    """They are derived from the other members."""
    failed, _, broken, _ = map(RowRecord.of, records_of(rows_of()[1]))
    assert (failed.status, failed.output, failed.name) == (
        Status.FAIL,
        "say hi",
        "word=hi",
    )
    assert (broken.status, broken.output, broken.name) == (
        Status.ERROR,
        None,
        "second",
    )


def test_a_head_is_read_back_from_its_json() -> None:
    """A head is all that is stored of a suite."""
    head = results_of().head
    assert Head.read(json.loads(json.dumps(head.json()))) == head
    assert [column.provider for column in head.columns] == ["mine", "back"]

"""The columns and the shortened text of a row agree with its record."""

import json
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from stored_things import ROWS

from trioeval.errors import ProviderError
from trioeval.evaluation.status import Status
from trioeval.grading import Assertion, JudgeUsage, Verdict
from trioeval.grading.algebra import aggregate
from trioeval.providers import Guardrails, Reply
from trioeval.report.phrases import SHORT, in_full, shortened
from trioeval.report.records import RowRecord
from trioeval.report.row import row_json, row_text
from trioeval.run import Row
from trioeval.store.writes import result_columns, row_columns, row_scores, score_columns
from trioeval.usage import Usage

SPENT = JudgeUsage(usage=Usage(total=7, reasoning=2), cost=0.5, calls=2, judges=("j",))
ASSERTIONS = (
    Assertion(type="equals", value={"a": [1]}, metric="m", weight=2.0),
    Assertion(type="assert-set", metric="s", assertions=(Assertion(type="equals", value="b"),)),
)
PARTS = [
    Verdict(passed=True, score=0.5, reason="yes", assertion=ASSERTIONS[0], spent=SPENT),
    Verdict(
        passed=False, score=0.0, reason="no\0\ud800", assertion=ASSERTIONS[1], metadata={"a": 1}
    ),
    Verdict(passed=True, score=1, reason="of a script", named_scores={"x": 1.0}),
    Verdict(passed=True, score=1.0, reason="saw \ud83d"),
]
FAILURE = ProviderError("server", "down", body_excerpt="it is down")
CHANGES: list[dict[str, Any]] = [
    {},
    {"cached": True},
    {"reply": None, "output": None},
    {"reply": Reply(output="a", usage=Usage(prompt=1, completion=2, total=3), cost=1)},
    {"reply": Reply(output="b", usage=Usage(total=3, reasoning=1)), "cached": True},
    {"reply": Reply(output={"c": 1}, finish_reason="stop", metadata={"d": [1]}, refusal="no")},
    {"reply": Reply(output="e", guardrails=Guardrails(flagged=True), first_token=0.5)},
    {"output": float("nan")},
    {"output": {1: "a"}},
    {"output": '"\\u007an" \0 \ud800 ü'},
    {"prompt": 'a "b" \\ \ud800', "task": 't "\ud800'},
    {"prompt": None},
    {"lost": SPENT},
    {"lost": SPENT, "cached": True},
    {"spent": SPENT},
    {"details": {"judge": {"attempts": 1, "waitMs": 0.05}}, "calls": 1, "wait_ms": 0.0},
    {"output": {"pass": True, "score": 1.0, "reason": "all assertions passed"}},
    {"spent": JudgeUsage(calls=1), "lost": JudgeUsage(calls=1)},
    {"waits": {"slot": 0.5, "pace": 1e-6}, "wait_ms": 500.0, "task": "a"},
    {
        "status": Status.ERROR,
        "outcome": "failed",
        "verdict": None,
        "graded": tuple(PARTS),
        "error": "down",
        "failure": FAILURE,
        "details": {"graderReplies": ["x"]},
        "spent": SPENT,
    },
    {"status": Status.NOT_RUN, "outcome": "not_run", "verdict": None, "reply": None},
]


def rows() -> Iterator[Row]:
    """Rows of many kinds: with a verdict, without one, with odd values in every place."""
    for changes in CHANGES:
        yield attrs.evolve(ROWS[1], **changes)
    column = ROWS[1].step.column
    for prompt in (
        attrs.evolve(column.prompt, label='"\\ \ud800'),
        attrs.evolve(column.prompt, id="own"),
        attrs.evolve(column.prompt, config={"vars": {"a": 1}}),
    ):
        own = attrs.evolve(ROWS[1].step, column=attrs.evolve(column, prompt=prompt))
        yield attrs.evolve(ROWS[1], step=own)
    for variables in (
        {},
        {"a": 2**70, "b": "\ud800"},
        {"vars": {}, "testCase": {"vars": {"c": 0}}},
    ):
        test = attrs.evolve(ROWS[1].step.test, description='"testCase":{"\ud800')
        own = attrs.evolve(ROWS[1].step, vars=variables, test=test)
        yield attrs.evolve(ROWS[1], step=own)
    for parts in ([], PARTS[:1], PARTS[-1:], PARTS, [aggregate(PARTS), *PARTS]):
        verdict = aggregate(parts)
        status = Status.of_verdict(verdict.passed, parts)
        test = attrs.evolve(
            ROWS[1].step.test,
            assertions=ASSERTIONS if parts else (),
            metadata={"trioeval": 1, "b": 2},
            threshold=0.5,
        )
        step = attrs.evolve(ROWS[1].step, test=test)
        yield attrs.evolve(ROWS[1], step=step, verdict=verdict, status=status)


@pytest.mark.parametrize("row", [*rows()])
def test_the_columns_of_a_row_are_those_of_its_record(row: Row) -> None:
    """Queries find the same values, whether a row or its record was written."""
    record = RowRecord.of(row_json(row, "e"))
    assert row_columns(row) == result_columns(record)
    assert [*row_scores(row)] == [*score_columns(record)]


@pytest.mark.parametrize("row", [*rows()])
def test_a_row_is_written_shortened_as_its_text_would_be(row: Row) -> None:
    """The shortened text has every token that the text allows, and more, and is the same row."""
    text, short = row_text(row, "e"), row_text(row, "e", SHORT)
    assert in_full(short) == text
    assert json.loads(short)
    assert len(short) <= len(shortened(text))
    assert json.loads(in_full(shortened(text))) == json.loads(text)

"""A finished run for tests of reports."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import trioeval
from trioeval.report.formats.json import to_json
from trioeval.report.head import Head, config_tests, head_of
from trioeval.report.records import RowRecord
from trioeval.report.results import Results, RunInfo
from trioeval.report.row import row_json
from trioeval.report.strip import KEEP_ALL, Strip
from trioeval.report.totals import Totals
from trioeval.run import Row
from trioeval.suite.expand import expand
from trioeval.testing import run_virtual

SUITE = {
    "description": "d",
    "providers": ["mine", {"id": "echo", "label": "back"}],
    "prompts": ["say {{word}}"],
    "tests": [
        {
            "vars": {"word": "hi"},
            "metadata": {"case": 7},
            "assert": [
                {"type": "contains", "value": "hi", "weight": 3, "metric": "m"},
                {"type": "equals", "value": "no", "metric": "m"},
            ],
        },
        {
            "description": "second",
            "vars": {"word": "ho"},
            "assert": [{"type": "contains", "value": "ho"}],
        },
    ],
}


async def mine(request: trioeval.Request) -> trioeval.Reply:
    if request.test_idx:
        raise trioeval.ProviderError("server", "down", body_excerpt="it is\x00 <down>")
    usage = trioeval.Usage(prompt=2, completion=3, total=5)
    return trioeval.Reply(output=request.prompt, usage=usage, cost=0.5, finish_reason="stop")


def rows_of(
    suite: Any = SUITE, provider: trioeval.Provider = mine
) -> tuple[trioeval.Suite, list[Row]]:
    parsed = trioeval.parse_suite(suite)
    return parsed, run_virtual(lambda: trioeval.collect(parsed, providers={"mine": provider}))


def records_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the records of rows as they are read from the store."""
    return [json.loads(to_json(row_json(row, "e1"))) for row in rows]


def totals_of(suite: trioeval.Suite, rows: Sequence[Row]) -> Totals:
    totals = Totals.of(expand(suite).columns)
    for record in records_of(rows):
        totals.add(RowRecord.of(record))
    return totals


def headed(
    suite: trioeval.Suite,
    *,
    task: str | None = None,
    depends_on: tuple[str, ...] = (),
    keys: Sequence[str] = (),
) -> Head:
    """Return the head of a suite as it is read from the store."""
    head = head_of(
        suite,
        expand(suite),
        eval_id="e1",
        utc_created="2026-01-01T00:00:00+00:00",
        versions={"trioevalVersion": "0"},
        task=task,
        depends_on=depends_on,
        keys=keys,
    )
    return Head.read(json.loads(to_json(head.json())))


def results_of(
    suite: Any = SUITE,
    provider: trioeval.Provider = mine,
    *,
    strip: Strip = KEEP_ALL,
    escape: bool = True,
) -> Results:
    parsed, rows = rows_of(suite, provider)
    texts = [to_json(row_json(row, "e1")) for row in rows]

    def read(column: int | None) -> Iterator[Mapping[str, Any]]:
        found = (json.loads(text) for text in texts)
        return (row for row in found if column is None or row["promptIdx"] == column)

    return Results(
        head=headed(parsed),
        totals=totals_of(parsed, rows),
        info=RunInfo(
            utc_exported="2026-01-01T00:00:01+00:00",
            duration_ms=1000.0,
            strip=strip,
            escape_formulas=escape,
        ),
        records=read,
        tests=lambda: config_tests(parsed),
    )

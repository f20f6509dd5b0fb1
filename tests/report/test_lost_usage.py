"""Usage of calls without a usable reply belongs to their rows in every report."""

from typing import Any

import attrs
from finished import records_of, results_of, rows_of, totals_of

import trioeval
from trioeval.errors import ProviderError
from trioeval.evaluation.journal import CallKey, CallRecord
from trioeval.providers import Reply, Request, Usage
from trioeval.report.formats.inspect_log import sample_of
from trioeval.report.formats.parquet import PARQUET_COLUMNS
from trioeval.report.records import RowRecord
from trioeval.telemetry import spans as names
from trioeval.telemetry.spans import answered

USED = Usage(prompt=10, completion=5, total=15, reasoning=5)
SUITE = {"providers": [{"id": "mine", "lane": {"retryDelay": 0}}], "prompts": ["say hi"]}


def empty(*, retries: int | None = None) -> ProviderError:
    return ProviderError(
        "empty_reply",
        "no text",
        usage=USED,
        money=0.25,
        retries=retries,
        finish_reason="length",
    )


@attrs.define
class Says:
    """A provider with scripted replies; the last one repeats."""

    answers: list[Any]

    async def __call__(self, _request: Request) -> Reply:  # noqa: ASYNC124
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Reply)
        return answer


def row_of(*answers: Any, **options: Any) -> tuple[trioeval.Suite, trioeval.Row]:
    suite, (row,) = rows_of({**SUITE, "evaluateOptions": options}, Says([*answers]))
    return suite, row


def test_usage_of_a_refused_reply_is_in_every_report() -> None:
    """It is in the record, in totals, in Parquet and in Inspect logs."""
    suite, row = row_of(empty(retries=0))
    assert (row.reply, row.lost.usage, row.lost.cost, row.lost.calls) == (None, USED, 0.25, 1)
    (record,) = records_of([row])
    assert record["response"] is None
    used = record["tokenUsage"]
    assert (used["total"], used["prompt"], used["numRequests"], record["cost"]) == (15, 10, 1, 0.25)
    assert used["completionDetails"]["reasoning"] == 5
    totals = totals_of(suite, [row])
    assert (totals.columns[0].usage["total"], totals.columns[0].cost) == (15, 0.25)
    assert totals.usage["completion"] == 5
    results = results_of(SUITE, Says([empty(retries=0)]))
    cells = {column.name: column.get(results, RowRecord.of(record)) for column in PARQUET_COLUMNS}
    assert (cells["tokens"], cells["prompt_tokens"], cells["cost_usd"]) == (15, 10, 0.25)
    assert cells["finish_reason"] == "length"
    usage = sample_of(RowRecord.of(record), "1", 1).whole["model_usage"]["mine"]
    assert (usage["total_tokens"], usage["total_cost"]) == (15, 0.25)


def test_lost_usage_is_counted_besides_the_usage_of_the_reply() -> None:
    """The reply has its own usage, the row that of all of its calls."""
    _, row = row_of(
        empty(), Reply(output="hi", usage=Usage(prompt=1, completion=2, total=3), cost=0.5)
    )
    (record,) = records_of([row])
    assert record["response"]["tokenUsage"]["total"] == 3
    assert (record["tokenUsage"]["total"], record["tokenUsage"]["numRequests"]) == (18, 2)
    assert (record["response"]["cost"], record["cost"]) == (0.5, 0.75)


def test_usage_of_a_repeated_empty_reply_is_counted_twice() -> None:
    """A final retry round keeps the usage of earlier calls."""
    nothing = Reply(output=None, usage=Usage(total=7), cost=0.125)
    _, row = row_of(nothing, salvageRounds=2)
    (record,) = records_of([row])
    assert row.calls == 3
    assert (record["tokenUsage"]["total"], record["tokenUsage"]["numRequests"]) == (21, 3)
    assert record["cost"] == 0.375


def test_a_failure_without_usage_adds_nothing() -> None:
    """A failing server reports no usage, and none is invented."""
    _, row = row_of(ProviderError("bad_request", "no", status=400))
    (record,) = records_of([row])
    assert (record["tokenUsage"]["total"], record["tokenUsage"]["numRequests"]) == (0, 0)
    assert record["cost"] is None


def test_the_span_of_a_failed_call_has_its_usage() -> None:
    call = CallRecord(
        key=CallKey(None, 0, "provider", b""),
        provider="m",
        prompt="p",
        answer=empty(),
        latency_ms=1.0,
    )
    attributes = answered(call)
    assert attributes["gen_ai.usage.input_tokens"] == 10
    assert attributes["gen_ai.usage.output_tokens"] == 5
    assert attributes[names.COST] == 0.25
    assert attributes[names.FINISH_REASONS] == ["length"]

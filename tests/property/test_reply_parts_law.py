"""RESUME of what a reply or a failure consists of: no part and no cost is lost on any way through a run.

Replies and failures are drawn, and go through a recording and its replay, the cache, an interrupted run that
is resumed, and the records of the store, from which all exports are made.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

import trioeval
from trioeval.errors import ProviderError
from trioeval.evaluation.journal import RecordedReply, RecordObserver
from trioeval.providers import Guardrails, Reply, Request, ToolCall, Usage
from trioeval.providers.local.record import Recorder
from trioeval.report.row import row_json
from trioeval.report.stored import RunStart
from trioeval.run import PreparedSuite, Row, RunOptions, prepare, run_with_options
from trioeval.store import open_cache, open_store
from trioeval.store.reader import read_store

pytestmark = pytest.mark.slow

WORDS = st.text(max_size=6)
COUNTS = st.none() | st.integers(0, 99)
USAGES = st.builds(
    Usage, prompt=COUNTS, completion=COUNTS, total=COUNTS, cached=COUNTS, reasoning=COUNTS
)
COSTS = st.none() | st.integers(0, 9).map(lambda eighths: eighths / 8)
REASONS = st.sampled_from([None, "stop", "length", "tool_calls", "content_filter", "odd"])
DATA = st.dictionaries(WORDS, st.none() | st.booleans() | st.integers(0, 9) | WORDS, max_size=2)
CALLS = st.lists(st.builds(ToolCall, WORDS, DATA | WORDS, st.none() | WORDS), max_size=2).map(tuple)
REPLIES = st.builds(
    Reply,
    output=st.none() | WORDS | DATA,
    text=st.none() | WORDS,
    tool_calls=CALLS,
    reasoning=st.none() | WORDS,
    finish_reason=REASONS,
    refusal=st.none() | WORDS,
    usage=USAGES,
    cost=COSTS,
    guardrails=st.none() | st.builds(Guardrails, flagged=st.booleans(), reason=st.none() | WORDS),
    log_probs=st.none() | st.lists(st.integers(-9, 0).map(float), max_size=2).map(tuple),
).filter(lambda reply: reply.output is not None)
FAILURES = st.builds(
    ProviderError,
    st.sampled_from(["empty_reply", "malformed_reply", "connection", "server", "bad_request"]),
    WORDS,
    status=st.none() | st.integers(400, 599),
    usage=st.none() | USAGES,
    money=COSTS,
    finish_reason=REASONS,
    retries=st.just(0),
)
ANSWERS = st.lists(REPLIES | FAILURES, min_size=1, max_size=3)


def suite_of(size: int, *, judged: bool) -> trioeval.Suite:
    judge = {"type": "llm-rubric", "value": "x", "provider": "judge"}
    tests = [{"vars": {"number": n}, "assert": [judge] if judged else []} for n in range(size)]
    options = {"salvageRounds": 0, "maxConcurrency": size}
    data = {"providers": ["mine"], "prompts": ["{{number}}"], "tests": tests}
    return trioeval.parse_suite(data | {"evaluateOptions": options})


def provider_of(answers: Sequence[Reply | ProviderError]) -> Any:
    async def mine(request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        answer = answers[request.test_idx]
        if isinstance(answer, ProviderError):
            raise answer.restated(answer.message)
        return answer

    return mine


async def unused(_request: Request) -> Reply:
    raise AssertionError


async def approve(_request: Request) -> Reply:
    await trio.lowlevel.checkpoint()
    return Reply(output='{"pass": true, "score": 1, "reason": "ok"}')


@attrs.define(eq=False)
class Interruption(RecordObserver):
    """Ends a run once all of its rows have failed or wait for the judge."""

    expected: int
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    def on_row(self, _row: Row, /) -> None:
        self.count()

    async def judge(self, _request: Request) -> Reply:
        self.count()
        await trio.sleep_forever()
        raise AssertionError

    def count(self) -> None:
        self.expected -= 1
        if not self.expected:
            self.scope.cancel()


def facts(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a record says of a reply or a failure, and of its usage and cost."""
    own = record["metadata"]["trioeval"]
    response = record["response"] and {k: v for k, v in record["response"].items() if k != "raw"}
    usage = {name: count for name, count in record["tokenUsage"].items() if name != "assertions"}
    kinds = {name: own.get(name) for name in ("outcome", "errorKind", "finishReason")}
    return {"response": response, "usage": usage, "cost": record["cost"], **kinds}


async def rows_of(prepared: PreparedSuite, **how: Any) -> list[Row]:
    rows: list[Row] = []

    async def emit(row: Row) -> None:  # noqa: ASYNC124 - lists do not wait
        rows.append(row)

    await run_with_options(prepared, RunOptions(emit=emit, **how))
    return rows


def is_in(record: Mapping[str, Any], answer: Reply | ProviderError) -> None:
    """Assert that a record has all parts of a reply or a failure."""
    usage, cost = record["tokenUsage"], record["cost"]
    assert usage["total"] == (answer.usage.reported or 0)
    assert usage["prompt"] == (answer.usage.prompt or 0)
    found = facts(record)
    if isinstance(answer, ProviderError):
        assert cost == answer.money
        assert (found["errorKind"], found["finishReason"]) == (answer.kind, answer.finish_reason)
        return
    response = record["response"]
    assert (response["output"], cost) == (answer.output, answer.cost)
    assert response.get("finishReason") == answer.finish_reason
    assert bool(response.get("isRefusal")) is answer.is_refusal
    assert response.get("refusal", answer.refusal or "") == (answer.refusal or "")
    assert response.get("reasoning", "") == (answer.reasoning or "")
    assert response.get("toolCalls", []) == [call.to_json() for call in answer.tool_calls]
    assert response.get("logProbs", []) == [*(answer.log_probs or ())]
    if answer.tool_calls or answer.reasoning:
        assert response.get("text", answer.text) == answer.text


def in_folder(check: Callable[[Path], Awaitable[None]]) -> None:
    with TemporaryDirectory() as folder:

        async def main() -> None:
            with trio.fail_after(60):
                await check(Path(folder))

        trio.run(main)


@settings(max_examples=15, deadline=None)
@given(ANSWERS)
def test_a_replay_has_all_parts_of_what_was_recorded(answers: list[Reply | ProviderError]) -> None:
    """The rows of both runs are equal, whatever providers replied and however they failed."""
    suite = suite_of(len(answers), judged=False)

    async def check(folder: Path) -> None:
        prepared = prepare(suite, providers={"mine": provider_of(answers)})
        with Recorder.create(folder / "r.jsonl") as recorder:
            first = [row_json(row, "e") for row in await rows_of(prepared, recorder=recorder)]
        replayed = prepare(suite, replay=folder / "r.jsonl")
        again = [row_json(row, "e") for row in await rows_of(replayed)]
        for record, answer in zip(first, answers, strict=True):
            is_in(record, answer)
        assert [*map(facts, again)] == [*map(facts, first)]

    in_folder(check)


@settings(max_examples=15, deadline=None)
@given(ANSWERS)
def test_an_interrupted_run_has_all_parts_after_it_is_resumed(
    answers: list[Reply | ProviderError],
) -> None:
    """Replies are recalled while their rows wait for a judge; records of the store are those of the rows."""
    suite = suite_of(len(answers), judged=True)
    start = RunStart(
        id="e", utc_created="2026-01-01T00:00:00.000Z", heads=[{"config": {}}], rows={None: 3}
    )

    async def check(folder: Path) -> None:
        path = folder / "r.db"
        end = Interruption(len(answers))
        first = prepare(suite, providers={"mine": provider_of(answers), "judge": end.judge})
        async with open_store(path) as store:
            with end.scope:
                await rows_of(first, journal=store.begin(start), record_observers=[end])
        providers = {"mine": unused, "judge": approve}
        async with open_store(path) as store:
            run = await store.resume("e", start)
            await rows_of(prepare(suite, providers=providers), journal=run)
        with read_store(path) as reader:
            stored = [*reader.records(reader.run("e"))]
        for record, answer in zip(stored, answers, strict=True):
            is_in(record, answer)

    in_folder(check)


@settings(max_examples=15, deadline=None)
@given(st.lists(REPLIES, min_size=1, max_size=3))
def test_a_reply_of_the_cache_has_all_parts(replies: list[Reply]) -> None:
    """An empty reply is not kept."""

    async def check(folder: Path) -> None:
        async with open_cache(folder / "c.db") as cache:
            for place, reply in enumerate(replies):

                async def fetch(paid: Reply = reply) -> RecordedReply:
                    await trio.lowlevel.checkpoint()
                    return RecordedReply(paid, 1.0, cached=False)

                await cache.reply(bytes([place] * 16), fetch, nullcontext)
        async with open_cache(folder / "c.db") as cache:

            async def missing() -> RecordedReply:
                await trio.lowlevel.checkpoint()
                return RecordedReply(Reply(output="missing"), 1.0, cached=False)

            for place, reply in enumerate(replies):
                found = await cache.reply(bytes([place] * 16), missing, nullcontext)
                is_empty = reply.output in ("", [], {})
                assert found.reply == (Reply(output="missing") if is_empty else reply)

    in_folder(check)

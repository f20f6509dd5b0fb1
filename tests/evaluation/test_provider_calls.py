"""Replies that are available, or in flight for another row, need no call."""

import datetime as dt
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from journalled import Model, Notes, Ran, execute, shared_cache, without_times

from trioeval import Request, Status
from trioeval.errors import ProviderError
from trioeval.evaluation.journal import RecordedReply
from trioeval.evaluation.metering import CallMeter
from trioeval.evaluation.provider_calls import ReplySource
from trioeval.grading.model import NOTHING_SPENT
from trioeval.kernel import Calls, Done, Job, Lanes, LaneSpec, Plan, collect
from trioeval.providers import OpenProvider, Usage
from trioeval.providers.local.custom import CustomProvider
from trioeval.providers.resolve import resolve
from trioeval.store.cache.cache import open_cache
from trioeval.suite.model import ProviderEntry
from trioeval.templates import Templates
from trioeval.testing import run_virtual

RUBRIC = {"type": "llm-rubric", "value": "x", "provider": "judge"}
GOOD = json.dumps({"pass": True, "score": 1, "reason": "r"})
BAD = json.dumps({"pass": False, "score": 0, "reason": "r"})


def suite(*words: str, lane: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A suite with one row per word."""
    return {
        "providers": [{"id": "model", "lane": {"maxConcurrency": 4, **(lane or {})}}],
        "prompts": ["{{word}}"],
        "tests": [{"vars": {"word": word}} for word in words],
        **more,
    }


def execute_twice(
    first: Mapping[str, Any], second: Mapping[str, Any], models: Mapping[str, Any], **more: Any
) -> Ran:
    """The results of the second of two suites that share a cache."""
    with shared_cache() as cache:

        async def use(go: Callable[..., Awaitable[None]]) -> None:
            await go(cache=cache)

        execute(first, models, around=use)
        return execute(second, models, around=use, **more)


def cached(document: Mapping[str, Any], models: Mapping[str, Any], *args: Any, **more: Any) -> Ran:
    async def around(go: Callable[..., Awaitable[None]]) -> None:
        async with open_cache(None) as cache:
            await go(cache=cache)

    return execute(document, models, *args, around=around, **more)


def test_a_hundred_equal_rows_are_one_request_that_holds_one_slot() -> None:
    """The others wait without a slot, so other rows continue."""
    model = Model(slow={"a": 10.0}, cacheable=True)
    ran = cached(suite(*["a"] * 100, "b", "c", "d"), {"model": model}, Notes())
    assert model.counts == {"a": 1, "b": 1, "c": 1, "d": 1}
    assert model.most == 4
    paid = [row for row in ran.rows[:100] if not row.cached]
    assert len(paid) == 1
    assert paid[0].reply is not None
    assert (paid[0].reply.cost, paid[0].calls) == (0.25, 1)
    for row in ran.rows[:100]:
        assert row.status is Status.NOT_GRADED
        assert row.latency_ms == 10_000
        if row is not paid[0]:
            assert row.reply is not None
            assert row.reply.usage == Usage(total=7, cached=7)
            assert (row.reply.cost, row.calls, dict(row.waits)) == (0.0, 0, {})
    assert max(ran.at.values()) == 10.0


def test_a_failure_is_raised_for_all_callers_and_recorded_once() -> None:
    model = Model(cacheable=True, fails=lambda _: ProviderError("bad_request", "no"))
    notes = Notes()
    ran = cached(suite("a", "a", "a"), {"model": model}, notes)
    assert model.requests == 1
    assert [row.error for row in ran.rows] == ["bad_request: no"] * 3
    assert len(notes.calls) == 1


def test_a_reply_from_the_cache_does_not_wait_for_a_lane_that_is_blocked() -> None:
    refused: list[float] = []

    def fails(request: Request) -> Exception | None:
        if request.prompt == "new" and not refused:
            refused.append(1)
            return ProviderError("rate_limited", "slow down", retry_after=100)
        return None

    model = Model(cacheable=True, fails=fails)
    notes = Notes()
    words = ["new", "newer", "old", "newest", "old"]
    ran = execute_twice(suite("old"), suite(*words), {"model": model}, journal=notes)
    assert [row.status for row in ran.rows] == [Status.NOT_GRADED] * 5
    assert notes.rows[0].index == 2
    assert notes.rows_at[2] == 0.0
    assert min(notes.rows_at[index] for index in (0, 1, 3)) == 1.0
    assert notes.rows_at[0] >= 100.0
    assert dict(ran.rows[2].waits) == {}
    assert ran.rows[2].cached
    assert model.counts["old"] == 1


def test_cached_replies_use_no_pace_and_no_budget() -> None:
    model = Model(cacheable=True)
    lane = {"delay": 60_000}
    first, second = suite("a"), suite(*["a"] * 50, lane=lane)
    second["evaluateOptions"] = {"budget": {"requests": 1}}
    ran = execute_twice(first, second, {"model": model})
    assert ran.summary is not None
    assert (ran.summary.not_graded, ran.summary.duration) == (50, 0.0)


def test_a_refresh_calls_again() -> None:
    model = Model(cacheable=True)
    ran = execute_twice(suite("a"), suite("a"), {"model": model}, refresh_cache=True)
    assert model.requests == 2
    assert not ran.rows[0].cached


def test_providers_that_are_not_cached_are_called_each_time() -> None:
    model = Model()
    cached(suite("a", "a"), {"model": model})
    assert model.requests == 2


def judged(*words: str, assertion: Mapping[str, Any] = RUBRIC) -> dict[str, Any]:
    return suite(*words, defaultTest={"assert": [assertion]})


def test_judges_are_cached_as_well() -> None:
    model, judge = Model(), Model(cacheable=True, says=lambda _: GOOD)
    ran = execute_twice(judged("a"), judged("a"), {"model": model, "judge": judge})
    (row,) = ran.rows
    assert (judge.requests, model.requests) == (1, 2)
    assert row.status is Status.PASS
    assert (row.calls, row.spent.calls, row.spent.cost) == (1, 0, 0.0)
    assert row.spent.usage == Usage(total=7, cached=7)
    assert row.spent.judges == ("judge",)
    assert row.spent != NOTHING_SPENT


def test_repeated_calls_of_a_judge_are_separate() -> None:
    """No reply of a panel is used for another one; in the next run, each is reused for its own call."""
    replies_left = iter([GOOD, BAD, GOOD])
    judge = Model(cacheable=True, says=lambda _: next(replies_left))
    document = judged("a", assertion={**RUBRIC, "config": {"repeat": 3}})
    ran = execute_twice(document, document, {"model": Model(), "judge": judge})
    assert judge.requests == 3
    assert ran.rows[0].verdict is not None
    (part,) = ran.rows[0].verdict.parts
    assert sorted(part.metadata["graderReplies"]) == sorted([GOOD, BAD, GOOD])


def test_cache_hits_are_recorded_and_recalled() -> None:
    """A resumed run does not depend on the contents of the cache, and does not change them."""
    model, notes = Model(cacheable=True), Notes()
    first = cached(suite("a", "a"), {"model": model}, notes)
    assert [call.cached for call in notes.calls] == [False, True]
    again = execute(suite("a", "a"), {"model": model}, notes.next(keeps=lambda _: False))
    assert model.requests == 1
    assert [without_times(row) for row in again.rows] == [without_times(row) for row in first.rows]
    assert [row.cached for row in again.rows] == [False, True]
    assert [row.calls for row in again.rows] == [1, 0]


KEY = "sk-0123456789abcdef"


def asker(config: Mapping[str, Any], model: Model, notes: Notes) -> ReplySource:
    """One provider with this config, whose requests a model answers."""
    entry = ProviderEntry(id="openai:chat:m", config=config)
    found = resolve(
        *(entry.id, entry.config),
        environ={},
        directory=Path(),
        templates=Templates(),
        custom={},
    )
    provider = OpenProvider(found, 0, CustomProvider("m", model), found.secrets, None)
    return ReplySource(
        providers=[provider],
        entries=[entry],
        lanes=["m"],
        meter=CallMeter([found.metering], ["m"], bounds_only=False),
        row_ids=str,
        journal=notes,
    )


def ask(config: Mapping[str, Any], model: Model, notes: Notes) -> RecordedReply:
    class Nobody:
        def on_request(self, tokens: int) -> None: ...

        def on_failure(self, error: ProviderError, tokens: int) -> None: ...

        def on_reply(self, paid: RecordedReply, *, recalled: bool) -> None: ...

    async def main() -> RecordedReply:
        one = asker(config, model, notes)

        async def perform(_job: Job[None], calls: Calls[None]) -> RecordedReply:
            inquiry = one.prepare(0, "provider", 0, Request(prompt=f"Is {KEY} a key?"))
            return await one.fetch(inquiry, calls, Nobody())

        plan = Plan.of([Job(0, "m", None)])
        (outcome,) = await collect(plan, perform, lanes=Lanes([LaneSpec("m")]))
        assert isinstance(outcome, Done)
        return outcome.value

    return run_virtual(main)


def test_keys_are_not_recorded() -> None:
    notes = Notes()
    ask({"apiKey": KEY}, Model(), notes)
    (call,) = notes.calls
    assert call.prompt == "Is [hidden] a key?"


@pytest.mark.parametrize(
    ("config", "again"),
    [({"apiKey": KEY}, 0), ({"apiKey": "another"}, 0), ({"apiKey": KEY, "temperature": 1}, 1)],
)
def test_a_reply_of_another_config_is_not_used(config: Mapping[str, Any], again: int) -> None:
    model, notes = Model(), Notes()
    ask({"apiKey": KEY}, model, notes)
    ask(config, model, notes.next())
    assert model.requests == 1 + again


def test_a_provider_that_sees_only_the_prompt_gets_equal_calls_for_any_variables() -> None:
    """Data that is not JSON never gives an equal call."""
    one = asker({"apiKey": KEY}, Model(), Notes())

    def question(**what: Any) -> bytes:
        key = one.prepare(0, "provider", 0, Request(prompt="p", **what)).key
        assert key is not None
        assert len(key.question) == 16
        return key.question

    assert question(vars={"x": 1}) == question(vars={"x": object()}) == question()
    same = {"a": object()}
    assert question(options=same) != question(options=same)
    at = {"a": dt.date(2026, 1, 2)}
    assert question(options=at) == question(options=at)

"""The keys of a run: what contains one is not sent to workers, and none comes back from them."""

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.columns.groups import ProcessedElsewhere
from trioeval.errors import ProviderError, UsageError
from trioeval.evaluation.journal import CallKey, CallRecord
from trioeval.grading import Verdict
from trioeval.loading.load import parse_suite
from trioeval.providers import Reply, ToolCall
from trioeval.run import collect, prepare
from trioeval.scaleout.dataset_messages import DatasetFault, DatasetMessage, MadeGroup
from trioeval.scaleout.forwarding import MessageBatch
from trioeval.scaleout.messages import (
    Message,
    RecordingLine,
    RejectedReply,
    StepFinder,
    WorkerWarning,
    pack,
    unpack,
)
from trioeval.scaleout.run_keys import RunKeys
from trioeval.scaleout.sent_keys import check_sent
from trioeval.scaleout.workers import SourceLoader

KEY = "sk-scaleout-0123456789abcdef"
OWN = "openai:chat:m"


def suite(**more: Any) -> dict[str, Any]:
    return {
        "providers": ["echo"],
        "prompts": ["{{word}}"],
        "tests": [{"vars": {"word": "a"}}],
    } | more


def model(key: str, **config: Any) -> dict[str, Any]:
    return {"id": OWN, "config": {"apiBaseUrl": "http://127.0.0.1:9", "apiKey": key, **config}}


def refusal(source: Any, **environ: str) -> str:
    """Return why a suite is not sent; empty if it is."""
    loader = SourceLoader(source)
    prepared = prepare(
        parse_suite(source, environ=environ) if isinstance(source, Mapping) else source,
        environ=environ,
    )
    try:
        check_sent((loader.for_workers(prepared),), RunKeys.of(prepared))
    except UsageError as error:
        return str(error)
    return ""


# What is sent.


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (suite(providers=["echo", model(KEY)]), "$.providers[1].config.apiKey"),
        (suite(providers=[model(KEY)], description=f"uses {KEY}"), "$.description"),
        (
            suite(
                tests=[{"assert": [{"type": "llm-rubric", "value": "x", "provider": model(KEY)}]}]
            ),
            "$.tests[0].assert[0].provider.config.apiKey",
        ),
        (
            suite(providers=[model("{{env.A_KEY}}")], tests=[{"vars": {"word": f"say {KEY}"}}]),
            "$.tests[0].vars.word",
        ),
        (suite(env={"MY_TOKEN": KEY}), "$.env.MY_TOKEN"),
        (
            suite(tasks=[{"id": "t", "type": "prompt_eval", **suite(providers=[model(KEY)])}]),
            "$.tasks[0].providers[0].config.apiKey",
        ),
        (suite(providers=[model("word-word")]), "$.providers[0].config.apiKey"),
        (
            suite(
                providers=[model("{{env.A_KEY}}")],
                defaultTest={"provider": model(f"{KEY}-unused")},
                tests=[{"vars": {"word": "a"}, "provider": "echo"}],
            ),
            "$.defaultTest.provider.config.apiKey",
        ),
    ],
)
@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_suite_with_a_key_is_refused_with_its_place(
    data: dict[str, Any], place: str, *, is_loaded: bool
) -> None:
    if "tasks" in data:
        data = {"tasks": data["tasks"]}
    source: Any = parse_suite(data, environ={}) if is_loaded else data
    text = refusal(source, A_KEY=KEY)
    assert f"\n  {place}\n" in text
    assert "write {{env.NAME}} in their place" in text
    assert KEY not in text


# What returns.


HARMLESS = prepare(
    parse_suite(
        {"providers": ["echo"], "prompts": ["{{word}}"], "tests": [{"vars": {"word": "a"}}]}
    )
)
(ROW,) = trio.run(collect, HARMLESS)
NAME = CallKey(None, 0, "provider", b"0" * 16, "row")
run_keys = st.text('aZ9-/\\"\n&é🙂', min_size=9, max_size=30).map("a9-{}".format)


def messages(texts: Iterator[str]) -> list[Message]:
    """Return messages of each kind that has texts of a suite, of a provider or of its code."""

    def value() -> Any:
        return {next(texts): [next(texts), 1, None, {"a": next(texts)}]}

    reply = Reply(
        output=value(),
        text=next(texts),
        reasoning=next(texts),
        metadata={"a": value()},
        raw=value(),
        tool_calls=(ToolCall(next(texts), value(), "1"),),
    )
    error = ProviderError("server", next(texts), body_excerpt=next(texts))
    row = attrs.evolve(
        ROW,
        prompt=next(texts),
        reply=reply,
        output=value(),
        error=next(texts),
        failure=error,
        verdict=Verdict(passed=False, score=0.0, reason=next(texts), metadata={"a": value()}),
        details=value(),
        planned=ROW.step,
        step=attrs.evolve(ROW.step, vars=value()),
    )
    called = CallRecord(
        key=NAME, provider=next(texts), prompt=next(texts), answer=reply, latency_ms=1.0
    )
    return [
        called,
        attrs.evolve(called, answer=error),
        row,
        WorkerWarning(next(texts)),
        RecordingLine(json.dumps(value())),
        RecordingLine(json.dumps(value(), ensure_ascii=False)),
        DatasetMessage(1, "t", DatasetFault(next(texts))),
        DatasetMessage(1, "t", MadeGroup(0, [(0, value())], ProcessedElsewhere(), {})),
    ]


@settings(max_examples=40)
@given(run_keys, st.lists(st.integers(0, 7), min_size=10, max_size=10))
def test_no_message_of_a_worker_contains_a_key_and_others_are_unchanged(
    key: str, chosen: list[int]
) -> None:
    keys = RunKeys((key,))
    spelled = [key, f"({key})", json.dumps(key), quote(key), "harmless", *"abc"]
    sent: list[bytes] = []
    batch = MessageBatch(sent.append)
    batch.keys = keys
    given = messages(itertools.cycle(spelled[one] for one in chosen))
    plain: list[Message] = [WorkerWarning("a"), RejectedReply(NAME)]
    for one in [*given, *plain]:
        batch.add(one)
    batch.flush()
    found = unpack(sent[0], StepFinder.of(HARMLESS))
    assert not keys.are_in(sent[0])
    assert key.encode() not in sent[0]
    assert [*found][len(given) :][:2] == plain
    rejected = [one for one in found if isinstance(one, RejectedReply)]
    assert len(found) == len(given) + 1 + len(rejected)
    first = given[0]
    assert isinstance(first, CallRecord)
    assert len(rejected) == 1 + (keys.hide_in(first.answer) is not first.answer)
    if all(one > 3 for one in chosen):
        assert sent == [pack([*given, *plain])]

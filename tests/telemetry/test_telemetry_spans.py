"""A run as spans: with exact times, below their parents, and each once."""

from typing import Any

import attrs
import pytest
import trio
from exported import attributes, export, seconds
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import SpanKind, StatusCode

from trioeval import Reply, Request
from trioeval.errors import ProviderError
from trioeval.evaluation.journal import CallKey, RecordedReply
from trioeval.providers import Usage
from trioeval.testing.journals import MemoryJournal

GOOD = '{"pass": true, "score": 0.75, "reason": "it is right"}'


@attrs.define
class Model:
    """A provider that takes a second, and fails as often as requested."""

    failures: int = 0
    says: str = "a reply"
    calls: int = 0

    async def __call__(self, request: Request) -> Reply:
        self.calls += 1
        await trio.sleep(1.0)
        if self.failures:
            self.failures -= 1
            raise ProviderError("server", f"no answer to {request.prompt}", status=503)
        return Reply(
            output=self.says,
            usage=Usage(prompt=3, completion=4, total=7, reasoning=1),
            cost=0.25,
            finish_reason="stop",
            first_token=0.5,
            metadata={"model": "model-1", "id": "reply-1"},
        )


def suite(*words: str, **more: Any) -> dict[str, Any]:
    return {
        "providers": [{"id": "model", "lane": {"maxConcurrency": 1, "retryDelay": 4}}],
        "prompts": ["say {{word}}"],
        "tests": [{"vars": {"word": word}} for word in words],
        **more,
    }


def test_a_run_is_a_tree_of_rows_and_calls_at_the_instants_of_the_clock() -> None:
    """Rows begin with their admission, calls with their start; times are those of the clock."""
    out = export(suite("a", "b"), {"model": Model()}, run_id="eval-1", description="two words")
    [run] = out.named("trioeval.run")
    assert run.parent is None
    reported = {"trioeval.run.id": "eval-1", "trioeval.suite.description": "two words"}
    assert attributes(run) == reported
    assert seconds(run) == (0.0, 2.0)
    rows = sorted(out.named("trioeval.row"), key=lambda row: attributes(row)["trioeval.row.index"])
    assert [out.parent(row) for row in rows] == [run, run]
    assert [seconds(row) for row in rows] == [(0.0, 1.0), (1.0, 2.0)]
    assert [out.parent(call) for call in out.calls] == rows
    assert [seconds(call) for call in out.calls] == [(0.0, 1.0), (1.0, 2.0)]
    assert attributes(rows[1])["trioeval.wait.slot"] == 1.0
    assert out.ended


def test_a_call_has_the_attributes_of_the_conventions() -> None:
    out = export(suite("a"), {"model": Model()})
    [call] = out.calls
    assert call.kind is SpanKind.CLIENT
    assert call.name == "chat"
    assert attributes(call) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "model",
        "gen_ai.response.model": "model-1",
        "gen_ai.response.id": "reply-1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.response.time_to_first_chunk": 0.5,
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 4,
        "gen_ai.usage.reasoning.output_tokens": 1,
        "trioeval.provider.label": "model",
        "trioeval.role": "provider",
        "trioeval.row.index": 0,
        "trioeval.cost": 0.25,
    }


def test_each_attempt_is_a_span_without_the_text_of_its_error() -> None:
    """A retry is a separate call; the back-off between is an event of the row."""
    out = export(suite("secret word"), {"model": Model(failures=1)})
    failed, answered = out.calls
    assert (failed.status.status_code, failed.status.description) == (
        StatusCode.ERROR,
        "server",
    )
    reported = attributes(failed)
    assert (reported["error.type"], reported["http.response.status_code"]) == ("server", 503)
    assert answered.status.status_code is StatusCode.UNSET
    [row] = out.named("trioeval.row")
    [wait] = row.events
    assert wait.name == "trioeval.wait"
    assert wait.attributes is not None
    assert wait.attributes["trioeval.wait.for"] == "backoff"
    rest = wait.attributes["trioeval.wait.seconds"]
    assert isinstance(rest, float)
    assert seconds(answered)[0] == pytest.approx(seconds(failed)[1] + rest)
    assert "secret word" not in "".join(span.to_json() for span in out.spans)


def test_a_row_without_a_verdict_is_an_error() -> None:
    document = suite("a", providers=[{"id": "model", "lane": {"maxRetries": 0}}])
    out = export(document, {"model": Model(failures=1)})
    [row] = out.named("trioeval.row")
    assert row.status.status_code is StatusCode.ERROR
    assert attributes(row)["error.type"] == "server"
    assert attributes(row)["trioeval.status"] == "error"


def test_evaluations_are_events_of_the_call_that_is_judged() -> None:
    """Each assertion is an event, with members of sets, named by its metric if it has one."""
    who = {"id": "judge", "lane": {"maxConcurrency": 1}}
    checks = [
        {"type": "contains", "value": "reply"},
        {
            "type": "assert-set",
            "assert": [{"type": "equals", "value": "no", "metric": "same"}],
        },
        {"type": "llm-rubric", "value": "good", "provider": who, "metric": "tone"},
    ]
    document = suite("a", defaultTest={"assert": checks})
    out = export(document, {"model": Model(), "judge": Model(says=GOOD)}, run_id="eval-1")
    provider_call = next(
        call for call in out.calls if attributes(call)["trioeval.role"] == "provider"
    )
    assert provider_call.context is not None
    records = [one.log_record for one in out.events]
    assert {record.span_id for record in records} == {provider_call.context.span_id}
    assert {record.event_name for record in records} == {"gen_ai.evaluation.result"}
    assert [
        (
            reported["gen_ai.evaluation.name"],
            reported["gen_ai.evaluation.score.value"],
            reported["gen_ai.evaluation.score.label"],
        )
        for reported in (record.attributes for record in records)
    ] == [("contains", 1.0, "pass"), ("same", 0.0, "fail"), ("tone", 0.75, "pass")]
    assert not any("gen_ai.evaluation.explanation" in record.attributes for record in records)
    [row] = out.named("trioeval.row")
    assert attributes(row)["trioeval.status"] == "fail"
    assert row.status.status_code is StatusCode.UNSET, "a verdict is not a failure"


def test_content_is_exported_only_on_request() -> None:
    document = suite("hi", defaultTest={"assert": [{"type": "equals", "value": "no"}]})
    silent = export(document, {"model": Model(says="my words")})
    written = "".join(span.to_json() for span in silent.spans)
    assert "my words" not in written
    assert "say hi" not in written
    assert "my words" not in str([one.log_record for one in silent.events])
    open_out = export(document, {"model": Model(says="my words")}, content=True)
    [call] = open_out.calls
    reported = attributes(call)
    assert reported["gen_ai.input.messages"] == (
        '[{"role": "user", "parts": [{"type": "text", "content": "say hi"}]}]'
    )
    assert '"content": "my words"' in reported["gen_ai.output.messages"]
    [event] = open_out.events
    explained = event.log_record.attributes["gen_ai.evaluation.explanation"]
    assert explained == 'the output does not equal "no"'


def test_keys_and_invalid_characters_are_hidden_everywhere() -> None:
    """Surrogates are replaced, also in content: an exporter would lose the whole batch."""
    out = export(
        suite("sk-0123456789", description="of sk-0123456789"),
        {"model": Model(says="sk-0123456789 \ud800")},
        keys=["sk-0123456789"],
        content=True,
        description="of sk-0123456789",
        run_id="\udfff",
    )
    written = "".join(span.to_json() for span in out.spans)
    assert "sk-0123456789" not in written
    assert "[hidden]" in written
    for span in out.spans:
        for value in attributes(span).values():
            str(value).encode()


def test_texts_in_lists_and_names_are_hidden_too() -> None:
    """Finish reasons are the providers' words, and keys in names are hidden."""

    async def model(_request: Request) -> Reply:  # noqa: ASYNC124 - nothing to wait for
        return Reply(output="a", finish_reason="sk-0123456789 \ud800")

    out = export(suite("a"), {"model": model}, keys=["sk-0123456789"])
    [call] = out.calls
    assert attributes(call)["gen_ai.response.finish_reasons"] == ("[hidden] ?",)
    assert "sk-0123456789" not in call.to_json()


@pytest.mark.parametrize("at", ["trioeval.run", "trioeval.row", "chat"])
@pytest.mark.parametrize("name", ["on_start", "on_end"])
def test_a_processor_that_raises_affects_no_row(
    name: str, at: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception of a processor is logged once and ends telemetry; replies were paid for."""
    reported = []

    class Broken(SimpleSpanProcessor):
        def tell(self, span: ReadableSpan, **_: object) -> None:
            reported.append(span.name)
            if span.name == at:
                raise ValueError("no more room")

    setattr(Broken, name, Broken.tell)
    monkeypatch.setattr("exported.SimpleSpanProcessor", Broken)
    out = export(suite("a", "b", "c"), {"model": Model()})
    assert [row.status.value for row in out.rows] == ["not_graded"] * 3
    assert out.ended
    assert reported.count(at) == 1
    [record] = [one for one in caplog.records if one.name == "trioeval.telemetry"]
    assert "no more room" in str(record.exc_info)


class Before(MemoryJournal):
    """A journal with the recorded reply to every call of row 0."""

    @property
    def resumed(self) -> bool:
        return True

    def recorded_reply(self, key: CallKey, /) -> RecordedReply | None:
        reply = Reply(output="before", metadata={"id": "reply-0"})
        return RecordedReply(reply, 5.0, cached=False) if key.index == 0 else None


def test_a_call_of_an_earlier_execution_is_not_a_call_of_this_one() -> None:
    """The verdict names the reply, because the row has no span of a call."""
    checked = {"assert": [{"type": "contains", "value": "e"}]}
    out = export(suite("a", "b", defaultTest=checked), {"model": Model()}, journal=Before())
    assert [attributes(call)["trioeval.row.index"] for call in out.calls] == [1]
    recalled = {
        attributes(row)["trioeval.row.index"]: attributes(row).get("trioeval.recalled")
        for row in out.named("trioeval.row")
    }
    assert recalled == {0: True, 1: None}
    replies = {
        reported["trioeval.row.index"]: reported["gen_ai.response.id"]
        for reported in (one.log_record.attributes for one in out.events)
    }
    assert replies == {0: "reply-0", 1: "reply-1"}


def test_a_cancelled_run_ends_all_its_spans() -> None:
    """Rows of a cancelled run are interrupted; nothing is left open."""
    out = export(suite("a", "b"), {"model": Model()}, cut_at=0.5)
    assert [seconds(run) for run in out.named("trioeval.run")] == [(0.0, 0.5)]
    outcomes = [attributes(row)["trioeval.outcome"] for row in out.named("trioeval.row")]
    assert sorted(outcomes) == ["interrupted", "not_run"]
    assert out.ended


def test_the_span_around_a_run_is_its_parent() -> None:
    """The context of the application is the parent, and is current inside of the run."""

    async def context(given: Any) -> None:
        tracers, go = given
        with tracers.get_tracer("app").start_as_current_span("request"):
            await go()

    out = export(suite("a"), {"model": Model()}, context=context)
    [run] = out.named("trioeval.run")
    assert out.parent(run) == out.named("request")[0]


def test_tasks_are_separate_although_their_rows_have_the_same_numbers() -> None:
    """Row 0 of one task waits while row 0 of the other is called."""
    tests = [{"vars": {"word": "a"}}]
    task = {"providers": ["model"], "prompts": ["{{word}}"], "tests": tests}
    document = {
        "lanes": {"one": {"maxConcurrency": 1}},
        "tasks": [
            {"id": name, "type": "prompt_eval", **task}
            | {"providers": [{"id": "model", "lane": "one"}]}
            for name in ("left", "right")
        ],
    }
    out = export(document, {"model": Model()})
    rows = {attributes(row)["trioeval.task"]: row for row in out.named("trioeval.row")}
    assert rows.keys() == {"left", "right"}
    for call in out.calls:
        assert out.parent(call) == rows[attributes(call)["trioeval.task"]]
    assert out.ended

"""Names by the conventions of OpenTelemetry, and environment variables."""

import json
import pkgutil
import re
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import attrs
import opentelemetry.semconv._incubating.attributes as incubating
import opentelemetry.semconv.attributes as stable
import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from trioeval.agent.attempts import attempt_reply
from trioeval.agent.restarts import AttemptEnd, AttemptFailure
from trioeval.errors import ProviderError, UsageError
from trioeval.evaluation.journal import CallKey, CallRecord, CallRole
from trioeval.providers import Reply, ToolCall, Usage, resolve
from trioeval.providers.base import ModelIdentity
from trioeval.providers.vendors.services import SERVICES
from trioeval.telemetry import spans as names
from trioeval.telemetry.content import input_messages, output_messages, wants_content
from trioeval.telemetry.export import find_exporters
from trioeval.telemetry.spans import _OPERATIONS, _PROVIDERS, operation_of
from trioeval.templates import Templates


def known_names() -> set[str]:
    """Return all attributes of the installed conventions."""
    found = set()
    for package in (incubating, stable):
        for one in pkgutil.iter_modules(package.__path__):
            module = import_module(f"{package.__name__}.{one.name}")
            found |= {value for name, value in vars(module).items() if name.isupper()}
    return {value for value in found if isinstance(value, str)}


def test_every_attribute_is_standard_or_has_our_prefix() -> None:
    known = known_names()
    assert len(known) > 100
    used = {
        value
        for name, value in vars(names).items()
        if name.isupper() and isinstance(value, str) and value != "trioeval"
    }
    ours = {name for name in used if name.startswith("trioeval.")}
    # The package has attributes only; this one is the name of an event, and its attributes begin like it.
    events = {names.RESULT}
    assert used - ours - events - known == set()
    assert names.RESULT.rpartition(".")[0] + ".name" in known
    assert not known & ours


def test_providers_and_operations_have_the_names_of_the_conventions() -> None:
    providers = {one.value for one in gen_ai_attributes.GenAiProviderNameValues}
    assert set(_PROVIDERS.values()) <= providers
    operations = {one.value for one in gen_ai_attributes.GenAiOperationNameValues}
    assert {*_OPERATIONS.values(), "chat", "invoke_agent"} <= operations
    # A service with the same name in the conventions and here needs no entry.
    exported = {_PROVIDERS.get(family, family) for family in SERVICES}
    assert {"openai", "azure.ai.openai", "groq", "deepseek", "x_ai", "mistral_ai"} <= exported


@pytest.mark.parametrize(
    ("identity", "role", "words"),
    [
        (
            ModelIdentity(id="openai:gpt-x", family="openai", model="gpt-x"),
            "provider",
            "chat openai gpt-x",
        ),
        (
            ModelIdentity(id="google:embedding:e", family="google", model="e"),
            "grader",
            "embeddings gcp.gemini e",
        ),
        (
            ModelIdentity(id="vertex:g", family="google", model="g"),
            "provider",
            "chat gcp.vertex_ai g",
        ),
        (
            ModelIdentity(id="openai:completion:old", family="openai", model="old"),
            "cell",
            "text_completion openai old",
        ),
        (
            ModelIdentity(id="openai-api:groq:x", family="groq", model="x"),
            "provider",
            "chat groq x",
        ),
        (ModelIdentity(id="openai:gpt-x", family="openai", model="g"), "attempt", "chat openai g"),
        (
            ModelIdentity(id="anthropic-sdk:c", family="anthropic", model="c"),
            "provider",
            "chat anthropic c",
        ),
        (None, "provider", "chat label None"),
    ],
)
def test_a_call_is_named_by_its_operation_and_model(
    identity: ModelIdentity | None, role: CallRole, words: str
) -> None:
    call = CallRecord(
        key=CallKey(None, 0, role, b""),
        provider="label",
        prompt="",
        answer=Reply(output=""),
        latency_ms=0.0,
        model=identity,
    )
    found = operation_of(call)
    assert f"{found.name} {found.provider} {found.model}" == words


def test_an_attempt_of_an_agent_is_not_a_call_and_may_have_failed() -> None:
    """The calls of a model that is an agent are separate spans."""
    end = AttemptEnd(output="", failure=AttemptFailure("timeout", "60 s"), duration_s=60.0)
    call = CallRecord(
        key=CallKey(None, 0, "attempt", b""),
        provider="repairer",
        prompt="",
        answer=attempt_reply(end, spent=True),
        latency_ms=60_000.0,
        model=ModelIdentity(id="exec:./agent.sh"),
    )
    found = operation_of(call)
    assert (found.title, found.provider) == ("invoke_agent repairer", "exec")
    assert names.failure(call) == "timeout"
    assert names.failure(attrs.evolve(call, answer=Reply(output=""))) is None
    assert names.failure(attrs.evolve(call, answer=ProviderError("auth", "no"))) == "auth"


def test_replies_of_the_local_cache_do_not_count_as_provider_cache_reads() -> None:
    call = CallRecord(
        key=CallKey(None, 0, "provider", b""),
        provider="label",
        prompt="",
        answer=Reply(output="", usage=Usage(prompt=3, cached=2, total=5)),
        latency_ms=0.0,
    )
    assert names.answered(call)["gen_ai.usage.cache_read.input_tokens"] == 2
    cached = names.answered(attrs.evolve(call, cached=True))
    assert cached["gen_ai.usage.cache_read.input_tokens"] is None


def test_the_default_port_of_a_server_is_an_attribute_too() -> None:
    """The conventions require the port with the address."""
    ports = {}
    for url in ("https://a.example/v1", "http://a.example/v1", "http://a.example:81/v1"):
        spec = resolve(
            "openai:chat:gpt-x",
            {"apiBaseUrl": url, "apiKey": "k"},
            environ={},
            directory=Path(),
            templates=Templates(),
            custom={},
        )
        assert spec.identity.host == "a.example"
        ports[url[:5], url[-6:]] = spec.identity.port
    assert list(ports.values()) == [443, 80, 81]


def test_messages_have_the_shape_of_the_conventions() -> None:
    prompt = json.dumps(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "image_url"}]},
        ]
    )
    assert json.loads(input_messages(prompt)) == [
        {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
        {
            "role": "user",
            "parts": [
                {"type": "text", "content": "Hi"},
                {"type": "text", "content": '{"type": "image_url"}'},
            ],
        },
    ]
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    tool_call = {"type": "tool_call", "name": "add", "id": "c1", "arguments": '{"a": 1}'}
    chat = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
    ]
    assert json.loads(input_messages(json.dumps(chat))) == [
        {"role": "assistant", "parts": [tool_call]},
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "response": "2", "id": "c1"}],
        },
    ]
    [content] = json.loads(output_messages(Reply(output=[call], finish_reason="tool_calls")))
    assert content["parts"] == [tool_call]
    both = Reply(
        output="Thinking: Hm.\n\nSo:\n\n{}",
        text="So:",
        reasoning="Hm.",
        tool_calls=(ToolCall("add", {"a": 1}, "c1"), ToolCall("add", "{")),
    )
    [content] = json.loads(output_messages(both))
    assert content["parts"] == [
        {"type": "reasoning", "content": "Hm."},
        {"type": "text", "content": "So:"},
        {"type": "tool_call", "name": "add", "id": "c1", "arguments": {"a": 1}},
        {"type": "tool_call", "name": "add", "arguments": "{"},
    ]
    [content] = json.loads(output_messages(Reply(tool_calls=(ToolCall("now"),))))
    assert content["parts"] == [{"type": "tool_call", "name": "now", "arguments": {}}]
    shown = Reply(output="Thinking: Hm.\n\n4", text="4", reasoning="Hm.")
    [content] = json.loads(output_messages(shown))
    assert [part["content"] for part in content["parts"]] == ["Hm.", "4"]
    wrong = '[{"role": "user"}, 3]'  # it looks like messages, and is not
    assert json.loads(input_messages(wrong))[0]["parts"][0]["content"] == wrong
    [content] = json.loads(output_messages(Reply(output={"a": 1})))
    assert content["parts"] == [{"type": "text", "content": '{"a": 1}'}]
    assert content["finish_reason"] == "stop"


def test_content_is_exported_only_on_request() -> None:
    variable = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
    wanted = ["true", " TRUE ", "span_only", "SPAN_AND_EVENT"]
    assert all(wants_content({variable: word}) for word in wanted)
    assert not any(wants_content({variable: word}) for word in ("", "false", "no_content", "x"))


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
            "--otel: OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf or grpc, got 'http/json'",
        ),
        (
            {"OTEL_TRACES_EXPORTER": "console,zipkin_json"},
            (
                "--otel: OTEL_TRACES_EXPORTER wants the exporter zipkin_json, which is not installed: "
                "pip install opentelemetry-exporter-zipkin-json"
            ),
        ),
    ],
)
def test_missing_exporters_are_reported(environ: Mapping[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        find_exporters("traces", environ)


def test_exporters_are_those_that_variables_name() -> None:
    found = find_exporters("traces", {"OTEL_TRACES_EXPORTER": "console"})
    assert found is not None
    [console] = entry_points(group="opentelemetry_traces_exporter", name="console")
    assert found == [console.load()]
    assert find_exporters("logs", {"OTEL_LOGS_EXPORTER": "none"}) == []

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trioeval.providers.openai import build, parse
from trioeval.providers.openai_settings import OpenAISettings, read_openai

from trioeval.errors import ProviderError
from trioeval.providers import HttpReply, Request, Usage, resolve
from trioeval.rates.hints import Allowance, RateHint

HEADERS = {"content-type": "application/json", "set-cookie": "a=b", "x-request-id": "req_1"}
CALLS = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}


def settings(**config: Any) -> OpenAISettings:
    read = read_openai("gpt-4.1", {"apiKey": "sk-1234", **config}, {})
    assert isinstance(read, OpenAISettings)
    return read


def completion(message: Mapping[str, Any], finish_reason: str = "stop", **more: Any) -> HttpReply:
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return ok({"id": "chatcmpl-1", "model": "gpt-4.1-x", "choices": [choice], **more})


def ok(data: object) -> HttpReply:
    return HttpReply(200, HEADERS, json.dumps(data).encode())


def test_a_plain_prompt_is_one_user_message() -> None:
    """The smallest request: model, message, defaults, key."""
    ready = build(settings(), Request(prompt="Hi"))
    assert ready.url == "https://api.openai.com/v1/chat/completions"
    assert ready.headers == {"authorization": "Bearer sk-1234"}
    assert json.loads(ready.body) == {
        "model": "gpt-4.1",
        "messages": [{"role": "user", "content": "Hi"}],
        "temperature": 0,
        "max_tokens": 1024,
    }


def test_tools_schema_and_passthrough_are_in_the_body() -> None:
    """Options go in under their names, and what is passed through stands over everything."""
    tools = [{"type": "function", "function": {"name": "f"}}]
    config = {
        "tools": tools,
        "tool_choice": "required",
        "response_format": SCHEMA,
        "reasoningEffort": "low",
        "metadata": {"run": "1"},
        "user": "u",
        "passthrough": {"model": "other", "temperature": 1, "top_k": 5},
    }
    prompt = '[{"role": "system", "content": "Be brief"}]'
    assert json.loads(build(settings(**config), Request(prompt=prompt)).body) == {
        "model": "other",
        "messages": [{"role": "system", "content": "Be brief"}],
        "temperature": 1,
        "max_tokens": 1024,
        "tools": tools,
        "tool_choice": "required",
        "response_format": SCHEMA,
        "reasoning_effort": "low",
        "metadata": {"run": "1"},
        "user": "u",
        "top_k": 5,
    }


def test_a_broken_chat_prompt_is_not_sent() -> None:
    """A prompt that was meant to be messages fails before anything is sent."""
    with pytest.raises(ProviderError) as caught:
        build(settings(), Request(prompt='[{"role": "user"'))
    assert caught.value.kind == "bad_request"


def test_a_plain_completion_is_text_with_usage_and_origin() -> None:
    """Content, finish reason, tokens and where they came from are kept; cookies are not."""
    usage = {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    reply = parse(settings(), completion({"role": "assistant", "content": "4"}, usage=usage))
    assert reply.output == "4"
    assert reply.finish_reason == "stop"
    assert reply.usage == Usage(prompt=7, completion=3, total=10, cached=2, reasoning=1)
    assert not reply.is_refusal
    assert reply.cost is None
    assert reply.raw["id"] == "chatcmpl-1"
    assert reply.metadata == {
        "http": {
            "status": 200,
            "headers": {"content-type": "application/json", "x-request-id": "req_1"},
        },
        "id": "chatcmpl-1",
        "model": "gpt-4.1-x",
    }


def test_what_a_reply_says_of_limits_goes_with_it() -> None:
    """Good replies and refusals of a prompt carry a hint; one that says nothing carries none."""
    limits = {"x-ratelimit-limit-requests": "14400", "x-ratelimit-remaining-requests": "14399"}
    said, plain = (
        attrs.evolve(completion({"content": "4"}), headers=limits),
        completion({"content": "4"}),
    )
    assert parse(settings(), plain).hint is None
    assert parse(settings(), said).hint == RateHint(Allowance(14400, 14399))
    groq = settings(apiBaseUrl="https://api.groq.com/openai/v1")
    assert parse(groq, said).hint == RateHint(Allowance(14400, 14399, window=86400))
    body = json.dumps({"error": {"code": "content_filter"}}).encode()
    assert parse(settings(), HttpReply(400, limits, body)).hint == RateHint(Allowance(14400, 14399))


@pytest.mark.parametrize("usage", [None, [], {"prompt_tokens": "7"}, {"prompt_tokens": -1}])
def test_numbers_that_were_not_reported_stay_absent(usage: object) -> None:
    """Usage is never invented."""
    assert parse(settings(), completion({"content": "4"}, usage=usage)).usage == Usage()


@pytest.mark.parametrize(
    ("config", "message", "output"),
    [
        ({}, {"content": None}, ""),
        ({}, {"content": None, "tool_calls": CALLS}, CALLS),
        ({}, {"content": "", "tool_calls": CALLS}, CALLS),
        ({}, {"content": None, "function_call": {"name": "f"}}, {"name": "f"}),
        ({}, {"content": "So:", "tool_calls": CALLS}, {"content": "So:", "tool_calls": CALLS}),
        ({}, {"content": [{"type": "text"}]}, [{"type": "text"}]),
        ({}, {"content": '{"a": 1}'}, '{"a": 1}'),
        ({"response_format": SCHEMA}, {"content": '{"a": 1}'}, {"a": 1}),
        ({"passthrough": {"response_format": SCHEMA}}, {"content": '{"a": 1}'}, {"a": 1}),
        ({"response_format": SCHEMA}, {"content": '{"a": '}, '{"a": '),
        ({"response_format": {"type": "json_object"}}, {"content": "{}"}, "{}"),
        ({}, {"content": "4", "reasoning": "2 + 2"}, "Thinking: 2 + 2\n\n4"),
        ({}, {"content": "4", "reasoning_content": "2 + 2"}, "Thinking: 2 + 2\n\n4"),
        ({"showThinking": False}, {"content": "4", "reasoning": "2 + 2"}, "4"),
    ],
)
def test_the_message_gives_the_output(
    config: Mapping[str, Any], message: Mapping[str, Any], output: object
) -> None:
    """Text, tool calls, parsed JSON and thinking each have one form."""
    assert parse(settings(**config), completion(message)).output == output


@pytest.mark.parametrize(
    ("message", "finish_reason", "output"),
    [
        ({"content": None, "refusal": "I cannot."}, "stop", "I cannot."),
        ({"content": None}, "content_filter", "[filtered by the provider]"),
        ({"content": "So far"}, "Content_Filter", "So far"),
    ],
)
def test_refusals_and_filtered_replies_are_marked(
    message: Mapping[str, Any], finish_reason: str, output: str
) -> None:
    """A model that will not answer has answered, and the reply says so."""
    reply = parse(settings(), completion(message, finish_reason))
    assert (reply.output, reply.is_refusal) == (output, True)


@pytest.mark.parametrize("code", ["content_filter", "invalid_prompt"])
def test_a_prompt_that_is_not_taken_is_a_refusal(code: str) -> None:
    """Status 400 by a content filter is an answer to the prompt, not a failure of the call."""
    body = json.dumps({"error": {"code": code, "message": "Not allowed for sk-1234."}}).encode()
    reply = parse(settings(), HttpReply(400, {}, body))
    assert reply.output == "Not allowed for [hidden]."
    assert reply.finish_reason == "content_filter"
    assert reply.is_refusal
    assert reply.metadata == {"http": {"status": 400, "headers": {}}}


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (ok({"choices": []}), "empty_reply: the reply holds no choice"),
        (ok({"id": "x"}), "malformed_reply: the reply is not a chat completion"),
        (ok({"choices": {}}), "malformed_reply: the reply is not a chat completion"),
        (ok({"choices": [{}]}), "malformed_reply: the reply is not a chat completion"),
        (ok([1]), "malformed_reply: the reply is not a chat completion"),
        (HttpReply(200, {}, b"<html>"), "malformed_reply: the reply is not JSON"),
        (HttpReply(200, {}, b'{"a": "\xff"}'), "malformed_reply: the reply is not JSON"),
        (HttpReply(200, {}, b""), "malformed_reply: the reply is not JSON"),
        (HttpReply(200, {}, b"[" * 100_000), "malformed_reply: the reply is not JSON"),
        (HttpReply(204, {}, b""), "malformed_reply: the reply is not JSON"),
        (
            ok({"error": {"code": 429, "message": "busy"}}),
            "rate_limited: HTTP 200 OK: busy",
        ),
        (
            HttpReply(401, {}, b'{"error": {"message": "bad key sk-1234"}}'),
            "auth: HTTP 401 Unauthorized: bad key [hidden]",
        ),
    ],
)
def test_what_is_no_completion_is_an_error(reply: HttpReply, text: str) -> None:
    """Each way of not answering has its kind, and no error repeats the key."""
    with pytest.raises(ProviderError) as caught:
        parse(settings(), reply)
    assert str(caught.value) == text
    assert caught.value.status == reply.status
    assert "sk-1234" not in str(caught.value.body_excerpt)


def test_half_of_a_surrogate_pair_does_not_reach_the_output() -> None:
    """Everything in a reply can be written as UTF-8, and whole pairs stay what they are."""
    body = b'{"choices": [{"message": {"content": "\\ud83d\\ude00 \\ud83d"}}]}'
    reply = parse(settings(), HttpReply(200, {}, body))
    assert reply.output == "😀 ?"


@attrs.define
class ScriptedClient:
    """An HTTP client that answers from a list."""

    replies: list[HttpReply]
    sent: list[tuple[str, Mapping[str, str], Any]] = attrs.field(factory=list)

    async def post_json(self, url: str, headers: Mapping[str, str], body: bytes) -> HttpReply:
        await trio.lowlevel.checkpoint()
        self.sent.append((url, headers, json.loads(body)))
        return self.replies.pop(0)


def test_one_request_is_one_exchange() -> None:
    """The provider sends what was built, once, and gives what was parsed."""
    client = ScriptedClient([completion({"content": "4"})])
    config = {"apiBaseUrl": "http://127.0.0.1:1/v1"}
    spec = resolve("openai:chat:m:1", config, environ={}, directory=Path(), custom={})
    reply = trio.run(spec.open(client), Request(prompt="2 + 2"))
    assert reply.output == "4"
    ((url, headers, body),) = client.sent
    assert url == "http://127.0.0.1:1/v1/chat/completions"
    assert headers == {}
    assert body["model"] == "m:1"

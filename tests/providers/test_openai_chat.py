import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from damaged import JSON, check_parse, damaged
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import ProviderError
from trioeval.providers import Guardrails, Request, Usage, resolve
from trioeval.providers.http.adapter import AdapterSettings, HttpProvider
from trioeval.providers.http.wire import HttpReply, HttpRequest
from trioeval.providers.vendors.openai_chat import ChatAdapter, read_chat
from trioeval.providers.vendors.services import SERVICES
from trioeval.rates.throttle import Allowance, RateHint
from trioeval.templates import Templates

HEADERS = {"content-type": "application/json", "set-cookie": "a=b", "x-request-id": "req_1"}
CALLS = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}


def adapter(model: str = "gpt-4.1", service: str = "openai", /, **config: Any) -> ChatAdapter:
    read = read_chat(SERVICES[service], model, {"apiKey": "sk-1234", **config}, {})
    assert isinstance(read, AdapterSettings), read
    assert isinstance(read.adapter, ChatAdapter)
    return read.adapter


def sent(asked: ChatAdapter, prompt: str = "Hi", /, **options: Any) -> Any:
    """The body of a request."""
    body = asked.build(Request(prompt=prompt, options=options)).body
    assert body is not None
    return json.loads(body)


def completion(message: Mapping[str, Any], finish_reason: str = "stop", **more: Any) -> HttpReply:
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return ok({"id": "chatcmpl-1", "model": "gpt-4.1-x", "choices": [choice], **more})


def ok(data: object) -> HttpReply:
    return HttpReply(200, HEADERS, json.dumps(data).encode())


def test_a_plain_prompt_is_one_user_message() -> None:
    """The smallest request: model, message, defaults, key."""
    ready = adapter().build(Request(prompt="Hi"))
    assert ready.url == "https://api.openai.com/v1/chat/completions"
    assert ready.headers == {"authorization": "Bearer sk-1234"}
    assert json.loads(ready.body or b"") == {
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
    assert sent(adapter(**config), prompt) == {
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


def test_every_parameter_goes_into_the_body_under_its_name() -> None:
    """What has no meaning here is the service's to judge."""
    given = {
        "n": 2,
        "logprobs": True,
        "top_logprobs": 3,
        "functions": [{"name": "f"}],
        "function_call": {"name": "f"},
        "verbosity": "low",
        "modalities": ["text", "audio"],
        "audio": {"voice": "alloy", "format": "wav"},
        "prediction": {"type": "content", "content": "x"},
        "service_tier": "flex",
        "store": False,
        "prompt_cache_key": "k",
    }
    body = sent(adapter(omitDefaults=True, **given))
    assert body == {"model": "gpt-4.1", "messages": [{"role": "user", "content": "Hi"}], **given}


def test_options_of_a_call_stand_over_the_config() -> None:
    """For that call alone, in any spelling; null takes away what the config says."""
    asked = adapter(temperature=0.5, seed=3, passthrough={"top_k": 5})
    own = sent(asked, "Hi", maxCompletionTokens=9, seed=None, passthrough={"top_k": 6})
    assert own == {
        "model": "gpt-4.1",
        "messages": [{"role": "user", "content": "Hi"}],
        "temperature": 0.5,
        "max_completion_tokens": 9,
        "top_k": 6,
    }
    assert sent(asked)["seed"] == 3
    told = completion({"content": '{"a": 1}', "reasoning": "So"})
    for_call = asked.with_options({"response_format": SCHEMA, "showThinking": False})
    assert for_call.parse(told).output == {"a": 1}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"seeed": 3}, 'seeed: "seeed" is not a key (did you mean "seed"?)'),
        ({"seed": "x"}, 'seed: must be a whole number, got "x"'),
        (
            {"passthrough": {"stream": True}},
            "passthrough.stream: whether a reply is streamed follows from what is measured",
        ),
    ],
)
def test_wrong_options_of_a_call_are_told(options: Mapping[str, Any], told: str) -> None:
    """Before anything is sent, and without a second try."""
    with pytest.raises(ProviderError) as caught:
        sent(adapter(), "Hi", **options)
    assert caught.value.kind == "bad_request"
    assert caught.value.message == f"the options of the call are not right: {told}"


def test_options_that_an_entry_cannot_change_for_a_call_are_named() -> None:
    """A key or an address of a single call would belong to another lane."""
    with pytest.raises(ProviderError, match='"apiKey" is not a key'):
        sent(adapter(), "Hi", apiKey="sk-other")


def test_a_broken_chat_prompt_is_not_sent() -> None:
    """A prompt that was meant to be messages fails before anything is sent."""
    with pytest.raises(ProviderError) as caught:
        adapter().build(Request(prompt='[{"role": "user"'))
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
    reply = adapter().parse(completion({"role": "assistant", "content": "4"}, usage=usage))
    assert reply.output == "4"
    assert reply.finish_reason == "stop"
    assert reply.usage == Usage(prompt=7, completion=3, total=10, cached=2, reasoning=1)
    assert not reply.is_refusal
    assert reply.cost == (5 * 2 + 2 * 0.5 + 3 * 8) / 1_000_000
    assert reply.guardrails is None
    assert reply.log_probs is None
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
    assert adapter().parse(plain).hint is None
    assert adapter().parse(said).hint == RateHint(Allowance(14400, 14399))
    groq = adapter(apiBaseUrl="https://api.groq.com/openai/v1")
    assert groq.parse(said).hint == RateHint(Allowance(14400, 14399, window=86400))
    body = json.dumps({"error": {"code": "content_filter"}}).encode()
    assert adapter().parse(HttpReply(400, limits, body)).hint == RateHint(Allowance(14400, 14399))


@pytest.mark.parametrize("usage", [None, [], {"prompt_tokens": "7"}, {"prompt_tokens": -1}])
def test_numbers_that_were_not_reported_stay_absent(usage: object) -> None:
    """Usage is never invented."""
    assert adapter().parse(completion({"content": "4"}, usage=usage)).usage == Usage()


@pytest.mark.parametrize(
    ("config", "message", "output"),
    [
        ({}, {"content": ""}, ""),
        ({}, {"content": None, "tool_calls": CALLS}, CALLS),
        ({}, {"content": "", "tool_calls": CALLS}, CALLS),
        ({}, {"content": None, "function_call": {"name": "f"}}, {"name": "f"}),
        ({}, {"content": "So:", "tool_calls": CALLS}, {"content": "So:", "tool_calls": CALLS}),
        ({}, {"content": [{"type": "text"}]}, [{"type": "text"}]),
        ({}, {"content": '{"a": 1}'}, '{"a": 1}'),
        ({"response_format": SCHEMA}, {"content": '{"a": 1}'}, {"a": 1}),
        ({"passthrough": {"response_format": SCHEMA}}, {"content": '{"a": 1}'}, {"a": 1}),
        ({"response_format": SCHEMA}, {"content": '{"a": '}, '{"a": '),
        ({"response_format": SCHEMA}, {"content": '{"a": NaN}'}, '{"a": NaN}'),
        ({"response_format": {"type": "json_object"}}, {"content": "{}"}, "{}"),
        ({}, {"content": "4", "reasoning": "2 + 2"}, "Thinking: 2 + 2\n\n4"),
        ({}, {"content": "4", "reasoning_content": "2 + 2"}, "Thinking: 2 + 2\n\n4"),
        ({"showThinking": False}, {"content": "4", "reasoning": "2 + 2"}, "4"),
        ({"showThinking": False}, {"content": None, "reasoning": "2 + 2"}, ""),
        ({}, {"content": None, "audio": {"id": "a1"}}, ""),
    ],
)
def test_the_message_gives_the_output(
    config: Mapping[str, Any], message: Mapping[str, Any], output: object
) -> None:
    """Text, tool calls, parsed JSON and thinking each have one form."""
    assert adapter(**config).parse(completion(message)).output == output


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
    reply = adapter().parse(completion(message, finish_reason))
    assert (reply.output, reply.is_refusal) == (output, True)


@pytest.mark.parametrize(
    ("message", "finish_reason", "guardrails"),
    [
        (
            {"content": None, "refusal": "I cannot."},
            "stop",
            Guardrails(flagged=True, flagged_output=True, reason="I cannot."),
        ),
        (
            {"content": "So far"},
            "content_filter",
            Guardrails(flagged=True, flagged_output=True),
        ),
    ],
)
def test_what_is_refused_or_filtered_is_flagged(
    message: Mapping[str, Any], finish_reason: str, guardrails: Guardrails
) -> None:
    """As a finding about the answer."""
    assert adapter().parse(completion(message, finish_reason)).guardrails == guardrails


CLEAN = {"hate": {"filtered": False, "severity": "safe"}, "jailbreak": {"detected": False}}


@pytest.mark.parametrize(
    ("of_prompt", "of_answer", "guardrails"),
    [
        (CLEAN, CLEAN, Guardrails(flagged=False)),
        (
            {**CLEAN, "jailbreak": {"filtered": False, "detected": True}},
            CLEAN,
            Guardrails(flagged=True, flagged_input=True, reason="jailbreak"),
        ),
        (
            CLEAN,
            {**CLEAN, "hate": {"filtered": True, "severity": "high"}},
            Guardrails(flagged=True, flagged_output=True, reason="hate"),
        ),
    ],
)
def test_filters_tell_of_prompt_and_answer(
    of_prompt: object, of_answer: object, guardrails: Guardrails
) -> None:
    """Those of Azure do on every reply, and mostly that there is nothing to tell."""
    choice = {"message": {"content": "4"}, "content_filter_results": of_answer}
    filtered = {"prompt_index": 0, "content_filter_results": of_prompt}
    reply = adapter().parse(ok({"choices": [choice], "prompt_filter_results": [filtered]}))
    assert reply.guardrails == guardrails
    assert not reply.is_refusal


@pytest.mark.parametrize(
    ("logprobs", "expected"),
    [
        ({"content": [{"token": "4", "logprob": -0.5}, {"logprob": 0}]}, (-0.5, 0.0)),
        ({"tokens": ["4"], "token_logprobs": [-0.25]}, (-0.25,)),
        ({"content": None, "refusal": []}, None),
        ({"content": [{"logprob": "x"}]}, None),
        ({"content": [{"logprob": -1}, {}]}, None),
        ({"content": [{"logprob": 10**400}]}, None),
        (None, None),
    ],
)
def test_log_probabilities_are_those_of_all_tokens(
    logprobs: object, expected: tuple[float, ...] | None
) -> None:
    """Of some of them they would say nothing of the reply."""
    choice = {"message": {"content": "4"}, "logprobs": logprobs}
    reply = adapter().parse(ok({"choices": [choice]}))
    assert reply.log_probs == expected


def test_spoken_replies_give_their_transcript() -> None:
    """The sound itself is kept beside it."""
    audio = {"id": "a1", "data": "UklGRg==", "transcript": "Four.", "expires_at": 1}
    reply = adapter().parse(completion({"content": None, "audio": audio}))
    assert reply.output == "Four."
    assert reply.metadata["audio"] == audio


def test_reasoning_in_parts_of_the_content_is_told_from_the_answer() -> None:
    """As Mistral writes it; parts that are not known leave the content as it is."""
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "2 + 2"}]}
    content = [thought, {"type": "text", "text": "It is "}, {"type": "text", "text": "4"}]
    told = completion({"content": content})
    assert adapter().parse(told).output == "Thinking: 2 + 2\n\nIt is 4"
    assert adapter(showThinking=False).parse(told).output == "It is 4"
    odd = [*content, {"type": "image"}]
    assert adapter().parse(completion({"content": odd})).output == odd


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("stop", "stop"),
        ("EOS", "stop"),
        ("function_call", "tool_calls"),
        ("model_length", "length"),
    ],
)
def test_reasons_to_stop_have_one_word_each(word: str, reason: str) -> None:
    """A word that nobody else has stays."""
    assert adapter().parse(completion({"content": ""}, word)).finish_reason == reason


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {
                "prompt_tokens": 32,
                "completion_tokens": 9,
                "total_tokens": 135,
                "completion_tokens_details": {
                    "reasoning_tokens": 94,
                    "accepted_prediction_tokens": 3,
                    "rejected_prediction_tokens": 4,
                },
            },
            Usage(
                prompt=32,
                completion=103,
                total=135,
                reasoning=94,
                accepted_prediction=3,
                rejected_prediction=4,
            ),
        ),
        (
            {"prompt_tokens": 9, "prompt_cache_hit_tokens": 8, "prompt_cache_miss_tokens": 1},
            Usage(prompt=9, cached=8),
        ),
        (
            {"prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 7}},
            Usage(cached=0, cache_creation=7),
        ),
    ],
)
def test_usage_means_the_same_of_every_service(usage: object, expected: Usage) -> None:
    """Reasoning is a part of the completion, where a service counts it apart as well."""
    assert adapter().parse(completion({"content": "4"}, usage=usage)).usage == expected


@pytest.mark.parametrize(
    ("told", "config", "cost"),
    [
        ({"cost": 0.25}, {}, 0.25),
        ({"cost": -1}, {}, None),
        ({"cost": "1"}, {}, None),
        ({}, {}, None),
        (
            {"cost": 0.25, "prompt_tokens": 2, "completion_tokens": 1},
            {"price": {"input": 1_000_000, "output": 0}},
            2.0,
        ),
    ],
)
def test_a_service_may_tell_the_cost(
    told: object, config: Mapping[str, Any], cost: float | None
) -> None:
    """A price in the config stands over it."""
    asked = adapter("m", "openrouter", **config)
    assert asked.parse(completion({"content": "4"}, usage=told)).cost == cost


def test_what_stands_beside_the_answer_is_kept() -> None:
    """Where it came from, and how fast it was served."""
    annotations = [{"type": "url_citation", "url_citation": {"url": "https://a.example"}}]
    more: Any = {"provider": "p", "service_tier": "flex", "citations": ["https://b.example"]}
    reply = adapter().parse(completion({"content": "4", "annotations": annotations}, **more))
    assert reply.metadata["annotations"] == annotations
    assert reply.metadata["service_tier"] == "flex"
    assert reply.metadata["provider"] == "p"
    assert reply.metadata["citations"] == ["https://b.example"]


@pytest.mark.parametrize("status", [200, 400, 403])
@pytest.mark.parametrize("code", ["content_filter", "invalid_prompt", "content_policy_violation"])
def test_a_prompt_that_is_not_taken_is_a_refusal(code: str, status: int) -> None:
    """What a content filter says is an answer to the prompt, not a failure of the call."""
    body = json.dumps({"error": {"code": code, "message": "Not allowed for sk-1234."}}).encode()
    reply = adapter().parse(HttpReply(status, {}, body))
    assert reply.output == "Not allowed for [hidden]."
    assert reply.finish_reason == "content_filter"
    assert reply.is_refusal
    assert reply.metadata == {"http": {"status": status, "headers": {}}}


FLAGGED = {
    "code": 403,
    "message": "Your input was flagged",
    "metadata": {"reasons": ["violence", "sk-1234"], "flagged_input": "x", "provider_name": "p"},
}


@pytest.mark.parametrize(
    "reply",
    [
        HttpReply(403, {}, json.dumps({"error": FLAGGED}).encode()),
        ok({"error": FLAGGED}),
        ok({"choices": [{"error": FLAGGED}]}),
    ],
)
def test_a_prompt_that_a_router_flags_is_a_refusal(reply: HttpReply) -> None:
    """It concerns this prompt alone, so others are still asked; a 403 without it does not."""
    refused = adapter().parse(reply)
    assert (refused.output, refused.is_refusal) == ("Your input was flagged", True)
    assert refused.guardrails == Guardrails(
        flagged=True, flagged_input=True, reason="violence, [hidden]"
    )


@pytest.mark.parametrize("metadata", [None, "x", {}, {"reasons": [], "flagged_input": ""}])
def test_any_other_403_is_a_matter_of_permission(metadata: object) -> None:
    """Whatever a router says beside it."""
    error = {"code": 403, "message": "No.", "metadata": metadata}
    with pytest.raises(ProviderError) as caught:
        adapter().parse(HttpReply(403, {}, json.dumps({"error": error}).encode()))
    assert str(caught.value) == "permission: HTTP 403 Forbidden: No."


@pytest.mark.parametrize("message", [{}, {"content": None}, {"content": []}, {"tool_calls": []}])
@pytest.mark.parametrize(
    ("finish_reason", "told", "retries"),
    [
        (None, "", 1),
        ("stop", " (finish reason stop)", 1),
        ("sk-1234", " (finish reason [hidden])", 1),
        (
            "length",
            " (finish reason length); there was no room for it: raise max_tokens, or shorten the prompt",
            0,
        ),
    ],
)
def test_a_message_that_holds_nothing_is_no_answer(
    message: Mapping[str, Any], finish_reason: str | None, told: str, retries: int
) -> None:
    """It is asked for again, unless it would be cut off again."""
    choice = {"message": message, "finish_reason": finish_reason}
    with pytest.raises(ProviderError) as caught:
        adapter().parse(ok({"choices": [choice]}))
    assert str(caught.value) == f"empty_reply: the message holds nothing{told}"
    assert caught.value.retries == retries


def test_what_a_message_cost_that_holds_nothing_goes_with_the_error() -> None:
    """Thinking was paid for, though it left no room for an answer."""
    usage = {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500}
    data = {"choices": [{"message": {"content": None}}], "usage": usage}
    limits = {"x-ratelimit-remaining-requests": "5"}
    asked = adapter(price={"input": 2, "output": 8})
    with pytest.raises(ProviderError) as caught:
        asked.parse(HttpReply(200, limits, json.dumps(data).encode()))
    assert caught.value.tokens == 1500
    assert caught.value.money == pytest.approx(0.006)
    assert caught.value.hint == RateHint(Allowance(None, 5))


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (ok({"choices": []}), "empty_reply: the reply holds no choice"),
        (ok({"id": "x"}), "malformed_reply: the reply is not a chat completion"),
        (ok({"choices": {}}), "malformed_reply: the reply is not a chat completion"),
        (ok({"choices": [{}]}), "malformed_reply: the reply is not a chat completion"),
        (ok([1]), "malformed_reply: the reply is not a JSON object"),
        (HttpReply(200, {}, b"<html>"), "malformed_reply: the reply is not JSON"),
        (HttpReply(200, {}, b'{"a": "\xff"}'), "malformed_reply: the reply is not JSON"),
        (HttpReply(200, {}, b'{"a": "\xed\xa0\x80"}'), "malformed_reply: the reply is not JSON"),
        (HttpReply(200, {}, b""), "malformed_reply: the reply is not JSON"),
        (HttpReply(200, {}, b"[" * 100_000), "malformed_reply: the reply is not JSON"),
        (HttpReply(204, {}, b""), "malformed_reply: the reply is not JSON"),
        (
            ok({"error": {"code": 429, "message": "busy"}}),
            "rate_limited: HTTP 200 OK: busy",
        ),
        (
            ok({"choices": [{"error": {"code": 502, "message": "sk-1234 is down"}}]}),
            "server: HTTP 200 OK: [hidden] is down",
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
        adapter().parse(reply)
    assert str(caught.value) == text
    assert caught.value.status == reply.status
    assert "sk-1234" not in str(caught.value.body_excerpt)


def test_half_of_a_surrogate_pair_does_not_reach_the_output() -> None:
    """Everything in a reply can be written as UTF-8, and whole pairs stay what they are."""
    body = b'{"choices": [{"message": {"content": "\\ud83d\\ude00 \\ud83d"}}]}'
    reply = adapter().parse(HttpReply(200, {}, body))
    assert reply.output == "😀 ?"


@attrs.define
class ScriptedClient:
    """An HTTP client that answers from a list."""

    replies: list[HttpReply]
    sent: list[HttpRequest] = attrs.field(factory=list)

    async def send(
        self, request: HttpRequest, *, heard: Callable[[bytes], object] | None = None
    ) -> HttpReply:
        await trio.lowlevel.checkpoint()
        self.sent.append(request)
        reply = self.replies.pop(0)
        if heard is not None:
            heard(reply.body)
        return reply


def test_one_request_is_one_exchange() -> None:
    """The provider sends what was built, once, and gives what was parsed."""
    client = ScriptedClient([completion({"content": "4"})])
    config = {"apiBaseUrl": "http://127.0.0.1:1/v1"}
    spec = resolve(
        "openai:chat:m:1", config, environ={}, directory=Path(), templates=Templates(), custom={}
    )
    assert isinstance(spec.settings, AdapterSettings)
    reply = trio.run(HttpProvider(spec.settings.adapter, client), Request(prompt="2 + 2"))
    assert reply.output == "4"
    (request,) = client.sent
    assert request.url == "http://127.0.0.1:1/v1/chat/completions"
    assert request.headers == {}
    assert json.loads(request.body or b"")["model"] == "m:1"


GOLDEN: Any = {
    "id": "chatcmpl-1",
    "model": "gpt-4.1-x",
    "service_tier": "default",
    "prompt_filter_results": [{"content_filter_results": CLEAN}],
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "content_filter_results": CLEAN,
            "logprobs": {"content": [{"token": "4", "logprob": -0.5, "top_logprobs": []}]},
            "message": {
                "role": "assistant",
                "content": [{"type": "text", "text": "4"}],
                "refusal": None,
                "reasoning": "2 + 2",
                "tool_calls": CALLS,
                "audio": {"id": "a1", "data": "UklGRg==", "transcript": "Four."},
                "annotations": [{"type": "url_citation"}],
            },
        }
    ],
    "usage": {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 1},
        "cost": 0.5,
    },
}

CHUNK = {**GOLDEN, "choices": [{"index": 0, "delta": GOLDEN["choices"][0]["message"]}]}

ADAPTERS = (adapter(metrics="ttft", response_format=SCHEMA), adapter("m", "openrouter"))


@pytest.mark.slow
@given(
    data=JSON | damaged(GOLDEN) | damaged(CHUNK),
    status=st.sampled_from([200, 400, 429, 500]),
    as_stream=st.booleans(),
)
def test_whatever_a_service_answers_is_a_reply_or_an_error_of_the_provider(
    data: Any, status: int, *, as_stream: bool
) -> None:
    """And what comes of it can be written."""
    headers, body = {}, json.dumps(data).encode()
    if as_stream:
        headers = {"content-type": "text/event-stream"}
        body = b"data: " + body + b"\n\n" + b"data: " + body + b"\n\ndata: [DONE]\n\n"
    for asked in ADAPTERS:
        check_parse(asked, HttpReply(status, headers, body))


@pytest.mark.slow
@given(
    body=st.binary(max_size=200), kind=st.sampled_from(["application/json", "text/event-stream"])
)
def test_bytes_of_any_kind_are_a_reply_or_an_error_of_the_provider(body: bytes, kind: str) -> None:
    """Nothing else comes of them."""
    for asked in ADAPTERS:
        check_parse(asked, HttpReply(200, {"content-type": kind}, body))


def test_what_is_no_number_of_json_is_null() -> None:
    """Some servers write it, and the rest of their reply is good."""
    body = (
        b'{"choices": [{"message": {"content": "4"}, "logprobs": {"content": [{"logprob": NaN}]}}]}'
    )
    reply = adapter().parse(HttpReply(200, {}, body))
    assert (reply.output, reply.log_probs) == ("4", None)
    assert b"null" in json.dumps(reply.raw, allow_nan=False).encode()


def test_numbers_beyond_all_measure_are_no_counts() -> None:
    """A cost cannot be made of them, and the reply is good."""
    usage = {"prompt_tokens": 10**400, "completion_tokens": 1}
    reply = adapter().parse(completion({"content": "4"}, usage=usage))
    assert (reply.output, reply.usage, reply.cost) == ("4", Usage(completion=1), None)

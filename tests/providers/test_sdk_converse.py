import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import ProviderError
from trioeval.providers.base import Guardrails, Reply, Request
from trioeval.providers.http.adapter import ServerEvent
from trioeval.providers.http.endpoint import Endpoint, Service
from trioeval.providers.http.wire import HttpReply
from trioeval.providers.prices import Price
from trioeval.providers.sdk.bedrock import FINISH_BY_STOP, ConverseAdapter

ENDPOINT = Endpoint(
    service=Service(family="bedrock", default_url=None, key_variables=()),
    model="maker.model-v1:0",
    base_url="https://bedrock-runtime.us-east-1.amazonaws.com",
    headers={},
    credential="AKIA",
    price=Price(input=1, output=10),
)


def built(prompt: str, adapter: ConverseAdapter | None = None, **options: Any) -> Any:
    ready = (adapter or ConverseAdapter(ENDPOINT)).build(Request(prompt=prompt, options=options))
    assert ready.body is not None
    return json.loads(ready.body)


def answer(*blocks: Any, stop: str = "end_turn", **fields: Any) -> HttpReply:
    body = {"output": {"message": {"role": "assistant", "content": blocks}}, "stopReason": stop}
    return HttpReply(200, {}, json.dumps({**body, **fields}).encode())


def parsed(*blocks: Any, stop: str = "end_turn", **fields: Any) -> Reply:
    return ConverseAdapter(ENDPOINT).parse(answer(*blocks, stop=stop, **fields))


def failure(reply: HttpReply) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        ConverseAdapter(ENDPOINT).parse(reply)
    return caught.value


def test_a_text_is_one_message_and_nothing_else_is_sent() -> None:
    """What the config does not say is left to the model."""
    assert built("Hi") == {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]}


def test_system_messages_stand_beside_the_others() -> None:
    """Converse has a field for them; contents become blocks."""
    messages = [
        {"role": "system", "content": "Be brief"},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"text": "there"}]},
        {"role": "assistant", "content": "Hello"},
    ]
    assert built(json.dumps(messages)) == {
        "system": [{"text": "Be brief"}],
        "messages": [
            {"role": "user", "content": [{"text": "Hi"}, {"text": "there"}]},
            {"role": "assistant", "content": [{"text": "Hello"}]},
        ],
    }


def test_an_image_in_a_data_uri_becomes_an_image_block() -> None:
    """With its format and its bytes as they are on the wire."""
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}
    body = built(json.dumps([{"role": "user", "content": [part]}]))
    (block,) = body["messages"][0]["content"]
    assert block == {"image": {"format": "png", "source": {"bytes": "iVBORw=="}}}


def test_an_image_somewhere_else_is_refused() -> None:
    """Converse would not fetch it."""
    part = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    with pytest.raises(ProviderError, match="bad_request: an image must be a data: URI"):
        built(json.dumps([{"role": "user", "content": [part]}]))


def test_options_of_a_call_win_over_the_config() -> None:
    """In any spelling; null takes away what the config says."""
    adapter = ConverseAdapter(
        ENDPOINT,
        inference={"maxTokens": 5, "temperature": 0.1},
        arguments={"requestMetadata": {"a": "b"}},
    )
    body = built("Hi", adapter, max_tokens=7, temperature=None, performanceConfig={"latency": "x"})
    assert body["inferenceConfig"] == {"maxTokens": 7}
    assert body["requestMetadata"] == {"a": "b"}
    assert body["performanceConfig"] == {"latency": "x"}


def test_a_wrong_option_is_told_before_the_call() -> None:
    """As a wrong config is."""
    with pytest.raises(ProviderError, match="bad_request: the options of the call are not right"):
        built("Hi", maxTokens=0)


def test_texts_are_joined_by_blank_lines() -> None:
    """Most replies are one block."""
    assert parsed({"text": "one"}, {"text": "two"}).output == "one\n\ntwo"


@pytest.mark.parametrize(("shown", "output"), [(True, "Thinking: hm\n\n4"), (False, "4")])
def test_thinking_is_shown_where_it_is_wanted(shown: bool, output: str) -> None:  # noqa: FBT001
    """As for other providers."""
    thought = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}
    adapter = ConverseAdapter(ENDPOINT, show_thinking=shown)
    assert adapter.parse(answer(thought, {"text": "4"})).output == output


def test_a_tool_call_is_its_json() -> None:
    """Assertions can read it."""
    call = {"toolUse": {"toolUseId": "t", "name": "add", "input": {"a": 1}}}
    reply = parsed(call, stop="tool_use")
    assert json.loads(reply.output) == call
    assert reply.finish_reason == "tool_calls"


def test_the_prompt_is_all_of_it_also_what_was_cached() -> None:
    """Converse counts it in three parts; the cost has a price for each."""
    usage = {
        "inputTokens": 10,
        "outputTokens": 5,
        "totalTokens": 45,
        "cacheReadInputTokens": 20,
        "cacheWriteInputTokens": 10,
    }
    reply = parsed({"text": "Hi"}, usage=usage)
    assert (reply.usage.prompt, reply.usage.completion, reply.usage.total) == (40, 5, 45)
    assert (reply.usage.cached, reply.usage.cache_creation) == (20, 10)
    assert reply.cost == pytest.approx((40 * 1 + 5 * 10) / 1_000_000)


@pytest.mark.parametrize("stop", FINISH_BY_STOP)
def test_every_reason_to_stop_has_the_common_word(stop: str) -> None:
    """Those of filters are refusals, and say so."""
    reply = parsed({"text": "Hi"}, stop=stop)
    assert reply.finish_reason in {"stop", "length", "tool_calls", "content_filter"}
    assert reply.is_refusal == (reply.finish_reason == "content_filter")
    assert (reply.guardrails is not None) == reply.is_refusal


def test_nothing_is_streamed() -> None:
    """So no event is a part of an answer."""
    adapter = ConverseAdapter(ENDPOINT)
    assert not adapter.streams
    assert not adapter.speaks(ServerEvent("{}"))


def test_a_guardrail_says_why() -> None:
    """Also where it left nothing of the reply."""
    trace = {"guardrail": {"actionReason": "topic denied"}}
    reply = parsed(stop="guardrail_intervened", trace=trace)
    assert reply.output == "[filtered by the provider]"
    assert reply.guardrails == Guardrails(flagged=True, reason="topic denied")


def test_an_unknown_reason_to_stop_is_kept() -> None:
    """In lower case."""
    assert parsed({"text": "Hi"}, stop="Malformed_Tool_Use").finish_reason == "malformed_tool_use"


def test_a_reply_without_content_is_empty_and_one_of_something_else_malformed() -> None:
    """Both may be better the next time, but not what was cut off."""
    empty, cut_off = failure(answer()), failure(answer(stop="max_tokens"))
    assert str(empty) == "empty_reply: the message holds nothing (finish reason stop)"
    assert str(cut_off) == (
        "empty_reply: the message holds nothing (finish reason length);"
        " there was no room for it: raise maxTokens, or shorten the prompt"
    )
    assert (empty.retries, cut_off.retries) == (1, 0)
    assert failure(HttpReply(200, {}, b"{}")).kind == "malformed_reply"
    assert failure(HttpReply(200, {}, b"<html>")).kind == "malformed_reply"


@pytest.mark.parametrize(
    ("status", "code", "message", "kind"),
    [
        (403, "AccessDeniedException", "no", "permission"),
        (429, "ThrottlingException", "slow down", "rate_limited"),
        (429, "ModelNotReadyException", "wait", "rate_limited"),
        (404, "ResourceNotFoundException", "no such model", "not_found"),
        (408, "ModelTimeoutException", "slow", "server"),
        (424, "ModelErrorException", "oops", "server"),
        (500, "InternalServerException", "oops", "server"),
        (503, "ServiceUnavailableException", "oops", "server"),
        (400, "ValidationException", "bad", "bad_request"),
        (400, "ValidationException", "Input is too long for requested model.", "context_window"),
        (400, "ValidationException", "prompt is too long: 9 tokens", "context_window"),
        (400, "ServiceQuotaExceededException", "no more", "quota_exhausted"),
        (403, "UnrecognizedClientException", "who?", "auth"),
        (403, "ExpiredTokenException", "old", "auth"),
        (403, "InvalidSignatureException", "forged", "auth"),
    ],
)
def test_codes_of_bedrock_say_what_failed(status: int, code: str, message: str, kind: str) -> None:
    """With the message, the status and the wait, as every classified failure."""
    headers = {"x-amzn-errortype": f"{code}:http://internal.amazon.com/", "retry-after": "3"}
    body = json.dumps({"message": message}).encode()
    error = failure(HttpReply(status, headers, body))
    assert (error.kind, error.status, error.retry_after) == (kind, status, 3)
    assert message in str(error)


_NAMES = (
    "output",
    "message",
    "content",
    "stopReason",
    "usage",
    "inputTokens",
    "text",
    "reasoningContent",
    "reasoningText",
    "trace",
    "guardrail",
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(_NAMES) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.slow
@given(data=_JSON, status=st.sampled_from([200, 302, 400, 403, 429, 500]))
def test_whatever_comes_is_a_reply_or_a_classified_failure(data: Any, status: int) -> None:
    """Nothing that a server can send breaks the reader."""
    adapter = ConverseAdapter(ENDPOINT)
    try:
        reply = adapter.parse(HttpReply(status, {}, json.dumps(data).encode()))
    except ProviderError:
        return
    assert isinstance(reply.output, str)


@pytest.mark.slow
@given(content=st.lists(_JSON, max_size=3), stop=st.sampled_from(["end_turn", "x", None]))
def test_whatever_blocks_come_the_output_is_a_text(content: list[Any], stop: str | None) -> None:
    """Also of blocks that do not exist yet."""
    body = {"output": {"message": {"content": content}}, "stopReason": stop}
    try:
        reply = ConverseAdapter(ENDPOINT).parse(HttpReply(200, {}, json.dumps(body).encode()))
    except ProviderError as error:
        assert error.kind == "empty_reply"  # noqa: PT017 - one of two right ends
    else:
        assert isinstance(reply.output, str)

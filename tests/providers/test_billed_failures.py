"""A failed call has the usage and the cost that its reply reports."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from fake_runs import openai_provider, with_raw_server
from vendor_anthropic import MESSAGES
from vendor_cases import Vendor
from vendor_google import GENERATE
from vendor_openai import CHAT
from vendor_responses import RESPONSES

from trioeval.errors import Fault, ProviderError
from trioeval.providers.base import Request
from trioeval.providers.fake import FakeAddress
from trioeval.providers.http.wire import HttpClient, HttpReply
from trioeval.providers.programs.exec import read_result
from trioeval.usage import Usage

PRICE = {"input": 1_000_000, "output": 2_000_000}


def stream(*data: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in data)


def broken(vendor: Vendor, *data: Any) -> ProviderError:
    """Return the error for a stream that ends after these events."""
    headers = {"content-type": "text/event-stream; charset=utf-8"}
    adapter = vendor.adapter(metrics=["ttft"], price=PRICE)
    with pytest.raises(ProviderError) as caught:
        adapter.parse(HttpReply(200, headers, stream(*data)))
    assert (caught.value.kind, caught.value.fault) == ("connection", Fault.TRANSIENT)
    return caught.value


CHUNK = {"choices": [{"index": 0, "delta": {"content": "It"}}], "usage": None}
CHAT_USAGE = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}
BEGUN = {
    "type": "message_start",
    "message": {"content": [], "usage": {"input_tokens": 10, "output_tokens": 1}},
}
SO_FAR = {"promptTokenCount": 10, "candidatesTokenCount": 4, "totalTokenCount": 14}
CREATED = {"type": "response.created", "response": {"status": "in_progress", "usage": None}}
FAILED = {
    "type": "response.failed",
    "response": {
        "status": "failed",
        "error": {"code": "server_error", "message": "no"},
        "usage": {"input_tokens": 10, "output_tokens": 4, "total_tokens": 14},
    },
}
WHOLE = Usage(prompt=10, completion=4, total=14)


@pytest.mark.parametrize(
    ("vendor", "events", "usage", "money"),
    [
        (CHAT, [CHUNK], Usage(), None),
        (CHAT, [CHUNK, {"choices": [], "usage": CHAT_USAGE}], WHOLE, 18.0),
        (RESPONSES, [CREATED], Usage(), None),
        # The first event counts the output of the first moment: the rest was generated, and is unknown.
        (MESSAGES, [BEGUN], Usage(prompt=10), None),
        (
            MESSAGES,
            [BEGUN, {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 4}}],
            WHOLE,
            18.0,
        ),
        (GENERATE, [{"candidates": [{}], "usageMetadata": SO_FAR}], WHOLE, 18.0),
    ],
    ids=["chat-early", "chat", "responses-early", "anthropic-early", "anthropic", "gemini"],
)
def test_a_broken_stream_has_the_usage_that_arrived(
    vendor: Vendor, events: Sequence[Any], usage: Usage, money: float | None
) -> None:
    """An incomplete count leaves the cost unknown, and the reservation of a budget as used."""
    error = broken(vendor, *events)
    assert (error.usage, error.money) == (usage, money)
    assert error.tokens == usage.in_all
    if usage.in_all is None:
        assert error.used(100, 5.0) == (100, 5.0)
    else:
        assert error.used(100, 5.0) == (14, 18.0)


def test_a_response_that_failed_in_a_stream_has_its_usage() -> None:
    adapter = RESPONSES.adapter(metrics=["ttft"], price=PRICE)
    with pytest.raises(ProviderError) as caught:
        adapter.parse(HttpReply(200, {"content-type": "text/event-stream"}, stream(FAILED)))
    assert (caught.value.kind, caught.value.usage, caught.value.money) == ("server", WHOLE, 18.0)


def test_a_lost_connection_keeps_the_usage_that_arrived() -> None:
    """The reply breaks off in its body."""
    body = stream(CHUNK, {"choices": [], "usage": CHAT_USAGE})
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(body) + 9}"

    async def check(address: FakeAddress, client: HttpClient) -> None:
        provider = openai_provider(address.base_url, client, metrics=["ttft"], price=PRICE)
        with pytest.raises(ProviderError) as caught:
            await provider(Request(prompt="Hi"))
        assert caught.value.kind == "connection"
        assert (caught.value.usage, caught.value.money) == (WHOLE, 18.0)

    with_raw_server(f"{head}\r\n\r\n".encode() + body, check)


@pytest.mark.parametrize(
    ("more", "usage", "money"),
    [
        ({}, Usage(), None),
        ({"tokenUsage": {"prompt": 2, "completion": 1}}, Usage(prompt=2, completion=1), None),
        ({"tokenUsage": {"total": 3}, "cost": 0.5}, Usage(total=3), 0.5),
        ({"tokenUsage": "many", "cost": -1}, Usage(), None),
    ],
)
def test_an_error_of_a_program_may_have_a_usage(
    more: dict[str, Any], usage: Usage, money: float | None
) -> None:
    """An invalid usage does not replace the error."""
    with pytest.raises(ProviderError) as caught:
        read_result({"error": "no model", **more}, "call_api", name="x.py")
    assert (caught.value.message, caught.value.usage, caught.value.money) == (
        "x.py: no model",
        usage,
        money,
    )


@pytest.mark.parametrize(
    "wrong",
    [{"error": "no model"}, {"output": "x", "cached": 3}, {"toolCalls": []}, {"reasoning": 3}],
)
def test_a_useless_result_of_a_program_keeps_its_cost_and_its_end(wrong: dict[str, Any]) -> None:
    """It was paid for, whatever is wrong with it."""
    billed = {"tokenUsage": {"total": 3}, "cost": 0.5, "finishReason": "length"}
    with pytest.raises(ProviderError) as caught:
        read_result({**billed, **wrong}, "call_api", name="x.py")
    error = caught.value
    assert (error.usage, error.money, error.finish_reason) == (Usage(total=3), 0.5, "length")

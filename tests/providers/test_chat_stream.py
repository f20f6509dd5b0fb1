import json
from collections.abc import Mapping
from typing import Any

import pytest
from fake_runs import openai_provider, with_raw_server
from hypothesis import given
from hypothesis import strategies as st
from vendor_cases import KEY, STREAM, parse_failure
from vendor_openai import END, call, chunk, usage_chunk, write_events

from trioeval.providers import Request
from trioeval.providers.fake import FakeAddress
from trioeval.providers.http.adapter import AdapterSettings
from trioeval.providers.http.streams import ServerEvent
from trioeval.providers.http.wire import HttpClient, HttpReply
from trioeval.providers.vendors.openai_chat import ChatAdapter, join_chunks
from trioeval.providers.vendors.services import SERVICES


def adapter(service: str = "openai", **config: Any) -> ChatAdapter:
    whole = {"apiKey": KEY, "metrics": ["ttft"], **config}
    read = ChatAdapter.read_entry(SERVICES[service], "gpt-4.1", whole, {})
    assert isinstance(read, AdapterSettings), read
    assert isinstance(read.adapter, ChatAdapter)
    return read.adapter


def streamed(*chunks: object) -> HttpReply:
    """Return a stream of these chunks, as it arrives."""
    return HttpReply(200, STREAM, write_events(chunks))


def test_log_probabilities_and_filters_of_all_chunks_are_kept() -> None:
    """Azure reports on the prompt in a chunk without choices, and on the reply in parts."""
    clean = {"hate": {"filtered": False}}
    chunks = [
        {"choices": [], "prompt_filter_results": [{"content_filter_results": clean}]},
        chunk({"content": "a"}, logprobs={"content": [{"logprob": -1}]}),
        chunk({"content": "b"}, logprobs={"content": [{"logprob": -2}]}),
        chunk(finish_reason="stop", content_filter_results={"hate": {"filtered": True}}),
        END,
    ]
    reply = adapter().parse(streamed(*chunks))
    assert reply.log_probs == (-1.0, -2.0)
    assert reply.guardrails is not None
    assert (reply.guardrails.flagged_input, reply.guardrails.flagged_output) == (False, True)


def test_the_first_choice_is_the_output_in_any_order() -> None:
    """Other choices are in the raw reply."""
    reply = adapter(n=2).parse(
        streamed(
            chunk({"content": "x"}, index=1),
            chunk({"content": "a"}),
            chunk({"content": "y"}, index=1),
            chunk({"content": "b"}),
            END,
        )
    )
    assert reply.output == "ab"
    assert [one["message"]["content"] for one in reply.raw["choices"]] == ["ab", "xy"]


def test_a_message_repeated_beside_its_deltas_is_read_once() -> None:
    """Some services send the text so far in every chunk."""
    chunks = [
        chunk({"content": "a"}, message={"content": "a"}),
        chunk({"content": "b"}, message={"content": "ab"}),
    ]
    assert adapter().parse(streamed(*chunks, END)).output == "ab"


def test_empty_deltas_change_nothing() -> None:
    """Null deltas, empty names after a real one, and nulls after a text are ignored."""
    chunks = [
        chunk({"tool_calls": [call(0, "{", id="a", name="f")], "content": "x"}),
        chunk("x"),
        chunk({"tool_calls": [call(0, "}", id="", name="")], "content": None}),
    ]
    reply = adapter().parse(streamed(*chunks, END))
    assert reply.output == {
        "content": "x",
        "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}],
    }


def test_tool_calls_without_an_index_are_complete() -> None:
    """Each is a separate call."""
    calls = [{"id": name, "function": {"name": name, "arguments": "{}"}} for name in "ab"]
    reply = adapter().parse(streamed(*(chunk({"tool_calls": [one]}) for one in calls), END))
    assert reply.output == calls


def test_reasoning_in_parts_and_text_after_it_are_one_content() -> None:
    """Mistral streams in this form."""
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "2 + 2"}]}
    chunks = [chunk({"content": [thought]}), chunk({"content": "It is "}), chunk({"content": "4"})]
    reply = adapter("mistral").parse(streamed(*chunks, END))
    assert (reply.output, reply.reasoning) == ("It is 4", "2 + 2")


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (
            HttpReply(
                200, STREAM, b'event: error\ndata: {"type": "overloaded_error", "message": "x"}\n\n'
            ),
            "overloaded: HTTP 200 OK: x",
        ),
        (
            streamed("<html>", END),
            "malformed_reply: HTTP 200 OK: the reply is not a chat completion; check apiBaseUrl",
        ),
        (streamed(usage_chunk(), END), "empty_reply: HTTP 200 OK: the reply has no choice"),
    ],
)
def test_an_invalid_stream_is_an_error(reply: HttpReply, message: str) -> None:
    """The content decides the kind of error."""
    assert str(parse_failure(adapter(), reply)) == message


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        ("openai", {"stream": True, "stream_options": {"include_usage": True}}),
        ("mistral", {"stream": True}),
    ],
)
def test_a_stream_is_requested_to_time_the_first_token(
    service: str, expected: Mapping[str, Any]
) -> None:
    """A stream is requested with its usage, unless the service refuses the option."""
    body = json.loads(adapter(service).build(Request(prompt="Hi")).body or b"")
    assert {name: body[name] for name in body if name.startswith("stream")} == expected


@pytest.mark.slow
@given(st.text(), st.data())
def test_any_split_of_a_text_gives_the_same_text(text: str, data: st.DataObject) -> None:
    """The position of a cut does not change the text."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    parts = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    events = [ServerEvent(json.dumps(chunk({"content": part}))) for part in parts]
    whole = join_chunks([*events, ServerEvent(END)])
    assert whole is not None
    assert whole["choices"][0]["message"]["content"] == text
    assert join_chunks(events) is None


@pytest.mark.network
def test_a_large_event_without_output_is_not_the_first_token() -> None:
    """An event with many values is not the first token: some services begin with the whole request."""
    silent = {**chunk({"role": "assistant"}), "instructions": "x" * 200_000}
    body = streamed(silent, chunk({"content": ""}), chunk(finish_reason="stop"), END).body
    head = (
        f"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n"
    )

    async def ask(address: FakeAddress, client: HttpClient) -> None:
        reply = await openai_provider(address.base_url, client, metrics="ttft")(Request(prompt="2"))
        assert reply.output == ""
        assert reply.first_token is None

    with_raw_server(head.encode() + body, ask)

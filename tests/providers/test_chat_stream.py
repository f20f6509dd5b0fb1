import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from fake_runs import openai_provider, with_raw_server
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import ProviderError
from trioeval.providers import Request
from trioeval.providers.fake import FakeAddress
from trioeval.providers.http.adapter import AdapterSettings, ServerEvent
from trioeval.providers.http.wire import HttpClient, HttpReply
from trioeval.providers.vendors.openai_chat import ChatAdapter, join_chunks, read_chat
from trioeval.providers.vendors.services import SERVICES

PLAIN = {"content-type": "application/json", "x-request-id": "req_1"}
STREAM = {"content-type": "text/event-stream; charset=utf-8", "x-request-id": "req_1"}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
END = "[DONE]"


def adapter(service: str = "openai", **config: Any) -> ChatAdapter:
    whole = {"apiKey": "sk-1234", "metrics": ["ttft"], **config}
    read = read_chat(SERVICES[service], "gpt-4.1", whole, {})
    assert isinstance(read, AdapterSettings), read
    assert isinstance(read.adapter, ChatAdapter)
    return read.adapter


def streamed(*chunks: object) -> HttpReply:
    """A stream of these chunks, as it arrives."""
    texts = (chunk if isinstance(chunk, str) else json.dumps(chunk) for chunk in chunks)
    return HttpReply(200, STREAM, "".join(f"data: {text}\n\n" for text in texts).encode())


def chunk(delta: object = None, **more: Any) -> dict[str, Any]:
    """A chunk with one choice."""
    choice = {"index": 0, "delta": {} if delta is None else delta, "finish_reason": None, **more}
    return {"id": "c-1", "object": "chat.completion.chunk", "model": "m-x", "choices": [choice]}


def usage_chunk() -> dict[str, Any]:
    return {"id": "c-1", "model": "m-x", "choices": [], "usage": USAGE}


def plain(message: Mapping[str, Any], finish_reason: str = "stop") -> HttpReply:
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    data = {
        "id": "c-1",
        "object": "chat.completion",
        "model": "m-x",
        "choices": [choice],
        "usage": USAGE,
    }
    return HttpReply(200, PLAIN, json.dumps(data).encode())


def call(index: int, arguments: str, **named: Any) -> dict[str, Any]:
    name = {"name": named.pop("name")} if "name" in named else {}
    return {"index": index, **named, "function": {**name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("config", "deltas", "last", "whole"),
    [
        pytest.param(
            {},
            [{"role": "assistant", "content": ""}, {"content": "Fo"}, {"content": "ur"}],
            {},
            {"role": "assistant", "content": "Four"},
            id="plain",
        ),
        pytest.param(
            {},
            [
                {"role": "assistant", "content": None},
                {"tool_calls": [call(0, "", id="a", type="function", name="f")]},
                {"tool_calls": [call(0, '{"x"')]},
                {"tool_calls": [call(1, "{}", id="b", type="function", name="g")]},
                {"tool_calls": [call(0, ": 1}")]},
            ],
            {"finish_reason": "tool_calls"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "a",
                        "type": "function",
                        "function": {"name": "f", "arguments": '{"x": 1}'},
                    },
                    {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
                ],
            },
            id="tools",
        ),
        pytest.param(
            {},
            [
                {"role": "assistant", "function_call": {"name": "f", "arguments": '{"x'}},
                {"function_call": {"arguments": '": 1}'}},
            ],
            {"finish_reason": "function_call"},
            {"role": "assistant", "function_call": {"name": "f", "arguments": '{"x": 1}'}},
            id="function",
        ),
        pytest.param(
            {},
            [{"role": "assistant", "refusal": "I can"}, {"refusal": "not."}],
            {},
            {"role": "assistant", "refusal": "I cannot."},
            id="refusal",
        ),
        pytest.param(
            {},
            [{"role": "assistant", "content": "So f"}, {"content": "ar"}],
            {"finish_reason": "content_filter"},
            {"role": "assistant", "content": "So far"},
            id="filter",
        ),
        pytest.param(
            {},
            [{"reasoning_content": "2 +"}, {"reasoning_content": " 2"}, {"content": "4"}],
            {},
            {"reasoning_content": "2 + 2", "content": "4"},
            id="reasoning",
        ),
        pytest.param(
            {"response_format": SCHEMA},
            [{"content": '{"a"'}, {"content": ": 1}"}],
            {},
            {"content": '{"a": 1}'},
            id="schema",
        ),
        pytest.param(
            {"modalities": ["text", "audio"]},
            [
                {"audio": {"id": "a1", "transcript": "Fo"}},
                {"audio": {"data": "UklG", "transcript": "ur"}},
                {"audio": {"data": "Rg==", "expires_at": 1}},
            ],
            {},
            {"audio": {"id": "a1", "transcript": "Four", "data": "UklGRg==", "expires_at": 1}},
            id="audio",
        ),
    ],
)
def test_a_streamed_reply_is_the_plain_one(
    config: Mapping[str, Any],
    deltas: Iterable[Mapping[str, Any]],
    last: Mapping[str, Any],
    whole: Mapping[str, Any],
) -> None:
    """Whatever it holds: nobody who reads the reply sees how it came."""
    finish_reason = last.get("finish_reason", "stop")
    chunks = [*map(chunk, deltas), chunk(finish_reason=finish_reason), usage_chunk(), END]
    asked = adapter(**config)
    one, other = asked.parse(streamed(*chunks)), asked.parse(plain(whole, finish_reason))
    assert one.metadata["http"].pop("headers") != other.metadata["http"].pop("headers")
    assert one == other


def test_log_probabilities_and_filters_of_all_chunks_are_kept() -> None:
    """Azure tells of the prompt in a chunk without choices, and of the answer in parts."""
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


def test_the_first_choice_is_the_answer_in_whatever_order_they_come() -> None:
    """Others are in what is kept as it came."""
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


def test_a_message_that_is_repeated_beside_its_deltas_is_read_once() -> None:
    """Some services send the text so far in every chunk."""
    chunks = [
        chunk({"content": "a"}, message={"content": "a"}),
        chunk({"content": "b"}, message={"content": "ab"}),
    ]
    assert adapter().parse(streamed(*chunks, END)).output == "ab"


def test_what_adds_nothing_changes_nothing() -> None:
    """A delta that is none, an empty name behind a real one, a null behind a text."""
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


def test_tool_calls_without_an_index_are_whole() -> None:
    """Each is a call of its own."""
    calls = [{"id": name, "function": {"name": name, "arguments": "{}"}} for name in "ab"]
    reply = adapter().parse(streamed(*(chunk({"tool_calls": [one]}) for one in calls), END))
    assert reply.output == calls


def test_reasoning_in_parts_and_text_behind_it_are_one_content() -> None:
    """As Mistral streams it."""
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "2 + 2"}]}
    chunks = [chunk({"content": [thought]}), chunk({"content": "It is "}), chunk({"content": "4"})]
    assert adapter("mistral").parse(streamed(*chunks, END)).output == "Thinking: 2 + 2\n\nIt is 4"


def test_a_character_that_two_chunks_share_stays_whole() -> None:
    """Halves of a surrogate pair meet again."""
    halves = [chunk({"content": half}) for half in "\ud83d\ude00"]
    assert adapter().parse(streamed(*halves, END)).output == "😀"


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (
            streamed(chunk({"content": "a"}), usage_chunk()),
            "connection: the stream ended before the reply was complete",
        ),
        (streamed(), "connection: the stream ended before the reply was complete"),
        (
            streamed(
                chunk({"content": "a"}), {"error": {"code": 429, "message": "busy, sk-1234"}}, END
            ),
            "rate_limited: HTTP 200 OK: busy, [hidden]",
        ),
        (
            HttpReply(
                200, STREAM, b'event: error\ndata: {"type": "overloaded_error", "message": "x"}\n\n'
            ),
            "overloaded: HTTP 200 OK: x",
        ),
        (
            HttpReply(200, STREAM, streamed(chunk({"content": "a"})).body + b'data: {"choi'),
            "connection: the stream ended before the reply was complete",
        ),
        (streamed("<html>", END), "malformed_reply: the reply is not a chat completion"),
        (streamed(usage_chunk(), END), "empty_reply: the reply holds no choice"),
        (
            HttpReply(503, STREAM, b'{"error": {"message": "down"}}'),
            "server: HTTP 503 Service Unavailable: down",
        ),
    ],
)
def test_a_stream_that_is_no_reply_is_an_error(reply: HttpReply, told: str) -> None:
    """By what it tells, or by where it ends."""
    with pytest.raises(ProviderError) as caught:
        adapter().parse(reply)
    assert str(caught.value) == told


def test_a_plain_reply_to_who_asked_for_a_stream_is_read_plainly() -> None:
    """Not every service streams what it is asked to stream."""
    assert adapter().parse(plain({"content": "4"})).output == "4"


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        ("openai", {"stream": True, "stream_options": {"include_usage": True}}),
        ("mistral", {"stream": True}),
    ],
)
def test_a_stream_is_asked_for_where_the_first_token_is_timed(
    service: str, expected: Mapping[str, Any]
) -> None:
    """With its usage, unless the service refuses to be asked."""
    body = json.loads(adapter(service).build(Request(prompt="Hi")).body or b"")
    assert {name: body[name] for name in body if name.startswith("stream")} == expected
    assert adapter(service).streams
    quiet = adapter(service, metrics=[])
    assert not quiet.streams
    assert b"stream" not in (quiet.build(Request(prompt="Hi")).body or b"")


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (chunk({"role": "assistant", "content": ""}), False),
        (chunk({"content": "a"}), True),
        (chunk({"reasoning": "a"}), True),
        (chunk({"tool_calls": [call(0, "")]}), True),
        (chunk({"audio": {"id": "a1"}}), True),
        (chunk(finish_reason="stop"), False),
        (usage_chunk(), False),
        ({"choices": [{"delta": "x"}]}, False),
        ([1], False),
    ],
)
def test_the_first_token_is_the_first_that_says_something(data: object, *, answer: bool) -> None:
    """A role alone does not."""
    assert adapter().speaks(ServerEvent(json.dumps(data))) is answer
    assert not adapter().speaks(ServerEvent(END))


@pytest.mark.slow
@given(st.text(), st.data())
def test_however_a_text_is_cut_it_is_the_same_text(text: str, data: st.DataObject) -> None:
    """The law of streams."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    parts = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    events = [ServerEvent(json.dumps(chunk({"content": part}))) for part in parts]
    whole = join_chunks([*events, ServerEvent(END)])
    assert whole is not None
    assert whole["choices"][0]["message"]["content"] == text
    assert join_chunks(events) is None


@pytest.mark.network
def test_the_first_token_is_timed_over_a_socket() -> None:
    """It takes some time, and no more than the whole reply."""
    body = streamed(chunk({"content": "4"}), chunk(finish_reason="stop"), END).body
    head = (
        f"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n"
    )

    async def ask(address: FakeAddress, client: HttpClient) -> None:
        provider = openai_provider(address.base_url, client, metrics="ttft")
        reply = await provider(Request(prompt="2 + 2"))
        assert reply.output == "4"
        assert reply.first_token is not None
        assert 0 < reply.first_token < 30

    with_raw_server(head.encode() + body, ask)


@pytest.mark.network
def test_a_large_event_that_says_nothing_is_no_first_token() -> None:
    """Some services begin with the whole request, however long it is."""
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

import json
from typing import Any

import pytest
import trio
from fake_runs import FakeRun, exchange, get, post, read_reply, with_fake

from trioeval.providers import HttpReply, Reply, Request, ToolCall
from trioeval.providers.fake import FakeAddress, FakeSettings, RecordedReplies
from trioeval.providers.local.record import to_recording

pytestmark = pytest.mark.network

ASK = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}]}).encode()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is reached directly, whatever the machine's proxy variables are."""
    monkeypatch.setenv("NO_PROXY", "*")


def message(reply: HttpReply) -> Any:
    return json.loads(reply.body)["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/chat/completions?x=1"])
def test_completions_are_served_with_and_without_the_version(path: str) -> None:
    """Base URLs with and without /v1 both work, and a query is ignored."""

    async def body(run: FakeRun) -> None:
        reply = await exchange(run.address, post(path, ASK))
        assert reply.status == 200
        assert reply.headers["content-type"] == "application/json"
        assert json.loads(reply.body)["choices"][0]["message"]["content"] == "Hi"

    with_fake(FakeSettings(), body)


@pytest.mark.parametrize(
    ("request_bytes", "status", "text"),
    [
        (get("/v2"), 404, "Path /v2 not found."),
        (get("/v1/chat/completions"), 405, "/v1/chat/completions supports only POST."),
        (post("/stats", b""), 405, "/stats supports only GET."),
        (post("/v1/chat/completions", b"Hi"), 400, "the body is not JSON"),
        (b"Hello?\r\n\r\n", 400, "Invalid HTTP: illegal request line: bytearray(b'Hello?')."),
        (
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999\r\n\r\n",
            413,
            "The body is larger than 67108864 bytes.",
        ),
    ],
)
def test_a_bad_request_gets_an_error_in_json(request_bytes: bytes, status: int, text: str) -> None:
    """Wrong paths, methods, bodies and bytes get a reply."""

    async def body(run: FakeRun) -> None:
        reply = await exchange(run.address, request_bytes)
        assert (reply.status, message(reply)) == (status, text)

    with_fake(FakeSettings(), body)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "recorded",
    [
        Reply(
            text="Let me see.",
            tool_calls=(ToolCall("add", {"a": 2}, "c1"), ToolCall("stop", '{"a": ', "c2")),
            finish_reason="tool_calls",
        ),
        Reply(tool_calls=(ToolCall("add", {}, "c1"),), reasoning="Hm.", finish_reason="tool_calls"),
        Reply(output="Thinking: Hm.\n\n4", text="4", reasoning="Hm.", finish_reason="length"),
        Reply(refusal="No.", finish_reason="stop"),
    ],
)
def test_parts_of_a_recorded_reply_are_served(recorded: Reply, *, stream: bool) -> None:
    """The client of a replaying server gets the parts that another service sent."""
    request = Request(prompt="Hi")
    recordings = (to_recording("mine", request, recorded, 0.0),)

    async def body(run: FakeRun) -> None:
        streams = {"metrics": ["ttft"]} if stream else {}
        reply = await run.provider(apiKey="k", **streams)(request)
        for name in ("text", "tool_calls", "reasoning", "refusal", "finish_reason"):
            assert getattr(reply, name) == getattr(recorded, name)

    with_fake(FakeSettings(replies=RecordedReplies(recordings)), body)


def test_head_gets_no_body() -> None:
    """A HEAD request gets headers only."""

    async def body(run: FakeRun) -> None:
        stream = await trio.open_tcp_stream(run.address.host, run.address.port)
        async with stream:
            await stream.send_all(b"HEAD /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            received = b"".join([chunk async for chunk in stream])
        assert received.startswith(b"HTTP/1.1 405 ")
        assert received.endswith(b"\r\n\r\n")

    with_fake(FakeSettings(), body)


def test_a_body_without_a_length_is_bounded_too() -> None:
    """A chunked body is refused as soon as it is too large, and its sender receives the reply."""
    head = b"POST /chat/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"

    async def body(run: FakeRun) -> None:
        stream = await trio.open_tcp_stream(run.address.host, run.address.port)
        async with stream:
            await stream.send_all(head + b"b\r\n" + b"x" * 11)
            reply = await read_reply(stream)
            assert (reply.status, message(reply)) == (413, "The body is larger than 10 bytes.")
            await stream.send_all(b"\r\n0\r\n\r\n")
            assert await stream.receive_some() == b""

    with_fake(FakeSettings(max_body_bytes=10), body)


def test_a_client_that_expects_100_continue_gets_it() -> None:
    """Expect: 100-continue is answered before the body is read."""
    head = b"POST /chat/completions HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\n"

    async def body(run: FakeRun) -> None:
        stream = await trio.open_tcp_stream(run.address.host, run.address.port)
        async with stream:
            await stream.send_all(head + b"content-length: %d\r\n\r\n" % len(ASK))
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 100 ")
            await stream.send_all(ASK)
            assert (await read_reply(stream)).status == 200

    with_fake(FakeSettings(), body)


def test_one_connection_serves_many_requests() -> None:
    """Connections stay open, also for requests that arrive while a reply is delayed."""
    request = post("/chat/completions", ASK)

    async def body(run: FakeRun) -> None:
        stream = await trio.open_tcp_stream(run.address.host, run.address.port)
        async with stream:
            await stream.send_all(request)
            while (await run.stats())["requests"] == 0:
                pass
            await stream.send_all(post("/reset", b""))
            assert b"chat.completion" in (await read_reply(stream)).body
            assert (await read_reply(stream)).body == b"{}"
            await stream.send_all(request)
            assert (await read_reply(stream)).status == 200

    with_fake(FakeSettings(latency_s=0.03), body)


def test_statistics_contain_start_and_end_times() -> None:
    """Times count from the start, so that a pace can be checked from outside."""

    async def body(run: FakeRun) -> None:
        for _ in range(3):
            await exchange(run.address, post("/chat/completions", ASK))
        stats = await run.stats()
        assert (stats["requests"], stats["ok"], stats["by_status"]) == (3, 3, {"200": 3})
        assert (stats["in_flight"], stats["max_in_flight"]) == (0, 1)
        assert 0 <= stats["first_request_at"] == stats["started_at"][0]
        assert sorted(stats["started_at"]) == stats["started_at"]
        assert stats["last_reply_at"] >= stats["started_at"][-1] + 0.01
        assert (await exchange(run.address, post("/reset", b""))).body == b"{}"
        assert (await run.stats())["requests"] == 0
        assert (await exchange(run.address, get("/health"))).body == b'{"status":"ok"}'

    with_fake(FakeSettings(latency_s=0.01), body)


def test_a_disconnected_client_is_noticed_during_a_delayed_reply() -> None:
    """An abandoned request is not in flight for the rest of its latency."""

    async def body(run: FakeRun) -> None:
        stream = await trio.open_tcp_stream(run.address.host, run.address.port)
        async with stream:
            await stream.send_all(post("/chat/completions", ASK))
            while (await run.stats())["in_flight"] == 0:
                pass
        while (stats := await run.stats())["in_flight"]:
            pass
        assert (stats["requests"], stats["abandoned"], stats["ok"]) == (1, 1, 0)

    with_fake(FakeSettings(latency_s=60), body)


def test_a_client_that_disconnects_at_any_point_does_not_end_the_server() -> None:
    """Connections that end early, or within a request, do not end the server."""
    request = post("/chat/completions", ASK)

    async def body(run: FakeRun) -> None:
        for size in range(0, len(request), 10):
            stream = await trio.open_tcp_stream(run.address.host, run.address.port)
            await stream.send_all(request[:size])
            await trio.aclose_forcefully(stream)
        assert (await exchange(run.address, request)).status == 200

    with_fake(FakeSettings(), body)


def test_an_address_is_written_as_a_base_url() -> None:
    """Addresses of both families are valid base URLs."""
    assert FakeAddress("127.0.0.1", 80).base_url == "http://127.0.0.1:80/v1"
    assert FakeAddress("::1", 80).base_url == "http://[::1]:80/v1"

"""The Realtime API of the fake provider, and whole runs over WebSockets: lanes, retries, media, endings."""

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
from fake_runs import exchange, get
from socket_server import Peer, Refusal, SocketServer, hear, serve_sockets

from trioeval import collect, parse_suite
from trioeval.evaluation.row import Row
from trioeval.providers.fake import (
    FakeAddress,
    FakeSettings,
    GarbageReplies,
    RecordedReplies,
    ScriptedReplies,
    serve_fake,
)
from trioeval.providers.fake.server import ServedCompletion
from trioeval.providers.local.recordings import parse_recordings

pytestmark = pytest.mark.network


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is reached directly, whatever the machine's proxy variables are."""
    monkeypatch.setenv("NO_PROXY", "*")


async def rows_of(base_url: str, count: int, **more: Any) -> list[Row]:
    """Return the rows of a suite with one realtime provider."""
    config = {"apiBaseUrl": base_url, "apiKey": "sk-1", **more.pop("config", {})}
    suite = parse_suite(
        {
            "providers": [
                {
                    "id": "openai:realtime:gpt-realtime",
                    "config": config,
                    "lane": more.pop("lane", {}),
                }
            ],
            "prompts": ["Say {{n}}"],
            "tests": [{"vars": {"n": number}} for number in range(count)],
            **more,
        }
    )
    return list(await collect(suite))


def run(
    settings: FakeSettings,
    use: Callable[[FakeAddress], Awaitable[Any]],
    on_served: Callable[[ServedCompletion], None] | None = None,
) -> Any:
    """Use a fake provider."""

    async def main() -> Any:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                address = await nursery.start(serve_fake, settings, on_served)
                found = await use(address)
                nursery.cancel_scope.cancel()
                return found

    return trio.run(main)


def outputs(rows: list[Row]) -> list[Any]:
    """The output of each row; its error if it has none."""
    return [row.error or row.output for row in rows]


async def stats(address: FakeAddress) -> Any:
    """Return the statistics of a fake provider."""
    return json.loads((await exchange(address, get("/stats"))).body)


def test_a_run_speaks_with_the_fake() -> None:
    """Transcripts are outputs, audio is a file; every call is counted, and its tokens are priced."""
    served: list[ServedCompletion] = []

    async def use(address: FakeAddress) -> None:
        rows = await rows_of(address.base_url, 3)
        assert outputs(rows) == ["Say 0", "Say 1", "Say 2"]
        reply = rows[0].reply
        assert reply is not None
        [media] = reply.media
        assert media.mime_type == "audio/wav"
        assert media.read() != rows[1].reply.media[0].read()  # type: ignore[union-attr]
        assert reply.usage.completion == 2
        assert reply.cost == pytest.approx((reply.usage.prompt * 4 + 2 * 64) / 1e6)  # type: ignore[operator]
        found = await stats(address)
        assert (found["ok"], found["in_flight"], found["abandoned"]) == (3, 0, 0)

    run(FakeSettings(), use, served.append)
    asked = [json.loads(one.body)["messages"] for one in served]
    assert [one[0]["role"] for one in asked] == ["system"] * 3
    assert sorted(one[1]["content"] for one in asked) == ["Say 0", "Say 1", "Say 2"]
    assert {one.ending for one in served} == {"sent"}


def test_texts_have_no_audio() -> None:
    """As the session asks for."""

    async def use(address: FakeAddress) -> None:
        [row] = await rows_of(address.base_url, 1, config={"modalities": ["text"]})
        assert row.output == "Say 0"
        assert row.reply is not None
        assert row.reply.media == ()

    run(FakeSettings(), use)


def test_recorded_calls_of_tools_are_replayed() -> None:
    """In the form of chat completions."""
    call = {"name": "add", "arguments": {"a": 2}}
    line = {"prompt": "Say 0", "output": None, "tool_calls": [call]}
    recordings, faults = parse_recordings([json.dumps(line).encode()], "replies.jsonl")
    assert faults == ()

    async def use(address: FakeAddress) -> None:
        [row] = await rows_of(address.base_url, 1)
        assert row.output[0]["function"] == {"name": "add", "arguments": '{"a": 2}'}

    run(FakeSettings(replies=RecordedReplies(recordings)), use)


def test_a_lane_obeys_the_limits_of_the_fake() -> None:
    """Refused responses are errors in the session, and are asked for again after the wait in them."""

    async def use(address: FakeAddress) -> None:
        lane = {"maxConcurrency": 4}
        rows = await rows_of(address.base_url, 6, lane=lane)
        assert outputs(rows) == [f"Say {number}" for number in range(6)]
        found = await stats(address)
        assert found["ok"] == 6
        assert found["by_status"]["429"] >= 1
        assert found["max_in_flight"] <= 4

    run(FakeSettings(rpm=1200, burst=2), use)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (FakeSettings(failure_rate=1), "server: HTTP 101 from GET ws://"),
        (
            FakeSettings(disconnect_rate=1),
            "connection: connection lost before the end of the reply",
        ),
        (
            FakeSettings(replies=GarbageReplies("not_json")),
            "malformed_reply: HTTP 101 from GET ws://",
        ),
    ],
)
def test_faults_of_the_fake_are_errors_of_the_call(settings: FakeSettings, error: str) -> None:
    """With their kinds."""

    async def use(address: FakeAddress) -> None:
        [row] = await rows_of(address.base_url, 1, config={"maxRetries": 0})
        assert row.error is not None
        assert str(row.error).startswith(error)

    run(settings, use)


def test_a_call_that_takes_too_long_is_abandoned() -> None:
    """The fake sees its end, and nothing stays in flight."""

    async def use(address: FakeAddress) -> None:
        config = {"maxRetries": 0, "websocketTimeout": 50}
        [row] = await rows_of(address.base_url, 1, config=config)
        assert "attempt_timeout" in str(row.error)
        found = await stats(address)
        assert (found["abandoned"], found["in_flight"]) == (1, 0)

    run(FakeSettings(latency_s=20), use)


@pytest.mark.parametrize("path", ["/v1/realtime", "/v1/realtime?model=m"])
def test_a_request_without_a_handshake_is_refused(path: str) -> None:
    """The path is that of a WebSocket."""

    async def use(address: FakeAddress) -> None:
        reply = await exchange(address, get(path))
        assert (reply.status, reply.headers["upgrade"]) == (426, "websocket")

    run(FakeSettings(replies=ScriptedReplies(("a",))), use)


def test_events_that_are_not_supported_are_errors() -> None:
    """Also those that are not JSON; the session goes on."""
    from trioeval.providers.fake.realtime import FakeSession

    session = FakeSession("m")
    for message in ("{", "7", '{"type": "input_audio_buffer.append"}'):
        [event] = session.take(message)
        assert isinstance(event, dict)
        assert event["error"]["type"] == "invalid_request_error"
    [added] = session.take(
        '{"type": "conversation.item.create", "item": {"type": "function_call_output"}}'
    )
    assert isinstance(added, dict)
    assert added["item"]["id"] == "item_1"


def with_server(
    talk: Callable[[Peer], Awaitable[None]],
    use: Callable[[SocketServer], Awaitable[None]],
    *refusals: Refusal,
) -> None:
    """Use a server of the test's own."""

    async def main() -> None:
        with trio.fail_after(60):
            async with serve_sockets(talk, None, *refusals) as server:
                await use(server)

    trio.run(main)


async def answer(peer: Peer) -> None:
    """Reply to each request for a response."""
    while (event := await peer.receive_json()) is not None:
        if event["type"] == "response.create":
            part = {"type": "output_text", "text": "Hello."}
            item = {"type": "message", "content": [part]}
            response = {"status": "completed", "output": [item]}
            await peer.say({"type": "response.done", "response": response})


def test_a_handshake_that_is_refused_for_a_moment_is_tried_again() -> None:
    """A 429 is waited out as its header says; a 503 is retried."""
    wait = {"retry-after-ms": "30"}
    refusals = (Refusal(429, b"{}", wait), Refusal(503, b"{}", {"retry-after-ms": "10"}))

    async def use(server: SocketServer) -> None:
        [row] = await rows_of(f"{server.base_url}/v1", 1)
        assert row.output == "Hello."
        assert len(server.peers) == 3
        assert row.error is None

    with_server(answer, use, *refusals)


def test_a_wrong_key_ends_the_lane_at_once() -> None:
    """Three refusals are enough; the other rows are not called."""

    async def use(server: SocketServer) -> None:
        server.refusals += [Refusal(401, b'{"error": {"message": "No."}}')] * 20
        rows = await rows_of(f"{server.base_url}/v1", 20, lane={"maxConcurrency": 1})
        assert all(row.error is not None for row in rows)
        assert len(server.peers) == 3

    with_server(hear, use)


def test_a_cancelled_run_leaves_no_connection() -> None:
    """Every server side has seen the close frame when the run has returned."""
    waiting = 0
    all_wait = trio.Event()

    async def talk(peer: Peer) -> None:
        nonlocal waiting
        while (event := await peer.receive_json()) is not None:
            if event["type"] == "response.create":
                waiting += 1
                if waiting == 3:
                    all_wait.set()

    async def use(server: SocketServer) -> None:
        async with trio.open_nursery() as nursery:
            lane = {"maxConcurrency": 3}
            nursery.start_soon(partial(rows_of, f"{server.base_url}/v1", 5, lane=lane))
            await all_wait.wait()
            nursery.cancel_scope.cancel()
        await server.wait_finished(3)
        assert [peer.closed_with for peer in server.peers] == [1000] * 3

    with_server(talk, use)

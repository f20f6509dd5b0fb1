"""Replies that are large, broken or not text, from a real server to the rows of a suite."""

import json
import ssl
from collections.abc import Sequence
from contextlib import suppress

import pytest
import trio
import trustme

import trioeval
from trioeval import Row, Status
from trioeval.providers.fake import FakeSettings, FillerReplies, GarbageReplies, Replies, serve_fake
from trioeval.report.row import row_json

pytestmark = [pytest.mark.network, pytest.mark.trio]


async def rows_from(
    nursery: trio.Nursery, replies: Replies, *, disconnect_rate: float = 0.0, **config: object
) -> Sequence[Row]:
    """Two rows of a suite that calls a fake provider over loopback."""
    settings = FakeSettings(replies=replies, disconnect_rate=disconnect_rate)
    address = await nursery.start(serve_fake, settings)
    suite = trioeval.parse_suite(
        {
            "providers": [
                {
                    "id": "openai:chat:fake",
                    "config": {"apiBaseUrl": address.base_url, **config},
                    "lane": {"retryDelay": 0.05},
                },
            ],
            "prompts": ["one", "two"],
        }
    )
    with trio.fail_after(60):
        return await trioeval.collect(suite)


@pytest.mark.slow
async def test_a_reply_of_ten_megabytes_is_a_reply(nursery: trio.Nursery) -> None:
    """It has cost money: it is stored completely and can be written, if the suite allows its size."""
    for row in await rows_from(nursery, FillerReplies(10_000_000), maxResponseBytes=20_000_000):
        assert row.status is Status.NOT_GRADED
        assert len(row.output) == 10_000_000
        assert len(json.dumps(row_json(row, "e"))) > 10_000_000
    for row in await rows_from(nursery, FillerReplies(10_000_000)):
        assert row.status is Status.ERROR
        assert row.error is not None
        assert "larger than 8 MiB (maxResponseBytes: 8388608)" in row.error


@pytest.mark.parametrize("kind", ["invalid_utf8", "not_json"])
async def test_an_invalid_reply_is_an_error_row(kind: str, nursery: trio.Nursery) -> None:
    """Status 200 alone does not make a valid reply."""
    for row in await rows_from(nursery, GarbageReplies(kind)):  # type: ignore[arg-type]
        assert row.status is Status.ERROR
        assert row.error is not None
        assert row.error.startswith("malformed_reply: ")
        assert row.reply is None


async def test_a_connection_that_breaks_in_mid_reply_is_an_error_row(nursery: trio.Nursery) -> None:
    """A partial reply is not used."""
    for row in await rows_from(nursery, FillerReplies(1000), disconnect_rate=1.0):
        assert row.status is Status.ERROR
        assert row.error is not None
        assert row.error.startswith(
            "connection: connection lost before the end of the reply from POST http://127.0.0.1:"
        )


def http(body: bytes, status: str = "200 OK", kind: str = "application/json", *more: str) -> bytes:
    """A response as bytes; the connection ends with it."""
    head = [f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(body)}"]
    return "\r\n".join([*head, *more, "connection: close", "", ""]).encode() + body


async def row_from(nursery: trio.Nursery, sent: bytes, **config: object) -> Row:
    """The row of a suite whose provider replies with these bytes; retried once."""

    async def answer(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):
            received = b""
            while not received.endswith(b"}"):
                received += await stream.receive_some()
            await stream.send_all(sent)

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, answer, listeners)
    port = listeners[0].socket.getsockname()[1]
    entry = {
        "id": "openai:chat:m",
        "config": {"apiBaseUrl": f"http://127.0.0.1:{port}/v1", "maxRetries": 0, **config},
    }
    suite = trioeval.parse_suite({"providers": [entry], "prompts": ["one"]})
    with trio.fail_after(60):
        (row,) = await trioeval.collect(suite)
    return row


NOTHING = b'{"choices": [{"message": {"content": null}, "finish_reason": "stop"}]}'
SILENCE = b'{"choices": [{"message": {"content": ""}, "finish_reason": "stop"}]}'
STREAM = b'data: {"choices": [{"delta": {"content": "Hel"}}]}\n\n'
HTML = b"<html><body>Welcome to the captive portal</body></html>"


@pytest.mark.parametrize(
    ("sent", "kind", "excerpt"),
    [
        (http(HTML, kind="text/html"), "malformed_reply", "<html>"),
        (http(b'{"choices": ['), "malformed_reply", '{"choices": ['),
        (http(b"[]"), "malformed_reply", "[]"),
        (http(b'{"choices": []}'), "empty_reply", '{"choices": []}'),
        (http(NOTHING), "empty_reply", "null"),
        (http(b'{"choices": [{}]}'), "malformed_reply", '{"choices": [{}]}'),
        (http(b'{"choices": [{"message": 7}]}'), "malformed_reply", "7"),
        (http(b"x" * 8_000_000), "malformed_reply", "xxx"),
        (http(b"x" * 50_000_000), "malformed_reply", None),
        (http(b'{"error": {"message": "no", "code": 503}}'), "server", "503"),
        (http(b"", "204 No Content"), "malformed_reply", None),
        (http(b"", "302 Found", "text/plain", "location: /v1"), "bad_request", None),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n{", "connection", None),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "connection", None),
        *(
            (http(b'{"error": {"message": "why"}}', f"{status} X"), kind, "why")
            for status, kind in {
                400: "bad_request",
                401: "auth",
                402: "quota_exhausted",
                403: "permission",
                404: "not_found",
                405: "bad_request",
                408: "server",
                409: "server",
                410: "not_found",
                413: "context_window",
                415: "bad_request",
                422: "bad_request",
                424: "server",
                425: "server",
                429: "rate_limited",
                498: "rate_limited",
                500: "server",
                501: "unsupported",
                503: "server",
                529: "overloaded",
            }.items()
        ),
    ],
)
async def test_whatever_a_server_sends_is_a_typed_error_row(
    sent: bytes, kind: str, excerpt: str | None, nursery: trio.Nursery
) -> None:
    """The error has the beginning of the response, shortened; it is never a crash or a result."""
    row = await row_from(nursery, sent)
    assert row.status is Status.ERROR
    assert row.error_kind == kind
    assert row.calls == 1
    assert len(row.body_excerpt or "") <= 2048
    assert (excerpt or "") in (row.body_excerpt or "")
    json.dumps(row_json(row, "e"))


async def test_an_empty_text_is_an_output(nursery: trio.Nursery) -> None:
    """A model may return an empty text, which is graded as any output. A null is not one."""
    row = await row_from(nursery, http(SILENCE))
    assert (row.status, row.output) == (Status.NOT_GRADED, "")


async def test_an_output_that_was_cut_off_before_it_began_is_not_requested_again(
    nursery: trio.Nursery,
) -> None:
    """The row names the remedy."""
    row = await row_from(nursery, http(NOTHING.replace(b"stop", b"length")), maxRetries=3)
    assert (row.error_kind, row.calls) == ("empty_reply", 1)
    assert "raise max_tokens" in str(row.error)


async def test_a_refusal_in_a_stream_is_one_reply(nursery: trio.Nursery) -> None:
    """It is not a failure that is retried."""
    sent = b'data: {"error": {"code": "content_filter", "message": "flagged"}}\n\n'
    row = await row_from(
        nursery, http(sent, kind="text/event-stream"), metrics=["ttft"], maxRetries=3
    )
    assert (row.status, row.output, row.calls) == (Status.NOT_GRADED, "flagged", 1)
    assert row.reply is not None
    assert row.reply.is_refusal


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n\n", b"\n", b""])
async def test_a_stream_may_begin_with_a_byte_order_mark_and_end_without_a_line_break(
    start: bytes, end: bytes, nursery: trio.Nursery
) -> None:
    """The text between them is the complete output."""
    chunks = [b'{"choices": [{"delta": {"content": "%s"}}]}' % part for part in (b"Fo", b"ur")]
    sent = start + b"".join(b"data: %s\n\n" % one for one in chunks) + b"data: [DONE]" + end
    row = await row_from(nursery, http(sent, kind="text/event-stream"), metrics=["ttft"])
    assert (row.output, row.error) == ("Four", None)


async def test_a_stream_that_ends_early_is_a_lost_connection(nursery: trio.Nursery) -> None:
    """A partial output is not used, although each of its parts was complete."""
    row = await row_from(nursery, http(STREAM, kind="text/event-stream"), metrics=["ttft"])
    assert row.error_kind == "connection"


async def test_an_unknown_host_is_a_connection_error() -> None:
    """The error names the host."""
    entry = {
        "id": "openai:chat:m",
        "config": {"apiBaseUrl": "http://nowhere.invalid/v1", "apiKey": "sk-1", "maxRetries": 0},
    }
    suite = trioeval.parse_suite({"providers": [entry], "prompts": ["one"]})
    with trio.fail_after(60):
        (row,) = await trioeval.collect(suite)
    assert row.error_kind == "connection"
    assert "nowhere.invalid" in str(row.error)


async def test_an_untrusted_certificate_is_refused(nursery: trio.Nursery) -> None:
    """The key is not sent, and the reason is reported."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    received: list[bytes] = []

    async def answer(stream: trio.SSLStream[trio.SocketStream]) -> None:
        with suppress(trio.BrokenResourceError):
            received.append(bytes(await stream.receive_some()))

    listeners = await trio.open_ssl_over_tcp_listeners(0, context, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, answer, listeners)
    (tcp,) = [listener.transport_listener for listener in listeners]
    assert isinstance(tcp, trio.SocketListener)
    port = tcp.socket.getsockname()[1]
    entry = {
        "id": "openai:chat:m",
        "config": {"apiBaseUrl": f"https://127.0.0.1:{port}/v1", "apiKey": "sk-1"},
    }
    suite = trioeval.parse_suite({"providers": [entry], "prompts": ["one"]})
    with trio.fail_after(60):
        (row,) = await trioeval.collect(suite)
    assert row.error_kind == "tls"
    assert "certificate" in str(row.error)
    assert received == []

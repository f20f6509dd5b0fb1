"""WebSockets of the client of a run: handshakes, messages, endings, limits, and servers that misbehave."""

import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trustme
from loopback import as_json, serve
from socket_server import Peer, Refusal, SocketServer, hear, serve_sockets

from trioeval.errors import Fault, ProviderError
from trioeval.providers.http.client import open_http
from trioeval.providers.http.wire import HttpReply, HttpRequest, TlsSettings, WebClient, WebSocket

pytestmark = pytest.mark.network


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is reached directly, whatever the machine's proxy variables are."""
    monkeypatch.setenv("NO_PROXY", "*")


def to(url: str, **headers: str) -> HttpRequest:
    """The request of a handshake."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpRequest(url, named, None, "GET")


def talked(
    talk: Callable[[Peer], Awaitable[None]],
    body: Callable[[WebSocket], Awaitable[None]],
    *,
    most: int = 10_000,
    **headers: str,
) -> SocketServer:
    """Run a conversation with a server, and return it after both sides have ended."""

    async def main() -> SocketServer:
        with trio.fail_after(30):
            async with (
                serve_sockets(talk) as server,
                open_http(max_reply_bytes=most) as client,
            ):
                async with client.connect(to(f"{server.url}/x?q=1", **headers)) as socket:
                    assert not isinstance(socket, HttpReply)
                    await body(socket)
                await server.wait_finished(1)
                return server
        raise AssertionError

    return trio.run(main)


def failed(talk: Callable[[Peer], Awaitable[None]], *, most: int = 10_000) -> ProviderError:
    """Return the failure of waiting for a message."""
    errors: list[ProviderError] = []

    async def body(socket: WebSocket) -> None:
        await socket.send("hello")
        with pytest.raises(ProviderError) as caught:
            await socket.receive()
        errors.append(caught.value)

    talked(talk, body, most=most)
    return errors[0]


def test_messages_go_both_ways_and_the_end_is_a_closing_handshake() -> None:
    """Fragments are joined, bytes are texts, pings are answered; the server sees code 1000 at the end."""

    async def talk(peer: Peer) -> None:
        assert await peer.receive() == "hellö"
        await peer.ping()
        await peer.say_part("one ", is_last=False)
        await peer.say_part("two", is_last=True)
        await peer.say("grüße".encode())
        await hear(peer)

    async def body(socket: WebSocket) -> None:
        await socket.send("hellö")
        assert await socket.receive() == "one two"
        assert await socket.receive() == "grüße"
        assert socket.reply.status == 101

    server = talked(talk, body, authorization="Bearer sk-1")
    [peer] = server.peers
    assert peer.closed_with == 1000
    assert peer.pongs == 1
    assert peer.target == "/x?q=1"
    assert peer.headers["authorization"] == "Bearer sk-1"
    assert peer.headers["user-agent"].startswith("trioeval/")


def test_a_long_message_arrives_whole() -> None:
    """Longer than one read, and than one write, of either side."""
    text = "ab" * 100_000

    async def talk(peer: Peer) -> None:
        received = await peer.receive()
        await peer.say(received)
        await hear(peer)

    async def body(socket: WebSocket) -> None:
        await socket.send(text)
        assert await socket.receive() == text

    talked(talk, body, most=len(text))


def test_halves_of_surrogate_pairs_are_sent_as_question_marks() -> None:
    """They have no encoding; a prompt from JSON may hold them."""

    async def talk(peer: Peer) -> None:
        assert await peer.receive() == "a?b"
        await hear(peer)

    async def body(socket: WebSocket) -> None:
        await socket.send("a\ud800b")

    talked(talk, body)


@pytest.mark.parametrize(
    ("status", "kind", "fault"),
    [
        (401, "auth", Fault.FATAL),
        (404, "not_found", Fault.FATAL),
        (429, "rate_limited", Fault.RATE_LIMITED),
        (503, "server", Fault.TRANSIENT),
    ],
)
def test_a_refused_handshake_is_an_ordinary_reply(status: int, kind: str, fault: Fault) -> None:
    """With its status, headers and body, so that it is classified as any other."""
    from trioeval.providers.http.failures import classify

    refusal = Refusal(status, b'{"error": {"message": "No."}}', {"retry-after": "7"})

    async def main() -> ProviderError:
        with trio.fail_after(30):
            async with (
                serve_sockets(hear, None, refusal) as server,
                open_http() as client,
                client.connect(to(server.url)) as reply,
            ):
                assert isinstance(reply, HttpReply)
                return classify(reply)
        raise AssertionError

    error = trio.run(main)
    assert (error.kind, error.fault, error.status, error.retry_after) == (kind, fault, status, 7.0)
    assert "No." in error.message
    assert f"HTTP {status} from GET ws://127.0.0.1:" in error.message


def test_a_server_that_speaks_only_http_is_named() -> None:
    """A reply of 200 is not a WebSocket."""

    async def main() -> None:
        with trio.fail_after(30):
            async with serve(lambda _: as_json({"ok": True})) as server, open_http() as client:
                with pytest.raises(ProviderError) as caught:
                    async with client.connect(to(f"ws{server.url[4:]}/chat")):
                        raise AssertionError
                port = server.url.rpartition(":")[2]
                assert str(caught.value) == (
                    f"malformed_reply: HTTP 200 from GET ws://127.0.0.1:{port}/chat: "
                    "the server did not switch to a WebSocket; check the URL"
                )

    trio.run(main)


ACCEPT = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: %s\r\nconnection: upgrade\r\n%s\r\n"


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        (ACCEPT % (b"h2c", b""), "the server switched to another protocol than a WebSocket"),
        (
            ACCEPT % (b"websocket", b"sec-websocket-accept: eA==\r\n"),
            "the server's sec-websocket-accept does not belong to the request",
        ),
        (b"SSH-2.0-OpenSSH_9\r\n\r\n", "connection lost before the end of the reply from"),
        (b"", "Server disconnected without sending a response."),
    ],
)
def test_an_invalid_handshake_is_refused(reply: bytes, fault: str) -> None:
    """The server speaks another protocol, or none."""

    async def answer(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(reply)
        await stream.send_eof()

    async def main() -> ProviderError:
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery, open_http() as client:
                listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
                port = listeners[0].socket.getsockname()[1]
                nursery.start_soon(trio.serve_listeners, answer, listeners)
                with pytest.raises(ProviderError) as caught:
                    async with client.connect(to(f"ws://127.0.0.1:{port}")):
                        raise AssertionError
                nursery.cancel_scope.cancel()
                return caught.value
        raise AssertionError

    assert fault in trio.run(main).message


def test_a_protocol_that_was_not_offered_is_refused() -> None:
    """One that was offered is accepted."""

    async def body(socket: WebSocket) -> None:
        assert socket.reply.headers["sec-websocket-protocol"] == "chat.v2"

    talked(hear, body, sec_websocket_protocol="chat.v2, chat.v1")


@pytest.mark.parametrize(
    ("code", "kind", "fault"),
    [
        (1000, "connection", Fault.TRANSIENT),
        (1008, "bad_request", Fault.REFUSED),
        (1009, "context_window", Fault.REFUSED),
        (1011, "server", Fault.TRANSIENT),
        (1013, "overloaded", Fault.RATE_LIMITED),
        (3000, "auth", Fault.FATAL),
        (3003, "permission", Fault.FATAL),
        (4711, "connection", Fault.TRANSIENT),
    ],
)
def test_the_code_with_which_a_server_closes_decides_the_kind(
    code: int, kind: str, fault: Fault
) -> None:
    """The reason is part of the message."""

    async def talk(peer: Peer) -> None:
        await peer.receive()
        await peer.close(code, "enough")
        await hear(peer)

    error = failed(talk)
    assert (error.kind, error.fault) == (kind, fault)
    assert f"closed with code {code} before the end of the reply by GET ws://" in error.message
    assert error.message.endswith(": enough")


def test_a_lost_connection_is_transient() -> None:
    """A server that ends half-way, without a word."""

    async def talk(peer: Peer) -> None:
        await peer.receive()
        await peer.say_part("half of", is_last=False)

    error = failed(talk)
    assert (error.kind, error.fault) == ("connection", Fault.TRANSIENT)
    assert error.message.startswith(
        "connection lost before the end of the reply from GET ws://127.0.0.1:"
    )


@pytest.mark.parametrize("garbage", [b"\xff" * 40, b"\x81\x02\xff\xfe", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_garbage_is_a_malformed_reply(garbage: bytes) -> None:
    """Invalid frames, texts that are not UTF-8, and another protocol."""

    async def talk(peer: Peer) -> None:
        await peer.receive()
        await peer.stream.send_all(garbage)
        await hear(peer)

    error = failed(talk)
    assert error.kind == "malformed_reply"
    assert "invalid WebSocket frame from GET ws://" in error.message


def test_all_messages_together_are_limited() -> None:
    """Neither one message nor many may exceed the maximum; what has arrived is dropped at once."""

    async def talk(peer: Peer) -> None:
        await peer.receive()
        for _ in range(20):
            await peer.say_part("x" * 100, is_last=False)
        await hear(peer)

    error = failed(talk, most=1000)
    assert error.kind == "malformed_reply"
    assert "the reply is larger than" in error.message


def test_bytes_are_limited_and_not_characters() -> None:
    """A text of other scripts has more bytes than characters."""

    async def talk(peer: Peer) -> None:
        await peer.receive()
        await peer.say("語" * 400)
        await hear(peer)

    assert "the reply is larger than" in failed(talk, most=1000).message


def test_a_cancelled_call_closes_its_socket_although_the_server_never_answers() -> None:
    """The server sees the close frame; the client waits for its answer no longer than half a second."""

    async def main() -> SocketServer:
        with trio.fail_after(30):
            async with serve_sockets(hear) as server, open_http() as client:
                with trio.move_on_after(0.05) as scope:
                    await _wait_forever(client, server)
                assert scope.cancelled_caught
                await server.wait_finished(1)
                return server
        raise AssertionError

    assert trio.run(main).peers[0].closed_with == 1000


async def _wait_forever(client: WebClient, server: SocketServer) -> None:
    async with client.connect(to(server.url)) as socket:
        assert not isinstance(socket, HttpReply)
        await socket.receive()


@pytest.mark.slow
def test_a_server_that_ignores_the_end_delays_the_call_only_shortly() -> None:
    """It neither closes nor reads; the connection is closed after the grace."""

    async def talk(peer: Peer) -> None:
        await peer.say("done")
        await trio.sleep_forever()

    async def main() -> float:
        with trio.fail_after(30):
            async with serve_sockets(talk) as server, open_http() as client:
                async with client.connect(to(server.url)) as socket:
                    assert not isinstance(socket, HttpReply)
                    assert await socket.receive() == "done"
                    started_at = trio.current_time()
                return trio.current_time() - started_at
        raise AssertionError

    assert trio.run(main) < 2


def test_tls_needs_the_certificates_of_the_suite() -> None:
    """`wss:` is verified as `https:` is, with the same files."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)

    async def main(ca: Path) -> None:
        with trio.fail_after(30):
            async with serve_sockets(hear, context) as server:
                async with (
                    open_http(TlsSettings(ca)) as client,
                    client.connect(to(server.url)) as socket,
                ):
                    assert not isinstance(socket, HttpReply)
                async with open_http() as client:
                    with pytest.raises(ProviderError) as caught:
                        async with client.connect(to(server.url)):
                            raise AssertionError
                assert caught.value.kind == "tls"
                assert f"for GET wss://localhost:{server.port}" in caught.value.message

    with authority.cert_pem.tempfile() as file:
        trio.run(main, Path(file))


def test_hosts_outside_of_the_allowed_ones_are_not_reached() -> None:
    """As for requests: of an untrusted suite only its providers' hosts are."""

    async def main() -> ProviderError:
        async with open_http(hosts=frozenset({"api.example"})) as client:
            with pytest.raises(ProviderError) as caught:
                async with client.connect(to("ws://127.0.0.1:9/x")):
                    raise AssertionError
            return caught.value

    error = trio.run(main)
    assert error.kind == "bad_request"
    assert "127.0.0.1 is not a host of the suite's providers" in error.message


@pytest.mark.parametrize("scheme", ["ws", "wss"])
def test_the_proxy_of_the_environment_is_used(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`wss:` goes through a tunnel, `ws:` is passed on; both name the same variables as HTTP does."""
    seen: list[bytes] = []

    async def refuse(stream: trio.SocketStream) -> None:
        seen.append(bytes(await stream.receive_some()))
        await stream.send_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")

    async def main() -> None:
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery, open_http() as client:
                listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
                port = listeners[0].socket.getsockname()[1]
                nursery.start_soon(trio.serve_listeners, refuse, listeners)
                monkeypatch.delenv("NO_PROXY")
                monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
                monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
                request = to(f"{scheme}://a.example/x")
                if scheme == "wss":
                    with pytest.raises(ProviderError, match="refused to connect"):
                        async with client.connect(request):
                            raise AssertionError
                else:
                    async with client.connect(request) as reply:
                        assert isinstance(reply, HttpReply)
                nursery.cancel_scope.cancel()

    trio.run(main)
    right = b"CONNECT a.example:443 " if scheme == "wss" else b"GET http://a.example/x "
    assert seen[0].startswith(right)


def test_invalid_urls_and_headers_are_not_sent() -> None:
    """The message names neither the key nor the header."""

    async def main() -> None:
        async with serve_sockets(hear) as server, open_http() as client:
            for url, headers, text in (
                ("wss://", {}, "not a valid http or https URL"),
                (server.url, {"authorization": "Bearer a\nb"}, "invalid header"),
                (server.url, {"authorization": "Bearer ä"}, "invalid header"),
            ):
                with pytest.raises(ProviderError, match=text) as caught:
                    async with client.connect(to(url, **headers)):
                        raise AssertionError
                assert caught.value.kind == "bad_request"
                assert "Bearer" not in str(caught.value)

    trio.run(main)


def test_nothing_is_left_open_after_the_client_is_closed() -> None:
    """A connection whose block is left by an error is closed with it."""

    async def main() -> None:
        with trio.fail_after(30):
            async with serve_sockets(hear) as server, open_http() as client:
                with pytest.raises(KeyError):
                    async with client.connect(to(server.url)):
                        raise KeyError
                await server.wait_finished(1)

    trio.run(main)

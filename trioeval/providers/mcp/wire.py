# Separate from `providers.mcp.links`: the only part that knows HTTP.
"""The transport of the SDK: requests go through the run's own HTTP client, whose failures are kept.

A failed request must not end the connection with all other calls, and the SDK reports no status. So the
SDK gets a status that stands for any failure, and the call reads the failure from its `McpExchange`. Whole
replies are returned: nothing of a reply is read before its end, and the server cannot send requests.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from http import HTTPStatus

import attrs
import httpx2

from trioeval.errors import ProviderError
from trioeval.providers.generic.auth import TokenSource
from trioeval.providers.generic.reply import KEY_SOURCE
from trioeval.providers.http.failures import classify
from trioeval.providers.http.replies import is_success, read_json
from trioeval.providers.http.streams import load_event, read_events
from trioeval.providers.http.wire import HttpClient, HttpReply, HttpRequest
from trioeval.providers.mcp.entry import McpSite

_OWN_HEADERS = frozenset({"host", "connection", "content-length", "accept-encoding", "user-agent"})
"""Request headers that the sending client sets."""

_NOT_PASSED = frozenset({"content-encoding", "content-length", "set-cookie", "transfer-encoding"})
"""Reply headers that do not fit the decoded body, or would affect later calls."""

_DECISIVE = frozenset(
    {
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)
"""Statuses that say more than a message of the protocol in the body."""

_SESSION = "mcp-session-id"


def _answer_in(stream: bytes) -> bytes:
    r"""Return the answer in a stream of events; the events before it, such as progress, are over.

    Example:
        >>> _answer_in(b'data: {"method": "notifications/progress"}\n\ndata: {"result": 1}\n\n')
        b'{"result": 1}'
    """
    for event in reversed(read_events(stream)):
        message = load_event(event)
        if isinstance(message, dict) and ("result" in message or "error" in message):
            return event.data.encode()
    return b""


@attrs.define(eq=False, repr=False)
class McpExchange:
    """The requests of one call."""

    failure: ProviderError | None = None
    """The failure of the last one."""


_exchange: ContextVar[McpExchange] = ContextVar("the exchange that a request belongs to")


@contextmanager
def exchanging() -> Iterator[McpExchange]:
    """Return the exchange of all requests that the block causes, in any task."""
    exchange = McpExchange()
    before = _exchange.set(exchange)
    try:
        yield exchange
    finally:
        _exchange.reset(before)


@attrs.frozen(eq=False, repr=False)
class McpTransport(httpx2.AsyncBaseTransport):
    """Sends the requests of one connection."""

    _name: str
    """Name for messages."""
    _site: McpSite
    _client: HttpClient
    _tokens: TokenSource | None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; a failure is kept in its exchange, and looks like a status. A checkpoint."""
        if request.method == "GET":  # it would be a stream of messages without an end
            return httpx2.Response(HTTPStatus.METHOD_NOT_ALLOWED, request=request)
        exchange = _exchange.get(McpExchange())
        try:
            reply = await self._send(request)
        except ProviderError as error:
            exchange.failure = error
            return httpx2.Response(HTTPStatus.SERVICE_UNAVAILABLE, request=request)
        if not is_success(reply):
            exchange.failure = self._failure(reply, has_session=_SESSION in request.headers)
        headers = {name: text for name, text in reply.headers.items() if name not in _NOT_PASSED}
        body = reply.body
        if reply.is_stream:
            headers["content-type"], body = "application/json", _answer_in(body)
        return httpx2.Response(reply.status, headers=headers, content=body, request=request)

    async def _send(self, request: httpx2.Request) -> HttpReply:
        given = {name: text for name, text in request.headers.items() if name not in _OWN_HEADERS}
        headers = {**given, **self._site.headers}
        token = None if self._tokens is None else await self._tokens.token()
        if token is not None:
            headers["authorization"] = f"Bearer {token.value}"
        body = await request.aread() or None
        reply = await self._client.send(
            HttpRequest(str(request.url), headers, body, method=request.method)
        )
        if token is not None and self._tokens is not None:
            self._tokens.check(token, reply, self._classified)
        return reply

    def _failure(self, reply: HttpReply, *, has_session: bool) -> ProviderError | None:
        """Return the failure in a reply; None if its body is the protocol's own report of it."""
        if has_session and reply.status == HTTPStatus.NOT_FOUND:
            return ProviderError("connection", f"{self._name} has ended the session")
        body = read_json(reply.body)
        is_message = isinstance(body, dict) and body.get("jsonrpc") is not None
        if is_message and reply.status not in _DECISIVE:
            return None
        return self._classified(reply)

    def _classified(self, reply: HttpReply) -> ProviderError:
        return classify(reply, secrets=self._site.secrets, key_source=KEY_SOURCE)

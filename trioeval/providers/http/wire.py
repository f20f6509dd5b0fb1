"""The HTTP interface of adapters: one request, one complete reply.

Data types and the client's protocol only; `trioeval.providers.http.client` implements it, and is the one
module that imports an HTTP library.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from email.utils import formatdate
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import attrs

EVENT_STREAM = "text/event-stream"
_LONGEST_URL = 300  # characters: a path may hold a prompt


@attrs.frozen
class HttpRequest:
    """A request ready to be sent."""

    url: str = attrs.field(repr=False)
    headers: Mapping[str, str] = attrs.field(repr=False)
    body: bytes | None = attrs.field(
        repr=lambda body: "no body" if body is None else f"<{len(body)} bytes>"
    )
    method: str = "POST"
    max_reply_bytes: int | None = None
    """Maximum bytes of the reply's body; None uses the client's maximum."""


@attrs.frozen
class PreparedBody:
    """The constant fields of a JSON object, serialised once.

    Example:
        >>> PreparedBody.of({"model": "m"}).complete({"messages": []})
        b'{"model":"m","messages":[]}'
    """

    _fixed: bytes
    """The text between the braces."""

    @classmethod
    def of(cls, fixed: Mapping[str, Any]) -> "PreparedBody":
        """Serialise the constant fields, which must be JSON."""
        return cls(_write(fixed))

    def complete(self, fields: Mapping[str, Any]) -> bytes:
        """Return the object with more fields at the end; their names must be new."""
        return b"{" + b",".join(filter(None, (self._fixed, _write(fields)))) + b"}"


def _write(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()[1:-1]


def request_source(method: str, url: str) -> str:
    """Return method and URL for error messages: without query, user and password.

    Example:
        >>> request_source("GET", "https://user:pw@api.example:8443/v1?key=secret")
        'GET https://api.example:8443/v1'
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return method
    host = parts.netloc.rpartition("@")[2]
    shown = f"{parts.scheme}://{host}{parts.path}"
    return f"{method} {shown if len(shown) <= _LONGEST_URL else f'{shown[:_LONGEST_URL]}…'}"


@attrs.frozen
class HttpReply:
    """A reply that has arrived completely, whatever its status."""

    status: int
    headers: Mapping[str, str]
    """Names are in lower case; a header that occurs several times is joined by commas."""
    body: bytes = attrs.field(repr=lambda body: f"<{len(body)} bytes>")
    source: str = attrs.field(default="", eq=False, repr=False)
    """Method and URL of the request, for error messages."""

    @property
    def is_stream(self) -> bool:
        """True if the body is a stream of events."""
        return self.headers.get("content-type", "").lower().startswith(EVENT_STREAM)


def dated(headers: Mapping[str, str], now: float) -> Mapping[str, str]:
    """Return the headers of a reply that has just arrived, with a date.

    A server may omit `date`; then it is the time of the arrival (RFC 9110, section 6.6.1), so that instants
    in other headers have a reference.

    Args:
        headers: As they arrived, names in lower case.
        now: Seconds since 1970 by the clock of this machine.

    Example:
        >>> dated({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 45.0)["date"]
        'Thu, 01 Jan 1970 00:00:45 GMT'
    """
    return headers if "date" in headers else {**headers, "date": formatdate(now, usegmt=True)}


@attrs.frozen
class TlsSettings:
    """TLS settings of a connection that differ from the defaults."""

    ca: Path | None = None
    """Certificates of trusted authorities, instead of the default ones."""
    certificate: Path | None = None
    """The client's own certificate."""
    key: Path | None = attrs.field(default=None, repr=False)
    verify: bool = True
    """True if the server's certificate is verified."""


class HttpClient(Protocol):
    """Sends single requests: no retries, no redirects, no limit on their number."""

    async def send(
        self, request: HttpRequest, *, on_part: Callable[[bytes], object] | None = None
    ) -> HttpReply:
        """Send a request and wait for the whole reply.

        Always a checkpoint. Cancelling it ends the exchange at once.

        Args:
            request: Sent unchanged, with a default `content-type` of JSON.
            on_part: Called with each part of the body when it arrives.

        Raises:
            ProviderError: No complete reply: `connection`, `tls`, `bad_request` (it could
                not be sent) or `malformed_reply` (too large, or too many values of JSON).
        """
        ...


class WebSocket(Protocol):
    """An open WebSocket; one task at a time may use it."""

    @property
    def reply(self) -> HttpReply:
        """The reply to the handshake, without a body."""
        ...

    async def send(self, text: str) -> None:
        """Send a text message, at the latest when the next one is awaited. A checkpoint if it is long.

        Raises:
            ProviderError: `connection`: it is lost.
        """
        ...

    async def receive(self) -> str:
        """Return the next message; bytes as text. A checkpoint unless it has arrived already.

        Raises:
            ProviderError: There is none: `connection`, the kind for the code with which the server closed,
                or `malformed_reply` (not a WebSocket's frame, or all messages together are too large).
        """
        ...


class WebClient(HttpClient, Protocol):
    """A client that opens WebSockets too."""

    def connect(self, request: HttpRequest) -> AbstractAsyncContextManager["WebSocket | HttpReply"]:
        """Open a WebSocket for the time of a block; it is closed with it, also when that is cancelled.

        Args:
            request: Its URL begins with `ws:` or `wss:`; body and method are not sent.

        Returns:
            The reply instead, if the server refuses: its status is at least 300.

        Raises:
            ProviderError: No connection (`connection`, `tls`); the request cannot be sent (`bad_request`); or
                the reply is not that of a WebSocket server, or is too large (`malformed_reply`).
        """
        ...

"""What adapters need of HTTP: one request, one whole reply.

The words of that exchange only; `trioeval.providers.http.client` carries it out, and is the one module
that imports an HTTP client.
"""

from collections.abc import Callable, Mapping
from email.utils import formatdate
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import attrs

_LONGEST_URL = 300  # characters: a path may hold a prompt


@attrs.frozen
class HttpRequest:
    """A request that is ready to be sent."""

    url: str = attrs.field(repr=False)
    headers: Mapping[str, str] = attrs.field(repr=False)
    body: bytes | None = attrs.field(
        repr=lambda body: "no body" if body is None else f"<{len(body)} bytes>"
    )
    method: str = "POST"
    max_reply_bytes: int | None = None
    """Bytes that the body of its reply may have; None is what the client allows."""


def request_source(method: str, url: str) -> str:
    """A method and a URL as errors name them: without query, user and password.

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
    """A reply that has arrived as a whole, whatever its status."""

    status: int
    headers: Mapping[str, str]
    """Names are in lower case; a header that came several times is joined by commas."""
    body: bytes = attrs.field(repr=lambda body: f"<{len(body)} bytes>")
    source: str = attrs.field(default="", eq=False, repr=False)
    """The method and the URL that replied, as errors name them."""


def dated(headers: Mapping[str, str], now: float) -> Mapping[str, str]:
    """The headers of a reply that has just arrived, with its date.

    A server may leave out `date`; then it is the instant of the arrival (RFC 9110, section 6.6.1), so that
    the instants which other headers name have something to count from.

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
    """How a server is trusted, and this client shown to it, where the usual way is not enough."""

    ca: Path | None = None
    """Certificates of authorities, in place of the usual ones."""
    certificate: Path | None = None
    """The client's own certificate."""
    key: Path | None = attrs.field(default=None, repr=False)
    verify: bool = True
    """Whether a server has to prove who it is."""


class HttpClient(Protocol):
    """Sends single requests: no retries, no redirects, no limit on how many are under way."""

    async def send(
        self, request: HttpRequest, *, heard: Callable[[bytes], object] | None = None
    ) -> HttpReply:
        """Send a request and wait for the whole reply.

        Always a checkpoint. Cancelling it ends the exchange at once.

        Args:
            request: Sent as it is; what it does not say of content types is JSON.
            heard: Told of each part of the body when it arrives.

        Raises:
            ProviderError: There was no whole reply: `connection`, `tls`, `bad_request` (it could
                not be sent) or `malformed_reply` (too large, or too many values of JSON).
        """
        ...

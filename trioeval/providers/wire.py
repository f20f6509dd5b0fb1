"""What adapters need of HTTP: one POST of a JSON body, one whole reply.

The words of that exchange only; `trioeval.providers.http` carries it out, and is the one module
that imports an HTTP client.
"""

from collections.abc import Mapping
from typing import Protocol

import attrs


@attrs.frozen
class HttpReply:
    """A reply that has arrived as a whole, whatever its status."""

    status: int
    headers: Mapping[str, str]
    """Names are in lower case; a header that came several times is joined by commas."""
    body: bytes = attrs.field(repr=lambda body: f"<{len(body)} bytes>")


class HttpClient(Protocol):
    """Sends single requests: no retries, no redirects, no limit on how many are under way."""

    async def post_json(self, url: str, headers: Mapping[str, str], body: bytes) -> HttpReply:
        """Post a body that is JSON text already, and wait for the whole reply.

        Always a checkpoint. Cancelling it ends the exchange at once.

        Raises:
            ProviderError: There was no whole reply: `connection`, `tls`, `bad_request` (it could
                not be sent) or `malformed_reply` (too large).
        """
        ...

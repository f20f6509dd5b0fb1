"""Anthropic's own SDK in place of the HTTP client."""

import json
from collections.abc import Callable

import anthropic
import attrs
import httpx2

from trioeval.providers.endpoint import Endpoint
from trioeval.providers.sdk.entries import other_headers, own_key
from trioeval.providers.sdk.transport import exchange_through, open_client
from trioeval.providers.wire import HttpClient, HttpReply, HttpRequest


def wrap(endpoint: Endpoint, client: HttpClient) -> HttpClient:
    """A client that sends through the SDK."""
    sdk = anthropic.AsyncAnthropic(
        api_key=own_key(endpoint),
        base_url=endpoint.base_url,
        max_retries=0,
        timeout=None,
        http_client=open_client(client),
    )
    return AnthropicClient(endpoint, sdk)


@attrs.frozen
class AnthropicClient:
    """Sends what was built for an endpoint through the SDK."""

    _endpoint: Endpoint
    _sdk: anthropic.AsyncAnthropic = attrs.field(repr=False)

    async def send(
        self, request: HttpRequest, *, heard: Callable[[bytes], object] | None = None
    ) -> HttpReply:
        """See `HttpClient.send`."""

        async def call() -> None:
            await self._sdk.post(
                request.url.removeprefix(self._endpoint.base_url),
                cast_to=httpx2.Response,
                body=json.loads(request.body or b"{}"),
                options={"headers": other_headers(self._endpoint, request)},
            )

        return await exchange_through("anthropic", call, heard=heard)

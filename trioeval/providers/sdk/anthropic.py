"""Anthropic's own SDK in place of the HTTP client."""

import anthropic

from trioeval.providers.http.endpoint import Endpoint
from trioeval.providers.http.wire import HttpClient
from trioeval.providers.sdk.entries import own_key
from trioeval.providers.sdk.transport import PostingClient, open_client


def wrap(endpoint: Endpoint, client: HttpClient) -> HttpClient:
    """A client that sends through the SDK."""
    sdk = anthropic.AsyncAnthropic(
        api_key=own_key(endpoint),
        base_url=endpoint.base_url,
        max_retries=0,
        timeout=None,
        http_client=open_client(client),
    )
    return PostingClient("anthropic", endpoint, sdk)

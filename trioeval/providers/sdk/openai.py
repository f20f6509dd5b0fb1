"""OpenAI's own SDK in place of the HTTP client; for all that the `openai:` ids reach."""

import openai

from trioeval.providers.http.endpoint import Endpoint
from trioeval.providers.http.wire import HttpClient
from trioeval.providers.sdk.entries import own_key
from trioeval.providers.sdk.transport import PostingClient, open_client


def wrap(endpoint: Endpoint, client: HttpClient) -> HttpClient:
    """A client that sends through the SDK."""
    sdk = openai.AsyncOpenAI(
        api_key=own_key(endpoint),
        base_url=endpoint.base_url,
        max_retries=0,
        timeout=None,
        http_client=open_client(client),
    )
    # What the constructor is not given it takes from variables that the lane does not know of.
    sdk.organization, sdk.project = endpoint.organization or None, endpoint.project or None
    return PostingClient("openai", endpoint, sdk)

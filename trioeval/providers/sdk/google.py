# Apart from `providers.sdk.entries`: it imports the SDK.
"""Google's own SDK in place of the HTTP client, for `generateContent` of the Gemini API."""

import json
import re
from collections.abc import Callable

import attrs
from google import genai
from google.genai import types

from trioeval.errors import ProviderError
from trioeval.providers.http.endpoint import Endpoint
from trioeval.providers.http.wire import HttpClient, HttpReply, HttpRequest
from trioeval.providers.sdk.transport import exchange_through, open_client, other_headers, own_key

GENERATE = re.compile(r"(?P<base>.+)/(?P<version>v\w+)/(?P<model>\w+/[^/]+):generateContent")
"""The only requests that are sent through the SDK."""

REPLACED = "-"
"""The prompt that the SDK is given; the body that was built replaces it. The SDK would refuse parts of a
message that it does not know, where the service may know them."""


def wrap(endpoint: Endpoint, client: HttpClient) -> HttpClient:
    """A client that sends through the SDK."""
    options = types.HttpOptions(
        httpx_async_client=open_client(client),
        retry_options=types.HttpRetryOptions(attempts=1),
    )
    # Without `vertexai` a variable of the environment decides which service is meant.
    return GoogleClient(
        endpoint, genai.Client(api_key=own_key(endpoint), vertexai=False, http_options=options)
    )


@attrs.frozen
class GoogleClient:
    """Sends what was built for an endpoint through the SDK."""

    _endpoint: Endpoint
    _sdk: genai.Client = attrs.field(repr=False)

    async def send(
        self, request: HttpRequest, *, heard: Callable[[bytes], object] | None = None
    ) -> HttpReply:
        """See `HttpClient.send`."""
        found = GENERATE.fullmatch(request.url)
        if found is None:
            raise ProviderError("bad_request", "the google SDK is asked for generateContent only")
        options = types.HttpOptions(
            base_url=found["base"],
            api_version=found["version"],
            headers=other_headers(self._endpoint, request),
            extra_body=json.loads(request.body or b"{}"),
        )
        # The reply is not parsed into the SDK's models: it is read where it was received.
        config = types.GenerateContentConfig(http_options=options, should_return_http_response=True)

        async def call() -> None:
            await self._sdk.aio.models.generate_content(
                model=found["model"], contents=REPLACED, config=config
            )

        return await exchange_through(
            "google", call, heard=heard, max_reply_bytes=request.max_reply_bytes
        )

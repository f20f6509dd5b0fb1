"""Google's SDK in place of the HTTP client, for `generateContent` of the Gemini API."""

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
"""The only requests that can be sent through the SDK."""

REPLACED = "-"
"""The prompt passed to the SDK, replaced by the body that was built: the SDK refuses parts of a message that
it does not know, although the service may support them."""


def wrap(endpoint: Endpoint, client: HttpClient) -> HttpClient:
    """Return a client that sends through the SDK."""
    options = types.HttpOptions(
        httpx_async_client=open_client(client),
        retry_options=types.HttpRetryOptions(attempts=1),
    )
    # Without `vertexai` an environment variable would select the service.
    return GoogleClient(
        endpoint, genai.Client(api_key=own_key(endpoint), vertexai=False, http_options=options)
    )


@attrs.frozen
class GoogleClient:
    """Sends requests of an endpoint through the SDK."""

    _endpoint: Endpoint
    _sdk: genai.Client = attrs.field(repr=False)

    async def send(
        self, request: HttpRequest, *, on_part: Callable[[bytes], object] | None = None
    ) -> HttpReply:
        """Send a request, as in `HttpClient.send`."""
        found = GENERATE.fullmatch(request.url)
        if found is None:
            raise ProviderError("bad_request", "the google SDK supports only generateContent")
        options = types.HttpOptions(
            base_url=found["base"],
            api_version=found["version"],
            headers=other_headers(self._endpoint, request),
            extra_body=json.loads(request.body or b"{}"),
        )
        # The reply is not parsed into the SDK's models: it is read as received.
        config = types.GenerateContentConfig(http_options=options, should_return_http_response=True)

        async def call() -> None:
            await self._sdk.aio.models.generate_content(
                model=found["model"], contents=REPLACED, config=config
            )

        return await exchange_through(
            "google", call, on_part=on_part, max_reply_bytes=request.max_reply_bytes
        )

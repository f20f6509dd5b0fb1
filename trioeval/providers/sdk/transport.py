"""The transport of SDKs: the run's own HTTP client, whose replies are used instead of the SDK's results.

An SDK gets a transport in place of its own connections. So its requests use the same proxies, certificates
and limits as all others, its own timeouts and pool are unused, and the reply is the received one, whatever
the SDK returns: replies and failures are read by the same rules as without it.

One call is one request. SDKs are configured not to retry, and a second request within a call is refused, so
that no version of an SDK can retry unseen by the lane.
"""

import json
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import attrs
import httpx2

from trioeval.errors import ProviderError
from trioeval.providers.http.endpoint import Endpoint
from trioeval.providers.http.wire import HttpClient, HttpReply, HttpRequest

PLACEHOLDER = "none"
"""The key for a service that needs none: SDKs require one."""

_OWN_HEADERS = frozenset({"host", "connection", "content-length", "accept-encoding"})
"""Request headers that the sending client sets."""

_NOT_FOR_SDKS = frozenset({"set-cookie", "content-encoding", "transfer-encoding"})
"""Reply headers: a cookie must not affect the next call, and the body is already decoded."""


@attrs.define
class _SdkCall:
    """The request of one SDK call, and its result."""

    on_part: Callable[[bytes], object] | None
    max_reply_bytes: int | None
    """Maximum bytes of the reply; None uses the client's maximum."""
    is_sent: bool = False
    reply: HttpReply | None = None
    failure: ProviderError | None = None


_call: ContextVar[_SdkCall] = ContextVar("the call of an SDK that this Trio task makes")


async def exchange_through(
    sdk: str,
    call: Callable[[], Awaitable[object]],
    *,
    on_part: Callable[[bytes], object] | None = None,
    max_reply_bytes: int | None = None,
) -> HttpReply:
    """Make a call of an SDK, and return the reply to its request.

    Args:
        sdk: The SDK's name in messages.
        call: One call of an SDK whose client is from `open_client`. Its result is ignored.
        on_part: Called with each part of the body when it arrives.
        max_reply_bytes: Maximum bytes of the reply; None uses the client's maximum.

    Raises:
        ProviderError: See `HttpClient.send`; or `bad_request`, if the SDK sent nothing.
    """
    made = _SdkCall(on_part, max_reply_bytes)
    before = _call.set(made)
    try:
        await call()
    except Exception as error:
        # If there is a reply, the SDK's exception only repeats its status.
        if made.reply is None and made.failure is None:
            reason = f"{type(error).__name__}: {error}"
            message = f"the {sdk} SDK did not send the request ({reason})"
            raise ProviderError("bad_request", message) from error
    finally:
        _call.reset(before)
    if made.reply is None:
        raise made.failure or ProviderError("bad_request", f"the {sdk} SDK sent no request")
    return made.reply


def open_client(client: HttpClient) -> httpx2.AsyncClient:
    """Return a client for an SDK; it has no connections of its own, and need not be closed."""
    return httpx2.AsyncClient(transport=_Transport(client), trust_env=False, timeout=None)


def own_key(endpoint: Endpoint) -> str:
    """Return the key for the SDK's constructor."""
    return endpoint.credential.rsplit(" ", 1)[-1] or PLACEHOLDER


def other_headers(endpoint: Endpoint, request: HttpRequest) -> dict[str, str]:
    """Return the headers of a request without the key, which the SDK sends in its own way.

    A complete authorization in the config's `headers` is sent unchanged.
    """
    name, key = endpoint.service.key_header, endpoint.credential
    own = f"Bearer {key}" if name == "authorization" else key
    return {
        header: text for header, text in request.headers.items() if header != name or text != own
    }


@attrs.frozen
class PostingClient:
    """Sends requests of an endpoint through an SDK whose client has `post`."""

    _name: str
    _endpoint: Endpoint
    _sdk: Any = attrs.field(repr=False)

    async def send(
        self, request: HttpRequest, *, on_part: Callable[[bytes], object] | None = None
    ) -> HttpReply:
        """Send a request, as in `HttpClient.send`."""

        async def call() -> None:
            await self._sdk.post(
                request.url.removeprefix(self._endpoint.base_url),
                cast_to=httpx2.Response,
                body=json.loads(request.body or b"{}"),
                options={"headers": other_headers(self._endpoint, request)},
            )

        return await exchange_through(
            self._name, call, on_part=on_part, max_reply_bytes=request.max_reply_bytes
        )


@attrs.frozen
class _Transport(httpx2.AsyncBaseTransport):
    """Passes requests on to the run's client."""

    _client: HttpClient

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        call = _call.get()
        if call.is_sent:
            raise ProviderError("unexpected", "the SDK tried to send a second request in one call")
        call.is_sent = True
        try:
            ready = attrs.evolve(await _ready(request), max_reply_bytes=call.max_reply_bytes)
            reply = call.reply = await self._client.send(ready, on_part=call.on_part)
        except ProviderError as error:
            call.failure = error
            raise
        headers = {name: text for name, text in reply.headers.items() if name not in _NOT_FOR_SDKS}
        return httpx2.Response(reply.status, headers=headers, content=reply.body, request=request)


async def _ready(request: httpx2.Request) -> HttpRequest:
    headers = {name: text for name, text in request.headers.items() if name not in _OWN_HEADERS}
    return HttpRequest(
        str(request.url), headers, await request.aread() or None, method=request.method
    )

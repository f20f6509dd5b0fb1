"""Under every SDK lies the run's own HTTP client, and what went over it is what counts.

An SDK gets a transport in place of its connections. So its requests have the proxies, certificates and
bounds of all others, its time limits and its pool do not exist, and its reply is the one that was received,
whatever the SDK makes of it: replies and failures are read by the same rules as without it.

One call is one request. SDKs are told not to retry, and a second request within a call is refused, so that
none can do so behind its lane's back, now or in a later version.
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
"""The key for a service that needs none: SDKs insist on one."""

_OWN_HEADERS = frozenset({"host", "connection", "content-length", "accept-encoding"})
"""Headers of a request that are the sending client's affair."""

_NOT_FOR_SDKS = frozenset({"set-cookie", "content-encoding", "transfer-encoding"})
"""Headers of a reply: a cookie must not colour the next call, and the body is as it was read."""


@attrs.define
class _Call:
    """What one call of an SDK has sent, and what came of it."""

    heard: Callable[[bytes], object] | None
    max_reply_bytes: int | None
    """Bytes that the reply may have; None is what the client allows."""
    is_sent: bool = False
    reply: HttpReply | None = None
    failure: ProviderError | None = None


_call: ContextVar[_Call] = ContextVar("the call of an SDK that this Trio task makes")


async def exchange_through(
    sdk: str,
    call: Callable[[], Awaitable[object]],
    *,
    heard: Callable[[bytes], object] | None = None,
    max_reply_bytes: int | None = None,
) -> HttpReply:
    """Make a call of an SDK, and give the reply that its request got.

    Args:
        sdk: How messages call the SDK.
        call: One call of an SDK whose client is from `open_client`. Its result is not looked at.
        heard: Told of each part of the body when it arrives.
        max_reply_bytes: Bytes that the reply may have; None is what the client allows.

    Raises:
        ProviderError: See `HttpClient.send`; or `bad_request`, if the SDK sent nothing.
    """
    made = _Call(heard, max_reply_bytes)
    before = _call.set(made)
    try:
        await call()
    except Exception as error:
        # With a reply at hand, the SDK only says in its own words what the status says.
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
    """A client for an SDK that has no connections of its own, and so nothing to close."""
    return httpx2.AsyncClient(transport=_Transport(client), trust_env=False, timeout=None)


def own_key(endpoint: Endpoint) -> str:
    """The key that an SDK is made with."""
    return endpoint.credential.rsplit(" ", 1)[-1] or PLACEHOLDER


def other_headers(endpoint: Endpoint, request: HttpRequest) -> dict[str, str]:
    """The headers of a built request without the key, which the SDK sends in its own way.

    An authorization that the config's `headers` give in full is sent as it is.
    """
    name, key = endpoint.service.key_header, endpoint.credential
    own = f"Bearer {key}" if name == "authorization" else key
    return {
        header: text for header, text in request.headers.items() if header != name or text != own
    }


@attrs.frozen
class PostingClient:
    """Sends what was built for an endpoint through an SDK whose client has `post`."""

    _name: str
    _endpoint: Endpoint
    _sdk: Any = attrs.field(repr=False)

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

        return await exchange_through(
            self._name, call, heard=heard, max_reply_bytes=request.max_reply_bytes
        )


@attrs.frozen
class _Transport(httpx2.AsyncBaseTransport):
    """Hands requests to the run's client."""

    _client: HttpClient

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        call = _call.get()
        if call.is_sent:
            raise ProviderError("unexpected", "a second request within one call is not sent")
        call.is_sent = True
        try:
            ready = attrs.evolve(await _ready(request), max_reply_bytes=call.max_reply_bytes)
            reply = call.reply = await self._client.send(ready, heard=call.heard)
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

"""OpenAI responses that are made in the background: asked for, looked after, and stopped if unwanted.

The service answers at once with an id, under which the response is fetched until it is finished. Whoever
stops waiting for it tells the service so, because it would go on, and charge for it. Only a response whose
id never arrived cannot be stopped.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import quote

import attrs
import trio

from trioeval.errors import ProviderError
from trioeval.providers.adapter import Adapter, ask_for, read_reply
from trioeval.providers.answers import is_success, read_json, text
from trioeval.providers.base import Provider, Reply, Request
from trioeval.providers.cacheable import Question
from trioeval.providers.settings import Shared
from trioeval.providers.wire import HttpClient, HttpReply, HttpRequest

PERIOD = 1.0
"""Seconds between two looks at a response."""

CANCEL_GRACE = 10.0
"""Seconds that stopping a response may take."""

UNFINISHED = frozenset({"queued", "in_progress"})
"""Statuses of a response that is still being made."""


@attrs.frozen
class BackgroundSettings:
    """The settings of a provider whose responses are made in the background."""

    adapter: Adapter

    @property
    def lane_key(self) -> str:
        """That of the endpoint."""
        return self.adapter.endpoint.lane_key

    @property
    def secrets(self) -> tuple[str, ...]:
        """Those of the endpoint."""
        return self.adapter.endpoint.secrets

    @asynccontextmanager
    async def open(self, shared: Shared) -> AsyncGenerator[Provider]:
        """The adapter with the client of the run."""
        yield BackgroundProvider(self.adapter, await shared.http())


@attrs.frozen
class BackgroundProvider:
    """Asks a service that answers later."""

    adapter: Adapter
    _client: HttpClient = attrs.field(repr=False)

    async def __call__(self, request: Request, /) -> Reply:
        """Answer one request. A checkpoint, unless the prompt cannot be sent.

        A look that fails is a failure of the call, and stops the response: only the lane repeats.

        Raises:
            ProviderError: See `Adapter.build`, `Adapter.parse` and `HttpClient.send`; or
                `attempt_timeout`.
        """
        endpoint = self.adapter.endpoint
        most = endpoint.max_reply_bytes
        ready = attrs.evolve(self.adapter.build(request), max_reply_bytes=most)
        timeout = endpoint.timeout
        with trio.move_on_after(timeout):
            reply = await self._client.send(ready)
            response_id = read_unfinished(reply)
            if response_id:
                reply = await self._wait_finished(f"responses/{quote(response_id, safe='')}")
            return await read_reply(self.adapter, reply)
        msg = f"no finished response within {timeout:g} seconds (timeoutMs)"
        raise ProviderError("attempt_timeout", msg)

    def cache_question(self, request: Request, /) -> Question:
        """See `Cacheable`."""
        return ask_for(self.adapter, request)

    async def _wait_finished(self, path: str) -> HttpReply:
        """The reply that tells of the finished response, or of a failure."""
        endpoint = self.adapter.endpoint
        look = HttpRequest(
            endpoint.url(path),
            endpoint.headers,
            None,
            "GET",
            max_reply_bytes=endpoint.max_reply_bytes,
        )
        stop = HttpRequest(endpoint.url(f"{path}/cancel"), endpoint.headers, b"{}")
        is_finished = False
        try:
            while True:
                await trio.sleep(PERIOD)
                reply = await self._client.send(look)
                if read_unfinished(reply) is None:
                    is_finished = is_success(reply)
                    return reply
        finally:
            if not is_finished:
                # The service must hear of it even when the run is cancelled, or it goes on for money.
                with trio.move_on_after(CANCEL_GRACE, shield=True), suppress(ProviderError):
                    await self._client.send(stop)


def read_unfinished(reply: HttpReply) -> str | None:
    """The id of the response that a reply tells of, if that is still being made.

    Returns:
        "" if it has none; None if there is no such response.
    """
    data = read_json(reply.body) if is_success(reply) else None
    return (text(data, "id") or "") if text(data, "status") in UNFINISHED else None

"""Replies that are prepared in the background: requested, polled, and cancelled if no longer needed.

The service returns an id at once, under which the reply is polled until it is finished. When the caller
stops waiting, a request cancels it, because it would continue and charge for it. Only a reply whose id never
arrived cannot be cancelled.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import quote

import attrs
import trio

from trioeval.errors import ProviderError
from trioeval.providers.base import Reply
from trioeval.providers.config import ProviderResources
from trioeval.providers.http.adapter import Adapter, AdapterSettings, HttpProvider, read_reply
from trioeval.providers.http.failures import failure_text
from trioeval.providers.http.replies import is_success, read_json, text
from trioeval.providers.http.wire import HttpReply, HttpRequest, request_source

PERIOD = 1.0
"""Seconds between two polls of a reply."""

CANCEL_GRACE = 10.0
"""Maximum seconds for cancelling a reply."""


@attrs.frozen
class Polling:
    """The place of unfinished replies, and the statuses until which they are polled."""

    name: str
    """The kind of reply, for messages."""
    path: str
    """The path of replies below the base URL; an id follows, and `/cancel` after it cancels."""
    unfinished: frozenset[str]
    """The statuses of a reply in progress."""

    def find_unfinished(self, reply: HttpReply) -> str | None:
        """Return the id of what a reply describes, if that is in progress.

        Returns:
            "" if it has no id; None if nothing is unfinished.
        """
        data = read_json(reply.body) if is_success(reply) else None
        return (text(data, "id") or "") if text(data, "status") in self.unfinished else None


@attrs.frozen
class PollingSettings(AdapterSettings):
    """The settings of a provider with replies in the background."""

    polling: Polling

    @asynccontextmanager
    async def open(self, shared: ProviderResources) -> AsyncGenerator[HttpProvider]:
        """Open the adapter with the client of the run."""
        yield PollingProvider(self.adapter, await shared.http(), self.polling)


@attrs.frozen
class PollingProvider(HttpProvider):
    """A provider that calls a service in the background.

    A poll that fails is a failure of the call, and cancels the reply: only the lane retries.
    """

    _polling: Polling

    async def _ask(self, adapter: Adapter, ready: HttpRequest) -> Reply:
        timeout = adapter.endpoint.timeout
        with trio.move_on_after(timeout):
            reply = await self._client.send(ready)
            reply_id = self._polling.find_unfinished(reply)
            if reply_id:
                reply = await self._wait_finished(
                    f"{self._polling.path}/{quote(reply_id, safe='')}"
                )
            return await read_reply(adapter, reply)
        url = request_source(ready.method, ready.url)
        title = f"no finished {self._polling.name} within {timeout:g} seconds from"
        raise ProviderError("attempt_timeout", failure_text(title, url, advice="raise timeoutMs"))

    async def _wait_finished(self, path: str) -> HttpReply:
        """Return the reply with the finished result, or with a failure."""
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
                if self._polling.find_unfinished(reply) is None:
                    is_finished = is_success(reply)
                    return reply
        finally:
            if not is_finished:
                # The service must be notified even if the run is cancelled, or it continues to charge.
                with trio.move_on_after(CANCEL_GRACE, shield=True), suppress(ProviderError):
                    await self._client.send(stop)

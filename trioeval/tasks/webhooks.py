"""Servers of the user's that judge outputs."""

import json
import math
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import attrs
import trio

from trioeval.errors import GradingError, ProviderError
from trioeval.providers.answers import NOT_JSON, read_json
from trioeval.providers.wire import HttpClient, HttpRequest, TlsSettings
from trioeval.tasks.script_context import json_data

LIMIT = 5.0
"""Seconds that a server may take where nobody says how long."""

LARGEST = 1024 * 1024
"""Bytes that an answer may have."""

_EXCERPT = 200


@asynccontextmanager
async def open_webhooks(
    environ: Mapping[str, str],
    tls: TlsSettings | None = None,
    *,
    hosts: frozenset[str] | None = None,
) -> AsyncGenerator["Webhooks"]:
    """What asks servers, for as long as the block.

    Args:
        environ: Its `WEBHOOK_TIMEOUT` says how many milliseconds a server may take.
        tls: How servers are trusted; None is the usual way.
        hosts: The only hosts that requests may go to; None allows all.
    """
    async with AsyncExitStack() as stack:
        yield Webhooks(_limit(environ.get("WEBHOOK_TIMEOUT", "")), tls, hosts, stack)


@attrs.define(eq=False)
class Webhooks:
    """Asks servers; obtained from `open_webhooks` only."""

    _limit: float
    _tls: TlsSettings | None
    _hosts: frozenset[str] | None
    _stack: AsyncExitStack = attrs.field(repr=False)
    _opening: trio.Lock = attrs.field(init=False, factory=trio.Lock, repr=False)
    _client: HttpClient | None = attrs.field(init=False, default=None, repr=False)

    async def post(self, url: str, data: Any) -> Any:
        """The JSON that a server answers with when it is sent some. Always a checkpoint.

        Raises:
            GradingError: It answered with a failure, with what is no JSON, not in time, or not at all.
        """
        client = await self._opened()
        body = json.dumps(json_data(data)).encode()
        with trio.move_on_after(self._limit):
            try:
                reply = await client.send(HttpRequest(url.strip(), {}, body))
            except ProviderError as error:
                msg = f"the webhook did not answer: {error.message}"
                raise GradingError(msg) from error
            text = reply.body[:_EXCERPT].decode("utf-8", "replace").strip()
            if not 200 <= reply.status < 300:  # noqa: PLR2004 - what success is
                msg = f"the webhook answered with status {reply.status}: {text}"
                raise GradingError(msg)
            answer = read_json(reply.body)
            if answer is NOT_JSON:
                msg = f"the webhook must answer with JSON, got: {text}"
                raise GradingError(msg)
            return answer
        msg = f"the webhook did not answer within {self._limit:g} seconds (WEBHOOK_TIMEOUT)"
        raise GradingError(msg)

    async def _opened(self) -> HttpClient:
        async with self._opening:
            if self._client is None:
                from trioeval.providers.http import open_http  # noqa: PLC0415 - costs more than a small run

                opening = open_http(self._tls, max_reply_bytes=LARGEST, hosts=self._hosts)
                self._client = await self._stack.enter_async_context(opening)
            return self._client


def _limit(milliseconds: str) -> float:
    try:
        limit = float(milliseconds) / 1000
    except ValueError:
        return LIMIT
    return limit if 0 < limit < math.inf else LIMIT

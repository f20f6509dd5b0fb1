"""The servers of a provider: connected by the first call that needs them, and kept for all others.

A server that is a program is started again after it has ended, and after a call without an answer, because
its state is then unknown; calls in flight are completed first. A service gets a new session after a failed
request.
"""

import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import trio

from trioeval.errors import ProviderError
from trioeval.nurseries import open_plain_nursery
from trioeval.providers.config import did_you_mean, nearest, show
from trioeval.providers.generic.auth import TokenSource, fetch_token
from trioeval.providers.http.wire import HttpClient
from trioeval.providers.mcp.entry import McpServer, McpSettings, McpSite
from trioeval.providers.mcp.links import McpLink, McpTool

_SHOWN_TOOLS = 10


@asynccontextmanager
async def open_servers(
    settings: McpSettings, client: HttpClient | None
) -> AsyncGenerator["McpServers"]:
    """Open the servers of an entry for the time of the block.

    Args:
        settings: The entry.
        client: The client for servers over HTTP; None if there is none.
    """
    async with open_plain_nursery() as nursery:
        lines = [_Line(server, settings, client, nursery) for server in settings.servers]
        try:
            yield McpServers(settings, lines)
        finally:
            for line in lines:
                line.close()


@attrs.define(eq=False, repr=False)
class _Line:
    """One server, and the present connection to it."""

    server: McpServer
    _settings: McpSettings
    _client: HttpClient | None
    _nursery: trio.Nursery
    link: McpLink | None = None
    _tokens: TokenSource | None = attrs.field(init=False)

    @_tokens.default
    def _find_tokens(self) -> TokenSource | None:
        token = self.server.auth.token if isinstance(self.server, McpSite) else None
        if token is None or self._client is None:
            return None
        return TokenSource(partial(fetch_token, token, self._client.send))

    def connect(self, limit: float) -> McpLink:
        """Return the connection, after starting a new one if there is none. Not a checkpoint.

        Args:
            limit: Maximum seconds for connecting, > 0.
        """
        if self.link is None or not self.link.is_usable:
            crashes = 0 if self.link is None else self.link.crashes
            self.link = McpLink(
                self.server, self._settings, self._client, self._tokens, limit, crashes=crashes
            )
            self._nursery.start_soon(self.link.run)
        return self.link

    def close(self) -> None:
        """Let the connection end."""
        if self.link is not None:
            self.link.close()


@attrs.frozen(eq=False, repr=False)
class McpServers:
    """The servers of one provider; obtained from `open_servers` only."""

    _settings: McpSettings
    _lines: Sequence[_Line]

    async def call(
        self, tool: str, arguments: Mapping[str, Any], limit: float
    ) -> Mapping[str, Any]:
        """Return the result of a tool of the first server that has it. Always a checkpoint.

        Servers without a connection are connected first, all at once.

        Args:
            tool: Its name.
            arguments: Its arguments, as JSON data.
            limit: Maximum seconds, > 0; connecting counts.

        Raises:
            ProviderError: `bad_request` (no server has the tool), `attempt_timeout`, `worker_crashed` (the
                program has ended), `unexpected` (the server refused the call, or its result is invalid), or
                the failure of a request over HTTP.
        """
        settings = self._settings
        total = math.inf if settings.total is None else settings.total
        end = trio.current_time() + total
        waits_for: McpLink | None = None
        with trio.move_on_after(min(limit, total)) as scope:

            async def extend(progress: float, total: float | None, message: str | None) -> None:  # noqa: ARG001
                await trio.lowlevel.checkpoint()
                scope.deadline = min(trio.current_time() + limit, end)

            links = [line.connect(min(limit, total)) for line in self._lines]
            for waits_for in links:
                await waits_for.wait_ready()
            waits_for = self._find(tool, links)
            on_progress = extend if settings.is_extended else None
            return await waits_for.call(tool, arguments, on_progress)
        raise self._late(waits_for, min(limit, total))

    async def offered(self, limit: float) -> tuple[McpTool, ...]:
        """Return the tools that may be called, each name once, after connecting all servers.

        Args:
            limit: Maximum seconds, > 0.

        Raises:
            ProviderError: See `call`.
        """
        waits_for: McpLink | None = None
        with trio.move_on_after(limit):
            links = [line.connect(limit) for line in self._lines]
            for waits_for in links:
                await waits_for.wait_ready()
            every = [tool for link in links for tool in link.tools.values()]
            found = {
                tool.name: tool for tool in reversed(every) if self._settings.offers(tool.name)
            }
            return tuple(reversed(found.values()))
        raise self._late(waits_for, limit)

    def _find(self, tool: str, links: Sequence[McpLink]) -> McpLink:
        """Return the first connection to a server that has a tool."""
        id_, offers = self._settings.id, self._settings.offers
        for link in links:
            if tool in link.tools and offers(tool):
                return link
        every = dict.fromkeys(name for link in links for name in link.tools)
        if tool in every:
            fault = f"the tool {show(tool)} is excluded by tools or exclude_tools of the config"
            raise ProviderError("bad_request", f"{id_}: {fault}")
        names = ", ".join(link.server.name for link in links)
        hint = _offer(tool, [name for name in every if offers(name)])
        raise ProviderError("bad_request", f"{id_}: {names} has no tool {show(tool)}; {hint}")

    def _late(self, link: McpLink | None, limit: float) -> ProviderError:
        """Return the error for a call without an answer."""
        name = "the server" if link is None else link.server.name
        noise, printed = ("", None) if link is None else (link.noise, link.printed)
        message = f"{self._settings.id}: {name} did not answer within {limit:g} seconds (timeout)"
        return ProviderError("attempt_timeout", f"{message}{noise}", body_excerpt=printed)


def _offer(tool: str, names: Sequence[str]) -> str:
    """Return a hint with the nearest tools, or with some."""
    if close := nearest(tool, names):
        return did_you_mean(close)
    shown = ", ".join(names[:_SHOWN_TOOLS])
    more = ", …" if len(names) > _SHOWN_TOOLS else ""
    return f"its tools are {shown}{more}" if names else "none may be called"

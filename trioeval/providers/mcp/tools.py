"""`mcp` in the config of a chat provider: the model is offered the tools of MCP servers, and they are called.

What follows a call of a tool depends on the vendor, as in promptfoo. With chat completions the results of
the tools are the output. With Anthropic's messages they go back to the model until it calls no more tools.
With Gemini the call itself is the output.
"""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs
import trio

from trioeval.errors import Fault, Problem, ProviderError
from trioeval.providers.base import Provider, Reply, Request, ToolCall
from trioeval.providers.config import (
    EntryContext,
    ProviderResources,
    ProviderSettings,
    Reader,
    is_integer,
    show,
    to_snake,
)
from trioeval.providers.http.adapter import AdapterSettings
from trioeval.providers.mcp import entry
from trioeval.providers.mcp.entry import McpSettings, McpSite, content_of
from trioeval.providers.metering import Metering
from trioeval.providers.vendors.anthropic import MessagesAdapter
from trioeval.providers.vendors.anthropic_request import read_conversation
from trioeval.providers.vendors.gemini import GenerateAdapter
from trioeval.providers.vendors.openai_chat import ChatAdapter
from trioeval.usage import Usage

if TYPE_CHECKING:
    from trioeval.providers.mcp.links import McpTool
    from trioeval.providers.mcp.servers import McpServers

DEFAULT_MAX_CALLS = 8
"""Maximum number of calls of tools for one prompt, if the config sets none."""

_CHATS = (ChatAdapter, MessagesAdapter, GenerateAdapter)
_MAX_CALLS = "max_tool_calls"
_REFUSALS = ("bad_request", "unexpected")
"""Kinds of failures that the server of a tool reports about a call, or that the model has caused."""


@attrs.frozen(kw_only=True)
class McpToolsSettings(AdapterSettings):
    """The settings of a chat provider whose model is offered the tools of servers."""

    plain: AdapterSettings
    """The settings without the tools."""
    mcp: McpSettings
    max_calls: int = DEFAULT_MAX_CALLS
    """Maximum number of calls of tools for one prompt, if their results go back to the model; ≥ 0."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets of the endpoint and of the servers."""
        return (*self.plain.secrets, *self.mcp.secrets)

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of the servers."""
        return self.mcp.urls

    @property
    def named_variables(self) -> tuple[str, ...]:
        """The variables that the servers get."""
        return (*self.plain.named_variables, *self.mcp.named_variables)

    @property
    def code_keys(self) -> tuple[str, ...]:
        """Config keys that start servers."""
        return tuple(f"mcp.{key}" for key in self.mcp.code_keys)

    @property
    def credential_choices(self) -> Mapping[str, str]:
        """Those of the provider."""
        return self.plain.credential_choices

    @property
    def metering(self) -> Metering:
        """The metering of one request without tools; it bounds no call, because their number is unknown."""
        return attrs.evolve(self.plain.metering, is_bounded=False)

    @asynccontextmanager
    async def open(self, shared: ProviderResources) -> AsyncGenerator[Provider]:
        """Open the provider, and the servers of its tools."""
        from trioeval.providers.mcp.servers import open_servers  # imports the SDK

        is_remote = any(isinstance(server, McpSite) for server in self.mcp.servers)
        client = await shared.http() if is_remote else None
        async with self.plain.open(shared) as provider, open_servers(self.mcp, client) as servers:
            yield McpToolsProvider(self, provider, servers)


def read_with_tools(
    read: Reader, prefix: str, rest: str, config: Mapping[str, Any], context: EntryContext
) -> ProviderSettings | list[Problem]:
    """Read an entry whose config has `mcp`; see `Reader`.

    Args:
        read: Reads the entry without it; refuses it for a provider whose model gets no tools.
        prefix: The first argument of `read`.
        rest: The second.
        config: The third, with `mcp`.
        context: The fourth.
    """
    without = {key: value for key, value in config.items() if key != "mcp"}
    plain = read(prefix, rest, _without_maximum(without), context)
    problems = plain if isinstance(plain, list) else []
    if not isinstance(plain, list):
        if not isinstance(plain, AdapterSettings) or not isinstance(plain.adapter, _CHATS):
            return read(prefix, rest, config, context)
        if not isinstance(plain.adapter, MessagesAdapter):  # the maximum is a key of its body
            plain = read(prefix, rest, without, context)
    most = _maximum(config)
    if isinstance(most, Problem):
        problems = [*problems, most]
    mcp = entry.read("mcp", "", config["mcp"], context)
    if isinstance(mcp, list):
        problems = [*problems, *(attrs.evolve(one, path=_inside(one.path)) for one in mcp)]
    if problems or isinstance(mcp, list) or isinstance(most, Problem):
        return problems
    if not isinstance(plain, AdapterSettings):
        return plain
    warnings = [attrs.evolve(one, path=_inside(one.path)) for one in mcp.warnings]
    return McpToolsSettings(
        adapter=plain.adapter,
        plain=plain,
        mcp=attrs.evolve(mcp, id=f"{prefix}:{rest}"),
        max_calls=most,
        warnings=(*plain.warnings, *warnings),
    )


def _inside(path: str) -> str:
    return f".config.mcp{path.removeprefix('.config').removeprefix('.id')}"


def _without_maximum(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if to_snake(str(key)) != _MAX_CALLS}


def _maximum(config: Mapping[str, Any]) -> int | Problem:
    """Return the maximum number of calls of tools."""
    given = {to_snake(str(key)): value for key, value in config.items()}.get(_MAX_CALLS)
    if given is None:
        return DEFAULT_MAX_CALLS
    if is_integer(given) and given >= 0:
        return int(given)
    right = "must be a whole number of at least 0"
    return Problem(f".config.{_MAX_CALLS}", f"{right}, got {show(given)}")


@attrs.frozen(kw_only=True)
class McpCallResult:
    """A call of a tool, and its result."""

    call: ToolCall
    content: str
    """The content as JSON text; the message of a call that the server refused."""
    failed: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return both as JSON data, in the form of promptfoo."""
        return {
            "id": self.call.id,
            "name": self.call.name,
            "input": self.call.arguments,
            "output": self.content,
            "is_error": self.failed,
        }

    def to_text(self) -> str:
        """Return a line for an output."""
        return f"MCP {self.call.name}{' failed' if self.failed else ''}: {self.content}"

    def to_block(self) -> dict[str, Any]:
        """Return the block that reports it to a model of Anthropic."""
        failed = {"is_error": True} if self.failed else {}
        return {
            "type": "tool_result",
            "tool_use_id": self.call.id,
            "content": self.content,
            **failed,
        }


@attrs.frozen
class McpToolsProvider:
    """Offers tools to a model, and calls those that it requests."""

    settings: McpToolsSettings
    _provider: Provider = attrs.field(repr=False)
    _servers: "McpServers" = attrs.field(repr=False)

    async def __call__(self, request: Request, /) -> Reply:
        """Send one request, and with Anthropic's messages those that report the results of tools.

        Raises:
            ProviderError: That of the provider; that of a server that could not be reached, which is not
                repeated, because the model's reply is paid for; or `unexpected`, if the model calls more
                tools than `max_tool_calls`.
        """
        offered = await self._servers.offered(self.settings.mcp.timeout)
        adapter = self.settings.adapter.with_options(request.options)
        tools = [*map(_offer, offered), *(adapter.given.get("tools") or ())]
        if tools:
            request = attrs.evolve(request, options={**request.options, "tools": tools})
        reply = await self._ask(request)
        names = frozenset(tool.name for tool in offered)
        match adapter:
            case MessagesAdapter():
                return await self._converse(request, reply, names)
            case ChatAdapter():
                return await self._with_results(reply, names)
            case _:
                return reply

    async def _ask(self, request: Request) -> Reply:
        reply = await self._provider(request)
        return Reply(output=reply) if isinstance(reply, str) else reply

    async def _with_results(self, reply: Reply, names: frozenset[str]) -> Reply:
        """Return the reply with the results of its tools as output; unchanged if there are none."""
        calls = [call for call in reply.tool_calls if call.name in names]
        if not calls:
            return reply
        results = await self._run(calls, [reply])
        output = "\n".join(result.to_text() for result in results)
        metadata = {**reply.metadata, "toolCalls": [result.to_json() for result in results]}
        return attrs.evolve(reply, output=output, text=output, metadata=metadata)

    async def _converse(self, request: Request, reply: Reply, names: frozenset[str]) -> Reply:
        """Return the model's reply to the results of all tools that it calls."""
        most = self.settings.max_calls
        replies, done = [reply], list[McpCallResult]()
        prompt = read_conversation(request.prompt)
        above = [] if prompt.system is None else [{"role": "system", "content": prompt.system}]
        messages = [*above, *prompt.messages]
        choice = request.options.get("tool_choice", self.settings.adapter.given.get("tool_choice"))
        if choice is not None and choice not in ("auto", "none"):
            # A model that must call a tool would never end.
            request = attrs.evolve(request, options={**request.options, "tool_choice": None})
        while most and reply.tool_calls and all(one.name in names for one in reply.tool_calls):
            if len(done) + len(reply.tool_calls) > most:
                fault = f"the model called more than {most} tools ({_MAX_CALLS})"
                raise _billed(ProviderError("unexpected", fault), replies)
            results = await self._run(reply.tool_calls, replies)
            done += results
            messages = [
                *messages,
                {"role": "assistant", "content": reply.raw["content"]},
                {"role": "user", "content": [result.to_block() for result in results]},
            ]
            following = attrs.evolve(request, prompt=json.dumps(messages, ensure_ascii=False))
            try:
                reply = await self._ask(following)
            except ProviderError as error:
                raise _billed(error, replies, fault=error.fault) from error
            replies.append(reply)
        if not done:
            return reply
        return attrs.evolve(
            reply,
            usage=Usage.sum(one.usage for one in replies),
            cost=_cost(replies),
            metadata={**reply.metadata, "toolCalls": [result.to_json() for result in done]},
        )

    async def _run(
        self, calls: Sequence[ToolCall], replies: Sequence[Reply]
    ) -> list[McpCallResult]:
        """Return the results of calls, which run at the same time, in their order."""
        results: dict[int, McpCallResult] = {}
        failures: list[ProviderError] = []

        async def run(place: int, call: ToolCall) -> None:
            try:
                results[place] = await self._call(call)
            except ProviderError as error:
                failures.append(error)

        async with trio.open_nursery() as nursery:
            for place, call in enumerate(calls):
                nursery.start_soon(run, place, call)
        if failures:
            raise _billed(failures[0], replies)
        return [results[place] for place in range(len(calls))]

    async def _call(self, call: ToolCall) -> McpCallResult:
        if not isinstance(call.arguments, Mapping):
            fault = f"the arguments must be a JSON object, got {show(call.arguments)}"
            return McpCallResult(call=call, content=fault, failed=True)
        limit = self.settings.mcp.timeout
        try:
            result = await self._servers.call(call.name, call.arguments, limit)
        except ProviderError as error:
            if error.kind not in _REFUSALS:
                raise
            return McpCallResult(call=call, content=error.message, failed=True)
        failed = bool(result.get("isError"))
        return McpCallResult(call=call, content=content_of(result), failed=failed)


def _offer(tool: "McpTool") -> dict[str, Any]:
    """Return a tool in the form of chat completions, which the adapters of all vendors read."""
    schema = {name: part for name, part in tool.schema.items() if name != "$schema"}
    parameters = {"type": "object", "properties": {}, **schema}
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def _cost(replies: Sequence[Reply]) -> float | None:
    """Return the cost of all replies; None if one of them is unknown."""
    costs = [reply.cost for reply in replies if reply.cost is not None]
    return sum(costs) if len(costs) == len(replies) else None


def _billed(
    error: ProviderError, replies: Sequence[Reply], fault: Fault = Fault.REFUSED
) -> ProviderError:
    """Return a failure with the usage and the cost of the replies before it."""
    usage = Usage.sum([*(reply.usage for reply in replies), error.usage])
    return error.restated(error.message, fault=fault, usage=usage, money=_cost(replies))

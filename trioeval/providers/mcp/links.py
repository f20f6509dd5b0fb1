"""One connection to a server: a child process or a session over HTTP, for any number of calls at a time.

The SDK reads and writes the messages. The process is a supervised tree, which ends with this process
whatever happens, and HTTP requests go through the client of all other providers.
"""

import logging
import math
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import anyio
import attrs
import httpx2
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import ClientSession, MCPError
from mcp.client._transport import ReadStream, WriteStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.message import SessionMessage
from mcp_types import (
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    CallToolResult,
    Implementation,
    PaginatedRequestParams,
    jsonrpc_message_adapter,
)

from trioeval._version import __version__
from trioeval.errors import Fault, ProviderError, ProviderErrorKind, leaves
from trioeval.executables import start_failure
from trioeval.open_files import TOO_MANY, too_many_open_files
from trioeval.providers.bounds import MOST_BYTES, has_more_marks, most_marks
from trioeval.providers.config import show
from trioeval.providers.generic.auth import TokenSource
from trioeval.providers.http.failures import clip
from trioeval.providers.http.wire import HttpClient
from trioeval.providers.mcp.entry import McpProgram, McpServer, McpSettings, McpSite
from trioeval.providers.mcp.wire import McpExchange, McpTransport, exchanging
from trioeval.providers.programs.exec import LAST_WORDS, OutputTail, last_line, read_stream, to_text
from trioeval.providers.programs.processes import Tree, describe_end, start_tree
from trioeval.providers.programs.workers import CRASHES, GOODBYE
from trioeval.providers.secrets import longest_first

_Incoming: TypeAlias = SessionMessage | Exception

_CLOSE_GRACE = 2.0
"""Maximum seconds for the orderly end of a connection, before it is cut."""

_PAGES = 100
"""Maximum number of pages of a list of tools."""

_SHOWN = 120

# Its warnings about servers would be printed by a program that configures no logging.
logging.getLogger("mcp").addHandler(logging.NullHandler())


@attrs.frozen
class McpTool:
    """A tool of a server."""

    name: str
    description: str
    schema: Mapping[str, Any]
    """The JSON Schema of its arguments."""


@attrs.define(eq=False, repr=False)
class McpLink:
    """One connection, from its start to its end; `run` has to run in a task of its own."""

    server: McpServer
    _settings: McpSettings
    _client: HttpClient | None
    _tokens: TokenSource | None
    _limit: float
    """Maximum seconds for connecting."""
    crashes: int = 0
    """Number of consecutive crashes of the server."""
    tools: Mapping[str, McpTool] = attrs.field(init=False, factory=dict)
    """Its tools by name, in the server's order; complete when it is ready."""
    _session: ClientSession | None = attrs.field(init=False, default=None)
    _ready: trio.Event = attrs.field(init=False, factory=trio.Event)
    _over: trio.Event = attrs.field(init=False, factory=trio.Event)
    _closing: trio.Event = attrs.field(init=False, factory=trio.Event)
    _life: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    _failure: ProviderError | None = attrs.field(init=False, default=None)
    _calls: int = attrs.field(init=False, default=0)
    """Number of calls in flight."""
    _is_retired: bool = attrs.field(init=False, default=False)
    _is_lost: bool = attrs.field(init=False, default=False)
    """True if the server has closed its output."""
    _strange: str | None = attrs.field(init=False, default=None)
    """The first line of its output that is not a message of the protocol."""
    _errors: OutputTail = attrs.field(init=False)

    @_errors.default
    def _empty_tail(self) -> OutputTail:
        return OutputTail(secrets=longest_first(self._settings.secrets))

    @property
    def is_usable(self) -> bool:
        """True if further calls may use it."""
        return not (self._is_retired or self._is_lost or self._over.is_set())

    @property
    def printed(self) -> str | None:
        """The end of the standard error of its program."""
        return self._errors.text

    @property
    def noise(self) -> str:
        """The end of messages about a server with output that is not of the protocol."""
        if self._strange is None:
            return ""
        return f"; it printed {self._strange}, which is not a message of the protocol"

    def close(self) -> None:
        """Let it end, when no call is in flight any more. Not a checkpoint."""
        self._is_retired = True
        if self._calls == 0:
            self._closing.set()

    async def wait_ready(self) -> None:
        """Wait until it can be used.

        Raises:
            ProviderError: It could not be opened.
        """
        await self._ready.wait()
        if self._session is None:
            raise self._end_of_link()

    async def call(
        self, tool: str, arguments: Mapping[str, Any], on_progress: ProgressFnT | None
    ) -> Mapping[str, Any]:
        """Return the result of a tool as JSON data. Always a checkpoint.

        Args:
            tool: Its name.
            arguments: Its arguments, as JSON data.
            on_progress: Called for reports of progress; None requests none.

        Raises:
            ProviderError: `unexpected` (the server refused the call, or its result is invalid), the reason
                why the connection has ended, or the failure of a request over HTTP.
        """
        session = self._session
        if session is None:
            raise self._end_of_link()
        self._calls += 1
        is_answered = False
        try:
            with exchanging() as exchange:
                result = await session.call_tool(
                    tool, dict(arguments), progress_callback=on_progress
                )
            is_answered = True
        except MCPError as error:
            if self._is_lost:
                await self._over.wait()  # noqa: ASYNC120 - a cancelled call has no other error
                raise self._end_of_link() from error
            if exchange.failure is not None:
                raise exchange.failure from error
            is_answered = True
            raise self._refusal(tool, error.message) from error
        except (RuntimeError, ValueError) as error:  # the result does not fit its schema
            is_answered = True
            raise self._refusal(tool, str(error)) from error
        finally:
            self._calls -= 1
            if self._is_retired or not is_answered:
                self.close()
        self.crashes = 0
        return _to_json(result)

    @trio.lowlevel.enable_ki_protection  # as for `start_tree`
    async def run(self) -> None:
        """Connect, and stay connected until `close`, or until the server ends. Raises nothing."""
        self._life.deadline = trio.current_time() + self._limit
        failures: list[ProviderError] = []
        try:
            with self._life:
                await self._connect()
        except* Exception as group:  # noqa: BLE001 - the SDK raises errors of all its parts, in groups
            failures = [self._explain(error) for error in leaves(group)]
        finally:
            if self._failure is None and failures:
                self._failure = failures[0]
            elif self._failure is None and self._session is None:
                self._failure = self._late()
            self._over.set()
            self._ready.set()

    def _late(self) -> ProviderError:
        message = f"{self._name} did not start within {self._limit:g} seconds (timeout)"
        return ProviderError("attempt_timeout", f"{message}{self.noise}", body_excerpt=self.printed)

    @property
    def _name(self) -> str:
        """The beginning of messages."""
        return f"{self._settings.id}: {self.server.name}"

    def _end_of_link(self) -> ProviderError:
        """Return the reason of its end; a new object, because each call raises its own."""
        if self._failure is not None:
            return self._failure.restated(self._failure.message)
        return ProviderError("connection", f"{self._name} has closed the connection")

    def _refusal(self, tool: str, reason: str) -> ProviderError:
        return ProviderError(
            "unexpected", f"{self._name}: {tool}: {clip(' '.join(reason.split()))}"
        )

    def _explain(self, error: BaseException) -> ProviderError:
        """Return the failure of a connection that could not be opened."""
        if isinstance(error, ProviderError):
            return error
        reason = error.message if isinstance(error, MCPError) else str(error)
        message = f"{self._name} cannot be used: {clip(reason) or type(error).__name__}"
        return ProviderError("unexpected", f"{message}{self.noise}", body_excerpt=self.printed)

    async def _connect(self) -> None:
        match self.server:
            case McpProgram():
                await self._run_program(self.server)
            case McpSite():
                await self._use_site(self.server)

    async def _use_site(self, site: McpSite) -> None:
        client = self._client
        if client is None:
            raise RuntimeError("a server over HTTP needs a client")
        transport = McpTransport(self._name, site, client, self._tokens)
        http = httpx2.AsyncClient(transport=transport, trust_env=False, timeout=None)
        async with streamable_http_client(site.url, http_client=http) as (read, write):
            await self._converse(read, write)

    async def _converse(
        self, read: ReadStream[_Incoming], write: WriteStream[SessionMessage]
    ) -> None:
        """Open a session, and keep it until the end."""
        own = Implementation(name="trioeval", version=__version__)
        async with ClientSession(read, write, client_info=own) as session:
            with exchanging() as exchange:
                try:
                    await _greet(session, exchange)
                    if self._settings.pings and session.initialize_result is not None:
                        await session.send_ping()
                    self.tools = await _list_tools(session)
                except MCPError:
                    if exchange.failure is not None:
                        raise exchange.failure from None
                    if not self._is_lost:
                        raise
                    return
            self._session = session
            self._life.deadline = math.inf
            self._ready.set()
            await self._closing.wait()
            self._life.deadline = trio.current_time() + _CLOSE_GRACE

    async def _run_program(self, program: McpProgram) -> None:
        to_session, read = anyio.create_memory_object_stream[_Incoming]()
        write, from_session = anyio.create_memory_object_stream[SessionMessage]()
        code: int | None = None
        async with (
            to_session, read, write, from_session,
            await self._start(program) as tree,
            trio.open_nursery() as nursery,
        ):  # fmt: skip
            process = tree.process
            if process.stdin is None or process.stdout is None or process.stderr is None:
                raise RuntimeError("the program has no pipes")
            nursery.start_soon(read_stream, process.stderr, self._errors.feed)
            nursery.start_soon(self._receive, process.stdout, to_session)
            nursery.start_soon(self._send, process.stdin, from_session)
            await self._converse(read, write)
            self._life.deadline = math.inf  # what follows has limits of its own
            # The end of its input asks a server to end.
            await trio.aclose_forcefully(process.stdin)
            with trio.move_on_after(GOODBYE):
                code = await tree.wait()
            await tree.end()
            nursery.cancel_scope.deadline = trio.current_time() + LAST_WORDS
        if self._is_lost:
            self._failure = self._crash(code)

    async def _start(self, program: McpProgram) -> Tree:
        try:
            return await start_tree(
                program.command,
                cwd=program.cwd,
                environ=program.environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                supervised=True,
            )
        except OSError as error:
            kind: ProviderErrorKind = "server"
            if error.errno in TOO_MANY:
                message = f"{self._name} cannot be started: {too_many_open_files()}"
                raise ProviderError(kind, message, fault=Fault.RATE_LIMITED) from error
            message = f"{self._name}: {start_failure(program.command[0], error)}"
            raise ProviderError(kind, message) from error

    def _crash(self, code: int | None) -> ProviderError:
        """Return the error for a program that has ended by itself."""
        self.crashes += 1
        fate = "closed its output" if code is None else describe_end(code)
        message = f"{self._name} {fate}{last_line(self.printed)}{self.noise}"
        if self.crashes < CRASHES:
            return ProviderError("worker_crashed", message, body_excerpt=self.printed)
        message = f"{message}; {self.crashes} crashes in a row"
        return ProviderError(
            "worker_crashed", message, body_excerpt=self.printed, fault=Fault.FATAL
        )

    async def _receive(
        self, stream: trio.abc.ReceiveStream, to_session: MemoryObjectSendStream[_Incoming]
    ) -> None:
        """Pass the lines of the program's output to the session, until they end."""
        buffer = bytearray()
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the session is over
            async for part in stream:
                buffer += part
                *lines, rest = bytes(buffer).split(b"\n") if b"\n" in part else [bytes(buffer)]
                buffer = bytearray(rest)
                for line in lines:
                    if (message := self._parse(line)) is not None:
                        await to_session.send(message)
                if len(buffer) > MOST_BYTES:
                    self._strange = f"a line of more than {MOST_BYTES} bytes"
                    break
        self._is_lost = not self._closing.is_set()
        self._closing.set()
        await to_session.aclose()

    def _parse(self, line: bytes) -> SessionMessage | None:
        """Return the message in a line; None for anything else, which servers print by mistake."""
        if not line.strip():
            return None
        if not has_more_marks(line, most_marks(MOST_BYTES)):
            with suppress(ValueError):
                return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        if self._strange is None:
            self._strange = show(to_text(line[:_SHOWN]))
        return None

    async def _send(
        self,
        stream: trio.abc.SendStream,
        from_session: MemoryObjectReceiveStream[SessionMessage],
    ) -> None:
        """Write the messages of the session to the program's input, until one of both ends."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):  # `_receive` reports it
            async for message in from_session:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await stream.send_all(f"{text}\n".encode())


async def _greet(session: ClientSession, exchange: McpExchange) -> None:
    """Agree on a version of the protocol: as with all older servers, or as with one that refuses that."""
    try:
        await session.initialize()
    except MCPError as error:
        if error.code not in (METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION):
            raise
        exchange.failure = None
        await session.discover()


async def _list_tools(session: ClientSession) -> dict[str, McpTool]:
    found: list[McpTool] = []
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        found += (
            McpTool(tool.name, tool.description or "", tool.input_schema) for tool in page.tools
        )
        cursor = page.next_cursor
        if not cursor:
            break
    return {tool.name: tool for tool in found}


def _to_json(result: CallToolResult) -> dict[str, Any]:
    return result.model_dump(mode="json", by_alias=True, exclude_unset=True)

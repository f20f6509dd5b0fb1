"""`mcp:` providers over HTTP, with real sockets on loopback."""

import json
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from loopback import Answer, Seen, as_json, serve
from program_runs import NothingShared, context, run
from server_process import open_server

from trioeval.errors import Fault, ProviderError
from trioeval.providers import Reply, Request
from trioeval.providers.http.client import open_http
from trioeval.providers.http.wire import TlsSettings, WebClient
from trioeval.providers.mcp.entry import McpProvider, McpSettings, read

REAL = Path(__file__).parent / "mcp_sdk_server.py"


@attrs.define
class Shared(NothingShared):
    """Shares one client."""

    client: WebClient

    async def http(self, tls: TlsSettings | None = None) -> WebClient:  # noqa: ARG002
        """Return it."""
        return self.client


@asynccontextmanager
async def opened(
    url: str, hosts: frozenset[str] | None = None, **config: Any
) -> AsyncGenerator[McpProvider]:
    """Open a provider for one server."""
    options = {key: config.pop(key) for key in ("timeout",) if key in config}
    around = context(Path(), SESAME="sesame-street")
    found = read("mcp", "", {"server": {"url": url, "name": "s", **config}, **options}, around)
    assert isinstance(found, McpSettings), found
    async with open_http(hosts=hosts) as client, found.open(Shared(client)) as provider:
        yield provider


async def use(provider: McpProvider, tool: str = "add", /, **arguments: Any) -> Reply:
    """Call a tool."""
    return await provider(Request(prompt=json.dumps({"tool": tool, "args": arguments})))


async def failure(provider: McpProvider, tool: str = "add") -> ProviderError:
    """Return the error of a call."""
    with pytest.raises(ProviderError) as caught:
        await use(provider, tool)
    return caught.value


@attrs.define
class Service:
    """A server of the protocol with sessions; `refuse` may answer a request in its place."""

    refuse: Callable[[Seen, str], Answer | None] = lambda _seen, _method: None
    is_stream: bool = False
    methods: list[str] = attrs.field(factory=list)

    def __call__(self, seen: Seen) -> Answer | None:
        """Answer a request."""
        message = json.loads(seen.body) if seen.body else {}
        method = message.get("method", seen.method)
        self.methods.append(method)
        if (answer := self.refuse(seen, method)) is not None:
            return answer
        match method:
            case "initialize":
                result: Mapping[str, Any] = {
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "s", "version": "1"},
                }
            case "tools/list":
                tools = [{"name": "add", "inputSchema": {"type": "object"}}]
                result = {"tools": tools}
            case "tools/call":
                result = {"content": [{"type": "text", "text": "5"}]}
            case "DELETE":
                return Answer(200)
            case _:
                return Answer(202)
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        session = {"mcp-session-id": "s1"} if method == "initialize" else {}
        if not self.is_stream:
            headers = {"content-type": "application/json", **session}
            return Answer(200, json.dumps(reply).encode(), headers)
        progress = {"method": "notifications/progress", "params": {"progress": 1}}
        text = "".join(f"data: {json.dumps(one)}\n\n" for one in (progress, reply))
        return Answer(200, text.encode(), {"content-type": "text/event-stream", **session})


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_session_is_used_for_all_calls_and_ended(is_stream: bool) -> None:  # noqa: FBT001
    """LEAK: the session is ended; replies may be JSON or a stream of events."""
    service = Service(is_stream=is_stream)

    async def main() -> list[Any]:
        async with serve(service) as server:
            async with opened(f"{server.url}/mcp") as provider:
                outputs = [(await use(provider)).output for _ in range(2)]
            sessions = {seen.headers.get("mcp-session-id") for seen in server.seen[1:]}
        return [outputs, sessions]

    outputs, sessions = run(main)
    assert outputs == ['[{"type":"text","text":"5"}]'] * 2
    assert sessions == {"s1"}
    calls = ["tools/call", "tools/call"]
    start = ["initialize", "notifications/initialized", "tools/list"]
    assert service.methods == [*start, *calls, "DELETE"]


@pytest.mark.parametrize(
    ("config", "header", "value"),
    [
        ({"headers": {"X-Team": "blue"}}, "x-team", "blue"),
        (
            {"auth": {"type": "bearer", "token": "{{SESAME}}"}},
            "authorization",
            "Bearer sesame-street",
        ),
        (
            {"auth": {"type": "basic", "username": "u", "password": "p"}},
            "authorization",
            "Basic dTpw",
        ),
        ({"auth": {"type": "api_key", "value": "k"}}, "x-api-key", "k"),
        ({"auth": {"type": "api_key", "api_key": "k", "keyName": "X-K"}}, "x-k", "k"),
        ({"auth": {"type": "none"}}, "authorization", None),
    ],
)
def test_every_request_has_the_headers_of_the_config(
    config: dict[str, Any], header: str, value: str | None
) -> None:
    """Those of `auth` too, whose templates name environment variables."""

    async def main() -> set[str | None]:
        async with serve(Service()) as server:
            async with opened(server.url, **config) as provider:
                await use(provider)
            return {seen.headers.get(header) for seen in server.seen}

    assert run(main) == {value}


def test_a_key_may_be_a_parameter() -> None:
    """`placement: query`."""
    auth = {"type": "api_key", "value": "k y", "keyName": "key", "placement": "query"}

    async def main() -> set[str]:
        async with serve(Service()) as server:
            async with opened(f"{server.url}/mcp?x=1", auth=auth) as provider:
                await use(provider)
            return {seen.target for seen in server.seen}

    assert run(main) == {"/mcp?x=1&key=k%20y"}


def test_a_token_is_fetched_once_and_again_when_it_has_expired() -> None:
    """OAuth with the client's own credentials."""
    fetched: list[str] = []

    def refuse(seen: Seen, method: str) -> Answer | None:
        if seen.target == "/token":
            fetched.append(seen.body.decode())
            return as_json({"access_token": f"t{len(fetched)}"})
        has_expired = method == "tools/call" and seen.headers["authorization"] == "Bearer t1"
        return Answer(401) if has_expired else None

    def respond(seen: Seen) -> Answer | None:
        return refuse(seen, "") if seen.target == "/token" else service(seen)

    service = Service(refuse)

    async def main() -> tuple[ProviderError, Any]:
        async with serve(respond) as server:
            auth = {
                "type": "oauth",
                "tokenUrl": f"{server.url}/token",
                "clientId": "me",
                "clientSecret": "{{SESAME}}",
            }
            async with opened(f"{server.url}/mcp", auth=auth) as provider:
                return await failure(provider), (await use(provider)).output

    error, output = run(main)
    assert (error.kind, error.fault, error.retries) == ("auth", Fault.TRANSIENT, 1)
    assert output == '[{"type":"text","text":"5"}]'
    assert len(fetched) == 2


@pytest.mark.parametrize(
    ("status", "kind", "fault"),
    [
        (401, "auth", Fault.FATAL),
        (429, "rate_limited", Fault.RATE_LIMITED),
        (500, "server", Fault.TRANSIENT),
        (404, "connection", Fault.TRANSIENT),
    ],
)
def test_a_failed_request_is_the_failure_of_its_call(status: int, kind: str, fault: Fault) -> None:
    """The lane sees the status; the next call has a new session."""
    refusals = [as_json({"error": "no"}, status)]
    service = Service(
        lambda _seen, method: refusals.pop() if refusals and method == "tools/call" else None
    )

    async def main() -> tuple[ProviderError, Reply]:
        async with serve(service) as server, opened(f"{server.url}/mcp") as provider:
            return await failure(provider), await use(provider)

    error, reply = run(main)
    assert (error.kind, error.fault) == (kind, fault)
    assert reply.output == '[{"type":"text","text":"5"}]'
    assert service.methods.count("initialize") == 2


def test_an_error_of_the_protocol_keeps_the_session() -> None:
    """A status with a message of the protocol in its body is that message."""

    def refuse(seen: Seen, method: str) -> Answer | None:
        if method != "tools/call":
            return None
        error = {"code": -32602, "message": "no such city"}
        return as_json({"jsonrpc": "2.0", "id": json.loads(seen.body)["id"], "error": error}, 400)

    service = Service(refuse)

    async def main() -> list[str]:
        async with serve(service) as server, opened(f"{server.url}/mcp") as provider:
            return [str(await failure(provider)) for _ in range(2)]

    assert run(main) == ["unexpected: mcp: s: add: no such city"] * 2
    assert service.methods.count("initialize") == 1


def test_an_unreachable_server_is_a_failed_connection() -> None:
    """The next call tries again."""

    async def main() -> tuple[ProviderError, ProviderError]:
        async with opened("http://127.0.0.1:9/mcp") as provider:
            return await failure(provider), await failure(provider)

    for error in run(main):
        assert (error.kind, error.fault) == ("connection", Fault.TRANSIENT)
        assert error.message.startswith(
            "connection refused by 127.0.0.1:9 for POST http://127.0.0.1:9"
        )


def test_a_server_of_something_else_is_reported() -> None:
    """A page is not a message of the protocol."""
    page = Answer(200, b"<html>", {"content-type": "text/html"})

    async def main() -> ProviderError:
        async with serve(lambda _seen: page) as server, opened(server.url) as provider:
            return await failure(provider)

    error = run(main)
    assert error.message == "mcp: s cannot be used: Unexpected content type: text/html"


def test_no_socket_is_left_after_a_cancelled_call() -> None:
    """LEAK: the server never answers."""

    async def main() -> bool:
        called = trio.Event()

        def respond(seen: Seen) -> Answer | None:
            if b"tools/call" not in seen.body:
                return Service()(seen)
            called.set()
            return None

        async with serve(respond) as server, trio.open_nursery() as nursery:

            async def cancel() -> None:
                await called.wait()
                nursery.cancel_scope.cancel("called")

            nursery.start_soon(cancel)
            async with opened(server.url) as provider:
                await use(provider)
        return nursery.cancel_scope.cancelled_caught

    assert run(main)


def test_an_untrusted_suite_calls_only_its_hosts() -> None:
    """The client of the run refuses all others."""

    async def main() -> ProviderError:
        async with opened("http://127.0.0.1:9/mcp", frozenset({"api.example"})) as provider:
            return await failure(provider)

    assert "127.0.0.1 is not a host of the suite's providers" in run(main).message


@pytest.mark.slow
def test_a_service_of_the_official_sdk_is_called() -> None:
    """With its own server, and with a wrong token."""

    async def main(url: str) -> tuple[Reply, ProviderError]:
        async with opened(url, auth={"type": "bearer", "token": "sesame"}) as provider:
            reply = await use(provider, a=2, b=3)
        async with opened(url, auth={"type": "bearer", "token": "wrong"}) as provider:
            return reply, await failure(provider)

    with open_server([sys.executable, str(REAL), "http"]) as url:
        reply, error = run(lambda: main(url))
    assert reply.output == '[{"type":"text","text":"5"}]'
    assert error.message == (
        f"HTTP 401 from POST {url}: check auth or headers in the config; invalid_token"
    )

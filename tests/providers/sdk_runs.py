"""Shared parts of the SDK tests: a scripted HTTP server, and the same case for every SDK."""

import importlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import h11
import trio
from vendor_anthropic import MESSAGES
from vendor_bedrock import CONVERSE
from vendor_cases import Vendor
from vendor_google import GENERATE
from vendor_openai import CHAT

from trioeval.errors import Problem
from trioeval.providers.base import Provider
from trioeval.providers.config import EntryContext, ProviderSettings, Reader
from trioeval.providers.http.client import open_http
from trioeval.providers.http.wire import TlsSettings, WebClient
from trioeval.providers.sdk import bedrock, entries
from trioeval.templates import Templates

KEY = "sk-very-secret"


@attrs.frozen
class Answer:
    """The server's reply to one request."""

    status: int = 200
    body: Any = attrs.field(factory=dict)
    headers: dict[str, str] = attrs.field(factory=dict)


@attrs.frozen
class Echo:
    """A Converse reply with the prompt of its request."""

    good: Mapping[str, Any]

    def answer(self, request: Any) -> Answer:
        content = [request["messages"][-1]["content"][0]]
        return Answer(body={**self.good, "output": {"message": {"content": content}}})


@attrs.frozen
class HangUp:
    """Closes the connection without a reply."""


@attrs.define
class Hold:
    """Never replies."""

    until: trio.Event = attrs.field(factory=trio.Event)


@attrs.frozen
class Received:
    method: str
    target: str
    headers: dict[str, str]
    body: Any


@attrs.define(eq=False)
class Server:
    """Replies to requests in turn, repeats the last reply, and stores the requests."""

    answers: Sequence[Answer | Echo | HangUp | Hold]
    received: list[Received] = attrs.field(factory=list)
    url: str = ""
    request_arrived: trio.Event = attrs.field(factory=trio.Event)
    """Set, and replaced, when a request arrives."""

    async def serve(self, task_status: trio.TaskStatus[None]) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, self._talk, listeners)
            task_status.started()

    async def _talk(self, stream: trio.SocketStream) -> None:
        wire = h11.Connection(h11.SERVER)
        try:
            while await self._exchange(stream, wire):
                wire.start_next_cycle()
        except (trio.BrokenResourceError, h11.RemoteProtocolError):
            pass
        finally:
            with trio.move_on_after(1, shield=True):
                await stream.aclose()

    async def _exchange(self, stream: trio.SocketStream, wire: h11.Connection) -> bool:
        request = await _next(stream, wire)
        if not isinstance(request, h11.Request):
            return False
        body = b""
        while isinstance(part := await _next(stream, wire), h11.Data):
            body += bytes(part.data)
        headers = {name.decode(): text.decode() for name, text in request.headers}
        answer = self.answers[min(len(self.received), len(self.answers) - 1)]
        content = json.loads(body) if body else None
        if isinstance(answer, Echo):
            answer = answer.answer(content)
        self.received.append(
            Received(
                request.method.decode(),
                request.target.decode(),
                headers,
                content,
            )
        )
        self.request_arrived.set()
        self.request_arrived = trio.Event()
        match answer:
            case HangUp():
                return False
            case Hold(until):
                await until.wait()
                return False
            case Answer(status, content, extra):
                text = content if isinstance(content, bytes) else json.dumps(content).encode()
                reply_headers = {
                    "content-type": "application/json",
                    "content-length": str(len(text)),
                } | extra
                reply = h11.Response(status_code=status, headers=list(reply_headers.items()))
                for event in (reply, h11.Data(data=text), h11.EndOfMessage()):
                    await stream.send_all(wire.send(event) or b"")
        return wire.our_state is h11.DONE


async def _next(stream: trio.SocketStream, wire: h11.Connection) -> Any:
    while (event := wire.next_event()) is h11.NEED_DATA:
        if wire.they_are_waiting_for_100_continue:
            await stream.send_all(
                wire.send(h11.InformationalResponse(status_code=100, headers=[])) or b""
            )
        wire.receive_data(await stream.receive_some())
    return event


@attrs.frozen
class Case:
    """One SDK, an entry for it, and the replies of its service."""

    prefix: str
    model: str
    reader: Reader
    vendor: Vendor
    """Replies of its service without the SDK."""
    overloaded: Answer
    config: Callable[[str], dict[str, Any]]
    """Returns the config of an entry, for a server's URL."""
    plain: str | None = None
    """The prefix without the SDK."""

    @property
    def good(self) -> Mapping[str, Any]:
        """Return the body of a reply with the text "Four"."""
        good: Mapping[str, Any] = self.vendor.good
        return good

    def read(self, url: str, **config: Any) -> ProviderSettings | list[Problem]:
        merged = {**self.config(url), **config}
        return self.reader(self.prefix, self.model, merged, context())

    def read_plain(self, url: str, **config: Any) -> ProviderSettings | list[Problem]:
        """Return the same entry without the SDK."""
        assert self.plain is not None
        vendor = importlib.import_module(
            f"trioeval.providers.vendors.{entries.SDKS[self.prefix].vendor}"
        )
        settings: ProviderSettings | list[Problem] = vendor.read(
            self.plain, self.model, {**self.config(url), **config}, context()
        )
        return settings


def context() -> EntryContext:
    return EntryContext(environ={}, directory=Path(), templates=Templates())


def busy(body: Any, **headers: str) -> Answer:
    return Answer(429, body, {"retry-after": "7", **headers})


CASES = (
    Case(
        prefix="openai-sdk",
        vendor=CHAT,
        plain="openai",
        model="m-1",
        reader=entries.read,
        overloaded=busy({"error": {"code": "rate_limit_exceeded", "message": "slow down"}}),
        config=lambda url: {"apiBaseUrl": f"{url}/v1", "apiKey": KEY},
    ),
    Case(
        prefix="anthropic-sdk",
        vendor=MESSAGES,
        plain="anthropic",
        model="m-1",
        reader=entries.read,
        overloaded=busy(
            {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}
        ),
        config=lambda url: {"apiBaseUrl": url, "apiKey": KEY},
    ),
    Case(
        prefix="google-sdk",
        vendor=GENERATE,
        plain="google",
        model="m-1",
        reader=entries.read,
        overloaded=Answer(
            429,
            {
                "error": {
                    "code": 429,
                    "status": "RESOURCE_EXHAUSTED",
                    "message": "slow down",
                    "details": [
                        {
                            "@type": "type.googleapis.com/google.rpc.RetryInfo",
                            "retryDelay": "7s",
                        }
                    ],
                }
            },
        ),
        config=lambda url: {"apiBaseUrl": url, "apiKey": KEY},
    ),
    Case(
        prefix="bedrock",
        vendor=CONVERSE,
        model="m-1",
        reader=bedrock.read,
        overloaded=busy({"message": "slow down"}, **{"x-amzn-errortype": "ThrottlingException"}),
        config=lambda url: {
            "endpointUrl": url,
            "region": "us-east-1",
            "accessKeyId": "AKIA",
            "secretAccessKey": KEY,
        },
    ),
)


@attrs.frozen
class RunShared:
    """Shared resources of the providers of a run."""

    client: WebClient
    templates: Templates = attrs.field(factory=Templates)
    runs_code: bool = True

    async def http(self, tls: TlsSettings | None = None) -> WebClient:
        assert tls is None
        return self.client


@asynccontextmanager
async def opened(settings: ProviderSettings | list[Problem]) -> AsyncGenerator[Provider]:
    """Open the provider of an entry, with the HTTP client of a run."""
    assert not isinstance(settings, list), settings
    async with open_http() as client, settings.open(RunShared(client)) as provider:
        yield provider


def with_server(
    answers: Sequence[Answer | Echo | HangUp | Hold], body: Callable[[Server], Any]
) -> None:
    """Run a test body with a server that ends with it."""

    async def main() -> None:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                server = Server(answers)
                await nursery.start(server.serve)
                await body(server)
                nursery.cancel_scope.cancel()

    trio.run(main)

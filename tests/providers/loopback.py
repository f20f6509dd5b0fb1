"""A server for tests: HTTP on loopback, with replies from the test."""

import json
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import h11
import trio

from trioeval.errors import SuiteError
from trioeval.providers import OpenProvider, open_providers, resolve
from trioeval.providers.resolve import ProviderSpec
from trioeval.templates import Templates


@attrs.frozen
class Seen:
    """A request as it arrived."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@attrs.frozen
class Answer:
    """A reply of the server."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = attrs.field(factory=dict)


Respond: TypeAlias = Callable[[Seen], Answer | None]
"""None never replies."""


def as_json(data: Any, status: int = 200, **headers: str) -> Answer:
    """Return a JSON reply."""
    headers = {name.replace("_", "-"): text for name, text in headers.items()}
    return Answer(
        status, json.dumps(data).encode(), {"content-type": "application/json", **headers}
    )


def redirect(status: int, location: str) -> Answer:
    """Return a redirect."""
    return Answer(status, b"", {"location": location})


@attrs.define(eq=False)
class Server:
    """A running server, and the requests it has received."""

    url: str
    seen: list[Seen] = attrs.field(factory=list)


@asynccontextmanager
async def serve(respond: Respond, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Server]:
    """Serve until the block ends."""
    scheme, host = ("http", "127.0.0.1") if tls is None else ("https", "localhost")
    async with trio.open_nursery() as nursery:
        listeners: list[Any] = list(await trio.open_tcp_listeners(0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        if tls is not None:
            listeners = [trio.SSLListener(one, tls) for one in listeners]
        server = Server(f"{scheme}://{host}:{port}")
        await nursery.start(trio.serve_listeners, partial(_answer_all, server, respond), listeners)
        yield server
        nursery.cancel_scope.cancel()


async def _answer_all(server: Server, respond: Respond, stream: Any) -> None:
    http = h11.Connection(h11.SERVER)
    try:
        while (seen := await _receive(http, stream)) is not None:
            server.seen.append(seen)
            answer = respond(seen)
            if answer is None:
                await trio.sleep_forever()
            headers = {**answer.headers, "content-length": str(len(answer.body))}
            head = http.send(h11.Response(status_code=answer.status, headers=list(headers.items())))
            body = http.send(h11.Data(data=answer.body)) or b""
            await stream.send_all((head or b"") + body + (http.send(h11.EndOfMessage()) or b""))
            http.start_next_cycle()
    except (trio.BrokenResourceError, h11.RemoteProtocolError):
        pass  # the client went away


async def _receive(http: h11.Connection, stream: Any) -> Seen | None:
    request: h11.Request | None = None
    body = b""
    while True:
        match http.next_event():
            case h11.NEED_DATA:
                http.receive_data(await stream.receive_some())
            case h11.Request() as request:
                pass
            case h11.Data(data=data):
                body += data
            case h11.EndOfMessage():
                assert request is not None
                headers = {name.decode(): value.decode() for name, value in request.headers}
                return Seen(request.method.decode(), request.target.decode(), headers, body)
            case _:
                return None


def generic(entry_id: str, directory: Path | None = None, **config: Any) -> ProviderSpec:
    """Return the spec of an entry, with `MY_TOKEN` in its environment."""
    return resolve(
        entry_id,
        config,
        environ={"MY_TOKEN": "tok-from-env", "PATH": "/usr/bin:/bin"},
        directory=directory or Path(),
        templates=Templates(),
        custom={},
    )


def problems(entry_id: str, directory: Path | None = None, **config: Any) -> list[str]:
    """Return the problems of an entry, as shown to the user."""
    try:
        generic(entry_id, directory, **config)
    except SuiteError as error:
        return [str(problem) for problem in error.problems]
    return []


@asynccontextmanager
async def opened(spec: ProviderSpec) -> AsyncGenerator[OpenProvider]:
    """Open the provider of a spec."""
    async with open_providers([spec], Templates()) as (provider,):
        yield provider

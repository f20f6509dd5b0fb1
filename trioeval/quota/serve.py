"""Limits served over HTTP, so that programs in any language share them: starlette on hypercorn's Trio worker.

No decision about a lease is made here: requests are read, handed to a `Backend`, and its answers written.
A denial is an answer like any other, with status 200. Where the backend does not know what became of a
request the status is 503; it may be repeated with the same lease id.
"""

import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, TypeAlias

import attrs
import trio
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import wrap_app
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from trioeval.errors import Problem, QuotaError, SuiteError
from trioeval.quota.backend import Backend
from trioeval.quota.denials import wrong_ask
from trioeval.quota.leases import Ask, Unknown
from trioeval.quota.limit_json import limit_of
from trioeval.quota.wire import (
    FAILED,
    INVALID,
    Json,
    MalformedError,
    decision_json,
    error_json,
    read_ask,
    read_batch,
    read_body,
    read_extended,
    read_pause,
    read_settlement,
    to_body,
)
from trioeval.quota.wire_limits import state_json

MAX_BODY_BYTES = 4 * 1024 * 1024
"""Largest request that is read: 256 leases of 32 limits with long keys are smaller."""

STOP_GRACE = 3.0
"""Seconds that requests under way may take after the stop."""

_IDLE = 600.0  # a client that reuses its connection must not find it closed at that moment
_ERROR_BY_STATUS = {404: "not_found", 405: "method_not_allowed"}
_BY_REASON = {"limiter_unavailable": (503, FAILED), "unknown_limit_key": (404, "not_found")}

_logger = logging.getLogger(__name__)

_Carry: TypeAlias = Callable[[Backend, Any], Awaitable[Json]]
"""Carries out a request with this JSON."""


@attrs.frozen(kw_only=True)
class ServeSettings:
    """Where limits are served, and to whom."""

    host: str = "127.0.0.1"
    port: int = 8770
    """0 takes a free one."""
    token: str | None = attrs.field(default=None, repr=False)
    """What clients must send as a bearer token; None serves everybody who can connect."""


async def serve_quota(
    backend: Backend,
    settings: ServeSettings,
    *,
    stop: trio.Event | None = None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve limits until cancelled, or until requests under way are answered after a stop.

    Args:
        backend: Who keeps them.
        settings: Where they are served.
        stop: Once it is set, nobody is let in, and this returns within `STOP_GRACE` seconds; None never.
        task_status: Gets the base URL as soon as connections are accepted.

    Raises:
        OSError: The address cannot be bound.

    Example:
        ```python
        async with trio.open_nursery() as nursery:
            url = await nursery.start(serve_quota, backend, ServeSettings(port=0))
        ```
    """
    listeners = await trio.open_tcp_listeners(settings.port, host=settings.host)
    host, port = listeners[0].socket.getsockname()[:2]
    config = Config()
    config.errorlog = _logger
    config.include_server_header = False
    config.keep_alive_timeout = _IDLE
    config.keep_alive_max_requests = 2**31
    app = make_app(backend, token=settings.token)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_serve, app, config, listeners, trio.Event() if stop is None else stop)
        task_status.started(f"http://{f'[{host}]' if ':' in host else host}:{port}")


async def _serve(
    app: Any, config: Config, listeners: list[trio.SocketListener], stop: trio.Event
) -> None:
    """Let clients in until the stop, and wait for those that are inside.

    Hypercorn sends under a shield, so a client that reads nothing would hold its connection, and with it the
    server, for ever; its socket is closed under it.
    """
    context, wrapped = WorkerContext(None), wrap_app(app, 0, "asgi")
    streams: set[trio.SocketStream] = set()

    async def converse(stream: trio.SocketStream) -> None:
        streams.add(stream)
        try:
            # Its types know neither plain sockets nor the ASGI of starlette.
            server: Any = TCPServer
            await server(wrapped, config, context, ConnectionState({}), stream)
        finally:
            streams.discard(stream)

    async def hang_up() -> None:
        try:
            await trio.sleep_forever()
        finally:
            for stream in streams:
                stream.socket.close()

    async with trio.open_nursery() as everything:
        everything.start_soon(hang_up)
        async with trio.open_nursery() as inside:
            async with trio.open_nursery() as doors:
                let_in = partial(trio.serve_listeners, converse, listeners, handler_nursery=inside)
                doors.start_soon(let_in)
                await stop.wait()
                doors.cancel_scope.cancel("stopped")
            everything.cancel_scope.deadline = trio.current_time() + STOP_GRACE
            await context.terminated.set()
        everything.cancel_scope.cancel("all are answered")


def make_app(backend: Backend, *, token: str | None = None) -> Starlette:
    """The ASGI application, for a server of one's own.

    Args:
        backend: Who keeps the limits.
        token: As in `ServeSettings`.
    """
    door = _Door(backend, token)
    return Starlette(
        routes=[
            Route("/healthz", _tell_health, methods=["GET"]),
            *(
                Route(path, partial(door.answer, by_method), methods=list(by_method))
                for path, by_method in _CARRIED.items()
            ),
        ],
        exception_handlers={HTTPException: _refuse},
    )


@attrs.frozen
class _Door:
    """Where requests come in and answers go out."""

    _backend: Backend
    _token: str | None = attrs.field(repr=False)

    async def answer(self, by_method: Mapping[str, _Carry], request: Request) -> Response:
        if not self._is_known(request):
            message = "send the server's token, as `Authorization: Bearer TOKEN`"
            return _reply(error_json("unauthorized", message), 401, {"www-authenticate": "Bearer"})
        method = "GET" if request.method == "HEAD" else request.method
        try:
            has_body = method in {"POST", "PUT"}
            data = await _read(request) if has_body else request.path_params
            return _reply(await by_method[method](self._backend, data))
        except ClientDisconnect:
            return Response(status_code=400)  # which nobody reads
        except MalformedError as error:
            return _reply(error_json(INVALID, str(error)), 400)
        except QuotaError as error:
            status, name = _BY_REASON.get(error.reason, (400, INVALID))
            return _reply(error_json(name, error.message), status)

    def _is_known(self, request: Request) -> bool:
        if self._token is None:
            return True
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(token.strip().encode(), self._token.encode())
        return same and scheme.lower() == "bearer"


async def _read(request: Request) -> object:
    """The JSON that was sent; a body that is too large is not read to its end."""
    body = bytearray()
    async with aclosing(request.stream()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise HTTPException(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
    return read_body(bytes(body))


def _reply(data: Json, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(to_body(data), status, headers, "application/json")


async def _refuse(_request: Request, error: Exception) -> Response:  # noqa: ASYNC124 - or it gets a thread
    """What is no request of ours: another path, another method, too large."""
    if not isinstance(error, HTTPException):
        raise error
    name = _ERROR_BY_STATUS.get(error.status_code, INVALID)
    message = "" if name != INVALID else error.detail
    return _reply(error_json(name, message), error.status_code, error.headers)


async def _tell_health(_request: Request) -> Response:  # noqa: ASYNC124 - or it gets a thread
    return _reply({"status": "ok"})


def _read_sound(data: object, at: str = "$") -> Ask:
    """A request for a lease that may be granted, if the limits are so; else nobody is asked about it.

    Raises:
        MalformedError: It is none.
    """
    ask = read_ask(data, at)
    if (wrong := wrong_ask(ask)) is not None:
        raise MalformedError([Problem(at, wrong.message.removeprefix(f"{INVALID}: "))])
    return ask


async def _reserve(backend: Backend, data: object) -> Json:
    (decision,) = await backend.reserve([_read_sound(data)])
    if isinstance(decision, Unknown):
        raise QuotaError("limiter_unavailable", decision.message)
    return decision_json(decision)


async def _reserve_batch(backend: Backend, data: object) -> Json:
    items = read_batch(data, _read_sound)
    asks = [item for item in items if not isinstance(item, MalformedError)]
    decisions = iter(await backend.reserve(asks) if asks else ())
    answers = [item if isinstance(item, MalformedError) else next(decisions) for item in items]
    return {"results": [decision_json(answer) for answer in answers]}


async def _complete(backend: Backend, data: object) -> Json:
    await backend.complete([read_settlement(data)])
    return {"ok": True}


async def _complete_batch(backend: Backend, data: object) -> Json:
    items = read_batch(data, read_settlement)
    settlements = [item for item in items if not isinstance(item, MalformedError)]
    if settlements:
        await backend.complete(settlements)
    return {
        "results": [
            decision_json(item) if isinstance(item, MalformedError) else {"ok": True}
            for item in items
        ]
    }


async def _extend(backend: Backend, data: object) -> Json:
    found = await backend.extend(read_extended(data))
    return {"results": [{"ok": extended} for extended in found]}


async def _tell_limits(backend: Backend, _data: object) -> Json:
    return {"limits": [state_json(state) for state in await backend.states()]}


async def _tell_limit(backend: Backend, data: Mapping[str, str]) -> Json:
    key = data["key"]
    for state in await backend.states():
        if state.limit.key == key:
            return state_json(state)
    raise QuotaError("unknown_limit_key", f"there is no limit {key!r}", keys=(key,))


async def _define(backend: Backend, data: object) -> Json:
    try:
        limit = limit_of(data)
    except SuiteError as error:
        raise MalformedError(error.problems) from None
    return state_json(await backend.define(limit))


async def _remove(backend: Backend, data: Mapping[str, str]) -> Json:
    await backend.remove(data["key"])
    return {"ok": True}


async def _pause(backend: Backend, data: object) -> Json:
    paused = read_pause(data)
    return state_json(await backend.pause(paused.key, paused.seconds))


_CARRIED: Mapping[str, Mapping[str, _Carry]] = {
    "/v1/reserve": {"POST": _reserve},
    "/v1/reserve/batch": {"POST": _reserve_batch},
    "/v1/complete": {"POST": _complete},
    "/v1/complete/batch": {"POST": _complete_batch},
    "/v1/extend": {"POST": _extend},
    "/v1/admin/limits": {"GET": _tell_limits, "PUT": _define},
    "/v1/admin/limits/{key:path}": {"GET": _tell_limit, "DELETE": _remove},
    "/v1/admin/pause": {"POST": _pause},
}

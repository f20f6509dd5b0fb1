"""Limits served over HTTP, so that programs in any language share them: Starlette on a server of our own.

No decision about a lease is made here: requests are read, passed to a `Backend`, and its answers written. A
denial is an answer like any other, with status 200. If the backend does not know the outcome of a request,
the status is 503; the request may be repeated with the same lease id.

Limits are for programs, so requests of web pages are rejected: they name their origin, are not JSON, have no
token, or address the server by another host name. A token alone would suffice; without one, as where the
server is part of another program, the other rules still hold.
"""

import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, TypeAlias

import attrs
import trio
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from trioeval.errors import LimitError, Problem, SuiteError
from trioeval.limits.backend import Backend
from trioeval.limits.denials import request_denial, unavailable, unknown_limit
from trioeval.limits.json import from_json
from trioeval.limits.model import LeaseRequest, SharedLimit, Unknown
from trioeval.limits.wire import (
    FAILED,
    INVALID,
    Json,
    MalformedError,
    decision_json,
    error_json,
    read_batch,
    read_body,
    read_extended,
    read_lease_request,
    read_pause,
    read_settlement,
    state_json,
    to_body,
)
from trioeval.serving.access_rules import OwnNames, is_of_foreign_page, is_same_secret
from trioeval.serving.conversation import Bounds
from trioeval.serving.listening import open_listeners, serve_app

MAX_BODY_BYTES = 4 * 1024 * 1024
"""Largest request that is read: 256 leases of 32 limits with long keys are smaller."""

STOP_GRACE = 3.0
"""Seconds that pending requests may take after the stop."""

_BOUNDS = Bounds(connections=512)
_HEALTH = "/healthz"
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_ERROR_BY_STATUS = {404: "not_found", 405: "method_not_allowed"}
_BY_REASON = {"limiter_unavailable": (503, FAILED), "unknown_limit_key": (404, "not_found")}

_Handler: TypeAlias = Callable[[Backend, Any], Awaitable[Json]]
"""Carries out a request with this JSON."""


@attrs.frozen(kw_only=True)
class ServeSettings:
    """The address and the token of a limit server."""

    host: str = "127.0.0.1"
    port: int = 8770
    """0 takes a free port."""
    token: str | None = attrs.field(default=None, repr=False)
    """The bearer token that clients must send; None serves every program that can connect."""
    bounds: Bounds = _BOUNDS
    """Of each client, and of all."""


async def serve_limits(
    backend: Backend,
    settings: ServeSettings,
    *,
    stop: trio.Event | None = None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve limits until cancelled, or until pending requests are answered after a stop.

    Args:
        backend: The backend of the limits.
        settings: The address and the token.
        stop: Once it is set, no connections are accepted, and this returns within `STOP_GRACE` seconds.
        task_status: Gets the base URL as soon as connections are accepted.

    Raises:
        OSError: The address cannot be bound.

    Example:
        ```python
        async with trio.open_nursery() as nursery:
            url = await nursery.start(serve_limits, backend, ServeSettings(port=0))
        ```
    """
    listeners, address = await open_listeners(settings.host, settings.port)
    names = OwnNames(host=settings.host, machine=frozenset({socket.gethostname().lower()}))
    app = TokenGuard(make_app(backend), names, settings.token)
    async with trio.open_nursery() as nursery:
        stop = trio.Event() if stop is None else stop
        serve = partial(serve_app, app, listeners, stop, grace=STOP_GRACE, bounds=settings.bounds)
        await nursery.start(serve)
        task_status.started(address.url)


@attrs.frozen
class TokenGuard:
    """An application that only admits requests of programs, with the right token."""

    _app: Starlette
    _names: OwnNames
    _token: str | None = attrs.field(repr=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Admit a request, or reject it."""
        refusal = self._refusal(scope, Headers(scope=scope)) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the response that rejects a request; None if it is admitted."""
        if is_of_foreign_page(headers):
            return _error_response(
                403, "forbidden", "requests of web pages are rejected: limits are for programs"
            )
        is_known = self._is_known(headers.get("authorization", ""))
        # A client that knows the token is not a web page, and may use any host name.
        if not (is_known and self._token) and not self._names.has(headers.get("host", "")):
            message = "unknown host name: use the numeric address of this server"
            return _error_response(421, "misdirected", message)
        if not is_known and scope["path"] != _HEALTH:
            message = "send the server's token as `Authorization: Bearer TOKEN`"
            return _error_response(401, "unauthorized", message, {"www-authenticate": "Bearer"})
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if scope["method"] in _WITH_BODY and kind != "application/json":
            message = "send JSON with the header `Content-Type: application/json`"
            return _error_response(415, "unsupported_media_type", message)
        return None

    def _is_known(self, authorization: str) -> bool:
        if self._token is None:
            return True
        scheme, _, token = authorization.partition(" ")
        return is_same_secret(token.strip(), self._token) and scheme.lower() == "bearer"


def _error_response(
    status: int, error: str, message: str, more: Mapping[str, str] = {}
) -> Response:
    return _reply(error_json(error, message), status, more)


def make_app(backend: Backend) -> Starlette:
    """Return the ASGI application, without its guard.

    Args:
        backend: The backend of the limits.
    """
    inside = _Routes(backend)
    app = Starlette(
        routes=[
            Route(_HEALTH, _get_health, methods=["GET"]),
            *(
                Route(path, partial(inside.answer, by_method), methods=list(by_method))
                for path, by_method in _ROUTES.items()
            ),
        ],
        exception_handlers={HTTPException: _refuse},
    )
    app.router.redirect_slashes = False
    return app


@attrs.frozen
class _Routes:
    """The routes of the application: read requests and write answers."""

    _backend: Backend

    async def answer(self, by_method: Mapping[str, _Handler], request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        try:
            data = await _read(request) if method in _WITH_BODY else request.path_params
            return _reply(await by_method[method](self._backend, data))
        except ClientDisconnect:
            return Response(status_code=400)  # the client is gone
        except MalformedError as error:
            return _reply(error_json(INVALID, str(error)), 400)
        except LimitError as error:
            status, name = _BY_REASON.get(error.reason, (400, INVALID))
            return _reply(error_json(name, error.message), status)


async def _read(request: Request) -> object:
    """Return the JSON of a request; a body that is too large is not read to its end."""
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
    """Reject a request with another path, another method, or too large a body."""
    if not isinstance(error, HTTPException):
        raise error
    name = _ERROR_BY_STATUS.get(error.status_code, INVALID)
    message = "" if name != INVALID else error.detail
    return _reply(error_json(name, message), error.status_code, error.headers)


async def _get_health(_request: Request) -> Response:  # noqa: ASYNC124 - or it gets a thread
    return _reply({"status": "ok"})


def _read_valid(data: object, at: str = "$") -> LeaseRequest:
    """Read a lease request that is valid under any limits; the backend never gets an invalid one.

    Raises:
        MalformedError: It is invalid.
    """
    ask = read_lease_request(data, at)
    if (wrong := request_denial(ask)) is not None:
        raise MalformedError([Problem(at, wrong.message.removeprefix(f"{INVALID}: "))])
    return ask


async def _reserve(backend: Backend, data: object) -> Json:
    (decision,) = await backend.reserve([_read_valid(data)])
    if isinstance(decision, Unknown):
        raise unavailable(decision.message)
    return decision_json(decision)


async def _reserve_batch(backend: Backend, data: object) -> Json:
    items = read_batch(data, _read_valid)
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


async def _get_limits(backend: Backend, _data: object) -> Json:
    return {"limits": [state_json(state) for state in await backend.states()]}


async def _get_limit(backend: Backend, data: Mapping[str, str]) -> Json:
    key = data["key"]
    for state in await backend.states():
        if state.limit.key == key:
            return state_json(state)
    raise unknown_limit(key)


async def _define(backend: Backend, data: object) -> Json:
    try:
        limit = from_json(data, SharedLimit)
    except SuiteError as error:
        raise MalformedError(error.problems) from None
    return state_json(await backend.define(limit))


async def _remove(backend: Backend, data: Mapping[str, str]) -> Json:
    await backend.remove(data["key"])
    return {"ok": True}


async def _pause(backend: Backend, data: object) -> Json:
    paused = read_pause(data)
    return state_json(await backend.pause(paused.key, paused.seconds))


_ROUTES: Mapping[str, Mapping[str, _Handler]] = {
    "/v1/reserve": {"POST": _reserve},
    "/v1/reserve/batch": {"POST": _reserve_batch},
    "/v1/complete": {"POST": _complete},
    "/v1/complete/batch": {"POST": _complete_batch},
    "/v1/extend": {"POST": _extend},
    "/v1/admin/limits": {"GET": _get_limits, "PUT": _define},
    "/v1/admin/limits/{key:path}": {"GET": _get_limit, "DELETE": _remove},
    "/v1/admin/pause": {"POST": _pause},
}

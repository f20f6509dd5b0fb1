"""Limits that a server keeps, over HTTP: the client of `trioeval limits serve`.

A request without an answer, or with an unusable one, has an unknown outcome and is reported as such: only a
complete answer of the server grants or denies. Requests are not repeated here; that is up to the user of the
leases, who knows their ids.
"""

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import attrs
import orjson
import trio

from trioeval.errors import LimitError, ProviderError
from trioeval.limits.backend import Backend
from trioeval.limits.denials import check_pause, request_denial, unavailable, unknown_limit
from trioeval.limits.model import (
    Decision,
    LeaseRequest,
    LimitState,
    Settlement,
    SharedLimit,
    Unknown,
)
from trioeval.limits.wire import (
    BATCH,
    INVALID,
    Json,
    lease_request_json,
    limit_json,
    read_decision,
    read_state,
    settlement_json,
    to_body,
)
from trioeval.providers.http.client import open_http
from trioeval.providers.http.wire import HttpClient, HttpReply, HttpRequest
from trioeval.serving.access_rules import is_loopback
from trioeval.serving.token_files import read_token

T = TypeVar("T")


@asynccontextmanager
async def open_http_limits(
    url: str, *, token: str | None = None, request_timeout: float = 2.0
) -> AsyncGenerator[Backend]:
    """Open the limits of a server. No request is sent before the first operation.

    Args:
        url: Its base URL, as `trioeval limits serve` prints it.
        token: The token that the server requires, unless it is the password of the URL, as in
            `http://:token@host:8770`. None looks for the token file of this user's server on this machine.
        request_timeout: Seconds that one request may take, > 0.

    Raises:
        LimitError: `invalid_request`: the URL is not an HTTP URL.

    Example:
        ```python
        async with open_http_limits("http://127.0.0.1:8770") as backend:
            states = await backend.states()
        ```
    """
    base, password = _address(url)
    parts = urlsplit(base)
    port = (parts.port or 80) if is_loopback(parts.hostname or "") else None
    async with open_http() as client:
        yield _HttpLimits(client, base, _Credentials(password or token, port), request_timeout)


def _address(url: str) -> tuple[str, str | None]:
    """Return the base URL of requests, and the password that was in it."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in {"http", "https"} or parts.query or parts.fragment:
        message = f"the URL of limits must be like http://host:8770, got {_shown(url)!r}"
        raise LimitError("invalid_request", message)
    place = f"[{host}]" if ":" in host else host
    netloc = place if port is None else f"{place}:{port}"
    base = urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), "", ""))
    return base, unquote(parts.password or parts.username or "") or None


def _shown(url: str) -> str:
    """Return a URL without its secrets."""
    before, at, after = url.rpartition("@")
    return f"{before.partition('//')[0]}//…@{after}" if at else url


@attrs.define(eq=False, repr=False)
class _Credentials:
    """The token that is sent."""

    _given: str | None
    port: int | None
    """The port of a server on this machine, which may have a token file; None elsewhere."""
    _found: str | None = attrs.field(init=False, default=None)

    def headers(self) -> Mapping[str, str]:
        """Return the headers with the token, if any."""
        if self._given is None and self._found is None:
            self.renew()
        token = self._given or self._found
        return {} if token is None else {"authorization": f"Bearer {token}"}

    def renew(self) -> bool:
        """Read the token file again, since a restarted server has a new token; return whether it changed."""
        if self._given is not None or self.port is None:
            return False
        before, self._found = self._found, read_token(self.port)
        return self._found is not None and self._found != before


@attrs.frozen
class _HttpLimits:
    """A `Backend` on another server."""

    _client: HttpClient
    _base: str
    _credentials: _Credentials
    _timeout: float

    async def reserve(self, asks: Sequence[LeaseRequest], /) -> Sequence[Decision]:
        if len(asks) == 1:
            if (wrong := request_denial(asks[0])) is not None:
                return [wrong]
            return [
                self._decision(
                    await self._request("POST", "/v1/reserve", lease_request_json(asks[0]))
                )
            ]
        decisions: list[Decision] = []
        for batch in _batches(asks):
            try:
                results = await self._request_batch(
                    "/v1/reserve/batch", map(lease_request_json, batch)
                )
            except LimitError as error:
                if error.reason != "limiter_unavailable":
                    raise
                # Not raised: the grants of other batches would be lost.
                decisions += [Unknown(error.message)] * len(batch)
            else:
                decisions += map(self._decision, results)
        return decisions

    async def complete(self, settlements: Sequence[Settlement], /) -> None:
        if len(settlements) == 1:
            answer = await self._request("POST", "/v1/complete", settlement_json(settlements[0]))
            self._check_done(answer)
            return
        for batch in _batches(settlements):
            answers = await self._request_batch("/v1/complete/batch", map(settlement_json, batch))
            for answer in answers:
                self._check_done(answer)

    async def extend(self, lease_ids: Sequence[str], /) -> Sequence[bool]:
        extended: list[bool] = []
        for batch in _batches(lease_ids):
            answer = await self._request("POST", "/v1/extend", {"lease_ids": list(batch)})
            results = self._results(answer, len(batch))
            extended += [isinstance(one, dict) and one.get("ok") is True for one in results]
        return extended

    async def states(self) -> Sequence[LimitState]:
        answer = await self._request("GET", "/v1/admin/limits")
        limits = answer.get("limits") if isinstance(answer, dict) else None
        if not isinstance(limits, list):
            raise self._invalid_answer(answer)
        return [self._state(one) for one in limits]

    async def define(self, limit: SharedLimit, /) -> LimitState:
        return self._state(await self._request("PUT", "/v1/admin/limits", limit_json(limit)))

    async def pause(self, key: str, seconds: float, /) -> LimitState:
        check_pause(key, seconds)  # JSON has no infinity
        body = {"key": key, "seconds": seconds}
        return self._state(await self._request("POST", "/v1/admin/pause", body, key=key))

    async def remove(self, key: str, /) -> None:
        path = f"/v1/admin/limits/{quote(key, safe='')}"
        self._check_done(await self._request("DELETE", path, key=key))

    async def _request_batch(self, path: str, items: Iterable[Json]) -> Sequence[object]:
        requests = list(items)
        answer = await self._request("POST", path, {"requests": requests})
        return self._results(answer, len(requests))

    async def _request(
        self, method: str, path: str, data: Json | None = None, *, key: str | None = None
    ) -> object:
        """Return the JSON of an answer with status 200.

        Args:
            method: The HTTP method.
            path: The path after the base URL.
            data: The body; None sends none.
            key: The limit that it concerns: status 404 then means that the limit does not exist.

        Raises:
            LimitError: The server refuses it for good; or `limiter_unavailable`: no such answer arrived.
        """
        body = None if data is None else to_body(data)
        with trio.move_on_after(self._timeout):
            try:
                reply = await self._send(method, path, body)
                if reply.status == HTTPStatus.UNAUTHORIZED and self._credentials.renew():
                    reply = await self._send(method, path, body)  # the refused request did nothing
            except ProviderError as error:
                raise unavailable(error.message) from error
            return self._read(reply, key)
        raise unavailable(f"no answer from {self._base} within {self._timeout:g} seconds")

    async def _send(self, method: str, path: str, body: bytes | None) -> HttpReply:
        request = HttpRequest(self._base + path, self._credentials.headers(), body, method)
        return await self._client.send(request)

    def _read(self, reply: HttpReply, key: str | None) -> object:
        try:
            answer = orjson.loads(reply.body)
        except orjson.JSONDecodeError:
            answer = None
        data: Mapping[str, object] = answer if isinstance(answer, dict) else {}
        message = str(data.get("message") or data.get("error") or "")
        match reply.status:
            case 200 if answer is not None:
                return answer
            case 400 if data.get("error") == INVALID:
                raise LimitError("invalid_request", f"{self._base} rejects the request: {message}")
            case 401:
                hint = "give the token that the server was started with, as http://:TOKEN@host:8770"
                if self._credentials.port is not None:
                    hint += "; programs of the user who started it need none"
                raise LimitError(
                    "invalid_request", f"{self._base} does not accept the token: {hint}"
                )
            case 404 if key is not None and data.get("error") == "not_found":
                raise unknown_limit(key)
            case status:
                detail = f": {message}" if message else ""
                raise unavailable(f"{self._base} answered with status {status}{detail}")

    def _results(self, answer: object, count: int) -> Sequence[object]:
        results = answer.get("results") if isinstance(answer, dict) else None
        if not isinstance(results, list) or len(results) != count:
            raise self._invalid_answer(answer)
        return results

    def _state(self, answer: object) -> LimitState:
        state = read_state(answer)
        if state is None:
            raise self._invalid_answer(answer)
        return state

    def _decision(self, answer: object) -> Decision:
        decision = read_decision(answer)
        if isinstance(decision, Unknown):
            return Unknown(f"{self._base}: {decision.message}")
        return decision

    def _check_done(self, answer: object) -> None:
        match answer:
            case {"ok": True}:
                pass
            case {"error": "invalid_request"}:
                raise LimitError("invalid_request", f"{self._base} rejects the request: {answer}")
            case _:
                raise self._invalid_answer(answer)

    def _invalid_answer(self, answer: object) -> LimitError:
        return unavailable(f"invalid answer from {self._base}: {str(answer)[:80]}")


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for first in range(0, len(items), BATCH):
        yield items[first : first + BATCH]

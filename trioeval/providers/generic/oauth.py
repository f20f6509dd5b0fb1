"""A token that the service gives for the client's credentials: fetched by one call for all, and in time.

Calls that need a token while one is being fetched wait for it; if it is refused, all of them fail with that
refusal, and the next call asks again.
"""

import math
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TypeAlias
from urllib.parse import quote, urlencode

import attrs
import trio

from trioeval.errors import ProviderError
from trioeval.providers.answers import is_success, read_json, text
from trioeval.providers.classify import classify
from trioeval.providers.config import is_number
from trioeval.providers.generic.auth import TokenRequest, basic
from trioeval.providers.wire import HttpReply, HttpRequest

MARGIN = 60.0
"""Seconds before its end at which a token is replaced; a tenth of its life, if that is less."""

Send: TypeAlias = Callable[[HttpRequest], Awaitable[HttpReply]]


@attrs.define(eq=False)
class Token:
    """A token that was given."""

    value: str = attrs.field(repr=False)
    good_until: float = math.inf
    """On Trio's clock."""
    was_accepted: bool = False
    """Whether the service has taken it at least once."""


@attrs.define(eq=False)
class TokenSource:
    """The token of one provider."""

    _request: TokenRequest
    _send: Send
    _token: Token | None = None
    _fetching: trio.Lock = attrs.field(factory=trio.Lock)
    _fetches: int = 0
    _failure: ProviderError | None = attrs.field(default=None, repr=False)

    async def token(self) -> Token:
        """A token that is good for a while. Always a checkpoint.

        Raises:
            ProviderError: There is none: `auth`, or what kept the request for it from being answered.
        """
        before = self._fetches
        async with self._fetching:
            if self._token is not None and trio.current_time() < self._token.good_until:
                return self._token
            if self._failure is not None and self._fetches > before:
                raise _again(self._failure)
            self._token = None
            try:
                self._token = await self._fetch()
            except ProviderError as error:
                self._failure = error
                raise
            else:
                self._failure = None
            finally:
                self._fetches += 1
            return self._token

    def forget(self, token: Token) -> None:
        """Do not use this token again; a newer one stays."""
        if self._token is token:
            self._token = None

    async def _fetch(self) -> Token:
        asked_at = trio.current_time()
        reply = await self._send(token_request(self._request))
        value, life = read_token(reply, self._request.client_secret)
        return Token(value, asked_at + life - min(MARGIN, life / 10))


def token_request(asked: TokenRequest) -> HttpRequest:
    """The request for a token; the credentials go into a header, each encoded for forms as the RFC says."""
    form = {"grant_type": "client_credentials"}
    if asked.scopes:
        form["scope"] = " ".join(asked.scopes)
    pair = f"{quote(asked.client_id, safe='')}:{quote(asked.client_secret, safe='')}"
    headers = {
        "authorization": f"Basic {basic(pair)}",
        "content-type": "application/x-www-form-urlencoded",
    }
    return HttpRequest(asked.url, headers, urlencode(form).encode())


def read_token(reply: HttpReply, secret: str) -> tuple[str, float]:
    """The token of a reply, and the seconds that it lives.

    Raises:
        ProviderError: `auth`, unless the failure is one that passes.
    """
    if not is_success(reply):
        error = classify(reply, secrets=(secret,))
        kind = "auth" if reply.status in _REFUSED else error.kind
        message = f"no token: {error.message}"
        raise ProviderError(
            kind,
            message,
            status=reply.status,
            retry_after=error.retry_after,
            body_excerpt=error.body_excerpt,
        )
    data = read_json(reply.body)
    value = text(data, "access_token")
    if value is None or not value.isascii() or not value.isprintable():
        # Without an excerpt: what is there may be a token all the same.
        raise ProviderError("auth", "no token: the reply has no access_token", status=reply.status)
    life = data.get("expires_in")
    return value, float(life) if is_number(life) and life > 0 else math.inf


_REFUSED = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.METHOD_NOT_ALLOWED,
    }
)
"""Statuses of a token request that say that there will be no token."""


def _again(error: ProviderError) -> ProviderError:
    """The same failure for another call: an exception raised twice would mix up two tracebacks."""
    return ProviderError(
        error.kind,
        error.message,
        status=error.status,
        retry_after=error.retry_after,
        body_excerpt=error.body_excerpt,
    )

"""Authentication: the `auth` of an entry, converted to headers, parameters or a token request.

Values are used unchanged; they are not templates.
"""

import base64
import math
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

import attrs
import trio

from trioeval.errors import Fault, Problem, ProviderError
from trioeval.providers.config import (
    Key,
    is_number,
    is_text,
    is_visible_text,
    read_config,
    show,
    to_snake,
)
from trioeval.providers.generic.keys import DROPPED, HEADER_NAME
from trioeval.providers.generic.urls import url_fault
from trioeval.providers.http.failures import classify, reply_text
from trioeval.providers.http.replies import is_success, read_json, text
from trioeval.providers.http.wire import HttpReply, HttpRequest


@attrs.frozen(kw_only=True)
class TokenRequest:
    """A request for a token with the client's own credentials (RFC 6749, section 4.4)."""

    url: str = attrs.field(repr=False)
    client_id: str
    client_secret: str = attrs.field(repr=False)
    scopes: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Auth:
    """The parts of a request that authenticate it."""

    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """Headers with lower-case names."""
    query: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    token: TokenRequest | None = None
    """The request for a token, if one has to be fetched first."""
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)
    """Texts that must not appear in any output."""
    credential: str = attrs.field(default="", repr=False)
    """Text that identifies the account; "" if there is none."""


NO_AUTH = Auth()


def _is_name(value: Any) -> bool:
    return is_visible_text(value) and not set(value) & set(' ":;,=&?#')


def _is_scopes(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_visible_text, value))


FIELDS: Mapping[str, tuple[Key, ...]] = {
    "bearer": (Key("token", "printable ASCII text", is_visible_text, secret=True),),
    "basic": (
        Key("username", "text without a colon", lambda it: is_text(it) and ":" not in it),
        Key("password", "text", lambda it: isinstance(it, str), secret=True),
    ),
    "api_key": (
        Key("keyName", "the name of a header or of a query parameter", _is_name),
        Key("value", "printable ASCII text", is_visible_text, secret=True),
        Key("placement", '"header" or "query"', lambda it: it in ("header", "query")),
    ),
    "oauth": (
        Key("tokenUrl", "an http or https URL", is_text, secret=True),
        Key("clientId", "text", is_text),
        Key("clientSecret", "text", is_text, secret=True),
        Key("scopes", "a list of texts", _is_scopes),
        Key("grantType", '"client_credentials"', lambda it: it == "client_credentials"),
    ),
}
"""The keys of each type besides `type`."""

MAY_BE_LEFT_OUT = frozenset({"placement", "scopes", "grantType"})

_NOT_YET = ("file", "digital_signature")


def read_auth(given: Mapping[str, Any]) -> Auth | list[Problem]:
    """Read the `auth` of an entry.

    Returns:
        The result, or all problems, with paths that begin with `.config.auth`.
    """
    kind = given.get("type")
    if not isinstance(kind, str) or kind not in FIELDS:
        problem = "is not supported" if kind in _NOT_YET else "is not a valid type of auth"
        hint = f"use {', '.join([*FIELDS][:-1])} or {[*FIELDS][-1]}"
        return [Problem(".config.auth.type", f"{show(kind)} {problem}", hint)]
    fields = FIELDS[kind]
    values, problems = read_config(given, (Key("type", "text", is_text), *fields))
    problems = [
        attrs.evolve(one, path=one.path.replace(".config", ".config.auth", 1)) for one in problems
    ]
    present = {to_snake(str(key)) for key, value in given.items() if value is not None}
    problems += [
        Problem(f".config.auth.{key.name}", f"missing; auth of type {kind} requires it")
        for key in fields
        if key.name not in MAY_BE_LEFT_OUT and to_snake(key.name) not in present
    ]
    if kind == "api_key" and values.get("placement") != "query":
        problems += _header_problems(values.get("key_name", ""))
    if "token_url" in values and (fault := url_fault(values["token_url"])):
        problems.append(Problem(".config.auth.tokenUrl", fault))
    return problems or _make(kind, values)


def _header_problems(name: str) -> list[Problem]:
    if not name:
        return []  # reported already
    if name.lower() in DROPPED:
        fault = f"the header {name.lower()} belongs to the connection"
        return [Problem(".config.auth.keyName", fault, "use another header")]
    if not HEADER_NAME.fullmatch(name):
        return [Problem(".config.auth.keyName", f"{show(name)} is not a valid header name")]
    return []


def _make(kind: str, values: Mapping[str, Any]) -> Auth:
    match kind:
        case "bearer":
            token = values["token"].strip()
            header = {"authorization": f"Bearer {token}"}
            return Auth(headers=header, secrets=(token,), credential=token)
        case "basic":
            pair = f"{values['username']}:{values['password']}"
            coded = basic(pair)
            secrets = tuple(one for one in (coded, values["password"]) if one)
            return Auth(
                headers={"authorization": f"Basic {coded}"}, secrets=secrets, credential=pair
            )
        case "api_key":
            name, value = values["key_name"], values["value"]
            if values.get("placement") == "query":
                secrets = tuple(dict.fromkeys((value, quote(value, safe=""))))
                return Auth(query={name: value}, secrets=secrets, credential=value)
            return Auth(headers={name.lower(): value}, secrets=(value,), credential=value)
        case _:
            request = TokenRequest(
                url=values["token_url"],
                client_id=values["client_id"],
                client_secret=values["client_secret"],
                scopes=tuple(values.get("scopes") or ()),
            )
            return Auth(
                token=request,
                secrets=(request.client_secret,),
                credential="\n".join(
                    (request.url, request.client_id, request.client_secret, *request.scopes)
                ),
            )


def basic(pair: str) -> str:
    """Return user and password in the form of a header."""
    return base64.b64encode(pair.encode()).decode()


# A token that the service issues for the client's credentials: fetched once for all calls, and in time.
#
# Calls that need a token while one is being fetched wait for it; if it is refused, all of them fail with that
# refusal, and the next call tries again.


MARGIN = 60.0
"""Seconds before its expiry at which a token is replaced; a tenth of its lifetime, if that is less."""

Send: TypeAlias = Callable[[HttpRequest], Awaitable[HttpReply]]


@attrs.define(eq=False, repr=False)
class Token:
    """A token that the service has issued."""

    value: str
    good_until: float = math.inf
    """Expiry on Trio's clock."""
    was_accepted: bool = False
    """True if the service has accepted it at least once."""


@attrs.define(eq=False, repr=False)
class TokenSource:
    """The current token of one provider."""

    _fetch: Callable[[], Awaitable[Token]]
    """Requests a new token; raises `ProviderError` if none is issued."""
    _token: Token | None = None
    _fetching: trio.Lock = attrs.field(factory=trio.Lock)
    _fetches: int = 0
    _failure: ProviderError | None = attrs.field(default=None)

    async def token(self) -> Token:
        """Return a valid token, after fetching one if necessary. Always a checkpoint.

        Raises:
            ProviderError: No token was issued: `auth`, or the failure of the request for it.
        """
        before = self._fetches
        async with self._fetching:
            if self._token is not None and trio.current_time() < self._token.good_until:
                return self._token
            if self._failure is not None and self._fetches > before:
                # A new object: an exception raised twice would mix up two tracebacks.
                raise self._failure.restated(self._failure.message)
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
        """Do not use this token again; a newer one is kept."""
        if self._token is token:
            self._token = None

    def check(
        self, token: Token, reply: HttpReply, failure: Callable[[HttpReply], ProviderError]
    ) -> None:
        """Record whether the reply to a request with a token proves it valid or invalid.

        Args:
            token: The token, which is not used again if it is invalid.
            reply: The reply.
            failure: Returns the error of a failed reply.

        Raises:
            ProviderError: `auth`; a token that was valid before has expired, so the call deserves another
                attempt, with another token.
        """
        if reply.status != HTTPStatus.UNAUTHORIZED:
            token.was_accepted = True
            return
        self.forget(token)
        if token.was_accepted:
            error = failure(reply)
            raise error.restated(error.message, kind="auth", fault=Fault.TRANSIENT, retries=1)


async def fetch_token(request: TokenRequest, send: Send) -> Token:
    """Return a new token for the client's credentials. Always a checkpoint.

    Raises:
        ProviderError: See `read_token`, and those of `send`.
    """
    asked_at = trio.current_time()
    value, life = read_token(await send(token_request(request)), request.client_secret)
    return Token(value, last_use(asked_at, life))


def last_use(asked_at: float, life: float) -> float:
    """Return the instant at which a token is replaced, in time before its expiry.

    Args:
        asked_at: The instant of the request for it.
        life: Its lifetime in seconds.

    Example:
        >>> last_use(100.0, 3600.0), last_use(100.0, 50.0)
        (3640.0, 145.0)
    """
    return asked_at + life - min(MARGIN, life / 10)


def token_request(request: TokenRequest) -> HttpRequest:
    """Return the request for a token; the credentials are in a header, form-encoded as the RFC requires."""
    form = {"grant_type": "client_credentials"}
    if request.scopes:
        form["scope"] = " ".join(request.scopes)
    pair = f"{quote(request.client_id, safe='')}:{quote(request.client_secret, safe='')}"
    headers = {
        "authorization": f"Basic {basic(pair)}",
        "content-type": "application/x-www-form-urlencoded",
    }
    return HttpRequest(request.url, headers, urlencode(form).encode())


def read_token(reply: HttpReply, secret: str) -> tuple[str, float]:
    """Return the token in a reply, and its lifetime in seconds.

    Raises:
            ProviderError: `auth`, unless the failure is transient.
    """
    if not is_success(reply):
        error = classify(reply, secrets=(secret,), key_source="clientId and clientSecret")
        kind = "auth" if reply.status in _REFUSED else error.kind
        message = f"no OAuth token: {error.message}"
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
        # Without an excerpt: it may still contain a token.
        message = reply_text(reply, fault="the reply has no access_token", advice="check tokenUrl")
        raise ProviderError("auth", f"no OAuth token: {message}", status=reply.status)
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
"""Statuses of a token request that mean that no token will be issued."""

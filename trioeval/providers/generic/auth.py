"""Who asks: the `auth` of an entry, read into what each request carries.

The values are taken as they stand; they are no templates.
"""

import base64
import math
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

import attrs
import trio

from trioeval.errors import Problem, ProviderError
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
from trioeval.providers.http.failures import classify
from trioeval.providers.http.replies import is_success, read_json, text
from trioeval.providers.http.wire import HttpReply, HttpRequest


@attrs.frozen(kw_only=True)
class TokenRequest:
    """How a token is asked for with the client's own credentials (RFC 6749, section 4.4)."""

    url: str = attrs.field(repr=False)
    client_id: str
    client_secret: str = attrs.field(repr=False)
    scopes: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Auth:
    """What a request carries so that the service knows who asks."""

    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """With lower-case names."""
    query: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    token: TokenRequest | None = None
    """Where a token has to be fetched first."""
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)
    """Texts that nothing written may contain."""
    credential: str = attrs.field(default="", repr=False)
    """What tells two accounts apart; "" where there is none."""


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
"""What each type takes besides `type`."""

MAY_BE_LEFT_OUT = frozenset({"placement", "scopes", "grantType"})

_NOT_YET = ("file", "digital_signature")


def read_auth(given: Mapping[str, Any]) -> Auth | list[Problem]:
    """Read the `auth` of an entry.

    Returns:
        What it comes to, or everything that is wrong, with paths that begin with `.config.auth`.
    """
    kind = given.get("type")
    if not isinstance(kind, str) or kind not in FIELDS:
        what = "is not supported yet" if kind in _NOT_YET else "is not a type of auth"
        hint = f"known are {', '.join(FIELDS)}"
        return [Problem(".config.auth.type", f"{show(kind)} {what}", hint)]
    fields = FIELDS[kind]
    values, problems = read_config(given, (Key("type", "text", is_text), *fields))
    problems = [
        attrs.evolve(one, path=one.path.replace(".config", ".config.auth", 1)) for one in problems
    ]
    present = {to_snake(str(key)) for key, value in given.items() if value is not None}
    problems += [
        Problem(f".config.auth.{key.name}", f"is missing; auth of the type {kind} needs it")
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
        return []  # told already
    if name.lower() in DROPPED:
        fault = f"the header {name.lower()} is about the connection"
        return [Problem(".config.auth.keyName", fault, "name another")]
    if not HEADER_NAME.fullmatch(name):
        return [Problem(".config.auth.keyName", f"{show(name)} is not the name of a header")]
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
            asked = TokenRequest(
                url=values["token_url"],
                client_id=values["client_id"],
                client_secret=values["client_secret"],
                scopes=tuple(values.get("scopes") or ()),
            )
            return Auth(
                token=asked,
                secrets=(asked.client_secret,),
                credential="\n".join(
                    (asked.url, asked.client_id, asked.client_secret, *asked.scopes)
                ),
            )


def basic(pair: str) -> str:
    """User and password as a header carries them."""
    return base64.b64encode(pair.encode()).decode()


# A token that the service gives for the client's credentials: fetched by one call for all, and in time.
#
# Calls that need a token while one is being fetched wait for it; if it is refused, all of them fail with that
# refusal, and the next call asks again.


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
                # Of its own: an exception raised twice would mix up two tracebacks.
                raise self._failure.told_as(self._failure.message)
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

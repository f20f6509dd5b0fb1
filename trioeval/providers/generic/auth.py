"""Who asks: the `auth` of an entry, read into what each request carries.

The values are taken as they stand; they are no templates.
"""

import base64
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import attrs

from trioeval.errors import Problem
from trioeval.providers.config import Key, is_text, is_visible_text, read_config, show, to_snake
from trioeval.providers.generic.keys import HEADER_NAME
from trioeval.providers.generic.raw_request import DROPPED
from trioeval.providers.generic.urls import url_fault


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

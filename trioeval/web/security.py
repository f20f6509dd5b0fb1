"""Access to the live view: the checks before the application gets a request.

* The host name in a request is one of the server, and the origin is not foreign: see
  `trioeval.serving.access_rules`.
* If other machines can connect, a browser sends a token once, and a cookie afterwards.
* A request that changes something comes from a page of this server: by its origin, and by a header with a
    value that only such a page has.
* Pages load nothing from elsewhere and run only scripts of this server, whatever texts they show.
"""

import hashlib
import hmac
import html
from collections.abc import Callable
from typing import Literal, TypeAlias
from urllib.parse import parse_qsl, urlencode

import attrs
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trioeval.serving.access_rules import OwnNames, is_of_foreign_page, is_same_secret

CSRF_HEADER = "x-csrf-token"

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_SAFE = frozenset({"GET", "HEAD"})
_MISNAMED = (
    "This server has another name: open it by its address in numbers, "
    "or name it with `trioeval view --host`."
)
_FOREIGN = "This request did not come from a page of this view."
_UNKNOWN = (
    "This view needs its token: open it with the address that `trioeval view` has printed, "
    "which ends in ?token=…"
)
_Purpose: TypeAlias = Literal["session", "csrf"]


@attrs.frozen(kw_only=True)
class AccessRules:
    """The access rules. Pure except for new sessions."""

    names: OwnNames
    """The host names of the server."""
    token: str | None = attrs.field(repr=False)
    """The token; None admits every client that can connect."""
    secret: bytes = attrs.field(repr=False)
    """The key of this process; its signatures are not valid for another process."""
    cookie: str
    """The name of the cookie: browsers share cookies between all ports of a machine."""
    make_id: Callable[[], str]
    """Generates unguessable names of sessions."""

    def session(self, cookies: str) -> str | None:
        """Return the session in a `Cookie` header; None without a valid one."""
        # Other programs on this machine set cookies too, in forms that strict parsers reject.
        name, _, proof = cookie_parser(cookies).get(self.cookie, "").partition(".")
        return name if name and is_same_secret(proof, self._sign("session", name)) else None

    def new_session(self) -> tuple[str, str]:
        """Return a session, and the `Set-Cookie` header for it."""
        name = self.make_id()
        value = f"{name}.{self._sign('session', name)}"
        return name, f"{self.cookie}={value}; HttpOnly; SameSite=Strict; Path=/"

    def is_token(self, given: str) -> bool:
        """Return whether a token is correct, in constant time."""
        return self.token is not None and is_same_secret(given, self.token)

    def csrf(self, session: str) -> str:
        """Return the value that pages of a session send with requests that change something."""
        return self._sign("csrf", session)

    def _sign(self, purpose: _Purpose, session: str) -> str:
        return hmac.new(self.secret, f"{purpose}:{session}".encode(), hashlib.sha256).hexdigest()


@attrs.frozen
class AccessGuard:
    """The application with its access checks. The token of a page is in `scope["csrf"]`."""

    _app: ASGIApp
    _door: AccessRules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
                if made is not None:
                    headers.append("set-cookie", made)
            await send(message)

        made: str | None = None
        headers = Headers(scope=scope)
        session = self._door.session(headers.get("cookie", ""))
        refusal = self._refusal(scope, headers, session)
        # Styles need no session, and start none.
        if refusal is None and session is None and not _is_public(scope):
            session, made = self._door.new_session()
        if refusal is None and (given := _token_in(scope)) is not None:
            # The redirect removes the token from the address, and so from the history and from copies of it.
            refusal = RedirectResponse(_without_token(scope), 303) if given else None
        if refusal is not None:
            await refusal(scope, receive, send_guarded)
            return
        scope["csrf"] = self._door.csrf(session or "")
        await self._app(scope, receive, send_guarded)

    def _refusal(self, scope: Scope, headers: Headers, session: str | None) -> Response | None:
        """Return the reason why a request is refused; None if it is admitted."""
        door = self._door
        if not door.names.has(headers.get("host", "")):
            return refuse(headers, _MISNAMED, 421)
        if scope["method"] in _SAFE and is_of_foreign_page(headers):
            return refuse(headers, _FOREIGN, 403)
        is_known = (
            door.token is None or session is not None or door.is_token(_token_in(scope) or "")
        )
        if not is_known and not _is_public(scope):
            return refuse(headers, _UNKNOWN, 401)
        if scope["method"] in _SAFE:
            return None
        if "origin" not in headers or is_of_foreign_page(headers):
            return refuse(headers, _FOREIGN, 403)
        if session is None or not is_same_secret(headers.get(CSRF_HEADER, ""), door.csrf(session)):
            return refuse(headers, "This page is outdated: reload it.", 403)
        return None


def refuse(headers: Headers, text: str, status: int) -> Response:
    """Refuse a request: for a script of a page as a message, so that the page stays.

    Args:
        headers: The headers of the request.
        text: The reason; it may be foreign.
        status: The status of the response.
    """
    if "hx-request" not in headers:
        return PlainTextResponse(f"{text}\n", status)
    body = f'<p class="wrong text">{html.escape(text)}</p>'
    return HTMLResponse(body, status, {"hx-retarget": "#message", "hx-reswap": "innerHTML"})


def _is_public(scope: Scope) -> bool:
    path: str = scope["path"]
    return path.startswith("/static/")


def _token_in(scope: Scope) -> str | None:
    return dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("token")


def _without_token(scope: Scope) -> str:
    left = [
        (name, value)
        for name, value in parse_qsl(scope["query_string"].decode("latin-1"))
        if name != "token"
    ]
    # two slashes would be another host
    path: str = "/" + scope["raw_path"].decode("latin-1").lstrip("/")
    return path + (f"?{urlencode(left)}" if left else "")

"""Who may see the live view and steer runs from it: what is checked before the application hears of anything.

* The server is called by a name of its own, and not by a page of another origin: see `trioeval.serving.door`.
* Where others can connect, a browser shows a token once, and a cookie from then on.
* What changes something comes from a page of this server: its origin says so, and a header that holds what
  only such a page knows.
* Pages load nothing from elsewhere and run no script but those of this server, whatever stands in them.
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

from trioeval.serving.door import OwnNames, is_of_foreign_page, is_same_secret

CSRF_HEADER = "x-csrf-token"

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
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
_FOREIGN = "This did not come from a page of this view."
_UNKNOWN = (
    "This view needs its token: open it with the address that `trioeval view` has printed, "
    "which ends in ?token=…"
)
_Purpose: TypeAlias = Literal["session", "csrf"]


@attrs.frozen(kw_only=True)
class Door:
    """Who is let in. Pure but for new sessions."""

    names: OwnNames
    """By which it may be called."""
    token: str | None = attrs.field(repr=False)
    """None lets in everybody who can connect."""
    secret: bytes = attrs.field(repr=False)
    """Of this process; what it signs is worth nothing to another one."""
    cookie: str
    """The name of the cookie: browsers keep those of all ports of a machine together."""
    make_id: Callable[[], str]
    """Makes names of sessions that nobody guesses."""

    def session(self, cookies: str) -> str | None:
        """The session that a `Cookie` header tells of; None if it tells of none of ours."""
        # Other programs of this machine leave theirs here, in forms that strict readers stumble over.
        name, _, proof = cookie_parser(cookies).get(self.cookie, "").partition(".")
        return name if name and is_same_secret(proof, self._sign("session", name)) else None

    def new_session(self) -> tuple[str, str]:
        """A session, and the `Set-Cookie` header that makes a browser remember it."""
        name = self.make_id()
        value = f"{name}.{self._sign('session', name)}"
        return name, f"{self.cookie}={value}; HttpOnly; SameSite=Strict; Path=/"

    def is_token(self, given: str) -> bool:
        """Whether somebody knows the token. Takes as long for any."""
        return self.token is not None and is_same_secret(given, self.token)

    def csrf(self, session: str) -> str:
        """What pages of a session send along when they change something."""
        return self._sign("csrf", session)

    def _sign(self, purpose: _Purpose, session: str) -> str:
        return hmac.new(self.secret, f"{purpose}:{session}".encode(), hashlib.sha256).hexdigest()


@attrs.frozen
class Guard:
    """The application behind its door. The token of a page stands in `scope["csrf"]`."""

    _app: ASGIApp
    _door: Door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer it here."""
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
        # Everybody may have the styles, but nobody gets a session of them.
        if refusal is None and session is None and not _is_public(scope):
            session, made = self._door.new_session()
        if refusal is None and (given := _token_in(scope)) is not None:
            # Out of the address, and so of the history, and of what is copied from there.
            refusal = RedirectResponse(_without_token(scope), 303) if given else None
        if refusal is not None:
            await refusal(scope, receive, send_guarded)
            return
        scope["csrf"] = self._door.csrf(session or "")
        await self._app(scope, receive, send_guarded)

    def _refusal(self, scope: Scope, headers: Headers, session: str | None) -> Response | None:
        """Why a request is not let in; None if it is."""
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
            return refuse(headers, "This page is of an earlier time: load it again.", 403)
        return None


def refuse(headers: Headers, text: str, status: int) -> Response:
    """Say no: to a script of a page where messages stand, so that nothing that is shown is lost.

    Args:
        headers: Of the request.
        text: Why; it may be foreign.
        status: Of the answer.
    """
    if "hx-request" not in headers:
        return PlainTextResponse(f"{text}\n", status)
    body = f'<p class="wrong text">{html.escape(text)}</p>'
    return HTMLResponse(body, status, {"hx-retarget": "#said", "hx-reswap": "innerHTML"})


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
    # Two slashes would be another host.
    path: str = "/" + scope["raw_path"].decode("latin-1").lstrip("/")
    return path + (f"?{urlencode(left)}" if left else "")

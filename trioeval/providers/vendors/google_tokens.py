# Separate from `providers.vendors.vertex`: the requests for tokens, and not those of models.
"""OAuth access tokens of Google Cloud: from a service account, a user's login, or the metadata server.

A token is requested with the first call and again shortly before it expires, by one call at a time; other
calls wait for it. Only the signature of a service account needs a library, from the extra `google`.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import attrs
import trio

from trioeval.errors import ProviderError
from trioeval.providers.generic.auth import Token, TokenSource, last_use
from trioeval.providers.http.failures import classify, reply_text
from trioeval.providers.http.replies import count, is_success, read_json, text
from trioeval.providers.http.wire import HttpClient, HttpReply, HttpRequest

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
TOKEN_URL = "https://oauth2.googleapis.com/token"  # noqa: S105 - a URL
METADATA_HOST = "metadata.google.internal"
METADATA_PATH = "/computeMetadata/v1/instance/service-accounts/default/token"

SERVICE_ACCOUNT = "service_account"
USER = "authorized_user"

LIFETIME = 3600
"""Seconds for which a token is requested."""

_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_NEEDED: Mapping[str, tuple[str, ...]] = {
    SERVICE_ACCOUNT: ("client_email", "private_key"),
    USER: ("client_id", "client_secret", "refresh_token"),
}
_SECRET = ("private_key", "client_secret", "refresh_token")


def credentials_fault(info: Any) -> str | None:
    """Return the fault of credentials as JSON data; None if they can be used.

    Example:
        >>> credentials_fault({"type": "service_account", "client_email": "a@b"})
        'have no private_key'
    """
    if not isinstance(info, Mapping):
        return "are not a JSON object"
    needed = _NEEDED.get(str(info.get("type")))
    if needed is None:
        return f'must be of type {SERVICE_ACCOUNT} or {USER}, got "{info.get("type")}"'
    missing = [name for name in needed if text(info, name) is None]
    return f"have no {' and no '.join(missing)}" if missing else None


def secrets_in(info: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the secret texts of credentials; a private key also line by line."""
    found = [info[name] for name in _SECRET if text(info, name) is not None]
    lines = (line for secret in found for line in secret.splitlines() if not line.startswith("--"))
    return tuple(dict.fromkeys((*found, *filter(None, lines))))


@attrs.frozen(kw_only=True)
class GoogleAccount:
    """The account for which tokens are issued."""

    info: Mapping[str, Any] | None = attrs.field(default=None, repr=False)
    """Credentials without a fault; None asks the metadata server of the machine."""
    scopes: tuple[str, ...] = (SCOPE,)
    metadata_host: str = METADATA_HOST

    @property
    def account(self) -> str:
        """A text that identifies the account."""
        info = self.info or {}
        return text(info, "client_email") or text(info, "client_id") or self.metadata_host

    def request(self, now: float) -> HttpRequest:
        """Return the request for a token.

        Args:
            now: Seconds since 1970.

        Raises:
            ProviderError: `auth`: the private key is not valid.
        """
        if self.info is None:
            url = f"http://{self.metadata_host}{METADATA_PATH}"
            return HttpRequest(url, {"metadata-flavor": "Google"}, None, method="GET")
        url = text(self.info, "token_uri") or TOKEN_URL
        if self.info["type"] == SERVICE_ACCOUNT:
            claims = {
                "iss": self.info["client_email"],
                "scope": " ".join(self.scopes),
                "aud": url,
                "iat": int(now),
                "exp": int(now) + LIFETIME,
            }
            form = {"grant_type": _GRANT, "assertion": _signed(claims, self.info)}
        else:
            names = _NEEDED[USER]
            form = {"grant_type": "refresh_token", **{name: self.info[name] for name in names}}
        headers = {"content-type": "application/x-www-form-urlencoded"}
        return HttpRequest(url, headers, urlencode(form).encode())


def _signed(claims: Mapping[str, Any], info: Mapping[str, Any]) -> str:
    """Return claims as a token that is signed with the key of a service account."""
    from google.auth import crypt, jwt

    try:
        signer = crypt.RSASigner.from_service_account_info(info)  # type: ignore[no-untyped-call]
    except ValueError as error:
        message = f"the private_key of {info['client_email']} is not valid; create a new key"
        raise ProviderError("auth", message) from error
    written: bytes = jwt.encode(signer, claims)  # type: ignore[no-untyped-call]
    return written.decode()


def _seconds() -> float:
    return datetime.now(UTC).timestamp()


@attrs.define(eq=False)
class AuthorizedClient:
    """A client that adds an access token to each request."""

    _client: HttpClient = attrs.field(repr=False)
    _account: GoogleAccount
    _secrets: tuple[str, ...] = attrs.field(repr=False)
    """Texts that messages must not contain."""
    _seconds: Callable[[], float] = _seconds
    """Returns the seconds since 1970."""
    _tokens: TokenSource = attrs.field(init=False, repr=False)

    @_tokens.default
    def _no_token_yet(self) -> TokenSource:
        return TokenSource(self._fetch)

    async def send(
        self, request: HttpRequest, *, on_part: Callable[[bytes], object] | None = None
    ) -> HttpReply:
        """Send a request with a token, as in `HttpClient.send`.

        Raises:
            ProviderError: As there, also for the request for a token; or `auth`, if that was refused.
        """
        token = await self._tokens.token()
        headers = {**request.headers, "authorization": f"Bearer {token.value}"}
        reply = await self._client.send(attrs.evolve(request, headers=headers), on_part=on_part)
        if reply.status == HTTPStatus.UNAUTHORIZED:  # revoked before its end
            self._tokens.forget(token)
        # It is not among the secrets that are known before the first call.
        hidden = reply.body.replace(token.value.encode(), b"[hidden]")
        return reply if hidden == reply.body else attrs.evolve(reply, body=hidden)

    async def _fetch(self) -> Token:
        asked_at = trio.current_time()
        try:
            reply = await self._client.send(self._account.request(self._seconds()))
        except ProviderError as error:
            if self._account.info is not None or error.kind != "connection":
                raise
            raise ProviderError("auth", NO_CREDENTIALS) from error
        data = read_json(reply.body)
        token = text(data, "access_token")
        if not is_success(reply):
            raise self._refused(reply)
        if token is None or not token.isascii() or not token.isprintable():
            # Without an excerpt: it may still contain a token.
            message = reply_text(reply, self._secrets, fault="the reply has no access_token")
            raise ProviderError("malformed_reply", message, status=reply.status)
        return Token(token, last_use(asked_at, count(data, "expires_in") or LIFETIME))

    def _refused(self, reply: HttpReply) -> ProviderError:
        """Return the error for a failed request for a token: `auth`, unless it is transient."""
        error = classify(reply, secrets=self._secrets)
        is_transient = error.kind in ("server", "rate_limited", "overloaded")
        advice = "" if is_transient or self._account.info else f"; {NO_CREDENTIALS}"
        message = f"no access token: {error.message}{advice}"
        return error.restated(message, kind=error.kind if is_transient else "auth")


NO_CREDENTIALS = (
    "no Google credentials: set GOOGLE_APPLICATION_CREDENTIALS to a file with the key of a service account, "
    "run `gcloud auth application-default login`, or set VERTEX_API_KEY"
)


def read_credentials(written: str) -> Any:
    """Return credentials in a text as JSON data; None if it is not JSON."""
    try:
        return json.loads(written)
    except ValueError:
        return None

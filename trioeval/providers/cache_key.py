"""The cache key of a call: the digest of everything that decides its reply.

A stored reply may be reused for another call only if everything that decides it is equal: the service, the
account, the request, and the way the reply is read. All of that is written as one JSON text, whose digest
is the key; `docs/reference/cache.md` specifies this text exactly, because entries outlive versions of this
program. Settings that only affect how a call is made (time limits, lanes, prices, tracing headers) are left
out, so that tuning a suite does not pay for replies again.

Members of objects are sorted, since most services ignore their order; except those of `properties` in a
JSON schema, whose order is the one in which a model writes.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import attrs

from trioeval.providers.base import Request
from trioeval.providers.http.wire import HttpRequest
from trioeval.providers.secrets import is_secret_name, spellings, surely_keys

FORMAT = 1
"""Version of the text that is hashed. Changing it invalidates every entry."""

DIGEST_SIZE = 32
"""Bytes of a key before the provider's name."""

IGNORED_HEADERS = frozenset(
    {
        *("accept-encoding", "baggage", "connection", "content-length", "date", "host"),
        *("idempotency-key", "traceparent", "tracestate", "user-agent", "x-client-request-id"),
        *("x-correlation-id", "x-request-id"),
    }
)
"""Headers that describe a call or its connection, and not the request."""

_ORDERED = "properties"
_LONGEST_NAME = 100
"""Maximum bytes of the name in a key."""


@attrs.frozen(kw_only=True)
class CacheIdentity:
    """Everything that decides a service's reply and how it is read."""

    name: str
    """The provider's name for people: `openai:gpt-4.1`."""
    service: str
    """The kind of service."""
    request: HttpRequest = attrs.field(repr=False)
    """The request as sent; for code of the suite, its arguments."""
    account: str = attrs.field(default="", repr=False)
    """Text that identifies the account, if known; its digest is in the key."""
    reading: Mapping[str, Any] = attrs.field(factory=dict)
    """Settings that decide how the reply is read, as JSON data."""

    def text(self, *, secrets: Sequence[str] = (), repeat: int = 0) -> str:
        """Return the text whose digest is the key.

        Args:
            secrets: Known secrets; each text that is surely a key is replaced by its digest.
            repeat: Number of the test's repeat, ≥ 0.
        """
        hidden = surely_keys(secrets)
        request = self.request
        fields = {
            "account": _digest(self.account) if self.account else None,
            "content": _content(request.body, hidden),
            "format": FORMAT,
            "headers": {
                name: _digest(value) if is_secret_name(name) else _clean(value, hidden)
                for name, value in _in_lower_case(request.headers)
                if name not in IGNORED_HEADERS
            },
            "method": request.method,
            "reading": dict(sorted(self.reading.items())),
            "repeat": repeat,
            "service": self.service,
            "url": _clean(request.url, hidden),
        }
        return json.dumps(fields, separators=(",", ":"))

    def key(self, *, secrets: Sequence[str] = (), repeat: int = 0) -> bytes:
        """Return the SHA-256 of `text`, followed by the provider's name."""
        digest = hashlib.sha256(self.text(secrets=secrets, repeat=repeat).encode()).digest()
        name = _clean(self.name, surely_keys(secrets)).encode("utf-8", "replace")
        return digest + name[:_LONGEST_NAME]


@runtime_checkable
class Cacheable(Protocol):
    """An open provider whose replies may be reused for equal calls."""

    def cache_identity(self, request: Request, /) -> CacheIdentity | None:
        """Return everything that decides the reply to a request; None if it is unknown before the call.

        Raises:
            ProviderError: The request cannot be made.
        """
        ...


def name_in(key: bytes) -> str:
    """Return the provider's name in a key; "" if it has none.

    Example:
        >>> name_in(bytes(32) + b"openai:gpt-4.1"), name_in(b"")
        ('openai:gpt-4.1', '')
    """
    return key[DIGEST_SIZE:].decode("utf-8", "replace")


def retry_key(key: bytes, mark: str) -> bytes:
    """Return the key for calling once more for the same request, because another reply is needed.

    Example:
        >>> key = bytes(32) + b"openai:gpt-4.1"
        >>> name_in(retry_key(key, "unreadable")), retry_key(key, "unreadable") == key
        ('openai:gpt-4.1', False)
    """
    question, name = key[:DIGEST_SIZE], key[DIGEST_SIZE:]
    return hashlib.sha256(question + mark.encode()).digest() + name


def _in_lower_case(headers: Mapping[str, str]) -> Sequence[tuple[str, str]]:
    """Return headers by name; values of names that differ only in case are joined, as in HTTP."""
    fields: dict[str, str] = {}
    for name, value in sorted(headers.items()):
        low = name.lower()
        fields[low] = f"{fields[low]}, {value}" if low in fields else value
    return sorted(fields.items())


def _content(body: bytes | None, hidden: Sequence[str]) -> Any:
    """Return the body as JSON if it is JSON, else as a digest."""
    if body is None:
        return None
    try:
        return {"json": _in_order(json.loads(_clean(body.decode(), hidden)))}
    except (ValueError, RecursionError):
        return {"sha256": hashlib.sha256(body).hexdigest()}


def _in_order(data: Any) -> Any:
    """Return JSON data with its members sorted, except where their order matters."""
    match data:
        case dict():
            return {name: _member(name, part) for name, part in sorted(data.items())}
        case list():
            return [_in_order(part) for part in data]
        case _:
            return data


def _member(name: str, part: Any) -> Any:
    if name == _ORDERED and isinstance(part, dict):
        return {inner: _in_order(value) for inner, value in part.items()}
    return _in_order(part)


def _clean(text: str, hidden: Sequence[str]) -> str:
    """Replace each key in a text by its digest."""
    for secret in hidden:
        text = spellings(secret).replace(text, _digest(secret))
    return text


def _digest(secret: str) -> str:
    return f"sha256:{hashlib.sha256(secret.encode('utf-8', 'surrogatepass')).hexdigest()}"

"""What makes two questions one: the key under which a reply is kept, and found again.

A reply may stand for another call only if everything that decides it is the same: who is asked, as whom,
what exactly, and how the reply is read. All of that is written as one JSON text, whose digest is the key;
`docs/reference/cache.md` says what that text is, word by word, because entries outlive versions of this
program. What only says how a call is made (time limits, lanes, prices, tracing headers) is left out, so
that tuning a suite pays for nothing again.

Members of objects are sorted, since most services do not care; but not those of `properties` in a JSON
schema, whose order is the one in which a model writes.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import attrs

from trioeval.providers.base import Request
from trioeval.providers.http.wire import HttpRequest
from trioeval.providers.secrets import is_secret_name, spelt, surely_keys

FORMAT = 1
"""Of the text that keys are digests of. Another number makes every entry unfindable."""

DIGEST_SIZE = 32
"""Bytes of a key before the name of who is asked."""

IGNORED_HEADERS = frozenset(
    {
        *("accept-encoding", "baggage", "connection", "content-length", "date", "host"),
        *("idempotency-key", "traceparent", "tracestate", "user-agent", "x-client-request-id"),
        *("x-correlation-id", "x-request-id"),
    }
)
"""Headers that tell of a call or of its connection, and not of what is asked."""

_ORDERED = "properties"
_LONGEST_NAME = 100
"""Bytes of a name in a key."""


@attrs.frozen(kw_only=True)
class Question:
    """All that decides what a service answers, and what is read of it."""

    name: str
    """Who is asked, for people: `openai:gpt-4.1`."""
    service: str
    """The kind of service."""
    request: HttpRequest = attrs.field(repr=False)
    """What is sent; of code of the suite's, what it is given."""
    account: str = attrs.field(default="", repr=False)
    """What identifies who asks, where that is known; its digest is in the key."""
    reading: Mapping[str, Any] = attrs.field(factory=dict)
    """Settings that decide how the reply is read, as JSON data."""

    def text(self, *, secrets: Sequence[str] = (), repeat: int = 0) -> str:
        """What the key is the digest of.

        Args:
            secrets: Texts that stand for themselves nowhere; what is surely a key becomes its digest.
            repeat: Which repeat of its test asks, ≥ 0.
        """
        hidden = surely_keys(secrets)
        request = self.request
        told = {
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
        return json.dumps(told, separators=(",", ":"))

    def key(self, *, secrets: Sequence[str] = (), repeat: int = 0) -> bytes:
        """The SHA-256 of `text`, and who is asked; see there."""
        digest = hashlib.sha256(self.text(secrets=secrets, repeat=repeat).encode()).digest()
        name = _clean(self.name, surely_keys(secrets)).encode("utf-8", "replace")
        return digest + name[:_LONGEST_NAME]


@runtime_checkable
class Cacheable(Protocol):
    """An open provider whose replies may stand for those of equal calls."""

    def cache_question(self, request: Request, /) -> Question | None:
        """All that decides its reply to a request; None if that cannot be said without asking.

        Raises:
            ProviderError: The request cannot be made.
        """
        ...


def name_in(key: bytes) -> str:
    """Who is asked, by a key; "" if it does not say.

    Example:
        >>> name_in(bytes(32) + b"openai:gpt-4.1"), name_in(b"")
        ('openai:gpt-4.1', '')
    """
    return key[DIGEST_SIZE:].decode("utf-8", "replace")


def asked_again(key: bytes, mark: str) -> bytes:
    """The key of the same question where it is asked once more, because another reply is wanted.

    Example:
        >>> key = bytes(32) + b"openai:gpt-4.1"
        >>> name_in(asked_again(key, "unreadable")), asked_again(key, "unreadable") == key
        ('openai:gpt-4.1', False)
    """
    question, name = key[:DIGEST_SIZE], key[DIGEST_SIZE:]
    return hashlib.sha256(question + mark.encode()).digest() + name


def _in_lower_case(headers: Mapping[str, str]) -> Sequence[tuple[str, str]]:
    """Headers by name; the values of names that differ in their case only stand in one, as HTTP has it."""
    told: dict[str, str] = {}
    for name, value in sorted(headers.items()):
        low = name.lower()
        told[low] = f"{told[low]}, {value}" if low in told else value
    return sorted(told.items())


def _content(body: bytes | None, hidden: Sequence[str]) -> Any:
    """The body: as JSON where it is some, else as a digest."""
    if body is None:
        return None
    try:
        return {"json": _in_order(json.loads(_clean(body.decode(), hidden)))}
    except (ValueError, RecursionError):
        return {"sha256": hashlib.sha256(body).hexdigest()}


def _in_order(data: Any) -> Any:
    """Data of JSON with its members sorted, where their order means nothing."""
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
    """A text whose keys have become their digests."""
    for secret in hidden:
        text = spelt(secret).replace(text, _digest(secret))
    return text


def _digest(secret: str) -> str:
    return f"sha256:{hashlib.sha256(secret.encode('utf-8', 'surrogatepass')).hexdigest()}"

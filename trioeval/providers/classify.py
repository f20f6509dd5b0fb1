"""What a reply that is not a success means: status, headers and body to one `ProviderError`.

Pure, and the same for all providers that speak HTTP; the rules are in `failure_rules`. Whether to call again
follows from the kind, unless the service itself says so in `x-should-retry`; nothing brings an exhausted
quota back. What a server writes may be as long as it likes, what is told of it may not.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import attrs

from trioeval.errors import ProviderError
from trioeval.faults import FAULT_BY_KIND, Fault, ProviderErrorKind
from trioeval.providers.failure_rules import Evidence, find_kind, is_refusal
from trioeval.providers.hints import read_duration, read_hints
from trioeval.providers.retry_after import read_retry_after
from trioeval.providers.secrets import hide
from trioeval.providers.wire import HttpReply
from trioeval.rates.hints import RateHint

EXCERPT_BYTES = 2048
"""Most of a body that an error keeps."""

READ_BYTES = 64 * 1024
"""Largest body in which codes are looked for."""

MESSAGE_LENGTH = 500
"""Most characters of a server's text that stand in a message."""

_WRONG_PLACE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED})

TRUSTED: frozenset[ProviderErrorKind] = frozenset({"rate_limited", "overloaded", "quota_exhausted"})
"""Kinds of failures whose message may name the wait."""


@attrs.frozen
class BodyError:
    """What the body of a reply says of a failure."""

    message: str | None = None
    codes: frozenset[str] = frozenset()
    """Codes and types, in lower case."""
    status: int | None = None
    """An HTTP status that stands inside the body."""
    delay: float | None = None
    """Seconds that it asks to wait, in a field made for that."""
    quotas: frozenset[str] = frozenset()
    """Ids of the quotas that were hit."""
    headers: Mapping[str, str] = attrs.field(factory=dict)
    """Those of the service behind a router, names in lower case."""
    flags: tuple[str, ...] | None = None
    """What the prompt was flagged for; None where nothing says that it was."""


def classify(
    reply: HttpReply, *, secrets: Iterable[str] = (), host: str = "", model: str = ""
) -> ProviderError:
    """The error that a reply stands for.

    Args:
        reply: One with a status that is not a success, or with a body that tells of an error.
        secrets: Texts that must appear neither in the message nor in the excerpt.
        host: Who replied; see `read_hints`.
        model: The model that was asked, to be named; empty where there is none.

    Returns:
        An error whose `retry_after` is what the provider asked for, if it asked, and whose `hint` is what
        it told of its limits.

    Example:
        >>> classify(HttpReply(429, {"retry-after": "7"}, b"")).retry_after
        7.0
    """
    hidden = tuple(secrets)
    found = read_body_error(reply.body)
    headers = {**found.headers, **reply.headers}
    # Rules look at a wait only where words are trusted too.
    wait = read_retry_after(headers, found.message, delay=found.delay)
    kind = find_kind(_evidence(reply, found, wait))
    if kind not in TRUSTED:
        wait = read_retry_after(headers, delay=found.delay)
    hint = read_hints(headers, host=host)
    fault, retries = _again(kind, reply.headers.get("x-should-retry", "").strip().lower())
    return ProviderError(
        kind,
        _message(reply, found, hidden, model),
        status=reply.status,
        retry_after=wait,
        body_excerpt=excerpt(reply.body, hidden),
        fault=fault,
        retries=retries,
        hint=None if hint == RateHint() else hint,
    )


def find_refusal(reply: HttpReply) -> BodyError | None:
    """Why a service will not take the prompt; None if a reply tells of some other failure."""
    found = read_body_error(reply.body)
    return found if is_refusal(_evidence(reply, found)) else None


def read_body_error(body: bytes) -> BodyError:
    """The error inside a JSON body: `error` as an object or a text, or the fields at the top."""
    if len(body) > READ_BYTES:
        return BodyError()
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return BodyError()
    if isinstance(data, list) and data:
        data = data[0]
    if not isinstance(data, dict):
        return BodyError()
    inner = data.get("error")
    error = inner if isinstance(inner, dict) else data
    listed = error.get("details")
    details = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    named = [error.get("code"), error.get("type"), error.get("status"), data.get("code")]
    named += [detail.get("reason") for detail in details]
    return BodyError(
        message=_text(error.get("message")) or _text(inner) or _text(data.get("detail")),
        codes=frozenset(name.lower() for name in named if isinstance(name, str)),
        status=next((number for number in named if _is_error_status(number)), None),
        delay=next((one for one in map(_delay, details) if one is not None), None),
        quotas=frozenset(quota for detail in details for quota in _quotas(detail)),
        headers=_headers(error.get("metadata")),
        flags=_flags(error.get("metadata")),
    )


def excerpt(body: bytes, secrets: Sequence[str] = ()) -> str:
    """The beginning of a body, at most 2 KB, without secrets."""
    text = hide(body[:READ_BYTES].decode("utf-8", "replace"), secrets)
    return text.encode("utf-8", "replace")[:EXCERPT_BYTES].decode("utf-8", "ignore")


def clip(text: str, secrets: Sequence[str] = ()) -> str:
    """The beginning of a server's text, as long as a message may be, without secrets."""
    text = hide(text, secrets)
    return text if len(text) <= MESSAGE_LENGTH else f"{text[: MESSAGE_LENGTH - 1]}…"


def _evidence(reply: HttpReply, found: BodyError, wait: float | None = None) -> Evidence:
    """What the rules look at; a status inside counts where that of the reply says nothing."""
    status = reply.status if reply.status >= HTTPStatus.BAD_REQUEST else found.status
    return Evidence(
        reply.status if status is None else status,
        found.codes,
        " ".join((found.message or "", *sorted(found.codes), *sorted(found.quotas))),
        wait,
        found.flags is not None,
    )


def _again(kind: ProviderErrorKind, advice: str) -> tuple[Fault, int | None]:
    """Fault and retries of a kind, after what the service advised."""
    fault = FAULT_BY_KIND[kind]
    if advice == "true" and fault in (Fault.REFUSED, Fault.FATAL):
        return Fault.TRANSIENT, None
    if advice == "false" and fault in (Fault.TRANSIENT, Fault.RATE_LIMITED):
        return fault, 0
    return fault, None


def _message(reply: HttpReply, found: BodyError, secrets: Sequence[str], model: str) -> str:
    title = _title(reply, secrets, model)
    parts = [clip(found.message, secrets)] if found.message else []
    if "location" in reply.headers and not found.message:
        parts.append("redirects are not followed")
    if model and reply.status in _WRONG_PLACE:
        parts.append("check apiBaseUrl and the model name")
    return f"{title}: {'; '.join(parts)}" if parts else title


def _title(reply: HttpReply, secrets: Sequence[str], model: str) -> str:
    try:
        phrase = HTTPStatus(reply.status).phrase
    except ValueError:
        phrase = ""
    if not reply.source:
        return f"HTTP {reply.status} {phrase}".rstrip()
    asked = f" (model {model})" if model else ""
    return f"HTTP {reply.status} from {hide(reply.source, secrets)}{asked}"


def _delay(detail: Mapping[str, Any]) -> float | None:
    """What a RetryInfo asks for."""
    delay = detail.get("retryDelay")
    return read_duration(delay) if isinstance(delay, str) else None


def _quotas(detail: Mapping[str, Any]) -> Iterator[str]:
    """The quotas that a QuotaFailure or an ErrorInfo names."""
    violations, metadata = detail.get("violations"), detail.get("metadata")
    for one in violations if isinstance(violations, list) else ():
        if isinstance(one, dict) and isinstance(one.get("quotaId"), str):
            yield one["quotaId"]
    if isinstance(metadata, dict) and isinstance(metadata.get("quota_limit"), str):
        yield metadata["quota_limit"]


def _headers(metadata: Any) -> dict[str, str]:
    headers = metadata.get("headers") if isinstance(metadata, dict) else None
    if not isinstance(headers, dict):
        return {}
    return {name.lower(): str(value) for name, value in headers.items()}


def _flags(metadata: Any) -> tuple[str, ...] | None:
    """What a router's moderation found in the prompt."""
    told = metadata if isinstance(metadata, dict) else {}
    reasons = told.get("reasons")
    if not (reasons or told.get("flagged_input")):
        return None
    listed = reasons if isinstance(reasons, list) else []
    return tuple(reason for reason in listed if isinstance(reason, str))


def _text(value: Any) -> str | None:
    return " ".join(value.split()) if isinstance(value, str) and value.strip() else None


def _is_error_status(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599  # noqa: PLR2004 - HTTP

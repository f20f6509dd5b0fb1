"""What a reply that is not a success means: status, headers and body to one `ProviderError`.

Pure, and the same for all providers that speak HTTP. The rules are read from top to bottom and the
first that fits wins. Codes in the body are stronger than the status, because services use 429 for
"too fast" and for "no money" alike, and some wrap a failure in a 200. Whether to call again follows from
the kind, unless the service itself says so in `x-should-retry`; nothing brings an exhausted quota back.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import attrs

from trioeval.errors import FAULT_BY_KIND, Fault, ProviderError, ProviderErrorKind
from trioeval.providers.hints import read_duration
from trioeval.providers.retry_after import read_retry_after
from trioeval.providers.secrets import hide
from trioeval.providers.wire import HttpReply

EXCERPT_BYTES = 2048
"""Most of a body that an error keeps."""

READ_BYTES = 64 * 1024
"""Largest body in which codes are looked for."""

LONG_HINT = 300.0
"""Seconds; a quota of a day or a month whose hint is longer is exhausted, not busy."""

NEAR_HINT = 3600.0
"""Seconds; a hint up to here says that an "insufficient quota" is only a busy minute."""

BILLING = frozenset(
    {
        "credit_balance_exhausted",
        "billing_hard_limit_reached",
        "billing_not_active",
        "access_terminated",
    }
)
QUOTA = frozenset({"insufficient_quota", "quota_exceeded"})
THROTTLE = frozenset(
    {
        "rate_limit_exceeded",
        "rate_limit_error",
        "rate_limited",
        "ratelimitexceeded",
        "too_many_requests",
        "overloaded_error",
        "tokens",
        "requests",
        "tokens_per_min",
        "requests_per_min",
    }
)
CONTEXT_TEXT = re.compile(r"prompt is too long|maximum context length", re.IGNORECASE)
CREDIT_TEXT = re.compile(r"credit balance (is )?too low", re.IGNORECASE)
PERIOD_TEXT = re.compile(r"\b(day|month)\b|per_?(day|month)|daily|monthly", re.IGNORECASE)

BUSY = frozenset({429, 498, 529})
"""Statuses whose message may name the wait."""

KIND_BY_STATUS: Mapping[int, ProviderErrorKind] = {
    401: "auth",
    402: "quota_exhausted",
    403: "permission",
    404: "not_found",
    408: "server",
    409: "server",
    410: "not_found",
    413: "context_window",
    425: "server",
    429: "rate_limited",
    498: "rate_limited",
    501: "unsupported",
    529: "overloaded",
}
"""Other statuses from 500 on are `server`, all others `bad_request`."""

KIND_BY_CODE: Mapping[str, ProviderErrorKind] = {
    "context_length_exceeded": "context_window",
    "overloaded_error": "overloaded",
    "authentication_error": "auth",
    "invalid_api_key": "auth",
    "permission_error": "permission",
    "not_found_error": "not_found",
    "model_not_found": "not_found",
    "invalid_request_error": "bad_request",
}
"""For a failure that came with the status of a success."""


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


def classify(reply: HttpReply, *, secrets: Iterable[str] = ()) -> ProviderError:
    """The error that a reply stands for.

    Args:
        reply: One with a status that is not a success, or with a body that tells of an error.
        secrets: Texts that must appear neither in the message nor in the excerpt.

    Returns:
        An error whose `retry_after` is what the provider asked for, if it asked.

    Example:
        >>> classify(HttpReply(429, {"retry-after": "7"}, b"")).retry_after
        7.0
    """
    hidden = tuple(secrets)
    found = read_body_error(reply.body)
    status = reply.status
    if status < HTTPStatus.BAD_REQUEST and found.status is not None:
        status = found.status
    hint = read_retry_after(
        {**found.headers, **reply.headers},
        found.message if status in BUSY else None,
        delay=found.delay,
    )
    kind = _kind(status, found, hint)
    fault, retries = _again(kind, reply.headers.get("x-should-retry", "").strip().lower())
    return ProviderError(
        kind,
        hide(_message(reply, found), hidden),
        status=reply.status,
        retry_after=hint,
        body_excerpt=excerpt(reply.body, hidden),
        fault=fault,
        retries=retries,
    )


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
    return BodyError(
        message=_text(error.get("message")) or _text(inner) or _text(data.get("detail")),
        codes=frozenset(name.lower() for name in named if isinstance(name, str)),
        status=next((number for number in named if _is_error_status(number)), None),
        delay=next((one for one in map(_delay, details) if one is not None), None),
        quotas=frozenset(quota for detail in details for quota in _quotas(detail)),
        headers=_headers(error.get("metadata")),
    )


def excerpt(body: bytes, secrets: Sequence[str] = ()) -> str:
    """The beginning of a body, at most 2 KB, without secrets."""
    text = hide(body[:READ_BYTES].decode("utf-8", "replace"), secrets)
    return text.encode("utf-8", "replace")[:EXCERPT_BYTES].decode("utf-8", "ignore")


def _kind(status: int, found: BodyError, hint: float | None) -> ProviderErrorKind:
    codes, text = found.codes, found.message or ""
    match status:
        case 400 | 403 | 429 if codes & BILLING or CREDIT_TEXT.search(text):
            return "quota_exhausted"
        case 429 if _is_out_of_quota(found, hint):
            return "quota_exhausted"
        case _ if status < HTTPStatus.MULTIPLE_CHOICES:
            return _kind_by_code(codes)
        case _ if status not in (429, 498) and "overloaded_error" in codes:
            return "overloaded"
        case 403 if "ratelimitexceeded" in codes:
            return "rate_limited"
        case 400 if "context_length_exceeded" in codes or CONTEXT_TEXT.search(text):
            return "context_window"
        case _:
            known = KIND_BY_STATUS.get(status)
            return known or (
                "server" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "bad_request"
            )


def _is_out_of_quota(found: BodyError, hint: float | None) -> bool:
    """Whether a 429 is about a quota that will not come back while the run waits."""
    near = hint is not None and hint <= NEAR_HINT
    if found.codes & QUOTA and not near and not found.codes & THROTTLE:
        return True
    text = " ".join((found.message or "", *found.codes, *found.quotas))
    return hint is not None and hint > LONG_HINT and PERIOD_TEXT.search(text) is not None


def _again(kind: ProviderErrorKind, advice: str) -> tuple[Fault, int | None]:
    """Fault and retries of a kind, after what the service advised."""
    fault = FAULT_BY_KIND[kind]
    if advice == "true" and fault in (Fault.REFUSED, Fault.FATAL):
        return Fault.TRANSIENT, None
    if advice == "false" and fault in (Fault.TRANSIENT, Fault.RATE_LIMITED):
        return fault, 0
    return fault, None


def _kind_by_code(codes: frozenset[str]) -> ProviderErrorKind:
    if codes & (BILLING | QUOTA):
        return "quota_exhausted"
    for code, kind in KIND_BY_CODE.items():
        if code in codes:
            return kind
    return "rate_limited" if codes & THROTTLE else "server"


def _message(reply: HttpReply, found: BodyError) -> str:
    try:
        title = f"HTTP {reply.status} {HTTPStatus(reply.status).phrase}"
    except ValueError:
        title = f"HTTP {reply.status}"
    if found.message:
        return f"{title}: {found.message}"
    if "location" in reply.headers:
        return f"{title}: redirects are not followed"
    return title


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


def _text(value: Any) -> str | None:
    return " ".join(value.split()) if isinstance(value, str) and value.strip() else None


def _is_error_status(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599  # noqa: PLR2004 - HTTP

"""What a reply that is not a success means: status, headers and body to one `ProviderError`.

Pure, and the same for all providers that speak HTTP. Whether to call again
follows from the kind, unless the service itself says so in `x-should-retry`; nothing brings an exhausted
quota back. What a server writes may be as long as it likes, what is told of it may not.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import attrs

from trioeval.errors import FAULT_BY_KIND, Fault, ProviderError, ProviderErrorKind
from trioeval.providers.http.rate_hints import (
    EPOCH_FROM,
    read_duration,
    read_hint,
    read_number,
    read_spent_reset,
    read_until,
)
from trioeval.providers.http.wire import HttpReply
from trioeval.providers.secrets import hide

# What failures mean, as a table: the first row that fits wins.
#
# Codes in the body stand above the status, because services use 429 for "too fast" and for "no money" alike,
# and some wrap a failure in a 200. A prompt that a service will not take is no failure but an answer, and
# `is_refusal` tells the two apart.


LONG_HINT = 300.0
"""Seconds; a quota of a day or a month whose hint is longer is exhausted, not busy."""

NEAR_HINT = 3600.0
"""Seconds; a hint up to here says that an "insufficient quota" is only a busy minute."""

BILLING = frozenset(
    {
        "access_terminated",
        "billing_hard_limit_reached",
        "billing_not_active",
        "credit_balance_exhausted",
    }
)
QUOTA = frozenset({"insufficient_quota", "quota_exceeded"})
THROTTLE = frozenset(
    {
        "overloaded_error",
        "rate_limit_error",
        "rate_limit_exceeded",
        "rate_limited",
        "ratelimitexceeded",
        "requests",
        "requests_per_min",
        "tokens",
        "tokens_per_min",
        "too_many_requests",
    }
)
CONTEXT = frozenset(
    {"context_length_exceeded", "exceed_context_size_error", "string_above_max_length"}
)
CONTEXT_TEXT = re.compile(
    r"prompt is too long|(maximum|available) context (length|size|window)|context window"
    r"|exceeds the maximum number of tokens|reduce the length of the (messages|prompt)",
    re.IGNORECASE,
)
TOO_LARGE_TEXT = re.compile(r"request too large", re.IGNORECASE)
CREDIT_TEXT = re.compile(r"credit balance (is )?too low", re.IGNORECASE)
_LIMIT_TEXT = re.compile(r"\blimit:?\s+(\d[\d,]{0,17})\b", re.IGNORECASE)
_REQUESTED_TEXT = re.compile(r"\brequested:?\s+(\d[\d,]{0,17})\b", re.IGNORECASE)
PERIOD_TEXT = re.compile(r"\b(day|month)\b|per_?(day|month)|daily|monthly", re.IGNORECASE)

REFUSED_PROMPT = frozenset(
    {
        "bio_policy",
        "content_filter",
        "content_policy_violation",
        "image_content_policy_violation",
        "invalid_prompt",
        "misalignment_policy_violation",
    }
)
"""Codes of a service that will not take a prompt."""

REFUSING = frozenset({400, 403})
"""Statuses with which it says so, besides those of a success."""

SUCCESSES = range(100, 300)
"""Statuses that say nothing of the failure that came with them."""


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

    @property
    def words(self) -> str:
        """What texts are looked for in: its message, and the codes and quotas that it names."""
        return " ".join((self.message or "", *sorted(self.codes), *sorted(self.quotas)))


@attrs.frozen(kw_only=True)
class Rule:
    """One row: what must be there, and what it means. What a row does not name does not matter."""

    kind: ProviderErrorKind
    statuses: frozenset[int] = frozenset()
    codes: frozenset[str] = frozenset()
    """One of them, or `text`."""
    text: re.Pattern[str] | None = None
    unless_codes: frozenset[str] = frozenset()
    unless_near: bool = False
    """Not with a hint up to `NEAR_HINT`."""
    only_far: bool = False
    """Only with a hint above `LONG_HINT`."""
    or_exceeds: bool = False
    """Also where the message names a limit and a request that is larger."""

    def fits(self, status: int, found: BodyError, wait: float | None) -> bool:
        """Whether this row speaks of such a reply, which asks to wait for so many seconds."""
        if self.statuses and status not in self.statuses:
            return False
        if (self.codes or self.text) and not self._is_said(found):
            return False
        if self.unless_codes & found.codes:
            return False
        if self.unless_near and wait is not None and wait <= NEAR_HINT:
            return False
        return not self.only_far or (wait is not None and wait > LONG_HINT)

    def _is_said(self, found: BodyError) -> bool:
        said = self.text is not None and self.text.search(found.words) is not None
        return said or bool(self.codes & found.codes) or (self.or_exceeds and _exceeds(found.words))


RULES = (
    Rule(
        kind="quota_exhausted",
        statuses=frozenset({400, 403, 429}),
        codes=BILLING,
        text=CREDIT_TEXT,
    ),
    Rule(kind="quota_exhausted", statuses=frozenset({402})),
    Rule(
        kind="quota_exhausted",
        statuses=frozenset({429}),
        codes=QUOTA,
        unless_codes=THROTTLE,
        unless_near=True,
    ),
    Rule(kind="quota_exhausted", statuses=frozenset({429}), text=PERIOD_TEXT, only_far=True),
    Rule(kind="context_window", statuses=frozenset({429}), text=TOO_LARGE_TEXT, or_exceeds=True),
    Rule(kind="rate_limited", statuses=frozenset({429, 498})),
    Rule(kind="rate_limited", statuses=frozenset({403}), codes=frozenset({"ratelimitexceeded"})),
    Rule(kind="overloaded", statuses=frozenset({529})),
    Rule(kind="overloaded", codes=frozenset({"overloaded_error"})),
    Rule(kind="context_window", statuses=frozenset({413})),
    Rule(kind="context_window", statuses=frozenset({400}), codes=CONTEXT, text=CONTEXT_TEXT),
    Rule(kind="auth", statuses=frozenset({400}), codes=frozenset({"api_key_invalid"})),
    Rule(kind="auth", statuses=frozenset({401})),
    Rule(kind="permission", statuses=frozenset({403})),
    Rule(kind="not_found", statuses=frozenset({404, 410})),
    Rule(kind="unsupported", statuses=frozenset({501})),
    Rule(kind="server", statuses=frozenset({408, 409, 424, 425, *range(500, 600)})),
    Rule(kind="bad_request", statuses=frozenset(range(300, 500))),
)
"""For replies that are no success."""

KIND_BY_CODE: Mapping[str, ProviderErrorKind] = {
    "billing_error": "quota_exhausted",
    "context_length_exceeded": "context_window",
    "request_too_large": "context_window",
    "overloaded_error": "overloaded",
    "authentication_error": "auth",
    "invalid_api_key": "auth",
    "permission_error": "permission",
    "not_found_error": "not_found",
    "model_not_found": "not_found",
    "invalid_request_error": "bad_request",
    "data_residency_mismatch": "bad_request",
    **dict.fromkeys(
        (
            "empty_image_file",
            "image_file_not_found",
            "image_file_too_large",
            "image_parse_error",
            "image_too_large",
            "image_too_small",
            "invalid_base64_image",
            "invalid_image",
            "invalid_image_format",
            "invalid_image_mode",
            "invalid_image_url",
            "unsupported_image_media_type",
        ),
        "bad_request",
    ),
}
"""For a failure that came with the status of a success; the first that the body names."""


def find_kind(status: int, found: BodyError, wait: float | None = None) -> ProviderErrorKind:
    """What a failure is; a refusal of the prompt too, for those who have no answer to give.

    Args:
        status: That of the reply.
        found: What its body says.
        wait: Seconds that it asks to wait.

    Example:
        >>> no_quota = BodyError(codes=frozenset({"insufficient_quota"}))
        >>> find_kind(429, no_quota), find_kind(429, no_quota, wait=20)
        ('quota_exhausted', 'rate_limited')
    """
    if is_refusal(status, found):
        return "bad_request"
    status = _telling(status, found)
    if status in SUCCESSES:
        return _kind_inside(found)
    return next((rule.kind for rule in RULES if rule.fits(status, found, wait)), "bad_request")


def is_refusal(status: int, found: BodyError) -> bool:
    """Whether a failure is an answer, because the service will not take the prompt.

    Example:
        >>> filtered = BodyError(codes=frozenset({"content_filter"}))
        >>> is_refusal(400, filtered), is_refusal(500, filtered)
        (True, False)
    """
    status = _telling(status, found)
    if status not in REFUSING and status not in SUCCESSES:
        return False
    return found.flags is not None or bool(found.codes & REFUSED_PROMPT)


def _telling(status: int, found: BodyError) -> int:
    """The status that says what failed: one inside the body counts where that of the reply says nothing."""
    if status >= HTTPStatus.BAD_REQUEST or found.status is None:
        return status
    return found.status


def _exceeds(text: str) -> bool:
    """Whether a message says that one request asks for more than a limit ever allows."""
    limit, requested = _LIMIT_TEXT.search(text), _REQUESTED_TEXT.search(text)
    if limit is None or requested is None:
        return False
    return int(requested[1].replace(",", "")) > int(limit[1].replace(",", ""))


def _kind_inside(found: BodyError) -> ProviderErrorKind:
    codes = found.codes
    if codes & (BILLING | QUOTA):
        return "quota_exhausted"
    if "invalid_request_error" in codes and CONTEXT_TEXT.search(found.words):
        return "context_window"
    for code, kind in KIND_BY_CODE.items():
        if code in codes:
            return kind
    return "rate_limited" if codes & THROTTLE else "server"


# How long a provider asks to wait, read from its headers, its body or its words.
#
# Preference: `retry-after-ms`, `retry-after` (seconds or an HTTP date), the delay that the body names, the
# reset of a limit of which nothing remains, then the text of the message. What cannot be read with certainty
# is no hint: a wrong wait is worse than none.


ASKED = re.compile(r"(?:try again|retry)\s+(?:in|after)\s+", re.IGNORECASE)
SECONDS_BY_UNIT: Mapping[str, float] = {
    "millisecond": 0.001,
    "ms": 0.001,
    "second": 1.0,
    "sec": 1.0,
    "s": 1.0,
    "minute": 60.0,
    "min": 60.0,
    "m": 60.0,
    "hour": 3600.0,
    "h": 3600.0,
}
PART = re.compile(rf"(\d+(?:\.\d+)?)\s*({'|'.join(SECONDS_BY_UNIT)})s?(?![a-z])\s*", re.IGNORECASE)


def read_retry_after(
    headers: Mapping[str, str], text: str | None = None, *, delay: float | None = None
) -> float | None:
    """The wait in seconds, at least 0 and finite, or None if nothing was asked for.

    Args:
        headers: Names in lower case. A date counts from the reply's `date`, which is that of its
            arrival where the server told none.
        text: A message that may say "try again in 1.5s"; None where words must not be trusted.
        delay: Seconds that a field of the body asks to wait.

    Example:
        >>> read_retry_after({"retry-after-ms": "1500", "retry-after": "2"})
        1.5
    """
    milliseconds = _duration(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "")
    for wait in (_duration(value), read_until(value, headers.get("date", "")), delay):
        if wait is not None:
            return wait
    reset = read_spent_reset(headers)
    return _asked(text) if reset is None and text is not None else reset


def _duration(text: str) -> float | None:
    """A bare number; one that can only be an instant means nothing as a wait."""
    number = read_number(text)
    return number if number is not None and number < EPOCH_FROM else None


def _asked(text: str) -> float | None:
    asked = ASKED.search(text)
    if asked is None:
        return None
    total, at, found = 0.0, asked.end(), False
    while (part := PART.match(text, at)) is not None:
        total += float(part[1]) * SECONDS_BY_UNIT[part[2].lower()]
        at, found = part.end(), True
    return total if found and total < EPOCH_FROM else None


EXCERPT_BYTES = 2048
"""Most of a body that an error keeps."""

READ_BYTES = 64 * 1024
"""Largest body in which codes are looked for."""

MESSAGE_LENGTH = 500
"""Most characters of a server's text that stand in a message."""

_WRONG_PLACE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED})

TRUSTED: frozenset[ProviderErrorKind] = frozenset({"rate_limited", "overloaded", "quota_exhausted"})
"""Kinds of failures whose message may name the wait."""


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
    kind = find_kind(reply.status, found, wait)
    if kind not in TRUSTED:
        wait = read_retry_after(headers, delay=found.delay)
    fault, retries = _again(kind, reply.headers.get("x-should-retry", "").strip().lower())
    return ProviderError(
        kind,
        _message(reply, found, hidden, model),
        status=reply.status,
        retry_after=wait,
        body_excerpt=excerpt(reply.body, hidden),
        fault=fault,
        retries=retries,
        hint=read_hint(headers, host=host),
    )


def find_refusal(reply: HttpReply) -> BodyError | None:
    """Why a service will not take the prompt; None if a reply tells of some other failure."""
    found = read_body_error(reply.body)
    return found if is_refusal(reply.status, found) else None


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

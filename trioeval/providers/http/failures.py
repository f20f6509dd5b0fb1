"""Classification of failed replies: status, headers and body become one `ProviderError`.

Pure, and the same for all providers over HTTP. The kind of failure decides whether to call again, unless
the service decides it with `x-should-retry`; a retry never helps if the quota is exhausted. A server's text
may be of any length, the part that is reported is limited.
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

# The meaning of failures, as a table: the first matching row applies.
#
# Codes in the body take precedence over the status, because services use 429 both for "too fast" and for "no
# money", and some wrap a failure in a 200. A prompt that a service refuses is a reply and not a failure;
# `is_refusal` distinguishes the two.


LONG_HINT = 300.0
"""Seconds; a daily or monthly quota with a longer hint is exhausted, not busy."""

NEAR_HINT = 3600.0
"""Seconds; with a hint up to this, "insufficient quota" only means a busy minute."""

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
"""Codes of a prompt that a service refuses."""

REFUSING = frozenset({400, 403})
"""Statuses of such a refusal, besides those of a success."""

SUCCESSES = range(100, 300)
"""Statuses that say nothing about a failure in the body."""


@attrs.frozen
class BodyError:
    """The description of a failure in a reply's body."""

    message: str | None = None
    codes: frozenset[str] = frozenset()
    """Codes and types, in lower case."""
    status: int | None = None
    """An HTTP status inside the body."""
    delay: float | None = None
    """Seconds to wait, from a field for that purpose."""
    quotas: frozenset[str] = frozenset()
    """Ids of the exceeded quotas."""
    headers: Mapping[str, str] = attrs.field(factory=dict)
    """Headers of the service behind a router, names in lower case."""
    flags: tuple[str, ...] | None = None
    """Reasons why the prompt was flagged; None if it was not."""

    @property
    def words(self) -> str:
        """The text that is searched: the message, and the codes and quotas."""
        return " ".join((self.message or "", *sorted(self.codes), *sorted(self.quotas)))


@attrs.frozen(kw_only=True)
class Rule:
    """One row: conditions and their meaning. Fields that a row does not set are not compared."""

    kind: ProviderErrorKind
    statuses: frozenset[int] = frozenset()
    codes: frozenset[str] = frozenset()
    """Any of these codes, or `text`."""
    text: re.Pattern[str] | None = None
    unless_codes: frozenset[str] = frozenset()
    unless_near: bool = False
    """Not if there is a hint up to `NEAR_HINT`."""
    only_far: bool = False
    """Only if there is a hint above `LONG_HINT`."""
    or_exceeds: bool = False
    """Also if the message names a limit and a request that exceeds it."""

    def fits(self, status: int, found: BodyError, wait: float | None) -> bool:
        """Return whether this row matches a reply that asks to wait for `wait` seconds."""
        if self.statuses and status not in self.statuses:
            return False
        if (self.codes or self.text) and not self._matches(found):
            return False
        if self.unless_codes & found.codes:
            return False
        if self.unless_near and wait is not None and wait <= NEAR_HINT:
            return False
        return not self.only_far or (wait is not None and wait > LONG_HINT)

    def _matches(self, found: BodyError) -> bool:
        matches = self.text is not None and self.text.search(found.words) is not None
        return (
            matches or bool(self.codes & found.codes) or (self.or_exceeds and _exceeds(found.words))
        )


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
"""Rows for replies with the status of a failure."""

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
"""Kinds of failures with the status of a success; the first code in the body applies."""


def find_kind(status: int, found: BodyError, wait: float | None = None) -> ProviderErrorKind:
    """Return the kind of a failure; for callers without a reply to return, a refused prompt is one too.

    Args:
        status: The status of the reply.
        found: The description in its body.
        wait: Seconds that it asks to wait.

    Example:
        >>> no_quota = BodyError(codes=frozenset({"insufficient_quota"}))
        >>> find_kind(429, no_quota), find_kind(429, no_quota, wait=20)
        ('quota_exhausted', 'rate_limited')
    """
    if is_refusal(status, found):
        return "bad_request"
    status = _specificity(status, found)
    if status in SUCCESSES:
        return _kind_inside(found)
    return next((rule.kind for rule in RULES if rule.fits(status, found, wait)), "bad_request")


def is_refusal(status: int, found: BodyError) -> bool:
    """Return whether a failure is a reply, because the service refuses the prompt.

    Example:
        >>> filtered = BodyError(codes=frozenset({"content_filter"}))
        >>> is_refusal(400, filtered), is_refusal(500, filtered)
        (True, False)
    """
    status = _specificity(status, found)
    if status not in REFUSING and status not in SUCCESSES:
        return False
    return found.flags is not None or bool(found.codes & REFUSED_PROMPT)


def _specificity(status: int, found: BodyError) -> int:
    """Return the decisive status: one inside the body counts if that of the reply is not a failure."""
    if status >= HTTPStatus.BAD_REQUEST or found.status is None:
        return status
    return found.status


def _exceeds(text: str) -> bool:
    """Return whether a message says that one request exceeds a limit and so can never succeed."""
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


# The time that a provider asks to wait, from its headers, its body or its message.
#
# Preference: `retry-after-ms`, `retry-after` (seconds or an HTTP date), the delay field of the body, the
# reset time of an exhausted limit, then the text of the message. An ambiguous value is ignored: a wrong wait
# is worse than none.


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
    """Return the wait in seconds, at least 0 and finite, or None if none was requested.

    Args:
        headers: Names in lower case. A date counts from the reply's `date`, which is the time of its
            arrival if the server sent none.
        text: A message that may contain "try again in 1.5s"; None if its text must not be trusted.
        delay: Seconds to wait in a field of the body.

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
    return _stated_wait(text) if reset is None and text is not None else reset


def _duration(text: str) -> float | None:
    """Return a bare number; one that can only be an instant is ignored."""
    number = read_number(text)
    return number if number is not None and number < EPOCH_FROM else None


def _stated_wait(text: str) -> float | None:
    match = ASKED.search(text)
    if match is None:
        return None
    total, at, found = 0.0, match.end(), False
    while (part := PART.match(text, at)) is not None:
        total += float(part[1]) * SECONDS_BY_UNIT[part[2].lower()]
        at, found = part.end(), True
    return total if found and total < EPOCH_FROM else None


EXCERPT_BYTES = 2048
"""Maximum size of a body in an error."""

READ_BYTES = 64 * 1024
"""Maximum size of a body that is searched for codes."""

MESSAGE_LENGTH = 500
"""Maximum characters of a server's text in a message."""

_REDIRECTS = range(300, 400)

TRUSTED: frozenset[ProviderErrorKind] = frozenset({"rate_limited", "overloaded", "quota_exhausted"})
"""Kinds of failures whose message may contain the wait."""


def failure_text(
    title: str, source: str, *, model: str = "", advice: str = "", detail: str = ""
) -> str:
    """Return the message of a failed call over HTTP, in the one form of all providers.

    Equal failures begin with equal text, because reports group errors by text; the server's own message,
    which may name a request or a time, comes last.

    Args:
        title: What happened, with the preposition for the source: `HTTP 404 from`.
        source: Method and URL, from `request_source`.
        model: The model's name; empty if there is none.
        advice: What to check or change.
        detail: The message of the server or the system.

    Example:
        >>> failure_text(
        ...     "HTTP 404 from", "GET http://host/v1", advice="check the URL", detail="No."
        ... )
        'HTTP 404 from GET http://host/v1: check the URL; No.'
    """
    where = f"{title} {source}{f' (model {model})' if model else ''}".strip()
    reason = "; ".join(filter(None, (advice, detail)))
    return f"{where}: {reason}" if reason else where


def classify(
    reply: HttpReply,
    *,
    secrets: Iterable[str] = (),
    host: str = "",
    model: str = "",
    key_source: str = "",
    url_source: str = "apiBaseUrl",
) -> ProviderError:
    """Return the error for a failed reply.

    Args:
        reply: A reply with a status that is not a success, or with an error in its body.
        secrets: Texts that must appear neither in the message nor in the excerpt.
        host: The host that replied; see `read_hints`.
        model: The model's name for the message; empty if there is none.
        key_source: Where the credential comes from, for the message: `OPENAI_API_KEY`.
        url_source: Where the URL comes from, for the message, if there is a model.

    Returns:
        An error whose `retry_after` is the wait that the provider asked for, if any, and whose `hint` is its
        report of its limits.

    Example:
        >>> classify(HttpReply(429, {"retry-after": "7"}, b"")).retry_after
        7.0
    """
    hidden = tuple(secrets)
    found = read_body_error(reply.body)
    headers = {**found.headers, **reply.headers}
    # Rules use a wait only for kinds whose text is trusted too.
    wait = read_retry_after(headers, found.message, delay=found.delay)
    kind = find_kind(reply.status, found, wait)
    if kind not in TRUSTED:
        wait = read_retry_after(headers, delay=found.delay)
    fault, retries = _again(kind, reply.headers.get("x-should-retry", "").strip().lower())
    return ProviderError(
        kind,
        _message(
            reply,
            found,
            hidden,
            _advice(kind, reply, key_source, url_source if model else ""),
            model,
        ),
        status=reply.status,
        retry_after=wait,
        body_excerpt=excerpt(reply.body, hidden),
        fault=fault,
        retries=retries,
        hint=read_hint(headers, host=host),
    )


def find_refusal(reply: HttpReply) -> BodyError | None:
    """Return the reason why a service refuses the prompt; None if a reply is any other failure."""
    found = read_body_error(reply.body)
    return found if is_refusal(reply.status, found) else None


def read_body_error(body: bytes) -> BodyError:
    """Return the error in a JSON body: `error` as an object or a text, or the fields at the top level."""
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
    """Return the beginning of a body, at most 2 KB, without secrets."""
    text = hide(body[:READ_BYTES].decode("utf-8", "replace"), secrets)
    return text.encode("utf-8", "replace")[:EXCERPT_BYTES].decode("utf-8", "ignore")


def clip(text: str, secrets: Sequence[str] = ()) -> str:
    """Return a server's text without secrets, cut to the maximum length of a message."""
    text = hide(text, secrets)
    return text if len(text) <= MESSAGE_LENGTH else f"{text[: MESSAGE_LENGTH - 1]}…"


def _again(kind: ProviderErrorKind, advice: str) -> tuple[Fault, int | None]:
    """Return fault and retries of a kind, adjusted by the service's advice."""
    fault = FAULT_BY_KIND[kind]
    if advice == "true" and fault in (Fault.REFUSED, Fault.FATAL):
        return Fault.TRANSIENT, None
    if advice == "false" and fault in (Fault.TRANSIENT, Fault.RATE_LIMITED):
        return fault, 0
    return fault, None


def _advice(kind: ProviderErrorKind, reply: HttpReply, key_source: str, url_source: str) -> str:
    if kind in ("auth", "permission"):
        return f"check {key_source or 'the credentials'}"
    if kind == "not_found" or reply.status == HTTPStatus.METHOD_NOT_ALLOWED:
        return f"check {url_source} and the model name" if url_source else "check the URL"
    if reply.status in _REDIRECTS and "location" in reply.headers:
        return f"check {url_source or 'the URL'}, redirects are not followed"
    return ""


def _message(
    reply: HttpReply, found: BodyError, secrets: Sequence[str], advice: str, model: str
) -> str:
    detail = clip(found.message, secrets) if found.message else ""
    return reply_text(reply, secrets, model=model, advice=advice, detail=detail)


def reply_text(
    reply: HttpReply,
    secrets: Sequence[str] = (),
    *,
    model: str = "",
    fault: str = "",
    advice: str = "",
    detail: str = "",
) -> str:
    """Return the message about a reply that arrived; see `failure_text`.

    Args:
        reply: The reply; its status and source begin the message.
        secrets: Texts that the source must not contain.
        model: The model's name; empty if there is none.
        fault: What is wrong with the reply, if its status does not say it.
        advice: What to check or change.
        detail: The message of the server.

    Example:
        >>> reply_text(
        ...     HttpReply(200, {}, b"<html>", "GET http://host/v1"),
        ...     fault="the reply is not JSON",
        ...     advice="check the URL",
        ... )
        'HTTP 200 from GET http://host/v1: the reply is not JSON; check the URL'
    """
    advice = "; ".join(filter(None, (fault, advice)))
    if reply.source:
        title, source = f"HTTP {reply.status} from", hide(reply.source, secrets)
        return failure_text(title, source, model=model, advice=advice, detail=detail)
    try:
        phrase = HTTPStatus(reply.status).phrase
    except ValueError:
        phrase = ""
    return failure_text(f"HTTP {reply.status}", phrase, advice=advice, detail=detail)


def _delay(detail: Mapping[str, Any]) -> float | None:
    """Return the delay of a RetryInfo."""
    delay = detail.get("retryDelay")
    return read_duration(delay) if isinstance(delay, str) else None


def _quotas(detail: Mapping[str, Any]) -> Iterator[str]:
    """Yield the quotas of a QuotaFailure or an ErrorInfo."""
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
    """Return the findings of a router's moderation of the prompt."""
    fields = metadata if isinstance(metadata, dict) else {}
    reasons = fields.get("reasons")
    if not (reasons or fields.get("flagged_input")):
        return None
    listed = reasons if isinstance(reasons, list) else []
    return tuple(reason for reason in listed if isinstance(reason, str))


def _text(value: Any) -> str | None:
    return " ".join(value.split()) if isinstance(value, str) and value.strip() else None


def _is_error_status(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599  # noqa: PLR2004 - HTTP

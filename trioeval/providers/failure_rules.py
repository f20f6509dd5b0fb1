"""What failures mean, as a table: the first row that fits wins.

Codes in the body stand above the status, because services use 429 for "too fast" and for "no money" alike,
and some wrap a failure in a 200. A prompt that a service will not take is no failure but an answer, and
`is_refusal` tells the two apart.
"""

import re
from collections.abc import Mapping

import attrs

from trioeval.faults import ProviderErrorKind

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
class Evidence:
    """What is known of a reply that is a failure."""

    status: int
    codes: frozenset[str] = frozenset()
    """Codes and types of the body, in lower case."""
    text: str = ""
    """Its message, and the quotas that it names."""
    hint: float | None = None
    """Seconds that it asks to wait."""
    is_flagged: bool = False
    """Whether it says that the prompt was flagged."""


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

    def fits(self, seen: Evidence) -> bool:
        """Whether this row speaks of such a reply."""
        if self.statuses and seen.status not in self.statuses:
            return False
        if (self.codes or self.text) and not self._is_said(seen):
            return False
        if self.unless_codes & seen.codes:
            return False
        if self.unless_near and seen.hint is not None and seen.hint <= NEAR_HINT:
            return False
        return not self.only_far or (seen.hint is not None and seen.hint > LONG_HINT)

    def _is_said(self, seen: Evidence) -> bool:
        said = self.text is not None and self.text.search(seen.text) is not None
        return said or bool(self.codes & seen.codes) or (self.or_exceeds and _exceeds(seen.text))


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


def find_kind(seen: Evidence) -> ProviderErrorKind:
    """What a failure is; a refusal of the prompt too, for those who have no answer to give.

    Example:
        >>> find_kind(Evidence(429, frozenset({"insufficient_quota"})))
        'quota_exhausted'
        >>> find_kind(Evidence(429, frozenset({"insufficient_quota"}), hint=20))
        'rate_limited'
    """
    if is_refusal(seen):
        return "bad_request"
    if seen.status in SUCCESSES:
        return _kind_inside(seen)
    return next((rule.kind for rule in RULES if rule.fits(seen)), "bad_request")


def is_refusal(seen: Evidence) -> bool:
    """Whether a failure is an answer, because the service will not take the prompt.

    Example:
        >>> is_refusal(Evidence(400, frozenset({"content_filter"})))
        True
        >>> is_refusal(Evidence(500, frozenset({"content_filter"})))
        False
    """
    if seen.status not in REFUSING and seen.status not in SUCCESSES:
        return False
    return seen.is_flagged or bool(seen.codes & REFUSED_PROMPT)


def _exceeds(text: str) -> bool:
    """Whether a message says that one request asks for more than a limit ever allows."""
    limit, requested = _LIMIT_TEXT.search(text), _REQUESTED_TEXT.search(text)
    if limit is None or requested is None:
        return False
    return int(requested[1].replace(",", "")) > int(limit[1].replace(",", ""))


def _kind_inside(seen: Evidence) -> ProviderErrorKind:
    codes = seen.codes
    if codes & (BILLING | QUOTA):
        return "quota_exhausted"
    if "invalid_request_error" in codes and CONTEXT_TEXT.search(seen.text):
        return "context_window"
    for code, kind in KIND_BY_CODE.items():
        if code in codes:
            return kind
    return "rate_limited" if codes & THROTTLE else "server"

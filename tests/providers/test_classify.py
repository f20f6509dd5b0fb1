import json
import math
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import Fault, ProviderError, ProviderErrorKind
from trioeval.providers.http.failures import classify, excerpt
from trioeval.providers.http.wire import HttpReply
from trioeval.rates.throttle import Allowance, RateHint

TOO_LARGE = (
    "Request too large for gpt-4.1 in organization org-x on tokens per min (TPM): "
    "Limit 30000, Requested 41234. The input or output tokens must be reduced."
)


def reply(status: int, error: object = None, **headers: str) -> HttpReply:
    body = b"" if error is None else json.dumps({"error": error}).encode()
    return HttpReply(status, {name.replace("_", "-"): text for name, text in headers.items()}, body)


@pytest.mark.parametrize(
    ("given_reply", "kind"),
    [
        (reply(402), "quota_exhausted"),
        (reply(400, {"code": "billing_not_active"}), "quota_exhausted"),
        (reply(403, {"type": "access_terminated"}), "quota_exhausted"),
        (reply(429, {"code": "billing_hard_limit_reached"}, retry_after="5"), "quota_exhausted"),
        (reply(400, {"message": "Your credit balance is too low."}), "quota_exhausted"),
        (reply(429, {"code": "insufficient_quota"}), "quota_exhausted"),
        (reply(429, {"code": "insufficient_quota"}, retry_after="20"), "rate_limited"),
        (reply(429, {"code": "insufficient_quota"}, retry_after="7200"), "quota_exhausted"),
        (reply(429, {"code": "insufficient_quota", "type": "requests"}), "rate_limited"),
        (reply(429, {"message": "100 requests per day"}, retry_after="9000"), "quota_exhausted"),
        (reply(429, {"code": "RequestsPerDayPerProject"}, retry_after="301"), "quota_exhausted"),
        (reply(429, {"message": "100 requests per day"}, retry_after="60"), "rate_limited"),
        (reply(429, {"message": "slow down"}, retry_after="9000"), "rate_limited"),
        (reply(429), "rate_limited"),
        (reply(429, {"message": TOO_LARGE, "code": "rate_limit_exceeded"}), "context_window"),
        (reply(429, {"message": "Limit 60,000, Requested 60001"}), "context_window"),
        (reply(429, {"message": "Limit 60000, Used 59000, Requested 2000"}), "rate_limited"),
        (reply(429, {"message": "Limit 60000, Requested 60000"}), "rate_limited"),
        (reply(498), "rate_limited"),
        (reply(403, {"status": "rateLimitExceeded"}), "rate_limited"),
        (reply(529), "overloaded"),
        (reply(500, {"type": "overloaded_error"}), "overloaded"),
        (reply(400, {"code": "context_length_exceeded"}), "context_window"),
        (reply(400, {"message": "prompt is too long: 9 tokens"}), "context_window"),
        (reply(400, "This model's maximum context length is 8192"), "context_window"),
        (reply(413), "context_window"),
        (reply(403, {"code": "content_filter"}), "bad_request"),
        (reply(403, {"metadata": {"flagged_input": "x"}}), "bad_request"),
        (reply(500, {"code": "content_filter"}), "server"),
        (reply(400), "bad_request"),
        (reply(405), "bad_request"),
        (reply(415), "bad_request"),
        (reply(422), "bad_request"),
        (reply(418), "bad_request"),
        (reply(307, location="https://other.example"), "bad_request"),
        (reply(401), "auth"),
        (
            reply(400, {"status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}),
            "auth",
        ),
        (reply(403), "permission"),
        (reply(404), "not_found"),
        (reply(410), "not_found"),
        (reply(501), "unsupported"),
        *(
            (reply(status), "server")
            for status in (408, 409, 424, 425, 500, 502, 503, 504, 520, 527)
        ),
    ],
)
def test_status_and_body_determine_the_kind(given_reply: HttpReply, kind: str) -> None:
    """Each row of the table is recognised, and codes take precedence over the status."""
    assert classify(given_reply).kind == kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 429, "message": "busy"}, "rate_limited"),
        ({"code": 503, "message": "down"}, "server"),
        ({"code": "rate_limit_exceeded"}, "rate_limited"),
        ({"type": "overloaded_error"}, "overloaded"),
        ({"code": "insufficient_quota"}, "quota_exhausted"),
        ({"code": "invalid_api_key"}, "auth"),
        ({"code": "model_not_found", "type": "invalid_request_error"}, "not_found"),
        ({"type": "invalid_request_error"}, "bad_request"),
        (
            {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"},
            "context_window",
        ),
        ({"type": "request_too_large"}, "context_window"),
        ({"type": "billing_error"}, "quota_exhausted"),
        ({"code": "invalid_image_format"}, "bad_request"),
        ({"code": "invalid_prompt"}, "bad_request"),
        ({"code": 403, "metadata": {"reasons": ["violence"]}}, "bad_request"),
        ({"code": 403, "metadata": {"reasons": []}}, "permission"),
        ({"code": True}, "server"),
        ("something broke", "server"),
    ],
)
def test_an_error_in_a_success_is_classified_by_its_body(error: object, kind: str) -> None:
    """A failure with status 200 is classified by its body."""
    assert classify(reply(200, error)).kind == kind


@pytest.mark.parametrize(
    ("given_reply", "text"),
    [
        (
            reply(401, {"message": "Incorrect\n  API key"}),
            "auth: HTTP 401 Unauthorized: check the credentials; Incorrect API key",
        ),
        (
            reply(404, "no such model"),
            "not_found: HTTP 404 Not Found: check the URL; no such model",
        ),
        (
            HttpReply(404, {}, b'{"detail": "gone"}'),
            "not_found: HTTP 404 Not Found: check the URL; gone",
        ),
        (
            HttpReply(400, {}, b'[{"error": {"message": "m"}}]'),
            "bad_request: HTTP 400 Bad Request: m",
        ),
        (reply(527), "server: HTTP 527"),
        (
            reply(308, location="https://other.example"),
            "bad_request: HTTP 308 Permanent Redirect: check the URL, redirects are not followed",
        ),
    ],
)
def test_the_message_has_status_and_reason(given_reply: HttpReply, text: str) -> None:
    """The message has the status in words, what to check, and the provider's own message."""
    assert str(classify(given_reply)) == text


def test_a_requested_wait_is_read() -> None:
    """Headers count for any status; texts only if the provider is busy."""
    error_data = {"message": "Please try again in 2s."}
    assert classify(reply(503, retry_after="7")).retry_after == 7
    assert classify(reply(429, error_data)).retry_after == 2
    assert classify(reply(500, error_data)).retry_after is None


@pytest.mark.parametrize(
    ("status", "named"),
    [
        (200, {"code": 429}),
        (200, {"code": "rate_limit_exceeded"}),
        (200, {"type": "overloaded_error"}),
        (403, {"status": "rateLimitExceeded"}),
        (500, {"type": "overloaded_error"}),
        (529, {}),
    ],
)
def test_a_wait_in_a_text_is_used_if_the_provider_is_busy(
    status: int, named: dict[str, object]
) -> None:
    """The text is used even if the status does not show it, as in a stream."""
    error_data = {"message": "Please try again in 3s.", **named}
    assert classify(reply(status, error_data)).retry_after == 3
    assert classify(reply(status, {**error_data, "message": "No."})).retry_after is None
    assert classify(reply(200, {**error_data, "code": 503, "type": None})).retry_after is None


def test_limits_in_a_refused_call_are_read() -> None:
    """Limits of a failed call are used, also from a router; without any the hint is missing."""
    limits = {"x_ratelimit_limit_requests": "14400", "x_ratelimit_remaining_requests": "0"}
    error = classify(reply(429, **limits), host="api.groq.com")
    assert error.hint == RateHint(Allowance(14400, 0, None, 86400))
    inner = {"metadata": {"headers": {"X-RateLimit-Limit": "20", "X-RateLimit-Remaining": "0"}}}
    assert classify(reply(429, inner)).hint == RateHint(Allowance(20, 0))
    assert classify(reply(429)).hint is None


@pytest.mark.parametrize(
    ("kind", "fault", "retries"),
    [
        ("quota_exhausted", Fault.QUOTA_EXHAUSTED, None),
        ("rate_limited", Fault.RATE_LIMITED, None),
        ("overloaded", Fault.RATE_LIMITED, None),
        ("context_window", Fault.REFUSED, None),
        ("bad_request", Fault.REFUSED, None),
        ("unsupported", Fault.REFUSED, None),
        ("auth", Fault.FATAL, None),
        ("permission", Fault.FATAL, None),
        ("not_found", Fault.FATAL, None),
        ("tls", Fault.FATAL, None),
        ("server", Fault.TRANSIENT, None),
        ("connection", Fault.TRANSIENT, None),
        ("malformed_reply", Fault.TRANSIENT, 1),
        ("empty_reply", Fault.TRANSIENT, 1),
    ],
)
def test_each_kind_has_one_effect_on_its_lane(
    kind: ProviderErrorKind, fault: Fault, retries: int | None
) -> None:
    """The kind alone determines retries and scope."""
    error = ProviderError(kind, "m")
    assert (error.fault, error.retries) == (fault, retries)


@pytest.mark.parametrize(
    ("status", "advice", "fault", "retries"),
    [
        (400, "true", Fault.TRANSIENT, None),
        (401, " True", Fault.TRANSIENT, None),
        (402, "true", Fault.QUOTA_EXHAUSTED, None),
        (429, "true", Fault.RATE_LIMITED, None),
        (503, "true", Fault.TRANSIENT, None),
        (400, "false", Fault.REFUSED, None),
        (402, "false", Fault.QUOTA_EXHAUSTED, None),
        (429, "false", Fault.RATE_LIMITED, 0),
        (503, "false", Fault.TRANSIENT, 0),
        (503, "maybe", Fault.TRANSIENT, None),
    ],
)
def test_a_service_may_advise_whether_to_retry(
    status: int, advice: str, fault: Fault, retries: int | None
) -> None:
    """The advice takes precedence over the kind, unless the account is exhausted."""
    error = classify(reply(status, x_should_retry=advice))
    assert (error.fault, error.retries) == (fault, retries)
    assert error.kind == classify(reply(status)).kind


def gemini(delay: object, quota: str = "RequestsPerMinute", **headers: str) -> HttpReply:
    details = [
        "none",
        {"violations": [{"quotaId": f"Generate{quota}"}, {"quotaId": 1}, 2], "retryDelay": 3},
        {"violations": 3, "metadata": {"quota_limit": quota}},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay},
    ]
    error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": details}
    return reply(429, error, **headers)


def test_a_delay_in_the_details_is_a_wait() -> None:
    """Gemini sends the wait only in the body; a header takes precedence."""
    error = classify(gemini("38s"))
    assert (error.kind, error.retry_after) == ("rate_limited", 38.0)
    assert classify(gemini("0s")).retry_after == 0.0
    assert classify(gemini("38s", retry_after="2")).retry_after == 2.0
    assert classify(gemini("soon")).retry_after is None


def test_a_daily_quota_far_from_its_reset_is_exhausted() -> None:
    """The quota's id names the day; near its end it is a wait like others."""
    assert classify(gemini("3600s", "RequestsPerDay")).kind == "quota_exhausted"
    assert classify(gemini("38s", "RequestsPerDay")).kind == "rate_limited"
    assert classify(gemini("3600s")).kind == "rate_limited"


def test_headers_inside_the_body_of_a_router_are_read() -> None:
    """Headers in the body are those of the service behind the router; its own take precedence."""
    date = "Sat, 25 Jul 2026 17:19:30 GMT"  # 30 s before the instant below
    inner = {"X-RateLimit-Remaining": 0, "X-RateLimit-Reset": "1785000000000"}
    error_data = {"message": "busy", "metadata": {"headers": inner}}
    assert classify(reply(429, error_data, date=date)).retry_after == 30.0
    assert classify(reply(429, error_data)).retry_after is None
    assert (
        classify(reply(429, error_data, date=date, x_ratelimit_remaining="5")).retry_after is None
    )
    assert classify(reply(429, {"metadata": {"headers": []}}, date=date)).retry_after is None


def test_a_message_is_short_for_any_reply() -> None:
    """The excerpt has more text; a secret is not cut into an unrecognisable part."""
    error = classify(reply(400, {"message": "x " * 30_000}))
    message = str(error).removeprefix("bad_request: HTTP 400 Bad Request: ")
    assert message == f"{'x ' * 249}x…"
    assert len(message) == 500
    assert len(error.body_excerpt or "") == 2048
    edge = classify(reply(400, {"message": "x" * 495 + "sk-123456"}), secrets=["sk-123456"])
    assert "sk-" not in str(edge)


def test_secrets_are_neither_in_the_message_nor_in_the_excerpt() -> None:
    """A key that a provider repeats is hidden."""
    error = classify(reply(401, {"message": "bad key sk-1234"}), secrets=["sk-1234", ""])
    assert str(error) == "auth: HTTP 401 Unauthorized: check the credentials; bad key [hidden]"
    assert error.body_excerpt == '{"error": {"message": "bad key [hidden]"}}'


def test_a_secret_at_the_edge_of_the_excerpt_is_hidden_completely() -> None:
    """Secrets are hidden before the excerpt is cut."""
    assert "sk-12" not in excerpt(b"x" * 2045 + b"sk-1234567890", ["sk-1234567890"])


def test_an_excerpt_is_at_most_two_kilobytes() -> None:
    """The maximum is in bytes, and no character is cut."""
    cut = excerpt("é".encode() * 5000)
    assert len(cut.encode()) == 2048
    assert set(cut) == {"é"}


def test_large_bodies_are_not_searched_for_codes() -> None:
    """A large page is not searched."""
    body = json.dumps({"error": {"code": "insufficient_quota", "message": "x" * 70_000}})
    assert classify(HttpReply(429, {}, body.encode())).kind == "rate_limited"


VALUES = (
    st.none()
    | st.booleans()
    | st.integers(400, 600)
    | st.sampled_from(
        ["insufficient_quota", "requests", "overloaded_error", "per day", "try again in 1e9h"]
    )
)
FIELDS = st.fixed_dictionaries({}, optional=dict.fromkeys(["code", "type", "message"], VALUES))
BODIES = st.fixed_dictionaries({}, optional={"error": VALUES | FIELDS, "code": VALUES})


@pytest.mark.slow
@given(st.integers(200, 599), st.binary() | BODIES.map(lambda data: json.dumps(data).encode()))
def test_every_reply_has_a_kind(status: int, body: bytes) -> None:
    """No status and no body raises another exception."""
    error = classify(HttpReply(status, {}, body))
    assert error.kind in get_args(ProviderErrorKind)
    assert error.retry_after is None or 0 <= error.retry_after < math.inf

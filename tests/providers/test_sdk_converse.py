import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vendor_bedrock import CONVERSE, answer
from vendor_cases import parse_failure, reply

from trioeval.errors import ProviderError

ADAPTER = CONVERSE.adapter()


def built(messages: object) -> Any:
    return CONVERSE.body(ADAPTER, json.dumps(messages))


def test_system_messages_are_separate() -> None:
    """Converse has a separate field for them; contents become blocks."""
    messages = [
        {"role": "system", "content": "Be brief"},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"text": "there"}]},
        {"role": "assistant", "content": "Hello"},
    ]
    assert built(messages) == {
        "system": [{"text": "Be brief"}],
        "messages": [
            {"role": "user", "content": [{"text": "Hi"}, {"text": "there"}]},
            {"role": "assistant", "content": [{"text": "Hello"}]},
        ],
    }


def test_a_data_uri_becomes_an_image_block() -> None:
    """Format and bytes are those of the HTTP API."""
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}
    body = built([{"role": "user", "content": [part]}])
    (block,) = body["messages"][0]["content"]
    assert block == {"image": {"format": "png", "source": {"bytes": "iVBORw=="}}}


def test_an_image_url_is_refused() -> None:
    """Converse does not fetch URLs."""
    part = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    with pytest.raises(ProviderError, match="bad_request: an image must be a base64 data: URI"):
        built([{"role": "user", "content": [part]}])


def test_texts_are_joined_by_blank_lines() -> None:
    """Most replies are one block."""
    data = answer({"text": "one"}, {"text": "two"})
    assert ADAPTER.parse(reply(data)).output == "one\n\ntwo"


@pytest.mark.parametrize(
    ("status", "code", "message", "kind"),
    [
        (403, "AccessDeniedException", "no", "permission"),
        (429, "ThrottlingException", "slow down", "rate_limited"),
        (429, "ModelNotReadyException", "wait", "rate_limited"),
        (404, "ResourceNotFoundException", "no such model", "not_found"),
        (408, "ModelTimeoutException", "slow", "server"),
        (424, "ModelErrorException", "oops", "server"),
        (500, "InternalServerException", "oops", "server"),
        (503, "ServiceUnavailableException", "oops", "server"),
        (400, "ValidationException", "bad", "bad_request"),
        (400, "ValidationException", "Input is too long for requested model.", "context_window"),
        (400, "ValidationException", "prompt is too long: 9 tokens", "context_window"),
        (400, "ServiceQuotaExceededException", "no more", "quota_exhausted"),
        (403, "UnrecognizedClientException", "who?", "auth"),
        (403, "ExpiredTokenException", "old", "auth"),
        (403, "InvalidSignatureException", "forged", "auth"),
    ],
)
def test_bedrock_error_codes_determine_the_kind(
    status: int, code: str, message: str, kind: str
) -> None:
    """Message, status and wait are read, as in every classified failure."""
    headers = {"x-amzn-errortype": f"{code}:http://internal.amazon.com/", "retry-after": "3"}
    refused = attrs.evolve(reply({"message": message}, status), headers=headers)
    error = parse_failure(ADAPTER, refused)
    assert (error.kind, error.status, error.retry_after) == (kind, status, 3)
    assert message in str(error)


@pytest.mark.parametrize("secret", ["the-secret", "the-session-token"])
@pytest.mark.parametrize("status", [200, 403])
def test_signing_secrets_are_hidden_where_a_server_repeats_them(secret: str, status: int) -> None:
    """Message and excerpt of every error are cleaned."""
    account = {"accessKeyId": "AKIA-1", "secretAccessKey": "the-secret"}
    adapter = CONVERSE.adapter(**account, sessionToken="the-session-token")
    error = parse_failure(adapter, reply({"message": f"Wrong: {secret}."}, status))
    assert secret not in f"{error} {error.body_excerpt}"
    assert "Wrong: [hidden]." in (error.body_excerpt or "")


_NAMES = (
    "output",
    "message",
    "content",
    "stopReason",
    "usage",
    "inputTokens",
    "text",
    "reasoningContent",
    "reasoningText",
    "trace",
    "guardrail",
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(_NAMES) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.slow
@given(content=st.lists(_JSON, max_size=3), stop=st.sampled_from(["end_turn", "x", None]))
def test_any_blocks_give_a_text(content: list[Any], stop: str | None) -> None:
    """Unknown blocks are part of it."""
    try:
        parsed = ADAPTER.parse(reply(answer(*content, stop=stop)))
    except ProviderError as error:
        assert error.kind == "empty_reply"  # noqa: PT017 - one of two right ends
    else:
        assert isinstance(parsed.output, str)

import json
from collections.abc import Mapping
from typing import Any

import pytest
from damaged import JSON, check_parse, damaged
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import ProviderError
from trioeval.providers import HttpReply, Request, Usage
from trioeval.providers.base import Guardrails
from trioeval.providers.http.adapter import AdapterSettings, ServerEvent
from trioeval.providers.vendors.openai_other import ModerationAdapter, read_moderation
from trioeval.providers.vendors.services import SERVICES

OPENAI = SERVICES["openai"]
KEY = {"OPENAI_API_KEY": "sk-1234"}
FLAGGED = {
    "flagged": True,
    "categories": {"hate": True, "hate/threatening": True, "violence": False, "illicit": None},
    "category_scores": {"hate": 0.5, "hate/threatening": 0.75, "violence": 0.001},
}
CLEAN = {"flagged": False, "categories": {"hate": False}, "category_scores": {"hate": 1e-06}}


def adapter(**config: Any) -> ModerationAdapter:
    read = read_moderation(OPENAI, "omni-moderation-latest", config, KEY)
    assert isinstance(read, AdapterSettings)
    assert isinstance(read.adapter, ModerationAdapter)
    return read.adapter


def whole(*results: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": "modr-1", "model": "omni-moderation-x", "results": list(results)}


def ok(data: object) -> HttpReply:
    return HttpReply(200, {}, json.dumps(data).encode())


def test_the_prompt_is_the_text_that_is_judged() -> None:
    """Whatever it looks like; only what is passed through stands beside it."""
    prompt = '[{"role": "user", "content": "Hi"}]'
    ready = adapter(passthrough={"a": 1, "b": 1}).build(
        Request(prompt=prompt, options={"passthrough": {"b": 2}})
    )
    assert (ready.method, ready.url) == ("POST", "https://api.openai.com/v1/moderations")
    assert ready.headers == {"authorization": "Bearer sk-1234"}
    body = {"model": "omni-moderation-latest", "a": 1, "b": 2, "input": prompt}
    assert json.loads(ready.body or b"") == body
    plain = adapter().build(Request(prompt="Hi", options={"passthrough": None})).body or b""
    assert json.loads(plain) == {"model": "omni-moderation-latest", "input": "Hi"}


def test_what_is_not_known_is_told() -> None:
    """In the config, and in the options of a call."""
    read = read_moderation(OPENAI, "m", {"temperature": 0}, {})
    assert isinstance(read, list)
    assert [problem.path for problem in read] == [".config.temperature", ".config.apiKey"]
    with pytest.raises(ProviderError, match=r"temperature: .* is not a key"):
        adapter().build(Request(prompt="Hi", options={"temperature": 0}))


def test_a_flagged_text_is_told_with_its_reasons() -> None:
    """The judgement is the output; the flags are in the metadata, the surest first."""
    reply = adapter().parse(ok(whole(FLAGGED)))
    assert reply.output == {
        "flagged": True,
        "categories": {"hate": True, "hate/threatening": True, "violence": False},
        "category_scores": {"hate": 0.5, "hate/threatening": 0.75, "violence": 0.001},
    }
    assert reply.guardrails == Guardrails(
        flagged=True, flagged_input=True, reason="hate/threatening, hate"
    )
    assert reply.metadata == {
        "http": {"status": 200, "headers": {}},
        "id": "modr-1",
        "model": "omni-moderation-x",
        "flags": [
            {"code": "hate/threatening", "description": "hate: threatening", "confidence": 0.75},
            {"code": "hate", "description": "hate", "confidence": 0.5},
        ],
    }
    assert (reply.usage, reply.cost, reply.is_refusal) == (Usage(), None, False)


def test_a_clean_text_has_no_flags() -> None:
    """And guardrails that say so."""
    reply = adapter().parse(ok(whole(CLEAN)))
    assert reply.output == CLEAN
    assert reply.guardrails == Guardrails(flagged=False)
    assert reply.metadata["flags"] == []


def test_a_flag_without_a_score_is_one() -> None:
    """What the service does not say is not made up; it comes after what it does."""
    said = {"flagged": True, "categories": {"a": True, "b": True}, "category_scores": {"b": 0.1}}
    flags = adapter().parse(ok(whole(said))).metadata["flags"]
    assert [(flag["code"], flag["confidence"]) for flag in flags] == [("b", 0.1), ("a", None)]


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (ok(whole()), "empty_reply: the reply holds no result"),
        (ok({}), "malformed_reply: the reply holds no result"),
        (ok(whole({"flagged": 1})), "malformed_reply: the reply holds no result"),
        (HttpReply(200, {}, b"<html>"), "malformed_reply: the reply is not JSON"),
        (
            HttpReply(401, {}, b'{"error": {"message": "bad key sk-1234"}}'),
            "auth: HTTP 401 Unauthorized: bad key [hidden]",
        ),
    ],
)
def test_what_is_no_answer_is_an_error(reply: HttpReply, told: str) -> None:
    """Each way of not answering has its kind."""
    with pytest.raises(ProviderError) as caught:
        adapter().parse(reply)
    assert str(caught.value) == told


def test_judgements_do_not_come_in_streams() -> None:
    """There is no first token to wait for."""
    assert not adapter().streams
    assert not adapter().speaks(ServerEvent("{}"))


@pytest.mark.slow
@given(st.sampled_from([200, 200, 400, 500]), damaged(whole(FLAGGED)) | JSON)
def test_any_json_is_read_or_fails_in_a_known_way(status: int, data: Any) -> None:
    """Nothing that a service says breaks the adapter."""
    check_parse(adapter(), HttpReply(status, {}, json.dumps(data).encode()))

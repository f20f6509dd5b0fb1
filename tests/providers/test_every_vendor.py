"""The laws of all vendors' adapters; a record for each vendor describes its API."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from damaged import JSON, check_parse, damaged
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback import Answer, serve
from vendor_anthropic import MESSAGES
from vendor_bedrock import CONVERSE
from vendor_cases import (
    COOKIE,
    HEADERS,
    KEY,
    STREAM,
    Call,
    Data,
    Mistake,
    Refusal,
    Stream,
    Streamed,
    Texts,
    Vendor,
    build_failure,
    parse_failure,
    reply,
)
from vendor_google import GENERATE
from vendor_huggingface import ENTITIES, FEATURES, GENERATED, LABELS
from vendor_openai import CHAT
from vendor_replicate import PREDICTIONS
from vendor_responses import RESPONSES
from vendor_vectors import EMBED_CONTENT, EMBEDDINGS, MODERATIONS
from vendor_vertex import EXPRESS

from trioeval.errors import Problem, ProviderError
from trioeval.providers.base import Guardrails, Request
from trioeval.providers.http.adapter import HttpProvider
from trioeval.providers.http.client import open_http
from trioeval.providers.http.streams import ServerEvent
from trioeval.providers.http.wire import HttpReply
from trioeval.usage import Usage

VENDORS = (
    *(CHAT, RESPONSES, MESSAGES, GENERATE, CONVERSE, EMBEDDINGS, EMBED_CONTENT, MODERATIONS),
    *(GENERATED, LABELS, ENTITIES, FEATURES, EXPRESS, PREDICTIONS),
)
IN_WORDS = tuple((vendor, vendor.texts) for vendor in VENDORS if vendor.texts is not None)
STREAMING = tuple((vendor, vendor.stream) for vendor in VENDORS if vendor.stream is not None)
OVER_HTTP = tuple(
    vendor for vendor in VENDORS if vendor is not CONVERSE
)  # boto3 has its own client


def name(value: object) -> str:
    """Return the vendor's part of a test's id."""
    return value.name if isinstance(value, Vendor) else ""


def rows(names: str, found: Iterable[tuple[Vendor, Any]]) -> pytest.MarkDecorator:
    """Return one test for each vendor and row, numbered by vendor."""
    number: Counter[str] = Counter()
    cases = []
    for vendor, row in found:
        number[vendor.name] += 1
        cases.append(pytest.param(vendor, row, id=f"{vendor.name}-{number[vendor.name]}"))
    return pytest.mark.parametrize(("vendor", names), cases)


def each(names: str, of: Callable[[Vendor], Iterable[Any]]) -> pytest.MarkDecorator:
    """Parametrise a test with each row of each vendor."""
    return rows(names, ((vendor, row) for vendor in VENDORS for row in of(vendor)))


def each_text(names: str, of: Callable[[Texts], Iterable[Any]]) -> pytest.MarkDecorator:
    """Parametrise a test with each row of the vendors that return text."""
    return rows(names, ((vendor, row) for vendor, texts in IN_WORDS for row in of(texts)))


def each_stream(names: str, of: Callable[[Stream], Iterable[Any]]) -> pytest.MarkDecorator:
    """Parametrise a test with each row of the vendors that stream."""
    return rows(
        names, ((vendor, (stream, row)) for vendor, stream in STREAMING for row in of(stream))
    )


every = pytest.mark.parametrize("vendor", VENDORS, ids=name)
in_words = pytest.mark.parametrize(("vendor", "texts"), IN_WORDS, ids=name)
streaming = pytest.mark.parametrize(("vendor", "stream"), STREAMING, ids=name)


# --- requests ------------------------------------------------------------------


@every
def test_the_smallest_request_contains_model_prompt_defaults_and_key(vendor: Vendor) -> None:
    """The request contains nothing else."""
    ready = vendor.adapter().build(Request(prompt="Hi"))
    assert (ready.method, ready.url, ready.headers) == ("POST", vendor.url, vendor.headers)
    assert json.loads(ready.body or b"") == {**vendor.asked, **vendor.defaults}


@each("row", lambda vendor: vendor.sends)
def test_parameters_are_sent_under_their_names(vendor: Vendor, row: tuple[Data, Data]) -> None:
    """Keys are accepted in any spelling; `passthrough` takes precedence."""
    config, fields = row
    assert vendor.body(vendor.adapter(**config)) == {**vendor.asked, **fields}


@each("call", lambda vendor: vendor.calls)
def test_options_of_a_call_override_the_config(vendor: Vendor, call: Call) -> None:
    """Options are accepted in any spelling for one call; null removes a value of the config."""
    adapter = vendor.adapter(**call.config)
    before = vendor.body(adapter)
    assert vendor.body(adapter, **call.options) == {**vendor.asked, **call.sent}
    assert vendor.body(adapter.with_options(call.options)) == {**vendor.asked, **call.sent}
    assert vendor.body(adapter) == before
    assert {key: before[key] for key in call.plain} == call.plain


@each("row", lambda vendor: vendor.wrong_options)
def test_invalid_options_of_a_call_are_reported_together(
    vendor: Vendor, row: tuple[Data, str]
) -> None:
    """No request is sent, and the call is not retried."""
    options, problem = row
    message = f"invalid call options: {problem}"
    assert build_failure(vendor.adapter(), "Hi", **options) == message


ADVISED = ("auth", "permission", "not_found")
"""Kinds whose message says what to check, before the words of the service."""


@every
@pytest.mark.parametrize("key", ["apiKey", "apiBaseUrl"])
def test_options_of_a_call_change_neither_account_nor_address(vendor: Vendor, key: str) -> None:
    """The call belongs to the lane of its entry; the value is not shown."""
    message = build_failure(vendor.adapter(), "Hi", **{key: "sk-other"})
    assert message.startswith(f'invalid call options: {key}: "{key}" is not a key')
    assert "sk-other" not in message


@each("row", lambda vendor: vendor.unsendable)
def test_an_unsupported_prompt_is_not_sent(vendor: Vendor, row: tuple[str, str]) -> None:
    """The prompt is refused before anything is paid."""
    prompt, reason = row
    assert build_failure(vendor.adapter(), prompt) == f"invalid prompt: {reason}"


@every
@pytest.mark.parametrize("prompt", ['[{"role": "user"', '[{"role": "user"}, {"a": 1}]'])
def test_broken_messages_are_not_sent(vendor: Vendor, prompt: str) -> None:
    """Text that starts like messages was meant to be messages; an API without messages accepts any text."""
    if vendor.texts is not None:
        message = build_failure(vendor.adapter(), prompt)
        assert message.startswith("invalid prompt: ")
    else:
        body = json.dumps(vendor.body(vendor.adapter(), prompt))
        assert json.dumps(prompt) in body


CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "file", "file": {}}]},
    {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "clock"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "12:30"},
    {"role": "user", "parts": [{"text": "So?"}]},
]
# A law holds for all vendors, so that its examples are spread over them.
few = settings(max_examples=settings().max_examples // 4)
DEFAULT_ADAPTERS = {vendor.name: vendor.priced() for vendor in VENDORS}


@pytest.mark.slow
@every
@few
@given(prompt=st.text() | (damaged(CONVERSATION) | JSON).map(json.dumps))
def test_any_prompt_is_built_or_refused(vendor: Vendor, prompt: str) -> None:
    """A request is JSON with all required fields, whatever the prompt."""
    adapter = DEFAULT_ADAPTERS[vendor.name]
    try:
        ready = adapter.build(Request(prompt=prompt))
    except ProviderError as error:
        assert error.kind == "bad_request"  # noqa: PT017 - most prompts raise nothing
    else:
        sent = json.loads(ready.body or b"", parse_constant=pytest.fail)
        assert all(sent[field] for field in vendor.asked if prompt)


# --- replies -------------------------------------------------------------------


@every
def test_a_reply_is_read_with_usage_cost_and_origin(vendor: Vendor) -> None:
    """Output, finish reason, tokens, cost, id and model are read; cookies are not kept."""
    answer = vendor.priced().parse(reply(vendor.good))
    http = {"status": 200, "headers": HEADERS}
    assert answer.cost == pytest.approx(vendor.answer.cost)
    assert answer == attrs.evolve(
        vendor.answer,
        raw=vendor.good,
        cost=answer.cost,
        metadata={"http": http, **vendor.answer.metadata},
    )
    assert answer.hint is None
    assert answer.log_probs is None


@every
def test_limits_in_a_reply_are_read(vendor: Vendor) -> None:
    """Good replies, refusals and failures report limits."""
    _, hint = vendor.limits
    adapter = vendor.adapter()
    assert adapter.parse(vendor.limited(vendor.good)).hint == hint
    assert parse_failure(adapter, vendor.limited(vendor.fail("No."), 429)).hint == hint
    filtered = {"error": {"code": "content_filter"}}
    assert adapter.parse(vendor.limited(filtered, 400)).hint == hint


@every
@pytest.mark.parametrize("count", ["7", -1, 10**400, True, None])
def test_unreported_numbers_stay_absent(vendor: Vendor, count: object) -> None:
    """Neither usage nor cost is invented."""
    if vendor.usage is None:
        assert vendor.adapter().parse(reply(vendor.good)).usage == Usage()
        return
    field, prompt = vendor.usage
    odd: tuple[object, ...] = (None, [], {prompt: count})
    for usage in odd:
        answer = vendor.priced().parse(reply({**vendor.good, field: usage}))
        assert (answer.usage, answer.cost) == (Usage(), None)


@in_words
@pytest.mark.parametrize("text", ["", "4", "Ein Gruß 😀", '{"sum": 4}', "[1]"])
def test_a_text_is_the_output(vendor: Vendor, texts: Texts, text: str) -> None:
    """The text is unchanged; an empty one is a reply."""
    assert vendor.adapter().parse(reply(texts.say(text))).output == text


@in_words
@pytest.mark.parametrize(
    ("text", "output"),
    [
        ('{"sum": 4}', {"sum": 4}),
        ('{"sum": ', '{"sum": '),
        ('{"sum": NaN}', '{"sum": NaN}'),
    ],
)
def test_a_reply_by_a_schema_is_data(
    vendor: Vendor, texts: Texts, text: str, output: object
) -> None:
    """The schema may be in the config or in a call; thinking is ignored, text that is not JSON stays text."""
    if texts.schema is None:
        assert vendor.adapter().parse(reply(texts.say(text))).output == text
        return
    with_schema, plain = vendor.adapter(**texts.schema), vendor.adapter()
    answer = reply(texts.say(text))
    assert with_schema.parse(answer).output == output
    assert plain.with_options(texts.schema).parse(answer).output == output
    assert with_schema.with_options(dict.fromkeys(texts.schema)).parse(answer).output == text
    if not isinstance(output, str):
        assert with_schema.parse(reply(texts.think("Two and two.", text))).output == output


@in_words
def test_thinking_is_shown_on_request(vendor: Vendor, texts: Texts) -> None:
    """Thinking then precedes the text; without it, the output may be empty."""
    answer = reply(texts.think("2 + 2", "4"))
    shown = vendor.adapter(showThinking=True).parse(answer)
    assert shown.output == f"Thinking: 2 + 2{texts.gap}4"
    assert (shown.text, shown.reasoning) == ("4", "2 + 2")
    hidden = vendor.adapter()
    assert hidden.parse(reply(texts.say("4"))).output == "4"
    assert hidden.parse(answer).output == "4"
    assert hidden.parse(reply(texts.think("2 + 2", ""))).output == ""


@in_words
def test_a_tool_call_is_the_output(vendor: Vendor, texts: Texts) -> None:
    """Assertions can read the call."""
    data, output = texts.called
    assert vendor.adapter().parse(reply(data)).output == output


@each_text("row", lambda texts: texts.stops)
def test_finish_reasons_have_common_names(vendor: Vendor, row: tuple[Data, str | None]) -> None:
    """A reason without a common word stays unchanged, in lower case."""
    data, reason = row
    answer = vendor.adapter().parse(reply(data))
    assert (answer.finish_reason, answer.is_refusal) == (reason, False)
    assert answer.guardrails is None


@each_text("refusal", lambda texts: texts.refusals)
def test_a_refusal_is_a_reply(vendor: Vendor, refusal: Refusal) -> None:
    """Text before the refusal is kept; the reply is marked with the reason."""
    answer = vendor.adapter().parse(reply(refusal.data, refusal.status))
    assert (answer.output, answer.is_refusal) == (refusal.output, True)
    assert answer.finish_reason == refusal.finish_reason
    assert answer.guardrails == refusal.guardrails
    assert answer.metadata["http"]["status"] == refusal.status
    assert answer.raw is not None
    assert (answer.usage != Usage()) == any(key.startswith("usage") for key in refusal.data)


@every
@pytest.mark.parametrize("code", ["content_filter", "invalid_prompt", "content_policy_violation"])
@pytest.mark.parametrize("status", [200, 400, 403])
def test_a_prompt_refused_by_a_gateway_concerns_this_prompt_alone(
    vendor: Vendor, code: str, status: int
) -> None:
    """It is a refusal, whatever the API; the key is not shown."""
    answer = reply({"error": {"code": code, "message": f"Not allowed for {KEY}."}}, status)
    detail = "Not allowed for [hidden]."
    refused = vendor.adapter().parse(answer)
    assert (refused.output, refused.finish_reason) == (detail, "content_filter")
    assert refused.is_refusal
    assert refused.guardrails == Guardrails(flagged=True, flagged_input=True, reason=detail)
    assert refused.metadata == {"http": {"status": status, "headers": HEADERS}}


@each_text("data", lambda texts: texts.nothing)
def test_an_empty_reply_is_an_error(vendor: Vendor, data: Data) -> None:
    """It is retried once unless it was cut off; its cost is in the error."""
    texts = vendor.texts
    assert texts is not None
    error = parse_failure(vendor.priced(), vendor.limited(data))
    assert str(error) == f"empty_reply: HTTP 200 OK: the {texts.what} is empty (finish reason stop)"
    assert (error.retries, error.usage, error.hint) == (1, vendor.answer.usage, vendor.limits[1])
    assert error.tokens == vendor.answer.usage.total
    assert error.money == pytest.approx(vendor.answer.cost)
    cut_off = parse_failure(vendor.adapter(), reply(texts.cut(data)))
    assert str(cut_off) == (
        f"empty_reply: HTTP 200 OK: the {texts.what} is empty (finish reason length)"
        f"; raise {texts.limit}, or shorten the prompt"
    )
    assert cut_off.retries == 0


@in_words
def test_a_lone_surrogate_does_not_reach_the_output(vendor: Vendor, texts: Texts) -> None:
    """Everything in a reply can be written as UTF-8, and whole pairs are unchanged."""
    assert vendor.adapter().parse(reply(texts.say("😀 \ud83d"))).output == "😀 ?"


# --- failures ------------------------------------------------------------------


@each("row", lambda vendor: vendor.strangers)
def test_an_invalid_success_is_an_error(vendor: Vendor, row: tuple[Data, str]) -> None:
    """Each invalid success has its kind, and no error shows the key."""
    data, expected = row
    error = parse_failure(vendor.adapter(), reply(data))
    assert (str(error), error.status) == (expected, 200)
    assert KEY not in str(error.body_excerpt)


@every
@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (
            200,
            b"[1]",
            "the reply is not a JSON object",
        ),
        (200, b"<html>", "the reply is not JSON"),
        (
            200,
            b'{"a": "\xff"}',
            "the reply is not JSON",
        ),
        (
            200,
            b'{"a": "\xed\xa0\x80"}',
            "the reply is not JSON",
        ),
        (200, b"", "the reply is not JSON"),
        (
            200,
            b"[" * 100_000,
            "the reply is not JSON",
        ),
        (204, b"", "the reply is not JSON"),
    ],
)
def test_a_success_that_is_not_an_object_is_malformed(
    vendor: Vendor, status: int, body: bytes, message: str
) -> None:
    """It is retried once; a list is an object with one member for APIs that reply with lists."""
    if vendor.lists and body == b"[1]":
        return
    adapter = vendor.adapter()
    error = parse_failure(adapter, HttpReply(status, {}, body, "POST http://host/v1"))
    source = f"HTTP {status} from POST http://host/v1 (model {adapter.endpoint.model})"
    assert (
        str(error) == f"malformed_reply: {source}: {message}; check {adapter.endpoint.url_source}"
    )
    assert (error.status, error.retries) == (status, 1)


@every
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "bad_request"),
        (401, "auth"),
        (402, "quota_exhausted"),
        (403, "permission"),
        (404, "not_found"),
        (408, "server"),
        (413, "context_window"),
        (422, "bad_request"),
        (429, "rate_limited"),
        (500, "server"),
        (503, "server"),
        (504, "server"),
        (529, "overloaded"),
    ],
)
def test_the_status_determines_the_kind(vendor: Vendor, status: int, kind: str) -> None:
    """The message has the service's text and the wait is read; no error shows the key."""
    answer = attrs.evolve(reply(vendor.fail(f"No, {KEY}."), status), headers={"retry-after": "3"})
    error = parse_failure(vendor.adapter(), answer)
    assert (error.kind, error.status, error.retry_after) == (kind, status, 3)
    assert error.message.startswith(f"HTTP {status}")
    assert error.message.endswith("; No, [hidden]." if kind in ADVISED else ": No, [hidden].")
    assert KEY not in f"{error!r} {error.body_excerpt}"


@each("row", lambda vendor: vendor.errors)
def test_errors_of_the_api_have_their_kinds(vendor: Vendor, row: tuple[int, Data, str]) -> None:
    """Status, code and message determine it."""
    status, data, kind = row
    error = parse_failure(vendor.adapter(), reply(data, status))
    assert (error.kind, error.status) == (kind, status)


@every
def test_an_error_inside_a_success_is_that_error(vendor: Vendor) -> None:
    """The status is then ignored."""
    data = {"error": {"code": "rate_limit_exceeded", "message": f"Slow down, {KEY}"}}
    error = parse_failure(vendor.adapter(), reply(data))
    assert str(error) == "rate_limited: HTTP 200 OK: Slow down, [hidden]"


# --- streams -------------------------------------------------------------------


def test_a_complete_reply_has_no_first_token() -> None:
    """Such replies have no time to the first token."""
    for vendor in VENDORS:
        if vendor.stream is None:
            assert not vendor.adapter().streams
            assert not vendor.adapter().has_output(ServerEvent(json.dumps(vendor.good)))
            found = vendor.read({"metrics": "ttft"})
            assert isinstance(found, list)
            assert [problem.message for problem in found] == ['"metrics" is not a key']


@streaming
def test_a_stream_is_requested_to_time_its_first_token(vendor: Vendor, stream: Stream) -> None:
    """Body or URL request the stream; without the key, and with an empty list, replies are complete."""
    for metrics in ("ttft", ["ttft"]):
        adapter = vendor.adapter(metrics=metrics)
        ready = adapter.build(Request(prompt="Hi"))
        assert adapter.streams
        assert b'"stream":true' in (ready.body or b"") or ready.url.endswith(
            ":streamGenerateContent?alt=sse"
        )
    quiet = vendor.adapter(metrics=[])
    assert not quiet.streams
    assert quiet.build(Request(prompt="Hi")) == vendor.adapter().build(Request(prompt="Hi"))


@each_stream("row", lambda stream: stream.cases)
def test_a_streamed_reply_equals_the_complete_one(
    vendor: Vendor, row: tuple[Stream, Streamed]
) -> None:
    """Only metadata of the exchange differs."""
    stream, case = row
    adapter = vendor.priced(metrics="ttft", **case.config)
    whole = adapter.parse(reply(case.whole))
    parts = adapter.parse(HttpReply(200, STREAM, stream.write(case.events)))
    assert parts == attrs.evolve(
        whole, metadata={**whole.metadata, "http": {"status": 200, "headers": STREAM}}
    )


@streaming
def test_an_unstreamed_reply_to_a_stream_request_is_read_plainly(
    vendor: Vendor, stream: Stream
) -> None:
    """The content type determines this, unless the call failed."""
    adapter = vendor.adapter(metrics="ttft")
    assert adapter.parse(reply(vendor.good)).output == vendor.answer.output
    failed = attrs.evolve(reply(vendor.fail("Down."), 503), headers=STREAM)
    assert str(parse_failure(adapter, failed)) == "server: HTTP 503 Service Unavailable: Down."


@streaming
def test_an_incomplete_stream_is_not_a_reply(vendor: Vendor, stream: Stream) -> None:
    """Any part of a stream without its end fails."""
    adapter, events = vendor.adapter(metrics="ttft"), stream.cases[0].events
    whole = stream.write(events)
    for length in range(len(events) - stream.spare):
        partial = stream.write(events[:length])
        for body in (partial, whole[: len(partial) + 7]):
            error = parse_failure(adapter, HttpReply(200, STREAM, body))
            assert str(error) == (
                "connection: HTTP 200 OK: the stream ended before the reply was complete"
            )
    complete = stream.write(events[: len(events) - stream.spare])
    assert adapter.parse(HttpReply(200, STREAM, complete)).output == "Four"


@each_stream("row", lambda stream: stream.errors)
def test_an_error_in_a_stream_is_that_error(
    vendor: Vendor, row: tuple[Stream, tuple[Any, str]]
) -> None:
    """The status was sent before the error; unknown events are ignored."""
    stream, (event, message) = row
    body = stream.write(stream.cases[0].events[:1]) + b"data: {\n\n" + stream.write([event])
    error = parse_failure(vendor.adapter(metrics="ttft"), HttpReply(200, STREAM, body))
    assert str(error) == message


@each_stream("row", lambda stream: stream.speech)
def test_the_first_token_is_the_first_part_of_an_output(
    vendor: Vendor, row: tuple[Stream, tuple[ServerEvent, bool]]
) -> None:
    """Thinking and tool calls count; events that only describe the reply do not."""
    _, (event, has_output) = row
    assert vendor.adapter(metrics="ttft").has_output(event) is has_output


# --- any input ------------------------------------------------------------------


def bodies(vendor: Vendor) -> st.SearchStrategy[Any]:
    """Damaged bodies of a vendor."""
    known = [vendor.good, *vendor.samples]
    if vendor.stream is not None:
        known += [case.whole for case in vendor.stream.cases]
    if vendor.texts is not None:
        known += [vendor.texts.called[0], *(one.data for one in vendor.texts.refusals)]
    return st.sampled_from(known).flatmap(damaged) | JSON


SCHEMA_ADAPTERS = {
    vendor.name: vendor.priced(**((vendor.texts and vendor.texts.schema) or {}))
    for vendor in VENDORS
}
BODIES = {vendor.name: bodies(vendor) for vendor in VENDORS}


@pytest.mark.slow
@every
@few
@given(data=st.data(), status=st.sampled_from([200, 200, 200, 302, 400, 403, 429, 500]))
def test_any_json_is_read_or_fails_in_a_known_way(
    vendor: Vendor, data: st.DataObject, status: int
) -> None:
    """No body raises another exception, and every reply can be written."""
    answer = reply(data.draw(BODIES[vendor.name]), status)
    check_parse(SCHEMA_ADAPTERS[vendor.name], answer)


@pytest.mark.slow
@streaming
@few
@given(data=st.data())
def test_any_stream_is_read_or_fails_in_a_known_way(
    vendor: Vendor, stream: Stream, data: st.DataObject
) -> None:
    """Damaged events and cuts raise no other exception."""
    case = data.draw(st.sampled_from(stream.cases))
    events = data.draw(damaged(list(case.events)))
    body = stream.write(events if isinstance(events, list) else [events])
    cut = data.draw(st.integers(0, len(body)))
    answer = HttpReply(200, STREAM, body[:cut] if cut % 2 else body)
    check_parse(SCHEMA_ADAPTERS[vendor.name], answer)


@pytest.mark.slow
@every
@few
@given(
    status=st.sampled_from([200, 200, 200, 400, 429, 500]),
    body=st.binary(max_size=200),
    headers=st.sampled_from([HEADERS, STREAM]),
)
def test_any_bytes_are_read_or_fail_in_a_known_way(
    vendor: Vendor, status: int, body: bytes, headers: dict[str, str]
) -> None:
    """Invalid encodings raise no other exception."""
    check_parse(SCHEMA_ADAPTERS[vendor.name], HttpReply(status, headers, body))


# --- entries -------------------------------------------------------------------


@every
def test_a_lane_is_one_account_and_model_and_contains_no_key(vendor: Vendor) -> None:
    """Parameters do not change it; neither service nor settings show secrets."""
    settings = vendor.read({})
    other = vendor.read({"price": {"input": 2, "output": 3}})
    assert not isinstance(settings, list)
    assert not isinstance(other, list)
    assert settings.lane_key == other.lane_key == vendor.lane
    assert settings.secrets == vendor.secrets
    assert not any(secret in f"{settings!r} {settings.lane_key}" for secret in vendor.secrets)


@each("mistake", lambda vendor: vendor.mistakes)
def test_each_mistake_is_reported_before_the_first_call(vendor: Vendor, mistake: Mistake) -> None:
    """A problem has the place and what to do."""
    assert vendor.read(mistake.config, mistake.environ, mistake.entry) == list(mistake.problems)


@every
def test_all_mistakes_are_reported_together(vendor: Vendor) -> None:
    """Problems of config, URL and environment are reported together."""
    address = "endpointUrl" if vendor is CONVERSE else "apiBaseUrl"
    found = vendor.read({"maxRespnseBytes": 1, address: "nowhere"}, {})
    assert isinstance(found, list)
    unknown = [problem for problem in found if problem.path == ".config.maxRespnseBytes"]
    assert [problem.message for problem in unknown] == ['"maxRespnseBytes" is not a key']
    nowhere = Problem(f".config.{address}", "must be an http or https URL with a host")
    assert nowhere in found
    assert vendor.missing in found
    assert len(found) == 3


# --- over sockets --------------------------------------------------------------


every_way = pytest.mark.parametrize(
    ("vendor", "streams"),
    [
        pytest.param(vendor, streams, id=f"{vendor.name}-{'streamed' if streams else 'whole'}")
        for vendor in OVER_HTTP
        for streams in ((False, True) if vendor.stream is not None else (False,))
    ],
)


def written(vendor: Vendor, *, streams: bool) -> Answer:
    """Return a good reply as sent by a server."""
    if not streams:
        return Answer(200, json.dumps(vendor.good).encode(), HEADERS | COOKIE)
    assert vendor.stream is not None
    return Answer(200, vendor.stream.write(vendor.stream.cases[0].events), STREAM)


@pytest.mark.network
@every_way
def test_a_request_is_sent_as_built_and_its_reply_read(vendor: Vendor, streams: bool) -> None:  # noqa: FBT001
    """One exchange is made; a stream reports the time of its first token."""

    async def main() -> None:
        async with (
            serve(lambda _: written(vendor, streams=streams)) as server,
            open_http() as client,
        ):
            config: dict[str, Any] = {"apiBaseUrl": server.url}
            adapter = vendor.adapter(**config, **({"metrics": "ttft"} if streams else {}))
            ready = adapter.build(Request(prompt="Hi"))
            answer = await HttpProvider(adapter, client)(Request(prompt="Hi"))
        assert answer.output == vendor.answer.output
        assert (answer.first_token is not None) == streams
        assert answer.first_token is None or 0 < answer.first_token < 30
        (seen,) = server.seen
        assert (seen.method, server.url + seen.target) == ("POST", ready.url)
        assert seen.body == ready.body
        assert vendor.headers.items() <= seen.headers.items()

    trio.run(main)


@pytest.mark.network
@every_way
def test_a_cancelled_call_closes_its_connection(vendor: Vendor, streams: bool) -> None:  # noqa: FBT001
    """The connection closes at once, so that the service can stop."""

    async def main() -> None:
        with trio.fail_after(30):
            arrived, closed = trio.Event(), trio.Event()

            async def hold(stream: trio.SocketStream) -> None:
                await stream.receive_some()
                arrived.set()
                while await stream.receive_some():
                    pass
                closed.set()

            async with trio.open_nursery() as nursery, open_http() as client:
                listeners = await nursery.start(partial(trio.serve_tcp, hold, 0, host="127.0.0.1"))
                url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
                adapter = vendor.adapter(apiBaseUrl=url, **({"metrics": "ttft"} if streams else {}))
                async with trio.open_nursery() as calls:
                    calls.start_soon(HttpProvider(adapter, client), Request(prompt="Hi"))
                    await arrived.wait()
                    calls.cancel_scope.cancel()
                await closed.wait()
                nursery.cancel_scope.cancel()

    trio.run(main)

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from damaged import JSON, check_parse, damaged
from fake_runs import with_raw_server
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import Problem, ProviderError
from trioeval.providers.base import Guardrails, Reply, Request
from trioeval.providers.config import Surroundings
from trioeval.providers.fake import FakeAddress
from trioeval.providers.http.adapter import AdapterSettings, HttpProvider, ServerEvent
from trioeval.providers.http.wire import HttpClient, HttpReply
from trioeval.providers.vendors.anthropic import MessagesAdapter, read
from trioeval.providers.vendors.streams import join_stream
from trioeval.rates.throttle import Allowance, RateHint
from trioeval.templates import Templates
from trioeval.usage import Usage

TEMPLATES = Templates()
KEY = {"ANTHROPIC_API_KEY": "sk-ant-1234"}
HEADERS = {"content-type": "application/json", "request-id": "req_1", "set-cookie": "a=b"}
STREAM = {**HEADERS, "content-type": "text/event-stream; charset=utf-8"}
MODEL = "claude-haiku-4-5"

SCHEMA = {"type": "object", "properties": {"sum": {"type": "integer"}}}
FORMAT = {"type": "json_schema", "schema": SCHEMA}
CHAT_FORMAT = {"type": "json_schema", "json_schema": {"name": "sums", "schema": SCHEMA}}
CLOCK = {"name": "clock", "description": "Tells the time", "input_schema": {"type": "object"}}
CHAT_CLOCK = {
    "type": "function",
    "function": {
        "name": "clock",
        "description": "Tells the time",
        "parameters": {"type": "object"},
    },
}
THINKING = {"type": "enabled", "budget_tokens": 4000}

TEXT = {"type": "text", "text": "It is four."}
THOUGHT = {"type": "thinking", "thinking": "Two and two.", "signature": "c2ln"}
TOOL_USE = {"type": "tool_use", "id": "toolu_1", "name": "clock", "input": {"zone": "UTC"}}
SEARCH = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "sums"},
}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"type": "web_search_result", "title": "Sums", "url": "https://sums.example"}],
}
CITED = {
    "type": "text",
    "text": "Four, they say.",
    "citations": [{"type": "web_search_result_location", "url": "https://sums.example"}],
}
USAGE = {
    "input_tokens": 20,
    "cache_creation_input_tokens": 300,
    "cache_read_input_tokens": 1000,
    "output_tokens": 60,
    "output_tokens_details": {"thinking_tokens": 25},
}


def around(environ: Mapping[str, str] = KEY) -> Surroundings:
    return Surroundings(environ=environ, directory=Path(), templates=TEMPLATES)


def adapter(model: str = MODEL, /, **config: Any) -> MessagesAdapter:
    return entry(f"messages:{model}", KEY, **config)


def entry(rest: str, environ: Mapping[str, str], /, **config: Any) -> MessagesAdapter:
    found = read("anthropic", rest, config, around(environ))
    assert isinstance(found, AdapterSettings), found
    assert isinstance(found.adapter, MessagesAdapter)
    return found.adapter


def problems(
    rest: str = MODEL, environ: Mapping[str, str] = KEY, /, **config: Any
) -> list[Problem]:
    found = read("anthropic", rest, config, around(environ))
    assert isinstance(found, list)
    return found


def body(prompt: str = "Hi", model: str = MODEL, /, **config: Any) -> Any:
    return json.loads(adapter(model, **config).build(Request(prompt=prompt)).body or b"")


def message(*blocks: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-haiku-4-5-20251001",
        "content": list(blocks),
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": USAGE,
        **more,
    }


def ok(data: object) -> HttpReply:
    return HttpReply(200, HEADERS, json.dumps(data).encode())


def parse(*blocks: Mapping[str, Any], **more: Any) -> Reply:
    return adapter().parse(ok(message(*blocks, **more)))


def error_of(reply: HttpReply, **config: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        adapter(**config).parse(reply)
    return caught.value


def refused(prompt: str, **options: Any) -> str:
    with pytest.raises(ProviderError) as caught:
        adapter().build(Request(prompt=prompt, options=options))
    assert caught.value.kind == "bad_request"
    return caught.value.message


# --- requests ------------------------------------------------------------------


def test_a_plain_prompt_is_one_user_message() -> None:
    """The smallest request: model, message, defaults, key and version."""
    ready = adapter().build(Request(prompt="Hi"))
    assert (ready.method, ready.url) == ("POST", "https://api.anthropic.com/v1/messages")
    assert ready.headers == {"x-api-key": "sk-ant-1234", "anthropic-version": "2023-06-01"}
    assert json.loads(ready.body or b"") == {
        "model": MODEL,
        "max_tokens": 1024,
        "temperature": 0,
        "messages": [{"role": "user", "content": "Hi"}],
    }


@pytest.mark.parametrize("rest", ["messages:m", "m"])
def test_the_kind_may_be_left_out(rest: str) -> None:
    """There is one kind."""
    assert entry(rest, KEY).endpoint.model == "m"


@pytest.mark.parametrize(
    ("environ", "config", "url"),
    [
        ({}, {}, "https://api.anthropic.com/v1/messages"),
        ({"ANTHROPIC_BASE_URL": "http://a"}, {}, "http://a/v1/messages"),
        ({"ANTHROPIC_BASE_URL": "http://a/v1/"}, {}, "http://a/v1/messages"),
        (
            {"ANTHROPIC_BASE_URL": "http://a"},
            {"apiBaseUrl": "http://b/x"},
            "http://b/x/v1/messages",
        ),
        ({}, {"apiBaseUrl": "http://b", "apiHost": "c:1"}, "https://c:1/v1/messages"),
    ],
)
def test_the_base_url_is_given_with_or_without_its_version(
    environ: Mapping[str, str], config: Mapping[str, Any], url: str
) -> None:
    """The config wins over the environment, and a host over a URL."""
    assert entry("m", {**KEY, **environ}, **config).build(Request(prompt="Hi")).url == url


def test_parameters_go_into_the_body_under_their_names() -> None:
    """Both spellings mean the same, and what is merged in wins, the last one most."""
    sent = body(
        maxTokens=5,
        temperature=0.5,
        top_k=3,
        stopSequences=["END"],
        metadata={"user_id": "u"},
        service_tier="standard_only",
        cacheControl={"type": "ephemeral"},
        output_config={"effort": "low"},
        extra_body={"top_k": 4, "container": "c"},
        passthrough={"container": "d"},
    )
    assert sent == {
        "model": MODEL,
        "max_tokens": 5,
        "temperature": 0.5,
        "top_k": 4,
        "stop_sequences": ["END"],
        "metadata": {"user_id": "u"},
        "service_tier": "standard_only",
        "cache_control": {"type": "ephemeral"},
        "output_config": {"effort": "low"},
        "container": "d",
        "messages": [{"role": "user", "content": "Hi"}],
    }


@pytest.mark.parametrize(
    ("model", "config", "temperature"),
    [
        (MODEL, {}, 0),
        (MODEL, {"temperature": 1}, 1),
        (MODEL, {"temperature": None}, None),
        (MODEL, {"omitDefaults": True}, None),
        (MODEL, {"omitDefaults": True, "temperature": 1}, 1),
        (MODEL, {"top_p": 0.9}, None),
        (MODEL, {"top_p": 0.9, "temperature": 1}, None),
        (MODEL, {"thinking": THINKING, "temperature": 0.5}, None),
        (MODEL, {"thinking": {"type": "adaptive"}, "temperature": 0.5}, None),
        (MODEL, {"thinking": {"type": "disabled"}, "temperature": 0.5}, 0.5),
        ("claude-sonnet-4-20250514", {}, 0),
        ("claude-3-5-haiku-latest", {}, 0),
        ("claude-opus-4-6", {}, 0),
        ("claude-opus-4-7", {}, None),
        ("claude-opus-4-7-20260401", {"temperature": 1}, None),
        ("claude-sonnet-5", {}, None),
        ("anthropic/claude-mythos-preview", {}, None),
        ("someone-elses-model", {}, 0),
    ],
)
def test_a_temperature_is_sent_where_it_is_taken(
    model: str, config: Mapping[str, Any], temperature: float | None
) -> None:
    """Not beside thinking or top_p, and not to models that reject it."""
    assert body("Hi", model, **config).get("temperature") == temperature


@pytest.mark.parametrize(
    ("config", "environ", "most"),
    [
        ({}, {}, 1024),
        ({"max_tokens": 7}, {"ANTHROPIC_MAX_TOKENS": "99"}, 7),
        ({"max_tokens": None}, {}, 1024),
        ({}, {"ANTHROPIC_MAX_TOKENS": "99"}, 99),
        ({"omitDefaults": True}, {}, 1024),
        ({"thinking": {"type": "adaptive"}}, {}, 2048),
        ({"thinking": {"type": "disabled"}}, {}, 1024),
        ({"thinking": THINKING}, {}, 5024),
        ({"thinking": THINKING}, {"ANTHROPIC_MAX_TOKENS": "99"}, 5024),
        ({"thinking": THINKING}, {"ANTHROPIC_MAX_TOKENS": "8000"}, 8000),
        ({"thinking": THINKING, "max_tokens": 4001}, {}, 4001),
    ],
)
def test_a_reply_has_room_beside_its_thoughts(
    config: Mapping[str, Any], environ: Mapping[str, str], most: int
) -> None:
    """The service insists on a limit, and that it is above the budget of thinking."""
    ready = entry("m", {**KEY, **environ}, **config).build(Request(prompt="Hi"))
    assert json.loads(ready.body or b"")["max_tokens"] == most


def test_the_environment_may_name_the_temperature() -> None:
    """For entries that do not."""
    ready = entry("m", {**KEY, "ANTHROPIC_TEMPERATURE": "0.25"}).build(Request(prompt="Hi"))
    assert json.loads(ready.body or b"")["temperature"] == 0.25


@pytest.mark.parametrize("tool", [CLOCK, CHAT_CLOCK])
def test_tools_are_understood_in_both_forms(tool: Mapping[str, Any]) -> None:
    """As the service has them, and as chat completions do."""
    assert body(tools=[tool])["tools"] == [CLOCK]


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", {"type": "auto"}),
        ("any", {"type": "any"}),
        ("required", {"type": "any"}),
        ("none", {"type": "none"}),
        ({"type": "tool", "name": "clock"}, {"type": "tool", "name": "clock"}),
        (
            {"type": "auto", "disable_parallel_tool_use": True},
            {"type": "auto", "disable_parallel_tool_use": True},
        ),
        ({"type": "function", "function": {"name": "clock"}}, {"type": "tool", "name": "clock"}),
    ],
)
def test_tool_choices_are_understood_in_both_forms(choice: Any, sent: object) -> None:
    """As the service has them, and as chat completions do."""
    assert body(tools=[CLOCK], tool_choice=choice)["tool_choice"] == sent


@pytest.mark.parametrize(
    "config",
    [
        {"output_config": {"format": FORMAT}},
        {"output_format": FORMAT},
        {"response_format": CHAT_FORMAT},
    ],
)
def test_a_schema_is_understood_in_each_form(config: Mapping[str, Any]) -> None:
    """It goes where the service wants it, and what it needs is asked for."""
    asked = adapter(**config)
    ready = asked.build(Request(prompt="Hi"))
    assert json.loads(ready.body or b"")["output_config"] == {"format": FORMAT}
    assert ready.headers["anthropic-beta"] == "structured-outputs-2025-11-13"


def test_beta_features_are_those_of_config_headers_and_tools_together() -> None:
    """Each is named once."""
    config: dict[str, Any] = {
        "beta": ["context-1m-2025-08-07", "skills-2025-10-02"],
        "headers": {"Anthropic-Beta": "files-api-2025-04-14, skills-2025-10-02"},
        "tools": [{"type": "computer_20250124", "name": "computer"}, CLOCK],
    }
    assert adapter(**config).build(Request(prompt="Hi")).headers["anthropic-beta"] == (
        "files-api-2025-04-14,skills-2025-10-02,context-1m-2025-08-07,computer-use-2025-01-24"
    )


def test_configured_headers_win() -> None:
    """Over the version too."""
    headers = {"Anthropic-Version": "2024-01-01", "X-Team": "blue"}
    assert adapter(headers=headers).build(Request(prompt="Hi")).headers == {
        "x-api-key": "sk-ant-1234",
        "anthropic-version": "2024-01-01",
        "x-team": "blue",
    }


# --- prompts -------------------------------------------------------------------


def test_system_messages_stand_beside_the_others() -> None:
    """That of the config first; text stays text."""
    prompt = json.dumps(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello"},
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": "2 + 2?"},
        ]
    )
    sent = body(prompt, system="Be exact.")
    assert sent["system"] == "Be exact.\n\nBe brief.\n\nBe kind."
    assert [one["role"] for one in sent["messages"]] == ["user", "assistant", "user"]


def test_system_blocks_stay_blocks() -> None:
    """Where one of them is a list, so that what it says of caching is kept."""
    cached = {"type": "text", "text": "Rules.", "cache_control": {"type": "ephemeral"}}
    sent = body('[{"role": "system", "content": "Be brief."}, {"role": "user"}]', system=[cached])
    assert sent["system"] == [cached, {"type": "text", "text": "Be brief."}]
    assert sent["messages"] == [{"role": "user"}]


@pytest.mark.parametrize(
    ("prompt", "system", "messages"),
    [
        ("user: Hi", None, [("user", "Hi")]),
        ("\n system: Be brief.\nuser: Hi", "Be brief.", [("user", "Hi")]),
        ("user: Hi\n system: bye", None, [("user", "Hi\n system: bye")]),
        (
            "system: Be brief.\nAlways.\nuser: 2 + 2?\nassistant:  4\nuser:\n3 + 3?\n",
            "Be brief.\nAlways.",
            [("user", "2 + 2?"), ("assistant", "4"), ("user", "3 + 3?")],
        ),
        ("user: Hi\nassistant:", None, [("user", "Hi")]),
        ("Ask the\nuser: Hi", None, [("user", "Ask the\nuser: Hi")]),
        ("User: Hi", None, [("user", "User: Hi")]),
        ("users: 4", None, [("user", "users: 4")]),
    ],
)
def test_a_transcript_begins_with_who_speaks(
    prompt: str, system: str | None, messages: list[tuple[str, str]]
) -> None:
    """A text that only has such a line somewhere is no transcript."""
    sent = body(prompt)
    assert sent.get("system") == system
    assert [(one["role"], one["content"]) for one in sent["messages"]] == messages


def test_images_are_brought_into_form() -> None:
    """Data URIs are split, images of chat completions rewritten; other blocks pass untouched."""
    png = {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}
    content = [
        {"type": "text", "text": "What is it?", "cache_control": {"type": "ephemeral"}},
        {"type": "image", "source": {"type": "base64", "data": "data:image/png;base64,iVBORw=="}},
        {"type": "image", "source": {"type": "url", "url": "data:image/png;base64,iVBORw=="}},
        {"type": "image", "source": png},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
        {"type": "image_url", "image_url": "https://pictures.example/a.png"},
        {"type": "image_url", "image_url": 1},
        "bare",
    ]
    (sent,) = body(json.dumps([{"role": "user", "content": content}]))["messages"]
    assert sent["content"] == [
        content[0],
        {"type": "image", "source": png},
        {"type": "image", "source": png},
        {"type": "image", "source": png},
        {"type": "image", "source": png},
        {"type": "image", "source": {"type": "url", "url": "https://pictures.example/a.png"}},
        content[6],
        "bare",
    ]


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        (
            '[{"role": "system", "content": "Be brief."}]',
            "the prompt cannot be sent: it holds nothing but a system message",
        ),
        (
            "system: Be brief.",
            "the prompt cannot be sent: it holds nothing but a system message",
        ),
        (
            '[{"role": "system", "content": {"a": 1}}, {"role": "user", "content": "Hi"}]',
            "the prompt cannot be sent: the content of a system message must be text or a list",
        ),
    ],
)
def test_a_prompt_without_a_message_is_not_sent(prompt: str, text: str) -> None:
    """Before anything is paid for."""
    assert refused(prompt) == text


def test_a_broken_chat_prompt_is_not_sent() -> None:
    """What opens like messages was meant to be messages."""
    assert refused('[{"role": "user"').startswith("the prompt cannot be sent: it begins like JSON")


# --- options of one call -------------------------------------------------------


def test_options_of_a_call_stand_over_the_config() -> None:
    """Any spelling; null takes away what the config says; the adapter stays as it was."""
    asked = adapter(max_tokens=50, top_k=5, output_config={"effort": "low", "format": FORMAT})
    options = {"maxTokens": 9, "top_k": None, "system": "Be brief.", "effort": "high"}
    sent = json.loads(asked.build(Request(prompt="Hi", options=options)).body or b"")
    assert sent == {
        "model": MODEL,
        "max_tokens": 9,
        "temperature": 0,
        "output_config": {"effort": "high", "format": FORMAT},
        "system": "Be brief.",
        "messages": [{"role": "user", "content": "Hi"}],
    }
    plain = json.loads(asked.build(Request(prompt="Hi")).body or b"")
    assert (plain["max_tokens"], plain["top_k"]) == (50, 5)


def test_a_null_takes_away_an_object_as_a_whole() -> None:
    """Keys beside it count all the same."""
    asked = adapter(output_config={"effort": "low", "format": FORMAT})
    options = {"output_config": None, "effort": "high"}
    sent = json.loads(asked.build(Request(prompt="Hi", options=options)).body or b"")
    assert sent["output_config"] == {"effort": "high"}


def test_options_of_a_call_change_how_its_reply_is_read() -> None:
    """The adapter of that call knows them."""
    reply = ok(message({"type": "text", "text": '{"sum": 4}'}))
    assert adapter().with_options({"response_format": CHAT_FORMAT}).parse(reply).output == {
        "sum": 4
    }


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"temprature": 1, "max_tokens": 0},
            (
                'temprature: "temprature" is not a key (did you mean "temperature"?); '
                "max_tokens: must be a whole number of at least 1, got 0"
            ),
        ),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 2000},
            "max_tokens must be above the budget_tokens of thinking (2000), got 2000",
        ),
    ],
)
def test_wrong_options_are_told_together(options: Mapping[str, Any], text: str) -> None:
    """And nothing is sent."""
    assert refused("Hi", **options) == f"the options of the call are not right: {text}"


def test_an_endpoint_is_the_same_for_all_calls() -> None:
    """Its lane is that of the entry."""
    assert refused("Hi", apiKey="sk-other").startswith(
        'the options of the call are not right: apiKey: "apiKey" is not a key'
    )


# --- replies -------------------------------------------------------------------


def test_a_plain_message_is_text_with_usage_and_origin() -> None:
    """Text, finish reason, tokens and where they came from are kept; cookies are not."""
    reply = parse(TEXT)
    assert reply.output == "It is four."
    assert reply.finish_reason == "stop"
    assert reply.usage == Usage(
        prompt=1320, completion=60, total=1380, cached=1000, cache_creation=300, reasoning=25
    )
    assert (reply.is_refusal, reply.guardrails, reply.hint) == (False, None, None)
    assert reply.raw == message(TEXT)
    assert reply.metadata == {
        "http": {
            "status": 200,
            "headers": {"content-type": "application/json", "request-id": "req_1"},
        },
        "id": "msg_1",
        "model": "claude-haiku-4-5-20251001",
    }


def test_a_call_costs_by_what_the_cache_had_to_do_with_it() -> None:
    """Plain, read and written tokens of the prompt each have their price."""
    price = {"input": 1, "output": 5, "cachedInput": 0.1, "cacheWrite": 1.25}
    reply = adapter(price=price).parse(ok(message(TEXT)))
    assert reply.cost == pytest.approx((20 + 300 * 1.25 + 1000 * 0.1 + 60 * 5) / 1_000_000)


@pytest.mark.parametrize("usage", [None, [], {"input_tokens": "7"}, {"output_tokens": -1}])
def test_numbers_that_were_not_reported_stay_absent(usage: object) -> None:
    """Usage is never invented."""
    assert parse(TEXT, usage=usage).usage == Usage()


def test_what_a_reply_says_of_limits_goes_with_it() -> None:
    """Four dimensions, each with an instant of its own."""
    headers = {
        **HEADERS,
        "date": "Fri, 07 Aug 2026 20:59:30 GMT",
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": "2026-08-07T21:00:00Z",
    }
    reply = adapter().parse(HttpReply(200, headers, ok(message(TEXT)).body))
    assert reply.hint == RateHint(Allowance(50, 0, 30))


@pytest.mark.parametrize(
    ("blocks", "config", "output"),
    [
        ([{"type": "text", "text": ""}], {}, ""),
        ([THOUGHT], {"showThinking": False}, ""),
        ([TEXT, CITED], {}, "It is four.\n\nFour, they say."),
        ([TOOL_USE], {}, json.dumps(TOOL_USE)),
        ([TEXT, TOOL_USE], {}, f"It is four.\n\n{json.dumps(TOOL_USE)}"),
        (
            [SEARCH, FOUND, CITED],
            {},
            f"{json.dumps(SEARCH)}\n\n{json.dumps(FOUND)}\n\nFour, they say.",
        ),
        ([THOUGHT, TEXT], {}, "Thinking: Two and two.\n\nIt is four."),
        ([THOUGHT, TEXT], {"showThinking": False}, "It is four."),
        ([{"type": "redacted_thinking", "data": "eHg="}, TEXT], {}, "It is four."),
        ([{**THOUGHT, "thinking": ""}, TEXT], {}, "It is four."),
        ([{"type": "text", "text": '{"sum": 4}'}], {"output_format": FORMAT}, {"sum": 4}),
        ([THOUGHT, {"type": "text", "text": '{"sum": 4}'}], {"output_format": FORMAT}, {"sum": 4}),
        ([{"type": "text", "text": '{"sum": '}], {"output_format": FORMAT}, '{"sum": '),
        ([{"type": "text", "text": '{"sum": 4}'}], {}, '{"sum": 4}'),
    ],
)
def test_the_blocks_give_the_output(
    blocks: list[Mapping[str, Any]], config: Mapping[str, Any], output: object
) -> None:
    """Texts, thoughts and tools each have one form; with a schema the text is its value."""
    assert adapter(**config).parse(ok(message(*blocks))).output == output


@pytest.mark.parametrize(
    "blocks",
    [
        [],
        [{"type": "redacted_thinking", "data": "eHg="}],
        [{"type": "thinking", "thinking": "", "signature": "eHg="}],
    ],
)
def test_a_message_that_holds_nothing_is_no_answer(blocks: list[Mapping[str, Any]]) -> None:
    """It is asked for again, unless it would be cut off again."""
    error = error_of(ok(message(*blocks)))
    assert str(error) == "empty_reply: the message holds nothing (finish reason stop)"
    assert error.retries == 1
    cut_off = error_of(ok(message(*blocks, stop_reason="max_tokens")))
    assert str(cut_off) == (
        "empty_reply: the message holds nothing (finish reason length);"
        " there was no room for it: raise max_tokens, or shorten the prompt"
    )
    assert cut_off.retries == 0


@pytest.mark.parametrize(
    ("stop", "finish_reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("pause_turn", "pause_turn"),
        ("something_New", "something_new"),
        (None, None),
    ],
)
def test_reasons_to_stop_have_common_words(stop: str | None, finish_reason: str | None) -> None:
    """What has none stays what it is."""
    assert parse(TEXT, stop_reason=stop).finish_reason == finish_reason


@pytest.mark.parametrize(
    ("details", "reason", "output"),
    [
        (None, None, "[filtered by the provider]"),
        ({"type": "refusal", "category": "bio", "explanation": None}, "bio", "bio"),
        (
            {"type": "refusal", "category": None, "explanation": "Not this."},
            "Not this.",
            "Not this.",
        ),
    ],
)
def test_a_refusal_is_marked(details: object, reason: str | None, output: str) -> None:
    """A model that will not answer has answered, and the reply says so."""
    reply = parse(stop_reason="refusal", stop_details=details)
    assert (reply.output, reply.is_refusal, reply.finish_reason) == (output, True, "content_filter")
    assert reply.guardrails == Guardrails(flagged=True, reason=reason)


def test_a_prompt_that_a_gateway_does_not_take_is_a_refusal() -> None:
    """The service itself has no such status; what stands before it may."""
    data = {"error": {"code": "content_filter", "message": "Not this."}}
    reply = adapter().parse(HttpReply(400, HEADERS, json.dumps(data).encode()))
    assert (reply.output, reply.is_refusal) == ("Not this.", True)


def test_what_was_said_before_a_refusal_is_kept() -> None:
    """A filter may step in late."""
    assert parse(TEXT, stop_reason="refusal").output == "It is four."


def api_error(kind: str, text: str = "No.") -> bytes:
    data = {"type": "error", "error": {"type": kind, "message": text}, "request_id": "req_1"}
    return json.dumps(data).encode()


@pytest.mark.parametrize(
    ("status", "body_", "kind"),
    [
        (400, api_error("invalid_request_error"), "bad_request"),
        (400, api_error("invalid_request_error", "prompt is too long: 9 > 8"), "context_window"),
        (
            400,
            api_error("invalid_request_error", "Your credit balance is too low"),
            "quota_exhausted",
        ),
        (401, api_error("authentication_error"), "auth"),
        (402, api_error("billing_error"), "quota_exhausted"),
        (403, api_error("permission_error"), "permission"),
        (404, api_error("not_found_error"), "not_found"),
        (413, api_error("request_too_large"), "context_window"),
        (429, api_error("rate_limit_error"), "rate_limited"),
        (500, api_error("api_error"), "server"),
        (504, api_error("timeout_error"), "server"),
        (529, api_error("overloaded_error"), "overloaded"),
        (200, api_error("overloaded_error"), "overloaded"),
    ],
)
def test_each_error_of_the_service_has_its_kind(status: int, body_: bytes, kind: str) -> None:
    """By status and type."""
    error = error_of(HttpReply(status, HEADERS, body_))
    assert (error.kind, error.status) == (kind, status)


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (ok({"id": "x"}), "malformed_reply: the reply is not a message"),
        (ok({"content": {}}), "malformed_reply: the reply is not a message"),
        (ok([1]), "malformed_reply: the reply is not a JSON object"),
        (HttpReply(200, {}, b"<html>"), "malformed_reply: the reply is not JSON"),
        (
            HttpReply(401, {}, api_error("authentication_error", "bad key sk-ant-1234")),
            "auth: HTTP 401 Unauthorized: bad key [hidden]",
        ),
    ],
)
def test_what_is_no_message_is_an_error(reply: HttpReply, text: str) -> None:
    """Each way of not answering has its kind, and no error repeats the key."""
    assert str(error_of(reply)) == text


# --- streams -------------------------------------------------------------------


def grown(index: int, block: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The events of a block, cut in the middle of its texts."""
    start = dict(block)
    deltas: list[dict[str, Any]] = []

    def cut(text: str, kind: str, name: str) -> None:
        for part in (text[: len(text) // 2], text[len(text) // 2 :]):
            deltas.append({"type": kind, name: part})

    for name in ("text", "thinking"):
        if name in block:
            start[name] = ""
            cut(block[name], f"{name}_delta", name)
    if "signature" in block:
        start["signature"] = ""
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    if "input" in block:
        start["input"] = {}
        cut(json.dumps(block["input"]), "input_json_delta", "partial_json")
    if "citations" in block:
        del start["citations"]
        deltas += [{"type": "citations_delta", "citation": one} for one in block["citations"]]
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def streamed(whole: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The events that a message comes as when it is streamed."""
    ends = {
        name: whole[name]
        for name in ("stop_reason", "stop_sequence", "stop_details")
        if name in whole
    }
    begins = {**whole, "content": [], "stop_reason": None, "usage": {**USAGE, "output_tokens": 1}}
    begins.pop("stop_details", None)
    return [
        {"type": "message_start", "message": begins},
        {"type": "ping"},
        *(event for index, block in enumerate(whole["content"]) for event in grown(index, block)),
        {"type": "message_delta", "delta": ends, "usage": {**USAGE, "input_tokens": None}},
        {"type": "message_stop"},
    ]


def written(events: list[Any]) -> bytes:
    texts = []
    for event in events:
        name = event.get("type", "message") if isinstance(event, dict) else "message"
        texts.append(f"event: {name}\r\ndata: {json.dumps(event)}\r\n\r\n")
    return "".join(texts).encode()


GOLDEN = [
    message(TEXT),
    message({"type": "text", "text": ""}),
    message(TOOL_USE, stop_reason="tool_use"),
    message(THOUGHT, TEXT, TOOL_USE, stop_reason="tool_use"),
    message(THOUGHT, {"type": "redacted_thinking", "data": "eHg="}, TEXT),
    message(SEARCH, FOUND, CITED),
    message(TEXT, stop_reason="max_tokens"),
    message({"type": "text", "text": '{"sum": 4}'}),
    message({"type": "text", "text": "Ein Gruß 😀"}),
    message(stop_reason="refusal", stop_details={"type": "refusal", "category": "cyber"}),
]
PRICED: dict[str, Any] = {"price": {"input": 1, "output": 1}}


@pytest.mark.parametrize("whole", GOLDEN)
def test_a_streamed_message_is_the_same_reply(whole: dict[str, Any]) -> None:
    """Only what is known of the exchange itself differs."""
    read_ = adapter(output_format=FORMAT, metrics="ttft")
    plain = read_.parse(ok(whole))
    stream = read_.parse(HttpReply(200, STREAM, written(streamed(whole))))
    assert stream.metadata["id"] == "msg_1"
    assert [
        getattr(stream, name) == getattr(plain, name)
        for name in ("output", "usage", "finish_reason", "is_refusal", "guardrails", "raw")
    ] == [True] * 6


def test_a_stream_is_asked_for_to_time_its_first_token() -> None:
    """In both forms; without it, and with an empty list, replies come whole."""
    assert body(metrics=["ttft"])["stream"] is True
    assert adapter(metrics="ttft").streams
    assert "stream" not in body(metrics=[])


def test_a_character_cut_into_two_events_is_one_character() -> None:
    """Some services cut between the halves of a surrogate pair."""
    events = streamed(message({"type": "text", "text": "😀"}))
    halves = ["\ud83d", "\ude00"]
    for event in events:
        if event["type"] == "content_block_delta":
            event["delta"]["text"] = halves.pop(0)
    assert adapter().parse(HttpReply(200, STREAM, written(events))).output == "😀"


def test_the_input_of_a_tool_that_was_cut_off_stays_text() -> None:
    """The limit of tokens may end a reply anywhere."""
    events = streamed(message(TOOL_USE, stop_reason="max_tokens"))
    del events[4]
    reply = adapter().parse(HttpReply(200, STREAM, written(events)))
    assert json.loads(reply.output) == {
        **TOOL_USE,
        "input": '{"zone":'[: len('{"zone": "UTC"}') // 2],
    }


def test_events_that_are_not_known_are_left_out() -> None:
    """The service may add some, and a block that never began does not grow."""
    events: list[Any] = list(streamed(message(TEXT)))
    delta = {"type": "text_delta", "text": "?"}
    events[2:2] = [
        {"type": "content_block_delta", "index": 7, "delta": delta},
        {"type": "content_block_start", "index": -1, "content_block": TEXT},
        {"type": "content_block_start", "index": 0},
        {"type": "message_delta", "delta": None, "usage": None},
        {"type": "something_new"},
        ["a", "list"],
    ]
    raw = b"data: not JSON\n\n" + written(events)
    assert adapter().parse(HttpReply(200, STREAM, raw)).output == "It is four."


def test_a_stream_nested_too_deeply_is_malformed() -> None:
    """Joining may nest deeper than reading did: the input of a tool is read by itself."""
    deep: dict[str, Any] = {}
    for _ in range(2000):
        deep = {"a": deep}
    with pytest.raises(ProviderError, match="malformed_reply: the stream is nested too deeply"):
        join_stream(adapter().endpoint, HttpReply(200, STREAM, b""), lambda _: deep)


def test_a_stream_that_breaks_off_is_no_reply() -> None:
    """However much of it came."""
    events = streamed(message(TEXT))
    for length in range(len(events)):
        error = error_of(HttpReply(200, STREAM, written(events[:length])))
        assert str(error) == "connection: the stream ended before the reply was complete"


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        ("overloaded_error", "overloaded"),
        ("rate_limit_error", "rate_limited"),
        ("api_error", "server"),
        ("authentication_error", "auth"),
    ],
)
def test_an_error_in_a_stream_is_that_error(type_: str, kind: str) -> None:
    """The status was sent before the service knew."""
    events = streamed(message(TEXT))[:4]
    events.append(json.loads(api_error(type_, "Sorry sk-ant-1234.")))
    error = error_of(HttpReply(200, STREAM, written(events)))
    assert str(error) == f"{kind}: HTTP 200 OK: Sorry [hidden]."


def test_a_reply_that_is_no_stream_after_all_is_read_plainly() -> None:
    """The content type says what came."""
    assert adapter(metrics="ttft").parse(ok(message(TEXT))).output == "It is four."
    failed = HttpReply(529, STREAM, api_error("overloaded_error"))
    assert error_of(failed, metrics="ttft").kind == "overloaded"


@pytest.mark.parametrize(
    ("event", "answer"),
    [
        ({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}, True),
        (
            {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "a"}},
            True,
        ),
        (
            {
                "type": "content_block_delta",
                "delta": {"type": "input_json_delta", "partial_json": "{"},
            },
            True,
        ),
        ({"type": "content_block_delta", "delta": {"type": "text_delta", "text": ""}}, False),
        (
            {"type": "content_block_delta", "delta": {"type": "signature_delta", "signature": "a"}},
            False,
        ),
        ({"type": "message_start", "message": {"content": []}}, False),
        ({"type": "ping"}, False),
        ("content_block_delta", False),
    ],
)
def test_the_first_token_is_the_first_part_of_an_answer(event: object, *, answer: bool) -> None:
    """Thoughts and inputs of tools are parts of it; what goes before is not."""
    assert adapter().speaks(ServerEvent(json.dumps(event))) is answer


# --- whatever comes ------------------------------------------------------------

STATUSES = st.sampled_from([200, 200, 200, 400, 429, 500])
READER = adapter(output_format=FORMAT, **PRICED)


@pytest.mark.slow
@given(STATUSES, st.sampled_from(GOLDEN).flatmap(damaged) | JSON)
def test_any_json_is_read_or_fails_in_a_known_way(status: int, data: Any) -> None:
    """Nothing that the service says breaks the adapter."""
    reply = HttpReply(status, HEADERS, json.dumps(data).encode())
    check_parse(READER, reply)


@pytest.mark.slow
@given(st.sampled_from(GOLDEN), st.data())
def test_any_stream_is_read_or_fails_in_a_known_way(
    whole: dict[str, Any], data: st.DataObject
) -> None:
    """Whatever is wrong with its events, and wherever it is cut."""
    events = data.draw(damaged(streamed(whole)))
    raw = written(events if isinstance(events, list) else [events])
    cut = data.draw(st.integers(0, len(raw)))
    check_parse(READER, HttpReply(200, STREAM, raw[:cut] if cut % 2 else raw))


@pytest.mark.slow
@given(STATUSES, st.binary(), st.booleans())
def test_any_bytes_are_read_or_fail_in_a_known_way(
    status: int,
    raw: bytes,
    is_stream: bool,  # noqa: FBT001
) -> None:
    """Not even their encoding is trusted."""
    check_parse(READER, HttpReply(status, STREAM if is_stream else HEADERS, raw))


@pytest.mark.slow
@given(st.text())
def test_any_prompt_is_built_or_refused(prompt: str) -> None:
    """A request is JSON, whatever is asked."""
    try:
        ready = READER.build(Request(prompt=prompt))
    except ProviderError as error:
        assert error.kind == "bad_request"  # noqa: PT017 - most prompts raise nothing
    else:
        assert json.loads(ready.body or b"")["messages"]


# --- entries -------------------------------------------------------------------

NO_KEY = Problem(
    ".config.apiKey",
    "there is no API key",
    "set ANTHROPIC_API_KEY in the environment, or apiKey or apiKeyEnvar in the config",
)


def test_a_lane_is_one_account_and_model_and_holds_no_key() -> None:
    """As for all services."""
    found = read("anthropic", MODEL, {}, around())
    assert isinstance(found, AdapterSettings)
    digest = hashlib.sha256(b"sk-ant-1234").hexdigest()[:12]
    assert found.lane_key == f"anthropic|https://api.anthropic.com/v1|{digest}|-|{MODEL}"
    assert found.secrets == ("sk-ant-1234",)
    assert "sk-ant" not in repr(found)


@pytest.mark.parametrize(
    ("rest", "environ", "config", "problem"),
    [
        (MODEL, {}, {}, NO_KEY),
        (
            "messages:",
            KEY,
            {},
            Problem(
                ".id", '"anthropic:messages:" names no model', "write anthropic:messages:<model>"
            ),
        ),
        (
            MODEL,
            {**KEY, "ANTHROPIC_MAX_TOKENS": "many"},
            {},
            Problem(
                ".config.max_tokens",
                "the environment variable ANTHROPIC_MAX_TOKENS must be a whole number of at least "
                '1, got "many"',
            ),
        ),
        (
            MODEL,
            KEY,
            {"thinking": THINKING, "max_tokens": 4000},
            Problem(
                ".config.max_tokens",
                "must be above the budget_tokens of thinking (4000), got 4000",
                "the answer is what is left",
            ),
        ),
        (
            MODEL,
            KEY,
            {"output_format": FORMAT, "output_config": {"format": FORMAT}},
            Problem(
                ".config.output_format", "format is in output_config already", "keep one of them"
            ),
        ),
        (
            MODEL,
            KEY,
            {"output_format": FORMAT, "response_format": FORMAT},
            Problem(
                ".config.response_format", "means the same as output_format", "keep one of them"
            ),
        ),
        (
            MODEL,
            KEY,
            {"passthrough": {"stream": True}},
            Problem(
                ".config.passthrough.stream",
                "whether a reply is streamed follows from what is measured",
                'leave it out; metrics: ["ttft"] streams, and times the first token',
            ),
        ),
        (
            MODEL,
            KEY,
            {"tool_choice": "clock"},
            Problem(
                ".config.tool_choice",
                'must be auto, any, none, required or an object with a type, got "clock"',
            ),
        ),
        (
            MODEL,
            KEY,
            {"metrics": ["latency"]},
            Problem(".config.metrics", 'must be "ttft", or a list of it, got ["latency"]'),
        ),
        (
            MODEL,
            KEY,
            {"thinking": {"budget_tokens": 4000}},
            Problem(
                ".config.thinking",
                "must be an object with a type, and budget_tokens of at least 1, "
                'got {"budget_tokens": 4000}',
            ),
        ),
        (
            MODEL,
            KEY,
            {"stop_sequence": ["x"]},
            Problem(
                ".config.stop_sequence",
                '"stop_sequence" is not a key',
                'did you mean "stop_sequences"?',
            ),
        ),
    ],
)
def test_each_mistake_is_told_before_the_first_call(
    rest: str, environ: Mapping[str, str], config: Mapping[str, Any], problem: Problem
) -> None:
    """What cannot work is a problem of the entry, with the place and the way out."""
    assert problems(rest, environ, **config) == [problem]


def test_all_mistakes_are_told_together() -> None:
    """Keys, environment, endpoint and what does not go together."""
    environ = {"ANTHROPIC_TEMPERATURE": "hot"}
    told = problems(MODEL, environ, top_k=0, apiHost="a/b", extra_body={"messages": []}, y=1)
    assert len(told) == 6


# --- over sockets --------------------------------------------------------------


@pytest.mark.network
@pytest.mark.parametrize("metrics", [[], ["ttft"]])
def test_a_message_over_a_socket(metrics: list[str]) -> None:
    """Whole and streamed; a stream tells when its first token came."""
    data = written(streamed(message(TEXT))) if metrics else ok(message(TEXT)).body
    kind = "text/event-stream" if metrics else "application/json"
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\n\r\n"

    async def ask(address: FakeAddress, client: HttpClient) -> None:
        base_url = f"http://{address.host}:{address.port}"
        asked = adapter(apiBaseUrl=base_url, metrics=metrics)
        reply = await HttpProvider(asked, client)(Request(prompt="2 + 2?"))
        assert reply.output == "It is four."
        assert (reply.first_token is not None) == bool(metrics)

    with_raw_server(head.encode() + data, ask, max_reply_bytes=10_000)

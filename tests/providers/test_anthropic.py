import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from vendor_anthropic import (
    CITED,
    FORMAT,
    FOUND,
    MODEL,
    SCHEMA,
    SEARCH,
    TEXT,
    THINKING,
    THOUGHT,
    TOOL_USE,
    message,
    streamed,
    written,
)
from vendor_cases import ENVIRON, KEY, STREAM, read_entry, reply

from trioeval.errors import ProviderError
from trioeval.providers.base import Request
from trioeval.providers.http.adapter import AdapterSettings
from trioeval.providers.http.streams import ServerEvent
from trioeval.providers.http.wire import HttpReply
from trioeval.providers.vendors.anthropic import MessagesAdapter, read

CHAT_FORMAT = {"type": "json_schema", "json_schema": {"name": "sums", "schema": SCHEMA}}
CLOCK = {"name": "clock", "description": "Returns the time", "input_schema": {"type": "object"}}
CHAT_CLOCK = {
    "type": "function",
    "function": {
        "name": "clock",
        "description": "Returns the time",
        "parameters": {"type": "object"},
    },
}


def adapter(model: str = MODEL, /, **config: Any) -> MessagesAdapter:
    return entry(f"messages:{model}", ENVIRON, **config)


def entry(rest: str, environ: Mapping[str, str], /, **config: Any) -> MessagesAdapter:
    found = read_entry(read, f"anthropic:{rest}", config, environ)
    assert isinstance(found, AdapterSettings), found
    assert isinstance(found.adapter, MessagesAdapter)
    return found.adapter


def body(prompt: str = "Hi", model: str = MODEL, /, **config: Any) -> Any:
    return json.loads(adapter(model, **config).build(Request(prompt=prompt)).body or b"")


# --- requests ------------------------------------------------------------------


@pytest.mark.parametrize("rest", ["messages:m", "m"])
def test_the_kind_may_be_omitted(rest: str) -> None:
    """There is only one kind, so it may be omitted."""
    assert entry(rest, ENVIRON).endpoint.model == "m"


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
def test_the_base_url_may_or_may_not_contain_its_version(
    environ: Mapping[str, str], config: Mapping[str, Any], url: str
) -> None:
    """The config takes precedence over the environment, and a host over a URL."""
    assert entry("m", {**ENVIRON, **environ}, **config).build(Request(prompt="Hi")).url == url


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
def test_a_temperature_is_sent_if_the_model_accepts_it(
    model: str, config: Mapping[str, Any], temperature: float | None
) -> None:
    """No temperature is sent with thinking or top_p, or to models that refuse it."""
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
def test_the_token_limit_exceeds_the_budget_of_thinking(
    config: Mapping[str, Any], environ: Mapping[str, str], most: int
) -> None:
    """The service requires a token limit above the budget of thinking."""
    ready = entry("m", {**ENVIRON, **environ}, **config).build(Request(prompt="Hi"))
    assert json.loads(ready.body or b"")["max_tokens"] == most


def test_the_environment_may_set_the_temperature() -> None:
    """The variable applies to entries without a temperature."""
    ready = entry("m", {**ENVIRON, "ANTHROPIC_TEMPERATURE": "0.25"}).build(Request(prompt="Hi"))
    assert json.loads(ready.body or b"")["temperature"] == 0.25


@pytest.mark.parametrize("tool", [CLOCK, CHAT_CLOCK])
def test_tools_are_accepted_in_both_forms(tool: Mapping[str, Any]) -> None:
    """The forms are the service's own and that of chat completions."""
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
def test_tool_choices_are_accepted_in_both_forms(choice: Any, sent: object) -> None:
    """The forms are the service's own and that of chat completions."""
    assert body(tools=[CLOCK], tool_choice=choice)["tool_choice"] == sent


@pytest.mark.parametrize(
    "config",
    [
        {"output_config": {"format": FORMAT}},
        {"output_format": FORMAT},
        {"response_format": CHAT_FORMAT},
    ],
)
def test_a_schema_is_accepted_in_each_form(config: Mapping[str, Any]) -> None:
    """It is sent in the service's form, with the beta feature that it needs."""
    configured = adapter(**config)
    ready = configured.build(Request(prompt="Hi"))
    assert json.loads(ready.body or b"")["output_config"] == {"format": FORMAT}
    assert ready.headers["anthropic-beta"] == "structured-outputs-2025-11-13"


def test_beta_features_of_config_headers_and_tools_are_joined() -> None:
    """Each feature is requested once."""
    config: dict[str, Any] = {
        "beta": ["context-1m-2025-08-07", "skills-2025-10-02"],
        "headers": {"Anthropic-Beta": "files-api-2025-04-14, skills-2025-10-02"},
        "tools": [{"type": "computer_20250124", "name": "computer"}, CLOCK],
    }
    assert adapter(**config).build(Request(prompt="Hi")).headers["anthropic-beta"] == (
        "files-api-2025-04-14,skills-2025-10-02,context-1m-2025-08-07,computer-use-2025-01-24"
    )


def test_configured_headers_take_precedence() -> None:
    """They take precedence also for the version."""
    headers = {"Anthropic-Version": "2024-01-01", "X-Team": "blue"}
    assert adapter(headers=headers).build(Request(prompt="Hi")).headers == {
        "x-api-key": KEY,
        "anthropic-version": "2024-01-01",
        "x-team": "blue",
    }


# --- prompts -------------------------------------------------------------------


def test_system_messages_are_separate() -> None:
    """The system text of the config comes first; text stays text."""
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
    """All become blocks if one of them is a list, so that cache settings are kept."""
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
def test_a_transcript_starts_with_a_role(
    prompt: str, system: str | None, messages: list[tuple[str, str]]
) -> None:
    """A text with such a line in the middle is not a transcript."""
    sent = body(prompt)
    assert sent.get("system") == system
    assert [(one["role"], one["content"]) for one in sent["messages"]] == messages


def test_images_are_converted() -> None:
    """Data URIs are split, images of chat completions are converted; other blocks are unchanged."""
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


# --- replies -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocks", "config", "output"),
    [
        ([THOUGHT], {}, ""),
        ([TEXT, CITED], {}, "It is four.\n\nFour, they say."),
        ([TEXT, TOOL_USE], {}, f"It is four.\n\n{json.dumps(TOOL_USE)}"),
        (
            [SEARCH, FOUND, CITED],
            {},
            f"{json.dumps(SEARCH)}\n\n{json.dumps(FOUND)}\n\nFour, they say.",
        ),
        ([{"type": "redacted_thinking", "data": "eHg="}, TEXT], {}, "It is four."),
        ([{**THOUGHT, "thinking": ""}, TEXT], {}, "It is four."),
    ],
)
def test_the_output_is_made_of_the_blocks(
    blocks: list[Mapping[str, Any]], config: Mapping[str, Any], output: object
) -> None:
    """Texts, thinking and tools each have one form; redacted thinking is left out."""
    assert adapter(**config).parse(reply(message(*blocks))).output == output


# --- streams -------------------------------------------------------------------


def test_the_input_of_a_truncated_tool_call_stays_text() -> None:
    """The token limit may end a reply anywhere."""
    events = streamed(message(TOOL_USE, stop_reason="max_tokens"))
    del events[4]
    answer = adapter().parse(HttpReply(200, STREAM, written(events)))
    assert json.loads(answer.output) == {
        **TOOL_USE,
        "input": '{"zone":'[: len('{"zone": "UTC"}') // 2],
    }


def test_unknown_events_are_ignored() -> None:
    """A block that never started does not grow."""
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
    """Joining may nest deeper than reading, because the input of a tool is parsed separately."""
    deep: dict[str, Any] = {}
    for _ in range(2000):
        deep = {"a": deep}

    class Deep(MessagesAdapter):
        def join(self, events: Iterable[ServerEvent]) -> dict[str, Any] | None:  # noqa: ARG002
            return deep

    with pytest.raises(
        ProviderError, match="malformed_reply: HTTP 200 OK: the stream is nested too deeply"
    ):
        Deep(endpoint=adapter().endpoint).parse(HttpReply(200, STREAM, b""))


# --- entries -------------------------------------------------------------------


def test_all_mistakes_are_reported_together() -> None:
    """Problems of keys, environment, endpoint and their combinations are reported together."""
    environ = {"ANTHROPIC_TEMPERATURE": "hot"}
    config = {"top_k": 0, "apiHost": "a/b", "extra_body": {"messages": []}, "temprature": 1}
    found = read_entry(read, f"anthropic:{MODEL}", config, environ)
    assert isinstance(found, list)
    assert len(found) == 6

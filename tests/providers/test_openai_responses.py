import json
from collections.abc import Mapping
from typing import Any

import pytest
from damaged import JSON, damaged
from hypothesis import given
from hypothesis import strategies as st
from vendor_cases import KEY, STREAM, parse_failure, reply
from vendor_openai import CHAT_FORMAT, write_events
from vendor_responses import (
    CALL,
    FORMAT,
    LOG_PROBS,
    REASONING,
    REFUSAL,
    SEARCH,
    event,
    message,
    response,
)

from trioeval.errors import ProviderError
from trioeval.providers import HttpReply, Reply, Request
from trioeval.providers.http.adapter import AdapterSettings
from trioeval.providers.vendors.openai_responses import ResponsesAdapter
from trioeval.providers.vendors.services import SERVICES

OPENAI = SERVICES["openai"]
ENVIRON = {"OPENAI_API_KEY": KEY}

CLOCK = {"name": "clock", "description": "Returns the time", "parameters": {"type": "object"}}


def adapter(model: str = "gpt-4.1", /, **config: Any) -> ResponsesAdapter:
    read = ResponsesAdapter.read_entry(OPENAI, model, config, ENVIRON)
    assert isinstance(read, AdapterSettings)
    assert isinstance(read.adapter, ResponsesAdapter)
    return read.adapter


def body(prompt: str = "Hi", model: str = "gpt-4.1", /, **config: Any) -> Any:
    return json.loads(adapter(model, **config).build(Request(prompt=prompt)).body or b"")


def parse(*items: Mapping[str, Any], **more: Any) -> Reply:
    return adapter().parse(reply(response(*items, **more)))


# --- requests ------------------------------------------------------------------


def test_a_reasoning_model_gets_no_temperature_and_no_limit() -> None:
    """Neither defaults nor values for other models are sent; its own limit and effort are."""
    assert body("Hi", "o3", temperature=0.5, topP=0.5) == {"model": "o3", "input": "Hi"}
    assert body("Hi", "gpt-5", reasoning_effort="low", max_completion_tokens=9) == {
        "model": "gpt-5",
        "input": "Hi",
        "reasoning": {"effort": "low"},
        "max_output_tokens": 9,
    }


def test_a_reasoning_model_without_reasoning_accepts_a_temperature() -> None:
    """Effort "none" makes it an ordinary model, and so does `isReasoningModel: false`."""
    config = {"reasoning": {"effort": "none"}, "temperature": 0.5}
    assert body("Hi", "gpt-5.1", **config)["temperature"] == 0.5
    assert body("Hi", "o3", isReasoningModel=False)["temperature"] == 0
    assert "temperature" not in body("Hi", "mine", isReasoningModel=True)


@pytest.mark.parametrize(
    ("config", "field", "value"),
    [
        ({"max_tokens": 5}, "max_output_tokens", 5),
        ({"maxCompletionTokens": 6, "max_tokens": 5}, "max_output_tokens", 6),
        ({"max_output_tokens": 7, "max_tokens": 5}, "max_output_tokens", 7),
        ({"response_format": CHAT_FORMAT}, "text", {"format": FORMAT}),
        ({"response_format": FORMAT}, "text", {"format": FORMAT}),
        ({"text": {"format": CHAT_FORMAT}}, "text", {"format": FORMAT}),
        (
            {"response_format": {"type": "json_object"}},
            "text",
            {"format": {"type": "json_object"}},
        ),
        ({"verbosity": "low"}, "text", {"verbosity": "low"}),
        (
            {"text": {"verbosity": "high", "format": FORMAT}, "verbosity": "low"},
            "text",
            {"format": FORMAT, "verbosity": "low"},
        ),
        ({"reasoning_effort": "low"}, "reasoning", {"effort": "low"}),
        (
            {"reasoning": {"summary": "auto"}, "reasoningEffort": "low"},
            "reasoning",
            {"effort": "low", "summary": "auto"},
        ),
        ({"tools": [{"type": "function", **CLOCK}]}, "tools", [{"type": "function", **CLOCK}]),
        (
            {"tools": [{"type": "function", "function": CLOCK}, {"type": "web_search"}]},
            "tools",
            [{"type": "function", **CLOCK}, {"type": "web_search"}],
        ),
        ({"tool_choice": "required"}, "tool_choice", "required"),
        (
            {"tool_choice": {"type": "function", "function": {"name": "clock"}}},
            "tool_choice",
            {"type": "function", "name": "clock"},
        ),
        ({"logprobs": True}, "include", ["message.output_text.logprobs"]),
        (
            {"logprobs": True, "include": ["message.output_text.logprobs", "x"]},
            "include",
            ["message.output_text.logprobs", "x"],
        ),
    ],
)
def test_config_of_chat_completions_is_accepted(
    config: Mapping[str, Any], field: str, value: object
) -> None:
    """Names and forms of chat completions are converted; those of responses are unchanged."""
    assert body(**config)[field] == value


@pytest.mark.parametrize("key", ["temperature", "max_tokens", "tools", "text", "reasoning"])
def test_a_null_removes_a_default(key: str) -> None:
    """The null is not sent itself."""
    defaults = {"temperature", "max_output_tokens"}
    taken = {"max_tokens": "max_output_tokens"}.get(key, key)
    assert body(**{key: None}).keys() == {"model", "input", *defaults} - {taken}
    assert "logprobs" not in body(logprobs=False)


def test_defaults_come_from_the_environment() -> None:
    """Variables replace defaults, even omitted ones; the config takes precedence."""
    environ = {
        **ENVIRON,
        "OPENAI_TEMPERATURE": "0.5",
        "OPENAI_MAX_TOKENS": "9",
        "OPENAI_TOP_P": " ",
    }
    environ |= {"OPENAI_MAX_COMPLETION_TOKENS": "8", "OPENAI_PRESENCE_PENALTY": "1"}

    def sent(model: str, **config: Any) -> Any:
        read = ResponsesAdapter.read_entry(OPENAI, model, config, environ)
        assert isinstance(read, AdapterSettings)
        return json.loads(read.adapter.build(Request(prompt="Hi")).body or b"")

    start = {"model": "gpt-4.1", "input": "Hi"}
    assert sent("gpt-4.1") == {**start, "temperature": 0.5, "max_output_tokens": 9}
    assert sent("gpt-4.1", omitDefaults=True, max_tokens=1) == {
        **start,
        "temperature": 0.5,
        "max_output_tokens": 1,
    }
    assert sent("o3") == {"model": "o3", "input": "Hi", "max_output_tokens": 8}
    assert body(omitDefaults=True) == start


def test_all_mistakes_are_reported_at_once() -> None:
    """Problems of config, endpoint and environment are reported together."""
    environ = {"OPENAI_TEMPERATURE": "hot"}
    read = ResponsesAdapter.read_entry(OPENAI, "m", {"stor": True, "user": 1}, environ)
    assert isinstance(read, list)
    assert [problem.path for problem in read] == [
        ".config.stor",
        ".config.user",
        ".config.apiKey",
        ".config.temperature",
    ]


# --- prompts -------------------------------------------------------------------


def inputs(*messages: Mapping[str, Any]) -> Any:
    return body(json.dumps(messages))["input"]


def test_messages_are_items() -> None:
    """Roles and texts are unchanged, in JSON and in YAML."""
    system, user = {"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hi"}
    assert inputs(system, user) == [system, user]
    assert body("- role: user\n  content: 12:30")["input"] == [{"role": "user", "content": "12:30"}]


def test_parts_of_a_content_are_renamed() -> None:
    """Texts, images and files of chat completions are converted; other parts are unchanged."""
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}},
        {"type": "image_url", "image_url": "https://example.org/a.png"},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "input_text", "text": "So?"},
        {"type": "image_url", "image_url": {}},
        "odd",
    ]
    answer = {"role": "assistant", "content": [{"type": "text", "text": "A cat"}]}
    user, assistant = inputs({"role": "user", "content": parts}, answer)
    assert user["content"] == [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"},
        {"type": "input_image", "image_url": "https://example.org/a.png"},
        {"type": "input_file", "file_id": "file-1"},
        {"type": "input_text", "text": "So?"},
        {"type": "image_url", "image_url": {}},
        "odd",
    ]
    assert assistant["content"] == [{"type": "output_text", "text": "A cat"}]


def test_calls_and_their_results_are_separate_items() -> None:
    """A conversation with tools in the form of chat completions is converted."""
    call = {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    call_message = {"role": "assistant", "content": None, "tool_calls": [call]}
    message = {"role": "assistant", "content": "One moment", "tool_calls": [call, {"id": "c2"}]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "12:30"}
    item = {"type": "function_call", "call_id": "c1", "name": "clock", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "12:30"}
    assert inputs(call_message, result) == [item, output]
    assert inputs(message) == [{"role": "assistant", "content": "One moment"}, item, {"id": "c2"}]
    assert inputs({"role": "user"}) == [{"role": "user"}]


def test_items_of_the_service_are_sent_unchanged() -> None:
    """A prompt may contain items with a type instead of a role."""
    user, output = (
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"type": "function_call_output", "call_id": "c1", "output": "4"},
    )
    own = {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
    assert inputs(user, output) == [own, output]
    assert inputs(output) == [output]


@pytest.mark.parametrize("prompt", ["[1, 2]", '[{"a": 1}]', '{"role": "user"}', "[INST] Hi", "[]"])
def test_other_json_is_text(prompt: str) -> None:
    """JSON without roles or types is text."""
    assert body(prompt)["input"] == prompt


CONVERSATION = [
    {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "file", "file": {}}]},
    {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "clock"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "12:30"},
    {"type": "function_call_output", "call_id": "c1", "output": "4"},
]


@pytest.mark.slow
@given(st.text() | (damaged(CONVERSATION) | JSON).map(json.dumps))
def test_any_prompt_is_sent_or_refused(prompt: str) -> None:
    """It is sent unchanged or as items; the request is JSON, and no text is changed."""
    kind: str
    try:
        request = adapter().build(Request(prompt=prompt))
    except ProviderError as error:
        kind = error.kind
    else:
        sent = json.loads(request.body or b"", parse_constant=pytest.fail)["input"]
        kind = "text" if sent == prompt else type(sent).__name__
    assert kind in ("text", "list", "bad_request")


# --- replies -------------------------------------------------------------------


TOOLS = {
    "type": "mcp_list_tools",
    "server_label": "sums",
    "tools": [{"name": "a"}, {"name": "b"}],
}


@pytest.mark.parametrize(
    ("items", "output"),
    [
        ([message("4"), message("5")], "4\n5"),
        (
            [{**message("4"), "content": [*message("4")["content"], *message("5")["content"]]}],
            "4\n5",
        ),
        ([REASONING, message("4")], "4"),
        ([{"type": "reasoning", "summary": []}, message("4")], "4"),
        (
            [{"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm"}]}],
            "",
        ),
        ([CALL], json.dumps(CALL)),
        ([message("So:"), CALL], f"So:\n{json.dumps(CALL)}"),
        ([SEARCH, message("4")], "Web search: sum of 2 and 2\n4"),
        ([{"type": "web_search_call", "action": {"queries": ["a", "b"]}}], "Web search: a; b"),
        (
            [{"type": "web_search_call", "action": {"url": "https://a.org"}}],
            "Web search: https://a.org",
        ),
        ([{"type": "web_search_call", "action": {"url": "u", "pattern": "p"}}], "Web search: p"),
        ([{"type": "web_search_call"}], "Web search"),
        (
            [{"type": "code_interpreter_call", "code": "a = 2\nprint(a)"}],
            "Code interpreter: a = 2 print(a)",
        ),
        ([{"type": "mcp_call", "name": "add", "output": "4"}], "MCP add: 4"),
        ([{"type": "mcp_call", "name": "add", "error": "down"}], "MCP add failed: down"),
        ([{"type": "mcp_call", "error": {"code": 5}}], 'MCP tool failed: {"code": 5}'),
        ([TOOLS], "MCP tools of sums: a, b"),
        (
            [{"type": "mcp_approval_request", "name": "add", "arguments": "{}"}],
            "MCP asks for approval: add {}",
        ),
        ([{"type": "invented_call", "text": "x"}, message("4")], "4"),
        ([{"type": "invented_call"}], ""),
        ([message('{"sum": 4}')], '{"sum": 4}'),
    ],
)
def test_items_are_lines_of_the_output(items: list[dict[str, Any]], output: str) -> None:
    """Items are in order; unknown ones are skipped."""
    assert parse(*items).output == output


@pytest.mark.parametrize(
    ("items", "output"),
    [
        ([message('{"sum": 4}')], {"sum": 4}),
        ([REASONING, SEARCH, message('{"sum": 4}')], {"sum": 4}),
        ([message('{"sum": ')], '{"sum": '),
        ([message('{"sum": NaN}')], '{"sum": NaN}'),
        ([message("4"), CALL], f"4\n{json.dumps(CALL)}"),
        ([REFUSAL], "I will not."),
    ],
)
def test_a_reply_by_a_schema_is_data(items: list[dict[str, Any]], output: object) -> None:
    """Text that is not JSON stays text; so do refusals and function calls."""
    with_schema = adapter(response_format=CHAT_FORMAT)
    assert with_schema.parse(reply(response(*items))).output == output
    # The service repeats the format, which also shows the format of a single call.
    assert adapter().parse(reply(response(*items, text={"format": FORMAT}))).output == output
    data = response(message('{"sum": 4}'), text={"format": {"type": "text"}})
    assert with_schema.parse(reply(data)).output == '{"sum": 4}'


def test_log_probabilities_are_kept() -> None:
    """Those of all texts are kept, in order."""
    reply = parse(message("4!", logprobs=LOG_PROBS), message("5", logprobs=[{"logprob": 0}]))
    assert reply.log_probs == (-0.25, -1.5, 0)


def test_citations_and_tier_are_kept_with_the_reply() -> None:
    """They are in the metadata, and absent if there are none."""
    cited = [{"type": "url_citation", "url": "https://example.org", "title": "Sums"}]
    metadata = parse(message("4", annotations=cited), message("5"), service_tier="flex").metadata
    assert (metadata["annotations"], metadata["service_tier"]) == (cited, "flex")
    assert parse(message("4"), service_tier=None).metadata.keys() == {"http", "id", "model"}


def test_the_error_of_a_large_response_is_found() -> None:
    """The service may repeat a request of any size."""
    error = {"code": "rate_limit_exceeded", "message": "Slow"}
    large = response(instructions="x" * 100_000, status="failed", error=error)
    assert parse_failure(adapter(), reply(large)).kind == "rate_limited"


@pytest.mark.parametrize("text", ["", "4"])
def test_an_unknown_item_is_skipped(text: str) -> None:
    """Beside other items it is skipped; alone, it is a reply with an empty output."""
    new = {"type": "something_new"}
    thought = {"type": "reasoning", "summary": []}
    assert parse(thought, message(text)).output == text
    assert parse(thought, new, message(text)).output == text
    assert parse(thought, new).output == ""


# --- streams -------------------------------------------------------------------


def test_items_missing_in_the_last_event_come_from_earlier_ones() -> None:
    """The items of earlier events are used if the last event has none."""
    done = [
        event("response.output_item.done", output_index=1, item=message("5")),
        event("response.output_item.done", output_index=0, item=message("4")),
        event("response.output_item.done", item=message("6")),
        event("response.output_item.done", item=None),
    ]
    body = write_events([*done, event("response.completed", response=response())])
    assert adapter().parse(HttpReply(200, STREAM, body)).output == "4\n5\n6"


# --- any input ------------------------------------------------------------------


@pytest.mark.slow
def test_a_reply_that_is_nested_too_deeply_is_malformed() -> None:
    """This also holds for a body that can be parsed but not written again."""
    kinds = set()
    for depth in range(500, 1100):
        call = f'{{"type": "function_call", "x": {"[" * depth}{"]" * depth}}}'
        try:
            adapter().parse(HttpReply(200, {}, f'{{"output": [{call}]}}'.encode()))
        except ProviderError as error:
            kinds.add(str(error))
    assert kinds == {
        "malformed_reply: HTTP 200 OK: the reply is nested too deeply",
        "malformed_reply: HTTP 200 OK: the reply is not JSON; check apiBaseUrl",
    }

import json
from collections.abc import Mapping
from typing import Any

import attrs
import pytest
from damaged import JSON, check_parse, damaged
from fake_runs import with_raw_server
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import Problem, ProviderError
from trioeval.providers import HttpReply, Reply, Request, Usage
from trioeval.providers.base import Guardrails
from trioeval.providers.http.adapter import AdapterSettings, HttpProvider, ServerEvent
from trioeval.providers.vendors.openai_responses import (
    BackgroundSettings,
    ResponsesAdapter,
    read_responses,
)
from trioeval.providers.vendors.services import SERVICES

OPENAI = SERVICES["openai"]
KEY = {"OPENAI_API_KEY": "sk-1234"}
HEADERS = {"content-type": "application/json", "set-cookie": "a=b", "x-request-id": "req_1"}
STREAM = {**HEADERS, "content-type": "text/event-stream; charset=utf-8"}

SCHEMA = {"type": "object", "properties": {"sum": {"type": "integer"}}}
FORMAT = {"type": "json_schema", "name": "sums", "schema": SCHEMA, "strict": True}
CHAT_FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "sums", "schema": SCHEMA, "strict": True},
}
CLOCK = {"name": "clock", "description": "Tells the time", "parameters": {"type": "object"}}

USAGE = {
    "input_tokens": 30,
    "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 2},
    "output_tokens": 12,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 42,
}
REASONING = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "Two and two."}],
}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "call_1",
    "name": "clock",
    "arguments": '{"zone": "UTC"}',
}
REFUSAL = {"type": "message", "content": [{"type": "refusal", "refusal": "I will not."}]}
LOG_PROBS = [{"token": "4", "logprob": -0.25, "top_logprobs": []}, {"token": "!", "logprob": -1.5}]


def adapter(model: str = "gpt-4.1", /, **config: Any) -> ResponsesAdapter:
    read = read_responses(OPENAI, model, config, KEY)
    assert isinstance(read, AdapterSettings | BackgroundSettings)
    assert isinstance(read.adapter, ResponsesAdapter)
    return read.adapter


def body(prompt: str = "Hi", model: str = "gpt-4.1", /, **config: Any) -> Any:
    return json.loads(adapter(model, **config).build(Request(prompt=prompt)).body or b"")


def problems(**config: Any) -> list[Problem]:
    read = read_responses(OPENAI, "gpt-4.1", config, KEY)
    assert isinstance(read, list)
    return read


def ok(data: object) -> HttpReply:
    return HttpReply(200, HEADERS, json.dumps(data).encode())


def message(text: str, **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], **more}
    return {"id": "msg_1", "type": "message", "role": "assistant", "content": [part]}


def response(*items: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    whole = {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "gpt-4.1-x",
        "output": list(items),
        "usage": USAGE,
    }
    return {**whole, **more}


def parse(*items: Mapping[str, Any], **more: Any) -> Reply:
    return adapter().parse(ok(response(*items, **more)))


def failure(reply: HttpReply, **config: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        adapter(**config).parse(reply)
    return caught.value


# --- requests ------------------------------------------------------------------


def test_a_plain_prompt_is_the_input() -> None:
    """The smallest request: model, input, defaults, key."""
    ready = adapter().build(Request(prompt="Hi"))
    assert (ready.method, ready.url) == ("POST", "https://api.openai.com/v1/responses")
    assert ready.headers == {"authorization": "Bearer sk-1234"}
    assert json.loads(ready.body or b"") == {
        "model": "gpt-4.1",
        "input": "Hi",
        "temperature": 0,
        "max_output_tokens": 1024,
    }


def test_a_reasoning_model_gets_no_temperature_and_no_limit() -> None:
    """Neither defaults nor what is set for other models; a limit and an effort of its own it gets."""
    assert body("Hi", "o3", temperature=0.5, topP=0.5) == {"model": "o3", "input": "Hi"}
    assert body("Hi", "gpt-5", reasoning_effort="low", max_completion_tokens=9) == {
        "model": "gpt-5",
        "input": "Hi",
        "reasoning": {"effort": "low"},
        "max_output_tokens": 9,
    }


def test_a_reasoning_model_that_is_told_not_to_reason_takes_a_temperature() -> None:
    """With effort "none" it is like any other; a model can also be said to be no such."""
    config = {"reasoning": {"effort": "none"}, "temperature": 0.5}
    assert body("Hi", "gpt-5.1", **config)["temperature"] == 0.5
    assert body("Hi", "o3", isReasoningModel=False)["temperature"] == 0
    assert "temperature" not in body("Hi", "mine", isReasoningModel=True)


def test_every_parameter_goes_under_its_name() -> None:
    """Both spellings of a key; what the service knows is sent as it is."""
    config = {
        "instructions": "Be brief",
        "max_output_tokens": 7,
        "temperature": 1,
        "topP": 0.5,
        "parallelToolCalls": False,
        "maxToolCalls": 2,
        "include": ["reasoning.encrypted_content"],
        "topLogprobs": 3,
        "previousResponseId": "resp_0",
        "truncation": "auto",
        "metadata": {"run": "1"},
        "store": False,
        "serviceTier": "flex",
        "user": "u",
        "promptCacheKey": "k",
    }
    assert body(**config) == {
        "model": "gpt-4.1",
        "input": "Hi",
        "instructions": "Be brief",
        "max_output_tokens": 7,
        "temperature": 1,
        "top_p": 0.5,
        "parallel_tool_calls": False,
        "max_tool_calls": 2,
        "include": ["reasoning.encrypted_content"],
        "top_logprobs": 3,
        "previous_response_id": "resp_0",
        "truncation": "auto",
        "metadata": {"run": "1"},
        "store": False,
        "service_tier": "flex",
        "user": "u",
        "prompt_cache_key": "k",
    }


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
def test_what_is_written_for_chat_completions_is_understood(
    config: Mapping[str, Any], field: str, value: object
) -> None:
    """Names and forms of chat completions become those of responses; its own stay."""
    assert body(**config)[field] == value


@pytest.mark.parametrize("key", ["temperature", "max_tokens", "tools", "text", "reasoning"])
def test_a_null_sends_nothing(key: str) -> None:
    """It takes a default away, and is not sent itself."""
    defaults = {"temperature", "max_output_tokens"}
    taken = {"max_tokens": "max_output_tokens"}.get(key, key)
    assert body(**{key: None}).keys() == {"model", "input", *defaults} - {taken}
    assert "logprobs" not in body(logprobs=False)


def test_defaults_come_from_the_environment() -> None:
    """It says other defaults, also where those of ours are omitted; the config wins."""
    environ = {**KEY, "OPENAI_TEMPERATURE": "0.5", "OPENAI_MAX_TOKENS": "9", "OPENAI_TOP_P": " "}
    environ |= {"OPENAI_MAX_COMPLETION_TOKENS": "8", "OPENAI_PRESENCE_PENALTY": "1"}

    def sent(model: str, **config: Any) -> Any:
        read = read_responses(OPENAI, model, config, environ)
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


def test_what_is_passed_through_stands_over_everything() -> None:
    """Also over the model."""
    config = {"passthrough": {"model": "other", "temperature": 1, "x": {"y": 1}}}
    assert body(**config) == {
        "model": "other",
        "input": "Hi",
        "temperature": 1,
        "max_output_tokens": 1024,
        "x": {"y": 1},
    }


def test_options_of_a_call_stand_over_the_config() -> None:
    """Whatever their spelling; members of `text` and `reasoning` one by one, a null takes away."""
    config = {
        "max_output_tokens": 7,
        "text": {"format": FORMAT, "verbosity": "low"},
        "passthrough": {"a": 1, "b": 1},
        "user": "u",
        "logprobs": True,
        "include": ["x"],
    }
    options = {
        "maxTokens": 5,
        "verbosity": "high",
        "passthrough": {"b": 2},
        "user": None,
        "logprobs": False,
    }
    ready = adapter(**config)
    assert json.loads(ready.build(Request(prompt="Hi", options=options)).body or b"") == {
        "model": "gpt-4.1",
        "input": "Hi",
        "temperature": 0,
        "max_output_tokens": 5,
        "text": {"format": FORMAT, "verbosity": "high"},
        "include": ["x"],
        "a": 1,
        "b": 2,
    }
    assert json.loads(ready.build(Request(prompt="Hi")).body or b"")["max_output_tokens"] == 7


def test_wrong_options_of_a_call_are_named_all() -> None:
    """The call is not made; what cannot differ from call to call is not known."""
    options = {"temprature": 1, "top_p": "high", "apiKey": "sk-other", "passthrough": {"stream": 1}}
    with pytest.raises(ProviderError) as caught:
        adapter().build(Request(prompt="Hi", options=options))
    assert caught.value.kind == "bad_request"
    for told in (
        'temprature: "temprature" is not a key (did you mean "temperature"?)',
        'top_p: must be a number, got "high"',
        'apiKey: "apiKey" is not a key',
        "passthrough: must be an object without input, stream or background",
    ):
        assert told in str(caught.value)
    assert "sk-other" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (
            {"passthrough": {"input": "Ho"}},
            (
                ".config.passthrough: must be an object without input, stream or background,"
                ' got {"input": "Ho"}'
            ),
        ),
        ({"instructions": ""}, '.config.instructions: must be text, got ""'),
        ({"include": [1]}, ".config.include: must be a list of texts, got [1]"),
        (
            {"maxToolCalls": 0},
            ".config.maxToolCalls: must be a whole number of at least 1, got 0",
        ),
        (
            {"passthrough": {"background": True}},
            (
                ".config.passthrough: must be an object without input, stream or background,"
                ' got {"background": true}'
            ),
        ),
        (
            {"background": True, "metrics": ["ttft"]},
            (
                ".config.metrics: a response that is made in the background has no first token to wait"
                " for\n  leave metrics or background out"
            ),
        ),
        ({"apiBaseUrl": "nowhere"}, ".config.apiBaseUrl: must be an http or https URL with a host"),
    ],
)
def test_mistakes_in_the_config_are_told(config: Mapping[str, Any], told: str) -> None:
    """Each with its key, its value, and what would be right."""
    assert [str(problem) for problem in problems(**config)] == [told]


def test_all_mistakes_are_told_at_once() -> None:
    """Those of the config, of the endpoint and of the environment."""
    environ = {"OPENAI_TEMPERATURE": "hot"}
    read = read_responses(OPENAI, "m", {"stor": True, "user": 1}, environ)
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
    """Roles and texts stay as they are, in JSON and in YAML."""
    system, user = {"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hi"}
    assert inputs(system, user) == [system, user]
    assert body("- role: user\n  content: 12:30")["input"] == [{"role": "user", "content": "12:30"}]


def test_parts_of_a_content_get_their_names() -> None:
    """Texts, images and files of chat completions; parts that are the service's own stay."""
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


def test_calls_and_their_results_are_items_of_their_own() -> None:
    """A conversation with tools, as chat completions write it."""
    call = {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    said = {"role": "assistant", "content": "One moment", "tool_calls": [call, {"id": "c2"}]}
    told = {"role": "tool", "tool_call_id": "c1", "content": "12:30"}
    item = {"type": "function_call", "call_id": "c1", "name": "clock", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "12:30"}
    assert inputs(asked, told) == [item, output]
    assert inputs(said) == [{"role": "assistant", "content": "One moment"}, item, {"id": "c2"}]
    assert inputs({"role": "user"}) == [{"role": "user"}]


def test_items_of_the_service_pass_as_they_are() -> None:
    """A prompt of which some items are no messages, and have a type instead of a role."""
    user, output = (
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"type": "function_call_output", "call_id": "c1", "output": "4"},
    )
    own = {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
    assert inputs(user, output) == [own, output]
    assert inputs(output) == [output]


@pytest.mark.parametrize("prompt", ["[1, 2]", '[{"a": 1}]', '{"role": "user"}', "[INST] Hi", "[]"])
def test_other_json_is_text(prompt: str) -> None:
    """What has neither roles nor types was not meant to be items."""
    assert body(prompt)["input"] == prompt


@pytest.mark.parametrize(
    "prompt", ['[{"role": "user"', '[{"role": "user"}, {"a": 1}]', '[{"type": "x", "a": NaN}]']
)
def test_broken_messages_are_not_sent(prompt: str) -> None:
    """A prompt that was meant to be messages fails before anything is sent."""
    with pytest.raises(ProviderError) as caught:
        body(prompt)
    assert caught.value.kind == "bad_request"


CONVERSATION = [
    {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "file", "file": {}}]},
    {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "clock"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "12:30"},
    {"type": "function_call_output", "call_id": "c1", "output": "4"},
]


@pytest.mark.slow
@given(st.text() | (damaged(CONVERSATION) | JSON).map(json.dumps))
def test_any_prompt_is_sent_as_it_is_or_as_items_or_refused(prompt: str) -> None:
    """What is sent is JSON, and no text is changed."""
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


def test_a_plain_response_is_text_with_usage_and_origin() -> None:
    """Text, finish reason, tokens, cost and where they came from are kept; cookies are not."""
    price = {"input": 2, "output": 8, "cachedInput": 0.5}
    reply = adapter(price=price).parse(ok(response(message("4"))))
    assert reply.output == "4"
    assert reply.finish_reason == "stop"
    assert reply.usage == Usage(
        prompt=30, completion=12, total=42, cached=8, cache_creation=2, reasoning=5
    )
    assert reply.cost == pytest.approx((22 * 2 + 8 * 0.5 + 12 * 8) / 1e6)
    assert (reply.is_refusal, reply.guardrails, reply.log_probs) == (False, None, None)
    assert reply.raw["id"] == "resp_1"
    headers = {"content-type": "application/json", "x-request-id": "req_1"}
    assert reply.metadata == {
        "http": {"status": 200, "headers": headers},
        "id": "resp_1",
        "model": "gpt-4.1-x",
    }


TOOLS = {
    "type": "mcp_list_tools",
    "server_label": "sums",
    "tools": [{"name": "a"}, {"name": "b"}],
}
SEARCH = {"type": "web_search_call", "action": {"type": "search", "query": "sum of 2\nand 2"}}


@pytest.mark.parametrize(
    ("items", "output"),
    [
        ([message("4"), message("5")], "4\n5"),
        (
            [{**message("4"), "content": [*message("4")["content"], *message("5")["content"]]}],
            "4\n5",
        ),
        ([REASONING, message("4")], "Thinking: Two and two.\n4"),
        ([{"type": "reasoning", "summary": []}, message("4")], "4"),
        (
            [{"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm"}]}],
            "Thinking: Hm",
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
    """In their order; what is not known is skipped."""
    assert parse(*items).output == output


def test_thinking_can_be_left_out() -> None:
    """With `showThinking: false` only the answer is the output."""
    assert adapter(showThinking=False).parse(ok(response(REASONING, message("4")))).output == "4"


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
def test_an_answer_by_a_schema_is_data(items: list[dict[str, Any]], output: object) -> None:
    """Text that is no JSON stays text; so do refusals, and calls of functions."""
    asked = adapter(response_format=CHAT_FORMAT)
    assert asked.parse(ok(response(*items))).output == output
    # The service repeats the format, which tells of one that was asked for in a single call.
    assert adapter().parse(ok(response(*items, text={"format": FORMAT}))).output == output
    told = response(message('{"sum": 4}'), text={"format": {"type": "text"}})
    assert asked.parse(ok(told)).output == '{"sum": 4}'


@pytest.mark.parametrize(
    ("items", "more", "reason"),
    [
        ([message("4")], {}, "stop"),
        ([message("4")], {"status": None}, "stop"),
        ([message("4"), CALL], {}, "tool_calls"),
        ([CALL, message("4")], {}, "stop"),
        ([{"type": "custom_tool_call"}], {}, "tool_calls"),
        (
            [message("4")],
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            "length",
        ),
        ([message("4")], {"status": "incomplete"}, "length"),
        ([message("4")], {"status": "incomplete", "incomplete_details": {"reason": "Odd"}}, "odd"),
    ],
)
def test_the_status_gives_the_finish_reason(
    items: list[dict[str, Any]], more: Mapping[str, Any], reason: str
) -> None:
    """Complete, out of tokens, or waiting for the result of a function."""
    reply = parse(*items, **more)
    assert reply.finish_reason == reason
    assert not reply.is_refusal


@pytest.mark.parametrize(
    "items",
    [
        [],
        [{"type": "reasoning", "summary": [], "encrypted_content": "eA=="}],
        [{"type": "reasoning"}, {"type": "message", "content": []}],
    ],
)
def test_a_response_that_holds_nothing_is_no_answer(items: list[dict[str, Any]]) -> None:
    """It is asked for again, unless it would be cut off again; an empty text is an answer."""
    error = failure(ok(response(*items)))
    assert str(error) == "empty_reply: the response holds nothing (finish reason stop)"
    assert error.retries == 1
    cut_off = failure(ok(response(*items, status="incomplete")))
    assert str(cut_off) == (
        "empty_reply: the response holds nothing (finish reason length);"
        " there was no room for it: raise max_output_tokens, or shorten the prompt"
    )
    assert cut_off.retries == 0
    assert parse(*items, message("")).output == ""
    assert parse(*items, {"type": "something_new"}).output == ""


def test_a_refusal_is_an_answer() -> None:
    """The refusal is the output, and the reply is marked."""
    reply = parse(REFUSAL)
    assert (reply.output, reply.is_refusal, reply.finish_reason) == ("I will not.", True, "stop")
    assert reply.guardrails == Guardrails(flagged=True, flagged_output=True, reason="I will not.")


@pytest.mark.parametrize(
    ("items", "output"), [([message("So far")], "So far"), ([], "[filtered by the provider]")]
)
def test_a_filtered_answer_is_marked(items: list[dict[str, Any]], output: str) -> None:
    """What the filter left of it is the output."""
    details = {"reason": "content_filter"}
    reply = parse(*items, status="incomplete", incomplete_details=details)
    assert (reply.output, reply.finish_reason) == (output, "content_filter")
    assert reply.is_refusal
    assert reply.guardrails == Guardrails(flagged=True, flagged_output=True)


def test_log_probabilities_are_kept() -> None:
    """Those of all texts, in their order."""
    reply = parse(message("4!", logprobs=LOG_PROBS), message("5", logprobs=[{"logprob": 0}]))
    assert reply.log_probs == (-0.25, -1.5, 0)


def test_citations_and_tier_are_kept_with_the_reply() -> None:
    """They are no part of the output, and not there where there are none."""
    cited = [{"type": "url_citation", "url": "https://example.org", "title": "Sums"}]
    said = parse(message("4", annotations=cited), message("5"), service_tier="flex").metadata
    assert (said["annotations"], said["service_tier"]) == (cited, "flex")
    assert parse(message("4"), service_tier=None).metadata.keys() == {"http", "id", "model"}


@pytest.mark.parametrize("usage", [None, [], {"input_tokens": "7"}, {"input_tokens": 10**400}])
def test_numbers_that_were_not_reported_stay_absent(usage: object) -> None:
    """Usage is never invented."""
    reply = adapter(price={"input": 1, "output": 1}).parse(ok(response(message("4"), usage=usage)))
    assert (reply.usage, reply.cost) == (Usage(), None)


def test_a_prompt_that_is_not_taken_is_a_refusal() -> None:
    """As a status 400, and as a response that failed by it; the key is not repeated."""
    error = {"code": "invalid_prompt", "message": "Not allowed for sk-1234."}
    early = adapter().parse(HttpReply(400, {}, json.dumps({"error": error}).encode()))
    late = parse(status="failed", error=error)
    for reply in (early, late):
        assert reply.output == "Not allowed for [hidden]."
        assert (reply.finish_reason, reply.is_refusal) == ("content_filter", True)
        assert reply.guardrails == Guardrails(
            flagged=True, flagged_input=True, reason="Not allowed for [hidden]."
        )
    assert late.usage.prompt == 30
    assert late.metadata["http"]["status"] == 200
    assert late.raw["id"] == "resp_1"


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (ok(response()), "empty_reply: the response holds nothing (finish reason stop)"),
        (ok({"id": "x"}), "malformed_reply: the reply is not a response"),
        (ok({"output": {}}), "malformed_reply: the reply is not a response"),
        (ok([1]), "malformed_reply: the reply is not a JSON object"),
        (HttpReply(200, {}, b"<html>"), "malformed_reply: the reply is not JSON"),
        (HttpReply(200, {}, b""), "malformed_reply: the reply is not JSON"),
        (ok(response(status="queued")), "malformed_reply: the response is still queued"),
        (ok(response(status="cancelled")), "server: the response ended as cancelled"),
        (ok(response(status="failed")), "server: the response ended as failed"),
        (
            ok(
                response(status="failed", error={"code": "server_error", "message": "Oops sk-1234"})
            ),
            "server: HTTP 200 OK: Oops [hidden]",
        ),
        (
            ok(response(status="failed", error={"code": "rate_limit_exceeded", "message": "Slow"})),
            "rate_limited: HTTP 200 OK: Slow",
        ),
        (ok({"error": "gone"}), "server: HTTP 200 OK: gone"),
        (
            HttpReply(401, {}, b'{"error": {"message": "bad key sk-1234"}}'),
            "auth: HTTP 401 Unauthorized: bad key [hidden]",
        ),
    ],
)
def test_what_is_no_answer_is_an_error(reply: HttpReply, told: str) -> None:
    """Each way of not answering has its kind, and no error repeats the key."""
    error = failure(reply)
    assert str(error) == told
    assert "sk-1234" not in str(error.body_excerpt)


def test_the_error_of_a_large_response_is_found() -> None:
    """However much the service repeats of the request."""
    error = {"code": "rate_limit_exceeded", "message": "Slow"}
    large = response(instructions="x" * 100_000, status="failed", error=error)
    assert failure(ok(large)).kind == "rate_limited"


# --- streams -------------------------------------------------------------------


def event(kind: str, **data: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()


def streamed(whole: Mapping[str, Any], end: str = "response.completed") -> bytes:
    early = {**whole, "status": "in_progress", "output": [], "usage": None}
    items = enumerate(whole["output"])
    return b"".join(
        [
            event("response.created", response=early),
            event("response.output_text.delta", delta="4"),
            *(event("response.output_item.done", output_index=n, item=item) for n, item in items),
            event(end, response=whole),
        ]
    )


def test_a_stream_is_asked_for_to_time_its_first_token() -> None:
    """And only then."""
    assert body(metrics=["ttft"])["stream"] is True
    assert adapter(metrics="ttft").streams
    assert "stream" not in body(metrics=[])


@pytest.mark.parametrize(
    ("whole", "end"),
    [
        (response(REASONING, message("4", logprobs=LOG_PROBS)), "response.completed"),
        (response(CALL), "response.completed"),
        (response(REFUSAL), "response.completed"),
        (response(message("So"), status="incomplete"), "response.incomplete"),
        (
            response(status="failed", error={"code": "invalid_prompt", "message": "No"}),
            "response.failed",
        ),
    ],
)
def test_a_stream_gives_the_same_reply(whole: dict[str, Any], end: str) -> None:
    """Nothing of a reply depends on how it came, but for its content type."""
    stream = HttpReply(200, STREAM, streamed(whole, end))
    plain = attrs.evolve(ok(whole), headers=STREAM)
    ready = adapter(metrics="ttft", price={"input": 1, "output": 1})
    expected = ready.parse(ok(whole))
    assert ready.parse(stream) == attrs.evolve(expected, metadata=ready.parse(stream).metadata)
    assert plain.body != stream.body


def test_a_service_that_does_not_stream_is_understood() -> None:
    """A reply in one piece is one, whatever was asked for."""
    assert adapter(metrics="ttft").parse(ok(response(message("4")))).output == "4"


def test_items_that_the_end_leaves_out_are_those_before_it() -> None:
    """In their order, for services that end a stream with an empty response."""
    done = [
        event("response.output_item.done", output_index=1, item=message("5")),
        event("response.output_item.done", output_index=0, item=message("4")),
        event("response.output_item.done", item=message("6")),
        event("response.output_item.done", item=None),
    ]
    end = event("response.completed", response=response())
    assert adapter().parse(HttpReply(200, STREAM, b"".join([*done, end]))).output == "4\n5\n6"


@pytest.mark.parametrize("cut", [0, 1, 40])
def test_a_stream_that_breaks_off_is_no_reply(cut: int) -> None:
    """However much of the answer had come."""
    whole = streamed(response(message("4")))
    end = len(whole) - len(event("response.completed", response=response(message("4"))))
    error = failure(HttpReply(200, STREAM, whole[: end + cut]))
    assert str(error) == "connection: the stream ended before the reply was complete"


@pytest.mark.parametrize(
    "told",
    [
        event("error", code="rate_limit_exceeded", message="Slow down sk-1234", param=None),
        event("error", error={"code": "rate_limit_exceeded", "message": "Slow down sk-1234"}),
        b'data: {"error": {"code": "rate_limit_exceeded", "message": "Slow down sk-1234"}}\n\n',
    ],
)
def test_an_error_in_a_stream_is_the_failure(told: bytes) -> None:
    """It is classified as if it had come as a whole."""
    start = event("response.output_text.delta", delta="4")
    error = failure(HttpReply(200, STREAM, start + b"data: {\n\n" + told))
    assert str(error) == "rate_limited: HTTP 200 OK: Slow down [hidden]"


@pytest.mark.parametrize(
    ("told", "is_speech"),
    [
        (ServerEvent("{}", "response.output_text.delta"), True),
        (ServerEvent("{}", "response.reasoning_summary_text.delta"), True),
        (ServerEvent('{"type": "response.output_text.delta"}'), True),
        (ServerEvent("{}", "response.created"), False),
        (ServerEvent('{"type": "response.created"}'), False),
        (ServerEvent("[DONE]"), False),
    ],
)
def test_the_first_token_is_that_of_the_answer(told: ServerEvent, is_speech: bool) -> None:  # noqa: FBT001
    """What only tells of the response says nothing yet."""
    assert adapter().speaks(told) == is_speech


# --- anything ------------------------------------------------------------------

GOLDEN = [
    response(
        REASONING, message('{"sum": 4}', logprobs=LOG_PROBS), CALL, SEARCH, text={"format": FORMAT}
    ),
    response(REFUSAL, status="incomplete", incomplete_details={"reason": "content_filter"}),
    response(status="failed", error={"code": "server_error", "message": "Oops"}),
    response(
        {"type": "mcp_call", "name": "add", "error": {"code": 1}},
        {"type": "mcp_list_tools", "tools": [{"name": "a"}]},
        {"type": "code_interpreter_call", "code": "1"},
    ),
]
STATUSES = st.sampled_from([200, 200, 200, 400, 429, 500])
PRICED = {"price": {"input": 1, "output": 1}}


@pytest.mark.slow
@given(STATUSES, st.sampled_from(GOLDEN).flatmap(damaged) | JSON)
def test_any_json_is_read_or_fails_in_a_known_way(status: int, data: Any) -> None:
    """Nothing that a service says breaks the adapter."""
    reply = HttpReply(status, HEADERS, json.dumps(data).encode())
    check_parse(adapter(response_format=FORMAT, **PRICED), reply)


@pytest.mark.slow
@given(st.sampled_from(GOLDEN), st.data())
def test_any_stream_is_read_or_fails_in_a_known_way(
    whole: dict[str, Any], data: st.DataObject
) -> None:
    """Whatever is wrong with its events, and wherever it is cut."""
    parts = [
        line[6:] for line in streamed(whole).decode().splitlines() if line.startswith("data: ")
    ]
    events = data.draw(damaged([json.loads(part) for part in parts]))
    lines = events if isinstance(events, list) else [events]
    text = "".join(f"data: {json.dumps(one)}\n\n" for one in lines).encode()
    cut = data.draw(st.integers(0, len(text)))
    check_parse(adapter(**PRICED), HttpReply(200, STREAM, text[:cut] if cut % 2 else text))


@pytest.mark.slow
@given(STATUSES, st.binary(), st.booleans())
def test_any_bytes_are_read_or_fail_in_a_known_way(
    status: int,
    raw: bytes,
    is_stream: bool,  # noqa: FBT001
) -> None:
    """Not even their encoding is trusted."""
    check_parse(adapter(), HttpReply(status, STREAM if is_stream else HEADERS, raw))


@pytest.mark.slow
def test_a_reply_that_is_nested_too_deeply_is_malformed() -> None:
    """Also one that can just be parsed, and not be written again."""
    told = set()
    for depth in range(500, 1100):
        call = f'{{"type": "function_call", "x": {"[" * depth}{"]" * depth}}}'
        try:
            adapter().parse(HttpReply(200, {}, f'{{"output": [{call}]}}'.encode()))
        except ProviderError as error:
            told.add(str(error))
    assert told == {
        "malformed_reply: the reply is nested too deeply",
        "malformed_reply: the reply is not JSON",
    }


@pytest.mark.network
def test_a_response_over_a_socket() -> None:
    """What was built is sent, and what comes is parsed."""
    data = json.dumps(response(message("4"))).encode()
    head = (
        f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    )

    async def ask(address: Any, client: Any) -> None:
        ready = adapter(apiBaseUrl=address.base_url)
        reply = await HttpProvider(ready, client)(Request(prompt="2 + 2"))
        assert reply.output == "4"

    with_raw_server(head.encode() + data, ask, max_reply_bytes=4096)

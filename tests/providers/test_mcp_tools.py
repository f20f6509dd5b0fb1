"""Tools of MCP servers for models: real servers of tools, and a vendor's server on loopback."""

import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from loopback import Answer, Seen, Server, as_json, opened, problems, serve
from program_runs import run

from trioeval.errors import Fault, ProviderError
from trioeval.providers import OpenProvider, Reply, Request, resolve
from trioeval.providers.mcp.tools import McpToolsSettings
from trioeval.providers.resolve import ProviderSpec
from trioeval.templates import Templates

T = TypeVar("T")

PLAIN = Path(__file__).parent / "mcp_plain_server.py"
TOOLS = ["echo", "crash", "refuse"]
ECHOED = '[{"type":"text","text":"{\\"a\\": 1}"}]'


def servers(**more: Any) -> dict[str, Any]:
    """Return the config of a server of tools."""
    command = {"command": sys.executable, "args": ["-S", str(PLAIN)], "name": "s"}
    return {"enabled": True, "server": command, "tools": TOOLS, **more}


def spec(entry_id: str, url: str, **config: Any) -> ProviderSpec:
    """Return the spec of a model with tools."""
    return resolve(
        entry_id,
        {"apiKey": "k", "apiBaseUrl": url, "mcp": servers(), **config},
        environ={"PATH": "/usr/bin:/bin"},
        directory=Path(),
        templates=Templates(),
        custom={},
    )


def asked(
    entry_id: str,
    answers: Sequence[Answer],
    body: Callable[[OpenProvider], Awaitable[T]],
    **config: Any,
) -> tuple[T, list[Any]]:
    """Run a body with a provider whose service gives these answers; return the bodies it got, too."""
    left = list(answers)

    def respond(_seen: Seen) -> Answer:
        return left.pop(0)

    async def main() -> tuple[T, Server]:
        async with serve(respond) as server:
            found = spec(entry_id, server.url, **config)
            assert isinstance(found.settings, McpToolsSettings)
            async with opened(found) as provider:
                return await body(provider), server

    result, server = run(main)
    assert left == []
    return result, [json.loads(seen.body) for seen in server.seen]


async def reply_of(provider: OpenProvider) -> Reply:
    """Ask."""
    return await provider(Request(prompt="What is 1?"))


async def failure_of(provider: OpenProvider) -> ProviderError:
    """Return the error of a call."""
    with pytest.raises(ProviderError) as caught:
        await provider(Request(prompt="What is 1?"))
    return caught.value


def chat(*calls: tuple[str, str], content: str | None = None) -> Answer:
    """Return a chat completion that calls tools."""
    requested = [
        {"id": f"c{place}", "type": "function", "function": {"name": name, "arguments": given}}
        for place, (name, given) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": content}
    if requested:
        message["tool_calls"] = requested  # type: ignore[assignment]
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    return as_json({"choices": [{"message": message}], "usage": usage})


def claude(*blocks: Mapping[str, Any]) -> Answer:
    """Return a message of Anthropic."""
    usage = {"input_tokens": 7, "output_tokens": 2}
    return as_json({"type": "message", "role": "assistant", "content": blocks, "usage": usage})


def use(name: str, number: int = 1, **given: Any) -> dict[str, Any]:
    """Return the block that calls a tool."""
    return {"type": "tool_use", "id": f"t{number}", "name": name, "input": given}


def said(text: str) -> dict[str, Any]:
    """Return a block of text."""
    return {"type": "text", "text": text}


def test_chat_completions_give_the_results_of_the_tools() -> None:
    """The tools of servers come before those of the config; calls of these are left to others."""
    own = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}
    answer = chat(("echo", '{"a": 1}'), ("clock", "{}"), ("echo", '{"fails": true}'))
    reply, (body,) = asked("openai:gpt-4.1", [answer], reply_of, tools=[own])
    assert [tool["function"]["name"] for tool in body["tools"]] == [*TOOLS, "clock"]
    parameters = {"type": "object", "properties": {}}
    described = {"name": "echo", "description": "Do echo.", "parameters": parameters}
    assert body["tools"][0] == {"type": "function", "function": described}
    failed = '[{"type":"text","text":"{\\"fails\\": true}"}]'
    assert reply.output == f"MCP echo: {ECHOED}\nMCP echo failed: {failed}"
    assert [call.name for call in reply.tool_calls] == ["echo", "clock", "echo"]
    assert reply.metadata["toolCalls"] == [
        {"id": "c0", "name": "echo", "input": {"a": 1}, "output": ECHOED, "is_error": False},
        {"id": "c2", "name": "echo", "input": {"fails": True}, "output": failed, "is_error": True},
    ]
    assert reply.usage.total == 9


@pytest.mark.parametrize(
    ("call", "output"),
    [
        (("refuse", "{}"), "MCP refuse failed: openai:gpt-4.1: s: refuse: no such city"),
        (
            ("echo", "{"),
            'MCP echo failed: the arguments must be a JSON object, got "{"',
        ),
    ],
)
def test_a_call_that_fails_is_part_of_the_output(call: tuple[str, str], output: str) -> None:
    """The model has called the tool wrongly: that is what a test measures."""
    reply, _ = asked("openai:gpt-4.1", [chat(call)], reply_of)
    assert reply.output == output


@pytest.mark.parametrize("answer", [chat(content="One."), chat(("clock", "{}"))])
def test_a_reply_without_tools_of_servers_stays_as_it_is(answer: Answer) -> None:
    """Other calls are the output, as without servers."""
    reply, _ = asked("openai:gpt-4.1", [answer], reply_of)
    assert reply.output == (reply.text or [call.to_chat() for call in reply.tool_calls])
    assert "toolCalls" not in reply.metadata


def test_a_server_that_crashes_is_an_error_with_the_cost_of_the_reply() -> None:
    """The call is not repeated: the model's reply is paid for."""
    price = {"input": 1_000_000, "output": 1_000_000}
    error, bodies = asked("openai:gpt-4.1", [chat(("crash", "{}"))], failure_of, price=price)
    assert str(error) == "worker_crashed: openai:gpt-4.1: s ended with exit code 3: no luck"
    assert (error.fault, error.usage.total, error.money) == (Fault.REFUSED, 9, 9)
    assert len(bodies) == 1


def test_a_server_that_cannot_be_used_costs_nothing() -> None:
    """No model is asked."""
    broken = servers(server={"command": sys.executable, "args": ["-c", "exit(3)"], "name": "s"})
    error, bodies = asked("openai:gpt-4.1", [], failure_of, mcp=broken)
    assert str(error) == "worker_crashed: openai:gpt-4.1: s ended with exit code 3"
    assert bodies == []


def test_claude_gets_the_results_until_it_calls_no_more_tools() -> None:
    """Usage and cost are those of all requests; a required tool is required only once."""
    answers = [
        claude(said("Let me see."), use("echo", 1, a=1), use("refuse", 2)),
        claude(use("echo", 3)),
        claude(said("It is 1.")),
    ]
    price = {"input": 1_000_000, "output": 1_000_000}
    choice = {"type": "any"}
    reply, bodies = asked(
        "anthropic:claude-haiku-4-5", answers, reply_of, price=price, tool_choice=choice
    )
    assert reply.output == "It is 1."
    assert [body.get("tool_choice") for body in bodies] == [choice, None, None]
    assert [tool["name"] for tool in bodies[2]["tools"]] == TOOLS
    question, asking, results, *rest = bodies[2]["messages"]
    assert question == {"role": "user", "content": "What is 1?"}
    assert asking["content"] == [said("Let me see."), use("echo", 1, a=1), use("refuse", 2)]
    message = "anthropic:claude-haiku-4-5: s: refuse: no such city"
    assert results["content"] == [
        {"type": "tool_result", "tool_use_id": "t1", "content": ECHOED},
        {"type": "tool_result", "tool_use_id": "t2", "content": message, "is_error": True},
    ]
    assert [one["role"] for one in rest] == ["assistant", "user"]
    assert (reply.usage.prompt, reply.usage.completion, reply.cost) == (21, 6, 27)
    assert [call["name"] for call in reply.metadata["toolCalls"]] == ["echo", "refuse", "echo"]


def test_the_number_of_tools_that_claude_may_call_is_limited() -> None:
    """`max_tool_calls`, 8 by default; what was spent is reported."""
    answers = [claude(use("echo", 1)), claude(use("echo", 2), use("echo", 3))]
    error, _ = asked("anthropic:claude-haiku-4-5", answers, failure_of, max_tool_calls=2)
    assert error.message == "the model called more than 2 tools (max_tool_calls)"
    assert (error.kind, error.usage.prompt) == ("unexpected", 14)


@pytest.mark.parametrize(
    ("blocks", "config"),
    [([use("echo"), use("clock")], {}), ([use("echo")], {"max_tool_calls": 0})],
)
def test_claudes_calls_are_the_output_if_they_are_not_run(
    blocks: list[dict[str, Any]], config: dict[str, Any]
) -> None:
    """Calls of other tools among them, or a maximum of 0, leave all of them to others."""
    reply, bodies = asked("anthropic:claude-haiku-4-5", [claude(*blocks)], reply_of, **config)
    assert [call.name for call in reply.tool_calls] == [block["name"] for block in blocks]
    assert ("max_tool_calls" in bodies[0], len(bodies)) == (False, 1)


def test_a_failed_request_about_results_is_the_providers_failure() -> None:
    """The lane sees its kind; the requests before it are billed."""
    answers = [claude(use("echo")), as_json({"error": {"message": "slow down"}}, 429)]
    error, _ = asked("anthropic:claude-haiku-4-5", answers, failure_of)
    assert (error.kind, error.fault) == ("rate_limited", Fault.RATE_LIMITED)
    assert error.usage.prompt == 7


def test_gemini_is_offered_the_tools_and_its_calls_are_the_output() -> None:
    """As in promptfoo."""
    part = {"functionCall": {"name": "echo", "args": {"a": 1}}}
    answer = as_json({"candidates": [{"content": {"parts": [part]}, "finishReason": "STOP"}]})
    reply, (body,) = asked("google:gemini-2.5-flash", [answer], reply_of)
    declared = body["tools"][0]["functionDeclarations"]
    assert [one["name"] for one in declared] == TOOLS
    assert reply.output == [part]
    assert [call.name for call in reply.tool_calls] == ["echo"]


def test_problems_of_servers_are_at_their_place() -> None:
    """Together with those of the model."""
    found = problems(
        "openai:gpt-4.1", temperature="hot", mcp={"enabled": True, "server": {"path": "no.py"}}
    )
    assert [one.partition(":")[0] for one in found] == [
        ".config.temperature",
        ".config.apiKey",
        ".config.mcp.server.path",
    ]
    (problem,) = problems(
        "anthropic:claude-haiku-4-5", apiKey="k", mcp=servers(), max_tool_calls=-1
    )
    assert problem == ".config.max_tool_calls: must be a whole number of at least 0, got -1"


@pytest.mark.parametrize("entry_id", ["openai:embedding:m", "openai:responses:gpt-4.1"])
def test_models_that_get_no_tools_refuse_servers(entry_id: str) -> None:
    """Ignoring them would change the results."""
    (problem,) = problems(entry_id, apiKey="k", mcp=servers())
    assert problem.startswith(".config.mcp: tools of MCP servers are not supported")


def test_a_reply_that_depends_on_tools_is_not_reused() -> None:
    """The tools may answer differently; and their number is not known before, so no budget bounds it."""
    found = spec("openai:gpt-4.1", "http://127.0.0.1:9", max_tokens=5)

    async def main() -> bool:
        async with opened(found) as provider:
            return provider.is_cacheable

    assert not run(main)
    assert not found.metering.is_bounded


def test_the_secrets_of_servers_are_hidden() -> None:
    """Those of the model too."""
    server = {**servers()["server"], "env": {"API_KEY": "sesame-street"}}
    found = spec("openai:gpt-4.1", "http://127.0.0.1:9", mcp=servers(server=server))
    assert {"k", "sesame-street"} <= set(found.secrets)

"""`mcp:` providers that are programs: real child processes that speak the protocol."""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
from program_runs import NothingShared, carriers, context, is_alive, run, run_when_ready, wait_gone

from trioeval.errors import Fault, ProviderError
from trioeval.providers import Reply, Request
from trioeval.providers.mcp.entry import McpProvider, McpSettings, read, read_tool_request

T = TypeVar("T")

HERE = Path(__file__).parent
PLAIN = HERE / "mcp_plain_server.py"
REAL = HERE / "mcp_sdk_server.py"


def server(fault: str = "", **more: Any) -> dict[str, Any]:
    """Return the config of a server with a fault."""
    env = {"FAULT": fault, **more.pop("env", {})}
    return {"command": sys.executable, "args": ["-S", str(PLAIN)], "env": env, **more}


def settings(directory: Path, fault: str = "", **config: Any) -> McpSettings:
    """Return the settings of an entry, by default of one server."""
    servers = {} if "servers" in config else {"server": server(fault)}
    found = read("mcp", "", {**servers, **config}, context(directory))
    assert isinstance(found, McpSettings), found
    return found


def problems(directory: Path, config: Mapping[str, Any]) -> list[str]:
    """Return the problems of an entry, as shown to the user."""
    found = read("mcp", "", config, context(directory))
    assert isinstance(found, list), found
    return [str(problem) for problem in found]


async def use(provider: McpProvider, tool: str, /, **arguments: Any) -> Reply:
    """Call a tool."""
    return await provider(Request(prompt=json.dumps({"tool": tool, "args": arguments})))


async def text_of(provider: McpProvider, tool: str, /, **arguments: Any) -> str:
    """Return the text of a tool's result."""
    (block,) = json.loads((await use(provider, tool, **arguments)).output)
    return str(block["text"])


async def failure(provider: McpProvider, tool: str, /, **arguments: Any) -> ProviderError:
    """Return the error of a call."""
    with pytest.raises(ProviderError) as caught:
        await use(provider, tool, **arguments)
    return caught.value


def with_provider(
    found: McpSettings, body: Callable[[McpProvider], Awaitable[T]], pipe: Path | None = None
) -> T:
    """Run a body with an open provider; with a pipe, on a clock that stops until the pipe is used."""

    async def main() -> T:
        async with found.open(NothingShared()) as provider:
            return await body(provider)

    return run(main) if pipe is None else run_when_ready(pipe, main)


def test_the_content_of_a_result_is_the_output(tmp_path: Path) -> None:
    """It is JSON text, and the result, the tool and its arguments are kept."""

    async def body(provider: McpProvider) -> Reply:
        return await use(provider, "echo", a=1, b="ä")

    reply = with_provider(settings(tmp_path), body)
    text = '{"a": 1, "b": "ä"}'
    assert reply.output == json.dumps(
        [{"type": "text", "text": text}], ensure_ascii=False, separators=(",", ":")
    )
    assert reply.raw == {"content": [{"type": "text", "text": text}], "isError": False}
    given = {"a": 1, "b": "ä"}
    assert reply.metadata == {
        "toolName": "echo",
        "toolArgs": given,
        "originalPayload": {"tool": "echo", "args": given},
    }


def test_an_error_that_a_tool_returns_is_a_reply(tmp_path: Path) -> None:
    """Tests may check it, as in promptfoo."""

    async def body(provider: McpProvider) -> Reply:
        return await use(provider, "echo", fails=True)

    reply = with_provider(settings(tmp_path), body)
    assert reply.metadata["isError"] is True
    assert "fails" in reply.output


@pytest.mark.parametrize(
    "prompt",
    [
        {"tool": "add", "args": {"a": 1}},
        {"toolName": "add", "arguments": {"a": 1}},
        {"function": "add", "params": {"a": 1}},
        {"functionName": "add", "parameters": {"a": 1}},
        {"name": "add", "args": None, "arguments": {"a": 1}},
    ],
)
def test_the_names_of_promptfoo_for_tool_and_arguments_are_read(prompt: Any) -> None:
    """The first one with a value counts."""
    found = read_tool_request(Request(prompt=json.dumps(prompt)), "mcp")
    assert (found.tool, found.arguments, found.payload) == ("add", {"a": 1}, prompt)


def test_the_variable_prompt_replaces_the_prompt() -> None:
    """As in promptfoo."""
    found = read_tool_request(Request(prompt="x", vars={"prompt": '{"tool": "add"}'}), "mcp")
    assert (found.tool, found.arguments) == ("add", {})


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (
            "Add 2 and 2",
            'the prompt must be JSON such as {"tool": "<name>", "args": {…}}, got "Add',
        ),
        ("[]", 'the prompt names no tool; write {"tool": "<name>", "args": {…}}, got []'),
        ('{"tool": 3}', "the prompt names no tool; write"),
        ('{"tool": "add", "args": [2]}', "the arguments of add must be an object, got [2]"),
    ],
)
def test_a_prompt_that_is_not_a_call_is_refused(prompt: str, message: str) -> None:
    """The message shows the form; no server is started."""
    with pytest.raises(ProviderError) as caught:
        read_tool_request(Request(prompt=prompt), "mcp")
    assert caught.value.kind == "bad_request"
    assert caught.value.message.startswith(f"mcp: {message}")


def test_calls_share_one_process_that_ends_with_the_provider(tmp_path: Path) -> None:
    """LEAK: no process is left, nor one that the server has started in another session."""

    async def body(provider: McpProvider) -> list[str]:
        names = ("pid", "pid", "child")
        return [await text_of(provider, name) for name in names]

    first, second, child = map(int, with_provider(settings(tmp_path), body))
    assert first == second
    assert not is_alive(first)
    assert not is_alive(child)


def test_no_process_is_left_after_a_cancelled_run(tmp_path: Path) -> None:
    """LEAK: also in the middle of a call."""
    pipe, mark = tmp_path / "ready", f"mcp-{uuid.uuid4().hex}"
    os.mkfifo(pipe)
    found = settings(tmp_path, servers=[server(env={"FAMILY": mark})])

    async def main() -> list[int]:
        async with trio.open_nursery() as nursery:

            async def cancel() -> None:
                await trio.to_thread.run_sync(pipe.read_text, abandon_on_cancel=True)
                running.extend(carriers(mark))
                nursery.cancel_scope.cancel("ready")

            running: list[int] = []
            nursery.start_soon(cancel)
            async with found.open(NothingShared()) as provider:
                await use(provider, "hang", pipe=str(pipe))
        return running

    assert run(main)
    assert carriers(mark) == []


@pytest.mark.slow
def test_no_server_survives_a_killed_run(tmp_path: Path) -> None:
    """LEAK: the supervisor of a server ends it when the run is killed."""
    found = {"server": server()}
    code = f"""
import sys; sys.path.insert(0, {str(HERE)!r})
from test_mcp import *
async def body(provider):
    print(await text_of(provider, "pid"), await text_of(provider, "child"), flush=True)
    await trio.sleep_forever()
with_provider(settings(Path({str(tmp_path)!r}), **{found!r}), body)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        pids = [int(one) for one in program.stdout.readline().split()]
        assert all(map(is_alive, pids))
        program.send_signal(signal.SIGKILL)
    assert len(pids) == 2
    assert all(wait_gone(pid, 10) for pid in pids)


def test_a_server_that_ends_in_a_call_is_started_again_for_the_next(tmp_path: Path) -> None:
    """The error has its exit code, and the last line of its standard error."""

    async def body(provider: McpProvider) -> tuple[str, ProviderError, str]:
        before = await text_of(provider, "pid")
        error = await failure(provider, "crash")
        return before, error, await text_of(provider, "pid")

    before, error, after = with_provider(settings(tmp_path, servers=[server(name="weather")]), body)
    assert (error.kind, error.fault) == ("worker_crashed", Fault.TRANSIENT)
    assert error.message == "mcp: weather ended with exit code 3: no luck"
    assert error.body_excerpt == "no luck"
    assert before != after


def test_all_calls_in_flight_get_the_reason_when_a_server_ends(tmp_path: Path) -> None:
    """It counts as one crash."""

    async def body(provider: McpProvider) -> tuple[list[ProviderError], str]:
        errors: list[ProviderError] = []

        async def fail(tool: str) -> None:
            errors.append(await failure(provider, tool))

        await text_of(provider, "pid")
        async with trio.open_nursery() as nursery:
            for tool in ("crash", "crash", "crash", "crash"):
                nursery.start_soon(fail, tool)
        return errors, await text_of(provider, "echo")

    found = settings(tmp_path, servers=[server(name="weather")])
    errors, answer = with_provider(found, body)
    message = "mcp: weather ended with exit code 3: no luck"
    assert [error.message for error in errors] == [message] * 4
    assert answer == "{}"


def test_a_server_that_always_ends_is_given_up(tmp_path: Path) -> None:
    """The third crash in a row is fatal for the lane."""

    async def body(provider: McpProvider) -> list[ProviderError]:
        return [await failure(provider, "pid") for _ in range(3)]

    found = settings(tmp_path, servers=[server("exit", name="weather")])
    *_, second, third = with_provider(found, body)
    start = "mcp: weather ended with exit code 1: cannot find my data"
    assert (second.message, second.fault) == (start, Fault.TRANSIENT)
    assert third.message == f"{start}; 3 crashes in a row"
    assert third.fault is Fault.FATAL


def test_a_call_without_an_answer_ends_the_server(tmp_path: Path) -> None:
    """The next call gets a new one; its state was unknown."""
    pipe = tmp_path / "ready"
    prompt = json.dumps({"tool": "hang", "args": {"pipe": str(pipe)}})

    async def body(provider: McpProvider) -> tuple[int, ProviderError, int]:
        before = await text_of(provider, "pid")
        with pytest.raises(ProviderError) as caught:
            await provider(Request(prompt=prompt, options={"timeout": 100}))
        return int(before), caught.value, int(await text_of(provider, "pid"))

    found = settings(tmp_path, servers=[server(name="weather")])
    before, error, after = with_provider(found, body, pipe)
    assert error.kind == "attempt_timeout"
    assert error.message == "mcp: weather did not answer within 0.1 seconds (timeout)"
    assert before != after
    assert not is_alive(before)


def test_a_server_that_never_speaks_takes_only_the_time_of_the_call(tmp_path: Path) -> None:
    """Connecting counts; what it printed instead of a message is shown."""
    pipe = tmp_path / "ready"
    mute = server("mute", name="weather", env={"PIPE": str(pipe)})
    found = settings(tmp_path, servers=[mute], timeout=100)

    async def body(provider: McpProvider) -> ProviderError:
        return await failure(provider, "pid")

    error = with_provider(found, body, pipe)
    assert error.kind == "attempt_timeout"
    assert error.message == (
        "mcp: weather did not answer within 0.1 seconds (timeout); "
        'it printed "Password:", which is not a message of the protocol'
    )


def test_lines_that_are_not_messages_are_skipped(tmp_path: Path) -> None:
    """Servers print by mistake, and are used nevertheless."""

    async def body(provider: McpProvider) -> str:
        return await text_of(provider, "echo", a=1)

    assert with_provider(settings(tmp_path, "noise"), body) == '{"a": 1}'


@pytest.mark.slow
def test_a_line_without_an_end_ends_the_server(tmp_path: Path) -> None:
    """The memory of the run is limited."""

    async def body(provider: McpProvider) -> ProviderError:
        return await failure(provider, "pid")

    error = with_provider(settings(tmp_path, "long"), body)
    assert error.kind == "worker_crashed"
    assert "it printed a line of more than 8388608 bytes" in error.message


def test_a_missing_tool_suggests_another(tmp_path: Path) -> None:
    """All pages of the list are known, and excluded tools are not suggested."""

    async def body(provider: McpProvider) -> list[str]:
        tools = ("echoo", "weather", "pid")
        return [(await failure(provider, tool)).message for tool in tools]

    found = settings(tmp_path, servers=[server(name="s")], exclude_tools=["pid", "hang"])
    near, far, excluded = with_provider(found, body)
    assert near == 'mcp: s has no tool "echoo"; did you mean "echo"?'
    names = "echo, crash, refuse, child, steps, wrong, secret"
    assert far == f'mcp: s has no tool "weather"; its tools are {names}'
    assert excluded == 'mcp: the tool "pid" is excluded by tools or exclude_tools of the config'


def test_only_listed_tools_may_be_called(tmp_path: Path) -> None:
    """`tools` is a list of the allowed ones."""

    async def body(provider: McpProvider) -> tuple[str, str]:
        return await text_of(provider, "echo"), (await failure(provider, "crash")).message

    answer, refused = with_provider(settings(tmp_path, tools=["echo"]), body)
    assert (answer, "is excluded by tools" in refused) == ("{}", True)


def test_a_refused_call_is_the_servers_message(tmp_path: Path) -> None:
    """After an error of the protocol the server goes on, and the call is not repeated."""

    async def body(provider: McpProvider) -> tuple[str, ProviderError, str]:
        before = await text_of(provider, "pid")
        return before, await failure(provider, "refuse"), await text_of(provider, "pid")

    before, error, after = with_provider(settings(tmp_path, servers=[server(name="s")]), body)
    assert str(error) == "unexpected: mcp: s: refuse: no such city"
    assert error.fault is Fault.REFUSED
    assert before == after


def test_a_result_that_contradicts_its_schema_is_an_error(tmp_path: Path) -> None:
    """As in promptfoo, whose client checks it too."""

    async def body(provider: McpProvider) -> ProviderError:
        return await failure(provider, "wrong")

    error = with_provider(settings(tmp_path, servers=[server(name="s")]), body)
    assert (error.kind, error.fault) == ("unexpected", Fault.REFUSED)
    start = "Invalid structured content returned by tool wrong: 'x' is a required property Failed"
    assert error.message.startswith(f"mcp: s: wrong: {start}")


def test_the_first_server_with_a_tool_is_called(tmp_path: Path) -> None:
    """Servers without names get numbers."""
    two = [server(env={"API_KEY": "one"}), server(env={"API_KEY": "two"})]
    found = settings(tmp_path, servers=two)
    assert found.servers[1].name == f"{found.servers[0].name}:1"

    async def body(provider: McpProvider) -> str:
        return await text_of(provider, "secret")

    assert with_provider(found, body) == "one"
    assert set(found.secrets) >= {"one", "two"}


def test_a_server_of_the_newest_protocol_is_understood(tmp_path: Path) -> None:
    """It refuses the handshake of older versions."""

    async def body(provider: McpProvider) -> str:
        return await text_of(provider, "echo", a=1)

    assert with_provider(settings(tmp_path, "modern", pingOnConnect=True), body) == '{"a": 1}'


def test_progress_extends_the_time_of_a_call_if_configured(tmp_path: Path) -> None:
    """The server reports it only then."""

    async def body(provider: McpProvider) -> Reply:
        return await use(provider, "steps")

    found = settings(tmp_path, resetTimeoutOnProgress=True, maxTotalTimeout=60_000)
    assert with_provider(found, body).raw["isError"] is False


def test_the_time_limit_may_differ_for_one_call(tmp_path: Path) -> None:
    """Other keys may not; keys of other providers are ignored."""
    provider = McpProvider(settings(tmp_path, timeout=7000), None)  # type: ignore[arg-type]
    limit = provider._limit
    assert limit(Request(prompt="", options={"temperature": 0})) == 7
    assert limit(Request(prompt="", options={"timeout": 2000})) == 2
    with pytest.raises(ProviderError, match='"tools" cannot differ for one call'):
        limit(Request(prompt="", options={"tools": ["a"]}))


def test_the_environment_may_set_the_time_limit(tmp_path: Path) -> None:
    """`MCP_REQUEST_TIMEOUT_MS`, as in promptfoo; 0 means the default."""
    config = {"server": server()}

    def limit(text: str, **more: Any) -> Any:
        around = context(tmp_path, MCP_REQUEST_TIMEOUT_MS=text)
        found = read("mcp", "", {**config, **more}, around)
        return found.timeout if isinstance(found, McpSettings) else str(found[0])

    assert [limit("5000"), limit("0"), limit("5000", timeout=9000)] == [5, 60, 9]
    assert limit("soon").startswith(
        ".config.timeout: the environment variable MCP_REQUEST_TIMEOUT_MS must be a number"
    )


def test_a_file_of_the_suite_is_run_with_this_python(tmp_path: Path) -> None:
    """`path` is relative to the suite."""
    (tmp_path / "server.py").write_bytes(PLAIN.read_bytes())

    async def body(provider: McpProvider) -> str:
        return await text_of(provider, "echo")

    found = settings(tmp_path, servers=[{"path": "server.py"}])
    assert found.lane_key == "mcp:server.py"
    assert with_provider(found, body) == "{}"


def test_all_problems_of_an_entry_are_reported(tmp_path: Path) -> None:
    """Each with its place and what would be right."""
    config = {
        "servers": [
            {"command": "no-such-program"},
            {"path": "server.rb"},
            {"path": "server.py"},
            {"args": ["x"]},
            {"url": "ftp://x"},
            {
                "url": "http://x/mcp",
                "auth": {"type": "oauth", "clientId": "a", "clientSecret": "b"},
            },
            {"url": "http://x/mcp", "headers": {"Host": "y"}},
            {"comand": "x", "url": "http://x/mcp"},
            3,
        ],
        "tools": "add",
        "exludeTools": [],
        "transformResponse": "content",
    }
    assert problems(tmp_path, config) == [
        '.config.tools: must be a list of names, got "add"',
        '.config.exludeTools: "exludeTools" is not a key\n  did you mean "exclude_tools"?',
        '.config.transformResponse: "transformResponse" is not supported\n  use the entry\'s transform',
        (
            '.config.servers[0].command: program "no-such-program" not found in PATH\n'
            "  install it, or correct its name"
        ),
        (
            '.config.servers[1].path: "server.rb" is not a .py or .js file\n'
            "  start any other program with command and args"
        ),
        f'.config.servers[2].path: file "{tmp_path}/server.py" not found',
        (
            ".config.servers[3]: has no command, path or url\n"
            "  a program has command or path, a service has url"
        ),
        ".config.servers[4].url: must be an http or https URL with a host",
        ".config.servers[5].auth.tokenUrl: missing; auth of type oauth requires it",
        ".config.servers[6].headers.Host: belongs to the connection\n  leave it out",
        '.config.servers[7].comand: "comand" is not a key\n  did you mean "command"?',
        ".config.servers[8]: must be an object",
    ]


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({}, ".config: has no server\n  for example server: {command: python3, args: [server.py]}"),
        (
            {"enabled": False, "server": {"url": "http://x/mcp"}},
            ".config.enabled: switches off all servers, and nothing is left to call\n  leave it out",
        ),
        ({"server": {"path": "../x.py"}}, '.config.server.path: "../x.py" is outside of'),
    ],
)
def test_an_entry_without_a_usable_server_is_refused(
    tmp_path: Path, config: Mapping[str, Any], problem: str
) -> None:
    """There is nothing to call."""
    (found,) = problems(tmp_path, config)
    assert found.startswith(problem)


def test_what_promptfoo_ignores_is_ignored_with_a_warning(tmp_path: Path) -> None:
    """Keys of no meaning, and places of a server besides the first."""
    config = {
        "server": {"url": "http://x/mcp"},
        "servers": [{**server(), "url": "http://y/mcp"}],
        "transport": "stdio",
        "verbose": True,
    }
    found = read("mcp", "calculator", config, context(tmp_path))
    assert isinstance(found, McpSettings)
    assert [str(one) for one in found.warnings] == [
        '.config.transport: "transport" is not a key, and has no effect',
        ".config.server: is ignored, because servers is set\n  move it to servers",
        ".config.servers[0].url: is ignored, because command is set\n  keep one of them",
    ]
    assert (found.id, found.code_keys, found.urls) == (
        "mcp:calculator",
        ("servers[0].command",),
        (),
    )


def test_a_missing_extra_is_reported_with_all_other_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the extra."""
    monkeypatch.setitem(sys.modules, "mcp", None)
    missing, other = problems(tmp_path, {"server": {}})
    assert missing == '.id: "mcp:" needs the extra "mcp"\n  pip install \'trioeval[mcp]\''
    assert other.startswith(".config.server: has no command")


def test_reading_an_entry_imports_no_sdk() -> None:
    """The SDK takes half a second; nothing is imported before a run opens the provider."""
    code = "import sys, trioeval.providers.mcp.entry; sys.exit('mcp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_a_server_of_the_official_sdk_is_called() -> None:
    """It speaks to our side over its own transport."""

    async def body(provider: McpProvider) -> tuple[Reply, Reply]:
        divided = await use(provider, "divide", a=1, b=0)
        return await use(provider, "add", a=2, b=3), divided

    found = settings(HERE, servers=[{"path": REAL.name}], pingOnConnect=True)
    added, divided = with_provider(found, body)
    assert added.output == '[{"type":"text","text":"5"}]'
    assert added.raw["structuredContent"] == {"result": 5}
    assert divided.metadata["isError"] is True

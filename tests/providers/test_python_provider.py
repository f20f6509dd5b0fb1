import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import example, given
from hypothesis import strategies as st
from program_runs import NothingShared, ask, context, run

from trioeval.errors import CallError, Fault, Problem, ProviderError
from trioeval.providers import Reply, Request, ToolCall, Usage
from trioeval.providers.base import Guardrails
from trioeval.providers.programs.exec import read_result
from trioeval.providers.programs.python import PythonSettings, ThreadFunction, TrioFunction, read

ECHO = """
def call_api(prompt, options, context):
    return {"output": [prompt, options, context]}

def shout(prompt, options, context):
    return prompt.upper()

def call_embedding_api(text, options):
    return {"embedding": [len(text), 0.5], "tokenUsage": {"total": 3}}

def call_classification_api(text, options):
    return {"classification": {"good": 0.75, "bad": 0.25}}

async def later(prompt, options, context):
    return prompt

class Model:
    name = "model"

    @classmethod
    def call_api(cls, prompt, options, context):
        return f"{cls.name}: {prompt}"

    @staticmethod
    def call_embedding_api(text, options):
        return {"embedding": [len(text)]}
"""
TRIO = """
import trio

async def call_api(prompt, options, context):
    await trio.sleep(0)
    options["config"]["list"].append(1)
    return {"output": options["config"]["list"]}

async def forever(prompt, options, context):
    await trio.sleep_forever()
"""


def entry(rest: str, folder: Path, environ: dict[str, str] | None = None, **config: Any) -> Any:
    return read("python", rest, config, context(folder, **(environ or {})))


def settings(
    rest: str, folder: Path, environ: dict[str, str] | None = None, **config: Any
) -> PythonSettings:
    found = entry(rest, folder, environ, **config)
    assert isinstance(found, PythonSettings), found
    return found


def problems(
    rest: str, folder: Path, environ: dict[str, str] | None = None, **config: Any
) -> list[str]:
    found: list[Problem] = entry(rest, folder, environ, **config)
    assert isinstance(found, list)
    return [str(problem) for problem in found]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(ECHO)
    (tmp_path / "slow.py").write_text(TRIO)
    return tmp_path


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_a_function_gets_prompt_options_and_context(folder: Path, mode: str) -> None:
    """The arguments do not depend on the mode."""
    found = settings("mine.py", folder, mode=mode, style="dry")
    reply = run(
        lambda: ask(
            found,
            vars={"x": [1]},
            options={"style": "wet", "tone": 2, "timeoutMs": 20_000},
            test_idx=4,
            prompt_idx=5,
            repeat_index=6,
        )
    )
    assert reply.output == [
        "Hi",
        {"id": "python:mine.py:call_api", "config": {"style": "wet", "tone": 2}},
        {
            "vars": {"x": [1]},
            "prompt": {"raw": "Hi", "label": ""},
            "testIdx": 4,
            "promptIdx": 5,
            "repeatIndex": 6,
        },
    ]


def test_a_function_may_return_text_and_have_another_name(folder: Path) -> None:
    """The name follows the file in the id."""
    found = settings("mine.py:shout", folder)
    assert found.lane_key == "python:mine.py:shout"
    assert run(lambda: ask(found)) == Reply(output="HI")


def test_embeddings_and_classifications_have_separate_functions(folder: Path) -> None:
    """They are called without the context, and return another field."""
    reply = run(lambda: ask(settings("mine.py:call_embedding_api", folder)))
    assert (reply.output, reply.usage.total) == ([2, 0.5], 3)
    reply = run(lambda: ask(settings("mine.py:call_classification_api", folder)))
    assert reply.output == {"good": 0.75, "bad": 0.25}


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_a_method_of_a_class_is_a_function(folder: Path, mode: str) -> None:
    """It must not need an instance; its own name decides the field that it returns."""
    assert run(lambda: ask(settings("mine.py:Model.call_api", folder, mode=mode))).output == (
        "model: Hi"
    )
    found = settings("mine.py:Model.call_embedding_api", folder, mode=mode)
    assert run(lambda: ask(found)).output == [2]
    fault = f'.id: class "Modal" not found in "{folder}/mine.py"\n  did you mean "Model"?'
    assert problems("mine.py:Modal.call_api", folder) == [fault]
    assert problems("mine.py:Model.", folder)[0].startswith(
        '.id: "Model." is not a valid function name'
    )
    with pytest.raises(ProviderError, match=r"function Model\.no not found in "):
        run(lambda: ask(settings("mine.py:Model.no", folder)))


def test_async_functions_run_on_asyncio_in_workers(folder: Path) -> None:
    """No setting is needed for it."""
    assert run(lambda: ask(settings("mine.py:later", folder))).output == "Hi"


def test_workers_run_another_interpreter(folder: Path) -> None:
    """It is searched in PATH, or relative to the suite."""
    (folder / "python-2").symlink_to(sys.executable)
    (folder / "who.py").write_text("import sys\ndef call_api(*_): return sys.executable")
    relative = settings("who.py", folder, pythonExecutable="./python-2")
    assert relative.workers.executable == str(folder / "python-2")
    assert run(lambda: ask(relative)).output == str(folder / "python-2")
    by_name = settings(
        "who.py", folder, {"PATH": f"{folder}:{os.environ['PATH']}"}, pythonExecutable="python-2"
    )
    assert by_name.workers.executable == str(folder / "python-2")
    assert settings("who.py", folder).workers.executable == sys.executable


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"timeout": 500}, 0.5),
        ({"timeout": 500, "timeoutMs": 700}, 0.7),
        ({"timeout": "long"}, 300),
        ({}, 300),
    ],
)
def test_a_timeout_of_promptfoo_is_in_milliseconds(
    folder: Path, config: Mapping[str, Any], expected: float
) -> None:
    """The function gets it too; one that is not a number is a key of the user."""
    (folder / "plain.py").write_text("def call_api(*_): return 'ok'")
    found = settings("plain.py", folder, **config)
    assert found.timeout == expected
    assert found.own.get("timeout") == config.get("timeout")


@pytest.mark.slow
def test_a_call_has_a_time_limit(folder: Path) -> None:
    """The config or the call's options set it."""
    (folder / "hang.py").write_text("def call_api(*_):\n    while True: pass")
    found = settings("hang.py", folder, timeoutMs=300)
    with pytest.raises(ProviderError) as caught:
        run(lambda: ask(found))
    assert str(caught.value) == (
        "attempt_timeout: python:hang.py:call_api did not answer within 0.3 seconds (timeoutMs)"
    )
    with pytest.raises(ProviderError, match=r"within 0\.2 seconds"):
        run(lambda: ask(found, options={"timeoutMs": 200}))


@pytest.mark.parametrize(
    ("config", "environ", "workers"),
    [
        ({}, {}, 1),
        ({"workers": 3}, {"TRIOEVAL_PYTHON_WORKERS": "5"}, 3),
        ({}, {"TRIOEVAL_PYTHON_WORKERS": "5"}, 5),
        ({"workers": None}, {"TRIOEVAL_PYTHON_WORKERS": ""}, 1),
    ],
)
def test_the_number_of_workers_comes_from_config_or_environment(
    folder: Path, config: dict[str, Any], environ: dict[str, str], workers: int
) -> None:
    """The config takes precedence; the default is one."""
    assert settings("mine.py", folder, environ, **config).workers.workers == workers


def test_an_async_function_is_awaited_on_trio(folder: Path) -> None:
    """The function gets a copy of its arguments, in this process."""
    found = settings("slow.py", folder, mode="trio", list=[])
    for _ in range(2):
        assert run(lambda: ask(found)).output == [1]
    with pytest.raises(ProviderError, match=r"did not answer within 0\.01 seconds \(timeoutMs\)"):
        run(lambda: ask(settings("slow.py:forever", folder, mode="trio", timeoutMs=10)))


def test_all_mistakes_of_an_entry_are_reported_at_once(folder: Path) -> None:
    """Problems of keys, values and the id are reported together."""
    assert problems("no.py:not a name", folder, timeoutMs="5", mode="fibre", workers=65) == [
        '.config.timeoutMs: must be a number of milliseconds above 0, got "5"',
        '.config.mode: must be "process" or "thread" or "trio", got "fibre"',
        ".config.workers: must be a whole number from 1 to 64, got 65",
        '.id: "not a name" is not a valid function name\n  write python:<file.py>[:function]',
    ]
    variable = "the environment variable TRIOEVAL_PYTHON_WORKERS"
    assert problems("", folder, {"TRIOEVAL_PYTHON_WORKERS": "many"}, pythonExecutable="no") == [
        '.config.pythonExecutable: program "no" not found in PATH\n  install it, or correct its name',
        f'.config.workers: {variable} must be a whole number from 1 to 64, got "many"',
        '.id: "python:" has no file\n  write python:<file.py>[:function]',
    ]
    assert problems("mine.py", folder, mode="trio", workers=2, pythonExecutable="python3") == [
        '.config.workers: has no effect with mode "trio"\n  leave it out',
        '.config.pythonExecutable: has no effect with mode "trio"\n  leave it out',
    ]
    assert problems("a:b/no.py", folder) == [f'.id: file "{folder}/a:b/no.py" not found']
    assert problems("mine.py:", folder)[0].startswith('.id: "" is not a valid function name')
    assert problems("mine.py", folder, pythonExecutable="./mine.py") == [
        '.config.pythonExecutable: program "./mine.py" not found\n  write the path of a Python interpreter'
    ]


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [
        ("def call_api(:", "process", "is not Python: invalid syntax\n  see line 1"),
        ("def call_api(:", "trio", "is not Python: invalid syntax\n  see line 1"),
        ("1/0", "thread", "cannot be loaded: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "trio", "cannot be loaded: SystemExit: 3"),
        ("x = 1", "thread", "cannot be loaded: TypeError: function call_api not found in "),
        ("import a.b as call_apis\nclass A:\n    def call_api(self): pass", "process", None),
    ],
)
def test_a_file_that_cannot_be_loaded_is_a_problem(
    tmp_path: Path, text: str, mode: str, problem: str | None
) -> None:
    """A file for workers is only parsed."""
    (tmp_path / "bad.py").write_text(text)
    (found,) = problems("bad.py", tmp_path, mode=mode)
    if problem is None:
        what = f'.id: function "call_api" not found in "{tmp_path}/bad.py"'
        assert found == f'{what}\n  did you mean "call_apis"?'
    else:
        assert found.startswith(f'.id: "{tmp_path}/bad.py" {problem}')


@pytest.mark.parametrize(
    "text",
    [
        "from elsewhere import *",
        "import other as call_api",
        "call_api = print",
        "first, *call_api = x, y",
        "try:\n    pass\nexcept E:\n    async def call_api(): pass",
        "def f():\n    global call_api\n    call_api = 1",
        "exec('call_api = print')",
        "globals()['call_api'] = print",
        "sys.modules[__name__] = A()",
        "def __getattr__(name): return print",
        "class call_api: pass",
        "[call_api := print]",
        "for call_api in x: break",
        "match x:\n    case {**call_api}: pass",
    ],
)
def test_a_dynamic_function_is_not_a_problem(tmp_path: Path, text: str) -> None:
    """A function may be defined dynamically; the file is not run to find out."""
    (tmp_path / "may.py").write_text(text)
    assert settings("may.py", tmp_path).mode == "process"


def test_the_syntax_of_another_interpreter_is_not_checked(tmp_path: Path) -> None:
    """Another interpreter may support newer, or older syntax."""
    (tmp_path / "old.py").write_text("print 'hello'")
    assert settings("old.py", tmp_path, pythonExecutable=sys.executable).mode == "process"
    assert problems("old.py", tmp_path)


def test_a_file_for_workers_is_not_run_when_it_is_read(tmp_path: Path) -> None:
    """Reading a suite runs no code unnecessarily."""
    (tmp_path / "touch.py").write_text("open('ran', 'w')\ndef call_api(*_): return 'x'")
    found = settings("touch.py", tmp_path)
    assert not (tmp_path / "ran").exists()
    assert run(lambda: ask(found)).output == "x"
    assert (tmp_path / "ran").exists()


def test_secrets_are_known_and_not_shown(folder: Path) -> None:
    """Neither lane keys nor representations show them."""
    found = settings(
        "mine.py",
        folder,
        {"A_TOKEN": "0123456789abc", "PG_PASSWD": "correct horse"},
        apiKey="sk-1234",
        nested=[{"Authorization": "Bearer abcd", "author": "me"}],
        tokens={"main": "t0"},
        credentials={"of": ["me", {"and": "you"}]},
    )
    assert {"sk-1234", "0123456789abc", "correct horse", "abcd"} <= {*found.secrets}
    assert {"me", "you"} <= {*found.secrets}
    assert "t0" not in found.secrets
    assert "sk-1234" not in repr(found) + found.lane_key
    assert "0123456789abc" not in repr(found)


def in_process(kind: str, function: Callable[..., Any], limit: float = 30.0) -> Any:
    async def main() -> Any:
        if kind == "trio":
            return await TrioFunction("mine", function).call(["Hi"], limit)
        return await ThreadFunction("mine", function).call(["Hi"], limit)

    return run(main)


def is_cancelled(_prompt: str) -> None:
    raise asyncio.CancelledError


async def coroutine(_prompt: str) -> None:
    await trio.sleep_forever()


def exits(_prompt: str) -> None:
    sys.exit(3)


def raises(_prompt: str) -> None:
    raise ValueError("no luck")


@pytest.mark.parametrize("kind", ["trio", "thread"])
@pytest.mark.parametrize(
    ("function", "message"),
    [(raises, "mine: ValueError: no luck"), (exits, "mine: SystemExit: 3")],
)
def test_exceptions_of_code_in_this_process_end_only_their_call(
    kind: str, function: Callable[..., Any], message: str
) -> None:
    """This includes exceptions that would end the program."""
    with pytest.raises(ProviderError) as caught:
        in_process(kind, function)
    assert str(caught.value) == f"unexpected: {message}"
    assert f"in {function.__name__}" in (caught.value.body_excerpt or "")


def test_a_cancelled_task_of_a_thread_ends_its_call_alone() -> None:
    """The run continues, because it was not cancelled."""
    with pytest.raises(ProviderError, match="unexpected: mine: CancelledError"):
        in_process("thread", is_cancelled)


@pytest.mark.parametrize("kind", ["trio", "thread"])
def test_call_errors_of_code_are_raised_unchanged(kind: str) -> None:
    """A `CallError` is raised unchanged."""

    def busy(_prompt: str) -> None:
        raise CallError(Fault.RATE_LIMITED, "later", retry_after=2.0)

    with pytest.raises(CallError) as caught:
        in_process(kind, busy)
    assert (caught.value.fault, caught.value.retry_after) == (Fault.RATE_LIMITED, 2.0)


def test_a_function_of_the_wrong_kind_is_reported() -> None:
    """The message suggests the right mode."""
    with pytest.raises(ProviderError) as caught:
        in_process("trio", str.upper)
    assert str(caught.value) == (
        'unexpected: mine is not async: it returned str: "HI"; '
        'write it with `async def`, or set mode to "thread" or "process"'
    )
    with pytest.raises(ProviderError) as caught:
        in_process("thread", coroutine)
    assert str(caught.value) == (
        'unexpected: mine is async; set mode to "process", or to "trio" if it is written for Trio'
    )


def test_waiting_for_a_thread_does_not_count_as_time_of_the_call() -> None:
    """A late thread counts until it is done; a short call after a long one is not late."""
    late, end, started, go = (threading.Event() for _ in range(4))

    def block(prompt: str) -> str:
        if prompt == "late":
            late.wait(20)
            end.set()
        elif prompt == "long":
            started.set()
            go.wait(20)
        return prompt.upper()

    async def main() -> list[Any]:
        function = ThreadFunction("mine", block, 2)
        answers: list[Any] = []

        async def call(prompt: str, limit: float) -> None:
            answers.append(await function.call([prompt], limit))

        with pytest.raises(ProviderError) as caught:
            await function.call(["late"], 0.01)
        assert str(caught.value) == (
            "attempt_timeout: mine did not answer within 0.01 seconds (timeoutMs)"
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, "long", 20)
            await trio.to_thread.run_sync(started.wait)
            nursery.start_soon(call, "quick", 5)
            await trio.testing.wait_all_tasks_blocked()
            assert not answers
            go.set()
        late.set()
        return answers

    assert run(main) == ["LONG", "QUICK"]
    assert end.wait(20)


def test_calls_fail_while_all_threads_are_blocked() -> None:
    """Waiting and later calls fail; when a thread is done, calls are served again."""
    started, done, late = threading.Semaphore(0), threading.Semaphore(0), threading.Event()

    def block(prompt: str) -> str:
        if prompt == "late":
            started.release()
            late.wait(20)
            done.release()
        return prompt.upper()

    async def main() -> None:
        function = ThreadFunction("mine", block, 2)
        errors: list[ProviderError] = []

        async def fail(prompt: str) -> None:
            with pytest.raises(ProviderError) as caught:
                await function.call([prompt], 20)
            errors.append(caught.value)

        async def give_up(scope: trio.CancelScope) -> None:
            with scope:
                await function.call(["late"], 20)

        async with trio.open_nursery() as nursery:
            scopes = trio.CancelScope(), trio.CancelScope()
            for scope in scopes:
                nursery.start_soon(give_up, scope)
                await trio.to_thread.run_sync(started.acquire)
            nursery.start_soon(fail, "waiting")
            for scope in scopes:
                await trio.testing.wait_all_tasks_blocked()
                assert not errors
                scope.cancel()
        await fail("later")
        assert [error.fault for error in errors] == [Fault.FATAL] * 2
        assert str(errors[0]) == (
            "unexpected: all 2 threads of mine are stuck in calls that took too long; "
            'set mode to "process", whose workers can be ended'
        )
        late.set()
        await trio.to_thread.run_sync(done.acquire)
        await trio.to_thread.run_sync(done.acquire)
        while function._running:  # noqa: ASYNC110 - the threads say so as the last thing that they do
            await trio.sleep(0.001)
        assert await function.call(["hi"], 20) == "HI"

    run(main)


def test_a_thread_that_ends_after_the_run_is_ignored(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The end of the thread is ignored."""
    late, threads = threading.Event(), list[threading.Thread]()

    def block(_prompt: str) -> None:
        threads.append(threading.current_thread())
        late.wait(20)

    with pytest.raises(ProviderError, match="attempt_timeout"):
        run(lambda: ThreadFunction("mine", block).call(["Hi"], 0.05))
    late.set()
    assert capfd.readouterr().err == ""


def test_a_call_in_a_thread_can_be_cancelled() -> None:
    """The call ends at once, whatever the thread does."""
    started, end = threading.Event(), threading.Event()

    def block(_prompt: str) -> None:
        started.set()
        end.wait(20)

    async def main() -> bool:
        function = ThreadFunction("mine", block)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(function.call, ["Hi"], 100.0)
                await trio.to_thread.run_sync(started.wait)
                scope.cancel()
        return scope.cancelled_caught

    assert run(main)
    end.set()


WRONG = 'mine must return an object with "output" or "error", or text'
COUNTS = "an object of whole numbers (total, prompt, completion, cached)"


def result(value: Any, function: str = "call_api") -> Reply:
    return read_result(value, function, name="mine")


def test_every_field_of_a_result_is_read() -> None:
    """Keys are accepted in either spelling; unknown ones are kept in `raw`."""
    value = {
        "output": {"a": 1},
        "tokenUsage": {"total": 9, "prompt": 5, "completion": 4, "cached": 2, "numRequests": 1},
        "cost": 1,
        "cached": True,
        "logProbs": [-0.5, -1],
        "finish_reason": "stop",
        "isRefusal": True,
        "reasoning": "1 + 1",
        "toolCalls": [{"name": "add", "arguments": {"a": 1}, "id": "c1"}],
        "guardrails": {"flagged": True, "flaggedInput": True, "reason": "rude"},
        "metadata": {"id": 7},
        "sessionId": "s-1",
        "more": "x",
    }
    assert result(value) == Reply(
        output={"a": 1},
        usage=Usage(total=9, prompt=5, completion=4, cached=2),
        cost=1.0,
        finish_reason="stop",
        refusal="",
        reasoning="1 + 1",
        tool_calls=(ToolCall("add", {"a": 1}, "c1"),),
        guardrails=Guardrails(flagged=True, flagged_input=True, reason="rude"),
        log_probs=(-0.5, -1.0),
        raw=value,
        metadata={"id": 7, "sessionId": "s-1", "cached": True},
    )
    assert result({"output": "", "error": None, "cost": None, "guardrails": None}).output == ""
    refused = result({"output": "no", "isRefusal": True})
    assert (refused.refusal, refused.text) == ("no", "no")
    (call,) = result({"toolCalls": [{"name": "add", "arguments": "{"}]}).output
    assert call["function"] == {"name": "add", "arguments": "{"}


@pytest.mark.parametrize(
    ("value", "function", "message"),
    [
        ({"error": "no key"}, "call_api", "mine: no key"),
        ({"error": {"code": 3}, "output": "x"}, "call_api", 'mine: {"code": 3}'),
        (3, "call_api", f"{WRONG}, got int: 3"),
        (
            None,
            "call_api",
            f"{WRONG}, got nothing",
        ),
        (
            {"ouput": "x" * 300},
            "call_api",
            f'{WRONG}, got dict: {{"ouput": "{"x" * 188}…',
        ),
        (
            "text",
            "call_embedding_api",
            'mine must return an object with "embedding" or "error", got str: "text"',
        ),
        (
            {"embedding": ["a"]},
            "call_embedding_api",
            'mine: "embedding" of the result must be a list of numbers, got list: ["a"]',
        ),
        (
            {"classification": []},
            "call_classification_api",
            'mine: "classification" of the result must be an object, got list: []',
        ),
        (
            {"output": "x", "tokenUsage": {"total": -1}},
            "call_api",
            f'mine: "tokenUsage" of the result must be {COUNTS}, got dict: {{"total": -1}}',
        ),
        (
            {"output": "x", "cost": "free"},
            "call_api",
            'mine: "cost" of the result must be a number of at least 0, got str: "free"',
        ),
        (
            {"output": {1}},
            "call_api",
            'mine: "output" of the result must be JSON, got set: {1}',
        ),
    ],
)
def test_an_invalid_result_is_shown(value: Any, function: str, message: str) -> None:
    """The message has the requirement; the call is not retried."""
    with pytest.raises(ProviderError) as caught:
        result(value, function)
    assert (str(caught.value), caught.value.fault) == (f"unexpected: {message}", Fault.REFUSED)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)
NAMES = st.sampled_from(
    ["output", "error", "tokenUsage", "cost", "cached", "logProbs", "guardrails", "metadata"]
)


@pytest.mark.slow
@given(JSON | st.dictionaries(NAMES, JSON))
@example({"output": "x", "cost": 10**400})
@example({"output": "x", "logProbs": [-(10**400)]})
def test_any_result_is_a_reply_or_one_error(value: Any) -> None:
    """No result of the user's code raises another exception."""
    found: Reply | ProviderError
    try:
        found = result(value)
    except ProviderError as error:
        found = error
    if isinstance(found, Reply):
        written = [found.output, found.cost, found.log_probs, dict(found.metadata)]
        json.dumps(written, allow_nan=False)
    else:
        assert found.kind == "unexpected"


@pytest.mark.slow
def test_a_provider_serves_many_calls_concurrently(folder: Path) -> None:
    """More calls than workers wait inside the provider."""
    answers: list[Any] = []

    async def main() -> None:
        async with settings("mine.py:shout", folder, workers=2).open(NothingShared()) as provider:

            async def one(number: int) -> None:
                answers.append((await provider(Request(prompt=f"n{number}"))).output)

            async with trio.open_nursery() as nursery:
                for number in range(20):
                    nursery.start_soon(one, number)

    run(main)
    assert sorted(answers) == sorted(f"N{number}" for number in range(20))

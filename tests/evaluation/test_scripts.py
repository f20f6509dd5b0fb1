"""The suite's own code while it runs, in real processes."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio

from trioeval.errors import ScriptError
from trioeval.evaluation.prompt import GeneratedPrompt, render_function
from trioeval.evaluation.scripts import Scripts, open_scripts
from trioeval.scripting.javascript import Script, transform_script
from trioeval.suite.model import Prompt, PromptFunction

pytestmark = pytest.mark.slow  # processes

T = TypeVar("T")
FILE = """
import os, sys, time
calls = 0

def count():
    global calls
    calls += 1
    return [os.getpid(), calls]

async def ask(context):
    name = context["vars"]["name"]
    return f"Say {{{{greeting}}}} to {name} in {context['config'].get('language', 'English')}"

def chat(context):
    return [{"role": "user", "content": context["provider"]["id"]}]

def chosen(context):
    return {"prompt": {"a": [1.0]}, "config": {"temperature": 0, "language": "fr"}}

def bare(context):
    return {"prompt": "only", "config": None}

def nothing(context):
    return None

def odd(context):
    return {"prompt": "a", "config": [1]}

def labels(context):
    return sorted(context["provider"])

def wait(pids):
    with open(pids, "a") as file:
        file.write(f"{os.getpid()} ")
    time.sleep(60)

if __name__ == "__main__":
    print("printed", sys.argv[1])
    print()
"""


def with_scripts(
    folder: Path,
    body: Callable[[Scripts], Awaitable[T]],
    workers: int | None = None,
    **environ: str,
) -> T:
    (folder / "mine.py").write_text(FILE)

    async def main() -> T:
        with trio.fail_after(60):
            async with open_scripts(folder, {**os.environ, **environ}, workers=workers) as scripts:
                return await body(scripts)

    return trio.run(main)


async def failure(call: Awaitable[Any]) -> ScriptError:
    with pytest.raises(ScriptError) as caught:
        await call
    return caught.value


def test_a_function_keeps_its_process_for_the_next_call(tmp_path: Path) -> None:
    """There is one process per function, for any number of calls."""

    async def body(scripts: Scripts) -> list[Any]:
        return [await scripts.call(tmp_path / "mine.py", "count", []) for _ in range(3)]

    one, two, three = with_scripts(tmp_path, body)
    assert one[0] == two[0] == three[0] != os.getpid()
    assert [one[1], two[1], three[1]] == [1, 2, 3]


@pytest.mark.parametrize(
    ("environ", "workers", "expected"),
    [
        ({}, None, 1),
        ({"PROMPTFOO_PYTHON_WORKERS": "3"}, None, 3),
        ({"TRIOEVAL_PYTHON_WORKERS": "x"}, None, 1),
        ({"TRIOEVAL_PYTHON_WORKERS": "3"}, 2, 2),
    ],
)
def test_calls_run_concurrently_as_the_environment_allows(
    environ: dict[str, str], workers: int | None, expected: int, tmp_path: Path
) -> None:
    """The allowed number of processes run at once, and all are gone after a cancelled call."""
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    pipe = os.open(pids, os.O_RDWR | os.O_NONBLOCK)
    waiting: list[str] = []

    async def body(scripts: Scripts) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(scripts.call, tmp_path / "mine.py", "wait", [str(pids)])
            while len(waiting) < expected:
                await trio.lowlevel.wait_readable(pipe)
                waiting.extend(os.read(pipe, 4096).decode().split())
            nursery.cancel_scope.cancel()

    try:
        with_scripts(tmp_path, body, workers, **environ)
        with pytest.raises(BlockingIOError):
            os.read(pipe, 1)
    finally:
        os.close(pipe)
    assert len(waiting) == expected
    for pid in waiting:
        assert not Path(f"/proc/{pid}").exists()


def test_a_call_that_takes_too_long_is_ended_and_the_next_one_works(tmp_path: Path) -> None:
    """The process is replaced."""

    async def body(scripts: Scripts) -> tuple[ScriptError, Any]:
        file = tmp_path / "mine.py"
        error = await failure(scripts.call(file, "wait", [str(tmp_path / "pids")], 0.5))
        return error, await scripts.call(file, "count", [])

    error, value = with_scripts(tmp_path, body)
    assert error.message.startswith("mine.py:wait did not answer within 0.5 seconds")
    assert value[1] == 1


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("output.upper()", "AB"),
        ("import re\nreturn re.sub('a', 'c', output)", "cb"),
        (
            "for letter in output:\n    if letter == 'b':\n        return {'found': letter}",
            {"found": "b"},
        ),
        ("[letter for letter in output]", ["a", "b"]),
        ("'''\n  x\n'''", "\n  x\n"),
        ("pass", None),
        ("# nothing", None),
    ],
)
def test_python_code_is_an_expression_or_statements_that_return(
    code: str, value: Any, tmp_path: Path
) -> None:
    """Line breaks in string literals are unchanged."""

    async def body(scripts: Scripts) -> Any:
        return await scripts.python(code, {"output": "ab"})

    assert with_scripts(tmp_path, body) == value


def test_failed_code_is_reported_with_its_last_line(tmp_path: Path) -> None:
    """A traceback is included if there is one."""

    async def body(scripts: Scripts) -> list[ScriptError]:
        return [
            await failure(scripts.python("1/0", {})),
            await failure(scripts.call(tmp_path / "mine.py", "ask", [{}])),
            await failure(scripts.call(tmp_path / "mine.py", "none", [])),
            await failure(scripts.javascript(transform_script("a.b.c", ("a",)), [{}])),
        ]

    python, called, missing, javascript = with_scripts(tmp_path, body)
    assert python.message == "Python: ZeroDivisionError: division by zero"
    assert called.message == "mine.py:ask: KeyError: 'vars'"
    assert 'name = context["vars"]["name"]' in (called.trace or "")
    assert missing.message.startswith("mine.py:none: TypeError: function none not found in ")
    assert javascript.message.startswith('"a.b.c" fails: TypeError: ')


def test_javascript_sees_only_its_arguments(tmp_path: Path) -> None:
    """No call leaves data for the next one."""

    async def body(scripts: Scripts) -> list[Any]:
        texts = [
            "typeof globalThis.require + typeof globalThis.process",
            "globalThis.x = (globalThis.x || 0) + n",
            "n + x",
        ]
        scripted = [Script(text, ("n",)) for text in texts[:2] * 2]
        found = [await scripts.javascript(script, [2]) for script in scripted]
        return [*found, (await failure(scripts.javascript(Script(texts[2], ("n",)), [2]))).message]

    kinds, one, kinds_again, again, error = with_scripts(tmp_path, body)
    assert kinds == kinds_again == "undefinedundefined"
    assert one == again == 2
    assert "ReferenceError: x is not defined" in error


def test_javascript_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """It is ended by the first limit that is reached."""

    async def body(scripts: Scripts) -> list[str]:
        endless = transform_script("for (;;) {\n}", ())
        return [
            (await failure(scripts.javascript(endless, [], limit))).message for limit in (0.5, 60.0)
        ]

    first, second = with_scripts(tmp_path, body)
    assert first.startswith("JavaScript did not answer within 0.5 seconds")
    assert second.endswith(" fails: it took longer than 2 seconds")


def test_a_program_gets_its_argument_and_its_output_is_used(tmp_path: Path) -> None:
    """Colours and surrounding spaces are removed; no shell is involved."""

    async def body(scripts: Scripts) -> list[str]:
        printed = "printf ' \\033[31mred\\033[0m %s \\n'"
        return [
            await scripts.program(printed, "{a}; $HOME"),
            await scripts.python_file(tmp_path / "mine.py", "{}"),
        ]

    assert with_scripts(tmp_path, body) == ["red {a}; $HOME", "printed {}\n"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("sh -c 'echo oops >&2; exit 3'", "sh ended with exit code 3: oops"),
        ("sh -c 'echo only this >&2'", "sh wrote only to its standard error: only this"),
        (
            "no-such-program",
            'program "no-such-program" not found in PATH: install it, or correct its name',
        ),
        ("sleep 60", "sleep did not end within 0.5 seconds"),
        ("sh -c 'yes | head -c 20000000'", "sh printed more than 10485760 bytes"),
    ],
)
def test_a_failed_program_is_reported(command: str, message: str, tmp_path: Path) -> None:
    """The message has the last line of its standard error."""

    async def body(scripts: Scripts) -> ScriptError:
        limit = 0.5 if command == "sleep 60" else 30.0
        argument = "0" if command == "sleep 60" else "x"
        return await failure(scripts.program(command, argument, limit))

    assert with_scripts(tmp_path, body).message == message


def prompt(function: str | None, folder: Path, **config: Any) -> Prompt:
    made_by = PromptFunction(kind="python", target=str(folder / "mine.py"), function=function)
    return Prompt(raw="…", label="l", id="d", config=config, function=made_by)


@pytest.mark.parametrize(
    ("function", "made"),
    [
        ("ask", GeneratedPrompt("Say {{greeting}} to Ada in German", {"language": "German"})),
        ("chat", GeneratedPrompt('[{"role":"user","content":"echo"}]', {"language": "German"})),
        ("chosen", GeneratedPrompt('{"a":[1]}', {"language": "fr", "temperature": 0})),
        ("bare", GeneratedPrompt("only", {"language": "German"})),
        ("labels", GeneratedPrompt('["id"]', {"language": "German"})),
    ],
)
def test_a_function_returns_text_messages_or_both_with_config(
    function: str, made: GeneratedPrompt, tmp_path: Path
) -> None:
    """Its config overrides that of the prompt; a missing label is left out."""

    async def body(scripts: Scripts) -> GeneratedPrompt:
        wanted = prompt(function, tmp_path, language="German")
        provider = {"id": "echo", "label": None}
        return await render_function(wanted, {"name": "Ada"}, provider, scripts)

    assert with_scripts(tmp_path, body) == made


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            "nothing",
            "mine.py:nothing must return text, messages, or an object with prompt, got null",
        ),
        ("odd", "mine.py:odd: config must be an object"),
    ],
)
def test_a_function_without_a_prompt_is_reported(
    function: str, message: str, tmp_path: Path
) -> None:
    """An empty result is not a prompt."""

    async def body(scripts: Scripts) -> ScriptError:
        made = render_function(prompt(function, tmp_path), {}, {"id": "echo"}, scripts)
        return await failure(made)

    assert with_scripts(tmp_path, body).message == message


def test_a_script_gets_the_context_as_its_argument(tmp_path: Path) -> None:
    """This applies to a Python file without a function, and to any other program."""
    context = '{"vars":{"a":"é"},"provider":{"id":"echo","label":"E"},"config":{"timeout":20000}}'
    program = Prompt(
        raw="…",
        label="l",
        id="d",
        config={"timeout": 20000},
        function=PromptFunction(kind="exec", target="printf %s"),
    )

    async def body(scripts: Scripts) -> list[str]:
        wanted = (prompt(None, tmp_path, timeout=20000), program)
        provider = {"id": "echo", "label": "E"}
        return [(await render_function(one, {"a": "é"}, provider, scripts)).raw for one in wanted]

    assert with_scripts(tmp_path, body) == [f"printed {context}\n", context]

"""Functions of the user that run while a suite is loaded: generators, `transformVars`, filters."""

import os
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from trioeval.documents.files import FileContext
from trioeval.documents.mistakes import MistakenError
from trioeval.errors import TemplateError
from trioeval.loading.load import parse_suite
from trioeval.run import collect
from trioeval.suite.sources.code import (
    LoadProcesses,
    call_for_each,
    call_function,
    load_filters,
    transform_vars,
    transform_vars_of_each,
)
from trioeval.templates import Templates

pytestmark = pytest.mark.slow  # processes

FILE = """
import os, signal, subprocess, sys, time, asyncio, threading

def add(a, b=1):
    print("adding", a)
    return a + b

async def later(value):
    await asyncio.sleep(0)
    return {"value": value}

def where():
    return [os.getcwd(), os.environ["MINE"], sys.argv[0], sys.path[0]]

def fail():
    print("what I was doing")
    raise ValueError("no\\nluck")

def leave():
    os._exit(3)

def odd():
    return {1, 2}

def hang(pids):
    child = subprocess.Popen(["sleep", "60"])
    with open(pids, "w") as file:
        file.write(f"{os.getpid()} {child.pid}")
    time.sleep(60)

def interrupt(pids):
    with open(pids, "w") as file:
        file.write(str(os.getpid()))
    os.kill(os.getppid(), signal.SIGUSR1)
    time.sleep(60)

def linger():
    threading.Thread(target=time.sleep, args=(60,)).start()
    return "done"

def large(size):
    print("x" * size)
    return "y" * size

class Made:
    @staticmethod
    def tests(count=1):
        return [{"vars": {"q": str(number)}} for number in range(count)]

    @classmethod
    async def late(cls):
        return cls.__name__

    class Inner:
        @staticmethod
        def tests():
            return []

    def bound(self):
        return self

def get_transform(vars, context):
    return {"greeting": "hi " + vars["name"], "uuid": context["uuid"], "prompt": context["prompt"]}
"""


@pytest.fixture
def context(tmp_path: Path) -> FileContext:
    (tmp_path / "mine.py").write_text(FILE)
    return FileContext(directory=tmp_path, environ={**os.environ, "MINE": "yes"})


def call(context: FileContext, function: str, *arguments: Any, limit: float = 60.0) -> Any:
    return call_function(context.directory / "mine.py", function, arguments, context, limit)


def problem_of(
    context: FileContext, function: str, *arguments: Any, limit: float = 60.0
) -> tuple[str, Any]:
    with pytest.raises(MistakenError) as caught:
        call(context, function, *arguments, limit=limit)
    (part,) = caught.value.parts
    return part.message, part.hint


def test_a_function_is_called_and_its_printed_output_is_ignored(context: FileContext) -> None:
    """Async functions are supported."""
    assert call(context, "add", 1) == 2
    assert call(context, "add", "a", "b") == "ab"
    assert call(context, "later", None) == {"value": None}


def test_static_and_class_methods_are_called_by_their_class(context: FileContext) -> None:
    """Static methods, class methods, and those of nested classes are supported."""
    assert call(context, "Made.tests", 1) == [{"vars": {"q": "0"}}]
    assert call(context, "Made.late") == "Made"
    assert call(context, "Made.Inner.tests") == []
    assert problem_of(context, "Made.nothing")[0].startswith(
        'Made.nothing of "mine.py" failed: TypeError: function Made.nothing not found; known are'
    )
    assert "missing 1 required positional argument: 'self'" in problem_of(context, "Made.bound")[0]


def test_tests_prompts_and_providers_may_come_from_methods(context: FileContext) -> None:
    """This holds wherever a function may be named."""
    folder = context.directory
    (folder / "p.py").write_text(
        "class P:\n"
        "    @staticmethod\n"
        "    def prompt(context):\n        return 'made ' + context['vars']['q']\n"
        "    @classmethod\n"
        "    def call_api(cls, prompt, options, context):\n        return prompt.upper()\n"
        "    @staticmethod\n"
        "    def tr(output, context):\n        return output + '!'\n"
        "    @staticmethod\n"
        "    def vars(vars, context):\n        return {'q': vars['q'] + 'x'}\n"
    )
    document = {
        "prompts": ["file://p.py:P.prompt"],
        "providers": ["python:p.py:P.call_api", {"id": "file://p.py:P.call_api", "label": "b"}],
        "tests": "file://mine.py:Made.tests",
        "defaultTest": {
            "options": {"transform": "file://p.py:P.tr", "transformVars": "file://p.py:P.vars"}
        },
    }
    suite = parse_suite(document, directory=folder, environ=context.environ)
    assert suite.prompts[0].label == "p.py:P.prompt"
    rows = trio.run(collect, suite)
    assert [row.output for row in rows] == ["MADE 0X!"] * 2


def test_a_function_runs_in_the_folder_of_the_suite(context: FileContext) -> None:
    """It has the environment of the suite, and can import modules next to it."""
    folder = str(context.directory)
    assert call(context, "where") == [folder, "yes", f"{folder}/mine.py", folder]


def test_many_calls_run_in_one_process(context: FileContext) -> None:
    """The call that fails is reported."""
    file = context.directory / "mine.py"
    assert call_for_each(file, "add", [[1], [2], [3, 4]], context) == [2, 3, 7]
    with pytest.raises(MistakenError) as caught:
        call_for_each(file, "add", [[1], ["a"], [2]], context)
    assert [part.at for part in caught.value.parts] == [(1,)]


@pytest.mark.parametrize(
    ("function", "message", "hint"),
    [
        (
            "fail",
            "failed: ValueError: no luck",
            "in line 17 of mine.py; it printed: what I was doing",
        ),
        ("leave", "ended without an answer, with exit code 3", None),
        ("odd", "failed: TypeError: the result must be JSON, got set: {1, 2}", None),
        ("nothing", "failed: TypeError: function nothing not found; known are add, fail,", None),
    ],
)
def test_a_function_without_a_result_is_reported(
    context: FileContext, function: str, message: str, hint: str | None
) -> None:
    """The message contains the line that raised, and the last printed line."""
    found, help_ = problem_of(context, function)
    assert found.startswith(f'{function} of "mine.py" {message}')
    assert help_ == hint


def test_a_file_that_cannot_be_loaded_is_reported(context: FileContext) -> None:
    """The error is that of the file."""
    (context.directory / "mine.py").write_text("\nimport no_such_module\n")
    assert problem_of(context, "add", 1) == (
        "add of \"mine.py\" failed: ModuleNotFoundError: No module named 'no_such_module'",
        "in line 2 of mine.py",
    )


def test_a_function_that_exceeds_its_time_is_ended_with_its_children(context: FileContext) -> None:
    """None of its processes is alive after the call."""
    pids = context.directory / "pids"
    message, _ = problem_of(context, "hang", str(pids), limit=8.0)
    assert message == 'hang of "mine.py" did not end within 8 seconds'
    for pid in map(int, pids.read_text().split()):
        deadline = time.monotonic() + 60
        while _is_alive(pid):
            assert time.monotonic() < deadline
            os.sched_yield()


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_threads_of_a_function_do_not_delay_it(context: FileContext) -> None:
    """The call ends with its result."""
    assert call(context, "linger", limit=30.0) == "done"


def test_large_arguments_and_results_are_transferred(context: FileContext) -> None:
    """They are larger than any pipe buffer, in both directions."""
    size = 3_000_000
    assert call(context, "large", size) == "y" * size
    assert call(context, "add", "z" * size, "") == "z" * size


def test_the_interpreter_comes_from_the_environment(context: FileContext) -> None:
    """A missing one is reported."""
    elsewhere = FileContext(
        directory=context.directory, environ={**context.environ, "PROMPTFOO_PYTHON": "/no/python"}
    )
    assert problem_of(elsewhere, "add", 1)[0] == (
        'add of "mine.py": program "/no/python" not found, or the interpreter in its first line'
    )


@pytest.mark.parametrize(
    "text",
    [
        "({greeting: 'hi ' + vars.name})",
        "{...vars, greeting: `hi ${vars.name}`};",
        "const greeting = 'hi ' + vars.name\nreturn {greeting}",
        "(vars, context) => ({greeting: 'hi ' + vars.name})",
        'python: {"greeting": "hi " + vars["name"]}',
        'python: name = vars["name"]\nreturn {"greeting": f"hi {name}"}',
        "file://t.js",
        "file://t.js:other",
        "file://t.py:other",
    ],
)
def test_variables_are_added_by_code_of_every_form(context: FileContext, text: str) -> None:
    """The result overrides the variables."""
    (context.directory / "t.js").write_text(
        "module.exports = (vars) => ({greeting: 'hi ' + vars.name});\n"
        "module.exports.other = module.exports;\n"
    )
    (context.directory / "t.py").write_text(
        "def other(vars, context):\n    return {'greeting': 'hi ' + vars['name']}\n"
    )
    expected = {"name": "Ada", "n": 1, "greeting": "hi Ada"}
    assert transform_vars(text, {"name": "Ada", "n": 1}, context) == expected


def test_the_default_function_is_get_transform(context: FileContext) -> None:
    """It is called with the variables and a context that is new each time."""
    one, other = transform_vars_of_each("file://mine.py", [{"name": "a"}, {"name": "b"}], context)
    assert (one["greeting"], other["greeting"]) == ("hi a", "hi b")
    assert one["prompt"] == {}
    assert one["uuid"] != other["uuid"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("null", "transformVars must return an object of variables, got null"),
        ("vars.name", 'transformVars must return an object of variables, got the text "a"'),
        ("vars.x.y", "transformVars fails: TypeError"),
        ("vars.", '"vars." is not JavaScript: SyntaxError'),
        ("python: vars[", '"vars[" is not Python: '),
        ("python: 1/0", '"1/0" failed: ZeroDivisionError: division by zero'),
        ("file://no.py", 'file not found: "no.py"'),
        ("file://mine.py:nothing", 'function "nothing" not found in "mine.py"'),
        ("file://mine.py:Made.mane", 'function "Made.mane" not found in "mine.py"'),
        ("file://notes.txt", '"file://notes.txt" is not code that can be run'),
    ],
)
def test_code_that_returns_no_variables_is_reported(
    context: FileContext, text: str, message: str
) -> None:
    """It is reported while the suite is loaded."""
    with pytest.raises(MistakenError) as caught:
        transform_vars(text, {"name": "a"}, context)
    assert [part.message.startswith(message) for part in caught.value.parts] == [True], caught.value


def test_each_test_without_variables_is_reported(context: FileContext) -> None:
    """The message contains its index."""
    with pytest.raises(MistakenError) as caught:
        transform_vars_of_each("vars.o", [{"o": 1}, {"o": {}}, {"o": None}], context)
    assert [part.at for part in caught.value.parts] == [(0,), (2,)]


def test_filters_are_functions_of_python_files(context: FileContext) -> None:
    """It is the one named like the filter, or the only one."""
    (context.directory / "one.py").write_text(
        "from textwrap import dedent\ndef anything(text):\n    return text + '!'\n"
    )
    (context.directory / "two.py").write_text(
        "def shout(text, times=1):\n    return text.upper() * times\ndef whisper(text):\n    return text\n"
    )
    filters = load_filters({"loud": "one.py", "shout": "file://two.py"}, context)
    render = partial(Templates(filters=filters).render, variables={"a": "a"})
    assert (
        render("{{ a | loud }} {{ a | shout(2) }} {{ a | shout(times=3) | loud }}") == "a! AA AAA!"
    )
    assert render("{% for x in range(40) %}{{ x | string | loud }}{% endfor %}").endswith("38!39!")


def test_filters_print_to_standard_error(
    context: FileContext, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output of the command stays what it is, JSON for example."""
    (context.directory / "f.py").write_text(
        "import sys\nprint('loaded')\ndef f(text):\n    print(text, 'b', sep='-')\n    return text\n"
        "def g(text):\n    print(text, file=sys.stdout)\n    return text\n"
    )
    templates = Templates(filters=load_filters({"f": "f.py", "g": "f.py"}, context))
    assert templates.render("{{ 'a' | f }}", {}) == "a"
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "loaded\nloaded\na-b\n")
    assert templates.render("{{ 'c' | g }}", {}) == "c"
    assert capsys.readouterr().out == "c\n"  # the file asks for it


def test_filters_are_functions_of_javascript_files(context: FileContext) -> None:
    """They run in the engine of templates, in all forms in which a module exports a function."""
    files = {
        "loud.js": "module.exports = (text) => text.toUpperCase() + '!';",
        "pick.cjs": "exports.other = 1; exports.pick = function (list, place = 0) { return list[place]; };",
        "count.mjs": "export default function (value) { return { n: value.length }; }",
    }
    for name, code in files.items():
        (context.directory / name).write_text(code)
    given = {"loud": "loud.js", "pick": "file://pick.cjs", "count": "count.mjs"}
    templates = Templates(filters=load_filters(given, context))
    text = "{{ l | pick | loud }} {{ l | pick(1) }} {{ (l | count).n }}"
    assert templates.render(text, {"l": ["a", "b"]}) == "A! b 2"


def test_all_mistakes_of_filters_in_javascript_are_reported(context: FileContext) -> None:
    """Code that needs Node.js is refused before anything is paid, and so is a file without a function."""
    files = {
        "node.js": "const fs = require('fs');\nmodule.exports = (text) => fs.readFileSync(text);",
        "none.js": "module.exports = 3;",
        "syntax.js": "module.exports = (",
        "throws.js": "null.x; module.exports = (x) => x;",
    }
    for name, code in files.items():
        (context.directory / name).write_text(code)
    with pytest.raises(MistakenError) as caught:
        load_filters({name[0]: name for name in files} | {"n": "node.js", "o": "none.js"}, context)
    messages = {part.at: part.message for part in caught.value.parts}
    assert messages["n",].startswith('"node.js" uses require in line 1, which is not available')
    assert messages["o",] == '"none.js" cannot be loaded: TypeError: it exports no function'
    assert messages["s",].startswith('"syntax.js" is not JavaScript: SyntaxError')
    assert messages["t",].startswith('"throws.js" cannot be loaded: TypeError')


def test_an_error_of_a_filter_names_the_filter(context: FileContext) -> None:
    """This holds for both languages."""
    (context.directory / "a.py").write_text("def a(text):\n    raise ValueError('no ' + text)\n")
    (context.directory / "b.js").write_text(
        "module.exports = (text) => { throw new Error('no ' + text) };"
    )
    templates = Templates(filters=load_filters({"a": "a.py", "b": "b.js"}, context))
    with pytest.raises(TemplateError, match=r'line 2: the filter "a": ValueError: no x$'):
        templates.render("\n{{ 'x' | a }}", {})
    with pytest.raises(TemplateError, match=r"line 2: no x$"):
        templates.render("\n{{ 'x' | b }}", {})


def test_all_mistakes_of_filters_are_reported(context: FileContext) -> None:
    """All mistakes are reported at once, by the name of the filter."""
    (context.directory / "two.py").write_text("def shout(t): ...\ndef whisper(t): ...\n")
    (context.directory / "bad.py").write_text("1/0\n")
    given = {"a": "f.ts", "shuot": "two.py", "c": 3, "d": "no.py", "e": "bad.py"}
    with pytest.raises(MistakenError) as caught:
        load_filters(given, context)
    assert [(part.at, part.message, part.hint) for part in caught.value.parts] == [
        (
            ("a",),
            'filters are functions in Python or JavaScript files, got "f.ts"',
            "write the file alone; the filter is its function a, or its only one",
        ),
        (("shuot",), 'function "shuot" not found in "two.py"', 'did you mean "shout"?'),
        (("c",), "must be the path of a Python or JavaScript file, got 3", None),
        (("d",), 'file not found: "no.py"', 'did you mean "two.py"?'),
        (("e",), '"bad.py" cannot be loaded: ZeroDivisionError: division by zero', None),
    ]


def test_an_interrupt_ends_the_function(context: FileContext) -> None:
    """Cancelled loading leaves no process behind."""
    pids = context.directory / "pids"

    def give_up(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, give_up)
    try:
        with pytest.raises(KeyboardInterrupt):
            call(context, "interrupt", str(pids))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not _is_alive(int(pids.read_text()))


def test_no_process_is_started_after_cancelled_loading(context: FileContext) -> None:
    """Processes of other threads of the same load end at once; those of other loads are not affected."""
    pids = context.directory / "pids"
    calls, found = LoadProcesses(), []

    def load() -> None:
        with calls.noted():
            for _ in range(2):
                try:
                    call(context, "hang", str(pids))
                except MistakenError as error:
                    found.append(str(error))

    thread = threading.Thread(target=load)
    thread.start()
    while len(pids.read_text().split() if pids.exists() else ()) < 2:
        assert thread.is_alive()
    calls.end()
    leader, child = map(int, pids.read_text().split())
    assert not _is_alive(leader)
    thread.join(timeout=60)
    assert found == [
        'hang of "mine.py" ended without an answer, with exit code -9',
        "loading was cancelled",
    ]
    assert not _is_alive(child)
    assert call(context, "add", 1) == 2

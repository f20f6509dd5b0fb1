"""Functions of the user that are called while a suite is loaded, each time in a separate process.

Such a function cannot damage the run: it has a time limit, and everything in its process group ends with it.
The group also ends when this process is killed, by a pipe whose other end no other process holds, and when
loading is cancelled (`LoadProcesses`). Request and answer are files without a name, so that neither the
function's output nor unread data can block the other side.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any

import attrs

from trioeval.documents.files import FILE, FileContext, unanchored
from trioeval.documents.mistakes import Mistake, MistakenError, Mistakes, kind, nearest, read_each
from trioeval.executables import start_failure
from trioeval.grading import quote
from trioeval.scripting import WORKER, is_script, split_function
from trioeval.suite.sources.prompts import read_python, read_text

if TYPE_CHECKING:
    from trioeval.scripting.javascript import Script
    from trioeval.templates.nunjucks import Filter

_JAVASCRIPT = (".js", ".cjs", ".mjs")

# `nunjucksFilters`: filters of templates that are functions in the user's Python or JavaScript files.
#
# Those in Python run in this process, which renders templates, because a call to another process would take
# longer than all of the rendering; those in JavaScript run in the engine of templates. So a suite with
# filters is code, like a script, and not only data.


def load_filters(mapping: Mapping[str, Any], context: FileContext) -> dict[str, Filter]:
    """Return the filters that a suite names. Runs their files.

    Args:
        mapping: Files by the names of the filters. The function is the one with the filter's name, or the
            only one that the file defines or exports.
        context: The context of the files.

    Raises:
        MistakenError: All mistakes, relative to the mapping.
    """
    return read_each(mapping.items(), partial(_load, context=context))


def _load(name: str, named: Any, context: FileContext) -> Filter:
    if not isinstance(named, str):
        message = f"must be the path of a Python or JavaScript file, got {kind(named)}"
        raise MistakenError(Mistake(message))
    if not named.endswith((".py", *_JAVASCRIPT)):
        message = f"filters are functions in Python or JavaScript files, got {quote(named)}"
        hint = f"write the file alone; the filter is its function {name}, or its only one"
        raise MistakenError(Mistake(message, hint))
    context.check_code(quote(named))
    file = context.file(named)
    if named.endswith(_JAVASCRIPT):
        return _javascript_filter(name, named, read_text(file), context)
    read_python(file, named.removeprefix(FILE), None)
    if not context.may_run(quote(named), f"what the filter {quote(name)} makes of texts"):
        return str
    module = _run(file)
    functions = {
        key: value
        for key, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
    }
    if name in functions:
        return functions[name]
    if len(functions) == 1:
        return next(iter(functions.values()))
    message = f"function {quote(name)} not found in {quote(named)}"
    raise MistakenError(Mistake(message, nearest(name, functions)))


def _javascript_filter(name: str, named: str, code: str, context: FileContext) -> Filter:
    from trioeval.scripting.engine import program
    from trioeval.scripting.javascript import Script
    from trioeval.templates.nunjucks import JavaScriptFilter

    script = Script(code, ("text",), "module", name)
    if need := script.needs_node:
        message = f"{quote(named)} {need}, which is not available: filters run without Node"
        raise MistakenError(Mistake(message, "write the filter in Python"))
    if fault := script.fault():
        raise MistakenError(Mistake(f"{quote(named)} {fault}"))
    if not context.may_run(quote(named), f"what the filter {quote(name)} makes of texts"):
        return str
    try:
        program.engine().eval(script.expression)
    except Exception as error:  # noqa: BLE001 - any error of the user's file
        message = f"{quote(named)} cannot be loaded: {program.first_line(error)}"
        raise MistakenError(Mistake(message)) from None
    return JavaScriptFilter(script.expression)


def _print(
    *values: object,
    sep: str | None = None,
    end: str | None = None,
    file: IO[str] | None = None,
    flush: bool = False,
) -> None:
    """`print` in the file of a filter; standard output contains the results of the command."""
    stream = sys.stderr if file is None else file
    stream.write((" " if sep is None else sep).join(map(str, values)))
    stream.write("\n" if end is None else end)
    if flush:
        stream.flush()


def _run(file: Path) -> ModuleType:
    name = f"trioeval_filters_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise MistakenError(Mistake(f"{file} is not a Python file"))
    module = importlib.util.module_from_spec(spec)
    # Of the module alone: threads render templates, so no call can replace the stream of the process.
    vars(module)["print"] = _print
    sys.modules[name] = module  # before it runs: classes look up their module there
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # noqa: BLE001 - any exception of the user's file
        message = " ".join(f"{type(error).__name__}: {error}".split())
        raise MistakenError(Mistake(f"{quote(file.name)} cannot be loaded: {message}")) from None
    return module


LIMIT = 60.0
"""Seconds that all calls of one function may take together."""

_PRINTED = 2048

_calls: ContextVar[LoadProcesses | None] = ContextVar("calls", default=None)


class LoadProcesses:
    """The processes and other work that one thread starts while it loads a suite; another can end them.

    They are recorded through the context of that thread: the functions between loading and starting a process
    need not pass them on.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._cancels: list[Callable[[], None]] = []
        self._ended = False

    @contextmanager
    def noted(self) -> Generator[None]:
        """Record the processes that the block starts."""
        token = _calls.set(self)
        try:
            yield
        finally:
            _calls.reset(token)

    def start(self, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        """Start a process, unless `end` was called.

        Raises:
            MistakenError: Loading was cancelled.
            OSError: It cannot be started.
        """
        with self._lock:
            if self._ended:
                raise MistakenError(Mistake("loading was cancelled"))
            process = start()
            self._running.add(process)
        return process

    def add_cancel(self, cancel: Callable[[], None]) -> None:
        """Record how to end other work; if `end` was called already, end it."""
        with self._lock:
            self._cancels.append(cancel)
            is_ended = self._ended
        if is_ended:
            cancel()

    def forget(self, process: subprocess.Popen[bytes]) -> None:
        """Record that a process has ended."""
        with self._lock:
            self._running.discard(process)

    def end(self) -> None:
        """End all processes and prevent further ones; waits until they have ended."""
        with self._lock:
            self._ended = True
            running, cancels = tuple(self._running), tuple(self._cancels)
        for cancel in cancels:
            cancel()
        for process in running:
            _kill(process)


@contextmanager
def call_on_end() -> Generator[Callable[[Callable[[], None]], None]]:
    """Yield a function that records how to end the work of the block, if loading is cancelled."""
    under_way = _calls.get()
    yield (lambda _cancel: None) if under_way is None else under_way.add_cancel


def call_function(
    file: Path, function: str, arguments: Sequence[Any], context: FileContext, limit: float = LIMIT
) -> Any:
    """Call a function of a Python or JavaScript file and return its result.

    Args:
        file: Absolute. Node runs JavaScript and TypeScript.
        function: Its name; it may be async, for asyncio. Of JavaScript it begins as `worker.mjs` describes.
        arguments: JSON data.
        context: Provides the working directory, the environment and, by its `PYTHON`, the interpreter.
        limit: The maximum duration in seconds, > 0.

    Raises:
        MistakenError: It cannot be called, raises, takes longer, or returns a value that is not JSON.
    """
    return call_for_each(file, function, [arguments], context, limit=limit)[0]


def call_for_each(
    file: Path,
    function: str,
    calls: Sequence[Sequence[Any]],
    context: FileContext,
    *,
    limit: float = LIMIT,
    executable: str | None = None,
    shown: str | None = None,
) -> list[Any]:
    """Call a function with each of several lists of arguments, in one process, and return the results.

    Args:
        file: As for `call_function`.
        function: Its name.
        calls: The arguments of each call.
        context: As for `call_function`.
        limit: The maximum duration of all calls together in seconds.
        executable: The interpreter; None takes that of the environment.
        shown: The name in messages, if it is not a function of the user.

    Raises:
        MistakenError: As for `call_function`. The path begins with the index of the first call that fails, if
            there are several.
    """
    from trioeval.scripting.node import node_command
    from trioeval.suite.sources import one_shot

    in_node = is_script(file)
    name = shown or f"{function.rpartition(':')[2] or 'the default export'} of {quote(file.name)}"
    context.check_code(name)
    if context.trust.code == "later":
        raise MistakenError(Mistake(f"{name} runs only when the suite runs"))
    question = {"file": str(file), "function": function, "calls": [list(call) for call in calls]}
    with (
        tempfile.TemporaryFile() as request_file,
        tempfile.TemporaryFile() as answered,
        tempfile.TemporaryFile() as printed,
    ):
        request_file.write(json.dumps(question, default=str).encode())
        request_file.seek(0)
        interpreter = executable or context.variable("PYTHON") or sys.executable
        command = (
            [*node_command(context.environ), str(WORKER)]
            if in_node
            else [interpreter, one_shot.__file__]
        )
        under_way = _calls.get() or LoadProcesses()
        with _lifeline() as lifeline:
            descriptors = [request_file.fileno(), answered.fileno(), lifeline]
            try:
                process = under_way.start(
                    lambda: subprocess.Popen(  # noqa: S603 - the user's own code, by an absolute path
                        [*command, *map(str, descriptors)],
                        cwd=context.directory,
                        env=dict(context.environ),
                        stdin=subprocess.DEVNULL,
                        stdout=printed,
                        stderr=subprocess.STDOUT,
                        pass_fds=descriptors,
                        start_new_session=True,
                    )
                )
            except OSError as error:
                message = f"{name}: {start_failure(command[0], error)}"
                language = "Node" if in_node else "a Python interpreter"
                advice = f"set TRIOEVAL_{'NODE' if in_node else 'PYTHON'} to the path of {language}"
                raise MistakenError(Mistake(message, advice)) from None
            ended = _wait(process, limit)
            under_way.forget(process)
        answered.seek(0)
        printed.seek(-min(_PRINTED, printed.seek(0, os.SEEK_END)), os.SEEK_END)
        answer, printed_text = answered.read(), printed.read().decode("utf-8", "replace").strip()
    hint = f"it printed: {printed_text.splitlines()[-1]}" if printed_text else None
    if not ended:
        raise MistakenError(Mistake(f"{name} did not end within {limit:g} seconds", hint))
    if not answer:
        message = f"{name} ended without an answer, with exit code {process.returncode}"
        raise MistakenError(Mistake(message, hint))
    response = json.loads(answer)
    if failure := response.get("error"):
        line = None if shown else failure["line"]
        where = f"in line {line} of {file.name}" if line else None
        at = (failure["call"],) if len(calls) > 1 else ()
        hint = "; ".join(filter(None, (where, hint))) or None
        raise MistakenError(Mistake(f"{name} failed: {failure['what']}", hint, at=at))
    values: list[Any] = response["values"]
    return values


@contextmanager
def _lifeline() -> Generator[int]:
    """Yield the read end of a pipe; the process group that holds it ends when this process is killed."""
    watched, write_end = os.pipe()
    try:
        yield watched
    finally:
        os.close(watched)
        os.close(write_end)


def _wait(process: subprocess.Popen[bytes], limit: float) -> bool:
    """Wait for a process, and end the rest of its group; return whether it ended by itself."""
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        return False
    finally:
        _kill(process)
    return True


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


# `transformVars`: code that adds or replaces variables of a test, before it is expanded.


FUNCTION = "get_transform"
"""The function of a Python file for which none is named."""

PYTHON = "python:"
"""The prefix of Python code."""

NAMES = ("vars", "context")
"""The names that the code can use: the variables, and `{"prompt": {}, "uuid": …}`."""

_EACH = 0.1
"""Seconds that each test adds to the time limit."""

_CODE_FILE = re.compile(r"(.+\.(?:py|[cm]?[jt]s))(?::(\w+(?:\.\w+)*))?")


def transform_vars(text: str, variables: Mapping[str, Any], context: FileContext) -> dict[str, Any]:
    """Return the variables of a test merged with the result of its `transformVars`, which wins.

    Raises:
        MistakenError: The code cannot run, fails, or returns no object.
    """
    return transform_vars_of_each(text, [variables], context)[0]


def transform_vars_of_each(
    text: str, tests: Sequence[Mapping[str, Any]], context: FileContext
) -> list[dict[str, Any]]:
    """Do the same as `transform_vars` for many tests, in one process.

    Raises:
        MistakenError: As for `transform_vars`; the path begins with the index of the test, if several.
    """
    found = _transform_vars_run(text, [[dict(test), _context()] for test in tests], context)
    mistakes = Mistakes()
    for position, value in enumerate(found):
        if not isinstance(value, dict):
            message = f"transformVars must return an object of variables, got {kind(value)}"
            hint = (
                "code on several lines needs a return" if value is None and "\n" in text else None
            )
            mistakes.append(Mistake(message, hint, at=(position,) if len(tests) > 1 else ()))
    mistakes.raise_any()
    return [{**test, **value} for test, value in zip(tests, found, strict=True)]


def code_file(text: str, context: FileContext) -> tuple[Path, str | None]:
    """Return the file, and the function in it, that `file://<file>[:<function>]` names.

    Raises:
        MistakenError: It does not exist, or is neither Python nor JavaScript.
    """
    parts = _CODE_FILE.fullmatch(text.removeprefix(FILE))
    if parts is None:
        message = f"{quote(text)} is not code that can be run"
        raise MistakenError(Mistake(message, "write file://<file>.py[:<function>], or a .js file"))
    context.check_code(quote(text))
    file = context.file(parts[1])
    if file.suffix == ".py":
        read_python(file, parts[1], parts[2])
    return file, parts[2]


def checked_script(script: Script, context: FileContext) -> Script:
    """Return a script unchanged if it can run.

    Raises:
        MistakenError: It is invalid, or needs Node, which is not found.
    """
    if fault := script.fault(context.environ):
        shown = script.code if script.file is None else script.file.name
        raise MistakenError(Mistake(f"{quote(shown)} {fault}"))
    return script


def check_node(file: Path, role: str, context: FileContext) -> None:
    """Check that Node can run a file.

    Args:
        file: JavaScript or TypeScript; absolute.
        role: What it is: "is a test generator".
        context: Provides the environment.

    Raises:
        MistakenError: Node is not found, or the file is invalid.
    """
    from trioeval.scripting.node import node_fault

    if fault := node_fault(role, context.environ, file):
        raise MistakenError(Mistake(f"{quote(file.name)} {fault}"))


def check_node_reference(reference: str, role: str, context: FileContext) -> None:
    """Check that Node can run the file that `file://<file>[:<function>]` names.

    Raises:
        MistakenError: As for `check_node`, or the file does not exist.
    """
    folder, named = unanchored(reference)
    path, _ = split_function(named.removeprefix(FILE))
    if folder is not None:
        context = attrs.evolve(context, directory=folder)
    check_node(context.file(path), role, context)


def checked_python(code: str, names: tuple[str, ...]) -> str:
    """Return Python code unchanged if it is valid.

    Raises:
        MistakenError: It is not valid Python.
    """
    from trioeval.scripting.evaluator import program as evaluator
    from trioeval.scripting.python_syntax import python_fault

    try:
        evaluator.make_function(code, names)
    except (SyntaxError, ValueError) as error:
        raise MistakenError(Mistake(f"{quote(code)} {python_fault(error, code)}")) from None
    return code


def _context() -> dict[str, Any]:
    return {"prompt": {}, "uuid": str(uuid.uuid4())}


def _transform_vars_run(text: str, calls: list[list[Any]], context: FileContext) -> list[Any]:
    from trioeval.scripting.evaluator import program as evaluator
    from trioeval.scripting.javascript import Script, transform_script

    limit = LIMIT + len(calls) * _EACH
    if text.startswith(PYTHON):
        code = checked_python(text.removeprefix(PYTHON).strip(), NAMES)
        seen = [[code, dict(zip(NAMES, values, strict=True))] for values in calls]
        program = Path(evaluator.__file__)
        return call_for_each(program, "run", seen, context, limit=limit, shown=quote(code))
    if not text.startswith(FILE):
        return _run_script(transform_script(text, NAMES), calls, context, limit)
    file, function = code_file(text, context)
    if file.suffix == ".py":
        return call_for_each(file, function or FUNCTION, calls, context, limit=limit)
    script = Script(read_text(file), NAMES, "module", function, file=file)
    return _run_script(script, calls, context, limit)


def _run_script(
    script: Script, calls: list[list[Any]], context: FileContext, limit: float
) -> list[Any]:
    from trioeval.scripting.engine import program as engine

    checked_script(script, context)
    in_node = script.needs_node is not None
    if in_node and script.file is not None:
        return call_for_each(script.file, script.target, calls, context, limit=limit)
    # With the interpreter of this process, for which the engine is installed.
    response = call_for_each(
        WORKER if in_node else Path(engine.__file__),
        script.target if in_node else "run",
        [[script.source, values] for values in calls],
        context,
        limit=limit,
        executable=sys.executable,
        shown="transformVars",
    )
    for position, answer in enumerate(response):
        if "error" in answer:
            at = (position,) if len(calls) > 1 else ()
            raise MistakenError(Mistake(f"transformVars fails: {answer['error']}", at=at))
    return [answer["value"] for answer in response]


_PYTHON_FUNCTION = re.compile(r"(?:file://)?.+\.py:\w+(?:\.\w+)*")
_TARGET = "write file://<file>.py:<function>"


def python_target(value: Any, context: FileContext, feature: str) -> str:
    """Return a reference to a Python function with an absolute path.

    Raises:
        MistakenError: It does not name a function of a Python file, or the file does not exist.
    """
    if not isinstance(value, str):
        raise MistakenError(Mistake(f"must be text, got {kind(value)}", _TARGET))
    if not _PYTHON_FUNCTION.fullmatch(value):
        message = f"{feature} are functions in Python files, got {quote(value)}"
        raise MistakenError(Mistake(message, _TARGET))
    file, function = code_file(value, context)
    return f"{FILE}{file}:{function}"

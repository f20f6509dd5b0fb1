"""`python:<file>[:function]`: a function of the user's, by default in worker processes.

`Class.method` names a method that needs no instance.

The function is called with the prompt, the options `{"id", "config"}` and the context `{"vars", …}`, and
returns an object with `output` or `error`, or text. Its `mode` decides where it runs:

* `process` (the default): in worker processes that can be killed. Async functions run on asyncio.
* `thread`: in a thread of this process.
* `trio`: an async function for Trio, in this process.

In the last two modes the file is run when its entry is read; in the first one by the worker that needs it,
and reading the entry only checks that the file can be parsed and has the function.
"""

import ast
import difflib
import inspect
import os
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import attrs
import trio

from trioeval.errors import CallError, Fault, Problem, ProviderError
from trioeval.executables import find_program, install_hint, missing_program
from trioeval.paths import Refused
from trioeval.providers.base import Reply, Request
from trioeval.providers.bounds import MAX_RESPONSE, MOST_BYTES, excess
from trioeval.providers.config import (
    EntryContext,
    Key,
    ProviderResources,
    ProviderSettings,
    is_integer,
    is_positive,
    is_text,
    show,
    to_snake,
)
from trioeval.providers.metering import Metering
from trioeval.providers.programs.entries import (
    DEFAULT_TIMEOUT,
    TIMEOUT,
    absolute,
    find_secrets,
    make_context,
    read_call,
    read_own_config,
)
from trioeval.providers.programs.exec import DEFAULT_FUNCTION, OUTPUT_BY_FUNCTION, read_result
from trioeval.providers.programs.worker import FAILURES, describe, load
from trioeval.providers.programs.workers import WorkerSpec, open_workers
from trioeval.scripting import MOST_WORKERS
from trioeval.scripting.python_syntax import python_fault

# A function of the user's in this process: awaited on Trio, or called in a thread.
#
# Both are fast and neither is safe: a function that blocks Trio blocks the run, and one that blocks its
# thread never releases it. If that matters, use worker processes. Each call gets a copy of its arguments, so
# the function may change them.


_FAILURES: tuple[type[BaseException], ...] = (*FAILURES, SystemExit)


@attrs.frozen
class TrioFunction:
    """An async function for Trio; any number of its calls run concurrently."""

    name: str
    """Name for messages."""
    function: Callable[..., Any] = attrs.field(repr=False)

    async def call(self, arguments: Sequence[Any], limit: float) -> Any:
        """Await the function. A checkpoint if the function is one.

        Args:
            arguments: Its arguments.
            limit: Maximum seconds, > 0.

        Raises:
            CallError: The function raised it.
            ProviderError: `unexpected` (it raised anything else, or is not async) or `attempt_timeout`.
        """
        with trio.move_on_after(limit):
            try:
                pending = self.function(*deepcopy(arguments))
                if inspect.isawaitable(pending):
                    return await pending
            except CallError:
                raise
            except (Exception, SystemExit) as error:
                raise _raised(self.name, error) from error
            returned = f"it returned {type(pending).__name__}: {show(pending)}"
            hint = 'write it with `async def`, or set mode to "thread" or "process"'
            raise ProviderError("unexpected", f"{self.name} is not async: {returned}; {hint}")
        raise late(self.name, limit)


@attrs.define(eq=False, repr=False)
class _ThreadCall:
    """A call of a function in a thread, tracked while that runs."""

    limit: float
    """Maximum seconds."""
    scope: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    is_left: bool = attrs.field(init=False, default=False)
    """True if its caller has stopped waiting."""


@attrs.define(eq=False, repr=False)
class ThreadFunction:
    """A blocking function; each call has a thread, and there are never more than `threads`."""

    name: str
    """Name for messages."""
    function: Callable[..., Any]
    threads: int = 1
    """Maximum number of threads, ≥ 1."""
    _places: trio.CapacityLimiter = attrs.field(init=False)
    _waiting: set[_ThreadCall] = attrs.field(init=False, factory=set)
    """Calls without a thread."""
    _running: set[_ThreadCall] = attrs.field(init=False, factory=set)
    """Calls whose threads are running."""

    @_places.default
    def _as_many_as_allowed(self) -> trio.CapacityLimiter:
        return trio.CapacityLimiter(self.threads)

    async def call(self, arguments: Sequence[Any], limit: float) -> Any:
        """Call the function in a thread, when one is free. Always a checkpoint.

        A thread cannot be ended: one whose call took too long or was cancelled is abandoned, and counts as
        used until it is done. When all threads are abandoned, waiting calls fail.

        Args:
            arguments: Its arguments.
            limit: Maximum seconds, > 0; the wait for a thread does not count.

        Raises:
            CallError: The function raised it.
            ProviderError: `unexpected` (it raised anything else, or is async, or all threads are stuck,
                which is fatal) or `attempt_timeout`.
        """
        token = trio.lowlevel.current_trio_token()
        own = deepcopy(arguments)
        call = _ThreadCall(limit)

        def run() -> Any:
            token.run_sync_soon(self._begin, call)
            try:
                return self._run(own)
            finally:
                with suppress(trio.RunFinishedError):  # the run has ended since
                    token.run_sync_soon(self._running.discard, call)

        self._waiting.add(call)
        self._refuse_if_stuck()
        try:
            with call.scope:
                return await trio.to_thread.run_sync(
                    run, abandon_on_cancel=True, limiter=self._places
                )
        finally:
            has_begun = call not in self._waiting
            self._waiting.discard(call)
            call.is_left = True
            self._refuse_if_stuck()
        raise late(self.name, limit) if has_begun else self._stuck()

    def _begin(self, call: _ThreadCall) -> None:
        """Record that its thread has started."""
        self._waiting.discard(call)
        self._running.add(call)
        call.scope.deadline = trio.current_time() + call.limit
        self._refuse_if_stuck()

    def _refuse_if_stuck(self) -> None:
        """Cancel the waiting calls if all threads are abandoned."""
        if sum(call.is_left for call in self._running) == self.threads:
            for call in self._waiting:
                call.scope.cancel("all threads are stuck")

    def _stuck(self) -> ProviderError:
        message = f"all {self.threads} threads of {self.name} are stuck in calls that took too long"
        hint = 'set mode to "process", whose workers can be ended'
        return ProviderError("unexpected", f"{message}; {hint}", fault=Fault.FATAL)

    def _run(self, arguments: Sequence[Any]) -> Any:
        try:
            value = self.function(*arguments)
        except CallError:
            raise
        except _FAILURES as error:
            raise _raised(self.name, error) from error
        if inspect.iscoroutine(value):
            value.close()
            hint = 'set mode to "process", or to "trio" if it is written for Trio'
            raise ProviderError("unexpected", f"{self.name} is async; {hint}")
        return value


def late(name: str, limit: float) -> ProviderError:
    """Return the error for a call that took too long."""
    message = f"{name} did not answer within {limit:g} seconds (timeoutMs)"
    return ProviderError("attempt_timeout", message)


def _raised(name: str, error: BaseException) -> ProviderError:
    """Return the error for an exception of the user's code, with the end of its traceback."""
    described = describe(error)
    return ProviderError(
        "unexpected", f"{name}: {described['what']}", body_excerpt=described["trace"]
    )


# The names at the top level of a Python file, determined without running it.
#
# A file that may define names dynamically, by `import *` or `exec` for instance, is not judged.


_UNSEEN = frozenset({"exec", "eval", "globals", "locals", "vars", "setattr", "modules", "__dict__"})
"""Names in code that may define names of its module dynamically."""

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def top_level_names(tree: ast.Module) -> frozenset[str] | None:
    r"""Return the names that the file may define; None if they cannot be determined.

    Example:
        >>> sorted(
        ...     top_level_names(ast.parse("import a.b\nif a:\n    def f(): x = 1\nelse: f = a.c"))
        ... )
        ['a', 'f']
        >>> top_level_names(ast.parse("from a import *")) is None
        True
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in _UNSEEN:
            return None
        if isinstance(node, ast.Attribute) and node.attr in _UNSEEN:
            return None
        if isinstance(node, ast.alias) and node.name == "*":
            return None
    names = {name for node in _outermost(tree) for name in _bound(node)}
    names |= {
        name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names
    }
    return None if "__getattr__" in names else frozenset(names)


def did_you_mean(name: str, names: Iterable[str]) -> str | None:
    """Return a hint with the nearest name."""
    near = difflib.get_close_matches(name, sorted(names), n=1)
    return f'did you mean "{near[0]}"?' if near else None


def _outermost(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes except those in functions and classes."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if not isinstance(node, _SCOPES):
            yield from _outermost(node)


def _bound(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store()):
            yield name
        case ast.alias(name=name, asname=renamed):
            yield renamed or name.partition(".")[0]
        case ast.ExceptHandler(name=str(name)):
            yield name
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.MatchMapping(rest=str(name)):
            yield name


WORKERS_VARIABLE = "TRIOEVAL_PYTHON_WORKERS"
"""The environment variable for the number of workers of a provider whose config sets none."""

_DIGITS = 4

Mode: TypeAlias = Literal["process", "thread", "trio"]
MODES: tuple[Mode, ...] = ("process", "thread", "trio")

_A_NUMBER_OF_WORKERS = f"a whole number from 1 to {MOST_WORKERS}"


def _is_number_of_workers(value: Any) -> bool:
    return is_integer(value) and 1 <= value <= MOST_WORKERS


KEYS = (
    TIMEOUT,
    MAX_RESPONSE,
    Key("mode", " or ".join(f'"{mode}"' for mode in MODES), lambda value: value in MODES),
    Key("workers", _A_NUMBER_OF_WORKERS, _is_number_of_workers),
    Key("pythonExecutable", "text", is_text),
)


class Caller(Protocol):
    """Calls the user's function, wherever it runs."""

    async def call(self, arguments: Sequence[Any], limit: float) -> Any:
        """Return the function's result.

        Raises:
            ProviderError: It failed, or took longer than `limit` seconds.
        """
        ...


@attrs.frozen(kw_only=True)
class PythonSettings(ProviderSettings):
    """A function of a file, and the settings for running it."""

    name: str
    """`python:<file>:<function>`, with the file as in the suite."""
    workers: WorkerSpec
    function: Callable[..., Any] | None = attrs.field(default=None, repr=False)
    """The function itself, if it runs in this process."""
    mode: Mode = "process"
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)
    own: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    """Config that is passed to the function."""
    timeout: float = DEFAULT_TIMEOUT
    """Maximum seconds of a call, > 0."""

    @property
    def own_name(self) -> str:
        """The id with the function."""
        return self.name

    @property
    def lane_key(self) -> str:
        """One lane for each function."""
        return self.name

    @property
    def metering(self) -> Metering:
        """The metering of a function, whose reported costs have no limit."""
        return Metering(says_cost=True)

    @asynccontextmanager
    async def open(self, _shared: ProviderResources) -> AsyncGenerator["PythonProvider"]:
        """Open the provider with its workers."""
        if self.function is None:
            async with open_workers(self.workers) as workers:
                yield PythonProvider(self, workers)
        elif self.mode == "trio":
            yield PythonProvider(self, TrioFunction(self.name, self.function))
        else:
            threads = ThreadFunction(self.name, self.function, self.workers.workers)
            yield PythonProvider(self, threads)


def read(
    _prefix: str, rest: str, config: Mapping[str, Any], context: EntryContext
) -> PythonSettings | list[Problem]:
    """Read an entry; see `Reader`. Runs the file if the function runs in this process."""
    values, own, problems = read_own_config(config, KEYS)
    mode: Mode = values.get("mode", "process")
    named, function = _split(rest.strip())
    name = f"python:{named}:{function}"
    file = absolute(context.directory, named)
    for key, modes in (("workers", ("process", "thread")), ("pythonExecutable", ("process",))):
        if to_snake(key) in values and mode not in modes:
            fault = f'has no effect with mode "{mode}"'
            problems.append(Problem(f".config.{key}", fault, "leave it out"))
    executable = _find_executable(values.get("python_executable"), context)
    if executable is None:
        program = values["python_executable"]
        bare = os.sep not in program
        fault = missing_program(program) if bare else f"program {show(program)} not found"
        hint = install_hint() if bare else "write the path of a Python interpreter"
        problems.append(Problem(".config.pythonExecutable", fault, hint))
    workers = values.get("workers") or _inherited_workers(context.environ)
    if isinstance(workers, Problem):
        problems.append(workers)
    place = context.place(named)
    loaded = (
        Problem(".id", place.message, place.hint)
        if isinstance(place, Refused)
        else _find_function(
            rest,
            file,
            function,
            mode=mode if context.runs_code else "process",
            foreign="python_executable" in values,
        )
    )
    if isinstance(loaded, Problem):
        problems.append(loaded)
    if isinstance(loaded, Problem) or isinstance(workers, Problem) or not executable or problems:
        return problems
    return PythonSettings(
        name=name,
        workers=WorkerSpec(
            name=name,
            executable=executable,
            file=file,
            function=function,
            cwd=absolute(context.directory, ""),
            environ=context.environ,
            workers=workers,
            largest=values.get("max_response_bytes", MOST_BYTES),
            size_key=MAX_RESPONSE.name,
        ),
        function=loaded,
        mode=mode,
        secrets=find_secrets(own, context.environ),
        own=own,
        timeout=_limit(values, own),
    )


def _limit(values: Mapping[str, Any], own: Mapping[str, Any]) -> float:
    """Return the maximum seconds of a call: `timeoutMs`, or `timeout`, which the function gets as well."""
    given = values.get("timeout_ms", own.get("timeout"))
    return given / 1000 if is_positive(given) else DEFAULT_TIMEOUT


@attrs.frozen
class PythonProvider:
    """Calls the function, and reads its result."""

    settings: PythonSettings
    _caller: Caller = attrs.field(repr=False)

    async def __call__(self, request: Request, /) -> Reply:
        """Send one request.

        Raises:
            ProviderError: See `Workers.call`, `ThreadFunction.call`, `TrioFunction.call` and
                `read_result`; or `bad_request`, if the variables are not JSON; or `unexpected`, if the result
                is too large.
        """
        settings = self.settings
        function = settings.workers.function.rpartition(".")[2]
        timeout, own = read_call(settings.own, KEYS, request)
        arguments: list[Any] = [request.prompt, {"id": settings.name, "config": own}]
        if function not in OUTPUT_BY_FUNCTION:
            arguments.append(make_context(request))
        limit = settings.timeout if timeout is None else timeout
        value = await self._caller.call(arguments, limit)
        # The result of a worker process was counted before it was parsed.
        if settings.function is not None and (more := excess(value, settings.workers.largest)):
            message = f"the result has {more}, the maximum that {MAX_RESPONSE.name} allows"
            raise ProviderError("unexpected", f"{settings.name}: {message}")
        return read_result(value, function, name=settings.name)


def _split(rest: str) -> tuple[str, str]:
    """Return file and function of an id; folders may have colons in their names."""
    file, colon, function = rest.rpartition(":")
    if not colon or function.endswith(".py"):
        return rest, DEFAULT_FUNCTION
    return file, function


def _find_function(
    rest: str, file: Path, function: str, *, mode: Mode, foreign: bool
) -> Callable[..., Any] | Problem | None:
    """Return the function if it runs in this process, or the problem of the id or the file."""
    if not rest.strip():
        return Problem(".id", '"python:" has no file', "write python:<file.py>[:function]")
    if not all(part.isidentifier() for part in function.split(".")):
        hint = "write python:<file.py>[:function]"
        return Problem(".id", f'"{function}" is not a valid function name', hint)
    if not file.is_file():
        return Problem(".id", f'file "{file}" not found')
    try:
        if mode != "process":
            return load(str(file), function)
        if not foreign:  # another Python version may have another syntax
            names = top_level_names(ast.parse(file.read_bytes(), str(file)))
            outer, _, method = function.partition(".")
            if names is not None and outer not in names:
                fault = f'{"class" if method else "function"} "{outer}" not found in "{file}"'
                return Problem(".id", fault, did_you_mean(outer, names))
    except SyntaxError as error:
        source = file.read_text(encoding="utf-8", errors="replace")
        hint = f"see line {error.lineno}"
        return Problem(".id", f'"{file}" {python_fault(error, source)}', hint)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code may raise anything
        return Problem(".id", f'"{file}" cannot be loaded: {describe(error)["what"]}')
    return None


def _find_executable(given: str | None, context: EntryContext) -> str | None:
    """Return the interpreter of the workers; None if it is not found."""
    if given is None:
        return sys.executable
    if os.sep in given:
        beside = absolute(context.directory, given)
        return str(beside) if os.access(beside, os.X_OK) and beside.is_file() else None
    return find_program(given, context.environ)


def _inherited_workers(environ: Mapping[str, str]) -> int | Problem:
    """Return the number of workers in the environment; 1 if not set."""
    text = environ.get(WORKERS_VARIABLE) or "1"
    count = int(text) if text.isascii() and text.isdigit() and len(text) < _DIGITS else 0
    if _is_number_of_workers(count):
        return count
    fault = f"the environment variable {WORKERS_VARIABLE} must be {_A_NUMBER_OF_WORKERS}"
    return Problem(".config.workers", f"{fault}, got {show(text)}")

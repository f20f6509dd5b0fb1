"""`python:<file>[:function]`: a function of the user's, mostly in worker processes.

`Class.method` names a method that needs no object.

The function is called with the prompt, the options `{"id", "config"}` and the context `{"vars", …}`, and
returns an object with `output` or `error`, or text. Where it runs is its `mode`:

* `process` (the default): in worker processes that can be killed. Async functions run on asyncio.
* `thread`: in a thread of this process.
* `trio`: an async function for Trio, in this process.

In the last two modes the file is run when its entry is read; else by the worker that needs it, and when
its entry is read one looks only whether it can be parsed and has the function.
"""

import ast
import os
import shutil
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import attrs

from trioeval.errors import Problem, ProviderError
from trioeval.fence import Refused
from trioeval.providers.base import Reply, Request
from trioeval.providers.bounds import MAX_RESPONSE, MOST_BYTES, excess
from trioeval.providers.config import Key, is_integer, is_text, show, to_snake
from trioeval.providers.programs.entries import (
    DEFAULT_TIMEOUT,
    TIMEOUT,
    absolute,
    find_secrets,
    make_context,
    read_call,
    read_own_config,
)
from trioeval.providers.programs.inprocess import ThreadFunction, TrioFunction
from trioeval.providers.programs.names import did_you_mean, top_level_names
from trioeval.providers.programs.results import DEFAULT_FUNCTION, OUTPUT_BY_FUNCTION, read_result
from trioeval.providers.programs.worker import describe, load
from trioeval.providers.programs.workers import WorkerSpec, open_workers
from trioeval.providers.settings import Shared, Surroundings
from trioeval.scripting.python_syntax import python_fault

WORKERS_VARIABLE = "TRIOEVAL_PYTHON_WORKERS"
"""The environment variable that says how many workers a provider has where its config does not."""

MOST_WORKERS = 64
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
    """What calls the user's function, wherever it runs."""

    async def call(self, arguments: Sequence[Any], limit: float) -> Any:
        """What the function returned.

        Raises:
            ProviderError: It failed, or took longer than `limit` seconds.
        """
        ...


@attrs.frozen(kw_only=True)
class PythonSettings:
    """A function of a file, and where it runs."""

    name: str
    """`python:<file>:<function>`, with the file as in the suite."""
    workers: WorkerSpec
    function: Callable[..., Any] | None = attrs.field(default=None, repr=False)
    """The function itself, where it runs in this process."""
    mode: Mode = "process"
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)
    own: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    """Config that is handed to the function."""
    timeout: float = DEFAULT_TIMEOUT
    """Seconds, > 0."""

    @property
    def lane_key(self) -> str:
        """One lane for each function."""
        return self.name

    @property
    def most_cost(self) -> float | None:
        """Nothing bounds what a function says."""
        return None

    @asynccontextmanager
    async def open(self, _shared: Shared) -> AsyncGenerator["PythonProvider"]:
        """The provider, with its workers."""
        if self.function is None:
            async with open_workers(self.workers) as workers:
                yield PythonProvider(self, workers)
        elif self.mode == "trio":
            yield PythonProvider(self, TrioFunction(self.name, self.function))
        else:
            threads = ThreadFunction(self.name, self.function, self.workers.workers)
            yield PythonProvider(self, threads)


def read(
    _prefix: str, rest: str, config: Mapping[str, Any], around: Surroundings
) -> PythonSettings | list[Problem]:
    """Read an entry; see `Reader`. Runs the file if the function is to run in this process."""
    values, own, problems = read_own_config(config, KEYS)
    mode: Mode = values.get("mode", "process")
    named, function = _split(rest.strip())
    name = f"python:{named}:{function}"
    file = absolute(around.directory, named)
    for key, modes in (("workers", ("process", "thread")), ("pythonExecutable", ("process",))):
        if to_snake(key) in values and mode not in modes:
            fault = f'means nothing with mode "{mode}"'
            problems.append(Problem(f".config.{key}", fault, "leave it out"))
    executable = _find_executable(values.get("python_executable"), around)
    if executable is None:
        fault = f"there is no program {show(values['python_executable'])}"
        problems.append(Problem(".config.pythonExecutable", fault))
    workers = values.get("workers") or _inherited_workers(around.environ)
    if isinstance(workers, Problem):
        problems.append(workers)
    place = around.place(named)
    loaded = (
        Problem(".id", place.message, place.hint)
        if isinstance(place, Refused)
        else _find_function(
            rest,
            file,
            function,
            mode=mode if around.runs_code else "process",
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
            cwd=absolute(around.directory, ""),
            environ=around.environ,
            workers=workers,
            largest=values.get("max_response_bytes", MOST_BYTES),
            size_key=MAX_RESPONSE.name,
        ),
        function=loaded,
        mode=mode,
        secrets=find_secrets(own, around.environ),
        own=own,
        timeout=values["timeout_ms"] / 1000 if "timeout_ms" in values else DEFAULT_TIMEOUT,
    )


@attrs.frozen
class PythonProvider:
    """Calls the function, and reads what it returns."""

    settings: PythonSettings
    _caller: Caller = attrs.field(repr=False)

    async def __call__(self, request: Request, /) -> Reply:
        """Answer one request.

        Raises:
            ProviderError: See `Workers.call`, `ThreadFunction.call`, `TrioFunction.call` and
                `read_result`; or `bad_request`, if the variables cannot be handed over; or `unexpected`, if
                the result is too large.
        """
        settings = self.settings
        function = settings.workers.function.rpartition(".")[2]
        timeout, own = read_call(settings.own, KEYS, request)
        arguments: list[Any] = [request.prompt, {"id": settings.name, "config": own}]
        if function not in OUTPUT_BY_FUNCTION:
            arguments.append(make_context(request))
        limit = settings.timeout if timeout is None else timeout
        value = await self._caller.call(arguments, limit)
        # Of a worker process it was counted before it was read.
        if settings.function is not None and (more := excess(value, settings.workers.largest)):
            what = f"the result has {more}, which is what {MAX_RESPONSE.name} allows"
            raise ProviderError("unexpected", f"{settings.name}: {what}")
        return read_result(value, function, name=settings.name)


def _split(rest: str) -> tuple[str, str]:
    """File and function of an id; folders may have colons in their names."""
    file, colon, function = rest.rpartition(":")
    if not colon or function.endswith(".py"):
        return rest, DEFAULT_FUNCTION
    return file, function


def _find_function(
    rest: str, file: Path, function: str, *, mode: Mode, foreign: bool
) -> Callable[..., Any] | Problem | None:
    """The function, if it is to run in this process; or what is wrong with the id or the file."""
    if not rest.strip():
        return Problem(".id", '"python:" names no file', "write python:<file.py>[:function]")
    if not all(part.isidentifier() for part in function.split(".")):
        hint = "write python:<file.py>[:function]"
        return Problem(".id", f'"{function}" is not the name of a function', hint)
    if not file.is_file():
        return Problem(".id", f'there is no file "{file}"')
    try:
        if mode != "process":
            return load(str(file), function)
        if not foreign:  # another Python may have another syntax
            names = top_level_names(ast.parse(file.read_bytes(), str(file)))
            outer, _, method = function.partition(".")
            if names is not None and outer not in names:
                fault = f'there is no {"class" if method else "function"} "{outer}" in "{file}"'
                return Problem(".id", fault, did_you_mean(outer, names))
    except SyntaxError as error:
        source = file.read_text(encoding="utf-8", errors="replace")
        hint = f"see line {error.lineno}"
        return Problem(".id", f'"{file}" {python_fault(error, source)}', hint)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it is the user's code that is run
        return Problem(".id", f'"{file}" cannot be loaded: {describe(error)["what"]}')
    return None


def _find_executable(given: str | None, around: Surroundings) -> str | None:
    """The interpreter of the workers; None if there is none."""
    if given is None:
        return sys.executable
    if os.sep in given:
        beside = absolute(around.directory, given)
        return str(beside) if os.access(beside, os.X_OK) and beside.is_file() else None
    return shutil.which(given, path=around.environ.get("PATH", os.defpath))


def _inherited_workers(environ: Mapping[str, str]) -> int | Problem:
    """How many workers the environment allows; 1 if it says nothing."""
    text = environ.get(WORKERS_VARIABLE) or "1"
    count = int(text) if text.isascii() and text.isdigit() and len(text) < _DIGITS else 0
    if _is_number_of_workers(count):
        return count
    fault = f"the environment variable {WORKERS_VARIABLE} must be {_A_NUMBER_OF_WORKERS}"
    return Problem(".config.workers", f"{fault}, got {show(text)}")

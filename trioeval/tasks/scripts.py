"""The suite's own code while it runs: functions, expressions and programs, all of them in other processes.

Processes that call functions stay for the next call, and are ended when a call is cancelled or takes too
long; so there is one pool of them for each function, made when it is first called.
"""

import shlex
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs

from trioeval.errors import ProviderError, ScriptError
from trioeval.providers.config import show
from trioeval.providers.generic.javascript import engine_workers
from trioeval.providers.programs.capture import last_line, to_text
from trioeval.providers.programs.workers import Workers, WorkerSpec, open_workers
from trioeval.scripting.evaluator import program as evaluator
from trioeval.scripting.javascript import Script
from trioeval.suite.sources.around import Around
from trioeval.tasks.programs import run_program

MOST_WORKERS = 64

LIMIT = 60.0
"""Seconds that a call may take where nobody says how long."""


@asynccontextmanager
async def open_scripts(
    directory: Path, environ: Mapping[str, str], *, workers: int | None = None
) -> AsyncGenerator["Scripts"]:
    """What runs the code of one suite, for as long as the block.

    Args:
        directory: Where all of it runs; absolute.
        environ: What it inherits. Its `PYTHON` is the interpreter, and its `PYTHON_WORKERS` the number of
            processes for each function, under `TRIOEVAL_` or `PROMPTFOO_`.
        workers: Processes for each function, ≥ 1; None takes those of the environment, or one.
    """
    around = Around(directory=directory, environ=environ)
    wanted = around.variable("PYTHON_WORKERS")
    if workers is None:
        workers = int(wanted) if wanted.isdecimal() else 1
    async with AsyncExitStack() as stack:
        yield Scripts(around, min(max(workers, 1), MOST_WORKERS), stack)


@attrs.define(eq=False)
class Scripts:
    """Runs the suite's code; obtained from `open_scripts` only."""

    _around: Around
    _workers: int
    _stack: AsyncExitStack = attrs.field(repr=False)
    _pools: dict[tuple[Path, str], Workers] = attrs.field(init=False, factory=dict, repr=False)
    _engine: Workers | None = attrs.field(init=False, default=None, repr=False)

    async def call(
        self, file: Path, function: str, arguments: Sequence[Any], limit: float = LIMIT
    ) -> Any:
        """What a function of a Python file returns. Always a checkpoint.

        Args:
            file: Absolute.
            function: Its name; it may be async, for asyncio.
            arguments: JSON.
            limit: Seconds that it may take, > 0.

        Raises:
            ScriptError: It failed, took longer, or returned what is not JSON.
        """
        return await self._ask(file, function, arguments, limit, f"{file.name}:{function}")

    async def python(self, code: str, values: Mapping[str, Any], limit: float = LIMIT) -> Any:
        """What Python code gives that sees the values under their names. Always a checkpoint.

        Args:
            code: An expression, or statements of which one returns.
            values: JSON.
            limit: Seconds that it may take, > 0.

        Raises:
            ScriptError: As for `call`.
        """
        program = Path(evaluator.__file__)
        return await self._ask(program, "run", [code, dict(values)], limit, show(code))

    async def javascript(
        self, script: Script, arguments: Sequence[Any], limit: float = LIMIT
    ) -> Any:
        """What a script gives; None if that is nothing. Always a checkpoint.

        Args:
            script: One without a fault.
            arguments: JSON, in the order of its names.
            limit: Seconds that it may take, > 0; of computing it has two.

        Raises:
            ScriptError: It failed, or took longer.
        """
        if self._engine is None:
            spec = engine_workers(self._around.directory, self._around.environ)
            self._engine = await self._stack.enter_async_context(open_workers(spec))
        try:
            told = await self._engine.call([script.source, list(arguments)], limit)
        except ProviderError as error:
            raise ScriptError(error.message, trace=error.body_excerpt) from error
        if "error" in told:
            raise ScriptError(f"{show(script.code)} fails: {told['error']}")
        return told["value"]

    async def program(self, command: str, argument: str, limit: float = LIMIT) -> str:
        """What a program prints, without space around it. Always a checkpoint.

        Args:
            command: Its command line, split as a shell would split it; no shell runs.
            argument: One more argument.
            limit: Seconds that it may take, > 0.

        Raises:
            ScriptError: It failed, took longer, or wrote nothing but to its standard error.
        """
        words = shlex.split(command)
        around = self._around
        printed = await run_program(
            [*words, argument], cwd=around.directory, environ=around.environ, limit=limit
        )
        if printed.errors and not printed.output.strip():
            what = f"{words[0]} wrote nothing but to its standard error{last_line(printed.errors)}"
            raise ScriptError(what, trace=printed.errors)
        return to_text(printed.output)

    async def python_file(self, file: Path, argument: str, limit: float = LIMIT) -> str:
        """What a Python file prints when it is run, without the last end of a line. Always a checkpoint.

        Args:
            file: Absolute.
            argument: Its only argument.
            limit: Seconds that it may take, > 0.

        Raises:
            ScriptError: It failed, or took longer.
        """
        around = self._around
        command = [self._interpreter, str(file), argument]
        printed = await run_program(
            command, cwd=around.directory, environ=around.environ, limit=limit
        )
        return printed.output.decode("utf-8", "replace").removesuffix("\n")

    @property
    def _interpreter(self) -> str:
        return self._around.variable("PYTHON") or sys.executable

    async def _ask(
        self, file: Path, function: str, arguments: Sequence[Any], limit: float, name: str
    ) -> Any:
        pool = self._pools.get((file, function))
        if pool is None:
            spec = WorkerSpec(
                name="Python" if file == Path(evaluator.__file__) else name,
                executable=self._interpreter,
                file=file,
                function=function,
                cwd=self._around.directory,
                environ=self._around.environ,
                workers=self._workers,
            )
            pool = await self._stack.enter_async_context(open_workers(spec))
            self._pools[file, function] = pool
        try:
            return await pool.call(arguments, limit)
        except ProviderError as error:
            raise ScriptError(error.message, trace=error.body_excerpt) from error

"""The suite's own code during a run: functions, expressions and programs, all of them in other processes.

Processes that call functions are reused for the next call, and are ended when a call is cancelled or times
out; so each function has its own pool of processes, created for its first call.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import trio

from trioeval.documents.files import FileContext
from trioeval.documents.mistakes import MistakenError
from trioeval.documents.trust import TRUSTED, Trust
from trioeval.errors import GradingError, ProviderError, ScriptError
from trioeval.executables import start_failure
from trioeval.providers.config import show
from trioeval.scripting import WORKER, is_script
from trioeval.suite.sources.prompts import read_text
from trioeval.text import quote

if TYPE_CHECKING:
    from trioeval.providers.generic.reply import ReplyQuery, TransformInput
    from trioeval.providers.programs.workers import Encoded, Workers
    from trioeval.scripting.javascript import Script

# A program of the user's that is run once, for its output.


LARGEST = 10 * 1024 * 1024
"""Maximum output of a program in bytes."""

_DRAIN_SECONDS = 1.0


@attrs.frozen
class ProgramOutput:
    """The output of a program that ended successfully."""

    output: bytes
    errors: str | None
    """The end of its standard error; None if that is empty."""


@trio.lowlevel.enable_ki_protection  # as for `start_tree`
async def run_program(
    command: Sequence[str], *, cwd: Path, environ: Mapping[str, str], limit: float
) -> ProgramOutput:
    """Run a program to its end, and end all processes that it leaves behind. Always a checkpoint.

    Args:
        command: The program and its arguments; no shell is involved.
        cwd: Its working directory.
        environ: Its whole environment.
        limit: Timeout in seconds, > 0.

    Raises:
        ScriptError: It cannot be started, fails, prints too much, or times out.
    """
    from trioeval.providers.programs.exec import OutputTail, last_line, read_stream
    from trioeval.providers.programs.processes import describe_end, start_tree

    output, errors = bytearray(), OutputTail()
    code: int | None = None
    run = trio.CancelScope(relative_deadline=limit)

    def keep(part: bytes) -> bool:
        output.extend(part)
        return len(output) <= LARGEST

    async def read_output(stream: trio.abc.ReceiveStream) -> None:
        await read_stream(stream, keep)
        if len(output) > LARGEST:  # its output is no longer read, so it would wait for ever
            run.cancel("too much output")

    try:
        started = await start_tree(
            command, cwd=cwd, environ=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except (OSError, ValueError) as error:  # a ValueError: a NUL among the arguments
        if isinstance(error, OSError):
            raise ScriptError(start_failure(command[0], error)) from error
        raise ScriptError(f"program {quote(command[0])} cannot be started: {error}") from error
    async with started as tree, trio.open_nursery() as nursery:
        if tree.process.stdout is not None and tree.process.stderr is not None:
            nursery.start_soon(read_output, tree.process.stdout)
            nursery.start_soon(read_stream, tree.process.stderr, errors.feed)
        with run:
            code = await tree.wait()
        # Processes that it left behind may hold its pipes open for ever; that does not count as its time.
        await tree.end()
        nursery.cancel_scope.deadline = trio.current_time() + _DRAIN_SECONDS
    if len(output) > LARGEST:
        raise ScriptError(f"{command[0]} printed more than {LARGEST} bytes", trace=errors.text)
    if code is None:
        raise ScriptError(f"{command[0]} did not end within {limit:g} seconds", trace=errors.text)
    if code != 0:
        message = f"{command[0]} {describe_end(code)}{last_line(errors.text)}"
        raise ScriptError(message, trace=errors.text)
    return ProgramOutput(bytes(output), errors.text)


_PACKAGE = Path(__file__).parents[1]

RUBY_WORKER = _PACKAGE / "providers/programs/worker.rb"
"""The worker that is written in Ruby; it also contains the functions for code without a file."""

_EVALUATOR = _PACKAGE / "scripting/evaluator/program.py"

LIMIT = 60.0
"""Default timeout of a call in seconds."""


def limit_error(error: ScriptError, subject: str, limit: float) -> GradingError | None:
    """Return the error of judging code that was ended at a limit; None if it failed by itself.

    Args:
        error: Its failure.
        subject: What it is, for the message.
        limit: Its timeout in seconds.
    """
    if error.at_limit:
        return GradingError(f"{subject} hit a limit: {error.message}")
    if error.timed_out:
        return GradingError(f"{subject} did not end within {limit:g} seconds (SCRIPT_TIMEOUT_MS)")
    return None


@asynccontextmanager
async def open_scripts(
    directory: Path,
    environ: Mapping[str, str],
    *,
    workers: int | None = None,
    memory_mb: int = 0,
    trust: Trust = TRUSTED,
) -> AsyncGenerator[Scripts]:
    """Open a runner for the code of one suite, for the duration of the block.

    Args:
        directory: The working directory of all code; absolute.
        environ: The inherited environment. Its `PYTHON` is the interpreter, and its `PYTHON_WORKERS` the
            number of processes for each function, with the prefix `TRIOEVAL_` or `PROMPTFOO_`.
        workers: Processes for each function, ≥ 1; None uses the number of the environment, or one.
        memory_mb: Memory limit of each of them in mebibytes; 0 for none.
        trust: The permissions of the suite; code of an untrusted suite does not run.
    """
    from trioeval.scripting import MOST_WORKERS

    context = FileContext(directory=directory, environ=environ, trust=trust)
    setting = context.variable("PYTHON_WORKERS")
    if workers is None:
        workers = int(setting) if setting.isdecimal() else 1
    async with AsyncExitStack() as stack:
        is_configured = setting.isdecimal()
        yield Scripts(context, min(max(workers, 1), MOST_WORKERS), memory_mb, stack, is_configured)


@attrs.define(eq=False, repr=False)
class Scripts:
    """Runs the suite's code; obtained from `open_scripts` only."""

    _context: FileContext
    _workers: int
    _memory_mb: int
    _stack: AsyncExitStack
    _is_configured: bool
    """True if the environment sets the number of processes of each function."""
    _pools: dict[tuple[Path, str, int], Workers] = attrs.field(init=False, factory=dict)
    _engine: Workers | None = attrs.field(init=False, default=None)
    _queries: Workers | None = attrs.field(init=False, default=None)
    _modules: dict[tuple[Path, str | None], Script] = attrs.field(init=False, factory=dict)

    def workers_of(self, requested: int | None) -> int:
        """Return the number of processes of a function: `requested`, the environment's, or one per CPU."""
        from trioeval.scripting import MOST_WORKERS

        if requested is None:
            requested = self._workers if self._is_configured else os.cpu_count() or 1
        return min(max(requested, 1), MOST_WORKERS)

    async def call(
        self,
        file: Path,
        function: str,
        arguments: Sequence[Any],
        limit: float = LIMIT,
        *,
        workers: int | None = None,
        continues: bool = False,
        must_exist: bool = False,
    ) -> Any:
        """Return the result of a function of a Python or JavaScript file. Always a checkpoint.

        Args:
            file: Absolute. Node runs JavaScript and TypeScript.
            function: Its name; it may be async, for asyncio. Of JavaScript it is the preferred one, and ""
                the default export.
            arguments: JSON data.
            limit: Timeout in seconds, > 0.
            workers: Processes for the function, ≥ 1; None uses the default.
            continues: Whether it may depend on earlier calls.
            must_exist: Whether no other function of JavaScript is called if it does not exist.

        Raises:
            ScriptError: It failed, timed out, or returned something that is not JSON; or it depends on calls
                of another process, and keeps state.
        """
        name = f"{file.name}:{function}".removesuffix(":")
        target = function
        if is_script(file):
            target = f"{'exact' if must_exist else 'prefer'}:{function}"
        pool = await self._pool(file, target, name, workers or self._workers)
        return await _call_worker(pool, arguments, limit, continues=continues)

    async def python(self, code: str, values: Mapping[str, Any], limit: float = LIMIT) -> Any:
        """Return the result of Python code that sees the values under their names. Always a checkpoint.

        Args:
            code: An expression, or statements with a return.
            values: JSON data.
            limit: Timeout in seconds, > 0.

        Raises:
            ScriptError: As for `call`.
        """
        return await self._ask(_EVALUATOR, "run", [code, dict(values)], limit, "Python")

    async def python_rows(
        self, code: str, rows: Sequence[Mapping[str, Any]], limit: float = LIMIT
    ) -> Sequence[Mapping[str, Any]]:
        """Return the `value` or `error` of Python code for each of several rows. Always a checkpoint.

        Args:
            code: As for `python`.
            rows: The values of each row by name: JSON data, all with the same names.
            limit: Timeout of all of them together in seconds, > 0.

        Raises:
            ScriptError: They timed out, or the process ended.
        """
        answers: list[Mapping[str, Any]] = await self._ask(
            _EVALUATOR, "run_each", [code, list(rows)], limit, "Python"
        )
        return answers

    async def judge(self, code: str, output: Any, context: Encoded, limit: float = LIMIT) -> Any:
        """Return the result of an assertion's Python code. Always a checkpoint.

        Args:
            code: An expression on one line, or several lines with a return.
            output: JSON data.
            context: An object.
            limit: Timeout in seconds, > 0.

        Raises:
            ScriptError: As for `call`.
        """
        return await self._ask(_EVALUATOR, "judge", [code, output, context], limit, "Python")

    async def ruby(
        self, file: Path | None, function: str, arguments: Sequence[Any], limit: float = LIMIT
    ) -> Any:
        """Return the result of a function of a Ruby file. Always a checkpoint.

        Args:
            file: Absolute; None for the built-in function `judge`, with code, output and context.
            function: Its name.
            arguments: JSON data.
            limit: Timeout in seconds, > 0.

        Raises:
            ScriptError: As for `call`.
        """
        name = "Ruby" if file is None else f"{file.name}:{function}"
        return await self._ask(file or RUBY_WORKER, function, arguments, limit, name)

    async def query(self, query: ReplyQuery, answer: TransformInput, size: int) -> Any:
        """Return the result of a query into an output. A checkpoint unless it is quick.

        Args:
            query: The query.
            answer: The output.
            size: Characters of the output, as JSON.

        Raises:
            TransformError: It finds nothing, fails, or exceeds its limits.
        """
        from trioeval.providers.generic.reply import apply_query, query_workers
        from trioeval.providers.programs.workers import open_workers

        if query.is_quick(size):
            return query.apply(answer)
        if self._queries is None:
            spec = query_workers(self._context.directory, self._context.environ)
            self._queries = await self._stack.enter_async_context(open_workers(spec))
        return await apply_query(query, answer, size, self._queries)

    async def javascript(
        self,
        script: Script,
        arguments: Sequence[Any],
        limit: float = LIMIT,
        name: str | None = None,
    ) -> Any:
        """Return the result of a script; None without one. Always a checkpoint.

        Args:
            script: A valid script.
            arguments: JSON data, in the order of its names.
            limit: Timeout in seconds, > 0; its CPU time is limited to two.
            name: Its name in errors; None is its code.

        Raises:
            ScriptError: It failed, or timed out.
        """
        from trioeval.providers.generic.reply import engine_workers
        from trioeval.providers.programs.workers import Encoded, open_workers

        if script.needs_node is not None:
            return await self._in_node(script, arguments, limit, name or show(script.code))
        self._check(name or show(script.code))
        if self._engine is None:
            spec = engine_workers(self._context.directory, self._context.environ)
            spec = attrs.evolve(spec, memory_mb=self._memory_mb)
            self._engine = await self._stack.enter_async_context(open_workers(spec))
        answer = await _call_worker(
            self._engine, [script.source, Encoded.of(list(arguments))], limit
        )
        if "error" in answer:
            message = f"{name or show(script.code)} fails: {answer['error']}"
            raise ScriptError(message, at_limit=answer["limit"])
        return answer["value"]

    async def _in_node(
        self, script: Script, arguments: Sequence[Any], limit: float, name: str
    ) -> Any:
        from trioeval.providers.programs.workers import Encoded

        file = script.file or WORKER
        pool = await self._pool(file, script.target, name, self._workers)
        if script.file is not None:
            return await _call_worker(pool, arguments, limit)
        values = Encoded.of(list(arguments))
        answer = await _call_worker(pool, [script.source, values], limit)
        if "error" in answer:
            raise ScriptError(f"{name} fails: {answer['error']}")
        return answer["value"]

    async def javascript_file(
        self,
        file: Path,
        function: str | None,
        names: tuple[str, ...],
        arguments: Sequence[Any],
        limit: float = LIMIT,
    ) -> Any:
        """Return the result of a function that a JavaScript file exports. Always a checkpoint.

        Args:
            file: Absolute; it is read once.
            function: Its name, which must exist; None for the default export.
            names: The names of the arguments.
            arguments: JSON data.
            limit: Timeout in seconds, > 0; its CPU time is limited to two.

        Raises:
            ScriptError: It failed, or timed out.
        """
        name = file.name if function is None else f"{file.name}:{function}"
        return await self.javascript(self._module(file, function, names), arguments, limit, name)

    async def program(self, command: str, argument: str, limit: float = LIMIT) -> str:
        """Return the output of a program, without surrounding white space. Always a checkpoint.

        Args:
            command: Its command line, split as a shell would split it; no shell runs.
            argument: One additional argument.
            limit: Timeout in seconds, > 0.

        Raises:
            ScriptError: It failed, timed out, or wrote only to its standard error.
        """
        from trioeval.providers.programs.exec import last_line, to_text

        words = shlex.split(command)
        self._check(show(command))
        context = self._context
        printed = await run_program(
            [*words, argument], cwd=context.directory, environ=context.environ, limit=limit
        )
        if printed.errors and not printed.output.strip():
            message = f"{words[0]} wrote only to its standard error{last_line(printed.errors)}"
            raise ScriptError(message, trace=printed.errors)
        return to_text(printed.output)

    async def python_file(self, file: Path, argument: str, limit: float = LIMIT) -> str:
        """Return the output of a Python file, without the last line end. Always a checkpoint.

        Args:
            file: Absolute.
            argument: Its only argument.
            limit: Timeout in seconds, > 0.

        Raises:
            ScriptError: It failed, or timed out.
        """
        context = self._context
        self._check(file.name)
        command = [self._interpreter, str(file), argument]
        printed = await run_program(
            command, cwd=context.directory, environ=context.environ, limit=limit
        )
        return printed.output.decode("utf-8", "replace").removesuffix("\n")

    def _module(self, file: Path, function: str | None, names: tuple[str, ...]) -> Script:
        from trioeval.scripting.javascript import Script

        script = self._modules.get((file, function))
        if script is None:
            try:
                code = read_text(file)
            except MistakenError as error:
                raise ScriptError(str(error)) from error
            script = Script(code, names, "module", function, must_exist=True, file=file)
            self._modules[file, function] = script
        return script

    def _check(self, feature: str) -> None:
        """Refuse code that is not allowed to run, also if it passed the checks at loading."""
        try:
            self._context.check_code(feature)
        except MistakenError as error:
            raise ScriptError(str(error)) from None

    @property
    def _interpreter(self) -> str:
        return self._context.variable("PYTHON") or sys.executable

    async def _ask(
        self, file: Path, function: str, arguments: Sequence[Any], limit: float, name: str
    ) -> Any:
        pool = await self._pool(file, function, name, self._workers)
        return await _call_worker(pool, arguments, limit)

    async def _pool(self, file: Path, function: str, name: str, workers: int) -> Workers:
        from trioeval.providers.programs.workers import WorkerSpec, open_workers
        from trioeval.suite.sources.tests import RUBY, ruby_command

        self._check(name)
        pool = self._pools.get((file, function, workers))
        if pool is None:
            spec = WorkerSpec(
                name=name,
                executable=self._interpreter,
                file=file,
                function=function,
                cwd=self._context.directory,
                environ=self._context.environ,
                workers=workers,
                memory_mb=self._memory_mb,
                limit_key=None,  # its key differs from place to place, or is missing
            )
            if file.suffix.lower() == RUBY:
                ruby = ruby_command(self._context)
                spec = attrs.evolve(spec, executable=ruby, program=RUBY_WORKER)
            elif is_script(file):
                spec = attrs.evolve(spec, executable="node", program=WORKER)
            pool = await self._stack.enter_async_context(open_workers(spec))
            self._pools[file, function, workers] = pool
        return pool


async def _call_worker(
    workers: Workers, arguments: Sequence[Any], limit: float, *, continues: bool = False
) -> Any:
    from trioeval.providers.programs.workers import OutOfMemoryError

    try:
        return await workers.call(arguments, limit, continues=continues)
    except ProviderError as error:
        raise ScriptError(
            error.message,
            trace=error.body_excerpt,
            timed_out=error.kind == "attempt_timeout",
            at_limit=isinstance(error, OutOfMemoryError),
        ) from error

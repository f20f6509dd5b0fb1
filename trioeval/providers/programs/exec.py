"""`exec:<command line>`: a program that is started for each call, and answers on its standard output.

The command line is split as a shell would split it; no shell runs. The program gets three more arguments:
the prompt, the options and the context, the last two as JSON; or, with `input: stdin`, the prompt on its
standard input and nothing else.
"""

import errno
import json
import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import trio

from trioeval.errors import Problem, ProviderError
from trioeval.faults import Fault, ProviderErrorKind
from trioeval.open_files import TOO_MANY, too_many_open_files
from trioeval.providers.base import Reply, Request
from trioeval.providers.bounds import check_marks
from trioeval.providers.command_secrets import hide_in_command, secrets_of_command
from trioeval.providers.config import Key, is_text
from trioeval.providers.endpoint import digest
from trioeval.providers.programs.capture import Tail, Whole, last_line, read_stream
from trioeval.providers.programs.command_lines import (
    DEFAULT_MAX_OUTPUT,
    MAX_OUTPUT,
    SUCCESS,
    find_fault,
    split_line,
)
from trioeval.providers.programs.entries import (
    DEFAULT_TIMEOUT,
    ENVIRONMENT,
    TIMEOUT,
    absolute,
    find_secrets,
    make_context,
    read_call,
    read_own_config,
)
from trioeval.providers.programs.trees import GRACE, Tree, describe_end, start_tree
from trioeval.providers.secrets import longest_first
from trioeval.providers.settings import Shared, Surroundings

LAST_WORDS = 1.0
"""Seconds in which the output of a program is read when all of it has ended."""

INPUTS = ("argument", "stdin")

_NO_ROOM = TOO_MANY | {errno.EAGAIN}
"""This machine can start no more programs now; when others have ended it can."""

_CANNOT_RUN = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ENOEXEC, errno.ELOOP})


KEYS = (
    TIMEOUT,
    Key("input", '"argument" or "stdin"', lambda value: value in INPUTS),
    MAX_OUTPUT,
    SUCCESS,
    Key("cwd", "text", is_text),
    ENVIRONMENT,
)


@attrs.frozen(kw_only=True)
class ExecSettings:
    """A command line that can be run, and how."""

    line: str
    """As in the suite."""
    command: tuple[str, ...]
    cwd: Path
    """Absolute."""
    environ: Mapping[str, str] = attrs.field(repr=False)
    secrets: tuple[str, ...] = attrs.field(repr=False)
    own: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    """Config that is handed to the program."""
    timeout: float = DEFAULT_TIMEOUT
    """Seconds, > 0."""
    stdin: bool = False
    """Whether the prompt goes to the standard input."""
    max_output: int = DEFAULT_MAX_OUTPUT
    """Bytes, ≥ 1."""
    success: frozenset[int] = frozenset({0})
    """Exit codes of a program that did what it should; at least one."""
    grace: float = GRACE
    """Seconds between the request to terminate and the kill, ≥ 0."""

    @property
    def lane_key(self) -> str:
        """One lane for each command line."""
        return f"exec:{hide_in_command(self.line, digest)}"

    @asynccontextmanager
    async def open(self, _shared: Shared) -> AsyncGenerator["ExecProvider"]:
        """Nothing runs between calls."""
        yield ExecProvider(self)


def read(
    _prefix: str, rest: str, config: Mapping[str, Any], around: Surroundings
) -> ExecSettings | list[Problem]:
    """Read an entry; see `Reader`. Looks whether the program is there."""
    values, own, problems = read_own_config(config, KEYS)
    variables = values.get("env", {})
    environ = {**around.environ, **variables}
    cwd = absolute(around.directory, values.get("cwd", ""))
    if not cwd.is_dir():
        problems.append(Problem(".config.cwd", f'there is no directory "{cwd}"'))
    command = split_line(rest)
    if isinstance(command, Problem):
        problems.append(command)
    elif fault := find_fault(command[0], cwd, environ):
        problems.append(fault)
    if problems or isinstance(command, Problem):
        return problems
    return ExecSettings(
        line=rest.strip(),
        command=tuple(command),
        cwd=cwd,
        environ=environ,
        secrets=(
            *secrets_of_command(rest),
            *find_secrets(variables, {}),
            *find_secrets(own, around.environ),
        ),
        own=own,
        timeout=values["timeout_ms"] / 1000 if "timeout_ms" in values else DEFAULT_TIMEOUT,
        stdin=values.get("input") == "stdin",
        success=frozenset(values.get("success_exit_codes", (0,))),
        max_output=values.get("max_output_bytes", DEFAULT_MAX_OUTPUT),
    )


@attrs.frozen
class ExecProvider:
    """Runs the program once for each call, and ends all that it started."""

    settings: ExecSettings

    async def __call__(self, request: Request, /) -> Reply:
        """Answer one request. Always a checkpoint.

        Raises:
            ProviderError: `bad_exit`, `attempt_timeout`, `bad_request` (the prompt cannot be handed
                over), `not_found` (there is no such program any more) or `server` (the system could not
                start it).
        """
        settings = self.settings
        timeout, own = read_call(settings.own, KEYS, request)
        run = _Run(settings, settings.timeout if timeout is None else timeout)
        if settings.stdin:
            await run.run((), request.prompt.encode("utf-8", "replace"))
        else:
            await run.run(_arguments(settings, request, own), None)
        return run.reply()


@attrs.define(eq=False)
class _Run:
    """One run of the program, with what it wrote."""

    _settings: ExecSettings
    _limit: float
    """Seconds."""
    _code: int | None = attrs.field(init=False, default=None)
    """None if it did not end by itself."""
    _written: Whole = attrs.field(init=False)
    _errors: Tail = attrs.field(init=False)

    @_errors.default
    def _nothing_told(self) -> Tail:
        return Tail(secrets=longest_first(self._settings.secrets))

    @_written.default
    def _nothing_written(self) -> Whole:
        return Whole(self._settings.max_output)

    @trio.lowlevel.enable_ki_protection  # as for `start_tree`
    async def run(self, arguments: Sequence[bytes], given: bytes | None) -> None:
        """Run the program until it ends, writes too much, or has used up its time.

        Raises:
            ProviderError: It cannot be started.
        """
        async with await self._start(arguments, has_input=given is not None) as tree:
            process = tree.process
            async with trio.open_nursery() as nursery:
                if process.stdin is not None and given is not None:
                    nursery.start_soon(_write, process.stdin, given)
                if process.stdout is not None and process.stderr is not None:
                    nursery.start_soon(self._read_output, process.stdout, nursery.cancel_scope)
                    nursery.start_soon(read_stream, process.stderr, self._errors.feed)
                with trio.move_on_after(self._limit):
                    self._code = await tree.wait()
                # What it left behind may hold its pipes open for ever. That is no time of the program.
                await tree.end()
                nursery.cancel_scope.deadline = trio.current_time() + LAST_WORDS

    async def _start(self, arguments: Sequence[bytes], *, has_input: bool) -> Tree:
        settings = self._settings
        try:
            return await start_tree(
                [*settings.command, *arguments],
                cwd=settings.cwd,
                environ=settings.environ,
                stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                grace=settings.grace,
            )
        except (OSError, ValueError) as error:
            raise self._cannot_start(error) from error

    def reply(self) -> Reply:
        """What the program answered.

        Raises:
            ProviderError: `bad_exit`: it failed, wrote too much, or only to its standard error; or
                `attempt_timeout`, or `malformed_reply` (too many values of JSON).
        """
        if self._written.overflown:
            limit = f"{self._settings.max_output} bytes (maxOutputBytes)"
            raise self._failure("bad_exit", f"wrote more than {limit} to its standard output")
        if self._code is None:
            what = f"did not end within {self._limit:g} seconds (timeoutMs)"
            raise self._failure("attempt_timeout", what)
        errors, output = self._errors.text, self._written.text
        if self._code not in self._settings.success:
            raise self._failure("bad_exit", f"{describe_end(self._code)}{last_line(errors)}")
        if errors and not output:
            what = f"wrote nothing but to its standard error{last_line(errors)}"
            raise self._failure("bad_exit", what)
        most, source = self._settings.max_output, f"exec:{self._settings.line}"
        check_marks(self._written.data, most, source=source, key=MAX_OUTPUT.name)
        return Reply(output=output)

    def _failure(self, kind: ProviderErrorKind, what: str) -> ProviderError:
        """An error with the end of what the program wrote to its standard error."""
        return ProviderError(
            kind, f"exec:{self._settings.line} {what}", body_excerpt=self._errors.text
        )

    def _cannot_start(self, error: OSError | ValueError) -> ProviderError:
        if isinstance(error, ValueError):  # of the operating system's texts: they end at a NUL
            hint = 'has a NUL character among its arguments; set input to "stdin"'
            return self._failure("bad_request", hint)
        if error.errno == errno.E2BIG:
            what = "cannot take the prompt and the variables as arguments: they are too long"
            return self._failure("bad_request", f'{what}; set input to "stdin"')
        if error.errno in _NO_ROOM:
            many = error.errno in TOO_MANY
            why = too_many_open_files() if many else "too many processes; see `ulimit -u`"
            what = f"exec:{self._settings.line} cannot be started: {why}"
            return ProviderError("server", what, fault=Fault.RATE_LIMITED)
        kind: ProviderErrorKind = "not_found" if error.errno in _CANNOT_RUN else "server"
        return self._failure(kind, f"cannot be started: {error.strerror}")

    async def _read_output(self, stream: trio.abc.ReceiveStream, run: trio.CancelScope) -> None:
        await read_stream(stream, self._written.feed)
        if self._written.overflown:
            run.cancel("too much output")


async def _write(stream: trio.abc.SendStream, given: bytes) -> None:
    # A program need not read all of its input.
    with suppress(trio.BrokenResourceError):
        async with stream:
            await stream.send_all(given)


def _arguments(
    settings: ExecSettings, request: Request, own: Mapping[str, Any]
) -> tuple[bytes, ...]:
    options = {"id": f"exec:{settings.line}", "config": own}
    texts = (request.prompt, json.dumps(options), json.dumps(make_context(request)))
    return tuple(text.encode("utf-8", "replace") for text in texts)

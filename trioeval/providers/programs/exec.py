"""`exec:<command line>`: a program that is started for each call, and replies on its standard output.

The command line is split as in a shell, but no shell runs. The program gets three more arguments: the prompt,
the options and the context, the last two as JSON; or, with `input: stdin`, only the prompt on its standard
input.
"""

import errno
import json
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import trio

from trioeval.errors import Fault, Problem, ProviderError, ProviderErrorKind
from trioeval.executables import start_failure
from trioeval.open_files import TOO_MANY, too_many_open_files
from trioeval.providers.base import Guardrails, Reply, Request, ToolCall
from trioeval.providers.bounds import check_marks
from trioeval.providers.command_secrets import hide_in_command, secrets_of_command
from trioeval.providers.config import (
    EntryContext,
    Key,
    ProviderResources,
    is_flag,
    is_integer,
    is_json,
    is_json_object,
    is_number,
    is_text,
    show,
    to_snake,
)
from trioeval.providers.http.endpoint import digest
from trioeval.providers.local.recordings import CALLS, are_calls
from trioeval.providers.programs.entries import (
    DEFAULT_MAX_OUTPUT,
    DEFAULT_TIMEOUT,
    ENVIRONMENT,
    MAX_OUTPUT,
    SUCCESS,
    TIMEOUT,
    ProgramSettings,
    absolute,
    find_fault,
    find_secrets,
    make_context,
    read_call,
    read_own_config,
    split_line,
)
from trioeval.providers.programs.processes import GRACE, Tree, describe_end, start_tree
from trioeval.providers.secrets import hide, longest_first
from trioeval.usage import Usage

# The output of a program as text: all of it up to a limit, or its end.


EXCERPT_BYTES = 2048
"""Maximum bytes of a program's output in an error."""

_LINE = 200
_AFTER_ERROR = re.compile(r"\s+at |Node\.js v\d|\(Use `node --trace-uncaught")
_WIDEST = 6
"""Bytes of a quoted text for each of its own, in general."""

_ESCAPES = re.compile(
    r"\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # colours, movements
    r"|[]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links and other strings, with their ends
    r"|[ -/]*[0-~])"
)


def to_text(data: bytes) -> str:
    r"""Decode UTF-8, without terminal escape sequences and surrounding space.

    Example:
        >>> to_text(b"\x1b[32mgreen\x1b[0m \xff\n")
        'green \ufffd'
    """
    return _ESCAPES.sub("", data.decode("utf-8", "replace")).strip()


@attrs.define(eq=False, repr=False)
class WholeOutput:
    """The complete output, up to a limit."""

    limit: int
    """Maximum bytes."""
    _data: bytearray = attrs.field(init=False, factory=bytearray)

    @property
    def overflown(self) -> bool:
        """True if it exceeded the limit."""
        return len(self._data) > self.limit

    @property
    def data(self) -> bytes:
        """The output."""
        return bytes(self._data)

    @property
    def text(self) -> str:
        """The output as text."""
        return to_text(self.data)

    def feed(self, part: bytes) -> bool:
        """Append a part; return whether more is accepted."""
        self._data += part[: self.limit + 1 - len(self._data)]
        return not self.overflown


@attrs.define(eq=False, repr=False)
class OutputTail:
    """The end of the output: enough to see what happened."""

    limit: int = EXCERPT_BYTES
    """Maximum bytes that are shown, ≥ 1."""
    secrets: Sequence[str] = attrs.field(default=())
    """Texts to hide, longest first."""
    _data: bytearray = attrs.field(init=False, factory=bytearray)
    _written: int = attrs.field(init=False, default=0)
    """Total bytes written."""
    _margin: int = attrs.field(init=False)
    """Bytes kept but not shown: they may be the end of a secret whose beginning was dropped."""

    @_margin.default
    def _find_margin(self) -> int:
        longest = max((len(text.encode("utf-8", "replace")) for text in self.secrets), default=0)
        return _WIDEST * longest

    def feed(self, part: bytes) -> bool:
        """Append a part, and drop what is too old; return True, because more is always accepted."""
        most = self.limit + self._margin
        self._written += len(part)
        self._data += part[-most:]
        del self._data[:-most]
        return True

    def clear(self) -> None:
        """Drop everything."""
        self._data.clear()
        self._written = 0

    @property
    def is_cut(self) -> bool:
        """True if more was written than is shown."""
        return self._written > self.limit

    @property
    def text(self) -> str | None:
        """The end of the output, from the beginning of a line if there is one; None if it is empty."""
        data = bytes(self._data)
        if self.secrets:
            shown = hide(data.decode("utf-8", "surrogateescape"), self.secrets)
            data = shown.encode("utf-8", "surrogateescape")
        if self._written > len(self._data):
            data = data[self._margin :]
        if self.is_cut:
            data = data[-self.limit :]
            data = data.partition(b"\n")[2] or data
        return to_text(data) or None


async def read_stream(stream: trio.abc.ReceiveStream, feed: Callable[[bytes], bool]) -> None:
    """Pass received data to `feed` until the stream ends or `feed` returns False. Always a checkpoint."""
    async for part in stream:
        if not feed(bytes(part)):
            return


def last_line(text: str | None) -> str:
    r"""Return the last line of an excerpt, shortened, as the end of a message; "" if there is none.

    The stack and the version that Node prints after an error are left out.

    Example:
        >>> last_line("Traceback …\nValueError: no luck\n")
        ': ValueError: no luck'
        >>> last_line("Error: no luck\n    at a.js:1:7\n\nNode.js v22.1.0\n")
        ': Error: no luck'
    """
    every = (text or "").strip().splitlines()
    lines = [line for line in every if line.strip() and not _AFTER_ERROR.match(line)] or every
    return f": {lines[-1].strip()[:_LINE]}" if lines else ""


# Conversion of a Python function's result to a reply: every field is checked, and a wrong value is shown.


DEFAULT_FUNCTION = "call_api"
OUTPUT_BY_FUNCTION: Mapping[str, str] = {
    "call_embedding_api": "embedding",
    "call_classification_api": "classification",
}
"""Functions that return another field than `output`; they are called without the context."""


def _is_float(value: Any) -> bool:
    return is_number(value) and abs(value) <= sys.float_info.max


def _is_amount(value: Any) -> bool:
    return _is_float(value) and value >= 0


def _is_count(value: Any) -> bool:
    return is_integer(value) and value >= 0


def _is_usage(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        value.get(name) is None or _is_count(value[name]) for name in _USAGE
    )


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_float, value))


def _is_any_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_guardrails(value: Any) -> bool:
    return isinstance(value, Mapping) and is_flag(value.get("flagged"))


_SHOWN = 200
_USAGE = ("total", "prompt", "completion", "cached")
_OUTPUTS: Mapping[str, Key] = {
    key.name: key
    for key in (
        Key("output", "JSON", is_json),
        Key("embedding", "a list of numbers", _are_numbers),
        Key("classification", "an object", is_json_object),
    )
}
_FIELDS = (
    Key("tokenUsage", f"an object of whole numbers ({', '.join(_USAGE)})", _is_usage),
    Key("cost", "a number of at least 0", _is_amount),
    Key("cached", "true or false", is_flag),
    Key("logProbs", "a list of numbers", _are_numbers),
    Key("finishReason", "text", is_text),
    Key("isRefusal", "true or false", is_flag),
    Key("reasoning", "text", _is_any_text),
    Key("toolCalls", CALLS, are_calls),
    Key("guardrails", 'an object with "flagged": true or false', _is_guardrails),
    Key("metadata", "an object", is_json_object),
)
"""Fields beside the output; other keys are only kept in `raw`."""


def read_result(value: Any, function: str, *, name: str) -> Reply:
    """Return the reply for a function's result.

    Args:
        value: The result: an object with the output or an `error`, or text.
        function: The function's name, which determines the field of its output.
        name: The provider's name in messages.

    Raises:
        ProviderError: `unexpected`: the result is an error, or invalid.

    Example:
        >>> result = {"output": "4", "tokenUsage": {"total": 9}}
        >>> read_result(result, "call_api", name="x.py").usage.total
        9
    """
    output = _OUTPUTS[OUTPUT_BY_FUNCTION.get(function, "output")]
    if isinstance(value, str) and output.name == "output":
        return Reply(output=value)
    given = {to_snake(str(key)): part for key, part in value.items()} if _is_object(value) else {}
    usage: Any = given.get("token_usage") or {}
    cost: Any = given.get("cost")
    if given.get("error"):
        error = given["error"]
        text = error if isinstance(error, str) else show(error, _SHOWN)
        raise _failure(f"{name}: {text}", given)
    if output.name not in given and not given.get("tool_calls"):
        or_text = ", or text" if output.name == "output" else ""
        right = f'must return an object with "{output.name}" or "error"{or_text}'
        raise _wrong(f"{name} {right}", value, given)
    for key in (output, *_FIELDS):
        part = given.get(to_snake(key.name))
        if part is not None and not key.check(part):
            raise _wrong(f'{name}: "{key.name}" of the result must be {key.right}', part, given)
    guardrails, log_probs = given.get("guardrails"), given.get("log_probs")
    metadata = given.get("metadata") or {}
    if given.get("session_id"):
        metadata = {**metadata, "sessionId": given["session_id"]}
    shown, calls = given.get(output.name), given.get("tool_calls") or ()
    refusal = shown if isinstance(shown, str) else ""
    return Reply(
        output=shown,
        tool_calls=tuple(ToolCall(**call) for call in calls),
        reasoning=given.get("reasoning") or None,
        refusal=refusal if given.get("is_refusal") else None,
        usage=_read_usage(usage),
        cost=None if cost is None else float(cost),
        finish_reason=given.get("finish_reason"),
        guardrails=None if guardrails is None else _read_guardrails(guardrails),
        log_probs=None if log_probs is None else tuple(map(float, log_probs)),
        raw=value,
        metadata=metadata
        if given.get("cached") is None
        else {**metadata, "cached": given["cached"]},
    )


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping)


def _read_usage(value: Mapping[str, Any]) -> Usage:
    return Usage(**{part: value.get(part) for part in _USAGE})


def _read_guardrails(value: Mapping[str, Any]) -> Guardrails:
    given = {to_snake(str(name)): part for name, part in value.items()}
    reason = given.get("reason")
    return Guardrails(
        flagged=given["flagged"],
        flagged_input=given.get("flagged_input") is True,
        flagged_output=given.get("flagged_output") is True,
        reason=None if reason is None else str(reason),
    )


def _wrong(right: str, got: Any, given: Mapping[str, Any]) -> ProviderError:
    value_shown = "nothing" if got is None else f"{type(got).__name__}: {show(got, _SHOWN)}"
    return _failure(f"{right}, got {value_shown}", given)


def _failure(message: str, given: Mapping[str, Any]) -> ProviderError:
    """Return an error with the usage, the cost and the finish reason of a result, where they are valid."""
    usage: Any = given.get("token_usage")
    cost, reason = given.get("cost"), given.get("finish_reason")
    return ProviderError(
        "unexpected",
        message,
        usage=_read_usage(usage) if _is_usage(usage) else None,
        money=float(cost) if cost is not None and _is_amount(cost) else None,
        finish_reason=reason if is_text(reason) else None,
    )


LAST_WORDS = 1.0
"""Maximum seconds for reading a program's output after all of its processes have ended."""

INPUTS = ("argument", "stdin")

_NO_ROOM = TOO_MANY | {errno.EAGAIN}
"""Errors of a machine that can start no more programs until others have ended."""

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
class ExecSettings(ProgramSettings):
    """A command line that can be run, and the settings for it."""

    command: tuple[str, ...]
    cwd: Path
    """Absolute path."""
    own: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    """Config that is passed to the program."""
    timeout: float = DEFAULT_TIMEOUT
    """Maximum seconds of a call, > 0."""
    grace: float = GRACE
    """Seconds between the request to terminate and the kill, ≥ 0."""

    @property
    def lane_key(self) -> str:
        """One lane for each command line."""
        return f"exec:{hide_in_command(self.line, digest)}"

    @asynccontextmanager
    async def open(self, _shared: ProviderResources) -> AsyncGenerator["ExecProvider"]:
        """Open the provider; nothing runs between calls."""
        yield ExecProvider(self)


def read(
    _prefix: str, rest: str, config: Mapping[str, Any], context: EntryContext
) -> ExecSettings | list[Problem]:
    """Read an entry; see `Reader`. Checks that the program exists."""
    values, own, problems = read_own_config(config, KEYS)
    variables = values.get("env", {})
    environ = {**context.environ, **variables}
    cwd = absolute(context.directory, values.get("cwd", ""))
    if not cwd.is_dir():
        problems.append(Problem(".config.cwd", f'folder "{cwd}" not found'))
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
            *find_secrets(own, context.environ),
        ),
        own={"basePath": str(absolute(context.directory, "")), **own},
        timeout=values["timeout_ms"] / 1000 if "timeout_ms" in values else DEFAULT_TIMEOUT,
        stdin=values.get("input") == "stdin",
        success=frozenset(values.get("success_exit_codes", (0,))),
        max_output=values.get("max_output_bytes", DEFAULT_MAX_OUTPUT),
    )


@attrs.frozen
class ExecProvider:
    """Runs the program once for each call, and ends all processes that it started."""

    settings: ExecSettings

    async def __call__(self, request: Request, /) -> Reply:
        """Send one request. Always a checkpoint.

        Raises:
            ProviderError: `bad_exit`, `attempt_timeout`, `bad_request` (the prompt cannot be passed),
                `not_found` (the program no longer exists) or `server` (the system could not start it).
        """
        settings = self.settings
        timeout, own = read_call(settings.own, KEYS, request)
        run = _ProgramRun(settings, settings.timeout if timeout is None else timeout)
        if settings.stdin:
            await run.run((), request.prompt.encode("utf-8", "replace"))
        else:
            await run.run(_arguments(settings, request, own), None)
        return run.reply()


@attrs.define(eq=False, repr=False)
class _ProgramRun:
    """One run of the program, with its output."""

    _settings: ExecSettings
    _limit: float
    """Maximum seconds."""
    _code: int | None = attrs.field(init=False, default=None)
    """None if it did not end by itself."""
    _written: WholeOutput = attrs.field(init=False)
    _errors: OutputTail = attrs.field(init=False)

    @_errors.default
    def _empty_tail(self) -> OutputTail:
        return OutputTail(secrets=longest_first(self._settings.secrets))

    @_written.default
    def _nothing_written(self) -> WholeOutput:
        return WholeOutput(self._settings.max_output)

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
                # Processes that it left behind may keep its pipes open. This time is not the program's.
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
        """Return the program's reply.

        Raises:
            ProviderError: `bad_exit`: it failed, wrote too much, or only to its standard error; or
                `attempt_timeout`, or `malformed_reply` (too many values of JSON).
        """
        if self._written.overflown:
            limit = f"{self._settings.max_output} bytes (maxOutputBytes)"
            raise self._failure("bad_exit", f"wrote more than {limit} to its standard output")
        if self._code is None:
            problem = f"did not end within {self._limit:g} seconds (timeoutMs)"
            raise self._failure("attempt_timeout", problem)
        errors, output = self._errors.text, self._written.text
        if self._code not in self._settings.success:
            raise self._failure("bad_exit", f"{describe_end(self._code)}{last_line(errors)}")
        if errors and not output:
            problem = f"wrote only to its standard error{last_line(errors)}"
            raise self._failure("bad_exit", problem)
        most, source = self._settings.max_output, f"exec:{self._settings.line}"
        check_marks(self._written.data, most, source=source, key=MAX_OUTPUT.name)
        return Reply(output=output)

    def _failure(self, kind: ProviderErrorKind, problem: str) -> ProviderError:
        """Return an error with the end of the program's standard error."""
        return ProviderError(
            kind, f"exec:{self._settings.line} {problem}", body_excerpt=self._errors.text
        )

    def _cannot_start(self, error: OSError | ValueError) -> ProviderError:
        if isinstance(error, ValueError):  # the operating system's texts end at a NUL
            hint = 'has a NUL character among its arguments; set input to "stdin"'
            return self._failure("bad_request", hint)
        if error.errno == errno.E2BIG:
            problem = "cannot get the prompt and the variables as arguments: they are too long"
            return self._failure("bad_request", f'{problem}; set input to "stdin"')
        if error.errno in _NO_ROOM:
            many = error.errno in TOO_MANY
            why = too_many_open_files() if many else "too many processes; see `ulimit -u`"
            problem = f"exec:{self._settings.line} cannot be started: {why}"
            return ProviderError("server", problem, fault=Fault.RATE_LIMITED)
        kind: ProviderErrorKind = "not_found" if error.errno in _CANNOT_RUN else "server"
        what = start_failure(self._settings.command[0], error)
        return ProviderError(kind, f"exec:{self._settings.line}: {what}")

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

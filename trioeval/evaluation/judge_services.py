"""Services that judges use outside of models and this process: code workers, commands, web servers."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import trio

from trioeval.documents.files import FileContext
from trioeval.documents.trust import TRUSTED, Trust
from trioeval.errors import GradingError, ProviderError, ScriptError
from trioeval.evaluation.prompt import RenderedPrompt, without_runtime_variables
from trioeval.evaluation.scripts import LIMIT, Scripts, limit_error, open_scripts
from trioeval.executables import start_failure
from trioeval.grading.services import CommandEnd, Commands
from trioeval.providers import Media, Reply
from trioeval.providers.http.wire import HttpClient, HttpRequest, TlsSettings
from trioeval.scripting import SCRIPTS
from trioeval.suite.expand import Step
from trioeval.suite.model import ProviderEntry
from trioeval.suite.plain import plain_test
from trioeval.suite.sources.tests import RUBY
from trioeval.text import quote
from trioeval.usage import Usage, tokens_json

if TYPE_CHECKING:
    from trioeval.providers.programs.workers import Encoded

# The user's code that judges the output of one row, run in worker processes with limits.
#
# A failure of that code is a result of the test and a `ScriptError`. Ending it because it takes too long or
# uses too much memory says nothing about the output and a `GradingError`; so is, as in promptfoo, a failure
# of a JavaScript file.


FUNCTION = "get_assert"
"""The default function of a Python or Ruby file."""


@attrs.frozen
class UserCode:
    """Runs the code of one assertion of one row."""

    _scripts: Scripts
    _context: Callable[[], Encoded]
    """Builds the context that the code gets besides the output; called only when code runs."""
    _limit: float = LIMIT
    """Timeout of the code in seconds, > 0."""

    async def _within_limits(self, answer: Awaitable[Any]) -> Any:
        try:
            return await answer
        except ScriptError as error:
            if (failure := limit_error(error, "the script", self._limit)) is None:
                raise
            raise failure from error

    async def python(self, code: str, output: Any) -> Any:
        """Return the result of Python: an expression on one line, or several lines that return. A checkpoint.

        Raises:
            GradingError: It timed out, or used too much memory.
            ScriptError: It failed.
        """
        return await self._within_limits(
            self._scripts.judge(code, output, self._context(), self._limit)
        )

    async def javascript(self, code: str, output: Any) -> Any:
        """Return the result of JavaScript; see `python`. A checkpoint."""
        from trioeval.grading.kinds.scripts import NAMES
        from trioeval.scripting.javascript import assertion_script

        script = assertion_script(code, NAMES)
        arguments = [output, self._context()]
        return await self._within_limits(self._scripts.javascript(script, arguments, self._limit))

    async def ruby(self, code: str, output: Any) -> Any:
        """Return the result of Ruby; see `python`. A checkpoint."""
        arguments = [code, output, self._context()]
        return await self._within_limits(self._scripts.ruby(None, "judge", arguments, self._limit))

    async def file(
        self,
        file: Path,
        function: str | None,
        output: Any,
        context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the result of a file's function. A checkpoint.

        Args:
            file: Absolute.
            function: Its name; None uses the default function of such a file.
            output: JSON.
            context: Additional members of its context.

        Raises:
            GradingError: It timed out or used too much memory, or is JavaScript and failed.
            ScriptError: It failed.
        """
        from trioeval.grading.kinds.scripts import NAMES

        arguments = [output, with_more(self._context(), context or {})]
        suffix = file.suffix.lower()
        if suffix in SCRIPTS:
            called = self._scripts.javascript_file(file, function, NAMES, arguments, self._limit)
            try:
                return await self._within_limits(called)
            except ScriptError as error:
                raise GradingError(f"{file.name}: {error.message}") from error
        run = self._scripts.ruby if suffix == RUBY else self._scripts.call
        return await self._within_limits(run(file, function or FUNCTION, arguments, self._limit))


# The context that scripts get when they judge an output.


def row_context(
    step: Step,
    prompt: RenderedPrompt,
    reply: Reply,
    output: Any,
    provider: ProviderEntry,
    *,
    latency_ms: float | None,
) -> Encoded:
    """Return the context that all assertions of a row share, with promptfoo's names.

    Args:
        step: The row.
        prompt: Its rendered prompt.
        reply: The reply.
        output: The output after all transforms.
        provider: The provider's entry.
        latency_ms: The latency of the call.
    """
    from trioeval.providers.programs.workers import Encoded

    sent = reply.output if reply.raw is None else reply.raw
    metadata = dict(reply.metadata)
    response = {
        "output": output,
        "cached": False,
        "cost": reply.cost,
        "tokenUsage": None if reply.usage == Usage() else tokens_json(reply.usage, 1),
        "finishReason": reply.finish_reason,
        "isRefusal": reply.is_refusal or None,
        "toolCalls": [call.to_json() for call in reply.tool_calls] or None,
        "reasoning": reply.reasoning,
        "media": [*map(_media_json, reply.media)] or None,
        "logProbs": reply.log_probs,
        "latencyMs": latency_ms,
        "raw": None if sent == output else sent,
        "metadata": metadata,
    }
    found = {
        "prompt": prompt.prompt,
        "vars": without_runtime_variables(prompt.vars),
        "test": {"options": {}, **plain_test(step.test), "vars": dict(step.vars)},
        "logProbs": reply.log_probs,
        "provider": _known({"id": provider.shown_id, "label": provider.label}),
        "providerResponse": _known(response),
        "metadata": metadata,
    }
    return Encoded(_json_text(_known(found)).encode())


def _media_json(media: Media) -> dict[str, Any]:
    """Return media with the path of the file, if the run is stored."""
    return media.to_json() | ({} if media.path is None else {"path": str(media.path)})


def with_more(row: Encoded, more: Mapping[str, Any]) -> Encoded:
    """Return the context of a row with additional members.

    Example:
        >>> from trioeval.providers.programs.workers import Encoded
        >>> with_more(Encoded.of({"prompt": "p"}), {"config": {"n": 1}}).json
        b'{"prompt": "p","config": {"n": 1}}'
    """
    from trioeval.providers.programs.workers import Encoded

    if not more:
        return row
    return Encoded(b"%b,%b" % (row.json[:-1], _json_text(more).encode()[1:]))


def json_data(data: Any) -> Any:
    """Return data of a suite as JSON data: a date as its text, and a number that JSON lacks as None.

    Example:
        >>> import datetime
        >>> json_data({"on": datetime.date(2024, 5, 1), "x": float("nan")})
        {'on': '2024-05-01', 'x': None}
    """
    return json.loads(json.dumps(data, default=_plain), parse_constant=lambda _: None)


def _json_text(data: Mapping[str, Any]) -> str:
    try:
        return json.dumps(data, default=_plain, allow_nan=False)
    except ValueError:
        return json.dumps(json_data(data))


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


def _known(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fact for name, fact in facts.items() if fact is not None}


# The user's servers that judge outputs.


WEBHOOK_LIMIT = 5.0
"""Default timeout of a webhook in seconds."""

LARGEST = 1024 * 1024
"""Maximum size of a webhook reply in bytes."""

_EXCERPT = 200


@asynccontextmanager
async def open_webhooks(
    environ: Mapping[str, str],
    tls: TlsSettings | None = None,
    *,
    hosts: frozenset[str] | None = None,
) -> AsyncGenerator[Webhooks]:
    """Open a webhook client for the duration of the block.

    Args:
        environ: Its `WEBHOOK_TIMEOUT` is the timeout in milliseconds.
        tls: TLS settings; None uses the defaults.
        hosts: The only hosts that requests may go to; None allows all.
    """
    async with AsyncExitStack() as stack:
        yield Webhooks(_limit(environ.get("WEBHOOK_TIMEOUT", "")), tls, hosts, stack)


@attrs.define(eq=False, repr=False)
class Webhooks:
    """A client for webhooks; obtained from `open_webhooks` only."""

    _limit: float
    _tls: TlsSettings | None
    _hosts: frozenset[str] | None
    _stack: AsyncExitStack
    _opening: trio.Lock = attrs.field(init=False, factory=trio.Lock)
    _client: HttpClient | None = attrs.field(init=False, default=None)

    async def post(self, url: str, data: Any) -> Any:
        """Send JSON to a server and return the JSON of its reply. Always a checkpoint.

        Raises:
            GradingError: The reply is an error status or not JSON, or did not arrive in time or at all.
        """
        from trioeval.providers.http.replies import NOT_JSON, read_json

        client = await self._opened()
        body = json.dumps(json_data(data)).encode()
        with trio.move_on_after(self._limit):
            try:
                reply = await client.send(HttpRequest(url.strip(), {}, body))
            except ProviderError as error:
                msg = f"the webhook is unreachable: {error.message}"
                raise GradingError(msg) from error
            text = reply.body[:_EXCERPT].decode("utf-8", "replace").strip()
            if not 200 <= reply.status < 300:  # noqa: PLR2004 - what success is
                msg = f"the webhook returned status {reply.status}: {text}"
                raise GradingError(msg)
            answer = read_json(reply.body)
            if answer is NOT_JSON:
                msg = f"the webhook must return JSON, got: {text}"
                raise GradingError(msg)
            return answer
        msg = f"the webhook did not reply within {self._limit:g} seconds (WEBHOOK_TIMEOUT)"
        raise GradingError(msg)

    async def _opened(self) -> HttpClient:
        async with self._opening:
            if self._client is None:
                from trioeval.providers.http.client import open_http

                opening = open_http(self._tls, max_reply_bytes=LARGEST, hosts=self._hosts)
                self._client = await self._stack.enter_async_context(opening)
            return self._client


def _limit(milliseconds: str) -> float:
    try:
        limit = float(milliseconds) / 1000
    except ValueError:
        return WEBHOOK_LIMIT
    return limit if 0 < limit < math.inf else WEBHOOK_LIMIT


WORKERS = 4
"""Default maximum number of processes per function: more than one, so that a hanging process does not block
all other rows."""

MEMORY_MB = 4096
"""Default memory limit of each of them in mebibytes."""


# Commands in the workspace of an agent; the code that runs them is imported for the first one.


_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ENOEXEC, errno.ELOOP})


@attrs.frozen
class SuiteCommands:
    """Runs the commands of a suite's assertions, which execute code that agents wrote."""

    directory: Path
    """The suite's folder; commands get it as `TRIOEVAL_SUITE`."""
    environ: Mapping[str, str] = attrs.field(repr=False)
    """The environment of the suite's code; commands get it without keys."""
    trust: Trust = TRUSTED
    """The permissions of the suite; commands of an untrusted suite do not run."""

    async def __call__(
        self, command: Sequence[str], *, folder: Path, environ: Mapping[str, str], limit: float
    ) -> CommandEnd:
        """Run a command to its end; see `trioeval.grading.services.Commands`. Always a checkpoint.

        Raises:
            GradingError: It cannot be started, for a reason outside of the workspace.
        """
        from trioeval.evaluation.commands import run_command, secrets_to_hide, without_key_variables
        from trioeval.providers.programs.exec import OutputTail
        from trioeval.providers.programs.processes import describe_end

        if not self.trust.trusted:
            await trio.lowlevel.checkpoint()
            raise GradingError(self.trust.code_refusal(quote(command[0])).message)
        places = {"TRIOEVAL_SUITE": str(self.directory), "TRIOEVAL_WORKSPACE": str(folder)}
        whole = {**without_key_variables(self.environ), **places, **environ}
        written = OutputTail(secrets=secrets_to_hide(self.environ, environ))
        try:
            code = await run_command(command, folder, whole, limit, written)
        except (OSError, ValueError) as error:
            return _not_started(command, folder, error)
        late = f"did not end within {limit:g} seconds (timeoutMs)"
        how = late if code is None else describe_end(code)
        return CommandEnd(code=code, how=how, output=written.text or "")


def _not_started(command: Sequence[str], folder: Path, error: OSError | ValueError) -> CommandEnd:
    """Return the result if the agent is at fault; raise `GradingError` otherwise."""
    if isinstance(error, ValueError):  # a NUL among the words
        msg = f"{quote(command[0])} cannot be started: {error}"
        raise GradingError(msg) from None
    if not folder.is_dir():
        return CommandEnd(code=None, how="cannot run: the workspace no longer exists")
    how = f"cannot be started: {error.strerror}"
    is_inside = os.sep in command[0] and not command[0].startswith(os.sep)
    if is_inside and error.errno in _NOT_THERE:
        return CommandEnd(code=None, how=how)  # a file that the agent was supposed to create
    msg = start_failure(command[0], error)
    raise GradingError(msg) from None


@attrs.frozen
class JudgeServices:
    """The services that the judges of one run share."""

    scripts: Scripts
    webhooks: Webhooks
    commands: Commands
    directory: Path
    """The suite's folder; absolute."""
    limit: float
    """Timeout of a script in seconds."""

    def code(self, context: Callable[[], Encoded]) -> UserCode:
        """Return the code runner for one assertion, with the context that `context` builds."""
        return UserCode(self.scripts, context, self.limit)


@asynccontextmanager
async def open_judge_services(
    context: FileContext, tls: TlsSettings | None = None, *, hosts: frozenset[str] | None = None
) -> AsyncGenerator[JudgeServices]:
    """Open the services that the judges of one run share; no process starts before it is needed.

    Args:
        context: The environment of code. Its `PYTHON_WORKERS` is the number of processes of each function,
            its `SCRIPT_TIMEOUT_MS` the timeout of a script, and its `SCRIPT_MEMORY_MB` its memory limit
            (0 for none).
        tls: TLS settings; None uses the defaults.
        hosts: The only hosts that requests may go to; None allows all.
    """
    environ = context.environ
    workers = _number(context.variable("PYTHON_WORKERS")) or min(
        max(os.cpu_count() or 1, 2), WORKERS
    )
    memory = _number(context.variable("SCRIPT_MEMORY_MB"))
    limit = (_number(context.variable("SCRIPT_TIMEOUT_MS")) or LIMIT * 1000) / 1000
    async with (
        open_scripts(
            context.directory,
            environ,
            workers=workers,
            memory_mb=MEMORY_MB if memory is None else memory,
            trust=context.trust,
        ) as scripts,
        open_webhooks(environ, tls, hosts=hosts) as webhooks,
    ):
        commands = SuiteCommands(context.directory, environ, context.trust)
        yield JudgeServices(scripts, webhooks, commands, context.directory, limit)


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None

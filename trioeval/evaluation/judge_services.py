"""What judges ask that is neither a model nor in this process: workers that run code, commands, servers."""

import json
import math
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from trioeval.documents.files import Around
from trioeval.errors import GradingError, ProviderError, ScriptError
from trioeval.evaluation.commands import SuiteCommands
from trioeval.evaluation.script_context import json_data, with_more
from trioeval.evaluation.scripts import LIMIT, Scripts, open_scripts
from trioeval.grading.kinds.scripts import NAMES
from trioeval.grading.services import Commands
from trioeval.providers.http.replies import NOT_JSON, read_json
from trioeval.providers.http.wire import HttpClient, HttpRequest, TlsSettings
from trioeval.providers.programs.workers import Encoded
from trioeval.scripting.javascript import assertion_script
from trioeval.suite.sources.tests import RUBY
from trioeval.suite.sources.values import JAVASCRIPT

# Code of the user's that judges the output of one row, run in worker processes with limits.
#
# That code fails is the test's own affair and a `ScriptError`; that it has to be given up because it takes
# too long, or too much memory, says nothing of the output and is a `GradingError`. So is, as in promptfoo,
# that a JavaScript file fails.


FUNCTION = "get_assert"
"""The function of a Python or Ruby file that names none."""


@attrs.frozen
class UserCode:
    """Runs the code of one assertion of one row."""

    _scripts: Scripts
    _context: Callable[[], Encoded]
    """Makes what the code is told besides the output; asked only when some runs."""
    _limit: float = LIMIT
    """Seconds that the code may take, > 0."""

    async def _within_limits(self, answer: Awaitable[Any]) -> Any:
        try:
            return await answer
        except ScriptError as error:
            if error.at_limit:
                msg = f"the script hit a limit: {error.message}"
                raise GradingError(msg) from error
            if not error.timed_out:
                raise
            msg = f"the script did not end within {self._limit:g} seconds (SCRIPT_TIMEOUT_MS)"
            raise GradingError(msg) from error

    async def python(self, code: str, output: Any) -> Any:
        """What Python gives: an expression on one line, or several lines that return. A checkpoint.

        Raises:
            GradingError: It took too long, or too much memory.
            ScriptError: It failed.
        """
        return await self._within_limits(
            self._scripts.judge(code, output, self._context(), self._limit)
        )

    async def javascript(self, code: str, output: Any) -> Any:
        """What JavaScript gives, likewise. A checkpoint."""
        script = assertion_script(code, NAMES)
        arguments = [output, self._context()]
        return await self._within_limits(self._scripts.javascript(script, arguments, self._limit))

    async def ruby(self, code: str, output: Any) -> Any:
        """What Ruby gives, likewise. A checkpoint."""
        arguments = [code, output, self._context()]
        return await self._within_limits(self._scripts.ruby(None, "judge", arguments, self._limit))

    async def file(
        self, file: Path, function: str | None, output: Any, told: Mapping[str, Any] | None = None
    ) -> Any:
        """What a function of a file gives. A checkpoint.

        Args:
            file: Absolute.
            function: Its name; None takes what such a file is expected to have.
            output: JSON.
            told: What its context says besides.

        Raises:
            GradingError: It took too long or too much memory, or is JavaScript and failed.
            ScriptError: It failed.
        """
        arguments = [output, with_more(self._context(), told or {})]
        suffix = file.suffix.lower()
        if suffix in JAVASCRIPT:
            called = self._scripts.javascript_file(file, function, NAMES, arguments, self._limit)
            try:
                return await self._within_limits(called)
            except ScriptError as error:
                raise GradingError(f"{file.name}: {error.message}") from error
        run = self._scripts.ruby if suffix == RUBY else self._scripts.call
        return await self._within_limits(run(file, function or FUNCTION, arguments, self._limit))


# Servers of the user's that judge outputs.


WEBHOOK_LIMIT = 5.0
"""Seconds that a server may take where nobody says how long."""

LARGEST = 1024 * 1024
"""Bytes that an answer may have."""

_EXCERPT = 200


@asynccontextmanager
async def open_webhooks(
    environ: Mapping[str, str],
    tls: TlsSettings | None = None,
    *,
    hosts: frozenset[str] | None = None,
) -> AsyncGenerator["Webhooks"]:
    """What asks servers, for as long as the block.

    Args:
        environ: Its `WEBHOOK_TIMEOUT` says how many milliseconds a server may take.
        tls: How servers are trusted; None is the usual way.
        hosts: The only hosts that requests may go to; None allows all.
    """
    async with AsyncExitStack() as stack:
        yield Webhooks(_limit(environ.get("WEBHOOK_TIMEOUT", "")), tls, hosts, stack)


@attrs.define(eq=False)
class Webhooks:
    """Asks servers; obtained from `open_webhooks` only."""

    _limit: float
    _tls: TlsSettings | None
    _hosts: frozenset[str] | None
    _stack: AsyncExitStack = attrs.field(repr=False)
    _opening: trio.Lock = attrs.field(init=False, factory=trio.Lock, repr=False)
    _client: HttpClient | None = attrs.field(init=False, default=None, repr=False)

    async def post(self, url: str, data: Any) -> Any:
        """The JSON that a server answers with when it is sent some. Always a checkpoint.

        Raises:
            GradingError: It answered with a failure, with what is no JSON, not in time, or not at all.
        """
        client = await self._opened()
        body = json.dumps(json_data(data)).encode()
        with trio.move_on_after(self._limit):
            try:
                reply = await client.send(HttpRequest(url.strip(), {}, body))
            except ProviderError as error:
                msg = f"the webhook did not answer: {error.message}"
                raise GradingError(msg) from error
            text = reply.body[:_EXCERPT].decode("utf-8", "replace").strip()
            if not 200 <= reply.status < 300:  # noqa: PLR2004 - what success is
                msg = f"the webhook answered with status {reply.status}: {text}"
                raise GradingError(msg)
            answer = read_json(reply.body)
            if answer is NOT_JSON:
                msg = f"the webhook must answer with JSON, got: {text}"
                raise GradingError(msg)
            return answer
        msg = f"the webhook did not answer within {self._limit:g} seconds (WEBHOOK_TIMEOUT)"
        raise GradingError(msg)

    async def _opened(self) -> HttpClient:
        async with self._opening:
            if self._client is None:
                from trioeval.providers.http.client import open_http  # noqa: PLC0415 - costs more than a small run

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
"""Most processes that the code of one function has where nobody says how many: one that hangs must not keep
all other rows waiting."""

MEMORY_MB = 4096
"""Mebibytes that each of them may have where nobody says how many."""


@attrs.frozen
class Means:
    """What the judges of one run share."""

    scripts: Scripts
    webhooks: Webhooks
    commands: Commands
    directory: Path
    """Of the suite; absolute."""
    limit: float
    """Seconds that a script may take."""

    def code(self, context: Callable[[], Encoded]) -> UserCode:
        """What runs the code of one assertion, which is told what `context` makes."""
        return UserCode(self.scripts, context, self.limit)


@asynccontextmanager
async def open_means(
    around: Around, tls: TlsSettings | None = None, *, hosts: frozenset[str] | None = None
) -> AsyncGenerator[Means]:
    """What the judges of one run share, for as long as the block; no process starts before it is needed.

    Args:
        around: Where code runs. Its `PYTHON_WORKERS` says how many processes each function has, its
            `SCRIPT_TIMEOUT_MS` how long a script may take, and its `SCRIPT_MEMORY_MB` how much memory it may
            have (0 does not limit it).
        tls: How servers are trusted; None is the usual way.
        hosts: The only hosts that requests may go to; None allows all.
    """
    environ = around.environ
    workers = _number(around.variable("PYTHON_WORKERS")) or min(
        max(os.cpu_count() or 1, 2), WORKERS
    )
    memory = _number(around.variable("SCRIPT_MEMORY_MB"))
    limit = (_number(around.variable("SCRIPT_TIMEOUT_MS")) or LIMIT * 1000) / 1000
    async with (
        open_scripts(
            around.directory,
            environ,
            workers=workers,
            memory_mb=MEMORY_MB if memory is None else memory,
            trust=around.trust,
        ) as scripts,
        open_webhooks(environ, tls, hosts=hosts) as webhooks,
    ):
        commands = SuiteCommands(around.directory, environ, around.trust)
        yield Means(scripts, webhooks, commands, around.directory, limit)


def _number(wanted: str) -> int | None:
    return int(wanted) if wanted.isdecimal() else None

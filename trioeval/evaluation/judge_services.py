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
from trioeval.evaluation.prompt import Asked, kept
from trioeval.evaluation.scripts import LIMIT, Scripts, given_up, open_scripts
from trioeval.grading.kinds.scripts import NAMES
from trioeval.grading.services import Commands
from trioeval.providers import Reply
from trioeval.providers.http.replies import NOT_JSON, read_json
from trioeval.providers.http.wire import HttpClient, HttpRequest, TlsSettings
from trioeval.providers.programs.workers import Encoded
from trioeval.scripting.javascript import assertion_script
from trioeval.suite.expand import Step
from trioeval.suite.model import ProviderEntry
from trioeval.suite.plain import plain_test
from trioeval.suite.sources.tests import RUBY
from trioeval.suite.sources.values import JAVASCRIPT
from trioeval.usage import Usage, tokens_json

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
            if (failure := given_up(error, "the script", self._limit)) is None:
                raise
            raise failure from error

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


# What scripts that judge an output are told besides it.


def row_context(
    step: Step,
    asked: Asked,
    reply: Reply,
    output: Any,
    provider: ProviderEntry,
    *,
    latency_ms: float | None,
) -> Encoded:
    """What is the same for all assertions of a row, with promptfoo's names.

    Args:
        step: The row.
        asked: What it asked.
        reply: What came back.
        output: What became of that after all transforms.
        provider: Who was asked.
        latency_ms: How long that took.
    """
    sent = reply.output if reply.raw is None else reply.raw
    metadata = dict(reply.metadata)
    response = {
        "output": output,
        "cached": False,
        "cost": reply.cost,
        "tokenUsage": None if reply.usage == Usage() else tokens_json(reply.usage, 1),
        "finishReason": reply.finish_reason,
        "isRefusal": reply.is_refusal or None,
        "logProbs": reply.log_probs,
        "latencyMs": latency_ms,
        "raw": None if sent == output else sent,
        "metadata": metadata,
    }
    found = {
        "prompt": asked.prompt,
        "vars": kept(asked.vars),
        "test": {"options": {}, **plain_test(step.test), "vars": dict(step.vars)},
        "logProbs": reply.log_probs,
        "provider": _known({"id": provider.id, "label": provider.label}),
        "providerResponse": _known(response),
        "metadata": metadata,
    }
    return Encoded(_json_text(_known(found)).encode())


def with_more(row: Encoded, more: Mapping[str, Any]) -> Encoded:
    """What is told of a row, and something besides.

    Example:
        >>> with_more(Encoded.of({"prompt": "p"}), {"config": {"n": 1}}).json
        b'{"prompt": "p","config": {"n": 1}}'
    """
    if not more:
        return row
    return Encoded(b"%b,%b" % (row.json[:-1], _json_text(more).encode()[1:]))


def json_data(data: Any) -> Any:
    """Data of a suite as JSON: a date is its text, and a number that JSON does not know is nothing.

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

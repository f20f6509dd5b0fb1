"""The suite's own code around a call, and whatever else takes long: never in the way of other calls.

What is quick runs at once: small replies, and paths. Large replies are read in a thread. JavaScript,
functions of Python and queries that are not cheap run in worker processes, as `python:` providers do.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import attrs
import trio

from trioeval.errors import ProviderError
from trioeval.providers.config import show
from trioeval.providers.generic.queries import apply_query
from trioeval.providers.generic.transform import (
    Answer,
    MemberPath,
    Query,
    Transform,
    TransformError,
    script_output,
)
from trioeval.providers.programs.workers import Workers, WorkerSpec, open_workers
from trioeval.scripting.javascript import Script

LARGE = 256 * 1024
"""Bytes of a reply that take some milliseconds to read, many times what a thread costs."""

THREADS = 2
"""Replies of one provider that are read in threads at once."""

T = TypeVar("T")


@asynccontextmanager
async def open_code(
    engine: WorkerSpec, queries: WorkerSpec, function: WorkerSpec | None
) -> AsyncGenerator["Code"]:
    """What runs the code of one provider.

    Args:
        engine: What runs scripts.
        queries: What evaluates queries.
        function: Its transform, where that is in a Python file.
    """
    async with open_workers(engine) as scripts, open_workers(queries) as finders:
        if function is None:
            yield Code(scripts, finders, None)
            return
        async with open_workers(function) as workers:
            yield Code(scripts, finders, workers)


@attrs.frozen
class Code:
    """Runs transforms and scripts."""

    _scripts: Workers
    _queries: Workers
    _function: Workers | None
    _threads: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(THREADS))

    async def run(self, work: Callable[[], T], size: int) -> T:
        """What some work on a reply gives. A checkpoint only if the reply is large.

        Args:
            work: Changes nothing.
            size: Bytes of the reply.
        """
        if size < LARGE:
            return work()
        # Left alone when cancelled: it ends by itself, and others need not wait for it.
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)

    async def transform(
        self, transform: Transform | Script, answer: Answer, size: int, limit: float
    ) -> Any:
        """What a transform gives. A checkpoint only if it may take long.

        Args:
            transform: What is applied.
            answer: To what.
            size: Bytes of the reply.
            limit: Seconds that a script may take, > 0.

        Raises:
            TransformError: It gives nothing.
            ProviderError: The engine of a script could not be asked.
        """
        if isinstance(transform, MemberPath):
            return transform.apply(answer)
        if isinstance(transform, Query):
            return await apply_query(transform, answer, size, self._queries)
        return script_output(transform, await self._ask(transform, answer.arguments(), limit))

    async def call(self, answer: Answer, limit: float) -> Any:
        """What the function of the Python file gives for `(json, text, context)`. Always a checkpoint.

        Args:
            answer: What it is called with.
            limit: Seconds that it may take, > 0.

        Raises:
            ProviderError: It failed, or took longer.
            TransformError: It gives nothing.
        """
        if self._function is None:
            msg = "the workers of this provider were not opened; please report this"
            raise RuntimeError(msg)
        value = await self._function.call(answer.arguments(), limit)
        if value is None:
            raise TransformError("the function of transformResponse returned nothing")
        return value

    async def rewrite(self, script: Script, values: list[Any], limit: float) -> Any:
        """What a script makes of a prompt. Always a checkpoint.

        Args:
            script: What is run.
            values: Its arguments.
            limit: Seconds that it may take, > 0.

        Raises:
            ProviderError: `bad_request`: it failed, or gave nothing; or the engine could not be asked.
        """
        told = await self._ask(script, values, limit)
        if "error" in told:
            raise ProviderError("bad_request", f"transformRequest fails: {told['error']}")
        if told["value"] is None:
            raise ProviderError(
                "bad_request", f"transformRequest gives nothing: {show(script.code)}"
            )
        return told["value"]

    async def _ask(self, script: Script, values: list[Any], limit: float) -> Any:
        return await self._scripts.call([script.source, values], limit)

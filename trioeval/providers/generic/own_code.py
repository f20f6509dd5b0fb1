"""The suite's own code around a call: run where it is bounded, and never in the way of others.

Paths and queries are quick and run at once. JavaScript runs in a thread, within its own bounds. Functions of
Python run in the worker processes that `python:` providers use.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import trio

from trioeval.errors import ProviderError
from trioeval.providers.config import show
from trioeval.providers.generic.javascript import JavaScriptError, Script
from trioeval.providers.generic.transform import Answer, Transform, TransformError
from trioeval.providers.programs.workers import Workers, WorkerSpec, open_workers

THREADS = 2
"""Scripts of one provider that run at once."""


@asynccontextmanager
async def open_code(function: WorkerSpec | None) -> AsyncGenerator["Code"]:
    """What runs the code of one provider; `function` is its transform, where that is in a Python file."""
    if function is None:
        yield Code(None)
        return
    async with open_workers(function) as workers:
        yield Code(workers)


@attrs.frozen
class Code:
    """Runs transforms and scripts."""

    _workers: Workers | None
    _threads: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(THREADS))

    async def transform(self, transform: Transform, answer: Answer) -> Any:
        """What a transform gives. A checkpoint only if it blocks.

        Raises:
            TransformError: It gives nothing.
        """
        if transform.blocks:
            return await self._in_thread(partial(transform.apply, answer))
        return transform.apply(answer)

    async def call(self, answer: Answer, limit: float) -> Any:
        """What the function of the Python file gives for `(json, text, context)`. Always a checkpoint.

        Args:
            answer: What it is called with.
            limit: Seconds that it may take, > 0.

        Raises:
            ProviderError: It failed, or took longer.
            TransformError: It gives nothing.
        """
        if self._workers is None:
            msg = "the workers of this provider were not opened; please report this"
            raise RuntimeError(msg)
        value = await self._workers.call(answer.arguments(), limit)
        if value is None:
            raise TransformError("the function of transformResponse returned nothing")
        return value

    async def run(self, script: Script, *values: Any) -> Any:
        """What a script gives. Always a checkpoint.

        Raises:
            ProviderError: `bad_request`: it failed, or gave nothing.
        """
        try:
            value = await self._in_thread(partial(script.run, *values))
        except JavaScriptError as error:
            raise ProviderError("bad_request", f"transformRequest fails: {error}") from error
        if value is None:
            raise ProviderError(
                "bad_request", f"transformRequest gives nothing: {show(script.code)}"
            )
        return value

    async def _in_thread(self, work: "partial[Any]") -> Any:
        # Left alone when cancelled: the engine ends by itself after a bounded time.
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)

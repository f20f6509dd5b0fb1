"""Runs of suites from asyncio: each in a thread with its own Trio, callbacks on the caller's event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import TypeAlias, TypeVar

import attrs
import trio

from trioeval.asyncio.notebook import RowCounter, progress_display
from trioeval.asyncio.trio_runner import TrioRunner, check_on_asyncio
from trioeval.asyncio_tasks import post_to
from trioeval.grading import Kinds
from trioeval.kernel import Observer
from trioeval.providers import Provider, Reply, Request
from trioeval.providers.local.custom import OwnProvider
from trioeval.run import PreparedSuite, Row, RunOptions, SuiteSummary, run_with_options
from trioeval.run.prepare import check_providers
from trioeval.run.run_suite import in_task_order, log, prepared_of
from trioeval.suite.model import Suite

T = TypeVar("T")

Emit: TypeAlias = Callable[[Row], Awaitable[None]]
"""An asyncio function that receives one row after another."""


async def run_suite(
    suite: Suite | PreparedSuite | str | os.PathLike[str],
    *,
    emit: Emit,
    providers: Mapping[str, Provider] | None = None,
    kinds: Kinds | None = None,
    stop: asyncio.Event | None = None,
    observe: Observer | None = None,
    run_id: str | None = None,
    warn: Callable[[str], None] | None = None,
    progress: bool | None = None,
    trusted: bool = True,
    allow_env: Collection[str] = (),
) -> SuiteSummary:
    """Run a suite and emit its rows in index order, as `trioeval.run_suite`, from an asyncio program.

    `emit`, `providers`, `observe` and `warn` run on the caller's event loop; assertions in Python run in the
    thread of the run. Cancelling ends the calls at once; every row is still emitted, unfinished ones as
    errors, before `CancelledError` is raised.

    Args:
        suite: A suite, a prepared suite, or the path of a suite file. Providers that a prepared suite already
            has are functions for Trio.
        emit: Awaited with one row after another, each as soon as all rows before it in its task are known.
        providers: asyncio functions, plain or from `own_provider`, by their provider ids in the suite.
        kinds: The assertion types of a suite that is loaded here; None is all built-in types.
        stop: Once it is set, no new row starts and running rows continue to their end.
        observe: Called with the events of lanes and jobs, in order.
        run_id: The value of `__evalId` in templates.
        warn: Called with harmless failures, such as that of an extension after a row; None logs them.
        progress: Whether to show the progress in the running cell of a notebook; None shows it in a notebook
            only, True requires one.
        trusted: True if a suite that is loaded here may run code, see the environment and use keys without
            restrictions.
        allow_env: Variables of the environment that templates of an untrusted suite may see.

    Returns:
        The numbers of rows by outcome.

    Raises:
        UsageError: It is not called on asyncio; or as for `trioeval.run_suite`, like all other exceptions.
        Exception: Whatever `emit` raised; it ends the run.

    Example:
        >>> import asyncio, trioeval.asyncio
        >>> async def shout(request):
        ...     await asyncio.sleep(0)
        ...     return request.prompt.upper()
        >>> async def show(row):
        ...     print(row.output)
        >>> suite = trioeval.parse_suite({"providers": ["shout"], "prompts": ["hello", "good day"]})
        >>> summary = asyncio.run(
        ...     trioeval.asyncio.run_suite(suite, emit=show, providers={"shout": shout})
        ... )
        HELLO
        GOOD DAY
        >>> summary.rows
        2
    """
    check_on_asyncio("run_suite")
    loop = asyncio.get_running_loop()

    def options(runner: TrioRunner) -> RunOptions:
        return RunOptions(
            emit=runner.on_asyncio(emit),
            observe=posted(loop, observe),
            run_id=run_id,
            warn=posted(loop, warn) or log.warning,
        )

    load = partial(prepared_of, suite, kinds=kinds, trusted=trusted, allow_env=allow_env)
    _, summary = await _run(load, providers, options, stop=stop, progress=progress)
    return summary


async def collect(
    suite: Suite | PreparedSuite | str | os.PathLike[str],
    *,
    providers: Mapping[str, Provider] | None = None,
    kinds: Kinds | None = None,
    progress: bool | None = None,
    trusted: bool = True,
    allow_env: Collection[str] = (),
) -> list[Row]:
    """Run a suite and return its rows, `rows[i].index == i`, as `trioeval.collect`, from an asyncio program.

    The arguments are those of `run_suite`.

    Raises:
        SuiteError: The suite is not valid; nothing was called.
        UsageError: It is not called on asyncio.

    Example:
        >>> import asyncio, trioeval.asyncio
        >>> suite = trioeval.parse_suite({"providers": ["echo"], "prompts": ["hello"]})
        >>> [row.output for row in asyncio.run(trioeval.asyncio.collect(suite))]
        ['hello']
    """
    check_on_asyncio("collect")
    rows: list[Row] = []

    async def keep(row: Row) -> None:  # noqa: ASYNC124 - it does not wait
        rows.append(row)

    def options(_: TrioRunner) -> RunOptions:
        return RunOptions(emit=keep)

    load = partial(prepared_of, suite, kinds=kinds, trusted=trusted, allow_env=allow_env)
    prepared, _ = await _run(load, providers, options, progress=progress)
    return in_task_order(prepared, rows)


async def _run(
    load: Callable[..., Awaitable[PreparedSuite]],
    providers: Mapping[str, Provider] | None,
    options: Callable[[TrioRunner], RunOptions],
    *,
    stop: asyncio.Event | None = None,
    progress: bool | None,
) -> tuple[PreparedSuite, SuiteSummary]:
    """Load a suite and run it in a thread of its own, and show its progress."""
    with progress_display(wanted=progress) as display:
        async with TrioRunner() as runner:
            prepared = await runner.run(
                partial(load, providers=providers_on_asyncio(runner, providers))
            )
            counter = RowCounter(prepared.size)
            trio_stop = trio.Event()
            chosen = attrs.evolve(options(runner), stop=trio_stop, record_observers=[counter])
            stopping = (
                None if stop is None else asyncio.ensure_future(_stop(stop, runner, trio_stop))
            )
            display.watch(counter.read)
            try:
                return prepared, await runner.run(run_with_options, prepared, chosen)
            finally:
                display.show(counter.counts)
                if stopping is not None:
                    stopping.cancel()


def providers_on_asyncio(
    runner: TrioRunner, providers: Mapping[str, Provider] | None
) -> Mapping[str, Provider] | None:
    """Return asyncio functions as providers for Trio.

    Raises:
        UsageError: Something else was given.
    """
    check_providers(providers)
    if providers is None:
        return None
    return {name: _provider(runner, function) for name, function in providers.items()}


def _provider(runner: TrioRunner, function: Provider) -> Provider:
    async def call(request: Request) -> Reply | str:
        return await runner.tasks.run(inner, request)

    if isinstance(function, OwnProvider):
        inner = function.function
        return attrs.evolve(function, function=call)
    inner = function
    return call


def posted(
    loop: asyncio.AbstractEventLoop, function: Callable[[T], None] | None
) -> Callable[[T], None] | None:
    """Return a function that calls another one on the event loop, in order."""
    if function is None:
        return None
    called = function

    def post(value: T) -> None:
        post_to(loop, called, value)

    return post


async def _stop(stop: asyncio.Event, runner: TrioRunner, trio_stop: trio.Event) -> None:
    await stop.wait()
    runner.post(trio_stop.set)

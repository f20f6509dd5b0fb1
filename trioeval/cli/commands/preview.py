# Apart from `cli.app`: loaded when it is used.
"""`trioeval preview`: the first rows of datasets, made now and kept nowhere."""

import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TypeAlias

import trio

from trioeval.cli.environment import cache_path, read_environment
from trioeval.cli.flags import PreviewFlags, RunFlags, WhatFlags, check_flags
from trioeval.cli.interrupts import Interrupts
from trioeval.cli.run.command import load
from trioeval.cli.run.results import ended_lines
from trioeval.cli.terminal import Exit, draw, say, show
from trioeval.inert import inert
from trioeval.report.columns import dropped_view, rows_view, trouble
from trioeval.run import PreparedSuite, prepare
from trioeval.run.build_dataset import Dataset, preview_suite
from trioeval.store.cache.cache import Cache, open_cache

Caching: TypeAlias = Callable[[], AbstractAsyncContextManager[Cache | None]]
"""Opens the cache of replies, if there is one."""

_CELL = 600  # characters of a value
_FAILURES = 10  # dropped rows that are told of


def preview(suite: Path, wanted: PreviewFlags, interrupts: Interrupts) -> int:
    """Make the first rows of datasets and show them; the exit code.

    Raises:
        SuiteError: The suite is wrong.
        UsageError: There is no such task, or it is made of rows that only a run makes.
        ProviderError: A provider cannot be opened.
    """
    flags = RunFlags(
        what=WhatFlags(
            env_file=wanted.env_file,
            replay=wanted.replay,
            untrusted=wanted.untrusted,
            allow_env=wanted.allow_env,
        )
    )
    check_flags(flags)
    loaded = load(suite, flags)
    prepared = prepare(
        loaded.suite,
        environ=loaded.environ,
        max_concurrency=wanted.max_concurrency,
        replay=wanted.replay,
        max_rows=0,
    )
    for warning in prepared.warnings:
        say(f"warning: {warning}")
    environment = read_environment(loaded.environ)
    is_cached = loaded.suite.evaluate_options.cache and environment.cache is not False
    if wanted.cache is not None:
        is_cached = wanted.cache
    caching: Caching = nullcontext
    if is_cached:
        path, ttl_s = cache_path(environment), environment.cache_ttl_s
        caching = partial(open_cache, path, ttl_s=ttl_s, told=lambda error: _warn(str(error)))
    interrupts.begin_run()
    datasets = trio.run(
        _make,
        prepared,
        wanted,
        interrupts,
        caching,
        restrict_keyboard_interrupt_to_checkpoints=True,
    )
    for dataset in datasets:
        _show(dataset)
    if interrupts.received:
        return interrupts.code
    troubles = [told for one in datasets if (told := trouble(one.result)) is not None]
    if troubles:
        say(f"{', '.join(troubles)}; nothing was kept; exit {Exit.FAILED}")
        return Exit.FAILED
    say("nothing was kept: a run makes all of it")
    return Exit.OK


async def _make(
    prepared: PreparedSuite, wanted: PreviewFlags, interrupts: Interrupts, caching: Caching
) -> Sequence[Dataset]:
    stop = trio.Event()
    with trio.CancelScope() as scope:

        def heed(number: signal.Signals) -> None:
            if stop.is_set():
                scope.cancel(number.name)
            else:
                stop.set()
                say("stopping: cells under way may finish; interrupt again to cancel them")

        with interrupts.told_to(heed):
            async with caching() as cache:
                return await preview_suite(
                    prepared,
                    wanted.rows,
                    tasks=wanted.task,
                    cache=cache,
                    stop=stop,
                    warn=_warn,
                )
    return ()


def _show(dataset: Dataset) -> None:
    result = dataset.result
    for line in ended_lines(result):
        say(line)
    show(f"task {inert(result.task, 60)}")
    rows = [(dataset.number(place), row) for place, row in enumerate(dataset.rows)]
    draw(rows_view(rows, _CELL), sys.stdout)
    if told := dropped_view(result.failures[:_FAILURES], sum(result.dropped.values())):
        show(f"rows that are not there:\n{told}")


def _warn(text: str) -> None:
    say(f"warning: {text}")

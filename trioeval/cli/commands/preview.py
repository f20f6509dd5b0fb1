"""`trioeval preview`: the first rows of datasets, generated without storing them."""

import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TypeAlias

import trio

from trioeval.cli.environment import cache_path, read_environment
from trioeval.cli.flags import PreviewFlags, RunFlags, SuiteFlags, check_flags
from trioeval.cli.interrupts import Interrupts
from trioeval.cli.run.command import load
from trioeval.cli.run.results import ended_lines
from trioeval.cli.terminal import Exit, draw, say, show
from trioeval.report.columns import dropped_view, rows_view, trouble
from trioeval.run import PreparedSuite, prepare
from trioeval.run.build_dataset import Dataset, preview_suite
from trioeval.store.cache.cache import Cache, open_cache
from trioeval.text_safety import escape_control_characters

Caching: TypeAlias = Callable[[], AbstractAsyncContextManager[Cache | None]]
"""Opens the cache of replies, or gives None without a cache."""

_CELL = 600  # characters of a value
_FAILURES = 10  # dropped rows that are shown


def preview(suite: Path, given: PreviewFlags, interrupts: Interrupts) -> int:
    """Generate the first rows of datasets, show them, and return the exit code.

    Raises:
        SuiteError: The suite is wrong.
        UsageError: The task does not exist, or it needs rows that only a run generates.
        ProviderError: A provider cannot be opened.
    """
    flags = RunFlags(
        what=SuiteFlags(
            env_file=given.env_file,
            replay=given.replay,
            untrusted=given.untrusted,
            allow_env=given.allow_env,
        )
    )
    check_flags(flags)
    loaded = load(suite, flags)
    prepared = prepare(
        loaded.suite,
        environ=loaded.environ,
        max_concurrency=given.max_concurrency,
        replay=given.replay,
        max_rows=0,
    )
    for warning in prepared.warnings:
        say(f"warning: {warning}")
    environment = read_environment(loaded.environ)
    is_cached = loaded.suite.evaluate_options.cache and environment.cache is not False
    if given.cache is not None:
        is_cached = given.cache
    caching: Caching = nullcontext
    if is_cached:
        path, ttl_s = cache_path(environment), environment.cache_ttl_s
        caching = partial(open_cache, path, ttl_s=ttl_s, on_problem=lambda error: _warn(str(error)))
    interrupts.begin_run()
    datasets = trio.run(
        _make,
        prepared,
        given,
        interrupts,
        caching,
        restrict_keyboard_interrupt_to_checkpoints=True,
    )
    for dataset in datasets:
        _show(dataset)
    if interrupts.received:
        return interrupts.code
    troubles = [text for one in datasets if (text := trouble(one.result)) is not None]
    if troubles:
        say(f"{', '.join(troubles)}; nothing was stored; exit {Exit.FAILED}")
        return Exit.FAILED
    say("nothing was stored; trioeval run generates all rows")
    return Exit.OK


async def _make(
    prepared: PreparedSuite, given: PreviewFlags, interrupts: Interrupts, caching: Caching
) -> Sequence[Dataset]:
    stop = trio.Event()
    with trio.CancelScope() as scope:

        def on_signal(number: signal.Signals) -> None:
            if stop.is_set():
                scope.cancel(number.name)
            else:
                stop.set()
                say("stopping: running cells may finish; interrupt again to cancel them")

        with interrupts.deliver_to(on_signal):
            async with caching() as cache:
                return await preview_suite(
                    prepared,
                    given.rows,
                    tasks=given.task,
                    cache=cache,
                    stop=stop,
                    warn=_warn,
                )
    return ()


def _show(dataset: Dataset) -> None:
    result = dataset.result
    for line in ended_lines(result):
        say(line)
    show(f"task {escape_control_characters(result.task, 60)}")
    rows = [(dataset.number(place), row) for place, row in enumerate(dataset.rows)]
    draw(rows_view(rows, _CELL), sys.stdout)
    if dropped := dropped_view(result.failures[:_FAILURES], sum(result.dropped.values())):
        show(f"dropped rows:\n{dropped}")


def _warn(text: str) -> None:
    say(f"warning: {text}")

"""Sessions in asyncio programs: `trioeval.open_session` in a thread with its own Trio.

A session has one thread for all of its runs, so that they share lanes, limits and the store.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import trio

from trioeval.asyncio.notebook import RowCounts, progress_display
from trioeval.asyncio.run_suite import posted, providers_on_asyncio
from trioeval.asyncio.trio_runner import TrioResource, TrioRunner, check_on_asyncio
from trioeval.asyncio_tasks import post_to
from trioeval.errors import UsageError
from trioeval.evaluation.journal import CallRecord
from trioeval.grading import Kinds
from trioeval.kernel import Budget, Event, Lanes, LaneSpec
from trioeval.kernel.events import guarded
from trioeval.providers import Provider
from trioeval.report.records import RowRecord
from trioeval.report.run_state import RunSnapshot
from trioeval.run import PreparedSuite, Row
from trioeval.session.observers import SessionObserver, checked_observers
from trioeval.session.run import Run, RunSummary
from trioeval.session.session import Session
from trioeval.session.session import open_session as open_session_on_trio
from trioeval.suite.model import Suite

if TYPE_CHECKING:
    from trioeval.scaleout.workers import WorkerPool

T = TypeVar("T")


class AsyncioObserver:
    """Observer of all runs of a session; a subclass defines the methods that it needs.

    Each is called synchronously on the event loop of the session, in the order in which things happen.
    """

    def on_run_start(self, run: AsyncioRun, /) -> None:
        """Handle the start of a run, before its first call."""

    def on_event(self, run: AsyncioRun, event: Event, /) -> None:
        """Handle an event of a lane or a job of a run."""

    def on_call(self, run: AsyncioRun, call: CallRecord, /) -> None:
        """Handle the end of a call to a provider or a judge."""

    def on_row(self, run: AsyncioRun, row: Row, /) -> None:
        """Handle the end of a row, perhaps before its turn in `AsyncioRun.rows`."""

    def on_run_end(self, run: AsyncioRun, /) -> None:
        """Handle the end of a run, whose `summary` is known."""


@attrs.frozen(repr=False)
class AsyncioRun:
    """A run of a suite in a session. Created by `AsyncioSession.run`.

    Its methods may be called in the block of `AsyncioSession.run`, and afterwards in that of the session.
    """

    _opened: TrioResource[Session] = attrs.field(eq=False)
    _run: Run

    def __repr__(self) -> str:
        return repr(self._run)

    @property
    def id(self) -> str:
        """The id of the run in the store."""
        return self._run.id

    @property
    def resumed(self) -> bool:
        """True if it continues a run that an earlier execution began."""
        return self._run.resumed

    @property
    def summary(self) -> RunSummary | None:
        """The totals, and how the run ended; None until it has ended, at the end of its block."""
        return self._run.summary

    async def progress(self) -> RunSnapshot:
        """Return the present state of the run and its lanes."""

        async def read() -> RunSnapshot:  # noqa: ASYNC124 - it does not wait
            return self._run.progress

        return await self._opened.run(read)

    def stop(self) -> None:
        """Start no more rows; those that have started continue to their end."""
        self._opened.runner.post(self._run.stop)

    def cancel(self) -> None:
        """End the run now: its calls are cancelled, and unfinished rows say so."""
        self._opened.runner.post(self._run.cancel)

    def rows(self) -> AsyncGenerator[RowRecord]:
        """Yield all rows, each as soon as all rows before it in its task are known.

        Rows of earlier executions are included in their places. Of rows that never started because the run
        ended early, all but the first hundred of a task are only counted, in `summary`.
        """
        return self._opened.iterate(self._run.rows)

    def settled(self) -> AsyncGenerator[RowRecord]:
        """Yield the rows of this execution in the order in which they end."""
        return self._opened.iterate(self._run.settled)

    async def wait(self) -> None:
        """Wait until the last row has been emitted."""
        await self._opened.run(self._run.wait)

    async def write(self, *paths: str | Path) -> None:
        """Write result files, each in the format of its suffix.

        Args:
            *paths: The files, such as `out.json`, `out.html`, `out.parquet` or `out.jsonl`.

        Raises:
            UsageError: The run is not over, or a path cannot be used.
            OutputError: A file cannot be written; the others are written.
        """
        await self._opened.run(self._run.write, *paths)

    async def to_records(self) -> list[dict[str, Any]]:
        """Return all rows as JSON data, as `out.jsonl` has them.

        Raises:
            UsageError: The run is not over.
        """
        return await self._in_thread(self._run.to_records)

    async def to_arrow(self) -> Any:
        """Return all rows as a `pyarrow.Table` with the columns of `out.parquet`.

        Raises:
            UsageError: The run is not over, or pyarrow is not installed.
        """
        return await self._in_thread(self._run.to_arrow)

    async def to_pandas(self) -> Any:
        """Return all rows as a `pandas.DataFrame` with the columns of `out.parquet`.

        Raises:
            UsageError: The run is not over, or pandas or pyarrow is not installed.
        """
        return await self._in_thread(self._run.to_pandas)

    async def _in_thread(self, function: Callable[[], T]) -> T:
        return await self._opened.run(trio.to_thread.run_sync, function)


@attrs.frozen(eq=False, repr=False)
class AsyncioWorkers:
    """Workers for the runs of a session. Created by `AsyncioSession.open_workers`."""

    _opened: TrioResource[WorkerPool]

    def __repr__(self) -> str:
        return repr(self._opened.value)

    def pool_of(self, session: TrioResource[Session]) -> WorkerPool:
        """Return the workers for a run of a session.

        Raises:
            UsageError: They belong to another session.
        """
        if self._opened.runner is not session.runner:
            raise UsageError(
                "these workers belong to another session: open workers with the session that uses them"
            )
        return self._opened.value


@attrs.frozen(eq=False, repr=False)
class AsyncioSession:
    """Lanes, limits, a budget, a store and a cache for runs. Created by `trioeval.asyncio.open_session`."""

    _opened: TrioResource[Session]
    _progress: bool | None
    _warn: Callable[[str], None] | None
    """Called in the thread with problems that end no run; None logs them."""

    def __repr__(self) -> str:
        return repr(self._opened.value)

    @property
    def path(self) -> Path | None:
        """The database of its runs; None if they are deleted at its end."""
        return self._opened.value.path

    @asynccontextmanager
    async def run(
        self,
        suite: Suite | PreparedSuite | str | os.PathLike[str],
        *,
        id: str | None = None,  # noqa: A002 - its name everywhere else
        resume: bool = False,
        retry: str | None = None,
        workers: AsyncioWorkers | None = None,
        send: Iterable[str | os.PathLike[str]] = (),
    ) -> AsyncGenerator[AsyncioRun]:
        """Run a suite beside the block. The end of the block waits for the end of the run.

        An exception in the block, or its cancellation, cancels the run: its finished rows are kept, and
        `resume` continues it.

        Args:
            suite: A suite, a prepared suite, or the path of a suite file.
            id: The id of the run in the store; None makes a new one.
            resume: Continue the run of this id if the store has it.
            retry: With `resume`, the finished rows to run again, such as `errors`.
            workers: Workers that run the rows, from `open_workers` of this session; see `Session.run`.
            send: With `workers`, files, folders and patterns that they need besides those that the suite
                names, relative to its folder.

        Yields:
            The run.

        Raises:
            UsageError: As for `Session.run`, like all other exceptions.

        Example:
            >>> import asyncio, trioeval.asyncio
            >>> suite = trioeval.parse_suite({"providers": ["echo"], "prompts": ["a", "b"]})
            >>> async def main():
            ...     async with trioeval.asyncio.open_session() as session:
            ...         async with session.run(suite) as run:
            ...             async for row in run.rows():
            ...                 print(row.index, row.output)
            ...         print(run.summary.ended)
            >>> asyncio.run(main())
            0 a
            1 b
            finished
        """
        opened = self._opened
        await opened.runner.wait_abandoned()  # perhaps of the same id
        pool = None if workers is None else workers.pool_of(opened)
        start = partial(
            opened.value.run, suite, id=id, resume=resume, retry=retry, workers=pool, send=send
        )
        run: AsyncioRun | None = None
        with progress_display(wanted=self._progress) as display:
            try:
                async with TrioResource(opened.runner, start, "run") as running:
                    run = AsyncioRun(opened, running.value)
                    display.watch(partial(_counts_of, run))
                    yield run
            finally:
                display.close()
                if run is not None and run.summary is not None:
                    display.show(_last_counts(run.summary))

    async def collect(
        self, suite: Suite | PreparedSuite | str | os.PathLike[str]
    ) -> list[RowRecord]:
        """Run a suite and return its rows in order.

        Raises:
            SuiteError: The suite is not valid; nothing was called.
        """
        async with self.run(suite) as run:
            await run.wait()
        return [row async for row in run.rows()]

    @asynccontextmanager
    async def open_workers(
        self, on: str, *, lane_owner: bool = False, linger: float = 0.0
    ) -> AsyncGenerator[AsyncioWorkers]:
        """Open workers for runs of this session, as `trioeval.scaleout.open_workers`.

        Args:
            on: `local:4` for four processes of this machine, or the address of a Dask cluster.
            lane_owner: True if one worker makes all calls of a lane, although the suite has Redis.
            linger: The seconds for which a worker collects replies and rows before it sends them, up to 60.

        Yields:
            The workers, for `run` of this session.

        Raises:
            UsageError: An argument is wrong, Dask is not installed, or the processes cannot be started.
        """
        from trioeval.scaleout.workers import open_workers

        warn = {} if self._warn is None else {"warn": self._warn}
        start = partial(open_workers, on, lane_owner=lane_owner, linger=linger, **warn)
        async with TrioResource(self._opened.runner, start, "workers") as opened:
            yield AsyncioWorkers(opened)

    def stop(self) -> None:
        """Start no more rows in any run in progress; those that have started continue to their end."""
        self._opened.runner.post(self._opened.value.stop)

    def close(self) -> None:
        """Begin no more runs, and cancel those in progress."""
        self._opened.runner.post(self._opened.value.close)

    async def wait_closed(self) -> None:
        """Wait until no run is in progress."""
        await self._opened.run(self._opened.value.wait_closed)


@asynccontextmanager
async def open_session(
    *,
    store: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    providers: Mapping[str, Provider] | None = None,
    lanes: Iterable[LaneSpec] = (),
    max_total_concurrency: int | None = None,
    budget: Budget | None = None,
    observers: Iterable[AsyncioObserver] = (),
    kinds: Kinds | None = None,
    trusted: bool = True,
    allow_env: Collection[str] = (),
    on_warning: Callable[[str], None] | None = None,
    progress: bool | None = None,
) -> AsyncGenerator[AsyncioSession]:
    """Open a session until the end of the block, as `trioeval.open_session`, from an asyncio program.

    It belongs to the event loop that opens it. Any number of tasks of that loop may use it at a time.

    Args:
        store: The database of runs, which is created if it does not exist; None keeps runs only until the end
            of the session.
        cache: The database of the cache of replies; None requests each reply.
        providers: asyncio functions, plain or from `own_provider`, by their provider ids in suites.
        lanes: The configurations of lanes that hold whatever suites say of them.
        max_total_concurrency: The most calls in flight on all lanes together, ≥ 1; None sets no bound.
        budget: The budget of all runs together; None sets none. That of a suite holds as well.
        observers: Observers of all runs, called on the event loop.
        kinds: The assertion types of suites that are loaded here; None is all built-in types.
        trusted: True if suites that are loaded here may run code, see the environment and use keys without
            restrictions.
        allow_env: Variables of the environment that templates of untrusted suites may see.
        on_warning: Called on the event loop with problems that end no run; None logs them.
        progress: Whether to show the progress of runs in the running cell of a notebook; None shows it in a
            notebook only, True requires one.

    Yields:
        The session.

    Raises:
        UsageError: It is not called on asyncio, `lanes` are `Lanes`, which belong to one `trio.run`, or
            another argument is of a wrong type.
        StoreError: The database cannot be used.
        PlanError: Two lanes have the same name, or `max_total_concurrency` is out of range.
    """
    check_on_asyncio("open_session")
    given: object = lanes
    if isinstance(given, Lanes):
        raise UsageError("Lanes belong to one trio.run: pass a list of LaneSpec")
    watching = checked_observers(observers, AsyncioObserver)
    loop = asyncio.get_running_loop()
    warn = posted(loop, on_warning)
    async with TrioRunner() as runner:
        make = partial(
            open_session_on_trio,
            store=store,
            cache=cache,
            providers=providers_on_asyncio(runner, providers),
            lanes=lanes,
            max_total_concurrency=max_total_concurrency,
            budget=budget,
            observers=[_posting(observer, loop, lambda: opened) for observer in watching],
            kinds=kinds,
            trusted=trusted,
            allow_env=allow_env,
            on_warning=warn,
        )
        opened = TrioResource(runner, make, "session")
        async with opened:
            yield AsyncioSession(opened, progress, warn)


def _posting(
    observer: AsyncioObserver,
    loop: asyncio.AbstractEventLoop,
    opened: Callable[[], TrioResource[Session]],
) -> SessionObserver:
    """Return an observer for Trio, which calls another one on the event loop, in order."""

    def posted_method(method: Callable[..., None]) -> Callable[..., None]:
        def call(arguments: tuple[Any, ...]) -> None:
            method(*arguments)

        guarded_call = guarded(call) or call

        def post(_self: object, run: Run, *more: object) -> None:
            post_to(loop, guarded_call, (AsyncioRun(opened(), run), *more))

        return post

    # The session calls only methods that a class defines itself.
    names = ("on_run_start", "on_event", "on_call", "on_row", "on_run_end")
    defined = [n for n in names if getattr(type(observer), n) is not getattr(AsyncioObserver, n)]
    methods = {name: posted_method(getattr(observer, name)) for name in defined}
    made: SessionObserver = type("PostedObserver", (SessionObserver,), methods)()
    return made


async def _counts_of(run: AsyncioRun) -> RowCounts:
    state = await run.progress()
    return RowCounts(state.total, state.done, state.passed, state.failed, state.errors)


def _last_counts(end: RunSummary) -> RowCounts:
    return RowCounts(end.rows, end.rows - end.not_run, end.passed, end.failed, end.errors)

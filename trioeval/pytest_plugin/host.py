"""The thread that runs suites: one Trio run for the whole session, so that its files share their lanes.

pytest requests items one after another in its own thread. The first item of a file starts all requested rows
of it; their results wait here until they are requested.
"""

import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import attrs
import trio

from trioeval.errors import TrioevalError
from trioeval.pytest_plugin.keys import Key
from trioeval.pytest_plugin.loading import CollectedSuite, PytestSession, WantedFile
from trioeval.pytest_plugin.outcome import LOOK, ItemResult, ItemResults
from trioeval.pytest_plugin.suite_run import FileRun, Serving
from trioeval.run import make_lanes
from trioeval.store.cache.cache import Cache, open_cache
from trioeval.store.store import open_store
from trioeval.text_safety import escape_control_characters, inert_lines

_REASON = 4000  # characters
_HEED = 0.2  # seconds between two checks of whether the leading process has stopped


@attrs.frozen(eq=False)
class _TrioThread:
    """The interface to a Trio run in progress."""

    token: trio.lowlevel.TrioToken
    nursery: trio.Nursery
    serving: Serving
    closing: trio.Event
    """Set when no further file follows."""

    def start(self, run: FileRun) -> None:
        self.nursery.start_soon(_serve, run)

    def close(self, *, at_once: bool) -> None:
        if at_once:
            self.serving.stop.set()
        self.closing.set()

    def have(self, do: Callable[[], object]) -> bool:
        """Run a function in the Trio thread; return False if the run is over."""
        try:
            self.token.run_sync_soon(do)
        except trio.RunFinishedError:
            return False
        return True


@attrs.define(eq=False, repr=False)
class Host:
    """A host of suites: it runs the files of a session in its own thread, from the first request on."""

    session: PytestSession
    files: Mapping[CollectedSuite, WantedFile]
    warnings: "queue.SimpleQueue[str]" = attrs.field(init=False, factory=queue.SimpleQueue)
    """Warnings that were not shown yet."""
    _answers: dict[CollectedSuite, ItemResults] = attrs.field(init=False, factory=dict)
    _thread: threading.Thread | None = attrs.field(init=False, default=None)
    _opened: "Future[_TrioThread | None]" = attrs.field(init=False, factory=Future)
    _failure: str = attrs.field(init=False, default="the suite could not be run")

    def has(self, loaded: CollectedSuite, key: Key) -> bool:
        """Return whether an item belongs to its files."""
        keys = self.files.get(loaded)
        return keys is not None and key in keys.keys

    def wait(self, loaded: CollectedSuite, key: Key) -> ItemResult:
        """Return the result of an item, and run its file if that was not started. Can be interrupted."""
        answers = self._answers.get(loaded)
        if answers is None:
            answers = self._answers[loaded] = ItemResults()
            inside = self._inside()
            if inside is None or not self._start(inside, loaded, answers):
                answers.end(self._failure)
        return answers.wait(key)

    def _start(self, inside: _TrioThread, loaded: CollectedSuite, answers: ItemResults) -> bool:
        keys = self.files[loaded]
        run_id = f"{self.session.id}-{keys.name}"
        run = FileRun(loaded, run_id, keys.keys, answers, inside.serving)
        return inside.have(partial(inside.start, run))

    def close(self, *, at_once: bool) -> None:
        """End the thread.

        Args:
            at_once: Start no more rows; running ones may finish. Otherwise all started files are completed
                first, because other processes may wait for them. If this call is interrupted, running rows
                are cancelled.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        inside = self._inside(thread)
        if inside is not None:
            inside.have(partial(inside.close, at_once=at_once))
        try:
            _join(thread)
        except KeyboardInterrupt:
            if inside is not None:
                inside.have(partial(inside.nursery.cancel_scope.cancel, "interrupted"))
            _join(thread)
            raise

    def _inside(self, thread: threading.Thread | None = None) -> _TrioThread | None:
        """Return the Trio run, and start it if needed; None if it cannot be started."""
        if thread is None and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="trioeval", daemon=True)
            self._thread.start()
        while True:  # can be interrupted, unlike a wait without a timeout on some systems
            with suppress(TimeoutError):
                return self._opened.result(LOOK)

    def _run(self) -> None:
        """The thread. However it ends, waiting calls are released."""
        try:
            trio.run(self._host)
        except (Exception, BaseExceptionGroup, SystemExit) as error:  # noqa: BLE001 - reported with each item
            self._failure = _failure_text(error)
        finally:
            if not self._opened.done():
                self._opened.set_result(None)
            for answers in [*self._answers.values()]:
                answers.end(self._failure)

    async def _host(self) -> None:
        session = self.session
        async with AsyncExitStack() as stack:
            stop = trio.Event()

            def cannot_keep(error: Exception) -> None:
                self.warnings.put(f"{error}: running rows may finish, no others are started")
                stop.set()

            database = session.settings.db or session.folder / "results.db"
            store = await stack.enter_async_context(
                open_store(database, on_error=cannot_keep, on_warning=self.warnings.put)
            )
            cache = await self._open_cache(stack)
            lanes = make_lanes(*(loaded.checked for loaded in self.files))
            warn = self.warnings.put
            serving = Serving(session.folder, store, cache, lanes, stop, warn)
            async with trio.open_nursery() as context:
                if session.stopped is not None:
                    context.start_soon(_heed, session.stopped, stop)
                async with trio.open_nursery() as nursery:
                    token = trio.lowlevel.current_trio_token()
                    inside = _TrioThread(token, nursery, serving, trio.Event())
                    self._opened.set_result(inside)
                    await inside.closing.wait()
                context.cancel_scope.cancel("everything is done")

    async def _open_cache(self, stack: AsyncExitStack) -> Cache | None:
        settings = self.session.settings
        if not settings.is_cached:
            return None
        opening = open_cache(settings.cache, on_problem=lambda error: self.warnings.put(str(error)))
        return await stack.enter_async_context(opening)


async def _heed(stopped: Path, stop: trio.Event) -> None:
    """Stop when the leading process requests it. A checkpoint."""
    while not stopped.exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
        await trio.sleep(_HEED)
    stop.set()


async def _serve(run: FileRun) -> None:
    """Run a file; its problems do not concern other files."""
    failure: str | None = "the run was cancelled"
    try:
        await run.serve()
        failure = None
    except Exception as error:  # noqa: BLE001 - one file of several
        failure = _failure_text(error)
    finally:
        run.answers.end(failure)


def _failure_text(error: BaseException) -> str:
    if isinstance(error, TrioevalError | OSError):
        return inert_lines(error, _REASON)
    return escape_control_characters(
        f"{type(error).__name__}: {error}; this is a bug in trioeval", _REASON
    )


def _join(thread: threading.Thread) -> None:
    while thread.is_alive():
        thread.join(LOOK)

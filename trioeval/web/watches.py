"""Watched runs: one follower for each, whatever the number of browsers.

A follower stores the newest state, and viewers take it when they are ready. A slow browser sees fewer states
but no old ones, and nothing accumulates.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import trio

from trioeval.errors import NotLiveError, StoreError
from trioeval.report.stored import StoredRunFacts
from trioeval.store.reader import StoreReader
from trioeval.web.history import LaneHistory
from trioeval.web.live_client import Live, open_live
from trioeval.web.pages import StoreReading

_LINGER = 20.0  # seconds for which a run is followed without viewers: pages are reloaded
_AGAIN = 1.0  # seconds between two reads of a run
_SOON = 0.2  # seconds until a run that stopped responding is read: most have ended
_SHARE = 10  # The pause after a read, as a multiple of its duration.


@attrs.frozen
class SharedState:
    """The state of a run that all of its viewers share."""

    version: int
    """The version of its watch."""
    text: str


@attrs.define(eq=False, repr=False)
class RunWatch:
    """The state of one run. Attributes change between checkpoints."""

    run_id: str
    facts: StoredRunFacts | None = None
    """The facts in the store; None before the first read, and after the run was deleted."""
    state: Mapping[str, Any] | None = None
    """The state from `RunState.json`; None while the run is not connected."""
    live: Live | None = None
    """The connection for commands; None while the run is not connected."""
    unheard: bool = False
    """True if connecting failed."""
    activities: Sequence[Mapping[str, Any]] = ()
    """The activity of its lanes, once it has ended."""
    trouble: str | None = None
    """The reason why its store cannot be read."""
    over: bool = False
    """True if nothing more will change: it has ended, or was deleted."""
    version: int = 0
    """A counter of changes."""
    rows: int = 0
    """A counter of new rows."""
    history: LaneHistory = attrs.field(factory=LaneHistory)
    shown: SharedState | None = None
    """The newest state, computed once for all viewers."""
    viewers: int = 0
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _changed: trio.Event = attrs.field(factory=trio.Event)

    async def wait_news(self, seen: int) -> None:
        """Wait until the version differs from `seen`."""
        while self.version == seen:
            await self._changed.wait()

    async def wait_heard(self) -> None:
        """Wait until it is known whether the run is connected."""
        while self.live is None and not self.unheard and not self.over:
            await self._changed.wait()

    def notify(self) -> None:
        """Notify the viewers of a change."""
        self.version += 1
        self._changed.set()
        self._changed = trio.Event()


@attrs.define(eq=False, repr=False)
class RunWatches:
    """The watched runs."""

    _store: StoreReading
    _nursery: trio.Nursery
    _by_id: dict[str, RunWatch] = attrs.field(factory=dict)

    def now(self, run_id: str) -> RunWatch | None:
        """Return the watch of a run, if there is one."""
        return self._by_id.get(run_id)

    @asynccontextmanager
    async def watching(self, run_id: str) -> AsyncIterator[RunWatch]:
        """Watch a run for the duration of the block."""
        watch = self._by_id.get(run_id)
        if watch is None or watch.scope.cancel_called:
            watch = self._by_id[run_id] = RunWatch(run_id)
            self._nursery.start_soon(self._follow, watch, name=f"watch {run_id}")
        watch.viewers += 1
        watch.scope.deadline = float("inf")
        try:
            yield watch
        finally:
            watch.viewers -= 1
            if not watch.viewers:
                watch.scope.deadline = trio.current_time() + _LINGER

    async def _follow(self, watch: RunWatch) -> None:
        try:
            with watch.scope:
                while not watch.over:
                    if await self._look(watch):
                        await self._listen(watch)
        finally:
            watch.over = True
            watch.notify()
            if self._by_id.get(watch.run_id) is watch:
                del self._by_id[watch.run_id]

    async def _look(self, watch: RunWatch) -> bool:
        """Read the store; return whether the run is still running."""
        try:
            facts, watch.activities = await self._store.read(partial(_find, watch.run_id))
        except StoreError as error:
            watch.trouble = str(error)
            watch.notify()
            await trio.sleep(_AGAIN)
            return False
        if facts is None or watch.facts is None or _counts(facts) != _counts(watch.facts):
            watch.rows += 1
        watch.facts, watch.trouble = facts, None
        watch.over = facts is None or facts.state != "running"
        watch.notify()
        return not watch.over

    async def _keep_looking(self, watch: RunWatch) -> None:
        """Read the store while the run is connected: it has rows before their turn to be reported."""
        while True:
            began = trio.current_time()
            if not await self._look(watch):
                return
            # Reading very many rows takes time, so it is done less often.
            await trio.sleep(max(_AGAIN, _SHARE * (trio.current_time() - began)))

    async def _listen(self, watch: RunWatch) -> None:
        """Receive states of the run until it ends, or for a moment if it sends none."""
        again = _AGAIN
        try:
            async with open_live(watch.run_id) as live:
                watch.live, watch.unheard, again = live, False, _SOON
                watch.notify()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._keep_looking, watch)
                    async for state in live.states():
                        watch.state = state
                        watch.history.add(state)
                        watch.notify()
                    nursery.cancel_scope.cancel("the connection to the run was lost")
        except NotLiveError:
            watch.unheard = True  # it starts or ends just now, or was started with --no-live
            watch.notify()
        finally:
            watch.live = watch.state = None
        await trio.sleep(again)


def _find(
    run_id: str, reader: StoreReader
) -> tuple[StoredRunFacts | None, Sequence[Mapping[str, Any]]]:
    facts = reader.find(run_id)
    is_over = facts is not None and facts.state != "running"
    return facts, reader.activity(facts) if facts is not None and is_over else ()


def _counts(facts: StoredRunFacts) -> Sequence[int]:
    # Rows that are run again are not additional rows.
    return facts.rows, facts.passed, facts.failed, facts.errors, facts.not_graded

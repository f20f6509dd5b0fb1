"""Runs that somebody watches: one follower each, however many browsers look at it.

A follower keeps the newest of what it hears, and its viewers take that when they are ready for it. So a
browser that is slow sees fewer pictures, and none that are old, and nothing piles up anywhere.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import trio

from trioeval.errors import NotLiveError, StoreError
from trioeval.store import Reader, RunFacts
from trioeval.web.history import History
from trioeval.web.live_client import Live, open_live
from trioeval.web.pages import StoreReading

_LINGER = 20.0  # seconds for which a run is followed when nobody looks: pages are loaded again
_AGAIN = 1.0  # seconds between two looks at a run
_SOON = 0.2  # seconds after which a run that has fallen silent is looked at: most have ended
_SHARE = 10  # times as long as a look took, nobody looks


@attrs.frozen
class Shown:
    """A run as it is shown to everybody who looks at it."""

    version: int
    """Of its watch."""
    text: str


@attrs.define(eq=False)
class Watch:
    """What is known of one run. Attributes change between checkpoints."""

    run_id: str
    facts: RunFacts | None = None
    """What its store says; None before the first look, and when it is gone."""
    state: Mapping[str, Any] | None = None
    """What it says itself, as `RunState.json`; None while it is not heard."""
    live: Live | None = None
    """How it is spoken to; None while it is not heard."""
    unheard: bool = False
    """Whether it was called in vain."""
    activities: Sequence[Mapping[str, Any]] = ()
    """What its lanes did, once it is over."""
    trouble: str | None = None
    """Why its store cannot be read."""
    over: bool = False
    """Whether nothing more will be told: it has ended, or it is gone."""
    version: int = 0
    """Grows with each change."""
    rows: int = 0
    """Grows when there are new rows."""
    history: History = attrs.field(factory=History)
    shown: Shown | None = None
    """The newest picture, made once for all viewers."""
    viewers: int = 0
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _changed: trio.Event = attrs.field(factory=trio.Event)

    async def wait_news(self, seen: int) -> None:
        """Wait until its version is another one than `seen`."""
        while self.version == seen:
            await self._changed.wait()

    async def wait_heard(self) -> None:
        """Wait until it is known whether it can be spoken to."""
        while self.live is None and not self.unheard and not self.over:
            await self._changed.wait()

    def tell(self) -> None:
        """Something of it has changed."""
        self.version += 1
        self._changed.set()
        self._changed = trio.Event()


@attrs.define(eq=False)
class Watches:
    """The runs that are watched now."""

    _store: StoreReading
    _nursery: trio.Nursery
    _by_id: dict[str, Watch] = attrs.field(factory=dict)

    def now(self, run_id: str) -> Watch | None:
        """The watch of a run, if there is one."""
        return self._by_id.get(run_id)

    @asynccontextmanager
    async def watching(self, run_id: str) -> AsyncIterator[Watch]:
        """Look at a run, for as long as the block."""
        watch = self._by_id.get(run_id)
        if watch is None or watch.scope.cancel_called:
            watch = self._by_id[run_id] = Watch(run_id)
            self._nursery.start_soon(self._follow, watch, name=f"watch {run_id}")
        watch.viewers += 1
        watch.scope.deadline = float("inf")
        try:
            yield watch
        finally:
            watch.viewers -= 1
            if not watch.viewers:
                watch.scope.deadline = trio.current_time() + _LINGER

    async def _follow(self, watch: Watch) -> None:
        try:
            with watch.scope:
                while not watch.over:
                    if await self._look(watch):
                        await self._listen(watch)
        finally:
            watch.over = True
            watch.tell()
            if self._by_id.get(watch.run_id) is watch:
                del self._by_id[watch.run_id]

    async def _look(self, watch: Watch) -> bool:
        """Look into the store; whether the run goes on."""
        try:
            facts, watch.activities = await self._store.read(partial(_find, watch.run_id))
        except StoreError as error:
            watch.trouble = str(error)
            watch.tell()
            await trio.sleep(_AGAIN)
            return False
        if facts is None or watch.facts is None or _counts(facts) != _counts(watch.facts):
            watch.rows += 1
        watch.facts, watch.trouble = facts, None
        watch.over = facts is None or facts.state != "running"
        watch.tell()
        return not watch.over

    async def _keep_looking(self, watch: Watch) -> None:
        """Look into the store while the run is heard: it knows of rows before their turn to be told."""
        while True:
            began = trio.current_time()
            if not await self._look(watch):
                return
            # A look at very many rows takes its time, and is not taken all the time.
            await trio.sleep(max(_AGAIN, _SHARE * (trio.current_time() - began)))

    async def _listen(self, watch: Watch) -> None:
        """Hear what the run says of itself until it ends, or for a moment if it says nothing."""
        again = _AGAIN
        try:
            async with open_live(watch.run_id) as live:
                watch.live, watch.unheard, again = live, False, _SOON
                watch.tell()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._keep_looking, watch)
                    async for state in live.states():
                        watch.state = state
                        watch.history.add(state)
                        watch.tell()
                    nursery.cancel_scope.cancel("the run is not heard any more")
        except NotLiveError:
            watch.unheard = True  # it begins, it ends, or it lets nobody listen
            watch.tell()
        finally:
            watch.live = watch.state = None
        await trio.sleep(again)


def _find(run_id: str, reader: Reader) -> tuple[RunFacts | None, Sequence[Mapping[str, Any]]]:
    facts = reader.find(run_id)
    is_over = facts is not None and facts.state != "running"
    return facts, reader.activity(facts) if facts is not None and is_over else ()


def _counts(facts: RunFacts) -> Sequence[int]:
    # Rows that are made again are no more rows than before.
    return facts.rows, facts.passed, facts.failed, facts.errors

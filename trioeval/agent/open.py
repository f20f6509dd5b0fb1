"""Opens what all tasks of agents of a run share: their folder, and their buses."""

import datetime as dt
import functools
import hashlib
import math
import shutil
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import attrs
import trio

from trioeval.agent.bus.bus import Bus, open_bus
from trioeval.agent.bus.messages import Draft, Message, MessageType
from trioeval.agent.bus.reading import Reading, read_parts
from trioeval.agent.bus.settings import BusSettings, BusStats
from trioeval.agent.model import AgentSettings
from trioeval.agent.planner import Planner
from trioeval.agent.protocols import AgentObserver, RunIds
from trioeval.agent.report_file import ReportTroubles
from trioeval.errors import (
    AgentError,
    BusError,
    BusLockedError,
    CursorExpiredError,
    CursorNotFoundError,
)
from trioeval.evaluation.prepared import PreparedSuite

# How the agents of a run are worked on, and who is told.


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _chance() -> Callable[[], float]:
    return Random().random  # noqa: S311 - no secret


@attrs.frozen(kw_only=True)
class AgentTerms:
    """How the agents of a run are worked on, and who is told."""

    folder: Path | None = None
    """Where the folders of its cases are; None keeps them only as long as it runs."""
    planner: Planner | None = None
    """Whose turn it is among all programs; None lets every case begin at once."""
    observe: AgentObserver | None = None
    """Told of what happens."""
    bus_stats: BusStats = attrs.field(factory=BusStats, repr=False)
    """What writing to all buses has cost."""
    now: Callable[[], dt.datetime] = attrs.field(default=_now, repr=False)
    """The wall clock, in UTC."""
    rng: Callable[[], float] = attrs.field(factory=_chance, repr=False)
    """Numbers from 0 to 1."""


# What is told on buses of a run. That it cannot be told is no reason not to go on, or to wait for long.


WAIT = 1.0
"""Seconds for which a message waits for others that have locked its bus."""
_AT_ONCE = 0.05  # seconds: longer than who has locked it for a moment makes others wait
_DEAF = 60.0  # seconds for which a bus is not waited for again
_WARN_EVERY = 60.0  # seconds


@attrs.define(eq=False, kw_only=True)
class RunBuses:
    """The buses of a run: how they are written, and what could not be."""

    project: str
    """What the run is called on them."""
    stop: trio.Event
    """Set when the run is to end."""
    warn: Callable[[str], None]
    rng: Callable[[], float] = attrs.field(repr=False)
    """Numbers from 0 to 1."""
    settings: BusSettings = attrs.field(factory=BusSettings)
    stats: BusStats = attrs.field(factory=BusStats, repr=False)
    """What writing to all of them has cost."""
    lost: int = attrs.field(init=False, default=0)
    """Messages that could not be written."""
    _warned_at: float = attrs.field(init=False, default=-math.inf)

    def lose(self, error: BusError) -> None:
        """Count a message that could not be written; warn at most once a minute."""
        self.lost += 1
        now = trio.current_time()
        if now >= self._warned_at + _WARN_EVERY:
            self._warned_at = now
            self.warn(f"messages of agents cannot be written ({self.lost} until now): {error}")


@attrs.define(eq=False)
class Patience:
    """How long a bus is waited for that others hold locked, as an agent may that was stopped."""

    folder: Path
    """Of the bus."""
    buses: RunBuses
    """Count what is not posted."""
    _deaf_until: float = attrs.field(init=False, default=-math.inf)

    async def with_bus(self, post: Callable[[], Awaitable[object]]) -> bool:
        """Post, if that can be done soon; whether it was done. A checkpoint."""
        now = trio.current_time()
        is_hurried = self.buses.stop.is_set() or now < self._deaf_until
        failure: BusError | None = BusLockedError(
            f"{self.folder}: the message bus was locked by others"
        )
        with trio.move_on_after(_AT_ONCE if is_hurried else WAIT) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._hurry, scope)
                try:
                    await post()
                except BusError as error:
                    failure = error
                else:
                    failure = None
                nursery.cancel_scope.cancel("it is known what became of it")
        if failure is None:
            self._deaf_until = -math.inf
            return True
        if isinstance(failure, BusLockedError) and not is_hurried:
            self._deaf_until = now + _DEAF
        self.buses.lose(failure)
        return False

    async def _hurry(self, scope: trio.CancelScope) -> None:
        await self.buses.stop.wait()
        scope.deadline = min(scope.deadline, trio.current_time() + _AT_ONCE)


@attrs.define(eq=False)
class CasePosts(Patience):
    """Tells things on the bus of a case, in its name.

    The bus is opened for each message: many cases wait at a time, and a program may open so many files only.
    """

    case: str = attrs.field(kw_only=True)
    """The name of the case."""
    run_id: str | None = attrs.field(init=False, default=None)
    """Of the attempt that is under way."""

    async def __call__(self, type_: MessageType, body: str) -> None:
        """Tell something, if that can be done soon. A checkpoint."""
        draft = Draft(
            type=type_,
            project_id=self.buses.project,
            task_id=self.case,
            run_id=self.run_id,
            body=body,
        )
        await self.with_bus(functools.partial(self._append, draft))

    async def _append(self, draft: Draft) -> None:
        buses = self.buses
        settings = attrs.evolve(buses.settings, lock_timeout=WAIT, append_attempts=1)
        async with open_bus(self.folder, settings, rng=buses.rng, stats=buses.stats) as bus:
            await bus.append(draft)


# What cases have found out is told to the whole run, once. Blocks on files where it reads.


_FACT = "FACT"
_FROM = "fact_of"
"""The key of `meta` by which a fact is known that was passed on."""


@attrs.define(eq=False)
class RunFacts:
    """Tells the facts of cases on the bus of their run, and knows which are there."""

    _bus: Bus
    _patience: Patience
    _known: set[str] = attrs.field(init=False, factory=set, repr=False)
    """Of the facts that are there, up to a cursor."""
    _cursor: int = attrs.field(init=False, default=0)
    _thread: trio.CapacityLimiter = attrs.field(
        init=False, factory=lambda: trio.CapacityLimiter(1), repr=False
    )
    """One at a time looks what is there."""

    async def pass_on(self, case: Path) -> int:
        """Tell the facts of a case, but for those that are there. A checkpoint."""
        told = 0

        async def tell(draft: Draft) -> None:
            nonlocal told
            if await self._patience.with_bus(functools.partial(self._bus.append, draft)):
                told += 1

        try:
            new = await trio.to_thread.run_sync(self._new, case, limiter=self._thread)
        except BusError as error:
            self._patience.buses.lose(error)
            return 0
        async with trio.open_nursery() as nursery:
            for draft in new:
                nursery.start_soon(tell, draft)
                # It stands in line before the next one begins; all that do are written together.
                await trio.lowlevel.checkpoint()
        return told

    def _new(self, case: Path) -> list[Draft]:
        found = [
            _passed_on(one)
            for part in read_parts(case)
            for one in part.messages
            if one.draft.type == _FACT
        ]
        if found:
            self._look()
        return [draft for draft in found if draft.meta[_FROM] not in self._known]

    def _look(self) -> None:
        """Know what is there now."""
        for part in self._parts():
            self._known.update(
                one.draft.meta[_FROM] for one in part.messages if _FROM in one.draft.meta
            )
            self._cursor = part.cursor

    def _parts(self) -> Iterator[Reading]:
        try:
            yield from read_parts(self._bus.path, since=self._cursor or None)
        except (CursorExpiredError, CursorNotFoundError):  # it is another one
            self._known.clear()
            yield from read_parts(self._bus.path)


def _passed_on(message: Message) -> Draft:
    """A fact as it is told to all; what it says of other messages of its bus means nothing to them."""
    draft = message.draft
    text = f"{draft.task_id}\n{message.msg_id}\n{draft.body}"
    mark = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return attrs.evolve(draft, parents=(), issue_id=None, meta={**draft.meta, _FROM: mark})


_REMOVED_WITHIN = 30.0  # seconds
_MAKERS = 4  # folders that are made at once


@attrs.frozen(eq=False, kw_only=True)
class AgentRun:
    """What all tasks of agents of a run share."""

    terms: AgentTerms
    project: str
    """What the run is called on buses: its id."""
    folder: Path
    """Where the folders of its tasks are; absolute."""
    facts: RunFacts | None
    """What its cases have found out, on the bus of the run; None where that cannot be opened."""
    stop: trio.Event
    """Set when no attempt is to begin any more."""
    warn: Callable[[str], None]
    buses: RunBuses
    ids: RunIds
    """Gives attempts their ids."""
    reports: ReportTroubles = attrs.field(factory=ReportTroubles)
    """Of attempts, as far as they cannot be used."""
    makers: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(_MAKERS))
    """Of threads that make folders."""


@asynccontextmanager
async def open_agents(
    prepared: PreparedSuite,
    terms: AgentTerms,
    run_id: str | None,
    *,
    stop: trio.Event,
    warn: Callable[[str], None],
) -> AsyncGenerator[AgentRun | None]:
    """Open what the agents of a suite share; None if it has none. A checkpoint.

    Raises:
        AgentError: The folder cannot be made.
    """
    if not any(isinstance(part.prepared.suite.settings, AgentSettings) for part in prepared.parts):
        await trio.lowlevel.checkpoint()
        yield None
        return
    async with _folder(terms.folder) as folder:
        limits, project = prepared.suite.run_limits, run_id or folder.name
        settings = BusSettings(
            rotate_bytes=limits.bus_rotate_bytes, keep_segments=limits.bus_keep_segments
        )
        buses = RunBuses(
            project=project,
            stop=stop,
            warn=warn,
            rng=terms.rng,
            settings=settings,
            stats=terms.bus_stats,
        )
        run = AgentRun(
            terms=terms,
            project=project,
            folder=folder,
            facts=None,
            stop=stop,
            warn=warn,
            buses=buses,
            ids=RunIds(f"{int(terms.rng() * 2**32):08x}", terms.now),
        )
        async with _maybe_bus(folder / "bus", buses) as bus:
            facts = None if bus is None else RunFacts(bus, Patience(bus.path, buses))
            try:
                yield attrs.evolve(run, facts=facts)
            finally:
                run.reports.tell(warn)


@asynccontextmanager
async def _maybe_bus(folder: Path, buses: RunBuses) -> AsyncGenerator[Bus | None]:
    """Open a bus, if that can be done: agents work also where nothing can be told."""
    async with AsyncExitStack() as stack:
        bus: Bus | None = None
        try:
            opening = open_bus(folder, buses.settings, rng=buses.rng, stats=buses.stats)
            bus = await stack.enter_async_context(opening)
        except BusError as error:
            buses.lose(error)
        yield bus


@asynccontextmanager
async def _folder(wanted: Path | None) -> AsyncGenerator[Path]:
    """The folder of a run, made if it is not there; one that nobody names is removed again."""
    make = functools.partial(_make_folder, wanted)
    folder = await trio.to_thread.run_sync(make)
    try:
        yield folder
    finally:
        if wanted is None:
            remove = functools.partial(shutil.rmtree, folder, ignore_errors=True)
            with trio.move_on_after(_REMOVED_WITHIN, shield=True):
                await trio.to_thread.run_sync(remove)


def _make_folder(wanted: Path | None) -> Path:
    try:
        if wanted is None:
            return Path(tempfile.mkdtemp(prefix="trioeval-")).resolve()
        wanted.mkdir(parents=True, exist_ok=True)
        return wanted.absolute()
    except OSError as error:
        folder = wanted or tempfile.gettempdir()
        reason = error.strerror or error
        raise AgentError(f"{folder}: the folder of agents cannot be made: {reason}") from error

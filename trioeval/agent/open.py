"""The shared resources of all agent tasks of a run: their folder, and their buses."""

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
from trioeval.agent.bus.messages import Message, MessageDraft, MessageType
from trioeval.agent.bus.reading import BusReading, read_parts
from trioeval.agent.bus.settings import BusSettings, BusStats
from trioeval.agent.planner import Planner
from trioeval.agent.protocols import AgentObserver, RunIds
from trioeval.agent.report_file import InvalidReports
from trioeval.errors import (
    AgentError,
    BusError,
    BusLockedError,
    CursorExpiredError,
    CursorNotFoundError,
)
from trioeval.evaluation.prepared import PreparedSuite

# The options of a run's agents.


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _chance() -> Callable[[], float]:
    return Random().random  # noqa: S311 - no secret


@attrs.frozen(kw_only=True)
class AgentOptions:
    """The options of a run's agents."""

    folder: Path | None = None
    """The folder of its cases; None uses a temporary one that is removed at its end."""
    planner: Planner | None = None
    """Orders the cases of all programs; None lets every case start at once."""
    observe: AgentObserver | None = None
    """Called with every event."""
    are_placed: bool = False
    """True if another process has decided that it is the turn of the cases, in folders that it has made."""
    bus_stats: BusStats = attrs.field(factory=BusStats, repr=False)
    """The cost of writing to all buses."""
    now: Callable[[], dt.datetime] = attrs.field(default=_now, repr=False)
    """The wall clock, in UTC."""
    rng: Callable[[], float] = attrs.field(factory=_chance, repr=False)
    """Returns random numbers from 0 to 1."""


# Posting on the buses of a run. A failure must not stop the run, or delay it for long.


WAIT = 1.0
"""Maximum seconds for which a message waits while another process locks its bus."""
_AT_ONCE = 0.05  # seconds: longer than a short lock takes
_HURRY_SECONDS = 60.0  # seconds for which no message waits after one could not be posted
_WARN_EVERY = 60.0  # seconds


@attrs.define(eq=False, repr=False, kw_only=True)
class RunBuses:
    """The buses of a run: their settings, and the number of lost messages."""

    project: str
    """The name of the run on them."""
    stop: trio.Event
    """Set when the run is to end."""
    warn: Callable[[str], None]
    rng: Callable[[], float]
    """Returns random numbers from 0 to 1."""
    settings: BusSettings = attrs.field(factory=BusSettings)
    stats: BusStats = attrs.field(factory=BusStats)
    """The cost of writing to all of them."""
    lost: int = attrs.field(init=False, default=0)
    """Number of messages that could not be written."""
    _warned_at: float = attrs.field(init=False, default=-math.inf)

    def lose(self, error: BusError) -> None:
        """Count a message that could not be written; warn at most once a minute."""
        self.lost += 1
        now = trio.current_time()
        if now >= self._warned_at + _WARN_EVERY:
            self._warned_at = now
            self.warn(f"messages of agents cannot be written ({self.lost} so far): {error}")


@attrs.define(eq=False, repr=False)
class HurriedBus:
    """Limits the wait for a bus that another process keeps locked, such as a stopped agent."""

    folder: Path
    """The folder of the bus."""
    buses: RunBuses
    """Counts lost messages."""
    _hurried_until: float = attrs.field(init=False, default=-math.inf)

    async def with_bus(self, post: Callable[[], Awaitable[object]]) -> bool:
        """Post if that is possible soon; return whether it was. A checkpoint."""
        now = trio.current_time()
        is_hurried = self.buses.stop.is_set() or now < self._hurried_until
        failure: BusError | None = BusLockedError(
            f"{self.folder}: the message bus was locked by another process"
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
                nursery.cancel_scope.cancel("the post has ended")
        if failure is None:
            self._hurried_until = -math.inf
            return True
        if isinstance(failure, BusLockedError) and not is_hurried:
            self._hurried_until = now + _HURRY_SECONDS
        self.buses.lose(failure)
        return False

    async def _hurry(self, scope: trio.CancelScope) -> None:
        await self.buses.stop.wait()
        scope.deadline = min(scope.deadline, trio.current_time() + _AT_ONCE)


@attrs.define(eq=False, repr=False)
class CasePoster(HurriedBus):
    """Posts messages on the bus of a case, in its name.

    The bus is opened for each message: many cases wait at a time, and the number of open files is limited.
    """

    case: str = attrs.field(kw_only=True)
    """The name of the case."""
    run_id: str | None = attrs.field(init=False, default=None)
    """The run id of the current attempt."""

    async def __call__(self, type_: MessageType, body: str) -> None:
        """Post a message, if that is possible soon. A checkpoint."""
        draft = MessageDraft(
            type=type_,
            project_id=self.buses.project,
            task_id=self.case,
            run_id=self.run_id,
            body=body,
        )
        await self.with_bus(functools.partial(self._append, draft))

    async def _append(self, draft: MessageDraft) -> None:
        buses = self.buses
        settings = attrs.evolve(buses.settings, lock_timeout=WAIT, append_attempts=1)
        async with open_bus(self.folder, settings, rng=buses.rng, stats=buses.stats) as bus:
            await bus.append(draft)


# The facts found by cases are posted for the whole run, once. Reading blocks on files.


_FACT = "FACT"
_FROM = "fact_of"
"""The key of `meta` that identifies a forwarded fact."""


@attrs.define(eq=False, repr=False)
class SharedFacts:
    """Forwards facts of cases to the bus of their run, without duplicates."""

    _bus: Bus
    _patience: HurriedBus
    _known: set[str] = attrs.field(init=False, factory=set)
    """Identifiers of the facts on the bus, up to a cursor."""
    _cursor: int = attrs.field(init=False, default=0)
    _thread: trio.CapacityLimiter = attrs.field(init=False, factory=lambda: trio.CapacityLimiter(1))
    """One thread at a time reads the bus."""

    async def forward(self, case: Path) -> int:
        """Post the new facts of a case; return their number. A checkpoint."""
        warnings = 0

        async def post(draft: MessageDraft) -> None:
            nonlocal warnings
            if await self._patience.with_bus(functools.partial(self._bus.append, draft)):
                warnings += 1

        try:
            new = await trio.to_thread.run_sync(self._new, case, limiter=self._thread)
        except BusError as error:
            self._patience.buses.lose(error)
            return 0
        async with trio.open_nursery() as nursery:
            for draft in new:
                nursery.start_soon(post, draft)
                # It is queued before the next one starts; all queued messages are written together.
                await trio.lowlevel.checkpoint()
        return warnings

    def _new(self, case: Path) -> list[MessageDraft]:
        found = [
            _forwarded(one)
            for part in read_parts(case)
            for one in part.messages
            if one.draft.type == _FACT
        ]
        if found:
            self._read_known()
        return [draft for draft in found if draft.meta[_FROM] not in self._known]

    def _read_known(self) -> None:
        """Read the facts on the bus up to now."""
        for part in self._parts():
            self._known.update(
                one.draft.meta[_FROM] for one in part.messages if _FROM in one.draft.meta
            )
            self._cursor = part.cursor

    def _parts(self) -> Iterator[BusReading]:
        try:
            yield from read_parts(self._bus.path, since=self._cursor or None)
        except (CursorExpiredError, CursorNotFoundError):  # the bus was replaced
            self._known.clear()
            yield from read_parts(self._bus.path)


def _forwarded(message: Message) -> MessageDraft:
    """Return a fact for the bus of the run; references to other messages of its own bus are removed."""
    draft = message.draft
    text = f"{draft.task_id}\n{message.msg_id}\n{draft.body}"
    mark = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return attrs.evolve(draft, parents=(), issue_id=None, meta={**draft.meta, _FROM: mark})


_REMOVED_WITHIN = 30.0  # seconds
_MAKERS = 4  # folders that are created concurrently


@attrs.frozen(eq=False, kw_only=True)
class AgentRunContext:
    """The shared state of all agent tasks of a run."""

    options: AgentOptions
    project: str
    """The name of the run on buses: its id."""
    folder: Path
    """The folder of its tasks; absolute."""
    facts: SharedFacts | None
    """The facts on the bus of the run; None if that cannot be opened."""
    stop: trio.Event
    """Set when no further attempt may start."""
    warn: Callable[[str], None]
    buses: RunBuses
    ids: RunIds
    """Creates the ids of attempts."""
    reports: InvalidReports = attrs.field(factory=InvalidReports)
    """Collects unusable reports of attempts."""
    makers: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(_MAKERS))
    """Limits the threads that create folders."""


@asynccontextmanager
async def open_agents(
    prepared: PreparedSuite,
    options: AgentOptions,
    run_id: str | None,
    *,
    stop: trio.Event,
    warn: Callable[[str], None],
) -> AsyncGenerator[AgentRunContext]:
    """Open the shared state of a suite's agents. A checkpoint.

    Raises:
        AgentError: The folder cannot be created.
    """
    async with _folder(options.folder) as folder:
        limits, project = prepared.suite.run_limits, run_id or folder.name
        settings = BusSettings(
            rotate_bytes=limits.bus_rotate_bytes, keep_segments=limits.bus_keep_segments
        )
        buses = RunBuses(
            project=project,
            stop=stop,
            warn=warn,
            rng=options.rng,
            settings=settings,
            stats=options.bus_stats,
        )
        run = AgentRunContext(
            options=options,
            project=project,
            folder=folder,
            facts=None,
            stop=stop,
            warn=warn,
            buses=buses,
            ids=RunIds(f"{int(options.rng() * 2**32):08x}", options.now),
        )
        async with _maybe_bus(folder / "bus", buses) as bus:
            facts = None if bus is None else SharedFacts(bus, HurriedBus(bus.path, buses))
            try:
                yield attrs.evolve(run, facts=facts)
            finally:
                run.reports.report_to(warn)


@asynccontextmanager
async def _maybe_bus(folder: Path, buses: RunBuses) -> AsyncGenerator[Bus | None]:
    """Open a bus, if possible: agents work also without one."""
    async with AsyncExitStack() as stack:
        bus: Bus | None = None
        try:
            opening = open_bus(folder, buses.settings, rng=buses.rng, stats=buses.stats)
            bus = await stack.enter_async_context(opening)
        except BusError as error:
            buses.lose(error)
        yield bus


@asynccontextmanager
async def _folder(given: Path | None) -> AsyncGenerator[Path]:
    """Yield the folder of a run, creating it if necessary; an unnamed one is removed at the end."""
    make = functools.partial(_make_folder, given)
    folder = await trio.to_thread.run_sync(make)
    try:
        yield folder
    finally:
        if given is None:
            remove = functools.partial(shutil.rmtree, folder, ignore_errors=True)
            with trio.move_on_after(_REMOVED_WITHIN, shield=True):
                await trio.to_thread.run_sync(remove)


def _make_folder(given: Path | None) -> Path:
    try:
        if given is None:
            return Path(tempfile.mkdtemp(prefix="trioeval-")).resolve()
        given.mkdir(parents=True, exist_ok=True)
        return given.absolute()
    except OSError as error:
        folder = given or tempfile.gettempdir()
        reason = error.strerror or error
        raise AgentError(f"{folder}: the folder of agents cannot be created: {reason}") from error

"""Opens what all tasks of agents of a run share: their folder, and the bus of the run."""

import functools
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs
import trio

from trioeval.agents.bus.bus import Bus, open_bus
from trioeval.agents.bus.settings import BusSettings
from trioeval.agents.run_ids import RunIds
from trioeval.errors import AgentError, BusError
from trioeval.tasks.agents.agent_terms import AgentTerms
from trioeval.tasks.agents.facts import RunFacts
from trioeval.tasks.agents.posts import BusTroubles, Patience
from trioeval.tasks.agents.report_troubles import ReportTroubles
from trioeval.tasks.prepare import PreparedSuite

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
    troubles: BusTroubles
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
    if all(part.prepared.suite.agents is None for part in prepared.parts):
        await trio.lowlevel.checkpoint()
        yield None
        return
    async with _folder(terms.folder) as folder:
        troubles = BusTroubles(warn)
        run = AgentRun(
            terms=terms,
            project=run_id or folder.name,
            folder=folder,
            facts=None,
            stop=stop,
            warn=warn,
            troubles=troubles,
            ids=RunIds(f"{int(terms.rng() * 2**32):08x}", terms.now),
        )
        limits = prepared.suite.run_limits
        settings = BusSettings(
            rotate_bytes=limits.bus_rotate_bytes, keep_segments=limits.bus_keep_segments
        )
        async with maybe_bus(folder / "bus", terms, troubles, settings) as bus:
            facts = None
            if bus is not None:
                facts = RunFacts(bus, Patience(bus.path, stop), troubles)
            try:
                yield attrs.evolve(run, facts=facts)
            finally:
                run.reports.tell(warn)


@asynccontextmanager
async def maybe_bus(
    folder: Path,
    terms: AgentTerms,
    troubles: BusTroubles,
    settings: BusSettings = BusSettings(),  # noqa: B008 - frozen
) -> AsyncGenerator[Bus | None]:
    """Open a bus, if that can be done: agents work also where nothing can be told."""
    async with AsyncExitStack() as stack:
        bus: Bus | None = None
        try:
            bus = await stack.enter_async_context(open_bus(folder, settings, rng=terms.rng))
            stack.enter_context(terms.buses.counting(bus.stats))
        except BusError as error:
            troubles.add(error)
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

"""What a run's agents are given: a folder beside the database, and their turn among all programs."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

from trioeval.agents.memory_planner import MemoryPlanner
from trioeval.cli.beginning import utc
from trioeval.cli.places import agents_folder
from trioeval.store.agent_planner import open_planner
from trioeval.tasks import PreparedSuite
from trioeval.tasks.agents.agent_terms import AgentTerms


def has_agents(prepared: PreparedSuite) -> bool:
    """Whether any task of a suite is worked on by agents."""
    return any(part.prepared.suite.agents is not None for part in prepared.parts)


async def agent_terms(
    prepared: PreparedSuite,
    database: Path | None,
    run: str,
    stack: AsyncExitStack,
    *,
    warn: Callable[[str], None],
) -> AgentTerms:
    """How the agents of a run are worked on. A checkpoint where they take turns.

    Args:
        prepared: The suite.
        database: Where the run is kept; None keeps nothing of it, the folders of its cases included.
        run: Its id.
        stack: Lets go of everything at the end.
        warn: Told what goes wrong and ends nothing.

    Raises:
        StoreError: The line of the database cannot be used.
    """
    if not has_agents(prepared):
        return AgentTerms()
    limit = prepared.suite.run_limits.max_concurrent_root_tasks
    if database is None:
        memory = MemoryPlanner(limit, lambda: utc(datetime.now(UTC))) if limit else None
        return AgentTerms(planner=memory)
    shared = None
    if limit:
        shared = await stack.enter_async_context(open_planner(database, limit, warn=warn))
    return AgentTerms(folder=agents_folder(database, run), planner=shared)

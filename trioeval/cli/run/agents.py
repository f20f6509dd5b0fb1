"""What a run's agents are given: a folder beside the database, and their turn among all programs."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from trioeval.agent.cases import WorkspaceTemplates
from trioeval.agent.model import AgentSettings, case_of
from trioeval.agent.open import AgentTerms
from trioeval.cli.environment import agents_folder
from trioeval.errors import UsageError
from trioeval.run import PreparedSuite
from trioeval.store.planner.planner import open_planner
from trioeval.templates import is_template


def has_agents(prepared: PreparedSuite) -> bool:
    """Whether any task of a suite is worked on by agents."""
    return any(isinstance(part.prepared.suite.settings, AgentSettings) for part in prepared.parts)


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
    planner = None
    if limit:
        planner = await stack.enter_async_context(open_planner(database, limit, warn=warn))
    folder = None if database is None else agents_folder(database, run)
    return AgentTerms(folder=folder, planner=planner)


def check_workspaces(prepared: PreparedSuite, database: Path | None) -> None:
    """See that no workspace is a copy of what holds it, as far as that is known before the run.

    Args:
        prepared: The suite.
        database: Where the run is kept; None keeps nothing of it.

    Raises:
        UsageError: One would be.
    """
    if database is None or not has_agents(prepared):
        return
    kept = agents_folder(database, "run").parent.resolve()
    for part in prepared.parts:
        suite = part.prepared.suite
        if not isinstance(suite.settings, AgentSettings):
            continue
        templates = WorkspaceTemplates.of(part.prepared.around, part.prepared.templates)
        cases = (case_of(test) for test in suite.tests)
        own = (case.workspace for case in cases if case is not None)
        for said in dict.fromkeys((suite.settings.workspace, *own)):
            if said is None or is_template(said):
                continue
            folder = templates.find(said, {}).resolve()
            if kept.is_relative_to(folder):
                named = "" if part.id is None else f" of task {part.id}"
                message = (
                    f'the workspace "{said}"{named} holds {kept}, where the copies of it are made'
                )
                hint = "keep runs elsewhere with --db, or copy a folder that does not hold them"
                raise UsageError(f"{message}; {hint}")

"""The resources of a run's agents: a folder beside its database, and a queue shared with other programs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from trioeval.agent import is_agent
from trioeval.agent.cases import WorkspaceTemplates
from trioeval.agent.model import case_of
from trioeval.agent.open import AgentOptions
from trioeval.errors import UsageError
from trioeval.run import PreparedSuite
from trioeval.scaleout.agents import temporary_folder
from trioeval.store.database import OWN_FOLDER
from trioeval.store.planner.planner import open_planner
from trioeval.templates import is_template


def agents_folder(database: Path, run: str) -> Path:
    """Return the folder of a run's agents, which is beside its database.

    Example:
        >>> agents_folder(Path(".trioeval/results.db"), "eval-1").as_posix()
        '.trioeval/agents/eval-1'
        >>> agents_folder(Path("my.db"), "eval-1").as_posix()
        'my-agents/eval-1'
    """
    own = database.parent.name == OWN_FOLDER
    return database.with_name("agents" if own else f"{database.stem}-agents") / run


async def agent_options(
    prepared: PreparedSuite,
    database: Path | None,
    run: str,
    stack: AsyncExitStack,
    *,
    warn: Callable[[str], None],
    on_workers: bool = False,
) -> AgentOptions:
    """Return the folder and queue of a run's agents. A checkpoint if they use the queue.

    Args:
        prepared: The suite.
        database: The database of the run; None stores nothing, including the folders of cases.
        run: The id of the run.
        stack: Releases the resources at the end.
        warn: Called with problems that do not end the run.
        on_workers: Whether workers run the cases. They must know their folder, although nothing is stored.

    Raises:
        StoreError: The queue in the database cannot be used.
    """
    limit = prepared.suite.run_limits.max_concurrent_root_tasks
    planner = None
    if limit:
        planner = await stack.enter_async_context(open_planner(database, limit, warn=warn))
    folder = None if database is None else agents_folder(database, run)
    if folder is None and on_workers:
        folder = stack.enter_context(temporary_folder())
    return AgentOptions(folder=folder, planner=planner)


def check_workspaces(prepared: PreparedSuite, database: Path | None) -> None:
    """Raise if a workspace would be copied into itself, as far as that is known before the run.

    Args:
        prepared: The suite.
        database: The database of the run; None stores nothing.

    Raises:
        UsageError: A workspace contains the folder of agents.
    """
    if database is None:
        return
    copies = agents_folder(database, "run").parent.resolve()
    for part in prepared.parts:
        suite = part.prepared.suite
        if not is_agent(suite.settings):
            continue
        templates = WorkspaceTemplates.of(part.prepared.context, part.prepared.templates)
        cases = (case_of(test) for test in suite.tests)
        own = (case.workspace for case in cases if case is not None)
        for workspace in dict.fromkeys((suite.settings.workspace, *own)):
            if workspace is None or is_template(workspace):
                continue
            folder = templates.find(workspace, {}).resolve()
            if copies.is_relative_to(folder):
                named = "" if part.id is None else f" of task {part.id}"
                message = (
                    f'the workspace "{workspace}"{named} contains {copies}, '
                    "where its copies are created"
                )
                hint = (
                    "store runs elsewhere with --db, or use a workspace that does not contain them"
                )
                raise UsageError(f"{message}; {hint}")

"""What a plan tells of tasks of agents."""

from collections.abc import Iterator

from trioeval.agents.slots import AGENT_RUNS
from trioeval.report import inert
from trioeval.suite.agent_models import AgentSettings, RunLimits
from trioeval.suite.sizes import stretch_sizes
from trioeval.tasks import PreparedTask

_NAME = 60  # characters of a name


def agent_lines(part: PreparedTask, settings: AgentSettings) -> Iterator[str]:
    """How far the agents of a task may go.

    Args:
        part: The task.
        settings: Of its agents.
    """
    prepared = part.prepared
    waiting = 0
    for stretch, tests in stretch_sizes(prepared.steps):
        cases = prepared.steps.tests[stretch.first_place : stretch.first_place + tests]
        waits = sum(test.case is not None and bool(test.case.depends_on) for test in cases)
        waiting += waits * stretch.shape.steps
    workspace = "empty" if settings.workspace is None else inert(settings.workspace, _NAME)
    several = "1 case waits" if waiting == 1 else f"{waiting} cases wait"
    told = f"; {several} for others" if waiting else ""
    yield f"  workspace {workspace}, done with {inert(settings.done_file, _NAME)}{told}"
    lanes = {prepared.lane_names[column.provider_index] for column in prepared.steps.columns}
    yield f"  a case: {', '.join(_bounds(settings, has_models=bool(lanes - {AGENT_RUNS})))}"


def _bounds(settings: AgentSettings, *, has_models: bool) -> Iterator[str]:
    yield f"at most {settings.max_restarts} attempts"
    if settings.attempt_timeout is not None:
        yield f"{settings.attempt_timeout:g} seconds each"
    if has_models:
        yield f"{settings.max_steps} replies of a model each"
    if settings.max_tokens is not None:
        yield f"none after {settings.max_tokens} tokens"
    if settings.max_cost is not None:
        yield f"none after {settings.max_cost:g} US dollars"


def turns_line(limits: RunLimits) -> str | None:
    """How many cases are under way at once, where that is bounded.

    Example:
        >>> turns_line(RunLimits(max_concurrent_root_tasks=2))
        'cases of agents take turns: 2 under way at once, over all programs that share the database'
    """
    most = limits.max_concurrent_root_tasks
    if not most:
        return None
    return f"cases of agents take turns: {most} under way at once, over all programs that share the database"

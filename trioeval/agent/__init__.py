"""Tasks of type `agent`: a command or provider that is started until its marker says that it is done.

`model` and `form` hold the settings and how a suite writes them; `task` is the plan and the body of a job.
`restarts` decides whether to start again and `loop` does it; `slots` and `planner` decide who may start;
`command_agent` and `model_agent` are what is started, in a `workspace`; `bus` carries messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from trioeval.agent.model import AgentSettings
    from trioeval.suite.model import TaskSettings


def is_agent(settings: TaskSettings) -> TypeGuard[AgentSettings]:
    """Return whether the settings of a task are those of this type, without importing the type."""
    return settings.type == "agent"

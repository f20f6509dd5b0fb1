"""Tasks of type `agent`: a command or provider that is started until its marker says that it is done.

`model` and `form` hold the settings and how a suite writes them; `task` is the plan and the body of a job.
`restarts` decides whether to start again and `loop` does it; `slots` and `planner` decide who may start;
`command_agent` and `model_agent` are what is started, in a `workspace`; `bus` carries messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

from trioeval.lazy import lazy_names

if TYPE_CHECKING:
    from trioeval.agent.bus.bus import Bus as Bus
    from trioeval.agent.bus.bus import open_bus as open_bus
    from trioeval.agent.bus.messages import Message as Message
    from trioeval.agent.bus.messages import MessageDraft as MessageDraft
    from trioeval.agent.bus.reading import read_bus as read_bus
    from trioeval.agent.in_process import AgentCase as AgentCase
    from trioeval.agent.in_process import run_agents as run_agents
    from trioeval.agent.loop import LoopEnd as LoopEnd
    from trioeval.agent.model import AgentSettings
    from trioeval.agent.open import AgentOptions as AgentOptions
    from trioeval.agent.planner import Submission as Submission
    from trioeval.agent.planner import planner_turn as planner_turn
    from trioeval.agent.restarts import Attempt as Attempt
    from trioeval.agent.restarts import AttemptEnd as AttemptEnd
    from trioeval.agent.restarts import AttemptFailure as AttemptFailure
    from trioeval.agent.restarts import RestartPolicy as RestartPolicy
    from trioeval.suite.model import TaskSettings
else:  # type checkers would accept any name
    __getattr__, __dir__, __all__ = lazy_names(
        "trioeval.agent",
        {
            "trioeval.agent.bus.bus": "Bus open_bus",
            "trioeval.agent.bus.messages": "Message MessageDraft",
            "trioeval.agent.bus.reading": "read_bus",
            "trioeval.agent.in_process": "AgentCase run_agents",
            "trioeval.agent.loop": "LoopEnd",
            "trioeval.agent.open": "AgentOptions",
            "trioeval.agent.planner": "Submission planner_turn",
            "trioeval.agent.restarts": "Attempt AttemptEnd AttemptFailure RestartPolicy",
        },
        own="is_agent",
    )


def is_agent(settings: TaskSettings) -> TypeGuard[AgentSettings]:
    """Return whether the settings of a task are those of this type, without importing the type."""
    return settings.type == "agent"

# Apart from `agent.task`: together they exceed 600 lines.
"""Who works on cases: a program in a process of its own, or a model with tools."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs

from trioeval.agent.bus_messages import CasePosts
from trioeval.agent.case_folder import CaseRoom
from trioeval.agent.child_runs import ChildRuns, open_child_runs
from trioeval.agent.command_agent import CommandAgent
from trioeval.agent.journal import AgentJournal
from trioeval.agent.model import AgentSettings
from trioeval.agent.model_agent import ModelAgent
from trioeval.agent.processes import end_survivors, open_family
from trioeval.agent.protocols import Agent, Family, Slots, at_once
from trioeval.agent.report_file import ReportTroubles
from trioeval.agent.slots import LaneSlots
from trioeval.agent.workspace_tools import WorkspaceTools
from trioeval.evaluation.prompt import Asked
from trioeval.evaluation.provider_calls import Asker
from trioeval.kernel import Calls
from trioeval.providers import Request
from trioeval.providers.programs.entries import AGENT_RUNS, CommandAgentSettings
from trioeval.suite.expand import Step
from trioeval.templates import Templates


@attrs.frozen(kw_only=True)
class Worker:
    """Who works on one case."""

    agent: Agent
    slots: Slots
    children: Family
    child_runs: ChildRuns | None = None
    """What its programs submit; None where it runs none."""


@attrs.frozen(kw_only=True)
class Workers:
    """Who works on the cases of one task."""

    settings: AgentSettings
    asker: Asker
    templates: Templates = attrs.field(repr=False)
    environ: Mapping[str, str] = attrs.field(repr=False)
    """Of commands that models run."""
    journal: AgentJournal | None
    reports: ReportTroubles

    def is_model(self, step: Step) -> bool:
        """Whether a model works on a case, whose calls are written down one by one."""
        return not isinstance(self._spec(step), CommandAgentSettings)

    def _spec(self, step: Step) -> object:
        return self.asker.providers[step.provider_index].spec.settings

    async def end_survivors(self) -> None:
        """End what earlier executions of the run have left running. A checkpoint."""
        left = () if self.journal is None else self.journal.left()
        await end_survivors((one.process for one in left), self.settings.grace)
        if self.journal is not None:
            for one in left:
                self.journal.gone(one.run_id)

    @asynccontextmanager
    async def of(
        self, step: Step, asked: Asked, room: CaseRoom, calls: Calls[Any], post: CasePosts
    ) -> AsyncGenerator[Worker]:
        """Who works on a case, for as long as the block."""
        settings = self._spec(step)
        if not isinstance(settings, CommandAgentSettings):
            async with open_family(self.settings.grace) as family:
                agent = self._model(step, asked, room, calls, post)
                yield Worker(agent=agent, slots=at_once, children=family)
            return
        # What stands first in the suite goes on first.
        slots = LaneSlots(calls, AGENT_RUNS, ahead=True)
        async with (
            open_child_runs(slots) as child_runs,
            open_family(self.settings.grace) as family,
        ):
            program = CommandAgent(
                settings=settings,
                room=room,
                templates=self.templates,
                family=family,
                journal=self.journal,
                timeout=self.settings.attempt_timeout,
                max_processes=self.settings.max_processes,
                reports=self.reports,
                child_runs=child_runs,
            )
            yield Worker(
                agent=program,
                slots=child_runs,
                children=family,
                child_runs=child_runs,
            )

    def _model(
        self, step: Step, asked: Asked, room: CaseRoom, calls: Calls[Any], post: CasePosts
    ) -> ModelAgent:
        request = Request(
            prompt=asked.prompt,
            vars=asked.vars,
            options=asked.options,
            test_idx=step.test_idx,
            prompt_idx=step.prompt_idx,
            repeat_index=step.repeat_index,
        )
        return ModelAgent(
            asker=self.asker,
            index=step.index,
            place=step.provider_index,
            calls=calls,
            request=request,
            files=room.files,
            settings=self.settings,
            tools=WorkspaceTools.of(room.files, self.settings, self.environ, post),
        )

# Apart from `agent.task`: together they exceed 600 lines.
"""Who works on cases: a program in a process of its own, or a model with tools."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import attrs
import trio

from trioeval.agent.bus_messages import Posts
from trioeval.agent.case_folder import CaseRoom
from trioeval.agent.child_runs import ChildRuns, open_child_runs
from trioeval.agent.command_agent import CommandAgent
from trioeval.agent.journal import AgentJournal, ProcessIdentity, RunningAttempt
from trioeval.agent.model import AgentSettings
from trioeval.agent.model_agent import ModelAgent
from trioeval.agent.processes import end_survivors, open_family
from trioeval.agent.protocols import Agent, Children, Slots
from trioeval.agent.report_file import ReportTroubles
from trioeval.agent.restarts import Attempt, AttemptEnd
from trioeval.agent.workspace_tools import WorkspaceTools
from trioeval.evaluation.prompt import Asked
from trioeval.evaluation.provider_calls import Asker
from trioeval.kernel import Calls, Metered
from trioeval.providers import Request
from trioeval.providers.programs.entries import AGENT_RUNS, CommandAgentSettings
from trioeval.suite.expand import Step
from trioeval.templates import Templates

R = TypeVar("R")

_LEAST = 1e-6
"""US dollars that have to be left for an attempt to begin: budgets count millionths."""


@attrs.frozen(kw_only=True)
class Worker:
    """Who works on one case."""

    agent: Agent
    slots: Slots
    children: Children
    is_model: bool
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
        self, step: Step, asked: Asked, room: CaseRoom, calls: Calls[Any], post: Posts
    ) -> AsyncGenerator[Worker]:
        """Who works on a case, for as long as the block."""
        settings = self._spec(step)
        if not isinstance(settings, CommandAgentSettings):
            await trio.lowlevel.checkpoint()
            yield self._model(step, asked, room, calls, post)
            return
        ledger = None
        if self.journal is not None:
            row, name = self.asker.row_ids(step.index), self.asker.names[step.provider_index]
            ledger = _Ledger(self.journal, step.index, row, name)
        async with (
            open_child_runs(_LaneSlots(calls)) as child_runs,
            open_family(self.settings.grace) as family,
        ):
            agent = CommandAgent(
                settings=settings,
                room=room,
                templates=self.templates,
                family=family,
                ledger=ledger,
                timeout=self.settings.attempt_timeout,
                max_processes=self.settings.max_processes,
                reports=self.reports,
                child_runs=child_runs,
            )
            yield Worker(
                agent=agent,
                slots=child_runs,
                children=family,
                is_model=False,
                child_runs=child_runs,
            )

    def _model(
        self, step: Step, asked: Asked, room: CaseRoom, calls: Calls[Any], post: Posts
    ) -> Worker:
        request = Request(
            prompt=asked.prompt,
            vars=asked.vars,
            options=asked.options,
            test_idx=step.test_idx,
            prompt_idx=step.prompt_idx,
            repeat_index=step.repeat_index,
        )
        agent = ModelAgent(
            asker=self.asker,
            index=step.index,
            place=step.provider_index,
            calls=calls,
            request=request,
            files=room.files,
            settings=self.settings,
            tools=WorkspaceTools.of(room.files, self.settings, self.environ, post),
        )
        return Worker(agent=agent, slots=_NoSlots(), children=_NoChildren(), is_model=True)


@attrs.frozen
class _LaneSlots:
    """Run slots: a lane like any other.

    What an attempt will use nobody knows before it is over. So it begins where anything at all is left of the
    budget of the run, and is settled to what it reports.
    """

    calls: Calls[Any]

    async def __call__(self, run: Callable[[], Awaitable[R]], /) -> R:
        """Run something in a slot; what it used is settled, where it says so."""

        async def send() -> Metered[R]:
            result = await run()
            if not isinstance(result, AttemptEnd):
                return Metered(result, tokens=0, money=0.0)
            return Metered(result, tokens=result.usage.in_all or 0, money=result.cost or 0.0)

        # What stands first in the suite goes on first.
        return await self.calls(AGENT_RUNS, send, tokens=1, money=_LEAST, ahead=True)


@attrs.frozen
class _NoSlots:
    """A model needs none: each of its replies is a call on the lane of its provider."""

    async def __call__(self, run: Callable[[], Awaitable[R]], /) -> R:
        """Run something at once."""
        return await run()


@attrs.frozen
class _NoChildren:
    """A model starts nothing that lives on."""

    def alive(self) -> Sequence[str]:
        """Nothing."""
        return ()

    async def wait(self) -> None:
        """There is nothing to wait for. A checkpoint."""
        await trio.lowlevel.checkpoint()

    async def end(self) -> None:
        """There is nothing to end. A checkpoint."""
        await trio.lowlevel.checkpoint()


@attrs.frozen
class _Ledger:
    """Writes down the processes of one case."""

    journal: AgentJournal
    index: int
    row: str
    agent: str

    def started(self, attempt: Attempt, process: ProcessIdentity, /) -> None:
        """A process is about to begin, or has begun."""
        self.journal.started(
            RunningAttempt(
                run_id=attempt.run_id,
                index=self.index,
                row=self.row,
                number=attempt.number,
                agent=self.agent,
                process=process,
            )
        )

    def gone(self, attempt: Attempt, /) -> None:
        """Nothing of it is left."""
        self.journal.gone(attempt.run_id)

    async def durable(self) -> None:
        """Return when what was written down so far is safe."""
        await self.journal.durable()

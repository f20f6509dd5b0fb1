"""The cases of a task that other processes work on: they wait here, and are placed one by one.

Dependencies, the planner and the folders of cases belong to the process of the run, so that they mean the
same as when it works on all cases itself. Another process gets a case when it is its turn, and works on it
until it is done, given up or stopped.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import attrs
import trio

from trioeval.agent.loop import LoopEnd, LoopEnding
from trioeval.agent.protocols import AgentEvent, AttemptEnded, AttemptStarted
from trioeval.agent.task import AgentAnswerer
from trioeval.evaluation.prompt import RenderedPrompt
from trioeval.evaluation.row import Row
from trioeval.kernel import Calls, Job, StopReason
from trioeval.suite.expand import Step


@attrs.frozen(eq=False, repr=False)
class PlacedCases:
    """The cases of one task of a run; implements `RowsElsewhere`."""

    _agents: AgentAnswerer
    _build: Callable[[Step], Awaitable[RenderedPrompt]]
    """Returns the prompt of a row."""
    _running: dict[str, AttemptStarted] = attrs.field(init=False, factory=dict)
    """The attempts that have started and not ended, by case."""

    async def run(
        self, job: Job[Any], calls: Calls[Any], perform: Callable[[], Awaitable[Row | None]], /
    ) -> None:
        """Let another process work on a case as soon as it is its turn. A checkpoint.

        Raises:
            Exception: As for `AgentAnswerer.place`.
        """
        step: Step = job.payload

        async def work() -> LoopEnd:
            row = await perform()
            return LoopEnd(ending=ending_of(row), message="", attempts=())

        if step.test.fault is None and step.test.provider_output is None:
            prompt = await self._build(step)
            try:
                await self._agents.place(step, prompt, calls, work)
            finally:
                self._end_attempt(self._agents.names.folder_names[step.index])
        else:  # no agent works on it
            row = await perform()
            self._agents.on_row_end(step, StopReason.STOP if row is None else row.cut)

    def on_event(self, event: object, /) -> None:
        """Report an event of a case in another process, as of now."""
        if not isinstance(event, AgentEvent):
            raise TypeError(event)
        event = attrs.evolve(event, at=trio.current_time())
        if isinstance(event, AttemptStarted):
            self._end_attempt(event.case)  # its process was lost
            self._running[event.case] = event
        elif isinstance(event, AttemptEnded):
            self._running.pop(event.case, None)
        self._report(event)

    def _end_attempt(self, case: str) -> None:
        """Report the end of an attempt whose process was lost before it reported that."""
        started = self._running.pop(case, None)
        if started is not None:
            end = AttemptEnded(
                at=trio.current_time(),
                task=started.task,
                case=case,
                agent=started.agent,
                number=started.number,
                run_id=started.run_id,
                failed=False,
                cancelled=True,
            )
            self._report(end)

    def _report(self, event: AgentEvent) -> None:
        if self._agents.observe is not None:
            self._agents.observe(event)


def ending_of(row: Row | None) -> LoopEnding:
    """Return how the work on a case ended, from its row; None is a case that was never started."""
    if row is None or row.cut is not None:
        return "interrupted"
    facts = None if row.reply is None else row.reply.metadata.get("agent")
    return "done" if isinstance(facts, Mapping) and facts["outcome"] == "done" else "failed"

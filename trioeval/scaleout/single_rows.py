# Separate from `scaleout.coordinator`: rows that wait for each other, or whose number at once is bounded.
"""The rows of a task that are sent to workers one by one, each as a job of the coordinator's kernel.

Questions are sent so, because their task may bound the questions that run at once, on each lane; and the
cases of agents, because they wait for each other and for the planner before a worker may start them. The
plan has the order of the task, so a row is sent when those that it reads from have ended, with what they
left, and a `runSerially` row while no worker runs another one.

Laws: TOTAL, ORDER, ONCE, BLOCK, SERIAL.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from trioeval.evaluation.elsewhere import RowsElsewhere
from trioeval.evaluation.row import Row
from trioeval.evaluation.task_run import OpenTask
from trioeval.evaluation.waits import NO_WAITS
from trioeval.kernel import Calls, Failed, Job, Outcome, Plan
from trioeval.question_eval.events import QuestionEvents
from trioeval.scaleout.blocks import RowSender, SentTask
from trioeval.scaleout.questions import SentQuestions
from trioeval.sequences import LazySequence


class SentSingly(SentTask):
    """The body of a task whose rows are sent one by one.

    Args:
        sender: Sends the rows.
        task: The id of the task.
        open_task: The task on this machine.
        group_of: Returns the group of the row of a job.
    """

    def __init__(
        self,
        sender: RowSender,
        task: str | None,
        open_task: OpenTask,
        group_of: Callable[[int], str | None],
    ) -> None:
        super().__init__(
            sender,
            task,
            open_task.body,
            row_of=open_task.row_of,
            group_of=group_of,
            size=1,
            memory=open_task.memory,
        )
        self._elsewhere: RowsElsewhere | None = open_task.elsewhere

    def plan(self) -> Plan[Any]:
        """Return the plan of the task, without its timeouts, which workers observe."""
        super().plan()
        plan = self.body.plan()
        return attrs.evolve(plan, jobs=_UntimedJobs(plan.jobs), needs_no_lane=None)

    async def perform(self, job: Job[Any], calls: Calls[Any]) -> None:
        """Wait until the row of a job may be sent, and for its result.

        Raises:
            TrioevalError: The row cannot run, or never will.
        """
        perform = functools.partial(self._perform, job.index, calls)
        if self._elsewhere is None:
            await perform()
        else:
            await self._elsewhere.run(job, calls, perform)

    async def _perform(self, index: int, calls: Calls[Any]) -> Row | None:
        """Send a row, and return its result; None without one."""
        await super().perform(Job(index, None, range(index, index + 1)), calls)
        return next(iter(self._blocks[index].arrived.values()), None)

    def rows(self, outcome: Outcome[Any], waits: Mapping[str, float] = NO_WAITS) -> Sequence[Row]:
        """Return the row of a job: that of its worker, or one with the reason why it has none."""
        block = self._blocks.get(outcome.index)
        if isinstance(outcome, Failed) and (block is None or not block.arrived):
            self._blocks.pop(outcome.index, None)
            return self.body.rows(outcome, waits)
        return super().rows(outcome, waits)


@attrs.frozen
class _UntimedJobs(LazySequence[Job[Any]]):
    """The jobs of a task without their timeouts, created on access."""

    whole: Sequence[Job[Any]]

    def __len__(self) -> int:
        return len(self.whole)

    def entry(self, index: int) -> Job[Any]:
        return attrs.evolve(self.whole[index], timeout=float("inf"))


def is_sent_singly(task: OpenTask) -> bool:
    """Return whether the rows of a task are sent one by one."""
    return task.elsewhere is not None or isinstance(task.observer, QuestionEvents)


def sent_singly(
    sender: RowSender,
    task_id: str | None,
    task: OpenTask,
    group_of: Callable[[int], str | None],
) -> OpenTask:
    """Return a task whose rows run on workers, as many at once as without workers.

    Args:
        sender: Sends the rows.
        task_id: The id of the task.
        task: The task.
        group_of: Returns the group of the row of a job.
    """
    body = SentSingly(sender, task_id, task, group_of)
    found = attrs.evolve(task, body=body, salvage_rounds=0, on_start=body.start)
    if isinstance(task.observer, QuestionEvents):
        found = attrs.evolve(found, observer=SentQuestions(task.observer, task.stop))
    return found

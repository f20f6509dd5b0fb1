"""A resumed task: only rows without a result are run.

The kernel gets the plan of the remaining jobs, see `TaskPart`. For the readiness of the whole plan, kept jobs
have ended successfully as soon as they may start.

Kept rows have stored outputs in registers and turns in conversations. Those are restored from the records
before anything starts, so that a row sees what an uninterrupted run would have shown it.

Rows that are compared with each other are kept together or not at all.

Laws: ONCE, RESUME.
"""

import itertools
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import trio

from trioeval.evaluation.groups import Layout
from trioeval.evaluation.journal import ReusedRows
from trioeval.evaluation.task_part import TaskPart
from trioeval.evaluation.task_run import Body
from trioeval.suite.expand import Expansion, Step

_STRIDE = 100  # rows that are restored between two checkpoints


class RowMemory(Protocol):
    """The data that rows leave for later ones; `Tools` implements it."""

    @property
    def shares_data(self) -> bool:
        """True if any row may leave data."""
        ...

    def may_store(self, step: Step, /) -> bool:
        """Return whether a row may store its output."""
        ...

    def may_share(self, step: Step, /) -> bool:
        """Return whether a row may store its output, or a turn."""
        ...

    def restore(self, step: Step, record: Mapping[str, Any], /) -> None:
        """Restore the data that a recorded row left."""
        ...

    def on_row_end(self, step: Step, /) -> None:
        """Handle the end of a row; all rows with a lower index have ended."""
        ...


class ResumedTask(TaskPart):
    """A task body without the kept rows; used for one run.

    Args:
        body: The body of the whole task.
        kept: The rows with results.
        steps: All of its steps.
        layout: The mapping of jobs to steps, if some jobs compare others.
        memory: The data that the rows share.
    """

    def __init__(
        self,
        body: Body,
        kept: ReusedRows,
        steps: Expansion,
        layout: Layout | None,
        memory: RowMemory,
    ) -> None:
        self._records = kept
        self._steps = steps
        self._layout = layout if layout is not None and layout.compares else None
        self._memory = memory
        self._is_kept = bytearray(index in kept for index in range(len(steps)))
        if self._layout is not None:
            self._keep_whole_groups(self._layout)
        super().__init__(body, array("q", self._left_over()))

    def kept_rows(self) -> Sequence[int]:
        """Return the indices of the kept rows, ascending."""
        return array("q", itertools.compress(range(len(self._is_kept)), self._is_kept))

    def without_kept(self, rows: Body) -> TaskPart:
        """Return the part of a body whose jobs are the rows, without the kept ones."""
        left = (index for index, is_kept in enumerate(self._is_kept) if not is_kept)
        return TaskPart(rows, array("q", left))

    async def restore(self) -> None:
        """Restore the data of kept rows that others may see. Called first; a checkpoint."""
        await trio.lowlevel.checkpoint()
        first, last = self._is_kept.find(0), self._is_kept.rfind(0)
        if first < 0 or not self._memory.shares_data:
            return
        # Remaining serial rows read from before all rows that run with others, wherever they are in the
        # suite.
        serial = self._steps.serial_indices
        settles = all(self._is_kept[index] for index in serial)
        # Serial rows are restored before any row is settled below, in the order in which they ran.
        for index in serial:
            if self._is_kept[index]:
                self._restore(self._steps[index])
        for count, index in enumerate(self.kept_rows(), 1):
            step = self._steps[index]
            if index < last and not step.test.options.run_serially:
                self._restore(step)
            if settles and index < first:
                self._memory.on_row_end(step)
            if count % _STRIDE == 0:
                await trio.lowlevel.checkpoint()

    def _restore(self, step: Step) -> None:
        if self._memory.may_share(step):
            self._memory.restore(step, self._records.record(step.index))

    def _keep_whole_groups(self, layout: Layout) -> None:
        for span in layout.spans:
            for start in range(span.start, span.stop, span.width) if span.compared else ():
                group = range(start, start + span.width)
                if not all(self._is_kept[start : group.stop]) or self._is_unclear(group):
                    self._is_kept[start : group.stop] = bytes(span.width)

    def _is_unclear(self, group: range) -> bool:
        """Return whether a row may have stored its output before it was compared, but has no verdict."""
        return self._memory.shares_data and any(
            self._memory.may_store(self._steps[index])
            and self._records.record(index).get("gradingResult") is None
            for index in group
        )

    def _left_over(self) -> Iterator[int]:
        """Return the remaining jobs of the whole plan, ascending."""
        layout = self._layout
        if layout is None:
            return (index for index, is_kept in enumerate(self._is_kept) if not is_kept)
        return (job for job in range(len(layout)) if not self._is_kept[_step_of(job, layout)])


def _step_of(job: int, layout: Layout) -> int:
    """Return the step of a job, or the first one that it compares."""
    step, group = layout.step(job), layout.group(job)
    return group.start if step is None and group is not None else step or 0

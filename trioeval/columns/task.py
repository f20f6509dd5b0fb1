# Apart from `run.open_task`: it belongs to this package, which the other only uses.
"""A task of type `columns` whose turn comes.

What is known when the run begins is opened and looked at then, so that a folder that may not be used is told
before anything is asked. A seed that is made of the rows of an earlier task is known when that is over.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack

import attrs
import trio

from trioeval.columns.finish import MemoryOutput
from trioeval.columns.makers.seeds import Source, seed_rows
from trioeval.columns.model import ColumnsSettings, SeedColumns
from trioeval.columns.open import DatasetParts, open_run
from trioeval.columns.result import DatasetResult
from trioeval.columns.run import DatasetRun
from trioeval.evaluation.outcomes import TaskEnd
from trioeval.evaluation.task_run import TaskRun
from trioeval.kernel import Cut
from trioeval.suite.dependencies import Lacking


@attrs.frozen(eq=False)
class DatasetTask:
    """A dataset whose turn comes; see `trioeval.run.task_graph.Runnable`."""

    parts: DatasetParts
    run: DatasetRun | None
    """The dataset; None if its seeds are known later."""

    @property
    def lanes(self) -> Collection[str]:
        """Those that its prepared suite describes."""
        return [spec.name for spec in self.parts.prepared.lane_specs]

    async def perform(self, run: TaskRun, lacking: Lacking | None, /) -> TaskEnd:
        """Build it. A checkpoint.

        Raises:
            TrioevalError: A seed cannot be read, or the folder not be used.
        """
        missing = [one for one in _of_tasks(self.parts.settings) if not self._is_there(one)]
        if lacking is not None or missing:
            await trio.lowlevel.checkpoint()
            is_cut = lacking is not None and lacking.how == "cut"
            why = Cut.BUDGET.value if is_cut else "stop" if lacking is None else "blocked"
            task, rows = self.parts.task, self.parts.settings.rows or 0
            told = DatasetResult(task=task, requested=rows, written=0, not_run={why: rows})
            self.parts.told.tell(told, ())
            return "cut" if is_cut else "incomplete"
        with ExitStack() as stack:
            dataset = self.run
            if dataset is None:
                dataset = await open_run(self.parts, await self._all_seeds(), stack)
            return await self._build(dataset, run)

    async def _build(self, dataset: DatasetRun, run: TaskRun) -> TaskEnd:
        parts, output = self.parts, dataset.output
        result: DatasetResult | None = None
        try:
            result = await dataset.build(
                run.lanes,
                deadline=run.deadline,
                stop=run.stop,
                observe=run.observer(parts.task, dataset.job_name),
                budget=run.budget,
                max_live_jobs=parts.prepared.suite.evaluate_options.max_live_jobs,
            )
        finally:
            if result is None:
                result = dataset.result(trio.current_time())
            output.close()
            left = None if parts.task is None else parts.left.get(parts.task)
            if left is not None and result.outcome == "complete":
                left.put(output.rows_written())
                left.is_complete = True
            parts.told.tell(result, output.numbered if isinstance(output, MemoryOutput) else ())
        if result.outcome == "complete":
            return "complete"
        is_cut = result.error is None and set(result.not_run) == {Cut.BUDGET.value}
        return "cut" if is_cut else "incomplete"

    async def _all_seeds(self) -> Mapping[str, Source]:
        """Those of files, and those that earlier tasks have left."""
        seeds, left = _of_tasks(self.parts.settings), self.parts.left

        def read() -> dict[str, Source]:
            return {
                seed.name: seed_rows(left[task].rows(), seed.columns, f"task {task}")
                for seed in seeds
                if (task := seed.from_task) is not None
            }

        found = await trio.to_thread.run_sync(read, abandon_on_cancel=True)
        return {**self.parts.seeds, **found}

    def _is_there(self, seed: SeedColumns) -> bool:
        return seed.from_task is not None and self.parts.left[seed.from_task].is_complete


async def open_dataset(parts: DatasetParts, stack: AsyncExitStack) -> DatasetTask:
    """A dataset, opened as far as it can be known. A checkpoint.

    Args:
        parts: What is open.
        stack: What lets go of its folder, also where the run never comes to it.

    Raises:
        SuiteError: A seed cannot be read; tells of all that is wrong with it.
        DatasetError: The folder cannot be used.
    """
    if _of_tasks(parts.settings):
        await trio.lowlevel.checkpoint()
        return DatasetTask(parts, None)
    return DatasetTask(parts, await open_run(parts, parts.seeds, stack))


def _of_tasks(settings: ColumnsSettings) -> Sequence[SeedColumns]:
    """The seeds that are rows of earlier tasks."""
    seeds = [one for one in settings.columns if isinstance(one, SeedColumns)]
    return [one for one in seeds if one.from_task is not None]

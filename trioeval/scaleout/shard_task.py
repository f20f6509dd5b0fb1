# Separate from `scaleout.worker`: the plan of a shard, without sessions and messages.
"""The part of a task that a shard is: its rows, in their order, with what earlier rows left.

The order of the rows of a shard is that of the whole task. What they read from rows of other shards came with
the shard, because these have ended.

Laws: BLOCK, SERIAL.
"""

from collections.abc import Callable, Sequence

import attrs

from trioeval.evaluation.groups import GroupReadiness, Layout
from trioeval.evaluation.prepared import PreparedTask
from trioeval.evaluation.task_part import TaskPart
from trioeval.evaluation.task_run import OpenTask
from trioeval.kernel import Readiness
from trioeval.question_eval.events import QuestionEvents
from trioeval.scaleout.messages import Shard
from trioeval.suite.expand import StepSpan


def shard_task(shard: Shard, part: PreparedTask, task: OpenTask) -> OpenTask:
    """Return a task that runs only the rows of a shard.

    Args:
        shard: The shard.
        part: The task.
        task: The open task.
    """
    if shard.shared is not None and task.memory is not None:
        task.memory.add(shard.shared)
    order = part.prepared.order_among(shard.rows)
    whole = Layout.of(part.prepared.steps.spans)
    jobs: Sequence[int] = shard.rows
    if whole.compares:
        layout, jobs = layout_of_rows(whole, shard.rows)
        order = _compared_order(layout, order)
    body = TaskPart(task.body, jobs, order)
    if isinstance(task.observer, QuestionEvents):
        task.observer.rows = shard.rows
    row_of = task.row_of
    return attrs.evolve(
        task,
        body=body,
        row_of=lambda place: row_of(body.job(place)),
        # All rows of a shard may run at once: their number is bounded.
        max_live_jobs=max(1, len(jobs)),
        stop=None,  # the coordinator starts no more rows after a failure that is to stop the task
        hooks=None,  # the coordinator calls extensions at the end of the run
        rows_for_later_tasks=None,
    )


def layout_of_rows(whole: Layout, rows: Sequence[int]) -> tuple[Layout, Sequence[int]]:
    """Return the layout of some rows of a task, and their jobs in the whole plan.

    Args:
        whole: The layout of the task.
        rows: The rows, ascending; of compared rows all or none.
    """
    spans: list[StepSpan] = []
    jobs: list[int] = []
    place = 0
    while place < len(rows):
        job = whole.job(rows[place])
        group = whole.group(job)
        width = 1 if group is None else group.stop - group.start
        jobs += range(job, job + width + (group is not None))
        spans.append(StepSpan(place, place + width, width, compared=group is not None))
        place += width
    return Layout.of(spans), jobs


def _compared_order(
    layout: Layout, order: Callable[[], Readiness] | None
) -> Callable[[], Readiness]:
    return lambda: GroupReadiness(layout, None if order is None else order())

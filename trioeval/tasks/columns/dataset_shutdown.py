"""What an early shutdown puts an end to: rows that would ask somebody again. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from trioeval.datasets.numbering import Numbering
from trioeval.datasets.result import DroppedRow
from trioeval.datasets.tracker import MakeJob
from trioeval.tasks.columns.dataset_endings import left_out
from trioeval.tasks.columns.dataset_groups import GroupState, ReadyJob
from trioeval.tasks.columns.dataset_spec import DatasetSpec
from trioeval.tasks.columns.making import OWN_LANES


def hopeless(
    spec: DatasetSpec,
    numbering: Numbering,
    group: GroupState,
    ready: Mapping[int, ReadyJob],
    rows: Iterable[tuple[int, Mapping[str, Any]]],
    *,
    finishes: Collection[str] = OWN_LANES,
) -> Sequence[DroppedRow]:
    """The rows of a group that are not finished.

    Such a row lacks something that would be asked for, or made by code that fails, and was not begun. What is
    begun comes to its end, and so does what was set aside for another round: a mishap is no failure for good.

    Args:
        spec: Of the dataset.
        numbering: Of its jobs.
        group: Theirs.
        ready: Jobs that may start or have started.
        rows: Those that are left, with what they have.
        finishes: Lanes whose jobs are still made.
    """

    def lacks(row: int, has: Mapping[str, Any]) -> str | None:
        """The first column that a row lacks, is made on another lane, and is not begun."""
        for place, producer in enumerate(spec.graph.producers):
            if spec.makings[place].maker.lane in finishes or producer.name in has:
                continue
            unit = row if producer.scope == "cell" else None
            if (place, group.number if unit is None else row) in group.records:
                continue
            index = numbering.index(MakeJob(place, group.number, unit))
            job = ready.get(index)
            if job is None or (job.lane not in finishes and index not in group.begun):
                return producer.name
        return None

    told = ((row, lacks(row, has)) for row, has in rows)
    return [left_out(row, "early_shutdown", name) for row, name in told if name is not None]

"""The jobs of a dataset as the indices of a plan, by arithmetic.

Only groups that are not written yet have indices, so a run that is resumed has a plan of what is left. Within a
group: scratch producers, the stage before all others, the cells row by row, full producers, the last stage.
"""

from collections.abc import Iterable

from trioeval.datasets.graph import ColumnGraph
from trioeval.datasets.grouping import Grouping
from trioeval.datasets.tracker import MakeJob


class Numbering:
    """From index to job and back.

    Args:
        graph: Who makes what.
        grouping: Which rows make which group.
        written: Groups that have no jobs any more. Memory is in proportion to the runs of neighbours among
            them, not to their number.
    """

    def __init__(self, graph: ColumnGraph, grouping: Grouping, written: Iterable[int] = ()) -> None:
        raise NotImplementedError

    def __len__(self) -> int:
        """How many jobs there are."""
        raise NotImplementedError

    @property
    def groups(self) -> Iterable[int]:
        """The groups that have jobs, in order; made as it is walked."""
        raise NotImplementedError

    def job(self, index: int) -> MakeJob:
        """The job of an index."""
        raise NotImplementedError

    def index(self, job: MakeJob) -> int:
        """The index of a job."""
        raise NotImplementedError

"""Whose turn it is on a lane: columns share it by weight, and older groups come first. Pure.

Start-time fair queueing (Goyal, Vin, Cheng 1996): a job gets a start tag when it becomes ready, the larger of its
column's last finish tag and the lane's virtual time, which is the start tag of the job that started last. Its
finish tag is 1/weight later. Jobs start in the order of their tags. A column that was idle claims nothing for that
time, and one that is alone has the whole lane.
"""


class FairLine:
    """The ranks of the jobs of one lane."""

    def rank(self, column: int, group: int, weight: float = 1.0) -> tuple[float, float]:
        """Where a job stands that has become ready: lower ranks start first.

        Args:
            column: Whose job it is.
            group: Its row group.
            weight: The share of the column, > 0.
        """
        raise NotImplementedError

    def started(self, rank: tuple[float, float]) -> None:
        """The job of this rank has started."""
        raise NotImplementedError

"""Whose turn it is on a lane: older groups come first, and columns of a group share it by weight. Pure.

Start-time fair queueing (Goyal, Vin, Cheng 1996) within each group: a job gets a start tag when it becomes
ready, the larger of its column's last finish tag and the group's virtual time, which is the start tag of the
job that started last. Its finish tag is 1/weight later. Jobs start in the order of their tags. A column that
was idle claims nothing for that time, and one that is alone has the whole lane. Of two columns f and m that
have ready jobs all the while, neither is ahead by more than 1/weight_f + 1/weight_m, in jobs per weight.

Tags are of one group and not of the lane: else a column that was far ahead in a later group would have to
wait for the others when work of it comes up in an older one.
"""

from collections import defaultdict

import attrs


@attrs.define(eq=False)
class _Group:
    virtual_time: float = 0.0
    finish_tags: defaultdict[int, float] = attrs.field(factory=lambda: defaultdict(float))
    """By column: when its last job that has become ready would be over."""


class FairLine:
    """The ranks of the jobs of one lane."""

    def __init__(self) -> None:
        self._groups: defaultdict[int, _Group] = defaultdict(_Group)

    def rank(self, column: int, group: int, weight: float = 1.0) -> tuple[float, float]:
        """Where a job stands that has become ready: lower ranks start first.

        Args:
            column: Whose job it is.
            group: Its row group.
            weight: The share of the column, > 0.

        Example:
            >>> line = FairLine()
            >>> ranks = [line.rank(column, 7) for column in (0, 0, 0, 1)]
            >>> ranks.sort()
            >>> ranks
            [(7, 0.0), (7, 0.0), (7, 1.0), (7, 2.0)]
        """
        state = self._groups[group]
        tag = max(state.finish_tags[column], state.virtual_time)
        state.finish_tags[column] = tag + 1 / weight
        return (group, tag)

    def started(self, rank: tuple[float, float]) -> None:
        """The job of this rank has started."""
        group, tag = rank
        if state := self._groups.get(int(group)):
            state.virtual_time = max(state.virtual_time, tag)

    def close(self, group: int) -> None:
        """Forget a group: nothing of it will become ready any more."""
        self._groups.pop(group, None)

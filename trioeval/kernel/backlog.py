"""The jobs of a plan that are not started, lane by lane, as integers.

One cursor walks the plan once. What it passes on the way to a lane's next job belongs to other lanes and
waits in their queues, eight bytes each. So the pending part of a plan costs nothing, whatever its length,
and a lane that stands still never hides the jobs of another. The walk goes in strides: a lane whose next
job is a million jobs away must not hold up the others while it is looked for.
"""

from array import array
from collections.abc import Collection
from typing import Generic

import attrs

from trioeval.kernel.jobs import Job, P, Plan

_STRIDE = 1000  # jobs that one look walks past; the rest of the world waits meanwhile
_COMPACT_AT = 4096  # consumed entries of a queue that are cut off at once


@attrs.define(eq=False)
class _Queue:
    """A first-in first-out queue of indices."""

    items: "array[int]" = attrs.field(factory=lambda: array("q"))
    head: int = 0

    def push(self, index: int) -> None:
        self.items.append(index)

    def pop(self) -> int | None:
        if self.head == len(self.items):
            return None
        index = self.items[self.head]
        self.head += 1
        if self.head == _COMPACT_AT:
            del self.items[: self.head]
            self.head = 0
        return index


@attrs.define(eq=False)
class Backlog(Generic[P]):
    """Hands out the jobs of each lane in index order, each once."""

    _plan: Plan[P]
    _skip: Collection[int] = frozenset()
    """Indices that are run elsewhere: the serial ones."""
    _cursor: int = 0
    _queues: dict[str, _Queue] = attrs.field(init=False)
    _heads: dict[str, Job[P]] = attrs.field(factory=dict)
    """Jobs that `has` came upon and nobody has popped."""

    def __attrs_post_init__(self) -> None:
        self._queues = {lane: _Queue() for lane in self._plan.lanes}

    def has(self, lane: str) -> bool | None:
        """Whether the lane has another job; None if the walk has to go on to tell: ask again.

        Raises:
            PlanError: A job on the way is not as the plan declares it.
        """
        if lane not in self._heads:
            job = self.pop(lane)
            if job is None:
                return None if self._cursor < len(self._plan.jobs) else False
            self._heads[lane] = job
        return True

    def pop(self, lane: str) -> Job[P] | None:
        """The lane's next job, which is then no longer pending; None if it was not come upon.

        Raises:
            PlanError: A job on the way is not as the plan declares it.
        """
        if self._heads and (head := self._heads.pop(lane, None)) is not None:
            return head
        index = self._queues[lane].pop()
        if index is not None:
            return self._plan.job(index)
        for _ in range(min(_STRIDE, len(self._plan.jobs) - self._cursor)):
            job = self._plan.job(self._cursor)
            self._cursor += 1
            if job.index in self._skip:
                continue
            if job.lane == lane:
                return job
            self._queues[job.lane].push(job.index)
        return None

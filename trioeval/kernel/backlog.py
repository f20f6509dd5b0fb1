"""The jobs of a plan that are not started, lane by lane, as integers.

One cursor walks the plan once. What it passes on the way to a lane's next job belongs to other lanes and
waits in their queues, eight bytes each. So the pending part of a plan costs nothing, whatever its length,
and a lane that stands still never hides the jobs of another. The walk goes in strides: a lane whose next
job is a million jobs away must not hold up the others while it is looked for.

A job that waits for others, or for its key, is passed by. It comes back, in index order among the jobs of
its lane, when the last of what it waits for is over: an outcome touches the jobs that wait for it and no
others.

Law: BLOCK.
"""

import heapq
from array import array
from collections.abc import Collection
from typing import Generic

import attrs

from trioeval.kernel.edges import Edges
from trioeval.kernel.jobs import Freed, Job, P, Plan
from trioeval.kernel.keys import Keys
from trioeval.kernel.readiness import Checked

_STRIDE = 1000  # jobs that one look walks past; the rest of the world waits meanwhile
_COMPACT_AT = 4096  # consumed entries of a queue that are cut off at once


@attrs.define(eq=False)
class _Queue:
    """A first-in first-out queue of indices."""

    items: "array[int]" = attrs.field(factory=lambda: array("q"))
    head: int = 0

    def __len__(self) -> int:
        return len(self.items) - self.head

    @property
    def first(self) -> int:
        return self.items[self.head]

    def push(self, index: int) -> None:
        self.items.append(index)

    def pop(self) -> int:
        index = self.items[self.head]
        self.head += 1
        if self.head == _COMPACT_AT:
            del self.items[: self.head]
            self.head = 0
        return index


@attrs.frozen
class Released:
    """What an outcome has changed."""

    lanes: Collection[str] = ()
    """Lanes that have a next job now and may not have had one."""
    blocked: Collection[tuple[int, int]] = ()
    """Jobs that never start, each with the job that blocks it."""


class Backlog(Generic[P]):
    """Hands out the jobs of each lane in index order, each once and when it may start.

    Args:
        plan: The plan.
        skip: Indices that are run elsewhere: the serial ones.
    """

    def __init__(self, plan: Plan[P], skip: Collection[int] = frozenset()) -> None:
        self._plan = plan
        self._skip = skip
        self._cursor = 0
        self._walked = {lane: _Queue() for lane in plan.lanes}
        self._freed: dict[str, list[int]] = {lane: [] for lane in plan.lanes}
        """Heaps of jobs that waited and do so no more."""
        self._pending = 0
        """Jobs in queues and heaps."""
        self._seen: Job[P] | None = None
        """The job that was looked for last, which mostly is the next one to be handed out."""
        self._size = len(plan.jobs)
        self._keys = Keys()
        self._edges = Edges.of(plan.edges) if plan.edges else None
        self._readiness: Checked | None = None
        self._dead: set[int] = set()
        """Blocked jobs that the cursor has not reached."""
        self.tracking = bool(plan.edges)
        """Whether outcomes can set jobs free."""
        if plan.readiness is not None:
            self.tracking = True
            self._cursor = self._size
            self._readiness = Checked(plan.readiness, self._size, skip)
            for index in self._readiness.begin():
                self._free(index)

    @property
    def walked(self) -> bool:
        """Whether the cursor has passed every job."""
        return self._cursor == self._size

    @property
    def empty(self) -> bool:
        """Whether no job may start that has not been handed out."""
        return self.walked and not self._pending

    def has(self, lane: str) -> bool | None:
        """Whether the lane has a next job now; None if the walk has to go on to tell: ask again.

        Raises:
            PlanError: A job on the way is not as the plan declares it.
        """
        if self._walked[lane] or self._freed[lane]:
            return True
        job = self._walk(lane)
        if job is None:
            return None if self._cursor < self._size else False
        self._queue(job)
        self._seen = job
        return True

    def first(self, lane: str) -> int | None:
        """The index of the lane's next job, if it has come upon one."""
        walked, freed = self._walked[lane], self._freed[lane]
        if walked and freed:
            return min(walked.first, freed[0])
        if walked:
            return walked.first
        return freed[0] if freed else None

    def pop(self, lane: str) -> Job[P] | None:
        """The lane's next job, which is then no longer pending; None if it was not come upon.

        Raises:
            PlanError: A job on the way is not as the plan declares it.
        """
        if not self._pending:
            return self._walk(lane)
        walked, freed = self._walked[lane], self._freed[lane]
        if not walked and not freed:
            return self._walk(lane)
        self._pending -= 1
        if freed and not (walked and walked.first < freed[0]):
            return self._plan.job(heapq.heappop(freed))
        index, seen = walked.pop(), self._seen
        return self._plan.job(index) if seen is None or seen.index != index else seen

    def put_back(self, index: int) -> str:
        """Let a job that was handed out start once more; returns its lane."""
        lane = self._plan.job(index).lane
        heapq.heappush(self._freed[lane], index)
        self._pending += 1
        return lane

    def blocks(self, index: int) -> bool:
        """Whether a job that is run elsewhere never starts."""
        return index in self._dead

    def over(self, index: int, *, done: bool) -> Released:
        """A job has its outcome."""
        lanes = set()
        heir = self._keys.over(index)
        if heir is not None and heir not in self._dead and not self._waits(heir):
            lanes.add(self.put_back(heir))
        freed = Freed()
        if self._edges is not None:
            freed = self._edges.over(index, done=done)
        elif self._readiness is not None:
            freed = self._readiness.over(index, done=done)
        for ready in freed.ready:
            if (lane := self._free(ready)) is not None:
                lanes.add(lane)
        self._dead.update(blocked for blocked, _ in freed.blocked)
        return Released(lanes, freed.blocked)

    def _free(self, index: int) -> str | None:
        """What a job depended on is over; returns its lane if the job may start now."""
        if index >= self._cursor or index in self._skip:
            return None  # the walk, or the serial line, will find it free
        job = self._plan.job(index)
        if self._readiness is not None and job.key is not None:
            self.tracking = True
            self._keys.take(index, job.key)
        return None if self._waits(index) else self.put_back(index)

    def _waits(self, index: int) -> bool:
        held = self._edges is not None and self._edges.holds(index)
        return held or self._keys.waits(index)

    def _walk(self, lane: str) -> Job[P] | None:
        end = min(self._cursor + _STRIDE, self._size)
        while self._cursor < end:
            job = self._plan.job(self._cursor)
            self._cursor += 1
            index = job.index
            if index in self._skip or index in self._dead:
                continue
            if job.key is not None:
                self.tracking = True
                self._keys.take(index, job.key)
            if self.tracking and self._waits(index):
                continue
            if job.lane == lane:
                return job
            self._queue(job)
        return None

    def _queue(self, job: Job[P]) -> None:
        self._walked[job.lane].push(job.index)
        self._pending += 1

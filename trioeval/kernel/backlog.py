# Separate from `kernel.run_state`: it holds the jobs that are not started, and knows no outcomes.
"""The jobs of a plan that are not started, lane by lane, as integers.

One cursor walks the plan once. Jobs that it passes on the way to a lane's next job belong to other lanes and
wait in their queues, at eight bytes each. So the pending part of a plan costs nothing, whatever its length,
and a lane that is blocked never hides the jobs of another. The walk stops after a stride: a lane whose next
job is a million jobs away must not delay the others during the search.

The walk skips a job that waits for others, or for its key. The job returns, in index order among the jobs of
its lane, when the last of its dependencies has its outcome: an outcome touches only its dependants.

Where a readiness ranks jobs, the rank comes before the index. A withdrawn job stays in its heap until it
reaches the front and is dropped there: the first of a heap is always a job that may start.

Jobs on no lane have their own queue, like those of a lane. A plan may find out late that a job needs no lane:
the job is inspected when it becomes the next of its lane, and moves to that queue if it needs none. Few such
jobs wait there at once, because each may hold the reply that was found; while there are too many, no further
job is inspected.

Law: BLOCK.
"""

import heapq
from array import array
from collections.abc import Iterable
from typing import Generic

import attrs

from trioeval.kernel.jobs import Job, P, Plan, Rank, ReadinessUpdate
from trioeval.kernel.readiness import AfterEdges, CheckedReadiness, IndexOrder, OnePerKey

_STRIDE = 1000  # jobs that one search walks past before other tasks may run
_COMPACT_AT = 4096  # consumed entries at which a queue is compacted
_MOST_MOVED = 64  # jobs that have left their lanes and are not started


@attrs.define(eq=False, repr=False)
class _Queue:
    """The jobs of one lane that may start: a first-in, first-out queue and a heap."""

    walked: "array[int]" = attrs.field(factory=lambda: array("q"))
    """Indices in the order in which the cursor passed them."""
    head: int = 0
    """Number of those that are consumed."""
    heap: list[tuple[Rank, int]] = attrs.field(factory=list)
    """Jobs that waited for others and may start now."""

    def __bool__(self) -> bool:
        return self.head < len(self.walked) or bool(self.heap)

    @property
    def first(self) -> tuple[Rank, int] | None:
        """Return the rank and the index of the next job."""
        heap_first = self.heap[0] if self.heap else None
        if self.head == len(self.walked):
            return heap_first
        walked = (), self.walked[self.head]
        return walked if heap_first is None or walked < heap_first else heap_first

    def pop(self) -> tuple[Rank, int]:
        """Remove and return the next job."""
        if self.heap and self.first is self.heap[0]:
            return heapq.heappop(self.heap)
        index = self.walked[self.head]
        self.head += 1
        if self.head == _COMPACT_AT:
            del self.walked[: self.head]
            self.head = 0
        return (), index


class Backlog(Generic[P]):
    """The pending jobs: hands out those of each lane by rank and index, each once and when it may start.

    Serial jobs are run elsewhere, before all others.

    Raises:
        PlanError: From every method: a job does not match its declaration in the plan, or a readiness of
            the plan violates its protocol.
    """

    def __init__(self, plan: Plan[P]) -> None:
        self._plan = plan
        self._skip = plan.alone if plan.serial else frozenset(plan.alone)
        self._size = len(plan.jobs)
        self._cursor = 0
        self._lanes = frozenset(plan.lanes)
        self._queues = {lane: _Queue() for lane in (*plan.lanes, None)}
        self._seen: Job[P] | None = None
        """The last job that the walk found, which mostly is the next one handed out."""
        self.looks = plan.needs_no_lane is not None
        """True if jobs may leave their lanes."""
        self._looked: dict[int, Job[P]] = {}
        """Jobs that were inspected and are not started; those on no lane have left theirs."""
        self._held_back = False
        """True if a lane's next job is not inspected because too many jobs have left their lanes."""
        self.has_news = False
        """True if a lane may have a next job that had none; the caller notifies the others."""
        self._keys = OnePerKey()
        self.tracking = bool(plan.edges) or plan.readiness is not None
        """True if outcomes can release jobs."""
        self._order = AfterEdges(plan.edges) if plan.edges else IndexOrder()
        if plan.readiness is not None:
            self._order = CheckedReadiness(plan.readiness, self._size, self._skip)
            self._cursor = self._size
        self._free(self._order.begin())

    def add(self, index: int, lane: str) -> None:
        """Queue a job that has joined the plan since the run began, and that waits for no other job."""
        if lane not in self._queues:
            self._queues[lane] = _Queue()
        self._queues[lane].walked.append(index)

    @property
    def walked(self) -> bool:
        """True if the cursor has passed every job."""
        return self._cursor == self._size

    @property
    def empty(self) -> bool:
        """True if every job that may start has been handed out."""
        return self.walked and not any(self._queues.values())

    def has(self, lane: str | None, *, look: bool = True) -> bool | None:
        """Return whether the lane has a next job now; None if the walk must continue to find out: call again.

        With `look`, jobs that need no lane leave it first.
        """
        while True:
            if not self._queues[lane]:
                job = self._walk(lane)
                if job is None:
                    return None if not self.walked and lane in self._lanes else False
                self._queues[lane].walked.append(job.index)
                self._seen = job
            if lane is None or not self.looks or not look:
                return True
            if (needs := self._look(lane)) is not None:
                return needs

    def _look(self, lane: str) -> bool | None:
        """Inspect the lane's next job; False if that must wait, None if the job left the lane."""
        index = self.first(lane)
        if index is None or index in self._looked:
            return index is not None
        if sum(job.lane is None for job in self._looked.values()) >= _MOST_MOVED:
            self._held_back = True
            return False
        job = self._looked[index] = self._plan.inspected(self._job(index))
        if job.lane is not None:
            return True
        heapq.heappush(self._queues[None].heap, self._queues[lane].pop())
        self._drop_held(lane)
        self.has_news = True
        return None

    def first(self, lane: str | None) -> int | None:
        """Return the index of the lane's next job, if the walk has found it."""
        first = self._queues[lane].first
        return None if first is None else first[1]

    def pop(self, lane: str | None, *, look: bool = True) -> Job[P] | None:
        """Remove and return the lane's next job; None if none is found. `look` is as for `has`."""
        if self.looks:
            if not self.has(lane, look=look):
                return None
        elif not self._queues[lane]:
            return self._walk(lane)
        _, index = self._queues[lane].pop()
        self._order.start(index)
        self._drop_held(lane)
        self.has_news |= self._held_back
        self._held_back = False
        return self._looked.pop(index, None) or self._job(index)

    def _job(self, index: int) -> Job[P]:
        seen = self._seen
        return self._plan.job(index) if seen is None or seen.index != index else seen

    def put_back(self, index: int) -> None:
        """Let a job that was handed out start once more."""
        self._order.start_again(index)
        self._queue(self._plan.job(index))

    def blocks(self, index: int) -> bool:
        """Return whether a job that is run elsewhere never starts."""
        return self._order.blocks(index)

    def on_outcome(self, index: int, *, done: bool) -> ReadinessUpdate:
        """Note that a job has its outcome; return what that changes."""
        freed = self._order.on_outcome(index, done=done)
        self._apply_update(freed)
        heir = self._keys.over(index)
        if heir is not None and not self._holds(heir):
            self._queue(self._plan.job(heir))
        return freed

    def on_set_aside(self, index: int) -> ReadinessUpdate | None:
        """Note that a job is set aside; None if the run chooses the time of its round."""
        freed = self._order.on_set_aside(index)
        if freed is not None:
            self._apply_update(freed)
        return freed

    def _apply_update(self, freed: ReadinessUpdate) -> None:
        """Queue the jobs that are ready, and drop those that are blocked."""
        self._free(freed.ready)
        for index, _ in freed.blocked:
            self._looked.pop(index, None)
        if freed.blocked:
            for lane in self._queues:
                self._drop_held(lane)

    def _free(self, indices: Iterable[int]) -> None:
        """Queue jobs that wait for no other job any more."""
        for index in indices:
            if index >= self._cursor or index in self._skip:
                continue  # the walk, or the serial jobs' own order, will reach it
            job = self._plan.job(index)
            if job.key is not None:
                self._keys.take(index, job.key)
            if not self._holds(index):
                self._queue(job)

    def _queue(self, job: Job[P]) -> None:
        """Queue a job that may start and that the walk has passed."""
        heapq.heappush(self._queues[job.lane].heap, (self._order.rank(job.index), job.index))
        self.has_news = True

    def _drop_held(self, lane: str | None) -> None:
        """Drop blocked jobs from the front of the lane's heap."""
        heap = self._queues[lane].heap
        while heap and self._order.holds(heap[0][1]):
            heapq.heappop(heap)

    def _holds(self, index: int) -> bool:
        return self._order.holds(index) or self._keys.holds(index)

    def _walk(self, lane: str | None) -> Job[P] | None:
        if lane not in self._lanes:
            return None
        end = min(self._cursor + _STRIDE, self._size)
        while self._cursor < end:
            job = self._plan.job(self._cursor)
            self._cursor += 1
            index = job.index
            if index in self._skip or (self.tracking and self._order.blocks(index)):
                continue
            if job.key is not None:
                self.tracking = True
                self._keys.take(index, job.key)
            if self.tracking and self._holds(index):
                continue
            if job.lane == lane:
                return job
            self._queues[job.lane].walked.append(index)
        return None

"""The jobs of a plan that are not started, lane by lane, as integers.

One cursor walks the plan once. What it passes on the way to a lane's next job belongs to other lanes and
waits in their queues, eight bytes each. So the pending part of a plan costs nothing, whatever its length,
and a lane that stands still never hides the jobs of another. The walk goes in strides: a lane whose next
job is a million jobs away must not hold up the others while it is looked for.

A job that waits for others, or for its key, is passed by. It comes back, in index order among the jobs of
its lane, when the last of what it waits for is over: an outcome touches the jobs that wait for it and no
others.

Where a readiness ranks jobs, the rank comes before the index. What it withdraws stays in its heap until it
comes to the front, and is dropped there: the first of a heap is always a job that may start.

Jobs on no lane have a queue of their own, like those of a lane. A plan may find out late that a job needs
no lane: it is looked at when it becomes the next of its lane, and moves to that queue if it does not. Few
of them wait there at once, because each may hold what was found out about it; while they are too many, no
further job is looked at.

Law: BLOCK.
"""

import heapq
from array import array
from collections.abc import Collection, Iterable
from typing import Generic

import attrs

from trioeval.kernel.jobs import Job, P, Plan, Rank
from trioeval.kernel.readiness import UNCHANGED, Checked, Edges, Keys, Released

_STRIDE = 1000  # jobs that one look walks past; the rest of the world waits meanwhile
_COMPACT_AT = 4096  # consumed entries of a queue that are cut off at once
_MOST_MOVED = 64  # jobs that have left their lanes and are not started


@attrs.define(eq=False)
class _Queue:
    """The jobs of one lane that may start: a first-in first-out queue, and a heap."""

    walked: "array[int]" = attrs.field(factory=lambda: array("q"))
    """Indices in order, as the cursor passed them."""
    head: int = 0
    """Of those, how many are gone."""
    heap: list[tuple[Rank, int]] = attrs.field(factory=list)
    """Jobs that waited and do so no more."""

    def __bool__(self) -> bool:
        return self.head < len(self.walked) or bool(self.heap)

    @property
    def first(self) -> tuple[Rank, int] | None:
        """The rank and the index of the next job."""
        heap_first = self.heap[0] if self.heap else None
        if self.head == len(self.walked):
            return heap_first
        walked = (), self.walked[self.head]
        return walked if heap_first is None or walked < heap_first else heap_first

    def pop(self) -> tuple[Rank, int]:
        """Take the next job out."""
        if self.heap and self.first is self.heap[0]:
            return heapq.heappop(self.heap)
        index = self.walked[self.head]
        self.head += 1
        if self.head == _COMPACT_AT:
            del self.walked[: self.head]
            self.head = 0
        return (), index


class Backlog(Generic[P]):
    """Hands out the jobs of each lane by rank and index, each once and when it may start.

    Args:
        plan: The plan.
        skip: Indices that are run elsewhere: the serial ones.
    """

    def __init__(self, plan: Plan[P], skip: Collection[int] = frozenset()) -> None:
        self._plan = plan
        self._skip = skip
        self._cursor = 0
        self._lanes = frozenset(plan.lanes)
        self._queues = {lane: _Queue() for lane in (*plan.lanes, None)}
        self.looks = plan.needs_no_lane is not None
        """Whether jobs may leave their lanes."""
        self._next: dict[str | None, Job[P]] = {}
        """The next job of each lane, if it was found to need it."""
        self._moved: dict[int, Job[P]] = {}
        """Jobs that have left their lanes and are not started."""
        self._held_back = False
        """Whether the next job of some lane is not looked at because those are too many."""
        self.shifted = False
        """Whether jobs have left their lanes, or more of them may; for whoever looks to tell the others."""
        self._pending = 0
        """Jobs in queues."""
        self._seen: Job[P] | None = None
        """The job that was looked for last, which mostly is the next one to be handed out."""
        self._size = len(plan.jobs)
        self._keys = Keys()
        self._edges = Edges.of(plan.edges) if plan.edges else None
        self._readiness: Checked | None = None
        self._dead: set[int] = set()
        """Jobs that edges block, of which the cursor may not have reached some."""
        self.tracking = bool(plan.edges)
        """Whether outcomes can set jobs free."""
        if plan.readiness is not None:
            self.tracking = True
            self._cursor = self._size
            self._readiness = Checked(plan.readiness, self._size, skip)
            self._free(self._readiness.begin())

    @property
    def walked(self) -> bool:
        """Whether the cursor has passed every job."""
        return self._cursor == self._size

    @property
    def empty(self) -> bool:
        """Whether no job may start that has not been handed out."""
        return self.walked and not self._pending

    def has(self, lane: str | None, *, look: bool = True) -> bool | None:
        """Whether the lane has a next job now; None if the walk has to go on to tell: ask again.

        Args:
            lane: The lane; None asks for the jobs on no lane.
            look: Whether jobs that need no lane leave it.

        Raises:
            PlanError: A job on the way is not as the plan declares it.
        """
        while True:
            if not self._queues[lane]:
                job = self._walk(lane)
                if job is None:
                    return None if self._cursor < self._size and lane in self._lanes else False
                self._queue(job)
                self._seen = job
            if lane is None or not self.looks or not look:
                return True
            if (needs := self._look(lane)) is not None:
                return needs

    def _look(self, lane: str) -> bool | None:
        """Look at the lane's next job; False if that has to wait, None if the job left the lane."""
        index, known = self.first(lane), self._next.get(lane)
        if index is None or (known is not None and known.index == index):
            return index is not None
        if len(self._moved) >= _MOST_MOVED:
            self._held_back = True
            return False
        job = self._plan.looked_at(self._job(index))
        if job.lane is not None:
            self._next[lane] = job
            return True
        self._moved[index] = job
        heapq.heappush(self._queues[None].heap, self._queues[lane].pop())
        self._drop_withdrawn(lane)
        self.shifted = True
        return None

    def first(self, lane: str | None) -> int | None:
        """The index of the lane's next job, if it has come upon one."""
        first = self._queues[lane].first
        return None if first is None else first[1]

    def pop(self, lane: str | None, *, look: bool = True) -> Job[P] | None:
        """The lane's next job, which is then no longer pending; None if it was not come upon.

        Args:
            lane: See `has`.
            look: See `has`.

        Raises:
            PlanError: A job on the way is not as the plan declares it.
        """
        if not self.looks and not (self._pending and self._queues[lane]):
            return self._walk(lane)
        if self.looks and not self.has(lane, look=look):
            return None
        _, index = self._queues[lane].pop()
        self._pending -= 1
        if self._readiness is not None:
            self._readiness.start(index)
            self._drop_withdrawn(lane)
        if not self.looks:
            return self._job(index)
        self.shifted |= self._held_back
        self._held_back = False
        found = self._moved.pop(index, None) if lane is None else self._next.pop(lane, None)
        return self._job(index) if found is None or found.index != index else found

    def _job(self, index: int) -> Job[P]:
        seen = self._seen
        return self._plan.job(index) if seen is None or seen.index != index else seen

    def put_back(self, index: int) -> str | None:
        """Let a job that was handed out start once more; returns its lane.

        Raises:
            PlanError: A fault of the readiness, or the job is not as the plan declares it.
        """
        if self._readiness is not None:
            self._readiness.start_again(index)
        return self._queue_freed(self._plan.job(index))

    def blocks(self, index: int) -> bool:
        """Whether a job that is run elsewhere never starts."""
        return index in self._dead

    def over(self, index: int, *, done: bool) -> Released:
        """A job has its outcome.

        Raises:
            PlanError: A fault of the readiness.
        """
        released = UNCHANGED
        if self._edges is not None:
            freed = self._edges.over(index, done=done)
            self._dead.update(blocked for blocked, _ in freed.blocked)
            released = Released(freed.ready, freed.blocked, lanes=self._free(freed.ready))
        elif self._readiness is not None:
            released = self._heed(self._readiness.over(index, done=done))
        heir = self._keys.over(index)
        if heir is None or self._never_starts(heir) or self._waits(heir):
            return released
        return attrs.evolve(
            released, lanes={*released.lanes, self._queue_freed(self._plan.job(heir))}
        )

    def aside(self, index: int) -> Released | None:
        """A job is set aside; None if the run says when its round comes.

        Raises:
            PlanError: A fault of the readiness.
        """
        said = None if self._readiness is None else self._readiness.aside(index)
        return None if said is None else self._heed(said)

    def _heed(self, said: Released) -> Released:
        """Queue what is ready, and drop what is withdrawn."""
        if said is UNCHANGED:
            return said
        lanes = self._free(said.ready)
        for index in said.withdrawn:
            if not self._keys.waits(index):  # who does is in no heap
                self._pending -= 1
                moved = self._moved.pop(index, None)
                self._drop_withdrawn(self._plan.job(index).lane if moved is None else None)
        return attrs.evolve(said, lanes=lanes)

    def _free(self, indices: Iterable[int]) -> Collection[str | None]:
        """What jobs depended on is over; returns the lanes of those that may start now."""
        lanes: set[str | None] = set()
        for index in indices:
            if index >= self._cursor or index in self._skip:
                continue  # the walk, or the serial line, will find it free
            job = self._plan.job(index)
            if self._readiness is not None and job.key is not None:
                self._keys.take(index, job.key)
            if not self._waits(index):
                lanes.add(self._queue_freed(job))
        return lanes

    def _queue_freed(self, job: Job[P]) -> str | None:
        rank = () if self._readiness is None else self._readiness.rank(job.index)
        heapq.heappush(self._queues[job.lane].heap, (rank, job.index))
        self._pending += 1
        return job.lane

    def _drop_withdrawn(self, lane: str | None) -> None:
        """Drop what was withdrawn from the front of the lane's heap."""
        heap, readiness = self._queues[lane].heap, self._readiness
        while heap and readiness is not None and not readiness.is_ready(heap[0][1]):
            heapq.heappop(heap)

    def _never_starts(self, index: int) -> bool:
        return index in self._dead or (
            self._readiness is not None and not self._readiness.is_ready(index)
        )

    def _waits(self, index: int) -> bool:
        held = self._edges is not None and self._edges.holds(index)
        return held or self._keys.waits(index)

    def _walk(self, lane: str | None) -> Job[P] | None:
        if lane not in self._lanes:
            return None
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
        self._queues[job.lane].walked.append(job.index)
        self._pending += 1

"""The handle through which a job's body makes calls, and the clock of its working time.

The timeout of a job counts work: the body's own steps and calls in flight. While all that the job does is
wait for a lane, its clock stands: the deadline of its scope is infinite and what is left is remembered.
A body that makes several calls at once is working as long as any of them is in flight.

Laws: LIMIT, SLOT.
"""

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar, TypeVarTuple

import trio

from trioeval.errors import PlanError, TooLateError
from trioeval.kernel.events import CallEnded, CallStarted, Observer
from trioeval.kernel.jobs import Job, P
from trioeval.kernel.lane import Lane

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class Calls(Generic[P]):
    """What a job's body calls providers with; one for each job, of no use after it.

    Types obtained from the kernel only: it is the second argument of every body.
    """

    __slots__ = (
        "_deadline",
        "_in_flight",
        "_lanes",
        "_left",
        "_observe",
        "_over",
        "_paused_at",
        "_scope",
        "_waited",
        "_waiting",
        "count",
        "job",
        "started_at",
    )

    def __init__(
        self,
        job: Job[P],
        lanes: Mapping[str, Lane],
        scope: trio.CancelScope,
        *,
        now: float,
        deadline: float,
        observe: Observer | None,
    ) -> None:
        self.job = job
        self.started_at = now
        self.count = 0
        """Calls started so far."""
        self._lanes = lanes
        self._scope = scope
        self._deadline = deadline
        self._observe = observe
        self._over = False
        self._waiting = 0
        self._in_flight = 0
        self._paused_at: float | None = None
        self._waited = 0.0
        self._left = math.inf
        deadline_of_job = now + job.timeout
        if scope.deadline != deadline_of_job:  # moving a deadline costs more than looking at it
            scope.deadline = deadline_of_job

    def waited(self, now: float) -> float:
        """Seconds until `now` in which the clock stood."""
        return self._waited + (0.0 if self._paused_at is None else now - self._paused_at)

    async def __call__(self, lane: str, send: Callable[[*Ts], Awaitable[R]], *args: *Ts) -> R:
        """Run `send(*args)` in a slot of `lane`, when it is its turn there.

        A checkpoint if it has to wait for the lane or if `send` is one.

        Args:
            lane: The lane's name.
            send: An async callable that makes one request, never retries by itself, and makes no calls
                through this handle: it holds a slot.
            *args: Passed to it.

        Returns:
            What `send` returns.

        Raises:
            PlanError: There is no such lane.
            TooLateError: The job is over, or its run's deadline has passed.
            Exception: Whatever `send` raises.
        """
        target = self._lanes.get(lane)
        if target is None:
            msg = f"job {self.job.index} calls lane {lane!r}, which is not one of {sorted(self._lanes)}"
            raise PlanError(msg)
        call = object()
        now = trio.current_time()
        if self._over or now >= self._deadline:
            await trio.lowlevel.checkpoint()  # mostly cancelled here; not in a shield
            self._refuse_if_late(now)
        if not target.start_nowait(call, self, now):
            now = await self._wait(target, call)
        self.count += 1
        self._in_flight += 1
        if self._paused_at is not None:
            self._resume(now)
        try:
            if self._observe is not None:
                self._observe(CallStarted(now, self.job.index, lane))
            return await send(*args)
        finally:
            self._in_flight -= 1
            if self._waiting:
                self._pause_if_idle()
            target.end(call)
            if self._observe is not None:
                self._observe(CallEnded(trio.current_time(), self.job.index, lane))

    def close(self) -> None:
        """The job has its outcome. Its scope belongs to the next job now."""
        self._over = True
        self._paused_at = None

    def _refuse_if_late(self, now: float) -> None:
        if self._over or now >= self._deadline:
            what = "it was over" if self._over else "the run's deadline"
            raise TooLateError(f"job {self.job.index} asked for a call after {what}")

    async def _wait(self, lane: Lane, call: object) -> float:
        self._waiting += 1
        self._pause_if_idle()
        try:
            return await lane.wait_start(call, self.job.index, self._refuse_if_late, self._observe)
        finally:
            self._waiting -= 1
            # Also when the wait was cancelled or another branch of the body goes on alone.
            if not self._waiting:
                self._resume(trio.current_time())

    def _pause_if_idle(self) -> None:
        if self._paused_at is None and not self._in_flight and not self._over:
            self._paused_at = trio.current_time()
            self._left = self._scope.deadline - self._paused_at
            self._scope.deadline = math.inf

    def _resume(self, now: float) -> None:
        if self._paused_at is not None:
            self._waited += now - self._paused_at
            self._scope.deadline = now + self._left
            self._paused_at = None

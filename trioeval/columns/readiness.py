"""Which jobs of a dataset may start, told to the kernel; and what it means how they ended.

A job that has made something has said so before it ended. Only of one that has not, its ending says what
becomes of its row: it is dropped, or it is not run.
"""

from collections.abc import Iterable, Sequence
from typing import Any, overload

import attrs

from trioeval.columns.account import Trouble, timed_out
from trioeval.columns.groups import Flight, GroupState, ReadyJob, Skips, leave_out
from trioeval.columns.makers.base import LOCAL, OWN_LANES, Tally
from trioeval.columns.progress import FINISH, MakeJob
from trioeval.columns.result import DroppedRow
from trioeval.columns.scheduling import Progress
from trioeval.kernel import Freed, Interrupted, Job, NotRun, Outcome, Readiness, TimedOut


@attrs.define(eq=False)
class MakeReadiness(Readiness):
    """Says which jobs may start."""

    progress: Progress
    _failed: dict[int, tuple[Trouble, Tally]] = attrs.field(factory=dict)
    """How makers of jobs failed, until the kernel says what that means."""
    _last: Outcome[Any] | None = None

    def failed(self, index: int, trouble: Trouble, tally: Tally) -> None:
        """The maker of a job failed; the kernel says next whether that was its end."""
        self._failed[index] = trouble, tally

    def settled(self, outcome: Outcome[Any]) -> None:
        """A job has this outcome; what that sets free is asked for next."""
        self._last = outcome

    def begin(self) -> Iterable[int]:
        """What may be made of the first groups."""
        self.progress.open_more()
        return self.progress.first()

    def rank(self, index: int) -> tuple[float, ...]:
        """Where a job stands on its lane."""
        progress, makings = self.progress, self.progress.spec.makings
        ready = progress.ready.get(index)
        if ready is None:  # withdrawn in the step that named it, perhaps with its whole group
            return (progress.withdrawn[index].job.group,)
        weight = 1.0 if ready.job.producer < 0 else makings[ready.job.producer].weight
        return progress.ranks.rank(index, ready, weight)

    def aside(self, index: int) -> Freed:
        """A job runs again when nothing else of its group goes on."""
        progress = self.progress
        _, tally = self._failed.pop(index)
        lane = progress.ready[index].lane
        progress.set_aside(index, tally)
        if lane != LOCAL:
            progress.call_ended(lane, failed=False, mishap=True)
        return progress.news(index)

    def over(self, index: int, *, done: bool) -> Freed:
        """A job has its outcome."""
        progress = self.progress
        progress.ranks.forget(index)
        ready = progress.ready.pop(index, None)
        if ready is None:  # it was not wanted any more
            progress.withdrawn.pop(index, None)
            return progress.news(index)
        trouble, _ = self._failed.pop(index, (None, None))
        group = progress.groups.get(ready.job.group)
        if group is not None:
            flight = group.begun.pop(index, None)
            group.aside.discard(index)
            group.tallies.pop(index, None)
            if not done and (flight is None or not flight.is_gone):
                self._not_made(group, ready, flight, trouble)
            progress.go_on(group)
        return progress.news(index)

    def _not_made(
        self, group: GroupState, ready: ReadyJob, flight: Flight | None, trouble: Trouble | None
    ) -> None:
        """A job has come to nothing, although something of it was wanted."""
        progress, job, last = self.progress, ready.job, self._last
        match last:
            case Interrupted() | NotRun():
                progress.is_cut = progress.is_cut or isinstance(last, Interrupted)
                self._lose(group, job, last.cut.value)
            case TimedOut():
                name = progress.producer_name(job)
                rows = self._asked_for(ready)
                told = [timed_out(row, name, last.timeout, last.calls) for row in rows]
                self._drop(group, ready, told, mishap=True)
            case _ if trouble is not None and trouble.reason is not None:
                self._lose(group, job, trouble.reason)
            case _ if trouble is not None:
                name = progress.producer_name(job)
                told = [trouble.dropped(row, name) for row in self._asked_for(ready)]
                self._drop(group, ready, told, mishap=trouble.is_mishap)
            case _ if flight is None:  # it was set aside, and its lane was closed before its round
                self._lose(group, job, "lane")
            case _:
                pass  # a fault of ours, which ends the run

    def _asked_for(self, ready: ReadyJob) -> Sequence[int]:
        """The rows that a job was to make something of, and not those that it leaves out."""
        rows = self.progress.rows_of(ready.job)
        if ready.job.row is None and isinstance(ready.known, Skips):
            return [row for row in rows if row not in ready.known.skipped]
        return rows

    def _leave_out(self, group: GroupState, ready: ReadyJob) -> None:
        """Of a group that failed, the rows that are left were left out: they have what they are to have."""
        job, progress = ready.job, self.progress
        if job.row is None and isinstance(ready.known, Skips) and group.left:
            for row in ready.known.skipped:
                if not progress.tracker.is_dropped(row):
                    leave_out(progress.spec, progress.buffer, group, job.producer, row)
            progress.complete(job)

    def _lose(self, group: GroupState, job: MakeJob, reason: str) -> None:
        if job.producer != FINISH:  # that is made up for behind the plan
            self.progress.lose(group, job, reason)

    def _drop(
        self, group: GroupState, ready: ReadyJob, told: Sequence[DroppedRow], *, mishap: bool
    ) -> None:
        self.progress.drop(group, told, ready.job.producer)
        self._leave_out(group, ready)
        if ready.lane != LOCAL and ready.job.producer >= 0:
            self.progress.call_ended(ready.lane, failed=not mishap, mishap=mishap)


class MakeJobs(Sequence[Job[MakeJob]]):
    """The jobs of a dataset, made as they are looked at."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._timeout = progress.spec.timeout

    def __len__(self) -> int:
        return len(self._progress.numbering)

    @overload
    def __getitem__(self, index: int) -> Job[MakeJob]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Job[MakeJob]]: ...
    def __getitem__(self, index: int | slice) -> Job[MakeJob] | Sequence[Job[MakeJob]]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        ready = self._progress.ready.get(index) or self._progress.withdrawn.get(index)
        if ready is None:
            return Job(index, LOCAL, self._progress.numbering.job(index))
        if ready.lane in OWN_LANES:
            return Job(index, ready.lane, ready.job)
        return Job(index, ready.lane, ready.job, self._timeout)

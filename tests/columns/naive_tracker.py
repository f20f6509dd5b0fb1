"""The states of open groups, computed again each time by definition, without counters."""

from collections.abc import Iterable

import attrs

from trioeval.columns.graph import FINISH, PREPARE, ColumnGraph, MakeJob, RowGrouping
from trioeval.columns.groups import OpenGroup, OpenGroups
from trioeval.columns.makers.base import JobOrder


@attrs.frozen
class Change:
    """The jobs that a change affected. A job is in at most one of the three."""

    ready: tuple[MakeJob, ...] = ()
    """Jobs that have become ready; each job is reported once."""
    removed: tuple[MakeJob, ...] = ()
    """Jobs that were reported as ready, have not started, and are no longer needed."""
    never: tuple[MakeJob, ...] = ()
    """Jobs that were never reported as ready, and never will be."""


class Tracker:
    """Open groups that report changes as jobs; the outcomes of jobs follow immediately."""

    def __init__(
        self, graph: ColumnGraph, grouping: RowGrouping, *, prepares: bool = False
    ) -> None:
        self.groups = OpenGroups(graph, grouping, prepares=prepares)

    @property
    def open(self) -> tuple[int, ...]:
        return tuple(self.groups.groups)

    @property
    def standing(self) -> int:
        return self.groups.standing

    def of(self, group: int) -> OpenGroup:
        return self.groups.group(MakeJob(FINISH, group))

    def admit(self, group: int, dropped: Iterable[int] = ()) -> Change:
        self.groups.release(self.groups.admit(group), dropped)
        return self.changed()

    def begin(self, job: MakeJob) -> None:
        """Start a job, or start it again in a later round."""
        named = {order.job: index for index, order in self.groups.orders.items()}
        if job in named and self.of(job.group).is_begun(job):
            self.groups.set_aside(named[job]).aside.clear()
        self.groups.start(self.groups.orders[named[job]] if job in named else JobOrder(job))

    def complete(self, job: MakeJob) -> Change:
        self.groups.complete(job)
        return self.changed(job)

    def lose(self, job: MakeJob) -> Change:
        self.groups.mark_lost(job)
        return self.changed(job)

    def drop(self, rows: Iterable[int]) -> Change:
        numbers = {row: self.groups.grouping.group_of(row) for row in rows}
        for group in [self.of(number) for number in dict.fromkeys(numbers.values())]:
            mine = [row for row in numbers if numbers[row] == group.number]
            self.groups.drop_rows(group, [*mine, mine[0]])
        return self.changed()

    def close(self, group: int) -> Change:
        self.groups.close(self.of(group))
        return self.changed()

    def changed(self, over: MakeJob | None = None) -> Change:
        """Return the changes since the last call, as the kernel asks for them."""
        orders, job = self.groups.orders, self.groups.numbering.job
        if over is not None:
            orders.pop(self.groups.numbering.index(over), None)
        freed = self.groups.freed(0)
        blocked = sorted(index for index, _ in freed.blocked)
        removed = tuple(job(index) for index in blocked if orders.pop(index, None))
        never = tuple(found for found in map(job, blocked) if found not in removed)
        return Change(tuple(map(job, freed.ready)), removed, never)

    def in_order(self, jobs: Iterable[MakeJob]) -> tuple[MakeJob, ...]:
        """Return jobs by group, and within a group in the order in which they become ready."""
        return tuple(sorted(jobs, key=self.groups.numbering.index))

    def active(self, group: int) -> int:
        return self.of(group).active

    def is_stuck(self, group: int) -> bool:
        return self.groups.is_stuck(self.of(group))

    def needed(self, group: int) -> tuple[MakeJob, ...]:
        return self.of(group).needed()

    def left(self, group: int) -> tuple[int, ...]:
        found = self.of(group)
        assert len(found.rows_left()) == found.left
        return found.rows_left()

    def is_dropped(self, row: int) -> bool:
        return self.of(self.groups.grouping.group_of(row)).is_gone(row)


class NaiveTracker:
    """Sets of the events of the open groups."""

    def __init__(self, graph: ColumnGraph, grouping: RowGrouping, *, prepares: bool) -> None:
        self.graph = graph
        self.grouping = grouping
        self.prepares = prepares
        self.open: list[int] = []
        self.given_up: list[int] = []
        """Groups that were closed and have not finished."""
        self.dropped: set[int] = set()
        self.begun: set[MakeJob] = set()
        self.done: set[MakeJob] = set()
        self.lost: set[MakeJob] = set()

    def left(self, group: int) -> list[int]:
        return [row for row in self.grouping.rows_of(group) if row not in self.dropped]

    def of_group(self, group: int) -> list[MakeJob]:
        """Return all jobs of a group in order, whatever their state."""
        stages = [MakeJob(PREPARE, group)] if self.prepares else []
        jobs = []
        for place, made in enumerate(self.graph.producers):
            if made.scope == "cell":
                jobs += [MakeJob(place, group, row) for row in self.grouping.rows_of(group)]
            else:
                jobs.append(MakeJob(place, group))
        return [*stages, *jobs, MakeJob(FINISH, group)]

    def made_for(self, place: int, group: int, row: int) -> bool:
        """Return True if a row has the columns of a producer."""
        is_cell = self.graph.producers[place].scope == "cell"
        return MakeJob(place, group, row if is_cell else None) in self.done

    def is_void(self, job: MakeJob) -> bool:
        """Return True if a job is no longer needed."""
        if job.row is not None:
            return job.row in self.dropped
        return job.producer != FINISH and not self.left(job.group)

    def may_be_made(self, job: MakeJob, *, in_turn: bool = True) -> bool:
        """Return True if a job has everything that it needs, and with `in_turn` also its turn."""
        place, group, row = job
        rows = self.left(group)
        if not rows:
            return place == FINISH
        producers = self.graph.producers
        if place == FINISH:
            needs = list(range(len(producers)))
        elif place == PREPARE:
            needs = [at for at, one in enumerate(producers) if one.scope == "scratch"]
        else:
            needs = list(self.graph.upstream[place])
        is_later = place == FINISH or (place != PREPARE and producers[place].scope != "scratch")
        if self.prepares and is_later and MakeJob(PREPARE, group) not in self.done:
            return False
        if place >= 0 and producers[place].ordered:
            before = self.turn(place, group)
            if before is not None and (in_turn or self.stands(place, before)):
                return False
        wanted = rows if row is None else [row]
        return all(self.made_for(need, group, one) for need in needs for one in wanted)

    def turn(self, place: int, group: int) -> int | None:
        """Return the first earlier group with rows that an ordered producer has not made."""
        for before in sorted([*self.open, *self.given_up]):
            if before < group and self.left(before) and MakeJob(place, before) not in self.done:
                return before
        return None

    def stands(self, place: int, group: int) -> bool:
        """Return True if the producer will not make that group in this run."""
        return group in self.given_up or MakeJob(place, group) in self.lost

    def is_stuck(self, group: int) -> bool:
        """Return True if no job of a group can be made, even after the turns that may still come."""
        over = self.done | self.lost
        return MakeJob(FINISH, group) not in self.done and not any(
            self.may_be_made(job, in_turn=False)
            for job in self.of_group(group)
            if job not in over and not self.is_void(job)
        )

    def offered(self) -> set[MakeJob]:
        """Return the jobs that are ready and not started."""
        return {
            job
            for group in self.open
            for job in self.of_group(group)
            if job not in self.begun | self.done | self.lost
            and not self.is_void(job)
            and self.may_be_made(job)
        }

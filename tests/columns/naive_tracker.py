"""What a tracker has to say, found anew each time by the definition: no counters at all."""

from trioeval.columns.graph import ColumnGraph, Grouping
from trioeval.columns.progress import FINISH, PREPARE, MakeJob


class NaiveTracker:
    """Sets of what has happened to the open groups."""

    def __init__(self, graph: ColumnGraph, grouping: Grouping, *, prepares: bool) -> None:
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
        """All its jobs, whatever became of them, in order."""
        stages = [MakeJob(PREPARE, group)] if self.prepares else []
        jobs = []
        for place, made in enumerate(self.graph.producers):
            if made.scope == "cell":
                jobs += [MakeJob(place, group, row) for row in self.grouping.rows_of(group)]
            else:
                jobs.append(MakeJob(place, group))
        return [*stages, *jobs, MakeJob(FINISH, group)]

    def made_for(self, place: int, group: int, row: int) -> bool:
        """Whether a row has what a producer makes."""
        is_cell = self.graph.producers[place].scope == "cell"
        return MakeJob(place, group, row if is_cell else None) in self.done

    def is_void(self, job: MakeJob) -> bool:
        """Whether nobody wants it any more."""
        if job.row is not None:
            return job.row in self.dropped
        return job.producer != FINISH and not self.left(job.group)

    def may_be_made(self, job: MakeJob, *, in_turn: bool = True) -> bool:
        """Whether it has all that it needs; its turn as well if `in_turn`."""
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
        """The first group before another one that an ordered producer has not made, and has rows."""
        for before in sorted([*self.open, *self.given_up]):
            if before < group and self.left(before) and MakeJob(place, before) not in self.done:
                return before
        return None

    def stands(self, place: int, group: int) -> bool:
        """Whether it will not make that in this run."""
        return group in self.given_up or MakeJob(place, group) in self.lost

    def is_stuck(self, group: int) -> bool:
        """Whether nothing of a group can be made, nor could if its turn came that may still come."""
        over = self.done | self.lost
        return MakeJob(FINISH, group) not in self.done and not any(
            self.may_be_made(job, in_turn=False)
            for job in self.of_group(group)
            if job not in over and not self.is_void(job)
        )

    def offered(self) -> set[MakeJob]:
        """What is ready and not begun."""
        return {
            job
            for group in self.open
            for job in self.of_group(group)
            if job not in self.begun | self.done | self.lost
            and not self.is_void(job)
            and self.may_be_made(job)
        }

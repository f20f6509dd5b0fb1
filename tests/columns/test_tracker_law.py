"""CO-10: after each step a tracker reports what follows from the definition."""

from hypothesis import example, given, settings
from hypothesis import strategies as st
from made_graphs import graphs, groupings, producer
from naive_tracker import Change, NaiveTracker, Tracker

from trioeval.columns.graph import FINISH, ColumnGraph, MakeJob, RowGrouping

FEWER = settings(max_examples=settings().max_examples // 3)
CALM = [*["begin"] * 6, *["complete"] * 6, *["drop"] * 3]
ROUGH = [*CALM, *["admit"] * 3, "drop group", "lose", "close"]


def steps_of(kinds: list[str]) -> st.SearchStrategy[list[tuple[str, int]]]:
    """Draw up to 60 steps, with many as likely as few."""
    step = st.tuples(st.sampled_from(kinds), st.integers(0, 30))
    return st.integers(0, 60).flatmap(lambda size: st.lists(step, min_size=size, max_size=size))


class Compared:
    """A tracker compared with a naive one."""

    def __init__(self, graph: ColumnGraph, grouping: RowGrouping, *, prepares: bool) -> None:
        self.tracker = Tracker(graph, grouping, prepares=prepares)
        self.naive = NaiveTracker(graph, grouping, prepares=prepares)
        self.offered: set[MakeJob] = set()
        self.named: set[MakeJob] = set()
        self.never: set[MakeJob] = set()
        self.next_group = 0
        self.losses = False

    def step(self, kind: str, pick: int) -> None:
        """Do one possible step, if there is any."""
        naive = self.naive
        match kind:
            case "admit":
                left = range(self.next_group, len(naive.grouping))
                choices: list[object] = [*left[: 1 + (pick > 28)]]  # one may already be written
            case "begin":
                choices = [*self.tracker.in_order([*self.offered])]
            case "complete":
                choices = [*self.tracker.in_order([*naive.begun])]
            case "lose":
                over = naive.done | naive.lost
                jobs = (job for group in naive.open for job in naive.of_group(group))
                choices = [job for job in jobs if job not in over and not naive.is_void(job)]
            case "drop":
                choices = [row for group in naive.open for row in naive.grouping.rows_of(group)]
            case _:
                choices = [*naive.open]
        if choices:
            self.happens(kind, choices[pick % len(choices)])

    def happens(self, kind: str, what: object) -> None:
        naive, tracker = self.naive, self.tracker
        before = set(self.offered)
        change = Change()
        match kind, what:
            case "admit", int(group):
                self.next_group = group + 1
                gone = [row for row in naive.grouping.rows_of(group) if row % 5 == 4]
                naive.dropped.update(gone)
                naive.open.append(group)
                change = tracker.admit(group, gone)
            case "begin", MakeJob() as job:
                naive.begun.add(job)
                tracker.begin(job)
                tracker.begin(job)  # again, until it has ended
                self.offered.discard(job)
                before.discard(job)
            case "complete", MakeJob() as job:
                naive.begun.discard(job)
                naive.done.add(job)
                change = tracker.complete(job)
            case "lose", MakeJob() as job:
                self.losses = True
                naive.begun.discard(job)
                naive.lost.add(job)
                change = tracker.lose(job)
                self.named.add(job)
                self.offered.discard(job)
                before.discard(job)
            case "drop" | "drop group", int(one):
                rows = naive.grouping.rows_of(one) if kind == "drop group" else [one]
                naive.dropped.update(rows)
                naive.begun = {job for job in naive.begun if not naive.is_void(job)}
                change = tracker.drop([*rows, rows[0]])
            case "close", int(group):
                naive.open.remove(group)
                if MakeJob(FINISH, group) not in naive.done:
                    self.losses = True
                    naive.given_up.append(group)
                naive.begun = {job for job in naive.begun if job.group != group}
                change = tracker.close(group)
                mine = set(naive.of_group(group))
                assert mine <= self.named | self.never | set(change.never)
        self.check(change, before)

    def check(self, change: Change, before: set[MakeJob]) -> None:
        naive, after = self.naive, self.naive.offered()
        assert change.ready == self.tracker.in_order([*(after - before)])
        assert change.removed == self.tracker.in_order([*(before - after)])
        assert not self.never & set(change.never)
        assert not self.named & {*change.ready, *change.never}
        assert change.never == self.tracker.in_order(change.never)
        self.named.update(change.ready)
        self.never.update(change.never)
        self.offered = (self.offered | set(change.ready)) - set(change.removed)
        assert self.offered == after
        for group in naive.open:
            self.check_group(group)
        assert self.tracker.open == tuple(naive.open)
        assert self.tracker.standing == self.standing()

    def standing(self) -> int:
        naive, behind = self.naive, len(self.naive.grouping)
        turns = [
            (place, naive.turn(place, behind))
            for place, one in enumerate(naive.graph.producers)
            if one.ordered
        ]
        return sum(group is not None and naive.stands(place, group) for place, group in turns)

    def check_group(self, group: int) -> None:
        naive, tracker = self.naive, self.tracker
        mine, left = naive.of_group(group), naive.left(group)
        assert tracker.left(group) == tuple(left)
        for row in naive.grouping.rows_of(group):
            assert tracker.is_dropped(row) == (row in naive.dropped)
        active = [job for job in mine if job in self.offered | naive.begun]
        assert tracker.active(group) == len(active)
        assert tracker.is_stuck(group) == naive.is_stuck(group)
        assert tracker.in_order(tracker.needed(group)) == tracker.in_order(
            [job for job in mine if job not in naive.done and not naive.is_void(job)]
        )

    def run_to_the_end(self) -> None:
        """Do all possible steps, and close stuck groups, until nothing remains."""
        while True:
            if self.naive.begun:
                self.step("complete", 0)
            elif self.offered:
                self.step("begin", 0)
            elif self.next_group < len(self.naive.grouping):
                self.step("admit", 0)
            elif stuck := [group for group in self.naive.open if self.tracker.is_stuck(group)]:
                assert self.losses
                self.happens("close", stuck[0])
            else:
                break
        for group in self.naive.open:
            assert MakeJob(FINISH, group) in self.naive.done
            assert self.tracker.close(group) == Change()


@given(graph=graphs(), grouping=groupings(), prepares=st.booleans(), steps=steps_of(ROUGH))
@example(  # the turn stays at a group that was closed before
    graph=ColumnGraph.of([producer("a", scope="full", ordered=True)]),
    grouping=RowGrouping(1, (3,)),
    prepares=False,
    steps=[("admit", 0)] * 3 + [("close", 1)],
)
@example(  # the last row that lacks a cell is dropped
    graph=ColumnGraph.of([producer("a"), producer("b", "a", scope="full")]),
    grouping=RowGrouping(2, (2,)),
    prepares=True,
    steps=[("admit", 0), *[("begin", 0), ("complete", 0)] * 2, ("drop", 1)],
)
@FEWER
def test_co_10_a_tracker_equals_a_naive_recomputation_after_each_step(
    *, graph: ColumnGraph, grouping: RowGrouping, prepares: bool, steps: list[tuple[str, int]]
) -> None:
    """Compared are ready, removed, remaining, active and needed jobs; in the end nothing hangs."""
    compared = Compared(graph, grouping, prepares=prepares)
    for kind, pick in steps:
        compared.step(kind, pick)
    compared.run_to_the_end()


@given(graph=graphs(), grouping=groupings(), prepares=st.booleans(), steps=steps_of(CALM))
@FEWER
def test_without_losses_every_group_ends(
    *, graph: ColumnGraph, grouping: RowGrouping, prepares: bool, steps: list[tuple[str, int]]
) -> None:
    """All groups are open at once, some rows are dropped, and no group is ever stuck."""
    compared = Compared(graph, grouping, prepares=prepares)
    for _ in grouping.groups():
        compared.step("admit", 0)
    for kind, pick in steps:
        compared.step(kind, pick)
    compared.run_to_the_end()
    assert not compared.losses

"""AG-41: a planner behaves like a simple model, whatever programs do and whenever they die."""

import shutil
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from planner_model import Model, RefusedError, bare_planner, bury, kill, owner_of, submission

from trioeval.agent.planner import QueuedSubmission
from trioeval.errors import UsageError
from trioeval.store.planner.planner import AgentPlanner

IDS = st.sampled_from("abcdef")
NEEDS = st.lists(IDS, max_size=2, unique=True).map(tuple)
PROGRAMS = st.integers(0, 2)
LIMITS = st.integers(1, 3)


class PlannerMachine(RuleBasedStateMachine):
    """Planners of several programs on one queue, beside the model of the queue."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.limits: dict[int, int] = {}
        self.planners: dict[int, AgentPlanner] = {}
        """Numbers of living programs; no number is used twice."""
        self.owners: dict[int, str] = {}
        self.slots: list[int] = []
        self.before: Sequence[QueuedSubmission] = ()
        self.last: Sequence[QueuedSubmission] = ()
        self.limit_applied: int | None = None
        """The limit of the program that may have scheduled others since `before`."""

    def make(self, limit: int) -> AgentPlanner:
        raise NotImplementedError

    def known(self, number: int) -> set[str]:
        """Entries that a program knows to be its own running ones."""
        seats = self.planners[number]._seats
        return {name for name, seat in seats.items() if seat.is_running}

    @initialize(limits=st.lists(LIMITS, min_size=3, max_size=3))
    def begin(self, limits: list[int]) -> None:
        for limit in limits:
            self.slots.append(self.come(limit))

    def come(self, limit: int) -> int:
        number = len(self.limits)
        self.limits[number] = limit
        self.planners[number] = planner = self.make(limit)
        self.owners[number] = owner_of(planner)
        return number

    def do(self, slot: int) -> tuple[int, AgentPlanner, int]:
        number = self.slots[slot % len(self.slots)]
        self.before, self.limit_applied = self.last, self.limits[number]
        return number, self.planners[number], self.limits[number]

    @rule(slot=PROGRAMS, id_=IDS, needs=NEEDS)
    def submit(self, slot: int, id_: str, needs: tuple[str, ...]) -> None:
        number, planner, limit = self.do(slot)
        needs = tuple(need for need in needs if need != id_)
        try:
            self.model.submit(number, id_, needs, limit)
        except RefusedError:
            with pytest.raises(UsageError, match=id_):
                trio.run(planner.submit, submission(id_, *needs))
            return
        entry = trio.run(planner.submit, submission(id_, *needs))
        expected = {line[0]: line for line in self.model.shown()}[id_]
        assert (entry.submission.id, entry.order, entry.state) == expected[:3]
        assert (entry.owner, entry.position) == (self.owners[number], expected[4])
        self.check_known(number)

    @rule(slot=PROGRAMS, id_=IDS)
    def submit_without_needs(self, slot: int, id_: str) -> None:
        self.submit(slot, id_, ())

    @rule(slot=PROGRAMS, id_=IDS)
    def clear_dependencies(self, slot: int, id_: str) -> None:
        number, planner, limit = self.do(slot)
        try:
            self.model.clear_dependencies(number, id_, limit)
        except RefusedError:
            with pytest.raises(UsageError, match=f"{id_}: not queued by this program"):
                trio.run(planner.clear_dependencies, id_)
            return
        entry = trio.run(planner.clear_dependencies, id_)
        line = next(line for line in self.model.shown() if line[0] == id_)
        assert (entry.order, entry.state, entry.position) == (line[1], line[2], line[4])
        self.check_known(number)

    @rule(slot=PROGRAMS, id_=IDS, done=st.booleans(), schedule=st.booleans())
    def finish(self, slot: int, id_: str, *, done: bool, schedule: bool) -> None:
        number, planner, limit = self.do(slot)
        self.model.end(number, id_, done, limit if schedule else None)

        async def finish() -> None:
            await planner.finish(id_, done=done, schedule=schedule)

        trio.run(finish)
        self.check_known(number)

    @precondition(lambda self: self.model.running() > 0)
    @rule(place=st.integers(0, 5), done=st.booleans())
    def finish_one_that_runs(self, place: int, *, done: bool) -> None:
        running = [
            (self.slots.index(entry.owner), entry.id)
            for entry in self.model.in_order()
            if entry.is_running and entry.owner in self.slots
        ]
        if running:
            self.finish(*running[place % len(running)], done=done, schedule=True)

    @rule(slot=PROGRAMS, id_=IDS)
    def leave(self, slot: int, id_: str) -> None:
        number, planner, limit = self.do(slot)
        self.model.end(number, id_, None, limit)
        trio.run(partial(planner.finish, id_, done=None))
        self.check_known(number)

    @rule(slot=PROGRAMS)
    def recover(self, slot: int) -> None:
        number, planner, limit = self.do(slot)
        requeued, kept = self.model.recover(number, limit)
        found = trio.run(planner.recover)
        assert (found.requeued, found.kept, found.problems) == (requeued, kept, ())
        self.check_known(number)

    @rule(slot=PROGRAMS, limit=LIMITS)
    def set_limit(self, slot: int, limit: int) -> None:
        number, planner, _ = self.do(slot)
        self.limits[number] = self.limit_applied = limit
        self.model.schedule(number, limit)
        trio.run(planner.set_limit, limit)
        self.check_known(number)

    @invariant()
    def equals_model(self) -> None:
        for number in self.slots[:1]:
            entries = trio.run(self.planners[number].snapshot)
            owners = {owner: one for one, owner in self.owners.items()}
            found = [
                (
                    entry.submission.id,
                    entry.order,
                    entry.state,
                    None if entry.owner is None else owners[entry.owner],
                    entry.position,
                    frozenset(entry.submission.depends_on),
                )
                for entry in entries
            ]
            assert found == self.model.shown()
            self.last = entries
            self.check_starts(entries)

    def check_starts(self, entries: Sequence[QueuedSubmission]) -> None:
        """Started entries had their turn, and there was room; independent of the model."""
        ran = {entry.submission.id for entry in self.before if entry.state == "running"}
        begun = [e for e in entries if e.state == "running" and e.submission.id not in ran]
        if not begun or self.limit_applied is None:
            return
        assert sum(entry.state == "running" for entry in entries) <= self.limit_applied
        last = max(entry.order for entry in begun)
        assert not [
            entry
            for entry in entries
            if entry.order < last and entry.state == "queued" and entry.owner is not None
        ]

    def check_known(self, number: int) -> None:
        """A program knows at once which of its own entries run, after any action."""
        self.model.present.add(number)
        assert self.known(number) == {
            entry.id
            for entry in self.model.entries.values()
            if entry.is_running and entry.owner == number
        }

    def teardown(self) -> None:
        for planner in self.planners.values():
            kill(planner)


class MemoryMachine(PlannerMachine):
    """One program, with tables in memory."""

    def make(self, limit: int) -> AgentPlanner:
        return bare_planner(None, limit)

    def come(self, limit: int) -> int:
        return super().come(limit) if not self.slots else 0


class SharedMachine(PlannerMachine):
    """Three programs on a real database, which die and are restarted."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="planner-"))

    def make(self, limit: int) -> AgentPlanner:
        return bare_planner(self.folder / "results.db", limit)

    @rule(slot=PROGRAMS, limit=LIMITS, does_recover=st.booleans())
    def die_and_come_again(self, slot: int, limit: int, *, does_recover: bool) -> None:
        number = self.slots[slot]
        kill(self.planners.pop(number))
        self.model.dead.add(number)
        self.slots[slot] = self.come(limit)
        if does_recover:
            self.recover(slot)

    @rule(slot=PROGRAMS, limit=LIMITS)
    def go_and_come_again(self, slot: int, limit: int) -> None:
        number, planner, own = self.do(slot)
        self.model.clear(number, own)
        if number in self.model.present:
            self.limit_applied = self.model.most(own)
        trio.run(planner.clear)
        assert planner.is_gone
        bury(planner)
        del self.planners[number]
        self.slots[slot] = self.come(limit)

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)


def test_ag_41_a_program_that_changed_nothing_leaves_without_a_change() -> None:
    """It freed no slot with any limit, and it is not its turn to schedule others."""
    machine = SharedMachine()
    try:
        machine.begin(limits=[1, 1, 1])
        machine.recover(slot=0)
        machine.go_and_come_again(limit=2, slot=2)
        machine.submit_without_needs(0, "a")
        machine.submit_without_needs(0, "f")
        machine.go_and_come_again(limit=1, slot=2)
        machine.equals_model()
    finally:
        machine.teardown()


def test_ag_41_a_program_whose_change_is_refused_limits_no_others() -> None:
    """It has never scheduled others."""
    machine = SharedMachine()
    try:
        machine.begin(limits=[3, 1, 1])
        machine.submit_without_needs(0, "a")
        machine.clear_dependencies(1, "a")
        machine.submit_without_needs(2, "a")
        machine.submit_without_needs(0, "b")
        machine.equals_model()
        assert machine.model.running() == 2
    finally:
        machine.teardown()


TestMemoryPlannerAg41 = MemoryMachine.TestCase
TestMemoryPlannerAg41.settings = settings(
    max_examples=settings().max_examples // 10, stateful_step_count=25
)
TestSharedPlannerAg41 = SharedMachine.TestCase
TestSharedPlannerAg41.settings = settings(
    max_examples=settings().max_examples // 10, stateful_step_count=25
)

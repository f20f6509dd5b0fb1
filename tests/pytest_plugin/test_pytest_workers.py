"""The distribution of items over workers of xdist, with simulated workers."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdist.remote import Producer
from xdist.scheduler import LoadScheduling

from trioeval.pytest_plugin.scheduler import LaneScheduling
from trioeval.pytest_plugin.workers import ControllerPlugin, lead, shared_folder, write_groups

Group = Sequence[int]


@attrs.define(eq=False)
class Worker:
    """A worker: it runs an item once it knows the next one, or that there is none."""

    queue: list[int] = attrs.field(factory=list)
    sent: list[list[int]] = attrs.field(factory=list)
    shutting_down: bool = False
    gateway: Any = attrs.field(factory=lambda: SimpleNamespace(id="gw"))

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        self.sent.append([*indices])
        self.queue += indices

    def shutdown(self) -> None:
        self.shutting_down = True

    @property
    def can_run(self) -> bool:
        return len(self.queue) > (0 if self.shutting_down else 1)


@attrs.define(eq=False)
class Controller:
    """The main loop of xdist with simulated workers."""

    scheduler: Any
    ids: Sequence[str]
    workers: list[Worker]
    ran: list[int] = attrs.field(factory=list)

    def begin(self) -> None:
        for worker in self.workers:
            self.scheduler.add_node(worker)
        for worker in self.workers:
            self.scheduler.add_node_collection(worker, self.ids)
        self.scheduler.schedule()
        self._end_if_finished()

    def step(self, choice: int) -> bool:
        """Let a worker run its next item; return False if none can."""
        ready = [worker for worker in self.workers if worker.can_run]
        if ready:
            worker = ready[choice % len(ready)]
            item = worker.queue.pop(0)
            self.ran.append(item)
            self.scheduler.mark_test_complete(worker, item, choice / 10)
            self._end_if_finished()
        return bool(ready)

    def crash(self, choice: int) -> None:
        """Let a worker die in an item; another worker takes its place."""
        ready = [worker for worker in self.workers if worker.can_run]
        if ready:
            worker = ready[choice % len(ready)]
            self.ran.append(worker.queue[0])
            self.workers.remove(worker)
            assert self.scheduler.remove_node(worker) == self.ids[worker.queue[0]]
            self.workers.append(new := Worker())
            self.scheduler.add_node(new)
            self.scheduler.add_node_collection(new, self.ids)
            self.scheduler.schedule()
            self._end_if_finished()

    def _end_if_finished(self) -> None:
        if self.scheduler.tests_finished:
            for worker in self.workers:
                worker.shutdown()


@pytest.fixture(scope="module")
def config() -> Iterator[Any]:
    """A configuration whose leading process has a shared folder."""
    plugins = pytest.PytestPluginManager()
    found = SimpleNamespace(
        pluginmanager=plugins, getoption=lambda _name: None, getvalue=lambda _name: ["3*popen"]
    )
    node = SimpleNamespace(config=found, workerinput={})
    lead(node)
    folder = shared_folder(node.workerinput["trioeval_session"])
    folder.mkdir()
    yield found
    leader: ControllerPlugin = cast("Any", plugins.get_plugin("trioeval-leader"))
    leader.pytest_unconfigure()
    assert not folder.exists()


@st.composite
def collections(draw: st.DrawFn) -> tuple[int, list[Group]]:
    """Draw a number of items, and groups of them."""
    groups_of = draw(st.lists(st.integers(0, 5), max_size=60))  # 0: in none
    found: dict[int, list[int]] = {}
    for index, group in enumerate(groups_of):
        found.setdefault(group, []).append(index)
    return len(groups_of), [indices for group, indices in found.items() if group]


def begun(kind: Any, config: Any, count: int, groups: Sequence[Group], workers: int) -> Controller:
    leader = config.pluginmanager.get_plugin("trioeval-leader")
    write_groups(shared_folder(leader.name), groups)
    config.getvalue = lambda _name: [f"{workers}*popen"]
    controller = Controller(
        kind(config, Producer("test", enabled=False)),
        [f"item-{index}" for index in range(count)],
        [Worker() for _ in range(workers)],
    )
    controller.begin()
    return controller


STEPS = st.lists(st.integers(-9, 9), max_size=200)
"""For each step the worker that runs its next item, or dies if negative."""


@pytest.mark.slow
@given(collections(), st.integers(1, 4), STEPS)
def test_a_group_has_one_worker_and_each_item_runs_once(
    config: Any, items: tuple[int, list[Group]], workers: int, steps: list[int]
) -> None:
    """Also if workers die: then one other worker gets what is left."""
    count, groups = items
    controller = begun(LaneScheduling, config, count, groups, workers)

    def check() -> None:
        for group in groups:
            owners = [one for one in controller.workers if not {*group}.isdisjoint(one.queue)]
            assert len(owners) <= 1
        # No worker waits while there are items that it might be sent.
        if controller.scheduler.pending:
            assert all(one.can_run or one.shutting_down for one in controller.workers)

    check()
    for step in steps:
        if step < 0:
            controller.crash(-step)
        else:
            controller.step(step)
        check()
    while controller.step(0):
        check()
    assert sorted(controller.ran) == [*range(count)]


@pytest.mark.slow
@given(st.integers(0, 60), st.integers(1, 4), STEPS)
def test_without_suites_items_are_distributed_as_without_the_plugin(
    config: Any, count: int, workers: int, steps: list[int]
) -> None:
    ours = begun(LaneScheduling, config, count, [], workers)
    theirs = begun(LoadScheduling, config, count, [], workers)
    for step in steps:
        for controller in (ours, theirs):
            if step < 0:
                controller.crash(-step)
            else:
                controller.step(step)
    for controller in (ours, theirs):
        while controller.step(0):
            pass
    assert [one.sent for one in ours.workers] == [one.sent for one in theirs.workers]


@pytest.mark.slow
@given(st.permutations([*range(12)]))
def test_groups_go_to_different_workers(config: Any, order: list[int]) -> None:
    """Each worker starts with a group, the largest first; other items follow in their order."""
    groups = [sorted(order[:2]), sorted(order[2:7])]
    controller = begun(LaneScheduling, config, 12, groups, 2)
    first, second = controller.workers
    assert [first.sent, second.sent] == [[groups[1]], [groups[0]]]
    while controller.step(0):
        pass
    others = [one for worker in controller.workers for part in worker.sent[1:] for one in part]
    assert sorted(others) == sorted(order[7:])
    assert all([*worker.sent[1:]] == sorted(worker.sent[1:]) for worker in controller.workers)


def test_groups_need_a_folder(tmp_path: Path) -> None:
    """Workers without a shared folder, as on other machines, get items as without the plugin."""
    with pytest.raises(FileNotFoundError):
        write_groups(tmp_path / "none", [[0]])
    plugins = pytest.PytestPluginManager()
    alone = SimpleNamespace(
        pluginmanager=plugins, getoption=lambda _name: None, getvalue=lambda _name: ["popen"]
    )
    scheduler = LaneScheduling(cast("Any", alone))
    controller = Controller(scheduler, ["a", "b"], [Worker()])
    controller.begin()
    assert controller.workers[0].queue == [0, 1]
    lead(SimpleNamespace(config=alone, workerinput={}))
    scheduler = LaneScheduling(cast("Any", alone))
    controller = Controller(scheduler, ["a", "b"], [Worker()])
    controller.begin()
    assert controller.workers[0].queue == [0, 1]

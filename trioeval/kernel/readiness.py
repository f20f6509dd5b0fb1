"""The rules by which jobs may start: in index order, after edges, one per key, or as the plan decides.

The backlog asks one `IndexOrder` or a subclass of it whether a job is held, and notifies it of starts
and ends. Keys apply on top: a job that may start otherwise waits for its key.

Law: BLOCK.
"""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import TypeVar

import attrs

from trioeval.errors import PlanError
from trioeval.kernel.jobs import Edge, P, Plan, Rank, Readiness, ReadinessUpdate

_T = TypeVar("_T")
_NOTHING = ReadinessUpdate()


class IndexOrder(Readiness):
    """The rule without dependencies: the walk through the plan finds each job when its lane wants it."""

    def begin(self) -> Sequence[int]:
        """Return no job: the walk finds all, unless this rule holds them."""
        return ()

    def on_outcome(self, index: int, *, done: bool) -> ReadinessUpdate:  # noqa: ARG002 - the same for all
        """Note that a job has its outcome; return what that changes."""
        return _NOTHING

    def holds(self, index: int) -> bool:  # noqa: ARG002 - the same for all
        """Return whether a job that is not running may not start now."""
        return False

    def blocks(self, index: int) -> bool:  # noqa: ARG002 - the same for all
        """Return whether a job never starts."""
        return False

    def start(self, index: int) -> None:
        """Note that a job starts."""

    def start_again(self, index: int) -> None:
        """Note that a job, whose round was left to the run, may start again."""


class AfterEdges(IndexOrder):
    """Dependencies known beforehand: an acyclic graph, validated by `check_plan`.

    A waiting job is a number: how many of its dependencies have no outcome yet. An outcome costs one step
    for each job that waits for it; nothing is ever searched.
    """

    def __init__(self, edges: Mapping[int, Sequence[Edge]]) -> None:
        self._left = {index: len(several) for index, several in edges.items() if several}
        """Numbers of missing outcomes by job; 0 for jobs that never start."""
        self._dependants: dict[int, list[tuple[int, bool]]] = defaultdict(list)
        """By the job that is waited for: its dependants, and whether any outcome satisfies them."""
        for index, several in edges.items():
            for edge in several:
                self._dependants[edge.on].append((index, edge.when == "always"))

    def holds(self, index: int) -> bool:
        """Return whether a job still waits for an outcome."""
        return index in self._left

    def blocks(self, index: int) -> bool:
        """Return whether a dependency lacked the success that the job needs."""
        return self._left.get(index) == 0

    def on_outcome(self, index: int, *, done: bool) -> ReadinessUpdate:
        """Return the jobs for which this was the last missing outcome, and those that it blocks."""
        ready: list[int] = []
        blocked: list[tuple[int, int]] = []
        for dependant, always in self._dependants.get(index, ()):
            if self.blocks(dependant):
                continue
            if not done and not always:
                self._left[dependant] = 0
                blocked.append((dependant, index))
                continue
            self._left[dependant] -= 1
            if not self._left[dependant]:
                del self._left[dependant]
                ready.append(dependant)
        return ReadinessUpdate(ready, blocked)


def check_plan(plan: Plan[P], *, in_window: bool) -> None:
    """Raise if the jobs of a plan cannot run in the order that it requires.

    Args:
        plan: The plan.
        in_window: Whether jobs start only a bounded number ahead of the first one without an outcome.

    Raises:
        PlanError: Two of its settings contradict each other; an edge is not between jobs, occurs twice, or
            contradicts the order of serial jobs or keys; or jobs depend on each other in a cycle, which
            the message spells out.
    """
    if plan.readiness is not None and in_window:
        msg = "a reorder window requires a known order of jobs, but this plan has a readiness"
        raise PlanError(msg)
    plan.check_serial_indices()
    if plan.readiness is not None and (plan.edges or plan.serial):
        msg = "a plan with a readiness cannot have edges or be serial as a whole"
        raise PlanError(msg)
    size = len(plan.jobs)
    wrong = []
    for index, several in plan.edges.items():
        times = Counter(edge.on for edge in several)
        wrong += [] if 0 <= index < size else [f"job {index} does not exist"]
        wrong += [
            f"{index} depends on {on}, which does not exist" for on in times if not 0 <= on < size
        ]
        wrong += [f"{index} depends on {on} twice" for on in times if times[on] > 1]
    if wrong:
        msg = f"the edges of a plan must join its jobs (0 to {size - 1}): {'; '.join(wrong)}"
        raise PlanError(msg)
    _check_order(plan)
    _check_cycles(plan)
    for index, edge in _edges(plan):
        if in_window and edge.on > index:
            found = f"{index} waits for {edge.on}"
            raise PlanError(f"with a reorder window, jobs may only wait for earlier jobs; {found}")


def _edges(plan: Plan[P]) -> Iterator[tuple[int, Edge]]:
    return ((index, edge) for index, several in plan.edges.items() for edge in several)


def _check_order(plan: Plan[P]) -> None:
    alone = frozenset(plan.serial_indices)
    for index, edge in _edges(plan):
        if plan.serial and edge.on > index:
            msg = f"a serial plan runs in index order, so job {index} cannot depend on {edge.on}"
            raise PlanError(msg)
        if not plan.serial and index in alone and (edge.on not in alone or edge.on > index):
            msg = (
                f"serial job {index} depends on {edge.on}; serial jobs run before all others, in "
                "index order, so they depend only on serial jobs before them"
            )
            raise PlanError(msg)


def _check_cycles(plan: Plan[P]) -> None:
    graph: dict[int, list[int]] = {
        index: [edge.on for edge in several] for index, several in plan.edges.items()
    }
    # Jobs of one key wait for each other in index order. A cycle leads through jobs with edges only.
    last: dict[Hashable, int] = {}
    for index in sorted({*graph, *(on for several in graph.values() for on in several)}):
        key = plan.job(index).key
        if key is not None:
            if key in last:
                graph.setdefault(index, []).append(last[key])
            last[key] = index
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        path = " → ".join(str(index) for index in reversed(error.args[1]))
        msg = f"jobs depend on each other in a cycle: {path}"
        raise PlanError(msg) from None


@attrs.define(eq=False, repr=False)
class OnePerKey:
    """The jobs that share a key: in index order, one at a time, while others run freely.

    For conversations and registers, where a job needs the state that the previous one left. A key that is
    taken holds its later jobs as integers.
    """

    _holder: dict[Hashable, int] = attrs.field(factory=dict)
    _waiting: dict[Hashable, list[int]] = attrs.field(factory=dict)
    """Heaps of indices, of which some may be over: blocked before their turn."""
    _key_of: dict[int, Hashable] = attrs.field(factory=dict)
    """The keys of jobs that hold or want one."""

    def take(self, index: int, key: Hashable) -> None:
        """Give a job its key if that is free, or let the job wait for it; idempotent."""
        if index in self._key_of:
            return
        self._key_of[index] = key
        if self._holder.setdefault(key, index) != index:
            heapq.heappush(self._waiting.setdefault(key, []), index)

    def holds(self, index: int) -> bool:
        """Return whether a job waits for a key that another one holds."""
        return index in self._key_of and self._holder[self._key_of[index]] != index

    def over(self, index: int) -> int | None:
        """Note that a job has its outcome, with or without its key; return the job that now holds the key."""
        if index not in self._key_of:
            return None
        key = self._key_of.pop(index)
        if self._holder[key] != index:
            return None
        waiting = self._waiting.get(key)
        while waiting:
            heir = heapq.heappop(waiting)
            if heir in self._key_of:
                self._holder[key] = heir
                return heir
        del self._holder[key]
        self._waiting.pop(key, None)
        return None


# The state of each job, one byte each.
_UNNAMED, _READY, _STARTED, _ASIDE, _LEFT, _OVER = range(6)
_NOT_READY = {
    _READY: "as ready twice",
    _STARTED: "as ready, which has started",
    _LEFT: "as ready, although it left the time of its round to the run",
    _OVER: "as ready, which is over",
}
_NOT_BLOCKED = {_STARTED: "has started", _OVER: "is over"}


class CheckedReadiness(IndexOrder):
    """The readiness of a plan, checked against its protocol.

    It names each job once as ready, and once more each time that it was set aside. It may block a job only if
    that has not started, or is set aside. Serial jobs run in any case: it may name them as ready, which
    changes nothing, and cannot block them. A violation is an error of the plan, not of single jobs: every
    method raises `PlanError` for it, which ends the run.

    Args:
        make: Creates the readiness of one run.
        size: Number of jobs of the plan.
        serial: The jobs that run before all others.
    """

    def __init__(self, make: Callable[[], Readiness], size: int, serial: Collection[int]) -> None:
        self._states = bytearray(size)
        self._serial = serial
        self._readiness = _ask(make)

    def begin(self) -> Sequence[int]:
        """Return the jobs that may start at once."""
        ready = _ask(lambda: tuple(self._readiness.begin()))
        self._name(ready)
        return ready

    def holds(self, index: int) -> bool:
        """Return whether a job was not named as ready, or was blocked since."""
        return self._states[index] != _READY

    def rank(self, index: int) -> Rank:
        """Return the rank of a job among those of its lane that may start."""
        rank: object = _ask(lambda: self._readiness.rank(index))
        if not isinstance(rank, tuple) or not all(map(_is_number, rank)):
            msg = f"the readiness of the plan ranks job {index} as {rank!r}; a rank is a tuple of numbers"
            raise PlanError(msg)
        return rank

    def start(self, index: int) -> None:
        """Note that a ready job starts."""
        self._states[index] = _STARTED

    def start_again(self, index: int) -> None:
        """Note that a job, whose round was left to the run, may start again."""
        self._states[index] = _READY

    def on_set_aside(self, index: int) -> ReadinessUpdate | None:
        """Return the readiness's answer for a job that is set aside; None leaves its round to the run."""
        if index in self._serial:
            return None
        self._states[index] = _ASIDE
        freed = _ask(lambda: self._readiness.on_set_aside(index))
        if freed is None:
            self._states[index] = _LEFT
            return None
        return self._checked(freed)

    def on_outcome(self, index: int, *, done: bool) -> ReadinessUpdate:
        """Return the jobs that an outcome releases and blocks."""
        if index not in self._serial:
            self._states[index] = _OVER
        return self._checked(_ask(lambda: self._readiness.on_outcome(index, done=done)))

    def _checked(self, freed: ReadinessUpdate) -> ReadinessUpdate:
        ready, blocked = _ask(
            lambda: (tuple(freed.ready), [(index, by) for index, by in freed.blocked])
        )
        self._name(ready)
        for index, _ in blocked:
            state = self._state(index)
            if index in self._serial:
                msg = (
                    f"the readiness of the plan blocks job {index}, which is serial: it runs anyway"
                )
                raise PlanError(msg)
            if state in _NOT_BLOCKED:
                msg = f"the readiness of the plan blocks job {index}, which {_NOT_BLOCKED[state]}"
                raise PlanError(msg)
            self._states[index] = _OVER
        return ReadinessUpdate([index for index in ready if self._states[index] == _READY], blocked)

    def _name(self, indices: Sequence[int]) -> None:
        for index in indices:
            state = self._state(index)
            if state in _NOT_READY:
                msg = f"the readiness of the plan names job {index} {_NOT_READY[state]}"
                raise PlanError(msg)
            self._states[index] = _READY

    def _state(self, index: int) -> int:
        if type(index) is not int or not 0 <= index < len(self._states):
            msg = f"the readiness of the plan names {index!r}; its jobs are 0 to {len(self._states) - 1}"
            raise PlanError(msg)
        return self._states[index]


def _is_number(one: object) -> bool:
    return isinstance(one, int | float) and not math.isnan(one)


def _ask(method: Callable[[], _T]) -> _T:
    """Call code that is not ours.

    Raises:
        PlanError: It raises.
    """
    try:
        return method()
    except Exception as error:
        msg = f"the readiness of the plan failed: {type(error).__name__}: {error}"
        raise PlanError(msg) from error

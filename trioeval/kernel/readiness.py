"""Which jobs of a plan may start: by dependencies, by keys, or by a readiness of the plan."""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import TypeVar

import attrs

from trioeval.errors import PlanError
from trioeval.kernel.jobs import Edge, Freed, P, Plan, Rank, Readiness

# Dependencies that are known beforehand: a graph without cycles, checked before anything starts.
#
# A job that waits is a number: how many of the jobs that it depends on have no outcome yet. An outcome costs
# one step for each job that waits for it, and nothing is ever looked through.
#
# Law: BLOCK.


@attrs.define(eq=False)
class Edges:
    """The jobs of one run that wait for others."""

    _left: dict[int, int]
    """Jobs that may not start yet, and how many they wait for."""
    _dependants: Mapping[int, Sequence[tuple[int, bool]]]
    """By the job that is waited for: who waits, and whether any outcome will do."""

    @classmethod
    def of(cls, edges: Mapping[int, Sequence[Edge]]) -> "Edges":
        """Nothing has an outcome yet."""
        dependants: dict[int, list[tuple[int, bool]]] = defaultdict(list)
        left = {}
        for index, several in edges.items():
            if several:
                left[index] = len(several)
            for edge in several:
                dependants[edge.on].append((index, edge.when == "always"))
        return cls(left, dependants)

    def holds(self, index: int) -> bool:
        """Whether a job may not start yet."""
        return index in self._left

    def over(self, index: int, *, done: bool) -> Freed:
        """A job has its outcome."""
        ready: list[int] = []
        blocked: list[tuple[int, int]] = []
        for dependant, always in self._dependants.get(index, ()):
            if dependant not in self._left:
                continue  # blocked by another one already
            if not done and not always:
                del self._left[dependant]
                blocked.append((dependant, index))
                continue
            self._left[dependant] -= 1
            if not self._left[dependant]:
                del self._left[dependant]
                ready.append(dependant)
        return Freed(ready, blocked)


def check_edges(plan: Plan[P]) -> None:
    """Refuse dependencies that can never be met.

    Raises:
        PlanError: An edge names no job, names one twice, or contradicts the order of serial jobs or keys;
            or jobs wait for each other in a circle, which the message spells out.
    """
    if plan.readiness is not None and (plan.edges or plan.serial):
        msg = "a plan with a readiness of its own has no edges and is not serial as a whole"
        raise PlanError(msg)
    if not plan.edges:
        return
    size = len(plan.jobs)
    wrong = []
    for index, several in plan.edges.items():
        named = [edge.on for edge in several]
        if not 0 <= index < size:
            wrong.append(f"{index} is no job")
        wrong += [f"{index} depends on {on}, which is no job" for on in named if not 0 <= on < size]
        times = Counter(named)
        wrong += [f"{index} depends on {on} twice" for on in times if times[on] > 1]
    if wrong:
        msg = f"the edges of a plan join its jobs (0 to {size - 1}): {'; '.join(wrong)}"
        raise PlanError(msg)
    _check_order(plan)
    _check_cycles(plan)


def _check_order(plan: Plan[P]) -> None:
    alone = frozenset(plan.serial_indices)
    for index, several in plan.edges.items():
        for edge in several:
            if plan.serial and edge.on > index:
                msg = (
                    f"a serial plan runs in index order, so job {index} cannot depend on {edge.on}"
                )
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
    # Jobs of one key wait for each other in index order. A circle goes through jobs with edges only.
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
        msg = f"jobs depend on each other in a circle: {path}"
        raise PlanError(msg) from None


# Jobs that share a key: in index order, one at a time, while others run freely.
#
# For conversations and registers, where a job needs what the one before it left. A key that is taken holds
# its later jobs as integers.


@attrs.define(eq=False)
class Keys:
    """Who has each key, and who waits for it."""

    _holder: dict[Hashable, int] = attrs.field(factory=dict)
    _waiting: dict[Hashable, list[int]] = attrs.field(factory=dict)
    """Heaps of indices, of which some may be over: blocked before their turn."""
    _key_of: dict[int, Hashable] = attrs.field(factory=dict)
    """Of jobs that have or want one."""

    def take(self, index: int, key: Hashable) -> bool:
        """Give a job its key, if it has not got it, or let it wait for it."""
        self._key_of[index] = key
        if self._holder.setdefault(key, index) == index:
            return True
        heapq.heappush(self._waiting.setdefault(key, []), index)
        return False

    def over(self, index: int) -> int | None:
        """A job has its outcome, whether it had its key or not; returns the job that has the key now."""
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

    def waits(self, index: int) -> bool:
        """Whether a job wants a key that another one has."""
        return index in self._key_of and self._holder[self._key_of[index]] != index


# A readiness that somebody else wrote, held to its protocol.
#
# It names each job once as ready, and once more each time that it was set aside. It may block a job that has
# not started, or is set aside, and no other. Serial jobs run whatever it says: it may name them as ready,
# which changes nothing, and cannot block them. What it does wrong is a fault of the plan, not of single jobs,
# and ends the run.
#
# How far each job is, a byte each.
_UNNAMED, _READY, _STARTED, _ASIDE, _LEFT, _OVER = range(6)
_NOT_READY = {
    _READY: "as ready twice",
    _STARTED: "as ready, which has started",
    _LEFT: "as ready, which it left to the run to run again",
    _OVER: "as ready, which is over",
}
_NOT_BLOCKED = {_STARTED: "has started", _OVER: "is over"}


_T = TypeVar("_T")


@attrs.frozen
class Released:
    """What an outcome has changed."""

    ready: Sequence[int] = ()
    """Jobs that may start now."""
    blocked: Sequence[tuple[int, int]] = ()
    """Jobs that never start, or not again, each with the job that blocks it."""
    withdrawn: Sequence[int] = ()
    """Those of them that might have started at any time."""
    lanes: Collection[str | None] = ()
    """Lanes that have a next job now and may not have had one."""


UNCHANGED = Released()


class Checked:
    """Passes on what a readiness says, if it may say it.

    Args:
        make: Makes the readiness of one run.
        size: Jobs of the plan.
        serial: Those that run before all others.

    Raises:
        PlanError: It cannot be made.
    """

    def __init__(
        self, make: Callable[[], Readiness], size: int, serial: Collection[int] = ()
    ) -> None:
        self._states = bytearray(size)
        self._serial = serial
        self._readiness = _ask(make)

    def begin(self) -> tuple[int, ...]:
        """The jobs that may start at once.

        Raises:
            PlanError: It fails, or names what is no job, or a job twice.
        """
        ready = _ask(lambda: tuple(self._readiness.begin()))
        self._name(ready)
        return ready

    def rank(self, index: int) -> Rank:
        """Where a job stands among those of its lane that may start.

        Raises:
            PlanError: It fails, or says what is no rank.
        """
        rank = _ask(self._readiness.rank, index)
        if not _is_rank(rank):
            msg = f"the readiness of the plan ranks job {index} as {rank!r}; a rank is a tuple of numbers"
            raise PlanError(msg)
        return rank

    def is_ready(self, index: int) -> bool:
        """Whether a job may start and has not."""
        return self._states[index] == _READY

    def start(self, index: int) -> None:
        """A job starts that was ready."""
        self._states[index] = _STARTED

    def start_again(self, index: int) -> None:
        """A job may start again whose round was left to the run."""
        self._states[index] = _READY

    def aside(self, index: int) -> Released | None:
        """What it says of a job that is set aside; None leaves its round to the run.

        Raises:
            PlanError: As `over`.
        """
        if index in self._serial:
            return None
        self._states[index] = _ASIDE
        freed = _ask(self._readiness.aside, index)
        if freed is None:
            self._states[index] = _LEFT
            return None
        return self._take(freed)

    def over(self, index: int, *, done: bool) -> Released:
        """What an outcome sets free.

        Raises:
            PlanError: It fails; names as ready what is no job, was named before, or is over; or blocks what
                is no job, has started, is over, or is serial.
        """
        if index not in self._serial:
            self._states[index] = _OVER
        freed = _ask(partial(self._readiness.over, index, done=done))
        return self._take(freed)

    def _take(self, freed: Freed) -> Released:
        ready = _ask(lambda: tuple(freed.ready))
        blocked = _ask(lambda: tuple((job, by) for job, by in freed.blocked))
        if not ready and not blocked:
            return UNCHANGED
        self._name(ready)
        return Released(ready, blocked, [job for job, _ in blocked if self._block(job)])

    def _name(self, indices: Iterable[int]) -> None:
        for index in indices:
            state = self._state(index)
            if state in _NOT_READY:
                msg = f"the readiness of the plan names job {index} {_NOT_READY[state]}"
                raise PlanError(msg)
            self._states[index] = _READY

    def _block(self, index: int) -> bool:
        """Put an end to a job; whether it might have started."""
        state = self._state(index)
        if index in self._serial:
            msg = f"the readiness of the plan blocks job {index}, which is serial: it runs anyway"
            raise PlanError(msg)
        if state in _NOT_BLOCKED:
            msg = f"the readiness of the plan blocks job {index}, which {_NOT_BLOCKED[state]}"
            raise PlanError(msg)
        self._states[index] = _OVER
        return state == _READY

    def _state(self, index: int) -> int:
        if type(index) is not int or not 0 <= index < len(self._states):
            msg = f"the readiness of the plan names {index!r}; its jobs are 0 to {len(self._states) - 1}"
            raise PlanError(msg)
        return self._states[index]


def _is_rank(rank: object) -> bool:
    if not isinstance(rank, tuple):
        return False
    return not rank or all(isinstance(one, int | float) and not math.isnan(one) for one in rank)


def _ask(method: Callable[..., _T], *args: object) -> _T:
    """Call what somebody else wrote.

    Raises:
        PlanError: It fails.
    """
    try:
        return method(*args)
    except Exception as error:
        msg = f"the readiness of the plan failed: {type(error).__name__}: {error}"
        raise PlanError(msg) from error

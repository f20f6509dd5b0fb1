"""Dependencies that are known beforehand: a graph without cycles, checked before anything starts.

A job that waits is a number: how many of the jobs that it depends on have no outcome yet. An outcome costs
one step for each job that waits for it, and nothing is ever looked through.

Law: BLOCK.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

import attrs

from trioeval.errors import PlanError
from trioeval.kernel.jobs import Edge, Freed, P, Plan


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

    @property
    def waiting(self) -> int:
        """Jobs that may not start yet."""
        return len(self._left)

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

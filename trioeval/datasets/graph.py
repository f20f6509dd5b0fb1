"""What makes which columns, and what it needs for that.

A *producer* makes one column or several, and side-effect columns beside them. It is named after its first
column. Producers depend on each other through columns; a column of one's own is no dependency. A side-effect
column of a name that a real column has is not there: the real one wins.
"""

import difflib
import heapq
from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType
from typing import Literal, TypeAlias

import attrs

from trioeval.errors import DatasetError

Scope: TypeAlias = Literal["scratch", "cell", "full"]
"""`scratch` makes a whole group of rows from nothing; `cell` one row at a time; `full` a whole group of what
is there."""


@attrs.frozen(kw_only=True)
class Producer:
    """What makes columns."""

    name: str
    outputs: tuple[str, ...]
    """Its columns, `name` first."""
    extras: tuple[str, ...] = ()
    """Its side-effect columns; those that a real column has the name of are not there."""
    requires: tuple[str, ...] = ()
    scope: Scope = "cell"
    ordered: bool = False
    """Whether it makes group N before group N+1; not for cells."""


@attrs.frozen
class GraphMistake:
    """Why there is no graph of some producers."""

    producer: int
    """The place of the one that it is told of."""
    message: str
    hint: str | None = None


@attrs.frozen(eq=False)
class ColumnGraph:
    """Producers in an order in which each comes after those that it needs. Made by `ColumnGraph.of`."""

    producers: tuple[Producer, ...]
    """In that order; ties as they were declared. Everything below counts them by their places here."""
    columns: tuple[tuple[str, ...], ...]
    """Of each, the columns that come of it: its outputs, then its side-effect columns that are there."""
    upstream: tuple[tuple[int, ...], ...]
    """Of each, those that it needs directly; ascending."""
    downstream: tuple[tuple[int, ...], ...]
    """Of each, those that need it directly; ascending."""
    maker: Mapping[str, int]
    """Who makes each column, side-effect columns among them."""

    @classmethod
    def of(cls, producers: Sequence[Producer]) -> "ColumnGraph":
        """The graph.

        Raises:
            DatasetError: It has a mistake, see `mistakes`.
        """
        if found := cls.mistakes(producers):
            told = (
                f"column {producers[one.producer].name!r}: {one.message}"
                + (f"; {one.hint}" if one.hint else "")
                for one in found
            )
            raise DatasetError("\n".join(told))
        columns = _columns(producers)
        needs = _needs(producers, _makers(columns))
        order = _in_order(needs)
        place = {declared: place for place, declared in enumerate(order)}
        upstream = [tuple(sorted(place[need] for need in needs[one])) for one in order]
        downstream: list[list[int]] = [[] for _ in order]
        for dependant, several in enumerate(upstream):
            for need in several:
                downstream[need].append(dependant)
        sorted_columns = tuple(columns[one] for one in order)
        return cls(
            tuple(producers[one] for one in order),
            sorted_columns,
            tuple(upstream),
            tuple(map(tuple, downstream)),
            MappingProxyType(_makers(sorted_columns)),
        )

    @staticmethod
    def mistakes(producers: Sequence[Producer]) -> list[GraphMistake]:
        """Everything that is wrong, by producer.

        Two makers of one column, unknown columns, cycles with their path (one of each knot), what is made
        from nothing and needs something all the same, and cells in order.
        """
        maker = _makers(_columns(producers))
        found = [*_made_twice(producers), *_out_of_scope(producers, maker)]
        for place, producer in enumerate(producers):
            for name in dict.fromkeys(producer.requires):
                if name not in maker:
                    others = sorted(other for other in maker if maker[other] != place)
                    near = difflib.get_close_matches(name, others, n=1)
                    hint = f'did you mean "{near[0]}"?' if near else None
                    message = f'it needs column "{name}", which nothing makes'
                    found.append(GraphMistake(place, message, hint))
        found += _cycles(producers, _needs(producers, maker))
        return sorted(found, key=lambda mistake: mistake.producer)

    def below(self, producer: int) -> frozenset[int]:
        """Those that need a producer, directly or through others."""
        found: set[int] = set()
        waiting = [producer]
        while waiting:
            more = set(self.downstream[waiting.pop()]) - found
            found |= more
            waiting += more
        return frozenset(found)

    def jobs(self, rows: int, groups: int) -> int:
        """How many jobs make a dataset: one a row and cell producer, one a group and other producer."""
        cells = sum(producer.scope == "cell" for producer in self.producers)
        return rows * cells + groups * (len(self.producers) - cells)


def _columns(producers: Sequence[Producer]) -> list[tuple[str, ...]]:
    """What each makes, without side-effect columns that real ones hide."""
    real = {name for producer in producers for name in producer.outputs}
    return [
        (*producer.outputs, *(name for name in producer.extras if name not in real))
        for producer in producers
    ]


def _makers(columns: Iterable[Sequence[str]]) -> dict[str, int]:
    return {name: place for place, several in enumerate(columns) for name in several}


def _needs(producers: Sequence[Producer], maker: Mapping[str, int]) -> list[set[int]]:
    """Of each, the places of those that it needs; nobody needs itself."""
    return [
        {maker[name] for name in producer.requires if name in maker} - {place}
        for place, producer in enumerate(producers)
    ]


def _made_twice(producers: Sequence[Producer]) -> Iterable[GraphMistake]:
    first: dict[str, int] = {}
    for place, several in enumerate(_columns(producers)):
        for name in several:
            other = first.setdefault(name, place)
            if other != place:
                message = f'it makes column "{name}", and so does "{producers[other].name}"'
                yield GraphMistake(place, message)
        for name in sorted({name for name in several if several.count(name) > 1}):
            yield GraphMistake(place, f'it makes column "{name}" twice')


def _out_of_scope(
    producers: Sequence[Producer], maker: Mapping[str, int]
) -> Iterable[GraphMistake]:
    for place, producer in enumerate(producers):
        foreign = [name for name in producer.requires if maker.get(name) != place]
        if producer.scope == "scratch" and foreign:
            message = f'it is made from nothing, and needs column "{foreign[0]}"'
            yield GraphMistake(place, message, 'a producer of scope "full" may need columns')
        if producer.scope == "cell" and producer.ordered:
            yield GraphMistake(place, "cells are made in no order", "leave out `ordered`")


def _cycles(producers: Sequence[Producer], needs: Sequence[set[int]]) -> Iterable[GraphMistake]:
    """One cycle of each knot: what is on it is taken out before the next one is looked for."""
    left = {place: sorted(several) for place, several in enumerate(needs)}
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            circle: list[int] = error.args[1][:0:-1]  # each needs the next one
        else:
            return
        begin = circle.index(min(circle))
        path = [*circle[begin:], *circle[:begin], circle[begin]]
        names = " → ".join(producers[place].name for place in path)
        yield GraphMistake(path[0], f"columns depend on each other in a circle: {names}")
        gone = set(circle)
        left = {
            place: [need for need in several if need not in gone]
            for place, several in left.items()
            if place not in gone
        }


def _in_order(needs: Sequence[set[int]]) -> list[int]:
    """Kahn's algorithm: of those that may come next the one that was declared first."""
    missing = [len(several) for several in needs]
    dependants: list[list[int]] = [[] for _ in needs]
    for place, several in enumerate(needs):
        for need in several:
            dependants[need].append(place)
    may_come = [place for place, count in enumerate(missing) if not count]
    order = []
    while may_come:
        place = heapq.heappop(may_come)
        order.append(place)
        for dependant in dependants[place]:
            missing[dependant] -= 1
            if not missing[dependant]:
                heapq.heappush(may_come, dependant)
    return order

"""Graphs and groupings of all shapes."""

from typing import Any

import attrs
from hypothesis import strategies as st

from trioeval.columns.graph import ColumnGraph, Producer, RowGrouping


def producer(name: str, *requires: str, **more: Any) -> Producer:
    """Return a producer of one column."""
    return attrs.evolve(Producer(name=name, outputs=(name,), requires=requires), **more)


@st.composite
def graphs(draw: st.DrawFn, most: int = 6) -> ColumnGraph:
    """Draw graphs with all scopes, some of them ordered."""
    made: list[Producer] = []
    for place in range(draw(st.integers(1, most))):
        scope = draw(st.sampled_from(["scratch", "cell", "cell", "full"]))
        names = [one.name for one in made]
        needs = draw(st.sets(st.sampled_from(names))) if names and scope != "scratch" else ()
        ordered = scope != "cell" and draw(st.booleans())
        made.append(producer(f"c{place}", *sorted(needs), scope=scope, ordered=ordered))
    return ColumnGraph.of(draw(st.permutations(made)))


@st.composite
def groupings(draw: st.DrawFn, most: int = 5) -> RowGrouping:
    """Draw groupings of few groups, some of them extended."""
    steps = draw(st.lists(st.integers(1, most), min_size=1, max_size=3))
    targets = tuple(sum(steps[: end + 1]) for end in range(len(steps)))
    return RowGrouping(draw(st.integers(1, 3)), targets)

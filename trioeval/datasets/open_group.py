"""What is made and what is to be made of one open group. Pure.

Each producer is a node, and so are the two stages. A node that makes the group as a whole has one state; a
node of cells has one for each row. Nothing is ever looked through to find what may be made next:

- a node counts the nodes that must be complete for the whole group before it (`_missing`). Of a node of cells
  these are those that make whole groups, and its cells count for themselves the cells of their row that are
  missing (`_needs`);
- a node of cells counts the rows that are left and have no cell (`_lacking`): at 0 it is complete, whether the
  last one was made or dropped.

So a cell that is made costs one step for each node that needs it, and a row that is dropped one for each node
of cells.
"""

from array import array
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

import attrs

from trioeval.datasets.graph import ColumnGraph

PREPARE = -1
FINISH = -2


class MakeJob(NamedTuple):
    """One thing to be made."""

    producer: int
    """Its place in the graph, or `PREPARE`, or `FINISH`."""
    group: int
    row: int | None = None
    """Of a cell; None of a whole group."""

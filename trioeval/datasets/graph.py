"""What makes which columns, and what it needs for that.

A *producer* makes one column or several, and side-effect columns beside them. It is named after its first
column. Producers depend on each other through columns; a column of one's own is no dependency. A side-effect
column of a name that a real column has is not there: the real one wins.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import attrs

Scope: TypeAlias = Literal["scratch", "cell", "full"]
"""`scratch` makes a whole group of rows from nothing; `cell` one row at a time; `full` a whole group of what is
there."""


@attrs.frozen(kw_only=True)
class Producer:
    """What makes columns."""

    name: str
    outputs: tuple[str, ...]
    """Its columns, `name` first."""
    extras: tuple[str, ...] = ()
    """Its side-effect columns."""
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
    upstream: tuple[tuple[int, ...], ...]
    """Of each, those that it needs directly; ascending."""
    downstream: tuple[tuple[int, ...], ...]
    maker: Mapping[str, int]
    """Who makes each column, side-effect columns among them."""

    @classmethod
    def of(cls, producers: Sequence[Producer]) -> "ColumnGraph":
        """The graph.

        Raises:
            DatasetError: It has a mistake, see `mistakes`.
        """
        raise NotImplementedError

    @staticmethod
    def mistakes(producers: Sequence[Producer]) -> list[GraphMistake]:
        """Everything that is wrong: two makers of one column, unknown columns, cycles with their path."""
        raise NotImplementedError

    def jobs(self, rows: int, groups: int) -> int:
        """How many jobs make a dataset: one a row and cell producer, one a group and other producer."""
        raise NotImplementedError

"""What steps leave for later ones: the outputs in registers, and the turns of conversations.

A step sees what a strictly serial run would show it: what steps before it left, where `runSerially` steps
come before all others and steps of a kind come in index order. Steps may end in any order, so everything
is kept with its place in that run, and a reader looks at what stands before its own place. Whether all of
that is known when a step starts is not this module's business: see `order`.
"""

import bisect
from collections.abc import Hashable, Mapping
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.suite import Step

Rank: TypeAlias = tuple[bool, int]
"""The place of a step in the serial run: whether it runs with others, and its index."""


def rank(step: Step) -> Rank:
    """The place of a step in the serial run."""
    return not step.test.options.run_serially, step.index


@attrs.define(eq=False)
class _Entries:
    """What was left in one place, in the order of the serial run."""

    ranks: list[Rank] = attrs.field(factory=list)
    values: list[Any] = attrs.field(factory=list)

    def add(self, at: Rank, value: Any) -> None:
        place = bisect.bisect_left(self.ranks, at)
        self.ranks.insert(place, at)
        self.values.insert(place, value)

    def count_before(self, at: Rank) -> int:
        return bisect.bisect_left(self.ranks, at)


@attrs.define(eq=False)
class History:
    """The registers and conversations of one run.

    Args:
        scope: Whether all columns share registers, or each has its own.
    """

    scope: Literal["suite", "column"] = "suite"
    _registers: dict[tuple[int | None, str], _Entries] = attrs.field(init=False, factory=dict)
    _conversations: dict[Hashable, _Entries] = attrs.field(init=False, factory=dict)

    def store(self, step: Step, name: str, output: Any) -> None:
        """A step leaves its output in a register."""
        place = self._column(step), name
        self._registers.setdefault(place, _Entries()).add(rank(step), output)

    def registers(self, step: Step) -> dict[str, Any]:
        """The registers that a step sees."""
        at, column = rank(step), self._column(step)
        return {
            name: entries.values[seen - 1]
            for (scope, name), entries in self._registers.items()
            if scope == column and (seen := entries.count_before(at))
        }

    def add_turn(self, step: Step, conversation: Hashable, turn: Mapping[str, Any]) -> None:
        """A call of a step was answered."""
        self._conversations.setdefault(conversation, _Entries()).add(rank(step), turn)

    def turns(self, step: Step, conversation: Hashable) -> list[Mapping[str, Any]]:
        """The turns of a conversation that a step sees."""
        entries = self._conversations.get(conversation)
        return [] if entries is None else entries.values[: entries.count_before(rank(step))]

    def _column(self, step: Step) -> int | None:
        return step.prompt_idx if self.scope == "column" else None

"""What steps leave for later ones: the outputs in registers, and the turns of conversations.

A step sees what a strictly serial run would show it: what steps before it left, where `runSerially` steps
come before all others and steps of a kind come in index order. Steps may end in any order, so everything
is kept with its place in that run, and a reader looks at what stands before its own place. Whether all of
that is known when a step starts is not this module's business: see `order`.

Behind the steps that are over, only the latest value of each register can be seen any more: earlier ones are
dropped. Turns of a conversation are kept, because each later turn shows all of them.

All of it is marked here as what a model wrote, and so is data wherever later steps use it: see `verbatim`.
"""

import bisect
import heapq
from collections.abc import Hashable, Mapping
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.suite import Step
from trioeval.verbatim import from_model

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

    def put(self, at: Rank, value: Any) -> bool:
        """Keep a value; whether the step has none here yet. One that runs again replaces its own."""
        place = self.count_before(at)
        if place < len(self.ranks) and self.ranks[place] == at:
            self.values[place] = value
            return False
        self.ranks.insert(place, at)
        self.values.insert(place, value)
        return True

    def count_before(self, at: Rank) -> int:
        return bisect.bisect_left(self.ranks, at)


@attrs.define(eq=False)
class _Registers:
    """Registers that are seen together."""

    settled: dict[str, Any] = attrs.field(factory=dict)
    """The latest values behind the steps that are over, in the order in which names were first used."""
    recent: dict[str, _Entries] = attrs.field(factory=dict)
    """What may still be seen in several states."""
    _ahead: list[tuple[Rank, str]] = attrs.field(factory=list)
    """A heap of what is in `recent`."""

    def store(self, at: Rank, name: str, value: Any) -> None:
        if self.recent.setdefault(name, _Entries()).put(at, value):
            heapq.heappush(self._ahead, (at, name))

    def seen(self, at: Rank) -> dict[str, Any]:
        """The values before a place, in the order in which names were first used."""
        found = self.settled.copy()
        shown = [
            (entries.ranks[0], name, entries.values[count - 1])
            for name, entries in self.recent.items()
            if (count := entries.count_before(at))
        ]
        for _, name, value in sorted(shown, key=lambda one: one[0]):
            found[name] = value
        return found

    def settle(self, before: Rank) -> None:
        """Nobody looks from a place before this one any more."""
        while self._ahead and self._ahead[0][0] < before:
            _, name = heapq.heappop(self._ahead)
            entries = self.recent[name]
            del entries.ranks[0]
            self.settled[name] = entries.values.pop(0)
            if not entries.ranks:
                del self.recent[name]


@attrs.define(eq=False)
class History:
    """The registers and conversations of one run.

    Args:
        scope: Whether all columns share registers, or each has its own.
    """

    scope: Literal["suite", "column"] = "suite"
    _registers: dict[int | None, _Registers] = attrs.field(init=False, factory=dict)
    _conversations: dict[Hashable, _Entries] = attrs.field(init=False, factory=dict)
    _over: Rank = (False, 0)
    """The first place from which somebody may still look."""

    def __len__(self) -> int:
        """How many outputs and turns are kept."""
        kept = [len(one.settled) for one in self._registers.values()]
        kept += [
            len(entries.ranks)
            for one in self._registers.values()
            for entries in one.recent.values()
        ]
        return sum(kept) + sum(len(one.ranks) for one in self._conversations.values())

    def store(self, step: Step, name: str, output: Any) -> None:
        """A step leaves its output in a register."""
        registers = self._registers.setdefault(self._column(step), _Registers())
        text = output.removesuffix("\n") if isinstance(output, str) else output
        registers.store(rank(step), name, from_model(text))

    def registers(self, step: Step) -> dict[str, Any]:
        """The registers that a step sees, in the order in which their names were first used."""
        registers = self._registers.get(self._column(step))
        return {} if registers is None else registers.seen(rank(step))

    def add_turn(self, step: Step, conversation: Hashable, turn: Mapping[str, Any]) -> None:
        """A call of a step was answered."""
        self._conversations.setdefault(conversation, _Entries()).put(rank(step), from_model(turn))

    def turns(self, step: Step, conversation: Hashable) -> list[Mapping[str, Any]]:
        """The turns of a conversation that a step sees."""
        entries = self._conversations.get(conversation)
        turns = [] if entries is None else entries.values[: entries.count_before(rank(step))]
        found: list[Mapping[str, Any]] = from_model(turns)
        return found

    def over(self, step: Step) -> None:
        """A step is over, and all with a lower index: told of every step, in index order."""
        # Serial steps run before all others, so behind one of those there are none left.
        with_others, _ = rank(step)
        self._over = (self._over[0] or with_others, step.index + 1)
        for registers in self._registers.values():
            registers.settle(self._over)

    def _column(self, step: Step) -> int | None:
        return step.prompt_idx if self.scope == "column" else None

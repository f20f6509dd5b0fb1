"""The data that steps leave for later ones: the outputs in registers, and the turns of conversations.

A step sees what a strictly serial run would show it: the data of steps before it, where `runSerially` steps
come before all others and steps of a kind come in index order. Steps may end in any order, so every value
is stored with its position in that run, and a reader sees the values before its own position. Whether all
of these are known when a step starts is decided by `evaluation.registers`.

Before the position of the oldest unfinished step, only the latest value of each register can still be seen:
earlier ones are dropped. Turns of a conversation are kept, because each later turn shows all of them.

All of it is marked here as written by a model, and so is data wherever later steps use it: see `verbatim`.
"""

import bisect
import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.suite.expand import Step
from trioeval.text import from_model

Rank: TypeAlias = tuple[bool, int]
"""The position of a step in the serial run: whether it runs with others, and its index."""


def serial_rank(step: Step) -> Rank:
    """Return the position of a step in the serial run."""
    return not step.test.options.run_serially, step.index


@attrs.define(eq=False, repr=False)
class _Entries:
    """The values of one register or conversation, in the order of the serial run."""

    ranks: list[Rank] = attrs.field(factory=list)
    values: list[Any] = attrs.field(factory=list)

    def put(self, at: Rank, value: Any) -> bool:
        """Store a value; return whether the step had none. A repeated step replaces its own value."""
        place = self.count_before(at)
        if place < len(self.ranks) and self.ranks[place] == at:
            self.values[place] = value
            return False
        self.ranks.insert(place, at)
        self.values.insert(place, value)
        return True

    def count_before(self, at: Rank) -> int:
        return bisect.bisect_left(self.ranks, at)


@attrs.define(eq=False, repr=False)
class _Registers:
    """Registers that are visible together."""

    settled: dict[str, Any] = attrs.field(factory=dict)
    """The latest values of ended steps, in the order in which names were first used."""
    recent: dict[str, _Entries] = attrs.field(factory=dict)
    """Values of which several versions may still be visible."""
    _ahead: list[tuple[Rank, str]] = attrs.field(factory=list)
    """A heap of the entries of `recent`."""

    def store(self, at: Rank, name: str, value: Any) -> None:
        if self.recent.setdefault(name, _Entries()).put(at, value):
            heapq.heappush(self._ahead, (at, name))

    def versions(self) -> Iterator[tuple[str, Rank, Any]]:
        """Yield the name, position and value of each entry that is not settled."""
        for name, entries in self.recent.items():
            for at, value in zip(entries.ranks, entries.values, strict=True):
                yield name, at, value

    def seen(self, at: Rank) -> dict[str, Any]:
        """Return the values before a position, in the order in which names were first used."""
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
        """Drop versions that are only visible before this position."""
        while self._ahead and self._ahead[0][0] < before:
            _, name = heapq.heappop(self._ahead)
            entries = self.recent[name]
            del entries.ranks[0]
            self.settled[name] = entries.values.pop(0)
            if not entries.ranks:
                del self.recent[name]


@attrs.frozen(kw_only=True)
class SharedPart:
    """A part of the data that steps have left, which other processes can use as well."""

    registers: Mapping[int | None, Sequence[tuple[Rank, str, Any]]]
    """The values of registers with their positions, by column; None if all columns share them."""
    settled: Mapping[int | None, Mapping[str, Any]]
    """The values of registers that all of its readers see."""
    conversations: Mapping[Hashable, Sequence[tuple[Rank, Any]]]
    """The turns of conversations with their positions."""


@attrs.define(eq=False, repr=False)
class SharedData:
    """The registers and conversations of one run.

    Args:
        scope: Whether all columns share registers, or each has its own.
    """

    scope: Literal["suite", "column"] = "suite"
    _registers: dict[int | None, _Registers] = attrs.field(init=False, factory=dict)
    _conversations: dict[Hashable, _Entries] = attrs.field(init=False, factory=dict)
    _over: Rank = (False, 0)
    """The first position that a step may still read from."""

    def __len__(self) -> int:
        """Return the number of stored outputs and turns."""
        sizes = [len(one.settled) for one in self._registers.values()]
        sizes += [
            len(entries.ranks)
            for one in self._registers.values()
            for entries in one.recent.values()
        ]
        return sum(sizes) + sum(len(one.ranks) for one in self._conversations.values())

    def store(self, step: Step, name: str, output: Any) -> None:
        """Store the output of a step in a register."""
        registers = self._registers.setdefault(self._column(step), _Registers())
        text = output.removesuffix("\n") if isinstance(output, str) else output
        registers.store(serial_rank(step), name, from_model(text))

    def registers(self, step: Step) -> dict[str, Any]:
        """Return the registers that a step sees, in the order in which their names were first used."""
        registers = self._registers.get(self._column(step))
        return {} if registers is None else registers.seen(serial_rank(step))

    def add_turn(self, step: Step, conversation: Hashable, turn: Mapping[str, Any]) -> None:
        """Add the reply to a call of a step to its conversation."""
        self._conversations.setdefault(conversation, _Entries()).put(
            serial_rank(step), from_model(turn)
        )

    def turns(self, step: Step, conversation: Hashable) -> list[Mapping[str, Any]]:
        """Return the turns of a conversation that a step sees."""
        entries = self._conversations.get(conversation)
        turns = [] if entries is None else entries.values[: entries.count_before(serial_rank(step))]
        found: list[Mapping[str, Any]] = from_model(turns)
        return found

    def part(
        self, steps: Iterable[Step], conversation: Callable[[Step], Hashable | None] | None
    ) -> SharedPart:
        """Return what some steps see, or what one of them may see when others of them have ended.

        Args:
            steps: The steps.
            conversation: Returns the conversation of a step; None if it is in none. None if any step may be
                in any conversation.
        """
        columns: set[int | None] = set()
        conversations: set[Hashable] = set()
        last: Rank = (False, -1)
        for step in steps:
            columns.add(self._column(step))
            if conversation is not None and (named := conversation(step)) is not None:
                conversations.add(named)
            last = max(last, serial_rank(step))
        if conversation is None:
            conversations |= self._conversations.keys()
        registers = {column: self._registers[column] for column in columns & {*self._registers}}
        turns = {name: self._conversations[name] for name in conversations & {*self._conversations}}
        return SharedPart(
            registers={
                column: sorted(
                    ((at, name, value) for name, at, value in found.versions() if at < last),
                    key=lambda one: one[0],
                )
                for column, found in registers.items()
            },
            settled={column: {**found.settled} for column, found in registers.items()},
            conversations={
                name: [*zip(one.ranks, one.values, strict=True)][: one.count_before(last)]
                for name, one in turns.items()
            },
        )

    def add(self, part: SharedPart) -> None:
        """Add the data of another process. Called before any step stores data."""
        for column, settled in part.settled.items():
            registers = self._registers.setdefault(column, _Registers())
            registers.settled.update(settled)
            for at, name, value in part.registers[column]:
                registers.store(at, name, value)
        for conversation, turns in part.conversations.items():
            entries = self._conversations.setdefault(conversation, _Entries())
            for at, turn in turns:
                entries.put(at, turn)

    def on_row_end(self, step: Step) -> None:
        """Handle the end of a step. Called for every step, in index order."""
        # Serial steps run before all others, so after one of the others none is left.
        with_others, _ = serial_rank(step)
        self._over = (self._over[0] or with_others, step.index + 1)
        for registers in self._registers.values():
            registers.settle(self._over)

    def _column(self, step: Step) -> int | None:
        return step.prompt_idx if self.scope == "column" else None

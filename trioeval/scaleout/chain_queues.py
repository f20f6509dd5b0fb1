"""The rows of chains that have no result yet: which of them may be sent now.

A chain has rows in at most one shard at a time, so that they run in their order, and each shard starts with
what all earlier rows left. The results of rows that are compared with each other are held back until all of
them have arrived: if their worker is lost before, they run again together.

Laws: BLOCK, ONCE.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import attrs

from trioeval.evaluation.row import Row
from trioeval.scaleout.chains import ChainKey, Chains, next_piece
from trioeval.scaleout.shards import AFTER_LOSSES

if TYPE_CHECKING:
    from trioeval.scaleout.blocks import SentRow


@attrs.define(eq=False, repr=False)
class Chain:
    """The rows of one chain that have no result."""

    _queues: ChainQueues
    key: ChainKey
    waiting: list[SentRow] = attrs.field(init=False, factory=list)
    """Rows that may not be sent yet, by index."""
    _released: set[int] = attrs.field(init=False, factory=set)
    """The indices of rows that are sent, or will be with the next shard."""
    _held: dict[int, Row] = attrs.field(init=False, factory=dict)
    """Results of rows that are compared with others, which have not arrived."""

    def wait(self, row: SentRow) -> None:
        """Let a row wait for the rows before it; for the first time, or again after its shard has ended."""
        self._held.pop(row.index, None)
        bisect.insort(self.waiting, row, key=lambda one: one.index)
        self._released.discard(row.index)
        self._queues.note(self)

    def release(self) -> Sequence[SentRow]:
        """Return the rows that are sent with one shard now; none while others run."""
        self.waiting = [row for row in self.waiting if not row.is_over]
        if self._released or not self.waiting:
            return ()
        most = AFTER_LOSSES[0]
        for place, row in enumerate(self.waiting):
            if place >= most:
                break
            most = min(most, AFTER_LOSSES[min(row.losses, len(AFTER_LOSSES) - 1)])
        rows = [row.index for row in self.waiting]
        count = next_piece(rows, most, self._queues.chains)
        found, self.waiting = self.waiting[:count], self.waiting[count:]
        self._released = {row.index for row in found}
        return found

    def arrived(self, found: Row) -> Sequence[Row]:
        """Return the results that are complete with that of a row."""
        together = self._queues.chains.together(found.index)
        if len(together) == 1:
            return (found,)
        self._held[found.index] = found
        if not self._held.keys() >= {*together}:
            return ()
        return [self._held.pop(index) for index in together]

    def leave(self, row: SentRow) -> None:
        """Handle the end of a row, with or without a result."""
        self._held.pop(row.index, None)  # without a result, its group will never be complete
        self._released.discard(row.index)
        self._queues.note(self)

    @property
    def is_idle(self) -> bool:
        """True if nothing of it runs."""
        return not self._released


@attrs.define(eq=False, repr=False)
class ChainQueues:
    """The chains of one task."""

    chains: Chains
    _by_key: dict[ChainKey, Chain] = attrs.field(init=False, factory=dict)
    _idle: dict[Chain, None] = attrs.field(init=False, factory=dict)
    """Chains of which nothing runs and that have changed since."""

    def of(self, index: int) -> Chain | None:
        """Return the chain of a row that has no result; None if it has none."""
        key = self.chains.key(index)
        if key is None:
            return None
        chain = self._by_key.get(key)
        if chain is None:
            chain = self._by_key[key] = Chain(self, key)
        return chain

    def note(self, chain: Chain) -> None:
        """Handle a change of a chain."""
        if chain.is_idle:
            self._idle[chain] = None

    def release(self) -> Iterator[SentRow]:
        """Yield the rows that may be sent now; those of one chain follow each other, for one shard."""
        idle, self._idle = self._idle, {}
        for chain in idle:
            yield from chain.release()
            # The end of a block is noted also for rows that were given up before, and a chain may begin anew.
            if chain.is_idle and not chain.waiting and self._by_key.get(chain.key) is chain:
                del self._by_key[chain.key]

    def waiting(self) -> Sequence[SentRow]:
        """Return the rows that may not be sent yet."""
        return [row for chain in self._by_key.values() for row in chain.waiting]

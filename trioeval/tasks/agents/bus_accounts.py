"""What writing to all message buses of a run has cost: those that are open, and those that were."""

from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from trioeval.agents.bus.stats import BusStats


@attrs.define(eq=False)
class BusAccounts:
    """What writing to the buses of a run has cost."""

    _open: dict[int, BusStats] = attrs.field(init=False, factory=dict)
    """By identity."""
    _closed: BusStats = attrs.field(init=False, factory=BusStats)

    @contextmanager
    def counting(self, stats: BusStats) -> Iterator[None]:
        """Count a bus, which is open for as long as the block."""
        self._open[id(stats)] = stats
        try:
            yield
        finally:
            del self._open[id(stats)]
            self._closed.add(stats)

    def total(self) -> BusStats:
        """All of it until now."""
        found = BusStats()
        for stats in (self._closed, *self._open.values()):
            found.add(stats)
        return found

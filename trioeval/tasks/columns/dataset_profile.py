"""What is in the columns of a dataset, and what they cost: counted as groups are written.

Of groups that an earlier execution has written only the values are there. Which of them were left out follows
from the row, because a condition looks at nothing else.
"""

from collections.abc import Mapping

import attrs
import trio

from trioeval.datasets.profile import Profiler
from trioeval.datasets.result import ColumnProfile
from trioeval.tasks.columns.dataset_account import Spent
from trioeval.tasks.columns.dataset_groups import is_skipped
from trioeval.tasks.columns.dataset_spec import DatasetSpec
from trioeval.tasks.columns.dataset_stages import Rows
from trioeval.tasks.columns.making import CellError

_STRIDE = 200  # rows that are counted between two looks at the rest of the world


class Profiles:
    """The profiles of all columns that are written."""

    def __init__(self, spec: DatasetSpec) -> None:
        self._spec = spec
        self._makers = [spec.graph.maker[name] for name in spec.columns]
        self._profilers = self._new()
        self._are_seen_again = bool(spec.stages.after_generation)
        self._skipped: dict[int, set[int]] = {}
        """What was told of rows that are seen again."""
        self._is_last = False

    async def add(self, rows: Rows, skipped: dict[int, set[int]]) -> None:
        """Rows were written. A checkpoint if they are many, which no cancellation ends.

        Args:
            rows: With their values.
            skipped: By row, the producers that left it out.
        """
        for place, (row, values) in enumerate(rows, 1):
            gone = skipped.get(row, ())
            for maker, profiler in zip(self._makers, self._profilers, strict=True):
                if profiler.name in values:
                    profiler.add(values[profiler.name], skipped=maker in gone)
            if not place % _STRIDE:
                # One that was cancelled would count the group twice: it is written again then.
                await trio.lowlevel.cancel_shielded_checkpoint()
        if self._are_seen_again:
            self._skipped |= skipped

    async def add_earlier(self, rows: Rows) -> None:
        """Rows were written by an earlier execution. A checkpoint if they are many."""
        await self.add(rows, {row: self._skips(values) for row, values in rows})

    def begin_anew(self) -> None:
        """The whole was processed: only what is there now counts."""
        self._profilers = self._new()
        self._is_last = True

    async def add_processed(self, rows: Rows) -> None:
        """Rows are there after the whole was processed. A checkpoint if they are many."""
        await self.add(rows, self._skipped)

    def columns(self, spent: list[Spent]) -> tuple[ColumnProfile, ...]:
        """What is known of each column that is there.

        Args:
            spent: What the columns of each producer have cost; all of it is told of the first of them.
        """
        found = []
        for maker, profiler in zip(self._makers, self._profilers, strict=True):
            profile = profiler.profile()
            if self._is_last and not profile.values:
                continue
            if profiler.name == self._spec.graph.producers[maker].name:
                one = spent[maker]
                profile = attrs.evolve(
                    profile,
                    calls=one.calls,
                    recalled=one.recalled,
                    failed=one.failed,
                    usage=one.usage,
                    cost=one.cost,
                    seconds=one.seconds,
                )
            found.append(profile)
        return tuple(found)

    def _new(self) -> list[Profiler]:
        return [
            Profiler(name, self._spec.makings[maker].kind)
            for name, maker in zip(self._spec.columns, self._makers, strict=True)
        ]

    def _skips(self, values: Mapping[str, object]) -> set[int]:
        """Which producers left a row out, as far as it can be seen from what is written of it."""
        skipped: set[int] = set()
        for place, making in enumerate(self._spec.makings):
            try:
                if is_skipped(making, self._spec.graph.upstream[place], skipped, values):
                    skipped.add(place)
            except CellError:
                continue  # it looks at what is not written
        return skipped

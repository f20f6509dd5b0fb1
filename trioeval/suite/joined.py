"""Tests that are not all in memory: several sources as one sequence, and files that are read bit by bit."""

import bisect
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, overload, runtime_checkable

import attrs

from trioeval.suite.models import Test


@runtime_checkable
class SparseTests(Protocol):
    """Tests of which most have the shape of an empty test, and are not looked at to expand them."""

    @property
    def file(self) -> Path:
        """Where they stand."""
        ...

    @property
    def irregular(self) -> Sequence[int]:
        """The places of the others, ascending."""
        ...


@attrs.frozen
class Joined(Sequence[Test]):
    """Tests of several sources, one behind another.

    Example:
        >>> Joined.of((Test(),), (Test(threshold=1),))[1].threshold
        1
    """

    parts: tuple[Sequence[Test], ...]
    _ends: tuple[int, ...] = attrs.field(init=False)

    @classmethod
    def of(cls, *parts: Sequence[Test]) -> "Joined":
        """All of these, in this order."""
        flat = (part.parts if isinstance(part, Joined) else (part,) for part in parts)
        return cls(tuple(itertools.chain.from_iterable(flat)))

    @_ends.default
    def _counted(self) -> tuple[int, ...]:
        return tuple(itertools.accumulate(len(part) for part in self.parts))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> Test: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Test]: ...
    def __getitem__(self, index: int | slice) -> Test | Sequence[Test]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        part = bisect.bisect_right(self._ends, index)
        return self.parts[part][index - (self._ends[part - 1] if part else 0)]


def remarkable_places(tests: Sequence[Test]) -> Iterator[int]:
    """The places of all tests that have to be looked at: not those of the plain lines of large files."""
    if isinstance(tests, Joined):
        begin = 0
        for part in tests.parts:
            yield from (begin + place for place in remarkable_places(part))
            begin += len(part)
    elif isinstance(tests, SparseTests):
        yield from tests.irregular
    else:
        yield from range(len(tests))

"""Sequences that store no entries but create each at its access."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar, overload

T_co = TypeVar("T_co", covariant=True)


class LazySequence(Sequence[T_co]):
    """A sequence whose entries are created when they are accessed.

    Example:
        >>> class Squares(LazySequence[int]):
        ...     def __len__(self) -> int:
        ...         return 4
        ...
        ...     def entry(self, index: int) -> int:
        ...         return index**2
        >>> Squares()[-1], Squares()[1:3]
        (9, [1, 4])
    """

    __slots__ = ()

    @abstractmethod
    def entry(self, index: int) -> T_co:
        """Return the entry at an index, which is ≥ 0 and below the length."""

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T_co]: ...
    def __getitem__(self, index: int | slice) -> T_co | Sequence[T_co]:
        if isinstance(index, slice):
            return [*map(self.entry, range(len(self))[index])]
        if 0 <= index < len(self):  # most accesses
            return self.entry(index)
        return self.entry(range(len(self))[index])

"""Sequences whose elements are made when they are looked at."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar, overload

T_co = TypeVar("T_co", covariant=True)


class Lazy(Sequence[T_co]):
    """A sequence that says how each of its elements is made; a slice of it is a list.

    Example:
        >>> class Squares(Lazy[int]):
        ...     def __len__(self):
        ...         return 4
        ...
        ...     def made(self, place):
        ...         return place * place
        >>> Squares()[-1], Squares()[1:3]
        (9, [1, 4])
    """

    __slots__ = ()

    @abstractmethod
    def made(self, place: int, /) -> T_co:
        """The element at a place, 0 ≤ place < its length."""

    @overload
    def __getitem__(self, place: int) -> T_co: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[T_co]: ...
    def __getitem__(self, place: int | slice) -> T_co | Sequence[T_co]:
        places = range(len(self))[place]
        if isinstance(places, range):
            return [self.made(one) for one in places]
        return self.made(places)

"""Ranges of numbers, written into the types of the models."""

import math
from typing import Annotated, TypeAlias

import attrs


@attrs.frozen
class AtLeast:
    """A finite number ≥ `least`, or > `least` if it is `above`.

    Example:
        >>> AtLeast(1).fits(1), AtLeast(0, above=True).fits(0)
        (True, False)
    """

    least: float
    above: bool = False

    def fits(self, value: float) -> bool:
        """Whether a number is in the range."""
        # Not `math.isfinite`, which cannot take integers beyond the range of floats.
        return (self.least < value if self.above else self.least <= value) and value < math.inf

    def __str__(self) -> str:
        return f"{'more than' if self.above else 'at least'} {self.least:g}"


Count: TypeAlias = Annotated[int, AtLeast(1)]
NotNegative: TypeAlias = Annotated[float, AtLeast(0)]
Positive: TypeAlias = Annotated[float, AtLeast(0, above=True)]
Number: TypeAlias = Annotated[int, AtLeast(0)]
ErrorStatus: TypeAlias = Annotated[int, AtLeast(400)]
Factor: TypeAlias = Annotated[float, AtLeast(1)]
Milliseconds: TypeAlias = Annotated[float, AtLeast(1)]

"""Mean and deviation of numbers, the same in whatever order they come. Pure.

Groups are written in an order that depends on the time that calls take, and a sum of floats on the order of
its parts. So nothing is rounded before the end: every float is a whole multiple of 2**-1074, and the sums of
the multiples and of their squares are exact as Python's integers. Welford's method needs less memory, but
gives other last digits in another order.
"""

import math
from collections.abc import Mapping

import attrs

_STEP_BITS = 1074  # the least float above 0 is 2**-1074


@attrs.define
class Moments:
    """What is known of the finite numbers that were added."""

    _count: int = 0
    _least: float = math.inf
    _most: float = -math.inf
    _sum: int = 0
    """In steps of 2**-1074."""
    _squares: int = 0
    """In squares of such steps."""
    _whole_sum: int = 0
    """Of whole numbers, which need no steps: theirs would be long."""
    _whole_squares: int = 0

    def add(self, number: float) -> None:
        """One more."""
        self._count += 1
        self._least = min(self._least, number)
        self._most = max(self._most, number)
        if isinstance(number, int):
            self._whole_sum += number
            self._whole_squares += number * number
            return
        over, under = number.as_integer_ratio()  # `under` is a power of 2
        steps = over << (_STEP_BITS + 1 - under.bit_length())
        self._sum += steps
        self._squares += steps * steps

    def figures(self) -> Mapping[str, float]:
        """`min`, `max`, `mean`, and `std` over all of them (divided by their count); empty of none."""
        if not self._count:
            return {}
        total = self._sum + (self._whole_sum << _STEP_BITS)
        squares = self._squares + (self._whole_squares << 2 * _STEP_BITS)
        mean = total / (self._count << _STEP_BITS)
        spread = self._count * squares - total**2
        std = _root(spread, self._count**2 << 2 * _STEP_BITS)
        least, most = self._least + 0.0, self._most + 0.0  # a zero without a sign
        return {"min": least, "max": most, "mean": mean, "std": std}


def _root(over: int, under: int) -> float:
    """The square root of a fraction, although neither part may be a float: it is halved by powers of 4."""
    half = (over.bit_length() - under.bit_length()) // 2
    near_one = over / (under << 2 * half) if half >= 0 else (over << -2 * half) / under
    return math.ldexp(math.sqrt(near_one), half)

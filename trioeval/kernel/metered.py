"""A result of a call, with what the call used and what its reply said of the server's limits."""

import math
from typing import Generic, TypeVar

import attrs

from trioeval.errors import UsageError
from trioeval.rates import RateHint

R = TypeVar("R")


@attrs.frozen
class Metered(Generic[R]):
    """What a `send` may return in place of the bare result.

    The lane learns from it, and the caller gets `value`.

    Raises:
        UsageError: An amount is negative or not finite.
    """

    value: R
    tokens: int | None = attrs.field(default=None)
    """Tokens that the call used; None leaves what was reserved."""
    money: float | None = attrs.field(default=None)
    """What it cost; None leaves what was reserved."""
    hint: RateHint | None = None

    @tokens.validator
    @money.validator
    def _check(self, field: "attrs.Attribute[float | None]", value: float | None) -> None:
        if value is not None and not 0 <= value < math.inf:
            msg = f"Metered.{field.name} must be at least 0 and finite, got {value!r}"
            raise UsageError(msg)

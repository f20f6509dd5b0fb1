"""A result of a call, with what the call used and what its reply said of the server's limits."""

from typing import Generic, TypeVar

import attrs

from trioeval.rates import RateHint

R = TypeVar("R")


@attrs.frozen
class Metered(Generic[R]):
    """What a `send` may return in place of the bare result.

    The lane learns from it, and the caller gets `value`.
    """

    value: R
    tokens: int | None = None
    """Tokens that the call used; None leaves what was reserved."""
    money: float | None = None
    """What it cost; None leaves what was reserved."""
    hint: RateHint | None = None

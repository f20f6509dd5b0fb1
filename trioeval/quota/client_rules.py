"""When a client asks again: after a denial, and after no answer."""

import math

SPREAD = 0.025
"""Most seconds that chance adds to a wait that the keeper named: who was denied together comes back apart."""
FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
"""Seconds between two attempts to get an answer, at first and at most."""


def after_denial(retry_after: float, spread: float) -> float:
    """Seconds until it is worth asking with a new id.

    Args:
        retry_after: What the denial says, in seconds, ≥ 0.
        spread: By chance, from 0 to 1 without 1.

    Example:
        >>> after_denial(10.0, 0.5), after_denial(0.0, 0.5)
        (10.0125, 0.0125)
    """
    return retry_after + spread * (min(SPREAD, retry_after) or SPREAD)


def after_silence(failures: int, spread: float) -> float:
    """Seconds until the same is asked again, with the same id: half of the bound at least.

    Not down to nothing: whoever keeps the limits for everybody is asked by all of them.

    Args:
        failures: Attempts in a row without an answer, ≥ 1.
        spread: By chance, from 0 to 1 without 1.

    Example:
        >>> [after_silence(failures, 0.0) for failures in (1, 2, 7, 2000)]
        [0.05, 0.1, 2.5, 2.5]
    """
    bound = min(LONGEST_WAIT, math.ldexp(FIRST_WAIT, min(failures - 1, 64)))
    return bound * (1 + spread) / 2

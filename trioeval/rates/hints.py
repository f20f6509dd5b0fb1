"""What a server says of its own limits, on good replies and on bad ones. Data only."""

import attrs


@attrs.frozen
class Allowance:
    """What is left of one dimension: requests or tokens."""

    limit: float | None = None
    """How much the server allows in `window` seconds, > 0."""
    remaining: float | None = None
    """How much of it is left, ≥ 0."""
    reset_after: float | None = None
    """Seconds, counted from the reply, until all of it is back, ≥ 0."""
    window: float = 60.0
    """Seconds that `limit` speaks of, > 0."""


@attrs.frozen
class RateHint:
    """What one reply says of the server's limits; what it does not say is None."""

    requests: Allowance | None = None
    tokens: Allowance | None = None

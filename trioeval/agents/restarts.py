"""When an agent is started once more, after how long, and when it is given up. Pure."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import attrs

from trioeval.agents.attempts import AttemptEnd

GaveUp: TypeAlias = Literal[
    "max_attempts", "permanent", "identical_failures", "max_tokens", "max_cost"
]
"""Why no further attempt is made."""


@attrs.frozen(kw_only=True)
class RestartPolicy:
    """How often and how soon an agent is started again."""

    max_attempts: int = 100
    """In all, over all executions of a run, ≥ 0."""
    delay: float = 1.0
    """Seconds between the end of an attempt and the next, ≥ 0."""
    backoff: float = 2.0
    """Factor of the delay for each failure in a row, ≥ 1; an attempt that ends well resets it."""
    max_delay: float = 60.0
    """Seconds, ≥ 0."""
    identical_failures: int = 5
    """Failures of one signature in a row after which it is given up, ≥ 1."""
    max_tokens: int | None = None
    """Tokens of all attempts after which none begins; None does not bound them."""
    max_cost: float | None = None
    """US dollars, likewise."""


@attrs.frozen
class Again:
    """Another attempt is made."""

    delay: float
    """Seconds before it; 0 for the first one."""


@attrs.frozen
class Stop:
    """No further attempt is made."""

    why: GaveUp
    message: str
    """In a sentence, with the numbers."""


def decide(policy: RestartPolicy, ends: Sequence[AttemptEnd]) -> Again | Stop:
    """Whether another attempt is made of a task that is not done.

    Args:
        policy: How often and how soon.
        ends: How the attempts so far ended, in order.
    """
    raise NotImplementedError

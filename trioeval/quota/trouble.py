"""What goes wrong with leases and ends no call, told to whoever wants to know."""

from collections.abc import Callable
from typing import Literal, TypeAlias

import attrs


@attrs.frozen
class Trouble:
    """Something that people should know of."""

    kind: Literal["silent", "heartbeat", "expired", "settling", "unleased"]
    """Nobody answers who is asked for leases; holds could not be put off; a hold is over while its call
    runs; what calls used could not be told; calls are made without a lease, because nobody can be asked."""
    message: str
    leases: tuple[str, ...] = ()
    """The ids that it is about."""


ToldTrouble: TypeAlias = Callable[[Trouble], None]
"""Called synchronously; must not raise."""


def ignore(_trouble: Trouble) -> None:
    """Tell nobody."""

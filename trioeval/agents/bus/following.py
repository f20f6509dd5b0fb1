"""Follows a bus that others write."""

from collections.abc import AsyncIterator
from pathlib import Path

from trioeval.agents.bus.messages import Message

POLL = 0.2  # seconds between looks at what other processes have written


def follow_bus(folder: Path, *, since: int | str | None = None) -> AsyncIterator[Message]:
    """As `Bus.follow`, of a bus that is not open here. The bus need not be there yet."""
    raise NotImplementedError

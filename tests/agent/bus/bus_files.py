"""Buses for tests: drafts, runs, and changes to their files made without their knowledge."""

import itertools
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeVar

import trio

from trioeval.agent.bus.bus import Bus, open_bus
from trioeval.agent.bus.messages import Message, MessageDraft
from trioeval.agent.bus.settings import BusSettings

R = TypeVar("R")
QUICK = BusSettings(fsync="never")


def draft(body: str = "hello", type: str = "INFO") -> MessageDraft:  # noqa: A002 - as the field
    return MessageDraft(type=type, project_id="run-1", body=body)


def opened(
    folder: Path,
    settings: BusSettings = QUICK,
    *,
    now: float = 0.0,
    rng: Callable[[], float] | None = None,
) -> AbstractAsyncContextManager[Bus]:
    """Open a bus whose ids and timestamps are the same in every run."""
    numbers = itertools.count(1)
    chance = rng if rng is not None else lambda: next(numbers) * 0.618034 % 1.0
    return open_bus(folder, settings, rng=chance, utc=lambda: now)


def in_trio(main: Callable[[], Awaitable[R]]) -> R:
    """Run an async function; fail if it hangs."""

    async def bounded() -> R:
        with trio.fail_after(60):
            return await main()

    return trio.run(bounded)


def written(folder: Path, *bodies: str, settings: BusSettings = QUICK) -> list[Message]:
    """Append messages one after the other, each when the one before it is written."""

    async def main() -> list[Message]:
        async with opened(folder, settings) as bus:
            return [await bus.append(draft(body)) for body in bodies]

    return in_trio(main)


def files(folder: Path) -> list[Path]:
    """Return the files with messages, oldest first."""
    return sorted(folder.glob("bus-*.log"))


def bodies(messages: "list[Message] | tuple[Message, ...]") -> list[str]:
    return [message.draft.body for message in messages]

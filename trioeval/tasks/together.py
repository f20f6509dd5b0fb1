"""Several questions of one judge at once."""

import contextvars
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import attrs
import trio

_AMONG: contextvars.ContextVar[tuple[int, ...]] = contextvars.ContextVar("_AMONG", default=())


def place_among() -> tuple[int, ...]:
    """The place of whoever calls this among those that run together: from the outermost inwards."""
    return _AMONG.get()


@attrs.define
class _Answer:
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    value: Any = None
    error: Exception | None = None


async def together(questions: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """The answers, in the order of the questions. A checkpoint if there are any.

    They begin in that order as well: each comes to its first wait before the next one begins, and goes on
    ahead of it. So they reach the queue of a lane in the same order every time.

    Where several fail, the first of them in that order is told, whichever was quicker: those behind one that
    failed are given up, those before it are not.

    Raises:
        Exception: What the first question raised that failed.
    """
    answers = [_Answer() for _ in questions]

    async def ask(position: int) -> None:
        _AMONG.set((*_AMONG.get(), position))
        answer = answers[position]
        with answer.scope:
            try:
                answer.value = await questions[position]()
            except Exception as error:  # noqa: BLE001 - raised below, in order
                answer.error = error
                for behind in answers[position + 1 :]:
                    behind.scope.cancel("one before it failed")

    async with trio.open_nursery() as nursery:
        for position, answer in enumerate(answers):
            if position:
                await trio.lowlevel.checkpoint()  # Trio shuffles those that can run at once
            if answer.scope.cancel_called:
                break
            nursery.start_soon(ask, position)
    for answer in answers:
        if answer.error is not None:
            raise answer.error
    return [answer.value for answer in answers]

"""Several questions of one judge at once."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import attrs
import trio


@attrs.define
class _Answer:
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    value: Any = None
    error: Exception | None = None


async def together(questions: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """The answers, in the order of the questions. A checkpoint if there are any.

    Where several fail, the first of them in that order is told, whichever was quicker: those behind one that
    failed are given up, those before it are not.

    Raises:
        Exception: What the first question raised that failed.
    """
    answers = [_Answer() for _ in questions]

    async def ask(position: int) -> None:
        answer = answers[position]
        with answer.scope:
            try:
                answer.value = await questions[position]()
            except Exception as error:  # noqa: BLE001 - raised below, in order
                answer.error = error
                for behind in answers[position + 1 :]:
                    behind.scope.cancel("one before it failed")

    async with trio.open_nursery() as nursery:
        for position in range(len(questions)):
            nursery.start_soon(ask, position)
    for answer in answers:
        if answer.error is not None:
            raise answer.error
    return [answer.value for answer in answers]

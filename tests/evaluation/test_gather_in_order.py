"""Several questions at once: their answers, and their failures, in order."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from trioeval.errors import GradingError
from trioeval.evaluation.grader_calls import branch_path, gather_in_order
from trioeval.testing import run_virtual


def answering(after: float, answer: Any, log: list[Any]) -> Callable[[], Awaitable[Any]]:
    """A question that is answered, or fails, so many seconds later."""

    async def ask() -> Any:
        await trio.sleep(after)
        log.append(answer)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


def asked(*questions: tuple[float, Any]) -> tuple[Any, list[Any]]:
    """Return the results, and the order in which the functions ended."""
    log: list[Any] = []

    async def main() -> Any:
        try:
            return await gather_in_order([answering(*question, log) for question in questions])
        except GradingError as error:
            return error

    return run_virtual(main), log


def test_answers_come_in_the_order_of_the_questions() -> None:
    """However long each takes; together they take as long as the slowest."""
    assert asked((3, "a"), (1, "b"), (2, "c")) == (["a", "b", "c"], ["b", "c", "a"])
    assert asked() == ([], [])


def test_the_first_failure_in_order_is_told() -> None:
    """Branches before a failed one are awaited, since they may fail as well; the others are cancelled."""
    first, second = GradingError("first"), GradingError("second")
    assert asked((3, first), (1, second), (2, "c")) == (first, [second, first])
    assert asked((3, "a"), (1, second), (2, "c")) == (second, [second, "a"])


def test_giving_up_gives_up_all_of_them() -> None:
    """A question that is under way does not outlive the one who asked."""
    log: list[Any] = []

    async def main() -> float:
        with trio.move_on_after(2):
            await gather_in_order([answering(1, "a", log), answering(9, "b", log)])
        return trio.current_time()

    assert run_virtual(main) == 2
    assert log == ["a"]


def test_questions_begin_in_their_order() -> None:
    """Each stays ahead of the next one through all that waits for nothing; every time."""
    log: list[tuple[int, int]] = []

    def question(number: int) -> Callable[[], Awaitable[None]]:
        async def ask() -> None:
            for step in range(3):
                log.append((step, number))
                await trio.lowlevel.checkpoint()

        return ask

    for _ in range(20):
        log.clear()
        run_virtual(lambda: gather_in_order([question(number) for number in range(6)]))
        for step in range(3):
            assert [number for at, number in log if at == step] == list(range(6))


def test_what_is_behind_a_failure_does_not_begin() -> None:
    """It would be asked in vain."""
    log: list[Any] = []

    async def fails() -> None:
        await trio.lowlevel.checkpoint()
        raise GradingError("first")

    async def main() -> None:
        await gather_in_order([fails, *[answering(1, number, log) for number in range(5)]])

    with pytest.raises(GradingError, match="first"):
        run_virtual(main)
    assert log == []


def test_everyone_knows_its_place() -> None:
    """That holds also for nested branches."""

    async def place() -> tuple[int, ...]:
        await trio.lowlevel.checkpoint()
        return branch_path()

    async def inner() -> list[Any]:
        return await gather_in_order([place, place])

    async def main() -> list[Any]:
        return [await gather_in_order([place, inner]), branch_path()]

    assert run_virtual(main) == [[(0,), [(1, 0), (1, 1)]], ()]

"""Several concurrent calls: their results, and their failures, in order."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from trioeval.errors import GradingError
from trioeval.evaluation.grader_calls import branch_path, gather_in_order
from trioeval.testing import run_virtual


def answering(after: float, answer: Any, log: list[Any]) -> Callable[[], Awaitable[Any]]:
    """Return or fail after a number of seconds."""

    async def ask() -> Any:
        await trio.sleep(after)
        log.append(answer)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


def gathered(*questions: tuple[float, Any]) -> tuple[Any, list[Any]]:
    """Return the results, and the order in which the functions ended."""
    log: list[Any] = []

    async def main() -> Any:
        try:
            return await gather_in_order([answering(*question, log) for question in questions])
        except GradingError as error:
            return error

    return run_virtual(main), log


def test_results_are_in_the_order_of_the_calls() -> None:
    """This holds for any durations; together they take as long as the slowest."""
    assert gathered((3, "a"), (1, "b"), (2, "c")) == (["a", "b", "c"], ["b", "c", "a"])
    assert gathered() == ([], [])


def test_the_first_failure_in_order_is_raised() -> None:
    """Branches before a failed one are awaited, since they may fail as well; the others are cancelled."""
    first, second = GradingError("first"), GradingError("second")
    assert gathered((3, first), (1, second), (2, "c")) == (first, [second, first])
    assert gathered((3, "a"), (1, second), (2, "c")) == (second, [second, "a"])


def test_cancelling_the_caller_cancels_all_branches() -> None:
    """No call outlives its caller."""
    log: list[Any] = []

    async def main() -> float:
        with trio.move_on_after(2):
            await gather_in_order([answering(1, "a", log), answering(9, "b", log)])
        return trio.current_time()

    assert run_virtual(main) == 2
    assert log == ["a"]


def test_calls_start_in_their_order() -> None:
    """Each stays ahead of the next one through all steps that do not wait; every time."""
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


def test_branches_after_a_failure_do_not_start() -> None:
    """Their results would not be used."""
    log: list[Any] = []

    async def fails() -> None:
        await trio.lowlevel.checkpoint()
        raise GradingError("first")

    async def main() -> None:
        await gather_in_order([fails, *[answering(1, number, log) for number in range(5)]])

    with pytest.raises(GradingError, match="first"):
        run_virtual(main)
    assert log == []


def test_each_branch_knows_its_path() -> None:
    """Nested branches do, too."""

    async def place() -> tuple[int, ...]:
        await trio.lowlevel.checkpoint()
        return branch_path()

    async def inner() -> list[Any]:
        return await gather_in_order([place, place])

    async def main() -> list[Any]:
        return [await gather_in_order([place, inner]), branch_path()]

    assert run_virtual(main) == [[(0,), [(1, 0), (1, 1)]], ()]

"""Slow patterns do not block the event loop, and are aborted."""

import threading
from typing import Any

import pytest
import trio
import trio.lowlevel
from pace import takes_less

from trioeval.errors import GradingError
from trioeval.evaluation.judging import AssertionServices, Judging, JudgingContext
from trioeval.grading import Assertion, Kinds, Subject, grade
from trioeval.grading import patterns as pattern_search
from trioeval.grading.kind import Finding, Kind, SlowError
from trioeval.grading.kinds.text import KINDS
from trioeval.grading.patterns import AT_ONCE, compile_javascript, found_at_once, found_in_time

ENDLESS = r"^(?:a|a)*$"
OUTPUT = "a" * 40 + "!"
SLOW = r"\s+$"
SPACES = " " * 3000 + "x"


def bench(kinds: Kinds = KINDS, output: str = OUTPUT) -> JudgingContext:
    nothing: Any = None

    def consult(_assertion: Assertion) -> AssertionServices:
        return AssertionServices(nothing)

    return JudgingContext(
        subject=Subject.of(output), render=str, kinds=kinds, services_for=consult, transform=nothing
    )


@pytest.mark.parametrize(
    "pattern", [ENDLESS, r"(a+)+$", r"(a|aa)+$", r"(?:(?:a*)*)*(?:\w\w)*[b]", r"(.*?,){20}x"]
)
def test_no_search_blocks_for_long(pattern: str) -> None:
    """One that would take years is given up after a moment."""
    compiled = compile_javascript(pattern)
    output = "a" * 5000 + "1," * 5000
    assert takes_less(AT_ONCE + 0.4, lambda: found_at_once(compiled, output))
    assert found_at_once(compiled, output) is None
    assert found_at_once(compile_javascript("1,$"), output) is True


def test_a_search_that_needs_too_much_memory_is_an_error() -> None:
    """The next search has all of the memory again."""
    output = "ab" * 5_000_000
    with pytest.raises(GradingError) as caught:
        found_in_time(compile_javascript("(a|b)*c"), output)
    assert str(caught.value) == 'the search for "(a|b)*c" took too much memory on this text'
    assert found_in_time(compile_javascript("b$"), output)


@pytest.mark.slow
def test_a_search_that_takes_a_while_is_finished() -> None:
    """It is repeated if the first, short attempt is aborted."""
    compiled = compile_javascript(SLOW)
    assert found_at_once(compiled, SPACES) is None
    assert not found_in_time(compiled, SPACES)
    assert grade(SPACES, [Assertion(type="not-regex", value=SLOW)]).passed


@pytest.mark.slow
def test_an_endless_search_is_an_error_and_other_rows_continue() -> None:
    """It is neither a match nor its absence, also under `not-`; the event loop runs meanwhile."""
    turns = 0

    async def watch() -> None:
        nonlocal turns
        while True:
            turns += pattern_search._ALONE.locked()
            await trio.sleep(0.001)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            with pytest.raises(GradingError) as caught:
                await Judging(bench(), [Assertion(type="not-regex", value=ENDLESS)]).run()
            nursery.cancel_scope.cancel()
        assert str(caught.value) == (
            f'assert[0] (not-regex): the search for "{ENDLESS}" took longer than 2 seconds on this text'
        )

    trio.run(main)
    # If the search blocked it, it would see its start and its end; the search lasts two seconds.
    assert turns > 9


def test_a_slow_judge_finishes_in_another_thread() -> None:
    """Its verdict has its position among the others."""
    threads: list[int] = []

    def judge(_subject: Subject, _value: object, _assertion: Assertion) -> Finding:
        def finish() -> Finding:
            threads.append(threading.get_ident())
            return Finding(holds=False, reason="found out in the end")

        raise SlowError(finish)

    kinds = {**KINDS, "slow": Kind("left out", lambda _: True, judge, bare=True)}
    assertions = [Assertion(type="slow"), Assertion(type="contains", value="a")]
    verdict = trio.run(Judging(bench(kinds), assertions).run)
    assert [part.reason for part in verdict.parts] == [
        "found out in the end",
        'the output contains "a"',
    ]
    assert threads != [threading.get_ident()]
    assert grade(OUTPUT, assertions, kinds=kinds).parts == verdict.parts


def test_a_row_that_times_out_does_not_wait_for_a_search() -> None:
    """The thread is abandoned; in this test it cannot start before the row has ended."""

    async def main() -> bool:
        with trio.move_on_after(0.05) as scope:
            await Judging(bench(), [Assertion(type="regex", value=ENDLESS)]).run()
        return scope.cancelled_caught

    with pattern_search._ALONE:
        assert trio.run(main)

"""Cases prepare at the same time, and continue in the order of their arrival."""

import functools

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from trioeval.agent.case_order import StartOrder


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.booleans()), min_size=1, max_size=8)
)
def test_cases_continue_in_order_of_arrival(cases: list[tuple[int, int, bool]]) -> None:
    """This holds for any time of preparation and of work, and also if a case never continues."""

    async def main() -> None:
        procession, gone_on = StartOrder(), list[int]()

        async def go(number: int, ready: int, stays: int, *, gives_up: bool) -> None:
            with procession.join() as place:
                await trio.sleep(ready)
                if gives_up:
                    return
                await place.wait_for_turn()
                gone_on.append(number)
                await trio.sleep(stays)
                place.leave()
                await trio.sleep(10)

        async with trio.open_nursery() as nursery:
            for number, (ready, stays, gives_up) in enumerate(cases):
                # They start one after another, as jobs do.
                nursery.start_soon(functools.partial(go, number, ready, stays, gives_up=gives_up))
                await trio.testing.wait_all_tasks_blocked()
        assert gone_on == [number for number, (_, _, gives_up) in enumerate(cases) if not gives_up]

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_a_cancelled_case_leaves_the_queue() -> None:
    """The next one continues at once."""

    async def main() -> None:
        procession = StartOrder()
        with trio.CancelScope() as scope, procession.join():
            scope.cancel()
            await trio.sleep_forever()
        with procession.join() as place, trio.fail_after(1):
            await place.wait_for_turn()

    trio.run(main, clock=MockClock(autojump_threshold=0))

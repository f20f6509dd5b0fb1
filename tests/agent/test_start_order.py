"""Cases get ready at the same time, and go on in the order in which they came."""

import functools

import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from trioeval.agent.case_order import StartOrder


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.booleans()), min_size=1, max_size=8)
)
def test_cases_go_on_in_the_order_in_which_they_came(cases: list[tuple[int, int, bool]]) -> None:
    """However long each gets ready and stays in front, and also if it never goes on."""

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
                # They begin one after another, as jobs do.
                nursery.start_soon(functools.partial(go, number, ready, stays, gives_up=gives_up))
                await trio.testing.wait_all_tasks_blocked()
        assert gone_on == [number for number, (_, _, gives_up) in enumerate(cases) if not gives_up]

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_who_is_cancelled_makes_way() -> None:
    """The next one goes on at once."""

    async def main() -> None:
        procession = StartOrder()
        with trio.CancelScope() as scope, procession.join():
            scope.cancel()
            await trio.sleep_forever()
        with procession.join() as place, trio.fail_after(1):
            await place.wait_for_turn()

    trio.run(main, clock=MockClock(autojump_threshold=0))

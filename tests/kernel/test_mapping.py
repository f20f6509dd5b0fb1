"""`map_on_lanes`: items on lanes that are made on first use, and work that is added while it runs."""

import gc
import warnings
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import trio

from trioeval.errors import CallError, Fault, LaneClosedError, PlanError, TooLateError
from trioeval.kernel import (
    Calls,
    CallStarted,
    Done,
    Failed,
    Interrupted,
    Job,
    Lanes,
    LaneSpec,
    MappedItem,
    NotRun,
    Plan,
    StopReason,
    TimedOut,
    collect,
    map_on_lanes,
)
from trioeval.testing import run_virtual

WIDE = LaneSpec("wide", 100)


async def slept(seconds: float) -> float:
    await trio.sleep(seconds)
    return seconds


def first_letter(word: str) -> str:
    return word[0]


async def results_of(*args: Any, **options: Any) -> list[MappedItem[Any, Any]]:
    async with map_on_lanes(*args, **options) as results:
        return [result async for result in results]


@pytest.mark.parametrize(("ordered", "expected"), [(False, [1, 2, 3]), (True, [3, 1, 2])])
def test_results_come_as_they_exist_or_in_order(
    ordered: bool,  # noqa: FBT001
    expected: list[int],
) -> None:
    """Each has its item, its lane and its index."""
    results = run_virtual(lambda: results_of(slept, [3, 1, 2], spec=WIDE, ordered=ordered))
    assert [result.unwrap() for result in results] == expected
    assert [result.item for result in results] == expected
    assert [result.index for result in results] == [[3, 1, 2].index(item) for item in expected]
    assert {result.lane for result in results} == {"wide"}
    assert results[0].error is None


def test_lanes_are_made_when_their_first_item_arrives() -> None:
    """All have the same configuration, and each its own slots."""

    async def main() -> list[Any]:
        seen: list[Any] = []

        async def fetch(word: str) -> None:
            await trio.sleep(1)
            seen.append((trio.current_time(), word))

        spec = LaneSpec("*", 1, retries=7)
        async with map_on_lanes(fetch, ["a1", "a2", "b1"], lane=first_letter, spec=spec) as results:
            async for result in results:
                if result.item == "b1":
                    results.add("c1")
            assert list(results.lanes) == ["a", "b", "c"]
            assert [lane.spec.retries for lane in results.lanes.values()] == [7] * 3
        return sorted(seen)

    assert run_virtual(main) == [(1.0, "a1"), (1.0, "b1"), (2.0, "a2"), (2.0, "c1")]


def test_a_function_configures_each_lane() -> None:
    async def main() -> None:
        def configure(name: str) -> LaneSpec:
            return LaneSpec("any", 3 if name == "a" else 1)

        async with map_on_lanes(
            slept, [0.0, 1.0], lane=lambda item: "ab"[int(item)], spec=configure
        ) as results:
            assert [result.unwrap() async for result in results] == [0.0, 1.0]
            widths = {name: lane.max_concurrency for name, lane in results.lanes.items()}
            assert widths == {"a": 3, "b": 1}

    run_virtual(main)


def test_the_default_lane_is_that_of_the_spec_or_the_only_one() -> None:
    lanes = Lanes([LaneSpec("only", 2)])
    results = run_virtual(lambda: results_of(slept, [1], lanes=lanes))
    assert results[0].lane == "only"
    results = run_virtual(lambda: results_of(slept, [1], lane="x", spec=WIDE))
    assert results[0].lane == "x"


def test_lanes_are_shared_with_other_runs() -> None:
    """The limits of a lane apply to a map and a plan together, also after the map."""

    async def main() -> list[float]:
        lanes = Lanes([LaneSpec("a", 1)])
        starts: list[float] = []

        async def send(_item: int) -> None:
            starts.append(trio.current_time())
            await trio.sleep(1)

        async def perform(job: Job[int], calls: Calls[int]) -> None:
            await calls(job.lane, send, job.payload)

        async def run() -> None:
            await collect(Plan.of(Job(i, "a", i) for i in range(2)), perform, lanes=lanes)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await results_of(send, [7, 8], lanes=lanes)
        assert lanes["a"].followers == []
        return starts

    assert run_virtual(main) == [0.0, 1.0, 2.0, 3.0]


class FlakyHost:
    """Fails with these errors in turn, then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    async def fetch(self, item: str) -> str:
        await trio.sleep(1)
        if self.errors:
            raise self.errors.pop(0)
        return item


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError("reset"),
        trio.BrokenResourceError("broken"),
        ExceptionGroup("both", [OSError("one"), ExceptionGroup("", [TimeoutError("two")])]),
    ],
)
def test_connection_errors_are_retried_by_the_lane(error: Exception) -> None:
    """As often as the lane allows; also if they come in a group."""
    host = FlakyHost(error, error)
    (result,) = run_virtual(lambda: results_of(host.fetch, ["x"], spec=LaneSpec("a", retries=2)))
    assert isinstance(result.outcome, Done)
    assert result.outcome.calls == 3
    assert result.unwrap() == "x"


def test_the_last_error_of_retries_is_the_outcome() -> None:
    """It is the exception itself, with its own cause."""
    cause = KeyError("cause")
    last = OSError("last")
    last.__cause__ = cause
    host = FlakyHost(OSError("first"), last)
    (result,) = run_virtual(lambda: results_of(host.fetch, ["x"], spec=LaneSpec("a", retries=1)))
    assert isinstance(result.outcome, Failed)
    assert result.outcome.calls == 2
    assert result.error is last
    assert last.__cause__ is cause
    assert last.__context__ is None
    with pytest.raises(OSError, match="last"):
        result.unwrap()


@pytest.mark.parametrize(
    "error", [ValueError("bug"), ExceptionGroup("", [OSError(), ValueError("bug")])]
)
def test_other_errors_are_outcomes_at_once(error: Exception) -> None:
    """They neither are retried nor end the block."""
    host = FlakyHost(error)
    results = run_virtual(lambda: results_of(host.fetch, ["x", "y"], spec=LaneSpec("a", 1)))
    assert [type(result.outcome) for result in results] == [Failed, Done]
    assert results[0].error is error


def test_retry_on_names_the_errors() -> None:
    async def main() -> None:
        for named in (ValueError, (KeyError, ValueError)):
            host = FlakyHost(ValueError("again"))
            (result,) = await results_of(host.fetch, ["x"], spec=WIDE, retry_on=named)
            assert result.unwrap() == "x"
        host = FlakyHost(OSError("not named"))
        (result,) = await results_of(host.fetch, ["x"], spec=WIDE, retry_on=())
        assert isinstance(result.error, OSError)

    run_virtual(main)


def test_a_call_error_describes_the_failure_itself() -> None:
    """A refusal blocks its lane for as long as it asks for."""
    host = FlakyHost(CallError(Fault.RATE_LIMITED, "slow down", retry_after=30))
    (result,) = run_virtual(lambda: results_of(host.fetch, ["x"], spec=WIDE))
    assert isinstance(result.outcome, Done)
    assert result.outcome.finished_at >= 32


def test_items_of_a_closed_lane_are_not_run() -> None:
    """They have the reason, and other lanes continue."""

    async def refuse(word: str) -> str:
        await trio.sleep(1)
        if word[0] == "a":
            raise CallError(Fault.FATAL, "no such host")
        return word

    words = ["a1", "a2", "b1", "a3"]
    spec = LaneSpec("*", 1, breaker_threshold=1)
    results = run_virtual(
        lambda: results_of(refuse, words, lane=first_letter, spec=spec, ordered=True)
    )
    kinds = [type(result.outcome) for result in results]
    assert kinds == [Failed, NotRun, Done, NotRun]
    with pytest.raises(LaneClosedError, match="lane 'a' is closed"):
        results[1].unwrap()


def test_a_timeout_counts_the_working_time_of_one_item() -> None:
    """Not the wait for a slot."""
    results = run_virtual(
        lambda: results_of(slept, [2, 2, 4, 2], spec=LaneSpec("a", 1), timeout=3, ordered=True)
    )
    assert [type(result.outcome) for result in results] == [Done, Done, TimedOut, Done]
    with pytest.raises(trio.TooSlowError, match="item 2 took more than 3 s"):
        results[2].unwrap()


def test_the_deadline_cuts_everything_off_and_loses_no_item() -> None:
    """The loop still yields the items that ran, waited or were added later, and reads no further ones."""

    async def main() -> list[MappedItem[float, float]]:
        read: list[float] = []

        def items() -> Iterator[float]:
            for seconds in (1.0, 5.0, 6.0, 7.0):
                read.append(seconds)
                yield seconds

        found: list[MappedItem[float, float]] = []
        async with map_on_lanes(
            slept, items(), spec=LaneSpec("a", 1), deadline=3.0, buffer=2
        ) as results:
            async for result in results:
                found.append(result)
                if len(found) == 1:
                    await trio.sleep(4)
                    results.add(9.0)
        assert read == [1.0, 5.0, 6.0]
        return found

    found = run_virtual(main)
    assert [type(result.outcome) for result in found] == [Done, Interrupted, NotRun, NotRun]
    assert [result.item for result in found] == [1.0, 5.0, 6.0, 9.0]
    assert isinstance(found[3].outcome, NotRun)
    assert found[3].outcome.cut is StopReason.DEADLINE
    for result in found[1:]:
        with pytest.raises(trio.TooSlowError, match=r"item \d was not over at the deadline"):
            result.unwrap()


def test_an_exception_of_the_block_cancels_the_work_and_is_not_wrapped() -> None:
    """At once: no task outlives the block."""

    async def main() -> None:
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block raises it
            async with map_on_lanes(slept, [1, 100], spec=WIDE) as results:
                async for _ in results:
                    raise ZeroDivisionError
        assert trio.current_time() == 1.0
        with pytest.raises(TooLateError, match="the block of map_on_lanes was left"):
            results.add(1)
        with pytest.raises(TooLateError, match="the block of map_on_lanes was left"):
            await anext(results)

    run_virtual(main)


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(3), ExceptionGroup("a", [OSError()])]
)
def test_an_end_of_the_program_in_the_block_is_not_wrapped(error: BaseException) -> None:
    """As where no nursery is: `sys.exit` in the loop sets the exit code, and Ctrl-C is one line."""

    async def main() -> None:
        async with map_on_lanes(slept, [1, 100], spec=WIDE) as results:
            async for _ in results:
                raise error

    with pytest.raises(type(error)) as caught:
        run_virtual(main)
    assert caught.value is error


def test_the_caller_s_scope_cancels_everything() -> None:
    async def main() -> None:
        lanes = Lanes([])
        with trio.move_on_after(2) as scope:
            await results_of(slept, [1, 100], spec=WIDE, lanes=lanes)
        assert scope.cancelled_caught
        assert trio.current_time() == 2.0
        assert lanes["wide"].in_flight == 0

    run_virtual(main)


def test_an_error_of_the_items_is_raised_after_the_results_of_those_before() -> None:
    def items() -> Iterator[float]:
        yield 1.0
        yield 2.0
        raise ValueError("no more")

    async def main() -> list[float]:
        found: list[float] = []
        with pytest.raises(ValueError, match="no more"):  # noqa: PT012 - the loop raises it
            async with map_on_lanes(slept, items(), spec=WIDE) as results:
                async for result in results:
                    found.append(result.unwrap())  # noqa: PERF401 - kept when the loop raises
        return found

    assert run_virtual(main) == [1.0, 2.0]


def test_async_items_are_awaited_and_closed() -> None:
    """A generator that the block leaves unfinished is closed with it."""
    closed: list[float] = []

    async def items() -> AsyncIterator[float]:
        try:
            while True:
                await trio.sleep(1)
                yield 0.5
        finally:
            closed.append(trio.current_time())

    async def main() -> None:
        async with map_on_lanes(slept, items(), spec=WIDE) as results:
            async for result in results:
                if result.index == 2:
                    break
        assert closed == [3.5]

    run_virtual(main)


def test_a_memory_channel_feeds_a_map() -> None:
    """Tasks send items until they close the channel; then the loop ends."""

    async def main() -> list[float]:
        send, receive = trio.open_memory_channel[float](0)

        async def produce() -> None:
            async with send:
                for _ in range(3):
                    await trio.sleep(10)
                    await send.send(1.0)

        async with trio.open_nursery() as nursery, receive:
            nursery.start_soon(produce)
            async with map_on_lanes(slept, receive, spec=WIDE) as results:
                ends = [trio.current_time() async for _ in results]
        return ends

    assert run_virtual(main) == [11.0, 21.0, 31.0]


def test_a_slow_loop_bounds_what_is_started() -> None:
    """No item starts while `buffer` results wait, also of added items."""

    async def main() -> list[tuple[float, int]]:
        counts: list[tuple[float, int]] = []
        started: list[int] = []

        async def fetch(number: int) -> None:
            started.append(number)
            await trio.sleep(1)

        async with map_on_lanes(fetch, spec=LaneSpec("a", 2), buffer=4) as results:
            for number in range(20):
                results.add(number)
            for _ in range(4):
                await trio.sleep(10)
                counts.append((trio.current_time(), len(started)))
                await anext(results)
            assert repr(results) == "<MappedItems: 14 queued or running, 2 ready>"
        return counts

    assert run_virtual(main) == [(10.0, 4), (20.0, 4), (30.0, 6), (40.0, 6)]


def test_the_loop_may_be_repeated() -> None:
    """It ends when every item had its turn; more may be added after that."""

    async def main() -> None:
        async with map_on_lanes(slept, [1.0], spec=WIDE) as results:
            assert [result.item async for result in results] == [1.0]
            assert results.add(2.0) == 1
            assert [result.item async for result in results] == [2.0]
            assert [result.item async for result in results] == []

    run_virtual(main)


def test_one_task_iterates_at_a_time() -> None:
    async def main() -> None:
        async with (
            map_on_lanes(slept, [5.0], spec=WIDE) as results,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(anext, results)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(trio.BusyResourceError, match="another task is iterating"):
                await anext(results)

    run_virtual(main)


def test_a_cancelled_wait_for_a_result_loses_none() -> None:
    async def main() -> None:
        async with map_on_lanes(slept, [5.0], spec=WIDE) as results:
            with trio.move_on_after(1):
                await anext(results)
            assert [result.item async for result in results] == [5.0]

    run_virtual(main)


def test_an_observer_sees_the_requests() -> None:
    events: list[Any] = []
    run_virtual(lambda: results_of(slept, [1], spec=WIDE, observe=events.append))
    assert [(e.at, e.lane) for e in events if isinstance(e, CallStarted)] == [(0.0, "wide")]


@pytest.mark.slow
def test_a_thousand_lanes_run_at_once() -> None:
    """Each lane is made, and served, without a delay by the others."""

    async def main() -> float:
        await results_of(
            slept, [1.0] * 1000, lane=lambda _: str(next(names)), spec=LaneSpec("*", 1)
        )
        return trio.current_time()

    names = iter(range(1000))
    assert run_virtual(main) == 1.0


def plain(item: int) -> int:
    started.append(item)
    return item


started: list[int] = []


def test_a_plain_function_is_refused_at_its_first_call() -> None:
    """Once, in words, and no second item starts."""
    started.clear()
    wrong: Any = plain
    with pytest.raises(PlanError) as caught:
        run_virtual(lambda: results_of(wrong, [5, 6, 7], spec=LaneSpec("a", 1)))
    assert str(caught.value) == (
        "fn must be an async function, got the function plain, which returned the int 5"
    )
    assert started == [5]


def test_a_plain_function_is_refused_also_without_a_loop() -> None:
    async def main() -> None:
        wrong: Any = plain
        async with map_on_lanes(wrong, [5], spec=WIDE):
            await trio.sleep(1)

    with pytest.raises(PlanError, match="fn must be an async function"):
        run_virtual(main)


async def pages() -> list[int]:
    await trio.sleep(1)
    return [1]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"fn": 3}, "fn must be an async function that takes (item), got the int 3"),
    ({"items": "abc"}, "items must be an iterable of items, got the str 'abc'"),
    ({"items": 3}, "items must be an iterable of items, got the int 3"),
    ({"lane": 3}, "lane must be a plain function that takes (item), got the int 3"),
    (
        {"lane": pages},
        "lane must be a plain function that takes (item), got the async function pages",
    ),
    (
        {"spec": None},
        "lane must be the name of a lane, or a function from an item to a name;"  # noqa: ISC004
        " for a single lane, pass spec=LaneSpec(...) with its name",
    ),
    ({"spec": 3}, "spec must be a plain function that takes (name), got the int 3"),
    (
        {"lanes": [LaneSpec("a")]},
        "lanes must be Lanes, got a list: write Lanes([LaneSpec(...), ...])",
    ),
    ({"retry_on": "OSError"}, "retry_on must be subclasses of Exception, got the str 'OSError'"),
    (
        {"retry_on": (OSError, trio.Cancelled)},
        "retry_on must be subclasses of Exception, got the class Cancelled",
    ),
    ({"timeout": None}, "timeout must be more than 0 seconds, got None"),
    ({"timeout": 0}, "timeout must be more than 0 seconds, got 0"),
    ({"buffer": 0}, "buffer must be a whole number of at least 1, got 0"),
    ({"buffer": 1.5}, "buffer must be a whole number of at least 1, got 1.5"),
    ({"deadline": None}, "deadline must be an instant on the Trio clock, got None"),
    ({"deadline": float("nan")}, "deadline must be an instant on the Trio clock, got nan"),
    (
        {"observe": pages},
        "observe must be a plain function that takes (event), got the async function pages",
    ),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_wrong_arguments_are_refused_before_anything_starts(
    wrong: dict[str, Any], message: str
) -> None:
    given: dict[str, Any] = {"fn": slept, "items": [1], "spec": LaneSpec("a")} | wrong
    with pytest.raises(PlanError) as caught:
        run_virtual(lambda: results_of(**given))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "fn",
            "fn must be an async function that takes (item), got a coroutine:"  # noqa: ISC004
            " pass pages instead of pages(...)",
        ),
        ("items", "items must be an iterable, got a coroutine: await pages(...)"),
    ],
)
def test_a_coroutine_is_refused_and_closed(name: str, message: str) -> None:
    async def main() -> None:
        given: dict[str, Any] = {"fn": slept, "items": [1]} | {name: pages()}
        await results_of(**given, spec=WIDE)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(PlanError) as caught:
            run_virtual(main)
        gc.collect()
    assert str(caught.value) == message


def test_a_lane_that_cannot_be_made_is_refused_where_its_item_is_added() -> None:
    async def main() -> None:
        lanes = Lanes([LaneSpec("a"), LaneSpec("b")])
        async with map_on_lanes(slept, lane=str, lanes=lanes) as results:
            with pytest.raises(PlanError) as caught:
                results.add(3.5)
            expected = "lane '3.5' is not one of ['a', 'b']; pass spec to make lanes on first use"
            assert str(caught.value) == expected

        def configure(name: str) -> Any:
            return name

        async with map_on_lanes(slept, lane=str, spec=configure) as results:
            with pytest.raises(PlanError, match=r"spec must return a LaneSpec, got the str '1\.0'"):
                results.add(1.0)

        def no_name(item: float) -> Any:
            return item

        async with map_on_lanes(slept, lane=no_name, spec=WIDE) as results:
            with pytest.raises(PlanError) as caught:
                results.add(1)
            assert (
                str(caught.value)
                == "lane must return the name of a lane, got the int 1 for the int 1"
            )

    run_virtual(main)

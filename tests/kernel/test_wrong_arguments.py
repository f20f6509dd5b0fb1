"""Arguments of the wrong kind: one error in words, before the first call, instead of one per job."""

import gc
import re
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest
import trio

from trioeval.errors import PlanError
from trioeval.kernel import Calls, Done, Job, Lanes, LaneSpec, Plan, collect, run_plan
from trioeval.testing import run_virtual


async def pause() -> None:
    await trio.sleep(1)


async def perform(job: Job, calls: Calls) -> None:
    await calls(job.lane, pause)


def sync_perform(job: Job, calls: Calls) -> int:
    return job.index


def items(job: Job, calls: Calls) -> Iterator[int]:
    yield job.index


async def later(job: Job, calls: Calls) -> AsyncIterator[int]:
    await trio.sleep(1)
    yield job.index


async def on_event(event: object) -> None:
    await trio.sleep(1)


def jobs(number: int = 3) -> list[Job[None]]:
    return [Job(index, "a", None) for index in range(number)]


def plan() -> Plan[None]:
    return Plan.of(jobs())


def lanes() -> Lanes:
    return Lanes([LaneSpec("a")])


def refusal(start: Callable[[], Awaitable[object]]) -> str:
    """The message of the one error; and no coroutine is left that was never awaited."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(PlanError) as caught:
            run_virtual(start)
        gc.collect()
    return str(caught.value)


WRONG: list[tuple[dict[str, Any], str]] = [
    (
        {"plan": jobs()},
        "plan must be a Plan, got a list: write Plan.of(jobs)",
    ),
    (
        {"plan": None},
        "plan must be a Plan, got None: write Plan.of(jobs)",
    ),
    (
        {"lanes": LaneSpec("a")},
        "lanes must be Lanes, got a LaneSpec: write Lanes([LaneSpec(...), ...])",
    ),
    (
        {"perform": None},
        "perform must be an async function that takes (job, calls), got None",
    ),
    (
        {"perform": items},
        "perform must be an async function that takes (job, calls), got the generator function items",
    ),
    (
        {"perform": later},
        "perform must be an async function that takes (job, calls), got the generator function later",
    ),
    (
        {"perform": sync_perform},
        "perform must be an async function, got the function sync_perform, which returned the int 0",
    ),
    (
        {"observe": on_event},
        "observe must be a plain function that takes (event), got the async function on_event",
    ),
    (
        {"observe": 3},
        "observe must be a plain function that takes (event), got the int 3",
    ),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_collect_refuses_an_argument_of_the_wrong_kind_once(
    wrong: dict[str, Any], message: str
) -> None:
    """The message names the argument, what was given, and what is right."""
    given: dict[str, Any] = {"plan": plan(), "perform": perform, "lanes": lanes()} | wrong
    assert refusal(lambda: collect(**given)) == message


def test_a_coroutine_in_place_of_the_body_is_refused_and_closed() -> None:
    """Python does not warn that it was never awaited."""

    async def start() -> None:
        body: Any = perform(Job(0, "a", None), None)  # type: ignore[arg-type]
        await collect(plan(), body, lanes=lanes())

    assert refusal(start) == (
        "perform must be an async function that takes (job, calls),"
        " got a coroutine: pass perform instead of perform(...)"
    )


def test_a_plain_emit_is_refused() -> None:
    """`emit=outcomes.append` looks right, but is not an async function."""
    kept: list[Any] = []
    append: Any = kept.append
    message = refusal(lambda: run_plan(plan(), perform, lanes=lanes(), emit=append))
    assert message == "emit must be an async function, got the function append, which returned None"
    assert len(kept) == 1


@pytest.mark.parametrize("name", ["emit", "never_ran"])
def test_a_coroutine_in_place_of_a_consumer_is_refused(name: str) -> None:
    async def start() -> None:
        given: dict[str, Any] = {"emit": on_event} | {name: on_event(None)}
        await run_plan(plan(), perform, lanes=lanes(), **given)

    assert re.match(rf"{name} must be an async function .*: pass on_event instead", refusal(start))


def test_an_async_settled_is_refused() -> None:
    wrong: Any = on_event
    message = refusal(
        lambda: run_plan(plan(), perform, lanes=lanes(), emit=on_event, settled=wrong)
    )
    assert message == (
        "settled must be a plain function that takes (outcome), got the async function on_event"
    )


def sending(make_send: Callable[[], Any]) -> Callable[[], Awaitable[object]]:
    """A run whose bodies pass a wrong `send`."""

    async def body(job: Job, calls: Calls) -> None:
        started.append(job.index)
        await calls("a", make_send())

    async def start() -> None:
        try:
            await collect(plan(), body, lanes=Lanes([LaneSpec("a", 1)]))
        finally:
            assert started == [0]

    started: list[int] = []
    return start


def test_a_coroutine_in_place_of_a_send_ends_the_run() -> None:
    """It is the fault of all jobs: no second one starts, and the coroutine is closed."""
    assert refusal(sending(pause)) == (
        "send must be an async function that takes (*args), got a coroutine: pass pause instead of pause(...)"
    )


def test_a_plain_send_ends_the_run() -> None:
    assert refusal(sending(lambda: dict)) == (
        "send must be an async function, got the class dict, which returned the dict {}"
    )


def test_a_type_error_of_a_send_is_its_job_s_failure() -> None:
    """An async function may raise TypeError."""

    async def fails() -> None:
        await trio.sleep(1)
        raise TypeError("inside")

    async def body(job: Job, calls: Calls) -> None:
        with pytest.raises(TypeError, match="inside"):
            await calls("a", fails)
        with pytest.raises(TypeError, match="positional"):
            await calls("a", fails, 1)  # type: ignore[arg-type]

    outcomes = run_virtual(lambda: collect(plan(), body, lanes=lanes()))
    assert [type(outcome) for outcome in outcomes] == [Done] * 3


def test_functions_that_return_awaitables_are_valid() -> None:
    """An async function is what returns an awaitable, however it is written."""

    def make_pause() -> Awaitable[None]:
        return pause()

    def body_of(job: Job, calls: Calls) -> Awaitable[int]:
        return Body()(job, calls)

    class Body:
        async def __call__(self, job: Job, calls: Calls) -> int:
            await calls(job.lane, make_pause)
            return job.index

    for body in (Body(), body_of, partial(Body())):
        outcomes = run_virtual(partial(collect, plan(), body, lanes=lanes()))
        assert [outcome.value for outcome in outcomes if isinstance(outcome, Done)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        (
            LaneSpec("a"),
            "Lanes takes a list of LaneSpec, got one: write Lanes([LaneSpec('a', ...)])",
        ),
        ("ab", "Lanes takes a list of LaneSpec, got the str 'a' at position 0"),
        ({}, "Lanes takes a list of LaneSpec, got the dict {}"),
        (None, "Lanes takes a list of LaneSpec, got None"),
        (
            [LaneSpec("a"), LaneSpec],
            "Lanes takes a list of LaneSpec, got the class LaneSpec at position 1",
        ),
    ],
)
def test_lanes_are_made_of_a_list_of_configurations(specs: Any, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        Lanes(specs)
    assert str(caught.value) == message


def test_a_deadline_that_is_a_duration_is_refused() -> None:
    """Trio's clock starts at 10 000 s or more: a deadline before that is a duration, a later one passed."""

    async def start() -> list[Any]:
        await trio.sleep(5000)
        assert await collect(plan(), perform, lanes=lanes(), deadline=4000.0)
        await trio.sleep(50_000)
        assert await collect(plan(), perform, lanes=lanes(), deadline=10_000.0)
        return await collect(plan(), perform, lanes=lanes(), deadline=30.0)

    assert refusal(start) == (
        "deadline must be an instant on the Trio clock, got 30.0, which is before its start;"
        " for 30 seconds from now write trio.current_time() + 30"
    )

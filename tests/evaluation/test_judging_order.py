"""The verdict on a row does not depend on the order in which judges answer."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.errors import GradingError
from trioeval.evaluation.judging import AssertionServices, Judging, JudgingContext
from trioeval.grading import KINDS, Assertion, Finding, Kind, Subject, Verdict
from trioeval.grading.kind import ExternalJudge
from trioeval.testing import run_virtual


async def slow_judge(
    _subject: Subject, value: Any, _assertion: Assertion, _outside: Any
) -> Finding:
    """A judge with a given reply and duration."""
    await trio.sleep(value["wait"])
    if value["error"]:
        raise GradingError(value["reason"])
    return Finding(value["holds"], value["reason"], named_scores={"own": value["score"]})


KIND = Kind("what a judge says and when", lambda _: True, ExternalJudge(slow_judge))


async def untouched(_transform: str, subject: Subject) -> Any:
    await trio.lowlevel.checkpoint()
    return subject.output


def bench(width: int, *, short_circuit: bool = False) -> JudgingContext:
    return JudgingContext(
        subject=Subject.of("a"),
        render=str,
        kinds={**KINDS, "slow": KIND},
        services_for=lambda _assertion: AssertionServices(None),  # type: ignore[arg-type] # never called
        transform=untouched,
        width=width,
        short_circuit=short_circuit,
    )


def slow(reason: str, wait: float, **keys: Any) -> Assertion:
    value = {"wait": wait, "holds": True, "error": False, "score": 0.5, "reason": reason} | keys
    return Assertion(type="slow", value=value)


def judged(
    assertions: Sequence[Assertion], width: int = 3, threshold: float | None = None
) -> Verdict | str:
    judging = Judging(bench(width), assertions, threshold)
    try:
        return run_virtual(judging.run)
    except GradingError as error:
        return str(error)


def timeless(value: Any) -> Any:
    """A verdict without the durations of its judges."""
    if isinstance(value, Verdict):
        assertion = value.assertion
        if assertion is not None and assertion.type == "slow":
            kept = {**assertion.value, "wait": 0}
            assertion = attrs.evolve(assertion, value=kept)
        elif assertion is not None:
            assertion = attrs.evolve(assertion, assertions=())
        parts = tuple(map(timeless, value.parts))
        return attrs.evolve(value, assertion=assertion, parts=parts)
    return value


@st.composite
def leaves(draw: st.DrawFn) -> Callable[[float], Assertion]:
    """An assertion, given the duration of its judge."""
    weight = draw(st.sampled_from([0.0, 0.3, 1.0, 2.5]))
    metric = draw(st.none() | st.sampled_from(["m", "own"]))
    if draw(st.booleans()):
        value = draw(st.sampled_from(["a", "b"]))
        kind = draw(st.sampled_from(["contains", "not-contains"]))
        plain = Assertion(type=kind, value=value, weight=weight, metric=metric)
        return lambda _wait: plain
    reason = draw(st.sampled_from("uvw"))
    keys = {
        "holds": draw(st.booleans()),
        "error": draw(st.integers(0, 9)) == 0,
        "score": draw(st.sampled_from([0.1, 0.2, 0.7])),
    }
    return lambda wait: attrs.evolve(slow(reason, wait, **keys), weight=weight, metric=metric)


ROWS = st.lists(
    st.one_of(
        leaves().map(lambda leaf: (leaf,)),
        st.lists(leaves(), min_size=1, max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=5,
)
WAITS = st.lists(st.floats(0, 10), min_size=15, max_size=15)


def row_of(
    shape: Sequence[tuple[Callable[[float], Assertion], ...]], waits: Sequence[float]
) -> list[Assertion]:
    left = iter(waits)
    found = []
    for members in shape:
        made = tuple(member(next(left)) for member in members)
        whole = Assertion(type="assert-set", assertions=made, metric="set")
        found.append(made[0] if len(made) == 1 else whole)
    return found


@pytest.mark.slow
@settings(max_examples=30)
@given(ROWS, WAITS, WAITS, st.integers(1, 4), st.none() | st.floats(0, 1))
def test_as_48_any_order_of_replies_gives_the_same_verdict(
    shape: Sequence[tuple[Callable[[float], Assertion], ...]],
    one: list[float],
    other: list[float],
    width: int,
    threshold: float | None,
) -> None:
    """For any durations and concurrency; also if one of them fails."""
    first = judged(row_of(shape, one), width, threshold)
    second = judged(row_of(shape, other), 3, threshold)
    assert timeless(first) == timeless(second)


def test_as_32_the_reason_is_that_of_the_first_failure_in_the_list() -> None:
    """Its judge was the last to reply."""
    verdict = judged([slow("first", 2, holds=False), slow("second", 1, holds=False)])
    assert isinstance(verdict, Verdict)
    assert verdict.reason == "first"


def test_the_first_error_in_the_list_is_reported() -> None:
    """It was the last to occur; other results are stored in their order."""
    assertions = [slow("x", 3, error=True), slow("y", 1, error=True), slow("fine", 2)]
    judging = Judging(bench(3), assertions)
    with pytest.raises(GradingError, match=r"^assert\[0\] \(slow\): x$"):
        run_virtual(judging.run)
    assert [part.reason for part in judging.parts] == ["fine"]


def test_a_deciding_failure_ends_the_other_judges() -> None:
    """This applies to sets too, with any threshold; running judges are cancelled, not awaited."""

    async def timed() -> tuple[Verdict, float]:
        members = (slow("for ever", 1e6), slow("no", 2, holds=False))
        whole = Assertion(type="assert-set", assertions=members, threshold=0)
        assertions = [whole, slow("for ever", 1e6), slow("not begun", 1)]
        verdict = await Judging(bench(3, short_circuit=True), assertions, 0.0).run()
        return verdict, trio.current_time()

    verdict, took = run_virtual(timed)
    assert (verdict.passed, verdict.reason, took) == (False, "no", 2)


def test_the_concurrency_of_judges_is_the_configured_one() -> None:
    """Four judges of a second take two seconds if two may run at once."""

    async def timed() -> float:
        await Judging(bench(2), [slow("", 1)] * 4).run()
        return trio.current_time()

    assert run_virtual(timed) == 2


def test_a_single_assertion_runs_in_no_separate_task() -> None:
    """Starting and ending a task costs as much as a quick script; several assertions have one each."""
    tasks: list[trio.lowlevel.Task] = []

    async def notes(*_: Any) -> Finding:
        tasks.append(trio.lowlevel.current_task())
        await trio.lowlevel.checkpoint()
        return Finding(holds=True, reason="noted")

    async def of(count: int) -> int:
        tasks.clear()
        kinds = {"notes": Kind("anything", lambda _: True, ExternalJudge(notes))}
        row = attrs.evolve(bench(3), kinds=kinds)
        await Judging(row, [Assertion(type="notes", value=n) for n in range(count)]).run()
        return len({*tasks} - {trio.lowlevel.current_task()})

    assert run_virtual(of, 1) == 0
    assert run_virtual(of, 2) == 2

"""Invalid input, and misbehaving bodies and consumers: a typed error or an outcome."""

import math
from collections.abc import Mapping, Sequence

import pytest
import trio

from trioeval.errors import CallError, Fault, PlanError, TooLateError
from trioeval.kernel import (
    Budget,
    Calls,
    Done,
    Failed,
    Interrupted,
    Job,
    Lanes,
    LaneSpec,
    Outcome,
    Plan,
    Readiness,
    ReadinessUpdate,
    StopReason,
    TimedOut,
    collect,
    run_plan,
)
from trioeval.rates import Backoff
from trioeval.testing import run_virtual

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"burst": 0}, "burst must be a whole number of at least 1, got 0"),
        ({"tpm": 0}, "tpm must be more than 0 and finite, got 0"),
        ({"tpm": -1.0}, "tpm must be more than 0 and finite, got -1.0"),
        ({"tpm": NAN}, "tpm must be more than 0 and finite, got nan"),
        ({"token_burst": -1}, "token_burst must be a whole number of at least 0, got -1"),
        (
            {"min_gap": NAN},
            "min_gap must be at least 0 seconds and finite, got nan",
        ),
        (
            {"min_gap": INF},
            "min_gap must be at least 0 seconds and finite, got inf",
        ),
        ({"retries": -1}, "retries must be a whole number of at least 0, got -1"),
        ({"max_retries": -1}, "max_retries must be a whole number of at least 0, got -1"),
        ({"max_retries": 1.0}, "max_retries must be a whole number of at least 0, got 1.0"),
        ({"patience": 0}, "patience must be more than 0 seconds, got 0"),
        ({"patience": NAN}, "patience must be more than 0 seconds, got nan"),
        ({"breaker_threshold": 0}, "breaker_threshold must be a whole number of at least 1, got 0"),
        ({"adaptive": "vegas"}, "adaptive must be aimd, latency or off, got 'vegas'"),
        ({"oversize": "split"}, "oversize must be alone or refuse, got 'split'"),
    ],
)
def test_a_lane_rejects_invalid_settings(limits: Mapping[str, object], message: str) -> None:
    """The message names the lane, the field, the range and the value."""
    with pytest.raises(PlanError) as caught:
        LaneSpec("a", **limits)  # type: ignore[arg-type]
    assert str(caught.value) == f"lane 'a': {message}"


@pytest.mark.parametrize("timeout", [0, -1.0, NAN])
def test_the_timeout_of_a_job_must_be_positive(timeout: float) -> None:
    """A timeout must be greater than 0."""
    with pytest.raises(PlanError, match=r"^Job\.timeout must be more than 0 seconds, got "):
        Job(0, "a", None, timeout)


@pytest.mark.parametrize("indices", [[0, 0], [1, 0], [0, 2], [1]])
def test_indices_of_a_plan_are_its_positions(indices: Sequence[int]) -> None:
    """They may not repeat, be swapped, have a gap, or start after 0: the first wrong position is named."""
    wrong = next(place for place, index in enumerate(indices) if place != index)
    with pytest.raises(PlanError) as caught:
        Plan.of(Job(index, "a", None) for index in indices)
    expected = (
        f"the job at position {wrong} of the plan has index {indices[wrong]}; they must be equal"
    )
    assert str(caught.value) == expected


@pytest.mark.parametrize(("serial", "wrong"), [([0, 2], [2]), ([-1], [-1])])
def test_serial_indices_name_jobs(serial: Sequence[int], wrong: Sequence[int]) -> None:
    """Serial indices that are not jobs are rejected by name."""
    jobs = [Job(i, "a", None) for i in range(2)]
    with pytest.raises(PlanError, match=rf"\(0 to 1\), got \{wrong}"[:-1]):
        Plan.of(jobs, serial_indices=serial)


async def quick(job: Job[None], calls: Calls[None]) -> None:
    await calls(job.lane, trio.sleep, 1)


@pytest.mark.parametrize("body_hides", [False, True], ids=["timeout", "deadline"])
def test_a_job_whose_body_swallows_its_cancellation_is_done(body_hides: bool) -> None:  # noqa: FBT001
    """A job is done, although it was cancelled, if its body returns a result."""

    async def stubborn(job: Job[None], calls: Calls[None]) -> str:
        try:
            await calls("a", trio.sleep, 9)
        except trio.Cancelled:
            return "swallowed"
        return "slept"

    timeout, deadline = (INF, 4.0) if body_hides else (4.0, INF)
    plan = Plan.of([Job(0, "a", None, timeout), Job(1, "a", None, timeout)])
    outcomes = run_virtual(
        lambda: collect(plan, stubborn, lanes=Lanes([LaneSpec("a")]), deadline=deadline)
    )
    assert outcomes == [Done(i, 0.0, 4.0, 0.0, 1, "swallowed") for i in range(2)]


def test_a_body_that_calls_after_its_timeout_gets_no_slot() -> None:
    """After its timeout a body gets no slot, unless in a shield."""
    served: list[float] = []

    async def late(job: Job[None], calls: Calls[None]) -> None:
        async def send() -> None:
            served.append(trio.current_time())
            await trio.sleep(1)

        try:
            await trio.sleep(9)
        finally:
            await calls("a", send)

    plan = Plan.of([Job(0, "a", None, 4.0)])
    (outcome,) = run_virtual(lambda: collect(plan, late, lanes=Lanes([LaneSpec("a")])))
    assert isinstance(outcome, TimedOut)
    assert (outcome.finished_at, served) == (4.0, [4.0])


def test_a_call_after_the_deadline_fails() -> None:
    """DEADLINE: a shielded call after the deadline fails with a typed error."""
    messages: list[str] = []

    async def late(job: Job[None], calls: Calls[None]) -> None:
        try:
            await trio.sleep(9)
        finally:
            with trio.CancelScope(shield=True):
                try:
                    await calls("a", trio.sleep, 1)
                except TooLateError as error:
                    messages.append(str(error))

    plan = Plan.of([Job(0, "a", None)])
    (outcome,) = run_virtual(
        lambda: collect(plan, late, lanes=Lanes([LaneSpec("a")]), deadline=4.0)
    )
    assert outcome == Interrupted(0, 0.0, 4.0, 0.0, 0, StopReason.DEADLINE)
    assert messages == ["job 0 requested a call after the run's deadline"]


def test_a_consumer_that_never_returns_ends_with_its_caller() -> None:
    """A consumer that never returns ends with its caller, after the grace period."""

    async def never(outcome: Outcome[None]) -> None:
        await trio.sleep_forever()

    async def main() -> float:
        with trio.move_on_after(10):
            await run_plan(
                Plan.of([Job(0, "a", None)]),
                quick,
                lanes=Lanes([LaneSpec("a")]),
                emit=never,
                deadline=3.0,
                flush_grace=2.0,
            )
        return trio.current_time()

    assert run_virtual(main) == 12.0


@pytest.mark.parametrize("name", ["max_live_jobs", "salvage_rounds"])
def test_arguments_of_a_run_have_a_minimum(name: str) -> None:
    """The message names the argument."""
    with pytest.raises(PlanError, match=f"^{name} must be a whole number of at least "):
        run_virtual(
            lambda: collect(
                Plan.of([Job(0, "a", None)]),
                quick,
                lanes=Lanes([LaneSpec("a")]),
                **{name: -1},  # type: ignore[arg-type]
            )
        )


@pytest.mark.parametrize(
    "make",
    [
        lambda: Backoff(base=-1),
        lambda: Backoff(base=NAN),
        lambda: Backoff(cap=0.25),
        lambda: Budget(requests=-1),
        lambda: Budget(money=NAN),
    ],
)
def test_bounds_out_of_range_are_rejected(make: object) -> None:
    """The exception is the same as for everything that cannot run."""
    assert callable(make)
    with pytest.raises(PlanError):
        make()


def test_an_unknown_lane_fails_only_the_job_that_calls_it() -> None:
    """A call to an unknown lane fails only its job."""

    async def body(job: Job[None], calls: Calls[None]) -> None:
        await calls("b" if job.index else "a", trio.sleep, 1)

    plan = Plan.of(Job(i, "a", None) for i in range(2))
    done, failed = run_virtual(lambda: collect(plan, body, lanes=Lanes([LaneSpec("a")])))
    assert isinstance(done, Done)
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, PlanError)


class Misbehaving(Readiness):
    """A readiness that violates its protocol in a given way, at the first outcome."""

    def __init__(self, freed: ReadinessUpdate | Exception) -> None:
        self.freed = freed

    def begin(self) -> Sequence[int]:
        return [0]

    def on_outcome(self, index: int, *, done: bool) -> ReadinessUpdate:  # noqa: ARG002 - the protocol's
        if isinstance(self.freed, Exception):
            raise self.freed
        return self.freed


@pytest.mark.parametrize(
    ("freed", "message"),
    [
        (KeyError("x"), "the readiness of the plan failed: KeyError: 'x'"),
        (
            ReadinessUpdate(ready=[0]),
            "the readiness of the plan names job 0 as ready, which is over",
        ),
        (ReadinessUpdate(ready=[7]), "the readiness of the plan names 7; its jobs are 0 to 2"),
        (
            ReadinessUpdate(blocked=[(-1, 0)]),
            "the readiness of the plan names -1; its jobs are 0 to 2",
        ),
    ],
)
def test_a_readiness_that_misbehaves_ends_the_run(
    freed: ReadinessUpdate | Exception, message: str
) -> None:
    """A readiness that misbehaves ends the run with a PlanError."""
    jobs = [Job(i, "a", None) for i in range(3)]
    plan = Plan(jobs, ("a",), readiness=lambda: Misbehaving(freed))

    async def body(_job: Job[None], _calls: Calls[None]) -> None:
        pass

    with pytest.raises(PlanError) as caught:
        run_virtual(lambda: collect(plan, body, lanes=Lanes([LaneSpec("a")])))
    assert str(caught.value) == message


def test_a_key_must_be_hashable() -> None:
    """An unhashable key is rejected when the plan is created."""
    with pytest.raises(PlanError) as caught:
        Plan.of([Job(0, "a", None, key=["k"])])  # type: ignore[arg-type]
    assert str(caught.value) == "job 0 has the key ['k']; a key must be hashable"


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ({"deadline": math.nan}, "deadline must be an instant on the Trio clock, got nan"),
        ({"pause_after": -1.0}, "pause_after must be at least 0 seconds, got -1.0"),
        ({"pause_after": math.nan}, "pause_after must be at least 0 seconds, got nan"),
        ({"flush_grace": -1.0}, "flush_grace must be at least 0 seconds and finite, got -1.0"),
        ({"flush_grace": math.nan}, "flush_grace must be at least 0 seconds and finite, got nan"),
        (
            {"reorder_window": math.nan},
            "reorder_window must be a whole number of at least 1, got nan",
        ),
    ],
)
def test_times_of_a_run_are_numbers(times: dict[str, float], message: str) -> None:
    """NaN is rejected as a deadline and as a grace period."""

    async def ignore(_: object) -> None:
        pass

    async def main() -> None:
        plan = Plan.of([Job(0, "a", None)])
        await run_plan(plan, ignore2, lanes=Lanes([LaneSpec("a")]), emit=ignore, **times)  # type: ignore[arg-type]

    async def ignore2(_job: Job[None], _calls: Calls[None]) -> None:
        pass

    with pytest.raises(PlanError) as caught:
        run_virtual(main)
    assert str(caught.value) == message


def test_impossible_hints_of_a_failure_are_dropped() -> None:
    """Impossible values of a failure are dropped."""
    error = CallError(Fault.REFUSED, "x", retry_after=-5.0, tokens=-1000, money=math.nan)
    assert (error.retry_after, error.tokens, error.money) == (None, None, None)
    assert CallError(Fault.TRANSIENT, retry_after=math.nan).retry_after is None


def test_a_refusal_needs_a_delay() -> None:
    """Without one the server would be called again at the same instant, for ever."""
    with pytest.raises(PlanError) as caught:
        LaneSpec("a", refusal_delay=0.0)
    assert "refusal_delay must be more than 0 seconds and finite, got 0.0" in str(caught.value)
    with pytest.raises(PlanError, match="name must be a text that is not empty"):
        LaneSpec("")

"""Budgets of runs: waits, failures, and the end of the run."""

from collections.abc import Sequence

import attrs
import pytest
import trio

from trioeval.errors import BudgetError, CallError, Fault, PlanError, UsageError
from trioeval.kernel import (
    Budget,
    Calls,
    Done,
    Failed,
    Job,
    Lanes,
    LaneSpec,
    Metered,
    NotRun,
    Outcome,
    Plan,
    StopReason,
    Waiting,
    WaitReason,
    collect,
)
from trioeval.testing import run_virtual


@attrs.frozen
class Use:
    """The reservation and the usage of a call; None reports nothing."""

    tokens: int = 0
    money: float = 0.0
    used: int | None = None
    cost: float | None = None
    seconds: float = 1.0


async def use(job: Job[Use], calls: Calls[Use]) -> str:
    """Make one call that reports its usage."""
    want = job.payload

    async def send() -> Metered[str]:
        await trio.sleep(want.seconds)
        return Metered("served", want.used, want.cost)

    return await calls(job.lane, send, tokens=want.tokens, money=want.money)


def plan_of(uses: Sequence[Use]) -> Plan[Use]:
    return Plan.of(Job(i, "a", one) for i, one in enumerate(uses))


def spend(uses: Sequence[Use], budget: Budget, width: int = 4) -> list[Outcome[str]]:
    lanes = Lanes([LaneSpec("a", width)])
    return run_virtual(lambda: collect(plan_of(uses), use, lanes=lanes, budget=budget))


def test_a_call_waits_until_another_releases_its_unused_reservation() -> None:
    """BUDGET: the wait ends with the release."""
    budget = Budget(tokens=10)
    outcomes = spend([Use(8, used=2), Use(8, used=8)], budget)
    assert outcomes == [Done(0, 0.0, 1.0, 0.0, 1, "served"), Done(1, 0.0, 2.0, 1.0, 1, "served")]
    assert (budget.spent.tokens, budget.spent.requests, budget.reserved.tokens) == (10, 2, 0)


def test_a_wait_for_the_budget_is_reported() -> None:
    """The report has its reason and no end."""
    waits: list[Waiting] = []

    async def main() -> None:
        await collect(
            plan_of([Use(8), Use(8)]),
            use,
            lanes=Lanes([LaneSpec("a")]),
            budget=Budget(tokens=10),
            observe=lambda event: waits.append(event) if isinstance(event, Waiting) else None,
        )

    run_virtual(main)
    assert waits == [Waiting(0.0, "a", WaitReason.BUDGET, None, 1)]


def test_an_exhausted_budget_ends_the_run() -> None:
    """An exhausted budget fails the call and ends the run; unstarted jobs are not run."""
    outcomes = spend([Use()] * 5, Budget(requests=2), width=1)
    reason = "budget exhausted: 2 of 2 requests spent"
    assert [type(outcome) for outcome in outcomes] == [Done, Done, Failed, NotRun, NotRun]
    assert isinstance(outcomes[2], Failed)
    assert isinstance(outcomes[2].error, BudgetError)
    assert str(outcomes[2].error) == reason
    assert outcomes[3] == NotRun(3, StopReason.BUDGET, reason)


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize(
    ("budget", "whole"),
    [(Budget(money=0.5), Use(money=0.5)), (Budget(tokens=9), Use(9))],
    ids=["money", "tokens"],
)
def test_a_call_of_the_whole_budget_uses_it_up(budget: Budget, whole: Use, width: int) -> None:
    """BUDGET: a call of the whole budget is served, and the next one ends the run."""
    budget = attrs.evolve(budget)
    outcomes = spend([whole] * 4, budget, width)
    assert [type(outcome) for outcome in outcomes] == [Done, Failed, NotRun, NotRun]
    assert (budget.spent.money, budget.spent.tokens) == (whole.money, whole.tokens)


@pytest.mark.parametrize("width", [1, 4])
def test_calls_that_cost_less_than_a_millionth_use_a_budget_up(width: int) -> None:
    """BUDGET: amounts below a millionth count as a millionth."""
    outcomes = spend([Use(money=6e-7, cost=6e-7)] * 5, Budget(money=2e-6), width)
    assert [type(outcome) for outcome in outcomes] == [Done, Done, Failed, NotRun, NotRun]


def test_running_calls_continue_when_the_budget_is_exhausted() -> None:
    """BUDGET: running calls continue when the budget is exhausted."""
    outcomes = spend([Use(5, seconds=4.0), Use(5), Use(5), Use(5)], Budget(tokens=10), width=2)
    assert [type(outcome) for outcome in outcomes] == [Done, Done, Failed, NotRun]


def test_a_call_larger_than_the_whole_budget_fails_alone() -> None:
    """A call larger than the whole budget fails alone."""
    outcomes = spend([Use(11), Use(4), Use(money=0.5), Use(4)], Budget(tokens=10, money=0.25))
    assert [type(outcome) for outcome in outcomes] == [Failed, Done, Failed, Done]
    assert [str(o.error) for o in outcomes if isinstance(o, Failed)] == [
        "budget too small: the call needs 11, and all of it is 10 tokens",
        "budget too small: the call needs $0.50, and all of it is $0.25",
    ]


def test_runs_that_share_a_budget_wake_each_other() -> None:
    """A release by one run wakes the waiters of another run with the same budget."""
    budget = Budget(tokens=10)

    async def main() -> list[list[Outcome[str]]]:
        found: list[list[Outcome[str]]] = []

        async def run(one: Use) -> None:
            lanes = Lanes([LaneSpec("a")])
            found.append(await collect(plan_of([one]), use, lanes=lanes, budget=budget))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, Use(8, used=1, seconds=3.0))
            await trio.sleep(1)
            nursery.start_soon(run, Use(8, used=1))
        return found

    assert run_virtual(main) == [
        [Done(0, 0.0, 3.0, 0.0, 1, "served")],
        [Done(0, 1.0, 4.0, 2.0, 1, "served")],
    ]


def test_a_call_is_settled_to_its_reported_usage_or_its_reservation() -> None:
    """The reservation counts if the call reports nothing."""
    budget = Budget(tokens=100, money=1.0)
    spend([Use(10, 0.25), Use(10, 0.25, used=4, cost=0.125), Use(1, used=30)], budget)
    assert (budget.spent.tokens, budget.spent.money) == (44, 0.375)


@pytest.mark.parametrize(
    ("error", "spent"),
    [
        (CallError(Fault.TRANSIENT), 8),
        (CallError(Fault.TRANSIENT, tokens=3), 3),
        (CallError(Fault.REFUSED), 0),
        (CallError(Fault.REFUSED, tokens=3), 3),
        (ValueError("not of a provider"), 8),
    ],
)
def test_a_failed_call_counts_as_used_unless_it_was_refused(error: Exception, spent: int) -> None:
    """A refused call uses nothing."""
    budget = Budget(tokens=10)

    async def body(job: Job[Use], calls: Calls[Use]) -> None:
        async def send() -> None:
            raise error

        await calls("a", send, tokens=8)

    lanes = Lanes([LaneSpec("a", max_retries=0)])
    run_virtual(lambda: collect(plan_of([Use()]), body, lanes=lanes, budget=budget))
    assert (budget.spent.tokens, budget.reserved.tokens) == (spent, 0)


def test_a_call_cancelled_in_flight_counts_as_used_and_holds_nothing() -> None:
    """LEAK: a cancelled call counts as used and holds nothing."""
    budget = Budget(tokens=10)
    lanes, plan = Lanes([LaneSpec("a", tpm=600)]), plan_of([Use(8, seconds=5.0)])
    run_virtual(lambda: collect(plan, use, lanes=lanes, budget=budget, deadline=1.0))
    assert (budget.spent.tokens, budget.reserved.tokens) == (8, 0)


@pytest.mark.parametrize(
    ("amounts", "message"),
    [
        ({"tokens": -1}, "Metered.tokens must be at least 0 and finite, got -1"),
        ({"money": -0.5}, "Metered.money must be at least 0 and finite, got -0.5"),
        ({"money": float("nan")}, "Metered.money must be at least 0 and finite, got nan"),
    ],
)
def test_metered_rejects_impossible_amounts(amounts: dict[str, float], message: str) -> None:
    """Metered rejects them in the sender."""
    with pytest.raises(UsageError) as caught:
        Metered(None, **amounts)  # type: ignore[arg-type]
    assert str(caught.value) == message


@pytest.mark.parametrize("want", [Use(-1), Use(money=-0.5), Use(money=float("inf"))])
def test_a_call_with_a_negative_amount_fails_its_job(want: Use) -> None:
    """The message names the amount."""
    (outcome,) = spend([want], Budget())
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, PlanError)
    assert "both at least 0" in str(outcome.error)


@pytest.mark.parametrize(("oversize", "start"), [("alone", 8.0), ("refuse", None)])
def test_a_call_larger_than_a_minutes_tokens_starts_alone_or_is_rejected(
    oversize: str, start: float | None
) -> None:
    """PACE: the setting of the lane decides."""
    starts: list[tuple[int, float]] = []

    async def body(job: Job[int], calls: Calls[int]) -> None:
        async def send() -> None:
            starts.append((job.index, trio.current_time()))

        await calls("a", send, tokens=job.payload)

    lane = LaneSpec("a", tpm=60, oversize=oversize)  # type: ignore[arg-type]
    plan = Plan.of(Job(i, "a", tokens) for i, tokens in enumerate((8, 64, 1)))
    outcomes = run_virtual(lambda: collect(plan, body, lanes=Lanes([lane])))
    if start is not None:
        assert starts == [(0, 0.0), (1, start), (2, 72.0)]
    else:
        assert starts == [(0, 0.0), (2, 8.0)]
        assert isinstance(outcomes[1], Failed)
        assert isinstance(outcomes[1].error, CallError)
        assert outcomes[1].error.fault is Fault.REFUSED
        assert str(outcomes[1].error) == "the call needs 64 tokens; lane 'a' allows 60 per minute"


def test_unused_tokens_let_the_next_call_start_earlier() -> None:
    """PACE: unused tokens let the next call start earlier."""
    lanes = Lanes([LaneSpec("a", tpm=60)])
    plan = plan_of([Use(30, used=4), Use(1)])
    outcomes = run_virtual(lambda: collect(plan, use, lanes=lanes))
    assert [o.finished_at for o in outcomes if isinstance(o, Done)] == [1.0, 5.0]

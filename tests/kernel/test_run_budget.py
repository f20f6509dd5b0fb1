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


def test_a_call_waits_until_another_gives_back_what_it_did_not_use() -> None:
    """BUDGET: a call waits until another one releases its unused reservation."""
    budget = Budget(tokens=10)
    outcomes = spend([Use(8, used=2), Use(8, used=8)], budget)
    assert outcomes == [Done(0, 0.0, 1.0, 0.0, 1, "served"), Done(1, 0.0, 2.0, 1.0, 1, "served")]
    assert (budget.spent.tokens, budget.spent.requests, budget.reserved.tokens) == (10, 2, 0)


def test_a_wait_for_the_budget_is_told() -> None:
    """A wait for the budget is reported with its reason and no end."""
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


def test_a_budget_that_is_used_up_ends_the_run() -> None:
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


def test_calls_under_way_go_on_when_the_budget_is_used_up() -> None:
    """BUDGET: running calls continue when the budget is exhausted."""
    outcomes = spend([Use(5, seconds=4.0), Use(5), Use(5), Use(5)], Budget(tokens=10), width=2)
    assert [type(outcome) for outcome in outcomes] == [Done, Done, Failed, NotRun]


def test_a_call_larger_than_the_whole_budget_fails_alone() -> None:
    """A call larger than the whole budget fails alone."""
    outcomes = spend([Use(11), Use(4), Use(money=0.5), Use(4)], Budget(tokens=10, money=0.25))
    assert [type(outcome) for outcome in outcomes] == [Failed, Done, Failed, Done]
    assert [str(o.error) for o in outcomes if isinstance(o, Failed)] == [
        "budget exhausted: 0 of 10 tokens spent, the call needs 11",
        "budget exhausted: $0.00 of $0.25 spent, the call needs $0.50",
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


def test_what_a_call_cost_is_settled_as_it_says_or_as_it_held() -> None:
    """A call is settled to its reported usage, or else to its reservation."""
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
def test_a_failed_call_is_paid_for_unless_it_was_turned_away(error: Exception, spent: int) -> None:
    """A failed call counts as used unless it was refused."""
    budget = Budget(tokens=10)

    async def body(job: Job[Use], calls: Calls[Use]) -> None:
        async def send() -> None:
            raise error

        await calls("a", send, tokens=8)

    lanes = Lanes([LaneSpec("a", max_retries=0)])
    run_virtual(lambda: collect(plan_of([Use()]), body, lanes=lanes, budget=budget))
    assert (budget.spent.tokens, budget.reserved.tokens) == (spent, 0)


def test_a_call_that_is_cancelled_in_flight_is_paid_for_and_holds_nothing() -> None:
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
def test_metered_refuses_amounts_that_nothing_costs(
    amounts: dict[str, float], message: str
) -> None:
    """Metered refuses impossible amounts in the sender."""
    with pytest.raises(UsageError) as caught:
        Metered(None, **amounts)  # type: ignore[arg-type]
    assert str(caught.value) == message


@pytest.mark.parametrize("want", [Use(-1), Use(money=-0.5), Use(money=float("inf"))])
def test_a_call_asks_for_amounts_of_at_least_nothing(want: Use) -> None:
    """A call with a negative amount fails its job."""
    (outcome,) = spend([want], Budget())
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, PlanError)
    assert "both at least 0" in str(outcome.error)


@pytest.mark.parametrize(("oversize", "start"), [("alone", 8.0), ("refuse", None)])
def test_a_call_of_more_tokens_than_a_minute_has_starts_alone_or_is_refused(
    oversize: str, start: float | None
) -> None:
    """PACE: a call larger than a minute's tokens starts alone or is refused."""
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


def test_tokens_that_were_not_used_let_the_next_call_start_earlier() -> None:
    """PACE: unused tokens let the next call start earlier."""
    lanes = Lanes([LaneSpec("a", tpm=60)])
    plan = plan_of([Use(30, used=4), Use(1)])
    outcomes = run_virtual(lambda: collect(plan, use, lanes=lanes))
    assert [o.finished_at for o in outcomes if isinstance(o, Done)] == [1.0, 5.0]

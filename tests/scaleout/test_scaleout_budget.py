"""Law BUDGET over several workers: leases never exceed the budget, and what is left is found."""

from hypothesis import given
from hypothesis import strategies as st

from trioeval.rates import Amounts, Budget
from trioeval.scaleout.budget_leases import BudgetLeases
from trioeval.suite.model import BudgetSettings


def lease_of(settings: BudgetSettings, used_before: Amounts) -> Budget:
    return Budget(settings.requests, settings.tokens, settings.usd, used_before=used_before)


def run_shard(budget: Budget, rows: list[int]) -> tuple[Amounts, list[int]]:
    """Run rows of one call each with so many tokens; return what they used, and those that did not fit."""
    left = []
    for tokens in rows:
        hold = budget.reserve(tokens=tokens, money=tokens / 1000)
        if hold is None:
            left.append(tokens)
        else:
            budget.settle(hold, tokens=tokens, money=tokens / 1000)
    before, spent = budget.used_before or Amounts(), budget.spent
    used = Amounts(
        spent.requests - before.requests, spent.tokens - before.tokens, spent.money - before.money
    )
    return used, left


bounds = st.none() | st.integers(0, 60)


@given(
    st.builds(
        BudgetSettings,
        requests=bounds,
        tokens=bounds,
        usd=st.none() | st.integers(0, 60).map(lambda number: number / 1000),
    ),
    st.lists(st.integers(0, 12), max_size=30),
    st.integers(1, 4),
    st.data(),
)
def test_leases_stay_within_the_budget_and_every_row_that_fits_runs(
    settings: BudgetSettings, rows: list[int], shards: int, data: st.DataObject
) -> None:
    """Shards end in any order, and some without a report; rows without a result run again.

    A run ends when all rows have run, or one did not fit into all that was left.
    """
    leases = BudgetLeases(settings)
    waiting, live = [*rows], dict[int, tuple[Budget, list[int]]]()
    number = spent = 0
    while (waiting or live) and not leases.is_exhausted:
        used_before = None
        if waiting and len(live) < shards:
            number += 1
            used_before = leases.grant(number, shards)
        if used_before is not None:
            size = data.draw(st.integers(1, 4))
            live[number] = lease_of(settings, used_before), waiting[:size]
            waiting = waiting[size:]
        else:
            assert live, "some shard may always run"
            shard = data.draw(st.sampled_from(sorted(live)))
            budget, own = live.pop(shard)
            used, left = run_shard(budget, own)
            spent += used.tokens
            is_final = leases.is_final(shard)
            if left and is_final:
                leases.exhaust()
            if data.draw(st.integers(0, 9)):
                leases.settle(shard, used)
            leases.end(shard, is_short=bool(left) and not is_final)
            waiting = [*left, *waiting]
        for bound, used_now in (
            (settings.requests, leases.used.requests),
            (settings.tokens, leases.used.tokens),
            (settings.usd, leases.used.money),
        ):
            assert bound is None or used_now <= bound + 1e-9, "law BUDGET"
    assert leases.is_exhausted or not waiting


def test_a_lost_lease_counts_as_used_until_it_is_reported() -> None:
    leases = BudgetLeases(BudgetSettings(requests=8))
    leases.grant(1, 2)
    leases.end(1, is_short=False)
    assert leases.used == Amounts(requests=4)
    leases.settle(1, Amounts(requests=1))
    assert leases.used == Amounts(requests=1)


def test_parts_double_after_a_shard_with_too_little_up_to_all_that_is_left() -> None:
    leases = BudgetLeases(BudgetSettings(tokens=100))
    found = []
    for shard in range(4):
        granted = leases.grant(shard, 8)
        assert granted is not None
        found.append((100 - granted.tokens, leases.is_final(shard)))
        leases.settle(shard, Amounts())
        leases.end(shard, is_short=True)
    assert found == [(12, False), (25, False), (50, False), (100, True)]


def test_a_budget_with_earlier_use_refuses_as_if_that_were_its_own() -> None:
    budget = Budget(requests=5, tokens=10, money=0.3, used_before=Amounts(4, 6, 0.1))
    assert budget.spent == Amounts(4, 6, 0.1)
    assert budget.reserve(tokens=5) is None
    assert budget.reserve(tokens=4, money=0.2) is not None
    refused = budget.shortage()
    assert refused is not None
    assert (refused.limit, refused.used) == (5, 5)

"""Law BUDGET over several workers: leases never exceed the budget, and what is left is found."""

from random import Random

import attrs
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.rates import Amounts, Budget
from trioeval.scaleout.budget_leases import BudgetLeases
from trioeval.testing import run_virtual


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


def check_bounds(budget: Budget | None) -> None:
    """Assert law BUDGET."""
    while budget is not None:
        for bound, spent, held in zip(
            (budget.requests, budget.tokens, budget.money),
            attrs.astuple(budget.spent),
            attrs.astuple(budget.reserved),
            strict=True,
        ):
            assert bound is None or spent + held <= bound + 1e-9, "law BUDGET"
        budget = budget.within


bounds = st.none() | st.integers(0, 60)
lone_budgets = st.builds(
    Budget,
    requests=bounds,
    tokens=bounds,
    money=st.none() | st.integers(0, 60).map(lambda number: number / 1000),
)


@attrs.define
class LeasedRun:
    """A run of rows with one call each, on workers that exist only as leases."""

    leases: BudgetLeases
    waiting: list[int]
    live: dict[int, tuple[Budget, list[int]]] = attrs.field(factory=dict)
    number: int = 0
    spent: int = 0

    @property
    def is_over(self) -> bool:
        return self.leases.is_exhausted or not (self.waiting or self.live)

    def start(self, size: int, at_once: int) -> bool:
        """Start a shard of the next rows; return whether it has a lease."""
        self.number += 1
        own = self.waiting[:size]
        lease = self.leases.grant(self.number, len(own), at_once) if own else None
        if lease is not None:
            self.live[self.number] = lease, own
            self.waiting = self.waiting[size:]
        return lease is not None

    def end(self, shard: int, *, is_lost: bool) -> None:
        """End a shard, whose worker may be lost after its rows have arrived."""
        lease, own = self.live.pop(shard)
        used, left = run_shard(lease, own)
        self.spent += used.tokens
        for _ in left:
            self.leases.refuse(shard)
        if not is_lost:
            self.leases.settle(shard, used)
        self.leases.end(shard)
        self.waiting = [*left, *self.waiting]


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(lone_budgets, st.lists(st.integers(0, 12), max_size=10)), min_size=1, max_size=2
    ),
    lone_budgets,
    st.integers(1, 4),
    st.integers(0, 1 << 32).map(Random),
)
def test_leases_stay_within_the_budget_and_every_row_that_fits_runs(
    drawn: list[tuple[Budget, list[int]]], shared: Budget, shards: int, random: Random
) -> None:
    """Shards end in any order, and some without a report; rows without a result run again.

    A run ends when all rows have run, or one did not fit into all that was left, whatever other runs use.
    """
    runs = [
        LeasedRun(
            BudgetLeases(
                Budget(own.requests, own.tokens, own.money, within=shared), is_shared=True
            ),
            rows,
        )
        for own, rows in drawn
    ]

    async def main() -> None:
        going = [*runs]
        while going:
            run = random.choice(going)
            size = random.randint(1, 4)
            if len(run.live) == shards or not run.start(size, random.randint(4, 20)):
                ending = [(one, shard) for one in going for shard in sorted(one.live)]
                assert ending or run.is_over, "some shard may always run"
                if ending:
                    one, shard = random.choice(ending)
                    one.end(shard, is_lost=random.random() < 0.1)
            for one in [one for one in going if one.is_over]:
                going.remove(one)
                for shard in [*one.live]:
                    one.end(shard, is_lost=False)
                await one.leases.close()
            for one in runs:
                check_bounds(one.leases.budget)
        assert shared.reserved == Amounts()
        used = sum(one.spent for one in runs)
        assert shared.tokens is None or shared.spent.tokens >= used, "lost leases count as used"

    run_virtual(main)


def lease_of(leases: BudgetLeases, shard: int, rows: int = 1, at_once: int = 2) -> Budget:
    lease = leases.grant(shard, rows, at_once)
    assert lease is not None
    return lease


def test_a_lost_lease_counts_as_used_until_it_is_reported() -> None:
    leases = BudgetLeases(Budget(requests=8))
    lease_of(leases, 1)
    leases.end(1)
    assert leases.budget.spent == Amounts(requests=2)
    leases.settle(1, Amounts(requests=1))
    assert (leases.budget.reserved, leases.budget.spent) == (Amounts(), Amounts(requests=1))


def test_parts_double_after_a_shard_with_too_little_up_to_all_that_is_left() -> None:
    leases = BudgetLeases(Budget(tokens=100))
    found = []
    for shard in range(4):
        lease = lease_of(leases, shard, 1, 4)
        found.append((100 - lease.spent.tokens, leases.refuse(shard)))
        leases.settle(shard, Amounts())
        leases.end(shard)
    assert found == [(12, False), (25, False), (50, False), (100, True)]


def test_as_many_rows_have_leases_as_may_run_at_once_also_long_ones() -> None:
    """Leases that were granted when more was left do not keep later rows waiting."""
    leases = BudgetLeases(Budget(money=640.0))
    for shard in range(31):
        lease_of(leases, shard, 1, 32)
    for shard in range(31, 71):  # while the first rows run on
        lease_of(leases, shard, 1, 32)
        leases.settle(shard, Amounts(money=5.0))
        leases.end(shard)


def test_a_row_of_a_shard_that_has_ended_is_not_final() -> None:
    """Its message was late: the row is placed again, and the budget may suffice."""
    leases = BudgetLeases(Budget(requests=1))
    assert not leases.refuse(None)
    lease_of(leases, 1)
    leases.settle(1, Amounts())
    leases.end(1)
    assert not leases.refuse(1)


def test_runs_with_one_budget_use_only_what_the_others_leave_and_wake_each_other() -> None:
    """BUDGET: leases of two runs, and calls of a run on this machine, are all of one budget."""
    budget, woken = Budget(requests=10), []
    first = BudgetLeases(budget, is_shared=True)
    second = BudgetLeases(budget, lambda: woken.append("second"), is_shared=True)
    assert lease_of(first, 1, 2, 2).shortage(requests=6) is not None
    assert budget.reserve(requests=6) is None
    assert budget.shortage(requests=6) is None, "it waits for the end of the shard"
    assert lease_of(second, 1, 2, 2).shortage(requests=6) is not None
    assert second.grant(2, 1, 2) is None
    first.settle(1, Amounts(requests=1))
    assert woken == ["second"]
    hold = budget.reserve(requests=3)
    assert hold is not None
    assert budget.spent == Amounts(requests=4)
    assert not second.refuse(1)
    second.settle(1, Amounts())
    second.end(1)
    all_left = lease_of(second, 3, 2, 2)
    assert (all_left.shortage(requests=6), second.refuse(3)) == (None, True)
    assert budget.reserve() is None


def test_a_run_that_ends_waits_for_reports_and_returns_the_rest_to_the_others() -> None:
    budget = Budget(tokens=800)
    leases = BudgetLeases(budget, is_shared=True)
    for shard in range(3):
        lease_of(leases, shard)
    leases.end(0)  # its worker is lost

    async def main() -> None:
        leases.end(1, is_cancelled=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(leases.close)
            await trio.sleep(1)
            leases.settle(1, Amounts(tokens=7))
            leases.settle(2, Amounts(tokens=3))
        assert trio.current_time() == 1.0

    run_virtual(main)
    assert (budget.spent, budget.reserved) == (Amounts(tokens=210), Amounts())


def test_a_budget_with_earlier_use_refuses_as_if_that_were_its_own() -> None:
    budget = Budget(requests=5, tokens=10, money=0.3, used_before=Amounts(4, 6, 0.1))
    assert budget.spent == Amounts(4, 6, 0.1)
    assert budget.reserve(tokens=5) is None
    assert budget.reserve(tokens=4, money=0.2) is not None
    refused = budget.shortage()
    assert refused is not None
    assert (refused.limit, refused.used) == (5, 5)


def test_a_row_that_an_overspent_budget_refuses_ends_the_run() -> None:
    """A call may use more than it said; then nothing fits, and a run that waits for leases would hang."""
    budget = Budget(tokens=100)
    leases = BudgetLeases(budget)
    assert leases.grant(1, 1, 1) is not None
    assert leases.grant(2, 1, 1) is not None
    leases.settle(1, Amounts(tokens=150))
    assert leases.grant(3, 1, 1) is None, "shard 2 may still report less"
    leases.settle(2, Amounts())
    lease = leases.grant(4, 1, 1)
    assert lease is not None
    assert lease.reserve(tokens=1) is None
    assert leases.refuse(4)


def test_the_lease_of_a_cancelled_shard_counts_as_used_unless_it_is_reported_soon() -> None:
    """Another run with the same budget gets the rest, and a late report returns what was not used."""
    budget = Budget(requests=16)
    leases = BudgetLeases(budget, is_shared=True)

    async def main() -> None:
        for shard in (1, 2):
            assert leases.grant(shard, 1, 2) is not None
            leases.end(shard, is_cancelled=True)
        leases.expire()
        assert (budget.spent.requests, budget.reserved.requests) == (0, 7)
        await trio.sleep(2)
        leases.settle(1, Amounts(requests=1))
        await trio.sleep(3)
        leases.expire()
        assert (budget.spent.requests, budget.reserved.requests) == (4, 0)
        await leases.close()
        assert trio.current_time() == 5.0
        leases.settle(2, Amounts(requests=2))
        assert budget.spent.requests == 3

    run_virtual(main)

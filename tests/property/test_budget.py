"""BUDGET, on the arithmetic alone: held together, never overspent, returned in full."""

from fractions import Fraction

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trioeval.errors import BudgetError, PlanError
from trioeval.rates.budget import Amounts, Budget, Hold

pytestmark = pytest.mark.slow


@attrs.frozen
class Use:
    """A call that requests a start."""

    tokens: int
    cents: int


@attrs.frozen
class Lend:
    """Calls in another process that request so much."""

    requests: int
    tokens: int
    cents: int


@attrs.frozen
class Settle:
    """The open call at `place` (modulo their number) is over and has used so much."""

    place: int
    tokens: int
    cents: int


Step = Use | Settle

counts = st.integers(0, 30)
lone_budgets = st.builds(
    Budget,
    st.none() | st.integers(0, 12),
    st.none() | st.integers(0, 60),
    st.none() | st.integers(0, 60).map(lambda cents: cents / 100),
)
budgets = lone_budgets | st.builds(
    lambda inner, outer: Budget(inner.requests, inner.tokens, inner.money, within=outer),
    lone_budgets,
    lone_budgets,
)
steps = st.lists(
    st.builds(Use, counts, counts) | st.builds(Settle, st.integers(0, 9), counts, counts),
    max_size=30,
)


def used(budget: Budget) -> list[tuple[Fraction, int | float | None]]:
    """Return the spent and held amounts of each dimension, exactly, with their limits."""
    spent, held = budget.spent, budget.reserved
    return [
        (Fraction(spent.requests + held.requests), budget.requests),
        (Fraction(spent.tokens + held.tokens), budget.tokens),
        (Fraction(str(spent.money)) + Fraction(str(held.money)), budget.money),
    ]


@given(
    budgets,
    st.lists(
        st.builds(Use, counts, counts)
        | st.builds(Lend, st.integers(0, 9), counts, counts)
        | st.builds(Settle, st.integers(0, 9), counts, counts),
        max_size=30,
    ),
)
def test_a_budget_is_never_overspent_by_calls_within_their_holds(
    budget: Budget, script: list[Step | Lend]
) -> None:
    """BUDGET: spent and held amounts together are within every limit, at all times."""
    holds: list[tuple[Hold, Use | Lend]] = []
    for step in script:
        match step:
            case Use(tokens, cents):
                fits = budget.fits(tokens=tokens, money=cents / 100)
                hold = budget.reserve(tokens=tokens, money=cents / 100)
                assert fits is (hold is not None)
                if hold is not None:
                    holds.append((hold, step))
            case Lend(requests, tokens, cents):
                hold = budget.lend(Amounts(requests, tokens, cents / 100))
                if hold is not None:
                    holds.append((hold, step))
            case Settle(place, tokens, cents) if holds:
                hold, want = holds.pop(place % len(holds))
                requests = min(tokens, hold.requests)
                tokens, cents = min(tokens, want.tokens), min(cents, want.cents)
                budget.settle(hold, requests=requests, tokens=tokens, money=cents / 100)
            case _:
                pass
        for one in filter(None, (budget, budget.within)):
            assert all(
                limit is None or amount <= Fraction(str(limit)) for amount, limit in used(one)
            )


@attrs.define
class Model:
    """The budget by its definition: a list of all amounts, in requests, tokens, cents."""

    limits: tuple[int | None, int | None, int | None]
    spent: list[tuple[int, int, int]] = attrs.field(factory=list)
    held: list[tuple[int, int, int]] = attrs.field(factory=list)

    def fits(self, amounts: tuple[int, int, int], *, despite_held: bool) -> bool:
        """Return whether an amount can be added, with held amounts counted or not."""
        taken = [*self.spent, *(() if despite_held else self.held), amounts]
        return all(
            limit is None or sum(column) <= limit
            for limit, column in zip(self.limits, zip(*taken, strict=True), strict=True)
        )

    def total(self, amounts: list[tuple[int, int, int]]) -> Amounts:
        """Return the totals as the budget reports them."""
        requests, tokens, cents = (sum(column) for column in zip((0, 0, 0), *amounts, strict=True))
        return Amounts(requests, tokens, cents / 100)


@given(st.tuples(*[st.none() | st.integers(0, 60)] * 3), steps)
@example((None, 10, None), [Use(10, 0), Settle(0, 12, 0), Use(0, 0)])
def test_a_budget_is_the_sum_of_held_and_used_amounts(
    limits: tuple[int | None, int | None, int | None], script: list[Step]
) -> None:
    """Holds are all or nothing, exact, and an excess is spent and stops everything after it."""
    requests, tokens, cents = limits
    budget = Budget(requests, tokens, None if cents is None else cents / 100)
    model = Model(limits)
    holds: list[Hold] = []
    for step in script:
        match step:
            case Use(tokens, cents):
                money = cents / 100
                could = model.fits((1, tokens, cents), despite_held=True)
                assert (budget.shortage(tokens=tokens, money=money) is None) == could
                assert (budget.shortage(tokens=tokens, money=money) is None) == could
                hold = budget.reserve(tokens=tokens, money=money)
                assert (hold is not None) == model.fits((1, tokens, cents), despite_held=False)
                if hold is not None:
                    holds.append(hold)
                    model.spent.append((1, 0, 0))
                    model.held.append((0, tokens, cents))
            case Settle(place, tokens, cents) if holds:
                model.held.pop(place % len(holds))
                model.spent.append((0, tokens, cents))
                budget.settle(holds.pop(place % len(holds)), tokens=tokens, money=cents / 100)
            case _:
                pass
        assert budget.spent == model.total(model.spent)
        assert budget.reserved == model.total(model.held)


@given(budgets, st.lists(st.tuples(counts, counts, counts, counts), max_size=20))
def test_a_budget_is_overspent_by_no_more_than_the_excess(
    budget: Budget, calls: list[tuple[int, int, int, int]]
) -> None:
    """BUDGET: the budget is overspent only by what calls use beyond their holds."""
    excess = [Fraction(0), Fraction(0), Fraction(0)]
    for tokens, cents, tokens_used, cents_used in calls:
        hold = budget.reserve(tokens=tokens, money=cents / 100)
        if hold is not None:
            budget.settle(hold, tokens=tokens_used, money=cents_used / 100)
            excess[1] += max(0, tokens_used - tokens)
            excess[2] += max(Fraction(0), Fraction(cents_used - cents, 100))
        for (amount, limit), more in zip(used(budget), excess, strict=True):
            assert limit is None or amount <= Fraction(str(limit)) + more


@given(st.floats(0, 1e9), st.lists(st.floats(0, 10), min_size=1, max_size=20))
def test_money_held_and_spent_is_never_less_than_requested(
    cap: float, amounts: list[float]
) -> None:
    """Rounding favours the limit, by less than a millionth for each amount."""
    budget = Budget(money=cap)
    taken = [money for money in amounts if budget.reserve(money=money) is not None]
    exact = sum((Fraction(repr(money)) for money in taken), Fraction(0))
    held = Fraction(str(budget.reserved.money))
    assert exact <= held <= exact + Fraction(len(taken), 10**6)
    assert held <= Fraction(repr(cap))


small = st.floats(0, 4e-6)


@given(
    st.integers(0, 8).map(lambda micros: micros / 10**6),
    st.lists(st.tuples(small, small), max_size=20),
)
@example(2e-6, [(9e-7, 9e-7)] * 3)
@example(0.0, [(9e-7, 9e-7)])
def test_costs_below_a_millionth_are_never_overspent(
    cap: float, calls: list[tuple[float, float]]
) -> None:
    """BUDGET: sequences of calls with costs below a millionth never overspend."""
    budget, spent = Budget(money=cap), Fraction(0)
    for money, used in calls:
        fits, could_fit = budget.fits(money=money), budget.shortage(money=money) is None
        hold = budget.reserve(money=money)
        assert (hold is not None) is fits is could_fit
        if hold is not None:
            assert Fraction(repr(money)) <= Fraction(str(budget.reserved.money))
            budget.settle(hold, tokens=0, money=min(money, used))
            spent += Fraction(repr(min(money, used)))
        assert spent <= Fraction(repr(cap))


@given(st.integers(1, 10**7), st.none() | st.integers(0, 10**7))
def test_after_a_call_of_the_whole_budget_only_its_unused_rest_fits(
    micros: int, used: int | None
) -> None:
    """BUDGET: while a call holds the whole budget nothing fits, and then exactly the rest."""
    whole = micros / 10**6
    budget = Budget(money=whole)
    hold = budget.reserve(money=whole)
    assert hold is not None
    assert not budget.fits(money=1e-9)
    rest = 0 if used is None else max(0, micros - used)
    budget.settle(hold, tokens=0, money=(micros - rest) / 10**6)
    assert budget.fits(money=rest / 10**6)
    assert budget.shortage(money=(rest + 1) / 10**6)


def test_decimal_fractions_add_up_exactly() -> None:
    """0.1 + 0.2 fits into 0.3, and a thousand thousandths into one."""
    budget = Budget(money=0.3)
    assert budget.reserve(money=0.1) is not None
    assert budget.reserve(money=0.2) is not None
    assert not budget.reserve(money=1e-6)
    budget = Budget(money=1.0)
    assert all(budget.reserve(money=0.001) for _ in range(1000))
    assert budget.reserve(money=0.001) is None


def test_the_smallest_amounts_count() -> None:
    """An amount below a millionth counts as a millionth."""
    budget = Budget(money=3e-6)
    assert [budget.reserve(money=1e-12) is not None for _ in range(4)] == [True, True, True, False]


def test_a_refused_reservation_holds_nothing() -> None:
    """A reservation that lacks money takes no request and no tokens."""
    budget = Budget(requests=5, tokens=100, money=1.0)
    assert budget.reserve(tokens=10, money=2.0) is None
    assert budget.spent == budget.reserved == Amounts()


def test_requests_are_spent_at_once_and_never_returned() -> None:
    """A shortage of requests is final."""
    budget = Budget(requests=1)
    hold = budget.reserve()
    assert hold is not None
    assert budget.shortage()
    budget.settle(hold, tokens=0, money=0.0)
    assert budget.spent == Amounts(requests=1)
    assert budget.reserve() is None


@pytest.mark.parametrize(
    ("budget", "tokens", "money", "text"),
    [
        (
            Budget(requests=0),
            0,
            0.0,
            "budget too small: the call needs 1, and all of it is 0 requests",
        ),
        (
            Budget(tokens=5, used_before=Amounts(tokens=1)),
            5,
            0.0,
            "budget exhausted: 1 of 5 tokens spent, the call needs 5",
        ),
        (
            Budget(requests=2, used_before=Amounts(requests=2)),
            0,
            0.0,
            "budget exhausted: 2 of 2 requests spent",
        ),
        (
            Budget(money=0.5),
            0,
            0.75,
            "budget too small: the call needs $0.75, and all of it is $0.50",
        ),
    ],
)
def test_a_shortage_has_its_dimension_and_amounts(
    budget: Budget, tokens: int, money: float, text: str
) -> None:
    """The amounts are the limit, the spent and the requested one."""
    shortage = budget.shortage(tokens=tokens, money=money)
    assert isinstance(shortage, BudgetError)
    assert str(shortage) == text


def test_a_hold_is_settled_once() -> None:
    """A second settlement, or one of another budget's hold, raises an internal error."""
    budget = Budget(tokens=10)
    hold = budget.reserve(tokens=4)
    assert hold is not None
    with pytest.raises(RuntimeError, match=r"^a hold on a budget was settled twice; "):
        Budget().settle(hold, tokens=4, money=0.0)
    budget.settle(hold, tokens=4, money=0.0)
    with pytest.raises(RuntimeError, match=r"^a hold on a budget was settled twice; "):
        budget.settle(hold, tokens=4, money=0.0)
    assert budget.spent == Amounts(requests=1, tokens=4)


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"requests": -1}, "budget: requests must be a whole number of at least 0, got -1"),
        ({"tokens": 1.5}, "budget: tokens must be a whole number of at least 0, got 1.5"),
        ({"requests": True}, "budget: requests must be a whole number of at least 0, got True"),
        ({"money": -0.5}, "budget: money must be at least 0 and finite, got -0.5"),
        ({"money": float("inf")}, "budget: money must be at least 0 and finite, got inf"),
        ({"money": float("nan")}, "budget: money must be at least 0 and finite, got nan"),
    ],
)
def test_a_limit_out_of_range_is_rejected(limits: dict[str, float], text: str) -> None:
    """The message names the field, the range and the value."""
    with pytest.raises(PlanError) as caught:
        Budget(**limits)  # type: ignore[arg-type]
    assert str(caught.value) == text


@attrs.define(eq=False)
class Listener:
    """A follower that counts its notifications."""

    notified: int = 0

    def notify(self) -> None:
        self.notified += 1


def test_a_follower_is_notified_once_of_the_next_settlement() -> None:
    """A later settlement needs a new registration."""
    budget, listener = Budget(tokens=10), Listener()
    holds = [budget.reserve(tokens=5) for _ in range(2)]
    budget.follow(listener)
    budget.follow(listener)
    assert listener.notified == 0
    for hold in holds:
        assert hold is not None
        budget.settle(hold, tokens=1, money=0.0)
    assert listener.notified == 1


@given(lone_budgets, st.lists(st.tuples(st.integers(0, 2), steps.map(tuple)), max_size=6))
def test_a_budget_around_others_counts_all_of_their_calls(
    outer: Budget, scripts: list[tuple[int, tuple[Step, ...]]]
) -> None:
    """It holds and spends the sum of its runs; after the last settlement nothing is held."""
    inner = [Budget(within=outer) for _ in range(3)]
    holds: list[tuple[Budget, Hold]] = []
    for number, script in scripts:
        budget = inner[number]
        for step in script:
            match step:
                case Use(tokens, cents):
                    hold = budget.reserve(tokens=tokens, money=cents / 100)
                    holds += [] if hold is None else [(budget, hold)]
                case Settle(place, _, _) if holds:
                    owner, hold = holds.pop(place % len(holds))
                    owner.settle(hold, tokens=0, money=0.0)
                case _:
                    pass
            assert sum(one.spent.requests for one in inner) == outer.spent.requests
            assert sum(one.reserved.tokens for one in inner) == outer.reserved.tokens
    for owner, hold in holds:
        owner.settle(hold, tokens=0, money=0.0)
    assert outer.reserved == Amounts()


def test_a_follower_is_notified_of_a_settlement_around_its_budget() -> None:
    """A call that waits for its own budget or the one around it is woken by either, also after the other."""
    outer = Budget(tokens=10)
    budget, other, listener = Budget(tokens=8, within=outer), Budget(within=outer), Listener()
    first, second = budget.reserve(tokens=5), other.reserve(tokens=5)
    assert first is not None
    assert second is not None
    budget.follow(listener)
    other.settle(second, tokens=5, money=0.0)
    assert listener.notified == 1
    budget.follow(listener)
    budget.settle(first, tokens=0, money=0.0)
    assert listener.notified >= 2

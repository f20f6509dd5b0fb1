"""Budgets of requests, tokens and money.

The problem: many calls run at once, and the cost of a call is known only when it is over. Counting afterwards
overshoots by the cost of all calls in flight. The rule: a call first *holds* the most that it may use, in all
three dimensions or in none, and is settled to what it has used. A request cannot be undone, so requests are
spent at once and never returned.

Money is counted in whole millionths, each amount rounded up and the limit rounded down, so that sums are
exact and never err in favour of spending. Not in floats: 0.1 + 0.2 would not fit into 0.3. An amount means
the decimal number that Python prints for it.

Law: BUDGET.
"""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Protocol

import attrs

from trioeval.errors import BudgetError, PlanError

# The share of a bound that is really used, learned from usage.
#
# The tokens of a call are bounded beforehand (a text has at most as many tokens as bytes, a reply at most its
# maximum length), but a lane that reserves bounds starts a quarter of the calls that its tokens per minute
# would allow. So each lane learns the largest recent share. It rises at once, because too small a reservation
# leads to a "too many tokens" refusal; it falls slowly, because one short reply is weak evidence.


_FALL = 0.1
"""The part of the distance by which the share falls towards a smaller one, for each call."""
_MARGIN = 1.1
"""The factor by which more is reserved than the largest recent share."""


@attrs.define(eq=False, repr=False)
class LearntShare:
    """The largest recent share of a quantity in its bound.

    Example:
        >>> share = LearntShare()
        >>> share.expected(400)
        400
        >>> for _ in range(100):
        ...     share.learn(400, 100)
        >>> share.expected(400)
        111
    """

    share: float = 1.0
    """The share, from 0 to 1."""

    def expected(self, bound: int) -> int:
        """Return the expected most that will be used, from 0 to `bound`."""
        return min(bound, math.ceil(bound * self.share * _MARGIN))

    def learn(self, bound: int, used: int) -> None:
        """Record how much of a bound was used; more than the bound counts as all of it."""
        if bound <= 0 or used < 0:
            return
        seen = min(1.0, used / bound)
        self.share = seen if seen >= self.share else self.share - (self.share - seen) * _FALL


_MILLION = 1_000_000


@attrs.frozen
class Amounts:
    """An amount in each dimension."""

    requests: int = 0
    tokens: int = 0
    money: float = 0.0
    """Money, in whole millionths."""


@attrs.define(eq=False, repr=False)
class Hold:
    """The most that calls in progress may use. Obtained only from `Budget.reserve` and `Budget.lend`."""

    tokens: int
    micros: int
    """Money, in millionths."""
    requests: int = 0
    """The requests that may still be made; that of a single call is spent at once."""
    outer: "Hold | None" = None
    """The hold of the same call on the budget around this one."""


class Follower(Protocol):
    """An object that waits for a release."""

    def notify(self) -> None:
        """Check again. Synchronous; may be called without a change."""


@attrs.define(eq=False, repr=False)
class Budget:
    """The amounts that may be used, are used, and are held for calls in progress.

    Raises:
        PlanError: A limit is out of range.

    Example:
        >>> budget = Budget(requests=3, money=0.30)
        >>> hold = budget.reserve(money=0.25)
        >>> budget.reserve(money=0.10) is None, budget.shortage(money=0.10) is None
        (True, True)
        >>> budget.settle(hold, tokens=0, money=0.20)
        >>> budget.reserve(money=0.10) is None, budget.spent
        (False, Amounts(requests=2, tokens=0, money=0.2))
    """

    requests: int | None = attrs.field(default=None, on_setattr=attrs.setters.frozen)
    """The most requests, ≥ 0; None sets no bound."""
    tokens: int | None = attrs.field(default=None, on_setattr=attrs.setters.frozen)
    """The most tokens, ≥ 0; None sets no bound."""
    money: float | None = attrs.field(default=None, on_setattr=attrs.setters.frozen)
    """The most money, ≥ 0 and finite, in the currency of the calls; None sets no bound."""
    within: "Budget | None" = attrs.field(
        default=None, kw_only=True, on_setattr=attrs.setters.frozen
    )
    """A budget around this one, such as that of several runs, which every call must fit as well."""
    used_before: Amounts | None = attrs.field(
        default=None, kw_only=True, on_setattr=attrs.setters.frozen
    )
    """Amounts that others have used or may use, which are part of `spent`; None is nothing."""
    _micros: int | None = attrs.field(init=False)
    """The most money, in millionths."""
    _requests_spent: int = attrs.field(init=False)
    _tokens_spent: int = attrs.field(init=False)
    _micros_spent: int = attrs.field(init=False)
    _requests_held: int = attrs.field(init=False, default=0)
    _tokens_held: int = attrs.field(init=False, default=0)
    _micros_held: int = attrs.field(init=False, default=0)
    _open: set[Hold] = attrs.field(init=False, factory=set)
    _followers: list[Follower] = attrs.field(init=False, factory=list)

    @_requests_spent.default
    def _requests_before(self) -> int:
        return 0 if self.used_before is None else self.used_before.requests

    @_tokens_spent.default
    def _tokens_before(self) -> int:
        return 0 if self.used_before is None else self.used_before.tokens

    @_micros_spent.default
    def _micros_before(self) -> int:
        return 0 if self.used_before is None else _rounded_up(self.used_before.money)

    @_micros.default
    def _round_down(self) -> int | None:
        # Runs before the validators: a limit out of range has no millionths.
        if self.money is None or not 0 <= self.money < math.inf:
            return None
        return int(_micros(self.money).to_integral_value(ROUND_FLOOR))

    @requests.validator
    @tokens.validator
    def _check_whole(self, field: "attrs.Attribute[int | None]", value: int | None) -> None:
        if value is not None and (type(value) is not int or value < 0):
            msg = f"budget: {field.name} must be a whole number of at least 0, got {value!r}"
            raise PlanError(msg)

    @money.validator
    def _check_money(self, _field: "attrs.Attribute[float | None]", value: float | None) -> None:
        if value is not None and not 0 <= value < math.inf:
            msg = f"budget: money must be at least 0 and finite, got {value!r}"
            raise PlanError(msg)

    @property
    def spent(self) -> Amounts:
        """Amounts used for good: every request reserved for a call, and the usage of settled calls."""
        return Amounts(self._requests_spent, self._tokens_spent, self._micros_spent / _MILLION)

    @property
    def reserved(self) -> Amounts:
        """Amounts held for calls in progress, whose requests are not held but spent, and amounts lent."""
        return Amounts(self._requests_held, self._tokens_held, self._micros_held / _MILLION)

    def reserve(self, *, requests: int = 1, tokens: int = 0, money: float = 0.0) -> Hold | None:
        """Hold the most that a call may use, all amounts ≥ 0 and finite.

        Returns:
            The hold to settle when the call is over; None, with nothing held, if the amounts do not fit now.
                They may fit later: see `shortage`.
        """
        hold = Hold(tokens, _rounded_up(money))
        if not self._holds(hold, requests):
            return None
        if self.within is not None:
            hold.outer = self.within.reserve(requests=requests, tokens=tokens, money=money)
            if hold.outer is None:
                return None
        self._requests_spent += requests
        self._open_hold(hold)
        return hold

    def lend(self, most: Amounts) -> Hold | None:
        """Hold amounts for calls that are counted elsewhere; unlike `reserve`, also their requests.

        Returns:
            The hold to settle with all that the calls have used; None, with nothing held, if the amounts do
                not fit now.

        Example:
            >>> budget = Budget(requests=9)
            >>> hold = budget.lend(Amounts(requests=5))
            >>> budget.reserve(requests=5) is None, budget.shortage(requests=5) is None
            (True, True)
            >>> budget.settle(hold, requests=1, tokens=0, money=0.0)
            >>> budget.spent.requests, budget.reserved.requests
            (1, 0)
        """
        hold = Hold(most.tokens, _rounded_up(most.money), most.requests)
        # Nothing fits into every budget, also one of which too much is used.
        if most != Amounts() and not self._holds(hold, hold.requests):
            return None
        if self.within is not None:
            hold.outer = self.within.lend(most)
            if hold.outer is None:
                return None
        self._open_hold(hold)
        return hold

    def fits(self, *, requests: int = 1, tokens: int = 0, money: float = 0.0) -> bool:
        """Return whether `reserve` would hold such a call now; takes nothing."""
        return self._holds(Hold(tokens, _rounded_up(money)), requests) and (
            self.within is None or self.within.fits(requests=requests, tokens=tokens, money=money)
        )

    def settle(self, hold: Hold, *, requests: int = 0, tokens: int, money: float) -> None:
        """Settle calls that are over and have used so much, ≥ 0 and finite; the rest of the hold is released.

        If they have used more, the excess is spent all the same, and no call fits until enough is released.

        Args:
            hold: The hold of a call, or of what was lent.
            requests: The requests of lent amounts; that of a call is spent already.
            tokens: The tokens.
            money: The money.

        Raises:
            RuntimeError: It is already settled, or does not belong to this budget.
        """
        if hold not in self._open:
            raise RuntimeError("a hold on a budget was settled twice; please report this")
        self._open.remove(hold)
        self._requests_held -= hold.requests
        self._tokens_held -= hold.tokens
        self._micros_held -= hold.micros
        self._requests_spent += requests
        self._tokens_spent += tokens
        self._micros_spent += _rounded_up(money)
        if self.within is not None and hold.outer is not None:
            self.within.settle(hold.outer, requests=requests, tokens=tokens, money=money)
        self._notify()

    def give_back(self, unused: Amounts) -> None:
        """Give back amounts that were settled as used and were not; negative ones if more was used."""
        self._requests_spent -= unused.requests
        self._tokens_spent -= unused.tokens
        self._micros_spent -= _rounded_up(unused.money)
        if self.within is not None:
            self.within.give_back(unused)
        self._notify()

    def follow(self, follower: Follower) -> None:
        """Notify `follower` once, when the next hold is settled."""
        if follower not in self._followers:
            self._followers.append(follower)
        if self.within is not None:
            self.within.follow(follower)

    def shortage(
        self, *, requests: int = 1, tokens: int = 0, money: float = 0.0
    ) -> BudgetError | None:
        """Return the error if such a call can never fit, whatever is released; None if it can."""
        found = self._shortage(requests, tokens, _rounded_up(money))
        if found is None and self.within is not None:
            return self.within.shortage(requests=requests, tokens=tokens, money=money)
        return found

    def _notify(self) -> None:
        followers, self._followers = self._followers, []
        for follower in followers:
            follower.notify()

    def _holds(self, hold: Hold, requests: int) -> bool:
        """Return whether a hold and so many requests fit beside all other holds."""
        return (
            self._shortage(
                self._requests_held + requests,
                self._tokens_held + hold.tokens,
                self._micros_held + hold.micros,
            )
            is None
        )

    def _open_hold(self, hold: Hold) -> None:
        self._requests_held += hold.requests
        self._tokens_held += hold.tokens
        self._micros_held += hold.micros
        self._open.add(hold)

    def _shortage(self, requests: int, tokens: int, micros: int) -> BudgetError | None:
        for dimension, limit, used, needed, unit in (
            ("requests", self.requests, self._requests_spent, requests, 1),
            ("tokens", self.tokens, self._tokens_spent, tokens, 1),
            ("money", self._micros, self._micros_spent, micros, _MILLION),
        ):
            if limit is not None and used + needed > limit:
                return BudgetError(
                    dimension, limit=limit / unit, used=used / unit, wanted=needed / unit
                )
        return None


def _rounded_up(money: float) -> int:
    return int(_micros(money).to_integral_value(ROUND_CEILING)) if money else 0


def _micros(money: float) -> Decimal:
    return Decimal(repr(float(money))) * _MILLION

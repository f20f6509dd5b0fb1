"""The pace of a lane: the instant at which the next request may start.

The problem: at most `burst + T/period` starts in every window of length T, and never two starts closer than
`min_gap`. The rule is the generic cell rate algorithm (GCRA, ITU-T I.371): one instant, `next_request_at`,
moves forward by one period with every start, and a start is allowed when that instant is no more than `burst
- 1` periods ahead. It needs one float where a log of past starts would need many, and it is exact.

Not a token bucket as large as the minute: that admits almost twice the declared rate in a rolling minute. Not
a reservation of future starts either: a waiter that is cancelled would leave a hole. Look with `earliest`,
sleep outside, then `take`.

Law: PACE.
"""

import math
from typing import Self

import attrs

# The pace of tokens.
#
# The problem: at most `burst + T/period` tokens in every window of length T, where the tokens of a call are
# known only when it is over. The rule is that of `pace` (GCRA), with tokens in place of requests: one
# instant, `next_token_at`, moves forward by one period for every token reserved, and a call may start when
# that instant is no more than `burst` periods ahead. A call larger than a minute's tokens is therefore not
# refused: it starts when everything before it is paid off, and is paid off after it.
#
# Tokens that were reserved in excess are given back. Moving `next_token_at` back by the difference is wrong:
# time in which nothing was used counts for nothing, and would be credited. With calls at t₁ … tₙ of c₁ … cₙ
# tokens,
#
#     next_token_at = max over k of (tₖ + period · (cₖ + … + cₙ))
#
# and a changed cᵢ moves only the terms with k ≤ i. So each call whose tokens are not known yet stores the
# largest of the terms between the previous open call and itself; the terms after the last one are stored
# here. A settlement moves the maxima up to its own, and the state is as if the actual amount had been
# reserved from the start, whether less or more. Not a log of all calls: only open ones are stored.
#
# Law: PACE.


@attrs.define(eq=False, repr=False)
class Reservation:
    """Tokens taken by a call in progress. Obtained only from `TokenPace.reserve`."""

    tokens: int
    """Number of tokens, ≥ 0."""
    paid_at: float
    """The largest of its own terms; see the module."""
    period: float
    """Seconds per token when it was taken."""


@attrs.define(eq=False, repr=False)
class TokenPace:
    """The state of one lane's use of tokens.

    Args:
        period: Seconds per token in the long run, > 0.
        burst: Tokens that may be owed when a call starts, ≥ 0.
        largest: Tokens of one call that are not disproportionate: those of a minute.

    Example:
        >>> pace = TokenPace.per_minute(60)
        >>> reservation = pace.reserve(0.0, 10)
        >>> pace.earliest(0.0)
        10.0
        >>> pace.settle(reservation, 4)
        >>> pace.earliest(0.0)
        4.0
    """

    period: float
    burst: int
    largest: float
    next_token_at: float = attrs.field(init=False, default=-math.inf)
    """The instant at which everything is paid off; -inf if nothing was ever used."""
    _open: list[Reservation] = attrs.field(init=False, factory=list)
    """Open reservations, oldest first."""
    _rest_paid_at: float = attrs.field(init=False, default=-math.inf)
    """The largest of the terms after the last open reservation."""

    @classmethod
    def per_minute(cls, tpm: float, *, burst: int = 0) -> Self:
        """Return a pace of `tpm` tokens per minute, > 0 and finite."""
        return cls(60.0 / tpm, burst, tpm)

    def earliest(self, now: float) -> float:
        """Return the first instant at or after `now` at which a call may start.

        A call waits for what was used before it, never for its own tokens; so does a call of 0 tokens.
        """
        return max(now, self.next_token_at - self.burst * self.period)

    @property
    def tpm(self) -> float:
        """Tokens per minute."""
        return 60.0 / self.period

    def retune(self, now: float, tpm: float) -> None:
        """Change the rate, > 0 and finite, from `now` on. The debt stays the same in tokens, not in seconds.

        O(open reservations).
        """
        period = 60.0 / tpm
        ratio = period / self.period
        # Every term is so many tokens before or after now. Scaled around it, all stay in their order, and
        # a settlement at the new period moves them as if the call had been taken at it.
        for reservation in self._open:
            reservation.paid_at = now + (reservation.paid_at - now) * ratio
            reservation.period = period
        self._rest_paid_at = now + (self._rest_paid_at - now) * ratio
        self.next_token_at = now + (self.next_token_at - now) * ratio
        self.period, self.largest = period, tpm

    def fits(self, tokens: int) -> bool:
        """Return whether a minute's tokens suffice for a call of so many."""
        return tokens <= self.largest

    def reserve(self, now: float, tokens: int) -> Reservation:
        """Take tokens, ≥ 0, for a call that starts at `now`, not before the last start.

        O(open reservations).
        """
        cost = self.period * tokens
        for earlier in self._open:
            earlier.paid_at += cost
        reservation = Reservation(tokens, max(self._rest_paid_at, now) + cost, self.period)
        self._rest_paid_at = -math.inf
        self._open.append(reservation)
        self.next_token_at = max(self.next_token_at, now) + cost
        return reservation

    def settle(self, reservation: Reservation, actual: int) -> None:
        """Settle a call that has used so many tokens, ≥ 0; with 0, all are given back.

        O(open reservations).

        Raises:
            RuntimeError: It is already settled, or does not belong to this pace.
        """
        if reservation not in self._open:
            raise RuntimeError("a reservation of tokens was settled twice; please report this")
        place = self._open.index(reservation)
        refund = reservation.period * (reservation.tokens - actual)
        for moved in self._open[: place + 1]:
            moved.paid_at -= refund
        del self._open[place]
        if place < len(self._open):
            heir = self._open[place]
            heir.paid_at = max(heir.paid_at, reservation.paid_at)
        else:
            self._rest_paid_at = max(self._rest_paid_at, reservation.paid_at)
        self.next_token_at = max((one.paid_at for one in self._open), default=-math.inf)
        self.next_token_at = max(self.next_token_at, self._rest_paid_at)


@attrs.frozen
class Pace:
    """The state of one lane's pace; `take` returns the next state.

    Example:
        >>> pace = Pace.per_minute(60, burst=2)
        >>> pace = pace.take(0.0).take(0.0)  # two may start together
        >>> pace.earliest(0.0)
        1.0
    """

    period: float = 0.0
    """Seconds per request in the long run, ≥ 0; 0 sets no rate."""
    burst: int = 1
    """Requests that may start together after a pause, ≥ 1."""
    min_gap: float = 0.0
    """Least seconds between two starts, ≥ 0."""
    next_request_at: float = -math.inf
    """The instant at which the rate is used up exactly (GCRA's theoretical arrival time)."""
    next_gap_at: float = -math.inf
    """The instant at which the least gap after the last start is over."""
    unlimited: bool = attrs.field(init=False)
    """True if every instant is allowed, regardless of earlier starts."""

    @unlimited.default
    def _is_unlimited(self) -> bool:
        return self.period == 0.0 and self.min_gap == 0.0

    @classmethod
    def per_minute(cls, rpm: float | None, *, burst: int = 1, min_gap: float = 0.0) -> Self:
        """Return a pace of `rpm` requests per minute (> 0); None sets no rate."""
        return cls(0.0 if rpm is None else 60.0 / rpm, burst, min_gap)

    @property
    def rpm(self) -> float | None:
        """Requests per minute; None without a rate."""
        return 60.0 / self.period if self.period else None

    def at(self, now: float, rpm: float) -> Self:
        """Return the pace at another rate, > 0, from `now` on. The debt stays the same in requests."""
        owed = max(0.0, self.next_request_at - now) / self.period if self.period else 0.0
        period = 60.0 / rpm
        return attrs.evolve(self, period=period, next_request_at=now + owed * period)

    def earliest(self, now: float) -> float:
        """Return the first instant at or after `now` at which a request may start."""
        return max(now, self.rate_allows_at, self.next_gap_at)

    @property
    def rate_allows_at(self) -> float:
        """The first instant at which the rate, without the gap, allows a start."""
        return self.next_request_at - (self.burst - 1) * self.period

    def take(self, now: float) -> Self:
        """Return the pace after a start at `now`, which must not be before `earliest(now)`."""
        return type(self)(
            self.period,
            self.burst,
            self.min_gap,
            max(self.next_request_at, now) + self.period,
            now + self.min_gap,
        )

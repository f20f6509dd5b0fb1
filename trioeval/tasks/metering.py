"""What calls reserve before they are made: tokens and money, from bounds and from what was seen.

Where a run has a budget, bounds are reserved, so that it holds whatever providers answer. Otherwise only
the pace of a lane follows from a reservation, and each lane learns which share of the bounds its calls
really use.
"""

from collections import defaultdict
from collections.abc import Sequence

import attrs

from trioeval.providers import Metering, Usage
from trioeval.rates import LearntShare


@attrs.frozen
class Estimate:
    """What one call may use."""

    tokens: int
    money: float
    """US dollars."""
    prompt_bound: int
    reply_bound: int


@attrs.define
class _Shares:
    """What a lane has learnt."""

    prompt: LearntShare = attrs.field(factory=LearntShare)
    reply: LearntShare = attrs.field(factory=LearntShare)


@attrs.define(eq=False)
class Meter:
    """Estimates the calls of a run, and learns from their replies.

    Args:
        metering: What is known of each provider.
        lanes: The lane of each provider, in the same order.
        bounds_only: Whether a budget has to hold.
    """

    metering: Sequence[Metering]
    lanes: Sequence[str]
    bounds_only: bool
    _shares: defaultdict[str, _Shares] = attrs.field(
        init=False, factory=lambda: defaultdict(_Shares)
    )

    def estimate(self, provider: int, prompt: str) -> Estimate:
        """What a call to the provider with this position may use."""
        known = self.metering[provider]
        prompt_bound, reply_bound = known.overhead + known.count(prompt), known.longest_reply
        money = 0.0 if known.price is None else known.price.most(prompt_bound, reply_bound)
        if self.bounds_only:
            return Estimate(prompt_bound + reply_bound, money, prompt_bound, reply_bound)
        shares = self._shares[self.lanes[provider]]
        tokens = shares.prompt.expected(prompt_bound) + shares.reply.expected(reply_bound)
        return Estimate(tokens, money, prompt_bound, reply_bound)

    def learn(self, provider: int, estimate: Estimate, usage: Usage) -> None:
        """So much was used by the call of which this was estimated."""
        shares = self._shares[self.lanes[provider]]
        if usage.prompt is not None:
            shares.prompt.learn(estimate.prompt_bound, usage.prompt)
        if usage.completion is not None:
            shares.reply.learn(estimate.reply_bound, usage.completion)


def tokens_used(usage: Usage) -> int | None:
    """All tokens of a call; None if its provider tells neither their number nor its parts.

    Example:
        >>> tokens_used(Usage(prompt=2, completion=1)), tokens_used(Usage(prompt=2))
        (3, None)
    """
    if usage.total is not None or usage.prompt is None or usage.completion is None:
        return usage.total
    return usage.prompt + usage.completion

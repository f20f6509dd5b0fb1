"""Reservations of calls: tokens and money, from bounds and from experience.

If a run has a budget, or a lane counts against a shared limit of tokens or money, the bounds are reserved, so
that these hold whatever providers reply. Otherwise a reservation only affects the pace of a lane, and each
lane learns which share of the bounds its calls really use. Where neither a rate of tokens nor a limit of a
question is declared, a prompt is not counted with the model's vocabulary: reading that takes longer than many
calls, and the learned share makes up for the difference.

A bound may be too low: an own provider may cost more than its `maxCost`, and a service may count more tokens
than it was asked for. Calls after the first such reply reserve the excess as well, so that only those that
were already in flight can exceed a budget.

Law: BUDGET.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs

from trioeval.errors import LimitError, Problem
from trioeval.grading import quote
from trioeval.kernel import LaneSpec
from trioeval.limits.model import LimitKey
from trioeval.providers import Metering, ProviderSpec, Reply, Usage
from trioeval.providers.base import Media
from trioeval.providers.local.custom import CustomSettings
from trioeval.providers.metering import count_bytes, media_tokens, most_money, take_data_uris
from trioeval.rates import LearntShare
from trioeval.suite.limit_form import known_limits
from trioeval.suite.model import BudgetSettings, Suite

CHARACTERS_A_TOKEN = 4
"""Used for texts without a token count."""

_NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


@attrs.define  # not frozen: every row has one
class CallEstimate:
    """The estimated usage of one call."""

    tokens: int
    money: float
    """US dollars."""
    prompt_bound: int
    reply_bound: int


@attrs.define(eq=False, repr=False)
class _Shares:
    """The learned shares of a lane."""

    prompt: LearntShare = attrs.field(factory=LearntShare)
    reply: LearntShare = attrs.field(factory=LearntShare)


@attrs.define(eq=False, repr=False)
class CallMeter:
    """Estimates the usage of a run's calls, and learns from their replies.

    Args:
        metering: The metering of each provider.
        lanes: The lane of each provider, in the same order.
        bounds_only: Whether a budget must hold.
        bounded_lanes: Lanes on which a shared limit must hold.
        paced_lanes: Lanes with a declared rate of tokens.
        ceiling: Tokens that a question may use, ≥ 1: at a shared limit, no reply is assumed to be longer. It
            does not shorten replies, so it does not reduce the reservation of a budget. None means no limit.
        guess: Assumed maximum tokens of replies without a bound; None uses the providers' guesses.
        bounds_money: Whether a budget of money must hold.
        bounds_tokens: Whether a budget of tokens must hold.
    """

    metering: Sequence[Metering]
    lanes: Sequence[str]
    bounds_only: bool
    bounded_lanes: frozenset[str] = frozenset()
    paced_lanes: frozenset[str] = frozenset()
    ceiling: int | None = None
    guess: int | None = None
    bounds_money: bool = False
    bounds_tokens: bool = False
    _longest: Sequence[int] = attrs.field(init=False)
    """The maximum tokens of a reply of each provider."""
    _shares: defaultdict[str, _Shares] = attrs.field(
        init=False, factory=lambda: defaultdict(_Shares)
    )
    _excess: dict[int, tuple[int, float]] = attrs.field(init=False, factory=dict)
    """Tokens and US dollars of the largest excesses over the bounds, by provider."""

    def estimate(
        self,
        provider: int,
        prompt: str,
        options: Mapping[str, Any] = _NO_OPTIONS,
        media: Sequence[Media] = (),
    ) -> CallEstimate:
        """Return the estimated usage of a call.

        Args:
            provider: The index of the provider.
            prompt: The prompt.
            options: Keys of the provider's config that are overridden for this call, such as tools.
            media: The media that the prompt names.
        """
        known, lane = self.metering[provider], self.lanes[provider]
        is_bound = self._is_bound(lane)
        is_exact = is_bound or self.ceiling is not None or lane in self.paced_lanes
        count = known.count if is_exact else count_bytes
        prompt, inline = (prompt, 0) if is_bound else take_data_uris(prompt, known.image)
        prompt_bound = known.overhead + count(prompt) + inline
        for one in media:
            prompt_bound += media_tokens(one.kind, one.size, known.image)
        if options:
            prompt_bound += count(json.dumps(options, ensure_ascii=False, default=str))
        return self.expect(provider, prompt_bound)

    def expect(self, provider: int, prompt_bound: int) -> CallEstimate:
        """Return the estimated usage of a call with a prompt of at most this many tokens."""
        known, lane = self.metering[provider], self.lanes[provider]
        reply_bound = self._longest[provider]
        money = most_money(known, prompt_bound, reply_bound)
        if self._is_bound(lane):
            tokens, more = self._excess.get(provider, (0, 0.0)) if self._excess else (0, 0.0)
            tokens += prompt_bound + reply_bound
            return CallEstimate(tokens, money + more, prompt_bound, reply_bound)
        shares = self._shares[lane]
        tokens = shares.prompt.expected(prompt_bound) + shares.reply.expected(reply_bound)
        return CallEstimate(tokens, money, prompt_bound, reply_bound)

    def _is_bound(self, lane: str) -> bool:
        """Return whether the calls of a lane reserve what they use at most, and not what is expected."""
        return self.bounds_only or lane in self.bounded_lanes

    def learn_excess(
        self, provider: int, estimate: CallEstimate, tokens: int | None, money: float | None
    ) -> None:
        """Learn from the amounts of a call, failed or not, whether the bounds of its provider are too low.

        Args:
            provider: The index of the provider.
            estimate: The estimate of the call.
            tokens: All tokens that it used; None if unknown.
            money: Its cost in US dollars; None if unknown.
        """
        prompt, reply = estimate.prompt_bound, estimate.reply_bound
        more = (tokens or 0) - prompt - reply
        dearer = (money or 0.0) - most_money(self.metering[provider], prompt, reply)
        if more > 0 or dearer > 0:
            most, dearest = self._excess.get(provider, (0, 0.0))
            self._excess[provider] = max(most, more), max(dearest, dearer)

    @_longest.default
    def _find_longest(self) -> Sequence[int]:
        return [self._longest_of(known) for known in self.metering]

    def _longest_of(self, known: Metering) -> int:
        """Return the maximum tokens of a reply."""
        bound = known.longest_reply
        if not known.is_bounded:
            guesses = [one for one in (self.ceiling, self.guess) if one is not None]
            return max([bound, *guesses]) if self.bounds_only else next(iter(guesses), bound)
        if self.bounds_only or self.ceiling is None:
            return bound
        return min(bound, self.ceiling)

    def learn(self, provider: int, estimate: CallEstimate, usage: Usage) -> None:
        """Learn from the actual usage of a call with this estimate."""
        shares = self._shares[self.lanes[provider]]
        if usage.prompt is not None:
            shares.prompt.learn(estimate.prompt_bound, usage.prompt)
        if usage.completion is not None:
            shares.reply.learn(estimate.reply_bound, usage.completion)


def with_bounds(error: LimitError, estimate: CallEstimate) -> LimitError:
    """Return the error of a call that is never allowed, with its assumed maximum usage if that is the reason.

    Args:
        error: The error of a call on a lane whose limits count tokens or money.
        estimate: The estimate of the same call.
    """
    if error.reason not in {"exceeds_capacity", "budget_exhausted"}:
        return error
    prompt, reply = estimate.prompt_bound, estimate.reply_bound
    bounds = f"its prompt may have {prompt:,} tokens and its reply {reply:,}"
    hint = "reduce max_tokens, budget.maxTokens or maxOutputTokens"
    return LimitError(error.reason, f"{error.message}; {bounds}: {hint}", keys=error.keys)


def counted_tokens(prompt: str, reply: Reply) -> int:
    """Return all tokens of a call, estimated if its provider does not report them.

    Example:
        >>> counted_tokens("12345", Reply(output="678"))
        2
        >>> counted_tokens("12345", Reply(output="678", usage=Usage(total=7)))
        7
    """
    used = reply.usage.in_all
    if used is not None:
        return used
    return estimate_tokens(prompt, "" if reply.output is None else reply.output)


def estimate_tokens(*texts: Any) -> int:
    """Return the approximate number of tokens of texts.

    Example:
        >>> estimate_tokens("12345", "678")
        2
    """
    characters = sum(len(text if isinstance(text, str) else str(text)) for text in texts)
    return -(-characters // CHARACTERS_A_TOKEN)


# The reservations of a task's calls, and the calls that no limit could ever allow.


_COUNTED = frozenset({"tokens", "cost_micro"})


def meter_of(
    suite: Suite,
    metering: Sequence[Metering],
    lanes: Sequence[str],
    lane_limits: Mapping[str, tuple[LimitKey, ...]],
    lane_specs: Iterable[LaneSpec] = (),
) -> CallMeter:
    """Return the meter of a task.

    Args:
        suite: The task.
        metering: The metering of each provider, including judges.
        lanes: The lane of each.
        lane_limits: The shared limits that calls count against, by lane.
        lane_specs: The lanes.
    """
    settings, budget = suite.limits, suite.evaluate_options.budget
    return CallMeter(
        metering,
        lanes,
        bounds_only=budget is not None,
        bounded_lanes=frozenset(
            lane for lane, keys in lane_limits.items() if any(key.unit in _COUNTED for key in keys)
        ),
        paced_lanes=frozenset(spec.name for spec in lane_specs if spec.tpm is not None),
        ceiling=suite.settings.row_tokens,
        guess=None if settings is None else settings.max_output_tokens,
        bounds_money=budget is not None and budget.usd is not None,
        bounds_tokens=budget is not None and budget.tokens is not None,
    )


def impossible_calls(
    suite: Suite,
    specs: Sequence[ProviderSpec],
    lanes: Sequence[str],
    lane_limits: Mapping[str, tuple[LimitKey, ...]],
) -> Iterator[Problem]:
    """Yield warnings for providers whose assumed replies exceed the capacity of a limit in memory.

    Each of their calls would fail, whatever its prompt.

    Args:
        suite: The task.
        specs: Its providers, including judges.
        lanes: The lane of each.
        lane_limits: The shared limits that calls count against, by lane.
    """
    settings = suite.limits
    if settings is None or settings.backend != "memory" or not lane_limits:
        return
    from trioeval.limits.backend import requirements_of

    limits = known_limits(settings) or {}
    meter = meter_of(suite, [spec.metering for spec in specs], lanes, lane_limits)
    for place, (spec, lane) in enumerate(zip(specs, lanes, strict=True)):
        estimate = meter.estimate(place, "")
        keys = [one for one in lane_limits.get(lane, ()) if one.unit in _COUNTED]
        for need in requirements_of(keys, estimate.tokens, estimate.money):
            limit = limits.get(need.key)
            if limit is None or need.amount <= limit.capacity:
                continue
            yield Problem(
                f"$.providers[{place}]",
                f"a reply of {spec.name} may have up to {estimate.reply_bound:,} tokens, so a "
                f"call needs {need.amount:,} of {quote(need.key)}, which never has more than "
                f"{limit.capacity:,}: all of its calls will fail",
                _hint(suite, spec),
            )


def _hint(suite: Suite, spec: ProviderSpec) -> str:
    if spec.metering.is_bounded:
        return "allow shorter replies in its config, for example by max_tokens"
    setting = "maxOutputTokens of $.limits"
    if suite.settings.row_tokens is not None:
        setting = "budget.maxTokens of the questions"
    return (
        f"{setting} sets that number, because its replies have no bound: add a bound, or reduce it"
    )


# The providers for which no budget could hold.


_COST_EXAMPLE = '"config": {"maxCost": 0.05}'
_TOKENS_EXAMPLE = '"config": {"maxTokens": 1000}'
_PRICE_EXAMPLE = '"config": {"price": {"input": 1, "output": 4}}'


def unbounded_providers(
    suite: Suite,
    specs: Sequence[ProviderSpec],
    lanes: Sequence[str],
    lane_limits: Mapping[str, tuple[LimitKey, ...]],
) -> Iterator[Problem]:
    """Yield providers for which a budget cannot hold: without known prices, or with unbounded calls.

    The same applies to a shared limit of money, from which such a call would reserve nothing.

    Args:
        suite: The task.
        specs: Its providers, including judges.
        lanes: The lane of each.
        lane_limits: The shared limits that calls count against, by lane.
    """
    budget = suite.evaluate_options.budget or BudgetSettings()
    for position, (spec, lane) in enumerate(zip(specs, lanes, strict=True)):
        known, id_ = spec.metering, spec.id
        is_own = isinstance(spec.settings, CustomSettings)
        found: list[tuple[str, str]] = []
        needs_cost = budget.usd is not None and known.most_cost is None
        if known.is_paid and not known.is_bounded and (needs_cost or budget.tokens is not None):
            hint = "set a limit in its config, for example max_completion_tokens or maxOutputTokens"
            found.append((f"a budget is set, but the replies of {id_} have no token limit", hint))
        money = None if known.most_cost is not None else _money_bound(budget, lane_limits, lane)
        if money is not None and known.is_paid and known.price is None:
            hint = f"set its price in US dollars per million tokens: {_PRICE_EXAMPLE}"
            tier = "" if known.tier is None else f" in its service tier {quote(known.tier)}"
            found.append((f"{money}, but the price of {id_}{tier} is not known", hint))
        if money is not None and known.says_cost:
            ways = f"own_provider(function, max_cost=0.05), or {_COST_EXAMPLE}"
            hint = "set the maximum cost of a call in US dollars, 0 if it is free: "
            hint += ways if is_own else _COST_EXAMPLE
            found.append((f"{money}, but the cost of a call of {id_} has no limit", hint))
        if budget.tokens is not None and is_own and not known.is_bounded:
            ways = f"own_provider(function, max_tokens=1000), or {_TOKENS_EXAMPLE}"
            message = f"a budget in tokens is set, but the replies of {id_} have no token limit"
            found.append((message, f"set the maximum number of tokens of a reply: {ways}"))
        for message, hint in found:
            yield Problem(f"$.providers[{position}]", message, hint)


def _money_bound(
    budget: BudgetSettings, lane_limits: Mapping[str, tuple[LimitKey, ...]], lane: str
) -> str | None:
    """Return the words for what limits the costs of calls on a lane; None if nothing does."""
    if budget.usd is not None:
        return "a budget in usd is set"
    keys = (one.key for one in lane_limits.get(lane, ()) if one.unit == "cost_micro")
    key = next(keys, None)
    return None if key is None else f"lane {lane} counts costs against {quote(key)}"

"""What the calls of a task reserve before they are made, and which of them no limit could ever allow."""

from collections.abc import Iterator, Mapping, Sequence

from trioeval.errors import Problem
from trioeval.grading import quote
from trioeval.providers import Metering, ProviderSpec
from trioeval.quota.amounts import requirements_of
from trioeval.quota.backend import KeyUse
from trioeval.suite import Suite
from trioeval.suite.quota_checks import known_limits
from trioeval.suite.quota_models import QuotaKey
from trioeval.tasks.metering import Meter

_COUNTED = frozenset({"tokens", "cost_micro"})


def meter_of(
    suite: Suite,
    metering: Sequence[Metering],
    lanes: Sequence[str],
    quotas: Mapping[str, tuple[QuotaKey, ...]],
) -> Meter:
    """What estimates the calls of a task.

    Args:
        suite: The task.
        metering: What is known of each provider, judges among them.
        lanes: The lane of each.
        quotas: The shared limits that calls count against, by lane.
    """
    questions, settings = suite.questions, suite.quota
    budget = suite.evaluate_options.budget
    return Meter(
        metering,
        lanes,
        bounds_only=budget is not None,
        bounded_lanes=frozenset(
            lane for lane, keys in quotas.items() if any(key.unit in _COUNTED for key in keys)
        ),
        ceiling=None if questions is None else questions.budget.max_tokens or None,
        guess=None if settings is None else settings.max_output_tokens,
        bounds_money=budget is not None and budget.usd is not None,
    )


def impossible_calls(
    suite: Suite,
    specs: Sequence[ProviderSpec],
    lanes: Sequence[str],
    quotas: Mapping[str, tuple[QuotaKey, ...]],
) -> Iterator[Problem]:
    """Warnings of providers that are taken to answer more than a limit in memory ever has.

    Each of their calls would fail, whatever it asks.

    Args:
        suite: The task.
        specs: Its providers, judges among them.
        lanes: The lane of each.
        quotas: The shared limits that calls count against, by lane.
    """
    settings = suite.quota
    if settings is None or settings.backend != "memory" or not quotas:
        return
    limits = known_limits(settings)
    meter = meter_of(suite, [spec.metering for spec in specs], lanes, quotas)
    for place, (spec, lane) in enumerate(zip(specs, lanes, strict=True)):
        estimate = meter.estimate(place, "")
        keys = [KeyUse(one.key, one.unit) for one in quotas.get(lane, ()) if one.unit in _COUNTED]
        for need in requirements_of(keys, estimate.tokens, estimate.money):
            limit = limits.get(need.key)
            if limit is None or need.amount <= limit.capacity:
                continue
            yield Problem(
                f"$.providers[{place}]",
                f"a reply of {spec.name} is taken to have {estimate.reply_bound:,} tokens at most, so a "
                f"call takes {need.amount:,} of {quote(need.key)}, which never has more than "
                f"{limit.capacity:,}: all of them will fail",
                _hint(suite, spec),
            )


def _hint(suite: Suite, spec: ProviderSpec) -> str:
    if spec.metering.is_bounded:
        return "allow shorter replies in its config, for example by max_tokens"
    said = "maxOutputTokens of $.quota"
    if suite.questions is not None and suite.questions.budget.max_tokens:
        said = "budget.maxTokens of the questions"
    return f"{said} says so, because nothing bounds its replies: bound them, or make that smaller"

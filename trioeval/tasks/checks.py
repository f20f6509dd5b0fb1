"""What of a suite is wrong or odd, beyond its providers, before anything is asked of them."""

from collections.abc import Iterator, Sequence

from trioeval.errors import Problem
from trioeval.grading.algebra import leaves
from trioeval.providers import ProviderSpec
from trioeval.quota.extras import install, is_installed
from trioeval.suite import Around, Expansion, MistakenError, Suite, Test
from trioeval.suite.models import BudgetSettings
from trioeval.tasks.transforms import read_output_transform

_COST_EXAMPLE = '"config": {"maxCost": 0.05}'
_PRICE_EXAMPLE = '"config": {"price": {"input": 1, "output": 4}}'


def wrong_transforms(steps: Expansion, around: Around) -> Iterator[Problem]:
    """Transforms that are wrong as they are written, each told once."""
    seen: set[str] = set()
    for path, text in _transforms(steps):
        if text in seen:
            continue
        seen.add(text)
        try:
            read_output_transform(text, around)
        except MistakenError as error:
            for part in error.parts:
                yield Problem(path, part.message, part.hint)


def _transforms(steps: Expansion) -> Iterator[tuple[str, str]]:
    """The transforms of a suite, with their places in it."""
    suite = steps.suite
    for place, entry in enumerate(suite.providers):
        if entry.transform is not None:
            yield f"$.providers[{place}].transform", entry.transform
    if suite.default_test is not None:
        for below, text in _transforms_of(suite.default_test):
            yield f"$.defaultTest{below}", text
    for place in steps.looked_at:
        for below, text in _transforms_of(steps.tests[place]):
            yield steps.path_of(place, below), text


def _transforms_of(test: Test) -> Iterator[tuple[str, str]]:
    if test.options.transform is not None:
        yield ".options.transform", test.options.transform
    for place, assertion in leaves(test.assertions):
        for key, text in (
            ("transform", assertion.transform),
            ("contextTransform", assertion.context_transform),
        ):
            if text is not None:
                yield "".join(f".assert[{number}]" for number in place) + f".{key}", text


def missing_extras(suite: Suite, *, is_asked: bool) -> Iterator[Problem]:
    """A quota that only works where more is installed.

    Args:
        suite: The suite.
        is_asked: Whether some lane counts against its quota, which is not opened otherwise.
    """
    quota = suite.quota
    if quota is not None and quota.backend == "redis" and is_asked and not is_installed("redis"):
        message = 'limits in Redis need the extra "redis"'
        yield Problem("$.quota.backend", message, install("redis"))


def unbounded(suite: Suite, specs: Sequence[ProviderSpec]) -> Iterator[Problem]:
    """Providers for which a budget cannot hold: their prices are not known, or nothing bounds a call."""
    budget = suite.evaluate_options.budget
    if budget is None or (budget.usd is None and budget.tokens is None):
        return
    for position, spec in enumerate(specs):
        for message, hint in _unbounded(budget, spec):
            yield Problem(f"$.providers[{position}]", message, hint)


def _unbounded(budget: BudgetSettings, spec: ProviderSpec) -> Iterator[tuple[str, str]]:
    """Why a budget cannot hold for a provider, and what to do about each reason."""
    known = spec.metering
    is_unbounded = budget.usd is not None and known.most_cost is None
    if known.is_paid and not known.is_bounded and (is_unbounded or budget.tokens is not None):
        yield (
            f"there is a budget, and nothing bounds the replies of {spec.id}",
            "give a bound in its config, for example max_completion_tokens or maxOutputTokens",
        )
    if known.is_paid and known.price is None and is_unbounded:
        yield (
            f"there is a budget in usd, and no price of {spec.id} is known",
            "give it one in US dollars per million tokens: " + _PRICE_EXAMPLE,
        )
    if known.says_cost and is_unbounded:
        yield (
            f"there is a budget in usd, and nothing bounds what a call of {spec.id} costs",
            f"give the most US dollars that one call may cost, 0 if it costs nothing: {_COST_EXAMPLE}",
        )

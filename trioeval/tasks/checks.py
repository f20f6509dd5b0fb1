"""What of a suite is wrong or odd, beyond its providers, before anything is asked of them."""

from collections.abc import Iterator, Sequence

from trioeval.errors import Problem
from trioeval.providers import ProviderSpec
from trioeval.suite import Around, Expansion, MistakenError, Suite
from trioeval.suite.joined import remarkable_places
from trioeval.tasks.transforms import read_output_transform

_PRICE_EXAMPLE = '"config": {"price": {"input": 1, "output": 4}}'


def wrong_transforms(steps: Expansion, around: Around) -> Iterator[Problem]:
    """Transforms that are wrong as they are written, each told once."""
    named = [
        (f"$.providers[{place}].transform", entry.transform)
        for place, entry in enumerate(steps.suite.providers)
    ]
    default = steps.suite.default_test
    if default is not None:
        named.append(("$.defaultTest.options.transform", default.options.transform))
    named += [
        (f"$.tests[{place}].options.transform", steps.tests[place].options.transform)
        for place in remarkable_places(steps.tests)
    ]
    seen: set[str] = set()
    for path, text in named:
        if text is None or text in seen:
            continue
        seen.add(text)
        try:
            read_output_transform(text, around)
        except MistakenError as error:
            for part in error.parts:
                yield Problem(path, part.message, part.hint)


def unbounded(suite: Suite, specs: Sequence[ProviderSpec]) -> Iterator[Problem]:
    """A budget cannot hold for services that cost nobody knows how much, or answer without bounds."""
    budget = suite.evaluate_options.budget
    if budget is None or (budget.usd is None and budget.tokens is None):
        return
    for position, spec in enumerate(specs):
        known = spec.metering
        if known.is_paid and not known.is_bounded:
            yield Problem(
                f"$.providers[{position}]",
                f"there is a budget, and nothing bounds the replies of {spec.id}",
                "give a bound in its config, for example max_completion_tokens or maxOutputTokens",
            )
        if known.is_paid and known.price is None and budget.usd is not None:
            yield Problem(
                f"$.providers[{position}]",
                f"there is a budget in usd, and no price of {spec.id} is known",
                "give it one in US dollars per million tokens: " + _PRICE_EXAMPLE,
            )

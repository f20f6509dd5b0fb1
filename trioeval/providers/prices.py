"""Costs of calls: a dated table of list prices, and the arithmetic.

A service may offer a model in several tiers (`flex`, `priority`, `batch`), each with prices of its own.

An unknown price stays unknown: the cost is then None, never 0.
"""

import functools
import json
import math
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import attrs

from trioeval.usage import Usage

_DATE = re.compile(r"-(\d{4}-\d\d-\d\d|20\d{6})$")

PER = 1_000_000
"""Number of tokens that a price is for."""

STANDARD = frozenset(
    {"", "auto", "default", "on_demand", "standard", "standard_only", "unspecified"}
)
"""The names of the standard tier. A reply that names `auto` leaves its tier open."""

_ALIASES = {"fast": "priority"}


def tier_name(tier: str | None) -> str:
    """Return the name of a service tier as in price tables; that of the standard tier is empty.

    Example:
        >>> tier_name("SERVICE_TIER_FLEX"), tier_name("fast"), tier_name("default"), tier_name(None)
        ('flex', 'priority', '', '')
    """
    name = (tier or "").strip().lower().removeprefix("service_tier_")
    return "" if name in STANDARD else _ALIASES.get(name, name)


@attrs.frozen(kw_only=True)
class Price:
    """US dollars for a million tokens of each kind, ≥ 0."""

    input: float
    output: float
    cached_input: float | None = None
    """Price of cached prompt tokens; None means `input`."""
    cache_write: float | None = None
    """Price of prompt tokens written to a cache; None means `input`."""
    up_to: float = math.inf
    """Maximum prompt tokens for these prices."""
    beyond: "Price | None" = None
    """Price of calls with longer prompts; None if `up_to` is infinite, or if that price is unknown."""
    tiers: Mapping[str, "Price"] = attrs.field(factory=dict, hash=False)
    """Prices of other service tiers, by `tier_name`."""
    covers_tiers: bool = True
    """True if the price is that of all other tiers as well; else theirs are unknown."""

    def of_tier(self, tier: str | None) -> "Price | None":
        """Return the price in a service tier; None if it is unknown.

        Example:
            >>> half = Price(input=1, output=4)
            >>> price = Price(input=2, output=8, tiers={"flex": half}, covers_tiers=False)
            >>> (
            ...     price.of_tier("flex") == half,
            ...     price.of_tier("default") == price,
            ...     price.of_tier("scale"),
            ... )
            (True, True, None)
        """
        name = tier_name(tier)
        if name in self.tiers:
            return self.tiers[name]
        return self if self.covers_tiers or not name else None

    def times(self, factor: float, cached: float | None = None) -> "Price":
        """Return a multiple of the price.

        Args:
            factor: ≥ 0.
            cached: The factor of the price of cached tokens; None means `factor`.
        """
        of_cached = factor if cached is None else cached
        return Price(
            input=self.input * factor,
            output=self.output * factor,
            cached_input=None if self.cached_input is None else self.cached_input * of_cached,
            cache_write=None if self.cache_write is None else self.cache_write * factor,
            up_to=self.up_to,
            beyond=None if self.beyond is None else self.beyond.times(factor, cached),
        )

    def dearest(self, tier: str | None) -> "Price | None":
        """Return the highest price at which a request for a tier may be served; None if it is unknown.

        A service may serve any request in its standard tier. One for `auto` may be served as `priority`, if
        the project is configured so; without a tier the standard one is assumed.

        Args:
            tier: The requested tier.
        """
        name = tier_name(tier)
        if (tier or "").strip().lower() == "auto" and "priority" in self.tiers:
            name = "priority"
        requested = self.of_tier(name)
        return None if requested is None else max(self, requested, key=lambda one: one.most(1, 1))

    def cost(self, usage: Usage) -> float | None:
        """Return the cost of a call in US dollars; None if its token counts or their price are unknown.

        Example:
            >>> Price(input=2, output=8, cached_input=0.5).cost(
            ...     Usage(prompt=1_000_000, completion=250_000, cached=400_000)
            ... )
            3.4
        """
        if usage.prompt is None or usage.completion is None:
            return None
        if usage.prompt > self.up_to:
            return None if self.beyond is None else self.beyond.cost(usage)
        cached, written = usage.cached or 0, usage.cache_creation or 0
        plain = max(0, usage.prompt - cached - written)
        dollars = (
            plain * self.input
            + cached * (self.input if self.cached_input is None else self.cached_input)
            + written * (self.input if self.cache_write is None else self.cache_write)
            + usage.completion * self.output
        )
        return dollars / PER

    def most(self, prompt: int, completion: int) -> float:
        """Return the maximum cost in US dollars of a call with these maximum token counts."""
        dearest = max(self.input, self.cached_input or 0.0, self.cache_write or 0.0)
        most = (prompt * dearest + completion * self.output) / PER
        if self.beyond is None or prompt <= self.up_to:
            return most
        return max(most, self.beyond.most(prompt, completion))


@attrs.frozen
class PriceTable:
    """List prices of services on one day."""

    date: str
    """The day as YYYY-MM-DD."""
    prices: Mapping[str, Mapping[str, Price]]
    """Prices by family and model; a model's name also covers its dated versions."""

    def find(self, family: str, model: str) -> Price | None:
        """Return the price of a model, or of the undated name of a dated version.

        Example:
            >>> table = PriceTable("2026-01-01", {"openai": {"gpt-4.1": Price(input=2, output=8)}})
            >>> table.find("openai", "gpt-4.1-2025-04-14") == table.find("openai", "gpt-4.1")
            True
            >>> table.find("openai", "gpt-4.1-mini") is None
            True
        """
        known = self.prices.get(family, {})
        return known.get(model) or known.get(_DATE.sub("", model))


def read_price(value: Mapping[str, Any]) -> Price:
    """Return the price in a config that has been checked with `PRICE`."""
    return Price(
        input=value["input"],
        output=value["output"],
        cached_input=value.get("cachedInput"),
        cache_write=value.get("cacheWrite"),
        up_to=value.get("upTo", math.inf),
        beyond=read_price(value["beyond"]) if "beyond" in value else None,
        tiers={tier_name(name): read_price(one) for name, one in value.get("tiers", {}).items()},
    )


def _listed(value: Mapping[str, Any], tiers: Mapping[str, Mapping[str, Any]]) -> Price:
    """Return the list price of a model.

    Args:
        value: The entry of the model. Prices of its own tiers may be multiples of the standard one.
        tiers: The tiers of its service; one with a factor is the same multiple for all models.
    """
    standard = read_price({name: part for name, part in value.items() if name != "tiers"})
    of_service = {
        name: standard.times(tier["factor"], tier.get("cachedFactor"))
        for name, tier in tiers.items()
        if "factor" in tier
    }
    own = {
        name: standard.times(one) if isinstance(one, int | float) else read_price(one)
        for name, one in value.get("tiers", {}).items()
    }
    return attrs.evolve(standard, tiers={**of_service, **own}, covers_tiers=False)


@functools.cache
def list_prices() -> PriceTable:
    """Return the table that is part of the package."""
    data = json.loads(files("trioeval.providers").joinpath("prices.json").read_text("utf-8"))
    return PriceTable(
        data["date"],
        {
            family: {
                model: _listed(price, data["tiers"].get(family, {}))
                for model, price in models.items()
            }
            for family, models in data["prices"].items()
        },
    )

"""Costs of calls: a dated table of list prices, and the arithmetic.

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
    """Price of calls with longer prompts; set if `up_to` is finite."""

    def cost(self, usage: Usage) -> float | None:
        """Return the cost of a call in US dollars; None if its token counts are unknown.

        Example:
            >>> Price(input=2, output=8, cached_input=0.5).cost(
            ...     Usage(prompt=1_000_000, completion=250_000, cached=400_000)
            ... )
            3.4
        """
        if usage.prompt is None or usage.completion is None:
            return None
        if self.beyond is not None and usage.prompt > self.up_to:
            return self.beyond.cost(usage)
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
    )


@functools.cache
def list_prices() -> PriceTable:
    """Return the table that is part of the package."""
    data = json.loads(files("trioeval.providers").joinpath("prices.json").read_text("utf-8"))
    return PriceTable(
        data["date"],
        {
            family: {model: read_price(price) for model, price in models.items()}
            for family, models in data["prices"].items()
        },
    )

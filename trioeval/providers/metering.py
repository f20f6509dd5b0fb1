"""The token counts and prices of a provider that are known before a call.

Limits are read from the body that would be sent with an empty prompt, so that config, defaults and
environment are all taken into account.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

if TYPE_CHECKING:
    from trioeval.providers.prices import Price


# The number of tokens that a call may use, estimated before the call.
#
# By default a text counts as many tokens as it has bytes in UTF-8: no byte-pair vocabulary needs more.
# With the extra `tokens`, texts for OpenAI models are counted exactly, with their own vocabularies.


Counter: TypeAlias = Callable[[str], int]
"""Returns the number of tokens of a text, never too few."""

VOCABULARIES: Mapping[str, re.Pattern[str]] = {
    "o200k_base": re.compile(r"(gpt-(4o|4\.[15]|5)|chatgpt-4o|o\d)"),
    "cl100k_base": re.compile(r"(gpt-(4|3\.5)|text-embedding-(3|ada-002))"),
}
"""Patterns for the model names of each OpenAI vocabulary; the first match wins."""

_PER_MESSAGE = 4
"""Tokens of a message besides its text, and of the start of the reply."""
_MESSAGE = re.compile(r'"role"|^- role:', re.MULTILINE)


def count_bytes(text: str) -> int:
    """Return the number of bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


@functools.lru_cache(64)
def find_counter(model: str) -> Counter | None:
    """Return an exact counter for an OpenAI model; None for others, or without the extra `tokens`."""
    if importlib.util.find_spec("bpe_openai") is None:
        return None
    name = model.removeprefix("ft:").rsplit("/", 1)[-1]
    for vocabulary, models in VOCABULARIES.items():
        if models.match(name):
            return _exact(vocabulary)
    return None


def _exact(vocabulary: str) -> Counter:
    @functools.cache
    def encoding() -> Any:
        import bpe_openai

        return bpe_openai.get_encoding(vocabulary)

    def count(text: str) -> int:
        messages = max(1, len(_MESSAGE.findall(text)))
        return len(encoding().encode_ordinary(text)) + _PER_MESSAGE * (messages + 1)

    return count


GUESSED_REPLY = 1024
"""Tokens that are reserved for a reply of unlimited length."""

_LONGEST = (
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "maxOutputTokens",
    "maxTokens",
    "max_new_tokens",
)
_INSIDE = ("generationConfig", "inferenceConfig", "input", "parameters")
_MANY = ("n", "candidateCount")


@attrs.frozen(kw_only=True)
class Metering:
    """The maximum usage of one call, as far as it does not depend on the prompt."""

    count: Counter = count_bytes
    """Returns the maximum number of tokens of a text."""
    overhead: int = 0
    """Maximum tokens sent with every prompt (tools, instructions, schemas)."""
    longest_reply: int = GUESSED_REPLY
    """Maximum tokens of a reply."""
    is_bounded: bool = False
    """True if `longest_reply` is a limit and not a guess."""
    price: Price | None = None
    """The highest price of the tiers that may serve a call; None if it is not known."""
    tier: str | None = None
    """The requested service tier; None if none is requested."""
    says_cost: bool = False
    """True if replies report their cost, which then overrides the price."""
    most_cost: float | None = None
    """Maximum US dollars of a call, ≥ 0; None if only the price limits them."""
    is_paid: bool = False
    """True if its replies cost money."""


def most_money(known: Metering, prompt: int, reply: int) -> float:
    """Return the maximum cost of a call in US dollars.

    Args:
        known: The metering of its provider.
        prompt: Maximum tokens of the prompt.
        reply: Maximum tokens of the reply.

    Example:
        >>> from trioeval.providers.prices import Price
        >>> most_money(Metering(price=Price(input=1, output=2)), 1_000_000, 500_000)
        2.0
        >>> most_money(Metering(price=Price(input=1, output=2), most_cost=0.5), 1_000_000, 500_000)
        0.5
    """
    if known.most_cost is not None:
        return known.most_cost
    return 0.0 if known.price is None else known.price.most(prompt, reply)


def longest_reply(body: Mapping[str, Any]) -> int | None:
    """Return the maximum tokens of a reply to a body, over all choices; None if nothing limits it.

    Example:
        >>> longest_reply({"max_tokens": 10, "max_completion_tokens": 50, "n": 2})
        100
    """
    parts = [body, *(body[name] for name in _INSIDE if isinstance(body.get(name), Mapping))]
    bounds = [part[name] for part in parts for name in _LONGEST if type(part.get(name)) is int]
    choices = [part[name] for part in parts for name in _MANY if type(part.get(name)) is int]
    return max(bounds) * max([1, *choices]) if bounds else None

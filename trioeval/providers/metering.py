"""What is known of a provider's tokens and prices before a call.

Bounds are read from the body that is sent with an empty prompt: so nothing that a config, a default or the
environment puts into it is forgotten.
"""

import functools
import importlib.util
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs

from trioeval.providers.prices import Price

# How many tokens a call may use, before it is made.
#
# By default a text counts as many tokens as it has bytes in UTF-8: no vocabulary of byte pairs needs more.
# With the extra `tokens` the texts of OpenAI models are counted exactly, with their own vocabularies.


Counter: TypeAlias = Callable[[str], int]
"""Tokens of a text, never too few."""

VOCABULARIES: Mapping[str, re.Pattern[str]] = {
    "o200k_base": re.compile(r"(gpt-(4o|4\.[15]|5)|chatgpt-4o|o\d)"),
    "cl100k_base": re.compile(r"(gpt-(4|3\.5)|text-embedding-(3|ada-002))"),
}
"""Which models of OpenAI use which, by the beginning of their names; the first that fits."""

_PER_MESSAGE = 4
"""Tokens that a message has besides its text, and the reply's beginning."""
_MESSAGE = re.compile(r'"role"|^- role:', re.MULTILINE)


def count_bytes(text: str) -> int:
    """The bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


@functools.lru_cache(64)
def find_counter(model: str) -> Counter | None:
    """An exact counter for a model of OpenAI; None for others, or without the extra `tokens`."""
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
        import bpe_openai  # noqa: PLC0415 - takes half a second, for the first call that needs it

        return bpe_openai.get_encoding(vocabulary)

    def count(text: str) -> int:
        messages = max(1, len(_MESSAGE.findall(text)))
        return len(encoding().encode_ordinary(text)) + _PER_MESSAGE * (messages + 1)

    return count


GUESSED_REPLY = 1024
"""Tokens that are reserved for a reply that nothing bounds."""

_LONGEST = (
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "maxOutputTokens",
    "maxTokens",
)
_INSIDE = ("generationConfig", "inferenceConfig")
_MANY = ("n", "candidateCount")


@attrs.frozen(kw_only=True)
class Metering:
    """What one call may use, as far as it does not depend on its prompt."""

    count: Counter = count_bytes
    """Tokens of a text, at most."""
    overhead: int = 0
    """Tokens of what goes with every prompt (tools, instructions, schemas), at most."""
    longest_reply: int = GUESSED_REPLY
    """Tokens of a reply, at most."""
    is_bounded: bool = False
    """Whether that is a bound, and no guess."""
    price: Price | None = None
    """None where no price is known."""
    says_cost: bool = False
    """Whether replies say what they cost, whatever a price says."""
    most_cost: float | None = None
    """US dollars of a call at most, ≥ 0; None where only the price bounds them."""
    is_paid: bool = False
    """Whether it is a service whose answers cost money."""


def most_money(known: Metering, prompt: int, reply: int) -> float:
    """The most that a call may cost, in US dollars.

    Args:
        known: Its provider.
        prompt: Tokens of the prompt, at most.
        reply: Likewise of the reply.

    Example:
        >>> most_money(Metering(price=Price(input=1, output=2)), 1_000_000, 500_000)
        2.0
        >>> most_money(Metering(price=Price(input=1, output=2), most_cost=0.5), 1_000_000, 500_000)
        0.5
    """
    if known.most_cost is not None:
        return known.most_cost
    return 0.0 if known.price is None else known.price.most(prompt, reply)


def longest_reply(body: Mapping[str, Any]) -> int | None:
    """The most tokens that a reply to a body may have, all choices together; None if nothing bounds it.

    Example:
        >>> longest_reply({"max_tokens": 10, "max_completion_tokens": 50, "n": 2})
        100
    """
    parts = [body, *(body[name] for name in _INSIDE if isinstance(body.get(name), Mapping))]
    bounds = [part[name] for part in parts for name in _LONGEST if type(part.get(name)) is int]
    choices = [part[name] for part in parts for name in _MANY if type(part.get(name)) is int]
    return max(bounds) * max([1, *choices]) if bounds else None

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


# The tokens of media, which services compute from pixels and seconds.
#
# Neither is known before a file is decoded, so the largest image counts that a service does not scale down,
# and audio and video are as long as their bytes may be at usual rates.


IMAGE_TOKENS: Mapping[int, re.Pattern[str]] = {
    48_169: re.compile(r"gpt-4o-mini"),  # 2833, and 5667 for each of 8 tiles
    3_779: re.compile(r"gpt-[\w.]+-nano"),  # 1536 patches, 2.46 each
    2_642: re.compile(r"gpt-[\w.]+-mini|o4-mini"),  # 1536 patches, 1.72 each at most
    1_445: re.compile(r"gpt-|chatgpt-|o[13]"),  # 85, and 170 for each of 8 tiles
    1_120: re.compile(r"gemini|gemma"),  # the default resolution of Gemini 3
}
"""Maximum tokens of an image, by the beginning of the model's name; the first match wins."""

DEFAULT_IMAGE_TOKENS = 1_600
"""Tokens of the largest image of Claude (width times height by 750), and of any other model."""

_BYTES_PER_TOKEN: Mapping[str, int] = {"audio": 250, "video": 400}
"""At 32 tokens and 8 kB a second of audio, and at 300 tokens and 120 kB a second of video."""
_DATA_URI = re.compile(r"data:(image|audio|video)/[\w.+-]+;base64,([A-Za-z0-9+/]+=*)")
_MEDIA_IN_BASE64 = re.compile(
    rb"(?:iVBORw0KGgo|/9j/|R0lGOD|UklGR|AAAA[A-Za-z0-9+/]{2}Z0eX)[A-Za-z0-9+/]{1000,}"
)
"""PNG, JPEG, GIF, WebP and MP4 files."""


def image_tokens(model: str) -> int:
    """Return the maximum tokens of an image in a prompt of a model.

    Example:
        >>> (
        ...     image_tokens("gpt-4o"),
        ...     image_tokens("openai/gpt-4o-mini"),
        ...     image_tokens("claude-opus-4"),
        ... )
        (1445, 48169, 1600)
    """
    name = model.removeprefix("ft:").rsplit("/", 1)[-1]
    found = (tokens for tokens, models in IMAGE_TOKENS.items() if models.match(name))
    return next(found, DEFAULT_IMAGE_TOKENS)


def media_tokens(kind: str, size: int, image: int = DEFAULT_IMAGE_TOKENS) -> int:
    """Return the estimated tokens of media in a prompt.

    Args:
        kind: `image`, `audio` or `video`.
        size: The number of bytes.
        image: The tokens of an image.

    Example:
        >>> media_tokens("image", 10**6), media_tokens("audio", 1001)
        (1600, 5)
    """
    return image if kind == "image" else -(-size // _BYTES_PER_TOKEN[kind])


def take_data_uris(prompt: str, image: int) -> tuple[str, int]:
    """Return a prompt without the media in its `data:` URIs, and the tokens of these.

    Args:
        prompt: The prompt.
        image: The tokens of an image.

    Example:
        >>> take_data_uris("a data:image/png;base64,AAAA b", 1600)
        ('a  b', 1600)
    """
    if ";base64," not in prompt:
        return prompt, 0
    found = _DATA_URI.findall(prompt)
    tokens = sum(media_tokens(kind, len(data) * 3 // 4, image) for kind, data in found)
    return _DATA_URI.sub("", prompt), tokens


def count_body(body: bytes, image: int) -> int:
    """Return the maximum tokens of a body, in which files of media in base64 count as images."""
    return len(_MEDIA_IN_BASE64.sub(b"", body)) + len(_MEDIA_IN_BASE64.findall(body)) * image


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
    image: int = DEFAULT_IMAGE_TOKENS
    """Maximum tokens of an image in a prompt."""
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

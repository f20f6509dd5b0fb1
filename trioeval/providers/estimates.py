"""How many tokens a call may use, before it is made.

By default a text counts as many tokens as it has bytes in UTF-8: no vocabulary of byte pairs needs more.
With the extra `tokens` the texts of OpenAI models are counted exactly, with their own vocabularies.
"""

import functools
import importlib.util
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

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

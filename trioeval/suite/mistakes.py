"""What structuring says is wrong, before it is known where that stands in the file."""

import difflib
import json
from collections.abc import Iterable
from typing import Any

from trioeval.suite.paths import DocumentPath

_SHOWN = 80  # characters of a value that a message quotes


class Mistake(ValueError):
    """One thing that is wrong at, or below, the value being structured.

    Args:
        message: What was found.
        hint: What would be right.
        at: Where, relative to that value.
        key: Whether the key at `at` is meant rather than its value.
    """

    def __init__(
        self, message: str, hint: str | None = None, *, at: DocumentPath = (), key: bool = False
    ) -> None:
        self.message = message
        self.hint = hint
        self.at = at
        self.key = key
        super().__init__(message)

    def below(self, step: str | int) -> "Mistake":
        """The same mistake, seen from one level further up."""
        return Mistake(self.message, self.hint, at=(step, *self.at), key=self.key)


class Mistakes(ValueError):
    """Several mistakes of one value."""

    def __init__(self, parts: Iterable[Mistake]) -> None:
        self.parts = tuple(parts)
        super().__init__(f"{len(self.parts)} mistakes")


def shown(value: Any) -> str:
    """A value as JSON, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def kind(value: Any) -> str:
    """What a value is, in the words of JSON, with the value itself where it is short."""
    match value:
        case None:
            return "null"
        case bool() | int() | float():
            return shown(value)
        case str():
            return f"the text {shown(value)}"
        case list():
            return "a list"
        case _:
            return "an object"


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint: the word that was probably meant, or all that are known."""
    words = sorted(known)
    if close := difflib.get_close_matches(word, words, n=1):
        return f'did you mean "{close[0]}"?'
    return f"known are {', '.join(words)}" if words else "there are none"

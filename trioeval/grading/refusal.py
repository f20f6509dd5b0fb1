"""Tells whether a text refuses what was asked, by phrases that refusals begin with or have in them.

The phrases are data, in refusal.json: lower-case, with straight apostrophes; a name in braces stands for each
of several phrases.
"""

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files

from trioeval.grading.lists import SPACES

_APOSTROPHES = str.maketrans("’′", "''")
_PIECE = 65_536
_LONGER = 256
"""Characters that no phrase has."""
_PLACE = re.compile(r"\{([^}]*)\}")


def is_refusal(text: str) -> bool:
    """Whether a text is a refusal; a blank one is.

    Example:
        >>> is_refusal("I’m sorry, but that is not for me."), is_refusal("Sure, here it is.")
        (True, False)
    """
    text = text.strip(SPACES)
    begins, says = _patterns()
    said = text.lower().translate(_APOSTROPHES)
    return not said or begins.match(said) is not None or _searched(says, said)


def _searched(says: re.Pattern[str], text: str) -> bool:
    """Whether a phrase stands in a text; piece by piece, so that other threads go on."""
    for start in range(0, len(text), _PIECE):
        end = start + _PIECE + _LONGER
        found = says.search(text, start, end)
        # What ends with a piece may be no whole word; it stands in the next piece as well.
        if found is not None and (found.end() < end or end >= len(text)):
            return True
    return False


@functools.cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    data = json.loads(files("trioeval.grading").joinpath("refusal.json").read_text("utf-8"))
    begins, says = (_pattern(data[part], data["where"]) for part in ("begins", "says"))
    return re.compile(begins), re.compile(rf"\b{says}\b", re.ASCII)


def _pattern(phrases: Sequence[str], where: Mapping[str, Sequence[str]]) -> str:
    return _any(_written(phrase, where) for phrase in phrases)


def _written(phrase: str, where: Mapping[str, Sequence[str]]) -> str:
    text, *rest = _PLACE.split(phrase)
    pieces = [re.escape(text)]
    for name, after in zip(rest[::2], rest[1::2], strict=True):
        pieces += _any(map(re.escape, where[name])), re.escape(after)
    return "".join(pieces)


def _any(patterns: Iterable[str]) -> str:
    return f"(?:{'|'.join(patterns)})"

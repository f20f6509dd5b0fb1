"""Texts that only name variables: most prompts, put together here without the template engine.

What is found here is less than what is so: a text that is not certainly of this kind is left to the engine.
Both give the same result.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from trioeval.templates.limits import CHARACTERS
from trioeval.templates.marks import has_marks
from trioeval.templates.values import EXACT_BELOW
from trioeval.templates.variables import GLOBAL_NAMES
from trioeval.text import number_text

Pieces: TypeAlias = Sequence[tuple[str, str | None]]
"""The pieces of a text: each a text, or the name of a variable."""

_KEPT = 1024  # texts
_PRINTED = re.compile(r"\{\{[ \t]*([A-Za-z_][A-Za-z0-9_]*)[ \t]*\}\}")
_KEYWORDS = frozenset(
    {"true", "false", "none", "null", "not", "and", "or", "in", "is", "if", "else"}
)
_NUMBERS = frozenset({int, float})


def plain_pieces(text: str) -> Pieces | None:
    """Return the pieces of a text that only names variables; None for any other text.

    Example:
        >>> plain_pieces("a {{ b }}"), plain_pieces("{{ a | upper }}"), plain_pieces("a")
        ((('a ', None), ('', 'b')), None, None)
    """
    return _pieces(text)


def _found(text: str) -> Pieces | None:
    if "#}" in text:
        return None
    pieces: list[tuple[str, str | None]] = []
    begin = 0
    for printed in _PRINTED.finditer(text):
        name = printed[1]
        if name in _KEYWORDS:
            return None
        if before := text[begin : printed.start()]:
            pieces.append((before, None))
        pieces.append(("", name))
        begin = printed.end()
    if after := text[begin:]:
        pieces.append((after, None))
    named = any(name is not None for _, name in pieces)
    # A mark may also be made of a brace before a tag, as in `{{{ a }}`.
    has_others = any(has_marks(before) or before.endswith("{") for before, _ in pieces)
    return tuple(pieces) if named and not has_others else None


_pieces: Callable[[str], Pieces | None] = functools.lru_cache(_KEPT)(_found)


def filled(pieces: Pieces, variables: Mapping[str, Any], *, strict: bool) -> str | None:
    """Return a text with its variables; None if one of them is not plain.

    Args:
        pieces: The pieces of the text.
        variables: The variables.
        strict: Leave it to the engine to report one that is missing.

    Example:
        >>> filled((("n = ", None), ("", "n")), {"n": 1.0}, strict=False)
        'n = 1'
    """
    texts = []
    for text, name in pieces:
        if name is None:
            texts.append(text)
            continue
        value: Any = variables.get(name)
        kind = value.__class__
        if kind is str:
            texts.append(value)
        elif kind in _NUMBERS:
            if not -EXACT_BELOW < value < EXACT_BELOW:
                return None
            texts.append(number_text(value))
        elif kind is bool:
            texts.append("true" if value else "false")
        elif value is not None or (name not in variables and (strict or name in GLOBAL_NAMES)):
            return None
    made = "".join(texts)
    return made if len(made) <= CHARACTERS else None

"""Patterns of names: `*` stands for any text and `?` for any character; the case does not matter."""

import functools
import re


def matches(name: str, pattern: str) -> bool:
    """Whether a whole name fits a pattern. Takes time in the length of the name, whatever the pattern is.

    Example:
        >>> matches("Search_Orders", "search*"), matches("research", "search*")
        (True, False)
        >>> matches("a.b", "a?b"), matches("a", "a?")
        (True, False)
    """
    return _compiled(pattern).fullmatch(name) is not None


@functools.lru_cache(256)
def _compiled(pattern: str) -> re.Pattern[str]:
    head, *others = (_piece(piece) for piece in re.split(r"\*+", pattern))
    if not others:
        return re.compile(head, re.IGNORECASE | re.DOTALL)
    *middle, tail = others
    # Each piece between two stars where it comes first: if that does not do, no later place will.
    between = "".join(f"(?>.*?{piece})" for piece in middle)
    return re.compile(f"{head}{between}.*{tail}", re.IGNORECASE | re.DOTALL)


def _piece(piece: str) -> str:
    return re.escape(piece).replace(r"\?", ".")

"""Words and n-grams, as BLEU and GLEU count them.

Only n-grams that both texts have are counted, so a long output takes time but hardly any memory beyond its
words.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeAlias

Gram: TypeAlias = tuple[str, ...]

SPACE = "\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
"""White space in JavaScript, as the inside of a character class; Python's definition differs."""
_GAP = re.compile(f"[{SPACE}]+")
_AROUND = re.compile(f"^[{SPACE}]+|[{SPACE}]+\\Z")


def split_words(text: str) -> list[str]:
    r"""Split a text at white space, in lower case; a blank text has one empty word.

    Example:
        >>> split_words(" The cat.\tSat "), split_words(" ")
        (['the', 'cat.', 'sat'], [''])
    """
    return _GAP.split(_AROUND.sub("", text.lower()))


def split_undotted_words(text: str) -> list[str]:
    """Split a text into words without the dots at their ends; a text of white space and dots has none.

    Example:
        >>> split_undotted_words("The U.S. sat..."), split_undotted_words("...")
        (['the', 'u.s', 'sat'], [])
    """
    words = [word.rstrip(".") for word in split_words(text)]
    return words if any(words) else []


def is_blank(text: str) -> bool:
    r"""Return True for a text of white space.

    Example:
        >>> is_blank(" \ufeff"), is_blank(" a ")
        (True, False)
    """
    return _AROUND.sub("", text) == ""


def grams(words: Sequence[str], size: int) -> Iterator[Gram]:
    """Return all runs of `size` words, ≥ 1, in order.

    Example:
        >>> list(grams(["a", "b", "c"], 2))
        [('a', 'b'), ('b', 'c')]
    """
    return zip(*(islice(words, start, None) for start in range(size)), strict=False)


def gram_count(words: Sequence[str], size: int) -> int:
    """Return the number of runs of `size` words."""
    return max(0, len(words) - size + 1)


def clipped_matches(candidate: Sequence[str], reference: Sequence[str], size: int) -> int:
    """Return the number of runs that both texts share, none more often than in the reference.

    Example:
        >>> clipped_matches(["the", "the", "the"], ["the", "cat", "the"], 1)
        2
    """
    left = Counter(grams(reference, size))
    found = 0
    for gram in grams(candidate, size):
        if left.get(gram):
            left[gram] -= 1
            found += 1
    return found

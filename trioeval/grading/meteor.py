"""METEOR: how well the words of a text can be laid beside those of a reference.

    METEOR = (1 - γ·(k/m)^β) · P·R / (αP + (1 - α)R)     P = m/c, R = m/r

Of c and r words, m are matched: first words that are equal, then words with the same stem, then synonyms.
k is the number of chunks, runs of matches that are side by side in both texts: the fewer, the less the
order differs. Even a text laid beside itself has one, so that short ones do not reach 1.

Banerjee, Lavie: METEOR, an automatic metric for MT evaluation with improved correlation with human
judgments (2005); with α 0.9, β 3, γ 0.5, those are its numbers. The paper wants the alignment with the
fewest crossings. This one takes, from the last word to the first, the last match that is still free, as
NLTK and promptfoo do. Synonyms are those of the words; NLTK and promptfoo look for those of the stems,
most of which are no words.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import pairwise
from typing import TypeAlias

import attrs

from trioeval.grading.ngrams import split_undotted_words

_LONGEST = 64
"""Characters of the longest word that has a stem; anything longer is no word."""

Numbered: TypeAlias = list[tuple[int, str]]
"""Words with their places."""
Synonyms: TypeAlias = Callable[[str], Iterable[str]]
Stem: TypeAlias = Callable[[str], str]


@attrs.frozen
class Weights:
    """What the parts of the score count."""

    alpha: float = 0.9
    """Share of recall in the mean of precision and recall, from 0 to 1."""
    beta: float = 3.0
    """How fast fewer chunks forgive, ≥ 0."""
    gamma: float = 0.5
    """What the worst order costs, from 0 to 1."""


STANDARD = Weights()


def meteor(
    candidate: str,
    references: Sequence[str],
    *,
    stem: Stem,
    synonyms: Synonyms = lambda _: (),
    weights: Weights = STANDARD,
) -> float:
    """How well a candidate can be laid beside one of its references, from 0 to 1: the best of them.

    A candidate without words has 0.

    Args:
        candidate: The text that is measured.
        references: What it is measured with, at least one.
        stem: The stem of a word in lower case.
        synonyms: Other words for one.
        weights: What the parts of the score count.

    Example:
        >>> round(meteor("the cat sat on the mat", ["on the mat sat the cat"], stem=str), 4)
        0.5
        >>> round(meteor("the cat sat", ["the cat was sat"], stem=str), 4)
        0.6553
    """
    ours = split_undotted_words(candidate)
    stem, synonyms = cache(stem), cache(synonyms)
    scores = []
    for reference in references:
        theirs = split_undotted_words(reference)
        pairs = _align(ours, theirs, stem, synonyms)
        scores.append(_score(pairs, len(ours), len(theirs), weights))
    return max(scores)


def _score(pairs: Sequence[tuple[int, int]], ours: int, theirs: int, weights: Weights) -> float:
    if not pairs:
        return 0.0
    precision, recall = len(pairs) / ours, len(pairs) / theirs
    mean = precision * recall / (weights.alpha * precision + (1 - weights.alpha) * recall)
    penalty = weights.gamma * math.pow(_chunks(pairs) / len(pairs), weights.beta)
    return (1 - penalty) * mean


def _chunks(pairs: Sequence[tuple[int, int]]) -> int:
    breaks = (following != (ours + 1, theirs + 1) for (ours, theirs), following in pairwise(pairs))
    return 1 + sum(breaks)


def _align(
    ours: Sequence[str], theirs: Sequence[str], stem: Stem, synonyms: Synonyms
) -> list[tuple[int, int]]:
    """The places of words that match, in order."""

    def stem_of(word: str) -> str:
        return stem(word) if len(word) <= _LONGEST else word

    def names_of(word: str) -> Iterable[str]:
        return {word, *synonyms(word)}

    pairs, left, free = _pair(list(enumerate(ours)), list(enumerate(theirs)), _only, str)
    for names, name in ((lambda word: (stem_of(word),), stem_of), (names_of, str)):
        if left and free:
            more, left, free = _pair(left, free, names, name)
            pairs += more
    return sorted(pairs)


def _only(word: str) -> tuple[str]:
    return (word,)


def _pair(
    ours: Numbered,
    theirs: Numbered,
    names: Callable[[str], Iterable[str]],
    name: Callable[[str], str],
) -> tuple[list[tuple[int, int]], Numbered, Numbered]:
    """Pairs where the name of a word of theirs is among those of ours; the rest of ours, and of theirs."""
    free: dict[str, list[int]] = {}
    for place, word in theirs:
        free.setdefault(name(word), []).append(place)
    pairs, left = [], []
    for place, word in reversed(ours):
        last = max((free[key] for key in names(word) if free.get(key)), default=None, key=_top)
        if last is None:
            left.append((place, word))
        else:
            pairs.append((place, last.pop()))
    taken = {found for _, found in pairs}
    return pairs, left[::-1], [(place, word) for place, word in theirs if place not in taken]


def _top(places: Sequence[int]) -> int:
    return places[-1]

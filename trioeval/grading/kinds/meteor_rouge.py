# Separate from `grading.kinds.similarity`: METEOR and ROUGE need packages that the other measures do not.
"""METEOR: the quality of the alignment of a text with a reference.

    METEOR = (1 - γ·(k/m)^β) · P·R / (αP + (1 - α)R)     P = m/c, R = m/r

Of c and r words, m are matched: first equal words, then words with the same stem, then synonyms. k is the
number of chunks, runs of matches that are adjacent in both texts: the fewer, the less the order differs. Even
a text aligned with itself has one chunk, so short texts do not reach 1.

Banerjee, Lavie: METEOR, an automatic metric for MT evaluation with improved correlation with human judgments
(2005); α 0.9, β 3, γ 0.5 give its numbers. The paper asks for the alignment with the fewest crossings. This
one takes, from the last word to the first, the last match that is still free, as NLTK and promptfoo do.
Synonyms are those of the words; NLTK and promptfoo look up those of the stems, most of which are not words.
"""

import functools
import importlib
import importlib.util
import math
import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, TypeAlias

import attrs

from trioeval.grading.kinds.ngrams import SPACE, clipped_matches, split_undotted_words

# ROUGE-1: the number of words that a text and its reference share, in any order.
#
#     ROUGE-1 = 2PR / (P + R)     P = m / c, R = m / r: m clipped matches, c and r words
#
# Lin: ROUGE, a package for automatic evaluation of summaries (2004), with the F measure of equal weights.
#
# Words are those of the Penn Treebank: punctuation is separate, "don't" is "do" and "n't". The rules are
# promptfoo's, which differ from the original script in how they distinguish opening from closing quotes.


_GAP = re.compile(f"[{SPACE}\x85]+")
_QUOTE = re.compile("``|''|\"")
_APART: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\.{3}"), " ... "),
    (re.compile(r"[:,](?!\d)"), r" \g<0> "),
    (re.compile(r"[;@#$%&]"), r" \g<0> "),
    # The final dot of the text, unless it belongs to letters such as "u.s".
    (re.compile(r"([^.])(?<!(?a:\b)[A-Za-z]\.[A-Za-z])(\.)([\])}>' ]*)\Z"), r"\1 \2\3 "),
    (re.compile(r"[?!\][(){}<>]|--"), r" \g<0> "),
)
_ENDINGS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"([^'])' "), r"\1 ' "),
    (re.compile(r"'([sSmMdD]) "), r" '\1 "),
    (re.compile(r"('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) "), r" \1 "),
)
_CONTRACTION = re.compile(
    "(can)(not)|(d)('ye)|(gim)(me)|(gon)(na)|(got)(ta)|(lem)(me)|(more)('n)|(wan)(na)(?= )"
    "|('t)(is)|('t)(was)",
    re.IGNORECASE,
)
_JOINERS = "\u200c\u200d"


def rouge_1(candidate: str, reference: str) -> float:
    """Return the share of words that two texts have in common, from 0 to 1; a text without words has 0.

    Example:
        >>> round(rouge_1("the cat sat on a mat", "the cat is on the mat"), 4)
        0.6667
    """
    ours, theirs = treebank_words(candidate.lower()), treebank_words(reference.lower())
    if not ours or not theirs:
        return 0.0
    matches = clipped_matches(ours, theirs, 1)
    low, high = sorted((matches / len(ours), matches / len(theirs)))
    # Computed in this order, a score equal to a threshold is on the same side of it as in promptfoo.
    return min(high, low * (2 / (1 + low / high))) if matches else 0.0


def treebank_words(text: str) -> list[str]:
    """Split a sentence into words as the Penn Treebank does.

    Example:
        >>> treebank_words('He said, "I cannot."')
        ['He', 'said', ',', '``', 'I', 'can', 'not', '.', "''"]
    """
    text = f" {_mark_quotes(_GAP.sub(' ', text).strip(' '))} "
    for pattern, apart in _APART:
        text = pattern.sub(apart, text)
    text = f" {text} "
    for pattern, apart in _ENDINGS:
        text = pattern.sub(apart, text)
    return [word for word in _CONTRACTION.sub(_contraction, text).split(" ") if word]


def _mark_quotes(text: str) -> str:
    """Return the text with each double quote, in any form, as an opening or a closing one."""
    inside = False

    def mark(quote: re.Match[str]) -> str:
        nonlocal inside
        inside = quote[0] == "``" or (not inside and _opens(text, quote))
        return " `` " if inside else " '' "

    return _QUOTE.sub(mark, text)


def _opens(text: str, quote: re.Match[str]) -> bool:
    at = quote.start()
    before = text[at - 1 : at]
    kind = unicodedata.category(before) if before else ""
    if quote.end() == len(text) and not (before in {"", " ", "<"} or kind == "Ps"):
        return False
    if before in {".", "!", "?"}:
        return False
    if not (
        before in {"", " ", "<"} or kind.startswith("P") or text.startswith("``", max(0, at - 2))
    ):
        return False
    return quote[0] == '"' or _opens_in_apostrophes(text, at)


def _opens_in_apostrophes(text: str, at: int) -> bool:
    after = text[at + 2 : at + 3]
    kind = unicodedata.category(after) if after else ""
    if at == 0 or not (kind.startswith(("L", "N")) or kind in {"Sc", "Ps"}):
        return False
    following = _QUOTE.search(text, at + 2)
    return following is not None and following[0] == "''"


def _contraction(found: re.Match[str]) -> str:
    around = (found.string[found.start() - 1], found.string[found.end() : found.end() + 1])
    if any(_continues_a_word(character) for character in around):
        return found[0]
    last = found.lastindex or 0
    return f" {found[last - 1]} {found[last]} "


def _continues_a_word(character: str) -> bool:
    return character != "" and (character in _JOINERS or f"a{character}".isidentifier())


# Synonyms from WordNet, if NLTK and its data are installed. Nothing is ever downloaded.


_READING = threading.Lock()
"""NLTK's reader has one position in its files, and judges may run in threads."""


@functools.cache
def find_synonyms() -> Callable[[str], frozenset[str]] | None:
    """Return a function for the synonyms of a word, each as one word; None without the data.

    Reading WordNet takes seconds, but only the first time.
    """
    if importlib.util.find_spec("nltk") is None:
        return None
    wordnet: Any = importlib.import_module("nltk.corpus").wordnet
    with _READING:
        try:
            wordnet.ensure_loaded()
        except LookupError:
            return None

    def synonyms(word: str) -> frozenset[str]:
        with _READING:
            names = [name for synset in wordnet.synsets(word) for name in synset.lemma_names()]
        return frozenset(name for name in names if "_" not in name)

    return synonyms


_LONGEST = 64
"""Most characters of a word with a stem; anything longer is not a word."""

Numbered: TypeAlias = list[tuple[int, str]]
"""Words with their positions."""
Synonyms: TypeAlias = Callable[[str], Iterable[str]]
Stem: TypeAlias = Callable[[str], str]


@attrs.frozen
class Weights:
    """The weights of the parts of the score."""

    alpha: float = 0.9
    """Share of recall in the mean of precision and recall, from 0 to 1."""
    beta: float = 3.0
    """The exponent of the chunk penalty, ≥ 0."""
    gamma: float = 0.5
    """The largest penalty, from 0 to 1."""


STANDARD = Weights()


def meteor(
    candidate: str,
    references: Sequence[str],
    *,
    stem: Stem,
    synonyms: Synonyms = lambda _: (),
    weights: Weights = STANDARD,
) -> float:
    """Return the best score of a candidate over several references, from 0 to 1.

    A candidate without words has 0.

    Args:
        candidate: The text.
        references: The references, at least one.
        stem: Returns the stem of a word in lower case.
        synonyms: Returns the synonyms of a word.
        weights: The weights of the parts of the score.

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
    """Return the positions of matching words, in order."""

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
    """Pair words of theirs with those of ours that have the same name; return the pairs and both rests."""
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

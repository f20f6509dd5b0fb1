"""GLEU: how many runs of up to four words a text and its reference have in common.

    GLEU = min(m / c, m / r)     m clipped matches, c and r n-grams of the two, n = 1 … 4 pooled

Wu and others: Google's neural machine translation system (2016), section 4.3. It is symmetric, and unlike
BLEU made for single texts. As promptfoo has it, words are lower-cased and lose the dots at their end.
"""

from collections.abc import Sequence

from trioeval.grading.ngrams import clipped_matches, gram_count, split_undotted_words

ORDERS = range(1, 5)


def gleu(candidate: str, references: Sequence[str]) -> float:
    """How much a candidate and one of its references have in common, from 0 to 1: the best of them.

    A candidate without words has 0.

    Args:
        candidate: The text that is measured.
        references: What it is measured with, at least one.

    Example:
        >>> round(gleu("the cat sat on a mat", ["the cat is on the mat"]), 5)
        0.27778
        >>> gleu("The cat.", ["the cat"])
        1.0
    """
    words = split_undotted_words(candidate)
    if not words:
        return 0.0
    return max(_gleu(words, split_undotted_words(reference)) for reference in references)


def _gleu(candidate: Sequence[str], reference: Sequence[str]) -> float:
    if not reference:
        return 0.0
    matches = sum(clipped_matches(candidate, reference, order) for order in ORDERS)
    counts = (sum(gram_count(words, order) for order in ORDERS) for words in (candidate, reference))
    return matches / max(counts)

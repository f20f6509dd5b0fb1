"""BLEU of one text: how much of it, in runs of up to four words, stands in a reference.

    BLEU = B · exp( Σ w·log pₙ )            n = 1 … 4
    pₙ   = clipped matches of n-grams / n-grams of the candidate
    B    = exp(1 - r/c) for c ≤ r, else 1    c words in the candidate, r in the closest reference

Papineni, Roukos, Ward, Zhu: BLEU, a method for automatic evaluation of machine translation (ACL 2002). That
is a measure of whole corpora; for single texts, and as promptfoo has it:

* Orders for which the candidate is too short are left out and the others share their weight.
* A precision of zero counts as 1e-7, so that the logarithm exists.
* Each order takes the reference that suits it best. (The paper clips by all of them at once.)
* Of two references that are equally close in length the shorter counts.
"""

import math
from collections.abc import Sequence

from trioeval.grading.ngrams import clipped_matches, gram_count, is_blank, split_words

ORDERS = range(1, 5)
_NEARLY_NOTHING = 1e-7


def bleu(candidate: str, references: Sequence[str]) -> float:
    """How much of a candidate stands in its references, from 0 to 1; a blank candidate has 0.

    Args:
        candidate: The text that is measured.
        references: What it is measured with, at least one.

    Example:
        >>> round(bleu("the cat sat on a mat", ["the cat is on the mat", "a cat sat on a mat"]), 5)
        0.75984
        >>> round(bleu("cat", ["the cat"]), 5)
        0.36788
    """
    if is_blank(candidate):
        return 0.0
    words = split_words(candidate)
    others = [split_words(reference) for reference in references]
    precisions = [
        max(clipped_matches(words, other, order) for other in others) / count
        for order in ORDERS
        if (count := gram_count(words, order))
    ]
    weight = 1 / len(precisions)
    exponent = sum(weight * math.log(precision or _NEARLY_NOTHING) for precision in precisions)
    closest = min((abs(len(other) - len(words)), len(other)) for other in others)[1]
    return _brevity(len(words), closest) * math.exp(exponent)


def _brevity(words: int, wanted: int) -> float:
    return 1.0 if words > wanted else math.exp(1 - wanted / words)

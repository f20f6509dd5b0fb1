"""Types that measure the similarity of an output and a reference, without a model."""

import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from trioeval.errors import GradingError, Problem
from trioeval.grading.kind import SLOW_AT_ONCE, Extra, Finding, Kind, Kinds, is_any_text
from trioeval.grading.kinds.meteor_rouge import STANDARD, Weights, find_synonyms, meteor, rouge_1
from trioeval.grading.kinds.ngrams import (
    clipped_matches,
    gram_count,
    is_blank,
    split_undotted_words,
    split_words,
)
from trioeval.grading.model import Assertion
from trioeval.grading.subject import Subject
from trioeval.text import number_text, quote, score_text

# BLEU of one text: the share of its runs of up to four words that occur in a reference.
#
#     BLEU = B · exp( Σ w·log pₙ )            n = 1 … 4
#     pₙ   = clipped matches of n-grams / n-grams of the candidate
#     B    = exp(1 - r/c) for c ≤ r, else 1    c words in the candidate, r in the closest reference
#
# Papineni, Roukos, Ward, Zhu: BLEU, a method for automatic evaluation of machine translation (ACL 2002). That
# is a measure of whole corpora; for single texts, and as in promptfoo:
#
# * Orders for which the candidate is too short are left out and the others share their weight.
# * A precision of zero counts as 1e-7, so that the logarithm exists.
# * Each order uses its best reference. (The paper clips by all of them at once.)
# * Of two references that are equally close in length the shorter counts.


ORDERS = range(1, 5)
_NEARLY_NOTHING = 1e-7


def bleu(candidate: str, references: Sequence[str]) -> float:
    """Return the BLEU score of a candidate, from 0 to 1; a blank candidate has 0.

    Args:
        candidate: The text.
        references: The references, at least one.

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


def _brevity(words: int, reference: int) -> float:
    return 1.0 if words > reference else math.exp(1 - reference / words)


# GLEU: the runs of up to four words that a text and its reference share.
#
#     GLEU = min(m / c, m / r)     m clipped matches, c and r n-grams of the two, n = 1 … 4 pooled
#
# Wu and others: Google's neural machine translation system (2016), section 4.3. It is symmetric, and unlike
# BLEU made for single texts. As in promptfoo, words are lower-cased and lose the dots at their ends.


GLEU_ORDERS = range(1, 5)


def gleu(candidate: str, references: Sequence[str]) -> float:
    """Return the GLEU score of a candidate, from 0 to 1, with its best reference.

    A candidate without words has 0.

    Args:
        candidate: The text.
        references: The references, at least one.

    Example:
        >>> round(gleu("the cat sat on a mat", ["the cat is on the mat"]), 5)
        0.27778
        >>> gleu("The cat.", ["the cat"])
        1.0
    """
    words = split_undotted_words(candidate)
    if not words:
        return 0.0
    return max(_gleu_gleu(words, split_undotted_words(reference)) for reference in references)


def _gleu_gleu(candidate: Sequence[str], reference: Sequence[str]) -> float:
    if not reference:
        return 0.0
    matches = sum(clipped_matches(candidate, reference, order) for order in GLEU_ORDERS)
    counts = (
        sum(gram_count(words, order) for order in GLEU_ORDERS) for words in (candidate, reference)
    )
    return matches / max(counts)


_ROUGE_ENOUGH = 0.75
_ENOUGH = 0.5
_LONGEST = 500_000
"""Most characters of a text, so that counting its words takes at most a second."""
_MOST = {"alpha": 1.0, "beta": math.inf, "gamma": 1.0}


def _rouge(subject: Subject, value: Any, assertion: Assertion) -> Finding:
    score = rouge_1(subject.text, *_references(value))
    return _measured("ROUGE-1 score", score, assertion, enough=_ROUGE_ENOUGH)


def _bleu(subject: Subject, value: Any, assertion: Assertion) -> Finding:
    score = bleu(subject.text, _references(value))
    return _measured("BLEU score", score, assertion, enough=_ENOUGH)


def _gleu(subject: Subject, value: Any, assertion: Assertion) -> Finding:
    score = gleu(subject.text, _references(value))
    return _measured("GLEU score", score, assertion, enough=_ENOUGH)


def _meteor(subject: Subject, value: Any, assertion: Assertion) -> Finding:
    for problem in _weight_problems(assertion):
        msg = f"{problem.path} {problem.message}"
        raise GradingError(msg)
    synonyms = find_synonyms()
    score = meteor(
        subject.text,
        _references(value),
        stem=_stemmer(),
        synonyms=synonyms or (lambda _: ()),
        weights=_weights(assertion),
    )
    measure = (
        "METEOR score (without synonyms, because WordNet is missing)"
        if not synonyms
        else "METEOR score"
    )
    return _measured(measure, score, assertion, enough=_ENOUGH)


def _stemmer() -> Callable[[str], str]:
    # A stemmer has state: each judge has its own.
    stemmers: Any = importlib.import_module("snowballstemmer")
    stem: Callable[[str], str] = stemmers.stemmer("porter").stemWord
    return stem


def _measured(measure: str, score: float, assertion: Assertion, *, enough: float) -> Finding:
    threshold = enough if assertion.threshold is None else assertion.threshold
    holds = score >= threshold
    verb = "reaches" if holds else "is below"
    shown = score_text(score, threshold)
    reason = f"the {measure} {shown} {verb} the threshold {number_text(threshold)}"
    return Finding(holds, reason, score=score)


def _references(value: Any) -> list[str]:
    references = [value] if isinstance(value, str) else list(value)
    size = sum(map(len, references))
    if size > _LONGEST:
        msg = f"the value has {size:,} characters; up to {_LONGEST:,} are compared"
        raise GradingError(msg)
    return references


def _is_text_or_texts(value: Any) -> bool:
    listed = isinstance(value, list | tuple) and len(value) > 0
    return isinstance(value, str) or (listed and all(map(is_any_text, value)))


def _check_threshold(assertion: Assertion) -> Iterator[Problem]:
    if assertion.threshold is not None and assertion.threshold < 0:
        hint = "scores are from 0 to 1"
        yield Problem(".threshold", f"must be 0 or more, got {quote(assertion.threshold)}", hint)


def _check_meteor(assertion: Assertion) -> Iterator[Problem]:
    yield from _check_threshold(assertion)
    yield from _weight_problems(assertion)


def _weight_problems(assertion: Assertion) -> Iterator[Problem]:
    for name, most in _MOST.items():
        weight = (assertion.config or {}).get(name)
        number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if weight is not None and not (number and 0 <= weight <= most and math.isfinite(weight)):
            span = "from 0 to 1" if math.isfinite(most) else "0 or more"
            yield Problem(f".config.{name}", f"must be a number {span}, got {quote(weight)}")


def _weights(assertion: Assertion) -> Weights:
    config = assertion.config or {}
    given = {name: config[name] for name in _MOST if config.get(name) is not None}
    return Weights(**given) if given else STANDARD


_kind = partial(Kind, at_once=SLOW_AT_ONCE, longest=_LONGEST)
_TEXT_OR_TEXTS = "text, or a list of texts that is not empty"

KINDS: Kinds = {
    "bleu": _kind(_TEXT_OR_TEXTS, _is_text_or_texts, _bleu, check=_check_threshold),
    "gleu": _kind(_TEXT_OR_TEXTS, _is_text_or_texts, _gleu, check=_check_threshold),
    "meteor": _kind(
        _TEXT_OR_TEXTS,
        _is_text_or_texts,
        _meteor,
        check=_check_meteor,
        requires=Extra("metrics", "snowballstemmer"),
    ),
    "rouge-n": _kind("text", is_any_text, _rouge, check=_check_threshold),
}

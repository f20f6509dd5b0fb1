"""Types that measure how similar an output is to a reference, without a model."""

import importlib
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from trioeval.errors import GradingError, Problem
from trioeval.grading.bleu import bleu
from trioeval.grading.gleu import gleu
from trioeval.grading.kind import SLOW_AT_ONCE, Extra, Finding, Kind, Kinds
from trioeval.grading.meteor import STANDARD, Weights, meteor
from trioeval.grading.model import Assertion
from trioeval.grading.rouge import rouge_1
from trioeval.grading.subject import Subject
from trioeval.grading.synonyms import find_synonyms
from trioeval.grading.text import number_text, quote, score_text

_ROUGE_ENOUGH = 0.75
_ENOUGH = 0.5
_LONGEST = 500_000
"""Characters of a text, so that counting its words takes a second at most."""
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
    what = "METEOR score" if synonyms else "METEOR score, without synonyms as WordNet is missing,"
    return _measured(what, score, assertion, enough=_ENOUGH)


def _stemmer() -> Callable[[str], str]:
    # A stemmer has a state: each judge has its own.
    stemmers: Any = importlib.import_module("snowballstemmer")
    stem: Callable[[str], str] = stemmers.stemmer("porter").stemWord
    return stem


def _measured(what: str, score: float, assertion: Assertion, *, enough: float) -> Finding:
    threshold = enough if assertion.threshold is None else assertion.threshold
    holds = score >= threshold
    verb = "reaches" if holds else "is below"
    shown = score_text(score, threshold)
    reason = f"the {what} {shown} {verb} the threshold {number_text(threshold)}"
    return Finding(holds, reason, score=score)


def _references(value: Any) -> list[str]:
    references = [value] if isinstance(value, str) else list(value)
    size = sum(map(len, references))
    if size > _LONGEST:
        msg = f"the value has {size:,} characters; up to {_LONGEST:,} are compared"
        raise GradingError(msg)
    return references


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_text_or_texts(value: Any) -> bool:
    listed = isinstance(value, list | tuple) and len(value) > 0
    return isinstance(value, str) or (listed and all(map(_is_text, value)))


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
    "rouge-n": _kind("text", _is_text, _rouge, check=_check_threshold),
}

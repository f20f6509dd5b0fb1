"""Types that compare the text of an output with another text."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trioeval.errors import GradingError, Problem
from trioeval.grading.kind import Finding, Kind, Kinds, SlowError
from trioeval.grading.lists import SPACES, is_list, texts_of
from trioeval.grading.model import Assertion
from trioeval.grading.pattern_search import found_at_once, found_in_time
from trioeval.grading.refusal import is_refusal
from trioeval.grading.regex import compile_javascript
from trioeval.grading.subject import Subject
from trioeval.grading.text import (
    is_template,
    number_text,
    output_text,
    parse_json,
    quote,
    same_json,
)

_IN_ANY_CASE = " in any case"
_EDITS = 5
"""How many edits may lie between two texts where nobody says how many."""
_COMPARISONS = 3_000_000_000
"""Of characters, for counting edits; takes about a tenth of a second, because many are made at once, and
nothing else runs meanwhile."""
_WORD = re.compile(f"[^{SPACES}]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?")


def _equals(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    if value is None or isinstance(value, list | tuple | Mapping):
        try:
            holds = same_json(parse_json(subject.text), value)
        except ValueError:
            holds = False
    else:
        holds = subject.text == output_text(value)
    return _finding("equals" if holds else "does not equal", quote(value), holds=holds)


def _contains(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    holds = output_text(value) in subject.text
    return _finding("contains" if holds else "does not contain", quote(value), holds=holds)


def _icontains(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    holds = output_text(value).lower() in subject.text.lower()
    what = f"{quote(value)}{_IN_ANY_CASE}"
    return _finding("contains" if holds else "does not contain", what, holds=holds)


def _starts_with(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    holds = subject.text.startswith(value)
    return _finding("starts with" if holds else "does not start with", quote(value), holds=holds)


def _contains_any(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    return _any_of(subject.text, texts_of(value), "")


def _icontains_any(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    return _any_of(subject.text.lower(), _lower(texts_of(value)), _IN_ANY_CASE)


def _contains_all(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    return _all_of(subject.text, texts_of(value), "")


def _icontains_all(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    return _all_of(subject.text.lower(), _lower(texts_of(value)), _IN_ANY_CASE)


def _lower(texts: Sequence[str]) -> Sequence[str]:
    return [text.lower() for text in texts]


def _any_of(output: str, texts: Sequence[str], how: str) -> Finding:
    found = next((text for text in texts if text in output), None)
    if found is None:
        return _finding("contains", f"none of {quote(texts)}{how}", holds=False)
    return _finding("contains", f"{quote(found)}{how}", holds=True)


def _all_of(output: str, texts: Sequence[str], how: str) -> Finding:
    missing = [text for text in texts if text not in output]
    if missing:
        return _finding("does not contain", f"{quote(missing[0])}{how}", holds=False)
    return _finding("contains", f"all of {quote(texts)}{how}", holds=True)


def _levenshtein(subject: Subject, value: str, assertion: Assertion) -> Finding:
    from rapidfuzz.distance import Levenshtein  # noqa: PLC0415 - few suites need it

    most = _EDITS if assertion.threshold is None else assertion.threshold
    cutoff = max(0, math.floor(min(most, len(subject.text) + len(value))))
    rows, width = sorted((len(subject.text), len(value)))
    # Whoever differs in length by more is told apart at once.
    if width - rows <= cutoff and width * min(rows, 2 * cutoff + 1) > _COMPARISONS:
        msg = f"the texts are too long to count edits up to {number_text(most)}"
        raise GradingError(msg)
    holds = Levenshtein.distance(subject.text, value, score_cutoff=cutoff) <= most
    relation = "at most" if holds else "more than"
    return _finding("is", f"{relation} {number_text(most)} edits from {quote(value)}", holds=holds)


def _word_count(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    least, most = _bounds(value)
    count = sum(1 for _ in _WORD.finditer(subject.text))  # no call is long: other threads go on
    words = "1 word" if count == 1 else f"{count} words"
    asked = f"{_range_text(least, most)} is asked for"
    return _finding("has", f"{words}; {asked}", holds=least <= count <= most)


def _bounds(value: Any) -> tuple[float, float]:
    """The least and the largest number of words; raises `ValueError` where there are none."""
    if not isinstance(value, Mapping):
        exact = _number(value)
        return exact, exact
    least, most = (value.get(key) for key in ("min", "max"))
    if value.keys() - {"min", "max"} or (least is None and most is None):
        msg = "min or max, and nothing else"
        raise ValueError(msg)
    bounds = (
        -math.inf if least is None else _number(least),
        math.inf if most is None else _number(most),
    )
    if bounds[0] > bounds[1]:
        msg = "min is more than max"
        raise ValueError(msg)
    return bounds


def _number(value: Any) -> float:
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip(SPACES)):
        return float(value.strip(SPACES))
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        msg = f"{quote(value)} is no number"
        raise ValueError(msg)
    return value


def _range_text(least: float, most: float) -> str:
    if least == most:
        return number_text(least)
    if most == math.inf:
        return f"at least {number_text(least)}"
    if least == -math.inf:
        return f"at most {number_text(most)}"
    return f"{number_text(least)} to {number_text(most)}"


def _is_number_of_words(value: Any) -> bool:
    try:
        _bounds(value)
    except (ValueError, OverflowError):
        return False
    return True


def _is_refusal(subject: Subject, _value: Any, _assertion: Assertion) -> Finding:
    if not isinstance(subject.output, str):
        return _finding("is", "no text, which counts as a refusal", holds=True)
    holds = is_refusal(subject.output)
    return _finding("is" if holds else "is not", "a refusal", holds=holds)


def _regex(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    try:
        pattern = compile_javascript(value)
    except ValueError as error:
        return Finding(holds=False, reason=regex_fault(value, error), invertible=False)

    def finish() -> Finding:
        return _matched(value, holds=found_in_time(pattern, subject.text, written=value))

    holds = found_at_once(pattern, subject.text)
    if holds is None:
        raise SlowError(finish)
    return _matched(value, holds=holds)


def _matched(value: str, *, holds: bool) -> Finding:
    return _finding("matches" if holds else "does not match", quote(value), holds=holds)


def regex_fault(pattern: str, error: ValueError) -> str:
    """The sentence for a pattern that cannot be compiled."""
    return f"{quote(pattern)} is not a regular expression that can be used: {error}"


def _finding(verb: str, what: str, *, holds: bool) -> Finding:
    return Finding(holds=holds, reason=f"the output {verb} {what}")


def _anything(_value: Any) -> bool:
    return True


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_text_or_number(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number or _is_text(value)


def _is_any_text(value: Any) -> bool:
    return isinstance(value, str)


_TEXT = "text that is not empty"
_LIST = 'a list that is not empty, or texts with commas between them and "…" around one with a comma in it'
_WORDS = "a number of words, or {min, max}, one of them at least, with min ≤ max"


def _check_pattern(assertion: Assertion) -> Iterator[Problem]:
    if is_template(assertion.value):
        return
    try:
        compile_javascript(assertion.value)
    except ValueError as error:
        hint = "patterns are those of JavaScript, without flags"
        yield Problem(".value", regex_fault(assertion.value, error), hint)


KINDS: Kinds = {
    "contains": Kind(f"{_TEXT}, or a number", _is_text_or_number, _contains),
    "contains-all": Kind(_LIST, is_list, _contains_all),
    "contains-any": Kind(_LIST, is_list, _contains_any),
    "equals": Kind("any value, null included", _anything, _equals),
    "icontains": Kind(f"{_TEXT}, or a number", _is_text_or_number, _icontains),
    "icontains-all": Kind(_LIST, is_list, _icontains_all),
    "icontains-any": Kind(_LIST, is_list, _icontains_any),
    "is-refusal": Kind("left out", _anything, _is_refusal, bare=True),
    "levenshtein": Kind("text", _is_any_text, _levenshtein),
    "regex": Kind(_TEXT, _is_text, _regex, check=_check_pattern),
    "starts-with": Kind(_TEXT, _is_text, _starts_with),
    "word-count": Kind(_WORDS, _is_number_of_words, _word_count),
}

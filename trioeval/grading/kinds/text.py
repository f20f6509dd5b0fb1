"""Types that compare the text of an output with another text."""

import functools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Any

from trioeval.errors import GradingError, Problem
from trioeval.grading.kind import (
    Finding,
    Kind,
    Kinds,
    SlowError,
    expectation,
    is_any_text,
    is_anything,
    is_text,
)
from trioeval.grading.model import Assertion
from trioeval.grading.patterns import Pattern, compile_javascript, found_at_once, found_in_time
from trioeval.grading.subject import Subject
from trioeval.text import is_template, number_text, output_text, parse_json, quote, same_json

# Lists of texts that are written as one text, with commas.


SPACES = (
    "\t\n\v\f\r \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""White space: the characters of JavaScript, not those of Python."""

_BEFORE = re.compile(f"[{SPACES},]*")
_ELEMENT = re.compile(
    rf'"(?P<quoted>(?:[^"\\]|\\.|"")*)"[{SPACES}]*(?:,|\Z)|(?P<plain>[^",][^,]*)', re.DOTALL
)
_ESCAPE = re.compile(r'\\(["\\])|""')


def comma_list(text: str) -> list[str]:
    r"""Split a list as text: elements are separated by commas, those with a comma in them are quoted.

    Raises:
        ValueError: A quote is never closed, or text follows one.

    Example:
        >>> comma_list('alpha, "x, y" ,, beta')
        ['alpha', 'x, y', 'beta']
    """
    elements: list[str] = []
    at = _end(_BEFORE.match(text))
    while at < len(text):
        found = _ELEMENT.match(text, at)
        if found is None:
            msg = f"the quotes in {quote(text)} do not match"
            raise ValueError(msg)
        if found["plain"] is not None:
            elements.append(found["plain"].strip(SPACES))
        else:
            elements.append(_ESCAPE.sub(lambda escape: escape[1] or '"', found["quoted"]))
        at = _end(_BEFORE.match(text, found.end()))
    return elements


def texts_of(value: Any) -> Sequence[str]:
    """Return the texts of a value: of a list of anything, or of a list as text.

    Raises:
        ValueError: It is not a list, or its quotes do not match.

    Example:
        >>> texts_of(["a", 1.0, None]), texts_of("a, b")
        (['a', '1', 'null'], ['a', 'b'])
    """
    if isinstance(value, str):
        return comma_list(value)
    if not isinstance(value, list | tuple):
        msg = f"{quote(value)} is not a list"
        raise ValueError(msg)  # noqa: TRY004 - the same to the caller
    return [output_text(element) for element in value]


def is_list(value: Any) -> bool:
    """Return True for a list, or one as text that is not empty."""
    try:
        texts_of(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return bool(value != "")


def _end(found: re.Match[str] | None) -> int:
    return 0 if found is None else found.end()


# Refusals, recognized by phrases that they begin with or contain.
#
# The phrases are data, in refusal.json: lower-case, with straight apostrophes; a name in braces stands for
# each of several phrases.


_APOSTROPHES = str.maketrans("’′", "''")
_PIECE = 65_536
_LONGER = 256
"""More characters than any phrase has."""
_PLACE = re.compile(r"\{([^}]*)\}")


def is_refusal(text: str) -> bool:
    """Return True for a refusal; a blank text is one.

    Example:
        >>> is_refusal("I’m sorry, but that is not for me."), is_refusal("Sure, here it is.")
        (True, False)
    """
    text = text.strip(SPACES)
    begins, says = _patterns()
    lowered = text.lower().translate(_APOSTROPHES)
    return not lowered or begins.match(lowered) is not None or _searched(says, lowered)


def _searched(says: re.Pattern[str], text: str) -> bool:
    """Search a text for a phrase, piece by piece, so that other threads can run."""
    for start in range(0, len(text), _PIECE):
        end = start + _PIECE + _LONGER
        found = says.search(text, start, end)
        # A match at the end of a piece may be part of a longer word; the next piece has it as well.
        if found is not None and (found.end() < end or end >= len(text)):
            return True
    return False


@functools.cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    data = json.loads(files("trioeval.grading").joinpath("refusal.json").read_text("utf-8"))
    begins, says = (_pattern(data[part], data["where"]) for part in ("begins", "says"))
    return re.compile(begins), re.compile(rf"\b{says}\b", re.ASCII)


def _pattern(phrases: Sequence[str], where: Mapping[str, Sequence[str]]) -> str:
    return _any(_written(phrase, where) for phrase in phrases)


def _written(phrase: str, where: Mapping[str, Sequence[str]]) -> str:
    text, *rest = _PLACE.split(phrase)
    pieces = [re.escape(text)]
    for name, after in zip(rest[::2], rest[1::2], strict=True):
        pieces += _any(map(re.escape, where[name])), re.escape(after)
    return "".join(pieces)


def _any(patterns: Iterable[str]) -> str:
    return f"(?:{'|'.join(patterns)})"


_EDITS = 5
"""Default for the most edits between two texts."""
_COMPARISONS = 3_000_000_000
"""Most comparisons of characters for counting edits; about a tenth of a second, because many are made at
once, and no other thread runs meanwhile."""
_WORD = re.compile(f"[^{SPACES}]+")
_WHOLE_NUMBER = re.compile(r"0(?:[xX][0-9A-Fa-f]{1,9}|[oO][0-7]{1,9}|[bB][01]{1,30})")
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


def _starts_with(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    holds = subject.text.startswith(value)
    return _finding("starts with" if holds else "does not start with", quote(value), holds=holds)


def _searching(prefix: str, fold: Callable[[str], str], how: str = "") -> Kinds:
    """Make the types that search an output for texts.

    Args:
        prefix: The prefix of their names.
        fold: Maps texts that count as equal to the same text.
        how: Describes that, for messages.
    """

    def contains(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
        holds = fold(output_text(value)) in fold(subject.text)
        verb = "contains" if holds else "does not contain"
        return _finding(verb, f"{quote(value)}{how}", holds=holds)

    def contains_any(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
        texts, output = list(map(fold, texts_of(value))), fold(subject.text)
        found = next((text for text in texts if text in output), None)
        texts_shown = f"any of {quote(texts)}" if found is None else quote(found)
        verb = "contains" if found is not None else "does not contain"
        return _finding(verb, f"{texts_shown}{how}", holds=found is not None)

    def contains_all(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
        texts, output = list(map(fold, texts_of(value))), fold(subject.text)
        missing = next((text for text in texts if text not in output), None)
        if missing is not None:
            return _finding("does not contain", f"{quote(missing)}{how}", holds=False)
        return _finding("contains", f"all of {quote(texts)}{how}", holds=True)

    several = partial(Kind, _LISTS, is_list, tolerant=True, warn=_warn_of_empty_list)
    return {
        f"{prefix}contains": Kind(_NUMBER_TOO, _is_text_or_number, contains, tolerant=True),
        f"{prefix}contains-all": several(contains_all),
        f"{prefix}contains-any": several(contains_any),
    }


def _warn_of_empty_list(assertion: Assertion) -> Iterator[Problem]:
    if not texts_of(assertion.value):
        base = assertion.type.removeprefix("not-")
        always = "nothing" if base.endswith("any") else "every output"
        yield Problem(".value", f"the list is empty: {base} holds for {always}")


def _levenshtein(subject: Subject, value: str, assertion: Assertion) -> Finding:
    from rapidfuzz.distance import Levenshtein

    most = _EDITS if assertion.threshold is None else assertion.threshold
    cutoff = max(0, math.floor(min(most, len(subject.text) + len(value))))
    rows, width = sorted((len(subject.text), len(value)))
    # Texts whose lengths differ by more need no count.
    if width - rows <= cutoff and width * min(rows, 2 * cutoff + 1) > _COMPARISONS:
        msg = f"the texts are too long to count edits up to {number_text(most)}"
        raise GradingError(msg)
    holds = Levenshtein.distance(subject.text, value, score_cutoff=cutoff) <= most
    relation = "at most" if holds else "more than"
    edits = f"{number_text(most)} edit{'' if most == 1 else 's'}"
    return _finding("is", f"{relation} {edits} from {quote(value)}", holds=holds)


def _word_count(subject: Subject, value: Any, assertion: Assertion) -> Finding:
    least, most = _bounds(value)
    count = sum(1 for _ in _WORD.finditer(subject.text))  # no call is long: other threads go on
    words = "1 word" if count == 1 else f"{count} words"
    expected = expectation(assertion, _range_text(least, most))
    return _finding("has", f"{words}, {expected}", holds=least <= count <= most)


def _bounds(value: Any) -> tuple[float, float]:
    """Return the least and the largest number of words; raise `ValueError` if there are none."""
    if not isinstance(value, Mapping):
        exact = _number(value)
        return exact, exact
    least, most = (value.get(key) for key in ("min", "max"))
    if least is None and most is None:
        msg = "it has neither min nor max"
        raise ValueError(msg)
    bounds = (
        -math.inf if least is None else _number(least),
        math.inf if most is None else _number(most),
    )
    if bounds[0] > bounds[1]:
        msg = "min is greater than max"
        raise ValueError(msg)
    return bounds


def _number(value: Any) -> float:
    if isinstance(value, str):
        value = _number_of(value.strip(SPACES))
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        msg = f"{quote(value)} is not a number"
        raise ValueError(msg)
    return value


def _number_of(text: str) -> float | None:
    """Return the number of a text, as JavaScript converts it; None for other texts."""
    if _NUMBER.fullmatch(text):
        return float(text)
    if _WHOLE_NUMBER.fullmatch(text):
        return int(text, 0)
    return None if text else 0


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
        return _finding("is", "not text, which counts as a refusal", holds=True)
    holds = is_refusal(subject.output)
    return _finding("is" if holds else "is not", "a refusal", holds=holds)


def _regex(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    pattern = usable_pattern(value)
    if isinstance(pattern, Finding):
        return pattern

    def finish() -> Finding:
        return _matched(value, holds=found_in_time(pattern, subject.text))

    holds = found_at_once(pattern, subject.text)
    if holds is None:
        raise SlowError(finish)
    return _matched(value, holds=holds)


def _matched(value: str, *, holds: bool) -> Finding:
    return _finding("matches" if holds else "does not match", quote(value), holds=holds)


def usable_pattern(written: str) -> Pattern | Finding:
    """Compile a pattern, or return the finding of an invalid one."""
    try:
        return compile_javascript(written)
    except ValueError as error:
        reason = f"{quote(written)} is not a valid regular expression: {error}"
        return Finding(holds=False, reason=reason, invertible=False)


def pattern_problems(at: str, written: Any) -> Iterator[Problem]:
    """Yield the problems of a pattern at a path, unless it is a template."""
    pattern = None if is_template(written) else usable_pattern(written)
    if isinstance(pattern, Finding):
        yield Problem(at, pattern.reason, "patterns are those of JavaScript, without flags")


def _finding(verb: str, object_text: str, *, holds: bool) -> Finding:
    # The output itself is not quoted: results may be written without outputs.
    return Finding(holds=holds, reason=f"the output {verb} {object_text}")


def _is_text_or_number(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number or is_text(value)


_TEXT = "text that is not empty"
_NUMBER_TOO = f"{_TEXT}, or a number"
_LISTS = 'a list, or texts separated by commas, with "…" around one that has a comma in it'
_WORDS = "a number of words, or {min, max}, at least one of them, with min ≤ max"


_ESCAPED = re.compile(r"(?s)(\\[pPu]\{[^{}]*\})|\\.")
"""A property or a code point, which both need the flag `u`; or another escape."""


def _check_pattern(assertion: Assertion) -> Iterator[Problem]:
    yield from pattern_problems(".value", assertion.value)


def _warn_of_property(assertion: Assertion) -> Iterator[Problem]:
    found = next((one[1] for one in _ESCAPED.finditer(assertion.value) if one[1]), None)
    if found is not None:
        message = f"{found} has no special meaning, because patterns have no flags"
        yield Problem(".value", message, "list the characters, as in [a-zà-ÿ]")


def _warn_of_unknown_keys(assertion: Assertion) -> Iterator[Problem]:
    value = assertion.value
    for key in value.keys() - {"min", "max"} if isinstance(value, Mapping) else ():
        yield Problem(f".value.{key}", "it has no effect: only min and max are known")


KINDS: Kinds = {
    **_searching("", str),
    **_searching("i", str.lower, " (ignoring case)"),
    "equals": Kind("any value, null included", is_anything, _equals),
    "is-refusal": Kind("left out", is_anything, _is_refusal, bare=True),
    "levenshtein": Kind("text", is_any_text, _levenshtein, tolerant=True),
    "regex": Kind(
        _TEXT, is_text, _regex, check=_check_pattern, warn=_warn_of_property, tolerant=True
    ),
    "starts-with": Kind(_TEXT, is_text, _starts_with, tolerant=True),
    "word-count": Kind(
        _WORDS, _is_number_of_words, _word_count, tolerant=True, warn=_warn_of_unknown_keys
    ),
}

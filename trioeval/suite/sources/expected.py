"""The little language of `__expected` cells: one text that stands for one assertion.

The first rule that fits decides. A cell that fits none is compared with the whole output, so that a column
of right answers needs no language at all.
"""

import re
from typing import Any

from trioeval.grading import ASSERTION_TYPES, quote
from trioeval.grading.check import NOT_YET
from trioeval.suite.mistakes import Mistake, MistakenError

SPACES = (
    "\t\n\v\f\r \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""What counts as space at the ends of a cell; those of JavaScript, not those of Python."""

_SCRIPT = re.compile(
    r"(?:javascript|fn|eval):(.*)|(file://.*\.(?i:[cm]?[jt]s)(?::\w+)?)", re.DOTALL
)
_RUBRIC = re.compile(r"(?:grade|llm-rubric):(.*)", re.DOTALL)
_PYTHON = re.compile(r"python:(.*)|(file://(?:.*\.py|.*\.py:.*))", re.DOTALL)
_NOT_IN_CELLS = {"assert-set", "human", "max-score", "select-best"}
_TYPES = "|".join(
    # A type whose name goes on is tried before the shorter one.
    sorted(map(re.escape, (ASSERTION_TYPES | NOT_YET) - _NOT_IN_CELLS), reverse=True)
)
_TYPED = re.compile(
    rf"(?P<type>(?:not-)?(?P<base>{_TYPES}))(?:\((?P<number>[0-9]+(?:\.[0-9]+)?)\))?(?::(?P<value>.*))?",
    re.DOTALL,
)
_LISTS = {"contains-all", "contains-any", "icontains-all", "icontains-any"}
_SCHEMAS = {"contains-json", "is-json"}
_THRESHOLDS = {
    "answer-relevance": 0.75,
    "classifier": 0.75,
    "context-faithfulness": 0.75,
    "context-recall": 0.75,
    "context-relevance": 0.75,
    "perplexity-score": 0.75,
    "rouge-n": 0.75,
    "similar": 0.8,
    "similar:cosine": 0.8,
    "similar:dot": 0.8,
    "similar:euclidean": 0.8,
}
"""What holds where a cell gives no number."""
_NO_THRESHOLD = re.compile(r"i?contains.*|is-.*|equals|regex|starts-with|word-count|finish-reason")
_ELEMENT = re.compile(r'\s*+(?:"(?P<quoted>(?:[^"\\]|\\.|"")*)"|(?P<plain>[^",][^,]*)?)\s*(?:,|\Z)')
_ESCAPE = re.compile(r'\\(["\\])|""')


def assertion_from_text(text: str) -> dict[str, Any]:
    """The assertion that a cell stands for, as plain data of the shape of a suite file.

    Args:
        text: The cell, `[not-]<type>[(<threshold>)][:<value>]` or one of the older forms.

    Raises:
        MistakenError: A list of texts has a quote that is never closed, or text behind one.

    Example:
        >>> assertion_from_text("not-contains: sorry")
        {'type': 'not-contains', 'value': 'sorry'}
        >>> assertion_from_text("similar(0.9): a dog"), assertion_from_text("Paris")
        ({'type': 'similar', 'value': 'a dog', 'threshold': 0.9}, {'type': 'equals', 'value': 'Paris'})
    """
    cell = text.strip(SPACES)
    if found := _SCRIPT.fullmatch(cell):
        return {"type": "javascript", "value": _either(found)}
    if found := _RUBRIC.fullmatch(cell):
        return {"type": "llm-rubric", "value": found[1]}
    if found := _PYTHON.fullmatch(cell):
        return {"type": "python", "value": _either(found)}
    if found := _TYPED.fullmatch(cell):
        return _typed(found)
    return {"type": "equals", "value": cell}


def _either(found: re.Match[str]) -> str:
    """The code, or the file with it."""
    return (found[1] or found[2] or "").strip(SPACES)


def _typed(found: re.Match[str]) -> dict[str, Any]:
    base, value, number = found["base"], found["value"], found["number"]
    assertion: dict[str, Any] = {"type": found["type"]}
    if base in _SCHEMAS:
        if value is not None and value.strip(SPACES):
            assertion["value"] = value
    elif value is not None:
        value = value.strip(SPACES)
        assertion["value"] = comma_list(value) if base in _LISTS else value
    if number is not None and not _NO_THRESHOLD.fullmatch(base):
        assertion["threshold"] = float(number)
    elif base in _THRESHOLDS:
        assertion["threshold"] = _THRESHOLDS[base]
    return assertion


def comma_list(text: str) -> list[str]:
    r"""The elements of a list as text: separated by commas, those with a comma in them between quotes.

    Raises:
        MistakenError: A quote is never closed, or text stands behind one.

    Example:
        >>> comma_list('alpha, "x, y" ,, beta')
        ['alpha', 'x, y', 'beta']
    """
    elements, at = [], 0
    while at < len(text):
        found = _ELEMENT.match(text, at)
        if found is None:
            message = f"the quotes in {quote(text)} do not fit together"
            hint = 'write "…" around a whole element, with \\" for a quote in it'
            raise MistakenError(Mistake(message, hint))
        if found["quoted"] is not None:
            elements.append(_ESCAPE.sub(lambda escape: escape[1] or '"', found["quoted"]))
        elif plain := (found["plain"] or "").strip(SPACES):
            elements.append(plain)
        at = found.end()
    return elements

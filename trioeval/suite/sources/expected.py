"""The little language of `__expected` cells: one text that stands for one assertion.

The first rule that fits decides. A cell that fits none is compared with the whole output, so that a column
of right answers needs no language at all.
"""

import re
from functools import lru_cache
from typing import Any

from trioeval.grading import ASSERTION_TYPES, KINDS, Kinds
from trioeval.grading.lists import SPACES, comma_list
from trioeval.suite.mistakes import Mistake, MistakenError

_SCRIPT = re.compile(
    r"(?:javascript|fn|eval):(.*)|(file://.*\.(?i:[cm]?[jt]s)(?::\w+)?)", re.DOTALL
)
_RUBRIC = re.compile(r"(?:grade|llm-rubric):(.*)", re.DOTALL)
_PYTHON = re.compile(r"python:(.*)|(file://(?:.*\.py|.*\.py:.*))", re.DOTALL)
_REFUSED = {"pi"}
"""Types of promptfoo that there are not here: a cell that names one is no text to compare with."""
_NOT_IN_CELLS = {"assert-set", "human", "max-score", "select-best"}
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


@lru_cache
def _typed_cell(own: frozenset[str]) -> re.Pattern[str]:
    """What matches a cell with a type, of those that are built in and a suite's own."""
    names = (ASSERTION_TYPES | _REFUSED | own) - _NOT_IN_CELLS
    # A type whose name goes on is tried before the shorter one.
    types = "|".join(sorted(map(re.escape, names), reverse=True))
    return re.compile(
        rf"(?P<type>(?:not-)?(?P<base>{types}))(?:\((?P<number>[0-9]+(?:\.[0-9]+)?)\))?(?::(?P<value>.*))?",
        re.DOTALL,
    )


def assertion_from_text(text: str, kinds: Kinds = KINDS) -> dict[str, Any]:
    """The assertion that a cell stands for, as plain data of the shape of a suite file.

    Args:
        text: The cell, `[not-]<type>[(<threshold>)][:<value>]` or one of the older forms.
        kinds: The assertion types that there are.

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
    if found := _typed_cell(frozenset(kinds) - ASSERTION_TYPES).fullmatch(cell):
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
        assertion["value"] = _elements(value) if base in _LISTS else value
    scores = base not in ASSERTION_TYPES or not _NO_THRESHOLD.fullmatch(base)
    if number is not None and scores:
        assertion["threshold"] = float(number)
    elif base in _THRESHOLDS:
        assertion["threshold"] = _THRESHOLDS[base]
    return assertion


def _elements(text: str) -> list[str]:
    try:
        return comma_list(text)
    except ValueError as error:
        hint = 'write "…" around a whole element, with \\" for a quote in it'
        raise MistakenError(Mistake(str(error), hint)) from None

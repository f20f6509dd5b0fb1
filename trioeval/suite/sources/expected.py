# Separate from `suite.sources.csv_tests`: together they exceed 600 lines.
"""The mini-language of `__expected` cells: one text that defines one assertion.

The first rule that matches decides. A cell that matches none is compared with the whole output, so that a
column of correct answers needs no language at all.
"""

import difflib
import re
from functools import lru_cache
from typing import Any

from trioeval.documents.mistakes import Mistake, MistakenError
from trioeval.grading import ASSERTION_TYPES, KINDS, Kinds, quote
from trioeval.grading.kinds.text import SPACES, comma_list

_SCRIPT = re.compile(
    r"(?:javascript|fn|eval):(.*)|(file://.*\.(?i:[cm]?[jt]s)(?::\w+)?)", re.DOTALL
)
_RUBRIC = re.compile(r"(?:grade|llm-rubric):(.*)", re.DOTALL)
_PYTHON = re.compile(r"python:(.*)|(file://(?:.*\.py|.*\.py:.*))", re.DOTALL)
_REFUSED = {"pi"}
"""Assertion types of promptfoo that are not supported; cells that name one are refused, not compared."""
_NOT_IN_CELLS = {"assert-set", "command", "human", "max-score", "select-best"}
_LISTS = {"contains-all", "contains-any", "icontains-all", "icontains-any", "moderation"}
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
"""Thresholds of cells without a number."""
_NO_THRESHOLD = re.compile(r"i?contains.*|is-.*|equals|regex|starts-with|word-count|finish-reason")

_LIKE_TYPED = re.compile(
    r"(?ai)(?P<type>(?P<nots>(?:not-)*)(?P<base>[a-z][\w-]*(?::[a-z][\w-]*)?))"
    r"(?P<end> ?\([-+.\de ]*\)(?::|$)|:|$)"
)
_CLOSE = 0.85
"""The similarity, from 0 to 1, from which a word counts as a misspelt type."""
_LONGEST = 60
"""The maximum number of characters of a word that is compared with the types."""
_TEXTS_TOO = frozenset({"human"})
"""Types that many texts begin with."""


@lru_cache
def _typed_cell(own: frozenset[str]) -> re.Pattern[str]:
    """Return the pattern of a cell with a type, built-in or defined by the suite."""
    names = (ASSERTION_TYPES | _REFUSED | own) - _NOT_IN_CELLS
    # A longer name is tried before a name that is its prefix.
    types = "|".join(sorted(map(re.escape, names), reverse=True))
    return re.compile(
        rf"(?P<type>(?:not-)?(?P<base>{types}))(?:\((?P<number>[0-9]+(?:\.[0-9]+)?)\))?(?::(?P<value>.*))?",
        re.DOTALL,
    )


def assertion_from_text(text: str, kinds: Kinds = KINDS) -> dict[str, Any]:
    """Return the assertion that a cell defines, as plain data with the structure of a suite file.

    Args:
        text: The cell, `[not-]<type>[(<threshold>)][:<value>]` or one of the older forms.
        kinds: The known assertion types.

    Raises:
        MistakenError: A list of texts has a quote that is never closed, or text after a closed one.

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


def looks_typed(text: str, kinds: Kinds = KINDS) -> tuple[str, Mistake] | None:
    """Return a warning about a cell that is compared as a text, but looks like an assertion.

    Returns:
        The word that looks like a type, and the warning; None for all other cells.

    Example:
        >>> word, warning = looks_typed("contians: a")
        >>> print(word, "-", warning.hint)
        contians - did you mean "contains"? A text that is meant begins with "equals:"
        >>> looks_typed("Paris: a city")
    """
    cell = text.strip(SPACES)
    found = _LIKE_TYPED.match(cell)
    if found is None or len(found["type"]) > _LONGEST:
        return None
    known = _known_type(found["base"].lower(), frozenset(kinds))
    is_word = not found["end"] and ":" not in found["base"]
    if known is None or (is_word and "-" not in known):  # a single word is an answer
        return None
    if _typed_cell(frozenset(kinds) - ASSERTION_TYPES).fullmatch(cell):
        return None
    message = f"{quote(cell)} is compared as a text"
    meant = f"not-{known}" if found["nots"] else known
    if known in _NOT_IN_CELLS:
        message, hint = f"{message}: {known} cannot stand in a cell", 'write it under "assert"'
    elif meant == found["type"]:
        hint = f'write the number as in "{meant}(0.5)"'
    else:
        hint = f'did you mean "{meant}"?'
    mark = "" if hint.endswith("?") else "."
    return found["type"], Mistake(
        message, f'{hint}{mark} A text that is meant begins with "equals:"'
    )


@lru_cache
def _known_type(word: str, kinds: frozenset[str]) -> str | None:
    """Return the type that a word names, or misspells; part of the value may follow it."""
    types = (ASSERTION_TYPES | kinds | _NOT_IN_CELLS) - _TEXTS_TOO
    words = (word, word.partition(":")[0])
    for one in words:
        if one in types:
            return one
    # Typing errors rarely affect the first letter, and thousands of words may have to be compared.
    likely = [name for name in sorted(types) if name[0] == word[0]]
    for one in words:
        if close := difflib.get_close_matches(one, likely, n=1, cutoff=_CLOSE):
            return close[0]
    return None


def _either(found: re.Match[str]) -> str:
    """Return the code, or the file that contains it."""
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

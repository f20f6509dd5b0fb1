"""Lists of texts that are written as one text, with commas."""

import re
from collections.abc import Sequence
from typing import Any

from trioeval.grading.text import output_text, quote

SPACES = (
    "\t\n\v\f\r \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""What counts as space; the characters of JavaScript, not those of Python."""

_BEFORE = re.compile(f"[{SPACES},]*")
_ELEMENT = re.compile(
    rf'"(?P<quoted>(?:[^"\\]|\\.|"")*)"[{SPACES}]*(?:,|\Z)|(?P<plain>[^",][^,]*)', re.DOTALL
)
_ESCAPE = re.compile(r'\\(["\\])|""')


def comma_list(text: str) -> list[str]:
    r"""The elements of a list as text: separated by commas, those with a comma in them between quotes.

    Raises:
        ValueError: A quote is never closed, or text stands behind one.

    Example:
        >>> comma_list('alpha, "x, y" ,, beta')
        ['alpha', 'x, y', 'beta']
    """
    elements: list[str] = []
    at = _end(_BEFORE.match(text))
    while at < len(text):
        found = _ELEMENT.match(text, at)
        if found is None:
            msg = f"the quotes in {quote(text)} do not fit together"
            raise ValueError(msg)
        if found["plain"] is not None:
            elements.append(found["plain"].strip(SPACES))
        else:
            elements.append(_ESCAPE.sub(lambda escape: escape[1] or '"', found["quoted"]))
        at = _end(_BEFORE.match(text, found.end()))
    return elements


def texts_of(value: Any) -> Sequence[str]:
    """The texts that a value stands for: a list of anything, or a list as text.

    Raises:
        ValueError: It is no list, or the quotes in it do not fit together.

    Example:
        >>> texts_of(["a", 1.0, None]), texts_of("a, b")
        (['a', '1', 'null'], ['a', 'b'])
    """
    if isinstance(value, str):
        return comma_list(value)
    if not isinstance(value, list | tuple):
        msg = f"{quote(value)} is no list"
        raise ValueError(msg)  # noqa: TRY004 - the same to whoever reads it
    return [output_text(element) for element in value]


def is_list(value: Any) -> bool:
    """Whether a value stands for one text or more."""
    try:
        return bool(texts_of(value))
    except (TypeError, ValueError, RecursionError):
        return False


def _end(found: re.Match[str] | None) -> int:
    return 0 if found is None else found.end()

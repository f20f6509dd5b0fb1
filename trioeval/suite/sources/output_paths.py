"""Transforms of outputs that are not code: queries, and paths of members."""

import re
from collections.abc import Iterator
from typing import Any

from trioeval.documents.files import FileContext
from trioeval.documents.mistakes import Mistake, MistakenError
from trioeval.grading import quote

_QUERY = re.compile(r"\$[.\[]|\$$|jmespath:")
_MEMBERS = re.compile(r"output(?:\.[A-Za-z_]\w*|\[\d+\])+")
_LENGTH = ".length"


def is_query(text: str) -> bool:
    """Return whether a transform is a query into the output.

    Example:
        >>> is_query("$.answer"), is_query("jmespath: a.b"), is_query("output.a")
        (True, True, False)
    """
    return _QUERY.match(text.strip()) is not None


def names_members(text: str) -> bool:
    """Return whether a transform is a path of members of the output.

    Example:
        >>> names_members("output.answer.text"), names_members("output.length")
        (True, False)
    """
    code = text.strip()
    return _MEMBERS.fullmatch(code) is not None and not code.endswith(_LENGTH)


def is_path(text: str) -> bool:
    """Return whether a transform is a path or a query, which cannot do more than read the output.

    Example:
        >>> is_path("output.answer.text"), is_path("$.answer"), is_path("output.trim()")
        (True, True, False)
    """
    return is_query(text) or names_members(text)


def code_mistakes(settings: Any, keys: tuple[str, ...], context: FileContext) -> Iterator[Mistake]:
    """Yield a mistake for each transform of an object that is code which its suite must not run."""
    for key in keys if isinstance(settings, dict) else ():
        text = settings.get(key)
        if isinstance(text, str) and text.strip() and not is_path(text):
            try:
                context.check_code(quote(text.strip()))
            except MistakenError as error:
                yield from (part.below(key) for part in error.parts)

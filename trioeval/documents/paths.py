"""Positions in a document as paths: keys and indices from the top."""

import json
import re
from typing import TypeAlias

DocumentPath: TypeAlias = tuple[str | int, ...]

_PLAIN = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*")
_STEP = re.compile(rf"\.({_PLAIN.pattern})|\[(\d+)\]|\[(\"(?:[^\"\\]|\\.)*\")\]")


def show_path(path: DocumentPath) -> str:
    """Return a path as messages show it.

    Example:
        >>> show_path(("tests", 3, "vars", "a b"))
        '$.tests[3].vars["a b"]'
    """
    return "$" + "".join(_show_step(step) for step in path)


def read_path(text: str) -> DocumentPath:
    """Return the path that messages show as `text`; the inverse of `show_path`.

    Example:
        >>> read_path('$.tests[3].vars["a b"]')
        ('tests', 3, 'vars', 'a b')
    """
    return tuple(
        int(index) if index else json.loads(quoted) if quoted else name
        for name, index, quoted in _STEP.findall(text)
    )


def _show_step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if _PLAIN.fullmatch(step):
        return f".{step}"
    # A lone surrogate cannot be printed.
    text = json.dumps(step, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()
    return f"[{text}]"

"""Places in a document as paths: keys and positions from the top."""

import re
from typing import TypeAlias

DocumentPath: TypeAlias = tuple[str | int, ...]

_PLAIN = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*")


def show_path(path: DocumentPath) -> str:
    """A path as messages show it.

    Example:
        >>> show_path(("tests", 3, "vars", "a b"))
        '$.tests[3].vars["a b"]'
    """
    return "$" + "".join(_show_step(step) for step in path)


def _show_step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _PLAIN.fullmatch(step) else f'["{step}"]'

"""Functions of Python files that a suite names, as `file://<file>.py:<function>`."""

import re
from typing import Any

from trioeval.documents.files import FILE, Around
from trioeval.documents.mistakes import Mistake, MistakenError, kind
from trioeval.grading import quote
from trioeval.suite.sources.code import code_file

_PYTHON_FUNCTION = re.compile(r"(?:file://)?.+\.py:\w+(?:\.\w+)*")
_TARGET = "write file://<file>.py:<function>"


def python_target(value: Any, around: Around, what: str) -> str:
    """The same with an absolute path.

    Args:
        value: As it stands in the suite.
        around: What the path is relative to.
        what: What is named so, in the plural, for messages.

    Raises:
        MistakenError: It names no function of a Python file, or there is none.
    """
    if not isinstance(value, str):
        raise MistakenError(Mistake(f"must be text, got {kind(value)}", _TARGET))
    if not _PYTHON_FUNCTION.fullmatch(value):
        message = f"{what} are functions in Python files, got {quote(value)}"
        raise MistakenError(Mistake(message, _TARGET))
    file, function = code_file(value, around)
    return f"{FILE}{file}:{function}"

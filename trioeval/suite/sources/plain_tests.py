"""A test of a file as the suite itself would write it: without names of other files that mean data."""

from typing import Any

from trioeval.documents.files import FILE, Around
from trioeval.documents.mistakes import Mistake, MistakenError, Mistakes, kind
from trioeval.suite.sources.values import read_vars, with_files

_READ_LATER = {"vars", "assert"}
"""Their members name files for other reasons: values of one row, and functions."""


def complete(entry: Any, around: Around, beside: Around, description: str | None) -> Any:
    """One test of a file, with the files read that it names.

    Args:
        entry: The test, or the name of a file that holds it.
        around: What names with `file://` are relative to.
        beside: What other names, and those of files of variables, are relative to.
        description: What it is called if it has no description.

    Raises:
        MistakenError: Files that there are not, or that are wrong; or it is no object.
    """
    if isinstance(entry, str):
        named = entry.startswith(FILE)
        entry = with_files(entry if named else FILE + entry, around if named else beside)
    if not isinstance(entry, dict):
        raise MistakenError(Mistake(f"a test must be an object, got {kind(entry)}"))
    found: dict[str, Any] = {}
    mistakes = Mistakes()
    for key, value in entry.items():
        with mistakes.below(key):
            if key == "vars" and isinstance(value, str | list):
                found[key] = read_vars(value, beside)
            elif key in _READ_LATER and not isinstance(value, str):
                found[key] = value
            else:
                found[key] = with_files(value, around)
    mistakes.raise_any()
    if description is not None and not found.get("description"):
        found["description"] = description
    return found

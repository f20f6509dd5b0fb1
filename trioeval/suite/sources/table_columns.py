"""Columns of a table of tests: what their cells are to a test, by the names in the header.

A name that begins with two underscores means something else than a variable.
"""

import re
from typing import Literal, TypeAlias

import attrs

from trioeval.grading import quote
from trioeval.grading.lists import SPACES
from trioeval.suite.mistakes import Mistake, MistakenError, nearest

Role: TypeAlias = Literal[
    "variable",
    "assertion",
    "assertion threshold",
    "metadata",
    "metadata list",
    "prefix",
    "suffix",
    "description",
    "providerOutput",
    "metric",
    "threshold",
    "nothing",
]
"""What the cells of a column are to a test."""

_SPECIAL: dict[str, Role] = {
    "__prefix": "prefix",
    "__suffix": "suffix",
    "__description": "description",
    "__providerOutput": "providerOutput",
    "__metric": "metric",
    "__threshold": "threshold",
}
_NEARLY_SPECIAL = re.compile(
    "_(?:expected|prefix|suffix|description|providerOutput|metric|threshold|metadata|config)"
)
_CONFIG = re.compile(r"__config:(?P<of>[^:]*):(?P<key>[^:]*)")
_EXPECTED = re.compile("__expected(?:0*[1-9][0-9]*)?")


@attrs.frozen
class Column:
    """One column of a table of tests."""

    name: str
    """What stands in the header, without space around it."""
    role: Role
    key: str = ""
    """Which variable, which metadata, or for a threshold which `__expected…` column."""


def column_of(name: str) -> Column:
    """What a column is, by its name in the header.

    Raises:
        MistakenError: It is the column of a setting that there is not.

    Example:
        >>> column_of(" city ").key, column_of("__metadata:tags[]").role
        ('city', 'metadata list')
    """
    name = name.strip(SPACES)
    if role := _SPECIAL.get(name):
        return Column(name, role)
    if name.startswith("__expected"):
        return Column(name, "assertion")
    if name.startswith("__metadata:"):
        key = name.removeprefix("__metadata:")
        if key.endswith("[]"):
            return Column(name, "metadata list", key.removesuffix("[]"))
        return Column(name, "metadata", key)
    if found := _CONFIG.fullmatch(name):
        if found["key"] != "threshold":
            message = f"{quote(found['key'])} is no setting of an assertion in {quote(name)}"
            raise MistakenError(Mistake(message, 'the only one is "threshold"'))
        if not _EXPECTED.fullmatch(found["of"]):
            message = f"{quote(found['of'])} is no column of assertions in {quote(name)}"
            raise MistakenError(Mistake(message, "write __expected, or __expected1 and so on"))
        return Column(name, "assertion threshold", found["of"])
    if name == "__metadata" or name.startswith("__config:"):
        return Column(name, "nothing")
    return Column(name, "variable", name)


def oddity(column: Column) -> Mistake | None:
    """What is odd about a column, and no mistake."""
    match column:
        case Column("__metadata"):
            message = "the column __metadata says nothing without a key"
            return Mistake(message, "write __metadata:key")
        case Column(name, "nothing"):
            message = f"the column {quote(name)} says nothing"
            return Mistake(message, "write __config:__expected1:threshold")
        case Column("", "variable"):
            return Mistake("a column has no name", "is there a delimiter too many?")
        case Column(name, "variable") if _NEARLY_SPECIAL.match(name):
            return Mistake(f"the column {quote(name)} is a variable", f'did you mean "_{name}"?')
        case Column(name, "variable") if name.startswith("__"):
            known = [*_SPECIAL, "__expected", "__metadata:key", "__config:__expected1:threshold"]
            return Mistake(f"the column {quote(name)} is a variable", nearest(name, known))
        case _:
            return None

"""What kind of values a column has, the same in all groups: null is one of every kind."""

from typing import Any, Literal, TypeAlias

ColumnType: TypeAlias = Literal["text", "int", "float", "bool", "vector", "json"]
"""`vector` is a list of numbers of an embedding; `json` is anything else, written as JSON text where files have
no such values."""


def fits(value: Any, wanted: ColumnType) -> bool:
    """Whether a value is of a type. None is of each; whole numbers are floats as well; true is no number.

    Example:
        >>> fits(1, "float"), fits(True, "int"), fits(None, "text")
        (True, False, True)
    """
    raise NotImplementedError


def common_type(values: Any) -> ColumnType:
    """The narrowest type of all values of an iterable; `text` of none."""
    raise NotImplementedError

"""Values that are data wherever they go: never rendered as a template, never taken for a file or for code.

The mark is on the value, and not in the places that use it. What renders, opens or runs texts asks for the
mark; everything else sees an ordinary text, list or object. A text that is rendered with a value of a model
bears the mark of the model itself.

There are two marks. `Verbatim` says that a text is ready, from whatever source: a prompt that was rendered, a
cell of a dataset. `FromModel` says that a model wrote it, or a part of it: it must not become code, a
program's words or a path either, which a suite may make of its own cells.
"""

from collections.abc import Mapping
from typing import Any


class Verbatim:
    """A value that is no template, and in which nothing is one."""

    __slots__ = ()


class FromModel(Verbatim):
    """A value that a model wrote, or of which it wrote a part."""

    __slots__ = ()


class _Text(Verbatim, str):
    __slots__ = ()


class _List(Verbatim, list[Any]):
    __slots__ = ()


class _Object(Verbatim, dict[str, Any]):
    __slots__ = ()


class _ModelText(FromModel, str):
    __slots__ = ()


class _ModelList(FromModel, list[Any]):
    __slots__ = ()


class _ModelObject(FromModel, dict[str, Any]):
    __slots__ = ()


def verbatim(value: Any) -> Any:
    """The value as data; one that bears a mark keeps it.

    Example:
        >>> found = verbatim({"a": ["{{ x }}", 1]})
        >>> found == {"a": ["{{ x }}", 1]}, isinstance(found["a"][0], Verbatim)
        (True, True)
    """
    match value:
        case Verbatim():
            return value
        case str():
            return _Text(value)
        case Mapping():
            return _Object((name, verbatim(part)) for name, part in value.items())
        case list() | tuple():
            return _List(map(verbatim, value))
        case _:
            return value


def from_model(value: Any) -> Any:
    """The value as what a model wrote.

    Example:
        >>> isinstance(from_model("x"), FromModel), isinstance(from_model(verbatim("x")), FromModel)
        (True, True)
    """
    match value:
        case FromModel():
            return value
        case str():
            return _ModelText(value)
        case Mapping():
            return _ModelObject((name, from_model(part)) for name, part in value.items())
        case list() | tuple():
            return _ModelList(map(from_model, value))
        case _:
            return value

"""Tables of models in the pages about suites: keys, types, ranges and defaults."""

import re
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import attrs

from trioeval.documents.structure import AtLeast, BothSpellings, camel, fields_by_key
from trioeval.grading import Assertion
from trioeval.grading.model import HEAVIEST
from trioeval.suite.model import Suite, Test

_TYPES: Mapping[Any, str] = {
    str: "text",
    Path: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    Any: "any",
}
_DEFAULTS: Mapping[tuple[type, str], str] = {(Suite, "prompts"): '`["{{prompt}}"]`'}
_RANGES: Mapping[tuple[type, str], str] = {
    (Assertion, "weight"): f"{-HEAVIEST:.0f} to {HEAVIEST:.0f}"
}


def tables(page: str) -> list[list[list[str]]]:
    """The cells of all tables, without their headings."""
    found = re.findall(r"^\|[-|]+\|\n((?:\|.*\|\n)+)", page, re.MULTILINE)
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
        for table in found
    ]


def columns(table: Sequence[Sequence[str]], count: int) -> list[tuple[str, ...]]:
    """The first cells of each line."""
    return [tuple(line[:count]) for line in table]


def documented(
    model: type,
    written: Mapping[str, tuple[str, str, str]] | None = None,
) -> Iterable[tuple[str, ...]]:
    """Key, type, range and default of each field of a model, as a table has them.

    Args:
        model: An attrs class.
        written: Type, range and default of fields whose form in files differs from their types.
    """
    hints = get_type_hints(model, include_extras=True)
    for key, field in fields_by_key(model).items():
        if written is not None and field.name in written:
            yield f"`{key}`", *written[field.name]
        else:
            kind, bound = _type_and_range(hints[field.name])
            bound = _RANGES.get((model, field.name), bound)
            yield f"`{key}`", kind, bound, _DEFAULTS.get((model, field.name), _default(field))


def _type_and_range(hint: Any) -> tuple[str, str]:
    if get_origin(hint) in (Union, types.UnionType):
        parts = [_type_and_range(part) for part in get_args(hint) if part is not type(None)]
        return " or ".join(kind for kind, _ in parts), parts[0][1]
    if get_origin(hint) is Annotated:
        plain, mark = get_args(hint)
        if isinstance(mark, AtLeast):
            return _TYPES[plain], str(mark)
        if isinstance(mark, BothSpellings):
            return ", ".join(f"`{camel(choice)}`" for choice in get_args(plain)), ""
        return _type_and_range(plain)
    if get_origin(hint) in (tuple, Sequence):
        return "list", ""
    if get_origin(hint) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(hint)), ""
    return _TYPES.get(hint, "object"), ""


def _default(field: "attrs.Attribute[Any]") -> str:
    if getattr(field.default, "factory", None) is dict:
        return "empty"
    match field.default:
        case attrs.NOTHING:
            return "required"
        case None:
            return "none"
        case bool() as switch:
            return str(switch).lower()
        case () | "":
            return "empty"
        case (Test(),):
            return "one empty test"
        case str() as text:
            return f"`{text}`"
        case int() | float() as number:
            return str(number) if isinstance(number, int) else f"{number:g}"
        case _:
            return "its defaults"

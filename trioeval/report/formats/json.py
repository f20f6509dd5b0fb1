"""JSON of records, of values that JSON cannot represent, and of documents too large for memory."""

import enum
import functools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import attrs
import cattrs
import orjson
from cattrs.gen import make_dict_structure_fn, override

from trioeval.documents.structure import camel
from trioeval.text import KEY
from trioeval.usage import Usage

T = TypeVar("T")

DEEPEST = 100
"""The deepest nesting of lists and objects that is written; parsers of many languages fail not far beyond."""
TOO_DEEP = f"[nested more than {DEEPEST} levels deep]"
"""The replacement of values that are nested deeper."""

_OPTIONS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_NESTS = (dict, list, tuple)
_LEAVES = frozenset({str, int, float, bool, type(None)})
"""The most frequent types, which are neither lists nor objects."""


def to_json(value: Any, indent: int | None = None) -> str:
    """Return JSON text: numbers that JSON lacks become null, foreign objects their text."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(finite(value), ensure_ascii=False, indent=indent, default=str)


def compact(value: Any) -> str:
    """Return JSON text without spaces, as fast as possible.

    Numbers that JSON lacks become null. Values that only Python can write as JSON, such as lone surrogates
    and numbers beyond 64 bits, are written more slowly.

    Example:
        >>> compact({"a": [1.5, None]})
        '{"a":[1.5,null]}'
    """
    try:
        return orjson.dumps(value, None, _OPTIONS).decode()
    except TypeError:  # orjson refuses the value, or would write it differently
        return to_json(value)


def read_compact(text: str) -> Any:
    """Return the data of a text of objects that `compact` made, as fast as possible and exactly.

    orjson refuses lone surrogates, and rounds whole numbers beyond 64 bits. An object with one of them was
    written by Python's own encoder, which puts a space after each name.

    Example:
        >>> read_compact(compact({"a": 2**70})) == {"a": 2**70}
        True
    """
    if '": ' not in text:
        try:
            return orjson.loads(text)
        except ValueError:  # a lone surrogate outside of all objects that Python wrote
            pass
    return json.loads(text)


def indented(value: Any, margin: str = "\n") -> str:
    """Return JSON text on many lines, indented by two spaces a level; otherwise like `compact`."""
    try:
        text = orjson.dumps(value, None, _OPTIONS | orjson.OPT_INDENT_2).decode()
    except TypeError:
        text = to_json(value, indent=2)
    # JSON text has no line breaks inside of values: all of them separate parts.
    return text.replace("\n", margin)


def finite(value: Any) -> Any:
    """Return the value with null for numbers that JSON lacks, as JavaScript writes them."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: finite(part) for key, part in value.items()}
        case list() | tuple():
            return [finite(part) for part in value]
        case _:
            return value


def shallow(value: Any) -> Any:
    """Return the value with `TOO_DEEP` in place of values nested deeper than `DEEPEST`.

    Functions that walk through values, writers of files included, fail at some depth, and one reply must not
    cost the results of a whole run.

    Example:
        >>> deep: list[object] = []
        >>> for _ in range(100_000):
        ...     deep = [deep]
        >>> to_json(shallow(deep)) == "[" * DEEPEST + to_json(TOO_DEEP) + "]" * DEEPEST
        True
    """
    return value if _is_flat(value) or not _is_deep(value) else _cut(value, DEEPEST)


def _is_flat(value: Any) -> bool:
    """Return whether a value is surely flat: a quick test that is enough for most values."""
    kind = type(value)
    return kind in _LEAVES or (kind is dict and _LEAVES.issuperset(map(type, value.values())))


def _is_deep(value: Any) -> bool:
    level = [value] if isinstance(value, _NESTS) else []
    for _ in range(DEEPEST):
        if not level:
            return False
        level = [
            part
            for whole in level
            for part in (whole.values() if isinstance(whole, dict) else whole)
            if type(part) not in _LEAVES and isinstance(part, _NESTS)
        ]
    return bool(level)


def _cut(value: Any, levels: int) -> Any:
    match value:
        case dict() | list() | tuple() if not levels:
            return TOO_DEEP
        case dict():
            return {key: _cut(part, levels - 1) for key, part in value.items()}
        case list() | tuple():
            return [_cut(part, levels - 1) for part in value]
        case _:
            return value


def json_chunks(document: Any, margin: str = "\n") -> Iterator[str]:
    """Yield the indented JSON text of a document piece by piece, as `indented` makes it.

    Args:
        document: Iterators in it are written as lists, and are read on demand.
        margin: The beginning of each line at the level of the document.

    Example:
        >>> print("".join(json_chunks({"rows": iter([1, 2])})))
        {
          "rows": [
            1,
            2
          ]
        }
    """
    match document:
        case dict() if has_stream(document):
            between = "{"
            for key, part in document.items():
                yield f"{between}{margin}  {to_json(key)}: "
                yield from json_chunks(part, margin + "  ")
                between = ","
            yield margin + "}"
        case Iterator():
            yield from _list_chunks(document, margin)
        case _:
            yield indented(document, margin)


def has_stream(document: Any) -> bool:
    """Return whether a document is an iterator, or an object that holds one at any depth."""
    match document:
        case dict():
            return any(has_stream(part) for part in document.values())
        case _:
            return isinstance(document, Iterator)


def _list_chunks(parts: Iterable[Any], margin: str) -> Iterator[str]:
    between = "["
    for part in parts:
        yield f"{between}{margin}  " + indented(part, margin + "  ")
        between = ","
    yield "[]" if between == "[" else margin + "]"


# Records, which are attrs classes, as JSON data and back. A key is the name of its field in camelCase, or the
# name in the metadata of the field; None leaves the field out.


def record_json(record: Any, *, sparse: bool = False) -> dict[str, Any]:
    """Return the fields of a record as JSON data.

    Args:
        record: An object of an attrs class. Unknown numbers of a `Usage` in it are left out.
        sparse: Whether fields with their default values are left out.

    Example:
        >>> record_json(Usage(total=3, cached=0), sparse=True)
        {'total': 3, 'cached': 0}
    """
    kind: type = type(record)
    values = ((key, field, getattr(record, field.name)) for key, field in _keyed(kind))
    return {
        key: _plain(value) for key, field, value in values if not sparse or value != field.default
    }


def read_record(kind: type[T], data: Mapping[str, Any]) -> T:
    """Return the record from the result of `record_json`; numbers and texts are not checked.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: The data has another form.

    Example:
        >>> read_record(Usage, {"total": 3}) == Usage(total=3)
        True
    """
    return _reader().structure(data, kind)


@functools.cache
def _keyed(kind: type) -> "Sequence[tuple[str, attrs.Attribute[Any]]]":
    fields = ((field.metadata.get(KEY, camel(field.name)), field) for field in attrs.fields(kind))
    return [(key, field) for key, field in fields if key is not None]


def _plain(value: Any) -> Any:
    match value:
        case enum.Enum():
            return value.value
        case None | str() | int() | float():
            return value
        case Mapping():
            return {key: _plain(part) for key, part in value.items()}
        case list() | tuple():
            return [_plain(part) for part in value]
        case Path():
            return str(value)
        case _ if attrs.has(type(value)):
            return record_json(value, sparse=isinstance(value, Usage))
        case _:
            return value


@functools.cache
def _reader() -> cattrs.Converter:
    reader = cattrs.Converter(detailed_validation=False)

    def fields(kind: type) -> Any:
        keys: Any = {field.name: override(rename=key) for key, field in _keyed(kind)}
        return make_dict_structure_fn(kind, reader, _cattrs_detailed_validation=False, **keys)

    def is_literal(kind: Any) -> bool:
        origin: Any = get_origin(kind)
        return origin is Literal

    def is_sequence(kind: Any) -> bool:
        origin: Any = get_origin(kind)
        return origin is Sequence

    def members(data: Any, kind: Any) -> list[Any]:
        (member,) = get_args(kind)
        return [reader.structure(one, member) for one in data]

    for scalar in (str, int, float, bool):
        reader.register_structure_hook(scalar, lambda value, _: value)
    reader.register_structure_hook(Path, lambda value, _: Path(value))
    reader.register_structure_hook_func(is_literal, lambda value, _: value)
    reader.register_structure_hook_func(is_sequence, members)
    reader.register_structure_hook_factory(attrs.has, fields)
    return reader

"""Types of the fields of columns, with their form in files: names, options of scores, types."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias, get_args

import attrs

from trioeval.columns.cell_types import ColumnType
from trioeval.documents.mistakes import Mistake, MistakenError, Mistakes, kind, nearest
from trioeval.documents.structure import SOME_TEXT, TEXT, Form, Shape, either, some_text
from trioeval.grading import Assertion, quote

_NO_VARIABLES = frozenset(
    {
        *("and", "else", "if", "in", "is", "not", "or"),
        *("false", "none", "null", "true", "False", "None", "True"),
    }
)
"""Words that have another meaning in templates."""
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
ONE_FOR_ALL = "*"
"""The key for all columns if `as` is one type."""


def column_name(value: Any, _wanted: Any = None) -> str:
    """Return a column name that templates can use as a variable.

    Raises:
        MistakenError: Templates cannot use it.
    """
    if not isinstance(value, str):
        raise MistakenError(Mistake(f"must be text, got {kind(value)}"))
    if not _is_variable(value):
        near = re.sub(r"\W+", "_", value.strip()).strip("_")
        hint = f"for example {quote(near)}" if _is_variable(near) else "use letters, digits and _"
        message = (
            f"{quote(value)} is not a valid column name: templates cannot use it as a variable"
        )
        raise MistakenError(Mistake(message, hint))
    return value


def _is_variable(name: str) -> bool:
    return name.isidentifier() and name not in _NO_VARIABLES


def _column_names(value: Any, _wanted: Any = None) -> tuple[str, ...]:
    """Return a list of distinct column names."""
    if not isinstance(value, list):
        raise MistakenError(Mistake(f"must be a list of names, got {kind(value)}"))
    mistakes = Mistakes()
    for place, name in enumerate(value):
        with mistakes.below(place):
            column_name(name)
        if name in value[:place]:
            mistakes.append(Mistake(f"{quote(name)} is listed twice", at=(place,)))
    mistakes.raise_any()
    return tuple(value)


def _dotted_names(value: Any, _wanted: Any) -> tuple[str, ...]:
    """Return a list of columns, or of members of their values: `quality.clarity.score`."""
    if not isinstance(value, list):
        raise MistakenError(Mistake(f"must be a list of names, got {kind(value)}"))
    mistakes = Mistakes()
    for place, name in enumerate(value):
        with mistakes.below(place):
            some_text(name)
    mistakes.raise_any()
    return tuple(value)


def _seeded_columns(value: Any, _wanted: Any = None) -> Mapping[str, str]:
    """Return the columns with their names in the source; a list keeps the names."""
    if isinstance(value, list):
        found = {name: name for name in _column_names(value)}
    elif isinstance(value, dict):
        found = value
        mistakes = Mistakes()
        for name, source in value.items():
            for key, read, part in ((True, column_name, name), (False, some_text, source)):
                try:
                    read(part)
                except MistakenError as error:
                    mistakes += (attrs.evolve(one.below(name), key=key) for one in error.parts)
        mistakes.raise_any()
    else:
        message = f"must be a list of columns, or an object, got {kind(value)}"
        raise MistakenError(Mistake(message, 'for example {"name": "Full name"}'))
    if not found:
        raise MistakenError(Mistake("no columns are given"))
    return found


def _options_of_score(value: Any, _wanted: Any) -> Mapping[str, str]:
    """Return the options of a score with their meanings."""
    if not isinstance(value, dict) or not value:
        message = f"must be an object of scores with their meanings, got {kind(value)}"
        message = "no options are given" if value == {} else message
        raise MistakenError(Mistake(message, 'for example {"1": "bad", "5": "good"}'))
    mistakes = Mistakes(
        Mistake(f"must be text, got {kind(part)}", at=(key,))
        for key, part in value.items()
        if not isinstance(part, str)
    )
    known: dict[str | float, str] = {}
    for key in value:
        before = known.setdefault(_meant(key), key)
        if before != key:
            message = f"is the same score as {quote(before)}"
            mistakes.append(Mistake(message, "write one of them", at=(key,), key=True))
    mistakes.raise_any()
    return value


def _meant(option: str) -> str | float:
    """Return the value of an option: numbers as numbers, words without surrounding space."""
    bare = str(option).strip()
    return float(bare) if _NUMBER.fullmatch(bare) else bare


def _as_types(value: Any, _wanted: Any) -> Mapping[str, ColumnType]:
    """Return one type for all columns of a function, or an object with the types of some."""
    types: tuple[ColumnType, ...] = get_args(ColumnType)
    given = value if isinstance(value, dict) else {ONE_FOR_ALL: value}
    Mistakes(
        Mistake(
            f"{kind(part)} is not a column type",
            nearest(part if isinstance(part, str) else "", types),
            at=(name,) if given is value else (),
        )
        for name, part in given.items()
        if part not in types
    ).raise_any()
    return given


def read_share(value: Any, _wanted: Any) -> float:
    """Return a share above 0 and at most 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        message = f"must be a number above 0 and at most 1, got {kind(value)}"
        raise MistakenError(Mistake(message))
    return value


_NAME: Shape = {"type": "string", "pattern": r"^[^\W\d]\w*$"}
_NAMES: Shape = {"type": "array", "items": _NAME}
_TYPES: Shape = {"enum": list(get_args(ColumnType))}
_PROVIDER: Shape = {"$ref": "#/$defs/ProviderEntry"}

ColumnName: TypeAlias = Annotated[str, Form(_NAME, column_name)]
ColumnNames: TypeAlias = Annotated[tuple[str, ...], Form(_NAMES, _column_names)]
NamesInRows: TypeAlias = Annotated[
    tuple[str, ...], Form({"type": "array", "items": SOME_TEXT}, _dotted_names)
]
SeededColumns: TypeAlias = Annotated[
    Mapping[str, str],
    Form(
        either(
            {"type": "object", "minProperties": 1, "additionalProperties": SOME_TEXT},
            {**_NAMES, "minItems": 1},
        ),
        _seeded_columns,
    ),
]
ScoreOptions: TypeAlias = Annotated[
    Mapping[str, str],
    Form(
        {"type": "object", "minProperties": 1, "additionalProperties": TEXT},
        _options_of_score,
    ),
]
ColumnTypes: TypeAlias = Annotated[
    Mapping[str, ColumnType],
    Form(either(_TYPES, {"type": "object", "additionalProperties": _TYPES}), _as_types),
]
Provider: TypeAlias = Annotated[int, Form(_PROVIDER)]
"""An index into the providers of the suite; files name the provider."""
PromptText: TypeAlias = Annotated[
    str, Form(either(SOME_TEXT, {"type": "array", "minItems": 1, "items": {}}))
]
ValueSchema: TypeAlias = Annotated[
    Mapping[str, Any], Form(either({"type": "object", "additionalProperties": {}}, TEXT))
]
Assertions: TypeAlias = Annotated[
    tuple[Assertion, ...],
    Form({"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/Assertion"}}),
]

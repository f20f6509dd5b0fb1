"""Shapes of JSON Schema, of models as a suite file writes them: keys, types, bounds, choices and words."""

import ast
import inspect
import itertools
import textwrap
from collections.abc import Collection, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

import attrs

from trioeval.documents.structure import AtLeast, camel, snake

Shape: TypeAlias = dict[str, Any]

TEXT: Shape = {"type": "string"}
SOME_TEXT: Shape = {"type": "string", "pattern": r"\S"}
NOTHING: Shape = {"type": "null"}
EMPTY: Shape = {"enum": [None, "", [], {}]}
SCALARS: Shape = {
    "type": "object",
    "additionalProperties": {"type": ["string", "number", "boolean"]},
}
TEXTS: Shape = {"anyOf": [TEXT, {"type": "array", "items": TEXT}]}
WORDS: Shape = {"anyOf": [TEXT, {"type": "number"}]}


def object_shape(
    model: type,
    *,
    renamed: Mapping[str, str | None] | None = None,
    without: Collection[str] = (),
    not_yet: Collection[str] = (),
    shapes: Mapping[str, Shape] | None = None,
    needed: bool = True,
) -> Shape:
    """A JSON object with the fields of a model as keys, in both spellings.

    Args:
        model: An attrs class.
        renamed: Keys of fields that are called otherwise; None for one that is not in files.
        without: Fields that are not in files.
        not_yet: Keys in which nothing may stand.
        shapes: What fields are that are written otherwise than their type says.
        needed: Whether fields without a default have to be there.
    """
    renamed = {**({} if renamed is None else renamed), **dict.fromkeys(without)}
    shapes = {} if shapes is None else shapes
    described = _descriptions(model)
    properties: dict[str, Shape] = {
        spelling: EMPTY for key in not_yet for spelling in (key, snake(key))
    }
    required: list[str] = []
    for field in attrs.fields(model):
        key = renamed.get(field.name, camel(field.name))
        if key is None:
            continue
        shape = dict(shapes[field.name] if field.name in shapes else _typed(field.type))
        if field.default is not attrs.NOTHING:
            shape = or_nothing(shape)
        if text := described.get(field.name):
            shape["description"] = text
        properties |= {key: shape, snake(key): shape}
        # One of two spellings cannot be asked for in this way.
        if needed and field.default is attrs.NOTHING and snake(key) == key:
            required.append(key)
    return {
        "type": "object",
        "description": inspect.getdoc(model),
        "properties": properties,
        "additionalProperties": False,
        **({"required": required} if required else {}),
    }


def _typed(wanted: Any) -> Shape:
    """The shape of what the strict converter makes a type of."""
    if wanted is Any:
        return {}
    if attrs.has(wanted):
        return ref(wanted)
    named = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
    if wanted in named:
        return {"type": named[wanted]}
    arguments: Sequence[Any] = get_args(wanted)
    origin = get_origin(wanted)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is Annotated:
        return _typed(arguments[0]) | _bounds(arguments[1])
    if origin is tuple:
        return {"type": "array", "items": _typed(arguments[0])}
    if origin in {UnionType, Union}:
        return either(*map(_typed, arguments))
    # Mappings are all that is left.
    return {"type": "object", "additionalProperties": _typed(arguments[1])}


def _bounds(bound: AtLeast) -> Shape:
    return {"exclusiveMinimum" if bound.above else "minimum": bound.least}


def ref(model: type) -> Shape:
    """The shape of a model, which stands among the definitions."""
    return {"$ref": f"#/$defs/{model.__name__}"}


def either(*shapes: Shape) -> Shape:
    """Any of these."""
    return {"anyOf": list(shapes)}


def or_nothing(shape: Shape) -> Shape:
    """The shape, or null."""
    match shape:
        case {"anyOf": parts}:
            return shape if NOTHING in parts else either(*parts, NOTHING)
        case {"$ref": _} | {"enum": _} | {"type": str()}:
            return either(shape, NOTHING)
        case _:
            return shape


def listed(entry: Shape) -> Shape:
    """A list of entries, or one text without a list around it."""
    return either({"type": "array", "items": entry}, TEXT)


def _descriptions(model: type) -> dict[str, str]:
    """The words under the fields of a model."""
    source = textwrap.dedent(inspect.getsource(model))
    (body,) = (node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    found: dict[str, str] = {}
    for field, text in itertools.pairwise(body):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(words))),
            ):
                found[name] = " ".join(words.split())
            case _:
                pass
    return found

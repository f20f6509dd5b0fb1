"""Shapes of JSON Schema, of models as a suite file writes them: keys, types, bounds, choices and words."""

import ast
import inspect
import itertools
import textwrap
from collections.abc import Collection, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import attrs

from trioeval.documents.structure import (
    TEXT,
    BothSpellings,
    Form,
    Shape,
    camel,
    either,
    fields_by_key,
    snake,
)

NOTHING: Shape = {"type": "null"}
EMPTY: Shape = {"enum": [None, "", [], {}]}


def object_shape(
    model: type,
    *,
    not_yet: Collection[str] = (),
    shapes: Mapping[str, Shape] | None = None,
    needed: bool = True,
) -> Shape:
    """A JSON object with the fields of a model as keys, in both spellings.

    Args:
        model: An attrs class.
        not_yet: Keys in which nothing may stand.
        shapes: What fields are that are written otherwise than their type says.
        needed: Whether fields without a default have to be there.
    """
    shapes = {} if shapes is None else shapes
    described = _descriptions(model)
    properties: dict[str, Shape] = {
        spelling: EMPTY for key in not_yet for spelling in (key, snake(key))
    }
    required: list[str] = []
    for key, field in fields_by_key(model).items():
        shape = dict(shapes[field.name] if field.name in shapes else shape_of(field.type))
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


def shape_of(wanted: Any) -> Shape:
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
        return _marked(*arguments)
    if origin is tuple:
        return {"type": "array", "items": shape_of(arguments[0])}
    if origin in {UnionType, Union}:
        if len(arguments) == len((Any, None)) and arguments[1] is NoneType:
            return or_nothing(shape_of(arguments[0]))
        return either(*map(shape_of, arguments))
    # Mappings are all that is left.
    return {"type": "object", "additionalProperties": shape_of(arguments[1])}


def _marked(plain: Any, mark: Any) -> Shape:
    match mark:
        case Form():
            return dict(mark.schema)
        case BothSpellings():
            words = get_args(plain)
            return {"enum": list(dict.fromkeys([*map(camel, words), *words]))}
        case _:
            bound = "exclusiveMinimum" if mark.above else "minimum"
            return shape_of(plain) | {bound: mark.least}


def ref(model: type) -> Shape:
    """The shape of a model, which stands among the definitions."""
    return {"$ref": f"#/$defs/{model.__name__}"}


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

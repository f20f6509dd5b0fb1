"""Strict structuring with cattrs: no conversions, every mistake reported with its position.

A model describes each field once, for the hook that reads it, for its JSON Schema and for its plain form: the
key is in the metadata of the field, the values allowed in files are in its type.
"""

import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

import attrs
import cattrs

from trioeval.documents.mistakes import (
    Mistake,
    MistakenError,
    Mistakes,
    is_misspelt,
    kind,
    read_each,
    read_list,
    unknown_key,
)
from trioeval.grading import quote
from trioeval.text import KEY


def some_text(value: Any, _wanted: Any = None) -> str:
    """Read a text that is not blank."""
    if not isinstance(value, str):
        raise MistakenError(Mistake(f"must be text, got {kind(value)}"))
    if not value.strip():
        raise MistakenError(Mistake("must not be empty"))
    return value


def text_or_number(value: Any, _wanted: Any = None) -> str:
    """Read a text; a number is converted to text."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return quote(value)
    raise MistakenError(Mistake(f"must be text, got {kind(value)}"))


def scalar_texts(value: Any, _wanted: Any = None) -> dict[str, str]:
    """Read an object of texts; numbers, true and false are converted to text, as in an environment."""
    given = object_of(value)
    Mistakes(
        Mistake(f"must be text, got {kind(part)}", at=(key,))
        for key, part in given.items()
        if not isinstance(part, str | int | float)
    ).raise_any()
    return {key: part if isinstance(part, str) else quote(part) for key, part in given.items()}


def one_or_more(value: Any, _wanted: Any = None) -> tuple[str, ...]:
    """Read a text or a list of texts."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list):
        raise MistakenError(Mistake(f"must be text or a list of texts, got {kind(value)}"))
    Mistakes(
        Mistake(f"must be text, got {kind(text)}", at=(place,))
        for place, text in enumerate(texts)
        if not isinstance(text, str)
    ).raise_any()
    return tuple(texts)


def object_of(value: Any) -> dict[str, Any]:
    """Read a JSON object."""
    if isinstance(value, dict):
        return value
    raise MistakenError(Mistake(f"must be an object, got {kind(value)}"))


# The notation of a field in files, where its type does not define it: marks of annotated types.


Shape: TypeAlias = dict[str, Any]
"""A part of a JSON Schema."""
Hook: TypeAlias = Callable[[Any, Any], Any]
"""Converts plain data and the target type to a value of that type."""


@attrs.frozen(eq=False, repr=False)
class Form:
    """The notation of the values of a type in files."""

    schema: Shape
    read: Hook | None = None
    """None reads them by the type, or by a hook of the field."""


@attrs.frozen
class BothSpellings:
    """Marks a literal whose words files may write in camelCase or in snake_case."""


def either(*shapes: Shape) -> Shape:
    """Return the schema of a value with any of these shapes."""
    return {"anyOf": list(shapes)}


TEXT: Shape = {"type": "string"}
SOME_TEXT: Shape = {"type": "string", "pattern": r"\S"}

NamedText: TypeAlias = Annotated[str, Form(SOME_TEXT)]
"""A text that is not empty; the hook of its model checks this."""
SomeText: TypeAlias = Annotated[str, Form(SOME_TEXT, some_text)]
SomeTexts: TypeAlias = Mapping[str, SomeText]
Words: TypeAlias = Annotated[str, Form(either(TEXT, {"type": "number"}), text_or_number)]
ONE_OR_MORE = Form(either(TEXT, {"type": "array", "items": TEXT}), one_or_more)
Texts: TypeAlias = Annotated[tuple[str, ...], ONE_OR_MORE]
Scalars: TypeAlias = Annotated[
    Mapping[str, str],
    Form(
        {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}},
        scalar_texts,
    ),
]


@attrs.frozen
class AtLeast:
    """A finite number ≥ `least`, or > `least` if `above` is true.

    Example:
        >>> AtLeast(1).fits(1), AtLeast(0, above=True).fits(0)
        (True, False)
    """

    least: float
    above: bool = False

    def fits(self, value: float) -> bool:
        """Return whether a number is in the range."""
        # Not `math.isfinite`, which cannot take integers beyond the range of floats.
        return (self.least < value if self.above else self.least <= value) and value < math.inf

    def __str__(self) -> str:
        return f"{'more than' if self.above else 'at least'} {self.least:g}"


Count: TypeAlias = Annotated[int, AtLeast(1)]
NotNegative: TypeAlias = Annotated[float, AtLeast(0)]
Positive: TypeAlias = Annotated[float, AtLeast(0, above=True)]
Number: TypeAlias = Annotated[int, AtLeast(0)]
ErrorStatus: TypeAlias = Annotated[int, AtLeast(400)]
Factor: TypeAlias = Annotated[float, AtLeast(1)]
Milliseconds: TypeAlias = Annotated[float, AtLeast(1)]


_WANTED = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def strict_converter() -> cattrs.Converter:
    """Return a converter that accepts scalars, lists and mappings without conversion."""
    converter = cattrs.Converter(detailed_validation=True)
    for scalar in _WANTED:
        converter.register_structure_hook(scalar, _scalar)
    converter.register_structure_hook_factory(_is_marked, _marked_hook)
    converter.register_structure_hook_factory(_is_choice, _choice_hook)
    converter.register_structure_hook_factory(_is_tuple, _list_hook)
    converter.register_structure_hook_factory(_is_mapping, _mapping_hook)
    return converter


NOT_IN_FILES: Mapping[str, None] = {KEY: None}
"""Metadata of a field that files cannot set."""
ALSO = "also"
"""Metadata of a field: an alternative name of its key."""
BESIDE = "beside"
BESIDE_OTHERS: Mapping[str, bool | None] = {KEY: None, BESIDE: True}
"""Metadata of a field whose keys are written among those of its owner."""


def fields_by_key(model: type) -> Mapping[str, "attrs.Attribute[Any]"]:
    """Return the fields of a model that files can set, by their keys in camelCase.

    A class may define `INHERITED_KEYS` to give other keys to fields of its base.
    """
    inherited: Mapping[str, str | None] = getattr(model, "INHERITED_KEYS", {})
    keyed = (
        (inherited.get(field.name, field.metadata.get(KEY, camel(field.name))), field)
        for field in attrs.fields(model)
    )
    return {key: field for key, field in keyed if key is not None}


def other_names(model: type) -> Mapping[str, str]:
    """Return the keys of a model that have an alternative name, by that name."""
    fields = fields_by_key(model).items()
    return {field.metadata[ALSO]: key for key, field in fields if ALSO in field.metadata}


def fields_beside(
    model: type, inside: Mapping[str, type] = MappingProxyType({})
) -> tuple[str | None, Mapping[str, type]]:
    """Return the field that takes unknown keys, and the models of the other fields beside others."""
    beside = [field for field in attrs.fields(model) if field.metadata.get(BESIDE)]
    rest = next((field.name for field in beside if get_origin(field.type) is Mapping), None)
    models = {field.name: inside.get(field.name, field.type) for field in beside}
    return rest, {name: form for name, form in models.items() if form and attrs.has(form)}


def object_hook(
    converter: cattrs.Converter,
    model: type,
    *,
    not_yet: Collection[str] = (),
    hooks: Mapping[str, Hook] = MappingProxyType({}),
    beside: Collection[str] = (),
    elsewhere: Collection[str] = (),
    inside: Mapping[str, type] = MappingProxyType({}),
    made: Mapping[str, Any] = MappingProxyType({}),
    check: Callable[[Any], Iterable[Mistake]] = lambda _: (),
) -> Hook:
    """Return a hook that structures a JSON object as a model.

    Both spellings of the keys of `fields_by_key`, and of those of models that are `BESIDE_OTHERS`, are
    accepted, and the alternative names of keys.
    Null for a key with a default is the same as leaving the key out. A mapping that is `BESIDE_OTHERS` takes
    all unknown keys, unless one looks like a misspelling of a known key.

    Args:
        converter: Structures the fields.
        model: An attrs class.
        not_yet: Keys in camelCase that are known but not supported; they are accepted with empty values.
        hooks: Hooks of single fields, in place of those of their types; also of fields of models beside.
        elsewhere: Keys in camelCase of other kinds of such an object, which are refused in this one.
        inside: The models of fields beside others that their types do not name.
        made: Values of fields that files cannot set and that have no default.
        beside: Further keys that the object may have and that are read elsewhere; used for suggestions.
        check: Returns the mistakes of a model whose fields are valid one by one.
    """
    fields = fields_by_key(model)
    rest, inner = fields_beside(model, inside)
    inner_hooks = {
        name: hooks.get(name) or object_hook(converter, form, hooks=hooks)
        for name, form in inner.items()
    }
    own_keys = {name: fields_by_key(form).keys() for name, form in inner.items()}
    known = dict.fromkeys([*fields, *itertools.chain.from_iterable(own_keys.values())])
    keys = _Keys(
        known=known,
        also=other_names(model),
        not_yet=not_yet,
        beside=beside,
        elsewhere={*elsewhere, *map(snake, elsewhere)},
        has_rest=bool(rest),
    )
    needed = [key for key, field in fields.items() if field.default is attrs.NOTHING]

    @functools.cache
    def reader(key: str) -> tuple[str, Any, Hook]:
        """Return the argument of a field, its type, and its hook, which may be registered after this one."""
        field = fields[key]
        # Generated code of cattrs would cost more time for each model than one file saves by it.
        structure = hooks.get(field.name) or converter.get_structure_hook(field.type)
        return field.alias or field.name, field.type, structure

    def hook(value: Any, _wanted: Any) -> Any:
        spelled, others, mistakes = keys.sort(object_of(value))
        wrong_keys = len(mistakes)
        mistakes += (Mistake(f'"{key}" is missing') for key in needed if key not in spelled)
        found: dict[str, Any] = {**made}
        for name, structure in inner_hooks.items():
            with mistakes.below():
                written = [spelled[key] for key in own_keys[name] if key in spelled]
                found[name] = structure({key: value[key] for key in written}, inner[name])
        for key in filter(spelled.__contains__, fields):
            part = value[spelled[key]]
            if part is None and key not in needed:
                continue
            name, target, structure = reader(key)
            with mistakes.below(spelled[key]):
                found[name] = structure(part, target)
        if len(mistakes) > wrong_keys:
            mistakes.raise_any()
        if rest is not None and others:
            found[rest] = others
        structured = model(**found)
        mistakes += check(structured)
        mistakes.raise_any()
        return structured

    return hook


@attrs.frozen(eq=False, repr=False, kw_only=True)
class _Keys:
    """The keys that an object may have."""

    known: Collection[str]
    also: Mapping[str, str]
    """Known keys by their alternative names."""
    not_yet: Collection[str]
    beside: Collection[str]
    elsewhere: Collection[str]
    has_rest: bool
    """True if unknown keys are accepted, unless one looks like a misspelling of a known key."""
    _key_by_spelling: Mapping[str, str] = attrs.field(init=False)

    @_key_by_spelling.default
    def _spellings(self) -> Mapping[str, str]:
        known = {snake(key): key for key in (*self.known, *self.not_yet)}
        return {**known, **self.also}

    def sort(self, value: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any], Mistakes]:
        """Return the spelling of each known key, the unknown keys with their values, and the mistakes."""
        mistakes = Mistakes()
        others: dict[str, Any] = {}
        spelled: dict[str, str] = {}
        for key, part in value.items():
            name = self._key_by_spelling.get(key, key)
            if name in spelled:
                message = f"{spelled[name]} and {key} are the same key: write one of them"
                mistakes.append(Mistake(message, at=(key,), key=True))
            elif name in self.known:
                spelled[name] = key
            elif name in self.not_yet:
                mistakes += _refused(key, part)
            elif self.has_rest and not is_misspelt(key, self.known):
                others[key] = part
            else:
                known = {*self.known, *self.beside}
                refused = key in self.elsewhere
                mistakes += unknown_key(key, known, before=mistakes, refused=refused)
        return spelled, others, mistakes


def _refused(key: str, part: Any) -> Iterator[Mistake]:
    """Yield the mistake of a key that is not supported yet, unless its value is empty."""
    if part is not None and part not in ("", [], {}):
        yield Mistake(f"{key} is not supported yet", at=(key,), key=True)


def camel(name: str) -> str:
    """Return the key of a field in files.

    Example:
        >>> camel("max_eval_time_ms")
        'maxEvalTimeMs'
    """
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def snake(key: str) -> str:
    """Return the snake_case spelling of a key.

    Example:
        >>> snake("maxEvalTimeMs")
        'max_eval_time_ms'
    """
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)


def _scalar(value: Any, target: type) -> Any:
    if type(value) is target or (target is float and type(value) is int):
        return value
    raise MistakenError(Mistake(f"must be {_WANTED[target]}, got {kind(value)}"))


def _is_marked(target: Any) -> bool:
    return get_origin(target) is Annotated


def _marked_hook(target: Any, converter: cattrs.BaseConverter) -> Hook:
    plain, mark = get_args(target)
    match mark:
        case Form():
            read = mark.read or converter.get_structure_hook(plain)
            return lambda value, _wanted: read(value, plain)
        case BothSpellings():
            return _choice_hook(plain, spell=camel)
        case _:
            return _bounded_hook(plain, mark)


def _bounded_hook(scalar: type, bound: AtLeast) -> Hook:
    def hook(value: Any, _wanted: Any) -> Any:
        found = _scalar(value, scalar)
        if not bound.fits(found):
            raise MistakenError(Mistake(f"must be {bound}, got {kind(value)}"))
        return found

    return hook


def _is_choice(target: Any) -> bool:
    return get_origin(target) is Literal


def _choice_hook(target: Any, *, spell: Callable[[str], str] | None = None) -> Hook:
    choices = get_args(target)

    def hook(value: Any, _wanted: Any) -> Any:
        found = value if spell is None or not isinstance(value, str) else snake(value)
        if found not in choices:
            *others, last = map(spell or str, choices)
            raise MistakenError(
                Mistake(f"must be {', '.join(others)} or {last}, got {kind(value)}")
            )
        return found

    return hook


def _is_tuple(target: Any) -> bool:
    return get_origin(target) is tuple


def _list_hook(target: Any, converter: cattrs.BaseConverter) -> Hook:
    member = get_args(target)[0]
    structure = converter.get_structure_hook(member)

    def hook(value: Any, _wanted: Any) -> Any:
        if not isinstance(value, list):
            raise MistakenError(Mistake(f"must be a list, got {kind(value)}"))
        return tuple(read_list(value, lambda part: structure(part, member)))

    return hook


def _is_mapping(target: Any) -> bool:
    return get_origin(target) is Mapping


def _mapping_hook(target: Any, converter: cattrs.BaseConverter) -> Hook:
    member = get_args(target)[1]
    structure = None if member is Any else converter.get_structure_hook(member)

    def hook(value: Any, _wanted: Any) -> Any:
        given = object_of(value)
        if structure is None:
            return given
        return read_each(given.items(), lambda _key, part: structure(part, member))

    return hook

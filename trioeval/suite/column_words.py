"""Single values in the entries of `columns`: names, choices, prompts, schemas, assertions that ask nobody."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import attrs

from trioeval.datasets.types import ColumnType
from trioeval.grading import Assertion, Computed, Kinds, quote
from trioeval.grading.algebra import SET
from trioeval.grading.kind import Asking, Comparing
from trioeval.grading.kinds import split_type
from trioeval.grading.schemas import schema_faults
from trioeval.grading.text import json_text
from trioeval.suite.documents import read_document
from trioeval.suite.mistakes import Mistake, MistakenError, kind, nearest
from trioeval.suite.paths import read_path
from trioeval.suite.placing import placed, read_placed
from trioeval.suite.sources.around import Around, names_file
from trioeval.suite.sources.prompts import read_prompts
from trioeval.suite.strict import Hook, camel, snake

_NO_VARIABLES = frozenset(
    {
        *("and", "else", "if", "in", "is", "not", "or"),
        *("false", "none", "null", "true", "False", "None", "True"),
    }
)
"""Words that mean something else in templates."""
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
ONE_FOR_ALL = "*"
"""Stands for all columns where `as` is one type."""


def column_name(value: Any, _wanted: Any = None) -> str:
    """The same, if templates can use it as a variable.

    Raises:
        MistakenError: They cannot.
    """
    if not isinstance(value, str):
        raise MistakenError(Mistake(f"must be text, got {kind(value)}"))
    if not _is_variable(value):
        near = re.sub(r"\W+", "_", value.strip()).strip("_")
        hint = f"for example {quote(near)}" if _is_variable(near) else "use letters, digits and _"
        message = f"{quote(value)} is no name of a column: templates cannot use it as a variable"
        raise MistakenError(Mistake(message, hint))
    return value


def _is_variable(name: str) -> bool:
    return name.isidentifier() and name not in _NO_VARIABLES


def column_names(value: Any, _wanted: Any = None) -> tuple[str, ...]:
    """A list of different names of columns."""
    if not isinstance(value, list):
        raise MistakenError(Mistake(f"must be a list of names, got {kind(value)}"))
    mistakes: list[Mistake] = []
    for place, name in enumerate(value):
        try:
            column_name(name)
        except MistakenError as error:
            mistakes += (part.below(place) for part in error.parts)
        if name in value[:place]:
            mistakes.append(Mistake(f"{quote(name)} stands twice", at=(place,)))
    if mistakes:
        raise MistakenError(*mistakes)
    return tuple(value)


def some_text(value: Any, _wanted: Any = None) -> str:
    """A text in which there is something."""
    if not isinstance(value, str):
        raise MistakenError(Mistake(f"must be text, got {kind(value)}"))
    if not value.strip():
        raise MistakenError(Mistake("must not be empty"))
    return value


def camel_choice(*choices: str) -> Hook:
    """For one of several words, which files write in camelCase or in snake_case.

    Example:
        >>> camel_choice("abort", "drop_group")("dropGroup", str)
        'drop_group'
    """

    def hook(value: Any, _wanted: Any) -> str:
        if isinstance(value, str) and snake(value) in choices:
            return snake(value)
        *others, last = map(camel, choices)
        message = f"must be {', '.join(others)} or {last}, got {kind(value)}"
        raise MistakenError(Mistake(message))

    return hook


def chosen(entry: Mapping[str, Any], key: str, known: Mapping[str, Any], what: str) -> str:
    """What stands under the key that says which keys there are beside it.

    Args:
        entry: The object.
        key: Its key.
        known: What may stand there.
        what: What that is, for messages.

    Raises:
        MistakenError: Nothing, or something else.
    """
    found = entry.get(key)
    if found is None:
        raise MistakenError(Mistake(f'"{key}" is missing', f"known are {', '.join(known)}"))
    if not isinstance(found, str) or found not in known:
        hint = nearest(found if isinstance(found, str) else "", known)
        raise MistakenError(Mistake(f"{kind(found)} is not {what}", hint, at=(key,)))
    return found


def prompt_text(value: Any, around: Around) -> str:
    """A prompt: a text, a list of messages, or what stands in the one file that it names.

    Raises:
        MistakenError: It is none of these.
    """
    if isinstance(value, list) and value:
        return json_text(value)
    if not isinstance(value, str) or not value.strip():
        message = f"must be the text of a prompt, or a list of messages, got {kind(value)}"
        raise MistakenError(Mistake(message))
    if not names_file(value):
        return value
    prompts = read_prompts(value, around)
    if len(prompts) > 1:
        message = f"{quote(value)} holds {len(prompts)} prompts"
        raise MistakenError(Mistake(message, "name a file with one"))
    if prompts[0].function is not None:
        hint = "make the text in a column of type python, and use that"
        raise MistakenError(Mistake("prompts of columns are templates, not programs", hint))
    return prompts[0].raw


def schema_of(value: Any, around: Around) -> Mapping[str, Any]:
    """A JSON schema: an object, or what stands in the file that it names.

    Raises:
        MistakenError: Everything that is wrong with it.
    """
    if not names_file(value):
        return _checked(value)
    file = around.file(value)
    document = read_placed(file, read_document)
    try:
        return _checked(document.data)
    except MistakenError as error:
        raise MistakenError(*placed(error.parts, file, document)) from None


def _checked(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        hint = 'write a JSON schema, or "file://schema.json"'
        raise MistakenError(Mistake(f"must be an object, got {kind(value)}", hint))
    mistakes = [
        Mistake(fault.message, fault.hint, at=read_path(f"${fault.path}"))
        for fault in schema_faults(value)
    ]
    if mistakes:
        raise MistakenError(*mistakes)
    return value


def who_is_asked(assertion: Assertion, kinds: Kinds) -> Iterator[Mistake]:
    """That an assertion asks somebody, or runs code; those of a set by their places."""
    if assertion.type == SET:
        for place, member in enumerate(assertion.assertions):
            yield from (one.below("assert", place) for one in who_is_asked(member, kinds))
        return
    hint = "a validation asks nobody; make a column of type judge or python, and look at that"
    base, _ = split_type(assertion.type)
    found = kinds.get(base)
    if found is not None and isinstance(found.judge, Asking | Comparing):
        does = (
            "compares rows" if isinstance(found.judge, Comparing) else "asks a model or runs code"
        )
        yield Mistake(f"{assertion.type} {does}", hint, at=("type",))
    elif isinstance(assertion.value, Computed):
        yield Mistake("a program would compute the value", hint, at=("value",))
    for key, text in (
        ("transform", assertion.transform),
        ("contextTransform", assertion.context_transform),
    ):
        if text is not None:
            yield Mistake(f"a {key} runs code", hint, at=(key,), key=True)


def listed(value: Any, what: str) -> list[Any]:
    """A list that is not empty.

    Args:
        value: The list.
        what: What stands in it, for messages.

    Raises:
        MistakenError: It is none.
    """
    if not isinstance(value, list):
        raise MistakenError(Mistake(f"must be a list of {what}, got {kind(value)}"))
    if not value:
        raise MistakenError(Mistake(f"there are no {what}"))
    return value


def dotted_names(value: Any, _wanted: Any) -> tuple[str, ...]:
    """A list of columns, or of something in them: `quality.clarity.score`."""
    if not isinstance(value, list):
        raise MistakenError(Mistake(f"must be a list of names, got {kind(value)}"))
    mistakes: list[Mistake] = []
    for place, name in enumerate(value):
        try:
            some_text(name)
        except MistakenError as error:
            mistakes += (part.below(place) for part in error.parts)
    if mistakes:
        raise MistakenError(*mistakes)
    return tuple(value)


def seeded_columns(value: Any, _wanted: Any) -> Mapping[str, str]:
    """Columns with what they are called in the source; of a list the same."""
    if isinstance(value, list):
        found = {name: name for name in column_names(value)}
    elif isinstance(value, dict):
        found = value
        mistakes: list[Mistake] = []
        for name, source in value.items():
            for key, read, part in ((True, column_name, name), (False, some_text, source)):
                try:
                    read(part)
                except MistakenError as error:
                    mistakes += (attrs.evolve(one.below(name), key=key) for one in error.parts)
        if mistakes:
            raise MistakenError(*mistakes)
    else:
        message = f"must be a list of columns, or an object, got {kind(value)}"
        raise MistakenError(Mistake(message, 'for example {"name": "Full name"}'))
    if not found:
        raise MistakenError(Mistake("there are no columns"))
    return found


def options_of_score(value: Any, _wanted: Any) -> Mapping[str, str]:
    """Scores with what they mean."""
    if not isinstance(value, dict) or not value:
        message = f"must be an object of scores and what they mean, got {kind(value)}"
        message = "there are no options" if value == {} else message
        raise MistakenError(Mistake(message, 'for example {"1": "bad", "5": "good"}'))
    mistakes = [
        Mistake(f"must be text, got {kind(part)}", at=(key,))
        for key, part in value.items()
        if not isinstance(part, str)
    ]
    known: dict[str | float, str] = {}
    for key in value:
        before = known.setdefault(_meant(key), key)
        if before != key:
            message = f"means the same as {quote(before)}"
            mistakes.append(Mistake(message, "write one of them", at=(key,), key=True))
    if mistakes:
        raise MistakenError(*mistakes)
    return value


def _meant(option: str) -> str | float:
    """What an option is known by: a number by its value, a word without space around it."""
    bare = str(option).strip()
    return float(bare) if _NUMBER.fullmatch(bare) else bare


def as_types(value: Any, _wanted: Any) -> Mapping[str, ColumnType]:
    """One type for all columns of a function, or an object with those of some."""
    types: tuple[ColumnType, ...] = get_args(ColumnType)
    said = value if isinstance(value, dict) else {ONE_FOR_ALL: value}
    mistakes = [
        Mistake(
            f"{kind(part)} is not a type of columns",
            nearest(part if isinstance(part, str) else "", types),
            at=(name,) if said is value else (),
        )
        for name, part in said.items()
        if part not in types
    ]
    if mistakes:
        raise MistakenError(*mistakes)
    return said

"""Parts of a suite as plain data, in the form of a suite file, and back."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import attrs

from trioeval.documents.structure import BESIDE, camel
from trioeval.grading import AsWritten, Computed
from trioeval.suite.model import Prompt, Suite, Test
from trioeval.text import KEY

T = TypeVar("T")


def plain_test(test: Test) -> dict[str, Any]:
    """A test as a file would say it.

    Example:
        >>> from trioeval.grading import Assertion
        >>> test = Test(vars={"x": 1}, assertions=(Assertion(type="equals", value="a"),))
        >>> plain_test(test)
        {'vars': {'x': 1}, 'assert': [{'type': 'equals', 'value': 'a'}]}
    """
    found: dict[str, Any] = plain_data(test)
    return found


def plain_prompt(prompt: Prompt) -> dict[str, Any]:
    """A prompt as a file would say it; a function that makes its text is not part of that."""
    found: dict[str, Any] = plain_data(prompt)
    return found


def plain_suite(suite: Suite) -> dict[str, Any]:
    """What a suite asks whom, as a file would say it. All of its tests are read."""
    scenarios = [
        {
            "config": [plain_test(test) for test in scenario.config],
            # A test that says nothing has to say so.
            "tests": [plain_test(test) or {"vars": {}} for test in scenario.tests],
            **({"description": scenario.description} if scenario.description else {}),
        }
        for scenario in suite.scenarios or ()
    ]
    default = None if suite.default_test is None else _plain_default(suite.default_test)
    return {
        "description": suite.description,
        "providers": [plain_data(entry) for entry in suite.providers],
        "prompts": [plain_prompt(prompt) for prompt in suite.prompts],
        "tests": [plain_test(test) for test in suite.tests],
        **({"scenarios": scenarios} if suite.scenarios is not None else {}),
        **({"defaultTest": default} if default is not None else {}),
        "metadata": plain_data(suite.metadata),
        "tags": plain_data(suite.tags),
    }


def _plain_default(test: Test) -> dict[str, Any]:
    if test.judge is None:
        return plain_test(test)
    return {**plain_test(attrs.evolve(test, judge=None)), "provider": test.judge.id}


def kept_or_read(
    entry: Any, originals: Mapping[str, T], read: Callable[[Any], tuple[T, ...]]
) -> tuple[T, ...]:
    """The original of an entry that is as it was, or what a new entry stands for.

    Args:
        entry: Plain data.
        originals: By the `key_of` of their plain form.
        read: From a new entry to what it stands for.
    """
    original = originals.get(key_of(entry))
    return read(entry) if original is None else (original,)


def key_of(entry: Any) -> str:
    """Text that is the same for equal plain data.

    Example:
        >>> key_of({"b": [1], "a": None}) == key_of({"a": None, "b": [1]})
        True
    """
    return repr(_sorted(entry))


def _sorted(value: Any) -> Any:
    match value:
        case dict():
            return [(key, _sorted(value[key])) for key in sorted(value)]
        case list():
            return ["list", *map(_sorted, value)]
        case _:
            return value


def plain_data(value: Any) -> Any:
    """Any part of a suite as a file would say it; what it does not say itself is left out."""
    match value:
        case AsWritten():
            return str(value)
        case None | str() | int() | float():  # most of it
            return value
        case Computed():
            return value.written
        case Mapping():
            return {str(key): plain_data(part) for key, part in value.items()}
        case list() | tuple():
            return [plain_data(part) for part in value]
        case _ if attrs.has(type(value)):
            return _members(value)
        case _:
            return value


def _members(value: Any) -> dict[str, Any]:
    """The fields that say something, as the keys that a file has for them."""
    found: dict[str, Any] = {}
    for name, key, default in _keys(type(value)):  # type: ignore[arg-type] # classes have hashes
        part = getattr(value, name)
        if part == default:
            continue
        if key is None:
            found |= plain_data(part)
        else:
            found[key] = plain_data(part)
    return found


@functools.cache
def _keys(form: type) -> tuple[tuple[str, str | None, Any], ...]:
    """The fields of a class that are in files: names, keys, None for those beside others, and defaults."""
    found: list[tuple[str, str | None, Any]] = []
    for field in attrs.fields(form):
        default = field.default
        if isinstance(default, attrs.Factory):  # type: ignore[arg-type] # a class at run time
            default = default.factory()
        key = field.metadata.get(KEY, camel(field.name))
        if key is not None or field.metadata.get(BESIDE):
            found.append((field.name, key, default))
    return tuple(found)

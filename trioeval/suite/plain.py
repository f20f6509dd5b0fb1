"""Parts of a suite as plain data in the format of a suite file, and back."""

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
    """Return a test as it would be written in a file.

    Example:
        >>> from trioeval.grading import Assertion
        >>> test = Test(vars={"x": 1}, assertions=(Assertion(type="equals", value="a"),))
        >>> plain_test(test)
        {'vars': {'x': 1}, 'assert': [{'type': 'equals', 'value': 'a'}]}
    """
    found: dict[str, Any] = plain_data(test)
    return found


def plain_whole_test(test: Test) -> dict[str, Any]:
    """Return a test with all of the parts that code of the user may add to, empty ones included."""
    return {"vars": {}, "assert": [], "options": {}, "metadata": {}, **plain_test(test)}


def plain_prompt(prompt: Prompt) -> dict[str, Any]:
    """Return a prompt as it would be written in a file, without a function that creates its text."""
    found: dict[str, Any] = plain_data(prompt)
    return found


def plain_suite(suite: Suite) -> dict[str, Any]:
    """Return prompts, tests and providers of a suite as they would be written in a file. Reads all tests."""
    scenarios = [
        {
            "config": [plain_test(test) for test in scenario.config],
            # An empty test must be written explicitly.
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


def suite_for_hooks(suite: Suite) -> dict[str, Any]:
    """Return a suite as `plain_suite` does, but always with a default test, to which hooks may add."""
    default = Test() if suite.default_test is None else suite.default_test
    return {
        **plain_suite(suite),
        "defaultTest": {**plain_whole_test(Test()), **_plain_default(default)},
    }


def _plain_default(test: Test) -> dict[str, Any]:
    if test.judge is None:
        return plain_test(test)
    return {**plain_test(attrs.evolve(test, judge=None)), "provider": test.judge.id}


def kept_or_read(
    entry: Any, originals: Mapping[str, T], read: Callable[[Any], tuple[T, ...]]
) -> tuple[T, ...]:
    """Return the original of an entry that is unchanged, or read a new entry.

    Args:
        entry: Plain data.
        originals: Parts by the `key_of` of their plain form.
        read: Reads a new entry.
    """
    original = originals.get(key_of(entry))
    return read(entry) if original is None else (original,)


def key_of(entry: Any) -> str:
    """Return a text that is equal for equal plain data.

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
    """Return any part of a suite as it would be written in a file; values that are not set are left out."""
    match value:
        case AsWritten():
            return str(value)
        case None | str() | int() | float():  # most values
            return value
        case Computed():
            return value.written
        case Mapping():
            return {str(key): plain_data(part) for key, part in value.items()}
        case list() | tuple():
            return [plain_data(part) for part in value]
        case _ if attrs.has(type(value)):
            return members(value)
        case _:
            return value


def members(value: Any) -> dict[str, Any]:
    """Return the fields that differ from their defaults, by their keys in a file."""
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
    """Return the fields that files can set: name, key, None for those beside others, and default."""
    found: list[tuple[str, str | None, Any]] = []
    for field in attrs.fields(form):
        default = field.default
        if isinstance(default, attrs.Factory):  # type: ignore[arg-type] # a class at run time
            default = default.factory()
        key = field.metadata.get(KEY, camel(field.name))
        if key is not None or field.metadata.get(BESIDE):
            found.append((field.name, key, default))
    return tuple(found)

"""The entries of a suite that are written in several forms, or hold more than their fields say."""

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import attrs
import cattrs

from trioeval.grading import Assertion, check_assertion, quote
from trioeval.suite.keys import (
    NOT_YET_IN_ASSERTIONS,
    NOT_YET_IN_PROMPTS,
    NOT_YET_IN_PROVIDERS,
    NOT_YET_IN_TESTS,
)
from trioeval.suite.mistakes import Mistake, MistakenError, kind
from trioeval.suite.models import Prompt, ProviderEntry, Test
from trioeval.suite.paths import DocumentPath
from trioeval.suite.strict import Hook, object_hook
from trioeval.suite.template import Templates

_PYTHON_FILE = re.compile(r"\.py(:\w+)?$")
"""A function in a file is a provider itself, not the description of one."""
_FILE = "file://"
_PROVIDER_KEYS = {"id", "label", "config", "lane", "prompts", "delay", *NOT_YET_IN_PROVIDERS}
"""An object with one key is read as settings where it is one of these, and otherwise the key is the id."""


def assertion_hook(converter: cattrs.Converter) -> Hook:
    """For assertions: objects, checked by the rules of their type."""
    structure = object_hook(converter, Assertion, not_yet=NOT_YET_IN_ASSERTIONS)

    def hook(value: Any, wanted: Any) -> Assertion:
        if isinstance(value, str):
            hint = f'write {{"type": "contains", "value": {quote(value)}}}'
            raise MistakenError(Mistake(f"must be an object, got {kind(value)}", hint))
        mistakes: list[Mistake] = []
        try:
            assertion: Assertion = structure(value, wanted)
        except MistakenError as error:
            mistakes += error.parts
            if not (isinstance(value, dict) and isinstance(value.get("type"), str)):
                raise
            # Type and value can be judged although something else is wrong.
            assertion = Assertion(type=value["type"], value=value.get("value"))
        mistakes += (
            # Their paths are one key, `.type`, or empty.
            Mistake(problem.message, problem.hint, at=tuple(problem.path.split(".")[1:]))
            for problem in check_assertion(assertion, value_given="value" in value)
        )
        if mistakes:
            raise MistakenError(*mistakes)
        return assertion

    return hook


@attrs.frozen
class _PromptObject:
    raw: str
    label: str | None = None
    id: str | None = None


def prompt_hook(converter: cattrs.Converter) -> Hook:
    """For prompts: text, or an object with the text as `raw`."""
    structure = object_hook(converter, _PromptObject, not_yet=NOT_YET_IN_PROMPTS)
    templates = Templates()

    def hook(value: Any, wanted: Any) -> Prompt:
        at = () if isinstance(value, str) else ("raw",)
        given: _PromptObject = structure(
            {"raw": value} if isinstance(value, str) else value, wanted
        )
        if not given.raw.strip():
            raise MistakenError(Mistake("a prompt must not be empty", at=at))
        if given.raw.startswith(_FILE):
            hint = "write the text of the prompt here"
            raise MistakenError(Mistake("prompts from files are not supported yet", hint, at=at))
        if error := templates.syntax_error(given.raw):
            raise MistakenError(Mistake(error, at=at))
        name = given.label or given.id or given.raw
        digest = hashlib.sha256(name.encode()).hexdigest()
        return Prompt(raw=given.raw, label=given.label or given.raw, id=digest, given_id=given.id)

    return hook


def provider_hook(converter: cattrs.Converter) -> Hook:
    """For providers: an id, an object with one, or an object whose one key is the id."""
    structure = object_hook(converter, ProviderEntry, not_yet=NOT_YET_IN_PROVIDERS)

    def hook(value: Any, wanted: Any) -> ProviderEntry:
        below, settings = provider_settings(value)
        try:
            entry: ProviderEntry = structure(settings, wanted)
        except MistakenError as error:
            raise MistakenError(*(mistake.below(*below) for mistake in error.parts)) from None
        at = ("id",) if isinstance(value, dict) and "id" in value else below
        if not entry.id.strip():
            raise MistakenError(Mistake("the id of a provider must not be empty", at=at))
        if entry.id.startswith(_FILE) and not _PYTHON_FILE.search(entry.id):
            hint = "write the provider here"
            raise MistakenError(Mistake("providers from files are not supported yet", hint, at=at))
        return entry

    return hook


def provider_settings(value: Any) -> tuple[DocumentPath, Any]:
    """The object form of a provider, and where its settings stand below the entry.

    Raises:
        MistakenError: The id is given twice, or is the key of something else than an object.

    Example:
        >>> provider_settings({"openai:gpt-4.1": {"label": "a"}})
        (('openai:gpt-4.1',), {'id': 'openai:gpt-4.1', 'label': 'a'})
    """
    match value:
        case str():
            return (), {"id": value}
        case dict() if len(value) == 1 and not value.keys() & _PROVIDER_KEYS:
            ((name, rest),) = value.items()
            if not isinstance(rest, dict):
                raise MistakenError(Mistake(f"must be an object, got {kind(rest)}", at=(name,)))
            if "id" in rest:
                message = f"the id is given twice, here and as {quote(name)}"
                raise MistakenError(Mistake(message, at=(name, "id"), key=True))
            return (name,), {"id": name, **rest}
        case _:
            return (), value


def test_hook(converter: cattrs.Converter) -> Hook:
    """For tests: objects, with variables written out in them."""
    structure = object_hook(
        converter, Test, renamed={"assertions": "assert"}, not_yet=NOT_YET_IN_TESTS
    )

    def hook(value: Any, wanted: Any) -> Test:
        if isinstance(value, str):
            message = f"tests from {quote(value)} are not supported yet"
            raise MistakenError(Mistake(message, "write the test here"))
        mistakes = list(_files_in_vars(value.get("vars"))) if isinstance(value, dict) else []
        try:
            test: Test = structure(value, wanted)
        except MistakenError as error:
            raise MistakenError(*mistakes, *error.parts) from None
        if mistakes:
            raise MistakenError(*mistakes)
        return test

    return hook


def _files_in_vars(variables: Any) -> Iterator[Mistake]:
    """Values that name a file. That `vars` itself must be an object is said elsewhere."""
    for name, value in variables.items() if isinstance(variables, dict) else ():
        members = enumerate(value) if isinstance(value, list) else [(None, value)]
        for position, member in members:
            if isinstance(member, str) and member.startswith(_FILE):
                message = "variables from files are not supported yet"
                at = ("vars", name) if position is None else ("vars", name, position)
                yield Mistake(message, "write the value here", at=at)

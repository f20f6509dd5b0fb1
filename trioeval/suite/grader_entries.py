"""Judges and their prompts in a suite: for one assertion, or in the options of a test.

The judge is one provider for everything, or one for each role: `{text: …, embedding: …}`. It is loaded like
any provider, and its file is read. The prompt is a text, a list of messages, or several of these for types
that ask more than one question.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias, get_args

import attrs
import cattrs

from trioeval.documents.files import FILE, FileContext, names_file
from trioeval.documents.mistakes import (
    Mistake,
    MistakenError,
    Mistakes,
    kind,
    nearest,
    read_each,
    read_list,
)
from trioeval.documents.placing import read_placed, structured
from trioeval.documents.structure import Hook
from trioeval.grading import quote
from trioeval.grading.kind import Role
from trioeval.scripting import SCRIPTS, is_script, names_script, split_function
from trioeval.suite.model import ProviderEntry
from trioeval.suite.sources.prompts import read_python, read_text
from trioeval.templates import Templates
from trioeval.text import json_text

ROLES: tuple[Role, ...] = get_args(Role)

Grader: TypeAlias = str | ProviderEntry
Graders: TypeAlias = Grader | Mapping[Role, Grader]
"""The judge of a loaded suite: one, or one for each role."""

_FORMS = 'an id, an object with "id", or an object with one of these for each role'


def grader_hook(converter: cattrs.Converter, context: FileContext) -> Hook:
    """Return the hook for a judge; a file is read."""

    def one(value: Any) -> Grader:
        if not isinstance(value, str | dict):
            raise MistakenError(Mistake(f"must be {_FORMS}, got {kind(value)}"))
        if (
            isinstance(value, str)
            and names_file(value)
            and ".py" not in value
            and not names_script(value)
        ):
            file = context.file(value)
            return structured(read_placed(file), file, one)
        entry: ProviderEntry = converter.structure(value, ProviderEntry)
        return value if isinstance(value, str) else entry

    def of_role(role: Role, judge: Any) -> Grader | None:
        if role not in ROLES:
            message = f'"{role}" is not a role of a grader'
            raise MistakenError(Mistake(message, nearest(role, ROLES), key=True))
        return None if judge is None else one(judge)

    def hook(value: Any, _wanted: Any) -> Graders | None:
        match value:
            case None:
                return None
            case dict() if "id" not in value and not value.keys().isdisjoint(ROLES):
                found = read_each(value.items(), of_role)
                return {role: judge for role, judge in found.items() if judge is not None}
            case _:
                return one(value)

    return hook


def grader_for(judge: Any, role: Role) -> ProviderEntry | None:
    """Return the judge for a role; None if none is given for it.

    Example:
        >>> judge = {"text": "openai:gpt-4.1"}
        >>> grader_for(judge, "text").id, grader_for(judge, "embedding")
        ('openai:gpt-4.1', None)
    """
    match judge:
        case str():
            return ProviderEntry(id=judge)
        case ProviderEntry():
            return judge
        case Mapping():
            return grader_for(judge.get(role), role)
        case _:
            return None


def factuality_hook(converter: cattrs.Converter) -> Hook:
    """Return the hook for the scores of the categories of `factuality`; other names are refused."""
    structure = converter.get_structure_hook(Mapping[str, float])

    def hook(value: Any, _wanted: Any) -> Mapping[str, float] | None:
        if value is None:
            return None
        from trioeval.grading.judges.facts import CATEGORIES

        found: Mapping[str, float] = structure(value, Mapping[str, float])
        Mistakes(
            Mistake(f'"{name}" is not a category', nearest(name, CATEGORIES), at=(name,), key=True)
            for name in found
            if name not in CATEGORIES
        ).raise_any()
        return found

    return hook


def rubric_prompt_hook(context: FileContext, templates: Templates | None) -> Hook:
    """Return the hook for the prompts of judges; files are read unchanged, because they are templates.

    Args:
        context: The context of the files.
        templates: Checks the syntax of the prompts; None leaves that to the run.
    """
    reader = _PromptReader(context, templates)

    def hook(value: Any, _wanted: Any) -> Any:
        if not isinstance(value, str | list | dict | None):
            message = f"must be text, a list of messages, or several of these, got {kind(value)}"
            raise MistakenError(Mistake(message))
        return reader.read(value)

    return hook


@attrs.frozen(eq=False, repr=False)
class _PromptReader:
    context: FileContext
    templates: Templates | None

    def read(self, value: Any) -> Any:
        """Return a prompt, or several of them, with file references replaced by their contents."""
        match value:
            case str() if names_file(value):
                return self._file_text(value)
            case str():
                self._check(value)
            case list() if are_messages(value):
                self._check(json_text(value))
            case list():
                return read_list(value, self.read)
            case dict():
                return read_each(value.items(), lambda _key, one: self.read(one))
            case _:
                pass
        return value

    def _file_text(self, reference: str) -> Any:
        path, function = split_function(reference.removeprefix(FILE))
        if path.lower().endswith(tuple({".py", *SCRIPTS})):
            return self._made_by(reference, path, function)
        file = self.context.file(reference)
        text = read_text(file)
        self._check(text, file)
        return text

    def _made_by(self, reference: str, path: str, function: str | None) -> Any:
        """Return the prompt that a function without arguments returns, or that a file exports."""
        from trioeval.suite.sources.code import call_function, check_node

        self.context.check_code(quote(reference))
        file = self.context.file(path)
        if is_script(file):
            check_node(file, "makes a prompt", self.context)
            target = f"value:{function or ''}"
        elif function is None:
            message = f"{quote(reference)} names no function"
            raise MistakenError(Mistake(message, f"write {reference}:<function>"))
        else:
            read_python(file, path, function)
            target = function
        if not self.context.may_run(quote(reference), f"the prompt that {quote(reference)} makes"):
            return reference
        made = call_function(file, target, (), self.context)
        if not _are_prompts(made):
            message = f"{quote(reference)} must return text or messages, got {kind(made)}"
            right = f"a function of a file is named after it: {FILE}{path}:<function>"
            raise MistakenError(Mistake(message, None if function else right))
        self._check(made if isinstance(made, str) else json_text(made), file)
        return made

    def _check(self, text: str, file: Path | None = None) -> None:
        error = None if self.templates is None else self.templates.prompt_error(text)
        if error is not None:
            raise MistakenError(Mistake(error, file=file))


def _are_prompts(made: Any) -> bool:
    """Return whether a value is a prompt, or a list of several."""
    several = made if isinstance(made, list) and not are_messages(made) else [made]
    return bool(several) and all(isinstance(one, str) or are_messages(one) for one in several)


def are_messages(value: Any) -> bool:
    """Return whether a value is a list of messages, which is one prompt.

    Example:
        >>> are_messages([{"role": "user", "content": "hi"}]), are_messages(["hi", "ho"])
        (True, False)
    """
    if not isinstance(value, list | tuple):
        return False
    return bool(value) and all(isinstance(one, Mapping) and "role" in one for one in value)

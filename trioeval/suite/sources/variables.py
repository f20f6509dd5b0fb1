"""Variables of a test that come from files: all of them from a document, or the value of one from a file."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trioeval.grading import quote
from trioeval.scripting.javascript import Script
from trioeval.suite.anchors import FILE
from trioeval.suite.documents import read_document
from trioeval.suite.mistakes import Mistake, MistakenError, kind
from trioeval.suite.placing import read_placed, structured
from trioeval.suite.sources.around import Around, names_file
from trioeval.suite.sources.computed import JAVASCRIPT
from trioeval.suite.sources.nested_files import with_files
from trioeval.suite.sources.prompt_files import read_text

_CONVERSATION = "_conversation"
"""May be given as a list of turns, for an assertion that judges a conversation from elsewhere."""

_TYPESCRIPT = frozenset({".cts", ".mts", ".ts"})
_CODE = frozenset({".py", *JAVASCRIPT})
"""Of files that compute a variable when its row is rendered."""
VARIABLE_NAMES = ("name", "prompt", "vars")
"""What a JavaScript function that computes a variable is called with."""

RESERVED = frozenset({_CONVERSATION, "__evalId", "__evalStepId", "__repeatIndex"})
"""Variables that every row gets by itself."""


def read_vars(reference: str | Sequence[Any], around: Around) -> dict[str, Any]:
    """The variables in a file, in those that match a pattern, or in several; later ones win.

    Args:
        reference: What a test has in place of its variables; with `file://` or without.
        around: What it is relative to.

    Raises:
        MistakenError: Everything that is wrong with the reference or the files.
    """
    if isinstance(reference, str):
        return _variables(reference, around)
    found: dict[str, Any] = {}
    mistakes: list[Mistake] = []
    for position, one in enumerate(reference):
        try:
            found |= _variables(one, around)
        except MistakenError as error:
            mistakes += (mistake.below(position) for mistake in error.parts)
    if mistakes:
        raise MistakenError(*mistakes)
    return found


def _variables(reference: Any, around: Around) -> dict[str, Any]:
    if not isinstance(reference, str):
        raise MistakenError(Mistake(f"must be the name of a file, got {kind(reference)}"))
    found: dict[str, Any] = {}
    for file in around.files(reference):
        document = read_placed(file, read_document)
        found |= structured(document, file, lambda data: _object(data, around))
    return found


def _object(data: Any, around: Around) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise MistakenError(Mistake(f"must be an object of variables, got {kind(data)}"))
    variables: dict[str, Any] = with_files(data, around)
    return variables


def resolve_file_vars(variables: Mapping[str, Any], around: Around) -> dict[str, Any]:
    """The variables with every pattern of files written out as the files that match it.

    Values that name one file keep naming it, as `file://` and its path in the folder of `around`; several
    files are a list of such texts, one for each row to be. What is in them is read when a row is rendered.

    Raises:
        MistakenError: Files that there are not, and names that variables cannot have.
    """
    found: dict[str, Any] = {}
    mistakes: list[Mistake] = []
    for name, value in variables.items():
        if name in RESERVED and not (name == _CONVERSATION and isinstance(value, list)):
            message = f"{quote(name)} shadows a reserved name"
            hint = f"every row has these by itself: {', '.join(sorted(RESERVED))}"
            mistakes.append(Mistake(message, hint, at=(name,), key=True))
        if name == "env":
            message = 'the variable "env" hides the environment from templates'
            around.warn(Mistake(message, "give it another name", at=(name,), key=True))
        try:
            found[name] = _resolved(value, around)
        except MistakenError as error:
            mistakes += (mistake.below(name) for mistake in error.parts)
    if mistakes:
        raise MistakenError(*mistakes)
    return found


def _resolved(value: Any, around: Around) -> Any:
    if isinstance(value, str):
        if not names_file(value):
            return value
        names = _names(value, around)
        return names[0] if len(names) == 1 else names
    if not (isinstance(value, list) and any(map(names_file, value))):
        return value
    found: list[Any] = []
    for position, member in enumerate(value):
        try:
            found += _names(member, around) if names_file(member) else [member]
        except MistakenError as error:
            raise MistakenError(*(mistake.below(position) for mistake in error.parts)) from None
    return found


def _names(reference: str, around: Around) -> list[str]:
    files = around.files(reference)
    for file in files:
        if file.suffix.lower() in _CODE:
            around.check_code(quote(reference))
        _check_code(file)
    return [FILE + os.path.relpath(file, around.directory) for file in files]


def _check_code(file: Path) -> None:
    """Refuse a file of JavaScript that cannot be run when the row is rendered.

    Raises:
        MistakenError: It is TypeScript, is wrong as it is written, or there is no engine.
    """
    if file.suffix.lower() in _TYPESCRIPT:
        message = f"{quote(file.name)} is TypeScript, which cannot be run"
        hint = f"compile it, and name the {file.suffix.replace('t', 'j')} file"
        raise MistakenError(Mistake(message, hint))
    if file.suffix.lower() in JAVASCRIPT:
        script = Script(read_text(file), VARIABLE_NAMES, "module")
        if fault := script.fault():
            raise MistakenError(Mistake(f"{quote(file.name)} {fault}"))

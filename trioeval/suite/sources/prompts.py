"""What one entry of `prompts` stands for: a text, an object with a text, or files of prompts.

A text names a file if it begins with `file://`, or if it could be a path and there is such a file. Most
texts with a slash in them are no paths, so any other is taken as it is, unless it is so clearly the name of
a file of prompts that somebody must have mistyped it.
"""

import hashlib
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import attrs

from trioeval.grading import quote
from trioeval.suite.anchors import FILE, unanchored
from trioeval.suite.mistakes import Mistake, MistakenError, kind
from trioeval.suite.models import Prompt, PromptFunction
from trioeval.suite.sources.around import Around
from trioeval.suite.sources.patterns import is_glob
from trioeval.suite.sources.prompt_files import (
    PROGRAMS,
    SUFFIXES,
    Piece,
    is_program,
    read_pieces,
    read_python,
)
from trioeval.suite.strict import object_hook, strict_converter

_EXEC = "exec:"
_SCRIPTS = (".cjs", ".cts", ".js", ".mjs", ".mts", ".ts")
_LIKE_A_FILE = (*SUFFIXES, *PROGRAMS, *_SCRIPTS, ".py")
_FUNCTION = re.compile(r"(?P<file>.+\.(?:py|[cm]?[jt]s)):(?P<function>\w+(?:\.\w+)*)")
_PATH = re.compile(r"[^\s{}]+")
_HOSTED = re.compile(r"(langfuse|portkey|helicone)://")


@attrs.frozen(kw_only=True)
class _Entry:
    raw: str | None = None
    label: str | None = None
    id: str | None = None
    config: Mapping[str, Any] = attrs.field(factory=dict)


def read_prompts(entry: Any, around: Around) -> tuple[Prompt, ...]:
    """The prompts, at least one, that an entry stands for.

    Args:
        entry: A text, or an object with `raw` (or `id`, where that names a file), `label`, `id`, `config`.
        around: What paths are relative to.

    Raises:
        MistakenError: Everything that is wrong with it, relative to the entry.

    Example:
        >>> [prompt] = read_prompts("Why is {{thing}} blue?", Around(directory=Path("/suite")))
        >>> prompt.label
        'Why is {{thing}} blue?'
    """
    given, at = _given(entry)
    folder, text = unanchored(given.raw or "")
    if folder is not None:
        around = attrs.evolve(around, directory=folder)
    try:
        if text.startswith(_EXEC):
            return (_program(given, text.removeprefix(_EXEC).strip(), around),)
        if not (files := _files(text, around)):
            return (_prompt(given, text, given.label),)
        return tuple(prompt for file in files for prompt in _in_file(file, text, given, around))
    except MistakenError as error:
        raise MistakenError(*(mistake.below(*at) for mistake in error.parts)) from None


def _given(entry: Any) -> tuple[_Entry, tuple[str, ...]]:
    """An entry in its long form, and where its text stands in it."""
    if isinstance(entry, str):
        return _Entry(raw=entry), ()
    if not isinstance(entry, dict):
        raise MistakenError(Mistake(f"must be text or an object, got {kind(entry)}"))
    known = {key: value for key, value in entry.items() if value is not None}
    given: _Entry = object_hook(strict_converter(), _Entry)(known, _Entry)
    if given.raw is None and given.id is not None:
        return attrs.evolve(given, raw=given.id, id=None), ("id",)
    if given.raw is None:
        raise MistakenError(
            Mistake('"raw" is missing', "write the text of the prompt, or its file")
        )
    if not given.raw.strip():
        raise MistakenError(Mistake("a prompt must not be empty", at=("raw",)))
    return given, ("raw",)


def _files(text: str, around: Around) -> tuple[Path, ...]:
    """The files that a text names; none if it is a text and nothing else.

    Raises:
        MistakenError: It must be meant as the name of a file, and there is none.
    """
    if hosted := _HOSTED.match(text):
        message = f"prompts from {hosted[1]} are not supported"
        raise MistakenError(Mistake(message, "save the prompt in a file and name that"))
    named, _ = _split(text.removeprefix(FILE))
    if text.startswith(FILE):
        return around.files(named)
    if "\n" in text or not _could_be_path(text):
        return ()
    is_meant = _PATH.fullmatch(named) and named.lower().endswith(_LIKE_A_FILE)
    if is_meant or _is_there(named, around):
        return around.files(named)
    return ()


def means_file(text: str, around: Around) -> bool:
    """Whether a prompt is, or must be meant as, the name of a file, or a command."""
    if text.startswith(_EXEC):
        return True
    try:
        return bool(_files(text, around))
    except MistakenError:
        return _HOSTED.match(text) is None


def _could_be_path(text: str) -> bool:
    """Whether a text may be a path at all: a file called `Hello` is no reason not to say hello."""
    marks = text[-3:-2] == "." or text[-4:-3] == "." or any(mark in text for mark in "*/\\")
    return marks or _split(text)[0].lower().endswith(_LIKE_A_FILE)


def _is_there(named: str, around: Around) -> bool:
    try:
        if (around.directory / named).is_file():
            return True
    except (OSError, ValueError):  # too long, or a NUL
        return False
    return is_glob(named) and not Path(named).is_absolute() and around.matches(named)


def _split(named: str) -> tuple[str, str | None]:
    """A file and the function in it.

    Example:
        >>> _split("p.py:ask"), _split("p.py:Prompts.ask"), _split("p.txt")
        (('p.py', 'ask'), ('p.py', 'Prompts.ask'), ('p.txt', None))
    """
    found = _FUNCTION.fullmatch(named)
    return (found["file"], found["function"]) if found else (named, None)


def _in_file(file: Path, text: str, given: _Entry, around: Around) -> Iterator[Prompt]:
    """The prompts of one file."""
    named, function = _split(text.removeprefix(FILE))
    shown = _shown(file, around) if is_glob(named) else named
    suffix = file.suffix.lower()
    if is_glob(named):  # the same label or id for several files would make one prompt of them
        label = given.label
        if label and suffix != ".txt":  # its labels hold the path anyway
            label = f"{label}: {shown}"
        given = attrs.evolve(given, label=label, id=given.id and f"{given.id}:{shown}")
    if suffix in _SCRIPTS:
        message = f"{quote(shown)} is JavaScript or TypeScript: functions of prompts are in Python"
        raise MistakenError(
            Mistake(message, "write file://<file>.py:<function>, or exec:<command>")
        )
    is_executed = suffix in PROGRAMS or (suffix not in SUFFIXES and is_program(file))
    if suffix == ".py" or is_executed:
        around.check_code(quote(shown))
    if suffix == ".py":
        source = read_python(file, shown, function)
        label = given.label or (f"{shown}:{function}" if function else f"{shown}: {source}")
        made_by = PromptFunction(kind="python", target=str(file), function=function)
        yield _prompt(given, source, label, made_by)
    elif is_executed:
        made_by = PromptFunction(kind="exec", target=shlex.quote(str(file)))
        yield _prompt(given, text, given.label or shown, made_by)
    else:
        pieces = read_pieces(file, shown, given.label, around)
        for number, piece in enumerate(pieces, 1):
            yield _piece(given, piece, number if len(pieces) > 1 else None)


def _piece(given: _Entry, piece: Piece, number: int | None) -> Prompt:
    named = given.id and number and f"{given.id}:{number}"
    return _prompt(attrs.evolve(given, id=named or given.id), piece.raw, piece.label)


def _shown(file: Path, around: Around) -> str:
    inside = file.is_relative_to(around.directory)
    return str(PurePosixPath(file.relative_to(around.directory) if inside else file))


def _program(given: _Entry, command: str, around: Around) -> Prompt:
    """A command that prints the prompt; a program in the suite's folder needs no `./`."""
    around.check_code(quote(f"{_EXEC}{command}"))
    try:
        words = shlex.split(command)
    except ValueError as error:
        message = f"{quote(command)} cannot be split into words: {str(error).lower()}"
        raise MistakenError(Mistake(message, "close the quote")) from None
    if not words:
        raise MistakenError(Mistake('"exec:" names no program', "write exec:<command line>"))
    if (around.directory / words[0]).is_file():
        words[0] = str(around.file(words[0]))
    made_by = PromptFunction(kind="exec", target=shlex.join(words))
    return _prompt(given, command, given.label or command, made_by)


def _prompt(
    given: _Entry, raw: str, label: str | None, function: PromptFunction | None = None
) -> Prompt:
    name = label or given.id or raw
    return Prompt(
        raw=raw,
        label=label or raw,
        id=hashlib.sha256(name.encode()).hexdigest(),
        given_id=given.id,
        config=given.config,
        function=function,
    )

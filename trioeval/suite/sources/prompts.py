"""What one entry of `prompts` stands for: a text, an object with a text, or files of prompts.

A text names a file if it begins with `file://`, or if it could be a path and there is such a file. Most
texts with a slash in them are no paths, so any other is taken as it is, unless it is so clearly the name of
a file of prompts that somebody must have mistyped it.
"""

import ast
import csv
import hashlib
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import attrs

from trioeval.documents import read_document
from trioeval.documents.files import FILE, Around, unanchored
from trioeval.documents.mistakes import (
    Mistake,
    MistakenError,
    below,
    kind,
    nearest,
    read_each,
    read_list,
)
from trioeval.documents.patterns import is_glob
from trioeval.documents.placing import read_placed, structured
from trioeval.documents.structure import object_hook, strict_converter
from trioeval.grading import quote
from trioeval.scripting.python_syntax import python_fault
from trioeval.suite.model import Prompt, PromptFunction
from trioeval.text import json_text

# The prompts that stand in one file, by its suffix, each with the label that it gets where none is given.
#
# Labels hold what tells the prompts of one file apart, because the id of a prompt is made of its label.


SUFFIXES = (".csv", ".j2", ".json", ".jsonl", ".md", ".txt", ".yaml", ".yml")
"""Of files that hold prompts."""

PROGRAMS = (".bash", ".bat", ".cmd", ".exe", ".pl", ".ps1", ".rb", ".sh")
"""Of programs that print a prompt, whatever their permissions are."""

_START = 50
"""Characters of a whole file that its label shows."""

_YAML_START = 80
_LINE = re.compile(r"\r?\n")
_DEF = re.compile(r"^\s*(?:async\s+)?def\s+(\w+)", re.MULTILINE)


@attrs.frozen
class Piece:
    """One prompt of a file."""

    raw: str
    label: str


def read_pieces(file: Path, shown: str, label: str | None, around: Around) -> Sequence[Piece]:
    """The prompts in a file, at least one.

    Args:
        file: One with a suffix of `SUFFIXES`.
        shown: How labels and messages name it.
        label: What the suite calls it; None for no name.
        around: What the files that it names are relative to, and its settings.

    Raises:
        MistakenError: It cannot be read, or has no prompts.
    """
    if file.suffix.lower() not in SUFFIXES:
        message = (
            f"{quote(shown)} is no file of prompts: the suffix {quote(file.suffix)} is not known"
        )
        hint = f"use one of {', '.join(SUFFIXES)}, .py, or a program that is executable"
        raise MistakenError(Mistake(message, hint))
    text = read_text(file)
    match file.suffix.lower():
        case ".csv":
            pieces = list(_label_rows(_rows(text, around), label))
        case ".jsonl":
            lines = [line for line in _LINE.split(text) if line.strip()]
            pieces = [Piece(line, f"{label or shown}: {line}") for line in lines]
            if len(lines) == 1:
                pieces = [Piece(lines[0], label or shown)]
        case ".txt":
            before = f"{label}: {shown}" if label else shown
            separator = around.variable("PROMPT_SEPARATOR", "---")
            pieces = [Piece(raw, f"{before}: {raw}") for raw in _parts(text, separator)]
        case ".json":
            raw = _as_json(file, text, around)
            pieces = [Piece(raw, label or f"{shown}: {raw}")]
        case ".yaml" | ".yml":
            raw = _as_json(file, text, around)
            pieces = [Piece(raw, label or f"{shown}: {raw[:_YAML_START]}")]
        case _:
            pieces = [Piece(text, label or f"{shown}: {text[:_START]}...")]
    if not any(piece.raw.strip() for piece in pieces):
        raise MistakenError(Mistake(f"there are no prompts in {quote(shown)}", _columns(file)))
    return pieces


def read_text(file: Path) -> str:
    """A file as text, with the ends of its lines as they are.

    Raises:
        MistakenError: It cannot be read, or is not UTF-8.
    """
    try:
        content = file.read_bytes()
        return content.decode("utf-8-sig")
    except OSError as error:
        raise MistakenError(Mistake(f"cannot be read: {error.strerror}", file=file)) from None
    except UnicodeDecodeError as error:
        message = f"byte {error.start} (0x{error.object[error.start]:02x}) is not UTF-8"
        line = error.object.count(b"\n", 0, error.start) + 1
        hint = "save the file as UTF-8"
        raise MistakenError(Mistake(message, hint, place=(line, 1), file=file)) from None


def read_python(file: Path, shown: str, function: str | None) -> str:
    """A Python file, after a look at whether it can be run and has the function, or the class and the method.

    Raises:
        MistakenError: It cannot be read or parsed, or never mentions the function.
    """
    source = read_text(file)
    try:
        ast.parse(source)
    except SyntaxError as error:
        place = (error.lineno or 1, error.offset or 1)
        fault = f"{quote(shown)} {python_fault(error, source)}"
        raise MistakenError(Mistake(fault, place=place, file=file)) from None
    except ValueError as error:  # a NUL
        fault = f"{quote(shown)} {python_fault(error, source)}"
        raise MistakenError(Mistake(fault, file=file)) from None
    parts = function.split(".") if function else []
    if not all(re.search(rf"\b{part}\b", source) for part in parts):
        message = f"there is no function {quote(function)} in {quote(shown)}"
        raise MistakenError(Mistake(message, nearest(parts[-1], _DEF.findall(source))))
    return source


def is_program(file: Path) -> bool:
    """Whether the system would run a file."""
    return os.access(file, os.X_OK)


def _parts(text: str, separator: str) -> Iterator[str]:
    part: list[str] = []
    for line in (*_LINE.split(text), separator):
        if line.strip() != separator.strip():
            part.append(line)
            continue
        if raw := "\n".join(part).strip():
            yield raw
        part = []


def _rows(text: str, around: Around) -> list[tuple[str, str]]:
    """The prompt and the label, or "", of each row of a CSV.

    A file that is no table holds a prompt on each line: a comma in a text does not make it one.
    """
    delimiter = around.variable("CSV_DELIMITER", ",")
    if delimiter in text:
        try:
            return list(_table(text, delimiter))
        except (csv.Error, ValueError, TypeError):
            pass  # a stray quote, a row of another length, or a delimiter of several characters
    lines = [line for line in _LINE.split(text) if line.strip()]
    if lines and lines[0].strip().lower() == "prompt":
        del lines[0]
    return [(line, "") for line in lines]


def _table(text: str, delimiter: str) -> Iterator[tuple[str, str]]:
    lines = text.splitlines(keepends=True)
    header: list[str] | None = None
    for cells in csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True):
        row = [cell.strip() for cell in cells]
        if not row:
            continue
        if header is None:
            header = row
            continue
        named = dict(zip(header, row, strict=True))
        if prompt := named.get("prompt"):
            yield prompt, named.get("label", "")


def _label_rows(rows: Sequence[tuple[str, str]], label: str | None) -> Iterator[Piece]:
    """Labels that no two rows share, where the table does not say otherwise."""
    used = {given for _, given in rows if given}
    for number, (raw, given) in enumerate(rows, 1):
        if given:
            yield Piece(raw, given)
            continue
        first = f"Prompt {number} - {raw}"
        if label:
            first = f"{label}: {raw}" if len(rows) > 1 else label
        others = (
            f"{first} (row {number}{times})" for times in ("", *map(".{}".format, range(2, 9)))
        )
        made = next(name for name in (first, *others) if name not in used)
        used.add(made)
        yield Piece(raw, made)


def _as_json(file: Path, text: str, around: Around) -> str:
    """A document as compact JSON, with the files that it names; the text itself if it is no document.

    A prompt such as `{"content": {{question | dump}}}` becomes JSON only when it is rendered.
    """
    if not text.strip():
        return ""
    try:
        document = read_document(file)
    except MistakenError:
        return text
    return json_text(structured(document, file, lambda data: _with_files(data, around)))


def _with_files(data: Any, around: Around) -> Any:
    match data:
        case dict():
            return read_each(data.items(), lambda _key, part: _with_files(part, around))
        case list():
            return read_list(data, lambda part: _with_files(part, around))
        case str() if data.startswith(FILE) and "{{" not in data:
            file = _named_inside(data, around)
            if file.suffix.lower() in {".json", ".yaml", ".yml"}:
                return read_placed(file).data
            return read_text(file)
        case _:
            return data


def _named_inside(reference: str, around: Around) -> Path:
    try:
        return around.file(reference)
    except MistakenError as error:
        rule = f"paths in a file of prompts count from the suite's folder, {around.directory}"
        raise MistakenError(
            *(
                attrs.evolve(part, hint=f"{part.hint}; {rule}" if part.hint else rule)
                for part in error.parts
            )
        ) from None


def _columns(file: Path) -> str | None:
    return 'its table needs a column "prompt"' if file.suffix.lower() == ".csv" else None


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
    with below(*at):
        if text.startswith(_EXEC):
            return (_program(given, text.removeprefix(_EXEC).strip(), around),)
        if not (files := _files(text, around)):
            return (_prompt(given, text, given.label),)
        return tuple(prompt for file in files for prompt in _in_file(file, text, given, around))


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

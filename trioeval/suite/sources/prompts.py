"""The prompts of one entry of `prompts`: a text, an object with a text, or files of prompts.

A text names a file if it begins with `file://`, or if it could be a path and that file exists. Most texts
with a slash in them are not paths, so any other text is a prompt, unless it is so clearly the name of a file
of prompts that it must be misspelt.
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
from trioeval.documents.files import FILE, FileContext, unanchored
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
from trioeval.scripting import SCRIPTS
from trioeval.scripting.python_syntax import python_fault
from trioeval.suite.model import Prompt, PromptFunction
from trioeval.text import json_text

# The prompts in one file, by its suffix, each with its default label.
#
# Labels distinguish the prompts of one file, because the id of a prompt is computed from its label.


SUFFIXES = (".csv", ".j2", ".json", ".jsonl", ".md", ".txt", ".yaml", ".yml")
"""Suffixes of files that contain prompts."""

PROGRAMS = (".bash", ".bat", ".cmd", ".exe", ".pl", ".ps1", ".rb", ".sh")
"""Suffixes of programs that print a prompt, whatever their permissions."""

_START = 50
"""The number of characters of a whole file that its label shows."""

_YAML_START = 80
_LINE = re.compile(r"\r?\n")
_QUOTED_CELL = re.compile(r'("(?:[^"]|"")*+")[ \t]+')
_DEF = re.compile(r"^\s*(?:async\s+)?def\s+(\w+)", re.MULTILINE)


@attrs.frozen
class PromptPart:
    """One prompt of a file."""

    raw: str
    label: str


def read_parts(
    file: Path, shown: str, label: str | None, context: FileContext
) -> Sequence[PromptPart]:
    """Return the prompts in a file, at least one.

    Args:
        file: One with a suffix of `SUFFIXES`.
        shown: Its name in labels and messages.
        label: The label that the suite gives it, if any.
        context: The context of the files that it names, and its settings.

    Raises:
        MistakenError: It cannot be read, or has no prompts.
    """
    if file.suffix.lower() not in SUFFIXES:
        message = f"{quote(shown)} is not a file of prompts: unknown suffix {quote(file.suffix)}"
        hint = f"use one of {', '.join(SUFFIXES)}, .py, or a program that is executable"
        raise MistakenError(Mistake(message, hint))
    text = read_text(file)
    match file.suffix.lower():
        case ".csv":
            parts = list(_label_rows(_rows(text, context), label))
        case ".jsonl":
            lines = [line for line in _LINE.split(text) if line.strip()]
            parts = [PromptPart(line, f"{label or shown}: {line}") for line in lines]
            if len(lines) == 1:
                parts = [PromptPart(lines[0], label or shown)]
        case ".txt":
            before = f"{label}: {shown}" if label else shown
            separator = context.variable("PROMPT_SEPARATOR", "---")
            parts = [PromptPart(raw, f"{before}: {raw}") for raw in _parts(text, separator)]
        case ".json":
            raw = _as_json(file, text, context)
            parts = [PromptPart(raw, label or f"{shown}: {raw}")]
        case ".yaml" | ".yml":
            raw = _as_json(file, text, context)
            parts = [PromptPart(raw, label or f"{shown}: {raw[:_YAML_START]}")]
        case _:
            parts = [PromptPart(text, label or f"{shown}: {text[:_START]}...")]
    if not any(part.raw.strip() for part in parts):
        raise MistakenError(Mistake(f"no prompts in {quote(shown)}", _columns(file)))
    return parts


def read_text(file: Path) -> str:
    """Return a file as text, with its line ends unchanged.

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
    """Return a Python file, after checking that it can be parsed and mentions the function.

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
        message = f"function {quote(function)} not found in {quote(shown)}"
        raise MistakenError(Mistake(message, nearest(parts[-1], _DEF.findall(source))))
    return source


def is_program(file: Path) -> bool:
    """Return whether the operating system would execute a file."""
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


def _rows(text: str, context: FileContext) -> list[tuple[str, str]]:
    """Return the prompt and the label, or "", of each row of a CSV file.

    A file that is not a table has a prompt on each line: a comma in a text does not make it a table.
    """
    delimiter = context.variable("CSV_DELIMITER", ",")
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
    # The reader of the standard library takes a space behind a quoted cell for a part of the cell.
    lines = _QUOTED_CELL.sub(r"\1", text).splitlines(keepends=True)
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


def _label_rows(rows: Sequence[tuple[str, str]], label: str | None) -> Iterator[PromptPart]:
    """Yield the prompts with labels that no two rows share, unless the table itself repeats one."""
    used = {given for _, given in rows if given}
    for number, (raw, given) in enumerate(rows, 1):
        if given:
            yield PromptPart(raw, given)
            continue
        first = f"Prompt {number} - {raw}"
        if label:
            first = f"{label}: {raw}" if len(rows) > 1 else label
        others = (
            f"{first} (row {number}{times})" for times in ("", *map(".{}".format, range(2, 9)))
        )
        made = next(name for name in (first, *others) if name not in used)
        used.add(made)
        yield PromptPart(raw, made)


def _as_json(file: Path, text: str, context: FileContext) -> str:
    """Return a document as compact JSON, with the files that it names; other text unchanged.

    A prompt such as `{"content": {{question | dump}}}` becomes JSON only when it is rendered.
    """
    if not text.strip():
        return ""
    try:
        document = read_document(file)
    except MistakenError:
        return text
    return json_text(structured(document, file, lambda data: _with_files(data, context)))


def _with_files(data: Any, context: FileContext) -> Any:
    match data:
        case dict():
            return read_each(data.items(), lambda _key, part: _with_files(part, context))
        case list():
            return read_list(data, lambda part: _with_files(part, context))
        case str() if data.startswith(FILE) and "{{" not in data:
            file = _named_inside(data, context)
            if file.suffix.lower() in {".json", ".yaml", ".yml"}:
                return read_placed(file).data
            return read_text(file)
        case _:
            return data


def _named_inside(reference: str, context: FileContext) -> Path:
    try:
        return context.file(reference)
    except MistakenError as error:
        rule = f"paths in a file of prompts are relative to the suite's folder, {context.directory}"
        raise MistakenError(
            *(
                attrs.evolve(part, hint=f"{part.hint}; {rule}" if part.hint else rule)
                for part in error.parts
            )
        ) from None


def _columns(file: Path) -> str | None:
    return 'its table needs a column "prompt"' if file.suffix.lower() == ".csv" else None


_EXEC = "exec:"
_LIKE_A_FILE = (*SUFFIXES, *PROGRAMS, *sorted(SCRIPTS), ".py")
_FUNCTION = re.compile(r"(?P<file>.+\.(?:py|[cm]?[jt]s)):(?P<function>\w+(?:\.\w+)*)")
_PATH = re.compile(r"[^\s{}]+")
_HOSTED = re.compile(r"(langfuse|portkey|helicone)://")


@attrs.frozen(kw_only=True)
class _PromptEntry:
    raw: str | None = None
    label: str | None = None
    id: str | None = None
    config: Mapping[str, Any] = attrs.field(factory=dict)


def read_prompts(entry: Any, context: FileContext) -> tuple[Prompt, ...]:
    """Return the prompts of an entry, at least one.

    Args:
        entry: A text, or an object with `raw` (or `id`, if it names a file), `label`, `id`, `config`.
        context: The context of paths.

    Raises:
        MistakenError: All of its mistakes, relative to the entry.

    Example:
        >>> [prompt] = read_prompts("Why is {{thing}} blue?", FileContext(directory=Path("/suite")))
        >>> prompt.label
        'Why is {{thing}} blue?'
    """
    given, at = _given(entry)
    folder, text = unanchored(given.raw or "")
    if folder is not None:
        context = attrs.evolve(context, directory=folder)
    with below(*at):
        if text.startswith(_EXEC):
            return (_program(given, text.removeprefix(_EXEC).strip(), context),)
        if not (files := _files(text, context)):
            return (_prompt(given, text, given.label),)
        return tuple(prompt for file in files for prompt in _in_file(file, text, given, context))


def _given(entry: Any) -> tuple[_PromptEntry, tuple[str, ...]]:
    """Return an entry in its long form, and the path of its text in the entry."""
    if isinstance(entry, str):
        return _PromptEntry(raw=entry), ()
    if not isinstance(entry, dict):
        raise MistakenError(Mistake(f"must be text or an object, got {kind(entry)}"))
    known = {key: value for key, value in entry.items() if value is not None}
    given: _PromptEntry = object_hook(strict_converter(), _PromptEntry)(known, _PromptEntry)
    if given.raw is None and given.id is not None:
        return attrs.evolve(given, raw=given.id, id=None), ("id",)
    if given.raw is None:
        raise MistakenError(
            Mistake('"raw" is missing', "write the text of the prompt, or its file")
        )
    if not given.raw.strip():
        raise MistakenError(Mistake("a prompt must not be empty", at=("raw",)))
    return given, ("raw",)


def _files(text: str, context: FileContext) -> tuple[Path, ...]:
    """Return the files that a text names; none if it is only a text.

    Raises:
        MistakenError: It must be the name of a file, and that does not exist.
    """
    if hosted := _HOSTED.match(text):
        message = f"prompts from {hosted[1]} are not supported"
        raise MistakenError(Mistake(message, "save the prompt in a file and name that"))
    named, _ = _split(text.removeprefix(FILE))
    if text.startswith(FILE):
        return context.files(named)
    if "\n" in text or not _could_be_path(text):
        return ()
    is_meant = _PATH.fullmatch(named) and named.lower().endswith(_LIKE_A_FILE)
    if is_meant or _is_there(named, context):
        return context.files(named)
    return ()


def means_file(text: str, context: FileContext) -> bool:
    """Return whether a prompt is, or must be, the name of a file, or a command."""
    if text.startswith(_EXEC):
        return True
    try:
        return bool(_files(text, context))
    except MistakenError:
        return _HOSTED.match(text) is None


def _could_be_path(text: str) -> bool:
    """Return whether a text may be a path at all: `Hello` is a prompt although a file may have that name."""
    marks = text[-3:-2] == "." or text[-4:-3] == "." or any(mark in text for mark in "*/\\")
    return marks or _split(text)[0].lower().endswith(_LIKE_A_FILE)


def _is_there(named: str, context: FileContext) -> bool:
    try:
        if (context.directory / named).is_file():
            return True
    except (OSError, ValueError):  # too long, or a NUL
        return False
    return is_glob(named) and not Path(named).is_absolute() and context.matches(named)


def _split(named: str) -> tuple[str, str | None]:
    """Return a file and the function in it.

    Example:
        >>> _split("p.py:ask"), _split("p.py:Prompts.ask"), _split("p.txt")
        (('p.py', 'ask'), ('p.py', 'Prompts.ask'), ('p.txt', None))
    """
    found = _FUNCTION.fullmatch(named)
    return (found["file"], found["function"]) if found else (named, None)


def _in_file(file: Path, text: str, given: _PromptEntry, context: FileContext) -> Iterator[Prompt]:
    """Yield the prompts of one file."""
    named, function = _split(text.removeprefix(FILE))
    shown = _shown(file, context) if is_glob(named) else named
    suffix = file.suffix.lower()
    if is_glob(named):  # with the same label or id, several files would be one prompt
        label = given.label
        if label and suffix != ".txt":  # labels of these contain the path anyway
            label = f"{label}: {shown}"
        given = attrs.evolve(given, label=label, id=given.id and f"{given.id}:{shown}")
    is_executed = suffix in PROGRAMS or (
        suffix not in {*SUFFIXES, *SCRIPTS, ".py"} and is_program(file)
    )
    if suffix in {".py", *SCRIPTS} or is_executed:
        context.check_code(quote(shown))
    if suffix in SCRIPTS:
        from trioeval.suite.sources.code import check_node

        check_node(file, "is a prompt function", context)
        label = given.label or (f"{shown}:{function}" if function else shown)
        made_by = PromptFunction(kind="javascript", target=str(file), function=function)
        yield _prompt(given, read_text(file), label, made_by)
        return
    if suffix == ".py":
        source = read_python(file, shown, function)
        label = given.label or (f"{shown}:{function}" if function else f"{shown}: {source}")
        made_by = PromptFunction(kind="python", target=str(file), function=function)
        yield _prompt(given, source, label, made_by)
    elif is_executed:
        made_by = PromptFunction(kind="exec", target=shlex.quote(str(file)))
        yield _prompt(given, text, given.label or shown, made_by)
    else:
        parts = read_parts(file, shown, given.label, context)
        for number, part in enumerate(parts, 1):
            yield _part_prompt(given, part, number if len(parts) > 1 else None)


def _part_prompt(given: _PromptEntry, part: PromptPart, number: int | None) -> Prompt:
    named = given.id and number and f"{given.id}:{number}"
    return _prompt(attrs.evolve(given, id=named or given.id), part.raw, part.label)


def _shown(file: Path, context: FileContext) -> str:
    inside = file.is_relative_to(context.directory)
    return str(PurePosixPath(file.relative_to(context.directory) if inside else file))


def _program(given: _PromptEntry, command: str, context: FileContext) -> Prompt:
    """Return the prompt of a command that prints it; a program in the suite's folder needs no `./`."""
    context.check_code(quote(f"{_EXEC}{command}"))
    try:
        words = shlex.split(command)
    except ValueError as error:
        message = f"{quote(command)} cannot be split into words: {str(error).lower()}"
        raise MistakenError(Mistake(message, "close the quote")) from None
    if not words:
        raise MistakenError(Mistake('"exec:" names no program', "write exec:<command line>"))
    if (context.directory / words[0]).is_file():
        words[0] = str(context.file(words[0]))
    made_by = PromptFunction(kind="exec", target=shlex.join(words))
    return _prompt(given, command, given.label or command, made_by)


def _prompt(
    given: _PromptEntry, raw: str, label: str | None, function: PromptFunction | None = None
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

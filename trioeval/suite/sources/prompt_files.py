"""The prompts that stand in one file, by its suffix, each with the label that it gets where none is given.

Labels hold what tells the prompts of one file apart, because the id of a prompt is made of its label.
"""

import ast
import csv
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from trioeval.grading import quote
from trioeval.grading.text import json_text
from trioeval.scripting.python_syntax import python_fault
from trioeval.suite.anchors import FILE
from trioeval.suite.documents import read_document
from trioeval.suite.mistakes import Mistake, MistakenError, nearest
from trioeval.suite.placing import read_placed, structured
from trioeval.suite.sources.around import Around

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
            return dict(_members(data.items(), around))
        case list():
            return [member for _, member in _members(enumerate(data), around)]
        case str() if data.startswith(FILE) and "{{" not in data:
            file = _named_inside(data, around)
            if file.suffix.lower() in {".json", ".yaml", ".yml"}:
                return read_placed(file, read_document).data
            return read_text(file)
        case _:
            return data


def _members(members: Iterable[tuple[Any, Any]], around: Around) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    mistakes: list[Mistake] = []
    for step, member in members:
        try:
            found.append((step, _with_files(member, around)))
        except MistakenError as error:
            mistakes += (mistake.below(step) for mistake in error.parts)
    if mistakes:
        raise MistakenError(*mistakes)
    return found


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

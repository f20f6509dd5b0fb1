"""Reads a suite file into plain data, and finds the line and column of any place in it.

JSON is read strictly, YAML by the core rules of YAML 1.2: `no` is text, `010` is ten, dates are text.
"""

import codecs
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import yaml

from trioeval.grading.text import read_integer
from trioeval.suite.json_spots import json_spots
from trioeval.suite.mistakes import Mistake, MistakenError, Place
from trioeval.suite.spots import SpotTree
from trioeval.suite.yaml12 import Yaml12Loader
from trioeval.suite.yaml_spots import mark_place, yaml_spots


@attrs.frozen
class Document:
    """A file as plain data."""

    data: Any
    mistakes: Sequence[Mistake]
    """What was wrong with it that left it readable."""
    spots: Callable[[], SpotTree]
    """Finds where everything stands; for JSON that is another pass, for when there is a complaint."""


def read_document(path: Path) -> Document:
    """Read a JSON or YAML file.

    Raises:
        MistakenError: It cannot be read, or is not what its suffix says.
    """
    readers = {".json": _read_json, ".yaml": _read_yaml, ".yml": _read_yaml}
    content = _read_bytes(path)
    reader = readers.get(path.suffix.lower())
    if reader is None:
        hint = f"use one of {', '.join(readers)}"
        raise MistakenError(Mistake(f'the suffix "{path.suffix}" is not known', hint))
    text = _decoded(content)
    if not text.strip():
        raise MistakenError(Mistake("the file is empty"))
    return reader(text)


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise MistakenError(Mistake("there is no such file")) from None
    except IsADirectoryError:
        raise MistakenError(Mistake("is a folder, not a suite file")) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise MistakenError(Mistake(f"cannot be read: {reason}")) from None


def _decoded(content: bytes) -> str:
    try:
        return content.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        start = error.start + len(content) - len(error.object)
        message = f"byte {start} (0x{content[start]:02x}) is not UTF-8"
        before = error.object[: error.start].decode()
        place = _place(before, len(before))
        raise MistakenError(Mistake(message, "save the file as UTF-8", place=place)) from None


def _read_json(text: str) -> Document:
    repeated = False

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        found = dict(pairs)
        repeated = repeated or len(found) != len(pairs)
        return found

    try:
        data = json.loads(text, object_pairs_hook=members, parse_int=read_integer)
    except json.JSONDecodeError as error:
        message = f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}"
        raise MistakenError(Mistake(message, place=(error.lineno, error.colno))) from None
    except RecursionError:
        # The parser gives up far beyond what is allowed, and does not say where.
        raise MistakenError(json_spots(text).too_deep or Mistake("nested too deeply")) from None
    return Document(data, json_spots(text).repeated if repeated else (), lambda: json_spots(text))


def _read_yaml(text: str) -> Document:
    try:
        tree = yaml_spots(text)
        data = yaml.load(text, Loader=Yaml12Loader)  # noqa: S506 - a safe loader
    except yaml.reader.ReaderError as error:
        before = text.encode()[: error.position].decode(errors="ignore")
        message = f"not YAML: the character U+{error.character:04X} may not stand in it"
        raise MistakenError(Mistake(message, place=_place(before, len(before)))) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = mark_place(mark) if mark else None
        message = ", ".join(part for part in (error.context, error.problem) if part)
        raise MistakenError(Mistake(f"not YAML: {message}", place=place)) from None
    except RecursionError:
        raise MistakenError(Mistake("mappings are merged through too many others")) from None
    if tree.root is None:
        raise MistakenError(Mistake("the file is empty"))
    return Document(data, tree.repeated, lambda: tree)


def _place(text: str, at: int) -> Place:
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)

"""Reads a suite file into plain data, and finds the line and column of any place in it.

JSON is read strictly, YAML by the core rules of YAML 1.2: `no` is text, `010` is ten, dates are text.
Positions are looked for only when there is something to complain of.
"""

import codecs
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import yaml

from trioeval.errors import Problem, SuiteError
from trioeval.suite.json_places import JsonPlaces
from trioeval.suite.paths import DocumentPath, show_path
from trioeval.suite.yaml12 import Yaml12Loader, yaml_place

Place: TypeAlias = tuple[int, int]
"""Line and column, from 1."""


@attrs.frozen
class Document:
    """A file as plain data."""

    data: Any
    file: Path
    _locate: Callable[[DocumentPath, bool], Place | None]

    def place(self, path: DocumentPath, *, key: bool = False) -> Place | None:
        """Where the value at `path` begins, or its key; the nearest place above if it is not there."""
        while True:
            found = self._locate(path, key)
            if found is not None or not path:
                return found
            path, key = path[:-1], False


def read_document(path: Path) -> Document:
    """Read a JSON or YAML file.

    Raises:
        SuiteError: It cannot be read, is not what its suffix says, or repeats a key.
    """
    readers = {".json": _read_json, ".yaml": _read_yaml, ".yml": _read_yaml}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        hint = f"use one of {', '.join(readers)}"
        raise SuiteError([_problem(path, f'the suffix "{path.suffix}" is not known', hint=hint)])
    return reader(path, _read_text(path))


def _read_text(path: Path) -> str:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise SuiteError([_problem(path, "there is no such file")]) from None
    except IsADirectoryError:
        raise SuiteError([_problem(path, "is a folder, not a suite file")]) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SuiteError([_problem(path, f"cannot be read: {reason}")]) from None
    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - (content.rfind(b"\n", 0, error.start) + 1) + 1
        message = f"byte {error.start} (0x{content[error.start]:02x}) is not UTF-8"
        hint = "save the file as UTF-8"
        raise SuiteError([_problem(path, message, line, column, hint)]) from None
    if not text.strip():
        raise SuiteError([_problem(path, "the file is empty")])
    return text


def _read_json(path: Path, text: str) -> Document:
    places = JsonPlaces(text)
    try:
        data = json.loads(text, object_pairs_hook=_pairs, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        message = f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}"
        raise SuiteError([_problem(path, message, error.lineno, error.colno)]) from None
    except _RepeatedKeyError:
        raise SuiteError(
            _problem(
                path,
                f'the key "{where[-1]}" stands here and in line {first[0]}',
                *again,
                at=where[:-1],
            )
            for where, first, again in places.repeated_keys()
        ) from None
    except (ValueError, RecursionError) as error:
        message = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise SuiteError([_problem(path, f"not JSON: {message}")]) from None
    return Document(data, path, lambda where, key: places.place(where, key=key))


def _read_yaml(path: Path, text: str) -> Document:
    loader = Yaml12Loader(text)
    try:
        data = loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else (None, None)
        raise SuiteError([_problem(path, f"not YAML: {error.problem}", *place)]) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        message = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise SuiteError([_problem(path, f"not YAML: {message}")]) from None
    finally:
        loader.dispose()
    if loader.repeated_keys:
        raise SuiteError(
            _problem(
                path,
                f'the key "{key}" stands here and in line {first.line + 1}',
                again.line + 1,
                again.column + 1,
            )
            for key, first, again in loader.repeated_keys
        )
    return Document(data, path, lambda where, key: yaml_place(text, where, key=key))


class _RepeatedKeyError(Exception):
    pass


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _RepeatedKeyError
    return found


def _no_constant(name: str) -> float:
    msg = f"{name} is not a number that JSON has"
    raise ValueError(msg)


def _problem(
    path: Path,
    message: str,
    line: int | None = None,
    column: int | None = None,
    hint: str | None = None,
    at: DocumentPath = (),
) -> Problem:
    return Problem(show_path(at), message, hint, str(path), line, column)

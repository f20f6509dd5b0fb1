"""Reads a file into plain data and finds the line and column of any value in it.

JSON is read strictly, YAML by the core rules of YAML 1.2, and TOML with its dates as text.
"""

import codecs
import functools
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from trioeval.documents.mistakes import Mistake, MistakenError, Place
from trioeval.documents.plain import check_plain, is_too_deep
from trioeval.documents.positions import LineIndex, SpotTree
from trioeval.grading import quote
from trioeval.text import read_integer

# The positions of all values in a JSON text.
#
# The standard parser records no positions. This scanner walks a text that the parser has accepted; it checks
# only depth and duplicate keys, and works at any depth.


_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]|[^\s,:{}\[\]"]+')


def json_spots(text: str) -> SpotTree:
    """Return the positions of all values in a JSON text, in one pass over it.

    Example:
        >>> json_spots('{"a": [true]}').root.find(("a", 0))
        (1, 8)
    """
    tree = SpotTree()
    lines = LineIndex(text)
    for token in _TOKEN.finditer(text):
        place = lines.place(token.start())
        match token[0]:
            case "{" | "[" as bracket:
                tree.open(place, mapping=bracket == "{")
            case "}" | "]":
                tree.close()
            case name if tree.awaits_key:
                tree.key(json.loads(name), place)
            case _:
                tree.value(place)
    return tree


_ODD_IN_JSON = re.compile(r"NaN|Infinity|\d{300}|[eE]\+?0*[1-9]\d\d|\\u[dD][89a-fA-F]")
"""Found in every JSON text that contains a lone surrogate or a number outside the range of floats."""


@attrs.frozen(eq=False, repr=False)
class Document:
    """A file as plain data that JSON can represent."""

    data: Any
    text: str = attrs.field(repr=False)
    """The text of the file."""
    mistakes: Sequence[Mistake]
    """Mistakes that left it readable, with their positions."""
    spots: Callable[[], SpotTree]
    """Returns the positions of all values; the first call is another pass over the text."""


_CODE = frozenset({".cjs", ".cts", ".js", ".mjs", ".mts", ".py", ".ts"})


def read_document(path: Path) -> Document:
    """Read a JSON, YAML or TOML file.

    Raises:
        MistakenError: It cannot be read, does not have the format of its suffix, or contains values that JSON
            cannot represent. Its mistakes have their positions, if they are known.
    """
    readers = {".json": _read_json, ".yaml": _read_yaml, ".yml": _read_yaml, ".toml": _read_toml}
    content = _read_bytes(path)
    reader = readers.get(path.suffix.lower())
    if path.suffix.lower() in _CODE:
        message = f'"{path.name}" is code, which is not read as data'
        raise MistakenError(Mistake(message, "write the data as JSON or YAML"))
    if reader is None:
        hint = f"use one of {', '.join(readers)}"
        raise MistakenError(Mistake(f'the suffix "{path.suffix}" is not known', hint))
    return _read_content(content, reader)


def unwritten_document(data: Any) -> Document:
    """Return JSON data that a program made as a document whose values have no positions."""
    return _document(data, json.dumps(data), lambda _text: SpotTree(), repeated=False, odd=True)


def read_json(path: Path) -> Document:
    """Read a file as JSON, whatever its suffix.

    Raises:
        MistakenError: As for `read_document`.
    """
    return _read_content(_read_bytes(path), _read_json)


def read_json_or_yaml(path: Path) -> Document:
    """Read a file as JSON if it has that suffix, otherwise as YAML.

    Raises:
        MistakenError: As for `read_document`.
    """
    reader = _read_json if path.suffix.lower() == ".json" else _read_yaml
    return _read_content(_read_bytes(path), reader)


def _read_content(content: bytes, reader: Callable[[str], Document]) -> Document:
    text = _decoded(content)
    if not text.strip():
        raise MistakenError(Mistake("the file is empty"))
    return reader(text)


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise MistakenError(Mistake("file not found")) from None
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
        message, at = json_fault(error)
        raise MistakenError(Mistake(message, place=_place(text, at))) from None
    except RecursionError:  # far deeper than allowed
        data = None
    # The scanner finds the position; it works at any depth.
    if (data is None or is_too_deep(data)) and (found := json_spots(text).too_deep):
        raise MistakenError(found)
    odd = _ODD_IN_JSON.search(text) is not None
    return _document(data, text, json_spots, repeated=repeated, odd=odd)


_WRONG_CONSTANT = re.compile(r"(True|False|None|undefined)\b")
_STARTS_VALUE = re.compile(r'["\[{0-9-]|true\b|false\b|null\b')
_CURLY_QUOTES = frozenset("\u201c\u201d\u201e\u2018\u2019")


def json_fault(error: json.JSONDecodeError) -> tuple[str, int]:
    """Return a message about an error in a JSON text, and the offset of the error in it.

    Names what people write most often, which is valid in JavaScript or Python: trailing commas, comments,
    quotes of another kind, keys without quotes. Does not depend on the words of the parser, which differ
    between versions of Python.

    Example:
        >>> try:
        ...     json.loads('{"a": [1, 2,]}')
        ... except json.JSONDecodeError as error:
        ...     json_fault(error)
        ('trailing comma: remove it', 11)
    """
    text, at = error.doc, error.pos
    before = text[:at].rstrip()
    rest = text[at:]
    comma = at if rest.startswith(",") else len(before) - 1  # Python 3.13 reports the comma itself
    if text[comma : comma + 1] == "," and text[comma + 1 :].lstrip()[:1] in {"}", "]"}:
        return "trailing comma: remove it", comma
    if rest.startswith(("//", "/*", "#")):
        return "comments are not allowed in JSON: remove it, or write the file in YAML with #", at
    if rest.startswith("'"):
        return 'single quotes are not allowed in JSON: write double quotes, "…"', at
    if rest[:1] in _CURLY_QUOTES:
        return 'curly quotes are not allowed in JSON: write straight ones, "…"', at
    if found := _WRONG_CONSTANT.match(rest):
        right = {"True": "true", "False": "false"}.get(found[1], "null")
        return f"{found[1]} is not a value in JSON: write {right}", at
    is_after_quote = before.endswith('"') and len(before) == at  # perhaps a quote inside of a text
    if "',' delimiter" in error.msg and _STARTS_VALUE.match(rest) and not is_after_quote:
        return "missing comma: add one here", len(before)
    if before.endswith(("{", ",")) and (found := re.match(r"[A-Za-z_$][\w$-]*(?=\s*:)", rest)):
        return f"keys must be in double quotes: write {quote(found[0])}", at
    return f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}", at


def _read_yaml(text: str) -> Document:
    import yaml

    from trioeval.documents.yaml import mark_place, read_yaml, yaml_spots

    try:
        found = read_yaml(text)
    except yaml.reader.ReaderError as error:
        before = text.encode()[: error.position].decode(errors="ignore")
        message = f"not YAML: the character U+{error.character:04X} is not allowed"
        raise MistakenError(Mistake(message, place=_place(before, len(before)))) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = mark_place(mark) if mark else None
        message = ", ".join(part for part in (error.context, error.problem) if part)
        hint = None
        if place and _character(text, place) == "\t":
            message, hint = "tab where only spaces are allowed", "indent with spaces"
        raise MistakenError(Mistake(f"not YAML: {message}", hint, place=place)) from None
    if found is None:
        raise MistakenError(Mistake("the file is empty"))
    return _document(found.data, text, yaml_spots, repeated=found.repeated, odd=found.odd_numbers)


def _character(text: str, place: Place) -> str:
    """Return the character at a position; empty if there is none."""
    line, column = place
    return "".join(text.split("\n")[line - 1 : line])[column - 1 : column]


def _read_toml(text: str) -> Document:
    from trioeval.documents.toml import read_toml, toml_spots

    return _document(read_toml(text), text, toml_spots, repeated=False, odd=True)


def _document(
    data: Any, text: str, scan: Callable[[str], SpotTree], *, repeated: bool, odd: bool
) -> Document:
    """Return a document; it is examined more closely only if there are signs of mistakes."""
    spots = functools.cache(lambda: scan(text))
    mistakes = spots().repeated if repeated else []
    if odd and (foreign := check_plain(data)):
        raise MistakenError(*mistakes, *map(spots().placed, foreign))
    return Document(data, text, mistakes, spots)


def _place(text: str, at: int) -> Place:
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)

"""Variables and values from files, by their suffixes: the text of a `file://…` variable in a row."""

import base64
import importlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trioeval.documents.files import FILE, FileContext, names_file
from trioeval.documents.mistakes import (
    Mistake,
    MistakenError,
    Mistakes,
    below,
    collect_warning,
    kind,
    read_each,
    read_list,
)
from trioeval.documents.patterns import is_glob
from trioeval.documents.placing import read_placed, structured
from trioeval.documents.structure import camel
from trioeval.grading import quote
from trioeval.grading.kinds.text import SPACES
from trioeval.scripting import SCRIPTS, is_script
from trioeval.suite.sources.csv_text import read_rows
from trioeval.suite.sources.prompts import read_text
from trioeval.text import json_text

# Files named in data that comes from a file itself: their contents replace their names.


_DOCUMENTS = {".json", ".yaml", ".yml"}
_PROGRAMS = (".py", *SCRIPTS)


_FUNCTION = re.compile(r"(.+\.(?:py|[cm]?[jt]s))(?::([\w.]+))?")
_CODE_KEYS = {
    *("responseParser", "streamResponse", "transformRequest", "transformResponse"),
    "validateStatus",
}
"""Keys of a provider's config that contain code that runs for each call."""
_UNKNOWN = object()
"""The unknown result of a function that only a run calls."""


def config_values(config: Mapping[str, Any], context: FileContext) -> dict[str, Any]:
    """Return a config with its files read, and the results of functions `file://<file>[:<function>]`.

    The function is called once without arguments. Without its name it is `get_config` of a Python file, and
    the default export of another one, which need not be a function.

    Raises:
        MistakenError: Files do not exist, cannot be read, or their function fails.
    """

    def read(key: str, value: Any) -> Any:
        keeps = camel(str(key)) in _CODE_KEYS
        return with_files(value, context, program=_keep if keeps else _run)

    return _members(config, read)


def _keep(reference: str, context: FileContext) -> Any:
    context.check_code(quote(reference))
    return reference


def _run(reference: str, context: FileContext) -> Any:
    from trioeval.suite.sources.code import call_function, check_node

    parts = _FUNCTION.fullmatch(reference.removeprefix(FILE))
    if parts is None:
        message = f"{quote(reference)} names no function of a file"
        raise MistakenError(Mistake(message, "write file://<file>[:<function>]"))
    context.check_code(quote(reference))
    file, function = context.file(parts[1]), parts[2] or "get_config"
    if is_script(file):
        if "." in function:  # a function inside of a suite in JavaScript, which is called later
            return reference
        check_node(file, "makes a part of a config", context)
        function = f"value:{parts[2] or ''}"
    if not context.may_run(quote(reference), f"the part of a config that {quote(reference)} makes"):
        return _UNKNOWN
    return call_function(file, function, (), context)


def with_files(
    value: Any, context: FileContext, *, program: Callable[[str, FileContext], Any] = _keep
) -> Any:
    """Return a value with texts `file://…` replaced by the contents of those files.

    Documents become data, tables lists of objects, or of texts if they have one column, images data URIs,
    audio and video base64, and all others texts.
    A pattern becomes the list of the contents of its files.

    Args:
        value: JSON data.
        context: The context of the files.
        program: Returns the replacement of a program; its name, if it runs later.

    Raises:
        MistakenError: Files do not exist, or cannot be read.
    """
    match value:
        case str() if value.startswith(FILE) and _is_program(value):
            return program(value, context)
        case str() if value.startswith(FILE):
            if not is_glob(value):
                return _nested_files_content(context.file(value), context)
            found = []
            for file in context.files(value):
                content = _nested_files_content(file, context)
                found += content if isinstance(content, list) else [content]
            return found
        case list():
            parts = read_list(value, lambda part: with_files(part, context, program=program))
            return [part for part in parts if part is not _UNKNOWN]
        case dict():
            return _members(value, lambda _key, part: with_files(part, context, program=program))
        case _:
            return value


def _members(members: Mapping[str, Any], read: Callable[[str, Any], Any]) -> dict[str, Any]:
    """Return the members of an object that are known before the run."""
    found = read_each(members.items(), read)
    return {key: part for key, part in found.items() if part is not _UNKNOWN}


def _is_program(reference: str) -> bool:
    path = reference.rpartition("/")[2].partition(":")[0]
    return path.endswith(_PROGRAMS)


def _nested_files_content(file: Path, context: FileContext) -> Any:
    if file.suffix.lower() in _DOCUMENTS:
        return read_placed(file).data
    if file.suffix.lower() != ".svg" and (encoded := _encoded(file, context)) is not None:
        return encoded
    text = read_text(file)
    if file.suffix.lower() != ".csv":
        return text
    header, *rows = (
        row.cells for row in read_rows(text, delimiter=context.variable("CSV_DELIMITER", ","))
    )
    if len(header) == 1:
        return [cells[0] for cells in rows]
    return [dict(zip(header, cells, strict=False)) for cells in rows]


# Variables of a test that come from files: all of them from a document, or the value of one from a file.


_CONVERSATION = "_conversation"
"""May be a list of turns, for an assertion that judges a given conversation."""

_CODE = frozenset({".py", *SCRIPTS})
"""Suffixes of files that compute a variable when its row is rendered."""
VARIABLE_NAMES = ("name", "prompt", "vars", "provider")
"""The arguments of a JavaScript function that computes a variable."""

RESERVED = frozenset({_CONVERSATION, "__evalId", "__evalStepId", "__repeatIndex"})
"""Variables that every row has automatically."""


def read_vars(reference: str | Sequence[Any], context: FileContext) -> dict[str, Any]:
    """Return the variables in a file, in the files that match a pattern, or in several; later ones win.

    Raises:
        MistakenError: All mistakes of the reference or the files.
    """
    if isinstance(reference, str):
        return _variables(reference, context)
    found: dict[str, Any] = {}
    for variables in read_list(reference, lambda one: _variables(one, context)):
        found |= variables
    return found


def _variables(reference: Any, context: FileContext) -> dict[str, Any]:
    if not isinstance(reference, str):
        raise MistakenError(Mistake(f"must be the name of a file, got {kind(reference)}"))
    found: dict[str, Any] = {}
    for file in context.files(reference):
        document = read_placed(file)
        found |= structured(document, file, lambda data: _object(data, context))
    return found


def _object(data: Any, context: FileContext) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise MistakenError(Mistake(f"must be an object of variables, got {kind(data)}"))
    variables: dict[str, Any] = with_files(data, context)
    return variables


def resolve_file_vars(variables: Mapping[str, Any], context: FileContext) -> dict[str, Any]:
    """Return variables with every pattern of files replaced by the files that match it.

    A value that names one file stays a text, `file://` and its path in the folder of `context`; several files
    become a list of such texts, one for each future row. Their contents are read when a row is rendered.

    Raises:
        MistakenError: Files do not exist, or names of variables are not allowed.
    """
    found: dict[str, Any] = {}
    mistakes = Mistakes()
    for name, value in variables.items():
        if name in RESERVED and not (name == _CONVERSATION and isinstance(value, list)):
            message = f"{quote(name)} shadows a reserved name"
            hint = f"every row has these automatically: {', '.join(sorted(RESERVED))}"
            mistakes.append(Mistake(message, hint, at=(name,), key=True))
        if name == "env":
            message = 'the variable "env" hides the environment from templates'
            collect_warning(message, "give it another name", name, key=True)
        with mistakes.below(name):
            found[name] = _resolved(value, context)
    mistakes.raise_any()
    return found


def _resolved(value: Any, context: FileContext) -> Any:
    if isinstance(value, str):
        if not names_file(value):
            return value
        names = _names(value, context)
        return names[0] if len(names) == 1 else names
    if not (isinstance(value, list) and any(map(names_file, value))):
        return value
    found: list[Any] = []
    for position, member in enumerate(value):
        with below(position):
            found += _names(member, context) if names_file(member) else [member]
    return found


def _names(reference: str, context: FileContext) -> list[str]:
    files = context.files(reference)
    for file in files:
        if file.suffix.lower() in _CODE:
            context.check_code(quote(reference))
        _check_code(file, context)
    return [FILE + os.path.relpath(file, context.directory) for file in files]


def _check_code(file: Path, context: FileContext) -> None:
    """Refuse a file of JavaScript that cannot run when the row is rendered.

    Raises:
        MistakenError: It is invalid, or needs Node, which is not found.
    """
    from trioeval.scripting.javascript import Script

    if is_script(file):
        script = Script(read_text(file), VARIABLE_NAMES, "module", file=file)
        if fault := script.fault(context.environ):
            raise MistakenError(Mistake(f"{quote(file.name)} {fault}"))


_IMAGES: Mapping[str, str] = {
    ".avif": "image/avif",
    ".bmp": "image/bmp",
    ".gif": "image/gif",
    ".heic": "image/heic",
    ".heif": "image/heif",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".tif": "image/tiff",
    ".tiff": "image/tiff",
    ".webp": "image/webp",
}
_SOUND_OR_MOTION = frozenset(
    """
    .3gp .3gpp .aac .aif .aifc .aiff .avi .flac .flv .m4a .m4v .mkv .mov .mp3 .mp4 .mpeg .mpg .ogg .opus
    .wav .webm .wma .wmv
    """.split()  # noqa: SIM905 - a list would be twenty lines
)
_BEGINNINGS: Mapping[bytes, str] = {
    b"BM": "image/bmp",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"II*": "image/tiff",
    b"MM\0*": "image/tiff",
    b"\0\0\1\0": "image/x-icon",
    b"\x89PNG": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
}


def load_file_value(file: Path, context: FileContext) -> str:
    """Return the text of a file for templates.

    YAML becomes compact JSON, PDF its text, an image a data URI, audio and video base64, and everything else
    its text without surrounding space.

    Args:
        file: Absolute.
        context: Its `DISABLE_PDF_AS_TEXT` and `DISABLE_MULTIMEDIA_AS_BASE64` read such files as text as well.

    Raises:
        MistakenError: It cannot be read, or requires something that is not installed.
    """
    suffix = file.suffix.lower()
    if suffix in {".yaml", ".yml"}:
        return json_text(read_placed(file).data)
    if suffix == ".pdf" and not context.switch("DISABLE_PDF_AS_TEXT"):
        return _pdf_text(file)
    encoded = _encoded(file, context)
    return read_text(file).strip(SPACES) if encoded is None else encoded


def _encoded(file: Path, context: FileContext) -> str | None:
    """Return an image as a data URI, audio and video in base64; None for other files."""
    suffix = file.suffix.lower()
    if context.switch("DISABLE_MULTIMEDIA_AS_BASE64"):
        return None
    if suffix in _IMAGES:
        content = _content(file)
        return f"data:{_media_type(content, suffix)};base64,{_base64(content)}"
    return _base64(_content(file)) if suffix in _SOUND_OR_MOTION else None


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise MistakenError(Mistake(f"cannot be read: {error.strerror}", file=file)) from None


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _media_type(content: bytes, suffix: str) -> str:
    """Return the media type of an image, by its first bytes and else by its suffix, which is often wrong."""
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return "image/webp"
    found = (kind for begin, kind in _BEGINNINGS.items() if content.startswith(begin))
    return next(found, _IMAGES[suffix])


def _pdf_text(file: Path) -> str:
    try:
        pypdf: Any = importlib.import_module("pypdf")
    except ModuleNotFoundError:
        message = f"{quote(file.name)} requires the extra pdf"
        hint = "pip install trioeval[pdf], or set TRIOEVAL_DISABLE_PDF_AS_TEXT=1"
        raise MistakenError(Mistake(message, hint, file=file)) from None
    try:
        pages = [page.extract_text() for page in pypdf.PdfReader(file).pages]
    except (pypdf.errors.PyPdfError, OSError, ValueError) as error:
        raise MistakenError(Mistake(f"cannot be read as PDF: {error}", file=file)) from None
    return "\n\n".join(pages).strip(SPACES)


_READ_LATER = {"vars", "assert"}
"""Keys whose members name files for other purposes: values of one row, and functions."""


def complete(entry: Any, context: FileContext, beside: FileContext, description: str | None) -> Any:
    """Return one test of a file, with the files read that it names.

    Args:
        entry: The test, or the name of a file that contains it.
        context: The context of names with `file://`.
        beside: The context of other names, and of those of files of variables.
        description: Its description if it has none.

    Raises:
        MistakenError: Files do not exist or are invalid; or the test is not an object.
    """
    if isinstance(entry, str):
        named = entry.startswith(FILE)
        entry = with_files(entry if named else FILE + entry, context if named else beside)
    if not isinstance(entry, dict):
        raise MistakenError(Mistake(f"a test must be an object, got {kind(entry)}"))

    def read(key: str, value: Any) -> Any:
        if key == "vars" and isinstance(value, str | list):
            return read_vars(value, beside)
        if key in _READ_LATER and not isinstance(value, str):
            return value
        return with_files(value, context)

    found = read_each(entry.items(), read)
    if description is not None and not found.get("description"):
        found["description"] = description
    return found

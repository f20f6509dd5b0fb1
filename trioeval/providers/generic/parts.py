"""The parts of a form: read from the suite, and their files read for each call.

A file belongs to the suite: it is under the suite's folder, whatever a variable in its path says.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import trio

from trioeval.errors import Problem, ProviderError
from trioeval.paths import Refused
from trioeval.providers.config import Key, Surroundings, is_text, is_visible, read_config, show
from trioeval.providers.generic.request import FieldPart, FilePart, Filling, LoadedFile
from trioeval.text import FromModel

LARGEST = 64 * 1024 * 1024
"""Bytes that a file may have."""

_PATH = ".config.multipart.parts"


def _is_content_type(value: Any) -> bool:
    return is_text(value) and is_visible(value) and "/" in value


def _is_source(value: Any) -> bool:
    return isinstance(value, Mapping)


KEYS: Mapping[str, tuple[Key, ...]] = {
    "field": (
        Key("name", "text", is_text),
        Key("value", "text", lambda it: isinstance(it, str)),
    ),
    "file": (
        Key("name", "text", is_text),
        Key("source", "an object with type and path", _is_source),
        Key("filename", "text", is_text),
        Key("contentType", "a media type", _is_content_type),
    ),
}
"""What each kind of part takes besides `kind`."""

SOURCE = (Key("type", '"path"', lambda it: it == "path"), Key("path", "text", is_text))


def read_parts(
    given: Mapping[str, Any], around: Surroundings
) -> tuple[tuple[FieldPart | FilePart, ...], list[Problem]]:
    """Read `multipart`: its parts, and what is wrong with them."""
    listed = given.get("parts")
    if set(given) != {"parts"} or not isinstance(listed, list) or not listed:
        fault = "must be an object with parts, a list of one part or more"
        return (), [Problem(".config.multipart", fault)]
    parts: list[FieldPart | FilePart] = []
    problems: list[Problem] = []
    for position, one in enumerate(listed):
        path = f"{_PATH}[{position}]"
        part = _read_part(one, path, around)
        if isinstance(part, list):
            problems += part
            continue
        parts.append(part)
        problems += [
            Problem(f"{path}.{place}", wrong)
            for place, written in _texts(part)
            if (wrong := around.templates.syntax_error(written))
        ]
    return tuple(parts), problems


def _read_part(one: Any, path: str, around: Surroundings) -> FieldPart | FilePart | list[Problem]:
    kind = one.get("kind") if isinstance(one, Mapping) else None
    if kind not in ("field", "file"):
        return [
            Problem(path, f'must be an object whose kind is "field" or "file", got {show(one)}')
        ]
    values, problems = _read(one, (Key("kind", "text", is_text), *KEYS[kind]), path)
    needed = ("name", "value") if kind == "field" else ("name", "source")
    problems += [
        Problem(f"{path}.{name}", f"is missing; a {kind} needs it")
        for name in needed
        if one.get(name) is None
    ]
    if kind == "field" or "source" not in values:
        return problems or FieldPart(values["name"], values["value"])
    source = values["source"]
    if source.get("type") == "generated":
        fault = "generated files are not supported yet"
        return [*problems, Problem(f"{path}.source.type", fault, "known is path")]
    where, faults = _read(source, SOURCE, f"{path}.source")
    problems += faults
    file = str(where.get("path", "")).removeprefix("file://")
    if not file and not faults:
        problems.append(Problem(f"{path}.source.path", "is missing"))
    elif file and "{{" not in file and not isinstance(found := find(around, file), Path):
        problems.append(Problem(f"{path}.source.path", found))
    return problems or FilePart(
        values["name"],
        file,
        values.get("filename"),
        values.get("content_type") or "application/octet-stream",
    )


def _read(
    given: Mapping[str, Any], keys: tuple[Key, ...], path: str
) -> tuple[dict[str, Any], list[Problem]]:
    values, problems = read_config(given, keys)
    return values, [
        attrs.evolve(one, path=one.path.replace(".config", path, 1)) for one in problems
    ]


def find(around: Surroundings, file: str) -> Path | str:
    """A file of the suite, or what is wrong with its name."""
    path = around.place(file)
    if isinstance(path, Refused):
        return str(path)
    try:
        return path if path.is_file() else f"there is no file {show(file)}"
    except OSError as error:
        return f"{show(file)} cannot be read: {error}"


async def load_files(
    files: tuple[FilePart, ...], filling: Filling, around: Surroundings
) -> dict[FilePart, LoadedFile]:
    """The files of one call. A checkpoint if there are any.

    Raises:
        ProviderError: `bad_request`: one of them is missing, outside of the suite's folder or too large.
    """
    return {part: await _load(part, filling, around) for part in files}


async def _load(part: FilePart, filling: Filling, around: Surroundings) -> LoadedFile:
    written = filling.text(part.path, f'the path of the part "{part.name}"')
    if isinstance(written, FromModel):
        msg = f'the part "{part.name}": its path would be what a model wrote: {show(written)}'
        raise ProviderError("bad_request", msg)
    path = find(around, written)
    if isinstance(path, str):
        raise ProviderError("bad_request", f'the part "{part.name}": {path}')
    try:
        if path.stat().st_size > LARGEST:
            msg = f'the part "{part.name}": {show(written)} is larger than {LARGEST} bytes'
            raise ProviderError("bad_request", msg)
        return LoadedFile(path, await trio.Path(path).read_bytes())
    except OSError as error:
        msg = f'the part "{part.name}": {show(written)} cannot be read: {error.strerror}'
        raise ProviderError("bad_request", msg) from error


def _texts(part: FieldPart | FilePart) -> Iterator[tuple[str, str]]:
    """The templates of a part, with their places."""
    yield "name", part.name
    if isinstance(part, FieldPart):
        yield "value", part.value
        return
    yield "source.path", part.path
    if part.filename is not None:
        yield "filename", part.filename

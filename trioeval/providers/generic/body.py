"""The body of a request: JSON, text or parts, and what it becomes when its variables are filled in.

A text that is JSON with its templates inside strings is taken as JSON, so that no value can break out of its
string. One that becomes JSON only when it is filled in (`{"n": {{n}}}`) is a `JsonText`, which keeps the
same law.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from trioeval.errors import ProviderError
from trioeval.providers.answers import NOT_JSON, read_json
from trioeval.providers.generic.filling import Filling
from trioeval.providers.generic.json_text import JsonText, JsonTextError

JSON = "application/json"
_JSON_TYPE = re.compile(r"\s*application/(?:json|[\w.+-]+\+json)\s*(?:;|$)", re.IGNORECASE)
_LIKE_JSON = re.compile(r"\s*(?:\{(?![{%#])|\[)")


@attrs.frozen
class JsonBody:
    """Data, with templates inside its texts."""

    data: Any


@attrs.frozen
class TextBody:
    """A template of text that is no JSON."""

    text: str


@attrs.frozen
class FieldPart:
    """A field of a form."""

    name: str
    value: str


@attrs.frozen
class FilePart:
    """A file that goes along."""

    name: str
    path: str
    """A template, relative to the suite."""
    filename: str | None = None
    """What the service is told; None is the file's own name."""
    content_type: str = "application/octet-stream"


@attrs.frozen
class MultipartBody:
    """A form of several parts."""

    parts: tuple[FieldPart | FilePart, ...]


Body: TypeAlias = JsonBody | JsonText | TextBody | MultipartBody


@attrs.frozen
class Content:
    """A body that is ready."""

    data: bytes = attrs.field(repr=lambda data: f"<{len(data)} bytes>")
    content_type: str


def is_json_type(content_type: str) -> bool:
    """Whether a content type is one of JSON.

    Example:
        >>> is_json_type("application/json; charset=utf-8"), is_json_type("application/x-ndjson")
        (True, False)
    """
    return _JSON_TYPE.match(content_type) is not None


def text_body(text: str, content_type: str | None) -> Body:
    """What a body is that is written as text.

    Args:
        text: The template.
        content_type: What the headers say; None if they say nothing.
    """
    is_json = (
        _LIKE_JSON.match(text) is not None if content_type is None else is_json_type(content_type)
    )
    if not is_json:
        return TextBody(text)
    data = read_json(text)
    return JsonText(text) if data is NOT_JSON else JsonBody(data)


def render_body(
    body: Body | None, filling: Filling, files: Mapping[FilePart, "LoadedFile"]
) -> Content | None:
    """The body of one call.

    A prompt that the suite's own code made an object is merged over the data, or is the body where there
    is none.

    Raises:
        ProviderError: `bad_request`, if it cannot be rendered, or would not be what it must be.
    """
    prompt = filling.prompt
    match body:
        case None if isinstance(prompt, str):
            return None
        case None:
            return _json(prompt)
        case JsonBody(data):
            filled = filling.data(data, "the body")
            if isinstance(prompt, Mapping) and isinstance(filled, Mapping):
                filled = {**filled, **prompt}
            return _json(filled)
        case _ if isinstance(prompt, Mapping):
            raise ProviderError("bad_request", "transformRequest gave an object, the body is text")
        case JsonText():
            return _json_text(body, filling)
        case TextBody(text):
            filled = filling.text(text, "the body")
            return Content(filled.encode("utf-8", "replace"), "text/plain; charset=utf-8")
        case MultipartBody(parts):
            return _multipart(parts, filling, files)


def _json(data: Any) -> Content:
    try:
        return Content(json.dumps(data, allow_nan=False).encode(), JSON)
    except (TypeError, ValueError, RecursionError) as error:
        raise ProviderError("bad_request", f"the body is not JSON: {error}") from error


def _json_text(written: JsonText, filling: Filling) -> Content:
    try:
        text = written.read(filling.text(written.marked, "the body"))
    except JsonTextError as error:
        raise ProviderError("bad_request", f"the body {error}") from error
    return Content(text.encode("utf-8", "replace"), JSON)


@attrs.frozen
class LoadedFile:
    """A file as it is at the time of a call."""

    path: Path
    data: bytes = attrs.field(repr=lambda data: f"<{len(data)} bytes>")


def _multipart(
    parts: tuple[FieldPart | FilePart, ...],
    filling: Filling,
    files: Mapping[FilePart, LoadedFile],
) -> Content:
    written: list[bytes] = []
    for part in parts:
        name = f'form-data; name="{_quoted(filling.text(part.name, "the name of a part"))}"'
        if isinstance(part, FieldPart):
            value = filling.text(part.value, f'the part "{part.name}"').encode("utf-8", "replace")
            written.append(f"content-disposition: {name}\r\n\r\n".encode() + value)
            continue
        file = files[part]
        shown = (
            file.path.name if part.filename is None else filling.text(part.filename, "a filename")
        )
        head = (
            f'content-disposition: {name}; filename="{_quoted(shown)}"\r\n'
            f"content-type: {part.content_type}\r\n\r\n"
        )
        written.append(head.encode() + file.data)
    boundary = _boundary(written)
    mark = f"--{boundary}".encode()
    data = b"".join(mark + b"\r\n" + part + b"\r\n" for part in written) + mark + b"--\r\n"
    return Content(data, f"multipart/form-data; boundary={boundary}")


def _quoted(name: str) -> str:
    """A name as forms write it, so that it can end neither its quotes nor its line."""
    return name.replace("\n", "%0A").replace("\r", "%0D").replace('"', "%22")


def _boundary(parts: list[bytes]) -> str:
    """A line that none of the parts has, since it would have to hold its own digest."""
    return hashlib.sha256(b"\r\n".join(parts)).hexdigest()[:32]

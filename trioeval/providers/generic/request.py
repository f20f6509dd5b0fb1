"""A request template: URL, headers and a body of JSON, text or parts, and its rendering for one call.

A text that is JSON with its templates inside strings is read as JSON, so that no value can break out of its
string. One that becomes JSON only when it is rendered (`{"n": {{n}}}`) is a `JsonText`, which ensures the
same.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import trio

from trioeval.errors import Problem, ProviderError, TemplateError
from trioeval.paths import Refused
from trioeval.providers.config import (
    EntryContext,
    Key,
    TemplateRenderer,
    is_text,
    is_visible,
    read_config,
    show,
)
from trioeval.providers.generic.auth import NO_AUTH, Auth
from trioeval.providers.generic.json_text import JsonText, JsonTextError
from trioeval.providers.generic.keys import MARK
from trioeval.providers.generic.urls import encode, has_dot_segments, url_fault, with_query
from trioeval.providers.http.replies import NOT_JSON, read_json
from trioeval.providers.http.wire import HttpRequest
from trioeval.scripting.javascript import Script
from trioeval.text import FromModel, verbatim

# Variables in the texts of a request. Rendered values are never rendered again.
#
# Three rules. The prompt is final text: a template inside it is not rendered. A text that is exactly one
# variable (`"{{ messages }}"`) becomes that variable's value, with its type; a text variable stays text,
# whatever it contains. All other texts are rendered as text.


PROMPT = "prompt"

_WHOLE = re.compile(r"\{\{-?\s*([A-Za-z_]\w*)\s*-?\}\}")


@attrs.frozen
class CallVariables:
    """The variables of one call."""

    prompt: Any
    """The prompt, or the result of the suite's own code for it."""
    _templates: TemplateRenderer = attrs.field(repr=False)
    _given: Mapping[str, Any] = attrs.field(repr=False)
    """Variables for templates."""

    @classmethod
    def of(
        cls, templates: TemplateRenderer, variables: Mapping[str, Any], prompt: Any
    ) -> "CallVariables":
        """Combine the variables of a test with a prompt, which hides a variable of that name."""
        return cls(prompt, templates, {**variables, PROMPT: verbatim(prompt)})

    def text(self, written: str, place: str) -> str:
        """Return the text with its variables filled in.

        Raises:
            ProviderError: `bad_request`, with `place` in its message: the text cannot be rendered.
        """
        if "{" not in written:
            return written
        try:
            return self._templates.render(written, self._given)
        except TemplateError as error:
            raise ProviderError("bad_request", f"{place}: {error}") from error

    def data(self, written: Any, place: str) -> Any:
        """Return JSON data with its texts filled in; names of members are unchanged.

        Raises:
            ProviderError: See `text`.
        """
        match written:
            case str():
                return self._value(written, place)
            case Mapping():
                return {name: self.data(part, place) for name, part in written.items()}
            case list() | tuple():
                return [self.data(part, place) for part in written]
            case _:
                return written

    def _value(self, written: str, place: str) -> Any:
        whole = _WHOLE.fullmatch(written.strip())
        if whole is not None:
            if whole[1] == PROMPT:
                return self.prompt
            value = self._given.get(whole[1])
            if whole[1] in self._given and not isinstance(value, str):
                return value
        return self.text(written, place)


JSON = "application/json"
_JSON_TYPE = re.compile(r"\s*application/(?:json|[\w.+-]+\+json)\s*(?:;|$)", re.IGNORECASE)
_LIKE_JSON = re.compile(r"\s*(?:\{(?![{%#])|\[)")


@attrs.frozen
class JsonBody:
    """JSON data with templates inside its texts."""

    data: Any


@attrs.frozen
class TextBody:
    """A template of text that is not JSON."""

    text: str


@attrs.frozen
class FieldPart:
    """A field of a form."""

    name: str
    value: str


@attrs.frozen
class FilePart:
    """A file of a form."""

    name: str
    path: str
    """A template, relative to the suite."""
    filename: str | None = None
    """The name sent to the service; None uses the file's own name."""
    content_type: str = "application/octet-stream"


@attrs.frozen
class MultipartBody:
    """A form of several parts."""

    parts: tuple[FieldPart | FilePart, ...]


Body: TypeAlias = JsonBody | JsonText | TextBody | MultipartBody


@attrs.frozen
class Content:
    """A rendered body."""

    data: bytes = attrs.field(repr=lambda data: f"<{len(data)} bytes>")
    content_type: str


def is_json_type(content_type: str) -> bool:
    """Return whether a content type is JSON.

    Example:
        >>> is_json_type("application/json; charset=utf-8"), is_json_type("application/x-ndjson")
        (True, False)
    """
    return _JSON_TYPE.match(content_type) is not None


def text_body(text: str, content_type: str | None) -> Body:
    """Return the body for a text.

    Args:
        text: The template.
        content_type: The content type in the headers; None if there is none.
    """
    is_json = (
        _LIKE_JSON.match(text) is not None if content_type is None else is_json_type(content_type)
    )
    if not is_json:
        return TextBody(text)
    data = read_json(text)
    return JsonText(text) if data is NOT_JSON else JsonBody(data)


def render_body(
    body: Body | None, filling: CallVariables, files: Mapping[FilePart, "FormFile"]
) -> Content | None:
    """Return the body of one call.

    A prompt that the suite's own code made an object is merged over the data, or is the body if there is
    none.

    Raises:
        ProviderError: `bad_request`, if it cannot be rendered, or is invalid afterwards.
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
            raise ProviderError(
                "bad_request", "transformRequest returned an object, but the body is text"
            )
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


def _json_text(written: JsonText, filling: CallVariables) -> Content:
    try:
        text = written.read(filling.text(written.marked, "the body"))
    except JsonTextError as error:
        raise ProviderError("bad_request", f"the body {error}") from error
    return Content(text.encode("utf-8", "replace"), JSON)


@attrs.frozen
class FormFile:
    """A file read for one call."""

    path: Path
    data: bytes = attrs.field(repr=lambda data: f"<{len(data)} bytes>")


def _multipart(
    parts: tuple[FieldPart | FilePart, ...],
    filling: CallVariables,
    files: Mapping[FilePart, FormFile],
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
    """Return a name escaped for forms, so that it cannot end its quotes or its line."""
    return name.replace("\n", "%0A").replace("\r", "%0D").replace('"', "%22")


def _boundary(parts: list[bytes]) -> str:
    """Return a line that none of the parts contains, since it would have to contain its own digest."""
    return hashlib.sha256(b"\r\n".join(parts)).hexdigest()[:32]


# The request of an entry: templates for all of its parts, and their rendering for one call.


@attrs.frozen(kw_only=True)
class RequestTemplate:
    """All parts of a request; each text may be a template."""

    method: str | None = None
    """None is POST for a request with a body, else GET."""
    url: str = attrs.field(repr=False)
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """Headers with lower-case names."""
    query: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    body: Body | None = attrs.field(default=None, repr=False)
    auth: Auth = attrs.field(default=NO_AUTH, repr=False)
    _whole_url: str | None = attrs.field(init=False, repr=False, eq=False)
    """The encoded URL, if it is not a template."""

    @_whole_url.default
    def _checked_once(self) -> str | None:
        is_whole = "{" not in self.url and url_fault(self.url.strip()) is None
        return encode(self.url) if is_whole else None

    @property
    def files(self) -> tuple[FilePart, ...]:
        """The files of a form."""
        if not isinstance(self.body, MultipartBody):
            return ()
        return tuple(part for part in self.body.parts if isinstance(part, FilePart))

    def render(self, filling: CallVariables, files: Mapping[FilePart, FormFile]) -> HttpRequest:
        """Return the request of one call.

        Args:
            filling: Its variables.
            files: The loaded `files`.

        Raises:
            ProviderError: `bad_request`: a template cannot be rendered, or the result is invalid.
        """
        url = self._url(filling)
        query = {
            name: filling.text(value, f'the parameter "{name}"')
            for name, value in self.query.items()
        }
        headers = {name: self._header(name, value, filling) for name, value in self.headers.items()}
        content = render_body(self.body, filling, files)
        if content is not None:
            headers.setdefault("content-type", content.content_type)
        return HttpRequest(
            with_query(url, {**query, **self.auth.query}),
            {**headers, **self.auth.headers},
            None if content is None else content.data,
            self.method or ("GET" if content is None else "POST"),
        )

    def _url(self, filling: CallVariables) -> str:
        if self._whole_url is not None:
            return self._whole_url
        url = filling.text(self.url, "the url").strip()
        if fault := url_fault(url):
            raise ProviderError("bad_request", f"the url {fault} when its variables are filled in")
        if MARK.search(self.url) and has_dot_segments(url):
            # It would leave the path that the suite names.
            raise ProviderError(
                "bad_request",
                'the url has a path with "." or ".." when its variables are filled in',
            )
        return encode(url)

    def _header(self, name: str, value: str, filling: CallVariables) -> str:
        text = filling.text(value, f'the header "{name}"')
        if not is_visible(text):
            # A line end would start another header; the value may be secret.
            raise ProviderError("bad_request", f'the header "{name}" is not printable ASCII text')
        return text.strip()


# The parts of a form: read from the suite, and their files loaded for each call. A file must be in the
# suite's folder, even if a variable is part of its path.


LARGEST = 64 * 1024 * 1024
"""Maximum size of a file in bytes."""

_PARTS = ".config.multipart.parts"


def _is_content_type(value: Any) -> bool:
    return is_text(value) and is_visible(value) and "/" in value


def _is_source(value: Any) -> bool:
    return isinstance(value, Mapping)


PART_KEYS: Mapping[str, tuple[Key, ...]] = {
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
"""The keys of each kind of part besides `kind`."""

SOURCE = (Key("type", '"path"', lambda it: it == "path"), Key("path", "text", is_text))


def read_parts(
    given: Mapping[str, Any], context: EntryContext
) -> tuple[tuple[FieldPart | FilePart, ...], list[Problem]]:
    """Return the parts of `multipart`, and its problems."""
    listed = given.get("parts")
    if set(given) != {"parts"} or not isinstance(listed, list) or not listed:
        fault = "must be an object with parts, a list of at least one part"
        return (), [Problem(".config.multipart", fault)]
    parts: list[FieldPart | FilePart] = []
    problems: list[Problem] = []
    for position, one in enumerate(listed):
        path = f"{_PARTS}[{position}]"
        part = _read_part(one, path, context)
        if isinstance(part, list):
            problems += part
            continue
        parts.append(part)
        problems += [
            Problem(f"{path}.{place}", wrong)
            for place, written in _templates_of(part)
            if (wrong := context.templates.syntax_error(written))
        ]
    return tuple(parts), problems


def _read_part(one: Any, path: str, context: EntryContext) -> FieldPart | FilePart | list[Problem]:
    kind = one.get("kind") if isinstance(one, Mapping) else None
    if kind not in ("field", "file"):
        return [
            Problem(path, f'must be an object whose kind is "field" or "file", got {show(one)}')
        ]
    values, problems = _read_keys(one, (Key("kind", "text", is_text), *PART_KEYS[kind]), path)
    needed = ("name", "value") if kind == "field" else ("name", "source")
    problems += [
        Problem(f"{path}.{name}", f"missing; a {kind} requires it")
        for name in needed
        if one.get(name) is None
    ]
    if kind == "field" or "source" not in values:
        return problems or FieldPart(values["name"], values["value"])
    source = values["source"]
    if source.get("type") == "generated":
        fault = "generated files are not supported"
        return [*problems, Problem(f"{path}.source.type", fault, "use path")]
    where, faults = _read_keys(source, SOURCE, f"{path}.source")
    problems += faults
    file = str(where.get("path", "")).removeprefix("file://")
    if not file and not faults:
        problems.append(Problem(f"{path}.source.path", "missing"))
    elif file and "{{" not in file and not isinstance(found := find(context, file), Path):
        problems.append(Problem(f"{path}.source.path", found))
    return problems or FilePart(
        values["name"],
        file,
        values.get("filename"),
        values.get("content_type") or "application/octet-stream",
    )


def _read_keys(
    given: Mapping[str, Any], keys: tuple[Key, ...], path: str
) -> tuple[dict[str, Any], list[Problem]]:
    values, problems = read_config(given, keys)
    return values, [
        attrs.evolve(one, path=one.path.replace(".config", path, 1)) for one in problems
    ]


def find(context: EntryContext, file: str) -> Path | str:
    """Return the path of a file of the suite, or the fault of its name."""
    path = context.place(file)
    if isinstance(path, Refused):
        return str(path)
    try:
        return path if path.is_file() else f"file {show(file)} not found"
    except OSError as error:
        return f"{show(file)} cannot be read: {error}"


_SCRIPT = re.compile(r"file://(.+\.[cm]?[jt]s)(?::([\w.]+))?")


def read_script_file(
    text: str, names: tuple[str, ...], context: EntryContext
) -> Script | str | None:
    """Return the function of a file of JavaScript that a text names, or its fault; None if it names none.

    Args:
        text: `file://<file>[:<function>]`.
        names: The names of its arguments.
        context: The context of the entry.
    """
    found = _SCRIPT.fullmatch(text.strip())
    if found is None:
        return None
    path = find(context, found[1])
    if isinstance(path, str):
        return path
    try:
        code = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        return f"{show(found[1])} cannot be read: {error}"
    exists = found[2] is not None
    file = path.absolute()
    script = Script(code, names, "module", found[2], must_exist=exists, file=file)
    fault = script.fault(context.environ)
    return script if fault is None else f"{show(found[1])} {fault}"


async def load_files(
    files: tuple[FilePart, ...], filling: CallVariables, context: EntryContext
) -> dict[FilePart, FormFile]:
    """Load the files of one call. A checkpoint if there are any.

    Raises:
        ProviderError: `bad_request`: one of them is missing, outside of the suite's folder or too large.
    """
    return {part: await _load(part, filling, context) for part in files}


async def _load(part: FilePart, filling: CallVariables, context: EntryContext) -> FormFile:
    written = filling.text(part.path, f'the path of the part "{part.name}"')
    if isinstance(written, FromModel):
        msg = f'the part "{part.name}": its path comes from a model: {show(written)}'
        raise ProviderError("bad_request", msg)
    path = find(context, written)
    if isinstance(path, str):
        raise ProviderError("bad_request", f'the part "{part.name}": {path}')
    try:
        if path.stat().st_size > LARGEST:
            msg = f'the part "{part.name}": {show(written)} is larger than {LARGEST} bytes'
            raise ProviderError("bad_request", msg)
        return FormFile(path, await trio.Path(path).read_bytes())
    except OSError as error:
        msg = f'the part "{part.name}": {show(written)} cannot be read: {error.strerror}'
        raise ProviderError("bad_request", msg) from error


def _templates_of(part: FieldPart | FilePart) -> Iterator[tuple[str, str]]:
    """Yield the templates of a part, with their places."""
    yield "name", part.name
    if isinstance(part, FieldPart):
        yield "value", part.value
        return
    yield "source.path", part.path
    if part.filename is not None:
        yield "filename", part.filename

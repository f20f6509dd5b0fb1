"""Entries of `http:` and `https:` providers: their keys, templates and files, with all problems."""

import ast
import re
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs

from trioeval.errors import Problem, ProviderError
from trioeval.providers.base import Provider
from trioeval.providers.bounds import MOST_BYTES
from trioeval.providers.config import (
    EntryContext,
    ProviderResources,
    ProviderSettings,
    show,
    to_snake,
)
from trioeval.providers.generic.auth import NO_AUTH, Auth, read_auth
from trioeval.providers.generic.identity import (
    find_secrets,
    lane_key,
    own_headers,
    secrets_of_environment,
)
from trioeval.providers.generic.json_text import JsonText
from trioeval.providers.generic.keys import (
    DROPPED,
    KEYS,
    MARK,
    NOT_YET,
    PER_CALL,
    SUCCESS,
    read_for_call,
    read_statuses,
)
from trioeval.providers.generic.reply import Transform, read_transform
from trioeval.providers.generic.request import (
    Body,
    JsonBody,
    MultipartBody,
    RequestTemplate,
    TextBody,
    find,
    is_json_type,
    read_parts,
    read_script_file,
    text_body,
)
from trioeval.providers.generic.tls_keys import read_tls
from trioeval.providers.generic.urls import parameters, url_fault
from trioeval.providers.http.endpoint import ATTEMPT_LIMIT, read_limit
from trioeval.providers.http.wire import TlsSettings
from trioeval.providers.metering import Metering
from trioeval.providers.other_keys import OtherKeys, read_open_config
from trioeval.providers.prices import Price, read_price
from trioeval.providers.programs.python import top_level_names
from trioeval.providers.programs.workers import WorkerSpec
from trioeval.providers.resolve import expand_env
from trioeval.providers.secrets import longest_first
from trioeval.scripting.javascript import Script, is_function
from trioeval.scripting.python_syntax import python_fault

_FILE = "file://"

# A request in wire format: `request`, split before it is rendered. Each of its templates is rendered in its
# own place, so that no value can add a header or end the head.


_METHOD = re.compile(r"[A-Z][A-Z-]*")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VERSION = re.compile(r"\s+HTTP/\d(?:\.\d)?\s*$")


@attrs.frozen
class RawRequest:
    """The parts of a request; all but the method may contain templates."""

    method: str
    url: str
    headers: dict[str, str]
    """Headers with lower-case names, without those of one connection."""
    body: str
    """The body; empty if absent."""
    is_whole: bool = False
    """True if the request line includes scheme and host."""


def read_raw_request(text: str, scheme: str) -> RawRequest | str:
    r"""Split a request into its parts.

    Args:
        text: Request line, headers, an empty line, the body; lines end in `\n` or `\r\n`.
        scheme: `http` or `https`, for the URL.

    Returns:
        Its parts, or its fault, for the sentence "it …".

    Example:
        >>> read_raw_request("POST /ask HTTP/1.1\nHost: a.example\n\n{{prompt}}\n", "https")
        RawRequest(method='POST', url='https://a.example/ask', headers={}, body='{{prompt}}', is_whole=False)
    """
    head, _, body = text.replace("\r\n", "\n").lstrip("\n").partition("\n\n")
    first, *lines = head.rstrip("\n").split("\n")
    method, _, target = _VERSION.sub("", first).strip().partition(" ")
    target = target.strip()
    if not _METHOD.fullmatch(method) or not target:
        return 'must begin with a method and a path, such as "POST /chat HTTP/1.1"'
    headers: dict[str, str] = {}
    host = ""
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _NAME.fullmatch(name):
            # Not quoted: the line may contain a key.
            return f'has an invalid header in line {lines.index(line) + 2}; write "Name: value"'
        low = name.lower()
        if low == "host":
            host = value.strip()
        elif low in headers:
            return f"has the header {name} twice"
        elif low not in DROPPED:
            headers[low] = value.strip()
    is_whole = target.startswith(("http://", "https://"))
    if not is_whole:
        if not host:
            return 'has no Host header; write "Host: example.com"'
        target = f"{scheme}://{host}{target if target.startswith('/') else '/' + target}"
    return RawRequest(method, target, headers, body.rstrip("\n"), is_whole)


# The language of `transformRequest` and `transformResponse`, and their faults.


DEFAULT_FUNCTION = "transform"
"""The default name of the function in a Python file."""

_PYTHON = re.compile(r"file://(.+\.py)(?::(\w+))?")
_REQUEST = ".config.transformRequest"


def read_rewrite(text: str, context: EntryContext) -> Script | str | Problem:
    """Return the script or the template for the prompt, or its problem."""
    names = ("prompt", "vars", "context")
    if (found := read_script_file(text, names, context)) is not None:
        return Problem(_REQUEST, found) if isinstance(found, str) else found
    if text.startswith("file://"):
        return Problem(_REQUEST, f"{show(text)} is not a JavaScript file", "write the code itself")
    if is_function(text):
        script = Script(text.strip(), names)
        fault = script.fault(context.environ)
        return script if fault is None else Problem(_REQUEST, fault)
    fault = context.templates.syntax_error(text)
    return text if fault is None else Problem(_REQUEST, fault)


def read_output(text: str, context: EntryContext) -> Transform | Script | WorkerSpec | Problem:
    """Return the transform for the output, or the workers of a Python function, or the problem."""
    transform: Transform | Script | WorkerSpec | str | None
    if (transform := read_function(text, context, "transformResponse")) is not None:
        pass
    elif (transform := read_script_file(text, ("json", "text", "context"), context)) is None:
        transform = read_transform(text, context.environ)
    if isinstance(transform, str):
        return Problem(".config.transformResponse", transform)
    return transform


def read_function(text: str, context: EntryContext, key: str) -> WorkerSpec | str | None:
    """Return the workers of a function in a Python file, or its fault; None if the text names none.

    Args:
        text: `file://<file.py>[:<function>]`.
        context: The context of the entry.
        key: The config key, for messages.
    """
    found = _PYTHON.fullmatch(text.strip())
    if found is None:
        return None
    file, name = found[1], found[2] or DEFAULT_FUNCTION
    path = find(context, file)
    if isinstance(path, str):
        return path
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except SyntaxError as error:
        source = path.read_text(encoding="utf-8", errors="replace")
        return f"{show(file)} {python_fault(error, source)}"
    except (OSError, ValueError) as error:
        return f"{show(file)} cannot be loaded: {error}"
    names = top_level_names(tree)
    if names is not None and name not in names:
        return f"function {name} not found in {show(file)}"
    return WorkerSpec(
        name=f"{key} {file}:{name}",
        executable=sys.executable,
        file=path,
        function=name,
        cwd=context.directory.resolve(),
        environ=context.environ,
    )


@attrs.frozen(kw_only=True)
class GenericSettings(ProviderSettings):
    """The settings of a service described in the suite."""

    request: RequestTemplate
    rewrite: Script | str | None = attrs.field(default=None, repr=False)
    """The change of the prompt before it is filled in: a script, or a template."""
    tools: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    """Variables from the config."""
    statuses: frozenset[int] = attrs.field(default=SUCCESS, repr=False)
    transform: Transform | Script | None = None
    """None uses the whole reply."""
    function: WorkerSpec | None = None
    """The transform, if it is a function in a Python file."""
    timeout: float = ATTEMPT_LIMIT
    """Maximum seconds of a call, > 0."""
    follows_anywhere: bool = False
    """True if redirects to other origins are followed."""
    max_reply_bytes: int = MOST_BYTES
    """Maximum size of a reply in bytes."""
    tls: TlsSettings | None = None
    price: Price | None = None
    """None if no price is known."""
    lane_key: str = attrs.field(repr=False)
    secrets: tuple[str, ...] = attrs.field(repr=False)
    """Secrets, longest first."""
    own_headers: frozenset[str]
    """Headers for one origin only, besides those with secret names or values; in lower case."""
    own_texts: frozenset[str] = attrs.field(repr=False)
    """Texts for one origin only, besides the secrets."""
    named_variables: tuple[str, ...] = ()
    """Environment variables in the URL of its id."""
    warnings: tuple[Problem, ...] = ()
    _written: "_EntryReader" = attrs.field(repr=False)

    @property
    def config(self) -> Mapping[str, Any]:
        """The config as written."""
        return self._written.config

    @property
    def context(self) -> EntryContext:
        """The context of its files."""
        return self._written.context

    @property
    def urls(self) -> tuple[str, ...]:
        """The templates of its URL, and of the URL of its tokens."""
        token = self.request.auth.token
        return (self.request.url,) if token is None else (self.request.url, token.url)

    @property
    def metering(self) -> Metering:
        """The price of its tokens, unless its replies report a cost, which nothing limits."""
        return Metering(price=self.price, says_cost=True)

    @property
    def code_keys(self) -> tuple[str, ...]:
        """Keys that contain code."""
        found = {
            "transformRequest": isinstance(self.rewrite, Script),
            "transformResponse": self.function is not None or isinstance(self.transform, Script),
        }
        return tuple(key for key, is_code in found.items() if is_code)

    @asynccontextmanager
    async def open(self, shared: ProviderResources) -> AsyncGenerator[Provider]:
        """Open the provider with the workers of its code."""
        from trioeval.providers.generic.http import GenericProvider, open_code

        client = await shared.http(self.tls)
        directory, environ = self.context.directory.resolve(), self.context.environ
        async with open_code(directory, environ, self.function) as code:
            yield GenericProvider(self, shared.templates, client, code, runs_code=shared.runs_code)

    def changed(self, options: Mapping[str, Any]) -> "GenericSettings":
        """Return the settings with other values for one call.

        Raises:
            ProviderError: `bad_request`: a key is unknown or cannot differ for one call, or its value is
                wrong.
        """
        if not options:
            return self
        written = self._written
        read, fixed = read_for_call(
            self.config,
            options,
            PER_CALL,
            lambda config: attrs.evolve(written, config=config).read(),
        )
        if fixed or read.function != self.function:
            keys = ", ".join(fixed) or "transformResponse from a file"
            raise ProviderError("bad_request", f"{keys} cannot differ for one call")
        return read


def read(
    prefix: str, rest: str, config: Mapping[str, Any], context: EntryContext
) -> GenericSettings | list[Problem]:
    """Read an entry, and the files in it; see `Reader`.

    `{{env.NAME}}` in the URL of an id is the environment variable NAME.
    """
    filled = expand_env({"url": rest}, context.environ, context.templates, context.withheld)
    url = filled.value["url"]
    reader = _EntryReader(
        f"{prefix}:{url}" if url else "",
        prefix,
        config,
        context,
        tuple(filled.secrets),
        tuple(filled.names),
    )
    found = reader.read()
    problems = [attrs.evolve(one, path=".id") for one in filled.problems]
    if isinstance(found, list):
        return problems + found
    return problems or found


@attrs.define
class _EntryReader:
    """Reads one entry; holds its values and its problems so far."""

    _url: str
    """The URL in the id; "" if there is none."""
    _prefix: str
    config: Mapping[str, Any]
    context: EntryContext
    _filled_in: tuple[str, ...] = attrs.field(repr=False)
    """Secrets from the environment in the URL of the id."""
    _named_variables: tuple[str, ...]
    _values: dict[str, Any] = attrs.field(init=False, factory=dict)
    _problems: list[Problem] = attrs.field(init=False, factory=list)

    def read(self) -> GenericSettings | list[Problem]:
        known = {key: value for key, value in self.config.items() if not _is_not_yet(key)}
        found = read_open_config(known, KEYS, OtherKeys(sends=False))
        self._values, self._problems = found.values, found.problems
        for key in filter(_is_not_yet, self.config):
            self._fault(str(key), f'"{key}" is not supported')
        self._values = {name: value for name, value in self._values.items() if value is not None}
        request = self._request()
        rewrite = self._rewrite()
        transform = self._transform()
        tls, faults = read_tls(self._values.get("tls"), self.context)
        self._problems += faults
        limit, faults = read_limit(self._values, self.context.environ)
        self._problems += faults
        if request is None or self._problems:
            return self._problems
        values = self._values
        return GenericSettings(
            request=request,
            rewrite=rewrite,
            tools={name: values[name] for name in ("tools", "tool_choice") if name in values},
            statuses=read_statuses(values.get("validate_status")) or SUCCESS,
            transform=None if isinstance(transform, WorkerSpec) else transform,
            function=transform if isinstance(transform, WorkerSpec) else None,
            timeout=limit,
            follows_anywhere=values.get("follow_redirects") == "any",
            max_reply_bytes=values.get("max_response_bytes", MOST_BYTES),
            tls=tls,
            price=read_price(values["price"]) if "price" in values else None,
            lane_key=lane_key(request, self._filled_in),
            secrets=longest_first({*find_secrets(request), *self._filled_in}),
            own_headers=own_headers(request, self.context.environ),
            own_texts=secrets_of_environment([self._url, self.config], self.context.environ),
            named_variables=self._named_variables,
            warnings=found.warnings,
            written=self,
        )

    def _fault(self, key: str, message: str, hint: str | None = None) -> None:
        path = f".config.{key}" if key and not key.startswith(".") else key
        self._problems.append(Problem(path, message, hint))

    def _request(self) -> RequestTemplate | None:
        values = self._values
        auth = self._auth()
        raw = self._raw() if "request" in values else None
        if raw is None:
            url = self._find_url()
            headers = self._headers()
            self._check_headers(headers, auth)
            method = values.get("method")
            body = self._body(headers.get("content-type"))
        else:
            url, headers, method = raw.url, raw.headers, raw.method
            body = text_body(raw.body, headers.get("content-type")) if raw.body else None
            self._check_headers(headers, auth, key="request")
        query = {name: _printed(part) for name, part in values.get("query_params", {}).items()}
        self._check_query(url, query, auth)
        self._check_use_https(url_is_whole=raw is None or raw.is_whole)
        request = RequestTemplate(
            method=method.upper() if method else None,
            url=url,
            headers=headers,
            query=query,
            body=body,
            auth=auth,
        )
        self._check_templates(request, "request" if raw else None)
        return request

    def _find_url(self) -> str:
        given = self._values.get("url", "").strip()
        if given and self._url:
            self._fault("url", "the id already has a URL", 'keep one of them; the id may be "http"')
        url = given or self._url
        if not url:
            if "url" not in self.config and "request" not in self.config:
                hint = "write it as the id, or set url or request in the config"
                self._fault(".id", "missing URL", hint)
        elif fault := static_fault(url):
            self._fault("url" if given else ".id", fault)
        return url

    def _raw(self) -> RawRequest | None:
        """Return the parts of `request`; None if it is invalid."""
        for name in ("url", "method", "headers", "body", "multipart", "query_params"):
            if name in self._values:
                key = next(key for key in self.config if to_snake(str(key)) == name)
                self._fault(str(key), "the request sets it already", "keep one of them")
        if self._url:
            self._fault(".id", "the request already has a URL", f'write "{self._prefix}"')
        text = self._text_of("request")
        if text is None:
            return None
        scheme = "https" if self._prefix == "https" or self._values.get("use_https") else "http"
        raw = read_raw_request(text, scheme)
        if isinstance(raw, str):
            self._fault("request", raw)
            return None
        if fault := static_fault(raw.url):
            self._fault("request", f"its URL {fault}")
        return raw

    def _text_of(self, key: str) -> str | None:
        """Return a text, or that of the file which it names; None if it is not found."""
        text: str = self._values[key]
        if not text.startswith(_FILE):
            return text
        path = find(self.context, text.removeprefix(_FILE))
        if isinstance(path, Path):
            try:
                return path.read_text("utf-8")
            except (OSError, ValueError) as error:
                path = f"the file cannot be read: {error}"
        self._fault(key, path)
        return None

    def _body(self, content_type: str | None) -> Body | None:
        values = self._values
        if "multipart" in values:
            parts, problems = read_parts(values["multipart"], self.context)
            self._problems += problems
            if "body" in values:
                self._fault("body", "multipart is already the body", "keep one of them")
            if content_type is not None:
                self._fault("headers", "multipart sets its own content-type", "leave it out")
            return MultipartBody(parts)
        match values.get("body"):
            case None:
                return None
            case str():
                text = self._text_of("body")
                return None if text is None else text_body(text, content_type)
            case data:
                if content_type is not None and not is_json_type(content_type):
                    fault = "an object is sent as JSON, but the headers have another content-type"
                    self._fault("body", fault, "write the body as text, or leave the header out")
                return JsonBody(data)

    def _headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        for name, text in self._values.get("headers", {}).items():
            if name.lower() in headers:
                self._fault(
                    "headers", f"the header {name.lower()} is set twice", "keep one of them"
                )
            headers[name.lower()] = str(text)
        return headers

    def _check_query(self, url: str, query: Mapping[str, str], auth: Auth) -> None:
        named = {*query, *(name for name, _ in parameters(url))}
        for name in auth.query.keys() & named:
            fault = f"the request already has a parameter {show(name)}"
            self._fault("auth.keyName", fault, "keep one of them")

    def _check_use_https(self, *, url_is_whole: bool) -> None:
        use = self._values.get("use_https")
        if use is not None and url_is_whole:
            self._fault("useHttps", "the URL already has a scheme", "leave it out")
        elif use is False and self._prefix == "https":
            self._fault("useHttps", 'the id "https" has another scheme', "keep one of them")

    def _check_headers(self, headers: Mapping[str, str], auth: Auth, key: str = "headers") -> None:
        made = auth.headers.keys() if auth.token is None else {"authorization"}
        for name in sorted(headers.keys() & made):
            self._fault(key, f"auth already sets the header {name}", "keep one of them")
        for name in sorted(headers.keys() & (DROPPED - {"host", "accept-encoding"})):
            self._fault(key, f"the header {name} belongs to the connection", "leave it out")

    def _auth(self) -> Auth:
        if "auth" not in self._values:
            return NO_AUTH
        auth = read_auth(self._values["auth"])
        if isinstance(auth, Auth):
            return auth
        self._problems += auth
        return NO_AUTH

    def _check_templates(self, request: RequestTemplate, raw: str | None) -> None:
        places = [("url" if not self._url else ".id", request.url)]
        places += [(f"headers.{name}", text) for name, text in request.headers.items()]
        places += [(f"queryParams.{name}", text) for name, text in request.query.items()]
        match request.body:
            case JsonBody(data):
                places += _texts_in(data, "body")
            case TextBody(text) | JsonText(text):
                places.append(("body", text))
            case _:
                pass  # parts are checked where they are read
        for place, text in places:
            if fault := self.context.templates.syntax_error(text):
                self._fault(raw or place, fault)

    def _rewrite(self) -> Script | str | None:
        text = self._values.get("transform_request")
        read = None if text is None else read_rewrite(text, self.context)
        if isinstance(read, Problem):
            self._problems.append(read)
            return None
        return read

    def _transform(self) -> Transform | Script | WorkerSpec | None:
        text = self._values.get("transform_response")
        read = None if text is None else read_output(text, self.context)
        if isinstance(read, Problem):
            self._problems.append(read)
            return None
        return read


def _is_not_yet(key: object) -> bool:
    return to_snake(str(key)) in NOT_YET


def _printed(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def static_fault(url: str) -> str | None:
    """Return the fault of a URL before it is rendered, or None."""
    if MARK.search(url) is None:
        return url_fault(url)
    # A password before a template would be sent unchanged, and shown.
    place = re.split(r"[/?#]", re.sub(r"\{\{.*?\}\}", "", url).partition("://")[2], maxsplit=1)[0]
    if "@" in place:
        return url_fault("http://user@host")
    return None


def _texts_in(data: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the texts of JSON data, with their paths."""
    match data:
        case str():
            yield path, data
        case Mapping():
            for name, part in data.items():
                yield from _texts_in(part, f"{path}.{name}")
        case list() | tuple():
            for position, part in enumerate(data):
                yield from _texts_in(part, f"{path}[{position}]")

"""Providers `ws:`, `wss:` and `websocket`: one message to a server that the suite describes, and its reply.

A call opens a connection, sends one message, and reads messages until there is an output: the first one, or
as many as `streamResponse` asks for. It is the HTTP provider in all but the exchange: templates, transforms,
files and secrets are handled by the same code.
"""

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import attrs
import trio

from trioeval.errors import Problem, ProviderError
from trioeval.providers.base import Provider, Reply, Request
from trioeval.providers.bounds import MAX_RESPONSE, MOST_BYTES, check_marks
from trioeval.providers.cache_key import CacheIdentity
from trioeval.providers.config import (
    PRICE,
    EntryContext,
    Key,
    ProviderResources,
    ProviderSettings,
    TemplateRenderer,
    is_positive,
    is_text,
    is_texts,
    show,
    to_snake,
)
from trioeval.providers.generic.entry import read_function, static_fault
from trioeval.providers.generic.http import CodeRunner, check_code, open_code, read_with
from trioeval.providers.generic.identity import find_secrets, lane_key, reads_variables
from trioeval.providers.generic.keys import DROPPED, HEADER_NAME, KEYS, read_for_call
from trioeval.providers.generic.reply import (
    NOTHING,
    MemberPath,
    ReplyQuery,
    ReplyReading,
    Transform,
    TransformError,
    TransformInput,
    plain,
    read_answer,
    read_transform,
)
from trioeval.providers.generic.request import (
    Body,
    CallVariables,
    RequestTemplate,
    read_script_file,
    render_body,
    text_body,
)
from trioeval.providers.generic.tls_keys import read_tls
from trioeval.providers.http.endpoint import ATTEMPT_LIMIT, read_limit
from trioeval.providers.http.replies import attempt_timeout
from trioeval.providers.http.wire import (
    HttpReply,
    HttpRequest,
    TlsSettings,
    WebClient,
    WebSocket,
    request_source,
)
from trioeval.providers.metering import Metering
from trioeval.providers.other_keys import OtherKeys, read_open_config
from trioeval.providers.prices import Price, read_price
from trioeval.providers.programs.workers import Workers, WorkerSpec, open_workers
from trioeval.providers.resolve import expand_env
from trioeval.providers.secrets import longest_first
from trioeval.scripting.javascript import Script, is_function

_HTTP = {key.name: key for key in KEYS}


def _is_protocols(value: Any) -> bool:
    listed = value.split(",") if isinstance(value, str) else value
    return is_texts(listed) and all(HEADER_NAME.fullmatch(one.strip()) for one in listed)


SOCKET_KEYS = (
    _HTTP["url"],
    Key("messageTemplate", "text", is_text),
    Key("transformResponse", "text", is_text),
    Key("streamResponse", "text", is_text),
    _HTTP["headers"],
    Key("protocols", "a name or a list of names", _is_protocols),
    Key("timeoutMs", "a number of milliseconds above 0", is_positive),
    MAX_RESPONSE,
    PRICE,
    _HTTP["tls"],
)
"""The config keys of an entry."""

SOCKET_PER_CALL = frozenset(
    {"headers", "message_template", "stream_response", "transform_response"}
)
"""Keys, in snake_case, that may differ for one call."""

_NAMES = ("data", "text", "context")
"""The arguments of `transformResponse`."""
_STREAM_NAMES = ("accumulator", "data", "context")
"""The arguments of `streamResponse`."""
_UNDECIDED: Mapping[str, str] = {"error": "unknown error occurred"}
"""The first accumulator."""

_SCHEME = re.compile(r"wss?://", re.IGNORECASE)
_DATA = re.compile(r"data(?![\w$])")
_RETURNS = re.compile(r"\breturn\b")
_OF_HANDSHAKE = "sec-websocket-"
_PROTOCOLS = "sec-websocket-protocol"


@attrs.frozen(kw_only=True)
class SocketSettings(ProviderSettings):
    """The settings of a WebSocket server described in the suite."""

    handshake: RequestTemplate
    """URL and headers; the URL is that of HTTP."""
    message: Body = attrs.field(repr=False)
    """The template of the message."""
    transform: Transform | Script | None = None
    """None uses the whole message."""
    function: WorkerSpec | None = None
    """The transform, if it is a function in a Python file."""
    stream: Script | WorkerSpec | None = None
    """The function that reads one message after the other; None reads one."""
    timeout: float = ATTEMPT_LIMIT
    """Maximum seconds of a call, > 0."""
    max_reply_bytes: int = MOST_BYTES
    """Maximum size of all messages of a call in bytes."""
    tls: TlsSettings | None = None
    price: Price | None = None
    """None if no price is known."""
    lane_key: str = attrs.field(repr=False)
    secrets: tuple[str, ...] = attrs.field(repr=False)
    """Secrets, longest first."""
    named_variables: tuple[str, ...] = ()
    """Environment variables in the URL of its id."""
    warnings: tuple[Problem, ...] = ()
    _written: "_SocketReader" = attrs.field(repr=False)

    @property
    def config(self) -> Mapping[str, Any]:
        """The config as written."""
        return self._written.config

    @property
    def urls(self) -> tuple[str, ...]:
        """The template of its URL."""
        return (self.handshake.url,)

    @property
    def metering(self) -> Metering:
        """The price of its tokens, unless its replies report a cost, which nothing limits."""
        return Metering(price=self.price, says_cost=True)

    @property
    def code_keys(self) -> tuple[str, ...]:
        """Keys that contain code."""
        found = {
            "transformResponse": self.function is not None or isinstance(self.transform, Script),
            "streamResponse": self.stream is not None,
        }
        return tuple(key for key, is_code in found.items() if is_code)

    @asynccontextmanager
    async def open(self, shared: ProviderResources) -> AsyncGenerator[Provider]:
        """Open the provider with the workers of its code."""
        client, context = await shared.http(self.tls), self._written.context
        directory, environ = context.directory.resolve(), context.environ
        async with AsyncExitStack() as stack:
            code = await stack.enter_async_context(open_code(directory, environ, self.function))
            stream: Workers | None = None
            if isinstance(self.stream, WorkerSpec):
                stream = await stack.enter_async_context(open_workers(self.stream))
            yield SocketProvider(
                self, shared.templates, client, code, stream, runs_code=shared.runs_code
            )

    def changed(self, options: Mapping[str, Any]) -> "SocketSettings":
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
            SOCKET_PER_CALL,
            lambda config: attrs.evolve(written, config=config).read(),
        )
        files = [one for one in (read.function, read.stream) if isinstance(one, WorkerSpec)]
        if fixed or any(one not in (self.function, self.stream) for one in files):
            keys = ", ".join(fixed) or "a function in a file"
            raise ProviderError("bad_request", f"{keys} cannot differ for one call")
        return read


def read(
    prefix: str, rest: str, config: Mapping[str, Any], context: EntryContext
) -> SocketSettings | list[Problem]:
    """Read an entry, and the files in it; see `Reader`.

    `{{env.NAME}}` in the URL of an id is the environment variable NAME.
    """
    filled = expand_env({"url": rest}, context.environ, context.templates, context.withheld)
    url = filled.value["url"]
    if prefix != "websocket" and url:
        url = f"{prefix}:{url}"
    reader = _SocketReader(url, config, context, tuple(filled.secrets), tuple(filled.names))
    found = reader.read()
    problems = [attrs.evolve(one, path=".id") for one in filled.problems]
    if isinstance(found, list):
        return problems + found
    return problems or found


@attrs.define
class _SocketReader:
    """Reads one entry; holds its values and its problems so far."""

    _url: str
    """The URL in the id; "" if there is none."""
    config: Mapping[str, Any]
    context: EntryContext
    _filled_in: tuple[str, ...] = attrs.field(repr=False)
    """Secrets from the environment in the URL of the id."""
    _named_variables: tuple[str, ...]
    _values: dict[str, Any] = attrs.field(init=False, factory=dict)
    _problems: list[Problem] = attrs.field(init=False, factory=list)

    def read(self) -> SocketSettings | list[Problem]:
        names = {"response_parser": "transform_response"}
        found = read_open_config(self.config, SOCKET_KEYS, OtherKeys(sends=False, names=names))
        self._problems = found.problems
        self._values = {name: one for name, one in found.values.items() if one is not None}
        values, warnings = self._values, found.warnings
        handshake = RequestTemplate(method="GET", url=self._find_url(), headers=self._headers())
        message = self._message()
        transform = self._transform()
        stream = self._stream()
        tls, faults = read_tls(values.get("tls"), self.context)
        limit, wrong = read_limit(values, self.context.environ)
        self._problems += [*faults, *wrong]
        if stream is not None and transform is not None:
            fault = '"transformResponse" has no effect'
            hint = "the result of streamResponse is the output"
            warnings = (*warnings, Problem(".config.transformResponse", fault, hint))
        if message is None or self._problems:
            return self._problems
        return SocketSettings(
            handshake=handshake,
            message=message,
            transform=None if isinstance(transform, WorkerSpec) else transform,
            function=transform if isinstance(transform, WorkerSpec) else None,
            stream=stream,
            timeout=limit,
            max_reply_bytes=values.get("max_response_bytes", MOST_BYTES),
            tls=tls,
            price=read_price(values["price"]) if "price" in values else None,
            lane_key=lane_key(handshake, self._filled_in, kind="websocket"),
            secrets=longest_first({*find_secrets(handshake), *self._filled_in}),
            named_variables=self._named_variables,
            warnings=warnings,
            written=self,
        )

    def _fault(self, key: str, message: str, hint: str | None = None) -> None:
        path = key if key.startswith(".") else f".config.{key}"
        self._problems.append(Problem(path, message, hint))

    def _find_url(self) -> str:
        """Return the URL as one of HTTP; "" if it is missing or invalid."""
        given = self._values.get("url", "").strip()
        place = "url" if given else ".id"
        if given and self._url:
            self._fault("url", "the id already has a URL", "keep one of them")
        url = given or self._url.strip()
        if not url:
            if "url" not in self.config:
                self._fault(".id", "missing URL", "write it as the id, or set url in the config")
            return ""
        if not _SCHEME.match(url):
            self._fault(place, "must be a URL that begins with ws:// or wss://")
            return ""
        url = f"http{url[2:]}"
        if fault := static_fault(url) or self.context.templates.syntax_error(url):
            fault = fault.replace("an http or https URL", "a ws or wss URL")
            self._fault(place, fault.partition("; use auth")[0])
        return url

    def _headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        for name, text in self._values.get("headers", {}).items():
            low = name.lower()
            if low in headers:
                self._fault("headers", f"the header {low} is set twice", "keep one of them")
            elif low == _PROTOCOLS:
                self._fault("headers", f"the header {low} has a key of its own", "use protocols")
            elif low in DROPPED - {"host"} or low.startswith(_OF_HANDSHAKE):
                self._fault(
                    "headers", f"the header {low} belongs to the connection", "leave it out"
                )
            elif fault := self.context.templates.syntax_error(str(text)):
                self._fault(f"headers.{name}", fault)
            headers[low] = str(text)
        protocols = self._values.get("protocols", ())
        listed = protocols.split(",") if isinstance(protocols, str) else protocols
        if listed:
            headers[_PROTOCOLS] = ", ".join(one.strip() for one in listed)
        return headers

    def _message(self) -> Body | None:
        text = self._values.get("message_template")
        if text is None:
            if "message_template" not in map(to_snake, map(str, self.config)):
                hint = 'for example messageTemplate: \'{"question": "{{prompt}}"}\''
                self._fault("messageTemplate", "missing; a WebSocket requires it", hint)
            return None
        if fault := self.context.templates.syntax_error(text):
            self._fault("messageTemplate", fault)
        return text_body(text, None)

    def _transform(self) -> Transform | Script | WorkerSpec | None:
        text = self._values.get("transform_response")
        if text is None:
            return None
        found: Transform | Script | WorkerSpec | str | None
        found = read_function(text, self.context, "transformResponse")
        if found is None:
            found = read_script_file(text, _NAMES, self.context)
        if found is None:
            found = _read_transform(text.strip(), self.context)
        if isinstance(found, str):
            self._fault("transformResponse", found)
            return None
        return found

    def _stream(self) -> Script | WorkerSpec | None:
        text = self._values.get("stream_response")
        if text is None:
            return None
        found: Script | WorkerSpec | str | None
        found = read_function(text, self.context, "streamResponse")
        if found is None:
            found = read_script_file(text, _STREAM_NAMES, self.context)
        if found is None:
            code = text.strip()
            is_body = not is_function(code) and _RETURNS.search(code) is not None
            script = Script(code, _STREAM_NAMES, "body" if is_body else "value")
            found = script.fault(self.context.environ) or script
        if isinstance(found, str):
            self._fault("streamResponse", found)
            return None
        return found


def _read_transform(code: str, context: EntryContext) -> Transform | Script | str:
    """Return the transform in a text; `data` is the message, as JSON if it is JSON."""
    if _DATA.match(code):
        path = read_transform(f"json{code.removeprefix('data')}", context.environ)
        if isinstance(path, MemberPath):
            return attrs.evolve(path, written=code)
    found = read_transform(code, context.environ)
    return attrs.evolve(found, names=_NAMES) if isinstance(found, Script) else found


@attrs.frozen
class SocketProvider:
    """A provider for a WebSocket server described in the suite: one connection for each call."""

    settings: SocketSettings
    _templates: TemplateRenderer = attrs.field(repr=False)
    _client: WebClient = attrs.field(repr=False)
    _code: CodeRunner = attrs.field(repr=False)
    _stream: Workers | None = attrs.field(repr=False)
    _runs_code: bool = True

    async def __call__(self, request: Request, /) -> Reply:
        """Send one message. A checkpoint, unless the request is invalid.

        Raises:
            ProviderError: `bad_request` (the request is invalid), `attempt_timeout`; the failure of the
                handshake or of the connection; or `malformed_reply`, if the messages have no output.
        """
        entry = self.settings.changed(request.options)
        check_code(entry.code_keys, runs_code=self._runs_code)
        ready, message = self._rendered(entry, request)
        reply: Reply | None = None
        with trio.move_on_after(entry.timeout):
            async with self._client.connect(ready) as socket:
                reading = read_with(ready, secrets=entry.secrets, price=entry.price)
                if isinstance(socket, HttpReply):
                    raise reading.classified(socket)
                await socket.send(message)
                reply = await self._read(entry, reading, socket, request)
        if reply is None:
            raise attempt_timeout(request_source("GET", ready.url), entry.timeout)
        return reply

    def cache_identity(self, request: Request, /) -> CacheIdentity | None:
        """Return everything that decides the reply to a request; see `Cacheable`.

        Returns:
            None if code in a file, or code that Node runs, is involved.
        """
        entry = self.settings.changed(request.options)
        code = (entry.function, entry.stream, entry.transform)
        if any(isinstance(one, WorkerSpec) for one in code):
            return None
        scripts = [one for one in code if isinstance(one, Script)]
        if any(one.file is not None or one.needs_node is not None for one in scripts):
            return None
        ready, message = self._rendered(entry, request)
        config = {to_snake(str(key)): value for key, value in entry.config.items()}
        names = ("transform_response", "response_parser", "stream_response")
        how = {name: config[name] for name in names if config.get(name) is not None}
        if entry.stream is not None or reads_variables(entry.transform):
            how["vars"] = plain(dict(request.vars))
        return CacheIdentity(
            name=f"websocket:{urlsplit(ready.url).hostname or ''}",
            service="websocket",
            request=attrs.evolve(ready, body=message.encode("utf-8", "replace")),
            account="",
            reading=how,
        )

    def _rendered(self, entry: SocketSettings, request: Request) -> tuple[HttpRequest, str]:
        """Return the request of the handshake, and the message."""
        filling = CallVariables.of(self._templates, dict(request.vars), request.prompt)
        ready = entry.handshake.render(filling, {})
        content = render_body(entry.message, filling, {})
        message = "" if content is None else content.data.decode("utf-8", "replace")
        url = f"ws{ready.url[4:]}"
        return attrs.evolve(ready, url=url, max_reply_bytes=entry.max_reply_bytes), message

    async def _read(
        self, entry: SocketSettings, reading: ReplyReading, socket: WebSocket, request: Request
    ) -> Reply:
        accumulator: Any = dict(_UNDECIDED)
        while True:
            message = await socket.receive()
            reply = attrs.evolve(socket.reply, body=message.encode("utf-8", "replace"))
            check_marks(reply.body, entry.max_reply_bytes, source=reply.source)
            run, size = self._code.run, len(reply.body)
            answer = await run(partial(read_answer, reply, request.vars), size)
            try:
                if entry.stream is None:
                    value, is_last = await self._transformed(entry, reading, reply, answer), True
                else:
                    value, is_last = await self._streamed(entry, entry.stream, accumulator, answer)
            except TransformError as error:
                if isinstance(answer.json, Mapping) and answer.json.get("error"):
                    raise reading.classified(reply) from error
                raise reading.failure("malformed_reply", str(error), reply, _ADVICE) from error
            if is_last:
                return await run(partial(reading.finish, value, reply, answer), size)
            accumulator = value

    async def _transformed(
        self, entry: SocketSettings, reading: ReplyReading, reply: HttpReply, answer: TransformInput
    ) -> Any:
        """Return the output in one message."""
        code, size = self._code, len(reply.body)
        if entry.transform is None and entry.function is None:
            return await code.run(partial(reading.whole, reply, answer), size)
        if answer.json is NOTHING and not isinstance(entry.transform, ReplyQuery):
            answer = attrs.evolve(answer, json=answer.text)  # `data` is the text then
        if entry.transform is not None:
            return await code.transform(entry.transform, answer, size, entry.timeout)
        return await code.call(answer, entry.timeout)

    async def _streamed(
        self,
        entry: SocketSettings,
        stream: Script | WorkerSpec,
        accumulator: Any,
        answer: TransformInput,
    ) -> tuple[Any, bool]:
        """Return the next accumulator, and whether it is the output."""
        event = {"data": answer.text, "type": "message"}
        values = [accumulator, event, plain(answer.context)]
        if isinstance(stream, Script):
            result = await self._code.evaluate(stream, values, entry.timeout)
        elif self._stream is None:
            msg = "the workers of this provider were not opened; please report this"
            raise RuntimeError(msg)
        else:
            result = await self._stream.call(values, entry.timeout)
        match result:
            case [value, is_last]:
                if is_last and value is None:
                    raise TransformError("streamResponse ended without an output")
                return value, bool(is_last)
            case _:
                fault = f"streamResponse must return [accumulator, isComplete], got {show(result)}"
                raise TransformError(fault)


_ADVICE = "check the URL, transformResponse and streamResponse"

"""The HTTP client of a run. Adapters of own requests know no other part of an HTTP library.

It is imported when the first provider that needs a network is opened, because the import takes longer than
everything else in a small run.

A run has one `HttpClient`. It never makes a call wait: the number of connections is not limited here, since
lanes limit the calls in flight, and waiting for a pool would be a second, invisible queue. It does not retry,
because the lane does. The only time limit is the one for connecting; the others are the caller's cancel
scopes.
"""

import ssl
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from functools import partial
from http import HTTPStatus
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import attrs
import httpcore2
import httpx2
import trio

from trioeval._version import __version__
from trioeval.errors import Fault, ProviderError
from trioeval.open_files import has_room, lowest_free, too_many_open_files
from trioeval.providers.bounds import (
    MOST_BYTES,
    SLOW,
    check_marks,
    most_lines,
    too_large,
    too_many_lines,
)
from trioeval.providers.http.connect_errors import CONNECT_LIMIT, LIBRARY_ERRORS, explain, place_of
from trioeval.providers.http.failures import excerpt, failure_text
from trioeval.providers.http.network import Network
from trioeval.providers.http.tls import EncryptedKeyError, load_identity
from trioeval.providers.http.unpacker import Unpacker
from trioeval.providers.http.wire import (
    HttpReply,
    HttpRequest,
    TlsSettings,
    WebClient,
    WebSocket,
    dated,
    request_source,
)

CLOSE_GRACE = 2.0
"""Seconds that closing all connections may take."""


@asynccontextmanager
async def open_http(
    tls: TlsSettings | None = None,
    *,
    max_reply_bytes: int = MOST_BYTES,
    hosts: frozenset[str] | None = None,
    wall_clock: Callable[[], float] = time.time,
) -> AsyncGenerator[WebClient]:
    """Open the client that all network providers of one `trio.run` share.

    Proxies and certificate files come from the usual environment variables.

    Args:
        tls: TLS settings; None uses the defaults.
        max_reply_bytes: Maximum size of a reply's body in bytes for requests that do not set one.
        hosts: The only hosts that requests may go to; None allows all.
        wall_clock: Seconds since 1970, for replies without a date.

    Raises:
        ProviderError: `tls`, if the certificates that `tls` names cannot be read.

    Example:
        ```python
        async with open_http() as client:
            reply = await client.send(HttpRequest("http://127.0.0.1:8080/v1/x", {}, b"{}"))
        ```
    """
    client = _Client(max_reply_bytes, _tls_context(tls or TlsSettings()), wall_clock, hosts)
    try:
        yield client
    finally:
        with trio.move_on_after(CLOSE_GRACE, shield=True):
            await client.aclose()


@attrs.frozen
class _Target:
    """A parsed URL."""

    url: httpcore2.URL
    host: bytes
    """The value of the header `host`."""
    server: str
    """Scheme, host and port: requests with the same ones may use the same connection."""


@attrs.define(eq=False, repr=False)
class _Client:
    """Gives each request in flight its own connection, which is reused afterwards.

    A connection pool searches all its connections for every request, which at a hundred calls in flight
    costs more than the request. The client of a library above the connections is skipped as well: what it
    adds (models, cookies, redirects, authentication flows) costs as much again, and is mostly what a provider
    must not do. All connections share one TLS context, their expensive part. Only a limited number of idle
    ones is kept: each holds a file descriptor, and a template may name another host in every row.
    """

    _max_reply_bytes: int
    _tls: ssl.SSLContext
    _wall_clock: Callable[[], float]
    _hosts: frozenset[str] | None = None
    _all: set[httpcore2.AsyncConnectionInterface] = attrs.field(factory=set)
    _idle: dict[str, list[httpcore2.AsyncConnectionInterface]] = attrs.field(factory=dict)
    """Idle connections by `_Target.server`; the longest unused first."""
    _idle_count: int = 0
    _base: int = 0
    """File descriptors in use before the first connection."""
    _targets: dict[str, _Target] = attrs.field(factory=dict)
    """By URL: a run has few and uses each many times."""

    async def send(
        self, request: HttpRequest, *, on_part: Callable[[bytes], object] | None = None
    ) -> HttpReply:
        url = request.url
        source = request_source(request.method, url)
        most = request.max_reply_bytes or self._max_reply_bytes
        connection: httpcore2.AsyncConnectionInterface | None = None
        try:
            with _explained(source, url):
                target = self._target(request)
                ready = _request(request, target)
                connection = await self._take(target) or await self._make(target, url, source)
                response = await connection.handle_async_request(ready)
                headers = _readable(response.headers)
                try:
                    content = await self._read(response, headers, source, on_part, most)
                finally:
                    with trio.move_on_after(CLOSE_GRACE, shield=True):
                        await response.aclose()
        finally:
            if connection is not None:
                self._give_back(target, connection)
        kind = headers.get("content-type", "")
        is_stream = on_part is not None or kind.startswith("text/event-stream")
        where = _arrived(response, source)
        check = partial(check_marks, content, most, source=where, is_stream=is_stream)
        if len(content) < SLOW:
            check()
        else:  # abandoned when cancelled: the thread ends by itself
            await trio.to_thread.run_sync(check, abandon_on_cancel=True)
        return HttpReply(response.status, dated(headers, self._wall_clock()), content, source)

    @asynccontextmanager
    async def connect(self, request: HttpRequest) -> AsyncGenerator[WebSocket | HttpReply]:
        from trioeval.providers.http.sockets import Handshake, OpenSocket

        source = request_source("GET", request.url)
        most = request.max_reply_bytes or self._max_reply_bytes
        handshake = Handshake()
        asked = attrs.evolve(
            request,
            url=_web_url(request.url),
            headers={**request.headers, **handshake.headers},
            body=None,
            method="GET",
        )
        connection: httpcore2.AsyncConnectionInterface | None = None
        response: httpcore2.Response | None = None
        opened: OpenSocket | None = None
        try:
            with _explained(source, asked.url):
                target = self._target(asked)
                ready = _request(asked, target)
                # A new one: an idle connection that the server has just closed would fail the handshake.
                connection = await self._make(target, asked.url, source)
                response = await connection.handle_async_request(ready)
                headers = dated(_readable(response.headers), self._wall_clock())
                is_open = response.status == HTTPStatus.SWITCHING_PROTOCOLS
                content = (
                    b"" if is_open else await self._read(response, headers, source, None, most)
                )
            reply = HttpReply(response.status, headers, content, source)
            handshake.check(reply, request.headers.get("sec-websocket-protocol", ""))
            if not is_open:
                yield reply
                return
            proxy = _proxy_for(asked.url)
            opened = OpenSocket(
                reply,
                response.extensions["network_stream"],
                most,
                lambda error: explain(error, source, place_of(asked.url), proxy),
            )
            yield opened
        finally:
            # The server must learn of the end even if the run is cancelled: it may be preparing a reply.
            with trio.move_on_after(CLOSE_GRACE, shield=True):
                if opened is not None:
                    await opened.aclose()
                if response is not None:
                    await response.aclose()
            if connection is not None:
                self._give_back(target, connection)

    async def aclose(self) -> None:
        """Close every connection."""
        for connection in tuple(self._all):  # requests that are cancelled meanwhile remove theirs
            await connection.aclose()

    async def _take(self, target: _Target) -> httpcore2.AsyncConnectionInterface | None:
        """Return an idle connection that the server has not closed; a checkpoint if it closes others."""
        while (connection := self._next_idle(target.server)) is not None:
            if not connection.has_expired():
                return connection
            await self._discard(connection)
        return None

    def _next_idle(self, server: str) -> httpcore2.AsyncConnectionInterface | None:
        idle = self._idle.pop(server, None)
        if idle is None:
            return None
        connection = idle.pop()
        if idle:
            self._idle[server] = idle
        self._idle_count -= 1
        return connection

    def _give_back(self, target: _Target, connection: httpcore2.AsyncConnectionInterface) -> None:
        if connection.is_available():
            self._idle.setdefault(target.server, []).append(connection)
            self._idle_count += 1
        else:  # it failed, was cancelled, or was closed by the server
            self._all.discard(connection)

    async def _discard(self, connection: httpcore2.AsyncConnectionInterface) -> None:
        self._all.discard(connection)
        with trio.move_on_after(CLOSE_GRACE, shield=True):
            await connection.aclose()

    async def _make(
        self, target: _Target, url: str, source: str
    ) -> httpcore2.AsyncConnectionInterface:
        while self._idle_count >= _IDLE or (self._idle_count and not self._has_room):
            oldest = self._next_idle(next(iter(self._idle)))
            if oldest is not None:
                await self._discard(oldest)
        if not self._has_room:
            title = f"no connection to {place_of(url)} for"
            msg = failure_text(title, source, detail=too_many_open_files())
            raise ProviderError("connection", msg, fault=Fault.RATE_LIMITED)
        connection = self._new_connection(target.url.origin, url, source)
        self._all.add(connection)
        return connection

    @property
    def _has_room(self) -> bool:
        """True if one more connection leaves enough file descriptors; the first may always be tried."""
        taken = lowest_free()
        if not self._all:
            self._base = taken or 0
            return True
        # Many may still be connecting, and have no descriptor yet.
        return taken is not None and has_room(max(taken, self._base + len(self._all)))

    def _target(self, request: HttpRequest) -> _Target:
        found = self._targets.get(request.url)
        if found is not None:
            return found
        parsed = httpx2.URL(request.url)
        if not parsed.host or parsed.scheme not in ("http", "https"):
            raise httpx2.InvalidURL("no host")
        if self._hosts is not None and parsed.host.lower() not in self._hosts:
            source = request_source(request.method, request.url)
            fault = f"{parsed.host} is not a host of the suite's providers"
            raise _unsendable(source, f"{fault}, and the suite is untrusted")
        url = httpcore2.URL(
            scheme=parsed.raw_scheme,
            host=parsed.raw_host,
            port=parsed.port,
            target=parsed.raw_path,
        )
        found = _Target(url, parsed.netloc, str(url.origin))
        if len(self._targets) < _TARGETS:
            self._targets[request.url] = found
        return found

    def _new_connection(
        self, origin: httpcore2.Origin, url: str, source: str
    ) -> httpcore2.AsyncConnectionInterface:
        address = _proxy_for(url)
        # These errors contain the address with its password: neither shown nor chained.
        with suppress(ValueError, ImportError):
            pool = httpcore2.AsyncConnectionPool(
                ssl_context=self._tls,
                proxy=None if address is None else _proxy(address),
                keepalive_expiry=_KEPT_ALIVE,
                network_backend=Network(),
            )
            return pool.create_connection(origin)
        raise ProviderError(
            "connection",
            failure_text(
                "invalid proxy in the environment for",
                source,
                advice="set HTTP_PROXY, HTTPS_PROXY or ALL_PROXY to http://host:port or https://host:port "
                "(socks5:// needs the package socksio)",
            ),
            fault=Fault.FATAL,
        )

    async def _read(
        self,
        response: httpcore2.Response,
        headers: Mapping[str, str],
        source: str,
        on_part: Callable[[bytes], object] | None,
        most: int,
    ) -> bytes:
        source = _arrived(response, source)
        declared, encoding = headers.get("content-length", ""), headers.get("content-encoding", "")
        is_declared = declared.isdecimal()
        if is_declared and _is_more(declared, most):
            status = response.status
            raise ProviderError("malformed_reply", too_large(source, most), status=status)
        if on_part is None and is_declared and not encoding and "transfer-encoding" not in headers:
            # The body cannot exceed the declared length, so nothing has to be counted.
            return await response.aread()
        unpacker = Unpacker(encoding, most, source)
        body = bytearray()
        broken: ProviderError | None = None
        on_part = None if on_part is None else _counting(on_part, source, most)
        with trio.CancelScope() as reading:
            async with aclosing(response.aiter_stream()) as chunks:
                async for chunk in chunks:
                    try:
                        part = unpacker.feed(chunk)
                        body += part
                        if on_part is not None:
                            on_part(part)
                    except ProviderError as error:
                        broken = error
                    if unpacker.is_too_large or broken is not None:
                        # Ends the loop from inside; a break would abandon an async generator of the library.
                        reading.cancel(reason="the reply cannot be read")
        if broken is not None:
            raise broken
        if not unpacker.is_whole and not unpacker.is_too_large:
            msg = f"{source}: the compressed reply is incomplete"
            raise ProviderError("malformed_reply", msg, status=response.status)
        if unpacker.is_too_large:
            raise ProviderError(
                "malformed_reply",
                too_large(source, most),
                status=response.status,
                body_excerpt=excerpt(bytes(body)),
            )
        return bytes(body)


_HEADERS = {
    "user-agent": f"trioeval/{__version__}",
    "accept": "application/json",
    "accept-encoding": "identity",  # replies are small: decompression costs more than it saves
}

_LENGTHS = frozenset({"content-length", "transfer-encoding"})
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
"""Methods whose requests have a length even without a body."""

_PROXIES = frozenset({"http", "https", "socks5", "socks5h"})

_KEPT_ALIVE = 5.0
"""Seconds after which an idle connection is not used again: servers close theirs about then."""

_DIGITS = 18
"""Number of digits of a length that exceeds every maximum."""

_IDLE = 256
"""Maximum number of idle connections."""

_TARGETS = 1024
"""Maximum number of parsed URLs; URLs from templates may be all different."""


@contextmanager
def _explained(source: str, url: str) -> Iterator[None]:
    """Raise the errors of the library as those of providers.

    Args:
        source: Method and URL of the request, for messages.
        url: Its URL, of http or https.
    """
    try:
        yield
    except (httpcore2.LocalProtocolError, UnicodeEncodeError):
        # Both contain the header, and with it the key: neither shown nor chained.
        advice = "check the headers and the key for line breaks and characters outside of ASCII"
        raise _unsendable(source, f"invalid header; {advice}") from None
    except (
        httpx2.InvalidURL,
        UnicodeError,
    ) as error:  # a label of the host is empty or too long
        fault = "the URL is not a valid http or https URL; check the provider's base URL"
        raise _unsendable(source, fault) from error
    except LIBRARY_ERRORS as error:
        raise explain(error, source, place_of(url), _proxy_for(url)) from error


def _web_url(url: str) -> str:
    """Return the URL of HTTP for that of a WebSocket.

    Example:
        >>> _web_url("wss://a.example/x")
        'https://a.example/x'
    """
    return f"http{url[2:]}" if url[:2].lower() == "ws" else url


def _counting(
    on_part: Callable[[bytes], object], source: str, most: int
) -> Callable[[bytes], object]:
    """Return a callback for parts of a stream that refuses too many lines."""
    lines = 0

    def count(part: bytes) -> None:
        nonlocal lines
        lines += part.count(b"\n") + part.count(b"\r")
        if lines > 2 * most_lines(most):  # a line may end in CR and LF
            raise too_many_lines(source, most)
        on_part(part)

    return count


def _arrived(response: httpcore2.Response, source: str) -> str:
    """Return the beginning of messages about a reply."""
    return f"HTTP {response.status} from {source}"


def _request(request: HttpRequest, target: _Target) -> httpcore2.Request:
    """Return the request of the library, with the headers that every request needs."""
    names = {name.lower() for name in request.headers}
    given = {name: value for name, value in _HEADERS.items() if name not in names}
    given.update(request.headers)
    headers = [] if "host" in names else [(b"Host", target.host)]
    headers += [(name.encode("ascii"), value.encode("ascii")) for name, value in given.items()]
    if request.body is not None and "content-type" not in names:
        headers.append((b"content-type", b"application/json"))
    if names.isdisjoint(_LENGTHS) and (request.body or request.method in _WITH_BODY):
        headers.append((b"Content-Length", b"%d" % len(request.body or b"")))
    return httpcore2.Request(
        request.method,
        target.url,
        headers=headers,
        content=request.body,
        extensions={"timeout": {"connect": CONNECT_LIMIT}},
    )


def _unsendable(source: str, fault: str) -> ProviderError:
    """Return the error for a request that cannot be sent."""
    return ProviderError("bad_request", f"cannot send {source}: {fault}")


def _is_more(declared: str, most: int) -> bool:
    """Return whether a declared length exceeds the maximum."""
    return len(declared) > _DIGITS or int(declared) > most


def _tls_context(tls: TlsSettings) -> ssl.SSLContext:
    try:
        context = (
            httpcore2.default_ssl_context()
            if tls.ca is None
            else ssl.create_default_context(cafile=tls.ca)
        )
        load_identity(context, tls)
        if not tls.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
    except (OSError, EncryptedKeyError) as error:  # ssl.SSLError is an OSError
        files = ", ".join(str(file) for file in (tls.ca, tls.certificate, tls.key) if file)
        msg = f"the certificates in {files or 'the environment'} cannot be used: {error}"
        raise ProviderError("tls", msg) from error
    return context


def _proxy_for(url: str) -> str | None:
    """Return the URL of the proxy in the environment for a URL, if any; it may hold a password."""
    parts = urlsplit(url)
    if parts.hostname is None or proxy_bypass(parts.hostname):
        return None
    proxies = getproxies()
    address = proxies.get(parts.scheme) or proxies.get("all")
    if not address or "://" in address:
        return address or None
    return f"http://{address}"


def _proxy(address: str) -> httpcore2.Proxy:
    """Return a proxy from its URL.

    Raises:
        ValueError: The URL is not valid.
    """
    parts = urlsplit(address)
    if parts.scheme not in _PROXIES or not parts.hostname:
        raise ValueError(address)
    user = None
    if parts.username is not None:
        user = (unquote(parts.username).encode(), unquote(parts.password or "").encode())
    url = httpcore2.URL(scheme=parts.scheme, host=parts.hostname, port=parts.port, target=b"/")
    return httpcore2.Proxy(url, auth=user)


def _readable(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers as text, names in lower case; those that occur several times are joined by commas."""
    found: dict[str, str] = {}
    for raw_name, raw in headers:
        name = raw_name.decode("latin-1").lower()
        try:
            value = raw.decode()
        except UnicodeDecodeError:
            value = raw.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found

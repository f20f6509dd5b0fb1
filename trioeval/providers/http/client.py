"""The HTTP client of a run: the only module that imports the HTTP library.

It is imported when the first provider that needs a network is opened, because the import takes longer than
everything else in a small run.

A run has one `HttpClient`. It never makes a call wait: the number of connections is not limited here, since
lanes limit the calls in flight, and waiting for a pool would be a second, invisible queue. It does not retry,
because the lane does. The only time limit is the one for connecting; the others are the caller's cancel
scopes.
"""

import socket
import ssl
import time
import zlib
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import attrs
import httpx2
import trio

from trioeval._version import __version__
from trioeval.errors import Fault, ProviderError, ProviderErrorKind
from trioeval.open_files import TOO_MANY, has_room, lowest_free, too_many_open_files
from trioeval.providers.bounds import (
    MOST_BYTES,
    SLOW,
    check_marks,
    most_lines,
    too_large,
    too_many_lines,
)
from trioeval.providers.http.failures import excerpt, failure_text
from trioeval.providers.http.tls import EncryptedKeyError, load_identity
from trioeval.providers.http.wire import (
    HttpClient,
    HttpReply,
    HttpRequest,
    TlsSettings,
    dated,
    request_source,
)

# Decompression of replies that are compressed although this was not requested, up to a maximum size.


_PLAIN = frozenset({"", "identity"})
_ZLIB = frozenset({"gzip", "x-gzip", "deflate"})
_ANY_HEADER = zlib.MAX_WBITS | 32
"""Detects gzip and zlib by their first bytes."""


@attrs.define
class Unpacker:
    """The body of one reply, decompressed as it arrives.

    Args:
        encoding: The reply's `content-encoding`.
        most: Maximum bytes of the decompressed body.
        source: Status, method and URL, which begin error messages.

    Raises:
        ProviderError: `malformed_reply`, if the encoding is unknown.

    Example:
        >>> body = Unpacker("gzip", most=100)
        >>> body.feed(zlib.compress(b"Hello")), body.is_too_large
        (b'Hello', False)
    """

    encoding: str
    most: int
    source: str = "the reply"
    size: int = 0
    """Bytes decompressed so far."""
    _fed: bool = attrs.field(init=False, default=False)
    _zlib: "zlib._Decompress | None" = attrs.field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        encoding = self.encoding.strip().lower()
        if encoding in _ZLIB:
            self._zlib = zlib.decompressobj(_ANY_HEADER)
        elif encoding not in _PLAIN:
            fault = f"content-encoding {encoding[:40]!r}, which was not requested"
            msg = f"{self.source}: {fault}; configure the server to send replies uncompressed"
            raise ProviderError("malformed_reply", msg)

    @property
    def is_too_large(self) -> bool:
        """True if the body exceeds the maximum."""
        return self.size > self.most

    @property
    def is_whole(self) -> bool:
        """True if the body may end here."""
        return self._zlib is None or self._zlib.eof or not self._fed

    def feed(self, part: bytes) -> bytes:
        """Return the decompressed content of a part; at most one byte more than the maximum in total.

        Raises:
            ProviderError: `malformed_reply`, if it cannot be decompressed.
        """
        self._fed = self._fed or bool(part)
        if self._zlib is not None:
            try:
                part = self._unpacked(part)
            except zlib.error as error:
                msg = f"{self.source}: the reply cannot be decompressed: {error}"
                raise ProviderError("malformed_reply", msg) from error
        self.size += len(part)
        return part

    def _unpacked(self, part: bytes) -> bytes:
        """Decompress a part. A body may be several compressed ones in a row."""
        room = max(1, self.most + 1 - self.size)
        found = bytearray()
        while part and len(found) < room:
            if self._zlib is None or self._zlib.eof:
                self._zlib = zlib.decompressobj(_ANY_HEADER)
            found += self._zlib.decompress(part, room - len(found))
            part = self._zlib.unused_data
        return bytes(found)


CONNECT_LIMIT = 10.0
"""Seconds to wait for a connection."""

CLOSE_GRACE = 2.0
"""Seconds that closing all connections may take."""


@asynccontextmanager
async def open_http(
    tls: TlsSettings | None = None,
    *,
    max_reply_bytes: int = MOST_BYTES,
    hosts: frozenset[str] | None = None,
    wall_clock: Callable[[], float] = time.time,
) -> AsyncGenerator[HttpClient]:
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


@attrs.define(eq=False, repr=False)
class _Client:
    """Gives each request its own transport with one connection, which is reused afterwards.

    A connection pool searches all its connections for every request, which at a hundred calls in flight
    costs more than the request. The library's client above the transports is skipped as well: what it adds
    (cookies, redirects, authentication flows) is what a provider must not do. All transports share one TLS
    context, their expensive part. Only a limited number of idle ones is kept: each holds a file descriptor,
    and a template may name another host in every row.
    """

    _max_reply_bytes: int
    _tls: ssl.SSLContext
    _wall_clock: Callable[[], float]
    _hosts: frozenset[str] | None = None
    _all: set[httpx2.AsyncHTTPTransport] = attrs.field(factory=set)
    _idle: dict[str, list[httpx2.AsyncHTTPTransport]] = attrs.field(factory=dict)
    """Idle transports by host and port, so that their connection fits the next request; the longest unused
    first."""
    _idle_count: int = 0
    _base: int = 0
    """File descriptors in use before the first connection."""
    _urls: dict[str, httpx2.URL] = attrs.field(factory=dict)
    """Parsed URLs: a run has few and uses each many times."""

    async def send(
        self, request: HttpRequest, *, on_part: Callable[[bytes], object] | None = None
    ) -> HttpReply:
        url = request.url
        place, source = _place(url), request_source(request.method, url)
        transport: httpx2.AsyncHTTPTransport | None = None
        most = request.max_reply_bytes or self._max_reply_bytes
        try:
            ready = self._request(request)
            transport = self._take(place) or await self._make(url, source)
            response = await transport.handle_async_request(ready)
            try:
                content = await self._read(response, source, on_part, most)
                await response.aclose()
            finally:
                if not response.is_closed:
                    with trio.move_on_after(CLOSE_GRACE, shield=True):
                        await response.aclose()
        except (httpx2.LocalProtocolError, UnicodeEncodeError):
            # Both contain the header, and with it the key: neither shown nor chained.
            advice = "check the headers and the key for line breaks and characters outside of ASCII"
            raise _unsendable(source, f"invalid header; {advice}") from None
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            fault = "the URL is not a valid http or https URL; check the provider's base URL"
            raise _unsendable(source, fault) from error
        except httpx2.HTTPError as error:
            raise _explain(error, source, place, _proxy_for(url)) from error
        finally:
            if transport is not None:
                self._give_back(place, transport)
        kind = response.headers.get("content-type", "")
        is_stream = on_part is not None or kind.startswith("text/event-stream")
        where = _arrived(response, source)
        check = partial(check_marks, content, most, source=where, is_stream=is_stream)
        if len(content) < SLOW:
            check()
        else:  # abandoned when cancelled: the thread ends by itself
            await trio.to_thread.run_sync(check, abandon_on_cancel=True)
        headers = dated(dict(response.headers), self._wall_clock())
        return HttpReply(response.status_code, headers, content, source)

    async def aclose(self) -> None:
        """Close every connection."""
        for transport in self._all:
            await transport.aclose()

    def _take(self, place: str) -> httpx2.AsyncHTTPTransport | None:
        idle = self._idle.pop(place, None)
        if idle is None:
            return None
        transport = idle.pop()
        if idle:
            self._idle[place] = idle
        self._idle_count -= 1
        return transport

    def _give_back(self, place: str, transport: httpx2.AsyncHTTPTransport) -> None:
        self._idle.setdefault(place, []).append(transport)
        self._idle_count += 1

    async def _make(self, url: str, source: str) -> httpx2.AsyncHTTPTransport:
        while self._idle_count >= _IDLE or (self._idle_count and not self._has_room):
            oldest = self._take(next(iter(self._idle)))
            if oldest is not None:
                self._all.discard(oldest)
                with trio.move_on_after(CLOSE_GRACE, shield=True):
                    await oldest.aclose()
        if not self._has_room:
            title = f"no connection to {_place(url)} for"
            msg = failure_text(title, source, detail=too_many_open_files())
            raise ProviderError("connection", msg, fault=Fault.RATE_LIMITED)
        return self._new_transport(url, source)

    @property
    def _has_room(self) -> bool:
        """True if one more connection leaves enough file descriptors; the first may always be tried."""
        taken = lowest_free()
        if not self._all:
            self._base = taken or 0
            return True
        # Many may still be connecting, and have no descriptor yet.
        return taken is not None and has_room(max(taken, self._base + len(self._all)))

    def _request(self, request: HttpRequest) -> httpx2.Request:
        parsed = self._urls.get(request.url)
        if parsed is None:
            parsed = httpx2.URL(request.url)
            if not parsed.host:
                raise httpx2.InvalidURL("no host")
            if self._hosts is not None and parsed.host.lower() not in self._hosts:
                source = request_source(request.method, request.url)
                fault = f"{parsed.host} is not a host of the suite's providers"
                raise _unsendable(source, f"{fault}, and the suite is untrusted")
            if len(self._urls) < _URLS:
                self._urls[request.url] = parsed
        headers = {**_HEADERS, **request.headers}
        if request.body is not None:
            headers.setdefault("content-type", "application/json")
        return httpx2.Request(
            request.method,
            parsed,
            headers=headers,
            content=request.body,
            extensions={"timeout": {"connect": CONNECT_LIMIT}},
        )

    def _new_transport(self, url: str, source: str) -> httpx2.AsyncHTTPTransport:
        address = _proxy_for(url)
        # These errors contain the address with its password: neither shown nor chained.
        with suppress(ValueError, ImportError, httpx2.InvalidURL):
            proxy = None if address is None else httpx2.Proxy(address)
            transport = httpx2.AsyncHTTPTransport(verify=self._tls, proxy=proxy)
            self._all.add(transport)
            return transport
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
        response: httpx2.Response,
        source: str,
        on_part: Callable[[bytes], object] | None,
        most: int,
    ) -> bytes:
        source = _arrived(response, source)
        headers, stream = response.headers, response.stream
        declared, encoding = headers.get("content-length", ""), headers.get("content-encoding", "")
        is_declared = declared.isdecimal()
        if is_declared and _is_more(declared, most):
            status = response.status_code
            raise ProviderError("malformed_reply", too_large(source, most), status=status)
        if (
            on_part is None
            and is_declared
            and not encoding
            and isinstance(stream, httpx2.AsyncByteStream)
        ):
            # The body cannot exceed the declared length, so nothing has to be counted.
            return b"".join([chunk async for chunk in stream])
        unpacker = Unpacker(encoding, most, source)
        body = bytearray()
        broken: ProviderError | None = None
        on_part = None if on_part is None else _counting(on_part, source, most)
        with trio.CancelScope() as reading:
            async with aclosing(response.aiter_raw()) as chunks:
                async for chunk in chunks:
                    try:
                        part = unpacker.feed(chunk)
                        body += part
                        if on_part is not None:
                            on_part(part)
                    except ProviderError as error:
                        broken = error
                    if unpacker.is_too_large or broken is not None:
                        # Ends the loop from inside; a break would abandon an async generator of httpx2.
                        reading.cancel(reason="the reply cannot be read")
        if broken is not None:
            raise broken
        if not unpacker.is_whole and not unpacker.is_too_large:
            msg = f"{source}: the compressed reply is incomplete"
            raise ProviderError("malformed_reply", msg, status=response.status_code)
        if unpacker.is_too_large:
            raise ProviderError(
                "malformed_reply",
                too_large(source, most),
                status=response.status_code,
                body_excerpt=excerpt(bytes(body)),
            )
        return bytes(body)


_HEADERS = {
    "user-agent": f"trioeval/{__version__}",
    "accept": "application/json",
    "accept-encoding": "identity",  # replies are small: decompression costs more than it saves
}

_DIGITS = 18
"""Number of digits of a length that exceeds every maximum."""

_IDLE = 256
"""Maximum number of idle connections."""

_URLS = 1024
"""Maximum number of parsed URLs; URLs from templates may be all different."""


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


def _arrived(response: httpx2.Response, source: str) -> str:
    """Return the beginning of messages about a reply."""
    return f"HTTP {response.status_code} from {source}"


def _unsendable(source: str, fault: str) -> ProviderError:
    """Return the error for a request that cannot be sent."""
    return ProviderError("bad_request", f"cannot send {source}: {fault}")


def _is_more(declared: str, most: int) -> bool:
    """Return whether a declared length exceeds the maximum."""
    return len(declared) > _DIGITS or int(declared) > most


def _tls_context(tls: TlsSettings) -> ssl.SSLContext:
    try:
        context = (
            httpx2.create_ssl_context()
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


def _place(url: str) -> str:
    """Return host and port of a URL, without anything secret."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return "an invalid address"
    host = parts.hostname or "?"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _explain(error: Exception, source: str, place: str, proxy: str | None = None) -> ProviderError:
    """Return the error for a failed request.

    Args:
        error: The exception of the HTTP library.
        source: Method and URL of the request.
        place: Host and port of the URL.
        proxy: URL of the proxy to which the connection goes, if any.
    """
    near, tls = place, place
    kind: ProviderErrorKind = "connection"
    fault: Fault | None = None
    if proxy is not None:
        near = f"the proxy {_place(proxy)}"
        tls = f"{place} or its proxy" if proxy.startswith("https:") else place
    advice = _CHECK_URL if proxy is None else _CHECK_PROXY
    match error:
        case httpx2.ConnectTimeout():
            title, detail = f"no connection to {near} within {CONNECT_LIMIT:g} seconds for", ""
        case httpx2.ConnectError() if _is_out_of_files(error):
            # This machine refused it: fewer connections at a time will work.
            title, detail, advice = f"no connection to {near} for", too_many_open_files(), ""
            fault = Fault.RATE_LIMITED
        case httpx2.ConnectError():
            kind, title, advice, detail = _explain_connect(error, near, tls, advice)
        case httpx2.ProxyError():
            title, detail = f"{near} refused to connect for", str(error)
        case _:
            title, advice = "connection lost before the end of the reply from", ""
            detail = str(error) or type(error).__name__
    message = failure_text(title, source, advice=advice, detail=detail)
    return ProviderError(kind, message, fault=fault)


_CHECK_URL = "check the URL and the network"
_CHECK_SERVER = "check that the server is running, and the URL"
_CHECK_PROXY = "check that the proxy is running, and HTTP_PROXY, HTTPS_PROXY or ALL_PROXY"


def _is_out_of_files(error: Exception) -> bool:
    return any(isinstance(one, OSError) and one.errno in TOO_MANY for one in _causes(error))


def _explain_connect(
    error: httpx2.ConnectError, near: str, tls: str, advice: str
) -> tuple[ProviderErrorKind, str, str, str]:
    """Return kind, title, advice and detail, from causes that the library's own exception omits.

    Args:
        error: The exception of the HTTP library.
        near: The host and port, or the proxy, to connect to.
        tls: The possible owners of the certificate.
        advice: What to check if the cause says nothing better.
    """
    for cause in _causes(error):
        match cause:
            case ssl.SSLCertVerificationError():
                title = f"invalid certificate of {tls} for"
                trusted = "check the URL, or set SSL_CERT_FILE to the certificates to trust"
                return "tls", title, trusted, cause.verify_message
            case ssl.SSLError():
                scheme = "check whether the URL needs http or https"
                return "connection", f"TLS with {tls} failed for", scheme, str(cause.reason)
            case socket.gaierror():
                return "connection", f"host of {near} not found for", advice, ""
            case ConnectionRefusedError():
                refused = _CHECK_PROXY if advice == _CHECK_PROXY else _CHECK_SERVER
                return "connection", f"connection refused by {near} for", refused, ""
            case _:
                pass
    return "connection", f"no connection to {near} for", advice, str(error)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and all its causes, nearest first; the library hides some of them."""
    yield error
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _causes(part)
    before = error.__cause__ or error.__context__
    if before is not None:
        yield from _causes(before)

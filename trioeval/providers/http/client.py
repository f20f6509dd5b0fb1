"""The HTTP client of a run: the only module that sends with one.

It is imported when the first provider that needs a network is opened, because the import takes
longer than everything else of a small run.

A run has one `HttpClient`. Nothing waits inside it: the number of connections is not limited here,
since lanes bound the calls in flight, and a wait for the pool would be a second, invisible queue. It
does not retry, because the lane owns retries. The only time limit is the one for connecting; the others
are the caller's cancel scopes.
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
from trioeval.providers.http.failures import excerpt
from trioeval.providers.http.tls import EncryptedKeyError, load_identity
from trioeval.providers.http.wire import (
    HttpClient,
    HttpReply,
    HttpRequest,
    TlsSettings,
    dated,
    request_source,
)

# Unpacking replies that come compressed although nobody asked for that, without growing past a bound.


_PLAIN = frozenset({"", "identity"})
_ZLIB = frozenset({"gzip", "x-gzip", "deflate"})
_ANY_HEADER = zlib.MAX_WBITS | 32
"""Recognise gzip and zlib by their first bytes."""


@attrs.define
class Unpacker:
    """The body of one reply, as it arrives.

    Args:
        encoding: The reply's `content-encoding`.
        most: Bytes that the unpacked body may have.

    Raises:
        ProviderError: `malformed_reply`, if the encoding is not known.

    Example:
        >>> body = Unpacker("gzip", most=100)
        >>> body.feed(zlib.compress(b"Hello")), body.is_too_large
        (b'Hello', False)
    """

    encoding: str
    most: int
    size: int = 0
    """Bytes unpacked so far."""
    _fed: bool = attrs.field(init=False, default=False)
    _zlib: "zlib._Decompress | None" = attrs.field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        encoding = self.encoding.strip().lower()
        if encoding in _ZLIB:
            self._zlib = zlib.decompressobj(_ANY_HEADER)
        elif encoding not in _PLAIN:
            msg = f"the reply is packed as {encoding[:40]!r}, which was not asked for"
            raise ProviderError("malformed_reply", msg)

    @property
    def is_too_large(self) -> bool:
        """Whether there is more than allowed."""
        return self.size > self.most

    @property
    def is_whole(self) -> bool:
        """Whether the body may end here."""
        return self._zlib is None or self._zlib.eof or not self._fed

    def feed(self, part: bytes) -> bytes:
        """What a part holds; at most one byte more than what is allowed in all.

        Raises:
            ProviderError: `malformed_reply`, if it cannot be unpacked.
        """
        self._fed = self._fed or bool(part)
        if self._zlib is not None:
            try:
                part = self._unpacked(part)
            except zlib.error as error:
                msg = f"the reply cannot be unpacked: {error}"
                raise ProviderError("malformed_reply", msg) from error
        self.size += len(part)
        return part

    def _unpacked(self, part: bytes) -> bytes:
        """Like `feed`. A body may be several packed ones, one after another."""
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
    """The client that all network providers of one `trio.run` share.

    Proxies and certificate files are taken from the usual environment variables.

    Args:
        tls: How servers are trusted; None is the usual way.
        max_reply_bytes: Largest reply body that is accepted where a request does not say it, in bytes.
        hosts: The only hosts that requests may go to; None allows all.
        wall_clock: Seconds since 1970, for replies that do not tell their date.

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


@attrs.define(eq=False)
class _Client:
    """Hands each request a transport of its own, with one connection; who is done puts it back.

    A pool of connections looks through all of them for every request, which at a hundred calls in
    flight costs more than the request. The client above the transports is left out as well: what it
    adds (cookies, redirects, authentication flows) is what a provider must not do. All transports
    share one TLS context, the dear part of them. Of those that nobody uses only so many are kept: each
    holds a descriptor, and a template may name another host in every row.
    """

    _max_reply_bytes: int
    _tls: ssl.SSLContext
    _wall_clock: Callable[[], float]
    _hosts: frozenset[str] | None = None
    _all: set[httpx2.AsyncHTTPTransport] = attrs.field(factory=set)
    _idle: dict[str, list[httpx2.AsyncHTTPTransport]] = attrs.field(factory=dict)
    """By host and port, so that a connection that is kept fits the next request; the longest unused
    place first."""
    _idle_count: int = 0
    _base: int = 0
    """Descriptors that were taken when there was no connection."""
    _urls: dict[str, httpx2.URL] = attrs.field(factory=dict)
    """Parsed once: a run has few and asks each many times."""

    async def send(
        self, request: HttpRequest, *, heard: Callable[[bytes], object] | None = None
    ) -> HttpReply:
        url = request.url
        place = _place(url)
        transport: httpx2.AsyncHTTPTransport | None = None
        most = request.max_reply_bytes or self._max_reply_bytes
        try:
            ready = self._request(request)
            transport = self._take(place) or await self._make(url)
            response = await transport.handle_async_request(ready)
            try:
                content = await self._read(response, place, heard, most)
                await response.aclose()
            finally:
                if not response.is_closed:
                    with trio.move_on_after(CLOSE_GRACE, shield=True):
                        await response.aclose()
        except (httpx2.LocalProtocolError, UnicodeEncodeError):
            # Both hold the header, and with it the key: neither said nor chained.
            raise ProviderError(
                "bad_request", f"the request to {place} cannot be sent: a header is not valid"
            ) from None
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            msg = "the provider's base URL is not a valid HTTP URL"
            raise ProviderError("bad_request", msg) from error
        except httpx2.HTTPError as error:
            source = request_source(request.method, url)
            raise _explain(error, source, place, _proxy_for(url)) from error
        finally:
            if transport is not None:
                self._give_back(place, transport)
        kind = response.headers.get("content-type", "")
        is_stream = heard is not None or kind.startswith("text/event-stream")
        check = partial(check_marks, content, most, source=place, is_stream=is_stream)
        if len(content) < SLOW:
            check()
        else:  # left alone when cancelled: it ends by itself
            await trio.to_thread.run_sync(check, abandon_on_cancel=True)
        headers = dated(dict(response.headers), self._wall_clock())
        source = request_source(request.method, url)
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

    async def _make(self, url: str) -> httpx2.AsyncHTTPTransport:
        while self._idle_count >= _IDLE or (self._idle_count and not self._has_room):
            oldest = self._take(next(iter(self._idle)))
            if oldest is not None:
                self._all.discard(oldest)
                with trio.move_on_after(CLOSE_GRACE, shield=True):
                    await oldest.aclose()
        if not self._has_room:
            msg = f"no connection to {_place(url)}: {too_many_open_files()}"
            raise ProviderError("connection", msg, fault=Fault.RATE_LIMITED)
        return self._new_transport(url)

    @property
    def _has_room(self) -> bool:
        """Whether one more connection leaves enough descriptors to others; the first one may always try."""
        taken = lowest_free()
        if not self._all:
            self._base = taken or 0
            return True
        # Many may be on the way to their servers, and have no descriptor yet.
        return taken is not None and has_room(max(taken, self._base + len(self._all)))

    def _request(self, request: HttpRequest) -> httpx2.Request:
        parsed = self._urls.get(request.url)
        if parsed is None:
            parsed = httpx2.URL(request.url)
            if not parsed.host:
                raise httpx2.InvalidURL("no host")
            if self._hosts is not None and parsed.host.lower() not in self._hosts:
                msg = f"{parsed.host} is not a host of the suite's providers, and the suite is untrusted"
                raise ProviderError("bad_request", msg)
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

    def _new_transport(self, url: str) -> httpx2.AsyncHTTPTransport:
        address = _proxy_for(url)
        # Their messages hold the address, and that a password: neither said nor chained.
        with suppress(ValueError, ImportError, httpx2.InvalidURL):
            proxy = None if address is None else httpx2.Proxy(address)
            transport = httpx2.AsyncHTTPTransport(verify=self._tls, proxy=proxy)
            self._all.add(transport)
            return transport
        raise ProviderError(
            "connection",
            f"the proxy that the environment names for {_place(url)} cannot be used: "
            "say http://host:port or https://host:port (socks5:// needs the package socksio)",
            fault=Fault.FATAL,
        )

    async def _read(
        self,
        response: httpx2.Response,
        place: str,
        heard: Callable[[bytes], object] | None,
        most: int,
    ) -> bytes:
        headers, stream = response.headers, response.stream
        declared, encoding = headers.get("content-length", ""), headers.get("content-encoding", "")
        is_declared = declared.isdecimal()
        if is_declared and _is_more(declared, most):
            status = response.status_code
            raise ProviderError("malformed_reply", too_large(place, most), status=status)
        if (
            heard is None
            and is_declared
            and not encoding
            and isinstance(stream, httpx2.AsyncByteStream)
        ):
            # Not more than declared can come, so nothing has to be counted.
            return b"".join([chunk async for chunk in stream])
        unpacker = Unpacker(encoding, most)
        body = bytearray()
        broken: ProviderError | None = None
        heard = None if heard is None else _counting(heard, place, most)
        with trio.CancelScope() as reading:
            async with aclosing(response.aiter_raw()) as chunks:
                async for chunk in chunks:
                    try:
                        part = unpacker.feed(chunk)
                        body += part
                        if heard is not None:
                            heard(part)
                    except ProviderError as error:
                        broken = error
                    if unpacker.is_too_large or broken is not None:
                        # Ends the loop from inside; leaving it would orphan a generator of httpx2.
                        reading.cancel(reason="the reply cannot be read")
        if broken is not None:
            raise broken
        if not unpacker.is_whole and not unpacker.is_too_large:
            msg = f"the packed reply of {place} is cut off"
            raise ProviderError("malformed_reply", msg, status=response.status_code)
        if unpacker.is_too_large:
            raise ProviderError(
                "malformed_reply",
                too_large(place, most),
                status=response.status_code,
                body_excerpt=excerpt(bytes(body)),
            )
        return bytes(body)


_HEADERS = {
    "user-agent": f"trioeval/{__version__}",
    "accept": "application/json",
    "accept-encoding": "identity",  # replies are small: unpacking costs more than it saves
}

_DIGITS = 18
"""Digits of a length that exceeds every bound."""

_IDLE = 256
"""Connections that are kept for later."""

_URLS = 1024
"""Parsed URLs that are kept; those with templates in them may be all different."""


def _counting(heard: Callable[[bytes], object], place: str, most: int) -> Callable[[bytes], object]:
    """A listener to a stream that refuses too many lines."""
    lines = 0

    def count(part: bytes) -> None:
        nonlocal lines
        lines += part.count(b"\n") + part.count(b"\r")
        if lines > 2 * most_lines(most):  # a line may end in both
            raise too_many_lines(place, most)
        heard(part)

    return count


def _is_more(declared: str, most: int) -> bool:
    """Whether a declared length is more than allowed."""
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
    """The URL of the proxy that the environment names for a URL, if any; it may hold a password."""
    parts = urlsplit(url)
    if parts.hostname is None or proxy_bypass(parts.hostname):
        return None
    proxies = getproxies()
    address = proxies.get(parts.scheme) or proxies.get("all")
    if not address or "://" in address:
        return address or None
    return f"http://{address}"


def _place(url: str) -> str:
    """Host and port of a URL, without anything that may be secret."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return "an address that is not valid"
    host = parts.hostname or "?"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _explain(error: Exception, source: str, place: str, proxy: str | None = None) -> ProviderError:
    """The failure of a request as users read it.

    Args:
        error: What the client raised.
        source: Method and URL of the request.
        place: Host and port of the URL.
        proxy: The URL of the proxy; the connection leads there.
    """
    near, tls = place, place
    kind: ProviderErrorKind = "connection"
    fault: Fault | None = None
    if proxy is not None:
        near = f"the proxy {_place(proxy)} (for {place})"
        tls = f"{place} or its proxy" if proxy.startswith("https:") else place
    match error:
        case httpx2.ConnectTimeout():
            message = f"no connection to {near} within {CONNECT_LIMIT:g} seconds"
        case httpx2.ConnectError() if _is_out_of_files(error):
            # A refusal of this machine: fewer at once will do.
            message, fault = f"no connection to {near}: {too_many_open_files()}", Fault.RATE_LIMITED
        case httpx2.ConnectError():
            kind, message = _explain_connect(error, near, tls)
        case httpx2.ProxyError():
            message = f"{near} gave no connection ({error})"
        case _:
            detail = str(error) or type(error).__name__
            message = f"the connection to {place} broke before the reply was complete ({detail})"
    return ProviderError(kind, f"{message} ({source})", fault=fault)


def _is_out_of_files(error: Exception) -> bool:
    return any(isinstance(one, OSError) and one.errno in TOO_MANY for one in _causes(error))


def _explain_connect(
    error: httpx2.ConnectError, near: str, tls: str
) -> tuple[ProviderErrorKind, str]:
    """The causes tell what the client's own exception does not.

    Args:
        error: What the client raised.
        near: What the connection should have led to.
        tls: Whose certificate it may be about.
    """
    for cause in _causes(error):
        match cause:
            case ssl.SSLCertVerificationError():
                reason = cause.verify_message
                return "tls", f"the certificate of {tls} is not valid: {reason}"
            case ssl.SSLError():
                return "connection", f"TLS with {tls} failed: {cause.reason}"
            case socket.gaierror():
                return "connection", f"the host of {near} cannot be found"
            case ConnectionRefusedError():
                return "connection", f"{near} refused the connection"
            case _:
                pass
    return "connection", f"no connection to {near} ({error})"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and all that led to it, nearest first; the client hides some of it."""
    yield error
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _causes(part)
    before = error.__cause__ or error.__context__
    if before is not None:
        yield from _causes(before)

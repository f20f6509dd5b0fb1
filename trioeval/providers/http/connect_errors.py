# Separate from `providers.http.client`: connections of WebSockets fail in the same ways.
"""Failures of connections, explained: what failed, where, and what to check."""

import socket
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpcore2

from trioeval.errors import Fault, ProviderError, ProviderErrorKind
from trioeval.open_files import TOO_MANY, too_many_open_files
from trioeval.providers.http.failures import failure_text

CONNECT_LIMIT = 10.0
"""Seconds to wait for a connection."""

LIBRARY_ERRORS = (
    httpcore2.TimeoutException,
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
)


def place_of(url: str) -> str:
    """Return host and port of a URL, without anything secret."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return "an invalid address"
    host = parts.hostname or "?"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def explain(error: Exception, source: str, place: str, proxy: str | None = None) -> ProviderError:
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
        near = f"the proxy {place_of(proxy)}"
        tls = f"{place} or its proxy" if proxy.startswith("https:") else place
    advice = _CHECK_URL if proxy is None else _CHECK_PROXY
    match error:
        case httpcore2.ConnectTimeout():
            title, detail = f"no connection to {near} within {CONNECT_LIMIT:g} seconds for", ""
        case httpcore2.ConnectError() if _is_out_of_files(error):
            # This machine refused it: fewer connections at a time will work.
            title, detail, advice = f"no connection to {near} for", too_many_open_files(), ""
            fault = Fault.RATE_LIMITED
        case httpcore2.ConnectError():
            kind, title, advice, detail = _explain_connect(error, near, tls, advice)
        case httpcore2.ProxyError():
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
    error: httpcore2.ConnectError, near: str, tls: str, advice: str
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

"""URLs in suites and from servers: validation, encoding, and comparison by origin."""

import re
import socket
import unicodedata
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, IPv6Network
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

_ALLOWED = "%/:?#[]@!$&'()*+,;="
_PORTS = {"http": 80, "https": 443}
_SECRET_NAME = re.compile(
    r"(?:^|[_.-]|(?<=[a-z])(?=[A-Z]))(?i:key|token|secret|signature|sig|password|credential)$"
    r"|(?i:api_?-?key)$"
)
_NAT64 = IPv6Network("64:ff9b::/96")
_OWN_NAMES = frozenset({"localhost", "localdomain", "local", "internal", "lan", "home"})
"""Last parts of host names that no public server has."""
_SHORTEST = 8
"""Minimum length of a secret; hiding shorter values would hide ordinary words."""


def url_fault(url: str) -> str | None:
    """Return the fault of a URL, or None. The URL is not shown, because it may hold a password.

    Example:
        >>> url_fault("https://api.example/chat"), url_fault("ftp://api.example")
        (None, 'must be an http or https URL with a host')
    """
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_right = False
    if not is_right or not parts.netloc.isprintable() or set(parts.netloc) & set(' "<>\\^`{|}'):
        return "must be an http or https URL with a host"
    if parts.username is not None or parts.password is not None:
        return "must not hold a user or a password; use auth: {type: basic, …}"
    return None


def encode(url: str) -> str:
    """Return the URL without its fragment, and with all invalid characters encoded.

    Example:
        >>> encode("http://a.example/say?text=good day&x=%20#top")
        'http://a.example/say?text=good%20day&x=%20'
    """
    parts = urlsplit(url.strip())
    path, query = quote(parts.path, safe=_ALLOWED), quote(parts.query, safe=_ALLOWED)
    return urlunsplit((parts.scheme, parts.netloc, path, query, ""))


def has_dot_segments(url: str) -> bool:
    """Return whether the path of a URL has a segment "." or "..", encoded or not.

    Example:
        >>> [
        ...     has_dot_segments(f"http://a.example/{path}")
        ...     for path in ("x/../y", "%2e%2E%2Fy", "a..b")
        ... ]
        [True, True, False]
    """
    segments = re.split(r"[/\\]|%2f|%5c", urlsplit(url).path, flags=re.IGNORECASE)
    plain = (re.sub("%2e", ".", one, flags=re.IGNORECASE).partition(";")[0] for one in segments)
    return any(one in (".", "..") for one in plain)


def with_query(url: str, pairs: Mapping[str, str]) -> str:
    """Return the URL with more parameters at its end.

    Example:
        >>> with_query("http://a.example/?x=1", {"q": "a&b"})
        'http://a.example/?x=1&q=a%26b'
    """
    if not pairs:
        return url
    return f"{url}{'&' if '?' in url else '?'}{urlencode(pairs, quote_via=quote)}"


def origin(url: str) -> str:
    """Return scheme, host and port, beyond which credentials must not be sent.

    Example:
        >>> origin("HTTPS://A.example/x") == origin("https://a.example:443")
        True
    """
    parts = urlsplit(url)
    port = parts.port or _PORTS.get(parts.scheme)
    return f"{parts.scheme}://{(parts.hostname or '').lower()}:{port}"


def is_private(url: str) -> bool:
    """Return whether the host of a URL is, by its spelling, this machine or in a private network.

    Example:
        >>> hosts = ("169.254.169.254", "[::1]", "127.1", "localhost", "8.8.8.8", "api.example")
        >>> [is_private(f"http://{host}/x") for host in hosts]
        [True, True, True, True, False, False]
    """
    # Full stops and digits of other scripts are treated like those of ASCII.
    name = unicodedata.normalize("NFKC", urlsplit(url).hostname or "").replace("\u3002", ".")
    host = name.rstrip(".").partition("%")[0]
    address: IPv4Address | IPv6Address
    try:
        # As connections interpret it: also 127.1, 0x7f000001 and 2130706433.
        address = IPv6Address(host) if ":" in host else IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return host.rpartition(".")[2] in _OWN_NAMES
    if isinstance(address, IPv6Address):
        if address.is_site_local:
            return True
        inside = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inside = IPv4Address(int(address) & 0xFFFFFFFF)
        address = address if inside is None else inside
    return not address.is_global


def fixed_host(url: str) -> str | None:
    """Return the host of a URL that may be a template; None if the template decides the host.

    Example:
        >>> fixed_host("https://a.example/{{x}}"), fixed_host("https://{{x}}.example/")
        ('a.example', None)
    """
    place = re.split(r"[/?#\\]", url.strip().partition("://")[2], maxsplit=1)[0]
    if not place or set(place) & set("{}%"):
        return None
    try:
        return urlsplit(f"//{place}").hostname
    except ValueError:
        return None


def without_query(url: str) -> str:
    """Return the part of a URL that may be shown."""
    return re.split(r"[?#]", url, maxsplit=1)[0]


def secret_parameters(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return the values of parameters with secret names.

    Example:
        >>> secret_parameters([("apiKey", "abcdefgh"), ("max_tokens", "12345678")])
        ['abcdefgh']
    """
    return [value for name, value in pairs if _SECRET_NAME.search(name) and len(value) >= _SHORTEST]


def parameters(url: str) -> list[tuple[str, str]]:
    """Return the parameters of a URL."""
    return parse_qsl(url.partition("#")[0].partition("?")[2])

"""The access rules that the live view, the limit server and the metrics server share. Pure.

* The host name of a request must be one of the server's own, or a foreign page could point its own name here
  and read everything (DNS rebinding).
* Requests of browsers for pages of another origin are refused, even if the page could not read the response:
  a request can do harm by being carried out. Another port of the same machine is another origin.
"""

import hmac
import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

import attrs

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared
_OTHER_SITES = frozenset({"cross-site", "same-site"})


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to an address.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@attrs.frozen(kw_only=True)
class OwnNames:
    """The host names of a server."""

    host: str
    """The address to listen on, as the caller gave it."""
    machine: frozenset[str] = frozenset()
    """Names of this machine, in lower case, for a server that listens on all addresses."""

    def has(self, authority: str) -> bool:
        """Return whether a `Host` header means this server; ports do not count, since proxies change them.

        Example:
            >>> own = OwnNames(host="127.0.0.1")
            >>> own.has("localhost:8770"), own.has("evil.example:8770")
            (True, False)
        """
        name = _name(authority)
        if name is None:
            return False
        if name in _LOOPBACK or name == self.host.lower():
            return True
        if self.host not in _EVERYWHERE:
            return False
        return _is_address(name) or name in self.machine


def is_own_origin(origin: str, host: str) -> bool:
    """Return whether an `Origin` header names the server that a `Host` header names.

    Example:
        >>> is_own_origin("http://127.0.0.1:80", "127.0.0.1:80"), is_own_origin("null", "null")
        (True, False)
    """
    scheme, _, authority = origin.partition("://")
    return scheme in {"http", "https"} and authority == host


def is_of_foreign_page(headers: Mapping[str, str]) -> bool:
    """Return whether a browser sends a request for a page of another origin. Programs send no origin.

    Args:
        headers: The headers of the request, with names in lower case.

    Example:
        >>> is_of_foreign_page({"host": "127.0.0.1:8770", "origin": "http://127.0.0.1:5173"})
        True
    """
    origin = headers.get("origin")
    if origin is not None and not is_own_origin(origin, headers.get("host", "")):
        return True
    # A page of another site may link here; it cannot read the response to such a navigation.
    leads_here = headers.get("sec-fetch-mode") == "navigate"
    return headers.get("sec-fetch-site") in _OTHER_SITES and not leads_here


def is_same_secret(given: str, expected: str) -> bool:
    """Return whether two texts are equal, in constant time."""
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())


def _name(authority: str) -> str | None:
    try:
        found = urlsplit(f"//{authority}")
        _ = found.port  # must be a number
    except ValueError:
        return None
    return None if found.username is not None or found.path else found.hostname


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

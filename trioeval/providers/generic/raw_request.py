r"""A request as it is written on the wire: `request`, taken apart before anything is filled in.

Its templates are rendered afterwards, each in its place, so that no value can add a header or end the head.
"""

import re

import attrs

DROPPED = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that are about one connection, and are made anew; names in lower case."""

_METHOD = re.compile(r"[A-Z][A-Z-]*")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VERSION = re.compile(r"\s+HTTP/\d(?:\.\d)?\s*$")


@attrs.frozen
class RawRequest:
    """The parts of a request; all but the method may hold templates."""

    method: str
    url: str
    headers: dict[str, str]
    """With lower-case names, without those that are about one connection."""
    body: str
    """Empty if there is none."""
    is_whole: bool = False
    """Whether the request line itself says the scheme and the host."""


def read_raw_request(text: str, scheme: str) -> RawRequest | str:
    r"""Take a request apart.

    Args:
        text: Request line, headers, an empty line, the body; lines end in `\n` or `\r\n`.
        scheme: `http` or `https`, for the URL.

    Returns:
        Its parts, or what is wrong with it, for the sentence "it …".

    Example:
        >>> read_raw_request("POST /ask HTTP/1.1\nHost: a.example\n\n{{prompt}}\n", "https")
        RawRequest(method='POST', url='https://a.example/ask', headers={}, body='{{prompt}}', is_whole=False)
    """
    head, _, body = text.replace("\r\n", "\n").lstrip("\n").partition("\n\n")
    first, *lines = head.rstrip("\n").split("\n")
    method, _, target = _VERSION.sub("", first).strip().partition(" ")
    target = target.strip()
    if not _METHOD.fullmatch(method) or not target:
        return 'must begin with a method and a path, as "POST /chat HTTP/1.1"'
    headers: dict[str, str] = {}
    host = ""
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _NAME.fullmatch(name):
            # Not quoted: the line may hold a key.
            return f'has a line {lines.index(line) + 2} that is no header; write "Name: value"'
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

"""The identity of a request: its lane, its secrets, and whether its transform reads variables."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from trioeval.providers.generic.keys import MARK
from trioeval.providers.generic.reply import MemberPath, Transform
from trioeval.providers.generic.request import RequestTemplate
from trioeval.providers.generic.urls import origin, parameters, secret_parameters, without_query
from trioeval.providers.http.endpoint import digest, is_secret_header
from trioeval.providers.secrets import SHORTEST, is_secret_name, secret_parts
from trioeval.scripting.javascript import Script

# Whether a transform may read the variables of a test, and not only the reply.
#
# Paths name their root. Only the plainest JavaScript is analysed: members of `json` and `text`, calls of
# their methods, texts, numbers and operators, or a function of one or two arguments that returns such an
# expression. Any other code may reach the third argument in some way (another name for it, `arguments`,
# `eval`, a spread, a function built from texts), and is treated as if it did.


_NAME = r"[A-Za-z_$][A-Za-z0-9_$]*"
_HEAD = re.compile(rf"\s*(?:\(\s*({_NAME})\s*(?:,\s*({_NAME})\s*)?\)|({_NAME}))\s*=>")
_TEXT = r"""'[^'\\\n\r\u2028\u2029]*'|"[^"\\\n\r\u2028\u2029]*\""""
# No braces, backticks, backslashes, regular expressions, comments, assignments, arrows or spreads. Brackets
# contain one number or text: a computed member name could be anything.
_TOKEN = re.compile(
    rf"""
    \s+
    | (?P<member> (?:\?\.|\.)\s*{_NAME} | (?:\?\.)?\[\s*(?:{_TEXT})\s*\] )
    | (?P<name> {_NAME} )
    | (?:\?\.)?\[\s*[0-9]+\s*\] | [0-9]+(?:\.[0-9]+)? | {_TEXT}
    | [=!]==? | [<>]=? | && | \|\| | \?\? | [-+*%(),?:!]
    """,
    re.VERBOSE,
)
_KNOWN = frozenset(
    {"json", "text", "true", "false", "null", "undefined", "typeof"}
    | {"JSON", "Math", "Number", "String", "Boolean", "parseFloat", "parseInt"}
)
_MAKES_FUNCTIONS = re.compile(r"\b(?:constructor|bind|call|apply|__\w+)\b")


def reads_variables(transform: Transform | Script | None) -> bool:
    """Return whether a transform can read variables; True if this is not certain.

    Example:
        >>> names = ("json", "text", "context")
        >>> [
        ...     reads_variables(Script(code, names))
        ...     for code in ("json.a.trim()", "(a, b, c) => c.vars.w")
        ... ]
        [False, True]
    """
    match transform:
        case MemberPath():
            return transform.root == "context"
        case Script():
            return not _is_plain(transform.code)
        case _:
            return False


def _is_plain(code: str) -> bool:
    """Return whether code is one of the analysed expressions."""
    head = _HEAD.match(code)
    known = _KNOWN if head is None else _KNOWN.union(filter(None, head.groups()))
    place = 0 if head is None else head.end()
    while place < len(code):
        token = _TOKEN.match(code, place)
        if token is None:
            return False
        if token["name"] is not None and token["name"] not in known:
            return False
        if token["member"] is not None and _MAKES_FUNCTIONS.search(token["member"]):
            return False
        place = token.end()
    return True


SHORTEST_VALUE = 8
"""Minimum length of an environment value that does not occur in a text by chance."""


def lane_key(request: RequestTemplate, hidden: Iterable[str] = (), *, kind: str = "http") -> str:
    """Return origin and path as in the suite, and a digest of the parts that identify the account.

    Args:
        request: The request.
        hidden: Secrets in its URL, which are replaced by their digests.
        kind: The beginning of the key.
    """
    pairs = _pairs(request)
    headers = [text for name, text in request.headers.items() if is_secret_header(name)]
    parts = [*headers, *secret_parameters(pairs), request.auth.credential]
    credential = "\n".join(text for text in parts if text)
    key = f"{kind}|{_place(request.url)}|{digest(credential)}"
    for secret in hidden:
        key = key.replace(secret, digest(secret))
    return key


def find_secrets(request: RequestTemplate) -> set[str]:
    """Return the secrets in a request, without those that are filled in later."""
    fixed = {name: text for name, text in request.headers.items() if not MARK.search(text)}
    hidden = [text for text in secret_parameters(_pairs(request)) if not MARK.search(text)]
    coded = [quote(text, safe="") for text in hidden]
    return {*secret_texts(fixed), *hidden, *coded, *request.auth.secrets} - {""}


def secret_texts(headers: Mapping[str, str]) -> set[str]:
    """Return the values of headers with secret names, also without their scheme.

    Example:
        >>> sorted(secret_texts({"authorization": "Bearer abcd", "x-team": "blue"}))
        ['Bearer abcd', 'abcd']
    """
    return {
        part
        for name, text in headers.items()
        if is_secret_header(name)
        for part in (text, *secret_parts(text))
        if part
    }


def secrets_of_environment(written: Any, environ: Mapping[str, str]) -> frozenset[str]:
    """Return the secrets of the environment that a config contains.

    Example:
        >>> secrets_of_environment({"body": ["key sk-1"]}, {"MY_KEY": "sk-1", "A_KEY": "sk-2"})
        frozenset({'sk-1'})
    """
    texts = list(_texts(written))
    known = {
        part
        for name, value in environ.items()
        if is_secret_name(name)
        for part in secret_parts(value)
    }
    return frozenset(
        part for part in known if len(part) >= SHORTEST and any(part in text for text in texts)
    )


def own_headers(request: RequestTemplate, environ: Mapping[str, str]) -> frozenset[str]:
    """Return the headers that auth sets, or that contain an environment value, whatever its name."""
    values = [value for value in environ.values() if len(value) >= SHORTEST_VALUE]
    filled = (
        name for name, text in request.headers.items() if any(value in text for value in values)
    )
    return frozenset({*request.auth.headers, *filled})


def _pairs(request: RequestTemplate) -> list[tuple[str, str]]:
    return [*parameters(request.url), *request.query.items()]


def _place(url: str) -> str:
    """Return the part of a URL that identifies a lane: without its query."""
    place = without_query(url)
    if MARK.search(place):
        return place
    _, _, path = place.partition("://")[2].partition("/")
    return f"{origin(place)}/{path}"


def _texts(data: Any) -> Iterator[str]:
    match data:
        case str():
            yield data
        case Mapping():
            for part in data.values():
                yield from _texts(part)
        case list() | tuple():
            for part in data:
                yield from _texts(part)
        case _:
            pass

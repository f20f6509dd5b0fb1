"""Who is asked, and as whom: the lane of a request, and what of it must not be shown."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from trioeval.providers.endpoint import digest, is_secret_header
from trioeval.providers.generic.keys import MARK
from trioeval.providers.generic.outgoing import RequestTemplate
from trioeval.providers.generic.urls import origin, parameters, secret_parameters, without_query
from trioeval.providers.secret_names import is_secret_name
from trioeval.providers.secrets import SHORTEST, secret_parts

SHORTEST_VALUE = 8
"""Characters from which on a value of the environment is not in a text by chance."""


def lane_key(request: RequestTemplate) -> str:
    """Origin and path as the suite writes them, and a digest of what identifies the account."""
    pairs = _pairs(request)
    headers = [text for name, text in request.headers.items() if is_secret_header(name)]
    said = [*headers, *secret_parameters(pairs), request.auth.credential]
    credential = "\n".join(text for text in said if text)
    return f"http|{_place(request.url)}|{digest(credential)}"


def find_secrets(request: RequestTemplate) -> tuple[str, ...]:
    """What must not be shown of a request, longest first. What is filled in later is not among it."""
    fixed = {name: text for name, text in request.headers.items() if not MARK.search(text)}
    hidden = [text for text in secret_parameters(_pairs(request)) if not MARK.search(text)]
    coded = [quote(text, safe="") for text in hidden]
    found = {*secret_texts(fixed), *hidden, *coded, *request.auth.secrets}
    return tuple(sorted(found - {""}, key=len, reverse=True))


def secret_texts(headers: Mapping[str, str]) -> set[str]:
    """The values of headers whose names say that they are secret, also without the word in front.

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
    """The secrets of the environment that stand in a config.

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
    """The headers that auth sets, or that hold a value of the environment, whatever it is called."""
    values = [value for value in environ.values() if len(value) >= SHORTEST_VALUE]
    filled = (
        name for name, text in request.headers.items() if any(value in text for value in values)
    )
    return frozenset({*request.auth.headers, *filled})


def _pairs(request: RequestTemplate) -> list[tuple[str, str]]:
    return [*parameters(request.url), *request.query.items()]


def _place(url: str) -> str:
    """A URL as far as it names a lane: without its query."""
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

"""Who is asked, and as whom: the lane of a request, and what of it must not be shown."""

from collections.abc import Mapping
from urllib.parse import quote

from trioeval.providers.endpoint import SECRET_HEADER, digest
from trioeval.providers.generic.keys import MARK
from trioeval.providers.generic.outgoing import RequestTemplate
from trioeval.providers.generic.urls import origin, parameters, secret_parameters, without_query


def lane_key(request: RequestTemplate) -> str:
    """Origin and path as the suite writes them, and a digest of what identifies the account."""
    pairs = _pairs(request)
    headers = [text for name, text in request.headers.items() if SECRET_HEADER.search(name)]
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
    whole = [text for name, text in headers.items() if SECRET_HEADER.search(name)]
    return {*whole, *(text.rsplit(" ", 1)[-1] for text in whole)} - {""}


def _pairs(request: RequestTemplate) -> list[tuple[str, str]]:
    return [*parameters(request.url), *request.query.items()]


def _place(url: str) -> str:
    """A URL as far as it names a lane: without its query."""
    place = without_query(url)
    if MARK.search(place):
        return place
    _, _, path = place.partition("://")[2].partition("/")
    return f"{origin(place)}/{path}"

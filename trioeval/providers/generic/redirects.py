"""Following redirects: which request comes next, and what of it may go there.

Credentials stay with the origin for which they were meant. A redirect that leads to where the request has
been is a loop, since nothing is remembered between two steps that could make the answer another one.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from http import HTTPStatus
from urllib.parse import urljoin

import attrs

from trioeval.errors import ProviderError
from trioeval.providers.endpoint import SECRET_HEADER
from trioeval.providers.generic.urls import encode, origin, url_fault, without_query
from trioeval.providers.wire import HttpReply, HttpRequest

MOST = 10
"""Redirects that are followed for one request."""

_STATUSES = frozenset({301, 302, 303, 307, 308})


async def send_following(
    send: Callable[[HttpRequest], Awaitable[HttpReply]],
    request: HttpRequest,
    secret_headers: Collection[str],
) -> HttpReply:
    """Send a request to where it ends up. A checkpoint if `send` is one.

    Args:
        send: One exchange.
        request: What is sent first.
        secret_headers: Names, in lower case, of headers that stay with the first origin besides those that
            always do.

    Raises:
        ProviderError: `bad_request`, if the redirects lead nowhere; or what `send` raises.
    """
    seen = {(request.method, request.url)}
    for _ in range(MOST + 1):
        reply = await send(request)
        if not is_redirect(reply):
            return reply
        request = next_request(request, reply, secret_headers)
        step = (request.method, request.url)
        if step in seen:
            raise _failure(reply, f"a redirect leads back to {without_query(request.url)}: a loop")
        seen.add(step)
    raise _failure(reply, f"more than {MOST} redirects, the last to {without_query(request.url)}")


def is_redirect(reply: HttpReply) -> bool:
    """Whether a reply says where to ask instead."""
    return reply.status in _STATUSES and bool(reply.headers.get("location"))


def next_request(
    request: HttpRequest, reply: HttpReply, secret_headers: Collection[str]
) -> HttpRequest:
    """The request that a redirect asks for.

    Raises:
        ProviderError: `bad_request`, if it leads to no HTTP URL, or from https to http.
    """
    try:
        url = encode(urljoin(request.url, reply.headers["location"].strip()))
        fault = url_fault(url)
    except ValueError:
        fault = "is no URL"
    if fault:
        raise _failure(reply, "the server redirects to what is no http or https URL")
    if request.url.lower().startswith("https:") and not url.lower().startswith("https:"):
        where = without_query(url)
        raise _failure(reply, f"the server redirects from https to {where}, which is not encrypted")
    headers = request.headers
    if origin(url) != origin(request.url):
        headers = _without(
            headers, {name for name in headers if SECRET_HEADER.search(name)} | {*secret_headers}
        )
    if _becomes_get(request.method, reply.status):
        return HttpRequest(url, _without(headers, {"content-type"}), None, "GET")
    return attrs.evolve(request, url=url, headers=headers)


def _becomes_get(method: str, status: int) -> bool:
    """As browsers do it: a POST that is answered with "look there" is not sent again."""
    if status == HTTPStatus.SEE_OTHER:
        return method not in ("GET", "HEAD")
    return status in (HTTPStatus.MOVED_PERMANENTLY, HTTPStatus.FOUND) and method == "POST"


def _without(headers: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in names}


def _failure(reply: HttpReply, message: str) -> ProviderError:
    return ProviderError("bad_request", message, status=reply.status)

"""Following redirects: which request comes next, and what of it may go there.

A prompt is for the origin that the suite names: a redirect to another one is an error, unless the suite
allows it. Even then none leads from a public address to a private one, where services trust every
client that reaches them.

Credentials stay with the origin for which they were meant: headers that hold one are left out, and what
cannot do without one, a body or a URL, is not sent. A redirect that leads to where the request has
been is a loop, since nothing is remembered between two steps that could make the answer another one.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from http import HTTPStatus
from urllib.parse import urljoin

import attrs

from trioeval.errors import ProviderError
from trioeval.providers.endpoint import is_secret_header
from trioeval.providers.generic.identity import SHORTEST_VALUE
from trioeval.providers.generic.urls import encode, is_private, origin, url_fault, without_query
from trioeval.providers.secrets import hide
from trioeval.providers.wire import HttpReply, HttpRequest

MOST = 10
"""Redirects that are followed for one request."""

_STATUSES = frozenset({301, 302, 303, 307, 308})


@attrs.frozen
class Guard:
    """What must not leave the origin for which it is meant."""

    headers: frozenset[str] = frozenset()
    """Names, in lower case, besides those that say by themselves that they are secret."""
    secrets: frozenset[str] = attrs.field(default=frozenset(), repr=False)
    """Texts."""
    elsewhere: bool = attrs.field(default=False, kw_only=True)
    """Whether anything may leave it."""

    def without_secrets(self, headers: Mapping[str, str]) -> dict[str, str]:
        """The headers that may go anywhere."""
        return {
            name: value
            for name, value in headers.items()
            if name.lower() not in self.headers
            and not is_secret_header(name)
            and hide(value, self.secrets) == value
        }

    def holds_secret(self, text: str) -> bool:
        """Whether a text holds a secret, in whatever spelling, that is too long to be there by chance."""
        long = [secret for secret in self.secrets if len(secret) >= SHORTEST_VALUE]
        return hide(text, long) != text


async def send_following(
    send: Callable[[HttpRequest], Awaitable[HttpReply]],
    request: HttpRequest,
    guard: Guard,
) -> HttpReply:
    """Send a request to where it ends up. A checkpoint if `send` is one.

    Args:
        send: One exchange.
        request: What is sent first.
        guard: What stays with the first origin.

    Raises:
        ProviderError: `bad_request`, if the redirects lead nowhere, or would take a secret elsewhere; or
            what `send` raises.
    """
    seen = {(request.method, request.url)}
    for _ in range(MOST + 1):
        reply = await send(request)
        if not is_redirect(reply):
            return reply
        request = next_request(request, reply, guard)
        step = (request.method, request.url)
        if step in seen:
            raise _failure(reply, f"a redirect leads back to {without_query(request.url)}: a loop")
        seen.add(step)
    raise _failure(reply, f"more than {MOST} redirects, the last to {without_query(request.url)}")


def is_redirect(reply: HttpReply) -> bool:
    """Whether a reply says where to ask instead."""
    return reply.status in _STATUSES and bool(reply.headers.get("location"))


def next_request(request: HttpRequest, reply: HttpReply, guard: Guard) -> HttpRequest:
    """The request that a redirect asks for.

    Raises:
        ProviderError: `bad_request`, if it leads to no HTTP URL, or from https to http, or to another origin
            where that is not allowed, or would take a secret there.
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
    is_get = _becomes_get(request.method, reply.status)
    headers, body = request.headers, None if is_get else request.body
    if origin(url) != origin(request.url):
        where = f"{origin(request.url)} redirects to {origin(url)}"
        if not guard.elsewhere:
            how = "name that URL in the suite, or allow it with followRedirects: any"
            raise _failure(reply, f"{where}, which is another origin; {how}")
        if is_private(url) and not is_private(request.url):
            raise _failure(reply, f"{where}, which is a private address, and is not followed")
        # Without its path, which may hold what must not be shown.
        if guard.holds_secret(url):
            raise _failure(reply, f"the server redirects to {origin(url)} with a secret in the URL")
        if body is not None and guard.holds_secret(body.decode("utf-8", "replace")):
            what = f"the server redirects to {origin(url)}, and the body holds a secret"
            raise _failure(reply, f"{what}; if it may go there, name that URL in the suite")
        headers = guard.without_secrets(headers)
    if is_get:
        headers = _without(headers, {"content-type"})
        return attrs.evolve(request, url=url, headers=headers, body=None, method="GET")
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

# Apart from `providers.generic.entry`: loaded with the first call.
"""`http:` and `https:`: a service that the suite describes, asked by the way that all providers share."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit

import attrs
import trio

from trioeval.errors import Fault, ProviderError
from trioeval.providers.base import Reply, Request
from trioeval.providers.cache_key import Question
from trioeval.providers.config import Templates, show, to_snake
from trioeval.providers.generic.auth import Token, TokenSource
from trioeval.providers.generic.entry import GenericSettings
from trioeval.providers.generic.identity import SHORTEST_VALUE, may_see_variables, secret_texts
from trioeval.providers.generic.reply import (
    Answer,
    MemberPath,
    Query,
    Reading,
    Transform,
    TransformError,
    apply_query,
    engine_workers,
    plain,
    query_workers,
    read_answer,
    script_output,
)
from trioeval.providers.generic.request import Filling, load_files
from trioeval.providers.generic.urls import encode, is_private, origin, url_fault, without_query
from trioeval.providers.http.endpoint import is_secret_header
from trioeval.providers.http.failures import classify
from trioeval.providers.http.wire import HttpClient, HttpReply, HttpRequest
from trioeval.providers.programs.workers import Workers, WorkerSpec, open_workers
from trioeval.providers.secrets import hide, longest_first
from trioeval.scripting.javascript import Script

# The suite's own code around a call, and whatever else takes long: never in the way of other calls.
#
# What is quick runs at once: small replies, and paths. Large replies are read in a thread. JavaScript,
# functions of Python and queries that are not cheap run in worker processes, as `python:` providers do.


LARGE = 256 * 1024
"""Bytes of a reply that take some milliseconds to read, many times what a thread costs."""

THREADS = 2
"""Replies of one provider that are read in threads at once."""

T = TypeVar("T")


@asynccontextmanager
async def open_code(
    directory: Path, environ: Mapping[str, str], function: WorkerSpec | None
) -> AsyncGenerator["Code"]:
    """What runs the code of one provider.

    Args:
        directory: Where it runs; absolute.
        environ: What it inherits.
        function: Its transform, where that is in a Python file.
    """
    async with (
        open_workers(engine_workers(directory, environ)) as scripts,
        open_workers(query_workers(directory, environ)) as finders,
    ):
        if function is None:
            yield Code(scripts, finders, None)
            return
        async with open_workers(function) as workers:
            yield Code(scripts, finders, workers)


@attrs.frozen
class Code:
    """Runs transforms and scripts."""

    _scripts: Workers
    _queries: Workers
    _function: Workers | None
    _threads: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(THREADS))

    async def run(self, work: Callable[[], T], size: int) -> T:
        """What some work on a reply gives. A checkpoint only if the reply is large.

        Args:
            work: Changes nothing.
            size: Bytes of the reply.
        """
        if size < LARGE:
            return work()
        # Left alone when cancelled: it ends by itself, and others need not wait for it.
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)

    async def transform(
        self, transform: Transform | Script, answer: Answer, size: int, limit: float
    ) -> Any:
        """What a transform gives. A checkpoint only if it may take long.

        Args:
            transform: What is applied.
            answer: To what.
            size: Bytes of the reply.
            limit: Seconds that a script may take, > 0.

        Raises:
            TransformError: It gives nothing.
            ProviderError: The engine of a script could not be asked.
        """
        if isinstance(transform, MemberPath):
            return transform.apply(answer)
        if isinstance(transform, Query):
            return await apply_query(transform, answer, size, self._queries)
        return script_output(transform, await self._ask(transform, answer.arguments(), limit))

    async def call(self, answer: Answer, limit: float) -> Any:
        """What the function of the Python file gives for `(json, text, context)`. Always a checkpoint.

        Args:
            answer: What it is called with.
            limit: Seconds that it may take, > 0.

        Raises:
            ProviderError: It failed, or took longer.
            TransformError: It gives nothing.
        """
        if self._function is None:
            msg = "the workers of this provider were not opened; please report this"
            raise RuntimeError(msg)
        value = await self._function.call(answer.arguments(), limit)
        if value is None:
            raise TransformError("the function of transformResponse returned nothing")
        return value

    async def rewrite(self, script: Script, values: list[Any], limit: float) -> Any:
        """What a script makes of a prompt. Always a checkpoint.

        Args:
            script: What is run.
            values: Its arguments.
            limit: Seconds that it may take, > 0.

        Raises:
            ProviderError: `bad_request`: it failed, or gave nothing; or the engine could not be asked.
        """
        told = await self._ask(script, values, limit)
        if "error" in told:
            raise ProviderError("bad_request", f"transformRequest fails: {told['error']}")
        if told["value"] is None:
            raise ProviderError(
                "bad_request", f"transformRequest gives nothing: {show(script.code)}"
            )
        return told["value"]

    async def _ask(self, script: Script, values: list[Any], limit: float) -> Any:
        return await self._scripts.call([script.source, values], limit)


# Following redirects: which request comes next, and what of it may go there.
#
# A prompt is for the origin that the suite names: a redirect to another one is an error, unless the suite
# allows it. Even then none leads from a public address to a private one, where services trust every
# client that reaches them.
#
# Credentials stay with the origin for which they were meant: headers that hold one are left out, and what
# cannot do without one, a body or a URL, is not sent. A redirect that leads to where the request has
# been is a loop, since nothing is remembered between two steps that could make the answer another one.


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


# What decides the reply of a service, so that it may be kept for equal calls.


READING = ("transform_response", "validate_status")
"""Keys, in snake_case, that say how a reply is read."""


def find_question(
    entry: GenericSettings, request: Request, templates: Templates
) -> Question | None:
    """All that decides the reply to a request; see `Cacheable`.

    Args:
        entry: Who is asked, with what is different for this call.
        request: What is asked.
        templates: What fills in its variables.

    Returns:
        None where a function in a Python file or a file that goes along has a say: both may change, and
        what a function looks at cannot be seen.

    Raises:
        ProviderError: `bad_request`: the request cannot be made.
    """
    if entry.function is not None or entry.request.files:
        return None
    said = {to_snake(str(key)): value for key, value in entry.config.items()}
    variables = dict(request.vars)
    reading = {name: said[name] for name in READING if said.get(name) is not None}
    if may_see_variables(entry.transform):
        reading["vars"] = plain(variables)
    if isinstance(entry.rewrite, Script):
        # What it makes of the prompt is known when it has run: what it is given decides that.
        given = json.dumps([said, request.prompt, variables], default=str)
        asked = HttpRequest(entry.request.url, {}, given.encode(), entry.request.method or "")
    else:
        filling = fill(entry, entry.rewrite, request, templates)
        asked = entry.request.render(filling, {})
    return Question(
        name=f"http:{urlsplit(asked.url).hostname or ''}",
        service="http",
        request=asked,
        account=entry.request.auth.credential,
        reading=reading,
    )


def fill(
    entry: GenericSettings, rewrite: str | None, request: Request, templates: Templates
) -> Filling:
    """The variables of a call; the prompt is what a template makes of it.

    Raises:
        ProviderError: `bad_request`: the template cannot be rendered.
    """
    variables = {**request.vars, **entry.tools}
    filling = Filling.of(templates, variables, request.prompt)
    if rewrite is None:
        return filling
    return Filling.of(templates, variables, filling.text(rewrite, "transformRequest"))


@attrs.frozen
class GenericProvider:
    """Asks a service that the suite describes."""

    settings: GenericSettings
    _templates: Templates = attrs.field(repr=False)
    _client: HttpClient = attrs.field(repr=False)
    _code: Code = attrs.field(repr=False)
    _runs_code: bool = True
    _tokens: TokenSource | None = attrs.field(init=False, repr=False)

    @_tokens.default
    def _token_source(self) -> TokenSource | None:
        asked = self.settings.request.auth.token
        return None if asked is None else TokenSource(asked, self._client.send)

    async def __call__(self, request: Request, /) -> Reply:
        """Answer one request, following redirects. A checkpoint, unless the request cannot be made.

        Raises:
            ProviderError: `bad_request` (the request cannot be made, or its redirects lead nowhere),
                `auth` (there is no token), `attempt_timeout`; what the reply says of a failure; or
                `malformed_reply`, if the transform finds no output in it.
        """
        entry = self.settings.changed(request.options)
        if entry.code_keys and not self._runs_code:
            msg = f"{entry.code_keys[0]} is code, and an untrusted suite runs none"
            raise ProviderError("bad_request", msg)
        with trio.move_on_after(entry.timeout):
            return await self._answer(entry, request)
        msg = f"no whole reply within {entry.timeout:g} seconds (timeoutMs)"
        raise ProviderError("attempt_timeout", msg)

    def cache_question(self, request: Request, /) -> Question | None:
        """See `Cacheable` and `find_question`."""
        entry = self.settings.changed(request.options)
        return find_question(entry, request, self._templates)

    async def _answer(self, entry: GenericSettings, request: Request) -> Reply:
        filling = await self._fill(entry, request)
        files = await load_files(entry.request.files, filling, self.settings.around)
        ready = entry.request.render(filling, files)
        ready = attrs.evolve(ready, max_reply_bytes=entry.max_reply_bytes)
        token = None if self._tokens is None else await self._tokens.token()
        if token is not None:
            headers = {**ready.headers, "authorization": f"Bearer {token.value}"}
            ready = attrs.evolve(ready, headers=headers)
        reading = _reading(entry, ready)
        secrets = entry.own_texts.union(reading.secrets)
        guard = Guard(entry.own_headers, secrets, elsewhere=entry.follows_anywhere)
        reply = await send_following(self._client.send, ready, guard)
        if token is not None and self._tokens is not None:
            _judge(self._tokens, token, reply, reading)
        return await self._read(entry, reading, reply, request)

    async def _fill(self, entry: GenericSettings, request: Request) -> Filling:
        """The variables of a call; the prompt is what `transformRequest` makes of it."""
        if not isinstance(entry.rewrite, Script):
            return fill(entry, entry.rewrite, request, self._templates)
        context = {"vars": dict(request.vars)}
        values = [request.prompt, plain(dict(request.vars)), plain(context)]
        prompt = await self._code.rewrite(entry.rewrite, values, entry.timeout)
        return Filling.of(self._templates, {**request.vars, **entry.tools}, prompt)

    async def _read(
        self, entry: GenericSettings, reading: Reading, reply: HttpReply, request: Request
    ) -> Reply:
        code, size = self._code, len(reply.body)
        await code.run(partial(reading.check, reply), size)
        answer = await code.run(partial(read_answer, reply, request.vars), size)
        try:
            if entry.function is not None:
                value = await code.call(answer, entry.timeout)
            elif entry.transform is not None:
                value = await code.transform(entry.transform, answer, size, entry.timeout)
            else:
                value = await code.run(partial(reading.whole, reply, answer), size)
        except TransformError as error:
            raise reading.failure("malformed_reply", str(error), reply) from error
        return await code.run(partial(reading.finish, value, reply, answer), size)


def _judge(tokens: TokenSource, token: Token, reply: HttpReply, reading: Reading) -> None:
    """Learn from a reply whether a token is good.

    Raises:
        ProviderError: `auth`; a token that was good before has come to its end, so the call is worth
            another attempt, with another token.
    """
    if reply.status != HTTPStatus.UNAUTHORIZED:
        token.was_accepted = True
        return
    tokens.forget(token)
    if token.was_accepted:
        error = classify(reply, secrets=reading.secrets)
        raise error.told_as(error.message, kind="auth", fault=Fault.TRANSIENT, retries=1)


def _reading(entry: GenericSettings, ready: HttpRequest) -> Reading:
    """How the reply of a call is read: its own secrets are those of its headers as they were filled in."""
    own = secret_texts(ready.headers) - {*entry.secrets}
    return Reading(
        statuses=entry.statuses,
        price=entry.price,
        secrets=longest_first({*entry.secrets, *own}),
        filled_in=longest_first(own),
        host=urlsplit(ready.url).hostname or "",
    )

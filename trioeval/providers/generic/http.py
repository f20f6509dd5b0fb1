"""Providers `http:` and `https:`: a service described in the suite."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urljoin, urlsplit

import attrs
import trio

from trioeval.errors import ProviderError
from trioeval.providers.base import Reply, Request
from trioeval.providers.cache_key import CacheIdentity
from trioeval.providers.config import TemplateRenderer, show, to_snake
from trioeval.providers.generic.auth import TokenSource, fetch_token
from trioeval.providers.generic.entry import GenericSettings
from trioeval.providers.generic.identity import SHORTEST_VALUE, reads_variables, secret_texts
from trioeval.providers.generic.keys import SUCCESS
from trioeval.providers.generic.reply import (
    MemberPath,
    ReplyQuery,
    ReplyReading,
    Transform,
    TransformError,
    TransformInput,
    apply_query,
    engine_workers,
    node_workers,
    plain,
    query_workers,
    read_answer,
    script_output,
)
from trioeval.providers.generic.request import CallVariables, load_files
from trioeval.providers.generic.urls import encode, is_private, origin, url_fault, without_query
from trioeval.providers.http.endpoint import is_secret_header
from trioeval.providers.http.failures import reply_text
from trioeval.providers.http.replies import attempt_timeout
from trioeval.providers.http.wire import HttpClient, HttpReply, HttpRequest, request_source
from trioeval.providers.prices import Price
from trioeval.providers.programs.workers import Workers, WorkerSpec, open_workers
from trioeval.providers.secrets import hide, longest_first
from trioeval.scripting.javascript import Script

# The suite's own code around a call, and other slow work, without delaying other calls.
#
# Fast work runs at once: small replies, and paths. Large replies are read in a thread. JavaScript, Python
# functions and expensive queries run in worker processes, as `python:` providers do.


LARGE = 256 * 1024
"""Size of a reply that takes some milliseconds to read, many times the cost of a thread."""

THREADS = 2
"""Maximum number of replies of one provider that are read in threads at once."""

T = TypeVar("T")


@asynccontextmanager
async def open_code(
    directory: Path, environ: Mapping[str, str], function: WorkerSpec | None
) -> AsyncGenerator["CodeRunner"]:
    """Open the workers that run the code of one provider.

    Args:
        directory: Their working directory; absolute.
        environ: Their environment.
        function: The workers of its transform, if that is in a Python file.
    """
    async with (
        open_workers(engine_workers(directory, environ)) as scripts,
        open_workers(node_workers(directory, environ)) as node,
        open_workers(query_workers(directory, environ)) as finders,
    ):
        if function is None:
            yield CodeRunner(scripts, node, finders, None)
            return
        async with open_workers(function) as workers:
            yield CodeRunner(scripts, node, finders, workers)


@attrs.frozen
class CodeRunner:
    """Runs transforms and scripts."""

    _scripts: Workers
    _node: Workers
    _queries: Workers
    _function: Workers | None
    _threads: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(THREADS))

    async def run(self, work: Callable[[], T], size: int) -> T:
        """Return the result of some work on a reply. A checkpoint only if the reply is large.

        Args:
            work: A function without side effects.
            size: Size of the reply in bytes.
        """
        if size < LARGE:
            return work()
        # Abandoned when cancelled: the thread ends by itself, and delays no other call.
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)

    async def transform(
        self, transform: Transform | Script, answer: TransformInput, size: int, limit: float
    ) -> Any:
        """Return the result of a transform. A checkpoint only if it may be slow.

        Args:
            transform: The transform.
            answer: Its input.
            size: Size of the reply in bytes.
            limit: Maximum seconds for a script, > 0.

        Raises:
            TransformError: It has no result.
            ProviderError: The engine of a script failed.
        """
        if isinstance(transform, MemberPath):
            return transform.apply(answer)
        if isinstance(transform, ReplyQuery):
            return await apply_query(transform, answer, size, self._queries)
        return await self.evaluate(transform, answer.arguments(), limit)

    async def evaluate(self, script: Script, values: list[Any], limit: float) -> Any:
        """Return the value of a script. Always a checkpoint.

        Args:
            script: The script.
            values: Its arguments, JSON data.
            limit: Maximum seconds, > 0.

        Raises:
            TransformError: It failed, or returned nothing.
            ProviderError: Its engine failed.
        """
        return script_output(script, await self._ask(script, values, limit))

    async def call(self, answer: TransformInput, limit: float) -> Any:
        """Return the result of the Python file's function for `(json, text, context)`. Always a checkpoint.

        Args:
            answer: Its arguments.
            limit: Maximum seconds, > 0.

        Raises:
            ProviderError: It failed, or took too long.
            TransformError: It returned nothing.
        """
        if self._function is None:
            msg = "the workers of this provider were not opened; please report this"
            raise RuntimeError(msg)
        value = await self._function.call(answer.arguments(), limit)
        if value is None:
            raise TransformError("the function of transformResponse returned nothing")
        return value

    async def rewrite(self, script: Script, values: list[Any], limit: float) -> Any:
        """Return the prompt that a script returns. Always a checkpoint.

        Args:
            script: The script.
            values: Its arguments.
            limit: Maximum seconds, > 0.

        Raises:
            ProviderError: `bad_request`: it failed, or returned nothing; or the engine failed.
        """
        result = await self._ask(script, values, limit)
        if "error" in result:
            raise ProviderError("bad_request", f"transformRequest fails: {result['error']}")
        if result["value"] is None:
            raise ProviderError(
                "bad_request", f"transformRequest returns nothing: {show(script.code)}"
            )
        return result["value"]

    async def _ask(self, script: Script, values: list[Any], limit: float) -> Any:
        workers = self._scripts if script.needs_node is None else self._node
        return await workers.call([script.source, values], limit)


# Following of redirects: the next request, and the parts of it that may be sent to the new URL.
#
# A prompt is meant for the origin in the suite: a redirect to another one is an error, unless the suite
# allows it. Even then none is followed from a public address to a private one, where services trust every
# client that can reach them.
#
# Credentials are sent only to the origin for which they are meant: headers with credentials are omitted, and
# a body or a URL with one is not sent. A redirect to an earlier URL is a loop, since no state is kept between
# two steps that could change the reply.


MOST = 10
"""Maximum number of redirects for one request."""

_STATUSES = frozenset({301, 302, 303, 307, 308})


@attrs.frozen
class OriginGuard:
    """The parts of a request that must not be sent to another origin."""

    headers: frozenset[str] = frozenset()
    """Names of headers, in lower case, besides those with secret names."""
    secrets: frozenset[str] = attrs.field(default=frozenset(), repr=False)
    """Secret texts."""
    elsewhere: bool = attrs.field(default=False, kw_only=True)
    """True if anything may be sent to another origin."""

    def without_secrets(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers that may be sent anywhere."""
        return {
            name: value
            for name, value in headers.items()
            if name.lower() not in self.headers
            and not is_secret_header(name)
            and hide(value, self.secrets) == value
        }

    def holds_secret(self, text: str) -> bool:
        """Return whether a text contains a secret, in any spelling, too long to occur by chance."""
        long = [secret for secret in self.secrets if len(secret) >= SHORTEST_VALUE]
        return hide(text, long) != text


async def send_following(
    send: Callable[[HttpRequest], Awaitable[HttpReply]],
    request: HttpRequest,
    guard: OriginGuard,
) -> HttpReply:
    """Send a request and follow its redirects. A checkpoint if `send` is one.

    Args:
        send: Performs one exchange.
        request: The first request.
        guard: The parts for the first origin only.

    Raises:
        ProviderError: `bad_request`, if the redirects do not end, or would send a secret elsewhere; or
            an error of `send`.
    """
    seen = {(request.method, request.url)}
    for _ in range(MOST + 1):
        reply = await send(request)
        if not is_redirect(reply):
            return reply
        request = next_request(request, reply, guard)
        step = (request.method, request.url)
        if step in seen:
            fault = f"redirects lead back to {without_query(request.url)}, a loop"
            raise _refusal(reply, guard, fault, "check the URL")
        seen.add(step)
    fault = f"more than {MOST} redirects, the last to {without_query(request.url)}"
    raise _refusal(reply, guard, fault, "check the URL")


def is_redirect(reply: HttpReply) -> bool:
    """Return whether a reply is a redirect."""
    return reply.status in _STATUSES and bool(reply.headers.get("location"))


def next_request(request: HttpRequest, reply: HttpReply, guard: OriginGuard) -> HttpRequest:
    """Return the request for a redirect.

    Raises:
        ProviderError: `bad_request`, if its URL is not an HTTP URL, changes from https to http, or has
            another origin that is not allowed or that would receive a secret.
    """
    try:
        url = encode(urljoin(request.url, reply.headers["location"].strip()))
        fault = url_fault(url)
    except ValueError:
        fault = "is not a valid URL"
    if fault:
        fault = "redirect to a URL that is not a valid http or https URL"
        raise _refusal(reply, guard, fault, "check the URL")
    if request.url.lower().startswith("https:") and not url.lower().startswith("https:"):
        fault = f"redirect from https to {without_query(url)}, which is not encrypted"
        raise _refusal(reply, guard, fault, "use the https URL of the service")
    is_get = _becomes_get(request.method, reply.status)
    headers, body = request.headers, None if is_get else request.body
    if origin(url) != origin(request.url):
        # Without its path, which may contain a secret.
        fault, use_it = f"redirect to {origin(url)}", "use that URL in the suite"
        if not guard.elsewhere:
            advice = f"{use_it}, or allow it with followRedirects: any"
            raise _refusal(reply, guard, f"{fault}, which is another origin", advice)
        if is_private(url) and not is_private(request.url):
            fault += ", which is a private address and is not followed"
            raise _refusal(reply, guard, fault, f"if that is intended, {use_it}")
        if guard.holds_secret(url):
            raise _refusal(reply, guard, f"{fault} with a secret in the URL", "check the URL")
        if body is not None and guard.holds_secret(body.decode("utf-8", "replace")):
            fault += ", and the body contains a secret"
            raise _refusal(reply, guard, fault, f"if that is intended, {use_it}")
        headers = guard.without_secrets(headers)
    if is_get:
        headers = _without(headers, {"content-type"})
        return attrs.evolve(request, url=url, headers=headers, body=None, method="GET")
    return attrs.evolve(request, url=url, headers=headers)


def _becomes_get(method: str, status: int) -> bool:
    """Return whether the method changes to GET, as in browsers: a POST is not repeated after a redirect."""
    if status == HTTPStatus.SEE_OTHER:
        return method not in ("GET", "HEAD")
    return status in (HTTPStatus.MOVED_PERMANENTLY, HTTPStatus.FOUND) and method == "POST"


def _without(headers: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in names}


def _refusal(reply: HttpReply, guard: OriginGuard, fault: str, advice: str) -> ProviderError:
    """Return the error for a redirect that is not followed."""
    message = reply_text(reply, longest_first(guard.secrets), fault=fault, advice=advice)
    return ProviderError("bad_request", message, status=reply.status)


# The identity of a call, by which its reply may be reused for equal calls.


READING = ("transform_response", "validate_status")
"""Keys, in snake_case, that affect how a reply is read."""


def find_cache_identity(
    entry: GenericSettings, request: Request, templates: TemplateRenderer
) -> CacheIdentity | None:
    """Return everything that decides the reply to a request; see `Cacheable`.

    Args:
        entry: The settings of the provider for this call.
        request: The request.
        templates: Renders its variables.

    Returns:
        None if a function in a file, code that Node runs or an uploaded file is involved: files may change,
        and the inputs of such code are unknown.

    Raises:
        ProviderError: `bad_request`: the request is invalid.
    """
    if entry.function is not None or entry.request.files:
        return None
    scripts = [one for one in (entry.rewrite, entry.transform) if isinstance(one, Script)]
    if any(one.file is not None or one.needs_node is not None for one in scripts):
        return None
    config = {to_snake(str(key)): value for key, value in entry.config.items()}
    variables = dict(request.vars)
    reading = {name: config[name] for name in READING if config.get(name) is not None}
    if reads_variables(entry.transform):
        reading["vars"] = plain(variables)
    if isinstance(entry.rewrite, Script):
        # Its result is known only after it has run: its arguments determine it.
        given = json.dumps([config, request.prompt, variables], default=str)
        http_request = HttpRequest(
            entry.request.url, {}, given.encode(), entry.request.method or ""
        )
    else:
        filling = fill(entry, entry.rewrite, request, templates)
        http_request = entry.request.render(filling, {})
    return CacheIdentity(
        name=f"http:{urlsplit(http_request.url).hostname or ''}",
        service="http",
        request=http_request,
        account=entry.request.auth.credential,
        reading=reading,
    )


def fill(
    entry: GenericSettings, rewrite: str | None, request: Request, templates: TemplateRenderer
) -> CallVariables:
    """Return the variables of a call; the prompt is the result of a template.

    Raises:
        ProviderError: `bad_request`: the template cannot be rendered.
    """
    variables = {**request.vars, **entry.tools}
    filling = CallVariables.of(templates, variables, request.prompt)
    if rewrite is None:
        return filling
    return CallVariables.of(templates, variables, filling.text(rewrite, "transformRequest"))


def check_code(code_keys: Sequence[str], *, runs_code: bool) -> None:
    """Raise if a call needs code that must not run.

    Raises:
        ProviderError: `bad_request`.
    """
    if code_keys and not runs_code:
        msg = f"{code_keys[0]} is code, which an untrusted suite must not run"
        raise ProviderError("bad_request", msg)


@attrs.frozen
class GenericProvider:
    """A provider for a service described in the suite."""

    settings: GenericSettings
    _templates: TemplateRenderer = attrs.field(repr=False)
    _client: HttpClient = attrs.field(repr=False)
    _code: CodeRunner = attrs.field(repr=False)
    _runs_code: bool = True
    _tokens: TokenSource | None = attrs.field(init=False, repr=False)

    @_tokens.default
    def _token_source(self) -> TokenSource | None:
        token = self.settings.request.auth.token
        if token is None:
            return None
        return TokenSource(partial(fetch_token, token, self._client.send))

    async def __call__(self, request: Request, /) -> Reply:
        """Send one request, following redirects. A checkpoint, unless the request is invalid.

        Raises:
            ProviderError: `bad_request` (the request is invalid, or its redirects do not end),
                `auth` (no token), `attempt_timeout`; the failure in the reply; or `malformed_reply`,
                if the transform finds no output in it.
        """
        entry = self.settings.changed(request.options)
        check_code(entry.code_keys, runs_code=self._runs_code)
        with trio.move_on_after(entry.timeout):
            return await self._answer(entry, request)
        method = entry.request.method or ("GET" if entry.request.body is None else "POST")
        raise attempt_timeout(request_source(method, entry.request.url), entry.timeout)

    def cache_identity(self, request: Request, /) -> CacheIdentity | None:
        """Return everything that decides the reply to a request."""
        entry = self.settings.changed(request.options)
        return find_cache_identity(entry, request, self._templates)

    async def _answer(self, entry: GenericSettings, request: Request) -> Reply:
        filling = await self._fill(entry, request)
        files = await load_files(entry.request.files, filling, self.settings.context)
        ready = entry.request.render(filling, files)
        ready = attrs.evolve(ready, max_reply_bytes=entry.max_reply_bytes)
        token = None if self._tokens is None else await self._tokens.token()
        if token is not None:
            headers = {**ready.headers, "authorization": f"Bearer {token.value}"}
            ready = attrs.evolve(ready, headers=headers)
        reading = read_with(
            ready, secrets=entry.secrets, price=entry.price, statuses=entry.statuses
        )
        secrets = entry.own_texts.union(reading.secrets)
        guard = OriginGuard(entry.own_headers, secrets, elsewhere=entry.follows_anywhere)
        reply = await send_following(self._client.send, ready, guard)
        if token is not None and self._tokens is not None:
            self._tokens.check(token, reply, reading.classified)
        return await self._read(entry, reading, reply, request)

    async def _fill(self, entry: GenericSettings, request: Request) -> CallVariables:
        """Return the variables of a call; the prompt is the result of `transformRequest`."""
        if not isinstance(entry.rewrite, Script):
            return fill(entry, entry.rewrite, request, self._templates)
        context = {"vars": dict(request.vars)}
        values = [request.prompt, plain(dict(request.vars)), plain(context)]
        prompt = await self._code.rewrite(entry.rewrite, values, entry.timeout)
        return CallVariables.of(self._templates, {**request.vars, **entry.tools}, prompt)

    async def _read(
        self, entry: GenericSettings, reading: ReplyReading, reply: HttpReply, request: Request
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
            advice = "check the URL and transformResponse"
            raise reading.failure("malformed_reply", str(error), reply, advice) from error
        return await code.run(partial(reading.finish, value, reply, answer), size)


def read_with(
    ready: HttpRequest,
    *,
    secrets: Sequence[str],
    price: Price | None,
    statuses: frozenset[int] = SUCCESS,
) -> ReplyReading:
    """Return the settings for reading the reply to a request, with the secrets in its rendered headers."""
    own = secret_texts(ready.headers) - {*secrets}
    return ReplyReading(
        statuses=statuses,
        price=price,
        secrets=longest_first({*secrets, *own}),
        filled_in=longest_first(own),
        host=urlsplit(ready.url).hostname or "",
    )

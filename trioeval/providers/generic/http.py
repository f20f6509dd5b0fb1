"""`http:` and `https:`: a service that the suite describes, asked by the way that all providers share."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import attrs
import trio

from trioeval.errors import Problem, ProviderError
from trioeval.faults import Fault
from trioeval.providers.base import Reply, Request
from trioeval.providers.cacheable import Question
from trioeval.providers.classify import classify
from trioeval.providers.config import to_snake
from trioeval.providers.endpoint import digest
from trioeval.providers.env_references import expand_env
from trioeval.providers.generic.entry import Entry, read_entry
from trioeval.providers.generic.filling import Filling
from trioeval.providers.generic.identity import secret_texts
from trioeval.providers.generic.incoming import Reading, read_answer
from trioeval.providers.generic.javascript import engine_workers
from trioeval.providers.generic.keys import PER_CALL
from trioeval.providers.generic.oauth import Token, TokenSource
from trioeval.providers.generic.own_code import Code, open_code
from trioeval.providers.generic.parts import load_files
from trioeval.providers.generic.queries import query_workers
from trioeval.providers.generic.question import fill, find_question
from trioeval.providers.generic.redirects import Guard, send_following
from trioeval.providers.generic.transform import TransformError, plain
from trioeval.providers.prices import Price
from trioeval.providers.settings import Shared, Surroundings, Templates
from trioeval.providers.wire import HttpClient, HttpReply, HttpRequest
from trioeval.scripting.javascript import Script


@attrs.frozen
class GenericSettings:
    """A service that the suite describes."""

    entry: Entry
    _filled_in: tuple[str, ...] = attrs.field(repr=False)
    _prefix: str = attrs.field(repr=False)
    _rest: str = attrs.field(repr=False)
    _config: Mapping[str, Any] = attrs.field(repr=False)
    _around: Surroundings = attrs.field(repr=False)
    named_variables: tuple[str, ...] = ()
    """Environment variables that the URL of its id names."""

    @property
    def urls(self) -> tuple[str, ...]:
        """What it asks, as templates: its own URL, and where it gets tokens."""
        request = self.entry.request
        token = request.auth.token
        return (request.url,) if token is None else (request.url, token.url)

    @property
    def code_keys(self) -> tuple[str, ...]:
        """Keys of its config that hold code."""
        return self.entry.code_keys

    @property
    def lane_key(self) -> str:
        """Origin, path as the suite writes it, and a digest of the credential.

        A key that the environment gave to the URL of an id is one of its digests there.
        """
        key = self.entry.lane_key
        for secret in self._filled_in:
            key = key.replace(secret, digest(secret))
        return key

    @property
    def secrets(self) -> tuple[str, ...]:
        """Credentials of headers, parameters and auth, longest first."""
        return _longest_first({*self.entry.secrets, *self._filled_in})

    @property
    def most_cost(self) -> float | None:
        """Nothing bounds what a service of the suite says."""
        return None

    @asynccontextmanager
    async def open(self, shared: Shared) -> AsyncGenerator["GenericProvider"]:
        """The provider, with the workers of its transform if that is a function of Python."""
        client = await shared.http(self.entry.tls)
        engine = engine_workers(self._around.directory.resolve(), self._around.environ)
        queries = query_workers(self._around.directory.resolve(), self._around.environ)
        async with open_code(engine, queries, self.entry.function) as code:
            yield GenericProvider(self, shared.templates, client, code, runs_code=shared.runs_code)

    @property
    def price(self) -> Price | None:
        """What its tokens cost; None where that is not known."""
        return self.entry.price

    @property
    def around(self) -> Surroundings:
        """What the files of the entry are looked up in."""
        return self._around

    def said(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """The config, with other values for one call."""
        names = {to_snake(str(key)) for key in options}
        kept = {key: value for key, value in self._config.items() if to_snake(key) not in names}
        return {**kept, **options}

    def changed(self, options: Mapping[str, Any]) -> Entry:
        """The entry with other values for one call.

        Raises:
            ProviderError: `bad_request`: a key is not known or its value wrong, or it is one that cannot
                differ for one call.
        """
        given = {to_snake(str(key)): (str(key), value) for key, value in options.items()}
        read = read_entry(self._prefix, self._rest, self.said(options), self._around)
        if isinstance(read, list):
            raise ProviderError("bad_request", "; ".join(map(str, read)))
        fixed = [key for name, (key, _) in given.items() if name not in PER_CALL]
        if fixed or read.function != self.entry.function:
            keys = ", ".join(fixed) or "transformResponse from a file"
            raise ProviderError("bad_request", f"{keys} cannot differ for one call")
        return read


def read(
    prefix: str, rest: str, config: Mapping[str, Any], around: Surroundings
) -> GenericSettings | list[Problem]:
    """Read an entry; see `Reader`. `{{env.NAME}}` in the URL of an id is the environment's NAME."""
    filled = expand_env({"url": rest}, around.environ, around.templates, around.withheld)
    problems = [attrs.evolve(one, path=".id") for one in filled.problems]
    found = read_entry(prefix, filled.value["url"], config, around)
    if isinstance(found, list) or problems:
        return [*problems, *(found if isinstance(found, list) else ())]
    url = filled.value["url"]
    names = tuple(filled.names)
    return GenericSettings(found, tuple(filled.secrets), prefix, url, config, around, names)


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
        asked = self.settings.entry.request.auth.token
        return None if asked is None else TokenSource(asked, self._client.send)

    async def __call__(self, request: Request, /) -> Reply:
        """Answer one request, following redirects. A checkpoint, unless the request cannot be made.

        Raises:
            ProviderError: `bad_request` (the request cannot be made, or its redirects lead nowhere),
                `auth` (there is no token), `attempt_timeout`; what the reply says of a failure; or
                `malformed_reply`, if the transform finds no output in it.
        """
        entry = self.settings.entry
        if request.options:
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
        settings, options = self.settings, request.options
        entry = settings.changed(options) if options else settings.entry
        return find_question(entry, settings.said(options), request, self._templates)

    async def _answer(self, entry: Entry, request: Request) -> Reply:
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

    async def _fill(self, entry: Entry, request: Request) -> Filling:
        """The variables of a call; the prompt is what `transformRequest` makes of it."""
        if not isinstance(entry.rewrite, Script):
            return fill(entry, entry.rewrite, request, self._templates)
        context = {"vars": dict(request.vars)}
        values = [request.prompt, plain(dict(request.vars)), plain(context)]
        prompt = await self._code.rewrite(entry.rewrite, values, entry.timeout)
        return Filling.of(self._templates, {**request.vars, **entry.tools}, prompt)

    async def _read(
        self, entry: Entry, reading: Reading, reply: HttpReply, request: Request
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
        raise ProviderError(
            "auth",
            error.message,
            status=reply.status,
            body_excerpt=error.body_excerpt,
            fault=Fault.TRANSIENT,
            retries=1,
        )


def _reading(entry: Entry, ready: HttpRequest) -> Reading:
    """How the reply of a call is read: its own secrets are those of its headers as they were filled in."""
    own = secret_texts(ready.headers) - {*entry.secrets}
    return Reading(
        statuses=entry.statuses,
        price=entry.price,
        secrets=_longest_first({*entry.secrets, *own}),
        filled_in=_longest_first(own),
        host=urlsplit(ready.url).hostname or "",
    )


def _longest_first(texts: set[str]) -> tuple[str, ...]:
    return tuple(sorted(texts, key=len, reverse=True))

"""A provider over HTTP: a pure adapter that builds requests and reads replies, and one exchange.

An adapter holds everything that is specific to a service's format; both of its halves are tested without a
network.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from http import HTTPStatus
from typing import Any, ClassVar, Literal, Self, TypeAlias, TypeVar, TypeVarTuple

import attrs
import trio

from trioeval.errors import Problem, ProviderError, ProviderErrorKind
from trioeval.providers.base import Provider, Reply, Request
from trioeval.providers.bounds import SLOW, has_more_marks, most_marks
from trioeval.providers.cache_key import CacheIdentity
from trioeval.providers.config import (
    Key,
    ProviderResources,
    ProviderSettings,
    config_path,
    is_json_list,
    show,
    to_snake,
)
from trioeval.providers.http.endpoint import ENDPOINT_KEYS, Endpoint, Service, read_endpoint
from trioeval.providers.http.rate_hints import read_hint
from trioeval.providers.http.replies import (
    empty,
    exchange,
    failure,
    is_success,
    read_accounts,
    read_failure,
    read_metadata,
    read_object,
    text,
)
from trioeval.providers.http.streams import EventReader, ServerEvent, read_events
from trioeval.providers.http.wire import (
    EVENT_STREAM,
    HttpClient,
    HttpReply,
    HttpRequest,
    PreparedBody,
)
from trioeval.providers.metering import (
    GUESSED_REPLY,
    Metering,
    count_body,
    count_bytes,
    find_counter,
    image_tokens,
    longest_reply,
)
from trioeval.providers.other_keys import OtherKeys, read_open_config, rules_of, with_secrets
from trioeval.usage import Usage

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


Returned: TypeAlias = Literal["text", "embedding", "classification", "moderation", "media"]
"""The kind of output of a service; only texts have tokens."""


def _is_metrics(value: Any) -> bool:
    return value == "ttft" or (is_json_list(value) and all(one == "ttft" for one in value))


METRICS = Key("metrics", '"ttft", or a list of it', _is_metrics)
"""The config key that requests streams."""


@attrs.frozen(kw_only=True, slots=False)
class Adapter(ABC):
    """One model of a service, and the format of its requests and replies.

    A subclass defines the keys of its config (`call_keys`, `entry_keys`), builds a body (`fixed_body`,
    `prompt_fields`) and reads one (`read`). Everything else is the same for every service.
    """

    endpoint: Endpoint
    layers: tuple[Mapping[str, Any], ...] = attrs.field(default=({},), repr=False)
    """The checked config of the entry, then the options of calls, by snake_case key; None removes a
    default."""
    defaults: Mapping[str, Any] = attrs.field(factory=dict)
    """Defaults from the environment."""

    call_keys: ClassVar[tuple[Key, ...]]
    """Keys that may differ from call to call."""
    entry_keys: ClassVar[tuple[Key, ...]] = ()
    """Keys that are the same for all calls of an entry, besides those of the endpoint."""
    default_keys: ClassVar[tuple[Key, ...]] = ()
    """Keys whose defaults the environment may set; see `Service.variables`."""
    other_keys: ClassVar[OtherKeys] = OtherKeys()
    returns: ClassVar[Returned] = "text"
    keeps_jobs: ClassVar[bool] = False
    """True if a reply is a kept job; see `trioeval.providers.http.polling`."""
    path: ClassVar[str] = ""
    """Path below the base URL."""
    holder: ClassVar[str] = "the message"
    """The part of a reply with the content, for the error of an empty one."""
    limit_key: ClassVar[str] = "max_tokens"
    """The config key of the maximum length of a reply."""
    origin_fields: ClassVar[Mapping[str, str]] = {"id": "id", "model": "model"}
    """Names in the metadata, and the fields of a reply for them."""

    @classmethod
    def read_entry(
        cls,
        service: Service,
        model: str,
        config: Mapping[str, Any],
        environ: Mapping[str, str],
    ) -> "AdapterSettings | list[Problem]":
        """Read the config of an entry.

        Args:
            service: Description of the service.
            model: The model's name at the service.
            config: The entry's config; a null removes a default.
            environ: Environment variables; empty values count as absent.

        Returns:
            The settings, or all problems.
        """
        own_keys = (*cls.call_keys, *cls.entry_keys)
        keys = (*own_keys, *ENDPOINT_KEYS, *service.keys)
        found = read_open_config(config, keys, rules_of(service, cls.other_keys))
        values = found.folded()
        endpoint, faults = cls.locate(service, model, values, environ)
        defaults, wrong = cls.read_defaults(service, environ)
        problems = [*found.problems, *faults, *wrong, *cls.find_conflicts(service, (values,))]
        if endpoint is None or problems:
            return problems
        # Values for the endpoint are only stored there: no credential is stored twice.
        names = {to_snake(key.name) for key in own_keys}
        own = {name: value for name, value in values.items() if name in names}
        endpoint = with_secrets(endpoint, own.get("passthrough"))
        done = cls(endpoint=endpoint, layers=(own,), defaults=defaults)
        return AdapterSettings(done, warnings=found.warnings)

    @classmethod
    def locate(
        cls,
        service: Service,
        model: str,
        values: Mapping[str, Any],
        environ: Mapping[str, str],
    ) -> tuple[Endpoint | None, list[Problem]]:
        """Return the endpoint of an entry; see `read_endpoint`."""
        return read_endpoint(service, model, values, environ)

    @classmethod
    def read_defaults(
        cls, service: Service, environ: Mapping[str, str]
    ) -> tuple[dict[str, Any], list[Problem]]:
        """Return the defaults from the environment, by key, and their problems."""
        defaults: dict[str, Any] = {}
        problems: list[Problem] = []
        for key in cls.default_keys:
            variable = service.variables.get(key.name, "")
            written = environ.get(variable, "").strip()
            if not written:
                continue
            value = _number(written)
            if value is not None and key.check(value):
                defaults[key.name] = value
            else:
                right = f"must be {key.right}, got {show(written)}"
                fault = f"the environment variable {variable} {right}"
                problems.append(Problem(config_path(key.name), fault))
        return defaults, problems

    @classmethod
    def find_conflicts(
        cls,
        service: Service,  # noqa: ARG003 - for subclasses
        layers: Sequence[Mapping[str, Any]],  # noqa: ARG003 - for subclasses
    ) -> list[Problem]:
        """Return problems of values in the last layer that are valid on their own."""
        return []

    def with_options(self, options: Mapping[str, Any], /) -> Self:
        """Return the adapter for one call with other values for some keys.

        Raises:
            ProviderError: `bad_request`, with all problems of the options.
        """
        if not options:
            return self
        service, kept = self.endpoint.service, (*self.entry_keys, *ENDPOINT_KEYS)
        rules = rules_of(service, self.other_keys)
        found = read_open_config(options, self.call_keys, rules, entry_keys=kept)
        layers = (*self.layers, found.folded(self.given.get("passthrough")))
        problems = found.problems or self.find_conflicts(service, layers)
        if problems:
            reasons = "; ".join(map(_problem_text, problems))
            raise ProviderError("bad_request", f"invalid call options: {reasons}")
        return attrs.evolve(self, layers=layers)

    def connect(self, client: HttpClient) -> "HttpProvider":
        """Return the provider that sends its requests with a client."""
        return HttpProvider(self, client)

    @cached_property
    def given(self) -> Mapping[str, Any]:
        """The values of all layers; the last layer with a key applies."""
        return {name: value for layer in self.layers for name, value in layer.items()}

    @property
    def streams(self) -> bool:
        """True if replies are streamed, to measure the time to the first token."""
        return bool(self.given.get("metrics"))

    @property
    def show_thinking(self) -> bool:
        """True if reasoning is part of the output; besides the request, all that decides the result."""
        return self.given.get("show_thinking") is True

    @property
    def needs_polls(self) -> bool:
        """True if a reply takes several requests, which an SDK does not send."""
        return self.keeps_jobs

    @property
    def url(self) -> str:
        """The URL of requests."""
        return self.endpoint.url(self.path)

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """The headers of requests, including the credential."""
        return self.endpoint.headers

    @cached_property
    def body(self) -> Mapping[str, Any]:
        """The body without the fields of the prompt."""
        return self.fixed_body()

    @cached_property
    def _prepared(self) -> PreparedBody:
        return PreparedBody.of(self.body)

    @abstractmethod
    def fixed_body(self) -> Mapping[str, Any]:
        """Compute `body`."""

    @abstractmethod
    def prompt_fields(self, prompt: str) -> Mapping[str, Any]:
        """The fields of the body that hold a prompt.

        Raises:
            ProviderError: `bad_request`, if the prompt cannot be sent.
        """

    def build(self, request: Request, /) -> HttpRequest:
        """Return the HTTP request for a request.

        Raises:
            ProviderError: `bad_request`, if the prompt cannot be sent or the options of the call are wrong.
        """
        return self.with_options(request.options).ask(request.prompt)

    def ask(self, prompt: str) -> HttpRequest:
        """Return the HTTP request for a prompt; see `prompt_fields`."""
        body = self._prepared.complete(self.prompt_fields(prompt))
        return HttpRequest(self.url, self.headers, body)

    def parse(self, reply: HttpReply, /) -> Reply:
        """Return the reply in an HTTP reply, or in all events of a stream.

        A prompt that the service refuses is a reply too (`is_refusal`).

        Raises:
            ProviderError: The reply is a failure, violates the service's format, or is empty; with the usage
                and the cost, if the reply reports its usage nevertheless.
        """
        try:
            answer = self._parse(reply)
        except ProviderError as error:
            failure = error
        else:
            if not answer.is_refusal or answer.usage != Usage():
                return answer
            usage, cost = self._bill(reply)
            return attrs.evolve(answer, usage=usage, cost=cost)
        # Outside of the handler, so that the failure without usage is not the context of the other one.
        raise self.billed(failure, reply)

    def billed(self, error: ProviderError, reply: HttpReply) -> ProviderError:
        """Return a failure with the usage and the cost that its reply reports, if any.

        Args:
            error: The failure.
            reply: The reply, or the part of a stream that has arrived.
        """
        usage, cost = (Usage(), None) if error.is_billed else self._bill(reply)
        return error if usage == Usage() else error.restated(error.message, usage=usage, money=cost)

    def _bill(self, reply: HttpReply) -> tuple[Usage, float | None]:
        data = self.account(read_accounts(reply))
        usage = self.usage(data)
        return usage, self.cost(usage, data)

    def usage(self, data: Mapping[str, Any]) -> Usage:  # noqa: ARG002 - for subclasses
        """Return the token counts in a body, whether it is that of a success or not."""
        return Usage()

    def account(self, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return a body with the usage in the events of a stream; counts are totals: the last ones apply."""
        return {name: value for part in parts for name, value in part.items() if value is not None}

    def _parse(self, reply: HttpReply) -> Reply:
        if not self.succeeds(reply):
            return self.fail(reply, {})
        reply = self._joined(reply)
        data = self.load(reply)
        try:
            failed = self.find_failure(reply, data)
            if failed is not None:
                return self.fail(failed, data)
            answer = self._completed(self.read(data, reply), reply, data)
        except RecursionError:
            # Parsing still worked; writing parts of it as JSON does not.
            fault = "the reply is nested too deeply"
            raise self.failure("malformed_reply", fault, reply, advice="") from None
        if not answer.is_refusal and self.is_empty(data):
            raise empty(self.holder, answer, self.endpoint, reply, limit=self.limit_key)
        return answer

    def succeeds(self, reply: HttpReply) -> bool:
        """Return whether the status is that of a success."""
        return is_success(reply)

    def load(self, reply: HttpReply) -> dict[str, Any]:
        """Return the body of a success as an object; see `read_object`."""
        return read_object(self.endpoint, reply)

    @abstractmethod
    def read(self, data: Mapping[str, Any], reply: HttpReply) -> Reply:
        """Return the content of a success; `parse` adds cost, hint, body and the usual metadata.

        Raises:
            ProviderError: The body violates the service's format.
        """

    def is_empty(self, data: Mapping[str, Any]) -> bool:  # noqa: ARG002 - for subclasses
        """Return whether a valid body has no content, not even an empty text."""
        return False

    def find_failure(self, reply: HttpReply, data: Mapping[str, Any]) -> HttpReply | None:
        """Return the reply that describes a failure despite the status of a success; None if none failed."""
        return reply if data.get("error") else None

    def fail(self, reply: HttpReply, data: Mapping[str, Any]) -> Reply:  # noqa: ARG002 - for subclasses
        """Return the reply for a refused prompt.

        Args:
            reply: The failed reply.
            data: The body of a success; empty for any other status.

        Raises:
            ProviderError: For any other failure.
        """
        return read_failure(self.endpoint, reply)

    def failure(
        self, kind: ProviderErrorKind, fault: str, reply: HttpReply, advice: str | None = None
    ) -> ProviderError:
        """Return an error that names URL and model and shows the beginning of the body.

        Args:
            kind: The kind of error.
            fault: What is wrong with the reply.
            reply: The reply.
            advice: What to check or change; None says to check the URL of a malformed reply, which is often
                the reply of another kind of server.
        """
        endpoint = self.endpoint
        if advice is None:
            advice = f"check {endpoint.url_source}" if kind == "malformed_reply" else ""
        return failure(kind, fault, reply, endpoint.secrets, model=endpoint.model, advice=advice)

    @property
    def requested_tier(self) -> str | None:
        """The service tier that requests ask for; None leaves it to the service."""
        return text(self.body, "service_tier") or text(self.body, "serviceTier")

    def served_tier(self, data: Mapping[str, Any]) -> str | None:
        """Return the service tier that served a reply, if it says so."""
        return text(data, "service_tier")

    def cost(self, usage: Usage, data: Mapping[str, Any]) -> float | None:
        """Return the cost in US dollars, by the price of the tier of the reply; None if none is known."""
        price = self.endpoint.price
        if price is not None:
            price = price.of_tier(self.served_tier(data) or self.requested_tier)
        return None if price is None else price.cost(usage)

    def has_output(self, event: ServerEvent, /) -> bool:  # noqa: ARG002 - for subclasses
        """Return whether an event of a stream has a part of the reply's text, or of its reasoning."""
        return False

    def join(self, events: Iterable[ServerEvent]) -> dict[str, Any] | None:  # noqa: ARG002 - for subclasses
        """Return the body that the events of a stream add up to; None if they end too early."""
        return None

    def _completed(self, answer: Reply, reply: HttpReply, data: dict[str, Any]) -> Reply:
        """Add the values that are read in the same way for every service."""
        origin = {name: data.get(field) for name, field in self.origin_fields.items()}
        return attrs.evolve(
            answer,
            hint=read_hint(reply.headers, host=self.endpoint.host),
            cost=self.cost(answer.usage, data),
            raw=data,
            metadata={**read_metadata(reply, origin), **answer.metadata},
        )

    def _joined(self, reply: HttpReply) -> HttpReply:
        """Return the reply with one object as its body; the same reply if it is not a stream.

        Serialised once more, so that halves of surrogate pairs from two events become one character.
        """
        if not reply.is_stream:
            return reply
        data = self.join(read_events(reply.body))
        if data is None:
            message = "the stream ended before the reply was complete"
            raise self.failure("connection", message, reply)
        try:
            return attrs.evolve(reply, body=json.dumps(data).encode())
        except RecursionError:
            message = "the stream is nested too deeply"
            raise self.failure("malformed_reply", message, reply, advice="") from None


def _number(written: str) -> float | None:
    """Return the number in a text, as an int if it is a whole number; None if it is not a number."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(written)
    return None


def _problem_text(problem: Problem) -> str:
    key = problem.path.removeprefix(".config").removeprefix(".")
    hint = f" ({problem.hint})" if problem.hint else ""
    return f"{key}: {problem.message}{hint}"


@attrs.frozen
class AdapterSettings(ProviderSettings):
    """The settings of a provider that calls one model of a service with the client of the run."""

    adapter: Adapter
    warnings: tuple[Problem, ...] = attrs.field(default=(), kw_only=True)

    @property
    def ignores_variables(self) -> bool:
        """True: it reads only the prompt."""
        return True

    @property
    def keeps_jobs(self) -> bool:
        """True for an API whose jobs are kept."""
        return self.adapter.keeps_jobs

    @property
    def endpoint(self) -> Endpoint:
        """The model of a service that it calls."""
        return self.adapter.endpoint

    @property
    def lane_key(self) -> str:
        """The lane key of the endpoint."""
        return self.adapter.endpoint.lane_key

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets of the endpoint."""
        return self.adapter.endpoint.secrets

    @property
    def metering(self) -> Metering:
        """The limits in the body that is sent with an empty prompt."""
        endpoint = self.adapter.endpoint
        exact = find_counter(endpoint.model) if endpoint.service.openai_models else None
        price, tier = endpoint.price, self.adapter.requested_tier
        known = Metering(
            count=exact or count_bytes,
            image=image_tokens(endpoint.model),
            price=None if price is None else price.dearest(tier),
            tier=tier,
            is_paid=endpoint.costs_money,
        )
        try:
            empty_one = self.adapter.build(Request(prompt=""))
        except ProviderError:  # impossible without a prompt: then only the prompt is counted
            return known
        sent = empty_one.body or b""
        most = 0 if self.adapter.returns != "text" else longest_reply(json.loads(sent or b"{}"))
        return attrs.evolve(
            known,
            overhead=count_body(sent, known.image),
            longest_reply=GUESSED_REPLY if most is None else most,
            is_bounded=most is not None,
        )

    @asynccontextmanager
    async def open(self, shared: ProviderResources) -> AsyncGenerator[Provider]:
        """Open the adapter with its client."""
        yield self.adapter.connect(await shared.http())


@attrs.frozen
class HttpProvider:
    """A provider that calls a service over HTTP."""

    adapter: Adapter
    _client: HttpClient = attrs.field(repr=False)

    async def __call__(self, request: Request, /) -> Reply:
        """Send one request. A checkpoint, unless the prompt cannot be sent.

        Raises:
            ProviderError: See `Adapter.build`, `Adapter.parse` and `HttpClient.send`; or
                `attempt_timeout`.
        """
        adapter = self.adapter.with_options(request.options)
        most = adapter.endpoint.max_reply_bytes
        ready = attrs.evolve(adapter.ask(request.prompt), max_reply_bytes=most)
        return await self._ask(adapter, ready, request)

    def cache_identity(self, request: Request, /) -> CacheIdentity:
        """Return the request that the adapter sends, which decides the reply whatever the client."""
        adapter = self.adapter.with_options(request.options)
        endpoint = adapter.endpoint
        return CacheIdentity(
            name=f"{endpoint.service.family}:{endpoint.model}",
            service=endpoint.service.family,
            request=adapter.ask(request.prompt),
            account=endpoint.credential,
            reading={"showThinking": adapter.show_thinking},
        )

    async def _ask(self, adapter: Adapter, ready: HttpRequest, request: Request) -> Reply:  # noqa: ARG002
        timeout = adapter.endpoint.timeout
        if not adapter.streams:
            return await read_reply(adapter, await exchange(self._client, ready, timeout))
        started_at = trio.current_time()
        first_at: float | None = None
        events = EventReader()
        most = most_marks(SLOW)

        def has_output(event: ServerEvent) -> bool:
            # Parsing so many values would delay other lanes, and no part of a reply has them.
            return not has_more_marks(event.data.encode(), most) and adapter.has_output(event)

        parts: list[bytes] = []

        def listen(part: bytes) -> None:
            nonlocal first_at
            parts.append(part)
            if first_at is None and any(map(has_output, events.feed(part))):
                first_at = trio.current_time()

        try:
            answer = await exchange(self._client, ready, timeout, on_part=listen)
        except ProviderError as error:
            broken = HttpReply(HTTPStatus.OK, {"content-type": EVENT_STREAM}, b"".join(parts))
            raise await _apart(broken, adapter.billed, error, broken) from error.__cause__
        reply = await read_reply(adapter, answer)
        if first_at is None or answer.status >= HTTPStatus.BAD_REQUEST:
            return reply
        return attrs.evolve(reply, first_token=first_at - started_at)


async def read_reply(adapter: Adapter, reply: HttpReply) -> Reply:
    """Return the reply in an HTTP reply. A checkpoint only if the body is large.

    Raises:
        ProviderError: See `Adapter.parse`.
    """
    return await _apart(reply, adapter.parse, reply)


async def _apart(reply: HttpReply, read: Callable[[*Ts], T], *args: *Ts) -> T:
    """Call a function that reads a reply, in a thread if the body is large."""
    if len(reply.body) < SLOW:
        return read(*args)
    # Abandoned when cancelled: the thread ends by itself.
    return await trio.to_thread.run_sync(read, *args, abandon_on_cancel=True)

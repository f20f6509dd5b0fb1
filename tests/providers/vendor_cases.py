"""The description of one API for the tests of all vendors: its requests, replies and errors."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import pytest

from trioeval.errors import Problem, ProviderError
from trioeval.providers.base import Guardrails, Reply, Request
from trioeval.providers.config import EntryContext, ProviderSettings, Reader
from trioeval.providers.http.adapter import Adapter, AdapterSettings
from trioeval.providers.http.streams import ServerEvent
from trioeval.providers.http.wire import HttpReply
from trioeval.rates.throttle import Allowance, RateHint
from trioeval.templates import Templates

KEY = "sk-1234"
ENVIRON = {
    "OPENAI_API_KEY": KEY,
    "ANTHROPIC_API_KEY": KEY,
    "GEMINI_API_KEY": KEY,
    "HF_TOKEN": KEY,
    "VERTEX_API_KEY": KEY,
    "REPLICATE_API_TOKEN": KEY,
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": KEY,
    "AWS_SECRET_ACCESS_KEY": "aws-secret",
}
HEADERS = {"content-type": "application/json", "x-request-id": "req_1"}
COOKIE = {"set-cookie": "a=b"}
STREAM = {**HEADERS, "content-type": "text/event-stream; charset=utf-8"}
LIMITS = {"x-ratelimit-limit-requests": "50", "x-ratelimit-remaining-requests": "0"}
PRICE = {"input": 1, "output": 5, "cachedInput": 0.5, "cacheWrite": 1.25}
TEMPLATES = Templates()

Data: TypeAlias = Mapping[str, Any]


@attrs.frozen
class Call:
    """Options of a call over the config of an entry."""

    config: Data
    options: Data
    sent: Data
    """The fields beside the prompt."""
    plain: Data = attrs.field(factory=dict)
    """Fields of the next call, which has no options."""


@attrs.frozen
class Refusal:
    """A reply that refuses the prompt or the reply."""

    data: Data
    output: str
    guardrails: Guardrails
    finish_reason: str = "content_filter"
    status: int = 200


@attrs.frozen
class Mistake:
    """A wrong config, and all of its problems."""

    config: Data
    problems: Sequence[Problem]
    environ: Mapping[str, str] = attrs.field(factory=lambda: ENVIRON)
    entry: str | None = None
    """None uses that of the vendor."""


@attrs.frozen
class Streamed:
    """The body of a reply, and the data of its events when it is streamed."""

    whole: Data
    events: Sequence[Any]
    config: Data = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Stream:
    """The streaming of an API."""

    write: Callable[[Sequence[Any]], bytes]
    """Returns the events as bytes; a text is written unchanged."""
    cases: Sequence[Streamed]
    """The first one has the text of `Texts.say`."""
    spare: int = 0
    """The number of events at the end of a stream without which it is complete."""
    errors: Sequence[tuple[Any, str]]
    """Events that end a stream, and their errors."""
    speech: Sequence[tuple[ServerEvent, bool]]
    """Events, and whether they are the first token."""


@attrs.frozen(kw_only=True)
class Texts:
    """The replies of an API that returns text."""

    say: Callable[[str], Data]
    """Returns the body of a reply with this text."""
    think: Callable[[str, str], Data]
    """The body of a reply with reasoning and text."""
    gap: str = "\n\n"
    """The separator between them in the output."""
    called: tuple[Data, Any]
    """A reply with a tool call, and its output."""
    schema: Data | None
    """The config that requests JSON; None if the adapter parses none."""
    stops: Sequence[tuple[Data, str | None]]
    """Replies with their finish reasons."""
    refusals: Sequence[Refusal]
    nothing: Sequence[Data]
    """Complete replies without content."""
    cut: Callable[[Data], Data]
    """Returns the same reply, cut off at its limit."""
    what: str
    """The part that is empty."""
    limit: str
    """The key of the limit."""


@attrs.frozen(kw_only=True)
class Vendor:
    """One API."""

    name: str
    reader: Reader
    entry: str
    url: str
    headers: Mapping[str, str]
    asked: Data
    """The fields of a request with the prompt "Hi"."""
    defaults: Data = attrs.field(factory=dict)
    """The other fields of a request of an entry without config."""
    good: Any
    """The body of a reply: an object, or a list if `lists`."""
    answer: Reply
    """The reply that is read from it, with the cost of `PRICE`; without headers and body."""
    lane: str
    secrets: tuple[str, ...] = (KEY,)
    missing: Problem
    """The problems without any environment variable."""
    fail: Callable[[str], Data] = lambda message: {"error": {"message": message}}
    """Returns the body of an error with a message."""
    errors: Sequence[tuple[int, Data, str]] = ()
    """Statuses and bodies of errors with their kinds, beyond those that all have."""
    limits: tuple[Mapping[str, str], RateHint] = (LIMITS, RateHint(Allowance(50, 0)))
    usage: tuple[str, str] | None
    """The field of the usage, and that of its prompt tokens."""
    sends: Sequence[tuple[Data, Data]] = ()
    """Configs, and the fields beside the prompt."""
    calls: Sequence[Call] = ()
    wrong_options: Sequence[tuple[Data, str]] = ()
    unsendable: Sequence[tuple[str, str]] = ()
    """Prompts that are not sent, with the reasons; empty for an API without messages."""
    strangers: Sequence[tuple[Any, str]] = ()
    """Bodies of a success that are not a valid reply."""
    mistakes: Sequence[Mistake] = ()
    samples: Sequence[Any] = ()
    """More bodies, to be damaged."""
    lists: bool = False
    """True if the body of a reply may be a list."""
    texts: Texts | None = None
    stream: Stream | None = None

    def read(
        self, config: Data, environ: Mapping[str, str] = ENVIRON, entry: str | None = None
    ) -> ProviderSettings | list[Problem]:
        """Return the entry's settings, or its problems."""
        return read_entry(self.reader, entry or self.entry, config, environ)

    def adapter(self, **config: Any) -> Adapter:
        """Return the adapter of an entry with this config."""
        settings = self.read(config)
        assert isinstance(settings, AdapterSettings), settings
        return settings.adapter

    def priced(self, **config: Any) -> Adapter:
        """Return the same with prices, if its calls cost money."""
        return self.adapter(**({} if self.usage is None else {"price": PRICE}), **config)

    def body(self, adapter: Adapter, prompt: str = "Hi", **options: Any) -> Any:
        """Return the body that is sent."""
        return json.loads(adapter.build(Request(prompt=prompt, options=options)).body or b"")

    def limited(self, data: object, status: int = 200) -> HttpReply:
        """Return a reply that reports limits."""
        return attrs.evolve(reply(data, status), headers=self.limits[0])


def read_entry(
    reader: Reader, entry: str, config: Data, environ: Mapping[str, str] = ENVIRON
) -> ProviderSettings | list[Problem]:
    """Return the settings of an id and its config, or their problems."""
    prefix, _, rest = entry.partition(":")
    context = EntryContext(environ=environ, directory=Path(), templates=TEMPLATES)
    return reader(prefix, rest, config, context)


def reply(data: object, status: int = 200) -> HttpReply:
    """Return a JSON reply as it arrives."""
    return HttpReply(status, HEADERS | COOKIE, json.dumps(data).encode())


def parse_failure(adapter: Adapter, answer: HttpReply) -> ProviderError:
    """Return the error for a reply."""
    with pytest.raises(ProviderError) as caught:
        adapter.parse(answer)
    return caught.value


def build_failure(adapter: Adapter, prompt: str, **options: Any) -> str:
    """Return the error for a prompt, or an option, that cannot be sent."""
    with pytest.raises(ProviderError) as caught:
        adapter.build(Request(prompt=prompt, options=options))
    assert caught.value.kind == "bad_request"
    return caught.value.message


def no_key(variables: str) -> Problem:
    """Return the problem of a missing key."""
    hint = (
        f"set {variables} in the environment or in a file given with --env-file, or config.apiKey"
    )
    return Problem(".config.apiKey", "this provider needs an API key", hint)

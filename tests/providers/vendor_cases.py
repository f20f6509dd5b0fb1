"""What the tests of every vendor need to know of one API: how its requests, replies and errors look."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import pytest

from trioeval.errors import Problem, ProviderError
from trioeval.providers.base import Guardrails, Reply, Request
from trioeval.providers.config import Reader, Settings, Surroundings
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
    """A reply by which the prompt or the answer is refused."""

    data: Data
    output: str
    guardrails: Guardrails
    finish_reason: str = "content_filter"
    status: int = 200


@attrs.frozen
class Mistake:
    """A config that is wrong, and everything that is reported of it."""

    config: Data
    problems: Sequence[Problem]
    environ: Mapping[str, str] = attrs.field(factory=lambda: ENVIRON)
    entry: str | None = None
    """None where it is that of the vendor."""


@attrs.frozen
class Streamed:
    """The body of a reply, and the data of the events that it comes as."""

    whole: Data
    events: Sequence[Any]
    config: Data = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Stream:
    """How an API streams."""

    write: Callable[[Sequence[Any]], bytes]
    """The events as bytes; a text is written as it stands."""
    cases: Sequence[Streamed]
    """The first one says what `Texts.say` does."""
    spare: int = 0
    """The number of events at the end of a stream without which it is complete."""
    errors: Sequence[tuple[Any, str]]
    """An event that ends a stream, and the error that it is."""
    speech: Sequence[tuple[ServerEvent, bool]]
    """Whether an event is the first token."""


@attrs.frozen(kw_only=True)
class Texts:
    """How an API that answers in words does so."""

    say: Callable[[str], Data]
    """The body of a reply that says it."""
    think: Callable[[str, str], Data]
    """The body of a reply with a thought and an answer."""
    gap: str = "\n\n"
    """What stands between them in the output."""
    called: tuple[Data, Any]
    """A reply that calls a tool, and its output."""
    schema: Data | None
    """The config that asks for JSON; None where the adapter parses none."""
    stops: Sequence[tuple[Data, str | None]]
    """Replies with their finish reasons."""
    refusals: Sequence[Refusal]
    nothing: Sequence[Data]
    """Replies that ended by themselves and hold nothing."""
    cut: Callable[[Data], Data]
    """The same reply, cut off at its limit."""
    what: str
    """What holds nothing."""
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
    """The fields of a request that are the prompt "Hi"."""
    defaults: Data = attrs.field(factory=dict)
    """The other fields of a request of an entry without config."""
    good: Data
    """The body of a reply."""
    answer: Reply
    """What it is read as, with the cost of `PRICE`; headers and the body itself are the same for all."""
    lane: str
    secrets: tuple[str, ...] = (KEY,)
    missing: Problem
    """What is reported where the environment says nothing."""
    fail: Callable[[str], Data] = lambda message: {"error": {"message": message}}
    """The body of an error with a message."""
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
    """Prompts that are not sent, with the reasons; of an API without messages there are none."""
    strangers: Sequence[tuple[Data, str]] = ()
    """Bodies of a success that are no answer."""
    mistakes: Sequence[Mistake] = ()
    samples: Sequence[Data] = ()
    """More bodies, to be damaged."""
    texts: Texts | None = None
    stream: Stream | None = None

    def read(
        self, config: Data, environ: Mapping[str, str] = ENVIRON, entry: str | None = None
    ) -> Settings | list[Problem]:
        """The entry, or what is wrong with it."""
        return read_entry(self.reader, entry or self.entry, config, environ)

    def adapter(self, **config: Any) -> Adapter:
        """The adapter of an entry with this config."""
        settings = self.read(config)
        assert isinstance(settings, AdapterSettings), settings
        return settings.adapter

    def priced(self, **config: Any) -> Adapter:
        """The same with prices, where its calls cost something."""
        return self.adapter(**({} if self.usage is None else {"price": PRICE}), **config)

    def body(self, adapter: Adapter, prompt: str = "Hi", **options: Any) -> Any:
        """What is sent."""
        return json.loads(adapter.build(Request(prompt=prompt, options=options)).body or b"")

    def limited(self, data: object, status: int = 200) -> HttpReply:
        """A reply that reports limits."""
        return attrs.evolve(reply(data, status), headers=self.limits[0])


def read_entry(
    reader: Reader, entry: str, config: Data, environ: Mapping[str, str] = ENVIRON
) -> Settings | list[Problem]:
    """The settings of an id and its config, or what is wrong with them."""
    prefix, _, rest = entry.partition(":")
    around = Surroundings(environ=environ, directory=Path(), templates=TEMPLATES)
    return reader(prefix, rest, config, around)


def reply(data: object, status: int = 200) -> HttpReply:
    """A reply of JSON, as it arrives."""
    return HttpReply(status, HEADERS | COOKIE, json.dumps(data).encode())


def parse_failure(adapter: Adapter, answer: HttpReply) -> ProviderError:
    """The error that a reply is."""
    with pytest.raises(ProviderError) as caught:
        adapter.parse(answer)
    return caught.value


def build_failure(adapter: Adapter, prompt: str, **options: Any) -> str:
    """Why a prompt, or an option, cannot be sent."""
    with pytest.raises(ProviderError) as caught:
        adapter.build(Request(prompt=prompt, options=options))
    assert caught.value.kind == "bad_request"
    return caught.value.message


def no_key(variables: str) -> Problem:
    """What is reported where a key is missing."""
    hint = (
        f"set {variables} in the environment or in a file given with --env-file, or config.apiKey"
    )
    return Problem(".config.apiKey", "this provider needs an API key", hint)

"""What the fake provider answers: all decisions, no input or output.

The server asks `begin` when a request has arrived, tells `reply` when the last of its reply is about to be
sent, and `end` how that went. Time is an
argument; chance comes from the generator that is passed in.
"""

from random import Random

import attrs

from trioeval.providers.fake.completions import (
    Ask,
    Draft,
    completion_body,
    completion_events,
    error_body,
    read_ask,
)
from trioeval.providers.fake.limits import Excess, Headers, Limits, retry_headers
from trioeval.providers.fake.replies import Planned, Source
from trioeval.providers.fake.settings import FakeSettings
from trioeval.providers.fake.tally import Ending, Tally

SERVER_ERROR = error_body("The server had an error while answering.", "server_error")


@attrs.frozen(kw_only=True)
class Answer:
    """One reply, decided."""

    status: int
    body: bytes = attrs.field(repr=lambda body: f"<{len(body)} bytes>")
    events: tuple[bytes, ...] = attrs.field(default=(), repr=False)
    """The reply as a stream, in place of the body; none if it comes as a whole."""
    headers: Headers = ()
    delay: float = 0.0
    """Seconds until it is sent."""
    is_cut: bool = False
    """Whether the connection is closed after half of the body."""
    is_let_in: bool = False
    """Whether the request keeps the provider busy; a refused one does not."""


@attrs.define(eq=False)
class FakeModel:
    """One fake provider and all that it remembers."""

    settings: FakeSettings
    tally: Tally
    _rng: Random
    _throttling: Random
    """Apart from the other, which a refused request leaves where it is."""
    _limits: Limits
    _source: Source

    @classmethod
    def of(cls, settings: FakeSettings, rng: Random, now: float) -> "FakeModel":
        """A provider that has seen nothing yet."""
        throttling = Random(f"throttling {settings.seed}")  # noqa: S311 - nothing to keep secret
        return cls(
            settings, Tally(now), rng, throttling, Limits.of(settings), Source(settings.replies)
        )

    def reset(self, now: float) -> None:
        """Forget what was seen, taken and replied; what is in flight stays in flight."""
        now_in = self.tally.in_flight
        self.tally = Tally(now, in_flight=now_in, max_in_flight=now_in, busy=self.tally.busy)
        self._limits, self._source = Limits.of(self.settings), Source(self.settings.replies)

    def begin(self, now: float, body: bytes) -> Answer:
        """Decide on a request that has arrived with this body."""
        self.tally.arrive(now)
        ask = read_ask(body)
        if isinstance(ask, str):
            return Answer(status=400, body=error_body(ask, "invalid_request_error"))
        answer = self._refuse(now, ask) or self._answer(now, ask)
        if answer.is_let_in:
            self.tally.let_in()
        return answer

    def reply(self, answer: Answer) -> None:
        """The last part of the reply is about to be sent; may be told, once for every `begin`."""
        if answer.is_let_in:
            self.tally.reply()

    def end(self, now: float, answer: Answer, ending: Ending, *, replied: bool = False) -> None:
        """The reply is over; to be called exactly once for every `begin`.

        Args:
            now: When.
            answer: What was decided.
            ending: How it went.
            replied: Whether `reply` was told.
        """
        if not replied:
            self.reply(answer)
        self.tally.leave(now, status=answer.status, ending=ending, let_in=answer.is_let_in)

    def _refuse(self, now: float, ask: Ask) -> Answer | None:
        """The refusal if a limit is in the way; None if the request has taken its part of all."""
        if self._throttling.random() < self.settings.throttle_rate:
            return _refusal("Too many requests.", "requests", ())
        limit = self.settings.max_in_flight
        if limit is not None and self.tally.busy >= limit:
            text = f"Too many requests at once: the limit is {limit}."
            return _refusal(text, "requests", self._limits.headers(now))
        content = self._source.find(ask).content
        tokens = content.tokens if isinstance(content, Draft) else ask.tokens
        excess = self._limits.take(now, tokens)
        if excess is None:
            return None
        hints = self.settings.hints
        headers = retry_headers(excess.wait, hints) + self._limits.headers(now)
        text = _excess_text(ask, excess)
        if hints == "all":
            text += f" Please try again in {excess.wait:.3f}s."
        return _refusal(text, excess.dimension, headers)

    def _answer(self, now: float, ask: Ask) -> Answer:
        # Drawn for every request alike, so that one setting does not shift the draws of another.
        swing, failure, cut = self._rng.random(), self._rng.random(), self._rng.random()
        if failure < self.settings.failure_rate:
            planned = Planned(content=SERVER_ERROR, status=500)
        else:
            planned = self._source.find(ask)
            self._source.advance(ask)
        content, latency = planned.content, planned.latency
        events: tuple[bytes, ...] = ()
        number = self.tally.requests
        if isinstance(content, Draft) and ask.streams:
            events = completion_events(ask, content, number=number, now=now)
            content = b""
        elif isinstance(content, Draft):
            content = completion_body(ask, content, number=number, now=now)
        if latency is None:
            latency = self.settings.latency_s
        if self.settings.slow_from is not None:
            latency *= max(1.0, (self.tally.busy + 1) / self.settings.slow_from)
        return Answer(
            status=planned.status,
            body=content,
            events=events,
            headers=self._limits.headers(now),
            delay=latency * (1 + self.settings.jitter * (2 * swing - 1)),
            is_cut=planned.is_cut or cut < self.settings.disconnect_rate,
            is_let_in=True,
        )


def _refusal(text: str, kind: str, headers: Headers) -> Answer:
    return Answer(status=429, body=error_body(text, kind, "rate_limit_exceeded"), headers=headers)


def _excess_text(ask: Ask, excess: Excess) -> str:
    return f"Rate limit reached for {ask.model} on {excess.dimension}: the limit is {excess.limit}."

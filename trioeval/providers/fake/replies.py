"""The replies of the fake provider, and its decisions; looking up a reply does not consume it."""

import json
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any, Literal, TypeAlias, assert_never

import attrs

from trioeval.errors import ProviderErrorKind
from trioeval.providers.base import ToolCall
from trioeval.providers.fake.limits import ExceededLimit, Headers, Limits, retry_headers
from trioeval.providers.fake.media import Videos, images_json, speech
from trioeval.providers.fake.requests import (
    CHARACTERS_PER_TOKEN,
    ModelRequest,
    RequestKind,
    count_tokens,
    read_request,
)
from trioeval.providers.fake.settings import (
    EchoReplies,
    FakeSettings,
    FillerReplies,
    GarbageReplies,
    RecordedReplies,
    Replies,
    ScriptedReplies,
)
from trioeval.providers.local.recordings import RecordedError, Recording, RecordingRequest, Tape
from trioeval.usage import Usage

# Statistics of the fake provider, shown at `/stats`.


KEPT_STARTS = 100_000
"""Maximum number of stored request times; later requests are only counted."""

Ending: TypeAlias = Literal["sent", "cut", "abandoned"]
"""A reply was sent completely, cut by the fake, or abandoned by its client."""


@attrs.define(eq=False, repr=False)
class FakeStatistics:
    """Counts since the start or the last reset.

    Every request ends in exactly one way: `requests` is the sum of `by_status`, `disconnects`,
    `abandoned` and the unfinished requests.
    """

    opened_at: float
    """The reference of all times."""
    requests: int = 0
    in_flight: int = 0
    """Admitted requests that are not finished; refused requests are not counted."""
    busy: int = 0
    """Those of them whose reply is not ready yet. A client may receive a reply, and send the next request,
    before the server notices that the first is finished."""
    max_in_flight: int = 0
    disconnects: int = 0
    abandoned: int = 0
    last_reply_at: float | None = None
    _statuses: Counter[int] = attrs.field(factory=Counter)
    _started_at: list[float] = attrs.field(factory=list)

    def arrive(self, now: float) -> None:
        """Count a request that has arrived."""
        self.requests += 1
        if len(self._started_at) < KEPT_STARTS:
            self._started_at.append(now - self.opened_at)

    def let_in(self) -> None:
        """Count a request as in flight and busy."""
        self.in_flight += 1
        self.busy += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)

    def reply(self) -> None:
        """Count an admitted request as no longer busy; once for each."""
        self.busy -= 1

    def leave(self, now: float, *, status: int, ending: Ending, let_in: bool) -> None:
        """Count a request as finished.

        Args:
            now: The current time.
            status: The status that was decided for it.
            ending: How it ended; a status counts only if it was sent.
            let_in: Whether it was in flight.
        """
        if let_in:
            self.in_flight -= 1
        match ending:
            case "sent":
                self._statuses[status] += 1
                self.last_reply_at = now - self.opened_at
            case "cut":
                self.disconnects += 1
            case "abandoned":
                self.abandoned += 1
            case _:
                assert_never(ending)

    def to_json(self) -> dict[str, Any]:
        """Return a snapshot; times are seconds since the start or the last reset."""
        return {
            "requests": self.requests,
            "ok": self._statuses[200],
            "by_status": {str(status): self._statuses[status] for status in sorted(self._statuses)},
            "in_flight": self.in_flight,
            "max_in_flight": self.max_in_flight,
            "disconnects": self.disconnects,
            "abandoned": self.abandoned,
            "first_request_at": self._started_at[0] if self._started_at else None,
            "last_reply_at": self.last_reply_at,
            "started_at": list(self._started_at),
        }


# The bodies of replies. Pure.


@attrs.frozen(kw_only=True)
class Completion:
    """A completion with known token counts whose body is not written yet."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    finish_reason: str = "stop"
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None
    refusal: str | None = None

    @property
    def tokens(self) -> int:
        """Total tokens of prompt and completion."""
        return self.prompt_tokens + self.completion_tokens


def draft(
    ask: ModelRequest, content: Any, usage: Usage | None = None, finish_reason: str | None = None
) -> Completion:
    """Return a completion with its token counts.

    Args:
        ask: The request.
        content: Text; any other JSON value is sent as its JSON text.
        usage: Known counts; the others are estimated from the characters.
        finish_reason: None means `stop`.
    """
    text = content if isinstance(content, str) else json.dumps(content)
    known = Usage() if usage is None else usage
    return Completion(
        text=text,
        prompt_tokens=ask.tokens if known.prompt is None else known.prompt,
        completion_tokens=count_tokens(text) if known.completion is None else known.completion,
        cached_tokens=known.cached or 0,
        reasoning_tokens=known.reasoning or 0,
        finish_reason=finish_reason or "stop",
    )


def completion_body(ask: ModelRequest, draft: Completion, *, number: int, now: float) -> bytes:
    """Return the body of a chat completion.

    Args:
        ask: The request.
        draft: The completion.
        number: Number of the request, for the id.
        now: Seconds, for `created`.
    """
    has_text = draft.text or not (draft.tool_calls or draft.refusal)
    content = draft.text if has_text else None
    message = {"role": "assistant", "content": content, "refusal": None, **_parts(draft)}
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": draft.finish_reason,
    }
    head = _head("chat.completion", ask, number=number, now=now)
    return to_json({**head, "choices": [choice], "usage": _usage(draft)})


def completion_events(
    ask: ModelRequest, draft: Completion, *, number: int, now: float
) -> tuple[bytes, ...]:
    """Return the completion as a stream: one event for each token of the text, and the final ones.

    Args:
        ask: The request.
        draft: The completion.
        number: Number of the request, for the id.
        now: Seconds, for `created`.
    """
    head = _head("chat.completion.chunk", ask, number=number, now=now)
    texts = [
        draft.text[start : start + CHARACTERS_PER_TOKEN]
        for start in range(0, len(draft.text), CHARACTERS_PER_TOKEN)
    ]
    parts = _parts(draft)
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": parts.pop("reasoning_content")}] if draft.reasoning else []
    deltas += [{"content": text} for text in texts]
    calls = enumerate(parts.pop("tool_calls", ()))
    deltas += [parts] if parts else []
    deltas += [{"tool_calls": [{"index": place, **one}]} for place, one in calls]
    chunks: list[dict[str, Any]] = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in deltas
    ]
    ending = {"index": 0, "delta": {}, "finish_reason": draft.finish_reason}
    chunks.append({**head, "choices": [ending]})
    if ask.with_usage:
        chunks.append({**head, "choices": [], "usage": _usage(draft)})
    return (*(b"data: " + to_json(chunk) + b"\n\n" for chunk in chunks), b"data: [DONE]\n\n")


def _parts(draft: Completion) -> dict[str, Any]:
    """Return the members of a message beside its text; each tool call needs an id there."""
    found: dict[str, Any] = {}
    if draft.reasoning:
        found["reasoning_content"] = draft.reasoning
    if draft.refusal is not None:
        found["refusal"] = draft.refusal
    if draft.tool_calls:
        calls = enumerate(draft.tool_calls, 1)
        found["tool_calls"] = [{"id": f"call_{place}", **one.to_chat()} for place, one in calls]
    return found


def _recorded_completion(ask: ModelRequest, take: Recording) -> Completion:
    """Return the completion of a recording; its parts are sent in their places of chat completions."""
    reply = take.reply()
    has_parts = bool(reply.tool_calls or reply.reasoning or reply.is_refusal)
    found = draft(ask, reply.text if has_parts else take.output, take.usage, take.finish_reason)
    if not has_parts:
        return found
    reason = take.finish_reason or ("tool_calls" if reply.tool_calls else "stop")
    return attrs.evolve(
        found,
        text="" if reply.refusal == found.text else found.text,
        finish_reason=reason,
        tool_calls=reply.tool_calls,
        reasoning=reply.reasoning,
        refusal=reply.refusal,
    )


def error_body(message: str, kind: str, code: str | None = None) -> bytes:
    """Return an error in the form of the chat completions endpoint."""
    return to_json({"error": {"message": message, "type": kind, "param": None, "code": code}})


def to_json(value: Any) -> bytes:
    """Return JSON without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


def _head(kind: str, ask: ModelRequest, *, number: int, now: float) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-fake{number:08d}",
        "object": kind,
        "created": int(now),
        "model": ask.model,
    }


def _usage(draft: Completion) -> dict[str, Any]:
    return {
        "prompt_tokens": draft.prompt_tokens,
        "completion_tokens": draft.completion_tokens,
        "total_tokens": draft.tokens,
        "prompt_tokens_details": {"cached_tokens": draft.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": draft.reasoning_tokens},
    }


STATUS_BY_KIND: Mapping[ProviderErrorKind, int] = {
    "auth": 401,
    "permission": 403,
    "not_found": 404,
    "unsupported": 501,
    "bad_request": 400,
    "context_window": 413,
    "rate_limited": 429,
    "overloaded": 529,
    "quota_exhausted": 402,
}
"""Statuses of recorded errors. `connection` and `tls` cut the connection; all others are 500."""

GARBAGE = {
    "invalid_utf8": b'{"choices":[{"message":{"role":"assistant","content":"\xff\xfe"}}]}',
    "not_json": b"<html><body>It works!</body></html>",
}


@attrs.frozen(kw_only=True)
class PlannedReply:
    """The reply for a request if it is admitted."""

    content: Completion | bytes
    """A completion, or a raw body."""
    status: int = 200
    latency: float | None = None
    """Seconds; None uses the provider's own latency."""
    is_cut: bool = False


@attrs.define(eq=False, repr=False)
class ConfiguredReplies:
    """The configured replies, and the position in them."""

    _replies: Replies
    _tape: Tape = attrs.field(init=False)
    _used: int = attrs.field(init=False, default=0)

    @_tape.default
    def _new_tape(self) -> Tape:
        return Tape(self._replies.recordings if isinstance(self._replies, RecordedReplies) else ())

    def find(self, ask: ModelRequest) -> PlannedReply:
        """Return the current reply for the request, without consuming it."""
        match self._replies:
            case EchoReplies():
                return PlannedReply(content=draft(ask, ask.prompt))
            case ScriptedReplies(texts):
                return PlannedReply(content=draft(ask, texts[min(self._used, len(texts) - 1)]))
            case FillerReplies(reply_bytes):
                return PlannedReply(content=draft(ask, "x" * reply_bytes))
            case GarbageReplies(kind):
                return PlannedReply(content=GARBAGE[kind])
            case RecordedReplies():
                return _planned(ask, self._tape.find(RecordingRequest(ask.prompt, ask.model)))
            case _:
                assert_never(self._replies)

    def advance(self, ask: ModelRequest) -> None:
        """Consume the reply that `find` returned."""
        self._used += 1
        self._tape.advance(RecordingRequest(ask.prompt, ask.model))


def _planned(ask: ModelRequest, take: Recording | None) -> PlannedReply:
    if take is None or "output" in take.left_out:
        text = "This message was not recorded."
        return PlannedReply(
            status=404, content=error_body(text, "invalid_request_error", "recording_not_found")
        )
    latency = None if take.latency_ms is None else take.latency_ms / 1000
    if take.error is None:
        return PlannedReply(content=_recorded_completion(ask, take), latency=latency)
    return PlannedReply(
        status=STATUS_BY_KIND.get(take.error.kind, 500),
        content=_recorded_error(take.error),
        latency=latency,
        is_cut=take.error.kind in ("connection", "tls"),
    )


def _recorded_error(error: RecordedError) -> bytes:
    code = "rate_limit_exceeded" if error.kind == "rate_limited" else error.kind
    return error_body(error.message, error.kind, code)


# The decisions of the fake provider, without input and output.
#
# The server calls `begin` when a request has arrived, `reply` when the end of its reply is about to be sent,
# and `end` when it is finished. Time is an argument; random numbers come from the generator that is passed
# in.


SERVER_ERROR = error_body("The server had an error while answering.", "server_error")


@attrs.frozen(kw_only=True)
class FakeReply:
    """A decided reply."""

    status: int
    body: bytes = attrs.field(repr=lambda body: f"<{len(body)} bytes>")
    content_type: str = "application/json"
    events: tuple[bytes, ...] = attrs.field(default=(), repr=False)
    """The reply as a stream, instead of the body; empty if it is not streamed."""
    headers: Headers = ()
    delay: float = 0.0
    """Seconds until it is sent."""
    is_cut: bool = False
    """True if the connection is closed after half of the body."""
    is_let_in: bool = False
    """True if the request was admitted; a refused one does not keep the provider busy."""


@attrs.define(eq=False, repr=False)
class FakeModel:
    """One fake provider and its state."""

    settings: FakeSettings
    statistics: FakeStatistics
    _rng: Random
    _throttling: Random
    """A separate generator, so that refused requests do not advance the other one."""
    _limits: Limits
    _source: ConfiguredReplies
    videos: Videos = attrs.field(init=False, factory=Videos)

    @classmethod
    def of(cls, settings: FakeSettings, rng: Random, now: float) -> "FakeModel":
        """Return a provider without any requests."""
        throttling = Random(f"throttling {settings.seed}")  # noqa: S311 - nothing to keep secret
        return cls(
            settings,
            FakeStatistics(now),
            rng,
            throttling,
            Limits.of(settings),
            ConfiguredReplies(settings.replies),
        )

    def reset(self, now: float) -> None:
        """Reset statistics, limits and replies; requests in flight stay in flight."""
        now_in = self.statistics.in_flight
        self.statistics = FakeStatistics(
            now, in_flight=now_in, max_in_flight=now_in, busy=self.statistics.busy
        )
        self._limits, self._source = (
            Limits.of(self.settings),
            ConfiguredReplies(self.settings.replies),
        )

    def begin(
        self, now: float, body: bytes, kind: RequestKind = "chat", model: str = ""
    ) -> FakeReply:
        """Decide on a request that has arrived.

        Args:
            now: The current time.
            body: Its body.
            kind: The API.
            model: The model in its path.
        """
        self.statistics.arrive(now)
        ask = read_request(kind, body, model)
        if isinstance(ask, str):
            return FakeReply(status=400, body=error_body(ask, "invalid_request_error"))
        answer = self._refuse(now, ask) or self._answer(now, ask)
        if answer.is_let_in:
            self.statistics.let_in()
        return answer

    def reply(self, answer: FakeReply) -> None:
        """Report that the end of the reply is about to be sent; optional, at most once for every `begin`."""
        if answer.is_let_in:
            self.statistics.reply()

    def end(self, now: float, answer: FakeReply, ending: Ending, *, replied: bool = False) -> None:
        """Report that the reply is finished; must be called exactly once for every `begin`.

        Args:
            now: The current time.
            answer: The decided reply.
            ending: How it ended.
            replied: Whether `reply` was called.
        """
        if not replied:
            self.reply(answer)
        self.statistics.leave(now, status=answer.status, ending=ending, let_in=answer.is_let_in)

    def _refuse(self, now: float, ask: ModelRequest) -> FakeReply | None:
        """Return a refusal if a limit is exceeded; None if the request was admitted by all limits."""
        if self._throttling.random() < self.settings.throttle_rate:
            return _refusal("Too many requests.", "requests", ())
        limit = self.settings.max_in_flight
        if limit is not None and self.statistics.busy >= limit:
            text = f"Too many requests at once: the limit is {limit}."
            return _refusal(text, "requests", self._limits.headers(now))
        content = self._source.find(ask).content
        tokens = content.tokens if isinstance(content, Completion) else ask.tokens
        excess = self._limits.take(now, tokens)
        if excess is None:
            return None
        hints = self.settings.hints
        headers = retry_headers(excess.wait, hints) + self._limits.headers(now)
        text = _excess_text(ask, excess)
        if hints == "all":
            text += f" Please try again in {excess.wait:.3f}s."
        return _refusal(text, excess.dimension, headers)

    def _answer(self, now: float, ask: ModelRequest) -> FakeReply:
        # Drawn for every request, so that one setting does not shift the random numbers of another.
        swing, failure, cut = self._rng.random(), self._rng.random(), self._rng.random()
        if failure < self.settings.failure_rate:
            planned = PlannedReply(content=SERVER_ERROR, status=500)
        else:
            planned = self._source.find(ask)
            self._source.advance(ask)
        content, latency = planned.content, planned.latency
        events: tuple[bytes, ...] = ()
        number, content_type = self.statistics.requests, "application/json"
        if isinstance(content, Completion) and ask.streams:
            events = completion_events(ask, content, number=number, now=now)
            content = b""
        elif isinstance(content, Completion) and ask.kind == "speech":
            content, content_type = speech(content.text, ask.fields.get("response_format"))
        elif isinstance(content, Completion):
            content = self._body(ask, content, now)
        if latency is None:
            latency = self.settings.latency_s
        if self.settings.slow_from is not None:
            latency *= max(1.0, (self.statistics.busy + 1) / self.settings.slow_from)
        return FakeReply(
            status=planned.status,
            body=content,
            content_type=content_type,
            events=events,
            headers=self._limits.headers(now),
            delay=latency * (1 + self.settings.jitter * (2 * swing - 1)),
            is_cut=planned.is_cut or cut < self.settings.disconnect_rate,
            is_let_in=True,
        )

    def _body(self, ask: ModelRequest, draft: Completion, now: float) -> bytes:
        """Return the JSON body of a reply."""
        number = self.statistics.requests
        match ask.kind:
            case "images":
                return to_json(images_json(draft.text, ask.images, _usage(draft), now=now))
            case "video" | "operation":
                return to_json(self.videos.create(ask, draft.text, number))
            case _:
                return completion_body(ask, draft, number=number, now=now)


def _refusal(text: str, kind: str, headers: Headers) -> FakeReply:
    return FakeReply(
        status=429, body=error_body(text, kind, "rate_limit_exceeded"), headers=headers
    )


def _excess_text(ask: ModelRequest, excess: ExceededLimit) -> str:
    return f"Rate limit reached for {ask.model} on {excess.dimension}: the limit is {excess.limit}."

"""Where the fake provider's replies come from: looking one up takes nothing, advancing does."""

from collections.abc import Mapping
from typing import assert_never

import attrs

from trioeval.faults import ProviderErrorKind
from trioeval.providers.fake.completions import Ask, Draft, draft, error_body
from trioeval.providers.fake.settings import (
    EchoReplies,
    FillerReplies,
    GarbageReplies,
    RecordedReplies,
    Replies,
    ScriptedReplies,
)
from trioeval.providers.local.recordings import RecordedError, Recording
from trioeval.providers.local.tape import Tape, Wanted

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
"""How a recorded error is answered. `connection` and `tls` are a cut; all others are 500."""

GARBAGE = {
    "invalid_utf8": b'{"choices":[{"message":{"role":"assistant","content":"\xff\xfe"}}]}',
    "not_json": b"<html><body>It works!</body></html>",
}


@attrs.frozen(kw_only=True)
class Planned:
    """What a request gets if it is let in."""

    content: Draft | bytes
    """A completion, or a body as it is."""
    status: int = 200
    latency: float | None = None
    """Seconds; None takes the provider's own."""
    is_cut: bool = False


@attrs.define(eq=False)
class Source:
    """The replies, and how far they were used up."""

    _replies: Replies
    _tape: Tape = attrs.field(init=False)
    _used: int = attrs.field(init=False, default=0)

    @_tape.default
    def _new_tape(self) -> Tape:
        return Tape(self._replies.recordings if isinstance(self._replies, RecordedReplies) else ())

    def find(self, ask: Ask) -> Planned:
        """What the request would get now. Looking again gives the same."""
        match self._replies:
            case EchoReplies():
                return Planned(content=draft(ask, ask.prompt))
            case ScriptedReplies(texts):
                return Planned(content=draft(ask, texts[min(self._used, len(texts) - 1)]))
            case FillerReplies(reply_bytes):
                return Planned(content=draft(ask, "x" * reply_bytes))
            case GarbageReplies(kind):
                return Planned(content=GARBAGE[kind])
            case RecordedReplies():
                return _planned(ask, self._tape.find(Wanted(ask.prompt, ask.model)))
            case _:
                assert_never(self._replies)

    def advance(self, ask: Ask) -> None:
        """The request got what `find` gave."""
        self._used += 1
        self._tape.advance(Wanted(ask.prompt, ask.model))


def _planned(ask: Ask, take: Recording | None) -> Planned:
    if take is None or "output" in take.left_out:
        text = "This message was not recorded."
        return Planned(
            status=404, content=error_body(text, "invalid_request_error", "recording_not_found")
        )
    latency = None if take.latency_ms is None else take.latency_ms / 1000
    if take.error is None:
        content = draft(ask, take.output, take.usage, take.finish_reason)
        return Planned(content=content, latency=latency)
    return Planned(
        status=STATUS_BY_KIND.get(take.error.kind, 500),
        content=_recorded_error(take.error),
        latency=latency,
        is_cut=take.error.kind in ("connection", "tls"),
    )


def _recorded_error(error: RecordedError) -> bytes:
    code = "rate_limit_exceeded" if error.kind == "rate_limited" else error.kind
    return error_body(error.message, error.kind, code)

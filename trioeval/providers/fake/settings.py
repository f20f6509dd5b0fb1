"""The configuration of the fake provider: its replies, its limits and its faults."""

import math
from typing import Literal, TypeAlias, get_args

import attrs

from trioeval.errors import UsageError
from trioeval.providers.local.recordings import Recording


@attrs.frozen
class EchoReplies:
    """Replies with the last user message."""


@attrs.frozen
class ScriptedReplies:
    """Replies with these texts in the order of the requests; the last one is repeated."""

    texts: tuple[str, ...] = attrs.field()

    @texts.validator
    def _check(self, _field: "attrs.Attribute[tuple[str, ...]]", value: tuple[str, ...]) -> None:
        if not value:
            raise UsageError("scripted replies must have at least one text")


@attrs.frozen
class RecordedReplies:
    """Replies from recordings, found by model and last user message, after the recorded time.

    A recorded error is returned with the status of such an error, or by cutting the connection. A message
    without a recording gets a 404.
    """

    recordings: tuple[Recording, ...] = attrs.field(repr=False)


@attrs.frozen
class FillerReplies:
    """Replies with a text of a fixed size."""

    reply_bytes: int = attrs.field()
    """≥ 0."""

    @reply_bytes.validator
    def _check(self, _field: "attrs.Attribute[int]", value: int) -> None:
        _require("reply_bytes", value, "at least 0", fits=value >= 0)


@attrs.frozen
class GarbageReplies:
    """Replies with status 200 and a body that no client should accept."""

    kind: Literal["invalid_utf8", "not_json"]


Replies: TypeAlias = (
    EchoReplies | ScriptedReplies | RecordedReplies | FillerReplies | GarbageReplies
)

Hints: TypeAlias = Literal["all", "limits", "retry_after", "none"]
"""The limits that replies report: everything; only the remaining amounts (`x-ratelimit-…`); only whole
seconds to wait (`retry-after`); nothing, so that a refusal is a bare 429."""


@attrs.frozen(kw_only=True)
class FakeSettings:
    """One fake provider.

    Raises:
        UsageError: A value is out of its range.

    Example:
        >>> FakeSettings(latency_s=0.05, rpm=1200).max_in_flight is None
        True
    """

    host: str = "127.0.0.1"
    port: int = attrs.field(default=0)
    """0 uses a free port."""
    replies: Replies = attrs.field(factory=EchoReplies)
    latency_s: float = attrs.field(default=0.0)
    """Seconds from a request to its reply, ≥ 0; refusals are immediate."""
    jitter: float = attrs.field(default=0.0)
    """Share of the latency, 0 to 1, by which it varies evenly in both directions."""
    rpm: int | None = attrs.field(default=None)
    """Maximum requests in any window, ≥ 1; None for no limit."""
    burst: int | None = attrs.field(default=None)
    """Size of the bucket, ≥ 1, that `rpm` fills evenly; without it `rpm` is a rolling window."""
    tpm: int | None = attrs.field(default=None)
    """Maximum tokens of prompts and replies in any window, ≥ 1; None for no limit."""
    window_s: float = attrs.field(default=60.0)
    """Length of the rolling window of `rpm` and `tpm` in seconds, > 0."""
    max_body_bytes: int = attrs.field(default=64 * 1024 * 1024)
    """Maximum size of a request body, ≥ 1; larger ones get a 413."""
    max_in_flight: int | None = attrs.field(default=None)
    """Maximum concurrent requests, ≥ 1; None for no limit."""
    slow_from: int | None = attrs.field(default=None)
    """Number of concurrent requests, ≥ 1, above which the latency grows in proportion, as on a server with a
    fixed number of workers; None for a constant latency."""
    hints: Hints = attrs.field(default="all")
    throttle_rate: float = attrs.field(default=0.0)
    """Share of requests refused with a bare 429 whatever the limits are, 0 to 1."""
    failure_rate: float = attrs.field(default=0.0)
    """Share of requests that get a 500, 0 to 1."""
    disconnect_rate: float = attrs.field(default=0.0)
    """Share of requests whose reply is cut in the middle, 0 to 1."""
    seed: int = 0
    """Seed of jitter and faults: equal seeds and equal requests give equal replies."""

    @port.validator
    def _check_port(self, _field: "attrs.Attribute[int]", value: int) -> None:
        _require("port", value, "between 0 and 65535", fits=0 <= value <= _MAX_PORT)

    @latency_s.validator
    def _check_latency(self, _field: "attrs.Attribute[float]", value: float) -> None:
        _require("latency_s", value, "at least 0 and finite", fits=0 <= value < math.inf)

    @window_s.validator
    def _check_window(self, _field: "attrs.Attribute[float]", value: float) -> None:
        _require("window_s", value, "more than 0 and finite", fits=0 < value < math.inf)

    @jitter.validator
    @throttle_rate.validator
    @failure_rate.validator
    @disconnect_rate.validator
    def _check_share(self, field: "attrs.Attribute[float]", value: float) -> None:
        _require(field.name, value, "between 0 and 1", fits=0 <= value <= 1)

    @rpm.validator
    @tpm.validator
    @max_body_bytes.validator
    @max_in_flight.validator
    @slow_from.validator
    @burst.validator
    def _check_limit(self, field: "attrs.Attribute[int | None]", value: int | None) -> None:
        _require(field.name, value, "at least 1", fits=value is None or value >= 1)

    @burst.validator
    def _check_burst(self, _field: "attrs.Attribute[int | None]", value: int | None) -> None:
        _require("burst", value, "omitted without rpm", fits=value is None or self.rpm is not None)

    @hints.validator
    def _check_hints(self, _field: "attrs.Attribute[Hints]", value: Hints) -> None:
        known = get_args(Hints)
        _require("hints", value, f"one of {', '.join(known)}", fits=value in known)


_MAX_PORT = 65535


def _require(name: str, value: object, right: str, *, fits: bool) -> None:
    if not fits:
        raise UsageError(f"{name} must be {right}, got {value!r}")

"""The rate limits of the fake provider: whether a request fits, and what its headers say."""

import math
from typing import assert_never

import attrs

from trioeval.providers.fake.settings import FakeSettings, Hints
from trioeval.providers.fake.window import Bucket, Limit, RollingWindow

Headers = tuple[tuple[str, str], ...]


@attrs.frozen
class Excess:
    """A limit that a request would break."""

    dimension: str
    """`requests` or `tokens`, as the error's type says it."""
    limit: int
    wait: float
    """Seconds until it would fit."""


@attrs.frozen
class Limits:
    """Requests and tokens in any window. Refused requests use nothing of either."""

    _limits: dict[str, Limit]
    """By dimension; a dimension without a limit is absent."""
    _hints: Hints

    @classmethod
    def of(cls, settings: FakeSettings) -> "Limits":
        """Limits that nothing has been taken from."""
        limits: dict[str, Limit] = {}
        if settings.rpm is not None and settings.burst is not None:
            limits["requests"] = Bucket(settings.rpm, settings.window_s, settings.burst)
        elif settings.rpm is not None:
            limits["requests"] = RollingWindow(settings.rpm, settings.window_s)
        if settings.tpm is not None:
            limits["tokens"] = RollingWindow(settings.tpm, settings.window_s)
        return cls(limits, settings.hints)

    def take(self, now: float, tokens: int) -> Excess | None:
        """Take one request and its tokens; or nothing, and say which limit is in the way."""
        amounts = {"requests": 1, "tokens": tokens}
        for dimension, limit in self._limits.items():
            wait = limit.wait(now, amounts[dimension])
            if wait > 0:
                return Excess(dimension, limit.limit, wait)
        for dimension, limit in self._limits.items():
            limit.take(now, amounts[dimension])
        return None

    def headers(self, now: float) -> Headers:
        """What a reply tells of the limits."""
        if self._hints not in ("all", "limits"):
            return ()
        return tuple(
            header
            for dimension, limit in self._limits.items()
            for header in (
                (f"x-ratelimit-limit-{dimension}", str(limit.limit)),
                (f"x-ratelimit-remaining-{dimension}", str(limit.remaining(now))),
                (f"x-ratelimit-reset-{dimension}", format_duration(limit.until_empty(now))),
            )
        )


def retry_headers(wait: float, hints: Hints = "all") -> Headers:
    """A wait, rounded up, in the spellings that the server knows."""
    seconds = ("retry-after", str(math.ceil(wait)))
    match hints:
        case "all":
            return seconds, ("retry-after-ms", str(math.ceil(wait * 1000)))
        case "retry_after":
            return (seconds,)
        case "limits" | "none":
            return ()
        case _:
            assert_never(hints)


def format_duration(seconds: float) -> str:
    """A duration as rate limit headers write it: `12ms`, `1.5s`, `6m0s`; rounded up to 1 ms."""
    milliseconds = math.ceil(seconds * 1000)
    if milliseconds < 1000:  # noqa: PLR2004 - of a second
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes}m{rest / 1000:g}s" if minutes else f"{rest / 1000:g}s"

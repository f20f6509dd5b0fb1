"""The rate limits of the fake provider: whether a request fits, and what its headers say."""

import math

import attrs

from trioeval.providers.fake.settings import FakeSettings
from trioeval.providers.fake.window import RollingWindow

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

    _windows: dict[str, RollingWindow]
    """By dimension; a dimension without a limit is absent."""

    @classmethod
    def of(cls, settings: FakeSettings) -> "Limits":
        """Limits that nothing has been taken from."""
        limits = {"requests": settings.rpm, "tokens": settings.tpm}
        return cls(
            {
                dimension: RollingWindow(limit, settings.window_s)
                for dimension, limit in limits.items()
                if limit is not None
            }
        )

    def take(self, now: float, tokens: int) -> Excess | None:
        """Take one request and its tokens; or nothing, and say which limit is in the way."""
        amounts = {"requests": 1, "tokens": tokens}
        for dimension, window in self._windows.items():
            wait = window.wait(now, amounts[dimension])
            if wait > 0:
                return Excess(dimension, window.limit, wait)
        for dimension, window in self._windows.items():
            window.take(now, amounts[dimension])
        return None

    def headers(self, now: float) -> Headers:
        """What a reply tells of the limits."""
        return tuple(
            header
            for dimension, window in self._windows.items()
            for header in (
                (f"x-ratelimit-limit-{dimension}", str(window.limit)),
                (f"x-ratelimit-remaining-{dimension}", str(window.remaining(now))),
                (f"x-ratelimit-reset-{dimension}", format_duration(window.until_empty(now))),
            )
        )


def retry_headers(wait: float) -> Headers:
    """A wait, rounded up, in both spellings."""
    return (
        ("retry-after", str(math.ceil(wait))),
        ("retry-after-ms", str(math.ceil(wait * 1000))),
    )


def format_duration(seconds: float) -> str:
    """A duration as rate limit headers write it: `12ms`, `1.5s`, `6m0s`; rounded up to 1 ms."""
    milliseconds = math.ceil(seconds * 1000)
    if milliseconds < 1000:  # noqa: PLR2004 - of a second
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes}m{rest / 1000:g}s" if minutes else f"{rest / 1000:g}s"

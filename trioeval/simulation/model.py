"""The model of a provider: its calls, its limits and its faults. Pure.

A provider is a sorted sample of calls, each with its latency, tokens and cost, from which every simulated
call draws one; so dependences, as between the length of a reply and its latency, are kept. What a call draws
depends on the seed, the row and the number of the call within the row, and on nothing else: a row has the
same calls whatever the lanes do, so two simulations differ by their settings only.

The limits are those of a server: it counts requests and tokens and refuses the excess. The arithmetic is that
of the fake provider, which shares none with the lanes.
"""

import functools
import math
import re
from collections.abc import Sequence
from statistics import NormalDist

import attrs

from trioeval.errors import CallError, Fault, UsageError
from trioeval.providers.fake.limits import Limit, RollingWindow, TokenBucket
from trioeval.rates import Allowance, RateHint

_QUANTILES = 1000
"""Size of the sample that is made from a mean and a deviation."""
_NUMBER = r"\d+(?:\.\d+)?"
_SPREAD = re.compile(rf"({_NUMBER})(?:\s*(?:±|\+-|\+/-)\s*({_NUMBER}))?", re.ASCII)
_MASK = (1 << 64) - 1
_HALF = 1 << 32
_LOW = _HALF - 1
_BLOCK = 64
"""Rows whose calls are spread evenly over the sample; a power of 2."""


@attrs.frozen
class Spread:
    """A mean and a standard deviation."""

    mean: float
    deviation: float = 0.0

    @classmethod
    def read(cls, text: str, flag: str) -> "Spread":
        """Read a number such as `0.8`, or `0.8±0.3`; `+-` may replace the sign.

        Raises:
            UsageError: The text is not such a number.

        Example:
            >>> Spread.read("0.8±0.3", "--latency")
            Spread(mean=0.8, deviation=0.3)
        """
        found = _SPREAD.fullmatch(text.strip())
        if found is None:
            raise UsageError(f"{flag} must be a number such as 0.8 or 0.8±0.3, got {text!r}")
        return cls(float(found[1]), float(found[2] or 0))

    def sample(self, size: int = _QUANTILES) -> tuple[float, ...]:
        """Return evenly spaced quantiles, ascending, of a log-normal distribution; its values are never < 0.

        Example:
            >>> values = Spread(0.8, 0.3).sample()
            >>> round(sum(values) / len(values), 2), values[0] > 0, Spread(2).sample()
            (0.8, True, (2,))
        """
        if not self.deviation or not self.mean:
            return (self.mean,)
        variance = math.log1p((self.deviation / self.mean) ** 2)
        normal = NormalDist(math.log(self.mean) - variance / 2, math.sqrt(variance))
        return tuple(math.exp(normal.inv_cdf((n + 0.5) / size)) for n in range(size))


@attrs.frozen
class SampledCall:
    """One possible successful call."""

    latency: float
    """Seconds, ≥ 0."""
    prompt_tokens: int = 0
    reply_tokens: int = 0
    money: float = 0.0
    """US dollars."""

    @property
    def tokens(self) -> int:
        """Tokens of prompt and reply."""
        return self.prompt_tokens + self.reply_tokens


@attrs.frozen(kw_only=True)
class ServerLimits:
    """The limits of a server, as of an account; None for no limit.

    Raises:
        UsageError: A value is out of range.
    """

    rpm: int | None = None
    """Requests in any minute, ≥ 1."""
    burst: int | None = None
    """Size of the bucket, ≥ 1, that `rpm` fills evenly; without it `rpm` is a rolling window."""
    tpm: int | None = None
    """Tokens in any minute, ≥ 1."""
    max_in_flight: int | None = None
    """Requests that are served at once, ≥ 1."""
    reports: bool = True
    """True if refusals name the wait and replies the remaining amounts; False for bare refusals."""

    def __attrs_post_init__(self) -> None:
        for name in ("rpm", "burst", "tpm", "max_in_flight"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"the provider's {name} must be at least 1, got {value}")
        if self.burst is not None and self.rpm is None:
            raise UsageError("the provider's burst needs its rpm")

    @property
    def is_unlimited(self) -> bool:
        """True if the server refuses nothing."""
        return self.rpm is None and self.tpm is None and self.max_in_flight is None


@attrs.frozen(kw_only=True)
class ProviderModel:
    """The calls and the faults of one provider."""

    calls: Sequence[SampledCall] = attrs.field(repr=lambda calls: f"<{len(calls)} calls>")
    """A sample, by ascending latency; not empty."""
    failure_share: float = 0.0
    """Share of requests that fail transiently after the latency of a call, 0 to 1."""
    refusal_share: float = 0.0
    """Share of requests that are refused without a hint, whatever the limits are, 0 to 1."""
    refusal_latency: float = 0.05
    """Seconds until a refusal arrives; until then, the lane starts further calls."""
    rounds: Sequence[int] = ()
    """A sample of the successful calls of a case of an agent, ascending; empty if it is unknown."""
    source: str = ""
    """The origin of the sample, for people."""

    @property
    def mean_latency(self) -> float:
        """Seconds."""
        return sum(call.latency for call in self.calls) / len(self.calls)

    @property
    def mean_tokens(self) -> float:
        """Tokens of prompt and reply."""
        return sum(call.tokens for call in self.calls) / len(self.calls)


@attrs.define  # not frozen: every request has one
class DrawnCall:
    """The course of one request, if the limits admit it."""

    call: SampledCall
    fails: bool
    is_refused: bool


def draw(model: ProviderModel, seed: int, row: int, number: int) -> DrawnCall:
    """Return the course of a request.

    Args:
        model: The provider.
        seed: Of the simulation.
        row: The index of the row.
        number: The number of the request within the row; questions and retries have different ones.
    """
    calls = model.calls
    block, place = divmod(row, _BLOCK)
    # Each row of a block gets another part of the sample, so that a short run has its mean as well.
    bits, mixed = _block_bits(seed, block, number), _mixed(seed, row, number)
    call = calls[int((_permuted(place, bits) + (mixed & _LOW) / _HALF) * len(calls)) // _BLOCK]
    if not model.failure_share and not model.refusal_share:
        return DrawnCall(call, fails=False, is_refused=False)
    luck = (_permuted(place, bits >> 32) + (mixed >> 32) / _HALF) / _BLOCK
    refused = luck < model.refusal_share
    fails = luck >= 1 - model.failure_share
    return DrawnCall(call, fails=fails and not refused, is_refused=refused)


def draw_rounds(model: ProviderModel, seed: int, row: int) -> int:
    """Return the number of calls of a case of an agent; the model has a sample of them."""
    block, place = divmod(row, _BLOCK)
    share = _permuted(place, _block_bits(seed, block, 0)) + (_mixed(seed, row, 0) & _LOW) / _HALF
    return model.rounds[int(share * len(model.rounds)) // _BLOCK]


def _permuted(place: int, bits: int) -> int:
    """Return the image of a place under a permutation of a block, chosen by random bits."""
    place = place * (bits | 1) & _BLOCK - 1
    return ((place ^ place >> 3) * (bits >> 8 | 1) + (bits >> 16)) & _BLOCK - 1


@functools.lru_cache(maxsize=1024)
def _block_bits(seed: int, block: int, number: int) -> int:
    """Return the random bits that the rows of a block share."""
    return _mixed(seed, block, number)


def _mixed(seed: int, row: int, number: int) -> int:
    """Return 64 well-mixed bits (the finalizer of SplitMix64)."""
    bits = (
        row * 0x9E3779B97F4A7C15 + number * 0xD1B54A32D192ED03 + seed * 0x8CB92BA72F3D8DD7
    ) & _MASK
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK
    return bits ^ (bits >> 31)


@attrs.define(eq=False, repr=False)
class ServerModel:
    """The server of one lane at work: its buckets and its requests in flight. Time is an argument."""

    limits: ServerLimits
    in_flight: int = 0
    _buckets: dict[str, Limit] = attrs.field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        limits, minute = self.limits, 60.0
        if limits.rpm is not None and limits.burst is not None:
            self._buckets["requests"] = TokenBucket(limits.rpm, minute, limits.burst)
        elif limits.rpm is not None:
            self._buckets["requests"] = RollingWindow(limits.rpm, minute)
        if limits.tpm is not None:
            self._buckets["tokens"] = RollingWindow(limits.tpm, minute)

    def refuse(self, now: float, tokens: int) -> CallError | None:
        """Return the refusal of a request; None if it is admitted, and counted."""
        most = self.limits.max_in_flight
        if most is not None and self.in_flight >= most:
            return CallError(Fault.RATE_LIMITED, "too many requests at once")
        amounts = {"requests": 1, "tokens": tokens}
        for name, bucket in self._buckets.items():
            wait = bucket.wait(now, amounts[name])
            if wait > 0:
                # Services name whole milliseconds.
                named = math.ceil(wait * 1000) / 1000 if self.limits.reports else None
                message = f"too many {name}"
                return CallError(
                    Fault.RATE_LIMITED, message, retry_after=named, hint=self.hint(now)
                )
        for name, bucket in self._buckets.items():
            bucket.take(now, amounts[name])
        return None

    def hint(self, now: float) -> RateHint | None:
        """Return the remaining amounts as a reply reports them."""
        if not self._buckets or not self.limits.reports:
            return None
        return RateHint(
            **{
                name: Allowance(
                    limit=bucket.limit,
                    remaining=bucket.remaining(now),
                    reset_after=bucket.until_empty(now),
                )
                for name, bucket in self._buckets.items()
            }
        )

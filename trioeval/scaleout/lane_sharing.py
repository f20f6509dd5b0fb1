"""The limits of lanes as shared limits, so that they hold over all workers of a run.

**The problem.** A lane counts the calls of its own process. If several workers call a provider, the slots and
rates of its lane must hold over all of them together.

**The rule.** Each limit of a lane becomes a shared limit in the Redis of the suite, with the id of the run
in its key. A rate of `rpm` with a burst of b is a window of b starts in b · 60 / rpm seconds: stricter than
the lane's own rule within one such window, and equal to it in the long run. A gap is a window of one start.
Tokens are counted in windows of a minute. The lanes of the workers keep their own limits as well: a call must
pass both, so the lane of one worker never starts more than it would alone.

A wait that a server asks for pauses the shared slots, before any worker can start another call. A rate that
it reports becomes a window of the same kind, against which calls count while there is one. A cut of the
adaptive limit is published, and each other worker cuts its own limit to the same number.

Rejected: one owner of each lane (the default without Redis): all calls would go through one machine.

Laws: PACE, WIDTH, RETRY_AFTER.
"""

import hashlib
import math
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs

from trioeval.errors import LimitError
from trioeval.evaluation.lanes import merge_lane_limits
from trioeval.evaluation.prepared import PreparedSuite
from trioeval.kernel import LaneSpec, Permit, Permits, Shortage
from trioeval.limits.backend import SharedLimits
from trioeval.limits.model import MOST, LimitKey, LimitState, SharedLimit, Unit
from trioeval.scaleout.facts import called_lanes

HOLD_SECONDS = 15.0
"""Seconds after which the slots of a lost worker are free again; living workers extend theirs."""
_MINUTE = 60.0
_MICRO = 1_000_000
_REPORTED, _TOKENS = ":reported", ":tpm"
"""The ends of the keys of the reported rate and of the window of tokens."""
_NAME = 80  # characters of a lane in a key
_REPORTED_BURST = 2
"""Starts in one window of a reported rate: as in a lane, a late one must not delay the next."""
_NO_RATE = 1.0
"""Seconds of the window of the reported rate while none is reported."""


@attrs.frozen
class SharedLane:
    """The shared limits of one lane."""

    lane: str
    keys: tuple[LimitKey, ...]
    limits: tuple[SharedLimit, ...]
    most_tokens: int | None = None
    """The tokens that the largest call counts, because a window grants no more; None without a rate."""

    @property
    def slots(self) -> str:
        """The key of its slots."""
        return self.keys[0].key

    @property
    def reported_rate(self) -> str:
        """The key of the rate that its server reports."""
        return self.keys[1].key


def shared_lanes(prepared: PreparedSuite, run_id: str) -> Sequence[SharedLane]:
    """Return the shared limits of each lane of a suite that has limits to share.

    Args:
        prepared: The suite.
        run_id: The id of the run, which all of its workers know.
    """
    called = called_lanes(prepared)
    cap = prepared.suite.evaluate_options.max_total_concurrency
    return [
        shared_lane(spec, run_id, cap=cap)
        for spec in prepared.lane_specs
        if spec.name in called or spec.rpm or spec.tpm or spec.min_gap
    ]


def shared_lane(spec: LaneSpec, run_id: str, *, cap: int | None = None) -> SharedLane:
    """Return the shared limits of a lane.

    Args:
        spec: The lane.
        run_id: The id of the run.
        cap: The most calls in flight on all lanes together, ≥ 1; None sets no bound.

    Example:
        >>> lane = shared_lane(LaneSpec("gpt", 8, rpm=120, min_gap=0.2), "r")
        >>> [(one.capacity, one.span) for one in lane.limits]
        [(8, 15.0), (9007199254740991, 1.0), (1, 0.5)]
    """
    digest = hashlib.sha256(spec.name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    prefix = f"run:{run_id}:{spec.name[:_NAME]}:{digest}"
    made: list[tuple[Unit, SharedLimit]] = [
        ("slots", _slots(f"{prefix}:slots", spec.max_concurrency)),
        ("requests", reported_rate(f"{prefix}{_REPORTED}", None)),
    ]
    made += [("requests", limit) for limit in _starts(prefix, spec)]
    most = most_tokens(spec)
    if most is not None:
        made.append(("tokens", _window(f"{prefix}{_TOKENS}", most, _MINUTE)))
    if cap is not None:
        made.append(("slots", _slots(f"run:{run_id}:all:slots", cap)))
    keys = tuple(LimitKey(limit.key, unit) for unit, limit in made)
    return SharedLane(spec.name, keys, tuple(limit for _, limit in made), most)


def retuned(spec: LaneSpec, command: Mapping[str, Any]) -> LaneSpec:
    """Return a lane with the numbers of a command of the live view; others are unchanged.

    Example:
        >>> retuned(LaneSpec("gpt", 8, rpm=120), {"do": "retune", "lane": "gpt", "rpm": 60}).rpm
        60
    """
    named = {"max_concurrency": "maxConcurrency", "rpm": "rpm", "tpm": "tpm"}
    given = {field: command[name] for field, name in named.items() if command.get(name) is not None}
    return attrs.evolve(spec, **given)


def reported_rate(key: str, period: float | None) -> SharedLimit:
    """Return the limit for the rate that a server reports.

    Args:
        key: Its key.
        period: Seconds between two starts, > 0; None while the server reports no rate to keep.
    """
    if period is None:
        return _window(key, MOST, _NO_RATE)
    return _window(key, _REPORTED_BURST, _REPORTED_BURST * period)


def most_tokens(spec: LaneSpec) -> int | None:
    """Return the tokens that the window of a lane grants in a minute; None without a rate of tokens."""
    return None if spec.tpm is None else max(1, min(MOST, int(spec.tpm) + spec.token_burst))


def _starts(prefix: str, spec: LaneSpec) -> Iterator[SharedLimit]:
    """Yield the windows of the starts of a lane."""
    period = 0.0 if spec.rpm is None else _MINUTE / spec.rpm
    gap = max(spec.min_gap, period if spec.burst == 1 else 0.0)
    if gap:
        yield _window(f"{prefix}:gap", 1, gap)
    if period and spec.burst > 1:
        yield _window(f"{prefix}:rpm", spec.burst, spec.burst * period)


def _slots(key: str, capacity: int) -> SharedLimit:
    return SharedLimit(key=key, kind="concurrency", capacity=capacity, timeout=HOLD_SECONDS)


def _window(key: str, capacity: int, seconds: float) -> SharedLimit:
    # Limits count whole microseconds: rounded up, so that no window has too many starts.
    window = max(1, math.ceil(round(seconds * _MICRO, 3))) / _MICRO
    return SharedLimit(key=key, kind="rolling", capacity=capacity, window=window)


def with_shared_lanes(prepared: PreparedSuite, lanes: Sequence[SharedLane]) -> PreparedSuite:
    """Return a suite whose calls count against the shared limits of its lanes as well.

    It is used to open limits and lanes only: reservations of its rows are those of its own limits.
    """
    limits = prepared.suite.limits
    if limits is None or not lanes:
        return prepared
    defined = {limit.key: limit for lane in lanes for limit in lane.limits}
    keys = merge_lane_limits([prepared.lane_limits, {lane.lane: lane.keys for lane in lanes}])
    limits = attrs.evolve(limits, define=(*(limits.define or ()), *defined.values()))
    suite = attrs.evolve(prepared.suite, limits=limits)
    return attrs.evolve(prepared, suite=suite, lane_limits=keys)


@attrs.frozen
class LaneLimits:
    """Shared limits of lanes, as the lanes of one worker count against them.

    A lane may serve a call that exceeds a minute's tokens; a window never grants so many, so such a call
    counts a whole minute. The window of the reported rate counts only while a rate is reported: it costs the
    server as much as any other limit of a call, and mostly bounds nothing.
    """

    _limits: SharedLimits
    _reported_rates: Mapping[str, str]
    """The key of the reported rate, by lane."""
    _most_tokens: Mapping[str, int]
    """By lane that has a rate of tokens. May change; the limits follow later."""
    _reported: Collection[str]
    """The lanes whose server reports a rate to keep. May change."""

    def permits(self, lane: str, keys: Sequence[LimitKey]) -> Permits:
        """Return the permits of a lane."""
        rate = self._reported_rates.get(lane)
        if rate is None:
            return self._limits.permits(lane, keys)
        others = [one for one in keys if one.key != rate]
        bounded, free = (self._limits.permits(lane, some) for some in (keys, others))
        return _SharedLanePermits(
            lambda: bounded if lane in self._reported else free,
            lambda: self._most_tokens.get(lane, MOST),
            rate.removesuffix(_REPORTED) + _TOKENS,
            self._limits.states,
        )

    async def states(self) -> Sequence[LimitState]:
        """Return all limits, by key. A checkpoint."""
        return await self._limits.states()


@attrs.frozen
class _SharedLanePermits:
    """The permits of one lane, for calls of at most so many tokens."""

    _permits: Callable[[], Permits]
    _most: Callable[[], int]
    _window: str
    """The key of its window of tokens."""
    _states: Callable[[], Awaitable[Sequence[LimitState]]]

    def take_nowait(self, index: int, tokens: int, money: float) -> Permit | None:
        """Return a permit that is available at once, or None; see `Permits`."""
        return self._permits().take_nowait(index, min(tokens, self._most()), money)

    async def take(
        self, index: int, tokens: int, money: float, on_shortage: Callable[[Shortage], None]
    ) -> Permit:
        """Wait for a permit. A checkpoint.

        Raises:
            LimitError: As for the limits themselves.
        """
        most = self._most()
        while True:
            try:
                return await self._permits().take(index, min(tokens, most), money, on_shortage)
            except LimitError as error:
                if error.reason != "exceeds_capacity" or error.keys != (self._window,):
                    raise
            # The window has become smaller while the call waited, or it has not followed a larger rate yet.
            most = min([self._most(), *await self._capacity()])

    async def _capacity(self) -> Sequence[int]:
        """Return what its window of tokens grants at most; empty if there is none any more."""
        states = (one for one in await self._states() if one.limit.key == self._window)
        return [one.pending_capacity or one.limit.capacity for one in states]


def reported_rates(lanes: Sequence[SharedLane]) -> dict[str, str]:
    """Return the keys of the reported rates, by lane."""
    return {lane.lane: lane.reported_rate for lane in lanes}


def most_of(lanes: Sequence[SharedLane]) -> dict[str, int]:
    """Return the tokens that the largest call counts, by lane that has a rate of tokens."""
    return {lane.lane: lane.most_tokens for lane in lanes if lane.most_tokens is not None}

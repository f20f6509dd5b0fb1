"""Holds the arithmetic of a pace that somebody else wrote to its rules.

A pace says when the next request may start. It is checked with calls only, without a clock and without
Trio: requests are made at drawn instants, each start is held against all earlier ones by brute force, and
so the pace must be exact where it keeps one number in place of the past.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Literal, Protocol, Self, TypeAlias, get_args

import attrs
from hypothesis import strategies as st

from trioeval.testing.smallest import find_smallest

PaceRule: TypeAlias = Literal["FIRST", "RATE", "EAGER", "MONOTONE", "LONG_RUN"]
"""What a pace promises.

* FIRST: the first start is at once.
* RATE: any window of length T holds at most burst + T·rpm/60 starts, each `min_gap` after the one before.
* EAGER: no start is later than RATE asks for.
* MONOTONE: `earliest(now)` is at or after `now`, never falls as `now` grows, and holds when it is reached.
* LONG_RUN: who asks again at once, many times, gets the full rate.
"""

_TOLERANCE = 1e-9
_LONG_RUN = 64


class PaceLike(Protocol):
    """A pace: `take` returns the next state, which may be the same object, changed."""

    def earliest(self, now: float, /) -> float:
        """The first instant at or after `now`, in seconds, at which a request may start."""
        ...

    def take(self, now: float, /) -> Self:
        """The pace after a start at `now`, which is not before `earliest(now)`."""
        ...


@attrs.frozen
class PaceLimits:
    """What a pace is made with."""

    rpm: float | None
    """Requests per minute; None sets no rate."""
    burst: int
    """Requests that may start together after a pause, ≥ 1."""
    min_gap: float
    """Least seconds between two starts, ≥ 0."""

    @property
    def period(self) -> float:
        """Seconds per request in the long run; 0 without a rate."""
        return 60 / self.rpm if self.rpm else 0.0

    def earliest(self, starts: Sequence[float]) -> float:
        """The first instant that every window with the earlier starts allows, by brute force."""
        windows = [
            at + (len(starts) - place + 1 - self.burst) * self.period
            for place, at in enumerate(starts)
        ]
        gaps = [starts[-1] + self.min_gap] if starts else []
        return max([-math.inf, *windows, *gaps])


@attrs.frozen
class PaceBreach:
    """One rule that a pace breaks."""

    rule: str
    message: str
    """What was seen, in the smallest example that shows it."""
    limits: PaceLimits
    waits: tuple[float, ...]
    """Seconds from each start to the next request."""

    def __str__(self) -> str:
        return f"{self.rule} is broken: {self.message}\n  {self.limits}, waits {list(self.waits)}"


MakePace: TypeAlias = Callable[[float | None, int, float], PaceLike]
"""`make(rpm, burst, min_gap)` gives a pace that has seen no start."""


def check_pacer(make: MakePace, *, examples: int = 200, seed: int = 0) -> None:
    """Hold a pace to its rules; instants that differ by less than a nanosecond are taken as equal.

    Args:
        make: Gives a fresh pace for limits.
        examples: How many sequences of requests are drawn, ≥ 1.
        seed: Equal seeds draw equal sequences.

    Raises:
        AssertionError: It names every rule that is broken, each with the smallest example found.

    Example:
        >>> from trioeval.rates import Pace
        >>> check_pacer(lambda rpm, burst, gap: Pace.per_minute(rpm, burst=burst, min_gap=gap))
    """
    found = broken_pace_rules(make, examples=examples, seed=seed)
    if found:
        told = "\n\n".join(str(breach) for breach in found.values())
        raise AssertionError(f"broken rules: {', '.join(found)}\n\n{told}")


def broken_pace_rules(
    make: MakePace, *, examples: int = 200, seed: int = 0
) -> dict[PaceRule, PaceBreach]:
    """What `check_pacer` finds, by rule; empty if all hold."""

    def judge(example: _Example, rules: Collection[str]) -> dict[str, str]:
        first: dict[str, str] = {}
        for rule, told in (*_replay(make, *example), *_run_long(make, example[0])):
            if rule in rules:
                first.setdefault(rule, told)
        return first

    rules: tuple[PaceRule, ...] = get_args(PaceRule)
    found = find_smallest(_EXAMPLES, judge, rules, count=examples, seed=seed)
    return {
        rule: PaceBreach(rule, found[rule].message, *found[rule].example)
        for rule in rules
        if rule in found
    }


_Example: TypeAlias = tuple[PaceLimits, tuple[float, ...]]

_QUARTERS = st.integers(0, 40).map(lambda quarters: quarters / 4)
_EXAMPLES: st.SearchStrategy[_Example] = st.tuples(
    st.builds(
        PaceLimits,
        st.sampled_from((60.0, 240.0, 120.0, 30.0, 15.0, 7.0, None)),
        st.integers(1, 4),
        st.sampled_from((0.0, 0.25, 1.0, 3.0)),
    ),
    st.lists(_QUARTERS, min_size=1, max_size=12).map(tuple),
)


def _replay(
    make: MakePace, limits: PaceLimits, waits: Sequence[float]
) -> Iterator[tuple[PaceRule, str]]:
    """Every breach in the order in which it is met; a pace that is too early is believed all the same."""
    pace, now = make(limits.rpm, limits.burst, limits.min_gap), 0.0
    starts: list[float] = []
    for wait in waits:
        now += wait
        at = pace.earliest(now)
        yield from _check_monotone(pace, now, at)
        right = max(now, limits.earliest(starts))
        told = f"asked at {now}, start {len(starts)} may be at {at}, right is {right}; before: {starts}"
        if not starts and at > now + _TOLERANCE:
            yield "FIRST", told
        if at < right - _TOLERANCE:
            yield "RATE", told
        if at > right + _TOLERANCE:
            yield "EAGER", told
        now = max(now, at)
        starts.append(now)
        pace = pace.take(now)


def _check_monotone(pace: PaceLike, now: float, at: float) -> Iterator[tuple[PaceRule, str]]:
    if at < now - _TOLERANCE:
        yield "MONOTONE", f"earliest({now}) is {at}"
    for later in (now + 0.25, now + 1.0, at, at + 0.25):
        if later >= now:
            then = pace.earliest(later)
            if then < at - _TOLERANCE or (later >= at and then > later + _TOLERANCE):
                yield "MONOTONE", f"earliest({now}) is {at}, earliest({later}) is {then}"


def _run_long(make: MakePace, limits: PaceLimits) -> Iterator[tuple[PaceRule, str]]:
    """Ask again at once, many times."""
    pace, now = make(limits.rpm, limits.burst, limits.min_gap), 0.0
    for _ in range(_LONG_RUN):
        now = max(now, pace.earliest(now))
        pace = pace.take(now)
    last = _LONG_RUN - 1
    right = max((last + 1 - limits.burst) * limits.period, last * limits.min_gap)
    if not math.isclose(now, right, abs_tol=_TOLERANCE * _LONG_RUN):
        yield "LONG_RUN", f"{_LONG_RUN} starts took {now} s, right is {right}"

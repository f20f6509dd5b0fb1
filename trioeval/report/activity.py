"""What the lanes of a run did and waited for, from its first call to now, in little memory.

All of it is made of kernel events; the run does not know that it is watched. A lane's past is a row of
buckets of equal length. When there are too many of them, two and two are joined, so a run of a second and
one of a week are told in the same number of them.

**Waits.** A lane waits from the moment in which its first in line finds an obstacle until a call of it
starts. That counts for the reason of the obstacle, and is what a run "waited for". Time in which calls
stand behind that one is not counted again, nor is a back-off while others of the lane are in flight, or
while the first in line waits or a longer one goes on. Nobody tells when who waits goes away, because the
run is stopped or his time is up: so a wait is over at the latest when the obstacle was to end, or has ended
as far as that is seen here.
"""

import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import attrs

from trioeval.kernel.events import (
    Admitted,
    CallEnded,
    CallStarted,
    Event,
    LaneClosed,
    LimitChanged,
    Throttled,
    Waiting,
    Why,
)

# What people call the lanes of a run: as much of their keys as tells them apart. Pure.
#
# A key such as `openai|https://api.openai.com/v1|4f5c…|-|gpt-4o` is right, and too long for a table. The
# whole key stays in documents, in titles of pages, and in commands.


_BETWEEN = "|"
_EMPTY = {"", "-"}
_DIGEST = re.compile(r"[0-9a-f]{12}")
_NO_LABELS: Mapping[str, str] = {}
_MANY = 8  # parts of a key from which on nobody made it of a provider


def lane_names(keys: Iterable[str], labels: Mapping[str, str] = _NO_LABELS) -> Mapping[str, str]:
    """A name for each lane: the label of its provider, or else the fewest parts of its key that are unique.

    Names are unique within the given lanes: a lane may have another name among others. A label that several
    lanes share is not used. Names are not inert, as keys and labels are not.

    Args:
        keys: The lanes.
        labels: The labels of providers, by lane.

    Example:
        >>> host = "openai|http://127.0.0.1:8799/v1|-|-"
        >>> [*lane_names([f"{host}|6b", f"{host}|7b", "echo"], {"echo": "baseline"}).values()]
        ['6b', '7b', 'baseline']
    """
    whole = tuple(dict.fromkeys(keys))
    names = _names(frozenset(whole))
    wanted = [labels.get(key, names[key]) for key in whole]
    counts = Counter([*names.values(), *wanted])
    return {
        key: label if label != names[key] and counts[label] == 1 else names[key]
        for key, label in zip(whole, wanted, strict=True)
    }


def labels_of(told: Iterable[Mapping[str, Any]]) -> Mapping[str, str]:
    """The labels of lanes, by lane, from the activity of executions; see `Activity.json`."""
    return {
        key: lane["label"]
        for execution in told
        for key, lane in execution["lanes"].items()
        if lane.get("label") is not None
    }


@functools.lru_cache(maxsize=8)  # a run that is watched asks many times a second
def _names(keys: frozenset[str]) -> Mapping[str, str]:
    parts = {key: _parts(key) for key in keys}
    names: dict[str, str] = {}
    for count in range(1, _MANY + 1):
        if len(names) == len(parts):
            break
        held = Counter(found for own in parts.values() for found in _choices(own, count))
        for key in parts.keys() - names.keys():
            chosen = (found for found in _choices(parts[key], count) if held[found] == 1)
            if (found := next(chosen, None)) is not None:
                names[key] = _joined(key, found)
    return {key: names.get(key, key) for key in keys}


def _parts(key: str) -> Sequence[str]:
    """The parts of a key that say something, the most telling ones first; none of a key of too many."""
    said = [part for part in dict.fromkeys(key.split(_BETWEEN)) if part not in _EMPTY]
    if len(said) > _MANY:
        return ()
    # The last one is the model, the first one the family, between them is the account.
    latest_first = [*said[:-2:-1], *said[:1], *said[-2:0:-1]] if len(said) > 1 else said
    return sorted(latest_first, key=_dullness)


def _dullness(part: str) -> int:
    if _DIGEST.fullmatch(part):
        return 2
    return 1 if "://" in part else 2 if part == "http" else 0


def _choices(parts: Sequence[str], count: int) -> Iterator[frozenset[str]]:
    return map(frozenset, itertools.combinations(parts, count))


def _joined(key: str, chosen: frozenset[str]) -> str:
    """Parts in the order in which the key has them. A digest alone says nothing to anybody."""
    own = [part for part in dict.fromkeys(key.split(_BETWEEN)) if part not in _EMPTY]
    shown = chosen if any(map(_is_readable, chosen)) else {*chosen, own[0]}
    return _BETWEEN.join(part for part in own if part in shown)


def _is_readable(part: str) -> bool:
    return _DIGEST.fullmatch(part) is None


# What a lane waits for, in a word or two: for progress lines, summaries and timelines.


WAIT_WORDS: Mapping[Why, str] = {
    Why.GATE: "a row alone",
    Why.WINDOW: "earlier rows",
    Why.TURN: "others in line",
    Why.PAUSED: "paused",
    Why.BLOCKED: "429",
    Why.PACE: "rpm",
    Why.DELAY: "delay",
    Why.TOKENS: "tpm",
    Why.SLOT: "slots",
    Why.BUDGET: "budget",
    Why.CAP: "slots of all lanes",
    Why.QUOTA: "shared limit",
    Why.BACKOFF: "back-off",
}
"""Of each `Why`."""


# How much there was of something in the last minute, in little memory.


WINDOW_S = 60
"""Seconds over which it is told."""


@attrs.define
class Window:
    """How much there was in each of the last seconds."""

    _counts: list[int] = attrs.field(factory=lambda: [0] * WINDOW_S)
    _second: int = 0

    def add(self, at: float, count: int) -> None:
        """So much more at an instant, which is none before the last one."""
        self._move(int(at))
        self._counts[self._second % WINDOW_S] += count

    def total(self, at: float) -> int:
        """All of the minute before an instant."""
        self._move(int(at))
        return sum(self._counts)

    def _move(self, second: int) -> None:
        for gone in range(self._second + 1, min(second, self._second + WINDOW_S) + 1):
            self._counts[gone % WINDOW_S] = 0
        self._second = max(second, self._second)


# How fast the rows of lanes come, and how long the rest of them takes if it goes on like this. Pure.


_SOON = 3  # rows before which nobody can say how long it takes
_PACE_MANY = 20  # rows of the last minute that say more than all before them


@attrs.define
class Pace:
    """How fast the rows of one lane come."""

    began_at: float
    """When the run began, on the Trio clock."""
    expected: int = 0
    """Rows that this execution is to run, as far as they are known."""
    there: int = 0
    """Those of them that are over, whatever their turn is."""
    _recent: Window = attrs.field(factory=Window)

    def add(self, at: float) -> None:
        """A row is over."""
        self.there += 1
        self._recent.add(at, 1)

    @property
    def left(self) -> int:
        """Rows that are still to come."""
        return max(0, self.expected - self.there)

    def left_s(self, now: float) -> float | None:
        """Seconds until all rows are over; None where that is not known.

        Example:
            >>> pace = Pace(0.0, expected=100)
            >>> for second in range(25):
            ...     pace.add(second / 10)
            >>> pace.left_s(10.0)
            30.0
        """
        if not self.left:
            return 0.0
        if self.there < _SOON or now <= self.began_at:
            return None
        elapsed, rows = now - self.began_at, self.there
        recent = self._recent.total(now)
        if elapsed > WINDOW_S and recent >= _PACE_MANY:  # a burst or a pause long ago says nothing
            elapsed, rows = WINDOW_S, recent
        return elapsed / rows * self.left


def all_left_s(paces: Collection[Pace], now: float) -> float | None:
    """Seconds until the slowest lane is done; lanes do not wait for each other.

    Of a lane of which too little is known it is taken that it goes like the others.

    Example:
        >>> fast, slow = Pace(0.0, 100, 100), Pace(0.0, 100, 10)
        >>> all_left_s([fast, slow], 10.0), all_left_s([], 10.0)
        (90.0, 0.0)
    """
    open_ones = [pace for pace in paces if pace.left]
    if not open_ones:
        return 0.0
    told = [pace.left_s(now) for pace in open_ones]
    known = [seconds for seconds in told if seconds is not None]
    if len(known) < len(told):
        there, expected = sum(one.there for one in paces), sum(one.expected for one in paces)
        whole = Pace(open_ones[0].began_at, expected, there).left_s(now)
        if whole is None:
            return None
        known.append(whole)
    return max(known)


K = TypeVar("K")

MOST_BUCKETS = 240
"""Of each lane."""
_FIRST = 0.1  # seconds of the first buckets


@attrs.define
class Bucket:
    """What happened on a lane in one stretch of time."""

    in_flight: int
    """The most calls at once."""
    limit: int | None
    """How many might be, as it was told last; None if nobody said."""
    starts: int = 0
    refused: int = 0
    """Calls that were refused because there were too many."""
    tokens: int = 0
    waits: dict[Why, float] = attrs.field(factory=dict)
    """Seconds, by reason."""

    def join(self, later: "Bucket") -> None:
        """Make one of two that follow each other."""
        self.in_flight = max(self.in_flight, later.in_flight)
        self.limit = later.limit
        self.starts += later.starts
        self.refused += later.refused
        self.tokens += later.tokens
        for why, seconds in later.waits.items():
            _add(self.waits, why, seconds)

    def json(self) -> list[Any]:
        """In the order of `BUCKET_FIELDS`."""
        waits = {why.value: round(seconds, 3) for why, seconds in self.waits.items()}
        return [self.in_flight, self.limit, self.starts, self.refused, self.tokens, waits]


BUCKET_FIELDS = ("inFlight", "limit", "starts", "refused", "tokens", "waits")


@attrs.define
class LaneActivity:
    """What one lane did."""

    began_at: float
    in_flight: int = 0
    calls: int = 0
    """Those that were started."""
    failed: int = 0
    refused: int = 0
    tokens: int = 0
    """Those that are known to have been used; what failed or was cut off says nothing of them."""
    money: float = 0.0
    """US dollars; likewise."""
    wait: Waiting | None = None
    """What it waits for, as it was told last; see `waits_for`."""
    waits: dict[Why, float] = attrs.field(factory=dict)
    """Seconds that are over, by reason."""
    closed: str | None = None
    """Why it serves no more calls."""
    bucket_s: float = _FIRST
    buckets: list[Bucket] = attrs.field(factory=list)
    _limit_of: Callable[[], int | None] = lambda: None
    """How many calls may be in flight now."""
    _limit: int | None = None
    _ends_at: float = attrs.field(init=False)
    """When the last bucket ends."""
    _starts: Window = attrs.field(factory=Window)
    _used: Window = attrs.field(factory=Window)

    def __attrs_post_init__(self) -> None:
        self._ends_at = self.began_at

    def admitted(self, event: Admitted) -> None:
        """The lane's next job is one that was started."""
        if self.wait is not None and self.wait.index is None:
            self._end_wait(event.at)

    def started(self, event: CallStarted) -> None:
        """A call is in flight."""
        at = event.at
        if self.wait is not None:
            self._end_wait(at)
        self.closed = None  # if it was, somebody has opened it again
        self.in_flight += 1
        self.calls += 1
        bucket = self._bucket(at)
        bucket.starts += 1
        bucket.in_flight = max(bucket.in_flight, self.in_flight)
        self._starts.add(at, 1)

    def ended(self, event: CallEnded) -> None:
        """A call is over."""
        at = event.at
        bucket = self._bucket(at)  # before: as many as until now were in flight in it
        self.in_flight -= 1
        self.failed += event.error is not None
        if event.tokens:  # what was reserved counts against the rate, whatever became of it
            self._used.add(at, event.tokens)
        if event.is_told:
            self.tokens += event.tokens
            bucket.tokens += event.tokens
            self.money += event.money
        if self.wait is not None and self.wait.why is Why.SLOT and self._has_slot:
            self._end_wait(at)  # who waits has it, or is told of another obstacle

    def waiting(self, event: Waiting) -> None:
        """Its first in line waits, or a call that failed."""
        if counts(event, self.wait, self.in_flight):
            self._end_wait(event.at)
            self.wait = event

    def throttled(self, event: Throttled) -> None:
        """A call was refused."""
        self.refused += 1
        self._bucket(event.at).refused += 1

    def limited(self, event: LimitChanged) -> None:
        """Another number of calls may be in flight."""
        self._limit = event.limit
        self._bucket(event.at).limit = event.limit

    def ended_for_good(self, event: LaneClosed) -> None:
        """It serves no more calls."""
        self.closed = event.reason
        if self.wait is not None:
            self._end_wait(event.at)

    def waited(self, now: float) -> dict[Why, float]:
        """Seconds by reason until now, those of the present wait among them."""
        found = dict(self.waits)
        if self.wait is not None:
            _add(found, self.wait.why, max(0.0, _end_of(self.wait, now) - self.wait.at))
        return found

    def waits_for(self, now: float) -> Waiting | None:
        """What it waits for now; None if it does not."""
        wait = self.wait
        return None if wait is None or _end_of(wait, now) < now else wait

    def rates(self, now: float) -> tuple[int, int]:
        """Requests that started and tokens that were used in the last minute."""
        return self._starts.total(now), self._used.total(now)

    def json(self, now: float) -> dict[str, Any]:
        """All of it, ready for `json.dumps`."""
        self._bucket(now)
        wait = self.waits_for(now)
        self._end_wait(now)  # so that its seconds stand in the buckets as well
        if wait is not None:
            self.wait = attrs.evolve(wait, at=now)
        return {
            "calls": self.calls,
            "failed": self.failed,
            "refused": self.refused,
            "tokens": self.tokens,
            "cost": self.money,
            "closed": self.closed,
            "waits": {why.value: round(s, 3) for why, s in self.waited(now).items()},
            "bucketS": self.bucket_s,
            "buckets": [bucket.json() for bucket in self.buckets],
        }

    @property
    def _has_slot(self) -> bool:
        return self._limit is None or self.in_flight < self._limit

    def _end_wait(self, at: float) -> None:
        if self.wait is None:
            return
        why, begun, at = self.wait.why, self.wait.at, _end_of(self.wait, at)
        self.wait = None
        if at <= begun:
            return
        _add(self.waits, why, at - begun)
        self._bucket(at)
        first = max(0, int((begun - self.began_at) / self.bucket_s))
        for number in range(first, len(self.buckets)):
            begins = self.began_at + number * self.bucket_s
            within = min(at, begins + self.bucket_s) - max(begun, begins)
            if within > 0:
                _add(self.buckets[number].waits, why, within)

    def _bucket(self, at: float) -> Bucket:
        while at >= self._ends_at:
            if len(self.buckets) == MOST_BUCKETS:
                self._halve()
                continue
            # Asked now and then: events tell of limits that were learned, not of those that are given.
            if (limit := self._limit_of()) is not None:
                self._limit = limit
            self.buckets.append(Bucket(self.in_flight, self._limit))
            self._ends_at = self.began_at + len(self.buckets) * self.bucket_s
        return self.buckets[-1]

    def _halve(self) -> None:
        pairs = zip(self.buckets[::2], self.buckets[1::2], strict=True)
        for first, second in pairs:
            first.join(second)
        self.buckets = self.buckets[::2]
        self.bucket_s *= 2
        self._ends_at = self.began_at + len(self.buckets) * self.bucket_s


def counts(told: Waiting, wait: Waiting | None, in_flight: int) -> bool:
    """Whether a lane waits for what is told now, and not for what it waited for until then.

    Args:
        told: What is told.
        wait: What it waited for, as far as is known.
        in_flight: Its calls in flight.
    """
    if told.why is not Why.BACKOFF:
        return told.why is not Why.TURN
    if wait is None or _end_of(wait, told.at) < told.at:
        return not in_flight
    longer = wait.until is not None and told.until is not None and wait.until < told.until
    return not in_flight and wait.why is Why.BACKOFF and longer


def _end_of(wait: Waiting, at: float) -> float:
    """When a wait was over that nobody has told the end of until `at`."""
    return at if wait.until is None else min(at, wait.until)


_TAKES: Mapping[type, Callable[[LaneActivity, Any], None]] = {
    Admitted: LaneActivity.admitted,
    CallStarted: LaneActivity.started,
    CallEnded: LaneActivity.ended,
    Waiting: LaneActivity.waiting,
    Throttled: LaneActivity.throttled,
    LimitChanged: LaneActivity.limited,
    LaneClosed: LaneActivity.ended_for_good,
}
"""By kind of event: a look-up costs less than a chain of comparisons, and there may be millions."""


@attrs.define
class Activity:
    """What all lanes did; `observe` goes to the run."""

    began_at: float
    """When the run began, on the Trio clock."""
    limit_of: Callable[[str], int | None] = lambda _lane: None
    """How many calls a lane allows now; None if nobody knows."""
    labels: Mapping[str, str] = _NO_LABELS
    """The labels of the providers of lanes, by lane."""
    lanes: dict[str, LaneActivity] = attrs.field(factory=dict)
    """In the order in which something happened on them."""

    def observe(self, event: Event) -> None:
        """Take note of an event of the kernel."""
        take, told = _TAKES.get(type(event)), cast("Any", event)
        if take is not None and told.lane is not None:
            take(self.lane(told.lane), told)

    def lane(self, name: str) -> LaneActivity:
        """What a lane did, be it nothing."""
        found = self.lanes.get(name)
        if found is None:
            limit_of = partial(self.limit_of, name)
            found = self.lanes[name] = LaneActivity(self.began_at, limit_of=limit_of)
        return found

    def json(self, now: float) -> dict[str, Any]:
        """All of it, ready for `json.dumps`, as it is kept with an execution of a run."""
        return {
            "durationS": round(now - self.began_at, 3),
            "fields": list(BUCKET_FIELDS),
            "lanes": {
                name: {**self._label(name), **lane.json(now)} for name, lane in self.lanes.items()
            },
        }

    def _label(self, lane: str) -> Mapping[str, str]:
        return {"label": self.labels[lane]} if lane in self.labels else {}


@attrs.frozen
class LaneWait:
    """How long a lane waited for one reason."""

    lane: str
    why: Why
    seconds: float


def longest_waits(told: Sequence[Mapping[str, Any]]) -> list[LaneWait]:
    """What a run waited for, the longest first.

    Example:
        >>> longest_waits([{"lanes": {"a": {"waits": {"tokens": 31.0, "slot": 2.0}}}}])[0]
        LaneWait(lane='a', why=<Why.TOKENS: 'tokens'>, seconds=31.0)
    """
    sums: dict[tuple[str, str], float] = {}
    for execution in told:
        for name, lane in execution["lanes"].items():
            for why, seconds in lane["waits"].items():
                _add(sums, (name, why), seconds)
    longest = sorted(sums.items(), key=lambda found: -found[1])
    return [LaneWait(lane, Why(why), seconds) for (lane, why), seconds in longest]


def _add(sums: dict[K, float], key: K, seconds: float) -> None:
    sums[key] = sums.get(key, 0.0) + seconds

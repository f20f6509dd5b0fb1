"""The calls and waits of the lanes of a run, from its first call on, in little memory.

Everything is computed from kernel events; the run does not depend on it. The past of a lane is a list of
buckets of equal length. When there are too many buckets, each two are joined, so that a run of a second and
a run of a week have the same number of them.

**Waits.** A lane waits from the moment its first call in line meets an obstacle until one of its calls
starts. The time counts for the reason of the obstacle: it is what the run "waited for". Calls in line
behind the first one do not count again. A back-off does not count while other calls of the lane are in
flight, while the first in line waits, or while a longer back-off runs. No event reports that a waiting call
was dropped because the run was stopped or its time was up, so a wait ends at the latest when the obstacle
was due to end, or was seen to end.
"""

import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

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
    WaitReason,
)
from trioeval.report.row_pace import MinuteWindow

# Short names of lanes: the parts of their keys that distinguish them. Pure.
#
# A key such as `openai|https://api.openai.com/v1|4f5c…|-|gpt-4o` is too long for a table. Documents, page
# titles and commands have the whole key.


_BETWEEN = "|"
_EMPTY = {"", "-"}
_DIGEST = re.compile(r"[0-9a-f]{12}")
_NO_LABELS: Mapping[str, str] = {}
_MANY = 8  # parts from which on a key is not one of a provider


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
    candidates = [labels.get(key, names[key]) for key in whole]
    counts = Counter([*names.values(), *candidates])
    return {
        key: label if label != names[key] and counts[label] == 1 else names[key]
        for key, label in zip(whole, candidates, strict=True)
    }


def labels_of(executions: Iterable[Mapping[str, Any]]) -> Mapping[str, str]:
    """The labels of lanes, by lane, from the activity of executions; see `Activity.json`."""
    return {
        key: lane["label"]
        for execution in executions
        for key, lane in execution["lanes"].items()
        if lane.get("label") is not None
    }


@functools.lru_cache(maxsize=8)  # a watched run calls this many times a second
def _names(keys: frozenset[str]) -> Mapping[str, str]:
    parts = {key: _parts(key) for key in keys}
    names: dict[str, str] = {}
    for count in range(1, _MANY + 1):
        if len(names) == len(parts):
            break
        counts = Counter(found for own in parts.values() for found in _choices(own, count))
        for key in parts.keys() - names.keys():
            chosen = (found for found in _choices(parts[key], count) if counts[found] == 1)
            if (found := next(chosen, None)) is not None:
                names[key] = _joined(key, found)
    return {key: names.get(key, key) for key in keys}


def _parts(key: str) -> Sequence[str]:
    """The non-empty parts of a key, the most distinctive first; none if the key has too many parts."""
    parts = [part for part in dict.fromkeys(key.split(_BETWEEN)) if part not in _EMPTY]
    if len(parts) > _MANY:
        return ()
    # The last part is the model, the first one the family, those between are the account.
    latest_first = [*parts[:-2:-1], *parts[:1], *parts[-2:0:-1]] if len(parts) > 1 else parts
    return sorted(latest_first, key=_dullness)


def _dullness(part: str) -> int:
    if _DIGEST.fullmatch(part):
        return 2
    return 1 if "://" in part else 2 if part == "http" else 0


def _choices(parts: Sequence[str], count: int) -> Iterator[frozenset[str]]:
    return map(frozenset, itertools.combinations(parts, count))


def _joined(key: str, chosen: frozenset[str]) -> str:
    """Parts in the order of the key. A digest alone is not a readable name."""
    own = [part for part in dict.fromkeys(key.split(_BETWEEN)) if part not in _EMPTY]
    shown = chosen if any(map(_is_readable, chosen)) else {*chosen, own[0]}
    return _BETWEEN.join(part for part in own if part in shown)


def _is_readable(part: str) -> bool:
    return _DIGEST.fullmatch(part) is None


# The reason of a wait in a word or two, for progress lines, summaries and timelines.


WAIT_WORDS: Mapping[WaitReason, str] = {
    WaitReason.GATE: "a serial row",
    WaitReason.WINDOW: "earlier rows",
    WaitReason.TURN: "earlier calls",
    WaitReason.PAUSED: "paused",
    WaitReason.BLOCKED: "429",
    WaitReason.PACE: "rpm",
    WaitReason.DELAY: "delay",
    WaitReason.TOKENS: "tpm",
    WaitReason.SLOT: "slots",
    WaitReason.BUDGET: "budget",
    WaitReason.CAP: "slots of all lanes",
    WaitReason.SHARED_LIMIT: "shared limit",
    WaitReason.BACKOFF: "back-off",
}
"""The words for each `WaitReason`."""


K = TypeVar("K")

MOST_BUCKETS = 240
"""The number of buckets of each lane."""
_FIRST = 0.1  # seconds of the first buckets


@attrs.define(eq=False, repr=False)
class LaneBucket:
    """The calls and waits of a lane in one interval of time."""

    in_flight: int
    """The most calls in flight at once."""
    limit: int | None
    """The last known limit of calls in flight; None if it is unknown."""
    starts: int = 0
    refused: int = 0
    """Calls that the provider refused because of a rate limit."""
    tokens: int = 0
    waits: dict[WaitReason, float] = attrs.field(factory=dict)
    """Seconds waited, by reason."""

    def join(self, later: "LaneBucket") -> None:
        """Join two consecutive buckets into one."""
        self.in_flight = max(self.in_flight, later.in_flight)
        self.limit = later.limit
        self.starts += later.starts
        self.refused += later.refused
        self.tokens += later.tokens
        for why, seconds in later.waits.items():
            _add(self.waits, why, seconds)

    def json(self) -> list[Any]:
        """Return the values in the order of `BUCKET_FIELDS`."""
        waits = {why.value: round(seconds, 3) for why, seconds in self.waits.items()}
        return [self.in_flight, self.limit, self.starts, self.refused, self.tokens, waits]


BUCKET_FIELDS = ("inFlight", "limit", "starts", "refused", "tokens", "waits")

_NO_SECONDS: Mapping[WaitReason, float] = {}


@attrs.frozen(kw_only=True)
class LaneCounts:
    """The calls and waits of a lane up to an instant."""

    calls: int = 0
    failed: int = 0
    refused: int = 0
    tokens: int = 0
    money: float = 0.0
    waits: Mapping[WaitReason, float] = _NO_SECONDS
    """Seconds of waits, by reason."""

    def since(self, before: "LaneCounts") -> "LaneCounts":
        """Return what was added to earlier counts.

        Example:
            >>> LaneCounts(calls=3, tokens=9).since(LaneCounts(calls=1)).calls
            2
        """
        waits = {why: s - before.waits.get(why, 0.0) for why, s in self.waits.items()}
        return LaneCounts(
            calls=self.calls - before.calls,
            failed=self.failed - before.failed,
            refused=self.refused - before.refused,
            tokens=self.tokens - before.tokens,
            money=self.money - before.money,
            waits={why: seconds for why, seconds in waits.items() if seconds > 0},
        )


@attrs.define(eq=False, repr=False)
class LaneActivity:
    """The calls and waits of one lane."""

    began_at: float
    in_flight: int = 0
    calls: int = 0
    """Calls that were started."""
    failed: int = 0
    refused: int = 0
    tokens: int = 0
    """Tokens of the calls that reported them; calls that failed or were cut off report none."""
    money: float = 0.0
    """US dollars of the same calls."""
    wait: Waiting | None = None
    """The present wait, as last reported; see `waits_for`."""
    waits: dict[WaitReason, float] = attrs.field(factory=dict)
    """Seconds of past waits, by reason."""
    wait_elsewhere: Waiting | None = None
    """The present wait of the lane in another process, whose seconds `add` counts."""
    closed: str | None = None
    """The reason why the lane is closed; None if it is open."""
    bucket_s: float = _FIRST
    buckets: list[LaneBucket] = attrs.field(factory=list)
    _limit_of: Callable[[], int | None] = lambda: None
    """The present limit of calls in flight."""
    _limit: int | None = None
    _ends_at: float = attrs.field(init=False)
    """The end of the last bucket."""
    _starts: MinuteWindow = attrs.field(factory=MinuteWindow)
    _used: MinuteWindow = attrs.field(factory=MinuteWindow)

    def __attrs_post_init__(self) -> None:
        self._ends_at = self.began_at

    def admitted(self, event: Admitted) -> None:
        """Handle the admission of a job."""
        if self.wait is not None and self.wait.index is None:
            self._end_wait(event.at)

    def started(self, event: CallStarted) -> None:
        """Handle the start of a call."""
        at = event.at
        if self.wait is not None:
            self._end_wait(at)
        self.closed = None  # calls start again only after the lane was opened
        self.in_flight += 1
        self.calls += 1
        bucket = self._bucket(at)
        bucket.starts += 1
        bucket.in_flight = max(bucket.in_flight, self.in_flight)
        self._starts.add(at, 1)

    def ended(self, event: CallEnded) -> None:
        """Handle the end of a call."""
        at = event.at
        bucket = self._bucket(at)  # before the count changes: the bucket saw the old one
        self.in_flight -= 1
        self.failed += event.error is not None
        if event.tokens:  # a reservation counts against the rate, whatever the result
            self._used.add(at, event.tokens)
        if event.is_reported:
            self.tokens += event.tokens
            bucket.tokens += event.tokens
            self.money += event.money
        if self.wait is not None and self.wait.why is WaitReason.SLOT and self._has_slot:
            self._end_wait(at)  # the call has its limit, or a new event reports the next obstacle

    def waiting(self, event: Waiting) -> None:
        """Handle a wait of the first call in line, or of a call in back-off."""
        if counts(event, self.wait, self.in_flight):
            self._end_wait(event.at)
            self.wait = event

    def throttled(self, event: Throttled) -> None:
        """Handle a refused call."""
        self.refused += 1
        self._bucket(event.at).refused += 1

    def limited(self, event: LimitChanged) -> None:
        """Handle a changed limit of calls in flight."""
        self._limit = event.limit
        self._bucket(event.at).limit = event.limit

    def ended_for_good(self, event: LaneClosed) -> None:
        """Handle the closing of the lane."""
        self.closed = event.reason
        if self.wait is not None:
            self._end_wait(event.at)

    def waited(self, now: float) -> dict[WaitReason, float]:
        """Return the seconds waited until now, by reason, the present wait included."""
        found = dict(self.waits)
        if self.wait is not None:
            _add(found, self.wait.why, max(0.0, _end_of(self.wait, now) - self.wait.at))
        return found

    def counts(self, now: float) -> LaneCounts:
        """Return the counts until now."""
        return LaneCounts(
            calls=self.calls,
            failed=self.failed,
            refused=self.refused,
            tokens=self.tokens,
            money=self.money,
            waits=self.waited(now),
        )

    def add(self, counts: LaneCounts, now: float, *, in_flight: int, most: int) -> None:
        """Add what another process has done on the lane since its last report.

        Args:
            counts: Its new calls and waits.
            now: The instant of the report, on the clock of this process.
            in_flight: The change of its calls in flight.
            most: The most by which its calls in flight exceeded their last number.
        """
        bucket = self._bucket(now)
        bucket.in_flight = max(bucket.in_flight, self.in_flight + most)
        self.in_flight += in_flight
        self.calls += counts.calls
        self.failed += counts.failed
        self.refused += counts.refused
        self.tokens += counts.tokens
        self.money += counts.money
        bucket.starts += counts.calls
        bucket.refused += counts.refused
        bucket.tokens += counts.tokens
        self._starts.add(now, counts.calls)
        self._used.add(now, counts.tokens)
        for why, seconds in counts.waits.items():
            _add(self.waits, why, seconds)
            _add(bucket.waits, why, seconds)

    def waits_for(self, now: float) -> Waiting | None:
        """Return the present wait; None if the lane does not wait."""
        wait = self.wait or self.wait_elsewhere
        return None if wait is None or _end_of(wait, now) < now else wait

    def rates(self, now: float) -> tuple[int, int]:
        """Return the requests that started and the tokens that were used in the last minute."""
        return self._starts.total(now), self._used.total(now)

    def json(self, now: float) -> dict[str, Any]:
        """Return everything as JSON data."""
        self._bucket(now)
        wait = self.waits_for(now)
        self._end_wait(now)  # so that the buckets include its seconds
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
        why, began_at, at = self.wait.why, self.wait.at, _end_of(self.wait, at)
        self.wait = None
        if at <= began_at:
            return
        _add(self.waits, why, at - began_at)
        self._bucket(at)
        first = max(0, int((began_at - self.began_at) / self.bucket_s))
        for number in range(first, len(self.buckets)):
            begins = self.began_at + number * self.bucket_s
            within = min(at, begins + self.bucket_s) - max(began_at, begins)
            if within > 0:
                _add(self.buckets[number].waits, why, within)

    def _bucket(self, at: float) -> LaneBucket:
        while at >= self._ends_at:
            if len(self.buckets) == MOST_BUCKETS:
                self._halve()
                continue
            # Looked up now and then: events report learned limits, not limits that a user sets.
            if (limit := self._limit_of()) is not None:
                self._limit = limit
            self.buckets.append(LaneBucket(self.in_flight, self._limit))
            self._ends_at = self.began_at + len(self.buckets) * self.bucket_s
        return self.buckets[-1]

    def _halve(self) -> None:
        pairs = zip(self.buckets[::2], self.buckets[1::2], strict=True)
        for first, second in pairs:
            first.join(second)
        self.buckets = self.buckets[::2]
        self.bucket_s *= 2
        self._ends_at = self.began_at + len(self.buckets) * self.bucket_s


def counts(new: Waiting, wait: Waiting | None, in_flight: int) -> bool:
    """Return whether a newly reported wait replaces the present one.

    Args:
        new: The new wait.
        wait: The present wait, if any.
        in_flight: Its calls in flight.
    """
    if new.why is not WaitReason.BACKOFF:
        return new.why is not WaitReason.TURN
    if wait is None or _end_of(wait, new.at) < new.at:
        return not in_flight
    longer = wait.until is not None and new.until is not None and wait.until < new.until
    return not in_flight and wait.why is WaitReason.BACKOFF and longer


def _end_of(wait: Waiting, at: float) -> float:
    """The end of a wait for which no event reported an end before `at`."""
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
"""The handler of each kind of event. A look-up is faster than comparisons, and events are many."""


@attrs.define(eq=False, repr=False)
class Activity:
    """The calls and waits of all lanes; `observe` is an observer of the run."""

    began_at: float
    """The start of the run, on the Trio clock."""
    limit_of: Callable[[str], int | None] = lambda _lane: None
    """Returns the present limit of calls of a lane; None if it is unknown."""
    labels: Mapping[str, str] = _NO_LABELS
    """The labels of the providers of lanes, by lane."""
    lanes: dict[str, LaneActivity] = attrs.field(factory=dict)
    """The lanes in the order of their first events."""

    def observe(self, event: Event) -> None:
        """Handle an event of the kernel."""
        take = _TAKES.get(type(event))
        if take is None:
            return
        name: str | None = event.lane  # type: ignore[union-attr] # every event with a handler has one
        if name is not None:
            take(self.lanes.get(name) or self.lane(name), event)

    def lane(self, name: str) -> LaneActivity:
        """Return the activity of a lane, which may be empty."""
        found = self.lanes.get(name)
        if found is None:
            limit_of = partial(self.limit_of, name)
            found = self.lanes[name] = LaneActivity(self.began_at, limit_of=limit_of)
        return found

    def json(self, now: float) -> dict[str, Any]:
        """Return everything as JSON data, as it is stored with an execution of a run."""
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
    """The time that a lane waited for one reason."""

    lane: str
    why: WaitReason
    seconds: float


def longest_waits(executions: Sequence[Mapping[str, Any]]) -> list[LaneWait]:
    """Return the waits of a run, the longest first.

    Example:
        >>> longest_waits([{"lanes": {"a": {"waits": {"tokens": 31.0, "slot": 2.0}}}}])[0]
        LaneWait(lane='a', why=<WaitReason.TOKENS: 'tokens'>, seconds=31.0)
    """
    sums: dict[tuple[str, str], float] = {}
    for execution in executions:
        for name, lane in execution["lanes"].items():
            for why, seconds in lane["waits"].items():
                _add(sums, (name, why), seconds)
    longest = sorted(sums.items(), key=lambda found: -found[1])
    return [LaneWait(lane, WaitReason(why), seconds) for (lane, why), seconds in longest]


def _add(sums: dict[K, float], key: K, seconds: float) -> None:
    sums[key] = sums.get(key, 0.0) + seconds

"""Everything that limits one provider key: slots, pace, and a strictly first-come turn.

A call starts on a lane at the first instant at which three things hold together: it is its turn, the pace
is open, and a slot is free. They are waited for in that order and taken in one synchronous step, so

* a slot is never held while something else is waited for (SLOT),
* a waiter that is cancelled has taken nothing and leaves no hole in the pace (PACE),
* calls start in the order in which they came.

One call at a time holds the turn and watches pace and slots; the others stand in line behind it. Where
nobody stands in line the start costs no trip through the scheduler.

**New jobs.** A lane does not only serve calls, it also admits jobs: the next job of a run may begin when
its first call could start at once (`wait_ready`). Admission takes nothing, because the body may do
something else first. So that the call really starts in the same step, and no call in line comes between,
the job is the lane's *favourite* until anyone else touches the lane: a job that goes to its first call
without a pause finds the slot it was admitted for, one that pauses stands in line like everybody.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

import attrs
import trio

from trioeval.errors import PlanError
from trioeval.kernel.events import Observer, Waiting, Why
from trioeval.kernel.gate import Gate
from trioeval.rates import Pace


@attrs.frozen
class LaneSpec:
    """What a lane allows.

    Raises:
        PlanError: A value is out of its range.
    """

    name: str
    width: int = attrs.field(default=4)
    """Calls in flight at once, ≥ 1."""
    rpm: float | None = attrs.field(default=None, kw_only=True)
    """Requests per minute, > 0 and finite; None sets no rate."""
    burst: int = attrs.field(default=1, kw_only=True)
    """Requests that may start together after a pause, ≥ 1."""
    min_gap: float = attrs.field(default=0.0, kw_only=True)
    """Least seconds between two starts, ≥ 0 and finite."""

    @width.validator
    @burst.validator
    def _check_count(self, field: "attrs.Attribute[int]", value: int) -> None:
        if type(value) is not int or value < 1:
            self._refuse(field.name, "a whole number of at least 1", value)

    @rpm.validator
    def _check_rpm(self, _field: "attrs.Attribute[float | None]", value: float | None) -> None:
        if value is not None and not 0 < value < math.inf:
            self._refuse("rpm", "more than 0 and finite", value)

    @min_gap.validator
    def _check_gap(self, _field: "attrs.Attribute[float]", value: float) -> None:
        if not 0 <= value < math.inf:
            self._refuse("min_gap", "at least 0 seconds and finite", value)

    def _refuse(self, field: str, right: str, value: object) -> None:
        msg = f"lane {self.name!r}: {field} must be {right}, got {value!r}"
        raise PlanError(msg)


@attrs.frozen
class LaneStatistics:
    """A snapshot of a lane; later changes do not appear in it."""

    name: str
    width: int
    in_flight: int
    waiting: int
    """Calls, and next jobs of runs, that stand in line."""
    next_start_at: float
    """The instant before which the pace allows no start; -inf if it is open."""


class Follower(Protocol):
    """Whoever wants to know that a lane may have become able to start something."""

    def notify(self) -> None:
        """Look again. Synchronous, cheap, may come for nothing."""


@attrs.define(eq=False, repr=False)
class Lane:
    """One lane; made by `Lanes`, not by users."""

    spec: LaneSpec
    followers: list[Follower] = attrs.field(factory=list)
    """The crews of the runs that start jobs here."""
    _pace: Pace = attrs.field(init=False)
    _limiter: trio.CapacityLimiter = attrs.field(init=False)
    _turn: trio.StrictFIFOLock = attrs.field(factory=trio.StrictFIFOLock)
    _favourite: object | None = None

    def __attrs_post_init__(self) -> None:
        self._pace = Pace.per_minute(
            self.spec.rpm, burst=self.spec.burst, min_gap=self.spec.min_gap
        )
        self._limiter = trio.CapacityLimiter(self.spec.width)

    def __repr__(self) -> str:
        return f"<Lane {self.spec.name!r}: {self.in_flight} of {self.spec.width} in flight>"

    @property
    def in_flight(self) -> int:
        """Calls that hold a slot."""
        return int(self._limiter.borrowed_tokens)

    @property
    def slot_free(self) -> bool:
        """Whether one more call could be in flight."""
        return self._limiter.available_tokens > 0

    @property
    def in_line(self) -> bool:
        """Whether somebody has or awaits the turn."""
        return self._turn.locked()

    def ready(self, now: float) -> bool:
        """Whether a newcomer could start at `now` without passing anybody in line."""
        return not self._turn.locked() and self._paced_until(now) <= now and self.slot_free

    def favour(self, job: object) -> None:
        """Let the first call of `job` pass the line, until anyone else touches the lane."""
        self._favourite = job

    def start_nowait(self, call: object, job: object, now: float) -> bool:
        """Take a slot for `call` and step the pace, if the call of `job` may start at `now`."""
        favourite, self._favourite = self._favourite, None
        if self._turn.locked() and favourite is not job:
            return False
        if self._paced_until(now) > now:
            return False
        try:
            self._take(call, now)
        except trio.WouldBlock:
            return False
        return True

    async def wait_start(
        self, call: object, index: int, refuse: Callable[[float], None], observe: Observer | None
    ) -> float:
        """Wait for the turn, the pace and a slot, and take them. A checkpoint. Returns the instant.

        `refuse` is asked at that instant, and raises if it is too late for the call: it has taken nothing.
        """
        self._tell_turn(observe, index)
        async with self._turn:
            now = await self._wait_open(call, index, observe)
            refuse(now)
            self._take(call, now)
            return now

    async def wait_ready(self, who: object, observe: Observer | None) -> None:
        """Wait until a call could start; take nothing. A checkpoint.

        The caller starts that call, or favours the job that will, before its next checkpoint.
        """
        self._tell_turn(observe, None)
        async with self._turn:
            await self._wait_open(who, None, observe)

    def end(self, call: object) -> None:
        """Give the slot of `call` back."""
        self._limiter.release_on_behalf_of(call)
        for follower in self.followers:
            follower.notify()

    def statistics(self) -> LaneStatistics:
        """A snapshot. Not a checkpoint."""
        return LaneStatistics(
            self.spec.name,
            self.spec.width,
            self.in_flight,
            self._turn.locked() + self._turn.statistics().tasks_waiting,
            self._pace.earliest(-math.inf),
        )

    async def _wait_open(self, who: object, index: int | None, observe: Observer | None) -> float:
        """With the turn: wait until the pace is open and a slot is free, both at one instant."""
        self._favourite = None
        while True:
            now = trio.current_time()
            start_at = self._paced_until(now)
            if start_at > now:
                if observe is not None:
                    observe(Waiting(now, self.spec.name, Why.PACE, start_at, index))
                await trio.sleep_until(start_at)
            elif self.slot_free:
                return now
            else:
                if observe is not None:
                    observe(Waiting(now, self.spec.name, Why.SLOT, None, index))
                await self._limiter.acquire_on_behalf_of(who)
                # Only to be woken when one is free. The pace may have moved meanwhile, and a slot
                # is never held while the pace is waited for.
                self._limiter.release_on_behalf_of(who)

    def _tell_turn(self, observe: Observer | None, index: int | None) -> None:
        if observe is not None and self._turn.locked():
            observe(Waiting(trio.current_time(), self.spec.name, Why.TURN, None, index))

    def _paced_until(self, now: float) -> float:
        return now if self._pace.unlimited else self._pace.earliest(now)

    def _take(self, call: object, now: float) -> None:
        self._limiter.acquire_on_behalf_of_nowait(call)
        if not self._pace.unlimited:
            self._pace = self._pace.take(now)


class Lanes(Mapping[str, Lane]):
    """The lanes that runs share. Made by the caller, inside or outside of `trio.run`, used in one.

    Args:
        specs: One description a lane; the names are different.

    Raises:
        PlanError: Two lanes have one name.

    Example:
        >>> lanes = Lanes([LaneSpec("fast", width=8), LaneSpec("slow", rpm=60)])
        >>> lanes["slow"].spec.rpm
        60
    """

    def __init__(self, specs: Iterable[LaneSpec]) -> None:
        self.gate = Gate()
        """Passed by the jobs of every run on these lanes."""
        self.by_name: dict[str, Lane] = {}
        """The same lanes as a plain dict, for who looks them up for every call."""
        for spec in specs:
            if spec.name in self.by_name:
                msg = f"two lanes are named {spec.name!r}"
                raise PlanError(msg)
            self.by_name[spec.name] = Lane(spec)

    def __getitem__(self, name: str) -> Lane:
        return self.by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name)

    def __len__(self) -> int:
        return len(self.by_name)

    def __repr__(self) -> str:
        return f"<Lanes {list(self.by_name.values())!r}>"

    def statistics(self) -> dict[str, LaneStatistics]:
        """A snapshot of every lane, by name. Not a checkpoint."""
        return {name: lane.statistics() for name, lane in self.by_name.items()}

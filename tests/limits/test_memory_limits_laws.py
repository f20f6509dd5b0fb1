"""Random calls on limits in memory: never above capacity, never idle, in a fair order, no trace left.

A plain record of the grants is kept beside them, and determines every quarter of a second what must hold.
"""

import random
from collections.abc import Sequence
from functools import partial
from typing import Literal

import attrs
import pytest
import trio
import trio.testing
from hypothesis import event, given, settings
from hypothesis import strategies as st

from trioeval.limits import SharedLimit
from trioeval.limits.memory import MemoryLimits, MemoryStatistics
from trioeval.limits.model import LimitKey, Unit
from trioeval.testing import run_virtual

pytestmark = pytest.mark.slow

LIMITS = {
    "rpm": SharedLimit(key="rpm", kind="rolling", capacity=3, window=2.0),
    "tpm": SharedLimit(key="tpm", kind="rolling", capacity=10, window=3.0),
    "slots": SharedLimit(key="slots", kind="concurrency", capacity=2, timeout=0.5),
}
UNITS: dict[str, Unit] = {"rpm": "requests", "tpm": "tokens", "slots": "slots"}
STEP = 0.25


@attrs.frozen
class Call:
    """The behaviour of one call."""

    at: float
    keys: tuple[str, ...]
    tokens: int
    lasts: float
    uses: int
    """Tokens used, ≤ the requested ones."""
    patience: float
    """Seconds after which it stops waiting."""
    made: bool = True
    """Settle the permit, or else return it unused."""


@attrs.frozen
class Pause:
    at: float
    key: str
    seconds: float


@attrs.define(eq=False)
class Share:
    call: Call
    at: float
    ended_at: float | None = None

    def counts(self, key: str, now: float) -> int:
        """The amount of a key that it takes at an instant, by the simplest definition."""
        if key not in self.call.keys:
            return 0
        if self.ended_at is not None and (key == "slots" or not self.call.made):
            return 0
        window = LIMITS[key].window
        if window is not None and self.at + window <= now:
            return 0
        if key == "tpm":
            return self.call.tokens if self.ended_at is None else self.call.uses
        return 1


@attrs.define(eq=False)
class Record:
    """The events of a case."""

    limits: MemoryLimits
    waiting: list[Call] = attrs.field(factory=list)
    shares: list[Share] = attrs.field(factory=list)
    paused: dict[str, float] = attrs.field(factory=dict)
    given_up: int = 0

    def room(self, key: str, now: float) -> int:
        return LIMITS[key].capacity - sum(share.counts(key, now) for share in self.shares)

    def needs(self, call: Call) -> dict[str, int]:
        return {key: call.tokens if key == "tpm" else 1 for key in call.keys}

    def parked(self, call: Call, now: float) -> bool:
        return any(self.paused.get(key, 0.0) > now for key in call.keys)

    def check(self, now: float) -> None:
        """Assert that no limit is exceeded, and that no call waits that may start."""
        assert all(self.room(key, now) >= 0 for key in LIMITS)
        for place, call in enumerate(self.waiting):
            if not self.parked(call, now):
                assert not self.admits(call, self.waiting[:place], now), f"{call} waits for nothing"

    def admits(self, call: Call, before: Sequence[Call], now: float) -> bool:
        """Return whether a call may start behind these calls."""
        needs = self.needs(call)
        if self.parked(call, now) or any(self.room(key, now) < needs[key] for key in needs):
            return False
        for earlier in before:
            theirs = self.needs(earlier)
            left = {key: self.room(key, now) - needs[key] for key in needs if key in theirs}
            if not self.parked(earlier, now) and (
                theirs.keys() == needs.keys() or any(left[key] < theirs[key] for key in left)
            ):
                return False
        return True

    async def make(self, call: Call) -> None:
        """Run one call, from its arrival to its end."""
        permits = self.limits.permits("lane", [LimitKey(key, UNITS[key]) for key in call.keys])
        may_start = self.admits(call, self.waiting, trio.current_time())
        permit = permits.take_nowait(0, call.tokens, 0.0)
        assert (permit is not None) == may_start
        if permit is None:
            self.waiting.append(call)
            with trio.move_on_after(call.patience):
                permit = await permits.take(0, call.tokens, 0.0, _ignore)
            self.waiting.remove(call)
        if permit is None:
            self.given_up += 1
            return
        share = Share(call, trio.current_time())
        self.shares.append(share)
        try:
            await trio.sleep(call.lasts)
        finally:
            share.ended_at = trio.current_time()
            if call.made:
                permit.settle(call.uses, 0.0)
            else:
                permit.give_back()

    async def pause(self, pause: Pause) -> None:
        now = trio.current_time()
        await self.limits.pause(pause.key, pause.seconds)
        self.paused[pause.key] = now + pause.seconds


def _ignore(_shortage: object) -> None:
    """Ignore a shortage."""


async def play(calls: Sequence[Call], pauses: Sequence[Pause]) -> Record:
    """Run all calls at their times; check at every instant at which anything can happen."""
    record = Record(MemoryLimits(LIMITS.values()))

    async def make_all(nursery: trio.Nursery) -> None:
        # One after the other, so that of simultaneous calls the first in `calls` arrives first.
        steps: list[Call | Pause] = sorted([*calls, *pauses], key=lambda step: step.at)
        for step in steps:
            await trio.sleep_until(step.at)
            await (
                trio.testing.wait_all_tasks_blocked()
            )  # everything that ends at this instant has ended
            if isinstance(step, Pause):
                await record.pause(step)
            else:
                nursery.start_soon(record.make, step)
                await trio.testing.wait_all_tasks_blocked()

    async with trio.open_nursery() as checks:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(make_all, nursery)
            checks.start_soon(check_always, record)
        checks.cancel_scope.cancel()
    now = trio.current_time()
    statistics = record.limits.statistics()
    assert statistics == MemoryStatistics(0, 0, statistics.granted)
    assert statistics.granted >= len(record.shares)
    used = {state.limit.key: state.used for state in await record.limits.states()}
    assert used == {key: LIMITS[key].capacity - record.room(key, now) for key in LIMITS}
    assert len(record.shares) + record.given_up == len(calls)
    return record


async def check_always(record: Record) -> None:
    while True:
        await trio.testing.wait_all_tasks_blocked(0.0)
        record.check(trio.current_time())
        await trio.sleep(STEP)


times = st.integers(0, 24).map(lambda quarters: quarters * STEP)
spans = st.integers(1, 12).map(lambda quarters: quarters * STEP)
key_sets = st.lists(st.sampled_from(sorted(LIMITS)), min_size=1, unique=True).map(tuple)
tokens = st.sampled_from((1, 1, 2, 4, 9, 10))
patience = st.one_of(st.just(1e6), st.just(1e6), spans)


@st.composite
def calls(draw: st.DrawFn) -> Call:
    most = draw(tokens)
    return Call(
        draw(times),
        draw(key_sets),
        most,
        draw(spans),
        draw(st.integers(0, most)),
        draw(patience),
        draw(st.sampled_from((True, True, True, False))),
    )


@settings(max_examples=150)
@given(
    script=st.lists(calls(), max_size=16),
    pauses=st.lists(st.builds(Pause, times, st.sampled_from(sorted(LIMITS)), spans), max_size=2),
    _schedule=st.random_module(),
)
def test_ql_30_random_calls_keep_the_limits_and_leave_no_trace(
    script: Sequence[Call], pauses: Sequence[Pause], _schedule: object
) -> None:
    """Never above capacity, no call waits that may start, and a cancelled call takes nothing."""
    record = run_virtual(play, script, pauses)
    event(f"gave up: {record.given_up > 0}")
    event(f"had to wait: {any(share.at > share.call.at for share in record.shares)}")


def drawn(rng: random.Random) -> Call:
    most = rng.choice((1, 1, 2, 4, 9, 10))
    keys = tuple(rng.sample(sorted(LIMITS), rng.randint(1, 3)))
    at, lasts = rng.randrange(40) * STEP, rng.randint(1, 8) * STEP
    give_up = rng.choice((1e6, 1e6, rng.randint(1, 40) * STEP))
    return Call(at, keys, most, lasts, rng.randint(0, most), give_up, rng.random() < 0.9)


@pytest.mark.parametrize("seed", range(3))
def test_ql_29_a_hundred_clients_on_three_keys(seed: int) -> None:
    """No window and no number of holds exceeds its capacity, and all patient clients are served."""
    rng = random.Random(seed)  # noqa: S311 - the same scripts in every run
    script = [drawn(rng) for _ in range(100)]
    record = run_virtual(play, script, [Pause(2.0, "rpm", 3.0)])
    assert all(share.ended_at is not None for share in record.shares)
    assert len(record.shares) >= sum(call.patience == 1e6 for call in script)
    for key, limit in LIMITS.items():
        mine = [share for share in record.shares if key in share.call.keys]
        assert mine
        if limit.window is not None:  # once more: in no window more starts than the capacity allows
            for share in mine:
                later = [other for other in mine if 0 <= other.at - share.at < limit.window]
                used = sum(
                    (1 if key == "rpm" else other.call.uses) * other.call.made for other in later
                )
                assert used <= limit.capacity


Ends = Literal["settled", "given_back"]


@pytest.mark.parametrize("cancelled_first", [True, False])
@pytest.mark.parametrize("ends", ["settled", "given_back"])
def test_ql_30_cancelled_and_granted_in_one_step(ends: Ends, *, cancelled_first: bool) -> None:
    """In either order, the lease belongs to the call, or is free."""

    async def main() -> tuple[bool, int]:
        limits = MemoryLimits([LIMITS["slots"]])
        permits = limits.permits("lane", [LimitKey("slots", "slots")])
        held = [permits.take_nowait(0, 0, 0.0), permits.take_nowait(1, 0, 0.0)]
        got: list[object] = []
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def wait() -> None:
                    got.append(await permits.take(2, 0, 0.0, _ignore))

                nursery.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked()
                first = held[0]
                assert first is not None
                end = partial(first.settle, 0, 0.0) if ends == "settled" else first.give_back
                if cancelled_first:
                    scope.cancel()
                    end()
                else:
                    end()
                    scope.cancel()
        return bool(got), limits.statistics().leases

    assert run_virtual(main) == ((False, 1) if cancelled_first else (True, 2))

"""Clocks that are set forward and back by an hour while a process waits, holds or counts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import attrs
import pytest
import trio
from planner_model import submission

from trioeval.agent.protocols import RunIds
from trioeval.evaluation.journal import RecordedReply
from trioeval.limits.model import lease_ids
from trioeval.providers import Reply
from trioeval.providers.programs.members import Clocks
from trioeval.store.cache.cache import Cache, open_cache
from trioeval.store.planner.owners import PlannerSettings
from trioeval.store.planner.planner import open_planner
from trioeval.web.pages import age_text

pytestmark = pytest.mark.attack("clocks")

HOUR = 3600.0
JUMPS = (-HOUR, HOUR)
KEY = 31 * b"k" + b"m"


@attrs.define
class Wall:
    """A clock that can be set."""

    now: float = 1_000_000_000.0

    def __call__(self) -> float:
        return self.now


def in_time(main: Callable[[], object]) -> None:
    async def bounded() -> None:
        with trio.fail_after(60):
            await main()  # type: ignore[misc]

    trio.run(bounded)


@pytest.mark.parametrize("whose", ["of both", "of who waits", "of who asks"])
@pytest.mark.parametrize("jump", JUMPS)
def test_a_question_in_flight_is_sent_once(tmp_path: Path, jump: float, whose: str) -> None:
    """A caller that waits for its reply gets it, however the clock is set meanwhile."""
    asker, waiter = Wall(), Wall()
    calls = 0

    async def main() -> None:
        asks, waits, may_end = trio.Event(), trio.Event(), trio.Event()

        @contextmanager
        def waiting() -> Iterator[None]:
            waits.set()
            yield

        @contextmanager
        def nothing() -> Iterator[None]:
            yield

        async def slow() -> RecordedReply:
            nonlocal calls
            calls += 1
            asks.set()
            await may_end.wait()
            return RecordedReply(Reply(output="yes"), 1.0, cached=False)

        async def ask(cache: Cache) -> None:
            assert (await cache.reply(KEY, slow, waiting)).cached

        async with (
            open_cache(tmp_path / "c.db", wall=asker) as first,
            open_cache(tmp_path / "c.db", wall=waiter) as second,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(first.reply, KEY, slow, nothing)
            await asks.wait()
            nursery.start_soon(ask, second)
            await waits.wait()
            for wall, name in ((asker, "of who asks"), (waiter, "of who waits")):
                wall.now += jump if whose in (name, "of both") else 0.0
            await trio.sleep(0.3)  # long enough for a caller that polls too early
            may_end.set()
        assert calls == 1

    in_time(main)


@pytest.mark.parametrize("whose", ["of both", "of who waits", "of who runs"])
@pytest.mark.parametrize("jump", JUMPS)
def test_the_queue_of_agents_keeps_its_order(tmp_path: Path, jump: float, whose: str) -> None:
    """No process counts as dead, and none starts too early."""
    walls = {"of who runs": Wall(), "of who waits": Wall()}
    warned: list[str] = []
    settings = PlannerSettings(heartbeat=0.02, poll=0.01, patience=60)

    async def main() -> None:
        path = tmp_path / "results.db"
        async with (
            open_planner(
                path, 1, settings=settings, warn=warned.append, wall=walls["of who runs"]
            ) as first,
            open_planner(
                path, 1, settings=settings, warn=warned.append, wall=walls["of who waits"]
            ) as second,
        ):
            await first.submit(submission("a"))
            await second.submit(submission("b"))
            for name, wall in walls.items():
                wall.now += jump if whose in (name, "of both") else 0.0
            with trio.move_on_after(0.2) as early:
                await second.wait_started("b")
            assert early.cancelled_caught
            await first.finish("a", done=True)
            await second.wait_started("b")
            await second.finish("b", done=True)

    in_time(main)
    assert warned == []


@pytest.mark.parametrize("jump", JUMPS)
def test_run_ids_sort_in_creation_order(jump: float) -> None:
    """Ids after a jump sort after those before."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    moments = iter([start, start + timedelta(seconds=jump), start + timedelta(seconds=1)])
    ids = RunIds("5f0c", lambda: next(moments))
    made = [ids() for _ in range(3)]
    assert made == sorted(set(made))


@pytest.mark.parametrize("jump", JUMPS)
def test_leases_of_limits_have_unique_ids(jump: float) -> None:
    """This also holds if the random number repeats."""
    wall, given = Wall(), iter(range(1, 9))
    new = lease_ids(wall, lambda _bits: next(given))
    first = new()
    wall.now += jump
    assert first != new()


@pytest.mark.parametrize("jump", [*JUMPS, -400 * 24 * HOUR])
def test_the_age_of_a_run_is_never_negative(jump: float) -> None:
    """A run with a later start counts as just started."""
    now = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=jump)
    age = age_text("2026-01-01T00:00:00.000Z", now)
    assert age == ("60 min ago" if jump > 0 else "0 s ago")


def test_a_clock_that_was_set_back_is_detected_by_the_process_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ages of entries in the process table are then not valid."""
    before = Clocks()
    assert not before.was_set_back
    monkeypatch.setattr("time.time", lambda: before.wall - HOUR)
    assert before.was_set_back

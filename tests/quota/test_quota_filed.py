"""Limits that outlive their server in a file."""

import json
import logging
import shutil
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio

from trioeval.errors import OutputError, QuotaError, SuiteError
from trioeval.quota import Actual, Ask, Granted, Limit, LimitState, Requirement, Settlement
from trioeval.quota.backend import Backend
from trioeval.quota.filed import _FiledLimits, open_filed
from trioeval.quota.memory import MemoryQuota

DAILY = Limit(key="daily", kind="budget", capacity=100)


def in_trio(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with trio.fail_after(20):
            await main()

    trio.run(bounded)


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def ask(name: str, amount: int) -> Ask:
    return Ask(name, "job", (Requirement("daily", amount),))


def test_a_definition_is_in_the_file_before_it_is_told(tmp_path: Path) -> None:
    """A server that is killed the moment after has it when it starts again."""
    path = tmp_path / "limits.json"

    async def main() -> None:
        async with open_filed(path) as limits:
            assert isinstance(limits, Backend)
            assert read(path) == []
            await limits.define(DAILY)
            assert read(path) == [{"key": "daily", "kind": "budget", "capacity": 100}]

    in_trio(main)


def test_what_is_used_counts_when_the_limits_are_opened_again(tmp_path: Path) -> None:
    """Also if the first time was cancelled; and a pause ends with whoever kept it."""
    path = tmp_path / "limits.json"
    path.write_text('[{"key": "daily", "kind": "budget", "capacity": 100}]')

    async def use() -> None:
        with trio.CancelScope() as scope:
            async with open_filed(path) as limits:
                await limits.reserve([ask("a", 60), ask("b", 30)])
                await limits.complete([Settlement("a", "job", (Actual("daily", 50),))])
                await limits.extend(["b"])
                await limits.pause("daily", 60)
                scope.cancel("enough")
                await trio.sleep_forever()

    async def look() -> None:
        async with open_filed(path) as limits:
            (state,) = await limits.states()
            assert (state.used, state.outstanding, state.paused_until) == (80, 0, None)

    in_trio(use)
    (kept,) = read(path)
    assert (kept["used"], kept["outstanding"]) == (50, 30)
    in_trio(look)


def test_a_period_of_a_budget_goes_on_while_nobody_keeps_it(tmp_path: Path) -> None:
    """Neither does opening begin one, nor is a file without a beginning left without one."""
    path = tmp_path / "limits.json"
    path.write_text(
        '[{"key": "daily", "kind": "budget", "capacity": 100, "used": 60, "resetSeconds": 3600}]'
    )

    async def use(amount: int = 0) -> int:
        async with open_filed(path) as limits:
            (state,) = await limits.states()
            if amount:
                await limits.reserve([ask("a", amount)])
            return state.used

    def begun() -> datetime:
        return datetime.fromisoformat(read(path)[0]["beganAt"])

    assert trio.run(use) == 60
    first = begun()
    assert abs(first - datetime.now(UTC)) < timedelta(minutes=1)
    (kept,) = read(path)
    for elapsed, used, amount in ((3000, 60, 0), (5000, 0, 5)):
        at = datetime.now(UTC) - timedelta(seconds=elapsed)
        path.write_text(json.dumps([{**kept, "beganAt": at.isoformat()}]))
        assert trio.run(use, amount) == used
    # An hour after it began the last time, and not now.
    assert abs(begun() - at - timedelta(hours=1)) < timedelta(minutes=1)


class Watched(MemoryQuota):
    """Limits that notice how often somebody looks at them."""

    def __init__(self, *limits: Limit) -> None:
        super().__init__(limits)
        self.looks = 0
        self.looked_thrice = trio.Event()

    async def states(self) -> Sequence[LimitState]:
        self.looks += 1
        if self.looks == 3:
            self.looked_thrice.set()
        return await super().states()


def test_what_is_used_is_written_now_and_then(tmp_path: Path) -> None:
    """For the case that nobody lives to write it at the end; and only if it has changed."""
    path = tmp_path / "limits.json"

    async def main() -> None:
        limits = Watched(DAILY)
        filed = _FiledLimits(path, limits)
        async with trio.open_nursery() as nursery:
            await filed.reserve([ask("a", 60)])
            nursery.start_soon(filed.keep, 0.001)
            # The look after the next one comes when the next one was written.
            await limits.looked_thrice.wait()
            nursery.cancel_scope.cancel("seen")
        assert read(path)[0]["outstanding"] == 60
        before = path.stat().st_ino
        await filed.save()
        assert path.stat().st_ino == before

    in_trio(main)


def test_a_file_that_cannot_be_written_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """However often it is tried again; limits go on meanwhile."""

    async def main() -> None:
        limits = Watched(DAILY)
        filed = _FiledLimits(tmp_path / "nowhere" / "limits.json", limits)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(filed.keep, 0.001)
            await limits.looked_thrice.wait()
            nursery.cancel_scope.cancel("seen")
        assert isinstance((await filed.reserve([ask("a", 60)]))[0], Granted)

    with caplog.at_level(logging.WARNING):
        in_trio(main)
    (record,) = caplog.records
    assert "cannot be written" in record.getMessage()


def test_who_defines_a_limit_hears_that_it_is_not_written(tmp_path: Path) -> None:
    """It holds for now; and the end is no better."""
    folder = tmp_path / "gone"
    folder.mkdir()
    path = folder / "limits.json"

    async def main() -> None:
        async with open_filed(path) as limits:
            shutil.rmtree(folder)
            with pytest.raises(QuotaError, match=r"limiter_unavailable: .*cannot be written"):
                await limits.define(DAILY)
            (state,) = await limits.states()
            assert state.limit == DAILY

    with pytest.raises(OutputError, match="cannot be written"):
        in_trio(main)


def test_a_file_that_cannot_be_used_is_told_before_anything_begins(tmp_path: Path) -> None:
    """What is wrong in it, or with its place; and what is wrong in the block comes out bare."""

    async def opened(path: Path) -> None:
        async with open_filed(path):
            raise KeyError("mine")

    path = tmp_path / "limits.json"
    path.write_text("[{}]")
    with pytest.raises(SuiteError, match="key: is missing"):
        trio.run(opened, path)
    with pytest.raises(OutputError, match="cannot be written"):
        trio.run(opened, tmp_path / "nowhere" / "limits.json")
    with pytest.raises(KeyError, match="mine"):
        trio.run(opened, tmp_path / "new.json")


def test_what_is_removed_is_gone_from_the_file(tmp_path: Path) -> None:
    """At once, as what is defined is there at once."""
    path = tmp_path / "limits.json"

    async def main() -> None:
        async with open_filed(path) as limits:
            await limits.define(DAILY)
            await limits.remove(DAILY.key)
            assert json.loads(path.read_text()) == []

    in_trio(main)


def test_a_file_has_one_user_at_a_time(tmp_path: Path) -> None:
    """Two would both grant all of it, and the last one to write would undo the other's definitions."""
    path = tmp_path / "limits.json"
    linked = tmp_path / "also.json"
    linked.symlink_to(path)

    async def main() -> None:
        async with open_filed(path) as limits:
            for name in (path, linked):
                with pytest.raises(OutputError, match=r"is open in another process: .* --url"):
                    async with open_filed(name):
                        pytest.fail("it was opened twice")
            await limits.define(DAILY)
        async with open_filed(linked) as limits:
            assert [state.limit for state in await limits.states()] == [DAILY]

    in_trio(main)
    assert {one.name for one in tmp_path.iterdir()} == {"limits.json", "also.json"}


def test_a_lock_that_was_left_holds_nobody_up(tmp_path: Path) -> None:
    """As by a process that was killed."""
    path = tmp_path / "limits.json"
    (tmp_path / ".limits.json.lock").touch()

    async def main() -> None:
        async with open_filed(path):
            pass

    in_trio(main)

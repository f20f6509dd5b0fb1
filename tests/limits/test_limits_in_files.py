"""Limits that outlive their server in a file."""

import json
import logging
import shutil
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from patience import PATIENCE

from trioeval.errors import LimitError, OutputError, SuiteError
from trioeval.limits import (
    Actual,
    Decision,
    Denied,
    Granted,
    LeaseRequest,
    LimitState,
    Requirement,
    Settlement,
    SharedLimit,
)
from trioeval.limits.backend import Backend
from trioeval.limits.file import _FileLimits, file_states, open_file_limits
from trioeval.limits.json import limit_data
from trioeval.limits.ledger import LimitLedger

DAILY = SharedLimit(key="daily", kind="budget", capacity=100)
SLOTS = SharedLimit(key="slots", kind="concurrency", capacity=1, timeout=60)
GONE = attrs.evolve(SLOTS, key="gone")
RPM = SharedLimit(key="rpm", kind="rolling", capacity=1, window=60)


def in_trio(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with trio.fail_after(PATIENCE):
            await main()

    trio.run(bounded)


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def ask(name: str, amount: int) -> LeaseRequest:
    return LeaseRequest(name, "job", (Requirement("daily", amount),))


def requires_extra(name: str) -> LeaseRequest:
    return LeaseRequest(name, "job", (Requirement("rpm", 1),))


def test_a_definition_is_in_the_file_before_it_is_acknowledged(tmp_path: Path) -> None:
    """A server that is killed directly afterwards has the definition when it restarts."""
    path = tmp_path / "limits.json"

    async def main() -> None:
        async with open_file_limits(path) as limits:
            assert isinstance(limits, Backend)
            assert read(path) == []
            await limits.define(DAILY)
            assert read(path) == [{"key": "daily", "kind": "budget", "capacity": 100}]

    in_trio(main)


def test_usage_counts_after_the_limits_are_reopened(tmp_path: Path) -> None:
    """This holds after a cancellation too; reservations stay, and a pause continues."""
    path = tmp_path / "limits.json"
    path.write_text('[{"key": "daily", "kind": "budget", "capacity": 100}]')

    async def use() -> None:
        with trio.CancelScope() as scope:
            async with open_file_limits(path) as limits:
                await limits.reserve([ask("a", 60), ask("b", 30)])
                await limits.complete([Settlement("a", "job", (Actual("daily", 50),))])
                await limits.extend(["b"])
                await limits.pause("daily", 60)
                scope.cancel("enough")
                await trio.sleep_forever()

    async def look() -> None:
        async with open_file_limits(path) as limits:
            (state,) = await limits.states()
            assert (state.used, state.outstanding) == (50, 30)
            assert state.paused_for is not None
            assert 0 < state.paused_for <= 60
            assert isinstance((await limits.reserve([ask("b", 30)]))[0], Granted)
            await limits.complete([Settlement("b", "job", (Actual("daily", 1),))])
            (state,) = await limits.states()
            assert (state.used, state.outstanding) == (51, 0)

    in_trio(use)
    (kept,) = read(path)
    assert (kept["used"], kept["outstanding"]) == (50, 30)
    in_trio(look)


def test_the_period_of_a_budget_continues_while_its_file_is_closed(tmp_path: Path) -> None:
    """Opening starts no period, and a file without a start gets one."""
    path = tmp_path / "limits.json"
    path.write_text(
        '[{"key": "daily", "kind": "budget", "capacity": 100, "used": 60, "resetSeconds": 3600}]'
    )

    async def use(amount: int = 0) -> int:
        async with open_file_limits(path) as limits:
            (state,) = await limits.states()
            if amount:
                await limits.reserve([ask("a", amount)])
            return state.used

    def period_start() -> datetime:
        return datetime.fromisoformat(read(path)[0]["beganAt"])

    assert trio.run(use) == 60
    first = period_start()
    assert abs(first - datetime.now(UTC)) < timedelta(minutes=1)
    (kept,) = read(path)
    for elapsed, used, amount in ((3000, 60, 0), (5000, 0, 5)):
        at = datetime.now(UTC) - timedelta(seconds=elapsed)
        path.write_text(json.dumps([{**kept, "beganAt": at.isoformat()}]))
        assert trio.run(use, amount) == used
    # One hour after the last start of a period, not now.
    assert abs(period_start() - at - timedelta(hours=1)) < timedelta(minutes=1)


class Watched(_FileLimits):
    """Limits that record how often their file is saved."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, LimitLedger([LimitState(limit=DAILY)]), time.time)
        self.looks = 0
        self.looked_thrice = trio.Event()

    async def save(self) -> None:
        try:
            await super().save()
        finally:
            self.looks += 1
            if self.looks == 3:
                self.looked_thrice.set()


def test_usage_is_written_periodically(tmp_path: Path) -> None:
    """It is written for programs that read the file, and only if it has changed."""
    path = tmp_path / "limits.json"

    async def main() -> None:
        filed = Watched(path)
        async with trio.open_nursery() as nursery:
            await filed.reserve([ask("a", 60)])
            nursery.start_soon(filed.keep, 0.001)
            await filed.looked_thrice.wait()
            nursery.cancel_scope.cancel("seen")
        assert read(path)[0]["outstanding"] == 60
        before = path.stat().st_ino
        await filed.save()
        assert path.stat().st_ino == before
        await filed.close()

    in_trio(main)


def test_a_file_that_cannot_be_written_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A failed write is warned of once, however often it is retried."""

    async def main() -> None:
        filed = Watched(tmp_path / "nowhere" / "limits.json")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(filed.keep, 0.001)
            await filed.looked_thrice.wait()
            nursery.cancel_scope.cancel("seen")

    with caplog.at_level(logging.WARNING):
        in_trio(main)
    (record,) = caplog.records
    assert "cannot write the limits" in record.getMessage()


def test_a_grant_that_cannot_be_written_is_not_a_grant(tmp_path: Path) -> None:
    """Its outcome is unknown; repeated, it is granted once, as soon as it can be written."""
    folder, away = tmp_path / "limits", tmp_path / "away"
    folder.mkdir()
    path = folder / "limits.json"

    async def main() -> None:
        async with open_file_limits(path) as limits:
            await limits.define(DAILY)
            folder.rename(away)
            # Appending to an open file still succeeds; replacing the file does not.
            limits._journal.close()  # type: ignore[attr-defined]
            for _twice in range(2):
                with pytest.raises(LimitError, match=r"limiter_unavailable: .*cannot write leases"):
                    await limits.reserve([ask("a", 60)])
            away.rename(folder)
            assert isinstance((await limits.reserve([ask("a", 60)]))[0], Granted)
            shutil.copytree(folder, away, ignore=shutil.ignore_patterns("*.lock"))
        async with open_file_limits(away / path.name) as limits:
            (state,) = await limits.states()
            assert state.outstanding == 60

    in_trio(main)


def test_a_damaged_journal_is_refused(tmp_path: Path) -> None:
    """The error names its line: limits with unknown usage must not count as unused."""
    path = tmp_path / "limits.json"

    async def use() -> None:
        async with open_file_limits(path) as limits:
            await limits.define(DAILY)
            for name in "abc":
                await limits.reserve([ask(name, 10)])

    in_trio(use)
    journal = tmp_path / "limits.json.journal"
    whole = journal.read_bytes()
    lines = whole.splitlines(keepends=True)
    for number in range(len(lines) - 1):
        damaged = [*lines[:number], lines[number][:-2] + b"?\n", *lines[number + 1 :]]
        journal.write_bytes(b"".join(damaged))
        with pytest.raises(SuiteError, match=rf"journal:{number + 1}: .*damaged") as caught:
            in_trio(use)
        assert "remove it to start" in str(caught.value)
    journal.write_bytes(whole.replace(b'"journal":1', b'"journal":9'))
    with pytest.raises(SuiteError, match="damaged"):
        in_trio(use)
    # The last line may be torn, at any byte of it.
    for left in range(len(b"".join(lines[:-1])), len(whole)):
        journal.write_bytes(whole[:left])
        assert sum(state.outstanding for state in file_states(path)) == 20
    journal.write_bytes(whole)
    assert sum(state.outstanding for state in file_states(path)) == 30


def test_a_long_journal_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size stays proportional to the remembered leases, and nothing is lost."""
    path = tmp_path / "limits.json"
    journal = tmp_path / "limits.json.journal"
    monkeypatch.setattr("trioeval.limits.journal._MIN_REWRITTEN", 10_000)

    async def main() -> None:
        async with open_file_limits(path) as limits:
            await limits.define(DAILY)
            await limits.reserve([ask("a", 60)])
            for _many in range(30):
                await limits.extend(["a"] * 256)
                assert journal.stat().st_size < 12_000
            (state,) = file_states(path)
            assert state.outstanding == 60

    in_trio(main)


def test_usage_whose_window_has_passed_is_not_restored(tmp_path: Path) -> None:
    """The file of a killed server may still contain the usage; the journal decides, and is removed."""
    path = tmp_path / "limits.json"
    path.write_text(json.dumps([limit_data(RPM)]))
    now = 10_000.0

    async def look() -> int:
        async with open_file_limits(path, now=lambda: now) as limits:
            (state,) = await limits.states()
            return state.used

    async def use() -> None:
        async with open_file_limits(path, now=lambda: now) as limits:
            await limits.reserve([requires_extra("a")])

    in_trio(use)
    assert read(path)[0]["used"] == 1
    now += 700
    for _twice in range(2):
        assert trio.run(look) == 0
    assert {one.name for one in tmp_path.iterdir()} == {"limits.json"}


def test_changes_of_a_file_while_it_is_closed_take_effect(tmp_path: Path) -> None:
    """Its definitions are used; limits that stay the same keep their leases."""
    path = tmp_path / "limits.json"
    path.write_text(json.dumps([limit_data(one) for one in (DAILY, SLOTS, GONE)]))

    async def use() -> None:
        async with open_file_limits(path) as limits:
            requirements = [
                Requirement("daily", 60),
                Requirement("slots", 1),
                Requirement("gone", 1),
            ]
            await limits.reserve([LeaseRequest("a", "job", tuple(requirements))])

    async def look() -> None:
        async with open_file_limits(path) as limits:
            daily, new, slots = await limits.states()
            assert (daily.limit.capacity, daily.outstanding) == (200, 60)
            assert (new.limit.key, slots.used) == ("new", 1)
            await limits.complete([Settlement("a", "job", (Actual("daily", 5),))])
            daily, new, slots = await limits.states()
            assert (daily.used, daily.outstanding, slots.used) == (5, 0, 0)

    in_trio(use)
    changed = attrs.evolve(DAILY, capacity=200)
    new = attrs.evolve(DAILY, key="new")
    path.write_text(json.dumps([limit_data(one) for one in (changed, SLOTS, new)]))
    in_trio(look)


def test_a_clock_that_was_set_back_does_not_lengthen_windows(tmp_path: Path) -> None:
    """Time continues from where it was; a full window is free after its length."""
    path = tmp_path / "limits.json"
    path.write_text(json.dumps([limit_data(RPM)]))
    now = 10_000.0

    async def reserve(name: str) -> Decision:
        async with open_file_limits(path, now=lambda: now) as limits:
            (decision,) = await limits.reserve([requires_extra(name)])
            return decision

    assert isinstance(trio.run(reserve, "a"), Granted)
    now -= 3600
    denied = trio.run(reserve, "b")
    assert isinstance(denied, Denied)
    assert denied.retry_after == 60

    async def later() -> None:
        nonlocal now
        async with open_file_limits(path, now=lambda: now) as limits:
            now += 59
            again, soon = await limits.reserve([requires_extra("a"), requires_extra("c")])
            assert isinstance(again, Granted)
            assert isinstance(soon, Denied)
            now += 1
            (decision,) = await limits.reserve([requires_extra("d")])
            assert isinstance(decision, Granted)

    in_trio(later)


def test_an_error_of_writing_is_raised_to_the_caller_of_define(tmp_path: Path) -> None:
    """The change takes effect for now; closing fails as well."""
    folder = tmp_path / "gone"
    folder.mkdir()
    path = folder / "limits.json"

    async def main() -> None:
        async with open_file_limits(path) as limits:
            shutil.rmtree(folder)
            with pytest.raises(LimitError, match=r"limiter_unavailable: .*cannot write the limits"):
                await limits.define(DAILY)
            (state,) = await limits.states()
            assert state.limit == DAILY

    with pytest.raises(OutputError, match="cannot write the limits"):
        in_trio(main)


def test_an_unusable_file_is_reported_when_it_is_opened(tmp_path: Path) -> None:
    """Problems of the file or its folder are reported; errors of the block are not wrapped."""

    async def opened(path: Path) -> None:
        async with open_file_limits(path):
            raise KeyError("mine")

    path = tmp_path / "limits.json"
    path.write_text("[{}]")
    with pytest.raises(SuiteError, match="key: is missing"):
        trio.run(opened, path)
    with pytest.raises(OutputError, match="cannot write the limits"):
        trio.run(opened, tmp_path / "nowhere" / "limits.json")
    with pytest.raises(KeyError, match="mine"):
        trio.run(opened, tmp_path / "new.json")


def test_a_removed_limit_is_removed_from_the_file(tmp_path: Path) -> None:
    """A removal is written at once, like a definition."""
    path = tmp_path / "limits.json"

    async def main() -> None:
        async with open_file_limits(path) as limits:
            await limits.define(DAILY)
            await limits.remove(DAILY.key)
            assert json.loads(path.read_text()) == []

    in_trio(main)


def test_a_file_has_one_user_at_a_time(tmp_path: Path) -> None:
    """Two servers would both grant everything, and overwrite each other's definitions."""
    path = tmp_path / "limits.json"
    linked = tmp_path / "also.json"
    linked.symlink_to(path)

    async def main() -> None:
        async with open_file_limits(path) as limits:
            for name in (path, linked):
                with pytest.raises(OutputError, match=r"is open in another process; .* --url"):
                    async with open_file_limits(name):
                        pytest.fail("it was opened twice")
            await limits.define(DAILY)
        async with open_file_limits(linked) as limits:
            assert [state.limit for state in await limits.states()] == [DAILY]

    in_trio(main)
    assert {one.name for one in tmp_path.iterdir()} == {"limits.json", "also.json"}


def test_a_stale_lock_does_not_block(tmp_path: Path) -> None:
    """For example the lock of a killed process."""
    path = tmp_path / "limits.json"
    (tmp_path / ".limits.json.lock").touch()

    async def main() -> None:
        async with open_file_limits(path):
            pass

    in_trio(main)

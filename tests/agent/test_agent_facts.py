"""Facts of cases are posted on the bus of their run once, even if the run dies in between."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import attrs
import pytest
import trio
import trio.testing
from filelock import FileLock

from trioeval.agent.bus.bus import Bus, open_bus
from trioeval.agent.bus.messages import Message, MessageDraft, MessageParent
from trioeval.agent.bus.reading import BusReading, read_bus, read_parts
from trioeval.agent.open import CasePoster, HurriedBus, RunBuses, SharedFacts
from trioeval.errors import BusError

chance = Random(7).random  # noqa: S311 - no secret


def draft(body: str, case: str = "calc", type_: str = "FACT") -> MessageDraft:
    return MessageDraft(type=type_, project_id="run-1", task_id=case, body=body, meta={"own": "1"})


def run_buses(warn: Callable[[str], None] = print) -> RunBuses:
    return RunBuses(project="run-1", stop=trio.Event(), warn=warn, rng=chance)


def facts_on(run: Bus, buses: RunBuses) -> SharedFacts:
    return SharedFacts(run, HurriedBus(run.path, buses))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait for a free bus takes as long as necessary, even if the machine is suspended."""
    monkeypatch.setattr("trioeval.agent.open.WAIT", 60.0)


def facts_of(folder: Path) -> list[Message]:
    return [one for one in read_bus(folder).messages if one.draft.type == "FACT"]


@pytest.mark.usefixtures("patient")
def test_facts_are_forwarded_once_in_order(tmp_path: Path) -> None:
    """Equal facts of the same case, facts of other cases, and later ones are included."""

    async def main() -> list[int]:
        buses, counts = run_buses(), []
        async with open_bus(tmp_path / "run", rng=chance) as run:
            facts = facts_on(run, buses)
            for case in ("calc", "other"):
                async with open_bus(tmp_path / case, rng=chance) as own:
                    for body in ("first", "second", "second"):
                        await own.append(draft(body, case))
                    await own.append(draft("nothing new", case, "INFO"))
                counts += [await facts.forward(tmp_path / case) for _ in range(2)]
            async with open_bus(tmp_path / "calc", rng=chance) as own:
                await own.append(draft("late"))
            counts.append(await facts.forward(tmp_path / "calc"))
            counts.append(await facts.forward(tmp_path / "unknown"))
        assert buses.lost == 0
        return counts

    assert trio.run(main) == [3, 0, 3, 0, 1, 0]
    found = [(one.draft.task_id, one.draft.body) for one in facts_of(tmp_path / "run")]
    three = ("first", "second", "second")
    assert found == [
        *[(case, body) for case in ("calc", "other") for body in three],
        ("calc", "late"),
    ]
    assert all(one.draft.meta["own"] == "1" for one in facts_of(tmp_path / "run"))


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("after", [0, 1, 2])
def test_facts_are_complete_after_a_crash_between_two(
    tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Facts that are on the bus are not posted again."""

    async def main() -> None:
        buses = run_buses()
        async with open_bus(tmp_path / "calc", rng=chance) as own:
            for number in range(3):
                await own.append(draft(f"fact {number}"))
        append, drafts = Bus.append, list[MessageDraft]()

        async def dies(bus: Bus, one: MessageDraft) -> Message:
            if len(drafts) == after:
                raise BusError("no space left on the device")
            drafts.append(one)
            return await append(bus, one)

        async with open_bus(tmp_path / "run", rng=chance) as run:
            facts = facts_on(run, buses)
            with monkeypatch.context() as patch:
                patch.setattr(Bus, "append", dies)
                assert await facts.forward(tmp_path / "calc") == after
            assert buses.lost == 3 - after
            await facts.forward(tmp_path / "calc")

    trio.run(main)
    assert [one.draft.body for one in facts_of(tmp_path / "run")] == [
        f"fact {number}" for number in range(3)
    ]


def test_ag_14_a_bus_that_cannot_be_opened_is_reported_once_a_minute(
    tmp_path: Path,
) -> None:
    """Each lost message is counted."""
    (tmp_path / "bus").write_text("a file")
    warned = list[str]()

    async def main() -> None:
        buses = run_buses(warned.append)
        post = CasePoster(tmp_path / "bus", buses, case="calc")
        for _ in range(4):
            await post("INFO", "hello")
            await trio.sleep(25)
        assert buses.lost == 4

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert [line.split(": ")[0] for line in warned] == [
        "messages of agents cannot be written (1 so far)",
        "messages of agents cannot be written (4 so far)",
    ]


async def seconds_of(post: CasePoster) -> float:
    """The number of seconds that a message takes."""
    started_at = trio.current_time()
    await post("INFO", "hello")
    return trio.current_time() - started_at


def test_a_locked_bus_is_waited_for_once_a_minute(tmp_path: Path) -> None:
    """The wait lasts one second; facts in between are posted if the lock is free, or counted."""
    warned = list[str]()

    async def main() -> None:
        buses = run_buses(warned.append)
        post = CasePoster(tmp_path, buses, case="calc")
        with FileLock(tmp_path / ".lock"):
            assert await seconds_of(post) == pytest.approx(1)
            assert await seconds_of(post) + await seconds_of(post) < 0.2
            await trio.sleep(60)
            assert await seconds_of(post) == pytest.approx(1)
            assert await seconds_of(post) < 0.1
        assert buses.lost == 5
        await post("INFO", "free again")
        assert buses.lost == 5
        with FileLock(tmp_path / ".lock"):
            assert await seconds_of(post) == pytest.approx(1)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert [one.draft.body for one in read_bus(tmp_path).messages] == ["free again"]
    assert f"{tmp_path}: the message bus was locked by another process" in warned[0]


def test_posting_facts_does_not_delay_a_stop(tmp_path: Path) -> None:
    """Neither a waiting message nor a later one delays it; it is posted if that is quick."""

    async def main() -> None:
        buses = run_buses()
        post = CasePoster(tmp_path, buses, case="calc")
        with FileLock(tmp_path / ".lock"):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(post, "INFO", "waits")
                await trio.sleep(0.3)
                buses.stop.set()
            assert trio.current_time() < 0.4
            assert await seconds_of(post) < 0.1
        assert buses.lost == 2
        await post("INFO", "stopped")

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert [one.draft.body for one in read_bus(tmp_path).messages] == ["stopped"]


@pytest.mark.usefixtures("patient")
def test_a_fact_that_cannot_be_forwarded_does_not_block_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are written together; ids of messages of their own bus are left out."""

    async def main() -> None:
        buses = run_buses()
        async with open_bus(tmp_path / "calc", rng=chance) as own:
            large = MessageDraft(type="FACT", project_id="p", body="x" * 2000)
            await own.append(large)
            for number in range(20):
                parents = (MessageParent(msg_id="of its own bus"),)
                one = draft(f"fact {number}")
                await own.append(attrs.evolve(one, parents=parents, issue_id="of its own bus"))
        monkeypatch.setattr("trioeval.agent.bus.bus.LARGEST", 2000)
        async with open_bus(tmp_path / "run", rng=chance) as run:
            assert await facts_on(run, buses).forward(tmp_path / "calc") == 20
            assert run.stats.batches < 20
        assert buses.lost == 1

    trio.run(main)
    found = facts_of(tmp_path / "run")
    assert [one.draft.body for one in found] == [f"fact {number}" for number in range(20)]
    assert {(one.draft.parents, one.draft.issue_id) for one in found} == {((), None)}


@pytest.mark.usefixtures("patient")
def test_the_bus_of_a_run_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each case reads the new messages, or all of them if it is another bus."""
    since: list[int | None] = []

    def spied(folder: Path, **more: int | None) -> Iterator[BusReading]:
        if folder.name == "run":
            since.append(more.get("since"))
        return read_parts(folder, **more)

    async def main() -> None:
        monkeypatch.setattr("trioeval.agent.open.read_parts", spied)
        async with open_bus(tmp_path / "run", rng=chance) as run:
            facts = facts_on(run, run_buses())
            for case in "abc":
                async with open_bus(tmp_path / case, rng=chance) as own:
                    await own.append(draft("first", case))
                    await own.append(draft("second", case))
                assert await facts.forward(tmp_path / case) == 2
            assert since == [None, None, 2]
            for file in (tmp_path / "run").iterdir():
                file.unlink()
            assert await facts.forward(tmp_path / "c") == 2
            assert since == [None, None, 2, 4, None]

    trio.run(main)

"""What cases have found out is told on the bus of their run: once, whatever dies in between."""

from pathlib import Path
from random import Random

import pytest
import trio
import trio.testing

from trioeval.agents.bus.bus import Bus, open_bus
from trioeval.agents.bus.messages import Draft, Message
from trioeval.agents.bus.reading import read_bus
from trioeval.errors import BusError
from trioeval.tasks.agents.bus_accounts import BusAccounts
from trioeval.tasks.agents.facts import RunFacts
from trioeval.tasks.agents.posts import BusTroubles, Patience, Posts

chance = Random(7).random  # noqa: S311 - no secret


def draft(body: str, case: str = "calc", type_: str = "FACT") -> Draft:
    return Draft(type=type_, project_id="run-1", task_id=case, body=body, meta={"own": "1"})


def told_on(run: Bus, troubles: BusTroubles) -> RunFacts:
    return RunFacts(run, Patience(run.path, trio.Event()), troubles)


def facts_of(folder: Path) -> list[Message]:
    return [one for one in read_bus(folder).messages if one.draft.type == "FACT"]


def test_facts_are_passed_on_once_in_their_order(tmp_path: Path) -> None:
    """Also equal ones that a case tells twice, those of other cases, and later ones."""

    async def main() -> list[int]:
        troubles, told = BusTroubles(print), []
        async with open_bus(tmp_path / "run", rng=chance) as run:
            facts = told_on(run, troubles)
            for case in ("calc", "other"):
                async with open_bus(tmp_path / case, rng=chance) as own:
                    for body in ("first", "second", "second"):
                        await own.append(draft(body, case))
                    await own.append(draft("nothing new", case, "INFO"))
                told += [await facts.pass_on(tmp_path / case) for _ in range(2)]
            async with open_bus(tmp_path / "calc", rng=chance) as own:
                await own.append(draft("late"))
            told.append(await facts.pass_on(tmp_path / "calc"))
            told.append(await facts.pass_on(tmp_path / "nobody"))
        assert troubles.count == 0
        return told

    assert trio.run(main) == [3, 0, 3, 0, 1, 0]
    found = [(one.draft.task_id, one.draft.body) for one in facts_of(tmp_path / "run")]
    three = ("first", "second", "second")
    assert found == [
        *[(case, body) for case in ("calc", "other") for body in three],
        ("calc", "late"),
    ]
    assert all(one.draft.meta["own"] == "1" for one in facts_of(tmp_path / "run"))


@pytest.mark.parametrize("after", [0, 1, 2])
def test_facts_are_whole_after_a_death_between_two(
    tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there already is not told again."""

    async def main() -> None:
        troubles = BusTroubles(print)
        async with open_bus(tmp_path / "calc", rng=chance) as own:
            for number in range(3):
                await own.append(draft(f"fact {number}"))
        append, told = Bus.append, list[Draft]()

        async def dies(bus: Bus, one: Draft) -> Message:
            if len(told) == after:
                raise BusError("no space left on the device")
            told.append(one)
            return await append(bus, one)

        async with open_bus(tmp_path / "run", rng=chance) as run:
            facts = told_on(run, troubles)
            with monkeypatch.context() as patch:
                patch.setattr(Bus, "append", dies)
                assert await facts.pass_on(tmp_path / "calc") == after
            assert troubles.count == 3 - after
            await facts.pass_on(tmp_path / "calc")

    trio.run(main)
    assert [one.draft.body for one in facts_of(tmp_path / "run")] == [
        f"fact {number}" for number in range(3)
    ]


def test_ag_14_a_bus_that_cannot_be_opened_is_told_once_a_minute(
    tmp_path: Path,
) -> None:
    """Each message that is lost counts."""
    (tmp_path / "bus").write_text("a file")
    warned = list[str]()

    async def main() -> None:
        troubles = BusTroubles(warned.append)
        post = Posts(
            folder=tmp_path / "bus",
            project="run-1",
            task="calc",
            troubles=troubles,
            patience=Patience(tmp_path / "bus", trio.Event()),
            rng=chance,
            buses=BusAccounts(),
        )
        for _ in range(4):
            await post("INFO", "hello")
            await trio.sleep(25)
        assert troubles.count == 4

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert [line.split(": ")[0] for line in warned] == [
        "messages of agents cannot be written (1 until now)",
        "messages of agents cannot be written (4 until now)",
    ]

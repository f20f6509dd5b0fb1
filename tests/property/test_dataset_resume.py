"""RESUME and ONCE for datasets, with a real store and real files, interrupted at any point."""

import functools
import json
import math
import sqlite3
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

import trioeval
from trioeval.columns.events import DatasetEvent, GroupWritten
from trioeval.columns.result import DatasetResult
from trioeval.errors import ProviderError
from trioeval.providers import Request
from trioeval.report.stored import RunStart
from trioeval.store.store import open_store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

START = RunStart(
    id="eval-1", utc_created="2026-01-01T00:00:00Z", heads=[{"task": "dataset", "columns": []}]
)
MANY = 10**9
NUMBER = {"type": "sampler", "sampler": "uniform", "low": 1, "high": MANY, "decimals": 0}


def chance(text: str, among: int) -> int:
    """Return the same number for the same text in every run."""
    return zlib.crc32(text.encode()) % among


@attrs.define
class World:
    """A model with equal answers to equal questions, which ends the run after a number of events."""

    fails: bool
    """Refuse some questions permanently."""
    left: float = math.inf
    """Answers and written groups until the run is interrupted."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    requests: list[str] = attrs.field(factory=list)

    async def model(self, request: Request) -> str:
        """Yield to the scheduler some times, and answer."""
        self.requests.append(request.prompt)
        for _ in range(chance(request.prompt, 5)):
            await trio.lowlevel.checkpoint()
        self.happens()
        if self.fails and not chance(request.prompt, 7):
            raise ProviderError("bad_request", "no")
        return f"<{request.prompt}>"

    def watch(self, event: DatasetEvent) -> None:
        if isinstance(event, GroupWritten):
            self.happens()

    def happens(self) -> None:
        self.left -= 1
        if self.left <= 0:
            self.scope.cancel("the example says so")


def llm(name: str, prompt: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "llm", "provider": "model", "prompt": prompt, **more}


SIZE = {"name": "size", "type": "expression", "template": "{{ x | length }}", "as": "int"}
COLUMNS: Sequence[Mapping[str, Any]] = (
    llm("y", "y {{ x }} {{ a }}"),
    llm("z", "z {{ a }}"),
    llm("w", "w {{ x }} {{ a }}", skip={"when": "a % 3 == 0", "value": "-"}),
    llm("v", "v {{ a }}", dropWhen="a % 4 == 0"),
    {**SIZE, "dropWhen": "a % 5 == 0"},
)


@st.composite
def datasets(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a column of numbers, a text from it, and more columns."""
    more = draw(st.lists(st.sampled_from(COLUMNS), max_size=3, unique_by=lambda one: one["name"]))
    return {
        "rows": draw(st.integers(1, 9)),
        "groupSize": draw(st.integers(1, 4)),
        "seed": draw(st.integers(0, 99)),
        "format": draw(st.sampled_from(["jsonl", "jsonl", "parquet"])),
        "maxOpenCells": draw(st.sampled_from([1, 12, 50_000])),
        "shutdown": {"enabled": False},
        "columns": [{"name": "a", **NUMBER}, llm("x", "x {{ a }}"), *more],
    }


async def execution(
    folder: Path, document: Mapping[str, Any], world: World, *, first: bool
) -> DatasetResult | None:
    """Run the dataset once; return None if it was interrupted."""
    found: DatasetResult | None = None
    async with open_store(folder / "runs.db") as store:
        run = store.begin(START) if first else await store.resume(START.id, START)
        with world.scope:
            dataset = await trioeval.build_columns(
                document,
                providers={"model": world.model},
                output_dir=folder / "made",
                events=world.watch,
                journal=run,
            )
            found = dataset.result
        run.finish("interrupted" if found is None else "finished", duration_ms=0, derived={})
    return None if world.scope.cancelled_caught else found


def recorded(folder: Path) -> set[str]:
    """Return the questions whose answers are in the store."""
    with closing(sqlite3.connect(folder / "runs.db")) as store:
        lines = store.execute("SELECT made FROM dataset_cells").fetchall()
    values = [
        value for (made,) in lines for row in json.loads(made).values() for value in row.values()
    ]
    return {value[1:-1] for value in values}


def files_of(folder: Path, *, has_rivals: bool) -> Mapping[str, Any]:
    """Return the content of the dataset; of rows that two columns may drop, only their number."""
    found: dict[str, Any] = {one.name: one.read_bytes() for one in (folder / "made").iterdir()}
    if has_rivals:
        found["dataset.json"] = header = json.loads(found["dataset.json"])
        for counted in (*header["groups"], header["result"]):
            counted["dropped"] = sum(counted["dropped"].values())
    return found


def comparable(result: DatasetResult | None, *, has_rivals: bool) -> Any:
    """Return a result without times, and without calls whose answers were lost.

    Which of two columns drops a row that both would drop is random.
    """
    assert result is not None
    columns = [
        (one.name, one.type, one.values, one.nulls, one.skipped, one.distinct, one.common)
        for one in result.columns
    ]
    failures = [(one.row, None if has_rivals else one.cause) for one in result.failures]
    dropped = sum(result.dropped.values()) if has_rivals else result.dropped
    rest = (result.requested, result.written, dropped, result.not_run, result.groups)
    return result.outcome, rest, columns, failures


@given(document=datasets(), cuts=st.lists(st.integers(1, 12), max_size=3), fails=st.booleans())
@settings(max_examples=settings().max_examples // 20)
def test_co_70_an_interrupted_and_resumed_dataset_has_the_same_result(
    document: dict[str, Any], cuts: list[int], *, fails: bool
) -> None:
    """RESUME: an interrupted and resumed dataset has the same files and numbers, without repeated calls."""
    filters = ["dropWhen" in column for column in document["columns"]].count(True)
    fails = fails and not filters
    has_rivals = filters > 1
    with tempfile.TemporaryDirectory() as name:
        whole, cut = Path(name, "whole"), Path(name, "cut")
        whole.mkdir()
        cut.mkdir()
        reference = World(fails)
        wanted = trio.run(functools.partial(execution, whole, document, reference, first=True))
        known: set[str] = set()
        result: DatasetResult | None = None
        for place, left in enumerate([*cuts, math.inf]):
            world = World(fails, left)
            result = trio.run(functools.partial(execution, cut, document, world, first=not place))
            assert not known & {*world.requests}
            assert len({*world.requests}) == len(world.requests)
            if not fails and not filters:  # or a row may have been dropped before its request
                assert {*world.requests} <= {*reference.requests}
            known = recorded(cut)
        assert comparable(result, has_rivals=has_rivals) == comparable(
            wanted, has_rivals=has_rivals
        )
        assert files_of(cut, has_rivals=has_rivals) == files_of(whole, has_rivals=has_rivals)

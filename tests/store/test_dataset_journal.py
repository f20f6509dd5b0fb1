"""A stored dataset is found by later executions of its run, and by no others."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_things import row_at, start_of

from trioeval.columns.files import GroupFile
from trioeval.columns.graph import RowGrouping
from trioeval.columns.journal import DatasetJournal, MadeRecord, RestoredGroup
from trioeval.columns.result import Cause, DroppedRow
from trioeval.evaluation.reconcile import Retry
from trioeval.store.database import DatabaseKind, open_database
from trioeval.store.dataset import StoredDataset
from trioeval.store.dataset_writes import cell_write, drop_write
from trioeval.store.reader import read_store
from trioeval.store.runs import delete_run
from trioeval.store.schema import MIGRATIONS, RUNS
from trioeval.store.store import open_store
from trioeval.store.writes import PendingWrite, RunPlace, write_batch
from trioeval.testing.journals import MemoryDataset, MemoryJournal

T = TypeVar("T")

TASK = "problems"
GROUPING = RowGrouping(2, (5,))
FINGERPRINT = {"columns.a": "1", "seed": "2"}
HEADS = [{"task": None}, {"task": TASK}, {"task": "other"}]

CELLS = [
    MadeRecord(producer="a", unit=row, digest="d", values={row: {"a": f"text {row}"}})
    for row in range(5)
]
WHOLE = MadeRecord(
    producer="b",
    unit=1,
    digest="e",
    values={3: {"b": None, "c": [1.5]}},
    skipped=(2,),
    tally={"calls": 2},
)
DROPPED = DroppedRow(
    row=1, cause="failed", column="a", error="no \0 such", kind="not_found", attempts=3
)
GROUPS = (
    GroupFile(group=0, rows=2, file="batch_00000.jsonl", digest="f"),
    GroupFile(group=1, rows=(3,), file="batch_00001.jsonl", digest="g", dropped={"failed": 1}),
    GroupFile(group=2, rows=0, file=None, digest=None),
)


def start(**changes: Any) -> Any:
    return start_of(**({"heads": HEADS} | changes))


def execute(
    path: Path,
    what: Callable[[DatasetJournal], T],
    *,
    retry: Retry = Retry(),  # noqa: B008 - frozen
    **changes: Any,
) -> tuple[T, list[str]]:
    """Run one execution; return its results and its warnings."""

    async def main() -> T:
        async with open_store(path, on_warning=warnings.append) as store:
            if first:
                run = store.begin(start(**changes))
            else:
                run = await store.resume("eval-1", start(**changes), retry=retry)
            dataset = run.dataset(TASK)
            assert isinstance(dataset, StoredDataset)
            found = what(dataset)
            await dataset.durable()
            assert store.error is None
            return found

    warnings: list[str] = []
    first = not path.exists()
    return trio.run(main), warnings


def put_all(dataset: DatasetJournal) -> None:
    dataset.on_start(GROUPING, FINGERPRINT)
    for record in (*CELLS, WHOLE):
        dataset.on_made(record)
    dataset.on_dropped(DROPPED)
    for group in GROUPS:
        dataset.on_written(group)
    dataset.on_stage("after_generation", "begun")


def put(dataset: DatasetJournal) -> None:
    assert not dataset.resumed
    assert dataset.grouping is None
    assert dataset.groups() == ()
    assert dataset.restored(0, range(2)) == RestoredGroup()
    put_all(dataset)
    assert dataset.stages() == {"after_generation": "begun"}


def parts_of(found: RestoredGroup) -> set[tuple[str, int]]:
    return {(one.producer, one.unit) for one in found.made}


def test_recorded_data_is_restored(tmp_path: Path) -> None:
    """Cells, groups, dropped rows, files and stages are restored by group."""
    path = tmp_path / "r.db"
    execute(path, put)

    def find(dataset: DatasetJournal) -> None:
        assert dataset.resumed
        assert dataset.grouping == GROUPING
        assert tuple(dataset.groups()) == GROUPS
        assert dataset.stages() == {"after_generation": "begun"}
        for begun in (False, True):
            if begun:
                dataset.on_start(GROUPING, FINGERPRINT)
            dropped = attrs.evolve(DROPPED, error="no \\x00 such")
            assert dataset.restored(0, range(2)) == RestoredGroup(
                made=(*CELLS[:2],), dropped=(dropped,)
            )
            found = dataset.restored(1, range(2, 4))
            assert {one.producer: one for one in found.made if one.unit == 1} == {"b": WHOLE}
            assert parts_of(found) == {("a", 2), ("a", 3), ("b", 1)}
            assert dataset.restored(2, range(4, 5)) == RestoredGroup(made=(*CELLS[4:],))
            assert dataset.restored(3, range(5, 7)) == RestoredGroup()

    assert execute(path, find)[1] == []


@pytest.mark.parametrize("cause", ["failed", "early_shutdown", "filtered"])
def test_lost_rows_are_forgotten_when_errors_are_retried(tmp_path: Path, cause: Cause) -> None:
    """Lost rows are retried until their groups are written again, or no retry is requested."""

    def begin(dataset: DatasetJournal) -> None:
        put_all(dataset)
        dataset.on_dropped(attrs.evolve(DROPPED, row=3, cause=cause))

    def look(dataset: DatasetJournal) -> tuple[Any, ...]:
        groups = [one.group for one in dataset.groups()]
        dataset.on_start(GROUPING, FINGERPRINT)
        rows = [row.row for row in dataset.restored(1, range(2, 4)).dropped]
        return groups, dataset.groups_to_rewrite(), rows, dict(dataset.stages())

    def write(dataset: DatasetJournal) -> tuple[Any, ...]:
        dataset.on_written(GROUPS[1])
        return look(dataset)

    path = tmp_path / "runs.db"
    execute(path, begin)
    whole: tuple[Any, ...] = ([0, 1, 2], frozenset(), [3], {"after_generation": "begun"})
    assert execute(path, look)[0] == whole
    is_lost = cause != "filtered"
    both = {0, 1} if is_lost else {0}  # DROPPED is of group 0
    left = [one for one in range(3) if one not in both]
    again: tuple[Any, ...] = (left, frozenset(both), [] if is_lost else [3], {})
    assert execute(path, look, retry=Retry("errors"))[0] == again
    assert execute(path, write)[0] == again
    left_now = ([*range(1, 3)], frozenset({0}), *again[2:])
    assert execute(path, look)[0] == left_now
    assert execute(path, look, retry=Retry("none"))[0] == ([0, 1, 2], frozenset(), *again[2:])


def test_another_task_and_another_run_find_nothing(tmp_path: Path) -> None:
    """Each task and run has its own dataset."""
    path = tmp_path / "r.db"
    execute(path, put)

    async def main() -> None:
        async with open_store(path) as store:
            run = await store.resume("eval-1", start())
            for task in ("other", None, "unknown"):
                other = run.dataset(task)
                assert not other.resumed
                assert other.restored(0, range(2)) == RestoredGroup()
            new = store.begin(start(run_id="eval-2")).dataset(TASK)
            assert not new.resumed
            assert new.groups() == ()

    trio.run(main)


def test_a_new_result_replaces_the_earlier_one(tmp_path: Path) -> None:
    """A new result replaces that of its cell or group."""
    path = tmp_path / "r.db"
    execute(path, put)
    again = [
        attrs.evolve(CELLS[2], digest="new", values={2: {"a": "other"}}),
        attrs.evolve(WHOLE, digest="new", values={3: {"b": 1}}, skipped=()),
    ]

    def replace(dataset: DatasetJournal) -> None:
        dataset.on_start(GROUPING, FINGERPRINT)
        for record in again:
            dataset.on_made(record)
        dataset.on_written(attrs.evolve(GROUPS[1], digest="new"))
        dataset.on_stage("after_generation", "over")

    def find(dataset: DatasetJournal) -> None:
        found = dataset.restored(1, range(2, 4)).made
        assert sorted(found, key=lambda one: (one.producer, one.unit)) == [
            again[0],
            CELLS[3],
            again[1],
        ]
        assert dataset.groups()[1].digest == "new"
        assert dataset.stages() == {"after_generation": "over"}

    execute(path, replace)
    execute(path, find)


@pytest.mark.parametrize("rows", [7, 9])
def test_co_73_all_data_of_an_extended_dataset_stays_valid(tmp_path: Path, rows: int) -> None:
    """All data of a dataset that is extended stays valid."""
    path = tmp_path / "r.db"
    execute(path, put)

    def find(dataset: DatasetJournal) -> None:
        dataset.on_start(RowGrouping(2, (5, rows)), FINGERPRINT)
        assert tuple(dataset.groups()) == GROUPS
        assert parts_of(dataset.restored(1, range(2, 4))) == {("a", 2), ("a", 3), ("b", 1)}

    execute(path, find)

    def again(dataset: DatasetJournal) -> None:
        assert dataset.grouping == RowGrouping(2, (5, rows))

    execute(path, again)


@pytest.mark.parametrize("regrouped", ["same groups", "other groups"])
def test_only_cells_of_a_changed_dataset_stay_valid(tmp_path: Path, regrouped: str) -> None:
    """For a changed configuration only cells with equal digests are valid."""
    path = tmp_path / "r.db"
    execute(path, put)
    is_regrouped = regrouped == "other groups"
    grouping = RowGrouping(3, (5,)) if is_regrouped else GROUPING
    rows = range(3) if is_regrouped else range(2)

    def begin(dataset: DatasetJournal) -> None:
        dataset.on_start(grouping, {**FINGERPRINT, "seed": "3"})
        check(dataset)

    def check(dataset: DatasetJournal) -> None:
        assert tuple(dataset.groups()) == ()
        assert dataset.stages() == {}
        found = dataset.restored(0, rows)
        assert found.dropped == ()
        assert parts_of(found) == {("a", row) for row in rows}
        assert ("b", 1) not in parts_of(dataset.restored(1, range(3, 5)))
        assert (("b", 1) in parts_of(dataset.restored(1, range(2, 4)))) is not is_regrouped

    def after(dataset: DatasetJournal) -> None:
        assert dataset.grouping == grouping
        check(dataset)

    execute(path, begin)
    execute(path, after)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.slow
def test_values_are_restored_exactly(tmp_path: Path) -> None:
    """All values are restored exactly."""
    path = tmp_path / "r.db"
    made: list[Mapping[str, Any]] = []

    @settings(max_examples=settings().max_examples // 2)
    @given(values)
    def collect(value: Any) -> None:
        made.append({"a": value})

    collect()
    made += [{"a": "\ud800 \0"}, {"a": 2**200}, {"a": "x" * 100_000}, {"a": -0.0, "b": 1e-320}]

    def write(dataset: DatasetJournal) -> None:
        dataset.on_start(RowGrouping(1000, (1000,)), {})
        for row, found in enumerate(made):
            dataset.on_made(MadeRecord(producer="a", unit=row, digest="d", values={row: found}))

    def find(dataset: DatasetJournal) -> None:
        found = {one.unit: one.values for one in dataset.restored(0, range(1000)).made}
        for row, one in enumerate(made):
            assert repr(found[row]) == repr({row: one})

    execute(path, write)
    execute(path, find)


def test_values_that_are_not_json_or_hold_a_key_are_made_again(tmp_path: Path) -> None:
    """Values that are not JSON or contain a key are not stored, and are made again."""
    path = tmp_path / "r.db"
    secret = "sk-0123456789abcdef"  # noqa: S105

    def write(dataset: DatasetJournal) -> None:
        dataset.on_start(GROUPING, {})
        for row, value in enumerate([f"it is {secret}", float("nan"), {1}, "fine"]):
            dataset.on_made(
                MadeRecord(producer="a", unit=row, digest="d", values={row: {"a": value}})
            )
        dataset.on_dropped(DroppedRow(row=4, cause="failed", error=f"bad key {secret}"))

    def find(dataset: DatasetJournal) -> None:
        assert parts_of(dataset.restored(0, range(5))) == {("a", 3)}
        assert dataset.restored(0, range(5)).dropped[0].error == "bad key [hidden]"

    execute(path, write, keys={TASK: (secret,)})
    for file in tmp_path.iterdir():
        assert secret.encode() not in file.read_bytes()
    execute(path, find)


def test_datasets_are_readable_in_views(tmp_path: Path) -> None:
    """Datasets are readable in views."""
    path = tmp_path / "r.db"
    execute(path, put)
    long = MadeRecord(producer="z", unit=4, digest="d", values={4: {"z": "x" * 50_000}})

    def write(dataset: DatasetJournal) -> None:
        dataset.on_made(long)

    execute(path, write)
    connection = sqlite3.connect(path)
    run = ("eval-1", TASK)
    assert connection.execute("SELECT * FROM datasets").fetchall() == [(*run, 5, 2, 3, 3, 1)]
    cells = connection.execute("SELECT * FROM dataset_cells WHERE row > 1 ORDER BY row, producer")
    assert cells.fetchall() == [
        (*run, 2, None, "a", 0, '{"2":{"a":"text 2"}}', None, 1),
        (*run, 2, 1, "b", 1, '{"3":{"b":null,"c":[1.5]}}', 2, 1),
        (*run, 3, None, "a", 0, '{"3":{"a":"text 3"}}', None, 1),
        (*run, 4, None, "a", 0, '{"4":{"a":"text 4"}}', None, 1),
        (*run, 4, None, "z", 0, "[compressed]", None, 2),
    ]
    assert connection.execute("SELECT * FROM dropped_rows").fetchall() == [
        (*run, 1, "failed", "a", "no \\x00 such", "not_found", 3)
    ]
    connection.close()


def test_a_deleted_run_leaves_nothing_of_its_dataset(tmp_path: Path) -> None:
    """Deleting a run or a task deletes all data of its dataset."""
    path = tmp_path / "r.db"
    execute(path, put)
    tables = ("dataset", "cell", "dropped_row", "written_group", "dataset_stage")

    def lines() -> list[int]:
        return [
            connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
            for table in tables
        ]

    connection = open_database(path, RUNS)
    assert lines() == [1, 6, 1, 3, 1]
    connection.execute("BEGIN")
    delete_run(connection, 1)
    assert lines() == [0] * 5
    connection.execute("ROLLBACK")
    assert lines() == [1, 6, 1, 3, 1]

    async def without() -> None:
        async with open_store(path) as store:
            await store.resume("eval-1", start(heads=[{"task": None}]))

    trio.run(without)
    assert lines() == [0] * 5
    connection.close()


def test_a_store_of_version_1_is_migrated(tmp_path: Path) -> None:
    """A store of version 1 is migrated with its contents."""
    path = tmp_path / "r.db"
    old = DatabaseKind(
        name=RUNS.name,
        application_id=RUNS.application_id,
        migrations=MIGRATIONS[:1],
        hint=RUNS.hint,
    )
    open_database(path, old).close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    connection.close()

    async def main() -> None:
        async with open_store(path) as store:
            run = store.begin(start())
            run.row(attrs.evolve(row_at(0), task=None))
            put_all(run.dataset(TASK))

    trio.run(main)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    assert connection.execute("SELECT count(*) FROM dataset_cells").fetchone() == (6,)
    connection.close()
    with read_store(path) as reader:
        assert len([*reader.records(reader.run("latest"))]) == 1


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            "UPDATE cell SET made = '{' WHERE producer = 'a'",
            "the result of a for group 0 is damaged (",
        ),
        (
            "UPDATE cell SET made = x'00' WHERE producer = 'a'",
            "the result of a for group 0 is damaged (",
        ),
        ("UPDATE cell SET made = '[]'", "the result of a for group 0 is damaged ("),
        (
            "UPDATE dataset SET grouping = '{}'",
            "the stored facts of the dataset cannot be read (",
        ),
        (
            """UPDATE dataset SET grouping = '{"size":0,"targets":[1]}'""",
            "the stored facts of the dataset cannot be read (groups have at least 1 row, not 0)",
        ),
        ("DROP TABLE cell", "the stored cells of group 0 cannot be read (no such table: cell)"),
    ],
)
def test_damaged_data_is_reported_once_and_made_again(
    tmp_path: Path, damage: str, message: str
) -> None:
    """Damaged data is reported once and made again."""
    path = tmp_path / "r.db"
    execute(path, put)
    connection = sqlite3.connect(path)
    connection.executescript("DROP VIEW dataset_cells;" + damage)
    connection.close()

    def find(dataset: DatasetJournal) -> None:
        made = [*dataset.restored(0, range(2)).made, *dataset.restored(1, range(2, 4)).made]
        if "dataset" in damage:
            assert not dataset.resumed
        else:
            assert not [one for one in made if one.producer == "a"]

    warnings = execute(path, find)[1]
    assert len(warnings) == 1
    assert warnings[0].startswith(f"{path}: task {TASK}: {message}")


WRITES = f"""
import sys, trio
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
import test_dataset_journal as t

async def main():
    async with t.open_store(Path(sys.argv[1])) as store:
        dataset = store.begin(t.start()).dataset(t.TASK)
        dataset.on_start(t.RowGrouping(100, (10_000_000,)), t.FINGERPRINT)
        for row in range(10_000_000):
            values = {{row: {{"a": "x" * 100}}}}
            dataset.on_made(t.MadeRecord(producer="a", unit=row, digest="d", values=values))
            if row % 20 == 0:
                await trio.sleep(0)
            if row % 1000 == 0:
                await dataset.durable()
                print(row, flush=True)

trio.run(main)
"""


@pytest.mark.slow
def test_co_70_a_killed_process_loses_only_the_latest_cells(tmp_path: Path) -> None:
    """A killed process leaves a prefix of the cells that includes all durable ones."""
    path = tmp_path / "r.db"
    with subprocess.Popen(
        [sys.executable, "-c", WRITES, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for _ in range(4):
            safe = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        safe = max([safe, *map(int, process.stdout.read().splitlines()[:-1])])

    def find(dataset: DatasetJournal) -> list[int]:
        assert dataset.grouping == RowGrouping(100, (10_000_000,))
        return sorted(one.unit for one in dataset.restored(0, range(1_000_000)).made)

    units, warnings = execute(path, find)
    assert units == list(range(len(units)))
    assert len(units) > safe >= 3000
    assert warnings == []


def memory_runs() -> tuple[MemoryJournal, MemoryDataset]:
    journal = MemoryJournal()
    return journal, journal.dataset(TASK)


def test_a_journal_in_memory_finds_the_same(tmp_path: Path) -> None:
    """The journal in memory finds the same as the store after the same writes."""
    path = tmp_path / "r.db"
    execute(path, put)
    journal, dataset = memory_runs()
    put_all(dataset)

    def found(dataset: DatasetJournal) -> Any:
        restored = [dataset.restored(group, rows) for group, rows in enumerate(GROUPING.groups())]
        return (
            dataset.resumed,
            dataset.grouping,
            tuple(dataset.groups()),
            dataset.stages(),
            [
                sorted((one.producer, one.unit, json.dumps(one.values)) for one in one_group.made)
                for one_group in restored
            ],
            [[one.row for one in one_group.dropped] for one_group in restored],
        )

    for grouping, fingerprint in [
        (GROUPING, FINGERPRINT),
        (RowGrouping(2, (5, 7)), FINGERPRINT),
        (RowGrouping(2, (5, 7)), {"seed": "9"}),
        (RowGrouping(3, (7,)), {"seed": "9"}),
    ]:
        journal = MemoryJournal((*journal.earlier, *journal.writes))
        remembered = journal.dataset(TASK)

        def compare(
            dataset: DatasetJournal,
            remembered: MemoryDataset = remembered,
            grouping: RowGrouping = grouping,
            fingerprint: Mapping[str, str] = fingerprint,
        ) -> None:
            assert found(dataset) == found(remembered)
            for one in (dataset, remembered):
                one.on_start(grouping, fingerprint)
            assert found(dataset)[2:] == found(remembered)[2:]

        execute(path, compare)
    assert len(journal.cut(3).dataset(TASK).restored(0, range(2)).made) == 2
    assert not journal.cut(0).dataset(TASK).resumed


def test_values_that_cannot_be_stored_are_reported_once(tmp_path: Path) -> None:
    """Values that cannot be stored are reported once."""
    path = tmp_path / "r.db"
    key = "sk-0123456789abcdef"
    secrets = [attrs.evolve(one, values={one.unit: {"a": f"the key {key}"}}) for one in CELLS[1:4]]

    def write(dataset: DatasetJournal) -> None:
        dataset.on_start(GROUPING, FINGERPRINT)
        for record in (CELLS[0], *secrets, CELLS[4]):
            dataset.on_made(record)

    _, warnings = execute(path, write, keys={TASK: [key]})
    why = "the result of a is not stored: it contains a secret"
    then = "a later execution makes it again, and so all others of this kind"
    assert warnings == [f"{path}: task {TASK}: {why}; {then}"]

    def find(dataset: DatasetJournal) -> None:
        found = [dataset.restored(group, GROUPING.rows_of(group)) for group in range(3)]
        assert [one for group in found for one in group.made] == [CELLS[0], CELLS[4]]

    execute(path, find)


def test_dropped_rows_are_inserted_with_few_statements(tmp_path: Path) -> None:
    """Dropped rows between cells are inserted with few statements."""
    path = tmp_path / "r.db"
    execute(path, put)
    connection = sqlite3.connect(path)
    statements: list[str] = []
    place = RunPlace(eval_id="eval-1", parts={TASK: 1})
    works: list[PendingWrite] = []
    for row in range(100):
        cell = MadeRecord(producer="a", unit=row, digest="d", values={row: {"a": row}})
        works.append(cell_write(place, TASK, row, cell, print, is_group=False))
        works.append(drop_write(place, TASK, attrs.evolve(DROPPED, row=row)))
    for work in works:
        work.make()
    connection.set_trace_callback(statements.append)
    with connection:
        write_batch(connection, works)
    inserted = [one for one in statements if one.startswith("INSERT")]
    assert len(inserted) < 20
    (rows,) = connection.execute("SELECT count(*) FROM dropped_row WHERE key >> 31 = 1").fetchone()
    assert rows == 100
    connection.close()

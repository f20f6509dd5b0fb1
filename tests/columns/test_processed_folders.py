"""A dataset that was processed as a whole: `final` is either complete or missing."""

import errno
import itertools
import shutil
from pathlib import Path

import attrs
import pytest
from faulty_disk import FaultyDisk, Killed
from test_dataset_folders import HEADER, HOW, ROWS, build, contents, open_it, regrouped

from trioeval.columns.files import DatasetRows
from trioeval.columns.files.layout import Disk
from trioeval.errors import DatasetError


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    build(tmp_path / "whole")
    return tmp_path / "whole"


PROCESSED = [(0, [(1, {"n": 10})]), (2, [(4, {"n": 40})])]


def process(path: Path, disk: Disk | None = None) -> None:
    with open_it(path, disk=disk) as folder:
        folder.replace(PROCESSED, columns={"n": "int"})


def test_co_78_a_processed_dataset_is_beside_its_source(whole: Path) -> None:
    """Readers of the dataset get it; the files that were written before are unchanged."""
    before = contents(whole)
    with open_it(whole) as folder:
        assert folder.data == whole
        folder.replace(PROCESSED, columns={"n": "int"})
        assert folder.data == whole / "final"
    after = contents(whole)
    assert {name: after[name] for name in before} == before
    found = DatasetRows(whole)
    assert list(found) == [{"n": 10}, {"n": 40}]
    assert found.columns == {"n": "int"}
    assert list(DatasetRows(whole / "final")) == list(found)
    assert list(DatasetRows(whole, processed=False)) == [row for _, row in ROWS[:5]]
    process(whole)
    assert contents(whole) == after
    with pytest.raises(DatasetError, match="its 5 rows were processed as a whole"):
        open_it(whole, regrouped(7))


@pytest.mark.slow
@pytest.mark.parametrize("again", ["first", "again"])
def test_co_78_a_kill_during_processing_leaves_the_old_or_the_new_version(
    tmp_path: Path, again: str
) -> None:
    """After a kill at any step, a reader sees either version, complete; and it can be repeated."""
    build(tmp_path / "whole")
    if again == "again":
        process(tmp_path / "whole")

    def prepared(name: str) -> Path:
        return shutil.copytree(tmp_path / "whole", tmp_path / name)

    new = [{"n": 10}, {"n": 40}]
    allowed = [new] if again == "again" else [[row for _, row in ROWS[:5]], new]
    counting = FaultyDisk()
    process(prepared("counted"), counting)
    assert counting.steps >= 10
    for step, how in itertools.product(range(counting.steps), HOW):
        path = prepared(f"{step}-{how}")
        with pytest.raises(Killed):
            process(path, FaultyDisk(step, how))
        assert list(DatasetRows(path)) in allowed
        process(path)
        assert contents(path) == contents(tmp_path / "counted")


def test_a_processed_dataset_that_cannot_be_written_leaves_the_old_one(whole: Path) -> None:
    """The full disk is reported."""
    before = contents(whole)
    with open_it(whole, disk=FaultyDisk(3, "half", OSError(errno.ENOSPC, "no room"))) as folder:
        with pytest.raises(DatasetError, match=r"final: the dataset cannot be written: no room"):
            folder.replace(PROCESSED, columns={"n": "int"})
        with pytest.raises(DatasetError, match="row 1, column 'n'"):
            folder.replace([(0, [(1, {"n": "x"})])])
    open_it(whole).close()
    assert contents(whole) == before


NEW = [{"n": 10}, {"n": 40}]


@pytest.mark.slow
def test_a_failing_disk_leaves_the_previous_processed_version(tmp_path: Path) -> None:
    """At every step, unprocessed rows are not taken for processed ones."""
    path = tmp_path / "data"
    build(path)
    process(path)
    before = contents(path)
    with open_it(path, disk=(counting := FaultyDisk())) as folder:
        first_step = counting.steps
        folder.replace(PROCESSED, columns={"n": "int"})
    assert counting.steps - first_step >= 9
    for step, how in itertools.product(range(first_step, counting.steps), HOW):
        disk = FaultyDisk(step, how, OSError(errno.ENOSPC, "no room"))
        with open_it(path, disk=disk) as folder:
            with pytest.raises(DatasetError, match="no room"):
                folder.replace(PROCESSED, columns={"n": "int"})
            assert folder.is_processed
            assert folder.data == path / "final"
            assert list(DatasetRows(path)) == NEW
        with open_it(path) as folder:
            assert folder.is_processed
        assert contents(path) == before


@pytest.mark.parametrize(
    "how", ["gone", "short", "note", "other note", "no note", "folder", "of another dataset"]
)
def test_co_72_damaged_processed_rows_are_made_again(whole: Path, how: str) -> None:
    """The rest of them is removed, and the dataset is incomplete again."""
    before = contents(whole)
    build_processed(whole)
    after = contents(whole)
    final = whole / "final"
    file, note = final / "batch_00002.jsonl", final / "dataset.json"
    if how == "of another dataset":
        note.write_text(note.read_text().replace('"seed": "c"', '"seed": "d"'))
    elif how == "other note":
        note.write_text(note.read_text().replace('"group": 2', '"group": 7'))
    elif how == "folder":
        for one in final.iterdir():
            one.unlink()
        final.rmdir()
    elif how in {"gone", "short"}:
        content = file.read_bytes()
        file.unlink()
        if how == "short":
            file.write_bytes(content[:-2])
    else:
        note.unlink()
        if how == "note":
            note.write_text("{")
    with open_it(whole) as folder:
        assert not folder.is_processed
        assert folder.data == whole
        assert sorted(folder.written) == [0, 1, 2]
        assert folder.result is None or how == "folder"
    assert not final.exists()
    if how == "folder":  # the caller requested processing, and checks it
        assert contents(whole) == before
    build_processed(whole)
    assert contents(whole) == after
    with open_it(whole) as folder:
        assert folder.is_processed
        assert folder.result == {"written": 5}


def build_processed(path: Path, disk: Disk | None = None) -> None:
    """Perform the steps of a resumed run whose processors run at its end."""
    with open_it(path, disk=disk) as folder:
        assert sorted(folder.written) == [0, 1, 2]
        if not folder.is_processed:
            folder.replace(PROCESSED, columns={"n": "int"})
        if folder.result is None:
            folder.finish({"written": 5})


@pytest.mark.slow
def test_a_kill_while_damaged_rows_are_removed_never_shows_others_as_complete(
    tmp_path: Path,
) -> None:
    """A reader gets an error, or an incomplete dataset; then it is made again."""
    build(tmp_path / "whole")
    build_processed(tmp_path / "whole")

    def damaged(name: str) -> Path:
        path = shutil.copytree(tmp_path / "whole", tmp_path / name)
        (path / "final" / "batch_00002.jsonl").write_text("")
        return path

    counting = FaultyDisk()
    build_processed(damaged("counted"), counting)
    assert counting.steps >= 15
    for step, how in itertools.product(range(counting.steps), HOW):
        path = damaged(f"{step}-{how}")
        with pytest.raises(Killed):
            build_processed(path, FaultyDisk(step, how))
        rows = DatasetRows(path)
        if rows.columns == HEADER.columns:
            assert rows.result is None
            assert list(rows) == [row for _, row in ROWS[:5]]
        else:
            try:
                assert list(rows) == NEW
            except DatasetError as error:
                assert "it has changed since it was written" in str(error)  # noqa: PT017 - either may be
        build_processed(path)
        assert contents(path) == contents(tmp_path / "counted")


def test_a_processed_dataset_is_found_where_a_killed_process_left_it(whole: Path) -> None:
    """The dataset is between two names; then it cannot get more rows either."""
    build_processed(whole)
    after = contents(whole)
    (whole / "final").rename(whole / ".old-final.part")
    assert list(DatasetRows(whole)) == NEW
    with pytest.raises(DatasetError, match="its 5 rows were processed as a whole"):
        open_it(whole, regrouped(7))
    with open_it(whole) as folder:
        assert folder.is_processed
        assert folder.result == {"written": 5}
    assert contents(whole) == after


def test_other_columns_of_processed_rows_are_not_damage(whole: Path) -> None:
    """A processor may have removed some; the dataset itself has to be the same."""
    process(whole)
    with open_it(whole, attrs.evolve(HEADER, fingerprint=dict(HEADER.fingerprint))) as folder:
        assert folder.is_processed

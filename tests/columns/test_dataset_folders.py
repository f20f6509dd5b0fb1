"""A folder is continued if it fits, and never left half changed by a crash."""

import errno
import itertools
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest
from faulty_disk import FaultyDisk, Killed

from trioeval.columns.files import DatasetFolder, DatasetRows, GroupFile, Header, open_folder
from trioeval.columns.files.layout import (
    DatasetNote,
    Disk,
    group_line,
    note_text,
    read_group_lines,
    read_note,
)
from trioeval.columns.graph import RowGrouping
from trioeval.errors import DatasetError

HEADER = Header(
    columns={"n": "int", "t": "text"},
    grouping=RowGrouping(2, (5,)),
    fingerprint={"columns.n": "a", "columns.t": "b", "seed": "c"},
)
ROWS = [(row, {"n": row, "t": f"text {row}"}) for row in range(7)]
GROUPS = [ROWS[0:2], ROWS[2:4], ROWS[4:5]]

HOW: Sequence[Literal["before", "half", "after"]] = ("before", "half", "after")


def open_it(
    path: Path,
    header: Header = HEADER,
    *,
    existing: Literal["never", "if_possible", "always"] = "always",
    known: Sequence[GroupFile] = (),
    disk: Disk | None = None,
) -> DatasetFolder:
    return open_folder(path, header, file_format="jsonl", existing=existing, known=known, disk=disk)


def build(path: Path, disk: Disk | None = None, known: Sequence[GroupFile] = ()) -> None:
    """Perform the steps of a run in a folder, from any state."""
    with open_it(path, disk=disk, known=known) as folder:
        for group, rows in enumerate(GROUPS):
            if group not in folder.written:
                folder.write(group, rows)
        folder.finish({"written": 5})


def contents(path: Path) -> Mapping[str, bytes]:
    return {
        str(one.relative_to(path)): one.read_bytes()
        for one in sorted(path.rglob("*"))
        if one.is_file()
    }


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    build(tmp_path / "whole")
    return tmp_path / "whole"


def regrouped(*targets: int, size: int = 2) -> Header:
    return attrs.evolve(HEADER, grouping=RowGrouping(size, targets))


# Existing content


def test_co_76_a_folder_that_is_not_empty_is_refused_unless_it_may_be_continued(
    whole: Path, tmp_path: Path
) -> None:
    """Its content is not changed."""
    before = contents(whole)
    with pytest.raises(DatasetError) as caught:
        open_it(whole, existing="never")
    assert str(caught.value) == (
        f"{whole} is not empty: use another folder (outputDir), or set resume: always to continue the "
        "dataset in it; `trioeval resume` continues an interrupted run"
    )
    assert contents(whole) == before
    (tmp_path / "empty").mkdir()
    open_it(tmp_path / "empty", existing="never").close()


def test_a_dataset_killed_at_its_start_counts_as_missing(tmp_path: Path) -> None:
    """`never` allows a new start there, until a group was written."""
    folder = tmp_path / "made"
    open_it(folder, existing="never").close()
    with open_it(folder, regrouped(3, size=3), existing="never") as other:
        other.write(0, ROWS[:3])
    with pytest.raises(DatasetError, match="not empty"):
        open_it(folder, existing="never")


@pytest.mark.parametrize("existing", ["always", "if_possible"])
def test_a_folder_with_other_files_is_never_changed(
    tmp_path: Path, existing: Literal["always", "if_possible"]
) -> None:
    """It contains other files, not a dataset that does not fit."""
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(
        DatasetError, match=r"is not empty and contains no dataset: use another folder"
    ):
        open_it(tmp_path, existing=existing)
    assert contents(tmp_path) == {"notes.txt": b"mine"}


def test_a_complete_dataset_is_recognised(whole: Path) -> None:
    """All groups and the result are found; opening changes no byte."""
    before = contents(whole)
    for existing in ("always", "if_possible"):
        with open_it(whole, existing=existing) as folder:
            assert sorted(folder.written) == [0, 1, 2]
            assert folder.damaged == ()
            assert folder.moved is None
            assert folder.result == {"written": 5}
            assert folder.header == HEADER
    assert contents(whole) == before


_OTHERS: Sequence[tuple[Header, str]] = [
    (regrouped(5, size=3), "its groups have 2 rows, not 3"),
    (regrouped(4), "it has 5 rows, which is more than 4"),
    (
        attrs.evolve(HEADER, fingerprint={"columns.n": "a", "columns.t": "x", "columns.u": "y"}),
        "columns.t has changed; columns.u is new; seed is gone",
    ),
    (
        attrs.evolve(HEADER, columns={"n": "float", "t": "text"}),
        "its columns are n (int), t (text), not n (float), t (text)",
    ),
    (
        regrouped(3, 7),
        "it was made for 5 rows, not for 3 rows, then 7, which results in other groups",
    ),
    (
        attrs.evolve(regrouped(3, size=1), fingerprint=dict(HEADER.fingerprint, seed="x")),
        "seed has changed; its groups have 2 rows, not 1; it has 5 rows, which is more than 3",
    ),
]


@pytest.mark.parametrize(("header", "difference"), _OTHERS)
def test_co_75_another_dataset_is_reported_with_every_difference(
    whole: Path, header: Header, difference: str
) -> None:
    """Cases: group size, configuration, number of rows; nothing is changed."""
    before = contents(whole)
    with pytest.raises(DatasetError) as caught:
        open_it(whole, header)
    assert str(caught.value) == (
        f"{whole} contains a different dataset: {difference}\n"
        "use another folder (outputDir), or set resume: ifPossible to move it away"
    )
    assert contents(whole) == before


_CORRUPT: Sequence[tuple[Mapping[str, Any] | str, str]] = [
    ('{"version": 1', "Expecting ',' delimiter"),
    ("[]", "list indices must be integers"),
    ({"version": 2}, "it has version 2, not 1"),
    ({"format": "csv"}, "'csv' is not a valid format"),
    ({"groupSize": 0}, "groups have at least 1 row, not 0"),
    ({"targets": [5, 5]}, "the targets of a dataset are ascending numbers"),
    ({"targets": [True]}, "True is not a number of rows or groups"),
    ({"columns": {"n": "date"}}, "column 'n': 'date' is not a valid type"),
    ({"columns": 3}, "its columns must be an object"),
    ({"fingerprint": {"a": 1}}, "its fingerprint must be an object of texts"),
    ({"result": 1}, "its result must be an object"),
    (
        {"groups": [{"group": 1, "rows": 1, "file": "x", "digest": None}]},
        "a group must have both a file and its",
    ),
    (
        {"groups": [{"group": 1, "rows": 1, "file": "../x", "digest": "a"}]},
        "'../x' is not a valid file name of a group",
    ),
    (
        {"groups": [{"group": -1, "rows": [1], "file": None, "digest": None, "dropped": {}}]},
        "-1 is not a number of",
    ),
    *(
        (
            {"groups": [{"group": number, "rows": rows, "file": "x", "digest": "", "dropped": {}}]},
            f"group {number} with its rows is not one of its 3 groups",
        )
        for number, rows in [(3, 2), (1, 1), (1, [1]), (1, [2, 2]), (2, [4, 5])]
    ),
]


@pytest.mark.parametrize(("damage", "message"), _CORRUPT)
def test_co_75_an_unreadable_header_is_reported(
    whole: Path, damage: Mapping[str, Any] | str, message: str
) -> None:
    """The message describes the damage; the file stays, and can be moved away."""
    note = whole / "dataset.json"
    if isinstance(damage, str):
        note.write_text(damage)
    else:
        note.write_text(json.dumps({**json.loads(note.read_text()), **damage}))
    before = contents(whole)
    with pytest.raises(DatasetError) as caught:
        open_it(whole)
    assert str(caught.value).startswith(f"{note} cannot be read: {message}")
    assert contents(whole) == before
    with open_it(whole, existing="if_possible") as folder:
        assert folder.moved == whole.with_name("whole-old-1")
    assert contents(whole.with_name("whole-old-1")) == before


def test_a_different_dataset_is_moved_to_a_free_name(whole: Path) -> None:
    """Nothing is lost, and a new dataset starts in its place."""
    before = contents(whole)
    whole.with_name("whole-old-1").mkdir()
    with open_it(whole, regrouped(3), existing="if_possible") as folder:
        assert folder.moved == whole.with_name("whole-old-2")
        assert folder.written == {}
        assert folder.header.grouping.targets == (3,)
        folder.write(0, GROUPS[0])
    assert contents(whole.with_name("whole-old-2")) == before


def test_an_existing_format_is_kept(whole: Path) -> None:
    """A folder never contains both."""
    with open_folder(whole, HEADER, file_format="parquet", existing="always") as folder:
        assert folder.format == "jsonl"


def test_co_73_more_rows_are_added_as_new_groups(whole: Path) -> None:
    """The last old group stays short; the caller may pass the old targets or only the new one."""
    for header, targets in [
        (regrouped(7), (5, 7)),
        (regrouped(5, 7), (5, 7)),
        (regrouped(8), (5, 7, 8)),
        (regrouped(5, 7, 8, 9), (5, 7, 8, 9)),
        (regrouped(9), (5, 7, 8, 9)),
    ]:
        with open_it(whole, header) as folder:
            assert folder.header.grouping.targets == targets
            assert folder.result is None or header.grouping.rows == 9
            assert sorted(folder.written)[:3] == [0, 1, 2]
            if 3 not in folder.written:
                folder.write(3, ROWS[5:7])
    assert [row["n"] for row in DatasetRows(whole)] == list(range(7))


# Changed files


@pytest.mark.parametrize("how", ["gone", "short", "other", "folder"])
def test_co_72_a_damaged_file_is_written_again(whole: Path, how: str) -> None:
    """The others stay; after that the state is as before the damage."""
    before = contents(whole)
    file = whole / "batch_00001.jsonl"
    content = file.read_bytes()
    file.unlink()
    if how in {"short", "other"}:
        file.write_bytes(content[:-1] if how == "short" else content.replace(b"2", b"3"))
    elif how == "folder":
        file.mkdir()
    with open_it(whole) as folder:
        assert [group.group for group in folder.damaged] == [1]
        assert sorted(folder.written) == [0, 2]
        assert folder.result is None
        if how == "folder":
            file.rmdir()
        folder.write(1, GROUPS[1])
        assert folder.damaged == ()
        folder.finish({"written": 5})
    assert contents(whole) == before


def test_files_recorded_in_a_journal_are_searched(tmp_path: Path) -> None:
    """A file that matches the journal counts, even if the folder lost its notes; others are damaged."""
    path = tmp_path / "data"
    with open_it(path) as folder:
        known = [folder.write(group, GROUPS[group]) for group in range(2)]
        known.append(folder.write(2, []))
    (path / "groups.jsonl").unlink()
    (path / "batch_00001.jsonl").unlink()
    with open_it(path, known=known) as folder:
        assert sorted(folder.written) == [0, 2]
        assert folder.damaged == (known[1],)
    with open_it(tmp_path / "new", known=known) as folder:
        assert sorted(folder.written) == [2]
        assert folder.damaged == (*known[:2],)


def test_co_71_a_file_without_a_note_is_kept_and_identified_by_its_digest(
    tmp_path: Path,
) -> None:
    """After a kill between rename and note, a journal with its digest finds it."""
    path = tmp_path / "data"
    with open_it(path) as folder:
        done = folder.write(0, GROUPS[0])
    (path / "groups.jsonl").unlink()
    with open_it(path) as folder:
        assert folder.written == {}
        assert folder.write(0, GROUPS[0]) == done
    (path / "groups.jsonl").unlink()
    with open_it(path, known=[done]) as folder:
        assert folder.written == {0: done}


def test_a_torn_line_of_the_notes_is_ignored(tmp_path: Path) -> None:
    """So is foreign text in between; complete lines count, the last one of each group."""
    one, two = (GroupFile(group=0, rows=(1, number), file="a", digest="b") for number in (2, 3))
    lines = b"\n".join([group_line(one), b"[]", b"\xff", group_line(two), group_line(one)[:-1]])
    assert read_group_lines(lines, RowGrouping(4, (9,))) == {0: two}
    path = tmp_path / "data"
    with open_it(path) as folder:
        folder.write(0, GROUPS[0])
        with (path / "groups.jsonl").open("ab") as file:
            file.write(b'{"group": 1, ')
        folder.write(2, GROUPS[2])
    with open_it(path) as folder:
        assert sorted(folder.written) == [0, 2]
    assert not (path / "groups.jsonl").exists()


def test_a_note_is_read_as_it_was_written() -> None:
    """All of it is read, in the order of the columns."""
    group = GroupFile(group=1, rows=(2,), file="batch_00001.jsonl", digest="x")
    note = DatasetNote(
        header=HEADER, format="parquet", groups={1: group}, result={"dropped": {"failed": 1}}
    )
    found = read_note(note_text(note).encode())
    assert found == note
    assert list(found.header.columns) == ["n", "t"]


# Kills and failures


@pytest.mark.slow
def test_a_dataset_can_be_continued_after_a_kill_at_every_step(whole: Path, tmp_path: Path) -> None:
    """Afterwards all files equal those of an uninterrupted run, and no partial file is left."""
    counting = FaultyDisk()
    build(tmp_path / "counted", counting)
    assert counting.steps > 15
    for step, how in itertools.product(range(counting.steps), HOW):
        path = tmp_path / f"killed-{step}-{how}"
        with pytest.raises(Killed):
            build(path, FaultyDisk(step, how))
        if (path / "dataset.json").exists():
            for row in DatasetRows(path):  # readable rows are correct at any time
                assert row == ROWS[row["n"]][1]
        build(path)
        assert contents(path) == contents(whole)


@pytest.mark.slow
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EIO])
def test_a_failing_disk_is_reported_and_leaves_no_partial_file(
    whole: Path, tmp_path: Path, number: int
) -> None:
    """This holds at every step; when the disk works again the dataset is continued."""
    counting = FaultyDisk()
    build(tmp_path / "counted", counting)
    for step in range(counting.steps):
        path = tmp_path / f"failed-{step}"
        error = OSError(number, os.strerror(number))
        with pytest.raises(DatasetError, match=rf"failed-{step}.*: {os.strerror(number)}$"):
            build(path, FaultyDisk(step, "half", error))
        build(path)
        assert contents(path) == contents(whole)


@pytest.mark.slow
def test_a_full_disk_leaves_no_partial_file(tmp_path: Path) -> None:
    """This holds for JSON lines and for Parquet, which another library writes."""
    program = (
        "import resource, signal, sys, pathlib\n"
        "from trioeval.columns.files import *\n"
        "from trioeval.columns.graph import RowGrouping\n"
        "from trioeval.errors import DatasetError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "header = Header(columns={'a': 'vector'}, grouping=RowGrouping(9, (9,)), fingerprint={})\n"
        "rows = [(row, {'a': [row / 7 + i / 3 for i in range(20000)]}) for row in range(9)]\n"
        "for format in ('jsonl', 'parquet'):\n"
        "    path = pathlib.Path(sys.argv[1], format)\n"
        "    folder = open_folder(path, header, file_format=format, existing='never')\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))\n"
        "    try:\n"
        "        folder.write(0, rows)\n"
        "    except DatasetError as error:\n"
        "        print(error)\n"
        "    folder.close()\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    for line, name in zip(lines, ("jsonl", "parquet"), strict=True):
        path = tmp_path / name / f"batch_00000.{name}"
        assert line.startswith(f"{path}: the dataset cannot be written: ")
        assert "File too large" in line
        assert sorted(one.name for one in (tmp_path / name).iterdir()) == ["dataset.json"]


def test_a_path_through_a_file_is_reported(tmp_path: Path) -> None:
    """It may be the path itself, or a parent."""
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DatasetError) as caught:
        open_it(tmp_path / "file")
    assert str(caught.value) == (f"{tmp_path / 'file'} is a file; the dataset needs a folder there")
    with pytest.raises(
        DatasetError, match=r"file/x: the dataset cannot be written: Not a directory"
    ):
        open_it(tmp_path / "file" / "x")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_dataset_without_columns_is_refused(tmp_path: Path) -> None:
    """Its rows would be useless."""
    with pytest.raises(DatasetError, match="the dataset would have no columns"):
        open_it(tmp_path / "data", attrs.evolve(HEADER, columns={}))
    assert list(tmp_path.iterdir()) == []


# Others


@pytest.mark.slow
def test_two_concurrent_writers_are_refused(tmp_path: Path) -> None:
    """They may be in one process or in two; a killed process holds no lock."""
    path = tmp_path / "data"
    with open_it(path), pytest.raises(DatasetError) as caught:
        open_it(path)
    assert str(caught.value) == (
        f"{path}: another process is writing this dataset; wait until it ends, or use another folder"
    )
    program = (
        "import sys, pathlib, test_dataset_folders as t\n"
        "folder = t.open_it(pathlib.Path(sys.argv[1]))\n"
        "print('open', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parent,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(DatasetError, match="another process is writing this dataset"):
            open_it(path)
        other.kill()
    with open_it(path, existing="always") as folder:
        assert folder.written == {}
    assert sorted(one.name for one in path.iterdir()) == ["dataset.json"]


def test_columns_stored_aside_are_written_completely_or_not_at_all(tmp_path: Path) -> None:
    """They are written like all other files; a second close does nothing."""
    counting = FaultyDisk()
    with open_it(tmp_path / "data", disk=counting) as folder:
        first_step = counting.steps
        folder.write_aside(0, ROWS[:2], {})
        folder.close()
    assert counting.steps - first_step == 5
    for step in range(first_step, counting.steps):
        path = tmp_path / f"failed-{step}"
        error = OSError(errno.ENOSPC, "no room")
        with open_it(path, disk=FaultyDisk(step, "half", error)) as folder:
            with pytest.raises(DatasetError, match=r"aside/batch_00000.jsonl: .*: no room"):
                folder.write_aside(0, ROWS[:2], {})
            assert not (path / "aside" / "batch_00000.jsonl").exists() or step == counting.steps - 1
            folder.write_aside(0, ROWS[:2], {})
        assert contents(path / "aside") == contents(tmp_path / "data" / "aside")


@pytest.mark.parametrize(("number", "is_reported"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_system_that_cannot_sync_folders_is_not_a_failing_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, *, is_reported: bool
) -> None:
    """Some network file systems do not support syncing folders."""
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    if is_reported:
        with pytest.raises(DatasetError, match=os.strerror(number)):
            build(tmp_path / "data")
    else:
        build(tmp_path / "data")


class RememberingDisk(Disk):
    """A disk that knows which names are not durable yet."""

    def __init__(self) -> None:
        self.unsafe: dict[Path, str] = {}

    def make_folder(self, path: Path) -> None:
        made = [one for one in (path, *path.parents) if not one.exists()]
        super().make_folder(path)
        self.unsafe.update(dict.fromkeys(made, "folder"))

    def fill(self, path: Path, write: Callable[[Path], None]) -> None:
        super().fill(path, write)
        self.unsafe[path] = "file"

    def append(self, path: Path, line: bytes) -> None:
        if not path.exists():
            self.unsafe[path] = "file"
        super().append(path, line)

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        self.unsafe.pop(old, None)
        self.unsafe[new] = "name"

    def settle(self, folder: Path) -> None:
        super().settle(folder)
        for path in [path for path in self.unsafe if path.parent == folder]:
            del self.unsafe[path]


def test_every_name_is_durable_before_anything_is_reported(whole: Path, tmp_path: Path) -> None:
    """This includes new folders, their parents, and the file that is appended to."""
    disk = RememberingDisk()
    with open_it(tmp_path / "new" / "data", disk=disk) as folder:
        assert disk.unsafe == {}
        for group, rows in enumerate(GROUPS):
            folder.write(group, rows)
            assert disk.unsafe == {}
        folder.write_aside(0, ROWS[:2], {})
        assert disk.unsafe == {}
        for _ in range(2):
            folder.replace([(0, GROUPS[0])])
            left = {path for path in disk.unsafe if ".part" not in str(path)}
            assert left == set()
        folder.finish({"written": 5})
    assert {path for path in disk.unsafe if ".part" not in str(path)} == set()
    disk = RememberingDisk()
    open_it(whole, regrouped(3), existing="if_possible", disk=disk).close()
    assert disk.unsafe == {}


def test_impossible_group_numbers_are_refused(tmp_path: Path) -> None:
    """They may come from lines or from a journal: arithmetic of jobs would fail with them."""
    path = tmp_path / "data"
    other = attrs.evolve(HEADER, grouping=RowGrouping(1, (9,)))
    with open_it(tmp_path / "other", other) as folder:
        known = [folder.write(group, [ROWS[group]]) for group in (1, 6)]
    open_it(path).close()
    (path / "groups.jsonl").write_bytes(b"\n".join(map(group_line, known)))
    assert len(DatasetRows(path)) == 0
    with open_it(path, known=known) as folder:
        assert folder.written == {}
        assert folder.damaged == ()

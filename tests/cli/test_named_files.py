"""Files that a command line names, by whatever paths and links."""

import os
from pathlib import Path

import pytest

from trioeval.cli.files import check_files, check_spared
from trioeval.errors import UsageError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A file with a hard and a symbolic link, and a symbolic link to a file that is not there yet."""
    (tmp_path / "a.json").write_text("paid for")
    (tmp_path / "hard.json").hardlink_to(tmp_path / "a.json")
    (tmp_path / "soft.json").symlink_to("a.json")
    (tmp_path / "later.json").symlink_to("new.json")
    (tmp_path / "loop.json").symlink_to("loop.json")
    (tmp_path / "x").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a.json", "a.json"),
        ("a.json", "x/../a.json"),
        ("a.json", "hard.json"),
        ("hard.json", "soft.json"),
        ("new.json", "x/../new.json"),
        ("later.json", "new.json"),
        ("loop.json", "loop.json"),
    ],
)
def test_one_file_is_not_named_twice(folder: Path, one: str, other: str) -> None:
    """Whether it is there or not, and in either order."""
    for first, second in ((folder / one, folder / other), (folder / other, folder / one)):
        with pytest.raises(UsageError) as caught:
            check_files([("--replay", first), ("-o", folder / "else.json"), ("-o", second)])
        assert str(caught.value) == f"-o {second} is the same file as --replay {first}"


def test_what_a_suite_is_made_of_is_not_written_over(folder: Path) -> None:
    """By whatever path; a suite may read a file twice."""
    sources = [folder / "a.json", folder / "soft.json", folder / "b.csv"]
    check_spared([("-o", folder / "new.json")], sources)
    with pytest.raises(
        UsageError, match=r"^--record .*/hard.json is the same file as the suite's "
    ):
        check_spared([("-o", folder / "c.csv"), ("--record", folder / "hard.json")], sources)


def test_files_of_their_own_are_fine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a relative path, one that cannot be looked at, and none at all."""
    monkeypatch.chdir(folder)
    names = ["a.json", "new.json", "loop.json", "x", os.devnull, "no/such/folder.json"]
    check_files(("-o", Path(name)) for name in names)
    check_files([])

"""Folders of cases are created once, found again, and moved aside if they belong to another case."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from trioeval.agent.case_folder import CaseFiles, FolderRequest, claim_folder, open_workspace
from trioeval.errors import AgentError


def nothing() -> Path | None:
    return None


def open_as(
    folder: Path, digest: str = "d", template: Callable[[], Path | None] = nothing, **how: Any
) -> bool:
    """Open the folder of a case that has a digest."""
    wanted = FolderRequest(
        digest=digest,
        about="calc",
        template=template,
        **{"is_continued": False, "starts_over": False, **how},
    )
    claim_folder(CaseFiles(folder), wanted, Lock())
    return open_workspace(CaseFiles(folder), wanted)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "work" / "calc"


def test_a_folder_is_created_with_a_copy_and_found_again(folder: Path, tmp_path: Path) -> None:
    """The agent's work is kept; the template is read once."""
    (tmp_path / "template").mkdir()
    (tmp_path / "template" / "given").write_text("1")
    assert not open_as(folder, template=lambda: tmp_path / "template")
    assert (folder / "workspace" / "given").read_text() == "1"
    about = {"digest": "d", "case": "calc"}
    assert json.loads((folder / "case.json").read_text()) == about
    (folder / "workspace" / "given").write_text("2")

    def never() -> Path | None:
        raise AssertionError

    assert open_as(folder, template=never)
    assert open_as(folder, template=never, is_continued=True)
    assert open_as(folder, template=never, is_continued=True, starts_over=True)
    assert (folder / "workspace" / "given").read_text() == "2"
    assert [one.name for one in folder.parent.iterdir()] == ["calc"]


@pytest.mark.parametrize(
    ("how", "known"),
    [
        ({"digest": "e"}, '{"digest": "d"}'),
        ({"digest": "e"}, None),
        ({"starts_over": True}, '{"digest": "d"}'),
        ({}, "no JSON"),
        ({}, "[]"),
        ({}, '{"digest": 3}'),
    ],
)
def test_an_unusable_folder_is_moved_aside(
    folder: Path, how: dict[str, Any], known: str | None
) -> None:
    """It is the folder of another case, of a restarted one, or unreadable; nothing is lost."""
    for number in (1, 2):
        (folder / "workspace").mkdir(parents=True)
        (folder / "workspace" / "mine").write_text(f"{number}")
        if known is not None:
            (folder / "case.json").write_text(known)
        assert not open_as(folder, **how)
        assert [*(folder / "workspace").iterdir()] == []
        aside = folder.with_name(f"calc.old-{number}")
        assert (aside / "workspace" / "mine").read_text() == f"{number}"
        folder.rename(folder.with_name(f"made-{number}"))


def test_a_renamed_case_finds_its_workspace(folder: Path) -> None:
    """Two cases that have changed their names each find their own."""
    other = folder.with_name("other")
    for one, digest in ((folder, "first"), (other, "second")):
        open_as(one, digest)
        (one / "workspace" / digest).touch()
    assert open_as(folder, "second", is_continued=True)
    assert open_as(other, "first", is_continued=True)
    assert (folder / "workspace" / "second").exists()
    assert (other / "workspace" / "first").exists()
    assert sorted(one.name for one in folder.parent.iterdir()) == ["calc", "other"]


def test_a_missing_workspace_is_not_recreated_if_attempts_count(folder: Path) -> None:
    """The attempts were made in it."""
    with pytest.raises(AgentError, match=r"workspace is missing, .* --retry and its index"):
        open_as(folder, is_continued=True)
    (folder / "case.json").write_text("damaged")
    (folder / "workspace").mkdir()
    assert open_as(folder, is_continued=True)


def test_an_interrupted_copy_is_made_again(folder: Path) -> None:
    """The folder of its case exists, and its workspace does not."""

    def fails() -> Path | None:
        raise AgentError("no such folder")

    with pytest.raises(AgentError, match="no such folder"):
        open_as(folder, template=fails)
    assert (folder / "case.json").exists()
    assert not open_as(folder)
    assert (folder / "workspace").is_dir()
    assert [one.name for one in folder.parent.iterdir()] == ["calc"]


def test_a_template_with_the_done_file_is_rejected_each_time(folder: Path, tmp_path: Path) -> None:
    """The next execution would take the file for the work of an agent."""
    (tmp_path / "template").mkdir()
    (tmp_path / "template" / "DONE").touch()
    for _ in range(2):
        with pytest.raises(AgentError, match="template already contains DONE"):
            open_as(folder, template=lambda: tmp_path / "template")


def test_the_folder_of_the_done_file_exists_whatever_an_agent_removes(folder: Path) -> None:
    wanted = FolderRequest(digest="d", about="calc", template=nothing, is_continued=False)
    files = CaseFiles(folder, "out/DONE")
    for _ in range(2):
        claim_folder(files, wanted, Lock())
        open_workspace(files, wanted)
        files.done.parent.rmdir()


@pytest.mark.parametrize(
    "put",
    [
        os.mkfifo,
        lambda file: file.symlink_to("/dev/zero"),
        lambda file: file.mkdir(),
        lambda file: file.write_text("[" * 100_000),
        lambda file: file.write_bytes(b"\xff"),
    ],
)
def test_special_files_in_place_of_our_files_do_not_block(
    folder: Path, put: Callable[[Path], object]
) -> None:
    """A folder with an unreadable description is used if attempts count, and otherwise moved aside."""
    open_as(folder)
    (folder / "case.json").unlink()
    put(folder / "case.json")
    assert open_as(folder, is_continued=True)
    assert not open_as(folder)
    assert (folder.with_name("calc.old-1") / "workspace").is_dir()
    assert open_as(folder)


def test_special_files_at_output_paths_are_removed(folder: Path) -> None:
    folder.mkdir(parents=True)
    os.mkfifo(folder / "case.json.new")
    assert not open_as(folder)
    assert json.loads((folder / "case.json").read_text())["digest"] == "d"


def test_a_folder_that_cannot_be_created_is_reported_by_name(tmp_path: Path) -> None:
    (tmp_path / "work").write_text("a file")
    with pytest.raises(AgentError, match=r"work/calc: (Not a directory|File exists)"):
        open_as(tmp_path / "work" / "calc")

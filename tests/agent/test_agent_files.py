"""The files of a case that the loop reads: its prompt and its done marker."""

import itertools
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from trioeval.agent.case_folder import ensure_prompt
from trioeval.agent.protocols import FileMarker
from trioeval.errors import AgentError
from trioeval.testing import run_virtual


def test_a_prompt_is_written_once(tmp_path: Path) -> None:
    """The prompt that was submitted first counts, to the last character, and no other file is left."""
    file = tmp_path / "prompt.md"
    text = "Répare le test.\r\n\n  Then write DONE.\n"
    assert ensure_prompt(file, text) == text
    assert ensure_prompt(file, None) == text
    assert file.read_bytes().decode() == text
    assert list(tmp_path.iterdir()) == [file]


def test_ag_12_an_existing_prompt_is_kept_and_used(tmp_path: Path) -> None:
    """It is used for any other submitted text."""
    file = tmp_path / "prompt.md"
    file.write_text("What a person wrote.\n")
    before = file.stat()
    assert ensure_prompt(file, "Something else.") == "What a person wrote.\n"
    assert file.read_text() == "What a person wrote.\n"
    assert file.stat().st_mtime_ns == before.st_mtime_ns


def test_a_partially_written_prompt_does_not_exist(tmp_path: Path) -> None:
    """Half of a prompt is never taken for all of it."""
    file, partial = tmp_path / "prompt.md", tmp_path / "prompt.md.new"
    partial.write_text("Repa")
    assert ensure_prompt(file, "Repair it.") == "Repair it."
    file.unlink()
    os.mkfifo(partial)  # an agent may create anything there, and reading it must not block
    assert ensure_prompt(file, "Repair it.") == "Repair it."


@pytest.mark.parametrize("submitted", [None, "", " \n"])
def test_a_prompt_is_required(submitted: str | None, tmp_path: Path) -> None:
    """It comes from the file or from the submission."""
    with pytest.raises(AgentError) as caught:
        ensure_prompt(tmp_path / "prompt.md", submitted)
    file = tmp_path / "prompt.md"
    assert str(caught.value) == f"{file} does not exist, and no prompt was submitted"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda file: file.write_text(" \n"), "is blank; write the prompt there, or remove it"),
        (lambda file: file.write_bytes(b"\xff"), "a prompt must be UTF-8 text"),
        (lambda file: file.mkdir(), "not a regular file"),
        (lambda file: file.symlink_to("nowhere"), "it is a link"),
        (os.mkfifo, "not a regular file"),
        (lambda file: os.truncate(file, 2**26 + 1), "exceeds the 67,108,864 bytes"),
    ],
)
def test_an_unusable_prompt_is_reported(
    make: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    """The message names the file; nothing is overwritten."""
    file = tmp_path / "prompt.md"
    if message.startswith("exceeds"):
        file.touch()
    make(file)
    with pytest.raises(AgentError, match=message) as caught:
        ensure_prompt(file, "Repair it.")
    assert str(caught.value).startswith(str(file))


def test_a_prompt_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    """The folder is missing, or the prompt is not text."""
    with pytest.raises(AgentError, match="No such file or directory"):
        ensure_prompt(tmp_path / "gone" / "prompt.md", "Repair it.")
    with pytest.raises(AgentError, match="a prompt must be UTF-8 text"):
        ensure_prompt(tmp_path / "prompt.md", "\ud800")
    assert not (tmp_path / "prompt.md").exists()


def test_a_done_file_counts_with_any_content(tmp_path: Path) -> None:
    """An empty file counts, and a link to a file; a broken link does not."""
    marker = FileMarker(tmp_path / "DONE")
    assert not marker.is_set()
    marker.path.symlink_to("elsewhere")
    assert not marker.is_set()
    (tmp_path / "elsewhere").touch()
    assert marker.is_set()
    marker.path.unlink()
    marker.path.touch()
    assert marker.is_set()


def test_ag_06_a_done_marker_that_is_not_a_file_is_an_error(tmp_path: Path) -> None:
    """It is a folder, a socket, or an inaccessible path."""
    marker = FileMarker(tmp_path / "DONE")
    marker.path.mkdir()
    with pytest.raises(AgentError) as caught:
        marker.is_set()
    message = f"{marker.path} is a folder; a file there means `done`, so remove it"
    assert str(caught.value) == message
    marker.path.rmdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(marker.path))
        with pytest.raises(AgentError, match="DONE is a socket"):
            marker.is_set()
    marker.path.unlink()
    marker.path.symlink_to("DONE")
    with pytest.raises(AgentError, match="DONE: Too many levels of symbolic links; a file there"):
        marker.is_set()


def test_ag_11_a_marker_needs_a_folder_and_an_interval(tmp_path: Path) -> None:
    """Both are checked when it is created."""
    with pytest.raises(AgentError, match=r"the folder .*gone of the done file does not exist"):
        FileMarker(tmp_path / "gone" / "DONE")
    with pytest.raises(AgentError, match="look_every must be more than 0 seconds, got 0"):
        FileMarker(tmp_path / "DONE", look_every=0)


def test_a_marker_is_polled_five_times_a_second(tmp_path: Path) -> None:
    """A waiter polls at once after `wake`; all waiters are notified."""
    marker = FileMarker(tmp_path / "DONE")

    async def main() -> list[float]:
        found: list[float] = []

        async def wait() -> None:
            await marker.wait()
            found.append(trio.current_time())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            nursery.start_soon(wait)
            await trio.sleep(1.5)
            marker.path.touch()
            await trio.sleep(0.3)
        marker.path.unlink()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            nursery.start_soon(wait)
            await trio.sleep(0.05)
            marker.wake()  # too early: they poll, and continue to wait
            await trio.sleep(0.03)
            marker.path.touch()
            marker.wake()
        return found

    first, second, third, fourth = run_virtual(main)
    assert first == second == pytest.approx(1.6)
    assert third == fourth == pytest.approx(1.88)


def test_a_marker_is_polled_less_often_after_a_long_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each poll blocks all other tasks of the program briefly; a new file is seen within two seconds."""
    marker, looks = FileMarker(tmp_path / "DONE"), list[float]()

    def look(_marker: FileMarker) -> bool:
        looks.append(trio.current_time())
        return False

    monkeypatch.setattr(FileMarker, "is_set", look)

    async def main() -> None:
        with trio.move_on_after(3600):
            await marker.wait()

    run_virtual(main)
    assert len(looks) < 1900
    pauses = [later - before for before, later in itertools.pairwise(looks)]
    assert max(pauses) == pytest.approx(2)
    assert all(
        pause <= max(0.201, before / 10 + 0.001)
        for before, pause in zip(looks, pauses, strict=False)
    )


@pytest.mark.parametrize("kind", ["file", "flag"])
def test_waiting_for_an_existing_marker_is_a_checkpoint(kind: str, tmp_path: Path) -> None:
    """It yields to the scheduler and can be cancelled."""

    async def main() -> None:
        (tmp_path / "DONE").touch()
        flag = trio.Event()
        flag.set()
        with trio.testing.assert_checkpoints():
            await (FileMarker(tmp_path / "DONE") if kind == "file" else flag).wait()

    run_virtual(main)

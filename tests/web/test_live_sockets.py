"""The sockets of runs: in a folder of one user, with unique names."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio
from live_runs import RUN, watched_run

from trioeval.errors import NotLiveError
from trioeval.serving.private_folder import live_folders
from trioeval.web.live import serve_live
from trioeval.web.sockets import connect_to, is_same_user, listen_for, reachable_runs, remove

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "AF_UNIX"), reason="this system does not support sockets in its file system"
)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Without a runtime folder, sockets are in the folder of temporary files."""
    assert tmp_path.exists()  # created before temporary files are elsewhere
    with TemporaryDirectory(prefix="te-") as folder:
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        monkeypatch.setattr("tempfile.tempdir", folder)
        yield Path(folder, f"trioeval-{os.geteuid()}")


def test_a_runtime_folder_of_the_user_comes_first() -> None:
    """A relative runtime folder is ignored."""
    temporary = Path("/t/trioeval-7")
    assert live_folders({"XDG_RUNTIME_DIR": "/run/7"}, 7, "/t") == [
        Path("/run/7/trioeval"),
        temporary,
    ]
    for folder_name in ("", "run", "./run"):
        assert live_folders({"XDG_RUNTIME_DIR": folder_name}, 7, "/t") == [temporary]
    assert live_folders({}, 7, "/t") == [temporary]


def test_folder_and_socket_are_private(place: Path) -> None:
    """Permissions do not depend on the umask."""
    before = os.umask(0)
    try:
        listening, path = listen_for(RUN)
    finally:
        os.umask(before)
    with listening:
        assert path == place / f"{RUN}.sock"
        assert place.stat().st_mode & 0o777 == 0o700
        assert path.stat().st_mode & 0o777 == 0o600
        with connect_to(RUN) as connected:
            assert is_same_user(connected)
        assert not os.get_inheritable(listening.fileno())


def test_runs_are_listed_while_they_listen(place: Path) -> None:
    """Running runs are listed in the order of their starts; abandoned sockets are not."""
    assert reachable_runs() == []
    first, _ = listen_for("b")
    second, path = listen_for("a")
    os.utime(path, (2e9, 2e9))
    (place / "c.sock").write_text("no socket")
    with first, second:
        assert reachable_runs() == ["b", "a"]
    assert reachable_runs() == []


def test_a_run_is_found_in_the_folder_of_another_environment(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of a timer are found from a session, and vice versa."""
    with listen_for(RUN)[0], TemporaryDirectory(prefix="te-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        assert reachable_runs() == [RUN]
        connect_to(RUN).close()


def test_the_temporary_folder_replaces_a_missing_runtime_folder(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runtime folder of another user is ignored, as after `su`."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nowhere/at/all")
    listening, path = listen_for(RUN)
    with listening:
        assert path.parent == place


def test_the_remains_of_a_killed_run_are_replaced_and_removed(place: Path) -> None:
    """Only old abandoned sockets are removed: a new one may be about to be listened on."""
    for name in (RUN, "old", "new"):
        listen_for(name)[0].close()
        if name == "old":
            os.utime(place / "old.sock", (1e9, 1e9))
    alive, path = listen_for("alive")
    os.utime(path, (1e9, 1e9))
    with alive, listen_for(RUN)[0]:
        assert reachable_runs() == ["alive", RUN]
        assert sorted(found.stem for found in place.iterdir()) == ["alive", RUN, "new"]


def test_a_run_that_listens_is_not_replaced() -> None:
    """A second execution of a run continues without a socket."""
    warnings: list[str] = []

    async def main() -> None:
        async with serve_live(watched_run().steering(), warnings.append):
            assert warnings == []
            async with serve_live(watched_run().steering(), warnings.append) as tell:
                tell(1, None)
            assert reachable_runs() == [RUN]
        assert reachable_runs() == []

    trio.run(main)
    assert warnings == [f"the live server cannot start: a run {RUN} is running already"]


def why_not(run_id: str = RUN) -> str:
    """Return the warning that a run cannot be watched; the run continues."""
    warnings: list[str] = []

    async def main() -> None:
        async with serve_live(watched_run(run_id=run_id).steering(), warnings.append) as tell:
            tell(1, None)

    trio.run(main)
    (text,) = warnings
    with pytest.raises(NotLiveError):
        connect_to(run_id)
    assert reachable_runs() == []
    return text


def test_a_folder_that_others_can_use_is_not_used(place: Path) -> None:
    """A folder that others can write to is refused."""
    place.mkdir(mode=0o700)
    place.chmod(0o750)
    assert why_not() == f"the live server cannot start: {place}: other users have access: chmod 700"
    place.chmod(0o700)
    place.parent.chmod(0o777)
    assert why_not().endswith(f"{place}: other users may replace it")
    place.parent.chmod(0o1777)
    listen_for(RUN)[0].close()


def test_a_link_or_file_in_place_of_the_folder_is_not_followed(place: Path) -> None:
    """A symbolic link is refused."""
    other = place.with_name("other")
    other.mkdir(mode=0o700)
    place.symlink_to(other)
    assert why_not().endswith(f"{place}: is not a folder")
    assert list(other.iterdir()) == []
    place.unlink()
    place.write_text("")
    assert why_not().endswith(f"{place}: is not a folder")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs rights to give files away")
def test_a_folder_of_another_user_is_not_used(place: Path) -> None:
    """A folder of another user is refused."""
    place.mkdir(mode=0o700)
    os.chown(place, 12345, -1)
    assert why_not().endswith(f"{place}: belongs to another user")


@pytest.mark.skipif(
    not hasattr(socket, "SO_PEERCRED"), reason="this system does not identify the client"
)
@pytest.mark.skipif(os.geteuid() != 0, reason="needs rights to become another user")
def test_a_client_of_another_user_is_detected() -> None:
    """A client of another user is refused, even inside of the folder."""
    with (
        socket.socket(socket.AF_UNIX) as listening,
        TemporaryDirectory(prefix="te-", dir="/tmp") as folder,
    ):
        path = Path(folder, "s")
        listening.bind(str(path))
        for open_to_all in (path, path.parent):
            open_to_all.chmod(0o777)
        listening.listen()
        listening.settimeout(10)
        child = os.fork()
        if child == 0:
            try:
                os.setuid(12345)
                with socket.socket(socket.AF_UNIX) as connecting:
                    connecting.connect(str(path))
                    connecting.recv(1)
            finally:
                os._exit(0)
        connected, _ = listening.accept()
        with connected:
            assert not is_same_user(connected)
        os.waitpid(child, 0)


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b", "x" * 81, "a\n", "ü"])
def test_invalid_ids_are_not_used_as_file_names(name: str) -> None:
    """Invalid names create and open nothing."""
    assert "must consist of letters, digits" in why_not(name)


def test_a_path_that_is_too_long_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path that is too long is refused with a clear message."""
    deep = tmp_path / ("x" * 90)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    assert why_not().endswith("a socket's path has at most 103 bytes")


def test_a_system_without_such_sockets_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Systems without such sockets run, and list nothing."""
    monkeypatch.delattr(socket, "AF_UNIX")
    for use in (listen_for, connect_to):
        with pytest.raises(
            NotLiveError, match="this system does not support sockets in its file system"
        ):
            use(RUN)
    assert reachable_runs() == []


def test_a_socket_is_removed_even_if_its_folder_is_missing(tmp_path: Path) -> None:
    """A folder that was removed is created again."""
    remove(tmp_path / "gone.sock")

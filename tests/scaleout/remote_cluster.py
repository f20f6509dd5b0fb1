"""A Dask scheduler and workers as separate programs, which see nothing of the files of a test.

Each worker has a working directory and an environment of its own. Files in folders that are hidden from it do
not exist for it, as on another machine.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs

_ELSEWHERE = """
import os, sys

hidden = os.environ.get("HIDDEN_FOLDERS", "").split(os.pathsep)


def hide(event, args):
    if event in {"open", "os.listdir", "os.scandir", "os.chdir"} and isinstance(args[0], str):
        if any(folder and os.path.abspath(args[0]).startswith(folder) for folder in hidden):
            raise FileNotFoundError(2, "No such file or directory", args[0])


sys.addaudithook(hide)
found = os.environ.get("OTHER_VERSIONS", "")
if found:
    import importlib.metadata

    others = dict(one.split("=") for one in found.split(","))
    installed = importlib.metadata.version
    importlib.metadata.version = lambda name: others.get(name) or installed(name)
"""
"""The code that Python runs at its start in each worker, and in the processes that it starts."""


@attrs.frozen
class RemoteCluster:
    """A scheduler, and a folder for the working directories of its workers."""

    address: str
    process: "subprocess.Popen[bytes]"
    folder: Path


def _start(
    words: Sequence[str], folder: Path, environ: Mapping[str, str], log: Path
) -> "subprocess.Popen[bytes]":
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=folder,
            env={**environ},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


@contextmanager
def wiretapped(cluster: RemoteCluster) -> Iterator[tuple[RemoteCluster, bytearray]]:
    """Yield the cluster behind a proxy of its scheduler, and all bytes that pass, in both directions."""
    host, port = cluster.address.removeprefix("tcp://").split(":")
    captured, sockets = bytearray(), list[socket.socket]()

    def forward(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                captured.extend(data)
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                source, _ = listener.accept()
                target = socket.create_connection((host, int(port)))
                sockets.extend((source, target))
                for pair in ((source, target), (target, source)):
                    threading.Thread(target=forward, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        try:
            yield attrs.evolve(cluster, address=address), captured
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for one in sockets:
                one.close()


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def remote_scheduler(folder: Path) -> Iterator[RemoteCluster]:
    """Start a scheduler, which is killed at the end of the block."""
    file = folder / "scheduler.json"
    words = ["distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    words += ["--no-dashboard", "--scheduler-file", str(file)]
    process = _start(words, folder, os.environ, folder / "scheduler.log")
    try:
        while not (file.exists() and file.read_text().endswith("}")):
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
                raise AssertionError((folder / "scheduler.log").read_text())
        yield RemoteCluster(json.loads(file.read_text())["address"], process, folder)
    finally:
        _kill(process)


@contextmanager
def remote_worker(
    cluster: RemoteCluster,
    name: str,
    *,
    hidden: Sequence[Path] = (),
    versions: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a worker, and wait until the scheduler knows it.

    Args:
        cluster: The cluster.
        name: The name of the worker.
        hidden: Folders whose files it cannot open.
        versions: The versions of packages that it reports, instead of the installed ones.
        environ: Variables of its environment besides those of the test.
    """
    folder = cluster.folder / name
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_ELSEWHERE)
    paths = [
        str(folder),
        str(Path(__file__).parent),
        *os.environ.get("PYTHONPATH", "").split(os.pathsep),
    ]
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "HIDDEN_FOLDERS": os.pathsep.join(map(str, hidden)),
        "OTHER_VERSIONS": ",".join(f"{one}={version}" for one, version in (versions or {}).items()),
        **(environ or {}),
    }
    words = ["distributed.cli.dask_worker", cluster.address, "--host", "127.0.0.1", "--no-nanny"]
    words += ["--nthreads", "1", "--name", name, "--no-dashboard"]
    log = cluster.folder / f"{name}.log"
    process = _start(words, folder, variables, log)
    try:
        while "Registered to:" not in log.read_text():
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
                raise AssertionError(log.read_text())
        yield process
    finally:
        _kill(process)

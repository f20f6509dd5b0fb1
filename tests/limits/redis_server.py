"""A separate, empty Redis server on a free port, removed at the end."""

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest
from patience import PATIENCE

PROGRAM = shutil.which("redis-server")
needs_redis = pytest.mark.skipif(PROGRAM is None, reason="redis-server is not installed")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@attrs.define(eq=False)
class RedisServer:
    """A Redis server that can be ended and restarted with its saved data."""

    directory: Path
    port: int
    options: tuple[str, ...] = ()
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def socket_url(self) -> str:
        return f"unix://{self.directory}/redis.sock"

    def start(self) -> None:
        """Start it, and wait until it answers.

        Raises:
            ChildProcessError: It has ended: its port is taken by now.
        """
        assert PROGRAM is not None
        own = ("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory))
        more = (
            "--save",
            "",
            "--unixsocket",
            f"{self.directory}/redis.sock",
            "--loglevel",
            "warning",
        )
        self._process = subprocess.Popen(
            [PROGRAM, *own, *more, *self.options], stdout=subprocess.DEVNULL
        )
        self._wait_ready(self._process)

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> None:
        # It does not report that it is ready, so it is polled.
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if process.poll() is not None:
                raise ChildProcessError(f"redis-server has ended with {process.returncode}")
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as ask:
                    ask.sendall(b"PING\r\n")
                    if ask.recv(16).startswith((b"+PONG", b"-NOAUTH")):
                        return
            except OSError:
                pass
            time.sleep(0.01)
        pytest.fail("redis-server does not start")

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the server, like a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE)
            self._process = None

    def command(self, *words: str) -> bytes:
        """Return the answer to a command, as it is on the wire."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as ask:
            ask.sendall((" ".join(words) + "\r\n").encode())
            return ask.recv(1 << 20)


@contextmanager
def open_server(*options: str) -> Iterator[RedisServer]:
    """A server, for as long as the block runs."""
    # Not pytest's directory: the path of a socket must be short.
    with tempfile.TemporaryDirectory(prefix="redis-") as directory:
        server = _started(Path(directory), options)
        try:
            yield server
        finally:
            server.kill()


def _started(directory: Path, options: tuple[str, ...]) -> RedisServer:
    """Start a server; on another port if the first one was taken meanwhile."""
    for _ in range(5):
        server = RedisServer(directory, _free_port(), options)
        try:
            server.start()
        except ChildProcessError:
            continue
        except BaseException:
            server.kill()
            raise
        return server
    pytest.fail("redis-server does not start")

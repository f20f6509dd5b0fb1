"""The example of a web service: FastAPI on uvicorn, in its own process, over real sockets."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs FastAPI")
pytest.importorskip("uvicorn", reason="needs uvicorn")
pytest.importorskip("aiohttp", reason="needs aiohttp, which the example uses")

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "embedding"
TOO_LONG = 60
"""Seconds after which a test fails instead of waiting."""

pytestmark = [pytest.mark.slow, pytest.mark.network]


class Model(ThreadingHTTPServer):
    """A model that repeats prompts. The first one with "hold" gets no reply until its client disconnects."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.asked: Counter[str] = Counter()
        self.lock = threading.Lock()
        self.in_flight, self.most = 0, 0
        self.holds = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    server: Model
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        prompt = self.rfile.read(int(self.headers["content-length"])).decode()
        with self.server.lock:
            self.server.asked[prompt] += 1
            self.server.in_flight += 1
            self.server.most = max(self.server.most, self.server.in_flight)
        if "hold" in prompt and not self.server.holds.is_set():
            self.connection.settimeout(TOO_LONG)
            self.server.holds.set()
            with suppress(ConnectionResetError):
                assert self.connection.recv(1) == b""
            self.close_connection = True
        with self.server.lock:
            self.server.in_flight -= 1
        if self.close_connection:
            return
        self.send_response(200)
        self.send_header("content-length", str(len(prompt)))
        self.end_headers()
        self.wfile.write(prompt.encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def model() -> Iterator[Model]:
    """Serve the model on a free port."""
    with Model() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@contextmanager
def open_app(folder: Path, model: Model) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run the example in a folder; yield its process and port."""
    command = [sys.executable, "-m", "uvicorn", "fastapi_app:app", "--port", "0"]
    with subprocess.Popen(
        [*command, "--app-dir", str(EXAMPLES), "--timeout-graceful-shutdown", "1"],
        cwd=folder,
        env={**os.environ, "MODEL_URL": model.url},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stderr is not None
        for line in server.stderr:
            if found := re.search(r"running on http://127\.0\.0\.1:(\d+)", line):
                break
        else:
            raise AssertionError("the server did not start")
        try:
            yield server, int(found[1])
        finally:
            server.terminate()


@contextmanager
def put(port: int, name: str, words: list[str]) -> Iterator[HTTPResponse]:
    """Send a request, and yield its response before its body. The end of the block disconnects."""
    body = json.dumps({"prompt": "say {{word}}", "words": words})
    with closing(HTTPConnection("127.0.0.1", port, timeout=TOO_LONG)) as connection:
        headers = {"content-type": "application/json"}
        connection.request("PUT", f"/evaluations/{name}", body, headers)
        with connection.getresponse() as response:
            yield response


CONFLICT = 409


def lines_of(port: int, name: str, words: list[str]) -> list[Any]:
    """Return the lines of a response, as soon as an earlier run of the name has ended."""
    while True:
        with put(port, name, words) as response:
            if response.status != CONFLICT:
                return [json.loads(line) for line in response]


def whole(rows: int) -> list[Any]:
    passed = [{"row": row, "status": "pass"} for row in range(rows)]
    return [*passed, {"ended": "finished", "passed": rows}]


def test_requests_are_evaluated_side_by_side(tmp_path: Path, model: Model) -> None:
    """Each gets its rows in order; all of them share the lane of the session. A bad prompt is refused."""
    words = ["one", "two", "three", "four"]
    with open_app(tmp_path, model) as (_, port), ThreadPoolExecutor() as pool:
        found = pool.map(lambda name: lines_of(port, name, words), ["a", "b", "c"])
        assert list(found) == [whole(4)] * 3
        with put(port, "empty", []) as response:
            assert response.status == 422
    assert model.asked == Counter({f"say {word}": 3 for word in words})
    assert model.most <= 2


def test_a_client_that_disconnects_ends_its_run(tmp_path: Path, model: Model) -> None:
    """The same request continues the run, without a second request for recorded replies."""
    words = ["one", "two", "hold", "four"]
    with open_app(tmp_path, model) as (_, port):
        with put(port, "a", words) as response:
            assert [json.loads(response.readline()) for _ in range(2)] == whole(4)[:2]
            assert model.holds.wait(TOO_LONG)
        assert lines_of(port, "a", words) == whole(4)
    assert model.asked["say one"] == model.asked["say two"] == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_shutdown_leaves_a_run_that_continues(
    tmp_path: Path, model: Model, number: signal.Signals
) -> None:
    """A server that is stopped in the middle of a run ends; after its restart the run continues."""
    words = ["one", "two", "hold", "four"]
    with open_app(tmp_path, model) as (server, port), put(port, "a", words) as response:
        assert json.loads(response.readline()) == whole(4)[0]
        assert model.holds.wait(TOO_LONG)
        server.send_signal(number)
        _, errors = server.communicate(timeout=TOO_LONG)
    assert "Application shutdown complete" in errors
    with open_app(tmp_path, model) as (_, port):
        assert lines_of(port, "a", words) == whole(4)
    assert model.asked["say one"] == model.asked["say two"] == 1

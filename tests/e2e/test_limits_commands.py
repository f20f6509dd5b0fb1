"""`trioeval limits`: real servers in separate processes, and their output."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from trioeval.cli.app import run_command_line
from trioeval.limits import remote
from trioeval.serving.token_files import read_token

pytestmark = [pytest.mark.slow, pytest.mark.network]

RPM = {"key": "gpt:rpm", "kind": "rolling", "capacity": 60, "windowSeconds": 60, "unit": "requests"}
SLOTS = {"key": "slots", "kind": "concurrency", "capacity": 8, "timeoutSeconds": 30}


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty environment, and no proxy for loopback."""
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.delenv("TRIOEVAL_LIMITS_URL", raising=False)
    monkeypatch.delenv("TRIOEVAL_LIMITS_TOKEN", raising=False)


def environment(**more: str) -> dict[str, str]:
    """The environment of this test, with the folder of the tokens."""
    return {**os.environ, "COLUMNS": "120", "NO_COLOR": "1", "NO_PROXY": "*", **more}


def headers_for(url: str) -> dict[str, str]:
    """The headers that any program of this user sends."""
    token = read_token(urlsplit(url).port or 0)
    return {"content-type": "application/json", "authorization": f"Bearer {token}"}


@contextmanager
def serving(*flags: str, **more: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run a server in a process that ends with the block, and return its URL."""
    command = [sys.executable, "-m", "trioeval", "limits", "serve", "--port", "0", *flags]
    with subprocess.Popen(
        command, env=environment(**more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()


def stop(process: subprocess.Popen[str], number: signal.Signals = signal.SIGINT) -> tuple[int, str]:
    """Return the exit code and the output."""
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    return process.returncode, stderr


def post(url: str, data: object) -> Any:
    body = json.dumps(data).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body, headers_for(url))) as reply:
        return json.load(reply)


def limits_file(tmp_path: Path, *limits: object) -> Path:
    path = tmp_path / "limits.json"
    path.write_text(json.dumps(limits))
    return path


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a `limits` command in this process, and return its exit code, stdout and stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        code = run_command_line(["limits", *words])
        stderr = capsys.readouterr()
        return code, stderr.out, stderr.err

    return run


def test_a_server_is_filled_and_shown_and_stores_its_changes(tmp_path: Path, run: Run) -> None:
    """It is started with a file, changed, used, shown and stopped; the file contains every change."""
    path = limits_file(tmp_path, RPM)
    with serving("--limits", str(path)) as (url, process):
        assert url.startswith("http://127.0.0.1:")
        slots = ("slots", "--kind", "concurrency", "--capacity", "8", "--timeout", "30")
        assert run("set", *slots, "--url", url) == (
            0,
            "",
            "slots: 0 of 8 in use (concurrency, 30 s), active\n",
        )
        need = [{"key": "gpt:rpm", "amount": 1}, {"key": "slots", "amount": 1}]
        granted = post(f"{url}/v1/reserve", {"lease_id": "a", "requirements": need})
        assert granted["granted"] is True
        code, shown, _ = run("show", "--url", url)
        assert code == 0
        rows = [" ".join(line.split()) for line in shown.splitlines() if "active" in line]
        assert rows == [
            "│ gpt:rpm │ rolling │ 60 requests │ 60 s │ 1 │ 59 │ active │",
            "│ slots │ concurrency │ 8 │ 30 s │ 1 │ 7 │ active │",
        ]
        assert run("set", "slots", "--pause", "60", "--url", url)[2].endswith(", paused for 60 s\n")
        code, shown, _ = run("show", "slots", "--url", url, "--json")
        (found,) = json.loads(shown)
        assert 50 < found["pausedSeconds"] <= 60
        assert SLOTS.items() <= found.items()
        assert run("set", "slots", "--pause", "0", "--url", url)[2].endswith(", active\n")
        assert run("set", "gpt:rpm", "--capacity", "10", "--url", url)[0] == 0
        assert run("set", "gpt:rmp", "--kind", "budget", "--capacity", "1", "--url", url)[0] == 0
        assert run("remove", "gpt:rmp", "--url", url) == (0, "", "gpt:rmp is removed\n")
        code, _, stderr = run("remove", "gpt:rmp", "--url", url)
        assert (code, "unknown limit 'gpt:rmp'" in stderr) == (2, True)
        kept = Path(os.environ["XDG_RUNTIME_DIR"], "trioeval", f"limits-{urlsplit(url).port}.token")
        token = kept.read_text().strip()
        code, stderr = stop(process)
        assert (code, stderr) == (0, f"serving; its token is in {kept}; interrupt to stop\n")
        assert (len(token) >= 32, kept.exists()) == (True, False)
    assert json.loads(path.read_text()) == [
        {**RPM, "capacity": 10, "used": 1},
        {**SLOTS, "used": 1},
    ]


def test_a_token_restricts_access(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes from the environment or the URL, and is never printed."""
    path = limits_file(tmp_path, SLOTS)
    secret = "s3cret-t0ken"  # noqa: S105
    with serving("--limits", str(path), TRIOEVAL_LIMITS_TOKEN=secret) as (url, process):
        code, _, stderr = run("show", "--url", url)
        assert code == 2
        assert (
            "does not accept the token: give the token that the server was started with" in stderr
        )
        assert run("show", "--url", url.replace("//", f"//:{secret}@"))[0] == 0
        monkeypatch.setenv("TRIOEVAL_LIMITS_TOKEN", secret)
        monkeypatch.setenv("TRIOEVAL_LIMITS_URL", url)
        assert run("show")[0] == 0
        code, stderr = stop(process, signal.SIGTERM)
    assert code == 0
    assert secret not in stderr


def test_a_file_of_limits_is_created_and_changed_without_a_server(tmp_path: Path, run: Run) -> None:
    """The same commands are used, and the file is shown unchanged."""
    path = tmp_path / "limits.json"
    new = (
        "daily",
        "--kind",
        "budget",
        "--capacity",
        "1000",
        "--reset",
        "86400",
        "--unit",
        "tokens",
    )
    assert run("set", *new, "--limits", str(path)) == (
        0,
        "",
        "daily: 0 of 1,000 tokens in use (budget, 86400 s), active\n",
    )
    path.write_text(path.read_text().replace('"capacity"', '"used": 700, "capacity"'))
    code, _, stderr = run("set", "daily", "--capacity", "500", "--limits", str(path))
    assert (code, stderr) == (
        0,
        "daily: 700 of 1,000 tokens in use (budget, 86400 s), decreasing to 500\n",
    )
    before = path.read_bytes()
    code, shown, _ = run("show", "--limits", str(path))
    assert code == 0
    assert "decreasing to 500" in shown
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show"], "give the limits with --url http://host:8770, or redis://host"),
        (["show", "--url", "u", "--limits", "f"], "--url and --limits exclude each other"),
        (
            ["show", "--url", "ftp://h"],
            "the URL of limits must begin with http://, https://, redis://",
        ),
        (["show", "--url", "http://h?x"], "must be like http://host:8770, got 'http://h?x'"),
        (["show", "--limits", "no.json"], "no.json: file not found"),
        (
            ["show", "b", "c", "--limits", "limits.json"],
            "unknown limit b, c; known limits are slots",
        ),
        (["set", "x", "--limits", "limits.json"], "nothing to change: give one of --kind, "),
        (["set", "slots", "--pause", "5", "--limits", "limits.json"], "--pause needs --url"),
        (
            ["set", "slots", "--kind", "budget", "--limits", "limits.json"],
            "--timeout: is not allowed for a budget limit\n  it may have resetSeconds",
        ),
        (
            ["set", "x", "--kind", "rolling", "--window", "-1", "--limits", "limits.json"],
            "--capacity: is missing",
        ),
        (
            ["set", " x", "--kind", "budget", "--capacity", "1", "--limits", "limits.json"],
            "KEY: ",
        ),
        (["serve"], "nothing to serve: give --limits FILE, or --redis redis://host"),
        (["serve", "--redis", "http://h"], "--redis must begin with redis://"),
        (
            ["serve", "--limits", "limits.json", "--host", "::"],
            "--host :: is reachable from other hosts: set TRIOEVAL_LIMITS_TOKEN, or give --token",
        ),
        (
            ["serve", "--limits", "limits.json", "--token", "a b"],
            "the token must consist of printable",
        ),
        (
            ["serve", "--limits", "limits.json", "--token", ""],
            "the token must consist of printable",
        ),
        (["watch"], "give the limits with --url"),
        (["watch", "--url", "http://h", "--every", "inf"], "Must be <= 3600"),
        (["set", "slots", "--url", "redis://h", "--pause", "inf"], "Must be <= 604800"),
        (["set", "slots", "--limits", "limits.json", "--timeout", "1e13"], "--timeout: "),
        (
            ["show", "--namespace", "x", "--url", "http://h"],
            "--namespace is only for limits in Redis",
        ),
        (
            ["show", "--namespace", "x", "--limits", "limits.json"],
            "--namespace is only for limits in Redis",
        ),
        (
            ["serve", "--namespace", "x", "--limits", "limits.json"],
            "--namespace is only for limits in Redis",
        ),
        (["show", "--url", "redis://:secret@localhost:abc"], "must have a port from 1 to 65535"),
        (
            ["serve", "--redis", "redis://h:99999", "--port", "0"],
            "must have a port from 1 to 65535",
        ),
        (["show", "--url", "redis://h/notadb"], "the number of a database"),
        (["set", "slots", "--capacity", "0", "--limits", "limits.json"], ""),
    ],
)
def test_invalid_requests_are_reported(
    words: list[str],
    message: str,
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The message names the valid values, and nothing changes."""
    path = limits_file(tmp_path, SLOTS)
    before = path.read_bytes()
    monkeypatch.chdir(tmp_path)
    code, out, stderr = run(*words)
    assert (code, out) == (2, "")
    assert message in stderr
    assert "Traceback" not in stderr
    assert "secret" not in stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize("scheme", ["http", "redis"])
@pytest.mark.parametrize("words", [["show"], ["watch"], ["set", "x", "--pause", "1"]])
def test_an_unreachable_server_is_reported_at_once(scheme: str, words: list[str], run: Run) -> None:
    """The exit code is 1, with one line and without a traceback."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"{scheme}://127.0.0.1:{closed.getsockname()[1]}"
        code, out, stderr = run(*words, "--url", url)
    assert (code, out) == (1, "")
    assert stderr.startswith("limiter_unavailable: ")
    assert stderr.count("\n") == 1


def test_an_address_in_use_is_reported(tmp_path: Path, run: Run) -> None:
    """The message names the address and the reason; the file is unchanged."""
    path = limits_file(tmp_path, SLOTS)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, out, stderr = run("serve", "--limits", str(path), "--port", port)
    assert (code, out) == (2, "")
    assert stderr == f"cannot listen on 127.0.0.1:{port}: Address already in use\n"


def test_watch_prints_changes_and_ends_cleanly(tmp_path: Path, run: Run) -> None:
    """It prints a line for each limit, then one for each change; Ctrl-C stops it."""
    path = limits_file(tmp_path, RPM, SLOTS)
    with serving("--limits", str(path)) as (url, process):
        watching = [sys.executable, "-m", "trioeval", "limits", "watch", "--url", url]
        with subprocess.Popen(
            [*watching, "--every", "0.1", "--json"],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as watcher:
            assert watcher.stdout is not None
            first = [json.loads(watcher.stdout.readline()) for _ in range(2)]
            assert [one["key"] for one in first] == ["gpt:rpm", "slots"]
            run("set", "slots", "--capacity", "9", "--url", url)
            changed = json.loads(watcher.stdout.readline())
            assert (changed["key"], changed["capacity"]) == ("slots", 9)
            assert stop(process)[0] == 0
            assert watcher.stderr is not None
            warning = watcher.stderr.readline()
            assert "connection refused by 127.0.0.1:" in warning
            assert warning.endswith("; trying again\n")
            assert stop(watcher) == (0, "")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that several tests only read."""
    path = limits_file(tmp_path_factory.mktemp("served"), SLOTS)
    with serving("--limits", str(path)) as (url, _):
        yield url


def test_watch_draws_a_table_on_a_terminal(url: str) -> None:
    """The table is redrawn in place."""
    ours, theirs = pty.openpty()
    watching = [sys.executable, "-m", "trioeval", "limits", "watch", "--url", url]
    env = environment(TERM="xterm")
    with subprocess.Popen(
        [*watching, "--every", "0.1"], env=env, stdout=theirs, stderr=theirs
    ) as watcher:
        os.close(theirs)
        seen = b""
        while seen.count(b"concurrency") < 3:
            seen += os.read(ours, 65536)
        watcher.send_signal(signal.SIGINT)
        with suppress(OSError):  # Linux reports the closed end of a terminal as an error
            while part := os.read(ours, 65536):
                seen += part
        assert watcher.wait(timeout=60) == 0
    os.close(ours)
    assert b"Traceback" not in seen


def test_watch_ends_with_its_reader(url: str, run: Run) -> None:
    """In `watch | head`, the watcher ends with `head`."""
    watching = [sys.executable, "-m", "trioeval", "limits", "watch", "slots", "--url", url]
    with subprocess.Popen(
        [*watching, "--every", "0.1"], env=environment(), stdout=subprocess.PIPE, text=True
    ) as watcher:
        assert watcher.stdout is not None
        assert "slots: 0 of 8 in use (concurrency, 30 s), active" in watcher.stdout.readline()
        watcher.stdout.close()
        run("set", "slots", "--capacity", "9", "--url", url)
        assert watcher.wait(timeout=60) == 0


def test_watch_ends_with_its_reader_even_without_changes(url: str) -> None:
    """It checks its output whenever it reads the limits."""
    watching = [sys.executable, "-m", "trioeval", "limits", "watch", "--url", url, "--every", "0.1"]
    with subprocess.Popen(
        watching, env=environment(), stdout=subprocess.PIPE, text=True
    ) as watcher:
        assert watcher.stdout is not None
        try:
            assert watcher.stdout.readline()
            watcher.stdout.close()
            assert watcher.wait(timeout=60) == 0
        finally:
            watcher.kill()


def test_two_servers_do_not_share_a_file(tmp_path: Path, run: Run) -> None:
    """A change of the file is refused as well."""
    path = limits_file(tmp_path, SLOTS)
    with serving("--limits", str(path)) as (url, _):
        refused = f"{path} is open in another process; if that process serves the limits, use --url"
        for words in (["serve", "--port", "0"], ["set", "slots", "--capacity", "9"]):
            code, out, stderr = run(*words, "--limits", str(path))
            assert (code != 0, out) == (True, "")
            assert refused in stderr
        assert run("set", "slots", "--capacity", "9", "--url", url)[0] == 0


def test_a_given_token_takes_precedence_over_that_of_the_environment(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A URL contains its token; the environment is for URLs without one."""
    path = limits_file(tmp_path, SLOTS)
    with serving("--limits", str(path), "--token", "right") as (url, _):
        monkeypatch.setenv("TRIOEVAL_LIMITS_TOKEN", "another")
        code, _, stderr = run("show", "--url", url)
        assert code == 2
        assert (
            "give the token that the server was started with, as http://:TOKEN@host:8770" in stderr
        )
        assert run("show", "--url", url.replace("//", "//:right@"))[0] == 0


def test_a_second_signal_cuts_off_open_requests(tmp_path: Path) -> None:
    """An endless request does not delay the end of the server for ever."""
    path = limits_file(tmp_path, SLOTS)
    with serving("--limits", str(path)) as (url, process):
        host, _, port = url.removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(port))) as client:
            lines = [f"{name}: {value}\r\n" for name, value in headers_for(url).items()]
            head = f"POST /v1/reserve HTTP/1.1\r\nhost: {host}\r\n{''.join(lines)}"
            client.sendall(f"{head}content-length: 9\r\n\r\n{{".encode())
            post(f"{url}/v1/complete", {"lease_id": "a"})  # the first one has been read by then
            process.send_signal(signal.SIGINT)
            assert stop(process, signal.SIGTERM)[0] == 0


def test_unreported_completions_are_printed_before_the_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line names the leases that must expire and the reason; the last line is the end of the run."""
    monkeypatch.setattr(remote, "FLUSH_WITHIN", 3.0)  # seconds of real time
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    suite = {
        "providers": [{"id": "echo", "lane": {"limits": ["gpt:rpm"]}}],
        "limits": {"backend": "http", "url": url, "unreachable": "open", "patienceMs": 1},
        "prompts": ["{{word}}"],
        "tests": [{"vars": {"word": "one"}}],
    }
    (tmp_path / "suite.json").write_text(json.dumps(suite))
    monkeypatch.chdir(tmp_path)
    assert run_command_line(["suite.json", "--no-table", "--no-progress", "--no-write"]) == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if line]
    last = warnings.pop()
    assert last.endswith("exit 0: no row was graded")
    [left] = [line for line in warnings if "not reported within" in line]
    assert left.startswith(
        "warning: unconfirmed lease requests (1 lease) not reported within 3 s: "
    )
    assert f"connection refused by {url.removeprefix('http://')}" in left

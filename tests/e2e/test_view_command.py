"""`trioeval view` as a command: its errors, its output, and its end."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from trioeval.cli.app import run_command_line

pytestmark = [pytest.mark.slow, pytest.mark.network]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    suite, path = tmp_path / "suite.yaml", tmp_path / "runs.db"
    suite.write_text('{providers: [echo], prompts: ["{{a}}"], tests: [{vars: {a: x}}]}')
    flags = ["--no-table", "--no-progress", "--quiet", "--db", str(path)]
    assert run_command_line([str(suite), *flags]) == 0
    return path


def test_invalid_arguments_are_refused(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message is one sentence with an exit code, before any browser can connect."""

    def refusal(*flags: str, db: Path = database, port: int = 0) -> tuple[int, str]:
        capsys.readouterr()
        code = run_command_line(["view", "--port", str(port), "--db", str(db), *flags])
        printed = capsys.readouterr()
        assert printed.out == ""
        return code, printed.err

    code, stderr = refusal(db=database.with_name("none.db"))
    assert (code, "no suite has been run here" in stderr) == (2, True)
    code, stderr = refusal(db=database.with_name("suite.yaml"))
    assert (code, "is not an SQLite database" in stderr) == (1, True)
    for token in ("short", "with a blank inside", "ünicode-token", "a&b=cdefghij"):
        code, stderr = refusal("--token", token)
        assert (code, "--token must have 8 to 200 characters" in stderr) == (2, True)
        assert token not in stderr
    code, stderr = refusal("--host", "192.0.2.1")  # an address of no machine
    assert (code, "cannot listen on 192.0.2.1:0: " in stderr) == (2, True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, stderr = refusal(port=port)
        assert (code, f"cannot listen on 127.0.0.1:{port}: " in stderr) == (2, True)
    whole = database.read_bytes()
    database.write_bytes(whole[:8192] + bytes(len(whole) - 8192))
    code, stderr = refusal()
    assert (code, "damaged" in stderr, "Traceback" in stderr) == (1, True, False)


@pytest.mark.parametrize("missing", ["starlette.types", "starlette.responses"])
def test_a_missing_part_of_the_extra_is_named(
    database: Path,
    missing: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """This holds for each part: other programs may install one without the others."""
    monkeypatch.delitem(sys.modules, "trioeval.web.security", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    assert run_command_line(["view", "--port", "0", "--db", str(database)]) == 2
    assert "pip install 'trioeval[view]'" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_token_is_created_for_other_machines_and_a_signal_ends_it_at_once(
    database: Path, number: signal.Signals
) -> None:
    """This holds with a connected viewer and with a partial request."""
    command = [sys.executable, "-m", "trioeval", "view", "--host", "0.0.0.0", "--port", "0"]  # noqa: S104
    with subprocess.Popen(
        [*command, "--db", str(database)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_PROXY": "*"},
    ) as process:
        try:
            assert process.stdout is not None
            printed = re.fullmatch(
                r"http://([\w.-]+):(\d+)/\?token=([\w-]{32})\n", process.stdout.readline()
            )
            assert printed is not None
            assert printed[1] != "0.0.0.0"  # noqa: S104 - compared
            port, token = int(printed[2]), printed[3]
            opener = urllib.request.build_opener(
                urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor()
            )
            with pytest.raises(urllib.error.HTTPError, match="401"):
                opener.open(f"http://127.0.0.1:{port}/")
            with opener.open(f"http://127.0.0.1:{port}/?token={token}") as reply:
                assert (reply.url, b"suite.yaml" in reply.read()) == (
                    f"http://127.0.0.1:{port}/",
                    True,
                )
            with socket.create_connection(("127.0.0.1", port)) as half:
                half.sendall(b"GET / HTTP/1.1\r\n")
                process.send_signal(number)
                _, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, stderr) == (0, "serving; interrupt to stop\n")


def test_a_view_may_be_open_before_the_first_run(tmp_path: Path) -> None:
    """It shows an empty list, and then the first run; a token need not be a flag."""
    (tmp_path / "suite.yaml").write_text(
        '{providers: [echo], prompts: ["{{a}}"], tests: [{vars: {a: x}}]}'
    )
    program = [sys.executable, "-m", "trioeval"]
    with subprocess.Popen(
        [*program, "view", "--port", "0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_PROXY": "*", "TRIOEVAL_VIEW_TOKEN": "of-the-environment"},
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address.endswith("/?token=of-the-environment")
            opener = urllib.request.build_opener(
                urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor()
            )
            with opener.open(address) as reply:
                assert b"No run yet" in reply.read()
            flags = ["--no-table", "--no-progress", "--quiet"]
            subprocess.run([*program, "suite.yaml", *flags], cwd=tmp_path, check=True)
            with opener.open(address) as reply:
                assert b"suite.yaml" in reply.read()
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()

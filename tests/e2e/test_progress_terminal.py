"""Progress as a user sees it: real runs on a pseudo-terminal whose screen is interpreted."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyte
import pytest
from held_server import HeldServer, held_server
from hostile import assert_inert_terminal, names_of
from server_process import fake_provider, stats_of

pytestmark = pytest.mark.slow

PATIENCE = 60.0  # seconds within which everything has happened
ENV = {
    name: value
    for name, value in os.environ.items()
    if name not in {"COLUMNS", "LINES", "NO_COLOR", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"}
} | {"OPENAI_API_KEY": "none"}
Done = Callable[[list[str]], bool]


class Terminal:
    """A terminal with a run on it."""

    def __init__(self, process: "subprocess.Popen[bytes]", handle: int, columns: int) -> None:
        self.process, self.handle = process, handle
        self.screen = pyte.Screen(columns, 24)
        self.stream = pyte.Stream(self.screen)
        self.encoding = "utf-8"
        self.raw = self._left = b""
        self.is_open = True

    def lines(self) -> list[str]:
        """The contents of the screen."""
        return [line.rstrip() for line in self.screen.display if line.strip()]

    def wait_for(self, done: Done) -> list[str]:
        """Read until the screen satisfies a condition."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if done(self.lines()):
                return self.lines()
            if not self._read(until - time.monotonic()):
                break
        raise AssertionError("never seen; the screen is\n" + "\n".join(self.lines()))

    def wait_end(self) -> list[str]:
        """Read until the run has ended."""
        while self._read(PATIENCE):
            pass
        self.process.wait(timeout=PATIENCE)
        return self.lines()

    def resize(self, columns: int) -> None:
        """Make the window narrower."""
        fcntl.ioctl(self.handle, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.screen.resize(24, columns)

    def close(self) -> None:
        """Close the window."""
        if self.is_open:
            os.close(self.handle)
            self.is_open = False

    def _read(self, seconds: float) -> bool:
        if not select.select([self.handle], [], [], seconds)[0]:
            return False
        try:
            found = os.read(self.handle, 65536)
        except OSError:  # Linux reports the closed end of a terminal as an error
            return False
        self.raw += found
        self._left += found
        try:
            text, self._left = self._left.decode(self.encoding), b""
        except UnicodeDecodeError:  # the rest of the character has not arrived yet
            return True
        self.stream.feed(text)
        return bool(found)


@contextmanager
def on_terminal(
    folder: Path,
    *flags: str,
    columns: int = 80,
    env: Mapping[str, str] | None = None,
    is_controlling: bool = False,
) -> Iterator[Terminal]:
    """A run of `suite.json` with its stderr on a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, "-m", "trioeval", "suite.json", "--no-table", "--no-cache", *flags]
    if is_controlling:  # typed characters reach the run
        command = [sys.executable, "-c", _CONTROLLED, *command[1:]]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**ENV, "TERM": "xterm-256color", **(env or {})},
        stdin=theirs,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    terminal = Terminal(process, ours, columns)
    try:
        yield terminal
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        terminal.close()


_CONTROLLED = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.fixture(scope="module")
def slow_provider() -> Iterator[str]:
    with fake_provider("--latency", "0.1") as url:
        yield url


def write_suite(folder: Path, url: str, rows: int, lanes: Sequence[Mapping[str, Any]]) -> None:
    suite = {
        "providers": [
            {
                "id": "openai:chat:fake",
                "label": lane["key"],
                "config": {"apiBaseUrl": url},
                "lane": lane,
            }
            for lane in lanes
        ],
        "prompts": ["say {{word}}"],
        "tests": [
            {"vars": {"word": f"w{n}"}, "assert": [{"type": "regex", "value": "."}]}
            for n in range(rows)
        ],
    }
    (folder / "suite.json").write_text(json.dumps(suite))


@pytest.fixture(scope="module", autouse=True)
def dumb_run(tmp_path_factory: pytest.TempPathFactory, slow_provider: str) -> Iterator[Terminal]:
    """A run of eight seconds on a dumb terminal, started before the other tests."""
    folder = tmp_path_factory.mktemp("dumb")
    write_suite(folder, slow_provider, 40, [{"key": names_of(), "maxConcurrency": 1, "rpm": 300}])
    with on_terminal(folder, env={"TERM": "dumb"}) as terminal:
        yield terminal


def is_whole(lines: list[str]) -> bool:
    """True if the screen has one complete picture: the line of rows, and one heading."""
    return (
        sum(bool(re.search(r"\d+/\d+ rows", line)) for line in lines) == 1
        and sum(line.startswith("lane ") for line in lines) == 1
    )


def test_a_terminal_shows_the_activity_of_each_lane(tmp_path: Path) -> None:
    """It adapts to a narrower window, and disappears when the run ends."""
    lanes = [{"key": "wide", "maxConcurrency": 4}, {"key": "paced", "rpm": 300}]
    with fake_provider("--latency", "0.5") as url, ExitStack() as stack:
        write_suite(tmp_path, url, 34, lanes)  # the window is narrowed while the picture is shown
        terminal = stack.enter_context(on_terminal(tmp_path))
        seen = terminal.wait_for(
            lambda lines: is_whole(lines) and any("4/4" in line for line in lines)
        )
        assert re.search(r"[━─]+ +\d+/68 rows  0:\d\d", seen[0])
        heading = next(line for line in seen if line.startswith("lane "))
        assert heading.split("  ")[0] == "lane"
        for word in ("in flight", "queued", "rpm", "waiting"):
            assert word in heading
        terminal.wait_for(
            lambda lines: (
                any(re.match(r"paced .* \d+/300 .* \d+/34  0:\d\d  rpm", line) for line in lines)
                and any(re.search(r"100\.0 % of \d+ pass", line) for line in lines)
            )
        )
        assert b"\x1b[32m" in terminal.raw  # green
        terminal.resize(40)
        terminal.wait_for(
            lambda lines: is_whole(lines) and not any("/300" in line for line in lines)
        )
        last = terminal.wait_end()
    assert terminal.process.returncode == 0
    text = " ".join(last)
    assert "exit 0: every row passed" in text
    assert not any(line.startswith("lane ") for line in last)
    assert "in flight" not in text


def test_an_interrupt_is_reported_above_the_picture(tmp_path: Path) -> None:
    """The terminal has 40 columns, Windows-1252 and no colours; missing characters are replaced."""
    lanes = [{"key": f"Spur Ä 試験 {n}", "maxConcurrency": 1, "rpm": 60} for n in range(30)]
    env = {"NO_COLOR": "1", "PYTHONIOENCODING": "cp1252"}
    with held_server() as server, ExitStack() as stack:
        server.hold_after(0)
        write_suite(tmp_path, server.url, 3, lanes)
        terminal = stack.enter_context(
            on_terminal(tmp_path, columns=40, env=env, is_controlling=True)
        )
        terminal.encoding = "cp1252"
        seen = terminal.wait_for(
            lambda lines: is_whole(lines) and any("1/1" in line for line in lines)
        )
        assert len(seen) <= 20
        assert any(line.startswith("Spur Ä ??") for line in seen)
        assert re.fullmatch(r"\d+ more lanes, \d+ in flight", seen[-1])
        assert seen[0].startswith(("#", "-"))
        os.write(terminal.handle, b"\x03")
        seen = terminal.wait_for(lambda lines: any("stopping  " in line for line in lines))
        lines_of = [line.startswith("stopping: running rows") for line in seen]
        assert lines_of.index(True) < next(n for n, line in enumerate(seen) if "stopping  " in line)
        server.release()
        terminal.wait_end()
    assert terminal.process.returncode == 130
    assert "interrupted by SIGINT" in "".join(terminal.lines())
    colours = set(re.findall(rb"\x1b\[([0-9;]*)m", terminal.raw))
    assert colours <= {b"", b"0", b"1", b"2"}  # bold and dim are allowed, colours are not


def test_after_a_suspension_no_foreign_output_is_overwritten(tmp_path: Path) -> None:
    """The output of a shell and its programs remains; the picture continues below it."""
    with held_server() as server, on_terminal_with(tmp_path, server) as terminal:
        terminal.wait_for(lambda lines: any("1/1" in line for line in lines))
        terminal.process.send_signal(signal.SIGSTOP)
        terminal.stream.feed("printed by others\r\n")
        drawn = terminal.lines().index("printed by others")
        terminal.process.send_signal(signal.SIGCONT)
        terminal.wait_for(lambda lines: any("rows" in line for line in lines[drawn + 1 :]))
        assert "printed by others" in terminal.lines()
        server.release()
        assert "exit 0" in " ".join(terminal.wait_end())
        assert "printed by others" in terminal.lines()


@contextmanager
def on_terminal_with(folder: Path, server: HeldServer) -> Iterator[Terminal]:
    """A run of nine rows; two get replies at once, and the others when the server is released."""
    server.hold_after(2)
    write_suite(folder, server.url, 9, [{"key": "a", "maxConcurrency": 1}])
    with on_terminal(folder) as terminal:
        yield terminal


def test_a_paused_or_closed_terminal_is_not_an_error(tmp_path: Path, slow_provider: str) -> None:
    """The run does not wait for it, and ends as usual."""
    write_suite(tmp_path, slow_provider, 40, [{"key": "a", "maxConcurrency": 1}])
    with on_terminal(tmp_path, "-o", "out.json") as terminal:
        terminal.wait_for(lambda lines: any("1/1" in line for line in lines))
        done = stats_of(slow_provider)["ok"]
        os.write(terminal.handle, b"\x13")  # Ctrl-S
        until = time.monotonic() + PATIENCE
        while stats_of(slow_provider)["ok"] < done + 3:
            assert time.monotonic() < until, "the run waits for its terminal"
            time.sleep(0.02)
        terminal.close()
        assert terminal.process.wait(timeout=PATIENCE) == 0
    rows = json.loads((tmp_path / "out.json").read_text())["results"]["results"]
    assert [row["success"] for row in rows] == [True] * 40


def test_a_file_gets_json_objects_or_only_the_last_line(tmp_path: Path, slow_provider: str) -> None:
    """With `--progress-mode json` each line is an object; with `--quiet` there is one line."""
    write_suite(tmp_path, slow_provider, 3, [{"key": "a"}])
    command = [sys.executable, "-m", "trioeval", "suite.json", "--no-table"]

    def begin(*flags: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [*command, *flags, "--no-write"],
            cwd=tmp_path,
            env=ENV,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def lines_of(process: "subprocess.Popen[bytes]") -> list[str]:
        shown, stderr = process.communicate(timeout=PATIENCE)
        assert (shown, process.returncode) == (b"", 0)
        return stderr.decode().splitlines()

    quiet = begin("--quiet")
    facts = [json.loads(line) for line in lines_of(begin("--progress-mode", "json"))]
    assert [fact["testIdx"] for fact in facts if fact["type"] == "row"] == [0, 1, 2]
    assert facts[0]["type"] == "progress"
    assert facts[0]["lanes"][0]["name"] == "a"
    assert [fact["done"] for fact in facts if fact["type"] == "progress"][-1] == 3
    assert facts[-1]["type"] == "end"
    assert facts[-1]["code"] == 0
    (only,) = lines_of(quiet)
    assert only.endswith("exit 0: every row passed")


def test_a_step_of_github_gets_groups_and_a_summary(tmp_path: Path) -> None:
    """This is automatic; no text of a suite becomes a workflow command."""
    suite = {
        "providers": [{"id": "echo", "label": "::add-mask::x"}],
        "prompts": ["{{word}}"],
        "tests": [
            {"vars": {"word": word}, "assert": [{"type": "equals", "value": "yes"}]}
            for word in ("yes", "::error::no", "##[group]no | <b>")
        ],
    }
    (tmp_path / "suite.json").write_text(json.dumps(suite))
    summary = tmp_path / "summary.md"
    summary.write_text("# before\n")
    done = subprocess.run(
        [sys.executable, "-m", "trioeval", "suite.json", "-o", "page.md"],
        cwd=tmp_path,
        env={
            **ENV, "GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(tmp_path.parent),
            "GITHUB_STEP_SUMMARY": str(summary),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 100
    commands = [line for line in done.stdout.splitlines() if line.lstrip().startswith("::")]
    assert [command.split(" ")[0] for command in commands] == [
        "::group::trioeval:", "::endgroup::", "::group::trioeval:", "::endgroup::", "::error", "::error",
    ]  # fmt: skip
    assert (
        f"file={tmp_path.name}/suite.json,title=FAIL %3A%3Aadd-mask%3A%3Ax%2C row 1 ("
        in commands[4]
    )
    assert "##[" not in done.stdout
    assert summary.read_text() == "# before\n" + (tmp_path / "page.md").read_text()
    assert "| `::add-mask::x` | 1 | 2 | 0 | 33.3 % of 3 |" in summary.read_text()


def test_a_dumb_terminal_gets_harmless_lines(dumb_run: Terminal) -> None:
    """This holds for any name of a lane."""
    dumb_run.wait_end()
    assert dumb_run.process.returncode == 0
    assert_inert_terminal(dumb_run.raw.decode())
    assert re.search(
        rb"\d+/40 rows, 100\.0 % of \d+ passed, 0:\d\d, 0:\d\d left; <script>window", dumb_run.raw
    )

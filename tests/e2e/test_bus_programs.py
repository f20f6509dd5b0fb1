"""Several real processes on one bus: agents in shell and Python, followers, signals, and kills."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from trioeval.agent.bus.reading import read_bus
from trioeval.cli.app import run_command_line

pytestmark = pytest.mark.slow

BUS = [sys.executable, "-m", "trioeval", "bus"]
WAIT = 60  # seconds; the maximum wait for something that takes a moment

PYTHON_AGENT = """
import os, trio
from pathlib import Path
from trioeval.agent.bus.bus import open_bus
from trioeval.agent.bus.messages import MessageDraft, MessageParent

async def main():
    async with open_bus(Path(os.environ["TRIOEVAL_BUS"]), rng=lambda: 0.5) as bus:
        async for message in bus.follow():
            if message.draft.type == "QUESTION":
                parent = MessageParent(msg_id=message.msg_id)
                await bus.append(
                    MessageDraft(type="DECISION", project_id="p", task_id="py", body="yes", parents=(parent,))
                )
            if message.draft.type == "FACT":
                return

trio.run(main)
"""

SHELL_AGENT = """
set -e
question=$("$TRIOEVAL_PYTHON" -P -m trioeval bus post --type QUESTION "May I?")
answer=$("$TRIOEVAL_PYTHON" -P -m trioeval bus follow --since "$question" --until DECISION --timeout 60)
printf 'answer:\n%s\n' "$answer" | "$TRIOEVAL_PYTHON" -P -m trioeval bus post --type FACT
"""

HOLDER = """
import os, sys, time, trio
from pathlib import Path
from trioeval.agent.bus.bus import open_bus
from trioeval.agent.bus.messages import MessageDraft
from trioeval.agent.bus.settings import BusSettings

def hold(number):
    print("holds the lock", flush=True)
    time.sleep(60)

async def main():
    async with open_bus(Path(sys.argv[1]), BusSettings(fsync="always"), rng=lambda: 0.5) as bus:
        os.fsync = os.fdatasync = hold
        await bus.append(MessageDraft(type="INFO", project_id="p", body="before"))

trio.run(main)
"""

WRITER = """
import sys, trio
from pathlib import Path
from trioeval.agent.bus.bus import open_bus
from trioeval.agent.bus.messages import MessageDraft

async def main():
    async with open_bus(Path(sys.argv[1]), rng=lambda: 0.5) as bus:
        for number in range(1, 401):
            while number == 200 and not Path(sys.argv[2]).exists():
                await trio.sleep(0.005)
            await bus.append(MessageDraft(type="INFO", project_id="p", body=f"{number} " + "x" * number * 7))

trio.run(main)
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """The environment of an agent."""
    return {
        **os.environ,
        "TRIOEVAL_BUS": str(tmp_path / "bus"),
        "TRIOEVAL_PROJECT": "p",
        "TRIOEVAL_CASE": "sh",
        "TRIOEVAL_PYTHON": sys.executable,
    }


@contextmanager
def running(command: Sequence[str | Path], env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process that is ended with the block."""
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_lock(process: subprocess.Popen[str]) -> None:
    """Wait until a process has opened the lock file, so that it only needs to acquire the lock."""
    until = time.monotonic() + WAIT
    while not any(path.name == ".lock" for path in opened(process)):
        assert time.monotonic() < until
        time.sleep(0.01)


def opened(process: subprocess.Popen[str]) -> Iterator[Path]:
    """The files that a process has open."""
    for file in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            yield file.readlink()


def line_of(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def test_agents_in_two_languages_communicate_and_a_third_process_follows(
    tmp_path: Path, env: dict[str, str]
) -> None:
    """Each sees all messages in the same order, even a follower that started before the bus existed."""
    (tmp_path / "json.py").write_text("raise SystemExit('a file of the workspace was imported')")
    with ExitStack() as stack:
        listener = stack.enter_context(running([*BUS, "follow", "--json", "--until", "FACT"], env))
        python = stack.enter_context(running([sys.executable, "-c", PYTHON_AGENT], env))
        shell = subprocess.run(
            ["sh", "-c", SHELL_AGENT],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=WAIT,
            check=False,
        )
        assert (shell.returncode, shell.stderr) == (0, "")
        stdout, stderr = listener.communicate(timeout=WAIT)
        assert (listener.returncode, stderr) == (0, "")
        assert python.wait(timeout=WAIT) == 0
    question, decision, fact = map(json.loads, stdout.splitlines())
    assert (question["seq"], question["type"], question["task_id"]) == (1, "QUESTION", "sh")
    assert (decision["type"], decision["parents"]) == ("DECISION", [{"msg_id": question["msg_id"]}])
    assert shell.stdout == f"{fact['msg_id']}\n"
    assert fact["body"] == f"answer:\n2 {decision['ts'][:19]}Z DECISION py yes\n"


def test_ag_57_a_writer_that_is_killed_with_the_lock_blocks_no_other_writer(
    tmp_path: Path, env: dict[str, str]
) -> None:
    """The waiting writer continues, and both messages exist."""
    with running([sys.executable, "-c", HOLDER, tmp_path / "bus"], env) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holds the lock\n"
        with running([*BUS, "post", "after"], env) as waiting:
            wait_for_lock(waiting)
            assert waiting.poll() is None
            holder.kill()
            printed, stderr = waiting.communicate(timeout=WAIT)
            assert (waiting.returncode, stderr) == (0, "")
    found = read_bus(tmp_path / "bus").messages
    assert [message.draft.body for message in found] == ["before", "after"]
    assert printed == f"{found[1].msg_id}\n"


def test_a_post_that_is_stopped_while_it_waits_posts_nothing(
    tmp_path: Path, env: dict[str, str]
) -> None:
    """It reports this, with the exit code of its signal."""
    with running([sys.executable, "-c", HOLDER, tmp_path / "bus"], env) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with running([*BUS, "post", "never"], env) as waiting:
            wait_for_lock(waiting)
            waiting.terminate()
            assert waiting.communicate(timeout=WAIT) == ("", "nothing was posted; exit 143\n")
            assert waiting.returncode == 143
    assert [message.draft.body for message in read_bus(tmp_path / "bus").messages] == ["before"]


def test_a_follower_ends_with_its_signal_or_its_reader(env: dict[str, str]) -> None:
    """It ends at once, without a traceback and with the right code, even if it waits for a slow reader."""
    with ExitStack() as stack:
        begin = [running([*BUS, "follow", "--json"], env) for _ in range(4)]
        interrupted, terminated, left, stuck = [stack.enter_context(one) for one in begin]
        body = "x" * 100_000  # more than a pipe holds
        subprocess.run([*BUS, "post", "a"], env=env, stdout=subprocess.DEVNULL, check=True)
        for process in (interrupted, terminated, left, stuck):
            assert line_of(process)["body"] == "a"
        assert left.stdout is not None
        left.stdout.close()
        assert left.wait(timeout=WAIT) == 0
        posted = subprocess.run(
            [*BUS, "post"], input=body.encode(), env=env, stdout=subprocess.DEVNULL, check=True
        )
        assert posted.returncode == 0
        for process in (interrupted, terminated):
            assert line_of(process)["body"] == body
        interrupted.send_signal(signal.SIGINT)
        for process in (terminated, stuck):
            process.terminate()
        assert stuck.wait(timeout=WAIT) == 143
        assert terminated.communicate(timeout=WAIT) == ("", "")
        assert interrupted.communicate(timeout=WAIT) == ("", "")
        assert (interrupted.returncode, terminated.returncode) == (130, 143)
        assert left.stderr is not None
        assert left.stderr.read() == ""


def test_ag_64_a_reader_never_gets_a_partial_message(
    tmp_path: Path, env: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Another process writes meanwhile; each read returns the earlier messages and complete new ones."""
    seen: list[Any] = []
    looks = 0
    (tmp_path / "bus").mkdir()  # reading a folder that does not exist is an error
    go_on = tmp_path / "go on"
    with running([sys.executable, "-c", WRITER, tmp_path / "bus", go_on], env) as writer:
        while len(seen) < 400:
            is_over = writer.poll() is not None
            words = ["--bus", str(tmp_path / "bus"), "--since", str(len(seen)), "--json"]
            assert run_command_line(["bus", "read", *words]) == 0
            stderr = capsys.readouterr()
            assert stderr.err == ""
            new = [json.loads(line) for line in stderr.out.splitlines()]
            looks += bool(new)
            seen += new
            if seen:  # so that some messages are written after a read
                go_on.touch()
            assert not is_over or len(seen) == 400
    assert looks > 1
    assert [one["seq"] for one in seen] == list(range(1, 401))
    assert [one["body"] for one in seen] == [f"{n} " + "x" * n * 7 for n in range(1, 401)]


def test_invalid_utf8_is_refused_in_arguments_and_replaced_in_input(
    tmp_path: Path, env: dict[str, str]
) -> None:
    """Nothing else of the text is lost; a message on stderr reports both."""
    refused = subprocess.run([*BUS, "post", b"a\xff"], env=env, capture_output=True, check=False)
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert refused.stderr == b"TEXT must be UTF-8 text, got 'a\\udcff'\n"
    everything = bytes(range(256))
    done = subprocess.run(
        [*BUS, "post"], input=everything, env=env, capture_output=True, check=True
    )
    assert done.stderr.startswith(b"standard input is not UTF-8")
    (message,) = read_bus(tmp_path / "bus").messages
    assert message.draft.body == everything.decode(errors="replace")


def test_a_post_imports_little(env: dict[str, str]) -> None:
    """Agents post often, so no module of suites, reports, providers or databases is imported."""
    probe = (
        "import sys; from trioeval.cli.app import run_command_line as run; run(['bus', 'post', 'a']);"
        "print(*{'yaml', 'jinja2', 'httpx2', 'sqlite3', 'cattrs', 'trioeval.suite', 'trioeval.report',"
        " 'trioeval.kernel', 'trioeval.store', 'trioeval.run'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[1:] == [""]

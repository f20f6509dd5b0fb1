"""Agents that leave traps behind, or start more processes than the machine can run."""

import os
import shlex
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from agent_processes import Rig, attempt, carriers, in_rig, run, scripted, settings, wait_gone

from trioeval.agent.case_folder import ensure_prompt
from trioeval.agent.loop import LoopEnd, run_until_done
from trioeval.agent.report_file import read_report_file
from trioeval.agent.restarts import Attempt, AttemptEnd, RestartPolicy
from trioeval.agent.workspace_tools import ActionError, edit_text, read_text, write_text
from trioeval.errors import AgentError, GradingError
from trioeval.evaluation.commands import run_command
from trioeval.grading.kinds.workspace_files import NoFileError, find_file, read_file
from trioeval.providers.programs.exec import OutputTail
from trioeval.providers.programs.members import find_started, has_tag
from trioeval.providers.programs.processes import make_mark

pytestmark = pytest.mark.attack("agents")

BOMB = """
import os, signal, sys
kind, most = sys.argv[1], int(sys.argv[2])
tally = os.open("tally", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
def live():
    signal.alarm(100)  # an upper bound for every outcome of the test
    for _ in range(2 if kind == "tree" else most):
        os.write(tally, b".")
        if os.fstat(tally).st_size > most:
            break
        if os.fork() == 0:
            if "session" in kind:
                os.setsid()
            if "orphan" in kind and os.fork():
                os._exit(0)
            if kind in ("tree", "sessions"):
                live()
            break
    for number in range(1, 32):
        if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGALRM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_IGN)
    while True:
        signal.pause()
live()
"""
"""Forks without end, up to a bound that real bombs do not have."""


@pytest.fixture
def mark() -> str:
    """Return the mark in the environment of all processes of a test."""
    return uuid.uuid4().hex


async def work_once(rig: Rig) -> AttemptEnd:
    return await rig.agent(attempt())


@pytest.mark.parametrize("kind", ["flat", "tree", "sessions", "orphans of sessions"])
def test_a_fork_bomb_is_ended_within_seconds_and_leaves_nothing(
    tmp_path: Path, mark: str, kind: str
) -> None:
    """The attempt reports the reason."""
    bomb = tmp_path / "bomb.py"
    bomb.write_text(BOMB)
    line = f"{sys.executable} -S -E {bomb} '{kind}' 300"
    began_at = time.monotonic()
    end = in_rig(settings(line, mark=mark), tmp_path, work_once, max_processes=40)
    assert carriers(mark) == []
    assert time.monotonic() - began_at < 60  # a bomb that is not ended takes 100
    assert end.failure is not None
    assert end.failure.kind == "killed"
    assert end.failure.message == (
        "had more than 40 processes at once (maxProcesses); all of them were killed"
    )


def test_a_fork_bomb_that_the_agent_leaves_behind_ends_with_its_case(
    tmp_path: Path, mark: str
) -> None:
    """The program itself has ended normally."""
    bomb = tmp_path / "bomb.py"
    bomb.write_text(BOMB)
    line = f"sh -c '{sys.executable} -S -E {bomb} sessions 300 & touch DONE'"

    async def work(rig: Rig) -> LoopEnd:
        return await run_until_done(rig.agent, rig.terms())

    end = in_rig(settings(line, mark=mark), tmp_path, work, max_processes=40)
    assert carriers(mark) == []
    assert end.ending == "done"


ESCAPE = """
import os, signal, sys, time
killer, up = sys.argv[1:]
supervisor = os.getppid()

def kill_supervisor():
    os.kill(supervisor, signal.SIGKILL)
    if killer == "stopped":
        os.kill(supervisor, signal.SIGCONT)

if killer == "stopped":
    os.kill(supervisor, signal.SIGSTOP)
hidden, hide = os.pipe()
if os.fork():
    os.close(hide)
    os.read(hidden, 1)  # nothing comes: the hidden process closes it when it is ready
    if killer in ("program", "stopped"):
        kill_supervisor()
        time.sleep(60)
    os._exit(0)
os.close(hidden)
signal.alarm(60)  # an upper bound for every outcome of the test
os.setsid()
if os.fork():
    os._exit(0)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
with open(up, "w") as file:
    file.write(str(os.getpid()))
if killer == "orphan":
    kill_supervisor()
os.close(hide)
os.execve(sys.executable, [sys.executable, "-S", "-E", "-c", "import time; time.sleep(60)"], {})
"""
"""Leaves session, environment and parent, ignores requests to end, and kills its supervisor."""


@pytest.mark.parametrize("killer", ["program", "stopped", "orphan"])
@pytest.mark.parametrize("user", ["attempt", "case", "command"])
def test_a_program_that_kills_its_supervisor_is_ended_too(
    tmp_path: Path, killer: str, user: str
) -> None:
    """It is found by the inherited tag."""
    script, up = tmp_path / "escape.py", tmp_path / "up"
    script.write_text(ESCAPE)
    words = [sys.executable, "-S", "-E", str(script), killer, str(up)]

    async def work(rig: Rig) -> AttemptEnd:
        if user == "attempt":
            return await rig.agent(attempt())
        end = await run_until_done(rig.agent, rig.terms(policy=RestartPolicy(max_attempts=1)))
        return end.attempts[0]

    async def command() -> int | None:
        return await run_command(words, tmp_path, dict(os.environ), 30, OutputTail(), grace=0.1)

    if user == "command":
        assert run(command) in (0, -9)
    else:
        end = in_rig(settings(shlex.join(words)), tmp_path, work)
        if killer != "orphan":
            assert end.failure is not None
            assert "its supervisor ($PPID) was killed" in end.failure.message
    assert wait_gone(int(up.read_text()), 30)


@pytest.mark.parametrize("kind", ["session", "session orphan", "bare session orphan"])
def test_programs_end_when_the_run_is_killed(tmp_path: Path, kind: str) -> None:
    """The supervisor survives for this purpose."""
    up = tmp_path / "up"
    os.mkfifo(up)
    script = tmp_path / "run.py"
    script.write_text(KILLED_RUN)
    line = scripted(f"leave:{kind}", f"open:{up}", "hang")
    found = subprocess.Popen([sys.executable, str(script), line])
    up.read_text()
    started = find_started(found.pid)
    assert len(started) >= 3  # the supervisor, the program and its child
    found.kill()
    found.wait()
    for one in started:
        assert wait_gone(one.pid, 60)


KILLED_RUN = """
import os, shlex, sys, trio
from pathlib import Path
from trioeval.providers.programs.processes import start_tree

async def main():
    words = shlex.split(sys.argv[1])
    async with await start_tree(words, cwd=Path.cwd(), environ=os.environ, supervised=True) as tree:
        await tree.wait()

trio.run(main)
"""


@pytest.mark.parametrize("text", ["", "Max file locks  7  8  locks", "Max files  9  9  files"])
def test_a_process_without_the_tag_does_not_belong_to_the_tree(text: str) -> None:
    """A process whose tag cannot be read is not treated as part of it."""
    assert not has_tag(text.encode(), 9)


def test_an_agent_that_starts_process_trees_has_another_tag_for_each() -> None:
    """This also holds if its own limit is a tag already; without room it gets none."""
    mark, other = make_mark(), make_mark()
    line = (
        "import sys, resource as r; from trioeval.providers.programs.members import make_tag;"
        "n = 10; tags = [make_tag(sys.argv[1]), make_tag(sys.argv[2])];"
        "r.setrlimit(n, (tags[0], tags[0])); tags.append(make_tag(sys.argv[2]));"
        "r.setrlimit(n, (5, 5)); tags.append(make_tag(sys.argv[2])); print(*tags)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", line, mark, other], stdout=subprocess.PIPE, text=True, check=True
    )
    first, second, inner, none = map(int, ran.stdout.split())
    assert first != second
    assert 0 < inner < first
    assert none == 0


def test_sequential_processes_do_not_count_as_concurrent(tmp_path: Path) -> None:
    """A process that ends no longer counts."""
    line = "sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.01 & sleep 0.01; wait; done; echo ok'"
    end = in_rig(settings(line), tmp_path, work_once, max_processes=6)
    assert (end.output, end.failure) == ("ok", None)


def test_a_fork_bomb_among_the_commands_of_a_workspace_is_ended(tmp_path: Path, mark: str) -> None:
    """This covers commands of assertions and of models: the output contains the reason."""
    bomb = tmp_path / "bomb.py"
    bomb.write_text(BOMB)
    written = OutputTail()
    words = [sys.executable, "-S", "-E", str(bomb), "tree", "300"]

    async def main() -> int | None:
        environ = {**os.environ, "FAMILY": mark}
        return await run_command(words, tmp_path, environ, 30, written, grace=0.1, max_processes=40)

    assert run(main) == -9
    assert carriers(mark) == []
    assert "had more than 40 processes at once (maxProcesses)" in (written.text or "")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(path))


def _many_links(path: Path) -> None:
    for number in range(60):
        (path.parent / f"link{number}").symlink_to(f"link{number + 1}")
    (path.parent / "link60").touch()
    path.symlink_to("link0")


def _linked_pipe(path: Path) -> None:
    os.mkfifo(f"{path}.pipe")
    path.symlink_to(f"{path.name}.pipe")


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10 * 2**30)


TRAPS: dict[str, Callable[[Path], None]] = {
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
    "link to a pipe": _linked_pipe,
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "terminal": lambda path: path.symlink_to("/dev/tty"),
    "standard input": lambda path: path.symlink_to("/dev/stdin"),
    "link to a folder": lambda path: path.symlink_to("/proc"),
    "socket": _socket,
    "loop of links": lambda path: path.symlink_to(path.name),
    "too many links": _many_links,
}
LARGE = {**TRAPS, "10 GB without content": _sparse}
REFUSED = (NoFileError, GradingError, ActionError)


@pytest.fixture(params=LARGE)
def trap(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a trap that may be large; sockets need a short path, hence the working folder."""
    monkeypatch.chdir(tmp_path)
    return str(request.param)


@pytest.mark.parametrize("trap", TRAPS)
def test_a_marker_that_is_not_a_file_is_the_failure_of_the_agent(
    tmp_path: Path, trap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The case ends at once, with a reason that names the marker."""
    monkeypatch.chdir(tmp_path)

    async def work(rig: Rig) -> LoopEnd:
        async def trapped(one: Attempt) -> AttemptEnd:
            end = await rig.agent(one)
            TRAPS[trap](rig.agent.room.files.done)
            return end

        return await run_until_done(trapped, rig.terms())

    end = in_rig(settings("true"), tmp_path, work)
    assert (end.ending, end.gave_up, len(end.attempts)) == ("failed", "marker", 1)
    assert "DONE" in end.message
    assert "a file there means `done`" in end.message


def test_a_trap_in_the_place_of_a_file_is_not_read(tmp_path: Path, trap: str) -> None:
    """Assertions, and tools of a model, report the trap; nothing waits."""
    LARGE[trap](tmp_path / "answer.txt")
    if trap == "too many links":  # a reader that follows links one by one does not count them
        assert read_file(tmp_path, "answer.txt") == b""
        return
    with pytest.raises(NoFileError):
        read_file(tmp_path, "answer.txt")
    with pytest.raises(REFUSED):
        read_text(tmp_path, "answer.txt")
    with pytest.raises(REFUSED):
        edit_text(tmp_path, "answer.txt", "a", "b")
    if trap in TRAPS:
        with pytest.raises(REFUSED):
            write_text(tmp_path, "answer.txt", "mine")
    with suppress(NoFileError):
        find_file(tmp_path, "**/answer.*")


def test_a_trap_in_the_place_of_a_report_is_a_warning(tmp_path: Path, trap: str) -> None:
    """The attempt ends as its program did."""
    LARGE[trap](tmp_path / "report.json")
    report = read_report_file(tmp_path / "report.json")
    assert report.failure is None
    assert len(report.warnings) == 1


def test_a_trap_in_the_place_of_a_prompt_is_an_error_that_names_it(
    tmp_path: Path, trap: str
) -> None:
    """A resumed run reads files that agents could write."""
    LARGE[trap](tmp_path / "prompt.md")
    with pytest.raises(AgentError, match=r"prompt\.md"):
        ensure_prompt(tmp_path / "prompt.md", "Repair it.")

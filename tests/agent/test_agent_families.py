import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import attrs
import pytest
import trio
import trio.lowlevel
from agent_processes import (
    Rig,
    attempt,
    carriers,
    in_rig,
    is_alive,
    make_pipe,
    open_rig,
    read_pipe,
    run,
    run_when_ready,
    scripted,
    settings,
    wait_gone,
    work_once,
)
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from trioeval.agent.attempts import AttemptLog, open_log
from trioeval.agent.case_folder import CaseFiles
from trioeval.agent.journal import ProcessIdentity
from trioeval.agent.loop import run_until_done
from trioeval.agent.processes import (
    ProcessFamily,
    ProcessTree,
    end_survivors,
    open_family,
    this_host,
)
from trioeval.agent.restarts import AttemptEnd, RestartPolicy
from trioeval.providers.programs import supervisor
from trioeval.providers.programs.members import TreeIdentity, find_survivors, read_member
from trioeval.providers.programs.processes import Tree

PATIENT = 40.0
"""The grace period in seconds; programs that end on request do not need it."""
"""The number of seconds after which everything has ended twice over.

All stubborn processes have their grace period at the same time.
"""


HERE = Path(__file__).parent


@pytest.fixture
def mark() -> str:
    """The variable in the environment of all processes of a test."""
    return uuid.uuid4().hex


def test_ag_07_a_child_that_exceeds_its_time_is_ended(tmp_path: Path, mark: str) -> None:
    """The case is done and reports their number; its process group does not exist any more."""
    line = scripted("leave:session", "done")

    async def work(rig: Rig) -> None:
        end = await run_until_done(rig.agent, rig.terms(child_timeout=0.05))
        assert (end.ending, end.children_ended, len(end.attempts)) == ("done", 1, 1)
        assert rig.family.alive() == []
        assert rig.ledger.records[-1] == ("gone", 0)

    in_rig(settings(line, mark=mark), tmp_path, work)
    assert carriers(mark) == []


KINDS = ["child", "session", "orphan", "session orphan", "stubborn session orphan"]
HIDDEN_KINDS = ["bare session orphan", "bare stubborn session orphan"]


@pytest.mark.parametrize("kind", HIDDEN_KINDS)
def test_a_child_without_session_environment_and_parent_ends_with_its_case(
    tmp_path: Path, kind: str
) -> None:
    """A double fork with an empty environment is a child like any other, also across restarts."""
    line = scripted("say:hi", f"0?leave:{kind}", "1?done")

    async def work(rig: Rig) -> None:
        assert (await rig.agent(attempt(0))).output == "hi"
        (left,) = rig.family.alive()
        assert is_alive(int(left))
        end = await run_until_done(
            rig.agent, rig.terms(child_timeout=0.05, earlier=[AttemptEnd(output="hi")])
        )
        assert (end.ending, end.children_ended, len(end.attempts)) == ("done", 1, 2)
        assert not is_alive(int(left))
        assert rig.ledger.records[-1] == ("gone", 0)

    in_rig(settings(line), tmp_path, work)


def test_a_hidden_child_is_awaited_until_it_ends(tmp_path: Path) -> None:
    """The case ends when the child does; the child is not killed."""
    up, go = make_pipe(tmp_path / "up"), make_pipe(tmp_path / "go")
    hidden = f"echo >{up}; read -r _ <{go}; echo late >{tmp_path}/late"
    line = f"""sh -c "env -i setsid sh -c '{hidden}' & touch DONE" """

    async def work(rig: Rig) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_pipe, up)

            async def let_go() -> None:
                while not rig.family.alive():
                    await trio.testing.wait_all_tasks_blocked()
                await trio.to_thread.run_sync(go.write_text, "on", abandon_on_cancel=True)

            nursery.start_soon(let_go)
            end = await run_until_done(rig.agent, rig.terms())
        assert (end.ending, end.children_ended) == ("done", 0)
        assert (tmp_path / "late").read_text() == "late\n"

    in_rig(settings(line), tmp_path, work)


def test_an_attempt_reports_that_hidden_children_cannot_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This applies to systems other than Linux; everything else works as there."""
    assert "warnings" not in work_once("true", tmp_path).metadata
    monkeypatch.setattr("trioeval.providers.programs.processes.sys.platform", "darwin")
    end = work_once("true", tmp_path, number=1)
    (warning,) = end.metadata["warnings"]
    assert "cannot be found on this system" in warning


def test_a_python_without_ctypes_still_starts_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It adopts no processes then, and the attempt reports this."""
    path = "trioeval.providers.programs.processes._SUPERVISOR"
    lacking = tmp_path / "lacking.py"
    lacking.write_text(
        "import runpy, sys\nsys.modules['ctypes'] = None\n"
        f"runpy.run_path({supervisor.__file__!r}, run_name='__main__')\n"
    )
    monkeypatch.setattr(path, lacking)
    end = work_once("true", tmp_path)
    assert (end.failure, end.exit_code) == (None, 0)
    (warning,) = end.metadata["warnings"]
    assert "cannot be found on this system" in warning


@pytest.mark.parametrize(
    ("program", "kind", "code", "message"),
    [
        ("./nothing", "not_found", None, 'program "{folder}/nothing" not found'),
        (
            "nothing-of-that-name",
            "not_found",
            None,
            'program "nothing-of-that-name" not found in PATH: install it, or correct its name',
        ),
        ("./", "permission", None, 'program "{folder}" cannot be started: Permission denied'),
        ("./kill.sh", "killed", -9, "SIGKILL"),
    ],
)
def test_a_supervised_program_fails_like_an_unsupervised_one(
    tmp_path: Path, program: str, kind: str, code: int | None, message: str
) -> None:
    """The start error and the signal are those of the program; messages contain the rendered name."""
    script = tmp_path / "kill.sh"
    script.write_text("#!/bin/sh\nkill -9 $$\n")
    script.chmod(0o755)
    end = work_once("{{prog}}", tmp_path, directory=tmp_path, variables={"prog": program})
    assert end.failure is not None
    assert (end.failure.kind, end.exit_code) == (kind, code)
    assert message.format(folder=tmp_path) in end.failure.message


@pytest.mark.parametrize("kind", KINDS)
def test_processes_of_an_attempt_live_until_the_case_is_over(
    tmp_path: Path, mark: str, kind: str
) -> None:
    """They survive restarts in any session, and their open pipes do not delay the end of the attempt."""
    line = scripted("say:hi", f"0?leave:{kind}")

    async def work(rig: Rig) -> None:
        assert (await rig.agent(attempt(0))).output == "hi"
        (left,) = rig.family.alive()
        assert carriers(mark) == [int(left)]
        assert (await rig.agent(attempt(1))).output == "hi"
        assert rig.family.alive() == [left]
        assert rig.ledger.records[-1] == ("gone", 1)
        with trio.move_on_after(0.02) as short:
            await rig.family.wait()
        assert short.cancelled_caught
        await rig.family.end()
        assert carriers(mark) == []
        assert rig.family.alive() == []
        assert rig.ledger.records[-1] == ("gone", 0)
        await rig.family.wait()

    in_rig(settings(line, mark=mark), tmp_path, work)


def test_children_ended_with_their_attempt_are_counted(tmp_path: Path) -> None:
    """The program itself is not counted; those of earlier executions are."""
    up = tmp_path / "up"
    line = scripted("leave:session", "leave:child", f"open:{up}", "hang")

    async def main() -> None:
        async with open_rig(settings(line), tmp_path, limit=0.05) as rig:
            earlier = [AttemptEnd(output="", children_ended=3)]
            policy = RestartPolicy(max_attempts=2, delay=0)
            end = await run_until_done(rig.agent, rig.terms(policy=policy, earlier=earlier))
        assert [one.children_ended for one in end.attempts] == [3, 2]
        assert end.children_ended == 5

    run_when_ready(up, main)


def test_remaining_processes_are_ended_with_the_family(tmp_path: Path, mark: str) -> None:
    """They are ended also if the program ended by itself; the error is unchanged."""

    async def work(rig: Rig) -> None:
        await rig.agent(attempt())
        assert carriers(mark) != []
        raise KeyError("mine")

    found = settings(scripted("leave:session", "leave:child"), mark=mark)
    with pytest.raises(KeyError, match="mine"):
        in_rig(found, tmp_path, work)
    assert carriers(mark) == []


def test_children_are_awaited_until_they_end(tmp_path: Path) -> None:
    """Their output is in the log of their attempt, up to its limit."""
    late = tmp_path / "late"
    make_pipe(late)
    found = settings(scripted("say:now", f"echo:{late}={'x' * 99}"), maxOutputBytes=20)

    async def work(rig: Rig) -> None:
        end = await rig.agent(attempt())
        assert (end.output, "warnings" in end.metadata) == ("now", False)
        assert len(rig.family.alive()) == 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.family.wait)
            nursery.start_soon(read_pipe, late)
        assert rig.family.alive() == []
        assert rig.ledger.records[-1] == ("gone", 0)

    in_rig(found, tmp_path, work)
    log = CaseFiles(tmp_path).stdout(0).read_text()
    assert log == f"now\n{'x' * 16}\n[cut after 20 bytes (maxOutputBytes)]\n"


def test_children_of_children_count_as_one_child(tmp_path: Path, mark: str) -> None:
    """Three processes are one child."""
    up = make_pipe(tmp_path / "up")
    line = f"sh -c 'sh -c \"sleep 1000 & sleep 1000 & echo >{up}; wait\" & read -r _ <{up}'"

    async def work(rig: Rig) -> None:
        end = await run_until_done(rig.agent, rig.terms())
        assert (end.ending, len(end.attempts)) == ("failed", 3)
        assert end.children_ended == 3

    in_rig(settings(line, mark=mark), tmp_path, work)
    assert carriers(mark) == []


async def cancelled_when(ready: Path, work: Callable[[], Awaitable[object]]) -> float:
    """Run a function, cancel it when the pipe is opened, and return how long it took to end after that."""
    cancelled_at = 0.0

    async def cancel(scope: trio.CancelScope) -> None:
        nonlocal cancelled_at
        await read_pipe(ready)
        cancelled_at = trio.current_time()
        scope.cancel("the test wants it")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel, nursery.cancel_scope)
        await work()
    return trio.current_time() - cancelled_at


@pytest.mark.slow
def test_ag_08_a_cancelled_attempt_soon_leaves_no_process(tmp_path: Path, mark: str) -> None:
    """The program and an earlier child both ignore the request to end; their output is in the logs."""
    grace = 4.0  # longer than a machine stalls
    ready = make_pipe(tmp_path / "ready")
    line = scripted(
        "0?leave:stubborn session", "say:first", "0?exit:1", "ignore", f"open:{ready}", "hang"
    )

    async def work(rig: Rig) -> None:
        terms = rig.terms()
        took = await cancelled_when(ready, lambda: run_until_done(rig.agent, terms))
        assert grace <= took < 2 * grace
        assert carriers(mark) == []
        assert sorted(n for word, n in rig.ledger.records if word == "gone") == [0, 1]

    in_rig(settings(line, mark=mark), tmp_path, work, grace=grace)
    assert CaseFiles(tmp_path).stdout(1).read_text() == "first\n"


def test_ag_08_cancelling_the_wait_for_children_leaves_no_process(
    tmp_path: Path, mark: str
) -> None:
    """They are asked to terminate first."""
    ready = make_pipe(tmp_path / "ready")
    found = settings(scripted("leave:session", "leave:orphan", "done"), mark=mark)

    async def work(rig: Rig) -> None:
        async def wait_and_tell() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(rig.family.wait)
                await trio.testing.wait_all_tasks_blocked()
                await trio.to_thread.run_sync(ready.write_text, "up", abandon_on_cancel=True)

        async def all_of_it() -> None:
            await rig.agent(attempt())
            assert len(rig.family.alive()) == 2
            try:
                await wait_and_tell()
            finally:
                with trio.move_on_after(60, shield=True):
                    await rig.family.end()

        assert await cancelled_when(ready, all_of_it) < PATIENT
        assert carriers(mark) == []

    in_rig(found, tmp_path, work, grace=PATIENT)


def test_final_output_is_logged_after_cancellation(tmp_path: Path, mark: str) -> None:
    """The output of a program that is asked to end matters most."""
    ready = make_pipe(tmp_path / "ready")
    line = (
        f"sh -c 'trap \"echo bye; exit\" TERM; sleep 1000 & echo >{ready}; while :; do wait; done'"
    )

    async def main() -> None:
        async def all_of_it() -> None:
            async with open_rig(settings(line, mark=mark), tmp_path, grace=4.0) as rig:
                await rig.agent(attempt())

        await cancelled_when(ready, all_of_it)

    run(main)
    assert carriers(mark) == []
    assert CaseFiles(tmp_path).stdout(0).read_text() == "bye\n"


def trees_of(family: ProcessFamily) -> list[Tree]:
    """Return the process trees of a family."""
    return [one.tree for one in family.relatives if isinstance(one, ProcessTree)]


def test_output_written_before_the_end_is_complete_even_if_read_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit of a program may be known before its output."""
    take_all = AttemptLog._take_all

    async def work(rig: Rig) -> None:
        async def take_late(log: AttemptLog) -> None:
            await trees_of(rig.family)[0].wait()
            await trio.testing.wait_all_tasks_blocked()
            await take_all(log)

        monkeypatch.setattr(AttemptLog, "_take_all", take_late)
        assert (await rig.agent(attempt())).output == "x" * 50_000

    in_rig(settings(scripted("spam:50000", "leave:child")), tmp_path, work)


def test_draining_a_pipe_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes may write to the pipe for ever; after the last exit it is read only briefly."""
    monkeypatch.setattr("trioeval.agent.attempts.DRAIN_SECONDS", 0.01)

    async def main() -> None:
        here, there = os.pipe()
        log = open_log(tmp_path / "log", 10**6)
        async with trio.open_nursery() as nursery:
            log.pipe = trio.lowlevel.FdStream(here)
            nursery.start_soon(log.pump)
            await log.catch_up()
            os.write(there, b"x" * 40_000)
            await log.catch_up()
            assert log.kept == 40_000
            await log.finish()  # another process still has the pipe open
        os.close(there)
        await log.catch_up()

    run(main)


@pytest.mark.slow
def test_attempts_cancelled_at_any_instant_leave_no_process(tmp_path: Path, mark: str) -> None:
    """They are cancelled before, during and after the start; the ledger records the end of each process."""

    async def work(rig: Rig) -> None:
        async def one(number: int) -> None:
            with trio.move_on_after(number * 0.003):
                await rig.agent(attempt(number))

        for number in range(12):
            await one(number)
            started = {n for word, n in rig.ledger.records if word == "started"}
            assert started <= {n for word, n in rig.ledger.records if word == "gone"}
        assert rig.family.alive() == []

    line = "sh -c 'setsid sleep 1000 & sleep 1000'"
    in_rig(settings(line, mark=mark), tmp_path, work)
    assert carriers(mark) == []


HIDING = "echo \\$\\$ >{pid}; echo >{up}; exec /bin/sleep 60"
HIDDEN = f"sh -c 'setsid env -i /bin/sh -c \"{HIDING}\" & read -r _ <{{up}}'"


@pytest.mark.parametrize("is_hidden", [True, False])
def test_a_pipe_that_stays_open_does_not_delay_the_case(
    tmp_path: Path,
    mark: str,
    monkeypatch: pytest.MonkeyPatch,
    is_hidden: bool,  # noqa: FBT001
) -> None:
    """The process that has it open cannot be found, on a system without supervisors, or cannot be ended."""
    if is_hidden:
        monkeypatch.setattr("trioeval.providers.programs.processes.sys.platform", "darwin")
    monkeypatch.setattr("trioeval.agent.attempts.DRAIN_SECONDS", 0.01)
    left, up = tmp_path / "pid", make_pipe(tmp_path / "up")

    async def end_nothing(_family: ProcessFamily) -> None:
        await trio.lowlevel.checkpoint()

    line = HIDDEN.format(pid=left, up=up) if is_hidden else scripted("leave:session")

    async def work(rig: Rig) -> None:
        await rig.agent(attempt())
        assert bool(rig.family.alive()) is not is_hidden
        if not is_hidden:
            monkeypatch.setattr(rig.family.__class__, "end", end_nothing)

    async def main() -> None:
        began = trio.current_time()
        async with open_rig(settings(line, mark=mark), tmp_path) as rig:
            await work(rig)
            trees = trees_of(rig.family)
        assert trio.current_time() - began < 30
        os.kill(int(left.read_text()) if is_hidden else carriers(mark)[0], signal.SIGKILL)
        for tree in trees:
            assert await tree.process.wait() == 0  # its supervisor has nothing left to adopt

    run(main)


def test_without_a_process_table_the_group_is_ended(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group has the number of its first process; processes that stayed in it are ended."""
    monkeypatch.setattr(
        "trioeval.providers.programs.processes.find_members", lambda *_arguments: None
    )

    async def work(rig: Rig) -> None:
        await rig.agent(attempt(1))
        assert (rig.family.alive(), rig.ledger.records[-1]) == ([], ("gone", 1))
        await rig.agent(attempt(0))
        (child,) = carriers(mark)
        assert rig.family.alive() == [str(os.getpgid(child))]
        with trio.move_on_after(0.01) as short:
            await rig.family.wait()
        assert short.cancelled_caught
        await rig.family.end()
        assert wait_gone(child, 10)  # the ending code cannot determine when it has ended

    in_rig(settings(scripted("0?leave:child"), mark=mark), tmp_path, work)


@given(
    st.lists(st.binary(max_size=30), max_size=6),
    st.integers(1, 60),
    st.binary(max_size=10),
)
@hypothesis_settings(max_examples=hypothesis_settings().max_examples // 3)
def test_a_log_keeps_its_beginning_when_it_is_truncated(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], limit: int, before: bytes
) -> None:
    """This holds for any split of the bytes; a note marks the cut."""
    path = tmp_path_factory.getbasetemp() / "a.log"
    path.write_bytes(before)
    log = open_log(path, limit)
    for part in parts:
        log.feed(part)
    log.close()
    everything = b"".join(parts)
    note = b"" if len(everything) <= limit else b"\n[cut after %d bytes (maxOutputBytes)]\n" % limit
    assert path.read_bytes() == before + everything[:limit] + note
    assert (log.start, log.kept, log.is_cut) == (
        len(before),
        min(limit, len(everything)),
        bool(note),
    )


def test_a_log_on_a_full_disk_does_not_stop_the_program(tmp_path: Path) -> None:
    """The attempt does not fail because of it."""
    log = open_log(tmp_path / "log", 100)
    os.close(log._descriptor)
    log._descriptor = os.open("/dev/full", os.O_WRONLY)
    log.feed(b"lost")
    log.feed(b" words")
    assert log.fault == f"{tmp_path}/log cannot be written: No space left on device"
    assert (log.kept, log.tail.text) == (0, "lost words")
    log.close()


HOST = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], str(Path(sys.argv[1]).parent / "providers")]
import attrs
from agent_processes import Ledger, attempt, in_rig, settings

class NotifyingLedger(Ledger):
    def started(self, running):
        if running.process.pid or running.number:
            print(repr(attrs.astuple(running.process)), flush=True)

async def work(rig):
    agent = attrs.evolve(rig.agent, journal=NotifyingLedger())
    await agent(attempt(0))
    await agent(attempt(1))

line, folder, mark = sys.argv[2:]
in_rig(settings(line, mark=mark), Path(folder), work)
"""


def identity_of(line: str) -> ProcessIdentity:
    pid, started, host, mark = eval(line)  # noqa: S307 - a tuple that our own child has written
    return ProcessIdentity(pid=pid, started=started, host=host, mark=mark)


def stopped_supervisors(*attempts: ProcessIdentity) -> Sequence[int]:
    """Stop the supervisors of attempts: they end all processes when their program is killed."""
    pids = [pid for one in attempts for pid in carriers(f"TRIOEVAL_SUPERVISES={one.mark}")]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    return pids


def go_on(supervisors: Sequence[int]) -> None:
    """Continue the supervisors, so that they see that no process is left."""
    for pid in supervisors:
        os.kill(pid, signal.SIGCONT)
    assert all(wait_gone(pid, 10) for pid in supervisors)


@pytest.mark.slow
def test_ag_78_survivors_of_a_killed_program_are_ended(tmp_path: Path, mark: str) -> None:
    """They are the processes of earlier attempts and of the interrupted one, and no others."""
    up = make_pipe(tmp_path / "up")
    line = scripted(
        "0?leave:session orphan", "0?exit:1", "leave:stubborn", f"open:{up}", "ignore", "hang"
    )
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, HERE, line, tmp_path, mark], stdout=subprocess.PIPE, text=True
    )
    with host:
        assert host.stdout is not None
        first, before, second = (identity_of(host.stdout.readline()) for _ in range(3))
        assert up.read_text() == "here"
        supervisors = stopped_supervisors(first, second)
        host.kill()
    assert len(carriers(mark)) == 3
    # The record written before its start is sufficient to identify it.
    assert (before.pid, before.mark) == (0, second.mark)

    async def main() -> None:
        other = attrs.evolve(second, host="another")
        odd = attrs.evolve(second, pid=0, started=0, mark="")
        assert await end_survivors([other, odd], 0.1) == 0
        assert len(carriers(mark)) == 3
        assert await end_survivors([first], 0.1) == 1
        assert len(carriers(mark)) == 2
        assert await end_survivors([first, before], 0.1) == 2
        assert await end_survivors([first, second], 0.1) == 0

    run(main)
    assert carriers(mark) == []
    go_on(supervisors)


@pytest.mark.slow
def test_hidden_survivors_of_a_killed_program_are_ended(tmp_path: Path, mark: str) -> None:
    """A surviving supervisor identifies the processes; it is not one of them, and ends by itself."""
    up = make_pipe(tmp_path / "up")
    line = scripted("0?leave:bare session orphan", "0?exit:1", f"open:{up}", "hang")
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, HERE, line, tmp_path, mark], stdout=subprocess.PIPE, text=True
    )
    with host:
        assert host.stdout is not None
        first, _, second = (identity_of(host.stdout.readline()) for _ in range(3))
        assert up.read_text() == "here"
        supervisors = stopped_supervisors(first, second)
        host.kill()
    assert len(supervisors) == 2

    async def main() -> None:
        assert await end_survivors([first], 1) == 1
        assert await end_survivors([second], 1) == 1
        assert await end_survivors([first, second], 1) == 0

    run(main)
    go_on(supervisors)


@pytest.mark.parametrize("mistaken", ["started", "host", "neither"])
def test_ag_78_a_process_with_a_reused_number_is_left_alone(mistaken: str) -> None:
    """A process is identified by its number and its start, within one boot of the machine."""
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as stranger:
        member = read_member(stranger.pid)
        assert member is not None
        identity = ProcessIdentity(
            pid=stranger.pid, started=member.started, host=this_host(), mark="0123456789abcdef" * 2
        )
        if mistaken == "started":
            identity = attrs.evolve(identity, started=member.started - 1)
        elif mistaken == "host":
            identity = attrs.evolve(identity, host=f"{this_host()}x")
        ended = run(lambda: end_survivors([identity], 5))
        if mistaken == "neither":
            assert (ended, stranger.wait()) == (1, -signal.SIGTERM)
        else:
            assert (ended, stranger.poll()) == (0, None)
            stranger.kill()
    assert wait_gone(stranger.pid, 10)


def test_survivors_are_found_by_mark_start_session_and_parent(tmp_path: Path) -> None:
    """A session counts only if one of the processes is in it: its number may be reused."""
    processes = [
        (10, "S", 1, 10, 100, "MARK=x\0"),  # the first process of one tree
        (11, "S", 10, 10, 101, ""),
        (12, "S", 1, 12, 102, "MARK=w,x\0"),  # its parent has ended
        (13, "S", 12, 13, 103, ""),
        (20, "S", 1, 20, 900, ""),  # another process, with the number of another tree
        (21, "S", 20, 20, 901, ""),
        (31, "S", 1, 30, 300, "MARK=z\0"),  # the first process of a third one has ended
        (32, "S", 1, 30, 301, ""),
        (40, "S", 1, 40, 400, ""),  # the first process of a fourth one has lost its mark
        (41, "Z", 40, 40, 401, ""),
        (os.getpid(), "S", 40, 40, 402, "MARK=x\0"),
        (50, "S", 1, 50, 500, "MARK=v\0"),
    ]
    for pid, state, parent, session, started, environ in processes:
        (tmp_path / str(pid)).mkdir()
        stat = f"{pid} (a) {state} {parent} {pid} {session} {'0 ' * 15}{started} 0 0"
        (tmp_path / str(pid) / "stat").write_text(stat)
        (tmp_path / str(pid) / "environ").write_text(environ)
    roots = [
        TreeIdentity(10, b"x", 100),
        TreeIdentity(20, b"y", 200),
        TreeIdentity(30, b"z", 299),
        TreeIdentity(40, b"q", 400),
    ]
    found = find_survivors(roots, (), tmp_path)
    assert found is not None
    assert sorted(member.pid for member in found) == [10, 11, 12, 13, 31, 32, 40]
    assert find_survivors([TreeIdentity(0, b"v")], (), tmp_path) == {read_member(50, tmp_path)}
    assert find_survivors([], (), tmp_path) == set()
    assert find_survivors(roots, (), tmp_path / "nothing") is None


def test_a_container_is_a_separate_host(tmp_path: Path) -> None:
    """Its process numbers are different; without a process table its id is the name of the machine."""
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text("b-1\n")
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to("pid:[4026531836]")
    assert this_host(tmp_path) == "b-1 pid:[4026531836]"
    assert this_host(tmp_path / "nothing") == os.uname().nodename
    assert this_host() == this_host()


def test_an_exception_of_the_block_is_not_an_exception_group() -> None:
    """The exception is raised without a group, and an empty family costs nothing."""

    async def main() -> None:
        async with open_family() as family:
            assert family.alive() == []
            await family.wait()
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        run(main)

"""Runs of agents as a user sees them: killed, interrupted, resumed, and in parallel."""

import os
import sqlite3
import sys
import time
from pathlib import Path

import pytest
from agent_suites import Bench, agent_of, finish, last_line, outcome_of, wait_until
from program_runs import is_alive, wait_gone

from trioeval.agent.bus.reading import read_bus
from trioeval.agent.bus.segments import segment_numbers
from trioeval.agent.restarts import CONTINUATION

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="sees in /proc what runs"),
]


def stored(bench: Bench, table: str) -> int:
    """Return the number of rows of a table of the database."""
    database = bench.folder / ".trioeval" / "results.db"
    if not database.exists():
        return 0
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        found: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
    connection.close()
    return found


def test_ag_77_a_killed_run_continues_the_attempts_that_were_cut_off(tmp_path: Path) -> None:
    """They continue in their workspaces once all their processes have ended; no other work is repeated."""
    bench = Bench(tmp_path)
    bench.write(
        {
            "quick": "touch DONE",
            "calc": """
                if [ $TRIOEVAL_ATTEMPT = 0 ]; then exit 3; fi
                if [ -e mine ]; then
                    if alive $(cat $suite/child); then log survivor; fi
                    cp $TRIOEVAL_PROMPT $suite/prompt
                    touch DONE; echo done at last; exit
                fi
                touch mine; leave child; log held; hold
            """,
            "marked": "touch DONE; log held; hold",
        },
        {"calc": {"dependsOn": ["quick"]}},
    )
    with bench.run("s.json") as program:
        bench.wait_logged("calc 1 held", "marked 0 held")
        wait_until(lambda: stored(bench, "result") == 1, bench)
        child = bench.pid("child")
        program.kill()
    assert stored(bench, "running_attempt") == 2
    with bench.program("resume", "-o", "rows.jsonl") as program:
        finish(program, 0)
    assert "calc 1 survivor" not in bench.log
    assert sorted(bench.started()) == ["calc 0", "calc 1", "calc 1", "marked 0", "quick 0"]
    assert (tmp_path / "prompt").read_text() == f"{CONTINUATION}\n\nDo it."
    assert bench.outcomes == {"quick": "pass", "calc": "pass", "marked": "pass"}
    calc, marked = agent_of(bench.rows["calc"]), agent_of(bench.rows["marked"])
    assert [one["ok"] for one in calc["attempts"]] == [False, True]
    assert calc["attempts"][1]["previousRunId"] == calc["attempts"][0]["runId"]
    assert bench.rows["calc"]["response"]["output"].strip() == "done at last"
    assert marked["message"] == "done before the first attempt"
    assert stored(bench, "running_attempt") == 0
    assert not is_alive(child)
    for case, attempts in (("calc", 3), ("marked", 1)):
        assert [*ends_of(bench.case(case) / "bus").values()] == [1] * attempts


def ends_of(bus: Path) -> dict[str, int]:
    """Return, for each attempt that started on a bus, the number of later ends."""
    ends: dict[str, int] = {}
    for message in read_bus(bus).messages:
        run = message.draft.run_id or ""
        if message.draft.type == "RUN_START":
            ends[run] = 0
        elif message.draft.type in ("RUN_STOP", "RUN_CRASH"):
            ends[run] += 1
    return ends


def test_a_waiting_case_that_is_marked_as_done_ends(tmp_path: Path) -> None:
    """Its folder is unchanged, and its agent is never called."""
    bench = Bench(tmp_path)
    bench.write({"first": "hold; touch DONE", "late": "exit 3"}, {"late": {"dependsOn": ["first"]}})
    with bench.run("s.json") as program:
        wait_until(lambda: late_has_logged(bench, "blocked by first"), bench)
        workspace = bench.case("late") / "workspace"
        workspace.mkdir()
        (workspace / "DONE").touch()
        wait_until(lambda: late_has_logged(bench, "done before the first attempt"), bench)
        bench.release("first")
        finish(program, 0)
    assert bench.outcomes == {"first": "pass", "late": "pass"}
    assert agent_of(bench.rows["late"])["message"] == "done before the first attempt"
    assert (workspace / "DONE").is_file()
    assert bench.started() == ["first 0"]


def late_has_logged(bench: Bench, body: str) -> bool:
    """True if the case `late` has written an entry; its run may not have a folder yet."""
    if not any((bench.folder / ".trioeval" / "agents").glob("*")):
        return False
    messages = read_bus(bench.case("late") / "bus").messages
    return any(one.draft.body == body for one in messages)


def test_buses_rotate_as_configured(tmp_path: Path) -> None:
    """No message is lost; with a number of files, the oldest are removed."""
    for name, agents, is_whole in (
        ("whole", {"busRotateBytes": 300}, True),
        ("cut", {"busRotateBytes": 300, "busKeepSegments": 1}, False),
    ):
        (tmp_path / name).mkdir()
        bench = Bench(tmp_path / name)
        bench.write({"case": "[ $TRIOEVAL_ATTEMPT -lt 3 ] || touch DONE"}, top={"agents": agents})
        with bench.run("s.json") as program:
            finish(program, 0)
        bus = bench.case("case") / "bus"
        assert (len(segment_numbers(bus)) > 1) is is_whole
        if is_whole:
            assert [*ends_of(bus).values()] == [1] * 4


def test_the_queue_is_controlled_from_the_command_line(tmp_path: Path) -> None:
    """A new limit applies at once; a cancelled case is not a success, and runs when it is retried."""
    bench = Bench(tmp_path)
    held = "log held; hold; touch DONE"
    top = {"agents": {"maxConcurrentRootTasks": 1}}
    bench.write({"a": held, "b": held, "c": held}, top=top)
    with bench.run("s.json") as program:
        bench.wait_logged("a 0 held")
        wait_until(lambda: stored(bench, "entry WHERE state = 'queued'") == 2, bench)
        wait_until((bench.case("c") / "case.json").exists, bench)
        for words in ("agent", "limit", "2"), ("agent", "cancel", "3"):
            with bench.program(*words) as other:
                finish(other, 0)
        bench.wait_logged("b 0 held")
        with bench.program("agent", "cancel", "1") as other:
            assert "already running" in finish(other, 2)
        bench.release("a")
        bench.release("b")
        finish(program, 100)
    assert bench.outcomes == {"a": "pass", "b": "pass", "c": "failed"}
    assert "cancelled while queued" in bench.rows["c"]["error"]
    assert sorted(bench.started()) == ["a 0", "b 0"]
    with bench.run("s.json", "--retry", "errors") as program:
        bench.wait_logged("c 0 held")
        bench.release("c")
        finish(program, 0)
    assert bench.outcomes == {"a": "pass", "b": "pass", "c": "pass"}


SUBMIT = '"$TRIOEVAL_PYTHON" -m trioeval agent submit'
WAIT = '"$TRIOEVAL_PYTHON" -m trioeval agent wait'


def test_ag_27_a_program_that_waits_for_its_child_run_holds_no_slot(tmp_path: Path) -> None:
    """With one slot, parent, child and grandchild all end, and only one of them works at a time."""
    bench = Bench(tmp_path)
    grandchild = "echo grandchild >>$suite/order"
    child = f"{SUBMIT} sh -c '{grandchild}'; {WAIT} >/dev/null; echo child >>$suite/order; exit 3"
    (tmp_path / "child.sh").write_text(f"suite=$(dirname $0)\nexport suite\n{child}\n")
    bench.write(
        {
            "parent": f"""
                number=$({SUBMIT} sh $suite/child.sh)
                {WAIT} $number >$suite/said; echo $? >>$suite/said
                echo parent >>$suite/order; touch DONE
            """,
            "other": "touch DONE",
        },
        top={"agents": {"maxConcurrentRuns": 1}},
    )
    with bench.run("s.json") as program:
        finish(program, 0)
    assert (tmp_path / "order").read_text().split() == ["grandchild", "child", "parent"]
    assert (tmp_path / "said").read_text().split() == ["1", "3", "100"]
    assert bench.outcomes == {"parent": "pass", "other": "pass"}
    assert agent_of(bench.rows["parent"])["childrenEnded"] == 0


def test_a_child_run_takes_a_slot_like_an_attempt(tmp_path: Path) -> None:
    """With two slots, a later case starts when the child has ended, and not before."""
    bench = Bench(tmp_path)
    (tmp_path / "child.sh").write_text(
        "echo >$1/begun; read -r _ <$1/child.go; echo child ends >>$1/log\n"
    )
    os.mkfifo(tmp_path / "child.go")
    bench.write(
        {
            "first": f"""
                {SUBMIT} -- sh $suite/child.sh $suite
                until [ -e $suite/begun ]; do sleep 0.01; done
                log works; hold; touch DONE
            """,
            "second": "touch DONE",
            "third": "touch DONE",
        },
        {"third": {"dependsOn": "second"}},
        top={"agents": {"maxConcurrentRuns": 2}},
    )
    with bench.run("s.json") as program:
        bench.wait_logged("first 0 works")
        bench.release("child")
        bench.wait_logged("child ends")
        bench.release("first")
        finish(program, 0)
    log = bench.log
    assert bench.outcomes == {"first": "pass", "second": "pass", "third": "pass"}
    # The child queues behind earlier cases and ahead of later ones.
    begun = log.index("first 0 works")
    assert not [line for line in log[begun : log.index("child ends")] if line.endswith("begins")]


def test_deleting_a_killed_run_ends_its_agents(tmp_path: Path) -> None:
    """Their processes are ended before the folder is removed, by the supervisor or by the command."""
    bench = Bench(tmp_path)
    bench.write({"first": "leave child; log held; hold"})
    with bench.run("s.json") as program:
        bench.wait_logged("first 0 held")
        child = bench.pid("child")
        program.kill()
    with bench.program("runs", "delete", "latest") as program:
        output = finish(program, 0)
    assert not is_alive(child)
    assert "1 folder of a case" in output
    assert [*(tmp_path / ".trioeval" / "agents").iterdir()] == []
    assert stored(bench, "running_attempt") == 0


def test_the_first_interrupt_waits_for_attempts_and_the_second_ends_them(tmp_path: Path) -> None:
    """One Ctrl-C lets the running attempt end, two end it; each time the run continues with the next."""
    bench = Bench(tmp_path)
    bench.write(
        {
            "first": """
                case $TRIOEVAL_ATTEMPT in
                    0) log held; hold; echo soon; exit;;
                    1) if [ ! -e child ]; then
                           echo working; leave child; cp $suite/child .; log held; hold
                       fi;;
                esac
                touch DONE
            """,
            "second": "touch DONE",
        },
        {"second": {"dependsOn": ["first"]}},
    )
    with bench.run("s.json") as program:
        bench.wait_logged("first 0 held")
        program.send_signal(2)
        assert program.stdout is not None
        assert "stopping" in program.stdout.readline()
        bench.release("first")
        output = finish(program, 130)
    assert "exit 130: interrupted by SIGINT" in last_line(output)
    assert bench.started() == ["first 0"]
    assert bench.outcomes == {"first": "interrupted", "second": "not_run"}
    assert agent_of(bench.rows["first"])["message"] == "interrupted after 1 attempt"
    with bench.program("resume", "-o", "rows.jsonl") as program:
        bench.wait_logged("first 1 held")
        child = bench.pid("child")
        program.send_signal(2)
        assert program.stdout is not None
        while "stopping" not in program.stdout.readline():
            assert program.poll() is None
        started_at = time.monotonic()
        program.send_signal(2)
        assert wait_gone(child, 30)
        finish(program, 130)
        assert time.monotonic() - started_at < 30  # waiting for the attempt would never end
    assert bench.started() == ["first 0", "first 1"]
    logs = bench.case("first") / "logs"
    assert (logs / "attempt-001.stdout").read_text() == "working\n"
    with bench.program("resume", "-o", "rows.jsonl") as program:
        finish(program, 0)
    assert bench.started() == ["first 0", "first 1", "first 1", "second 0"]
    assert bench.outcomes == {"first": "pass", "second": "pass"}
    assert len(agent_of(bench.rows["first"])["attempts"]) == 2
    assert "soon" in (logs / "attempt-000.stdout").read_text()
    assert [*ends_of(bench.case("first") / "bus").values()] == [1, 1, 1]


def test_timeouts_end_process_trees_and_count_only_work(tmp_path: Path) -> None:
    """A delay between attempts and a wait for another case do not count against the time of a row."""
    bench = Bench(tmp_path)
    bench.write(
        {
            "hangs": "leave hung; hold",
            "rests": "[ $TRIOEVAL_ATTEMPT = 0 ] || touch DONE",
            "waits": "touch DONE",
        },
        {"waits": {"dependsOn": ["rests"]}},
        restartDelay=5.5,
        top={"evaluateOptions": {"timeoutMs": 5000}},
    )
    with bench.run("s.json") as program:
        finish(program, 100)
    assert bench.outcomes == {"hangs": "timed_out", "rests": "pass", "waits": "pass"}
    assert not is_alive(bench.pid("hung"))
    (tmp_path / "hung").unlink()
    with bench.program(
        *("resume", "--retry", "timeouts", "--timeout", "0", "--max-time", "5"),
        *("-o", "rows.jsonl"),
    ) as program:
        output = finish(program, 100)
    assert "1 row was not run again and keeps its earlier result" in last_line(output)
    assert not is_alive(bench.pid("hung"))
    assert outcome_of(bench.rows["hangs"]) == "timed_out"  # the earlier row was run again
    assert bench.started().count("hangs 0") == 2


def test_programs_on_one_database_take_turns(tmp_path: Path) -> None:
    """One case runs at a time, in submission order, even if programs are killed, resumed or interrupted."""
    bench = Bench(tmp_path)
    top = {"agents": {"maxConcurrentRootTasks": 1}}
    held = "log held; hold; touch DONE"
    bench.write({"a1": held, "a2": held, "a3": held}, name="a.json", top=top)
    bench.write({"b1": held, "b2": held}, name="b.json", top=top)

    def waiting(count: int) -> None:
        query = "entry WHERE state = 'queued' AND owner IS NOT NULL"
        wait_until(lambda: stored(bench, query) == count, bench)

    with bench.program("a.json", "--no-progress", "--no-table") as first:
        bench.wait_logged("a1 0 held")
        waiting(2)
        with bench.program("b.json", "--no-progress", "--no-table", "-o", "b.jsonl") as second:
            waiting(4)
            bench.release("a1")
            bench.wait_logged("a2 0 held")
            first.kill()
            first.wait()
            bench.wait_logged("b1 0 held")
            runs = tmp_path / ".trioeval" / "agents"
            (killed,) = [one.name for one in runs.iterdir() if (one / "work" / "a1").exists()]
            with bench.program("resume", killed, "-o", "a.jsonl") as again:
                waiting(3)
                bench.release("b1")
                bench.wait_logged("a2 0 held", "a2 0 held")
                second.send_signal(2)
                finish(second, 130)
                bench.release("a2")
                bench.release("a3")
                finish(again, 0)
    order = ["a1", "a2", "b1", "a2", "a3"]
    assert bench.started() == [f"{case} 0" for case in order]
    ends = [line.split()[0] for line in bench.log if line.endswith(" ends")]
    assert ends == ["a1", "b1", "a2", "a3"]
    with bench.program("resume", "latest", "-o", "rows.jsonl") as rest:
        bench.release("b2")
        finish(rest, 0)
    assert bench.outcomes == {"b1": "pass", "b2": "pass"}
    assert stored(bench, "entry") == 0

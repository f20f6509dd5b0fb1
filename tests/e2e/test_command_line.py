"""The command line as a user runs it: real processes, real files, real sockets, real signals."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml
from held_server import held_server
from server_process import fake_provider, stats_of

from trioeval.cli import run_command_line

pytestmark = pytest.mark.slow

ENV = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}


def trioeval_process(
    *arguments: str | Path, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "trioeval", *map(str, arguments)],
        cwd=cwd,
        env={**ENV, **(env or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def trioeval(
    *arguments: str | Path, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command in this process, which saves the start of an interpreter."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with (
        chdir(cwd),
        patch.dict(os.environ, {**ENV, **(env or {})}),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        code = run_command_line([*map(str, arguments)])
    for stream in (out, err):
        stream.seek(0)
    return subprocess.CompletedProcess(arguments, code, out.read(), err.read())


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr.strip().splitlines()[-1]


def write(path: Path, suite: object) -> Path:
    path.write_text(json.dumps(suite))
    return path


def echo_suite(**more: Any) -> dict[str, Any]:
    """Three rows: one passes, one fails, one has no variable."""
    return {
        "providers": ["echo"],
        "prompts": ["say {{word}}"],
        "tests": [
            {"vars": {"word": "hi"}, "assert": [{"type": "contains", "value": "hi"}]},
            {"vars": {"word": "ho"}, "assert": [{"type": "contains", "value": "hi"}]},
            {"vars": {"wrod": "hi"}},
        ],
        "evaluateOptions": {"strictVariables": True},
        **more,
    }


def http_suite(
    base_url: str, rows: int, lane: dict[str, Any] | None = None, **options: Any
) -> dict[str, Any]:
    return {
        "providers": [
            {
                "id": "openai:chat:fake",
                "config": {"apiBaseUrl": base_url},
                "lane": {"maxConcurrency": 4} | (lane or {}),
            }
        ],
        "prompts": ["say {{word}}"],
        "tests": [{"vars": {"word": f"w{n}"}} for n in range(rows)],
        "evaluateOptions": options,
    }


def test_a_run_writes_its_rows_in_order_and_the_reason_of_its_exit_code(tmp_path: Path) -> None:
    """Pass, fail and error differ; both files hold all rows; the exit code is 100."""
    write(tmp_path / "suite.json", echo_suite())
    done = trioeval_process("suite.json", "-o", "out.json", "-o", "out.jsonl", cwd=tmp_path)
    assert done.returncode == 100
    assert "exit 100: 1 row failed, 1 row ended in an error" in last_line(done)
    document = json.loads((tmp_path / "out.json").read_text())
    rows = document["results"]["results"]
    assert [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()] == rows
    assert [(row["testIdx"], row["success"], row["failureReason"]) for row in rows] == [
        (0, True, 0),
        (1, False, 1),
        (2, False, 2),
    ]
    assert rows[1]["error"] == 'the output does not contain "hi"'
    place = 'prompt "say {{word}}" (suite.json:1:37)'
    assert rows[2]["error"] == f'{place}: {{{{ word }}}} is not defined; did you mean "wrod"?'
    assert rows[2]["response"] is None
    assert document["results"]["stats"]["successes"] == 1
    assert document["results"]["version"] == 3
    assert "PASS say hi" in done.stdout
    assert "FAIL say ho" in done.stdout
    assert "echo" in done.stderr


def test_every_format_holds_every_row(tmp_path: Path) -> None:
    """A mixed run is written in all formats; missing folders are created, and no other file remains."""
    write(tmp_path / "suite.json", echo_suite())
    names = ("json", "jsonl", "csv", "txt", "yaml", "yml", "xml", "junit.xml")
    flags = [flag for name in names for flag in ("-o", f"new/results/o.{name}")]
    assert trioeval("suite.json", *flags, cwd=tmp_path).returncode == 100
    folder = tmp_path / "new" / "results"
    assert sorted(file.name for file in folder.iterdir()) == sorted(f"o.{name}" for name in names)
    found = {name: (folder / f"o.{name}").read_text() for name in names}
    rows = json.loads(found["json"])["results"]["results"]
    for name in ("txt", "yaml", "yml"):
        assert yaml.safe_load(found[name])["results"]["results"] == rows
    lines = list(csv.reader(found["csv"].splitlines()))
    assert [line[3] for line in lines] == ["Status", "PASS", "FAIL", "ERROR"]
    assert found["junit.xml"].count("<testcase ") == found["xml"].count("<testIdx>") == 3


def test_flags_change_the_run_and_not_the_file(tmp_path: Path) -> None:
    """-n takes the first tests, --repeat runs them again, and a run that passes exits with 0."""
    write(tmp_path / "suite.json", echo_suite())
    done = trioeval(
        "run", "suite.json", "-n", "1", "--repeat", "3", "-j", "2", "-o", "o.jsonl", cwd=tmp_path
    )
    assert done.returncode == 0
    assert "3 rows" in last_line(done)
    assert last_line(done).endswith("exit 0: every row passed")
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert [row["id"].partition("-test-")[2] for row in rows] == [
        f"{n}-prompt-0-repeat-{n}" for n in range(3)
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["missing.json"], 2, "missing.json: file not found"),
        (["veiw"], 2, 'did you mean the command "view"?'),
        (["broken.json"], 2, "broken.json:1:15: $: not JSON: expecting value"),
        (["typo.yaml"], 2, 'typo.yaml:2:1: $.promtps: "promtps" is not a key here'),
        (["noted.yaml", "--strict"], 2, 'noted.yaml:2:1: $.author: "author" is not a key here'),
        (
            ["noted.yaml", "-o", "x.xlsx"],  # loaded, and then refused
            2,
            "x.xlsx: the suffix must be one of .csv, ",
        ),
        (["none.json"], 2, "none.json:1:1: $: the suite has no providers"),
        (["unknown.json"], 2, 'unknown.json:1:16: $.providers[0].id: unknown provider "opneai:x"'),
        (
            ["good.json", "-o", "out.xlsx"],
            2,
            "out.xlsx: the suffix must be one of .csv, ",
        ),
        (
            ["good.json", "-o", "good.json/out.json"],
            2,
            "good.json/out.json: the folder good.json cannot be created: File exists",
        ),
        (
            ["good.json", "-o", "/proc/x.json"],
            2,
            "/proc/x.json: the folder /proc is not writable",
        ),
        (
            ["good.json", "-o", "/proc/x.jsonl"],
            2,
            "/proc/x.jsonl: the folder /proc is not writable",
        ),
        (["good.json", "--trace", "/proc/x.json"], 2, "--trace /proc/x.json: cannot be written to"),
        (["good.json", "-j", "0"], 2, "Must be >= 1"),
        (["good.json", "--fitler"], 2, "--fitler"),
        (["good.json", "extra.json"], 2, "extra.json"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_are_reported_in_a_line_and_nothing_runs(
    tmp_path: Path, arguments: Sequence[str], code: int, line: str
) -> None:
    """Neither traceback nor stdout is printed; the exit code shows whose error it is."""
    (tmp_path / "broken.json").write_text('{"providers": }')
    (tmp_path / "typo.yaml").write_text("providers: [echo]\npromtps: [x]\n")
    (tmp_path / "noted.yaml").write_text("providers: [echo]\nauthor: Ada\n")
    (tmp_path / "none.json").write_text('{"prompts": ["x"]}')
    (tmp_path / "unknown.json").write_text('{"providers": ["opneai:x"]}')
    write(tmp_path / "good.json", {"providers": ["echo"], "prompts": ["x"]})
    done = trioeval(*arguments, cwd=tmp_path)
    assert done.returncode == code
    assert line in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_provider_that_refuses_connections_gives_error_rows(tmp_path: Path) -> None:
    """Each row names the address that refused; the run ends by itself with 100."""
    write(tmp_path / "suite.json", http_suite("http://127.0.0.1:9/v1", 2, {"retryDelay": 0.1}))
    done = trioeval("suite.json", "-o", "out.jsonl", cwd=tmp_path)
    assert done.returncode == 100
    errors = [
        json.loads(line)["error"] for line in (tmp_path / "out.jsonl").read_text().splitlines()
    ]
    source = "POST http://127.0.0.1:9/v1/chat/completions"
    title = f"connection: connection refused by 127.0.0.1:9 for {source}"
    assert errors == [f"{title}: check that the server is running, and the URL"] * 2


def rows_of(tmp_path: Path, suite: dict[str, Any]) -> list[dict[str, Any]]:
    write(tmp_path / "suite.json", suite)
    done = trioeval("suite.json", "-o", "out.json", "--no-table", cwd=tmp_path)
    rows: list[dict[str, Any]] = json.loads((tmp_path / "out.json").read_text())["results"][
        "results"
    ]
    assert [row["testIdx"] for row in rows] == [*range(len(rows))]
    assert done.returncode == (100 if any(row["error"] for row in rows) else 0)
    return rows


def kinds_of(rows: list[dict[str, Any]]) -> set[str]:
    return {row["error"].partition(":")[0] if row["error"] else "pass" for row in rows}


def test_failures_over_real_http_are_error_rows(tmp_path: Path) -> None:
    """Without retries, broken connections and failing servers end single rows."""
    with fake_provider("--failure-rate", "0.2", "--disconnect-rate", "0.2", "--seed", "3") as url:
        rows = rows_of(tmp_path, http_suite(url, 40, {"retries": 0}))
        assert stats_of(url)["requests"] == 40
        assert stats_of(url)["max_in_flight"] <= 4
    assert kinds_of(rows) == {"pass", "server", "connection"}


def test_transient_failures_are_retried(tmp_path: Path) -> None:
    """With retries and up to two final retry rounds, all of a fifth of broken replies are repaired."""
    with fake_provider("--failure-rate", "0.2", "--seed", "3") as url:
        rows = rows_of(tmp_path, http_suite(url, 40, {"retries": 1}, salvageRounds=3))
        assert stats_of(url)["requests"] > 40
    assert kinds_of(rows) == {"pass"}


def test_a_rate_limited_provider_gets_no_excess_requests(tmp_path: Path) -> None:
    """20 a second, a burst of 4: with the rate configured no request is refused; without it none is lost."""
    limits = ("--rpm", "1200", "--burst", "4", "--hints", "retry_after")
    with fake_provider(*limits) as url:
        rows = rows_of(tmp_path, http_suite(url, 16, {"rpm": 1200, "burst": 2}))
        assert stats_of(url)["by_status"] == {"200": 16}
    with fake_provider(*limits) as url:
        untold = rows_of(tmp_path, http_suite(url, 16))
        assert stats_of(url)["by_status"]["429"] <= 15
    assert kinds_of(rows) == kinds_of(untold) == {"pass"}


def test_a_spent_budget_ends_the_run_and_is_reported(tmp_path: Path) -> None:
    """Eight requests are allowed; the other rows are not run, with this reason."""
    with fake_provider() as url:
        rows = rows_of(tmp_path, http_suite(url, 20, budget={"requests": 8}))
        assert stats_of(url)["requests"] == 8
    errors = [row["error"] for row in rows if row["error"]]
    assert len(errors) == 12
    assert "budget exhausted: 8 of 8 requests spent" in errors[-1]


@pytest.mark.parametrize("signals", [1, 2])
def test_an_interrupted_run_writes_everything_and_reports_the_interrupt(
    tmp_path: Path, signals: int
) -> None:
    """The first Ctrl-C lets running rows finish, the second one cancels them; every row is written."""
    with held_server() as server:
        server.hold_after(0)
        write(tmp_path / "suite.json", http_suite(server.url, 12))
        command = [sys.executable, "-m", "trioeval", "suite.json", "-o", "o.json", "-o", "o.jsonl"]
        with subprocess.Popen(
            command, cwd=tmp_path, env=ENV, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            server.wait_held(4)
            process.send_signal(signal.SIGINT)
            assert "stopping: running rows may finish" in process.stderr.readline()
            if signals == 2:
                process.send_signal(signal.SIGINT)
            else:
                server.release()
            rest = process.stderr.read()
            code = process.wait(timeout=60)
        assert len(server.prompts) == 4
    assert code == 130
    assert "exit 130: interrupted by SIGINT" in rest.strip().splitlines()[-1]
    assert "Traceback" not in rest
    rows = json.loads((tmp_path / "o.json").read_text())["results"]["results"]
    assert [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()] == rows
    outcomes = [row["metadata"]["trioeval"]["outcome"] for row in rows]
    first = "done" if signals == 1 else "interrupted"
    assert outcomes == [first] * 4 + ["not_run"] * 8


def test_a_terminated_run_writes_everything_too(tmp_path: Path) -> None:
    """SIGTERM works like Ctrl-C, with its own exit code."""
    with held_server() as server:
        server.hold_after(0)
        write(tmp_path / "suite.json", http_suite(server.url, 12))
        command = [sys.executable, "-m", "trioeval", "suite.json", "-o", "o.jsonl", "--no-table"]
        with subprocess.Popen(
            command, cwd=tmp_path, env=ENV, stderr=subprocess.PIPE, text=True
        ) as process:
            server.wait_held(4)
            process.terminate()
            assert process.stderr is not None
            assert "stopping" in process.stderr.readline()
            server.release()
            assert process.wait(timeout=60) == 143
    assert len((tmp_path / "o.jsonl").read_text().splitlines()) == 12


@pytest.mark.parametrize("ignored", ["HUP", "HUP INT TERM"])
def test_signals_that_are_ignored_for_a_run_do_not_end_it(tmp_path: Path, ignored: str) -> None:
    """This is the case under `nohup`, and in scripts that start a run in the background."""
    with fake_provider("--latency", "0.3") as url:
        write(tmp_path / "suite.json", http_suite(url, 8))
        shell = ["sh", "-c", f'trap \'\' {ignored}; exec "$0" "$@"', sys.executable]
        command = [*shell, "-m", "trioeval", "suite.json", "--no-table"]
        with subprocess.Popen(
            command, cwd=tmp_path, env=ENV, stderr=subprocess.PIPE, text=True
        ) as process:
            while stats_of(url)["in_flight"] < 4:
                assert process.poll() is None
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGHUP)
            assert process.wait(timeout=60) == 0


def test_every_row_is_recorded_at_the_deadline(tmp_path: Path) -> None:
    """`maxEvalTimeMs` ends the run; rows without a verdict and the last line have this reason."""
    with fake_provider("--latency", "30") as url:
        write(tmp_path / "suite.json", http_suite(url, 6, maxEvalTimeMs=1000))
        done = trioeval("suite.json", "-o", "out.json", cwd=tmp_path)
    assert done.returncode == 100
    assert "6 rows not run because of the deadline" in last_line(done)
    rows = json.loads((tmp_path / "out.json").read_text())["results"]["results"]
    assert [row["error"].partition(":")[0] for row in rows] == ["interrupted"] * 4 + ["not run"] * 2


def test_a_timeout_ends_only_its_row(tmp_path: Path) -> None:
    """`timeoutMs` ends the row and not the run."""
    with fake_provider("--latency", "30") as url:
        write(tmp_path / "suite.json", http_suite(url, 2, timeoutMs=100))
        done = trioeval("suite.json", "-o", "out.json", cwd=tmp_path)
    rows = json.loads((tmp_path / "out.json").read_text())["results"]["results"]
    assert done.returncode == 100
    assert [row["error"] for row in rows] == [
        "timed out after 0.1 s of working time (timeoutMs)"
    ] * 2


def test_a_full_disk_is_reported_and_loses_no_paid_row(tmp_path: Path) -> None:
    """A failed file stops admission; the other file gets every row."""
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full on this system")
    (tmp_path / "full.jsonl").symlink_to("/dev/full")
    write(tmp_path / "suite.json", echo_suite())
    done = trioeval_process("suite.json", "-o", "full.jsonl", "-o", "good.json", cwd=tmp_path)
    assert done.returncode == 1
    assert "full.jsonl: cannot be written: No space left on device\n" in done.stderr
    # How many rows were started before the file failed depends on the speed of the machine.
    assert "exit 1: some results could not be written, see above" in last_line(done)
    rows = json.loads((tmp_path / "good.json").read_text())["results"]["results"]
    assert len(rows) == 3


def test_rows_that_cannot_be_stored_do_not_prevent_tables_and_the_last_line(tmp_path: Path) -> None:
    """Documents need all rows; each one that cannot be written is named, and no traceback is shown."""
    tests = [{"vars": {"word": "x" * 500}} for _ in range(300)]
    write(tmp_path / "suite.json", {**echo_suite(), "tests": tests})
    command = [sys.executable, "-m", "trioeval", "suite.json", "-o", "a.json", "-o", "b.csv"]
    done = subprocess.run(
        ["sh", "-c", 'ulimit -f 860 && exec "$@"', "sh", *command, "--no-progress"],
        cwd=tmp_path,
        env=ENV,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    first, *more = done.stderr.splitlines()
    assert first.startswith(".trioeval/results.db: the store of runs cannot be")
    assert any(line.startswith("a.json: cannot be written: File too large") for line in more)
    assert "pass rate" in done.stderr
    more = re.findall(r"… and (\d+) more rows?", done.stdout)
    not_run = re.findall(r"^(\d+) rows not run: ", done.stderr, re.MULTILINE)
    shown = re.findall(r"^ +\d+ +word=", done.stdout, re.MULTILINE)
    assert len(shown) + sum(map(int, [*more, *not_run])) == 300
    assert "exit 1: some results could not be written, see above" in last_line(done)
    assert not (tmp_path / "a.json").exists()


def test_a_reply_that_is_nested_too_deeply_does_not_prevent_documents(tmp_path: Path) -> None:
    """Its row is an error; every file has all rows."""
    inputs = ["1", "[" * 500 + "]" * 500]
    tests = [
        {"vars": {"n": "1"}},
        {"vars": {"n": "2"}, "options": {"transform": "JSON.parse(output)"}},
    ]
    provider = {"id": "sequence", "config": {"inputs": inputs}}
    write(tmp_path / "suite.json", {"providers": [provider], "tests": tests})
    names = ["only.csv", "a.json", "a.yaml", "a.xml", "a.junit.xml", "a.jsonl"]
    outputs = [part for name in names for part in ("-o", name)]
    done = trioeval("suite.json", *outputs, cwd=tmp_path)
    assert done.returncode == 100
    assert last_line(done).startswith("2 rows in ")
    assert {path.name for path in tmp_path.iterdir()} == {"suite.json", ".trioeval", *names}
    assert len((tmp_path / "only.csv").read_text().splitlines()) == 3
    assert len(json.loads((tmp_path / "a.json").read_text())["results"]["results"]) == 2


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_closed_stdout_changes_neither_results_nor_exit_code(tmp_path: Path, closed: str) -> None:
    """Printed text only displays the results."""
    write(tmp_path / "suite.json", echo_suite())
    command = [sys.executable, "-m", "trioeval", "suite.json", "-o", "out.json"]
    ours, theirs = os.pipe()
    os.close(ours)
    ends: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, closed: theirs}
    done = subprocess.run(
        command, cwd=tmp_path, env=ENV, text=True, timeout=60, check=False, **ends
    )
    os.close(theirs)
    assert done.returncode == 100
    assert len(json.loads((tmp_path / "out.json").read_text())["results"]["results"]) == 3
    if closed == "stdout":
        assert "exit 100" in last_line(done)
        assert "Error" not in done.stderr


def test_the_fake_provider_reports_that_it_cannot_listen() -> None:
    """A port in use is reported in one line with exit code 2."""
    with fake_provider() as url:
        port = url.removesuffix("/v1").rpartition(":")[2]
        done = trioeval_process("fake-provider", "--port", port, cwd=Path.cwd())
    assert done.returncode == 2
    assert done.stderr.startswith(f"cannot listen on 127.0.0.1:{port}: ")


def test_the_fake_provider_replies_with_given_texts(tmp_path: Path) -> None:
    """Texts are used in order, the last one repeatedly; wrong flags and unreadable files are refused."""
    with fake_provider("--reply", "one", "--reply", "two") as url:
        write(tmp_path / "suite.json", http_suite(url, 3))
        trioeval("suite.json", "-j", "1", "-o", "out.jsonl", cwd=tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["response"]["output"] for row in rows] == ["one", "two", "two"]
    done = trioeval("fake-provider", "--replay", "no.jsonl", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "no.jsonl: the recordings cannot be read: No such file or directory\n",
    )
    done = trioeval("fake-provider", "--replay", "no.jsonl", "--reply", "x", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "--replay and --reply exclude each other\n")


def test_the_version_and_file_errors_load_few_modules() -> None:
    """Neither trio nor the HTTP client is imported to print the version or to refuse a file."""
    probe = (
        "import sys, runpy\n"
        "sys.argv = ['trioeval', *sys.argv[1:]]\n"
        "try: runpy.run_module('trioeval', run_name='__main__', alter_sys=True)\n"
        "except SystemExit: pass\n"
        "print(sorted({'trio', 'httpx2', 'cyclopts'} & set(sys.modules)), file=sys.stderr)\n"
    )
    for arguments in (["--version"], ["missing.json"]):
        done = subprocess.run(
            [sys.executable, "-c", probe, *arguments],
            capture_output=True,
            text=True,
            env=ENV,
            check=True,
        )
        assert last_line(done) == "[]"

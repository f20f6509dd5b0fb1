"""Flags, starter suites and watching, as a user uses them: real processes, files and signals."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from test_command_line import ENV, last_line, trioeval, write

pytestmark = pytest.mark.slow


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


SUITE = {
    "providers": ["echo", {"id": "echo", "label": "second"}],
    "prompts": ["say {{word}}", {"raw": "shout {{word}}", "label": "loud"}],
    "tests": [
        {"description": f"says w{n}", "vars": {"word": f"w{n}"}, "metadata": {"n": n}}
        | {"assert": [{"type": "contains", "value": "w0"}]}
        for n in range(4)
    ],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a suite of 4 tests in 4 columns, of which one test passes."""
    write(tmp_path / "suite.json", SUITE)
    return tmp_path


def run_rows(folder: Path, *flags: str) -> list[tuple[int, int, str]]:
    done = trioeval("suite.json", "-o", "o.jsonl", "--no-table", *flags, cwd=folder)
    assert done.returncode in {0, 100}, done.stderr
    return [
        (row["testIdx"], row["promptIdx"], row["response"]["output"])
        for row in rows_of(folder / "o.jsonl")
    ]


@pytest.mark.parametrize(
    ("flags", "rows"),
    [
        (
            "--filter-range 1:2 --filter-prompts loud --filter-providers ^s",
            [(1, 0, "shout w1")],
        ),
        (
            "--filter-metadata n=3 --filter-prompts say --filter-targets second",
            [(3, 0, "say w3")],
        ),
        (
            "--filter-pattern w[12]$ -n 1 --filter-prompts say",
            [(1, 0, "say w1"), (1, 1, "say w1")],
        ),
        (
            "--filter-range 3: --filter-prompts say --filter-providers second --repeat 2",
            [(6, 0, "say w3"), (7, 0, "say w3")],
        ),
        (
            "-n 1 --filter-prompts loud --prompt-prefix <{{x}} --prompt-suffix > --var x=1",
            [(0, 0, "<1shout w0>"), (0, 1, "<1shout w0>")],
        ),
    ],
)
def test_filters_choose_rows_and_flags_change_them(
    folder: Path, flags: str, rows: list[tuple[int, int, str]]
) -> None:
    """Tests keep their numbers; columns are numbered without those that are filtered out."""
    assert run_rows(folder, *flags.split()) == rows


def test_failing_tests_of_a_result_file_run_again(folder: Path) -> None:
    """The file may be a document or JSON Lines; a file without results is refused."""
    flags = ["--filter-prompts", "say", "--filter-providers", "second"]
    first = trioeval("suite.json", "-o", "o.json", "-o", "o.jsonl", *flags, cwd=folder)
    assert "exit 100: 3 rows failed" in last_line(first)
    for name in ("o.json", "o.jsonl"):
        again = ["-o", "again.jsonl", "--filter-failing", name, *flags]
        done = trioeval("suite.json", *again, cwd=folder)
        assert done.returncode == 100
        assert [row["testIdx"] for row in rows_of(folder / "again.jsonl")] == [1, 2, 3]
    (folder / "notes.json").write_text("{}")
    for flag, file, line in (
        (
            "--filter-errors-only",
            "o.json",
            "no rows match the filters (pass --allow-empty to accept this)",
        ),
        ("--filter-failing", "notes.json", "notes.json: not a result file"),
        ("--filter-failing-only", "no.json", "no.json: cannot be read: No such file or directory"),
    ):
        done = trioeval("suite.json", flag, file, cwd=folder)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(line)


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--filter-range", "3:1"], "--filter-range begins after its end, got '3:1'"),
        (["--filter-pattern", "("], "--filter-pattern '(' is not a valid regular expression"),
        (
            ["--filter-pattern", "none-of-these"],
            "no rows match the filters (pass --allow-empty to accept this)",
        ),
        (
            ["--filter-providers", "none-of-these"],
            "no rows match the filters (pass --allow-empty to accept this)",
        ),
        (["--share"], "--share: results are not shared"),
        (["--shuffle", "3"], "--shuffle: rows start and are written in the order of the suite"),
        (["--plan", "-o", "o.json"], "--plan and -o exclude each other"),
        (["-r", "ehco"], '-r ehco: unknown provider "ehco"'),
        (["-p", "none.txt"], '-p none.txt: file not found: "none.txt"'),
        (["-x", "zzz"], "-x zzz: "),
        (["-t", "none.csv"], "-t none.csv: file not found"),
        (["other.json"], "other.json: a run takes one suite file; add others with -c"),
        (["--assertions", "a.yaml"], "--assertions and --model-outputs need each other"),
        (["--watch", "--record", "r.jsonl"], "--record and --watch exclude each other"),
        (["-c", "no*.json"], "--config: "),
        (["-o", "suite.json"], "-o suite.json is the same file as the suite suite.json"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_flags_that_cannot_be_used_are_refused(folder: Path, flags: list[str], line: str) -> None:
    """The message is one line, the exit code is 2, and nothing runs."""
    done = trioeval("suite.json", *flags, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(line)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["shwo"], '  did you mean the command "show"?'),
        (["eval", "-c", "none.yaml"], '  did you mean the command "run"?'),
        (["siute.json"], "  did you mean suite.json?"),
        (["suite.json", "--max-concurency", "3"], "did you mean --max-concurrency?"),
        (["show", "--faild=1"], "unknown flag --faild; did you mean --failed?"),
        (["--bogus"], "unknown flag --bogus; trioeval --help-all lists every flag"),
        (["runs", "prnue"], 'unknown command "prnue" of trioeval runs; did you mean "prune"?'),
        (["runs", "x"], 'unknown command "x" of trioeval runs; it has delete, prune'),
        (["bus", "pst", "x"], 'Did you mean "post"?'),
        (["cache", "zzz"], "Available commands: stats, clear, export."),
        (
            ["show", "latest", "1", "2"],
            "2: unexpected; trioeval show --help describes the arguments",
        ),
        (["preview"], "  trioeval preview --help describes the arguments and flags"),
        (["suite.json", "-j", "0"], 'Invalid value "0" for -j. Must be >= 1.'),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_command_line_is_explained(folder: Path, arguments: list[str], line: str) -> None:
    """The message is plain text and names what may have been meant, or where to read on."""
    done = trioeval(*arguments, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert line in done.stderr
    assert "╭" not in done.stderr


def test_an_unknown_command_suggests_the_nearest(folder: Path) -> None:
    """The message suggests a command, not a suite."""
    done = trioeval("rnu", "suite.json", cwd=folder)
    assert done.returncode == 2
    assert done.stderr == 'unknown command "rnu"; did you mean "run"?\n'


def test_results_are_written_through_a_link(folder: Path) -> None:
    """The link remains, and its target is written."""
    (folder / "there").mkdir()
    (folder / "o.json").symlink_to(folder / "there" / "results.json")
    trioeval("suite.json", "-o", "o.json", cwd=folder)
    assert (folder / "o.json").is_symlink()
    assert json.loads((folder / "there" / "results.json").read_text())["results"]["results"]


def test_filters_that_match_no_rows_may_be_allowed(folder: Path) -> None:
    """Then the run succeeds without rows."""
    done = trioeval("suite.json", "--filter-pattern", "none-of-these", "--allow-empty", cwd=folder)
    assert (done.returncode, last_line(done)) == (0, "no rows to run; exit 0")


def test_the_environment_sets_the_threshold_and_the_stripped_fields(folder: Path) -> None:
    """The variables have promptfoo's names; an invalid value is refused."""
    env = {"PROMPTFOO_PASS_RATE_THRESHOLD": "25", "PROMPTFOO_STRIP_RESPONSE_OUTPUT": "true"}
    done = trioeval("suite.json", "-o", "o.jsonl", cwd=folder, env=env)
    assert done.returncode == 0
    assert last_line(done).endswith("exit 0: 25.0 % of 16 rows passed, 25 % needed")
    outputs = {row["response"]["output"] for row in rows_of(folder / "o.jsonl")}
    assert outputs == {"[output stripped]"}
    done = trioeval("suite.json", cwd=folder, env={"PROMPTFOO_FAILED_TEST_EXIT_CODE": "3"})
    assert done.returncode == 3
    done = trioeval("suite.json", cwd=folder, env={"PROMPTFOO_DELAY_MS": "soon"})
    assert (done.returncode, done.stderr) == (
        2,
        "PROMPTFOO_DELAY_MS must be a number at least 0, got 'soon'\n",
    )


def test_grading_may_stop_at_the_first_failure(folder: Path) -> None:
    """The row then fails, whatever its threshold is; unsupported variables cause a warning."""
    parts = [{"type": "equals", "value": value} for value in ("no", "say w0", "say w0")]
    tests = [{"vars": {"word": "w0"}, "assert": parts, "threshold": 0.5}]
    write(
        folder / "suite.json", {"providers": ["echo"], "prompts": ["say {{word}}"], "tests": tests}
    )
    environ = {
        "PROMPTFOO_SHORT_CIRCUIT_TEST_FAILURES": "true",
        "PROMPTFOO_REQUIRE_JSON_PROMPTS": "true",
    }
    for env, code, judged in (({}, 0, 3), (environ, 100, 1)):
        done = trioeval("suite.json", "-o", "o.jsonl", cwd=folder, env=env)
        (row,) = rows_of(folder / "o.jsonl")
        assert (done.returncode, len(row["gradingResult"]["componentResults"])) == (code, judged)
    assert row["failureReason"] == 1
    assert row["error"] == 'the output does not equal "no"'
    assert done.stderr.startswith(
        "warning: PROMPTFOO_REQUIRE_JSON_PROMPTS is not supported and has no effect\n"
    )


def test_a_suite_names_its_result_files(tmp_path: Path) -> None:
    """Paths are relative to its own folder, wherever it is run from."""
    (tmp_path / "suites").mkdir()
    suite = {"providers": ["echo"], "prompts": ["x"], "outputPath": ["out/a.json", "out/a.csv"]}
    write(tmp_path / "suites" / "s.json", suite)
    assert trioeval("suites/s.json", cwd=tmp_path).returncode == 0
    found = sorted(path.name for path in (tmp_path / "suites" / "out").iterdir())
    assert found == ["a.csv", "a.json"]


def test_a_plan_calls_no_provider(tmp_path: Path) -> None:
    """It shows rows, columns, lanes with their limits, and the minimum duration."""
    suite = {
        "providers": [
            {
                "id": "openai:chat:m",
                "config": {"max_tokens": 100, "price": {"input": 10000, "output": 10000}},
                "lane": {"rpm": 6, "burst": 2},
            }
        ],
        "prompts": ["{{x}}"],
        "tests": [{"vars": {"x": str(n)}} for n in range(12)],
    }
    write(tmp_path / "s.json", suite)
    env = {"OPENAI_API_KEY": "sk-x", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    done = trioeval("s.json", "--plan", cwd=tmp_path, env=env)
    assert done.returncode == 0
    first, column, lane, use, last = done.stdout.splitlines()
    assert first == "12 rows of 12 tests in 1 column"
    assert column == "  column 0: openai:chat:m | {{x}}"
    assert lane.endswith(": 12 rows, 4 at once, 6 requests a minute")
    found = re.fullmatch(r"at most about (\d+) tokens, at most about ([\d.]+) US dollars", use)
    assert found is not None
    assert 12 * 100 < int(found[1]) < 12 * 250
    assert float(found[2]) == pytest.approx(int(found[1]) * 0.01, abs=0.01)
    assert last == "minimum duration 0:01:40, from the rates; no provider was called"


def test_the_first_row_that_fails_may_end_the_run(folder: Path) -> None:
    """Rows that were not started have this reason, and so has the last line."""
    done = trioeval("suite.json", "--fail-fast", "-j", "1", "-o", "o.jsonl", cwd=folder)
    assert done.returncode == 100
    assert "11 rows not run because of --fail-fast" in last_line(done)
    rows = rows_of(folder / "o.jsonl")
    assert len(rows) == 16
    assert {row["metadata"]["trioeval"]["outcome"] for row in rows} == {"done", "not_run"}


def test_given_outputs_are_checked(tmp_path: Path) -> None:
    """A file of assertions and a list of outputs replace a suite."""
    (tmp_path / "a.yaml").write_text("- type: contains\n  value: hi\n")
    write(tmp_path / "o.json", ["hi there", {"output": "ho", "tags": ["a", "b"]}])
    flags = ["-a", "a.yaml", "--model-outputs", "o.json", "-o", "r.jsonl"]
    done = trioeval(*flags, cwd=tmp_path)
    assert done.returncode == 100
    rows = rows_of(tmp_path / "r.jsonl")
    assert [(row["success"], row["response"]["output"]) for row in rows] == [
        (True, "hi there"),
        (False, "ho"),
    ]
    assert rows[1]["testCase"]["metadata"]["tags"] == "a, b"
    write(tmp_path / "o.json", ["hi", {"text": "ho"}])
    done = trioeval(*flags, cwd=tmp_path)
    assert done.returncode == 2
    assert "--model-outputs o.json: entry 1 must be a text or" in done.stderr
    (tmp_path / "o.json").write_text('["a", "\\ud800"]')
    done = trioeval(*flags, cwd=tmp_path)
    assert done.returncode == 2
    assert "--model-outputs o.json: $[1]: a lone surrogate is not a valid character" in done.stderr


def test_outputs_are_neither_files_nor_templates(tmp_path: Path) -> None:
    """A model must not be able to read the user's files; neither must foreign assertions."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "note.txt").write_text("a note")
    outputs = [
        f"file://{tmp_path}/secret.txt",
        "file://note.txt",
        "{{ env.HOME }}",
        "{% raw %}a{% endraw %}",
        "{{ _",
        "",
    ]
    write(folder / "o.json", outputs)
    (folder / "a.yaml").write_text("- type: not-contains\n  value: secret!\n")
    flags = ["-a", "a.yaml", "--model-outputs", "o.json", "-o", "r.jsonl"]
    done = trioeval(*flags, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert [row["response"]["output"] for row in rows_of(folder / "r.jsonl")] == outputs
    (folder / "a.yaml").write_text(f"- type: equals\n  value: file://{tmp_path}/secret.txt\n")
    done = trioeval(*flags, cwd=folder)
    assert done.returncode == 2
    assert "is outside of the suite's folder" in done.stderr


def test_files_of_flags_replace_those_of_the_suite(tmp_path: Path) -> None:
    """Prompts, tests and providers are named; paths are relative to the working directory."""
    (tmp_path / "suites").mkdir()
    write(tmp_path / "suites" / "s.json", SUITE)
    (tmp_path / "t.csv").write_text("word,__expected\nhi,contains:hi\n")
    (tmp_path / "a.txt").write_text("a {{word}}")
    (tmp_path / "b.txt").write_text("b {{word}}")
    flags = ["-t", "t.csv", "-p", "[ab].txt", "-p", "c {{word}}", "-r", "second", "-o", "o.jsonl"]
    assert trioeval("suites/s.json", *flags, cwd=tmp_path).returncode == 0
    rows = rows_of(tmp_path / "o.jsonl")
    assert [row["response"]["output"] for row in rows] == ["a hi", "b hi", "c hi"]
    assert {row["provider"]["label"] for row in rows} == {"second"}
    # The same on every machine, and from wherever the suite is.
    assert [row["prompt"]["label"] for row in rows] == [
        "a.txt: a {{word}}",
        "b.txt: b {{word}}",
        "c {{word}}",
    ]
    # Without a suite as well.
    flags = ["-t", "t.csv", "-p", "a.txt", "-r", "echo", "-o", "o.jsonl"]
    assert trioeval(*flags, cwd=tmp_path).returncode == 0
    (row,) = rows_of(tmp_path / "o.jsonl")
    assert (row["response"]["output"], row["prompt"]["label"]) == ("a hi", "a.txt: a {{word}}")
    # A file that a flag names may be anywhere.
    flags = ["-t", "../t.csv", "-p", "../a.txt", "-r", "echo", "-o", "o.jsonl"]
    assert trioeval(*flags, cwd=tmp_path / "suites").returncode == 0
    (row,) = rows_of(tmp_path / "suites" / "o.jsonl")
    assert (row["response"]["output"], row["prompt"]["label"]) == ("a hi", "../a.txt: a {{word}}")


def test_several_suites_are_combined(tmp_path: Path) -> None:
    """Their prompts and tests are added."""
    write(tmp_path / "a.json", {"providers": ["echo"], "prompts": ["a {{x}}"], "tests": []})
    write(tmp_path / "b1.json", {"providers": ["echo"], "tests": [{"vars": {"x": "1"}}]})
    write(tmp_path / "b2.json", {"providers": ["echo"], "tests": [{"vars": {"x": "2"}}]})
    done = trioeval("a.json", "-c", "b*.json", "-o", "o.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = rows_of(tmp_path / "o.jsonl")
    assert "a 1" in {row["response"]["output"] for row in rows}
    assert {row["vars"]["x"] for row in rows} == {"1", "2"}


def test_environment_files_are_read_in_order(tmp_path: Path) -> None:
    """Later files take precedence, and variables that are set take precedence over all."""
    (tmp_path / "a.env").write_text("ONE=a\nTWO=a\nSET=a\n")
    (tmp_path / "b.env").write_text("TWO=b\n")
    prompt = "{{env.ONE}} {{env.TWO}} {{env.SET}}"
    write(tmp_path / "s.json", {"providers": ["echo"], "prompts": [prompt]})
    flags = ["--env-file", "a.env", "--env-file", "b.env", "-o", "o.jsonl"]
    done = trioeval("s.json", *flags, cwd=tmp_path, env={"SET": "set"})
    assert done.returncode == 0
    assert rows_of(tmp_path / "o.jsonl")[0]["response"]["output"] == "a b set"


def test_a_starter_suite_runs_at_once_and_is_never_overwritten(tmp_path: Path) -> None:
    """The printed command runs it, without any key."""
    done = trioeval("init", "new/suite", cwd=tmp_path)
    assert done.returncode == 0
    name, *arguments = done.stdout.split()
    assert name == "trioeval"
    env = {name: "" for name in os.environ if name.endswith("_API_KEY")}
    ran = trioeval(*arguments, cwd=tmp_path, env=env)
    assert ran.returncode == 0, ran.stderr
    assert last_line(ran).endswith("4 passed, 0 failed, 0 errors; exit 0: every row passed")
    (tmp_path / "new/suite/tests.csv").write_text("mine")
    (tmp_path / "new/suite/suite.yaml").unlink()
    again = trioeval("init", "new/suite", cwd=tmp_path)
    assert again.returncode == 2
    assert again.stderr == (
        "new/suite/prompt.txt, new/suite/tests.csv: already exists; name another folder\n"
    )
    assert (tmp_path / "new/suite/tests.csv").read_text() == "mine"
    assert not (tmp_path / "new/suite/suite.yaml").exists()


def test_a_watched_suite_runs_again_when_one_of_its_files_changes(tmp_path: Path) -> None:
    """This includes the correction of an invalid suite; an interrupt between runs is not a failure."""
    (tmp_path / "p.txt").write_text("say {{word}}")
    test = {"vars": {"word": "a"}, "assert": [{"type": "contains", "value": "a"}]}
    suite = {"providers": ["echo"], "prompts": ["file://p.txt"], "tests": [test]}
    write(tmp_path / "s.json", suite)
    command = [sys.executable, "-m", "trioeval", "s.json", "--watch", "--no-progress"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        watchdog = threading.Timer(100, process.kill)
        watchdog.start()

        def wait_for(text: str) -> None:
            assert process.stderr is not None
            while text not in (line := process.stderr.readline()):
                assert line, f"ended without saying {text!r}"

        wait_for("watching 2 files")
        (tmp_path / "p.txt").write_text("shout {{word}}!")
        wait_for("p.txt has changed")
        wait_for("watching 2 files")
        (tmp_path / "s.json").write_text("{")
        wait_for("s.json has changed")
        wait_for("watching")
        write(tmp_path / "s.json", suite)
        wait_for("every row passed")
        wait_for("watching 2 files")
        process.send_signal(signal.SIGINT)
        shown, rest = process.communicate(timeout=60)
        watchdog.cancel()
    assert process.returncode == 0
    assert "Traceback" not in rest
    assert shown.count("PASS say a") == 1
    assert shown.count("PASS shout a!") == 2


def test_watching_continues_after_any_error_and_any_exit_code(tmp_path: Path) -> None:
    """A wrong file is watched, a missing file is awaited, and 200 is not a signal."""
    suite = {
        "providers": ["echo"],
        "prompts": ["say {{word}}"],
        "tests": "file://t.csv",
        "defaultTest": {"assert": [{"type": "contains", "value": "hi"}]},
    }
    write(tmp_path / "s.json", suite)
    flags = ["--watch", "--no-progress", "--fail-exit-code", "200"]
    command = [sys.executable, "-m", "trioeval", "s.json", *flags]
    with subprocess.Popen(
        command, cwd=tmp_path, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        watchdog = threading.Timer(100, process.kill)
        watchdog.start()

        def wait_for(text: str) -> None:
            assert process.stderr is not None
            while text not in (line := process.stderr.readline()):
                assert line, f"ended without saying {text!r}"

        for content, message in (
            (None, 'file not found: "file://t.csv"'),
            ("word\nho,ho,ho\n", "t.csv:2"),
            ("word\nho\n", "exit 200"),
            ("word\nhi\n", "every row passed"),
        ):
            if content is not None:
                (tmp_path / "t.csv").write_text(content)
            wait_for(message)
            wait_for("watching")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        watchdog.cancel()
    assert process.returncode == 143

"""Recording and replaying a run, as a user does it; keys from files; and no secret anywhere."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from server_process import fake_provider
from test_command_line import ENV, last_line, trioeval, write

pytestmark = [pytest.mark.slow, pytest.mark.network]

SIMULATED = {
    "providers": [
        {
            "id": "sim:a",
            "label": "clever",
            "config": {
                "answer": "{{word}}",
                "quality": 0.5,
                "errorRate": 0.3,
                "latencyMs": 20,
                "spread": 1,
                "price": {"input": 1, "output": 2},
            },
        },
        {"id": "sim:b", "config": {"answer": "{{word}}", "latencyMs": 0, "refusalRate": 0.2}},
    ],
    "prompts": ["say {{word}}"],
    "tests": [
        {"vars": {"word": word}, "assert": [{"type": "equals", "value": word}]} for word in "xyz"
    ],
    "evaluateOptions": {"repeat": 4},
}


def results(file: Path) -> list[tuple[Any, ...]]:
    """The fields that must be the same in a rerun."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [(row["response"], row["success"], row["score"], row["error"]) for row in rows]


def test_a_replayed_run_gives_the_recorded_results(tmp_path: Path) -> None:
    """This includes retried failures, refusals, costs and repeats; no provider is called."""
    suite = write(tmp_path / "suite.json", SIMULATED)
    trioeval(suite, "--record", "r.jsonl", "-o", "first.jsonl", cwd=tmp_path)
    again = trioeval(suite, "--replay", "r.jsonl", "-o", "second.jsonl", "-j", "1", cwd=tmp_path)
    assert results(tmp_path / "first.jsonl") == results(tmp_path / "second.jsonl")
    assert "24 rows" in last_line(again)
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert {line["provider"] for line in lines} == {"clever", "sim:b"}
    assert any("error" in line for line in lines)
    assert any(line.get("cost") for line in lines)


def test_a_recording_is_never_overwritten(tmp_path: Path) -> None:
    """It remains if a flag is given twice."""
    suite = write(tmp_path / "suite.json", SIMULATED)
    (tmp_path / "r.jsonl").write_text("paid for")
    done = trioeval(suite, "--record", "r.jsonl", cwd=tmp_path)
    assert done.returncode == 1
    assert last_line(done) == "cannot write the recording r.jsonl: File exists"
    assert (tmp_path / "r.jsonl").read_text() == "paid for"


def test_a_killed_run_keeps_its_recording(tmp_path: Path) -> None:
    """Each reply is in the file before the next call starts."""
    tests = [{"vars": {"word": str(number)}} for number in range(50)]
    provider = {"id": "sim:a", "config": {"latencyMs": 200}, "lane": {"maxConcurrency": 1}}
    suite = write(tmp_path / "suite.json", {**SIMULATED, "providers": [provider], "tests": tests})
    command = [sys.executable, "-m", "trioeval", str(suite), "--record", "r.jsonl", "-o", "o.jsonl"]
    with subprocess.Popen(command, cwd=tmp_path, env=ENV, stderr=subprocess.DEVNULL) as run:
        output = tmp_path / "o.jsonl"
        while not output.exists() or output.read_text().count("\n") < 3:
            assert run.poll() is None
        run.send_signal(signal.SIGKILL)
    recorded = (tmp_path / "r.jsonl").read_text().splitlines()
    assert len(recorded) >= 3
    assert all(json.loads(line)["output"] for line in recorded)
    replayed = trioeval(suite, "--replay", "r.jsonl", "-n", "3", "--repeat", "1", cwd=tmp_path)
    assert "3 rows" in last_line(replayed)


def test_a_full_disk_ends_the_run_and_keeps_complete_entries(tmp_path: Path) -> None:
    """No further call is made whose reply cannot be stored; a cut line does not damage the rest."""
    # Long texts, which the store of runs compresses and a recording does not: it is the one that fills up.
    tests = [{"vars": {"word": f"{number}{'x' * 100_000}"}} for number in range(60)]
    provider = {"id": "sim:a", "config": {"latencyMs": 1}, "lane": {"maxConcurrency": 1}}
    suite = write(tmp_path / "suite.json", {**SIMULATED, "providers": [provider], "tests": tests})
    flags = ["--record", "r.jsonl", "--repeat", "1", "--no-table"]
    command = [sys.executable, "-m", "trioeval", str(suite), *flags]
    done = subprocess.run(
        ["sh", "-c", 'ulimit -f 4000 && exec "$@"', "sh", *command],
        cwd=tmp_path,
        env=ENV,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "cannot write the recording r.jsonl: File too large\n" in done.stderr
    assert "exit 1: some results could not be written, see above; continue with" in last_line(done)
    content = (tmp_path / "r.jsonl").read_bytes()
    assert not content.endswith(b"\n")
    whole = content.count(b"\n")
    replied = int(re.search(r"(\d+) not graded", last_line(done))[1])  # type: ignore[index]
    assert whole < replied <= whole + 3
    replayed = trioeval(
        suite, "--replay", "r.jsonl", "-n", str(whole), "--repeat", "1", cwd=tmp_path
    )
    assert f"{whole} rows" in last_line(replayed)
    assert f"{whole} not graded" in last_line(replayed)
    assert "r.jsonl: the last line is cut off and ignored\n" in replayed.stderr


@pytest.mark.parametrize("flag", ["--replay", "--record", "--env-file"])
def test_no_file_is_destroyed_by_flags_that_name_it_twice(tmp_path: Path, flag: str) -> None:
    """This is checked before a file is opened; the suite is not overwritten either."""
    suite = write(tmp_path / "s.json", {"providers": ["echo"], "prompts": ["a"]})
    line = '{"prompt": "a", "output": "b", "provider": "echo"}\n'
    line = "A=1\n" if flag == "--env-file" else line
    (tmp_path / "r.jsonl").write_text(line)
    done = trioeval("s.json", flag, "r.jsonl", "-o", "r.jsonl", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, f"-o r.jsonl is the same file as {flag} r.jsonl\n")
    assert (tmp_path / "r.jsonl").read_text() == line
    before = suite.read_text()
    done = trioeval("s.json", "-o", "s.json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "-o s.json is the same file as the suite s.json\n")
    assert suite.read_text() == before


def test_keys_are_read_from_a_file_and_never_written(tmp_path: Path) -> None:
    """No output of a run has a key: results, recordings, tables, errors and tracebacks."""
    keys = ["sk-live-0123456789", "hdr-secret-4567", "qry-secret-8901"]
    (tmp_path / ".env").write_text(
        f"OPENAI_API_KEY={keys[0]}\nHEADER_TOKEN='{keys[1]}'\nBAD_KEY={keys[2]}\n"
    )
    prompt = "say {{word}}"
    with fake_provider(
        "--reply", f"echo of {keys[0]} and {keys[1]}", "--failure-rate", "0.3"
    ) as url:
        suite = {
            "providers": [
                {
                    "id": "openai:m",
                    "config": {
                        "apiBaseUrl": url,
                        "apiKey": "{{env.OPENAI_API_KEY}}",
                        "headers": {"x-team-token": "{{env.HEADER_TOKEN}}"},
                    },
                },
                {
                    "id": "openai:n",
                    "config": {"apiBaseUrl": url + "/nowhere", "apiKeyEnvar": "BAD_KEY"},
                },
            ],
            "prompts": [prompt],
            "tests": [{"vars": {"word": str(number)}} for number in range(10)],
        }
        file = write(tmp_path / "suite.json", suite)
        flags = ["--env-file", ".env", "--record", "r.jsonl", "-o", "o.json", "-o", "o.jsonl"]
        done = trioeval(file, *flags, cwd=tmp_path)
    assert done.returncode == 100
    kept = {path.name: path.read_bytes() for path in (tmp_path / ".trioeval").iterdir()}
    assert {"results.db", "cache.db"} <= kept.keys()
    for content in kept.values():
        assert not any(key.encode() in content for key in keys)
    files = (path for path in tmp_path.iterdir() if path.name not in {".env", ".trioeval"})
    written = {path.name: path.read_text() for path in files}
    assert written.keys() == {"suite.json", "r.jsonl", "o.json", "o.jsonl"}
    assert "echo of [hidden] and [hidden]" in written["o.json"]
    for text in (*written.values(), done.stdout, done.stderr):
        assert not any(key in text for key in keys)


def test_a_key_in_a_url_is_written_nowhere(tmp_path: Path) -> None:
    """This includes tables, results and lanes of a suite whose provider id is a URL with a key."""
    key = "qry-secret-8901"
    with fake_provider() as url:
        home = url.removesuffix("/v1")
        entry = {
            "id": f"{home}/stats?sig={key}",
            "config": {
                "transformResponse": "json.requests",
                "queryParams": {"api_key": "{{env.MY_KEY}}"},
            },
        }
        other = {
            "id": "http",
            "label": f"stats of {key}",
            "config": {"url": f"{home}/stats?sig={key}", "transformResponse": "json.requests"},
        }
        file = write(tmp_path / "suite.json", {"providers": [entry, other], "prompts": ["a"]})
        done = subprocess.run(
            [sys.executable, "-m", "trioeval", str(file), "-o", "o.json", "-o", "o.jsonl"],
            cwd=tmp_path,
            env={**ENV, "MY_KEY": "env-secret-2345"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    for text in (
        (tmp_path / "o.json").read_text(),
        (tmp_path / "o.jsonl").read_text(),
        done.stdout,
        done.stderr,
    ):
        assert key not in text
        assert "env-secret-2345" not in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "--env-file .env: cannot be read: No such file or directory"),
        (b"A=1\nnonsense\nB\n\xff", "--env-file .env: cannot be read: it is not UTF-8"),
        (b"A=1\nB\n='x\n", ".env:2: must be NAME=value\n.env:3: must be NAME=value"),
    ],
)
def test_wrong_lines_of_an_env_file_are_reported(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    """All of them are named, and none is shown."""
    if content is not None:
        (tmp_path / ".env").write_bytes(content)
    done = trioeval(write(tmp_path / "s.json", SIMULATED), "--env-file", ".env", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.strip() == message


def test_variables_that_are_set_take_precedence_over_the_file(tmp_path: Path) -> None:
    """A file gives defaults, also for a variable that is empty."""
    (tmp_path / ".env").write_text("WORD=file\nOTHER=file\nEMPTY=filled\n")
    prompt = "{{env.WORD}} {{env.OTHER}} {{env.EMPTY}}"
    provider = {"id": "sequence", "config": {"inputs": [prompt]}}
    suite = write(tmp_path / "s.json", {"providers": [provider], "prompts": ["a"]})
    done = subprocess.run(
        [sys.executable, "-m", "trioeval", str(suite), "--env-file", ".env"],
        cwd=tmp_path,
        env={**os.environ, "WORD": "shell", "EMPTY": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "shell file filled" in done.stdout

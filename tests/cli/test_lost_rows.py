"""Lost rows of datasets: they are reported with causes, and tried again on demand."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from trioeval.cli.app import run_command_line
from trioeval.columns.files import DatasetRows

_QUIET = ("--no-progress", "--no-table")
_GEN = """
import os


def count(start, rows):
    return list(range(start, start + rows))


def place(rows, numbers):
    return [f"{place} of {len(rows)}" for place, _ in enumerate(rows)]


def odd(row):
    if row["i"] in (3, 9) and not os.path.exists("mended"):
        raise ValueError("not yet")
    return row["i"]


def shout(rows, numbers):
    open("ran", "a").write("x")
    return [{**row, "text": row["text"] + "!"} for row in rows], numbers


def wrong(rows, numbers):
    if 0 in numbers and not os.path.exists("mended"):
        raise ValueError("this is wrong")
    return rows, numbers
"""
_COUNT = {"name": "i", "type": "python", "target": "file://gen.py:count", "scope": "scratch"}


@pytest.fixture(name="folder")
def fixture_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "gen.py").write_text(_GEN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, *columns: Mapping[str, Any], **settings: Any) -> None:
    """Write ten rows in groups of four; their texts are replayed."""
    text = {"name": "text", "type": "llm", "provider": "replay:r.jsonl", "prompt": "Q {{ i }}"}
    task = {
        "id": "made",
        "type": "columns",
        "rows": 10,
        "groupSize": 4,
        "format": "jsonl",
        "columns": [{**_COUNT, "as": "int"}, text, *columns],
        **settings,
    }
    suite = {"providers": ["replay:r.jsonl"], "tasks": [task]}
    (folder / "s.json").write_text(json.dumps(suite))


def record(folder: Path, *known: int) -> None:
    """Record replies for the given numbers, with a further text for each."""
    lines = [
        *({"prompt": f"Q {one}", "output": f"A {one}"} for one in known),
        *(
            {"prompt": f"{place} of {count}", "output": f"place {place} of {count}"}
            for count in range(1, 5)
            for place in range(count)
        ),
    ]
    (folder / "r.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def files(folder: Path) -> Mapping[str, bytes]:
    root = folder / "datasets" / "made"
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


def run(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = run_command_line([*arguments, *_QUIET])
    return code, capfd.readouterr().err


@pytest.mark.slow
def test_lost_rows_are_generated_again_when_errors_are_retried(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """All files are those of a run that lost nothing; complete groups make no calls.

    Values that were computed from rows of an incomplete group are discarded.
    """
    ranked = (
        {"name": "place", "type": "python", "target": "file://gen.py:place", "scope": "full",
         "requires": ["text"], "as": "text"},
        {"name": "last", "type": "llm", "provider": "replay:r.jsonl", "prompt": "{{ place }}"},
    )  # fmt: skip
    after = {"stage": "afterGeneration", "target": "file://gen.py:shout"}
    settings = {"shutdown": {"enabled": False}, "processors": [after]}
    write(folder, *ranked, **settings)
    record(folder, *range(10))
    assert run(capfd, "s.json", "--no-cache")[0] == 0
    wanted = files(folder)
    (folder / "datasets").rename(folder / "whole")

    record(folder, 0, 1, 2, 3, 4, 6, 8)  # without three numbers of two groups
    code, stderr = run(capfd, "s.json", "--no-cache")
    assert code == 100
    assert "7 of 10 rows written" in stderr
    assert "3 dropped: text failed 3" in stderr
    lacking = files(folder)
    record(folder, *range(10))
    code, stderr = run(capfd, "resume", "--no-cache")
    assert (code, files(folder)) == (100, lacking)
    code, stderr = run(capfd, "resume", "--retry", "errors", "--no-cache")
    assert code == 0
    assert "10 of 10 rows written" in stderr
    assert files(folder) == wanted
    assert (folder / "ran").read_text() == "x" * 3
    code, stderr = run(capfd, "resume", "--no-cache")
    assert (code, files(folder)) == (0, wanted)


@pytest.mark.slow
def test_a_retry_of_lost_rows_survives_an_interruption(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A later execution does it without the flag if the first one was interrupted.

    Until then the existing rows can be read.
    """
    flaky = {"name": "odd", "type": "python", "target": "file://gen.py:odd", "requires": ["i"]}
    text = {"name": "text", "type": "llm", "provider": "sim:m", "prompt": "{{ odd }}"}
    write(folder, columns=[_COUNT, flaky, text], providers=["sim:m"])
    assert run(capfd, "s.json")[0] == 100
    rows = DatasetRows(folder / "datasets" / "made")
    assert [row["i"] for row in rows] == [0, 1, 2, 4, 5, 6, 7, 8]
    (folder / "mended").touch()
    code, stderr = run(capfd, "resume", "--retry", "errors", "--max-requests", "1", "--no-cache")
    assert code == 100
    # Either group may be the first to call; all rows of the other one are left.
    assert re.search(r"\b[24] not run: the budget", stderr), stderr
    assert len(DatasetRows(folder / "datasets" / "made")) == 9
    code, stderr = run(capfd, "resume", "--no-cache")
    assert code == 0, stderr
    rows = DatasetRows(folder / "datasets" / "made")
    assert [row["i"] for row in rows] == [*range(10)]


def test_after_an_early_shutdown_the_last_line_names_the_remedy(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(folder, groupSize=10, shutdown={"calls": 2, "errorRate": 0.5}, rows=10)
    record(folder)
    code, stderr = run(capfd, "s.json")
    assert code == 100
    assert "early shutdown" in stderr
    assert stderr.splitlines()[-1].split("continue with: ")[-1].endswith(" --retry errors")
    record(folder, *range(10))
    code, stderr = run(capfd, "resume", "--retry", "errors")
    assert code == 0, stderr
    assert len(DatasetRows(folder / "datasets" / "made")) == 10


@pytest.mark.slow
def test_a_group_whose_processor_fails_is_lost_with_the_reason(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    record(folder, *range(10))
    for stage in ("beforeBatch", "afterBatch"):
        wrong = {"stage": stage, "target": "file://gen.py:wrong", "onError": "dropGroup"}
        write(folder, processors=[wrong], outputDir=f"datasets/{stage}")
        code, stderr = run(capfd, "s.json")
        assert code == 100
        assert "6 of 10 rows written" in stderr
        assert "4 dropped: failed 4" in stderr
        assert "first failure: row 0: processors[0] (group 0): " in stderr
        assert "this is wrong" in stderr
        (folder / "mended").touch()
        code, stderr = run(capfd, "resume", "--retry", "errors")
        assert code == 0, stderr
        assert len(DatasetRows(folder / "datasets" / stage)) == 10
        (folder / "mended").unlink()


@pytest.mark.parametrize(
    ("content", "columns", "where"),
    [
        ("age\n1\n2,3\n", ["age"], "bad.csv:3:"),
        ("age\n1\n", ["agee"], "bad.csv:1:1: "),
    ],
)
def test_an_invalid_seed_file_is_an_error_of_the_suite(
    folder: Path, capfd: pytest.CaptureFixture[str], content: str, columns: list[str], where: str
) -> None:
    """It is reported before the run starts, also by a plan, with all other errors and with its task."""
    record(folder)
    (folder / "bad.csv").write_text(content)
    (folder / "worse.csv").write_text("")
    seed = {"type": "seed", "file": "bad.csv", "columns": columns}
    write(folder)
    suite = json.loads((folder / "s.json").read_text())
    suite["tasks"][0]["columns"].append(seed)
    other = {"type": "seed", "file": "worse.csv", "columns": ["a"]}
    suite["tasks"].append({"id": "other", "type": "columns", "columns": [other]})
    (folder / "s.json").write_text(json.dumps(suite))
    for flags in ((), ("--plan",)):
        code, stderr = run(capfd, "s.json", *flags)
        assert code == 2
        assert where in stderr
        assert "$.tasks[0].columns[2].file" in stderr
        assert "$.tasks[1].columns[0].file" in stderr
    assert run_command_line(["runs"]) != 0 or "eval-" not in capfd.readouterr().out

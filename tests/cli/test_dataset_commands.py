"""Datasets on the command line: real runs of small suites, and the output of each command."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from trioeval.cli.app import run_command_line

_QUIET = ("--no-progress", "--no-table")
_GEN = """
def twice(row):
    if row["n"] % 5 == 3:
        raise ValueError("no \\x1b[31m" + str(row["n"]))
    return row["n"] * 2
"""
COLUMNS: list[dict[str, Any]] = [
    {"type": "seed", "file": "n.jsonl", "columns": ["n"]},
    {"name": "half", "type": "expression", "python": "n / 2", "as": "float"},
    {
        "name": "text",
        "type": "llm",
        "provider": "writer",
        "prompt": "About {{ n }}",
        "dropWhen": "n == 2",
    },
]
FLAKY = {
    "name": "twice",
    "type": "python",
    "target": "file://gen.py:twice",
    "requires": ["n"],
    "as": "int",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "gen.py").write_text(_GEN)
    (tmp_path / "n.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(7)))
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    return tmp_path


def write(folder: Path, *more: Any, tasks: Any = (), **settings: Any) -> None:
    """Write the suite: seven rows in groups of five, one of which is dropped on purpose."""
    problems = {
        "id": "problems",
        "type": "columns",
        "groupSize": 5,
        "format": "jsonl",
        "columns": [*COLUMNS, *more],
        **settings,
    }
    writer = {"id": "sim:m", "label": "writer", "config": {"latencyMs": 0}}
    suite = {"providers": [writer], "tasks": [problems, *tasks]}
    (folder / "s.json").write_text(json.dumps(suite))


def printed_lines(capfd: pytest.CaptureFixture[str]) -> tuple[list[str], list[str]]:
    """The lines on stdout and on stderr."""
    found = capfd.readouterr()
    assert "\x1b" not in found.out + found.err
    return found.out.splitlines(), found.err.splitlines()


def test_a_dataset_is_shown_at_the_end_and_by_show(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It has files, a part of the document, and no graded rows."""
    outputs = [part for kind in ("json", "jsonl", "csv") for part in ("-o", f"r.{kind}")]
    assert run_command_line(["s.json", *_QUIET, *outputs]) == 0
    out, err = printed_lines(capfd)
    assert out == []
    expected = (
        "6 of 7 rows written to datasets/problems (JSON lines, 2 groups); 1 dropped: filtered 1"
    )
    assert f"task problems: {expected}" in err
    assert err[-1].startswith("6 of 7 rows of datasets written in ")
    assert err[-1].endswith("; exit 0: every dataset is complete")
    dataset = json.loads((folder / "r.json").read_text())["tasks"]["problems"]["dataset"]
    assert (dataset["written"], dataset["calls"], dataset["outcome"]) == (6, 7, "complete")
    assert [column["name"] for column in dataset["columns"]] == ["n", "half", "text"]
    assert (folder / "r.jsonl").read_text() == ""

    assert run_command_line(["show", "--rows", "1"]) == 0
    out, _ = printed_lines(capfd)
    assert out[0].endswith(" UTC; 6 rows of datasets written")
    assert out[1] == f"task problems: {expected}"
    assert out[out.index("row 0") :][:4] == ["row 0", "  n: 0", "  half: 0", "  text: About 0"]
    assert "… and 5 more rows; --rows N shows more of them" in out
    assert out[-2:] == ["dropped rows:", "  row 2: text filtered"]

    assert run_command_line(["show", "latest", "3"]) == 0
    out, _ = printed_lines(capfd)
    assert out[0] == "task problems, row 3"
    assert "call 1: writer: prompt" in out
    assert run_command_line(["show", "latest", "2"]) == 0
    assert printed_lines(capfd)[0][0] == "task problems, row 2: text filtered"
    assert run_command_line(["show", "latest", "9"]) == 2
    assert printed_lines(capfd)[1][0].endswith(
        "has no row 9 of task problems: it is not written yet"
    )

    assert run_command_line(["runs"]) == 0
    assert "made" in printed_lines(capfd)[0][1]
    assert run_command_line(["runs", "--json"]) == 0
    (listed,) = json.loads("\n".join(printed_lines(capfd)[0]))
    assert (listed["expected"], listed["rows"], listed["datasetRows"]) == (0, 0, 6)

    assert run_command_line(["resume"]) == 0
    assert printed_lines(capfd)[1][-1] == (
        "6 of 7 rows of datasets written; exit 0: every dataset is complete"
    )
    assert run_command_line(["export", "-o", "again.json"]) == 0
    again = json.loads((folder / "again.json").read_text())["tasks"]["problems"]["dataset"]
    assert again == dataset


def test_lost_rows_fail_a_run_and_name_the_dataset(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The first failure is shown; messages of functions become harmless text."""
    write(folder, FLAKY)
    assert run_command_line(["s.json", *_QUIET, "-o", "r.junit.xml"]) == 100
    _, err = printed_lines(capfd)
    assert "  first failure: row 3, column 'twice': gen.py:twice: ValueError: no [31m3" in err
    assert err[-1].endswith("exit 100: dataset problems: 1 row lost")
    assert 'message="dataset problems: 1 row lost"' in (folder / "r.junit.xml").read_text()
    assert run_command_line(["resume"]) == 100
    assert printed_lines(capfd)[1][-1].endswith("exit 100: dataset problems: 1 row lost")


def test_fail_fast_counts_a_dataset_that_lost_rows(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing is started after it."""
    later = {"id": "later", "type": "prompt_eval", "dependsOn": ["problems"], "prompts": ["hi"]}
    write(folder, FLAKY, tasks=[later])
    assert run_command_line(["s.json", *_QUIET, "--fail-fast"]) == 100
    why = "1 row not run because of --fail-fast, dataset problems: 1 row lost; continue with: "
    assert why in printed_lines(capfd)[1][-1]


def test_an_interrupted_dataset_is_continued(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The last line names the command; until then `show` shows it by its run and by its folder."""
    assert run_command_line(["s.json", *_QUIET, "--max-requests", "5"]) == 100
    _, err = printed_lines(capfd)
    ending = re.search(
        r"exit 100: dataset problems: (\d) rows not run \(the budget\); continue with: trioeval resume",
        err[-1],
    )
    assert ending is not None
    assert run_command_line(["runs", "--state", "interrupted"]) == 0
    assert "interrupted" in "".join(printed_lines(capfd)[0])
    # Seeds of both groups are read in parallel: a request for the second may come before those of the first.
    if ending[1] == "2":
        assert run_command_line(["show", "datasets/problems"]) == 0
        out, _ = printed_lines(capfd)
        unfinished = (
            "datasets/problems: unfinished: 4 of 7 rows in 1 jsonl files; dropped: filtered 1"
        )
        assert out[0] == unfinished
        assert run_command_line(["show", "datasets/problems", "6"]) == 2
        assert printed_lines(capfd)[1] == ["datasets/problems: no row 6; 4 of 7 rows exist"]

    assert run_command_line(["resume", "--max-requests", "2", *_QUIET]) == 0
    _, err = printed_lines(capfd)
    assert err[-1].endswith("exit 0: every dataset is complete")
    assert run_command_line(["show", "datasets/problems/", "6"]) == 0
    assert "  About 6" in printed_lines(capfd)[0]
    assert run_command_line(["show", "datasets/nothing"]) == 2
    assert printed_lines(capfd)[1][0].startswith("datasets/nothing contains no readable dataset")


def test_files_of_another_dataset_are_not_shown(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Data that are stored in the run are still shown."""
    assert run_command_line(["s.json", *_QUIET]) == 0
    write(folder, seed=5, rows=2, resume="ifPossible")
    assert run_command_line(["s.json", *_QUIET]) == 0
    capfd.readouterr()
    assert run_command_line(["show", "latest~1"]) == 0
    out, _ = printed_lines(capfd)
    assert "  datasets/problems holds another dataset now" in out
    assert out[1].startswith("task problems: 6 of 7 rows written")
    shutil.rmtree(folder / "datasets")
    assert run_command_line(["show", "latest"]) == 0
    assert any("contains no readable dataset" in line for line in printed_lines(capfd)[0])


def test_a_plan_shows_columns_and_tests_that_are_rows(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """No provider is called, and no folder is created."""
    exam = {
        "id": "exam",
        "type": "prompt_eval",
        "prompts": ["{{q}}", "again: {{q}}"],
        "tests": {"fromTask": "problems", "vars": {"q": "text"}, "limit": 4},
    }
    write(folder, FLAKY, tasks=[exam], rows=12)
    assert run_command_line(["s.json", "--plan"]) == 0
    out, _ = printed_lines(capfd)
    assert out == [
        "task problems: a dataset of 12 rows in 3 groups, 30 jobs",
        "  files in datasets/problems, jsonl",
        "  column n: seed, a job a group, from nothing",
        "  column half: expression, a job a group",
        "  column text: llm, a job a row on lane writer",
        "  column twice: python, a job a row",
        "task exam, after problems: rows known when problems has ended (at most 8) in 2 columns",
        "  column 0: writer | {{q}}",
        "  column 1: writer | again: {{q}}",
        "  lane writer: 12 cells, 4 at once",
        "no lane has a rate, so the duration depends on the calls; no provider was called",
    ]
    assert not (folder / "datasets").exists()
    write(folder)
    assert run_command_line(["s.json", "--plan"]) == 0
    assert printed_lines(capfd)[0][0] == "task problems: a dataset; as many rows as n.jsonl has"
    assert run_command_line(["s.json", *_QUIET, "--filter-pattern", "x"]) == 0


def test_a_preview_shows_rows_and_stores_nothing(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It stores neither files nor a run, and generates only the dataset and the datasets that it uses."""
    more = {
        "id": "more",
        "type": "columns",
        "columns": [
            {"type": "seed", "fromTask": "problems", "columns": ["text"]},
            {"name": "long", "type": "expression", "template": "{{ text }}!"},
        ],
    }
    other = {"id": "other", "type": "prompt_eval", "prompts": ["never asked"]}
    write(folder, tasks=[more, other])
    assert run_command_line(["preview", "s.json", "--rows", "4", "--task", "more"]) == 0
    out, err = printed_lines(capfd)
    assert [line for line in out if line.startswith("task ")] == ["task problems", "task more"]
    assert [int(line[4:]) for line in out if line[4:].isdigit()] == [0, 1, 3, 0, 1, 2]
    assert "  long: About 3!" in out
    assert err[-1] == "nothing was stored; trioeval run generates all rows"
    assert not (folder / "datasets").exists()
    assert not (folder / ".trioeval" / "results.db").exists()
    assert run_command_line(["preview", "s.json", "--task", "other"]) == 2
    assert "the suite has no task other of type columns" in printed_lines(capfd)[1][0]


def test_a_preview_that_loses_rows_fails(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its exit code is that of a run that loses rows."""
    write(folder, FLAKY)
    assert run_command_line(["preview", "s.json", "--rows", "4", "--no-cache"]) == 100
    out, err = printed_lines(capfd)
    assert "  row 3: twice failed: gen.py:twice: ValueError: no [31m3" in out
    assert err[-1] == "dataset problems: 1 row lost; nothing was stored; exit 100"


def test_a_preview_has_the_numbers_of_rows_among_many_dropped_ones(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """This holds beyond the number of dropped rows that a result lists."""
    some = {"name": "some", "type": "expression", "python": "n", "dropWhen": "n < 120 or n == 122"}
    (folder / "n.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(125)))
    write(folder, columns=[COLUMNS[0], some])
    assert run_command_line(["preview", "s.json", "--rows", "125"]) == 0
    out, _ = printed_lines(capfd)
    assert [int(line[4:]) for line in out if line[4:].isdigit()] == [120, 121, 123, 124]


def test_the_id_of_a_task_cannot_control_a_terminal(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Tables of rows and of totals escape it."""
    write(folder, tasks=[{"id": "x\x1b[2Jy", "type": "prompt_eval", "prompts": ["hi"]}])
    assert run_command_line(["s.json", "--no-progress"]) == 0
    out, err = capfd.readouterr()
    assert "task x [2Jy" in out
    assert "task x [2Jy" in err
    assert "\x1b[2J" not in out + err


def test_filters_and_prefixes_do_not_affect_a_dataset(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """They apply to tests; columns find their providers whatever other providers remain."""
    flags = ("--prompt-prefix", "x", "--filter-providers", "none-of-these")
    assert run_command_line(["s.json", *_QUIET, *flags]) == 0
    capfd.readouterr()
    assert run_command_line(["show", "datasets/problems", "0"]) == 0
    assert "  About 0" in printed_lines(capfd)[0]


@pytest.mark.parametrize(
    ("named", "code", "expected"),
    [
        (("exec:true", "writer"), 0, "lane writer"),
        (("sim:m",), 0, "lane writer"),
        (("exec:true",), 2, 'unknown provider "writer"'),
    ],
)
def test_columns_find_their_providers_by_name(
    folder: Path,
    capfd: pytest.CaptureFixture[str],
    named: tuple[str, ...],
    code: int,
    expected: str,
) -> None:
    """Another list of providers changes none of the called ones, or is refused."""
    flags = [part for one in named for part in ("--providers", one)]
    assert run_command_line(["s.json", "--plan", *flags]) == code
    out, err = printed_lines(capfd)
    assert expected in "\n".join([*out, *err])
    assert (folder / "datasets").exists() is False

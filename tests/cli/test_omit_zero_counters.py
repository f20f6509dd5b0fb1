"""`--omit-zero-counters`: smaller result files, of which nothing is lost."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from trioeval.cli import run_command_line

SUITE = {
    "providers": ["echo", {"id": "sim:clever", "config": {"answer": "say it", "latencyMs": 0}}],
    "prompts": ["say {{word}}"],
    "tests": [
        {"vars": {"word": word}, "assert": [{"type": "contains", "value": "it"}]}
        for word in ("it", "no", "it")
    ],
}
RUN = ("--no-table", "--no-progress")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("suite.json").write_text(json.dumps(SUITE))
    return tmp_path


def without_stamp(file: str) -> str:
    return re.sub(r'"exportedAt": "[^"]*"', "", Path(file).read_text())


def test_files_of_a_run_and_of_an_export_are_equal() -> None:
    """Without the flag they have all counters, with it only those that are not zero."""
    assert run_command_line(["suite.json", *RUN, "-o", "a.json", "-o", "a.jsonl"]) == 100
    short = ["--omit-zero-counters", "-o", "b.json", "-o", "b.jsonl"]
    assert run_command_line(["export", *short]) == 0
    assert run_command_line(["export", "-o", "c.json", "-o", "c.jsonl"]) == 0
    assert without_stamp("a.json") == without_stamp("c.json")
    assert Path("a.jsonl").read_text() == Path("c.jsonl").read_text()
    for file in ("a.json", "a.jsonl"):
        assert Path(file).read_text().count("acceptedPrediction") > 6
        small = Path(file.replace("a", "b"))
        assert "acceptedPrediction" not in small.read_text()
        assert small.stat().st_size < 0.75 * Path(file).stat().st_size


@pytest.mark.parametrize("suffix", ["json", "jsonl"])
def test_an_imported_file_has_the_same_totals(
    capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    """Missing counters are zero again, and nothing differs in a comparison."""
    file, db = f"out.{suffix}", ("--db", "other.db")
    short = ["--omit-zero-counters", "-o", file]
    assert run_command_line(["suite.json", *RUN, *short]) == 100
    assert run_command_line(["export", "-o", "whole.json"]) == 0
    assert run_command_line(["import", file, *db]) == 0
    assert run_command_line(["export", *db, "-o", "again.json"]) == 0
    whole, again = (json.loads(Path(name).read_text()) for name in ("whole.json", "again.json"))
    assert again["results"]["results"] == whole["results"]["results"]
    assert usages(again) == usages(whole)
    assert usages(whole)[0]["total"] > 0
    capsys.readouterr()
    assert run_command_line(["show", "latest", *db]) == 0
    assert "6 rows: 5 passed, 1 failed" in capsys.readouterr().out


def usages(document: Any) -> list[Any]:
    results = document["results"]
    columns = [column["metrics"]["tokenUsage"] for column in results["prompts"]]
    return [results["stats"]["tokenUsage"], *columns]


def test_a_continued_run_writes_the_same_files() -> None:
    """The flag is kept with the run, as the names of its files are."""
    assert run_command_line(["suite.json", *RUN, "--omit-zero-counters", "-o", "a.json"]) == 100
    before = Path("a.json").read_text()
    Path("a.json").unlink()
    assert run_command_line(["resume", "--retry", "failed", *RUN]) == 100
    again = json.loads(Path("a.json").read_text())
    assert "acceptedPrediction" not in json.dumps(again)
    assert usages(again) == usages(json.loads(before))

"""Replies that were cut off at their token limit are counted in every summary, and their rows are marked."""

import json
from pathlib import Path
from typing import Any

import pytest
from page_data import PageData

from trioeval.cli import run_command_line

HINT = "2 replies were cut off at their token limit (finish_reason: length): raise max_tokens"
RECORDED = (
    {"prompt": "say a", "output": "aaa", "finish_reason": "length"},
    {"prompt": "say b", "output": "bbb", "finish_reason": "stop"},
    {
        "prompt": "say c",
        "error": {"kind": "empty_reply", "message": "the message is empty", "retries": 0},
        "finish_reason": "length",
    },
    {"prompt": "say d", "error": {"kind": "empty_reply", "message": "no text", "retries": 0}},
)


def ended(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    capsys.readouterr()
    run_command_line([*arguments])
    shown = capsys.readouterr()
    return shown.out, shown.err


def suite_of(*words: str) -> dict[str, Any]:
    tests = [
        {"vars": {"word": word}, "assert": [{"type": "contains", "value": word}]} for word in words
    ]
    return {"providers": ["replay:replies.jsonl"], "prompts": ["say {{word}}"], "tests": tests}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a suite of four rows: the replies to the first and the third one were cut off."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    Path("replies.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in RECORDED))
    Path("suite.json").write_text(json.dumps(suite_of("a", "b", "c", "d")))
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_the_end_of_a_run_counts_replies_that_were_cut_off(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The hint is on stderr, the mark in the table of rows, the number in that of columns."""
    out, err = ended(capsys, "suite.json", "--no-progress")
    assert HINT in err.splitlines()
    assert "PASS (cut off) aaa" in out
    assert "PASS bbb" in out
    assert "ERROR (cut off)" in out
    assert out.count("(cut off)") == 2
    head, line = (
        next(one for one in err.splitlines() if one.lstrip().startswith(start)).split("  ")
        for start in ("provider", "replay:")
    )
    assert "cut off" in [cell.strip() for cell in head]
    assert "2" in [cell.strip() for cell in line]


@pytest.mark.usefixtures("folder")
def test_a_stored_run_says_the_same_later(capsys: pytest.CaptureFixture[str]) -> None:
    """From its kept totals and, for a row, from its record."""
    ended(capsys, "suite.json", "--no-progress")
    out, _ = ended(capsys, "show", "latest")
    assert HINT in out.splitlines()
    assert out.count("(cut off)") == 2
    row, _ = ended(capsys, "show", "latest", "0")
    assert "cut off at its token limit" in row
    assert "cut off at its token limit" not in ended(capsys, "show", "latest", "1")[0]


@pytest.mark.usefixtures("folder")
def test_files_count_replies_that_were_cut_off(capsys: pytest.CaptureFixture[str]) -> None:
    ended(capsys, "suite.json", "--no-progress", "-o", "o.json", "-o", "o.md", "-o", "o.html")
    results = json.loads(Path("o.json").read_text())["results"]
    assert results["stats"]["cutOff"] == 2
    assert results["prompts"][0]["metrics"]["testCutOffCount"] == 2
    own = [row["metadata"]["trioeval"].get("finishReason") for row in results["results"]]
    assert own == [None, None, "length", None]
    assert f"{HINT}." in Path("o.md").read_text()
    page = PageData(Path("o.html").read_text())
    assert f"{HINT}." in page.text
    places = page.data["fields"]
    cells = [cells[0] for pack in page.packs if pack.kind == "index" for _, _, cells in pack.rows]
    marked = [cell[places.index("why")].startswith("cut off") for cell in cells]
    assert marked == [True, False, True, False]


@pytest.mark.usefixtures("folder")
def test_a_run_without_such_replies_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("suite.json").write_text(json.dumps(suite_of("b", "d")))
    out, err = ended(capsys, "suite.json", "--no-progress", "-o", "o.json")
    assert "cut off" not in out + err
    results = json.loads(Path("o.json").read_text())["results"]
    assert "cutOff" not in results["stats"]
    assert "testCutOffCount" not in results["prompts"][0]["metrics"]

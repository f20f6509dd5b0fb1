"""Configurations and the rows that promptfoo 0.123.1 makes of them, or intended differences.

Each file in `cases` is a table of one part of the format. A case names its input, and only the parts of the
output that it is about: rows are compared key by key.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import trioeval
from trioeval.cli.app import run_command_line
from trioeval.report.row import row_json
from trioeval.templates import Templates

CASES = Path(__file__).parent / "cases"


def _cases(kind: str) -> Iterator[Any]:
    for file in sorted(CASES.glob("*.json")):
        for case in json.loads(file.read_text(encoding="utf-8")):
            if case["kind"] == kind:
                # Cases with requirements start a process.
                marks = [pytest.mark.slow] if case.get("needs") else []
                yield pytest.param(case, id=f"{file.stem}-{case['id']}", marks=marks)


@attrs.frozen
class Outcome:
    """The results of a run."""

    exit_code: int
    rows: list[dict[str, Any]]
    printed: str


def write_files(case: Mapping[str, Any], folder: Path) -> None:
    """Write the files of a case to the working directory."""
    for name, text in case.get("files", {}).items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())


def run_case(case: Mapping[str, Any], folder: Path, capsys: pytest.CaptureFixture[str]) -> Outcome:
    """Run the configuration of a case as a user would."""
    write_files(case, folder)
    suite = folder / case.get("name", "suite.json")
    if "text" in case:
        suite.write_text(case["text"], encoding="utf-8")
    else:
        suite.write_text(json.dumps(case["config"]), encoding="utf-8")
    output = folder / "out.json"
    arguments = [str(suite), "-o", str(output), "--no-progress", "--no-table"]
    exit_code = run_command_line([*arguments, *case.get("args", ())])
    captured = capsys.readouterr()
    rows = json.loads(output.read_text())["results"]["results"] if output.exists() else []
    return Outcome(exit_code, rows, captured.err + captured.out)


def shown(row: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a row that a case is about."""
    found: dict[str, Any] = {}
    for key in wanted:
        match key:
            case "output":
                response = row["response"]
                found[key] = None if response is None else response["output"]
            case "prompt":
                found[key] = row["prompt"]["raw"]
            case "provider":
                found[key] = row["provider"]["label"] or row["provider"]["id"]
            case "description" | "metadata":
                found[key] = row["testCase"][key]
            case _:
                found[key] = row[key]
    return found


def judged(case: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """Return the row of an output with its assertions, as in a result file."""
    write_files(case, folder)
    test = {**case["test"], "providerOutput": case["output"]}
    document = {"providers": ["echo"], "prompts": ["p"], "tests": [test], **case.get("top", {})}
    suite = trioeval.parse_suite(document, directory=folder)
    (row,) = trio.run(trioeval.collect, suite)
    return row_json(row, "e")


def components(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the results of single assertions."""
    graded = row["gradingResult"] or {"componentResults": []}
    return [
        {
            "type": part["assertion"]["type"] if "assertion" in part else None,
            "pass": part["pass"],
            "score": pytest.approx(part["score"], abs=1e-6),
        }
        for part in graded["componentResults"]
    ]


def set_environment(case: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the switches of the case are set."""
    for name in [name for name in os.environ if name.startswith(("PROMPTFOO_", "TRIOEVAL_"))]:
        monkeypatch.delenv(name)
    for name, value in case.get("env", {}).items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("case", [*_cases("assert")])
def test_assertion(
    case: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An output with its assertions gives the verdict, or the load error, of its case."""
    set_environment(case, monkeypatch)
    expected = case["expect"]
    if "load_error" in expected:
        with pytest.raises(trioeval.SuiteError) as caught:
            judged(case, tmp_path)
        assert expected["load_error"] in str(caught.value)
        return
    row = judged(case, tmp_path)
    found = {key: row[key] for key in ("success", "failureReason") if key in expected}
    assert found == {key: expected[key] for key in found}, row["error"]
    if "score" in expected:
        assert row["score"] == pytest.approx(expected["score"], abs=1e-6), row["error"]
    if "namedScores" in expected:
        assert row["namedScores"] == pytest.approx(expected["namedScores"], abs=1e-6)
    if "components" in expected:
        assert components(row) == expected["components"], row["error"]


@pytest.mark.parametrize("case", [*_cases("template")])
def test_template(case: Mapping[str, Any]) -> None:
    """A prompt and variables give the text that promptfoo renders."""
    templates = Templates(env=case.get("env", {}))
    assert templates.render_prompt(case["prompt"], case["vars"]) == case["expect"]["output"]


@pytest.mark.slow
@pytest.mark.parametrize("case", [*_cases("suite")])
def test_suite(
    case: Mapping[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A configuration gives the rows, or the load error, of its case."""
    set_environment(case, monkeypatch)
    outcome = run_case(case, tmp_path, capsys)
    expected = case["expect"]
    if "load_error" in expected:
        assert outcome.exit_code == 2, outcome.printed
        assert not outcome.rows
        if isinstance(expected["load_error"], str):
            assert expected["load_error"] in outcome.printed
        return
    found = [
        shown(row, wanted) for row, wanted in zip(outcome.rows, expected["rows"], strict=False)
    ]
    assert found == expected["rows"], outcome.printed
    assert len(outcome.rows) == len(expected["rows"]), outcome.printed
    if "exit" in expected:
        assert outcome.exit_code == expected["exit"], outcome.printed


def test_there_are_enough_cases() -> None:
    """The table covers the format, part by part."""
    assert len([*_cases("template"), *_cases("suite")]) >= 150

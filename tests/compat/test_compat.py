"""Configurations and the rows that promptfoo 0.123.1 makes of them, or that are different on purpose.

Each file in `cases` is a table of one part. A case names what goes in, and of what comes out only what it
is about: rows are compared key by key.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from trioeval.cli.app import run_command_line
from trioeval.suite import Templates

CASES = Path(__file__).parent / "cases"


def _cases(kind: str) -> Iterator[Any]:
    for file in sorted(CASES.glob("*.json")):
        for case in json.loads(file.read_text(encoding="utf-8")):
            if case["kind"] == kind:
                yield pytest.param(case, id=f"{file.stem}-{case['id']}")


@attrs.frozen
class Outcome:
    """What a run left behind."""

    exit_code: int
    rows: list[dict[str, Any]]
    said: str


def run_case(case: Mapping[str, Any], folder: Path, capsys: pytest.CaptureFixture[str]) -> Outcome:
    """Run the configuration of a case as a user would."""
    for name, text in case.get("files", {}).items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
    suite = folder / case.get("name", "suite.json")
    if "text" in case:
        suite.write_text(case["text"], encoding="utf-8")
    else:
        suite.write_text(json.dumps(case["config"]), encoding="utf-8")
    output = folder / "out.json"
    arguments = [str(suite), "-o", str(output), "--no-progress", "--no-table"]
    exit_code = run_command_line([*arguments, *case.get("args", ())])
    said = capsys.readouterr()
    rows = json.loads(output.read_text())["results"]["results"] if output.exists() else []
    return Outcome(exit_code, rows, said.err + said.out)


def shown(row: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What of a row a case is about."""
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
    for name in [name for name in os.environ if name.startswith(("PROMPTFOO_", "TRIOEVAL_"))]:
        monkeypatch.delenv(name)
    for name, value in case.get("env", {}).items():
        monkeypatch.setenv(name, value)
    outcome = run_case(case, tmp_path, capsys)
    expected = case["expect"]
    if "load_error" in expected:
        assert outcome.exit_code == 2, outcome.said
        assert not outcome.rows
        if isinstance(expected["load_error"], str):
            assert expected["load_error"] in outcome.said
        return
    found = [
        shown(row, wanted) for row, wanted in zip(outcome.rows, expected["rows"], strict=False)
    ]
    assert found == expected["rows"], outcome.said
    assert len(outcome.rows) == len(expected["rows"]), outcome.said
    if "exit" in expected:
        assert outcome.exit_code == expected["exit"], outcome.said


def test_there_are_enough_cases() -> None:
    """The table covers the format, part by part."""
    assert len([*_cases("template"), *_cases("suite")]) >= 150

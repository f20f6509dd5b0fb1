"""Recordings contain replies, and not the work of agent programs."""

import json
from pathlib import Path

import pytest

from trioeval.cli.app import run_command_line

TASK = {"id": "t", "type": "agent", "prompts": ["p"], "tests": [{"id": "a"}]}
SAID = "exec:touch DONE is an agent program, whose work is more than replies"


@pytest.fixture(autouse=True)
def _suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    suite = {"providers": ["exec:touch DONE"], "tasks": [TASK]}
    Path("s.json").write_text(json.dumps(suite))
    Path("r.jsonl").touch()


def test_a_program_is_left_out_of_a_recording(capsys: pytest.CaptureFixture[str]) -> None:
    """A warning reports it, and the run continues."""
    flags = ("--plan", "--record", "new.jsonl")
    assert run_command_line(["s.json", *flags]) == 0
    assert f"warning: --record leaves out programs: {SAID}\n" in capsys.readouterr().err


def test_a_recording_cannot_replace_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    """Replaying it would be a model without replies."""
    assert run_command_line(["s.json", "--plan", "--replay", "r.jsonl"]) == 2
    assert f"--replay: {SAID}; run its task without --replay" in capsys.readouterr().err

"""The arguments that a program gets for a row, compared with those of promptfoo for the same suite."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from trioeval.loading.load import parse_suite
from trioeval.run import Row, prepare, run_suite

pytestmark = pytest.mark.slow


def arguments_of(folder: Path, suite: dict[str, Any]) -> list[str]:
    """Return the arguments of the only call of a suite."""
    program = folder / "program.sh"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    rows: list[Row] = []

    async def emit(row: Row) -> None:
        await trio.lowlevel.checkpoint()
        rows.append(row)

    async def main() -> None:
        with trio.fail_after(60):
            await run_suite(
                prepare(parse_suite(suite, directory=folder)), emit=emit, run_id="eval-1"
            )

    trio.run(main)
    (row,) = rows
    assert row.reply is not None, row.error
    return str(row.reply.output).split("\n")


def test_a_program_sees_the_template_the_test_and_the_options(tmp_path: Path) -> None:
    """The members and their values are those that promptfoo 0.123.1 passed for this suite."""
    prompt, options, context = arguments_of(
        tmp_path,
        {
            "prompts": ["Say {{x}} please"],
            "providers": [{"id": "exec:./program.sh", "label": "lab", "config": {"style": "dry"}}],
            "tests": [
                {
                    "description": "d",
                    "vars": {"x": "it"},
                    "options": {"tone": 3},
                    "metadata": {"m": 1},
                    "assert": [{"type": "contains", "value": "it"}],
                }
            ],
        },
    )
    assert prompt == "Say it please"
    assert json.loads(options) == {
        "id": "exec:./program.sh",
        "config": {"basePath": str(tmp_path), "style": "dry", "tone": 3},
    }
    assert json.loads(context) == {
        "vars": {
            "x": "it",
            "__evalId": "eval-1",
            "__evalStepId": "test-0-prompt-0-repeat-0",
            "__repeatIndex": 0,
        },
        "prompt": {
            "raw": "Say {{x}} please",
            "template": "Say {{x}} please",
            "label": "Say {{x}} please",
            "config": {"tone": 3},
        },
        "test": {
            "description": "d",
            "vars": {"x": "it"},
            "options": {"tone": 3},
            "metadata": {"m": 1},
            "assert": [{"type": "contains", "value": "it"}],
        },
        "evaluationId": "eval-1",
        "testIdx": 0,
        "promptIdx": 0,
        "repeatIndex": 0,
    }


def test_the_test_of_the_context_includes_the_defaults(tmp_path: Path) -> None:
    """`defaultTest` is merged into the test, as in promptfoo."""
    context = arguments_of(
        tmp_path,
        {
            "prompts": ["{{x}}"],
            "providers": ["exec:./program.sh"],
            "defaultTest": {"metadata": {"day": 1}, "vars": {"x": "a"}},
            "tests": [{"vars": {"y": "b"}}],
        },
    )[2]
    test = json.loads(context)["test"]
    assert test["vars"] == {"x": "a", "y": "b"}
    assert test["metadata"] == {"day": 1}

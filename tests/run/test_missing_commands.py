"""Commands of assertions with a missing program are reported before an agent works."""

import os
from typing import Any

import pytest

import trioeval
from trioeval.errors import SuiteError
from trioeval.run import prepare


def suite_of(*values: Any, **more: Any) -> trioeval.Suite:
    asserted = [{"type": "command", "value": value} for value in values]
    test = {"id": "a", "assert": asserted}
    task = {"id": "t", "type": "agent", "prompts": ["p"], "tests": [test], **more}
    return trioeval.parse_suite({"providers": ["exec:true"], "tasks": [task]})


def test_a_command_that_is_not_in_path_is_refused_with_its_position() -> None:
    """Each of them is refused, in any form, also in a set."""
    inside = {"type": "assert-set", "assert": [{"type": "not-command", "value": "pyhton -V"}]}
    suite = suite_of(
        "pytset -q",
        ["gcc-not-installed", "x"],
        {"command": "moon {{x}}"},
        defaultTest={"assert": [inside]},
    )
    with pytest.raises(SuiteError) as caught:
        prepare(suite)
    assert [(one.path, one.message) for one in caught.value.problems] == [
        (
            "$.tasks[0].defaultTest.assert[0].assert[0].value",
            'program "pyhton" not found in PATH',
        ),
        ("$.tasks[0].tests[0].assert[0].value", 'program "pytset" not found in PATH'),
        ("$.tasks[0].tests[0].assert[1].value", 'program "gcc-not-installed" not found in PATH'),
        ("$.tasks[0].tests[0].assert[2].value", 'program "moon" not found in PATH'),
    ]


def test_commands_that_may_exist_later_are_not_refused() -> None:
    """Such are files that an agent creates, commands with variables, and programs on an own PATH."""
    path = f"/nowhere{os.pathsep}/elsewhere"
    prepare(
        suite_of(
            *("./made-by-the-agent", "bin/tool", "{{tool}} -q", "to{{x}}ol", "true"),
            *(["{{tool}}"], {"command": "mine", "env": {"PATH": path}}),
        )
    )

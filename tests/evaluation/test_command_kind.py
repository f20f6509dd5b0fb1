"""Commands that judge what an agent has left in its workspace: real processes, all of which end."""

import os
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from processes import alive

from trioeval.documents.files import FileContext
from trioeval.errors import GradingError
from trioeval.evaluation.grader_calls import gather_in_order
from trioeval.evaluation.judge_services import open_judge_services
from trioeval.grading import KINDS, Assertion, Finding, Subject
from trioeval.grading.grade import check_assertion, make_ready, with_code_as_written
from trioeval.grading.kind import ExternalJudge
from trioeval.grading.services import ExternalServices, Grader, ScriptRunner

pytestmark = pytest.mark.slow  # processes


def found(workspace: Path, value: Any, environ: Mapping[str, str] | None = None) -> Finding:
    """Return the result of a command in a workspace, after checking that no process is left."""
    mark = uuid.uuid4().hex
    whole = {**os.environ, **(environ or {}), "OUR_MARK": mark}
    context = FileContext(directory=workspace.parent, environ=whole)
    judge = KINDS["command"].judge
    assert isinstance(judge, ExternalJudge)

    async def main() -> Finding:
        with trio.fail_after(60):
            async with open_judge_services(context) as means:
                outside = ExternalServices(
                    grader=cast("Grader", None),
                    code=cast("ScriptRunner", None),
                    post=means.webhooks.post,
                    run=means.commands,
                    together=gather_in_order,
                )
                subject = Subject.of("", workspace=workspace)
                return await judge.judge(subject, value, Assertion(type="command"), outside)

    told = trio.run(main)
    assert not alive(mark)
    return told


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """An empty one."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def test_a_command_that_ends_well_holds(workspace: Path) -> None:
    """It runs in the workspace, with the environment of the suite's code and its paths."""
    script = "import os; print(os.getcwd(), os.environ['A'], os.environ['TRIOEVAL_SUITE'])"
    told = found(workspace, {"command": [sys.executable, "-c", script], "env": {"A": "b c"}})
    assert told.holds
    output = f"{workspace} b c {workspace.parent}"
    assert told.reason.endswith(f" ended with exit code 0:\n{output}")
    assert told.metadata["command"] == {"exitCode": 0, "output": output}


def test_a_text_is_split_into_words_and_no_shell_runs(workspace: Path) -> None:
    """Quotes are those of a shell; what a shell would make of the rest stays as it is."""
    told = found(workspace, "echo 'a  b' $HOME > x")
    assert told.reason == "\"echo 'a  b' '$HOME' '>' x\" ended with exit code 0:\na  b $HOME > x"
    assert not list(workspace.iterdir())


def test_a_command_that_fails_tells_its_last_lines(workspace: Path) -> None:
    """At most ten lines of both outputs, in the order of arrival."""
    script = "for n in $(seq 20); do echo $n; done; echo bad >&2; exit 3"
    told = found(workspace, ["sh", "-c", script])
    assert not told.holds
    assert told.invertible
    lines = told.reason.splitlines()
    assert lines[0].endswith("ended with exit code 3:")
    assert lines[1:] == [*map(str, range(12, 21)), "bad"]


def test_another_exit_code_may_be_wanted(workspace: Path) -> None:
    """With another code configured, 0 is a failure."""
    assert found(workspace, {"command": "sh -c 'exit 3'", "exitCode": 3}).holds
    told = found(workspace, {"command": "true", "exitCode": 3})
    assert (told.holds, told.reason) == (False, '"true" ended with exit code 0, expected 3')


def test_a_command_that_hangs_is_ended_with_all_that_it_started(workspace: Path) -> None:
    """A missing program of the workspace is a failure of the agent, under `not-` as well."""
    script = "setsid sleep 60 & sleep 60 & echo started; sleep 60"
    told = found(workspace, {"command": ["sh", "-c", script], "timeoutMs": 300})
    assert (told.holds, told.invertible) == (False, False)
    assert "did not end within 0.3 seconds (timeoutMs):\nstarted" in told.reason


def test_a_command_that_is_killed_is_no_verdict(workspace: Path) -> None:
    """It fails, under `not-` as well: a killed command has no result."""
    told = found(workspace, ["sh", "-c", "kill -9 $$"])
    assert (told.holds, told.invertible) == (False, False)


def test_what_a_command_leaves_behind_is_ended(workspace: Path) -> None:
    """Although it holds the pipe open."""
    told = found(workspace, ["sh", "-c", "sleep 60 & echo over"])
    assert told.metadata["command"] == {"exitCode": 0, "output": "over"}


def test_a_program_that_the_agent_was_to_make_is_its_failure(workspace: Path) -> None:
    """A program that is missing on this machine is an error, not a verdict."""
    told = found(workspace, "./check.sh now")
    assert (told.holds, told.invertible) == (False, False)
    assert told.reason == '"./check.sh now" cannot be started: No such file or directory'
    with pytest.raises(
        GradingError, match='program "no-such-program" not found in PATH: install it'
    ):
        found(workspace, "no-such-program now")
    with pytest.raises(GradingError, match='"true" cannot be started: embedded null byte'):
        found(workspace, ["true", "\0"])
    with pytest.raises(GradingError, match="cannot be split into words"):
        found(workspace, "true 'x")


def test_commands_have_no_keys_but_those_that_the_assertion_gives(workspace: Path) -> None:
    """They run what an agent wrote; what is a key is hidden wherever it was found, and no word is."""
    script = "echo ${MY_API_KEY-none} ${SESSION_CLASS-none} $OTHER_TOKEN user sk-0123456789"
    value = {"command": ["sh", "-c", script], "env": {"OTHER_TOKEN": "tok-en"}}
    told = found(workspace, value, {"MY_API_KEY": "sk-0123456789", "SESSION_CLASS": "user"})
    assert told.metadata["command"]["output"] == "none none [hidden] user [hidden]"
    assert "sk-0123456789" not in told.reason


def test_a_workspace_that_is_gone_is_the_failure_of_its_agent(workspace: Path) -> None:
    """The program is there."""
    workspace.rmdir()
    told = found(workspace, "true")
    assert (told.holds, told.invertible) == (False, False)
    assert told.reason == '"true" cannot run: the workspace no longer exists'


def test_only_the_end_of_much_output_is_kept(workspace: Path) -> None:
    """Two kilobytes, from the beginning of a line."""
    told = found(workspace, ["sh", "-c", "seq 100000"])
    output = told.metadata["command"]["output"]
    assert len(output) <= 2048
    assert output.endswith("\n99999\n100000")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("", ".value: must be a command line"),
        (["", "x"], ".value: must be a command line"),
        ({"command": "x", "timeout": 3}, ".value: must be a command line"),
        ({"command": "x", "timeoutMs": 0}, ".value: must be a command line"),
        ({"command": "x", "exitCode": 256}, ".value: must be a command line"),
        ({"command": "x", "env": {"A": 1}}, ".value: must be a command line"),
        (
            "echo 'a",
            '.value: "echo \'a" cannot be split into words: no closing quotation\n  close the quote',
        ),
        ({"command": "echo 'a"}, '.value.command: "echo \'a" cannot be split into words'),
        ("'' a", ".value: \"'' a\" has no program"),
    ],
)
def test_mistakes_are_told_before_a_run(value: Any, told: str) -> None:
    """With the key that is wrong."""
    (problem,) = check_assertion(Assertion(type="command", value=value))
    assert str(problem).startswith(told)


def test_a_template_is_split_when_it_is_rendered() -> None:
    """Its contents are known only then."""
    assert not list(check_assertion(Assertion(type="command", value="python '{{file}}")))


def test_without_a_workspace_no_command_runs() -> None:
    """It would run who knows where."""
    judge = KINDS["command"].judge
    assert isinstance(judge, ExternalJudge)
    outside = cast("ExternalServices", None)
    with pytest.raises(GradingError, match="only outputs of tasks of type agent have a workspace"):
        trio.run(judge.judge, Subject.of(""), "true", Assertion(type="command"), outside)


def test_commands_are_not_made_of_what_models_wrote() -> None:
    """In rows that are data a command stands as it is, in an object as well; words of a list are words."""
    values = ["python {{x}}", {"command": "python {{x}}", "env": {}}, ["python", "{{x}}"]]
    written = with_code_as_written(
        [Assertion(type="command", value=value) for value in values], KINDS
    )
    ready = [make_ready(one, lambda _: "; rm", KINDS).value for one in written]
    assert ready == [values[0], values[1], ["; rm", "; rm"]]

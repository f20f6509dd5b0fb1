"""Commands that judge the workspace of an agent: real processes, all of which end."""

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

    result = trio.run(main)
    assert not alive(mark)
    return result


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """An empty folder."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def test_a_command_that_succeeds_passes(workspace: Path) -> None:
    """It runs in the workspace, with the environment of the suite's code and its paths."""
    script = "import os; print(os.getcwd(), os.environ['A'], os.environ['TRIOEVAL_SUITE'])"
    result = found(workspace, {"command": [sys.executable, "-c", script], "env": {"A": "b c"}})
    assert result.holds
    output = f"{workspace} b c {workspace.parent}"
    assert result.reason.endswith(f" ended with exit code 0:\n{output}")
    assert result.metadata["command"] == {"exitCode": 0, "output": output}


def test_a_text_is_split_into_words_and_no_shell_runs(workspace: Path) -> None:
    """Quotes are those of a shell; other shell syntax is unchanged."""
    result = found(workspace, "echo 'a  b' $HOME > x")
    assert result.reason == "\"echo 'a  b' '$HOME' '>' x\" ended with exit code 0:\na  b $HOME > x"
    assert not list(workspace.iterdir())


def test_a_failed_command_shows_its_last_lines(workspace: Path) -> None:
    """The reason has at most ten lines of both outputs, in the order of arrival."""
    script = "for n in $(seq 20); do echo $n; done; echo bad >&2; exit 3"
    result = found(workspace, ["sh", "-c", script])
    assert not result.holds
    assert result.invertible
    lines = result.reason.splitlines()
    assert lines[0].endswith("ended with exit code 3:")
    assert lines[1:] == [*map(str, range(12, 21)), "bad"]


def test_another_exit_code_may_be_expected(workspace: Path) -> None:
    """With another code configured, 0 is a failure."""
    assert found(workspace, {"command": "sh -c 'exit 3'", "exitCode": 3}).holds
    result = found(workspace, {"command": "true", "exitCode": 3})
    assert (result.holds, result.reason) == (False, '"true" ended with exit code 0, expected 3')


def test_a_command_that_hangs_is_ended_with_its_descendants(workspace: Path) -> None:
    """A missing program of the workspace is a failure of the agent, under `not-` as well."""
    script = "setsid sleep 60 & sleep 60 & echo started; sleep 60"
    result = found(workspace, {"command": ["sh", "-c", script], "timeoutMs": 300})
    assert (result.holds, result.invertible) == (False, False)
    assert "did not end within 0.3 seconds (timeoutMs):\nstarted" in result.reason


def test_a_killed_command_gives_no_verdict(workspace: Path) -> None:
    """It fails, under `not-` as well: a killed command has no result."""
    result = found(workspace, ["sh", "-c", "kill -9 $$"])
    assert (result.holds, result.invertible) == (False, False)


def test_background_processes_of_a_command_are_ended(workspace: Path) -> None:
    """This includes a process that holds the pipe open."""
    result = found(workspace, ["sh", "-c", "sleep 60 & echo over"])
    assert result.metadata["command"] == {"exitCode": 0, "output": "over"}


def test_a_missing_program_of_the_workspace_is_a_failure_of_the_agent(workspace: Path) -> None:
    """A program that is missing on this machine is an error, not a verdict."""
    result = found(workspace, "./check.sh now")
    assert (result.holds, result.invertible) == (False, False)
    assert result.reason == '"./check.sh now" cannot be started: No such file or directory'
    with pytest.raises(
        GradingError, match='program "no-such-program" not found in PATH: install it'
    ):
        found(workspace, "no-such-program now")
    with pytest.raises(GradingError, match='"true" cannot be started: embedded null byte'):
        found(workspace, ["true", "\0"])
    with pytest.raises(GradingError, match="cannot be split into words"):
        found(workspace, "true 'x")


def test_commands_get_only_the_keys_of_the_assertion(workspace: Path) -> None:
    """They run code of an agent; values of keys are hidden everywhere, and ordinary words are not."""
    script = "echo ${MY_API_KEY-none} ${SESSION_CLASS-none} $OTHER_TOKEN user sk-0123456789"
    value = {"command": ["sh", "-c", script], "env": {"OTHER_TOKEN": "tok-en"}}
    result = found(workspace, value, {"MY_API_KEY": "sk-0123456789", "SESSION_CLASS": "user"})
    assert result.metadata["command"]["output"] == "none none [hidden] user [hidden]"
    assert "sk-0123456789" not in result.reason


def test_a_missing_workspace_is_a_failure_of_its_agent(workspace: Path) -> None:
    """The program of the command exists."""
    workspace.rmdir()
    result = found(workspace, "true")
    assert (result.holds, result.invertible) == (False, False)
    assert result.reason == '"true" cannot run: the workspace no longer exists'


def test_only_the_end_of_a_long_output_is_kept(workspace: Path) -> None:
    """It has two kilobytes, from the beginning of a line."""
    result = found(workspace, ["sh", "-c", "seq 100000"])
    output = result.metadata["command"]["output"]
    assert len(output) <= 2048
    assert output.endswith("\n99999\n100000")


@pytest.mark.parametrize(
    ("value", "message"),
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
def test_errors_of_a_command_are_reported_before_a_run(value: Any, message: str) -> None:
    """The message names the wrong key."""
    (problem,) = check_assertion(Assertion(type="command", value=value))
    assert str(problem).startswith(message)


def test_a_template_is_split_when_it_is_rendered() -> None:
    """Its contents are known only then."""
    assert not list(check_assertion(Assertion(type="command", value="python '{{file}}")))


def test_without_a_workspace_no_command_runs() -> None:
    """Its working directory would be unknown."""
    judge = KINDS["command"].judge
    assert isinstance(judge, ExternalJudge)
    outside = cast("ExternalServices", None)
    with pytest.raises(GradingError, match="only outputs of tasks of type agent have a workspace"):
        trio.run(judge.judge, Subject.of(""), "true", Assertion(type="command"), outside)


def test_commands_are_not_made_of_outputs() -> None:
    """In rows that are data a command is used unchanged, also in an object; items of a list stay items."""
    values = ["python {{x}}", {"command": "python {{x}}", "env": {}}, ["python", "{{x}}"]]
    written = with_code_as_written(
        [Assertion(type="command", value=value) for value in values], KINDS
    )
    ready = [make_ready(one, lambda _: "; rm", KINDS).value for one in written]
    assert ready == [values[0], values[1], ["; rm", "; rm"]]

import json
import math
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from agent_processes import (
    SCRIPTED,
    Rig,
    attempt,
    carriers,
    in_rig,
    make_pipe,
    read_pipe,
    room,
    scripted,
    settings,
    work_once,
)
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from trioeval.agent.case_folder import CaseFiles
from trioeval.agent.loop import run_until_done
from trioeval.agent.model import AgentSettings
from trioeval.agent.report_file import (
    LARGEST,
    AttemptReport,
    read_report,
    read_report_file,
    set_aside,
)
from trioeval.agent.restarts import CONTINUATION, AttemptEnd, AttemptFailure, RestartPolicy
from trioeval.documents.files import FileContext
from trioeval.evaluation.providers import Resolver
from trioeval.providers import Usage
from trioeval.providers.programs.entries import CommandAgentSettings
from trioeval.providers.programs.exec import ExecSettings
from trioeval.suite.model import PromptEvalSettings, ProviderEntry, Suite, TaskSettings
from trioeval.templates import Templates


def failure(end: AttemptEnd) -> AttemptFailure:
    assert end.failure is not None
    return end.failure


def test_the_standard_output_of_an_agent_is_its_output(tmp_path: Path) -> None:
    """The output is in its logs as well, with the standard error beside it."""
    end = work_once(scripted("say:hello", "warn:careful", "say:there"), tmp_path)
    assert (end.output, end.failure, end.exit_code) == ("hello\nthere", None, 0)
    assert end.duration_s > 0
    files = CaseFiles(tmp_path)
    assert end.metadata == {"stdout": str(files.stdout(0)), "stderr": str(files.stderr(0))}
    assert files.stdout(0).read_text() == "hello\nthere\n"
    assert files.stderr(0).read_text() == "careful\n"


def test_arguments_are_rendered_separately(tmp_path: Path) -> None:
    """The value of a variable never becomes two arguments, and is not rendered as a template itself."""
    line = (
        'sh -c \'printf "%s|" "$PWD" "$@"\' sh {{ prompt }} \'{{ style }} of {{case}}\' {{attempt}} '
        "{{promptFile}} {{workspace}} {{suite}} {{missing}}"
    )
    end = work_once(
        line, tmp_path, "one {{ two }}", variables={"style": "a b; c", "prompt": "mine"}
    )
    files = CaseFiles(tmp_path)
    assert end.output.split("|") == [
        str(files.workspace),
        "one {{ two }}",
        "a b; c of calc",
        "0",
        str(files.attempt_prompt(0)),
        str(files.workspace),
        str(SCRIPTED),
        "",
        "",
    ]


def test_the_environment_describes_the_case(tmp_path: Path) -> None:
    """It contains the variables of the config, which cannot override it."""
    line = 'sh -c \'env | grep ^TRIOEVAL_; echo $MINE; "$TRIOEVAL_PYTHON" -S -E -c ""\''
    env = {"MINE": "x y", "TRIOEVAL_CASE": "another"}
    variables_text, mine = work_once(line, tmp_path, number=2, env=env).output.rsplit("\n", 1)
    variables = dict(each.split("=", 1) for each in variables_text.split("\n"))
    files = CaseFiles(tmp_path)
    assert mine == "x y"
    assert len(variables.pop("TRIOEVAL_TREE")) == 32
    assert Path(variables.pop("TRIOEVAL_PYTHON")).is_file()
    assert variables == {
        "TRIOEVAL_PROMPT": str(files.attempt_prompt(2)),
        "TRIOEVAL_WORKSPACE": str(files.workspace),
        "TRIOEVAL_DONE": str(files.done),
        "TRIOEVAL_BUS": str(files.bus),
        "TRIOEVAL_PROJECT": "run-1",
        "TRIOEVAL_CASE": "calc",
        "TRIOEVAL_RUN": "r2",
        "TRIOEVAL_ATTEMPT": "2",
        "TRIOEVAL_REPORT": str(files.report(2)),
    }


def test_a_later_attempt_gets_a_continuation_note(tmp_path: Path) -> None:
    """The note is in the file, on the standard input and in the argument."""
    line = 'sh -c \'cat; echo; echo "$1"; cat "$TRIOEVAL_PROMPT"\' sh {{prompt}}'
    end = work_once(line, tmp_path, "Do it.", number=1, input="stdin")
    assert end.output.split("\n") == [CONTINUATION, "", "Do it."] * 3


@pytest.mark.parametrize("text", ["x" * 200_000, "a\0b", "a\ud800b"], ids=["long", "NUL", "half"])
def test_a_prompt_that_is_not_an_argument_can_be_read_from_its_file(
    tmp_path: Path, text: str
) -> None:
    """It can also be read from standard input; an invalid argument is a failure with a hint."""
    prompt_bytes = text.replace("\ud800", "?").encode()
    end = work_once(
        "sh -c 'cat >copy; cmp copy \"$1\"' sh {{promptFile}}", tmp_path, text, input="stdin"
    )
    assert end.failure is None
    assert CaseFiles(tmp_path).attempt_prompt(0).read_bytes() == prompt_bytes
    assert (tmp_path / "workspace" / "copy").read_bytes() == prompt_bytes
    end = work_once("true {{prompt}}", tmp_path, text)
    if "\ud800" in text:
        assert end.failure is None
    else:
        assert failure(end).kind == "invalid"
        assert failure(end).message.endswith("; pass {{promptFile}} instead of {{prompt}}")
        assert (end.output, end.exit_code) == ("", None)


def test_a_program_need_not_read_its_input(tmp_path: Path) -> None:
    """This holds for any amount of input."""
    assert work_once("echo hi", tmp_path, "x" * 300_000, input="stdin").output == "hi"


def test_ag_09_a_missing_program_is_tried_once(tmp_path: Path) -> None:
    """Another attempt would not find it either."""
    program = tmp_path / "agent"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    found = settings("./agent", tmp_path)
    program.unlink()

    async def work(rig: Rig) -> None:
        end = await run_until_done(rig.agent, rig.terms())
        assert (end.ending, end.gave_up, len(end.attempts)) == ("failed", "permanent", 1)
        message = 'program "./agent" not found, or the interpreter in its first line'
        assert end.attempts[0].failure == AttemptFailure("not_found", message)
        assert rig.ledger.records == [("begins", 0), ("durable", -1), ("gone", 0)]

    in_rig(found, tmp_path / "case", work)


@pytest.mark.parametrize(
    ("first_line", "mode", "message"),
    [
        (
            "#!/no/such/shell",
            0o755,
            'program "./agent" not found, or the interpreter in its first line',
        ),
        ("#!/bin/sh", 0o644, 'program "./agent" cannot be started: Permission denied'),
        ("", 0o755, 'program "./agent" cannot be started: Exec format error'),
    ],
)
def test_a_program_that_cannot_be_run_fails_with_the_reason(
    tmp_path: Path, first_line: str, mode: int, message: str
) -> None:
    """The failure is permanent: its cause does not change by itself."""
    program = tmp_path / "agent"
    program.write_text(f"{first_line}\n")
    program.chmod(0o755)
    found = settings("./agent", tmp_path)
    program.chmod(mode)

    async def work(rig: Rig) -> AttemptEnd:
        return await rig.agent(attempt())

    end = in_rig(found, tmp_path / "case", work)
    assert failure(end).message == message
    assert failure(end).is_permanent


def test_a_missing_workspace_is_not_reported_as_a_missing_program(tmp_path: Path) -> None:
    """An agent may have removed it."""

    async def work(rig: Rig) -> AttemptEnd:
        shutil.rmtree(tmp_path / "workspace")
        return await rig.agent(attempt())

    end = in_rig(settings("true"), tmp_path, work)
    message = f"its workspace {tmp_path}/workspace no longer exists"
    assert end.failure == AttemptFailure("invalid", message)


def test_an_argument_that_cannot_be_rendered_is_a_permanent_failure(tmp_path: Path) -> None:
    """Rendering would fail again the next time."""
    end = work_once("true '{{ names() }}'", tmp_path, variables={"names": [1]})
    assert failure(end).kind == "invalid"
    assert failure(end).message.startswith("the command cannot be rendered: ")


@pytest.mark.parametrize(
    ("step", "kind", "message", "code"),
    [
        ("exit:3", "exit", "ended with exit code 3: no luck", 3),
        ("kill:9", "killed", "was ended by SIGKILL", -9),
    ],
)
def test_a_failure_reports_exit_and_standard_error(
    tmp_path: Path, step: str, kind: str, message: str, code: int
) -> None:
    """The message has the last line of its standard error, and the output is kept."""
    end = work_once(scripted("say:half", "warn:first", "warn:no luck", step), tmp_path)
    assert (failure(end).kind, failure(end).message) == (kind, message)
    assert (end.exit_code, end.output, failure(end).is_permanent) == (code, "half", False)


def test_standard_error_is_read_before_a_failure_is_classified(tmp_path: Path) -> None:
    """Regression: the last output of a quick program sometimes arrived too late, and failures differed."""
    policy = RestartPolicy(max_attempts=5, delay=0, identical_failures=3)

    async def work(rig: Rig) -> None:
        ended = await run_until_done(rig.agent, rig.terms(policy=policy))
        assert ended.gave_up == "identical_failures"
        assert len(ended.attempts) == 3
        assert all(failure(end).message.endswith(": x") for end in ended.attempts)

    for place in range(5):
        in_rig(settings("sh -c 'echo x >&2; exit 3'"), tmp_path / str(place), work)


def test_other_exit_codes_may_be_successes(tmp_path: Path) -> None:
    """The config may list successful codes; a signal is never one."""
    assert work_once(scripted("exit:3"), tmp_path, successExitCodes=[3, 9]).failure is None
    assert failure(work_once(scripted("kill:9"), tmp_path, successExitCodes=[9])).kind == "killed"


@pytest.mark.slow
def test_an_attempt_that_exceeds_its_time_is_ended_with_its_processes(tmp_path: Path) -> None:
    """The time of its entry overrides that of the task; its output is kept."""
    line = scripted("say:half", "leave:session", "open:../ready", "hang")

    async def work(rig: Rig) -> AttemptEnd:
        make_pipe(tmp_path / "ready")
        clock_stood = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_pipe, tmp_path / "ready")
            end = await rig.agent(attempt())
        assert trio.current_time() - clock_stood < 20
        assert rig.family.alive() == []
        assert rig.ledger.records[-1] == ("gone", 0)
        return end

    found = settings(line, mark="late-agents", timeoutMs=400)
    end = in_rig(found, tmp_path, work, limit=1000)
    assert end.failure == AttemptFailure("timeout", "did not end within 0.4 seconds")
    assert (end.output, end.exit_code) == ("half", -signal.SIGTERM)
    assert carriers("late-agents") == []


def test_the_task_limits_attempts_of_entries_without_a_limit(tmp_path: Path) -> None:
    """The limit is in seconds."""
    end = work_once(scripted("hang"), tmp_path, limit=0.05)
    assert failure(end).message == "did not end within 0.05 seconds"


def test_excessive_output_is_truncated_without_blocking(tmp_path: Path) -> None:
    """The program continues, and its end is reported."""
    line = scripted("say:begin", "spam:300000", "warn:oh", "exit:2")
    end = work_once(line, tmp_path, maxOutputBytes=1000)
    log = CaseFiles(tmp_path).stdout(0)
    assert end.output == f"begin\n{'x' * 994}"
    assert log.read_text() == f"begin\n{'x' * 994}\n[cut after 1000 bytes (maxOutputBytes)]\n"
    assert end.metadata["warnings"] == [f"{log} was cut after 1000 bytes"]
    assert failure(end).message == "ended with exit code 2: oh"
    end = work_once(scripted("say:1234"), tmp_path, number=1, maxOutputBytes=5)
    assert "warnings" not in end.metadata


def test_a_write_to_dev_stderr_does_not_truncate_the_log(tmp_path: Path) -> None:
    """The log is a pipe: a file would be truncated."""
    line = "sh -c 'echo one >&2; echo two >/dev/stderr; echo three; echo four >/dev/stdout'"
    assert work_once(line, tmp_path).output == "three\nfour"
    assert CaseFiles(tmp_path).stderr(0).read_text() == "one\ntwo\n"


def test_a_repeated_attempt_appends_to_the_log_of_the_interrupted_one(
    tmp_path: Path,
) -> None:
    """It has its own output and its own report."""
    work_once(scripted("say:first", 'report:{"output": "old", "cost": 1}'), tmp_path)
    end = work_once(scripted("say:second"), tmp_path)
    assert (end.output, end.cost) == ("second", None)
    assert CaseFiles(tmp_path).stdout(0).read_text() == "first\nsecond\n"


def test_a_log_path_that_is_not_a_file_is_an_error_without_blocking(tmp_path: Path) -> None:
    """This holds for any program."""
    files = CaseFiles(tmp_path)
    files.logs.mkdir()
    make_pipe(files.stdout(0))
    end = work_once("echo hi", tmp_path)
    assert failure(end).kind == "unexpected"
    assert failure(end).message.startswith("the files of the attempt cannot be written: ")
    (tmp_path / "elsewhere").write_text("mine")
    files.stdout(1).symlink_to(tmp_path / "elsewhere")
    assert failure(work_once("echo hi", tmp_path, number=1)).kind == "unexpected"
    assert (tmp_path / "elsewhere").read_text() == "mine"


def test_usage_of_an_interrupted_attempt_counts(tmp_path: Path) -> None:
    """It is repeated with the same number any number of times; its own report is read as usual."""
    line = scripted('report:{"tokens": 500, "cost": 0.5, "output": "new"}')
    files = CaseFiles(tmp_path)
    again = attrs.evolve(attempt(1), is_resumed=True)

    async def work(rig: Rig) -> AttemptEnd:
        for report in ('{"tokens": {"total": 70}, "output": "old"}', '{"cost": 2}', "{nope"):
            set_aside(files, 1)
            files.report(1).write_text(report)
        return await rig.agent(again)

    files.logs.mkdir(parents=True)
    end = in_rig(settings(line), tmp_path, work)
    assert (end.output, end.usage, end.cost) == ("new", Usage(total=570), 2.5)
    assert end.metadata["cutOff"] == 3


def test_a_report_provides_usage_and_output(tmp_path: Path) -> None:
    """Its output replaces the standard output."""
    report = {
        "output": {"answer": [42]},
        "tokens": {"prompt": 10, "completion": 5, "total": 16, "cached": 2},
        "cost": 0.25,
    }
    end = work_once(scripted("say:noise", f"report:{json.dumps(report)}"), tmp_path)
    assert (end.output, end.failure, end.cost) == ({"answer": [42]}, None, 0.25)
    assert end.usage == Usage(prompt=10, completion=5, total=16, cached=2)


@pytest.mark.parametrize("step", ["exit:0", "exit:1", "kill:15"])
def test_an_error_in_the_report_overrides_the_exit_code(tmp_path: Path, step: str) -> None:
    """The program has the most precise information."""
    report = 'report:{"error": {"kind": "auth", "message": "the key was refused"}}'
    end = work_once(scripted(report, step), tmp_path)
    assert end.failure == AttemptFailure("auth", "the key was refused")
    assert failure(end).is_permanent


@pytest.mark.parametrize(
    ("settings", "kind"),
    [(AgentSettings(), CommandAgentSettings), (PromptEvalSettings(), ExecSettings)],
)
def test_programs_are_agents_only_in_tasks_of_agents(
    tmp_path: Path, settings: TaskSettings, kind: type
) -> None:
    """Elsewhere the same entry is a provider."""
    entry = ProviderEntry(id="exec:sh -c {{prompt}}")
    suite = Suite(prompts=(), providers=(entry,), settings=settings, directory=tmp_path)
    context = FileContext(directory=tmp_path, environ=os.environ)
    find = Resolver(suite=suite, context=context, templates=Templates(), custom={})
    assert isinstance(find(entry).settings, kind)


def test_the_shell_agent_is_done_in_its_last_attempt(tmp_path: Path) -> None:
    """All its restarts are run."""

    async def work(rig: Rig) -> None:
        end = await run_until_done(rig.agent, rig.terms())
        assert end.message == "done after 3 attempts"
        assert [one.failure is None for one in end.attempts] == [False, False, True]
        assert end.attempts[0].failure == AttemptFailure("exit", "ended with exit code 1: not yet")
        last = end.attempts[-1]
        assert (last.output, last.usage.total, last.cost) == ("done at last", 5, 0.5)
        steps = ["begins", "durable", "started", "gone"]
        assert [word for word, _ in rig.ledger.records] == steps * 3

    in_rig(settings("./agent.sh 2"), tmp_path, work)
    prompt = (tmp_path / "workspace" / "prompt.txt").read_text()
    assert prompt == f"{CONTINUATION}\n\nDo it."


@pytest.mark.parametrize(
    ("data", "warning"),
    [
        (b"", "the report is empty"),
        (b"[1]", "the report must be an object, got [1]"),
        (b'{"tokens": -3}', "the report: tokens must be an object, or their number, got -3"),
        (
            b'{"tokens": {"total": -1}}',
            "the report: tokens.total must be a whole number of at least 0, got -1",
        ),
        (
            b'{"tokens": {"prompt": true}}',
            "the report: tokens.prompt must be a whole number of at least 0, got true",
        ),
        (
            b'{"tokens": {"prompt": 1e30}}',
            "the report: tokens.prompt must be a whole number of at least 0, got 1e+30",
        ),
        (b'{"tokens": {"used": 1}}', 'the report: "used" is not a key of tokens'),
        (b'{"cost": "1"}', 'the report: cost must be a number of at least 0, got "1"'),
        (b'{"price": 1}', 'the report: "price" is not a key'),
    ],
)
def test_invalid_report_fields_are_ignored_with_a_warning(data: bytes, warning: str) -> None:
    """An invalid report never ends a run."""
    report = read_report(data)
    assert report.warnings == (warning,)
    assert attrs_of(report) == attrs_of(AttemptReport())


def test_a_null_output_is_ignored() -> None:
    """The standard output of the program is its output then."""
    report = read_report(b'{"output": null}')
    assert attrs_of(report) == attrs_of(AttemptReport())
    assert report.warnings == ()


def attrs_of(report: AttemptReport) -> tuple[Any, ...]:
    return report.has_output, report.output, report.usage, report.cost, report.failure


@pytest.mark.parametrize(
    "data",
    [b'{"cost": NaN}', b'{"cost": 1e999}', b'{"a', b'"\\ud800"', b'{"output": ' + b"[" * 500],
)
def test_invalid_json_is_not_a_report(data: bytes) -> None:
    """The warning contains the reason."""
    (warning,) = read_report(data).warnings
    assert warning.startswith("the report is not usable JSON: ")


def test_a_report_that_is_nested_too_deeply_is_rejected() -> None:
    """It could be read, but not stored."""
    data = b'{"output": ' + b"[" * 500 + b"]" * 500 + b"}"
    (warning,) = read_report(data).warnings
    assert "Recursion limit" in warning


def test_messages_of_a_report_are_bounded() -> None:
    """A longer one is not a real message."""
    fields = {f"key {n} {'x' * 99}": 1 for n in range(5000)}
    report = read_report(json.dumps({**fields, "error": {"message": "x" * 10**6}}).encode())
    first, *_, last = report.warnings
    assert (first, len(report.warnings)) == (f'the report: "key 0 {"x" * 52}… is not a key', 11)
    assert last == "the report: and 4990 more like these"
    assert report.failure == AttemptFailure("reported", f"{'x' * 1999}…")


def test_failure_messages_never_contain_a_key(tmp_path: Path) -> None:
    """This holds for every kind of failure: messages are posted on the bus."""
    key = "sk-0123456789"
    report = json.dumps({"error": {"message": f"refused {key}"}, key: 1, "cost": key})
    end = work_once(scripted(f"report:{report}"), tmp_path, env={"MY_KEY": key})
    assert failure(end).message == "refused [hidden]"
    assert end.metadata["warnings"] == [
        'the report: "[hidden]" is not a key',
        'the report: cost must be a number of at least 0, got "[hidden]"',
    ]
    end = work_once("sh -c 'echo $MY_KEY >&2; exit 1'", tmp_path, env={"MY_KEY": key})
    assert failure(end).message == "ended with exit code 1: [hidden]"
    end = work_once(f"./{key}{{{{missing}}}}", tmp_path, env={"MY_KEY": key})
    assert failure(end).message.startswith('program "')
    assert key not in failure(end).message


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        ({"kind": "quota_exhausted", "message": "no money"}, "quota_exhausted", "no money"),
        ({"kind": "permission"}, "permission", "permission"),
        ({"message": "gave up"}, "reported", "gave up"),
        ("gave up", "reported", "gave up"),
        ({"kind": "exit", "message": "mine"}, "reported", "exit: mine"),
        ({"kind": "odd"}, "reported", '"odd"'),
        ({"kind": ["x"], "message": 3}, "reported", '["x"]'),
        ({}, "reported", "null"),
        (7, "reported", "7"),
    ],
)
def test_a_reported_error_is_a_failure_in_any_form(error: Any, kind: str, message: str) -> None:
    """Its kind is used if a program may report it."""
    found = read_report(json.dumps({"error": error}).encode()).failure
    assert found is not None
    assert (found.kind, found.message) == (kind, message)


_PLAIN = st.sampled_from([None, True, -1, 7, 2**60, 0.5, math.inf, "auth", "\ud800", [], [1]])
_INNER = _PLAIN | st.dictionaries(
    st.sampled_from(["kind", "message", "prompt", "completion", "total"]), _PLAIN, max_size=3
)


@given(
    st.dictionaries(st.sampled_from(["output", "tokens", "cost", "error"]), _INNER),
    st.integers(0, 100),
    st.booleans(),
)
@hypothesis_settings(max_examples=hypothesis_settings().max_examples // 2)
def test_parsing_a_report_never_raises_and_values_are_in_range(
    fields: dict[str, Any],
    end: int,
    whole: bool,  # noqa: FBT001
) -> None:
    """This holds for any text, cut anywhere."""
    data = json.dumps(fields).encode()
    report = read_report(data if whole else data[:end])
    json.dumps(report.output, allow_nan=False)
    assert report.cost is None or 0 <= report.cost < math.inf
    assert all(
        tokens is None or 0 <= tokens < 2**54
        for tokens in (report.usage.prompt, report.usage.completion, report.usage.total)
    )


def test_special_files_in_place_of_a_report_do_no_harm(tmp_path: Path) -> None:
    """The place holds a link, a folder, a named pipe, or a file that is too large."""
    path = tmp_path / "report"
    assert read_report_file(path) == AttemptReport()
    path.symlink_to("/dev/zero")
    assert read_report_file(path).warnings == ("the report cannot be read: it is a link",)
    path.unlink()
    path.mkdir()
    assert read_report_file(path).warnings == ("the report cannot be read: not a regular file",)
    path.rmdir()
    make_pipe(path)
    assert read_report_file(path).warnings == ("the report cannot be read: not a regular file",)
    path.unlink()
    path.touch()
    os.truncate(path, LARGEST + 1)
    assert read_report_file(path).warnings == (f"the report is longer than {LARGEST} bytes",)


def test_a_report_that_is_a_folder_is_reported_with_the_attempt(tmp_path: Path) -> None:
    """The output is then the standard output."""
    files = room(tmp_path).files
    files.report(0).mkdir(parents=True)
    end = work_once(scripted("say:hi"), tmp_path)
    assert (end.output, end.failure) == ("hi", None)
    assert end.metadata["warnings"] == ["the report cannot be read: not a regular file"]

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from program_runs import ask, carriers, context, is_alive, run, run_when_ready, wait_gone

from trioeval.errors import Fault, Problem, ProviderError
from trioeval.providers import Reply
from trioeval.providers.programs.exec import (
    EXCERPT_BYTES,
    KEYS,
    ExecSettings,
    OutputTail,
    WholeOutput,
    read,
    to_text,
)
from trioeval.providers.programs.python import KEYS as PYTHON_KEYS

HERE = Path(__file__).parent


def settings(
    line: str, directory: Path = HERE, environ: dict[str, str] | None = None, **config: Any
) -> ExecSettings:
    found = read("exec", line, config, context(directory, **(environ or {})))
    assert isinstance(found, ExecSettings), found
    return found


def call(line: str, prompt: str = "Hi", directory: Path = HERE, **config: Any) -> Reply:
    return run(lambda: ask(settings(line, directory, **config), prompt))


def failure(line: str, prompt: str = "Hi", **config: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        call(line, prompt, **config)
    return caught.value


def problems(
    line: str, directory: Path = HERE, environ: dict[str, str] | None = None, **config: Any
) -> list[Problem]:
    found = read("exec", line, config, context(directory, **(environ or {})))
    assert isinstance(found, list)
    return found


def program(directory: Path, text: str, name: str = "program.sh") -> Path:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_prompt_options_and_context_are_arguments(tmp_path: Path) -> None:
    """The last two are JSON, after the arguments of the command line."""
    program(tmp_path, 'printf "%s\\n" "$@"')
    reply = run(
        lambda: ask(
            settings("./program.sh 'one word' two", tmp_path, style="dry"),
            "say\nit",
            vars={"x": [1, "é"]},
            options={"tone": 2},
            test_idx=4,
            prompt_idx=5,
            repeat_index=6,
        )
    )
    *words, options, context = reply.output.split("\n")
    assert words == ["one word", "two", "say", "it"]
    assert json.loads(options) == {
        "id": "exec:./program.sh 'one word' two",
        "config": {"basePath": str(tmp_path), "style": "dry", "tone": 2},
    }
    assert json.loads(context) == {
        "vars": {"x": [1, "é"]},
        "prompt": {"raw": "say\nit", "label": ""},
        "testIdx": 4,
        "promptIdx": 5,
        "repeatIndex": 6,
    }


def test_the_prompt_may_be_sent_on_the_standard_input() -> None:
    """In this case the program gets no arguments, and the length is not limited."""
    long = "é" * 200_000
    assert call("sh -c 'cat; echo $#' sh", long, input="stdin").output == f"{long}0"


def test_a_program_need_not_read_its_input() -> None:
    """A program may reply without reading its input."""
    assert call("echo no", "x" * 200_000, input="stdin").output == "no"


def test_the_standard_input_is_empty_otherwise() -> None:
    """A program that reads gets an end of file."""
    assert call("sh -c 'cat; echo done'").output == "done"


def test_a_program_runs_in_the_directory_of_the_suite(tmp_path: Path) -> None:
    """The default is the suite's directory; `cwd` is relative to it."""
    (tmp_path / "sub").mkdir()
    assert call("sh -c pwd", directory=tmp_path).output == str(tmp_path)
    assert call("sh -c pwd", directory=tmp_path, cwd="sub").output == str(tmp_path / "sub")


def test_a_program_gets_the_environment_of_suite_and_config() -> None:
    """Variables of the config take precedence."""
    found = settings("sh -c 'echo $OUTER $INNER'", environ={"OUTER": "a", "INNER": "b"})
    assert run(lambda: ask(found)).output == "a b"
    found = settings("sh -c 'echo $OUTER $INNER'", environ={"OUTER": "a"}, env={"OUTER": "c"})
    assert run(lambda: ask(found)).output == "c"


def test_no_shell_is_involved() -> None:
    """Shell syntax is passed on unchanged."""
    assert call("echo $HOME * '`'").output.startswith("$HOME * ` Hi ")


def test_the_output_is_the_standard_output() -> None:
    """Escape sequences and surrounding space are removed, whatever the bytes are."""
    line = r"printf '\n\033[1;31mred\033[0m \377 é\033]0;title\007\n\n'"
    assert call(f"sh -c {json.dumps(line, ensure_ascii=False)}").output == "red � é"


def test_a_program_without_output_has_an_empty_reply() -> None:
    """An empty output is a reply."""
    assert call("true") == Reply(output="")


def test_warnings_beside_an_output_are_ignored() -> None:
    """The standard error matters only without a standard output."""
    assert call("sh -c 'echo careful >&2; echo 4'").output == "4"


@pytest.mark.slow
@given(st.lists(st.binary(max_size=40)), st.integers(1, 100))
def test_a_capture_keeps_a_beginning_or_an_end(parts: list[bytes], limit: int) -> None:
    """The division of the bytes into parts does not matter."""
    everything = b"".join(parts)
    whole, tail = WholeOutput(limit), OutputTail()
    for part in parts:
        assert whole.feed(part) is (not whole.overflown)
        assert tail.feed(part)
    assert whole.overflown is (len(everything) > limit)
    assert whole.overflown or whole.text == to_text(everything)
    assert tail.text == (to_text(everything) or None)


def test_a_long_tail_starts_with_a_line() -> None:
    """A longer line is cut."""
    tail = OutputTail()
    for number in range(1000):
        tail.feed(b"line %03d\n" % number)
    text = tail.text or ""
    assert (len(text) <= EXCERPT_BYTES, text[:5], text[-8:]) == (True, "line ", "line 999")
    tail.feed(b"x" * 5000)
    assert tail.text == "x" * EXCERPT_BYTES
    tail.clear()
    assert tail.text is None


def test_a_tail_shows_no_part_of_a_secret_wherever_it_starts() -> None:
    """No part of a secret is shown in any spelling, wherever the excerpt starts."""
    key = "sk-abc/defghijklmn"
    quoted = key.replace("/", "\\u002f").encode()
    for size in range(60, 140):
        tail = OutputTail(100, [key])
        for part in (b"before ", quoted, key.encode(), b"B" * size):
            tail.feed(part)
        text = tail.text or ""
        assert set(text) <= {*"[hidden]", *"before ", "B"}
        assert (text.count("B"), tail.is_cut) == (min(size, 100), True)
    assert OutputTail(100, [key]).text is None
    short = OutputTail(100, [key])
    short.feed(f"the key {key}".encode())
    assert (short.text, short.is_cut) == ("the key [hidden]", False)


def test_an_exit_code_is_an_error_with_the_last_output() -> None:
    """PR-28: the message has the code and the last line; the rest is the excerpt."""
    error = failure("sh -c 'echo 4; echo one >&2; echo two >&2; exit 3'")
    assert (error.kind, error.fault, error.body_excerpt) == ("bad_exit", Fault.REFUSED, "one\ntwo")
    line = "exec:sh -c 'echo 4; echo one >&2; echo two >&2; exit 3'"
    assert str(error) == f"bad_exit: {line} ended with exit code 3: two"


def test_other_exit_codes_may_be_successes() -> None:
    """Other codes may replace or join 0; a signal is never a success."""
    assert call("sh -c 'echo 4; exit 1'", successExitCodes=[0, 1]).output == "4"
    assert call("sh -c 'echo 4'", successExitCodes=[0, 1]).output == "4"
    assert failure("true", successExitCodes=[1]).message == "exec:true ended with exit code 0"
    assert failure("sh -c 'kill $$'", successExitCodes=[0, 15]).kind == "bad_exit"


@pytest.mark.parametrize("codes", [0, [], [-1], [256], [True], ["0"]])
def test_exit_codes_are_numbers_that_a_program_can_end_with(codes: Any) -> None:
    """At least one code is required, from 0 to 255."""
    (problem,) = problems("true", successExitCodes=codes)
    assert str(problem).startswith(
        ".config.successExitCodes: must be a list of whole numbers from 0 to 255, got "
    )


def test_output_on_standard_error_only_is_an_error() -> None:
    """PR-28: this holds even with exit code 0."""
    error = failure("sh -c 'echo oops >&2'")
    assert error.kind == "bad_exit"
    assert error.message.endswith("wrote only to its standard error: oops")


def test_a_signal_is_described_by_its_name() -> None:
    """A signal is not an exit code."""
    assert failure("sh -c 'kill -SEGV $$'").message.endswith(" was ended by SIGSEGV")


def test_excessive_output_ends_the_program() -> None:
    """Endless output is stopped at the limit."""
    error = failure("yes", maxOutputBytes=1000)
    assert str(error) == (
        "bad_exit: exec:yes wrote more than 1000 bytes (maxOutputBytes) to its standard output"
    )
    assert call("echo -n 12345", input="stdin", maxOutputBytes=5).output == "12345"


def test_endless_standard_error_is_read_and_truncated() -> None:
    """Only its end is kept."""
    error = failure("sh -c 'yes no | head -c 5000000 >&2; exit 1'")
    assert set((error.body_excerpt or "").split()) == {"no"}
    assert len(error.body_excerpt or "") <= EXCERPT_BYTES


def test_a_prompt_that_is_too_long_for_an_argument_suggests_stdin() -> None:
    """The same holds for a NUL, which no argument can contain."""
    error = failure("true", "x" * 200_000)
    assert str(error) == (
        "bad_request: exec:true cannot get the prompt and the variables as arguments: "
        'they are too long; set input to "stdin"'
    )
    assert failure("true", "a\0b").message.endswith('set input to "stdin"')


def test_a_lone_surrogate_is_replaced() -> None:
    """No argument can contain it."""
    assert call("cat", "a\ud800b", input="stdin").output == "a?b"


def test_a_removed_program_is_reported(tmp_path: Path) -> None:
    """The failure is fatal for the lane: every call would fail."""
    path = program(tmp_path, "echo hi")
    found = settings("./program.sh", tmp_path)
    path.unlink()
    with pytest.raises(ProviderError) as caught:
        run(lambda: ask(found))
    assert (caught.value.kind, caught.value.fault) == ("not_found", Fault.FATAL)
    assert str(caught.value) == (
        'not_found: exec:./program.sh: program "./program.sh" not found, or the interpreter in its first line'
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeoutMs": 0}, ".config.timeoutMs: must be a number of milliseconds above 0, got 0"),
        ({"input": "stdin"}, '.config: "input" cannot differ for one call'),
    ],
)
def test_keys_that_cannot_differ_for_one_call_are_refused(
    options: dict[str, Any], message: str
) -> None:
    """It is refused before anything starts."""
    with pytest.raises(ProviderError) as caught:
        run(lambda: ask(settings("false"), options=options))
    assert str(caught.value) == f"bad_request: {message}"


def test_variables_that_are_not_json_are_refused() -> None:
    """They cannot be passed to the program."""
    with pytest.raises(ProviderError) as caught:
        run(lambda: ask(settings("false"), vars={"x": {1, 2}}))
    assert str(caught.value) == 'bad_request: the variables of the test are not JSON: check "x"'


@pytest.mark.slow
def test_no_process_of_a_program_survives_its_time_limit(tmp_path: Path) -> None:
    """PR-26: children and their children are gone, in any session."""
    inner = "sh -c 'sleep 1000 & setsid sleep 1000 & wait'"
    program(tmp_path, f"{inner} & echo up >&2; echo >ready; wait")
    mark = uuid.uuid4().hex
    found = settings("./program.sh", tmp_path, environ={"FAMILY": mark}, timeoutMs=500)
    with pytest.raises(ProviderError) as caught:
        run_when_ready(tmp_path / "ready", lambda: ask(found))
    assert (caught.value.kind, caught.value.body_excerpt) == ("attempt_timeout", "up")
    assert str(caught.value).endswith("./program.sh did not end within 0.5 seconds (timeoutMs)")
    assert carriers(mark) == []


def test_a_call_may_have_a_shorter_time_limit() -> None:
    """Its options may set a shorter time."""
    with pytest.raises(ProviderError) as caught:
        run(lambda: ask(settings("sleep 1000", input="stdin"), options={"timeout_ms": 50}))
    assert str(caught.value).endswith("did not end within 0.05 seconds (timeoutMs)")


@pytest.mark.slow
def test_a_program_that_ignores_the_request_to_end_is_killed_soon(tmp_path: Path) -> None:
    """Ignoring the request gives it only the grace period."""
    mark, ready = uuid.uuid4().hex, tmp_path / "ready"
    line = f"sh -c 'trap \"\" TERM; echo >{ready}; while :; do sleep 1000; done'"
    found = settings(line, environ={"FAMILY": mark}, timeoutMs=200)

    async def main() -> float:
        started_at = trio.current_time()
        with pytest.raises(ProviderError, match="attempt_timeout"):
            await ask(found)
        return trio.current_time() - started_at

    assert 1.7 <= run_when_ready(ready, main) < 20
    assert carriers(mark) == []


@pytest.mark.slow
def test_cleaning_up_does_not_count_as_time_of_the_program(tmp_path: Path) -> None:
    """Ending remaining processes may use the whole grace period without failing the call."""
    os.mkfifo(tmp_path / "armed")
    stays = "trap 'echo >ready' TERM; echo >armed; while :; do sleep 1000 & wait; done"
    program(tmp_path, f'sh -c "{stays}" & read -r _ <armed; echo 4')
    mark = uuid.uuid4().hex
    found = settings("./program.sh", tmp_path, environ={"FAMILY": mark}, timeoutMs=400)
    found = attrs.evolve(found, grace=0.5)
    assert run_when_ready(tmp_path / "ready", lambda: ask(found)).output == "4"
    assert carriers(mark) == []


def test_final_output_of_a_late_program_is_kept(tmp_path: Path) -> None:
    """The excerpt of a late program has its last output."""
    ready = tmp_path / "ready"
    line = f"sh -c 'trap \"echo here >&2; exit\" TERM; sleep 1000 & echo >{ready}; while :; do wait; done'"
    patient = attrs.evolve(settings(line, timeoutMs=100), grace=30)  # on a busy machine, too
    with pytest.raises(ProviderError) as caught:
        run_when_ready(ready, lambda: ask(patient))
    assert caught.value.body_excerpt == "here"


def test_background_children_do_not_delay_a_reply() -> None:
    """The program is over when its first process is, and its children are ended."""
    mark = uuid.uuid4().hex
    found = settings("sh -c 'sleep 1000 & echo 4'", environ={"FAMILY": mark})
    assert run(lambda: ask(found)).output == "4"
    assert carriers(mark) == []


@pytest.mark.slow
def test_programs_cancelled_at_any_instant_leave_no_process(tmp_path: Path) -> None:
    """Fifty programs with children are cancelled before, while and after they start; the next one works."""
    program(tmp_path, "sleep 1000 & setsid sleep 1000")
    mark = uuid.uuid4().hex
    found = settings("./program.sh", tmp_path, environ={"CHURN": mark})

    async def one(instant: float) -> None:
        with trio.move_on_after(instant):
            await ask(found)

    async def main() -> Reply:
        for round_ in range(5):
            async with trio.open_nursery() as nursery:
                for place in range(10):
                    nursery.start_soon(one, round_ * 0.004 + place * 0.002)
        return await ask(settings("echo -n", input="stdin"))

    assert run(main).output == ""
    assert carriers(mark) == []


INTERRUPTED = """
import sys, trio
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from program_runs import ask, context
from trioeval.providers.programs.exec import read
line = f"sh -c 'setsid sleep 1000 & echo $$ $! >{sys.argv[2]}; sleep 1000'"
trio.run(ask, read("exec", line, {}, context(Path())))
"""


@pytest.mark.slow
def test_ctrl_c_ends_programs_and_their_children(tmp_path: Path) -> None:
    """Ctrl-C acts like any cancellation."""
    pipe = tmp_path / "pids"
    os.mkfifo(pipe)
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, HERE, pipe], stderr=subprocess.PIPE, text=True
    ) as host:
        pids = [int(word) for word in pipe.read_text().split()]
        assert len(pids) == 2
        host.send_signal(signal.SIGINT)
        _out, errors = host.communicate(timeout=60)
    assert host.returncode == 1
    assert "KeyboardInterrupt" in errors
    assert not any(map(is_alive, pids))
    assert all(wait_gone(pid, 0) for pid in pids)


def test_all_mistakes_of_an_entry_are_reported_at_once() -> None:
    """Problems of keys, values and the command line are reported together."""
    found = problems(
        "no-such-program x", timeoutMs=-1, input="file", maxOutputBytes=0, cwd=3, env=1
    )
    assert [str(problem) for problem in found] == [
        ".config.timeoutMs: must be a number of milliseconds above 0, got -1",
        '.config.input: must be "argument" or "stdin", got "file"',
        ".config.maxOutputBytes: must be a whole number of at least 1, got 0",
        ".config.cwd: must be text, got 3",
        ".config.env: must be an object of texts (its value is not shown)",
        '.id: program "no-such-program" not found in PATH\n  install it, or correct its name',
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", '.id: "exec:" has no program\n  write exec:<command line>'),
        ("''", '.id: "exec:" has no program\n  write exec:<command line>'),
        (
            "a 'b",
            '.id: "a \'b" cannot be split into words: no closing quotation\n  close the quote',
        ),
    ],
)
def test_an_invalid_command_line_is_a_problem(line: str, problem: str) -> None:
    """The hint says what to write."""
    assert [str(one) for one in problems(line)] == [problem]


def test_a_program_is_searched_where_it_will_run(tmp_path: Path) -> None:
    """A bare name is searched in PATH, a path relative to the working directory."""
    path = program(tmp_path, "echo hi")
    assert settings("./program.sh", tmp_path).command == ("./program.sh",)
    assert settings(str(path)).command == (str(path),)
    assert settings("program.sh", environ={"PATH": str(tmp_path)}).command == ("program.sh",)
    assert settings("program.sh", env={"PATH": str(tmp_path)}).command == ("program.sh",)
    (problem,) = problems("program.sh", tmp_path)
    assert str(problem) == (
        '.id: program "program.sh" not found in PATH\n'
        f'  write "./program.sh" for the file in {tmp_path}'
    )
    (problem,) = problems("./no.sh", tmp_path)
    assert str(problem) == f'.id: program "{tmp_path}/no.sh" not found'
    path.chmod(0o644)
    (problem,) = problems("./program.sh", tmp_path)
    assert str(problem) == f'.id: "{path}" is not executable\n  chmod +x ./program.sh'


def test_a_missing_directory_is_reported(tmp_path: Path) -> None:
    """It is reported when the entry is read."""
    (problem,) = problems("true", tmp_path, cwd="no")
    assert str(problem) == f'.config.cwd: folder "{tmp_path}/no" not found'


def test_custom_config_must_be_json() -> None:
    """Other values cannot be passed on; a misspelt known key is a problem."""
    found = problems("true", style={1, 2}, TIMEOUTMS=3)
    assert [str(problem) for problem in found] == [
        ".config.style: must be JSON, because it is passed to the program, got {1, 2}",
        '.config.TIMEOUTMS: "TIMEOUTMS" is not a key\n  did you mean "timeoutMs"?',
    ]


def test_secrets_are_known_and_in_no_lane_key() -> None:
    """Secrets of config and environment are not shown."""
    found = settings(
        "true",
        environ={"SOME_TOKEN": "t0ken-of-the-environment", "SHORT_KEY": "short"},
        env={"API_KEY": "sk-1234", "LANG": "C"},
        password="pa55",  # noqa: S106 - it stands for one
    )
    assert {"sk-1234", "pa55", "t0ken-of-the-environment"} <= {*found.secrets}
    assert not {"C", "short"} & {*found.secrets}
    assert found.lane_key == "exec:true"
    assert "sk-1234" not in repr(found)
    assert "t0ken" not in repr(found)


def test_the_page_lists_every_key() -> None:
    """The page has every key with its requirement."""
    page = (HERE.parents[1] / "docs" / "reference" / "providers" / "programs.md").read_text()
    _, exec_page, python_page = re.split(r"^## (?:exec|python)$", page, flags=re.MULTILINE)
    for keys, text in ((KEYS, exec_page), (PYTHON_KEYS, python_page)):
        assert [key.name for key in keys if f"| `{key.name}` | {key.right} |" not in text] == []

import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from program_runs import ask, context, run

from trioeval.errors import Problem, ProviderError, SuiteError
from trioeval.providers import ProviderSpec, resolve
from trioeval.providers.programs import AGENT_RUNS
from trioeval.providers.programs.entries import (
    CommandAgentSettings,
    read_agent_command,
    split_line,
    split_templates,
)
from trioeval.providers.programs.exec import ExecSettings
from trioeval.templates import Templates

HERE = Path(__file__).parent


def settings(line: str, directory: Path = HERE, **config: Any) -> CommandAgentSettings:
    found = read_agent_command("exec", line, config, context(directory))
    assert isinstance(found, CommandAgentSettings), found
    return found


def problems(line: str, directory: Path = HERE, **config: Any) -> list[str]:
    found = read_agent_command("exec", line, config, context(directory))
    assert isinstance(found, list)
    return [str(problem) for problem in found]


def program(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_arguments_are_kept_as_templates() -> None:
    """Templates with spaces are single arguments."""
    found = settings("sh -c {{ prompt }} '{{a}} b' {% if x %}c{% endif %}")
    assert found.words == ("sh", "-c", "{{ prompt }}", "{{a}} b", "{% if x %}c{% endif %}")
    assert (found.timeout, found.stdin, found.success) == (None, False, frozenset({0}))


def test_all_agents_share_the_run_slots() -> None:
    """All command lines share one lane."""
    assert {settings("sh").lane_key, settings("true x").lane_key} == {AGENT_RUNS}


def test_a_config_determines_the_execution() -> None:
    """Keys are accepted in both spellings; null is ignored for a key without a default."""
    found = settings(
        "sh",
        timeoutMs=1500,
        input="stdin",
        max_output_bytes=9,
        successExitCodes=[0, 3],
        env={"MY_TOKEN": "abc", "PLAIN": "x"},
    )
    assert (found.timeout, found.stdin, found.max_output) == (1.5, True, 9)
    assert (found.success, found.environ["PLAIN"]) == (frozenset({0, 3}), "x")
    assert "abc" in found.secrets
    assert "x" not in found.secrets
    assert settings("sh", input=None, timeoutMs=None).stdin is False


def test_all_mistakes_of_an_entry_are_reported_at_once() -> None:
    """Problems of keys, values, arguments and the program are reported together."""
    mistaken = "not a valid template: not a template: line 1: No filter named 'nothing'."
    assert problems(
        "no-such-program {{ x | nothing }}", timeoutMs=0, input="argument", cwd=".", env=1
    ) == [
        ".config.timeoutMs: must be a number of milliseconds above 0, got 0",
        '.config.input: must be "none" or "stdin", got "argument"',
        '.config.cwd: "cwd" is not a key',
        ".config.env: must be an object of texts (its value is not shown)",
        f'.id: the word "{{{{ x | nothing }}}}" is {mistaken}',
        '.id: program "no-such-program" not found in PATH\n  install it, or correct its name',
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", '.id: "exec:" has no program\n  write exec:<command line>'),
        (
            "a '{{ b }}",
            '.id: "a \'{{ b }}" cannot be split into words: no closing quotation\n  close the quote',
        ),
        ("a\0b", ".id: a command line must not contain a NUL character"),
    ],
)
def test_an_invalid_command_line_is_a_problem(line: str, problem: str) -> None:
    """The problem shows the line as written in the suite."""
    assert problems(line) == [problem]


def test_a_program_with_a_path_is_relative_to_the_suite(tmp_path: Path) -> None:
    """It is not relative to the workspace; a bare name is searched in PATH."""
    program(tmp_path / "bin" / "agent")
    program(tmp_path / "flat", 0o644)
    assert settings("bin/agent x", tmp_path).command(str) == (f"{tmp_path}/bin/agent", "x")
    assert settings("sh x", tmp_path).command(str) == ("sh", "x")
    assert settings("/bin/sh", tmp_path).command(str) == ("/bin/sh",)
    assert problems("./other", tmp_path) == [f'.id: program "{tmp_path}/other" not found']
    assert problems("./flat", tmp_path) == [
        f'.id: "{tmp_path}/flat" is not executable\n  chmod +x ./flat'
    ]


def test_a_program_that_is_a_template_is_resolved_when_it_runs(tmp_path: Path) -> None:
    """The rendered path is handled like a fixed one."""
    filled = {"{{tool}}": "bin/x", "{{workspace}}/y": "/w/y", "{{name}}": "sh"}
    found = [settings(line, tmp_path).command(filled.__getitem__) for line in filled]
    assert found == [(f"{tmp_path}/bin/x",), ("/w/y",), ("sh",)]


def test_files_beside_the_suite_must_exist(tmp_path: Path) -> None:
    """The program and an interpreter's script must exist; files in other arguments may be created later."""
    program(tmp_path / "agent.sh")
    for line in ("{{suite}}/agent.sh", "sh -e {{ suite }}/agent.sh", "sh agent.sh", "sh -c x"):
        assert settings(line, tmp_path).words
    for line in (
        "touch {{suite}}/new",
        "python3 -u x.py {{suite}}/new",
        "python3 {{suite}}/{{x}}.py",
    ):
        assert settings(line, tmp_path).words
    assert problems("{{suite}}/nope", tmp_path) == [f'.id: program "{tmp_path}/nope" not found']
    for line in ("sh {{suite}}/nope x", "/bin/sh -e {{ suite }}/nope"):
        program_name = line.split()[0]
        problem = f'.id: file "{tmp_path}/nope" for {program_name} not found'
        assert problems(line, tmp_path) == [problem]


def test_an_agent_cannot_reply_to_requests(tmp_path: Path) -> None:
    """A request to an agent fails, for example one of a judge."""
    with pytest.raises(ProviderError) as caught:
        run(lambda: ask(settings("sh -c x")))
    assert str(caught.value) == (
        "bad_request: exec:sh -c x is an agent here, which works on cases and cannot answer requests; "
        "use another provider as the judge"
    )


def resolved(entry_id: str, **readers: Any) -> ProviderSpec:
    return resolve(
        entry_id,
        {"env": {"API_KEY": "sk-1234567890"}},
        environ=os.environ,
        directory=HERE,
        templates=Templates(),
        custom={},
        **readers,
    )


def test_a_registered_reader_overrides_the_default_for_its_prefix() -> None:
    """The reader is used for its prefix only."""
    own = {"readers": {"exec": read_agent_command}}
    spec = resolved("exec:sh x", **own)
    assert isinstance(spec.settings, CommandAgentSettings)
    assert "sk-1234567890" in spec.secrets
    assert isinstance(resolved("exec:sh x").settings, ExecSettings)
    with pytest.raises(SuiteError, match='unknown provider "exek:sh"'):
        resolved("exek:sh", **own)


@given(st.text(st.sampled_from("ab \t'\"\\$"), max_size=12))
@hypothesis_settings(max_examples=hypothesis_settings().max_examples // 2)
def test_a_line_without_templates_is_split_like_in_a_shell(line: str) -> None:
    """Agents and other programs split lines in the same way."""
    assert split_templates(line) == split_line(line)


@given(st.lists(st.text(st.sampled_from("ab '\"|{}%\\"), max_size=6), min_size=1, max_size=4))
@hypothesis_settings(max_examples=hypothesis_settings().max_examples // 2)
def test_a_template_is_never_split(inner: list[str]) -> None:
    """Shell syntax inside a template does not split it."""
    words = [f"x{{{{{text.replace('}', '')}}}}}y" for text in inner]
    found = split_templates(" ".join(words))
    assert found == words
    assert not isinstance(split_templates(shlex.join(["a b", *words])), Problem)

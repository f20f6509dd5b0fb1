"""The first help pages agree with the parser, fit one screen and load no parser."""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping

import cyclopts
import pytest

from trioeval.cli import run_command_line
from trioeval.cli.flag_types import shown_default
from trioeval.cli.parser import app
from trioeval.cli.short_help import COMMANDS, PROGRAM, RUN, parsed_help, short_help
from trioeval.cli.terminal import Exit

_MODULES = 8  # of trioeval and its dependencies that a help page may load


def _arguments() -> Mapping[str, cyclopts.Argument]:
    """The arguments of `run` by the names of their flags."""
    return {name: one for one in app["run"].assemble_argument_collection() for name in one.names}


def _default(argument: cyclopts.Argument) -> str:
    shown = argument.show_default
    return shown if isinstance(shown, str) else shown_default(argument.field_info.default)


def _flag_lines(page: str) -> Iterator[tuple[list[str], str]]:
    """The flags of each line of a page, and the default that it shows."""
    for line in page.splitlines():
        if found := re.match(r"  (?:(-\w), |    )(--[\w-]+).*\[default: (.*)\]$", line):
            yield [name for name in found.groups()[:2] if name], found[3]


@pytest.mark.parametrize("page", [PROGRAM, RUN])
def test_a_short_page_fits_one_screen(page: str) -> None:
    """A page has at most 40 lines of 100 characters, and its last line names the full page."""
    lines = page.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    assert "--help-all` lists every flag." in lines[-1]


def test_the_short_page_names_every_command() -> None:
    """The commands of the page are those of the parser."""
    assert {name for name in app if not name.startswith("-")} == COMMANDS
    words = re.findall(r"^  ([a-z-]+(?:, [a-z]+)*)", PROGRAM, re.MULTILINE)
    assert {word for found in words for word in found.split(", ") if found[0] != "-"} == COMMANDS


@pytest.mark.parametrize("page", [PROGRAM, RUN])
def test_flags_of_short_pages_exist_and_have_the_defaults_shown(page: str) -> None:
    """Each flag of a page is a flag of the parser; a negative flag names the positive one as its default."""
    arguments = _arguments()
    found = list(_flag_lines(page))
    assert len(found) >= 10
    for names, default in found:
        (argument,) = {id(arguments[name]): arguments[name] for name in names}.values()
        if names[-1] in argument.negatives:
            assert (default, _default(argument)) == (f"--{names[-1][5:]}", "on")
        else:
            assert default == _default(argument)


def test_every_flag_shows_a_default(capsys: pytest.CaptureFixture[str]) -> None:
    """The full page of `run` has one default for each flag."""
    assert run_command_line(["run", "--help-all"]) == Exit.OK
    page = re.sub(r"[│\s]+", " ", capsys.readouterr().out)
    flags = {id(one) for name, one in _arguments().items() if name.startswith("-") and one.parse}
    assert page.count("[default: ") == len(flags)


@pytest.mark.parametrize(
    ("arguments", "page"),
    [
        (["--help"], PROGRAM),
        (["-h"], PROGRAM),
        (["run", "--help"], RUN),
        (["suite.yaml", "-j", "2", "-h"], RUN),
        (["show", "--help"], None),
        (["bus", "post", "-h"], None),
        (["--help-all"], None),
        (["--", "--help"], None),
        (["suite.yaml"], None),
    ],
)
def test_a_short_page_is_for_the_program_and_for_run(
    arguments: list[str], page: str | None
) -> None:
    """Other commands show all of their flags at once."""
    assert short_help(arguments) == page


def test_the_full_page_is_the_help_of_the_parser() -> None:
    """Words after `--` stay as they are."""
    assert parsed_help(["show", "--help-all"]) == ["show", "--help"]
    assert parsed_help(["agent", "submit", "--", "--help-all"]) == [
        "agent", "submit", "--", "--help-all",
    ]  # fmt: skip


@pytest.mark.parametrize("arguments", [["--help-all"], ["show", "--help-all"], ["runs", "--help"]])
def test_full_pages_are_shown(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """They begin with the usage and end with 0."""
    assert run_command_line(arguments) == Exit.OK
    assert capsys.readouterr().out.startswith("Usage: trioeval ")


@pytest.mark.parametrize("arguments", [["--help"], ["run", "-h"]])
def test_short_pages_load_few_modules(arguments: list[str]) -> None:
    """A short page needs neither the parser nor any other package."""
    probe = (
        "import sys, runpy\n"
        "before = set(sys.modules)\n"
        "sys.argv = ['trioeval', *sys.argv[1:]]\n"
        "try: runpy.run_module('trioeval', run_name='__main__', alter_sys=True)\n"
        "except SystemExit: pass\n"
        "new = set(sys.modules) - before - set(sys.stdlib_module_names)\n"
        "print(*sorted(n for n in new if n.partition('.')[0] not in sys.stdlib_module_names),"
        " file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout == short_help(arguments)
    loaded = done.stderr.split()
    assert len(loaded) <= _MODULES
    assert {name.partition(".")[0] for name in loaded} == {"trioeval"}

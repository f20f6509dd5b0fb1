"""The pages about flags, exit codes and errors agree with the code."""

import inspect
import re
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args

import cyclopts
import pytest
from cyclopts.validators import Number
from snippets import DOCS, ROOT, table

from trioeval import errors
from trioeval import errors as faults
from trioeval.cli.environment import UNSUPPORTED
from trioeval.cli.flag_types import shown_default
from trioeval.cli.parser import app
from trioeval.cli.terminal import Exit

REFERENCE = DOCS / "reference"
_VALUES = {int: "whole number", float: "number", str: "text", Path: "path", bool: ""}


def _flags(command: str) -> Iterator[tuple[str, ...]]:
    """Each flag with its value, range and default, as the parser has them."""
    found = app
    for word in command.split():
        found = found[word]
    for argument in found.assemble_argument_collection():
        # The parser generates an `--empty-…` flag for every list; the page leaves it out.
        names = [f"`{n}`" for n in argument.names if n[0] == "-" and "--empty-" not in n]
        if names and argument.parse:
            parts = _parts(argument.hint)
            (value,) = [_VALUES[kind] for kind in _VALUES if kind in parts] or [_choice(parts)]
            yield ", ".join(names), value, _range(argument), _default(argument)


def _parts(hint: object) -> list[object]:
    return [hint, *(inner for part in get_args(hint) for inner in _parts(part))]


def _choice(parts: list[object]) -> str:
    """The documented form of a choice between words."""
    words = [f"`{word}`" for word in parts if isinstance(word, str)]
    return " or ".join([", ".join(words[:-1]), words[-1]])


def _range(argument: cyclopts.Argument) -> str:
    validators = argument.parameter.validator
    listed = validators if isinstance(validators, tuple) else (validators,)
    bounds = [bound for bound in listed if isinstance(bound, Number)]
    if not bounds:
        return ""
    if bounds[0].gt is not None and bounds[0].lt is not None:
        return f"more than {bounds[0].gt}, less than {bounds[0].lt}"
    return (
        f"at least {bounds[0].gte}"
        if bounds[0].lte is None
        else f"{bounds[0].gte} to {bounds[0].lte}"
    )


def _default(argument: cyclopts.Argument) -> str:
    """The default as the help shows it."""
    shown = argument.show_default
    return shown if isinstance(shown, str) else shown_default(argument.field_info.default)


def _documented_flags(command: str) -> list[tuple[str, ...]]:
    level = "#" * (1 + len(command.split()))
    section = re.search(
        rf"^{level} {command}\n(.*?)(?=^##|\Z)",
        (REFERENCE / "cli.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert section is not None
    rows = re.findall(r"^\| (`-.*) \|$", section[1], re.MULTILINE)
    return [tuple(cell.strip() for cell in row.split("|")[:4]) for row in rows]


_COMMANDS = (
    "run",
    "preview",
    "simulate",
    "resume",
    "runs",
    "runs delete",
    "runs prune",
    "show",
    "export",
    "import",
    "compare",
    "limits serve",
    "limits show",
    "limits set",
    "limits remove",
    "limits watch",
    "agent submit",
    "agent wait",
    "agent cancel",
    "agent limit",
    "bus post",
    "bus read",
    "bus follow",
    "init",
    "fake-provider",
)


@pytest.mark.parametrize("command", _COMMANDS)
def test_every_flag_is_listed(command: str) -> None:
    """Each has its value, range and default, in the order of the help."""
    assert _documented_flags(command) == list(_flags(command))


def test_every_command_is_listed() -> None:
    """The sections of the page are the commands."""
    page = (REFERENCE / "cli.md").read_text()
    commands = {name for name in app if not name.startswith("-")}
    assert set(re.findall(r"^## (.*)$", page, re.MULTILINE)) == commands


def test_every_variable_is_listed() -> None:
    """The page has all variables that the code reads, and no others."""
    reads = re.compile(
        r'(?<![a-z])(?:switch|variable|number|whole|place|choice)\(\s*"([A-Z0-9_]+)"'
    )
    code = [file.read_text() for file in (ROOT / "trioeval").rglob("*.py")]
    read = {name for text in code for name in reads.findall(text)} | {*UNSUPPORTED}
    section = (REFERENCE / "cli.md").read_text().partition("### Environment variables")[2]
    listed = [name for row in table(section, "name") for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(listed) == sorted(read)


def test_every_exit_code_is_listed() -> None:
    """They are in numerical order; the tutorial lists the same ones."""
    signals = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    expected = {*Exit} - {Exit.SIGNAL} | {Exit.SIGNAL + number for number in signals}
    page = (REFERENCE / "cli.md").read_text()
    codes = [int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)]
    assert codes == sorted(expected)
    tutorial = (DOCS / "tutorial.md").read_text()
    listed = re.findall(r"^\| ([\d, ]+) \|", tutorial, re.MULTILINE)
    assert {int(code) for cell in listed for code in cell.split(",")} == expected


def test_the_tree_of_errors_equals_that_of_the_module() -> None:
    """The page has the tree of the module, and the tree contains every class."""
    page = (REFERENCE / "errors.md").read_text()
    drawn = re.search(r"```text\n(TrioevalError\n.*?)```", page, re.DOTALL)
    assert drawn is not None
    assert drawn[1].strip() in inspect.cleandoc(errors.__doc__ or "").replace("\n    ", "\n")
    classes: Mapping[str, object] = vars(errors)
    raised = {
        name
        for name, found in classes.items()
        if isinstance(found, type) and issubclass(found, errors.TrioevalError)
    }
    assert set(re.findall(r"\w+Error", drawn[1])) == raised


def test_the_bases_of_errors_are_those_of_the_page() -> None:
    """Code that catches a builtin exception also catches these errors."""
    page = (REFERENCE / "errors.md").read_text()
    (sentence,) = re.findall(r"^.* are `ValueError`s as well.*$", page, re.MULTILINE)
    values, _, others = sentence.partition(" are ")
    found = [getattr(errors, name) for name in re.findall(r"`(\w+)`", values)]
    assert all(issubclass(error, ValueError) for error in found)
    assert len(found) == sum(
        issubclass(error, ValueError) for error in errors.TrioevalError.__subclasses__()
    )
    assert "`OutputError`, `StoreError` and `BusError` are `OSError`s" in others
    assert issubclass(errors.OutputError, OSError)
    assert issubclass(errors.StoreError, OSError)
    assert issubclass(errors.BusError, OSError)


def test_every_fault_is_listed() -> None:
    """They are in the order of the enumeration."""
    listed = [row[0] for row in table((REFERENCE / "errors.md").read_text(), "fault")]
    assert listed == [f"`{fault.name}`" for fault in faults.Fault]


def test_every_kind_of_provider_error_is_listed() -> None:
    """Each has its fault, in the order of the module."""
    rows = table((REFERENCE / "errors.md").read_text(), "kind")
    assert [(row[0], row[1]) for row in rows] == [
        (f"`{kind}`", f"`{faults.FAULT_BY_KIND[kind].name}`")
        for kind in get_args(faults.ProviderErrorKind)
    ]


def test_the_required_python_is_that_of_the_package() -> None:
    """Readme, tutorial and package name the same version."""
    (version,) = re.findall(
        r'^requires-python = ">=(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    for page in (ROOT / "README.md", DOCS / "tutorial.md"):
        assert f"Python {version} or newer" in page.read_text()

"""`exec:<command line>` in a task of type `agent`: a program that works on a case until it is done.

The words of the line are templates, and each is filled in by itself for every attempt: what a variable says
never becomes two words. This module reads the entry; who runs it is the task's affair.
"""

import os
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import attrs

from trioeval.agents.slots import AGENT_RUNS
from trioeval.errors import Problem, ProviderError
from trioeval.providers.base import Request
from trioeval.providers.command_secrets import secrets_of_command
from trioeval.providers.config import Key, read_config
from trioeval.providers.programs.command_lines import (
    DEFAULT_MAX_OUTPUT,
    MAX_OUTPUT,
    SUCCESS,
    find_fault,
    has_template,
    split_templates,
)
from trioeval.providers.programs.entries import ENVIRONMENT, TIMEOUT, absolute, find_secrets
from trioeval.providers.settings import Shared, Surroundings

KEYS = (
    TIMEOUT,
    Key("input", '"none" or "stdin"', lambda value: value in ("none", "stdin")),
    MAX_OUTPUT,
    SUCCESS,
    ENVIRONMENT,
)


@attrs.frozen(kw_only=True)
class CommandAgentSettings:
    """A command line whose program is an agent, and how it is run."""

    line: str
    """As in the suite."""
    words: tuple[str, ...]
    """Templates; at least one."""
    directory: Path
    """The folder of the suite, absolute: what the path of the program is relative to."""
    environ: Mapping[str, str] = attrs.field(repr=False)
    secrets: tuple[str, ...] = attrs.field(repr=False)
    timeout: float | None = None
    """Seconds of an attempt, > 0; None leaves it to the task."""
    stdin: bool = False
    """Whether the prompt goes to the standard input."""
    max_output: int = DEFAULT_MAX_OUTPUT
    """Bytes that are kept of what is written to each of the two outputs, ≥ 1."""
    success: frozenset[int] = frozenset({0})
    """Exit codes of a program that did what it should; at least one."""

    @property
    def lane_key(self) -> str:
        """The run slots, which all agents share."""
        return AGENT_RUNS

    def command(self, fill: Callable[[str], str]) -> tuple[str, ...]:
        """The words of one attempt.

        Args:
            fill: Gives a word with its variables filled in; what it raises is raised.
        """
        program, *rest = map(fill, self.words)
        if os.sep in program:
            program = str(absolute(self.directory, program))
        return (program, *rest)

    @asynccontextmanager
    async def open(self, _shared: Shared) -> AsyncGenerator["NotAsked"]:
        """What says that it cannot be asked."""
        yield NotAsked(self.line)


@attrs.frozen
class NotAsked:
    """A provider that is none: an agent works on cases, it answers no single question."""

    line: str

    async def __call__(self, _request: Request, /) -> NoReturn:
        """Refuse. Not a checkpoint.

        Raises:
            ProviderError: `bad_request`, always.
        """
        message = (
            f"exec:{self.line} is an agent here, which works on cases and cannot be asked; a judge has "
            "to be another provider"
        )
        raise ProviderError("bad_request", message)


_SUITE = re.compile(r"\{\{\s*suite\s*\}\}(/.+)", re.DOTALL)
_INTERPRETER = re.compile(r"(ba|da|k|z)?sh|python[\d.]*|node|perl|ruby|php|Rscript")


def _missing(words: Sequence[str], directory: Path, environ: Mapping[str, str]) -> Problem | None:
    """Why a line cannot be run, as far as that can be seen: its program, or the script of its interpreter."""
    program = _known(words[0], directory)
    if program is not None and (fault := find_fault(program, directory, environ)):
        return fault
    if program is None or not _INTERPRETER.fullmatch(Path(program).name):
        return None
    # Relative to the workspace it may be what an agent is given there; beside the suite it is there now.
    script = next((word for word in words[1:] if not word.startswith("-")), "")
    path = _known(script, directory) if _SUITE.fullmatch(script) else None
    if path is None or Path(path).exists():
        return None
    return Problem(".id", f'there is no file "{path}" for {words[0]}')


def _known(word: str, directory: Path) -> str | None:
    """A word whose only variable may be the folder of the suite; None if it has others."""
    beside = _SUITE.fullmatch(word)
    whole = word if beside is None else f"{directory}{beside[1]}"
    return None if has_template(beside[1] if beside else whole) else whole


def read_agent_command(
    _prefix: str, rest: str, config: Mapping[str, Any], around: Surroundings
) -> CommandAgentSettings | list[Problem]:
    """Read an entry; see `Reader`. Looks whether the program is there, where that can be known yet."""
    values, problems = read_config(config, KEYS)
    values = {name: value for name, value in values.items() if value is not None}
    variables = values.get("env", {})
    environ = {**around.environ, **variables}
    directory = absolute(around.directory, "")
    words = split_templates(rest)
    if isinstance(words, Problem):
        return [*problems, words]
    wrong = {word: around.templates.syntax_error(word) for word in words}
    problems += [
        Problem(".id", f'the word "{word}" is no template: {fault}')
        for word, fault in wrong.items()
        if fault
    ]
    if fault := _missing(words, directory, environ):
        problems.append(fault)
    if problems:
        return problems
    return CommandAgentSettings(
        line=rest.strip(),
        words=tuple(words),
        directory=directory,
        environ=environ,
        secrets=(
            *secrets_of_command(words),
            *find_secrets(variables, {}),
            *find_secrets({}, around.environ),
        ),
        timeout=values["timeout_ms"] / 1000 if "timeout_ms" in values else None,
        stdin=values.get("input") == "stdin",
        max_output=values.get("max_output_bytes", DEFAULT_MAX_OUTPUT),
        success=frozenset(values.get("success_exit_codes", (0,))),
    )

"""Common parts of program entries: configs that are partly the user's own, and the arguments of calls.

A key that the provider knows is checked. Any other key is the user's own and passed to the program, unless it
is a misspelt known one.
"""

import os
import re
import shlex
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import attrs

from trioeval.errors import Problem, ProviderError
from trioeval.executables import find_program, install_hint, missing_program
from trioeval.providers.base import Request
from trioeval.providers.command_secrets import secrets_of_command
from trioeval.providers.config import (
    EntryContext,
    Key,
    ProviderResources,
    ProviderSettings,
    config_path,
    is_integer,
    is_json,
    is_positive,
    is_text,
    read_config,
    show,
    to_snake,
)
from trioeval.providers.programs import AGENT_RUNS
from trioeval.providers.secrets import is_secret_name, secret_parts

# Command lines of entries: their words, the config keys for them, and the check that their program exists.


DEFAULT_MAX_OUTPUT = 10 * 1024 * 1024
"""Maximum bytes of a program's standard output if the config sets none."""

_LARGEST_CODE = 255
_TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_HELD = re.compile(r"\0(\d+)\0")


def _are_exit_codes(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(is_integer(code) and 0 <= code <= _LARGEST_CODE for code in value)
    )


MAX_OUTPUT = Key(
    "maxOutputBytes", "a whole number of at least 1", lambda value: is_integer(value) and value >= 1
)
SUCCESS = Key("successExitCodes", "a list of whole numbers from 0 to 255", _are_exit_codes)


def split_line(line: str) -> list[str] | Problem:
    """Return the words of a command line, at least one."""
    return _split(line, line)


def _split(line: str, shown: str) -> list[str] | Problem:
    """Return the words of a line; messages show `shown` instead of it."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        reason = str(error).lower()
        return Problem(".id", f'"{shown}" cannot be split into words: {reason}', "close the quote")
    if not words or not words[0]:
        return Problem(".id", '"exec:" has no program', "write exec:<command line>")
    return words


def split_templates(line: str) -> list[str] | Problem:
    """Return the words of a command line, at least one; the text of a template is never split.

    Example:
        >>> split_templates("python3 {{ suite }}/agent.py '{{ names | first }} first'")
        ['python3', '{{ suite }}/agent.py', '{{ names | first }} first']
    """
    if "\0" in line:
        return Problem(".id", "a command line must not contain a NUL character")
    templates: list[str] = []

    def hold(found: re.Match[str]) -> str:
        templates.append(found[0])
        return f"\0{len(templates) - 1}\0"

    words = _split(_TEMPLATE.sub(hold, line), line)
    if isinstance(words, Problem):
        return words
    return [_HELD.sub(lambda match: templates[int(match[1])], word) for word in words]


def has_template(word: str) -> bool:
    """Return whether a word of a command line contains a template."""
    return _TEMPLATE.search(word) is not None


def find_fault(program: str, cwd: Path, environ: Mapping[str, str]) -> Problem | None:
    """Return the reason why a program cannot be run, as far as it can be checked."""
    beside = cwd / program
    if os.sep in program:
        if not beside.is_file():
            return Problem(".id", f'program "{beside}" not found')
        if not os.access(beside, os.X_OK):
            return Problem(".id", f'"{beside}" is not executable', f"chmod +x {program}")
    elif find_program(program, environ) is None:
        hint = f'write "./{program}" for the file in {cwd}' if beside.is_file() else install_hint()
        return Problem(".id", missing_program(program), hint)
    return None


_LONG = 12
"""Length from which a value of the environment counts as a secret, not as a word."""


def _is_variables(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        is_text(name) and isinstance(text, str) and "=" not in name and "\0" not in name + text
        for name, text in value.items()
    )


@attrs.frozen(kw_only=True)
class ProgramSettings(ProviderSettings):
    """A command line, and the settings for running its program."""

    line: str
    """The command line in the suite."""
    environ: Mapping[str, str] = attrs.field(repr=False)
    secrets: tuple[str, ...] = attrs.field(repr=False)
    stdin: bool = False
    """True if the prompt is written to the standard input."""
    max_output: int = DEFAULT_MAX_OUTPUT
    """Maximum bytes that are kept of an output, ≥ 1."""
    success: frozenset[int] = frozenset({0})
    """Exit codes of success; at least one."""

    @property
    def own_name(self) -> str:
        """The id in the suite."""
        return f"exec:{self.line}"


TIMEOUT = Key("timeoutMs", "a number of milliseconds above 0", is_positive)
ENVIRONMENT = Key("env", "an object of texts", _is_variables, secret=True)
DEFAULT_TIMEOUT = 300.0
"""Maximum seconds of a call if the config sets none."""


def read_own_config(
    config: Mapping[str, Any], keys: Iterable[Key]
) -> tuple[dict[str, Any], dict[str, Any], list[Problem]]:
    r"""Return the non-null values of known keys by snake_case key, the user's own keys, and the problems.

    Example:
        >>> read_own_config({"timeoutMs": 5, "style": "dry"}, [TIMEOUT])
        ({'timeout_ms': 5}, {'style': 'dry'}, [])
        >>> _, _, problems = read_own_config({"timeoutms": 5}, [TIMEOUT])
        >>> print(problems[0])
        .config.timeoutms: "timeoutms" is not a key
          did you mean "timeoutMs"?
    """
    keys = tuple(keys)
    known = {to_snake(key.name) for key in keys}
    near = {_letters(key.name): key.name for key in keys}
    mine: dict[str, Any] = {}
    own: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, value in config.items():
        if to_snake(str(key)) in known:
            mine[key] = value
        elif meant := near.get(_letters(str(key))):
            hint = f'did you mean "{meant}"?'
            problems.append(Problem(config_path(key), f'"{key}" is not a key', hint))
        elif not is_json(value):
            fault = f"must be JSON, because it is passed to the program, got {show(value)}"
            problems.append(Problem(config_path(key), fault))
        else:
            own[str(key)] = value
    values, wrong = read_config(mine, keys)
    values = {name: value for name, value in values.items() if value is not None}
    return values, own, problems + wrong


def absolute(directory: Path, file: str) -> Path:
    """Return a path of the suite as an absolute one, with links unresolved."""
    return Path(os.path.abspath(directory / file))  # noqa: PTH100 - resolve() would follow links


def read_call(
    own: Mapping[str, Any], keys: Iterable[Key], request: Request
) -> tuple[float | None, dict[str, Any]]:
    """Return the time limit of one call in seconds, or None, and the user's own config for it.

    Raises:
        ProviderError: `bad_request`, if a key is wrong or cannot differ for one call.
    """
    values, changed, problems = read_own_config(request.options, keys)
    fixed = [f'"{name}"' for name in values if name != "timeout_ms"]
    if fixed:
        problems.append(Problem(".config", f"{', '.join(fixed)} cannot differ for one call"))
    if problems:
        raise ProviderError("bad_request", "; ".join(map(str, problems)))
    timeout_ms = values.get("timeout_ms")
    return None if timeout_ms is None else timeout_ms / 1000, {**own, **changed}


def make_context(request: Request) -> dict[str, Any]:
    """Return the context of a call: the test besides its prompt.

    Raises:
        ProviderError: `bad_request`, if a variable is not JSON.
    """
    if not is_json(dict(request.vars)):
        wrong = ", ".join(show(name) for name, value in request.vars.items() if not is_json(value))
        raise ProviderError(
            "bad_request",
            f"the variables of the test are not JSON: check {wrong or 'their names, which must be text'}",
        )
    row = {} if request.describe_row is None else request.describe_row()
    evaluation = request.vars.get("__evalId")
    return {
        "vars": dict(request.vars),
        "prompt": {"raw": request.prompt, "label": ""},
        **row,
        **({} if evaluation is None else {"evaluationId": evaluation}),
        "testIdx": request.test_idx,
        "promptIdx": request.prompt_idx,
        "repeatIndex": request.repeat_index,
    }


def find_secrets(config: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secrets that a program gets, judged by their names.

    Example:
        >>> find_secrets(
        ...     {"server": {"apiKey": "sk-1"}, "style": "dry"},
        ...     {"HF_TOKEN": "hf_0123456789", "TERM": "x"},
        ... )
        ('sk-1', 'hf_0123456789')
    """
    given = _named_secret(config, is_secret=False)
    inherited = (
        text for name, text in environ.items() if is_secret_name(name) and len(text) >= _LONG
    )
    parts = (part for text in (*given, *inherited) for part in (text, *sorted(secret_parts(text))))
    return tuple(dict.fromkeys(parts))


def _named_secret(value: Any, *, is_secret: bool) -> Iterator[str]:
    """Yield the texts under a secret name, at any depth."""
    match value:
        case str() if is_secret:
            yield value
        case Mapping():
            for name, part in value.items():
                yield from _named_secret(part, is_secret=is_secret or is_secret_name(str(name)))
        case list() | tuple():
            for part in value:
                yield from _named_secret(part, is_secret=is_secret)


def _letters(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


# `exec:<command line>` in a task of type `agent`: a program that works on a case until it is done.
#
# The words of the line are templates, and each is rendered separately for every attempt: a variable never
# becomes two words. This module reads the entry; the task runs it.


KEYS = (
    TIMEOUT,
    Key("input", '"none" or "stdin"', lambda value: value in ("none", "stdin")),
    MAX_OUTPUT,
    SUCCESS,
    ENVIRONMENT,
)


@attrs.frozen(kw_only=True)
class CommandAgentSettings(ProgramSettings):
    """A command line of an agent, and the settings for running it."""

    words: tuple[str, ...]
    """Templates; at least one."""
    directory: Path
    """The suite's folder, absolute: the base of the program's path."""
    timeout: float | None = None
    """Maximum seconds of an attempt, > 0; None uses the task's limit."""

    @property
    def lane_key(self) -> str:
        """The run slots, which all agents share."""
        return AGENT_RUNS

    def command(self, fill: Callable[[str], str]) -> tuple[str, ...]:
        """Return the words of one attempt.

        Args:
            fill: Renders a word; its exceptions are propagated.
        """
        program, *rest = map(fill, self.words)
        if os.sep in program:
            program = str(absolute(self.directory, program))
        return (program, *rest)

    @asynccontextmanager
    async def open(self, _shared: ProviderResources) -> AsyncGenerator["RefusingProvider"]:
        """Open a provider that refuses every call."""
        yield RefusingProvider(self.line)


@attrs.frozen
class RefusingProvider:
    """A provider that refuses every call: an agent works on cases and cannot answer requests."""

    line: str

    async def __call__(self, _request: Request, /) -> NoReturn:
        """Refuse. Not a checkpoint.

        Raises:
            ProviderError: `bad_request`, always.
        """
        message = (
            f"exec:{self.line} is an agent here, which works on cases and cannot answer requests; "
            "use another provider as the judge"
        )
        raise ProviderError("bad_request", message)


_SUITE = re.compile(r"\{\{\s*suite\s*\}\}(/.+)", re.DOTALL)
_INTERPRETER = re.compile(r"(ba|da|k|z)?sh|python[\d.]*|node|perl|ruby|php|Rscript")


def _missing(words: Sequence[str], directory: Path, environ: Mapping[str, str]) -> Problem | None:
    """Return the problem of a missing program, or of a missing script of an interpreter, if it is known."""
    program = _known(words[0], directory)
    if program is not None and (fault := find_fault(program, directory, environ)):
        return fault
    if program is None or not _INTERPRETER.fullmatch(Path(program).name):
        return None
    # A path relative to the workspace may be created for the agent; one in the suite's folder must exist now.
    script = next((word for word in words[1:] if not word.startswith("-")), "")
    path = _known(script, directory) if _SUITE.fullmatch(script) else None
    if path is None or Path(path).exists():
        return None
    return Problem(".id", f'file "{path}" for {words[0]} not found')


def _known(word: str, directory: Path) -> str | None:
    """Return a word with the suite's folder as its only variable filled in; None if it has others."""
    beside = _SUITE.fullmatch(word)
    whole = word if beside is None else f"{directory}{beside[1]}"
    return None if has_template(beside[1] if beside else whole) else whole


def read_agent_command(
    _prefix: str, rest: str, config: Mapping[str, Any], context: EntryContext
) -> CommandAgentSettings | list[Problem]:
    """Read an entry; see `Reader`. Checks that the program exists, if that is already known."""
    values, problems = read_config(config, KEYS)
    values = {name: value for name, value in values.items() if value is not None}
    variables = values.get("env", {})
    environ = {**context.environ, **variables}
    directory = absolute(context.directory, "")
    words = split_templates(rest)
    if isinstance(words, Problem):
        return [*problems, words]
    wrong = {word: context.templates.syntax_error(word) for word in words}
    problems += [
        Problem(".id", f'the word "{word}" is not a valid template: {fault}')
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
            *find_secrets({}, context.environ),
        ),
        timeout=values["timeout_ms"] / 1000 if "timeout_ms" in values else None,
        stdin=values.get("input") == "stdin",
        max_output=values.get("max_output_bytes", DEFAULT_MAX_OUTPUT),
        success=frozenset(values.get("success_exit_codes", (0,))),
    )

"""The type whose judge is a command that runs in the workspace of an agent: its tests, a compiler.

That a command does not end is the work of the agent, like any other failure of it. Only one that cannot be
started, because there is no such program on this machine, says nothing of the workspace.
"""

import math
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from trioeval.errors import GradingError, Problem
from trioeval.grading.file_kinds import workspace_of
from trioeval.grading.kind import Asking, Finding, Kind, Kinds
from trioeval.grading.model import Assertion
from trioeval.grading.outside import Outside
from trioeval.grading.subject import Subject
from trioeval.grading.text import is_template, quote

LIMIT = 60.0
"""Seconds that a command may take where nobody says how long."""

_RIGHT = "a command line, a list of its words, or {command, timeoutMs, exitCode, env}"
_KEYS = frozenset({"command", "timeoutMs", "exitCode", "env"})
_LARGEST_CODE = 255
_LINES = 10
_SHOWN = 1000  # characters


@attrs.frozen(kw_only=True)
class _Asked:
    words: tuple[str, ...]
    limit: float
    exit_code: int
    env: Mapping[str, str]


async def _command(
    subject: Subject, value: Any, _assertion: Assertion, outside: Outside
) -> Finding:
    workspace = workspace_of(subject)
    try:
        asked = _read(value)
    except ValueError as error:
        raise GradingError(str(error)) from None
    ran = await outside.run(asked.words, folder=workspace, environ=asked.env, limit=asked.limit)
    reason = f"{quote(shlex.join(asked.words))} {ran.how}"
    if ran.code is not None and asked.exit_code not in (0, ran.code):
        reason = f"{reason}, and not {asked.exit_code}"
    if told := _last_lines(ran.output):
        reason = f"{reason}:\n{told}"
    return Finding(
        holds=ran.code == asked.exit_code,
        reason=reason,
        invertible=ran.code is not None and ran.code >= 0,  # a signal is no verdict
        metadata={"command": {"exitCode": ran.code, "output": ran.output}},
    )


def _last_lines(output: str) -> str:
    told = "\n".join(output.splitlines()[-_LINES:])
    return told if len(told) <= _SHOWN else f"…{told[-_SHOWN:]}"


def _read(value: Any) -> _Asked:
    """What is asked for; raises `ValueError` where a command line cannot be split."""
    said = value if isinstance(value, Mapping) else {"command": value}
    return _Asked(
        words=_words(said["command"]),
        limit=said.get("timeoutMs", LIMIT * 1000) / 1000,
        exit_code=said.get("exitCode", 0),
        env=said.get("env") or {},
    )


def _words(command: Any) -> tuple[str, ...]:
    if not isinstance(command, str):
        return tuple(command)
    try:
        words = shlex.split(command)
    except ValueError as error:
        reason = str(error).lower()
        msg = f"{quote(command)} cannot be split into words: {reason}"
        raise ValueError(msg) from None
    if not words or not words[0]:
        msg = f"{quote(command)} names no program"
        raise ValueError(msg)
    return tuple(words)


def _is_command(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return bool(value) and bool(value[0]) and all(isinstance(word, str) for word in value)
    return isinstance(value, str) and bool(value.strip())


def _accepts(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return _is_command(value)
    env = value.get("env", {})
    return (
        not value.keys() - _KEYS
        and _is_command(value.get("command"))
        and _is_limit(value.get("timeoutMs", 1))
        and _is_code(value.get("exitCode", 0))
        and isinstance(env, Mapping)
        and all(isinstance(text, str) for pair in env.items() for text in pair)
    )


def _is_limit(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 < value < math.inf


def _is_code(value: Any) -> bool:
    number = isinstance(value, int) and not isinstance(value, bool)
    return number and 0 <= value <= _LARGEST_CODE


def _check(assertion: Assertion) -> Iterator[Problem]:
    value, at = assertion.value, ".value"
    if isinstance(value, Mapping):
        value, at = value["command"], ".value.command"
    if isinstance(value, str) and is_template(value):
        return
    if is_template(value):
        message = f"{value.written} is a file, and a command is written as it is"
        yield Problem(at, message, f"write the command, such as python {value.written}")
        return
    try:
        _words(value)
    except ValueError as error:
        yield Problem(at, str(error), "close the quote" if "quot" in str(error) else None)


COMMAND = "command"

KINDS: Kinds = {
    COMMAND: Kind(
        _RIGHT, _accepts, Asking(_command), check=_check, runs_code=True, fills_objects=True
    )
}

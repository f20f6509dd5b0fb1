"""The type whose judge is a command that runs in the workspace of an agent: its tests, a compiler.

That a command does not end is the work of the agent, like any other failure of it. Only one that cannot be
started, because there is no such program on this machine, says nothing of the workspace.
"""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs

from trioeval.errors import GradingError, Problem, ScriptError
from trioeval.grading.kind import Asking, Finding, Kind, Kinds, is_anything, is_number, is_said
from trioeval.grading.kinds.files import workspace_of
from trioeval.grading.kinds.scripts import failed, finite, read_result
from trioeval.grading.model import Assertion
from trioeval.grading.services import Outside
from trioeval.grading.subject import Subject
from trioeval.text import is_template, quote

# Assertion types that a suite brings: functions of files, which judge as a `python` assertion does.


@attrs.frozen
class _OwnJudge:
    file: Path
    function: str

    async def __call__(
        self, subject: Subject, value: Any, assertion: Assertion, outside: Outside
    ) -> Finding:
        try:
            answer = await outside.code.file(
                self.file, self.function, subject.output, {"value": value}
            )
        except ScriptError as error:  # its failure is the test's, as for any script
            return failed(error.message)
        return read_result(answer, assertion.threshold)


def own_kind(file: Path, function: str) -> Kind:
    """The type whose judge is a function of a Python or JavaScript file.

    The function is called with the output and a context that has, besides what every script is told, the
    rendered value of the assertion as `value`. What it gives means what the result of a `python` assertion
    means.

    Args:
        file: Absolute.
        function: Its name.

    Example:
        >>> here = Path("/suite/checks.py")
        >>> own_kind(here, "is_polite") == own_kind(here, "is_polite")
        True
    """
    return Kind("any value", is_anything, Asking(_OwnJudge(file, function)), bare=True)


# The type whose judge is a server of the user's own.


WEBHOOK = "webhook"
"""Its value is a URL, which may hold a credential."""

_WEBHOOK_KINDS_RIGHT = "a URL that begins with http:// or https://"


async def _webhook(
    subject: Subject, value: Any, _assertion: Assertion, outside: Outside
) -> Finding:
    context = {"prompt": subject.prompt, "vars": dict(subject.vars)}
    reply = await outside.post(value, {"output": subject.output, "context": context})
    match reply:
        case {"pass": bool(passed)}:
            return Finding(passed, _reason(reply, passed=passed), score=_score(reply))
        case _:
            msg = (
                f"the webhook must return an object whose pass is true or false, got {quote(reply)}"
            )
            raise GradingError(msg)


def _score(reply: Mapping[str, Any]) -> float | None:
    if "score" not in reply:
        return None
    try:
        return finite(reply["score"], "the webhook's score")
    except ValueError as error:
        raise GradingError(str(error)) from error


def _reason(reply: Mapping[str, Any], *, passed: bool) -> str:
    reason = reply.get("reason")
    if isinstance(reason, str) and reason:
        return reason
    return f"the webhook says {'yes' if passed else 'no'}"


def _check_url(assertion: Assertion) -> Iterator[Problem]:
    if not is_template(assertion.value) and not _is_url(assertion.value):
        yield Problem(".value", f"must be {_WEBHOOK_KINDS_RIGHT}, got {quote(assertion.value)}")


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text.strip())
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname)


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
    return is_said(value)


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
    return is_number(value) and value > 0


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
    ),
    WEBHOOK: Kind(_WEBHOOK_KINDS_RIGHT, is_said, Asking(_webhook), check=_check_url),
}

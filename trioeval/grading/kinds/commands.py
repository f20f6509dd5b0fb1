"""Assertion types whose judge is a function, a web server, or a command in the workspace of an agent.

A command that does not end is a failure of the agent's work, like any other failure of the command. Only a
command that cannot be started, because this machine has no such program, is not the agent's fault.
"""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs

from trioeval.errors import GradingError, Problem, ScriptError
from trioeval.grading.kind import (
    ExternalJudge,
    Finding,
    Kind,
    Kinds,
    expectation,
    is_anything,
    is_not_blank,
    is_number,
)
from trioeval.grading.kinds.files import workspace_of
from trioeval.grading.kinds.scripts import failed, finite, read_result
from trioeval.grading.model import Assertion
from trioeval.grading.registry import COMMAND, WEBHOOK
from trioeval.grading.services import ExternalServices
from trioeval.grading.subject import Subject
from trioeval.text import is_template, quote

# Custom assertion types of a suite: functions in files, which judge like a `python` assertion.


@attrs.frozen
class _OwnJudge:
    file: Path
    function: str

    async def __call__(
        self, subject: Subject, value: Any, assertion: Assertion, outside: ExternalServices
    ) -> Finding:
        try:
            answer = await outside.code.file(
                self.file, self.function, subject.output, {"value": value}
            )
        except ScriptError as error:  # a failure of the test, as for any script
            return failed(error.message)
        return read_result(answer, assertion.threshold)


def own_kind(file: Path, function: str) -> Kind:
    """Make a type whose judge is a function of a Python or JavaScript file.

    The function is called with the output and the context of scripts, which also has the rendered value of
    the assertion as `value`. Its result has the meaning of the result of a `python` assertion.

    Args:
        file: Absolute path.
        function: Its name.

    Example:
        >>> here = Path("/suite/checks.py")
        >>> own_kind(here, "is_polite") == own_kind(here, "is_polite")
        True
    """
    return Kind("any value", is_anything, ExternalJudge(_OwnJudge(file, function)), bare=True)


# The type whose judge is the user's own server.


_WEBHOOK_KINDS_RIGHT = "a URL that begins with http:// or https://"


async def _webhook(
    subject: Subject, value: Any, _assertion: Assertion, outside: ExternalServices
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
    return f"the webhook returned {'true' if passed else 'false'}"


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
"""Default time limit of a command in seconds."""

_RIGHT = "a command line, a list of its words, or {command, timeoutMs, exitCode, env}"
_KEYS = frozenset({"command", "timeoutMs", "exitCode", "env"})
_LARGEST_CODE = 255
_LINES = 10
_SHOWN = 1000  # characters


@attrs.frozen(kw_only=True)
class _CommandSettings:
    words: tuple[str, ...]
    limit: float
    exit_code: int
    env: Mapping[str, str]


async def _command(
    subject: Subject, value: Any, assertion: Assertion, outside: ExternalServices
) -> Finding:
    workspace = workspace_of(subject)
    try:
        command = _read(value)
    except ValueError as error:
        raise GradingError(str(error)) from None
    ran = await outside.run(
        command.words, folder=workspace, environ=command.env, limit=command.limit
    )
    reason = f"{quote(shlex.join(command.words))} {ran.how}"
    if ran.code is not None and command.exit_code not in (0, ran.code):
        reason = f"{reason}, {expectation(assertion, str(command.exit_code))}"
    if last_lines := _last_lines(ran.output):
        reason = f"{reason}:\n{last_lines}"
    return Finding(
        holds=ran.code == command.exit_code,
        reason=reason,
        invertible=ran.code is not None and ran.code >= 0,  # a signal gives no verdict
        metadata={"command": {"exitCode": ran.code, "output": ran.output}},
    )


def _last_lines(output: str) -> str:
    text = "\n".join(output.splitlines()[-_LINES:])
    return text if len(text) <= _SHOWN else f"…{text[-_SHOWN:]}"


def _read(value: Any) -> _CommandSettings:
    """Return the settings in a value; raise `ValueError` if a command line cannot be split."""
    settings = value if isinstance(value, Mapping) else {"command": value}
    return _CommandSettings(
        words=_words(settings["command"]),
        limit=settings.get("timeoutMs", LIMIT * 1000) / 1000,
        exit_code=settings.get("exitCode", 0),
        env=settings.get("env") or {},
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
        msg = f"{quote(command)} has no program"
        raise ValueError(msg)
    return tuple(words)


def _is_command(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return bool(value) and bool(value[0]) and all(isinstance(word, str) for word in value)
    return is_not_blank(value)


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
        message = f"{value.written} is a file, but a command must be written in the suite"
        yield Problem(at, message, f"write the command, such as python {value.written}")
        return
    try:
        _words(value)
    except ValueError as error:
        yield Problem(at, str(error), "close the quote" if "quot" in str(error) else None)


KINDS: Kinds = {
    COMMAND: Kind(
        _RIGHT, _accepts, ExternalJudge(_command), check=_check, runs_code=True, fills_objects=True
    ),
    WEBHOOK: Kind(_WEBHOOK_KINDS_RIGHT, is_not_blank, ExternalJudge(_webhook), check=_check_url),
}

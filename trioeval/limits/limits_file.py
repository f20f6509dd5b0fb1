"""Limits in a file: a JSON list of definitions, with the usage of limits that are in use.

A file is replaced as a whole, never written in place: a reader sees the old or the new version, also after a
crash.
"""

import json
import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import attrs

from trioeval.errors import OutputError, Problem, SuiteError
from trioeval.limits.json import from_json, state_data
from trioeval.limits.model import LimitState

_ENTRY = re.compile(r"\$\[(\d+)\]")
_BLANKS = re.compile(r"[ \t\r\n]*")


def read_limits(path: Path, *, missing_ok: bool = False) -> tuple[LimitState, ...]:
    """Read limits from a file, in its order; periods start in Unix time.

    Args:
        path: The file.
        missing_ok: True to read a file that does not exist as one without limits.

    Raises:
        SuiteError: The file cannot be read, or is invalid; with all its problems.
    """
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        if missing_ok:
            return ()
        raise _unreadable(path, "file not found") from None
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from None
    except UnicodeDecodeError as error:
        raise _unreadable(path, f"byte {error.start} is not UTF-8") from None
    twice: list[str] = []
    try:
        data = json.loads(text, object_pairs_hook=lambda pairs: _once(pairs, twice))
    except json.JSONDecodeError as error:
        message = f"is not JSON: {error.msg}"
        place = (error.lineno, error.colno)
        raise SuiteError([Problem("$", message, None, str(path), *place)], files=[path]) from None
    except (RecursionError, ValueError) as error:  # a number of thousands of digits
        raise _unreadable(path, f"is not a file of limits: {error}") from None
    if twice:
        raise _unreadable(path, f"the key {json.dumps(twice[0])} occurs twice in one object")
    try:
        return from_json(data, tuple[LimitState, ...])
    except SuiteError as error:
        lines = _lines_of_entries(text) if isinstance(data, list) else []
        placed = [_placed(problem, path, lines) for problem in error.problems]
        raise SuiteError(placed, files=[path]) from None


def write_limits(path: Path, states: Iterable[LimitState]) -> None:
    """Replace a file by these limits, sorted by key.

    They are on disk when it returns. Pauses are not written, because a file has no clock. The starts of
    periods must be in Unix time.

    Raises:
        OutputError: It cannot be written, and the previous version remains; or it is written, and a loss of
            power may undo that.
    """
    ordered = sorted(states, key=lambda state: state.limit.key)
    text = json.dumps([state_data(state) for state in ordered], ensure_ascii=False, indent=2)
    target = Path(os.path.realpath(path))  # a link stays one
    temporary = target.with_name(f".{target.name}.{uuid4().hex}.tmp")
    try:
        try:
            with temporary.open(
                "x", encoding="utf-8", errors="backslashreplace", newline="\n"
            ) as file:
                file.write(f"{text}\n")
                file.flush()
                with suppress(FileNotFoundError):
                    os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
                os.fsync(file.fileno())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        msg = f"{path}: cannot write the limits: {error.strerror or error}"
        raise OutputError(msg) from error
    try:
        sync_folder(target.parent)
    except OSError as error:
        reason = error.strerror or error
        msg = f"{path}: the limits are written, but a loss of power may undo that: {reason}"
        raise OutputError(msg) from error


def shifted(states: Iterable[LimitState], seconds: float) -> list[LimitState]:
    """Return states whose periods start on a clock that is ahead by so many seconds."""
    return [
        state if state.began_at is None else attrs.evolve(state, began_at=state.began_at + seconds)
        for state in states
    ]


def sync_folder(folder: Path) -> None:
    """Sync a folder, without which a new file in it may be lost."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _once(pairs: list[tuple[str, Any]], twice: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            twice.append(key)
        found[key] = value
    return found


def _lines_of_entries(text: str) -> list[int]:
    """Return the line of each entry of a list; the text must be valid JSON."""
    decode = json.JSONDecoder().raw_decode
    lines: list[int] = []
    at = _after_blanks(text, text.index("[") + 1)
    while text[at] != "]":
        lines.append(text.count("\n", 0, at) + 1)
        _, end = decode(text, at)
        at = _after_blanks(text, end)
        if text[at] == ",":
            at = _after_blanks(text, at + 1)
    return lines


def _after_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return at if found is None else found.end()


def _placed(problem: Problem, path: Path, lines: list[int]) -> Problem:
    entry = _ENTRY.match(problem.path)
    line = lines[int(entry[1])] if entry is not None else 1
    return attrs.evolve(problem, file=str(path), line=line)


def _unreadable(path: Path, reason: str) -> SuiteError:
    return SuiteError([Problem("$", reason, None, str(path))], files=[path])

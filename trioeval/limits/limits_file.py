"""Limits in a file: a JSON list of definitions, with how they stand where that is not as usual.

A file is replaced as a whole, never written into: who reads it while it is written sees the old or the new
one, and so does who comes after a crash.
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
    """Limits from a file, in its order; the beginnings of their periods in Unix time.

    Args:
        path: Of the file.
        missing_ok: Whether a file that is not there is one of no limits.

    Raises:
        SuiteError: It cannot be read, or with everything that is wrong with it.
    """
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        if missing_ok:
            return ()
        raise _unreadable(path, "there is no such file") from None
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
        raise _unreadable(path, f"is no file of limits: {error}") from None
    if twice:
        raise _unreadable(path, f"the key {json.dumps(twice[0])} stands twice in one object")
    try:
        return from_json(data, tuple[LimitState, ...])
    except SuiteError as error:
        lines = _lines_of_entries(text) if isinstance(data, list) else []
        placed = [_placed(problem, path, lines) for problem in error.problems]
        raise SuiteError(placed, files=[path]) from None


def write_limits(path: Path, states: Iterable[LimitState]) -> None:
    """Put a file of these in the place of what is there, sorted by key.

    When it returns, they are on the disk. Pauses are not written: a file that is only read has no clock. The
    beginnings of periods must be in Unix time.

    Raises:
        OutputError: It cannot be written, and what was there before is there still; or it is written, and
            a loss of power may undo that.
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
        msg = f"{path}: the limits cannot be written: {error.strerror or error}"
        raise OutputError(msg) from error
    try:
        sync_folder(target.parent)
    except OSError as error:
        reason = error.strerror or error
        msg = f"{path}: the limits are written, and a loss of power may undo that: {reason}"
        raise OutputError(msg) from error


def shifted(states: Iterable[LimitState], seconds: float) -> list[LimitState]:
    """The same with the beginnings of their periods on a clock that is so many seconds ahead."""
    return [
        state if state.began_at is None else attrs.evolve(state, began_at=state.began_at + seconds)
        for state in states
    ]


def sync_folder(folder: Path) -> None:
    """A file is found again only when its folder is on the disk too."""
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
    """The lines in which the entries of a list begin; the text is good JSON."""
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

"""Command lines of entries: their words, keys that go with them, and whether their program is there."""

import os
import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trioeval.errors import Problem
from trioeval.providers.config import Key, is_integer

DEFAULT_MAX_OUTPUT = 10 * 1024 * 1024
"""Bytes that a program may write to its standard output where the config says nothing."""

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
    """The words of a command line, at least one."""
    return _split(line, line)


def _split(line: str, told: str) -> list[str] | Problem:
    """The words of a line, which messages show as it is told."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        reason = str(error).lower()
        return Problem(".id", f'"{told}" cannot be split into words: {reason}', "close the quote")
    if not words or not words[0]:
        return Problem(".id", '"exec:" names no program', "write exec:<command line>")
    return words


def split_templates(line: str) -> list[str] | Problem:
    """The words of a command line, at least one; what a template encloses is never split.

    Example:
        >>> split_templates("python3 {{ suite }}/agent.py '{{ names | first }} first'")
        ['python3', '{{ suite }}/agent.py', '{{ names | first }} first']
    """
    if "\0" in line:
        return Problem(".id", "a command line cannot have a NUL character")
    templates: list[str] = []

    def hold(found: re.Match[str]) -> str:
        templates.append(found[0])
        return f"\0{len(templates) - 1}\0"

    words = _split(_TEMPLATE.sub(hold, line), line)
    if isinstance(words, Problem):
        return words
    return [_HELD.sub(lambda held: templates[int(held[1])], word) for word in words]


def has_template(word: str) -> bool:
    """Whether a word of a command line has something to fill in."""
    return _TEMPLATE.search(word) is not None


def find_fault(program: str, cwd: Path, environ: Mapping[str, str]) -> Problem | None:
    """Why a program cannot be run, as far as can be seen."""
    beside = cwd / program
    if os.sep in program:
        if not beside.is_file():
            return Problem(".id", f'there is no program "{beside}"')
        if not os.access(beside, os.X_OK):
            return Problem(".id", f'"{beside}" is not executable', f"chmod +x {program}")
    elif shutil.which(program, path=environ.get("PATH", os.defpath)) is None:
        hint = f'write "./{program}" for the file in {cwd}' if beside.is_file() else None
        return Problem(".id", f'"{program}" is not a program in PATH', hint)
    return None

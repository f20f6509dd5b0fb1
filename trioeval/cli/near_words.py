"""The command or suite file that a mistyped word may stand for."""

import difflib
from collections.abc import Sequence
from pathlib import Path

from trioeval.cli.arguments import SUITE_SUFFIXES
from trioeval.cli.short_help import COMMANDS

_ELSEWHERE = {"eval": "run", "help": "--help", "list": "runs", "retry": "resume"}
"""Commands of other tools, and what they are called here."""


def near_words(arguments: Sequence[str]) -> str | None:
    """Return the command or the suite file that a first argument which is neither may stand for."""
    if near := near_command(arguments):
        return f'the command "{near}"'
    words = arguments[1:] if arguments and arguments[0] == "run" else arguments
    try:
        if not words or words[0].startswith("-") or Path(words[0]).exists():
            return None
        folder = Path(words[0]).parent
        files = [str(path) for path in folder.iterdir() if path.suffix in SUITE_SUFFIXES]
    except (OSError, ValueError):  # no such folder, or too long for a name
        return None
    return next(iter(difflib.get_close_matches(words[0], files, n=1, cutoff=0.8)), None)


def near_command(arguments: Sequence[str]) -> str | None:
    """Return the command that the first argument may stand for, if that is neither one nor a file."""
    try:
        if not arguments or arguments[0] in COMMANDS or Path(arguments[0]).exists():
            return None
    except (OSError, ValueError):  # too long for a name
        return None
    if named := _ELSEWHERE.get(arguments[0]):
        return named
    return next(iter(difflib.get_close_matches(arguments[0], sorted(COMMANDS), n=1)), None)

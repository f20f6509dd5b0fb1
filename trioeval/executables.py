"""The search for programs in PATH, and the one wording of messages about a program that cannot be started."""

import errno
import os
import shutil
from collections.abc import Mapping

from trioeval.text import quote

_LONGEST_PATH = 4096
"""The characters of a program's path in a message: its last part, which may be misspelt, is at its end."""


def find_program(name: str, environ: Mapping[str, str]) -> str | None:
    """Return the path of a program that is named without a folder; None if it is not in PATH."""
    return shutil.which(name, path=environ.get("PATH", os.defpath))


def missing_program(name: str, purpose: str = "") -> str:
    """Return the message about a program that is not in PATH.

    Args:
        name: The name of the program.
        purpose: The step that requires it, as a noun.

    Example:
        >>> missing_program("git", "opening p.bundle")
        'program "git" not found in PATH, required for opening p.bundle'
    """
    required = f", required for {purpose}" if purpose else ""
    return f"program {quote(name)} not found in PATH{required}"


def install_hint(instead: str = "correct its name") -> str:
    """Return the hint for a program that is not in PATH.

    Args:
        instead: What to do if it is installed, or must not be.
    """
    return f"install it, or {instead}"


def start_failure(program: str, error: OSError) -> str:
    """Return the message about a program that cannot be started.

    Args:
        program: The first word of the command.
        error: The error of the operating system.

    Example:
        >>> start_failure("pyhton", FileNotFoundError(2, "No such file or directory"))
        'program "pyhton" not found in PATH: install it, or correct its name'
        >>> start_failure("./agent", PermissionError(13, "Permission denied"))
        'program "./agent" cannot be started: Permission denied'
    """
    path = quote(program, limit=_LONGEST_PATH)
    if error.errno != errno.ENOENT:
        return f"program {path} cannot be started: {error.strerror}"
    if os.sep in program:
        return f"program {path} not found, or the interpreter in its first line"
    return f"{missing_program(program)}: {install_hint()}"

"""The file of a task's prompt: written once, and from then on what it says is what holds."""

import errno
import os
from pathlib import Path

from trioeval.agents.plain_files import read_plain
from trioeval.errors import AgentError

LARGEST = 64 * 1024 * 1024
"""Bytes that the file may have."""


def ensure_prompt(file: Path, submitted: str | None) -> str:
    """What the file says; it is made from what was submitted, if it is not there. Blocks on files.

    A file that is there is never changed: who changes it by hand changes what agents are told from then on.

    Args:
        file: In a folder that belongs to one program at a time.
        submitted: What would be written; None if there is nothing.

    Raises:
        AgentError: There is neither a file nor a text; what is there is blank, too large or no regular
            file; or it cannot be read or written.
    """
    try:
        if not os.path.lexists(file):
            if submitted is None or not submitted.strip():
                raise AgentError(f"{file} is not there, and no prompt was submitted: one is needed")
            _write(file, submitted)
        data = read_plain(file, LARGEST + 1)
        if len(data) > LARGEST:
            raise AgentError(f"{file} has more than {LARGEST:,} bytes, which a prompt cannot have")
        text = data.decode()
    except OSError as error:
        reason = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise AgentError(f"{file}: {reason}") from error
    except UnicodeError as error:
        raise AgentError(f"{file}: a prompt is text in UTF-8: {error}") from error
    if not text.strip():
        raise AgentError(f"{file} is blank; write the prompt there, or remove it")
    return text


def _write(file: Path, text: str) -> None:
    """Make the file, whole or not at all."""
    partial = file.with_name(f"{file.name}.new")
    partial.unlink(missing_ok=True)
    with partial.open("xb") as out:
        out.write(text.encode())
        out.flush()
        os.fsync(out.fileno())
    partial.rename(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

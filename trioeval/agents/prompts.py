"""The file of a task's prompt: written once, and from then on what it says is what holds."""

import os
from pathlib import Path

from trioeval.errors import AgentError


def ensure_prompt(file: Path, submitted: str | None) -> str:
    """What the file says; it is made from what was submitted, if it is not there. Blocks on files.

    A file that is there is never changed: who changes it by hand changes what agents are told from then on.

    Args:
        file: In a folder that belongs to one program at a time.
        submitted: What would be written; None if there is nothing.

    Raises:
        AgentError: There is neither a file nor a text, what is there is blank, or it cannot be read or
            written.
    """
    try:
        if not os.path.lexists(file):
            if submitted is None or not submitted.strip():
                raise AgentError(f"{file} is not there, and no prompt was submitted: one is needed")
            _write(file, submitted)
        text = file.read_bytes().decode()
    except OSError as error:
        raise AgentError(f"{file}: {error.strerror}") from error
    except UnicodeError as error:
        raise AgentError(f"{file}: a prompt is text in UTF-8: {error}") from error
    if not text.strip():
        raise AgentError(f"{file} is blank; write the prompt there, or remove it")
    return text


def _write(file: Path, text: str) -> None:
    """Make the file, whole or not at all."""
    partial = file.with_name(f"{file.name}.new")
    with partial.open("wb") as out:
        out.write(text.encode())
        out.flush()
        os.fsync(out.fileno())
    partial.rename(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

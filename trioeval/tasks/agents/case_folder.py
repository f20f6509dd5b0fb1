"""Makes the folder of a case, or finds that of an earlier execution. Blocks on files."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock

import attrs

from trioeval.agents.plain_files import read_plain
from trioeval.agents.workspace import make_done_folder, make_workspace
from trioeval.errors import AgentError
from trioeval.tasks.agents.case_files import CaseFiles

ABOUT = "case.json"
"""The file that says which case it is."""
_LARGEST = 1024 * 1024  # bytes of that file


@attrs.frozen(kw_only=True)
class Wanted:
    """What the folder of a case is to be."""

    digest: str
    """Of everything that makes it another case."""
    about: str
    """What people read of it there."""
    template: Callable[[], Path | None]
    """Finds what its workspace is a copy of. Raises `AgentError`."""
    goes_on: bool
    """Whether attempts were made that count."""
    anew: bool = False
    """Whether what is there does not count, whatever it is."""


def claim_folder(files: CaseFiles, wanted: Wanted, lock: Lock) -> None:
    """See that the folder of a case is there, before it waits for anything.

    A folder of another case, or of what does not count any more, is moved aside: nothing is lost. A case that
    goes on is found also where it has had another name, because its suite has another column now.

    Args:
        files: Where it is to be.
        wanted: What it is to be.
        lock: Held while folders move; one for all cases of a task.

    Raises:
        AgentError: It cannot be made.
    """
    try:
        files.folder.parent.mkdir(parents=True, exist_ok=True)
        with lock:
            if not _find(files, wanted):
                files.logs.mkdir(parents=True, exist_ok=True)
                _write(files.folder / ABOUT, {"digest": wanted.digest, "case": wanted.about})
        files.logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AgentError(f"{files.folder}: {error.strerror or error}") from error


def open_workspace(files: CaseFiles, wanted: Wanted) -> bool:
    """See that the workspace of a case is there, in the folder that it has. Whether it was there before.

    Raises:
        AgentError: It cannot be made.
    """
    try:
        files.logs.mkdir(parents=True, exist_ok=True)  # hours may lie between
        if files.workspace.is_dir():
            make_done_folder(files.workspace, files.done_file)  # the agent may have removed it
            return True
        if wanted.goes_on:
            msg = f"{files.workspace} is gone, in which the agent has begun"
            raise AgentError(f"{msg}; to begin anew, run the row again with --retry and its index")
        make_workspace(files.workspace, wanted.template(), files.done_file)
    except OSError as error:
        raise AgentError(f"{files.folder}: {error.strerror or error}") from error
    return False


def _find(files: CaseFiles, wanted: Wanted) -> bool:
    """Whether the folder is there; what is in its place is moved away."""
    known = _digest_in(files)
    if known is not None:
        # One that cannot be read any more is believed where there must be one.
        is_own = known == wanted.digest or (wanted.goes_on and not known)
        if is_own and (wanted.goes_on or not wanted.anew):
            return True
        _move_aside(files.folder)
    if wanted.goes_on:
        for other in sorted(files.folder.parent.iterdir()):
            if wanted.digest and _digest_in(CaseFiles(other)) == wanted.digest:
                other.rename(files.folder)
                return True
    return False


def _digest_in(files: CaseFiles) -> str | None:
    """The digest of the case whose folder it is; None if nobody has worked there, blank of another one."""
    try:
        found = json.loads(read_plain(files.folder / ABOUT, _LARGEST))["digest"]
    except (FileNotFoundError, NotADirectoryError):
        return "" if os.path.lexists(files.workspace) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # agents may write there
        return ""
    return found if isinstance(found, str) else ""


def _move_aside(folder: Path) -> None:
    number = 1
    while os.path.lexists(aside := folder.with_name(f"{folder.name}.old-{number}")):
        number += 1
    folder.rename(aside)


def _write(file: Path, data: object) -> None:
    partial = file.with_name(f"{file.name}.new")
    partial.unlink(missing_ok=True)
    with partial.open("xb") as out:
        out.write(f"{json.dumps(data, indent=2, ensure_ascii=False)}\n".encode())
    partial.replace(file)

"""Makes the folder of a case, or finds that of an earlier execution. Blocks on files."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import attrs

from trioeval.agents.workspace import check_not_done, make_workspace
from trioeval.errors import AgentError
from trioeval.tasks.agents.case_files import CaseFiles

_ABOUT = "case.json"


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


def open_folder(files: CaseFiles, wanted: Wanted) -> bool:
    """See that the folder of a case is there, with its workspace. Whether an agent has begun there.

    A folder of another case, or of what does not count any more, is moved aside: nothing is lost.

    Raises:
        AgentError: It cannot be made.
    """
    try:
        known = _digest_in(files)
        if known is not None and not (
            wanted.goes_on or (known == wanted.digest and not wanted.anew)
        ):
            _move_aside(files.folder)
            known = None
        files.logs.mkdir(parents=True, exist_ok=True)
        if known is None:
            _write(files.folder / _ABOUT, {"digest": wanted.digest, "case": wanted.about})
        if files.workspace.is_dir():
            return True
        if wanted.goes_on:
            msg = f"{files.workspace} is gone, in which the agent has begun; run the case again with --retry"
            raise AgentError(msg)
        make_workspace(files.workspace, wanted.template())
        check_not_done(files.workspace, files.done_file)
    except OSError as error:
        raise AgentError(f"{files.folder}: {error.strerror or error}") from error
    return False


def _digest_in(files: CaseFiles) -> str | None:
    """The digest of the case whose folder it is; None if nobody has worked there, blank of another one."""
    try:
        found = json.loads((files.folder / _ABOUT).read_text())["digest"]
    except FileNotFoundError:
        return "" if os.path.lexists(files.workspace) else None
    except (ValueError, KeyError, TypeError):
        return ""
    return found if isinstance(found, str) else ""


def _move_aside(folder: Path) -> None:
    number = 1
    while os.path.lexists(aside := folder.with_name(f"{folder.name}.old-{number}")):
        number += 1
    folder.rename(aside)


def _write(file: Path, data: object) -> None:
    partial = file.with_name(f"{file.name}.new")
    partial.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n")
    partial.replace(file)

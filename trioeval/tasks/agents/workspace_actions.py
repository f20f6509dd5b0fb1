"""What a model may do to the files of its workspace. Blocks on files; nothing outside is touched.

What is given back is text for a model, bounded, and says how to go on where it is not all.
"""

import os
from pathlib import Path

from trioeval.grading.text import quote
from trioeval.grading.workspace_files import LARGEST, check_file, place_of, read_file

LONGEST = 50_000
"""Characters of a file that are given back at once."""
ENTRIES = 500
"""Of a folder that are given back at once."""


class ActionError(Exception):
    """Something was not done; the message says why."""


def list_files(workspace: Path, path: str = ".", offset: int = 1) -> str:
    """What is in a folder, by name; folders end with `/`.

    Args:
        workspace: The workspace.
        path: Of the folder.
        offset: The first entry, from 1.

    Raises:
        ActionError: There is no such folder.
        GradingError: It is no path of a workspace.
        NoFileError: It is a link that leads out.
    """
    try:
        with os.scandir(place_of(workspace, path)) as found:
            names = sorted(_shown(entry) for entry in found)
    except OSError as error:
        msg = f"{quote(path)} cannot be listed: {error.strerror}"
        raise ActionError(msg) from None
    first = max(offset, 1) - 1
    part = names[first : first + ENTRIES]
    if len(part) == len(names):
        return "\n".join(names) or "(nothing is there)"
    return "\n".join([*part, _rest("entries", first, len(part), len(names))])


def _shown(entry: os.DirEntry[str]) -> str:
    name = "".join(one if one.isprintable() else _escaped(one) for one in entry.name)
    if entry.is_symlink():
        return f"{name} (a link)"
    return f"{name}/" if entry.is_dir() else name


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _rest(what: str, first: int, size: int, whole: int) -> str:
    if not size:
        return f"[there are {whole} {what}]"
    last = first + size
    onward = f"; go on with offset {last + 1}" if last < whole else ""
    return f"[{what} {first + 1} to {last} of {whole}{onward}]"


def read_text(workspace: Path, path: str, offset: int = 1, limit: int | None = None) -> str:
    """The lines of a file.

    Args:
        workspace: The workspace.
        path: Of the file.
        offset: The first line, from 1.
        limit: Lines at most, ≥ 1; None reads as many as there is room for.

    Raises:
        ActionError: It is no text.
        GradingError: It is no path of a workspace.
        NoFileError: There is none, or it is outside or too large.
    """
    data = read_file(workspace, path)
    if b"\0" in data:
        msg = f"{quote(path)} is no text; it has {len(data):,} bytes"
        raise ActionError(msg)
    lines = data.decode("utf-8", "replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    first = max(offset, 1) - 1
    wanted = lines[first:] if limit is None else lines[first : first + max(limit, 1)]
    part: list[str] = []
    room = LONGEST
    for line in wanted:
        if len(line) > room:
            break
        part.append(line)
        room -= len(line) + 1
    if wanted and not part:
        cut = f"{wanted[0][:LONGEST]}\n[line {first + 1} has {len(wanted[0]):,} characters, and is cut]"
        return "\n".join([cut, _rest("lines", first, 1, len(lines))])
    if len(part) == len(lines):
        return "\n".join(part)
    return "\n".join([*part, _rest("lines", first, len(part), len(lines))])


def write_text(workspace: Path, path: str, content: str) -> str:
    """Make a file what is given, and the folders that it is in.

    Raises:
        ActionError: It cannot be written.
        GradingError: It is no path of a workspace.
        NoFileError: It is outside, a pipe or a device.
    """
    place = place_of(workspace, path)
    data = content.encode("utf-8", "replace")
    flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(place, flags, 0o666)
        with os.fdopen(descriptor, "wb") as file:
            check_file(path, descriptor)
            file.truncate(0)
            file.write(data)
    except OSError as error:
        msg = f"{quote(path)} cannot be written: {error.strerror}"
        raise ActionError(msg) from None
    return f"{quote(path)} has {len(data):,} bytes now"


def edit_text(workspace: Path, path: str, old: str, new: str, *, every: bool = False) -> str:
    """Put a text in place of another that occurs once in a file, or everywhere.

    Raises:
        ActionError: It does not occur, or more than once; or the file is no text, would become too large,
            or cannot be written.
        GradingError: It is no path of a workspace.
        NoFileError: There is none, or it is outside or too large.
    """
    try:
        text = read_file(workspace, path).decode()
    except UnicodeDecodeError:
        msg = f"{quote(path)} is not UTF-8, and cannot be edited as text"
        raise ActionError(msg) from None
    count = text.count(old) if old else 0
    if not count:
        msg = f"the old text does not occur in {quote(path)}; it has to be there exactly as it is given"
        raise ActionError(msg)
    if count > 1 and not every:
        msg = f"the old text occurs {count} times in {quote(path)}; give more of it, or set all"
        raise ActionError(msg)
    # Every place of a large file with a long text would be more than any machine has.
    sizes = [len(part.encode("utf-8", "replace")) for part in (text, old, new)]
    size = sizes[0] + count * (sizes[2] - sizes[1])
    if size > LARGEST:
        msg = (
            f"{quote(path)} would have {size:,} bytes, and {LARGEST:,} are the most that is edited"
        )
        raise ActionError(msg)
    write_text(workspace, path, text.replace(old, new))
    return f"{count} {'place' if count == 1 else 'places'} in {quote(path)} changed"

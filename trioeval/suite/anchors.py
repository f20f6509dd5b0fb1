"""Paths that lead to their file from anywhere, and still tell what was written.

`/a/b/./p.txt` is `p.txt` as a file in `/a/b` says it, in the manner of rsync. The system reads such a path as
any other; names and messages show what stands behind the mark, so that they are the same on every machine.
"""

from pathlib import Path

FILE = "file://"
"""What a text begins with that names a file."""

_MARK = "/./"


def anchored(reference: str, folder: Path) -> str:
    """A relative path, with or without `file://`, as one from `folder`; other references as they are.

    Example:
        >>> anchored("file://p.txt", Path("/a")), anchored("/b/p.txt", Path("/a"))
        ('file:///a/./p.txt', '/b/p.txt')
    """
    plain = reference.removeprefix(FILE)
    if "://" in plain or plain.startswith("/") or not plain:
        return reference
    return f"{reference[: len(reference) - len(plain)]}{folder}{_MARK}{plain}"


def unanchored(reference: str) -> tuple[Path | None, str]:
    """The folder in which a path was anchored, None if it was not, and what stood there.

    Example:
        >>> unanchored("file:///a/./b/p.txt"), unanchored("b/./p.txt")
        ((PosixPath('/a'), 'file://b/p.txt'), (None, 'b/./p.txt'))
    """
    plain = reference.removeprefix(FILE)
    folder, mark, rest = plain.partition(_MARK)
    if not (mark and plain.startswith("/")):
        return None, reference
    return Path(folder or "/"), f"{reference[: len(reference) - len(plain)]}{rest}"

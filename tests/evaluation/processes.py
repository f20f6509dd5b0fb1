"""The remaining processes of a test."""

from pathlib import Path


def alive(mark: str) -> list[str]:
    """The processes that have a text in their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark.encode() in (folder / "environ").read_bytes():
                state = (folder / "stat").read_bytes().rpartition(b")")[2].split()[0]
                found += [folder.name] if state not in (b"Z", b"X") else []
        except OSError:
            continue
    return found

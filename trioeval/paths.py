"""The fence of a suite: the folders into which its paths may lead, such as the repository around it.

A suite of another author must not put `/etc/passwd` into a prompt, post `../prod.env` to its server, or write
its results over `~/.bashrc`. Links are followed before a path is checked, and the checked path is returned:
the caller opens the file that was allowed, not one that a link leads to later.
"""

import os
from collections.abc import Collection
from pathlib import Path

import attrs

REPOSITORY = ".git"
"""The folder, or in a linked worktree or a submodule the file, at the root of a repository."""


def suite_root(folder: Path) -> Path:
    """Return the folder whose files the suites of a folder may open: the nearest repository, or else itself.

    The home folder and `/` do not count as repositories: one that keeps settings there would open all files
    of the user to every suite below.
    """
    # `os.path` raises nothing: not without a home folder, nor for a folder that may not be read.
    real = Path(os.path.realpath(folder))
    home = Path(os.path.realpath(os.path.expanduser("~")))  # noqa: PTH111
    for above in (real, *real.parents):
        if above in (home, Path(above.anchor)):
            break
        if os.path.exists(above / REPOSITORY):  # noqa: PTH110
            return above
    return folder


@attrs.frozen
class Refused:
    """The reason why a path may not be opened, and the remedy."""

    message: str
    hint: str | None = None

    def __str__(self) -> str:
        """Return both on one line."""
        return self.message if self.hint is None else f"{self.message} ({self.hint})"


@attrs.frozen
class Fence:
    """The rule for paths that may be opened.

    Example:
        >>> print(Fence((Path("/s"),)).admit(Path("/s/../etc/passwd"), "../etc/passwd"))
        ../etc/passwd is outside of the suite's folder /s (allow it with --allow-outside)
    """

    roots: tuple[Path, ...]
    """The folders; that of the suite, or of its repository, is first."""
    is_open: bool = False
    """True if paths may lead anywhere."""

    def admit(self, path: Path, named: str, *, also: Collection[Path] = ()) -> Path | Refused:
        """Return the path with its links followed, or the reason why it may not be opened.

        Args:
            path: The path of a file or folder, which need not exist.
            named: The path as messages show it.
            also: More folders into which it may lead.
        """
        try:
            real = path.resolve()
            inside = any(real.is_relative_to(root.resolve()) for root in (*self.roots, *also))
        except (OSError, ValueError, RuntimeError) as error:
            return Refused(f"{named} is not a valid path: {error}")
        if inside or self.is_open:
            return real
        root = self.roots[0]
        noun = "repository" if os.path.exists(root / REPOSITORY) else "suite's folder"  # noqa: PTH110
        message = f"{named} is outside of the {noun} {root}"
        return Refused(message, "allow it with --allow-outside")

"""The fence of a suite: the folders into which its paths may lead.

A suite of another author must not put `/etc/passwd` into a prompt, post `../prod.env` to its server, or write
its results over `~/.bashrc`. Links are followed before a path is checked, and the checked path is returned:
the caller opens the file that was allowed, not one that a link leads to later.
"""

from collections.abc import Collection
from pathlib import Path

import attrs


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
    """The folders; the suite's is first."""
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
        message = f"{named} is outside of the suite's folder {self.roots[0]}"
        return Refused(message, "allow it with --allow-outside")

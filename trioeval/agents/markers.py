"""Where an agent says that its task is done."""

import stat
from pathlib import Path

import attrs
import trio

from trioeval.errors import AgentError, MarkerError

_CALM = 10
"""By how much a pause between two looks may grow, and what part of the whole wait it is at most."""


_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def _of_a_folder(marker: "FileMarker", _field: "attrs.Attribute[Path]", path: Path) -> None:
    if not marker.may_come and not path.parent.is_dir():
        msg = (
            f"{path}: there is no folder {path.parent} in which an agent could say that it is done"
        )
        raise AgentError(msg)


def _positive(_marker: object, field: "attrs.Attribute[float]", seconds: float) -> None:
    if not seconds > 0:
        msg = f"FileMarker.{field.name} must be more than 0 seconds, got {seconds!r}"
        raise AgentError(msg)


@attrs.define(eq=False)
class FileMarker:
    """A file that stands for `done`, whatever is in it; agents in any language can make it.

    Raises:
        AgentError: The folder that it would be in is not there.
    """

    path: Path = attrs.field(validator=_of_a_folder)
    may_come: bool = attrs.field(default=False, kw_only=True)
    """Whether that folder may be made later."""
    look_every: float = attrs.field(default=0.2, validator=_positive)
    """Seconds between two looks of who waits, > 0: files do not tell of themselves. Who has waited for long
    looks less often: a tenth of that time lies between two looks, at most ten times so many seconds."""
    _news: trio.Event = attrs.field(init=False, factory=trio.Event)

    def is_set(self) -> bool:
        """Whether the file is there. One look at the disk.

        Raises:
            MarkerError: The entry is not a file, or cannot be examined.
        """
        try:
            mode = self.path.stat().st_mode
        except FileNotFoundError:
            return False
        except OSError as error:
            raise MarkerError(f"{self.path}: {error.strerror}; a file there says `done`") from error
        if not stat.S_ISREG(mode):
            found = _KINDS.get(stat.S_IFMT(mode), "not a regular file")
            raise MarkerError(f"{self.path} is {found}; a file there says `done`, so remove it")
        return True

    async def wait(self) -> None:
        """Return when the file is there: at a look, or when somebody wakes. A checkpoint.

        Raises:
            MarkerError: As `is_set`.
        """
        await trio.lowlevel.checkpoint()
        began_at = trio.current_time()
        while not self.is_set():
            news, waited = self._news, trio.current_time() - began_at
            # Hundreds may wait for hours, and each look keeps everybody else for a moment.
            pause = min(max(self.look_every, waited / _CALM), self.look_every * _CALM)
            with trio.move_on_after(pause):
                await news.wait()

    def wake(self) -> None:
        """Who waits looks at once."""
        self._news.set()
        self._news = trio.Event()


@attrs.define(eq=False)
class Flag:
    """Says `done` in memory: for agents that are functions of this program."""

    _done: trio.Event = attrs.field(init=False, factory=trio.Event)

    def set(self) -> None:
        """Say it."""
        self._done.set()

    def is_set(self) -> bool:
        """Whether it was said."""
        return self._done.is_set()

    async def wait(self) -> None:
        """Return when it was. A checkpoint."""
        await self._done.wait()

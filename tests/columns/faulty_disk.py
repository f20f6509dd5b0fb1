"""A disk that fails, or whose process is killed, at one of its steps."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from trioeval.columns.files.layout import Disk


class Killed(BaseException):
    """The process was killed."""


class FaultyDisk(Disk):
    """Steps are counted from 0. No step is done after a kill."""

    def __init__(
        self,
        at: int | None = None,
        how: Literal["before", "half", "after"] = "before",
        error: OSError | None = None,
    ) -> None:
        self.at, self.how, self.error = at, how, error
        self.steps = 0
        self.is_dead = False

    def _step(self, do: Callable[[], None], half: Callable[[], None]) -> None:
        step, self.steps = self.steps, self.steps + 1
        if self.is_dead:
            raise Killed
        if step != self.at:
            do()
            return
        if self.how != "before":
            (do if self.how == "after" else half)()
        if self.error is not None:
            raise self.error
        self.is_dead = True
        raise Killed

    def make_folder(self, path: Path) -> None:
        self._step(lambda: Disk.make_folder(self, path), _nothing)

    def fill(self, path: Path, write: Callable[[Path], None]) -> None:
        def half() -> None:
            write(path)
            content = path.read_bytes()
            path.write_bytes(content[: len(content) // 2])

        self._step(lambda: Disk.fill(self, path, write), half)

    def append(self, path: Path, line: bytes) -> None:
        def half() -> None:
            with path.open("ab") as file:
                file.write(line[: len(line) // 2])

        self._step(lambda: Disk.append(self, path, line), half)

    def rename(self, old: Path, new: Path) -> None:
        self._step(lambda: Disk.rename(self, old, new), _nothing)

    def settle(self, folder: Path) -> None:
        self._step(lambda: Disk.settle(self, folder), _nothing)

    def remove(self, path: Path) -> None:
        def half() -> None:
            if path.is_dir():
                for one in sorted(path.iterdir())[::2]:
                    one.unlink()

        self._step(lambda: Disk.remove(self, path), half)


def _nothing() -> None:
    pass

"""The files of a suite on a worker: its own ones if they are the same, or else a private copy of all of them.

A private copy has the layout of the coordinator below one folder, so that relative paths lead to the same
files. Rows and messages show the paths of the coordinator.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs

from trioeval.errors import UsageError
from trioeval.paths import REPOSITORY
from trioeval.scaleout.messages import FileList
from trioeval.scaleout.suite_files import digest_of

_PROGRAM = 0o700
"""The mode of a program in the private folder."""
_COLLECTIONS = frozenset({list, tuple, set, frozenset})


@attrs.frozen
class Location:
    """The place of the coordinator's files on this machine.

    Example:
        >>> moved = Location("/tmp/copy")
        >>> moved.path(Path("/evals/s.json"))
        PosixPath('/tmp/copy/evals/s.json')
        >>> moved.text("file:///evals/./p.txt"), moved.original("/tmp/copy/evals/p.txt: not found")
        ('file:///tmp/copy/evals/./p.txt', '/evals/p.txt: not found')
        >>> Location().path(Path("/evals/s.json"))
        PosixPath('/evals/s.json')
    """

    root: str = ""
    """The folder that takes the place of `/`; "" if the files have the same paths as on the coordinator."""

    def path(self, path: Path) -> Path:
        """Return the path here of an absolute path of the coordinator."""
        return Path(f"{self.root}{path}")

    def text(self, reference: str) -> str:
        """Return a reference to an absolute path, with or without `file://`; others are unchanged."""
        plain = reference.removeprefix("file://")
        if not plain.startswith("/"):
            return reference
        return f"{reference[: len(reference) - len(plain)]}{self.root}{plain}"

    def original(self, text: str) -> str:
        """Return a text with the paths of the coordinator."""
        return text.replace(self.root, "") if self.root else text


@attrs.define(eq=False, repr=False)
class WorkerFiles:
    """The files of one run on one worker. Not thread-safe."""

    _listed: FileList
    _folder: Path | None = None
    """The folder in which the private one is made; None is that of temporary files."""
    _root: Path | None = attrs.field(init=False, default=None)
    _own: dict[str, Path] = attrs.field(init=False, factory=dict)
    """Files with the listed contents, by digest."""

    def lacking(self) -> frozenset[str]:
        """Return the digests of files that this machine does not have at their paths; reads all of them."""
        lacking: set[str] = set()
        for one in self._listed.files:
            path = Path(one.path)
            if digest_of(path) == one.digest:
                self._own[one.digest] = path
            else:
                lacking.add(one.digest)
        return frozenset(lacking)

    def receive(self, contents: Mapping[str, bytes]) -> None:
        """Write contents that this machine lacks to their places in the private folder.

        Raises:
            OSError: They cannot be written.
            ValueError: Some have another digest.
        """
        for one in self._listed.files:
            content = contents.get(one.digest)
            if content is None:
                continue
            if hashlib.sha256(content).hexdigest() != one.digest:
                raise ValueError(one.path)
            place = self._place(one.path)
            place.write_bytes(content)
            if one.is_program:
                place.chmod(_PROGRAM)

    def open(self) -> Location:
        """Return where the files are; completes the private folder if there is one.

        Raises:
            UsageError: A file is missing.
        """
        if self._root is None:
            if lost := self.lacking():
                path = next(one.path for one in self._listed.files if one.digest in lost)
                raise UsageError(f"{path} is missing, or differs from that of the run")
            return Location()
        for one in self._listed.files:
            place = self._place(one.path)
            if not place.exists():
                self._copy(Path(one.path), place)
                if digest_of(place) != one.digest:
                    raise UsageError(f"{one.path} is missing, or differs from that of the run")
        for path in self._listed.withheld:
            if Path(path).is_file():
                self._copy(Path(path), self._place(path))
        for folder in self._listed.folders:
            self._place(folder).mkdir(exist_ok=True)
        for folder in self._listed.repositories:
            self._place(str(Path(folder, REPOSITORY, "_"))).parent.mkdir(exist_ok=True)
        return Location(str(self._root))

    def close(self) -> None:
        """Remove the private folder."""
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None

    def _place(self, path: str) -> Path:
        """Return the place of a path in the private folder, whose parent exists."""
        if self._root is None:
            made = tempfile.mkdtemp(prefix="trioeval-", dir=self._folder)
            self._root = Path(
                os.path.realpath(made)
            )  # paths that lead out by a link would be refused
        place = Path(f"{self._root}{path}")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def _copy(self, path: Path, place: Path) -> None:
        try:
            shutil.copy(path, place)
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None


def with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a value with all of its texts changed, also those in attrs objects and errors.

    Example:
        >>> with_texts({"a": ["x", 1]}, str.upper)
        {'A': ['X', 1]}
    """
    match value:
        case str():
            changed = change(value)
            return value if changed == value else type(value)(changed)
        case MappingProxyType() | dict():
            names = {name: with_texts(name, change) for name in value}
            members = {after: with_texts(value[before], change) for before, after in names.items()}
            if all(members[after] is value[before] for before, after in names.items()) and all(
                before is after for before, after in names.items()
            ):
                return value
            return members if isinstance(value, dict) else MappingProxyType(members)
        case list() | tuple() | set() | frozenset() if type(value) in _COLLECTIONS:
            parts = [with_texts(member, change) for member in value]
            if all(after is before for after, before in zip(parts, value, strict=True)):
                return value
            return type(value)(parts)
        case Exception():
            value.args = with_texts(value.args, change)
            vars(value).update(with_texts(vars(value), change))
            return value
        case _ if attrs.has(type(value)):
            changes = {
                field.alias: after
                for field in attrs.fields(type(value))
                if field.init and (before := getattr(value, field.name)) is not None
                if (after := with_texts(before, change)) is not before
            }
            return attrs.evolve(value, **changes) if changes else value
        case _:
            return value

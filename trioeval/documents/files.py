"""What the files of a suite are read against: its folder, the environment, and what may be looked at.

A suite from somebody else must not be able to put `/etc/passwd` into a prompt, so files outside of its
folder are refused unless the user allows them. Links are followed before that is asked.
"""

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from trioeval.documents.mistakes import Mistake, MistakenError
from trioeval.documents.patterns import MOST_ENTRIES, TooFarError, files_matching, is_glob
from trioeval.documents.trust import TRUSTED, Trust
from trioeval.grading import KINDS, Kinds, quote
from trioeval.paths import Fence, Refused
from trioeval.text import Verbatim

# Paths that lead to their file from anywhere, and still tell what was written.
#
# `/a/b/./p.txt` is `p.txt` as a file in `/a/b` says it, in the manner of rsync. The system reads such a path
# as any other; names and messages show what stands behind the mark, so that they are the same on every
# machine.


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


_PREFIXES = ("TRIOEVAL_", "PROMPTFOO_")
_NAMES_OF_FILES = ("CA_CERT_PATH",)
"""Variables whose value a run opens; those that say where runs are kept count of the process alone."""
_MOST_FILES = 1_000_000
"""Files of one pattern: links that lead back to their own folder multiply without end."""

_TRUE = frozenset({"1", "true", "yes"})


def _forget(_told: object) -> None:
    """Where nobody asked for warnings."""


@attrs.frozen(kw_only=True)
class Around:
    """The surroundings of one suite, or of one of its files.

    Example:
        >>> around = Around(directory=Path("/s"), environ={"PROMPTFOO_CSV_DELIMITER": ";"})
        >>> around.variable("CSV_DELIMITER", ",")
        ';'
    """

    directory: Path
    """What relative paths are relative to; absolute."""
    environ: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    roots: tuple[Path, ...] = attrs.field()
    """Paths that lead out of these folders are refused; those of the suite's own files."""
    allow_outside: bool = False
    allow_empty: bool = False
    """Whether a list or a file of tests may have none."""
    warn: Callable[[Mistake], None] = attrs.field(default=_forget, repr=False)
    """Told of what is odd but no mistake."""
    note: Callable[[Path], None] = attrs.field(default=lambda _path: None, repr=False)
    """Told of every file that is asked for."""

    kinds: Kinds = attrs.field(default=KINDS, repr=False)
    """The assertion types that there are."""
    trust: Trust = TRUSTED
    """What the suite may do."""
    own_env: frozenset[str] = frozenset()
    """Names of the variables in `environ` that the suite itself gives."""
    unknown: Callable[[str], None] = attrs.field(default=_forget, repr=False)
    """Told of what only a run will show, because no code runs before it."""

    @roots.default
    def _directory(self) -> tuple[Path, ...]:
        return (self.directory,)

    def variable(self, name: str, default: str = "") -> str:
        """An environment variable, under `TRIOEVAL_` or else `PROMPTFOO_`; the default if unset or empty."""
        for prefix in _PREFIXES:
            if value := self.environ.get(prefix + name):
                return value
        return default

    def switch(self, name: str) -> bool:
        """Whether an environment variable says 1, true or yes."""
        return self.variable(name).strip().lower() in _TRUE

    @property
    def fence(self) -> Fence:
        """Decides which paths of the suite may be opened."""
        return Fence(self.roots, is_open=self.allow_outside)

    @property
    def visible_env(self) -> Mapping[str, str]:
        """The variables that templates of the suite may see."""
        return self.trust.visible(self.environ, self.own_env)

    def check_code(self, what: str) -> None:
        """Refuse code that the suite must not run, now or later.

        Raises:
            MistakenError: The suite is not trusted.
        """
        if self.trust.code == "refused":
            raise MistakenError(self.trust.code_refusal(what))

    def may_run(self, what: str, makes: str) -> bool:
        """Whether code of the suite may run now; if only a run may run it, that is noted.

        Raises:
            MistakenError: The suite is not trusted.
        """
        self.check_code(what)
        if self.trust.code == "later":
            self.unknown(makes)
            return False
        return True

    def below(self, file: Path) -> "Around":
        """The same for what stands in a file: paths in it are relative to its folder."""
        return attrs.evolve(self, directory=file.parent)

    def file(self, reference: str) -> Path:
        """The file that `file://x` or `x` names.

        Raises:
            MistakenError: There is none, or it is outside of the suite's folder.
        """
        return self._file(reference, "write the name of a file")

    def files(self, reference: str) -> tuple[Path, ...]:
        """The files that a path or a glob names, sorted.

        Raises:
            MistakenError: There is none, or one of them is outside of the suite's folder.
        """
        folder, reference = unanchored(reference)
        if folder is not None:
            return attrs.evolve(self, directory=folder).files(reference)
        named = reference.removeprefix(FILE)
        if not is_glob(named) or (self.directory / named).is_file():
            return (self._file(reference, "write a file, or a pattern like *.txt"),)
        inside = self._matching(reference, named)
        if not inside:
            self.note((self.directory / named).parent)
            message = f"no file matches {quote(named)} in {self.directory}"
            raise MistakenError(Mistake(message, "check the pattern"))
        for path in inside:
            self.note(path)
        return inside

    def file_or_folder(self, reference: str) -> Path:
        """The file or the folder that `file://x` or `x` names.

        Raises:
            MistakenError: There is none, or it is outside of the suite's folder.
        """
        folder, reference = unanchored(reference)
        path = self._inside(reference, (folder or self.directory) / reference.removeprefix(FILE))
        self.note(path)
        if not (path.is_file() or path.is_dir()):
            raise MistakenError(self._missing(reference, path, "file or folder"))
        return path

    def place(self, reference: str, *, also: Collection[Path] = ()) -> Path:
        """The path that `file://x` or `x` names, which may be written to; links are followed.

        Args:
            reference: Names a file or a folder, whether or not it exists.
            also: Folders besides the suite's own that it may lead into.

        Raises:
            MistakenError: It is outside of the suite's folder.
        """
        folder, reference = unanchored(reference)
        path = (folder or self.directory) / reference.removeprefix(FILE)
        return self._admitted(reference, path, also)

    def _file(self, reference: str, instead: str) -> Path:
        """A file; what to write instead of a folder is the hint of that mistake."""
        folder, reference = unanchored(reference)
        named = reference.removeprefix(FILE)
        path = self._inside(reference, (folder or self.directory) / named)
        self.note(path)  # also if it is not there: it may come
        if path.is_dir():
            raise MistakenError(Mistake(f"{quote(reference)} is a folder", instead))
        if not path.is_file():
            raise MistakenError(self._missing(reference, path))
        return path

    def matches(self, named: str) -> bool:
        """Whether a pattern names any file, wherever that is.

        Raises:
            MistakenError: To find that out would take too long.
        """
        return any(True for _ in self._walk(named, named))

    def _walk(self, reference: str, named: str) -> Iterator[Path]:
        try:
            yield from files_matching(self.directory, named)
        except TooFarError:
            message = f"{quote(reference)} was compared with {MOST_ENTRIES:,} files and folders"
            raise MistakenError(Mistake(message, "write a narrower pattern")) from None

    def _matching(self, reference: str, named: str) -> tuple[Path, ...]:
        """The files that a pattern matches, sorted; the first one outside ends a walk through the disk."""
        found: list[tuple[Path, Path]] = []
        for path in self._walk(reference, named):
            if len(found) == _MOST_FILES:
                message = f"{quote(reference)} matches more than {_MOST_FILES:,} files"
                raise MistakenError(Mistake(message, "write a narrower pattern"))
            found.append((path, self._inside(reference, path)))
        return tuple(inside for _, inside in sorted(found))

    def _inside(self, reference: str, path: Path) -> Path:
        real = self._admitted(reference, path)
        return Path(*path.parts) if ".." not in path.parts else real

    def _admitted(self, reference: str, path: Path, also: Collection[Path] = ()) -> Path:
        found = self.fence.admit(path, quote(reference), also=also)
        if isinstance(found, Refused):
            raise MistakenError(Mistake(found.message, found.hint))
        return found

    def _missing(self, reference: str, path: Path, what: str = "file") -> Mistake:
        if not path.parent.is_dir():
            return Mistake(f"there is no folder {path.parent}")
        folders_too = what != "file"
        beside = sorted(
            other.name for other in path.parent.iterdir() if folders_too or other.is_file()
        )
        close = difflib.get_close_matches(path.name, beside, n=1)
        hint = f'did you mean "{close[0]}"?' if close else None
        return Mistake(f"there is no {what} {quote(reference)}", hint)


def wrong_paths(variables: Mapping[str, str], around: Around) -> Iterator[Mistake]:
    """The variables of a suite that name a file outside of its folder."""
    for variable in (prefix + name for prefix in _PREFIXES for name in _NAMES_OF_FILES):
        if named := variables.get(variable):
            try:
                around.place(named)
            except MistakenError as error:
                yield from (part.below(variable) for part in error.parts)


def names_file(value: Any) -> bool:
    """Whether a value is a text that names a file; one that is data never does.

    Example:
        >>> names_file("file://a.txt"), names_file("a.txt"), names_file(["file://a.txt"])
        (True, False, False)
    """
    return isinstance(value, str) and value.startswith(FILE) and not isinstance(value, Verbatim)

"""The context in which the files of a suite are read: folder, environment, permissions.

A suite from an unknown source must not be able to put `/etc/passwd` into a prompt, so files outside of its
repository, or else its folder, are refused unless the user allows them. Links are resolved before the check.
"""

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from trioeval.documents.mistakes import Mistake, MistakenError
from trioeval.documents.patterns import MOST_ENTRIES, TooFarError, files_matching, is_glob
from trioeval.documents.trust import TRUSTED, Trust
from trioeval.grading import KINDS, Kinds, quote
from trioeval.paths import Fence, Refused, suite_root
from trioeval.text import Verbatim

# Paths that are valid from anywhere and still show how they were written.
#
# `/a/b/./p.txt` is `p.txt` as written in a file in `/a/b`, in the manner of rsync. The system reads such a
# path as any other; names and messages show the part after the mark, so that they are the same on every
# machine.


FILE = "file://"
"""The beginning of a text that names a file."""

_MARK = "/./"
_URLS = ("http://", "https://")


def anchored(reference: str, folder: Path) -> str:
    """Return a relative path, with or without `file://`, as a path from `folder`; others unchanged.

    Example:
        >>> anchored("file://p.txt", Path("/a")), anchored("/b/p.txt", Path("/a"))
        ('file:///a/./p.txt', '/b/p.txt')
    """
    plain = reference.removeprefix(FILE)
    if "://" in plain or plain.startswith("/") or not plain:
        return reference
    return f"{reference[: len(reference) - len(plain)]}{folder}{_MARK}{plain}"


def unanchored(reference: str) -> tuple[Path | None, str]:
    """Return the folder in which a path was anchored, None if it was not, and the path as it was written.

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
"""Variables that name a file that a run opens; those that name the store are read from the process only."""
_MOST_FILES = 1_000_000
"""The maximum number of files of one pattern: links that lead to a parent folder multiply without end."""

_TRUE = frozenset({"1", "true", "yes"})


def _forget(_ignored: object) -> None:
    """Ignore a warning for which the caller passed no callback."""


@attrs.frozen(kw_only=True)
class FileContext:
    """The context of one suite, or of one of its files.

    Example:
        >>> context = FileContext(directory=Path("/s"), environ={"PROMPTFOO_CSV_DELIMITER": ";"})
        >>> context.variable("CSV_DELIMITER", ",")
        ';'
    """

    directory: Path
    """The base of relative paths; absolute."""
    environ: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    roots: tuple[Path, ...] = attrs.field()
    """The folders of the suite's own files, or of their repositories; paths out of them are refused."""
    allow_outside: bool = False
    allow_network: bool = False
    """True if tests may be fetched from any URL."""
    own_urls: frozenset[str] = frozenset()
    """The URLs of tests that the suite file itself names; they may be fetched."""
    allow_empty: bool = False
    """True if a list or a file of tests may be empty."""
    warn: Callable[[Mistake], None] = attrs.field(default=_forget, repr=False)
    """Called with every warning."""
    on_file: Callable[[Path], None] = attrs.field(default=lambda _path: None, repr=False)
    """Called with every file that is looked up."""

    kinds: Kinds = attrs.field(default=KINDS, repr=False)
    """The known assertion types."""
    trust: Trust = TRUSTED
    """The permissions of the suite."""
    own_env: frozenset[str] = frozenset()
    """Names of the variables in `environ` that the suite itself defines."""
    process_environ: Mapping[str, str] = attrs.field(repr=False)
    """The variables of the user alone: a suite chooses no place of files, and no server that gets a token."""
    on_unknown: Callable[[str], None] = attrs.field(default=_forget, repr=False)
    """Called with descriptions of what only a run can determine, because no code runs before it."""

    @process_environ.default
    def _environ(self) -> Mapping[str, str]:
        return self.environ

    @roots.default
    def _directory(self) -> tuple[Path, ...]:
        return (self.directory,)

    def variable(self, name: str, default: str = "") -> str:
        """Return an environment variable with the prefix `TRIOEVAL_` or else `PROMPTFOO_`, or the default."""
        for prefix in _PREFIXES:
            if value := self.environ.get(prefix + name):
                return value
        return default

    def switch(self, name: str) -> bool:
        """Return whether an environment variable is 1, true or yes."""
        return self.variable(name).strip().lower() in _TRUE

    @property
    def fence(self) -> Fence:
        """The check of which paths the suite may open."""
        return Fence(self.roots, is_open=self.allow_outside)

    @property
    def visible_env(self) -> Mapping[str, str]:
        """The variables that templates of the suite may see."""
        return self.trust.visible(self.environ, self.own_env)

    def check_code(self, feature: str) -> None:
        """Refuse code if the suite is not trusted.

        Args:
            feature: The code, for the message.

        Raises:
            MistakenError: The suite is not trusted.
        """
        if self.trust.code == "refused":
            raise MistakenError(self.trust.code_refusal(feature))

    def may_run(self, feature: str, makes: str) -> bool:
        """Return whether code of the suite may run now; if it may run only later, record that.

        Args:
            feature: The code, for the message.
            makes: What the code would make, for the record.

        Raises:
            MistakenError: The suite is not trusted.
        """
        self.check_code(feature)
        if self.trust.code == "later":
            self.on_unknown(makes)
            return False
        return True

    def below(self, file: Path) -> "FileContext":
        """Return the context of the contents of a file: paths in it are relative to its folder."""
        return attrs.evolve(self, directory=file.parent)

    def file(self, reference: str) -> Path:
        """Return the file that `file://x` or `x` names.

        Raises:
            MistakenError: The file does not exist, or is outside of the suite's root.
        """
        return self._file(reference, "write the name of a file")

    def files(self, reference: str) -> tuple[Path, ...]:
        """Return the files that a path or a glob names, sorted.

        Raises:
            MistakenError: No file matches, or one is outside of the suite's root.
        """
        folder, reference = unanchored(reference)
        if folder is not None:
            return attrs.evolve(self, directory=folder).files(reference)
        named = reference.removeprefix(FILE)
        if not is_glob(named) or (self.directory / named).is_file():
            return (self._file(reference, "write a file, or a pattern like *.txt"),)
        inside = self._matching(reference, named)
        if not inside:
            self.on_file((self.directory / named).parent)
            if reference.startswith(_URLS):
                raise MistakenError(_url(reference))
            message = f"no file matches {quote(named)} in {self.directory}"
            raise MistakenError(Mistake(message, "check the pattern"))
        for path in inside:
            self.on_file(path)
        return inside

    def file_or_folder(self, reference: str) -> Path:
        """Return the file or folder that `file://x` or `x` names.

        Raises:
            MistakenError: It does not exist, or is outside of the suite's root.
        """
        folder, reference = unanchored(reference)
        path = self._inside(reference, (folder or self.directory) / reference.removeprefix(FILE))
        self.on_file(path)
        if not (path.is_file() or path.is_dir()):
            raise MistakenError(self._missing(reference, path, "file or folder"))
        return path

    def place(self, reference: str, *, also: Collection[Path] = ()) -> Path:
        """Return the path that `file://x` or `x` names, which may be written to, with links resolved.

        Args:
            reference: Names a file or a folder; it need not exist.
            also: Folders besides the suite's roots that it may lead into.

        Raises:
            MistakenError: It is outside of the suite's root.
        """
        folder, reference = unanchored(reference)
        path = (folder or self.directory) / reference.removeprefix(FILE)
        return self._admitted(reference, path, also)

    def _file(self, reference: str, instead: str) -> Path:
        """Return a file; `instead` is the hint if it is a folder."""
        folder, reference = unanchored(reference)
        named = reference.removeprefix(FILE)
        path = self._inside(reference, (folder or self.directory) / named)
        self.on_file(path)  # even if it does not exist: it may be created later
        if path.is_dir():
            raise MistakenError(Mistake(f"{quote(reference)} is a folder", instead))
        if not path.is_file():
            raise MistakenError(self._missing(reference, path))
        return path

    def matches(self, named: str) -> bool:
        """Return whether a pattern matches any file, inside of the suite's root or not.

        Raises:
            MistakenError: The search would take too long.
        """
        return any(True for _ in self._walk(named, named))

    def _walk(self, reference: str, named: str) -> Iterator[Path]:
        try:
            yield from files_matching(self.directory, named)
        except TooFarError:
            message = f"{quote(reference)} was compared with {MOST_ENTRIES:,} files and folders"
            raise MistakenError(Mistake(message, "write a narrower pattern")) from None

    def _matching(self, reference: str, named: str) -> tuple[Path, ...]:
        """Return the files that a pattern matches, sorted; the first one outside stops the search."""
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

    def _missing(self, reference: str, path: Path, noun: str = "file") -> Mistake:
        if reference.startswith(_URLS):
            return _url(reference)
        if not path.parent.is_dir():
            return Mistake(f"folder not found: {path.parent}")
        folders_too = noun != "file"
        beside = sorted(
            other.name for other in path.parent.iterdir() if folders_too or other.is_file()
        )
        close = difflib.get_close_matches(path.name, beside, n=1)
        hint = f'did you mean "{close[0]}"?' if close else None
        return Mistake(f"{noun} not found: {quote(reference)}", hint)


def roots_of(folders: Iterable[Path], trust: Trust) -> tuple[Path, ...]:
    """Return the folders whose files suites may open; an untrusted suite stays in its own."""
    return tuple(
        dict.fromkeys(suite_root(folder) if trust.trusted else folder for folder in folders)
    )


def wrong_paths(variables: Mapping[str, str], context: FileContext) -> Iterator[Mistake]:
    """Yield a mistake for each variable of a suite that names a file outside of its root."""
    for variable in (prefix + name for prefix in _PREFIXES for name in _NAMES_OF_FILES):
        if named := variables.get(variable):
            try:
                context.place(named)
            except MistakenError as error:
                yield from (part.below(variable) for part in error.parts)


def names_file(value: Any) -> bool:
    """Return whether a value is a text that names a file; row data (`Verbatim`) never does.

    Example:
        >>> names_file("file://a.txt"), names_file("a.txt"), names_file(["file://a.txt"])
        (True, False, False)
    """
    return isinstance(value, str) and value.startswith(FILE) and not isinstance(value, Verbatim)


def _url(reference: str) -> Mistake:
    message = f"{quote(reference)} is a URL, and only tests that the suite file names are fetched"
    return Mistake(message, "save the file beside the suite, and name that")

"""The files that a suite reads: listed by the coordinator with their digests, for workers that lack them.

These are the files that the suite was loaded from, those that it names, and modules that its code imports.
What code opens under a computed name is listed only if the user names it besides. Environment files and
files of keys are never sent: a worker uses its own ones.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from trioeval.documents.patterns import MOST_ENTRIES, TooFarError, files_matching, is_glob
from trioeval.errors import UsageError
from trioeval.evaluation.prepared import PreparedSuite
from trioeval.evaluation.registers import texts_in
from trioeval.evaluation.suite_files import files_of, named_files, with_imports
from trioeval.grading import Assertion
from trioeval.grading.registry import split_type
from trioeval.paths import REPOSITORY, Refused
from trioeval.scaleout.messages import FileList, ListedFile
from trioeval.scripting import is_script
from trioeval.suite.model import Suite
from trioeval.suite.tests import checked_places
from trioeval.text import counted

if TYPE_CHECKING:
    from trioeval.scaleout.run_keys import RunKeys

MOST_BYTES = 256 * 2**20
"""Most bytes of all files that are sent to one worker."""
MOST_FILES = 20_000
_LOCAL = "local:embedding"
"""The beginning of the ids of models in a folder."""
_EXEC = "exec:"
"""The beginning of the ids of providers that are commands."""
_SUITE_FOLDER = re.compile(r"\{\{\s*suite\s*\}\}/")
"""The folder of the suite in the template of a command."""
_PACKAGE = "package.json"
"""Decides how Node reads the scripts beside and below it."""
_KEY_NAME = re.compile(
    r"\A(?:\.env(?:\..*)?|.*\.(?:env|pem|key|p12|pfx|jks|keystore)|id_(?:rsa|dsa|ecdsa|ed25519)|"
    r"\.netrc|\.npmrc|\.pypirc|credentials)\Z",
    re.IGNORECASE,
)
_KEY_CONTENT = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_VARIABLE = re.compile(
    rb"""\b(?:env\.|env\[\s*['"]|environ\[\s*['"]|environ\.get\(\s*['"]|getenv\(\s*['"])([A-Za-z_]\w*)"""
)
"""A mention of an environment variable in a template, in Python or in JavaScript."""
_CODE = frozenset({".py", ".sh", ".rb"})
_TEXT_BYTES = 4 * 2**20
"""Most bytes of a file in which mentions of variables are searched: larger ones are data."""


@attrs.frozen
class SuiteFiles:
    """The files of a suite on the coordinator."""

    listed: FileList
    named_in_code: frozenset[str] = frozenset()
    """Environment variables that code files name."""
    named_in_templates: frozenset[str] = frozenset()
    """Environment variables that other files name."""

    def contents(self, digests: Iterable[str], keys: RunKeys) -> Mapping[str, bytes]:
        """Return the contents of listed files by their digests.

        Args:
            digests: The digests of the files that some worker lacks.
            keys: The keys of the run, which no sent file may contain.

        Raises:
            UsageError: Files are too large, have changed, or contain a key; all of them are named.
        """
        wanted = {*digests}
        files = {one.digest: one for one in self.listed.files if one.digest in wanted}
        total = sum(one.size for one in files.values())
        if total > MOST_BYTES:
            largest = sorted(files.values(), key=lambda one: -one.size)[:3]
            named = ", ".join(f"{one.path} ({_mebibytes(one.size)})" for one in largest)
            msg = (
                f"--on: the workers lack {counted(len(files), 'file')} of the suite with "
                f"{_mebibytes(total)} together, and at most {_mebibytes(MOST_BYTES)} are sent: {named}; "
                "put the large ones on the workers, at the same paths"
            )
            raise UsageError(msg)
        found: dict[str, bytes] = {}
        wrong: list[str] = []
        for digest, file in files.items():
            try:
                content = Path(file.path).read_bytes()
            except OSError as error:
                wrong.append(f"{file.path} cannot be read: {error.strerror or error}")
                continue
            if hashlib.sha256(content).hexdigest() != digest:
                wrong.append(f"{file.path} has changed since the suite was loaded")
            elif _KEY_CONTENT.search(content) or keys.are_in(content):
                wrong.append(
                    f"{file.path} contains a key, and keys are not sent: name an environment variable "
                    "in its place, or put the file on the workers, at the same path"
                )
            found[digest] = content
        if wrong:
            listed = "".join(f"\n  {one}" for one in wrong)
            raise UsageError(f"--on: the files of the suite cannot be sent to the workers:{listed}")
        return found


def list_files(
    prepared: PreparedSuite, named: Iterable[Path] = (), send: Iterable[str] = ()
) -> SuiteFiles:
    """Return the files that a suite reads, with their digests. Reads each of them.

    Args:
        prepared: The suite.
        named: Files that the command line names besides.
        send: Files, folders and patterns that the user names besides, relative to the suite's folder.

    Raises:
        UsageError: They are too many, or one of `send` cannot be sent.
    """
    suite = prepared.suite
    more_folders, more = named_besides(prepared, send)
    found: dict[str, Path] = {}
    withheld: dict[str, None] = {}
    folders, inside = _below(_folders(prepared))
    folders += more_folders
    for file in _reads(prepared, [*named, *inside, *more]):
        path = os.path.abspath(file)  # noqa: PTH100 - without links, and with no `..`
        if path in found or path in withheld:
            continue
        if path in _env_files(prepared) or _KEY_NAME.match(file.name):
            withheld[path] = None
        else:
            found[path] = file
        if len(found) > MOST_FILES:
            msg = f"--on: the suite reads more than {MOST_FILES:,} files; name fewer, or join them"
            raise UsageError(msg)
    in_code: set[str] = set()
    in_templates: set[str] = set()
    files: list[ListedFile] = []
    for path, file in found.items():
        digest, size, names = _read(file)
        if digest is not None:
            files.append(ListedFile(path, digest, size, os.access(file, os.X_OK)))
            is_code = is_script(file) or file.suffix in _CODE
            (in_code if is_code else in_templates).update(names)
    roots = [root for root in (suite.roots or (suite.directory,)) if (root / REPOSITORY).exists()]
    listed = FileList(
        files=tuple(files),
        folders=tuple(map(os.path.abspath, folders)),
        withheld=tuple(withheld),
        repositories=tuple(map(str, roots)),
    )
    return SuiteFiles(listed, frozenset(in_code), frozenset(in_templates))


def _reads(prepared: PreparedSuite, named: Iterable[Path]) -> Iterator[Path]:
    """Yield the files that a suite reads, possibly repeated."""
    suite = prepared.suite
    fence = prepared.context.fence
    inside = (
        file
        for file in named_files(suite)
        # Any text of a config might be the path of a file: one outside would not be read.
        if _is_file(file) and isinstance(fence.admit(file, str(file)), Path)
    )
    words = (suite.directory / word for word in _command_words(prepared))
    for file in (*files_of(suite), *inside, *words, *named):
        if not _is_file(file):
            continue
        yield file
        if file.suffix == ".py" or is_script(file):
            yield from with_imports(file)
        if is_script(file):
            yield from _packages(file, suite.roots or (suite.directory,))


def _command_words(prepared: PreparedSuite) -> Iterator[str]:
    """Yield the words of the commands of a suite, some of which may be files."""
    for part in prepared.parts:
        suite = part.prepared.suite
        commands = [spec.id.removeprefix(_EXEC) for spec in part.prepared.specs if _EXEC in spec.id]
        commands += [
            one.function.target
            for one in suite.prompts
            if one.function and one.function.kind == "exec"
        ]
        commands += [
            text
            for one in assertions_of(suite)
            if split_type(one.type)[0] == "command"
            for text in texts_in(one.value)
        ]
        for command in (_SUITE_FOLDER.sub("", one) for one in commands):
            try:
                yield from shlex.split(command)
            except ValueError:  # an open quote, which is reported when it runs
                yield from command.split()


def _folders(prepared: PreparedSuite) -> Iterator[Path]:
    """Yield the folders that a suite reads with all of their files: templates of workspaces, and models."""
    suite = prepared.suite
    yield from (path for path in suite.files if path.is_dir())
    for part in prepared.parts:
        for spec in part.prepared.specs:
            _, _, named = spec.id.removeprefix(_LOCAL).partition(":")
            if spec.id.startswith(_LOCAL) and named and (suite.directory / named).is_dir():
                yield suite.directory / named


def _below(folders: Iterable[Path]) -> tuple[list[Path], list[Path]]:
    """Return all folders below some, themselves included, and the files in them."""
    found: list[Path] = []
    files: list[Path] = []
    for folder in folders:
        for above, _, names in os.walk(folder):
            found.append(Path(above))
            files += (Path(above, name) for name in names)
    return found, files


def named_besides(prepared: PreparedSuite, send: Iterable[str]) -> tuple[list[Path], list[Path]]:
    """Return the folders and files that a user names for workers besides the suite.

    Links to folders are not followed, except the names themselves.

    Args:
        prepared: The suite.
        send: Files, folders and patterns, relative to the suite's folder.

    Raises:
        UsageError: One is missing, leads out of the suite's folder, or is a file of keys; or their files are
            too many or too large.
    """
    base, fence = prepared.suite.directory, prepared.context.fence
    folders: list[Path] = []
    files: dict[Path, None] = {}
    size = 0
    for one in send:
        count = len(files)
        for path in _matching(base, one):
            admitted = fence.admit(path, os.path.relpath(path, base))
            if isinstance(admitted, Refused):
                raise UsageError(f"--send {one}: {admitted}")
            if _is_folder(path):
                folders.append(path)
                continue
            if path not in files and _is_file(path):
                files[path] = None
                size += path.stat().st_size
            if size > MOST_BYTES or len(files) > MOST_FILES:
                most = f"{MOST_FILES:,} files, or {_mebibytes(MOST_BYTES)}"
                raise UsageError(
                    f"--send {one}: with it, more than {most} are to be sent; name fewer, or put them on "
                    "the workers, at the same paths"
                )
        if len(files) == count and not _is_folder(base / one) and not _is_file(base / one):
            found = "no file matches" if is_glob(one) else "not found"
            raise UsageError(f"--send {one}: {found} in the suite's folder {base}")
        if _KEY_NAME.match(Path(one).name) and (base / one).is_file():
            raise UsageError(
                f"--send {one}: files of keys are not sent; put it on the workers, at the same path"
            )
    return folders, [*files]


def _matching(base: Path, named: str) -> Iterator[Path]:
    """Yield what a name or pattern of a user stands for: of a folder, itself and everything below.

    Raises:
        UsageError: The pattern matches too much.
    """
    path = base / named
    if _is_folder(path):
        for above, _, names in os.walk(path):
            yield Path(above)
            yield from (Path(above, name) for name in names)
    elif _is_file(path):
        yield path
    elif is_glob(named):
        try:
            yield from sorted(files_matching(base, named))
        except TooFarError:
            raise UsageError(
                f"--send {named}: it was compared with {MOST_ENTRIES:,} files and folders; name a folder"
            ) from None


def _packages(script: Path, roots: Iterable[Path]) -> Iterator[Path]:
    for folder in script.parents:
        if not any(folder.is_relative_to(root) for root in roots):
            return
        if (found := folder / _PACKAGE).is_file():
            yield found


def _env_files(prepared: PreparedSuite) -> frozenset[str]:
    options = (part.prepared.suite.command_line_options for part in prepared.parts)
    directory = prepared.suite.directory
    return frozenset(
        os.path.abspath(directory / name)  # noqa: PTH100 - without links, and with no `..`
        for one in (prepared.suite.command_line_options, *options)
        for name in (*one.env_file, *one.env_path)
    )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a text that cannot be a path
        return False


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a text that cannot be a path
        return False


def _read(file: Path) -> tuple[str | None, int, frozenset[str]]:
    """Return the digest of a file, its size, and the variables that it mentions."""
    digest = digest_of(file)
    if digest is None:
        return None, 0, frozenset()
    size = file.stat().st_size
    if size > _TEXT_BYTES:
        return digest, size, frozenset()
    names = (name.decode() for name in _VARIABLE.findall(file.read_bytes()))
    return digest, size, frozenset(names)


def assertions_of(suite: Suite) -> Iterator[Assertion]:
    """Yield the assertions of a suite, and the members of sets."""
    tests = (suite.tests[place] for place in checked_places(suite.tests))
    scenarios = (
        test for scenario in suite.scenarios or () for test in (*scenario.config, *scenario.tests)
    )
    default = () if suite.default_test is None else (suite.default_test,)
    for test in (*default, *tests, *scenarios):
        for one in test.assertions:
            yield one
            yield from one.assertions


def digest_of(file: Path) -> str | None:
    """Return the SHA-256 of a file in hexadecimal; None if it cannot be read."""
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except (OSError, ValueError):
        return None


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"

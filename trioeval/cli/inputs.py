"""The suite of a command line, from its suite files and flags."""

import functools
import glob
import json
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from trioeval.cli.flags import RunFlags, SuiteFlags
from trioeval.cli.settings import EarlierFile
from trioeval.documents import check_plain, read_document, suite_files
from trioeval.documents.files import FILE, anchored
from trioeval.documents.mistakes import MistakenError
from trioeval.documents.paths import show_path
from trioeval.errors import UsageError
from trioeval.loading.load import load_suite, parse_suite
from trioeval.suite.filters import EarlierRow, earlier_rows
from trioeval.suite.model import Suite

# Rows of earlier result files, read one by one.


def read_earlier(files: Iterable[EarlierFile]) -> frozenset[EarlierRow]:
    """Return the rows of result files that are to run again.

    Raises:
        UsageError: A file cannot be read, or is not a result file.
    """
    found: frozenset[EarlierRow] = frozenset()
    for file in files:
        try:
            found |= earlier_rows(_rows(file.path), failures=file.failures, errors=file.errors)
        except OSError as error:
            raise UsageError(f"{file.path}: cannot be read: {error.strerror or error}") from None
        except (ValueError, LookupError, TypeError, AttributeError):
            msg = f"{file.path}: not a result file; name a .json or .jsonl file that -o wrote"
            raise UsageError(msg) from None
    return found


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding="utf-8") as file:
        if path.suffix == ".jsonl":
            yield from (json.loads(line) for line in file if line.strip())
        else:
            document = json.load(file)
            for part in document["tasks"].values() if "tasks" in document else (document,):
                yield from part["results"]["results"]


# The files of a command line: no file may have two purposes.
#
# An output would overwrite an input or another output, unnoticed. So every command that writes checks its
# files here first. A database consists of several files: its logs and locks are beside it.


NamedFile: TypeAlias = tuple[str, Path]
"""The name of a file in messages, and its path."""

_DATABASE = b"SQLite format 3\0"
_BESIDE = ("-wal", "-shm", "-journal")


def check_files(
    read: Iterable[NamedFile] = (),
    *,
    databases: Iterable[tuple[str, Path | None]] = (),
    written: Iterable[NamedFile] = (),
) -> None:
    """Raise if a file is named twice, by any path or link, or if an output would overwrite a database.

    Must be called before a database is open: it opens the files that will be written, and closing a database
    file releases the locks of this process on it.

    Args:
        read: Files that are only read.
        databases: The databases of runs and of replies; None for one in memory.
        written: Files whose content is replaced.

    Raises:
        UsageError: Two of them are the same file, or an output is a database.
    """
    called: dict[Hashable, str] = {}

    def take(named: str, marks: Iterable[Hashable]) -> None:
        found = dict.fromkeys(marks, named)
        for mark in found:
            if mark in called:
                raise UsageError(f"{named} is the same file as {called[mark]}")
        called.update(found)

    for name, path in read:
        take(f"{name} {path}", _marks(path))
    for name, database in databases:
        if database is not None:
            take(f"{name} {database}", [*_marks(database), *_marks_beside(database)])
    for name, path in written:
        take(f"{name} {path}", _marks(path))
        if _is_database(path):
            raise UsageError(
                f"{name} {path} is a database and will not be overwritten; name another file"
            )


def check_not_suite_files(written: Iterable[NamedFile], read: Iterable[Path | str]) -> None:
    """Raise if an output would overwrite a file of the suite. Opens no file.

    Args:
        written: Files whose content is replaced.
        read: Files of the suite, possibly repeated.

    Raises:
        UsageError: An output is a file of the suite.
    """
    sources = {mark: path for path in read for mark in _marks(Path(path))}
    for name, path in written:
        for mark in _marks(path):
            if mark in sources:
                raise UsageError(f"{name} {path} is the same file as the suite's {sources[mark]}")


def _marks(path: Path) -> Iterator[Hashable]:
    """Yield what all paths of a file share: its real path and, if the file exists, its device and inode."""
    yield os.path.realpath(path)
    try:
        found = path.stat()
    except OSError:
        return
    yield found.st_dev, found.st_ino


def _marks_beside(database: Path) -> Iterator[Hashable]:
    """Yield the marks of the files that belong to a database."""
    real = Path(os.path.realpath(database))
    for end in _BESIDE:
        yield from _marks(real.with_name(real.name + end))
    try:
        locks = [one for one in real.parent.iterdir() if one.name.startswith(f"{real.name}-")]
    except OSError:
        return
    for lock in locks:
        yield from _marks(lock)


def _is_database(path: Path) -> bool:
    try:
        if not path.is_file():  # opening a pipe may block
            return False
        with path.open("rb") as file:
            return file.read(len(_DATABASE)) == _DATABASE
    except OSError:
        return False


_GIVEN = "an output that was given"
"""The prompt of given outputs, for which no provider is called."""


def load_inputs(
    suite: Path | None, flags: RunFlags, environ: Mapping[str, str], directory: Path | None = None
) -> Suite:
    """Load the suite of a command line.

    Args:
        suite: The suite file; None without one.
        flags: The flags.
        environ: The environment.
        directory: The folder of a suite without a file; None is the working directory.

    Raises:
        SuiteError: The suite is wrong.
        UsageError: A flag is wrong, or there is neither a suite file nor a flag that replaces it.
    """
    given = given_parts(flags.what)
    files = ([] if suite is None else [suite]) + _configs(flags.what.config)
    _check_once(files)
    if not (files or given):
        raise UsageError(
            "no suite file: write trioeval SUITE, or see trioeval --help; without SUITE it is "
            "promptfooconfig.yaml (or .yml, .json, .js, .ts), which this folder does not have"
        )
    load = functools.partial(
        load_suite if files else parse_suite,
        environ=environ,
        allow_outside=flags.what.allow_outside,
        allow_network=flags.what.allow_network,
        allow_empty=flags.rows.allow_empty,
        given=given,
        trusted=not flags.what.untrusted,
        allow_env=flags.what.allow_env,
        plans=flags.output.plan,
        strict=flags.what.strict,
    )
    return load(*files) if files else load({}, directory=directory)


# The paths of flags on another machine.


def with_absolute_paths(flags: RunFlags) -> RunFlags:
    """Return flags whose paths are absolute, so that they mean the same in each working directory."""
    what = flags.what
    given = given_parts(
        SuiteFlags(prompts=what.prompts, extension=what.extension, tests=what.tests)
    )
    named = attrs.evolve(
        what,
        prompts=tuple(given.get("prompts", ())),
        extension=tuple(given.get("extensions", ())),
        tests=given.get("tests"),
    )
    return with_paths(attrs.evolve(flags, what=named), Path.absolute, str)


def with_paths(
    flags: RunFlags, path: Callable[[Path], Path], text: Callable[[str], str]
) -> RunFlags:
    """Return flags with other paths.

    Args:
        flags: The flags.
        path: Changes a path.
        text: Changes a reference, which may also be another text.
    """

    def changed(found: Path | None) -> Path | None:
        return None if found is None else path(found)

    what, rows = flags.what, flags.rows
    return attrs.evolve(
        flags,
        what=attrs.evolve(
            what,
            config=tuple(str(path(Path(one))) for one in what.config),
            prompts=tuple(map(text, what.prompts)),
            tests=None if what.tests is None else text(what.tests),
            extension=tuple(map(text, what.extension)),
            assertions=changed(what.assertions),
            model_outputs=changed(what.model_outputs),
            env_file=tuple(map(path, what.env_file)),
            replay=changed(what.replay),
        ),
        rows=attrs.evolve(
            rows,
            filter_failing=changed(rows.filter_failing),
            filter_failing_only=changed(rows.filter_failing_only),
            filter_errors_only=changed(rows.filter_errors_only),
        ),
    )


def _check_once(files: Sequence[Path]) -> None:
    """Raise if a suite file is named twice, since its rows would run twice."""
    seen: set[Path] = set()
    for file in files:
        if (real := file.resolve()) in seen:
            raise UsageError(f"{file} is named twice")
        seen.add(real)


def _configs(patterns: Sequence[str]) -> list[Path]:
    try:
        return list(suite_files(patterns)) if patterns else []
    except MistakenError as error:
        raise UsageError("; ".join(f"--config: {part.message}" for part in error.parts)) from None


def given_parts(flags: SuiteFlags) -> dict[str, Any]:
    """Return the parts of a suite that flags replace, as plain data.

    Raises:
        UsageError: A file that a flag names cannot be used.
    """
    given: dict[str, Any] = {}
    if flags.prompts:
        given["prompts"] = [part for text in flags.prompts for part in _prompts(text)]
    if flags.providers:
        given["providers"] = list(flags.providers)
    if flags.extension:
        given["extensions"] = [_absolute(text) for text in flags.extension]
    if flags.tests is not None:
        given["tests"] = _absolute(flags.tests)
    if flags.assertions is None and flags.model_outputs is None:
        return given
    if flags.assertions is None or flags.model_outputs is None:
        raise UsageError("--assertions and --model-outputs need each other")
    return given | _of_outputs(flags.assertions, flags.model_outputs)


def _prompts(text: str) -> Iterable[str]:
    """Return references to the files that a text names, or the text itself, which may be a prompt."""
    plain = text.removeprefix(FILE)
    if Path(plain).is_file():
        return [_anchored(text)]
    found = sorted(name for name in glob.iglob(plain, recursive=True) if Path(name).is_file())  # noqa: PTH207 - absolute too
    return [_anchored(name) for name in found] or [_anchored(text) if text != plain else text]


def _anchored(reference: str) -> str:
    """Return the reference of a prompt with an absolute path; its label remains the given text."""
    plain = reference.removeprefix(FILE)
    return reference if "://" in plain else f"{FILE}{anchored(plain, Path.cwd())}"


def _absolute(reference: str) -> str:
    """Return a reference with an absolute path, for a suite in any folder; other schemes are unchanged."""
    plain = reference.removeprefix(FILE)
    return reference if "://" in plain else f"{FILE}{Path.cwd() / plain}"


def _of_outputs(assertions: Path, outputs: Path) -> dict[str, Any]:
    """Return the parts of a suite that checks given outputs.

    They are outputs and not variables, so that nothing in them is read as a file or as a template.
    """
    try:
        judged = read_document(assertions).data
    except MistakenError as error:
        lines = "; ".join(part.message for part in error.parts)
        raise UsageError(f"--assertions {assertions}: {lines}") from None
    if not isinstance(judged, list):
        raise UsageError(f"--assertions {assertions}: must be a list of assertions")
    return {
        "prompts": [_GIVEN],
        "providers": ["echo"],
        "tests": [
            {**_given_output(entry, f"--model-outputs {outputs}: entry {place}"), "assert": judged}
            for place, entry in enumerate(_read_outputs(outputs))
        ],
    }


def _read_outputs(path: Path) -> list[Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(
            f"--model-outputs {path}: cannot be read: {error.strerror or error}"
        ) from None
    except ValueError as error:
        raise UsageError(f"--model-outputs {path}: not JSON: {error}") from None
    if not isinstance(found, list):
        raise UsageError(f"--model-outputs {path}: must be a list of texts or objects")
    if foreign := check_plain(found):
        wrong = "; ".join(f"{show_path(part.at)}: {part.message}" for part in foreign)
        raise UsageError(f"--model-outputs {path}: {wrong}")
    return found


def _given_output(entry: Any, where: str) -> dict[str, Any]:
    match entry:
        case str():
            return {"providerOutput": entry}
        case {"output": str(output), "tags": list(tags)}:
            return {"providerOutput": output, "metadata": {"tags": ", ".join(map(str, tags))}}
        case {"output": str(output)}:
            return {"providerOutput": output}
        case _:
            raise UsageError(f'{where} must be a text or {{"output": "…", "tags": ["…"]}}')


@attrs.frozen
class LoadedSuite:
    """A loaded suite and its environment."""

    suite: Suite
    environ: Mapping[str, str]
    named: Path | None = None
    """The suite file as the command line names it."""


def environ_with(files: Iterable[Path]) -> Mapping[str, str]:
    """Return the environment with the variables of files, which replace those that are unset or empty.

    Args:
        files: Files of lines `NAME=value`; later files take precedence.

    Raises:
        UsageError: A file cannot be read, or has lines that are not assignments.
    """
    named = list(files)
    if not named:
        return os.environ
    from trioeval.documents.environment import read_env_file

    found: dict[str, str] = {}
    for file in named:
        found |= read_env_file(file)
    return with_unset(os.environ, found)


def with_unset(environ: Mapping[str, str], more: Mapping[str, str]) -> Mapping[str, str]:
    """Return an environment with more variables, which replace those that are unset or empty."""
    return {**environ, **more, **{name: value for name, value in environ.items() if value}}

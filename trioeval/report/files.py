"""Result files: JSON Lines row by row, all other formats as a whole."""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO

import attrs

from trioeval.errors import OutputError, UsageError
from trioeval.report.results import Results

LINES = ".jsonl"


def check_outputs(paths: Sequence[Path]) -> None:
    """Raise if a result file cannot be written, before any call costs money; create missing folders.

    Raises:
        UsageError: A suffix is unknown or needs a package that is not installed, or a folder is not writable.
    """
    for path in paths:
        suffix = output_suffix(path)
        binary = FORMATS_BINARY.get(suffix)
        if suffix != LINES and suffix not in FORMATS and binary is None:
            known = ", ".join(sorted([*FORMATS, *FORMATS_BINARY, LINES]))
            msg = f"{path}: the suffix must be one of {known}, got {path.suffix!r}"
            raise UsageError(msg)
        if binary is not None and (missing := binary.check()) is not None:
            raise UsageError(f"{path}: {missing}")
        if path.is_dir():
            msg = f"{path}: is a folder; name a file in it"
            raise UsageError(msg)
        folder = path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = error.strerror or error
            raise UsageError(f"{path}: the folder {folder} cannot be created: {reason}") from None
        try:
            # Access rights are not enough to know: /proc, for example, accepts no files.
            with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{path.name}."):
                pass
        except OSError as error:
            reason = error.strerror or error
            msg = f"{path}: the folder {folder} is not writable: {reason}"
            raise UsageError(msg) from None
        if path.exists() and not os.access(path, os.W_OK):
            raise UsageError(f"{path}: the file is not writable")


def output_suffix(path: Path) -> str:
    """Return the end of a file name that selects the format.

    Example:
        >>> output_suffix(Path("a.b.junit.XML")), output_suffix(Path("a.b.xml"))
        ('.junit.xml', '.xml')
    """
    name = path.name.lower()
    longer = (suffix for suffix in (_JUNIT, _DATASETTE) if name.endswith(suffix))
    return next(longer, path.suffix.lower())


_JUNIT, _DATASETTE = ".junit.xml", ".datasette.json"


@attrs.define(eq=False, repr=False)
class LinesFile:
    """A JSON Lines file with one line a row, each flushed before the next row.

    A full disk must not lose the replies of calls in flight: the first error is stored, and nothing is
    written after it.
    """

    path: Path
    error: OutputError | None = None
    _file: IO[str] | None = None

    def open(self) -> None:
        """Create an empty file.

        Raises:
            OutputError: The file cannot be opened.
        """
        try:
            self._file = _open_text(self.path)
        except OSError as error:
            raise _cannot_write(self.path, error) from error

    def add(self, text: str) -> None:
        """Append a row as JSON text without line breaks. Never raises: a failure is stored in `error`."""
        if self._file is None or self.error is not None:
            return
        try:
            self._file.write(text + "\n")
            self._file.flush()
        except OSError as error:
            self.error = _cannot_write(self.path, error)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                self.error = self.error or _cannot_write(self.path, error)


def write_lines(path: Path, parts: Sequence[Results]) -> None:
    """Write all rows of an ended run as JSON Lines.

    Raises:
        OutputError: The file cannot be written.
    """
    lines = LinesFile(path)
    lines.open()
    for part in parts:
        for record in part.rows():
            lines.add(part.info.row_line(record))
    lines.close()
    if lines.error is not None:
        raise lines.error


def write_results(path: Path, parts: Sequence[Results]) -> Sequence[Path]:
    """Write a result file atomically, in the format of its suffix.

    Returns:
        The files that were written: `path`, or the files beside it that the format consists of.

    Raises:
        OutputError: The file cannot be written; a previous file is unchanged.
    """
    suffix = output_suffix(path)
    if suffix in FORMATS:
        write_whole(path, FORMATS[suffix](parts))
        return [path]
    try:
        files = FORMATS_BINARY[suffix].files(path, parts)
    except OutputError as error:
        raise OutputError(f"{path}: {error}") from error
    for name, write in files.items():
        _write_file(name, write)
    return list(files)


def write_whole(path: Path, chunks: Iterable[str]) -> None:
    """Write a text file atomically.

    Raises:
        OutputError: The file cannot be written; a previous file is unchanged.
    """

    def write(temporary: Path) -> None:
        with _open_text(temporary) as file:
            file.writelines(chunks)

    _write_file(path, write)


def _write_file(path: Path, write: Callable[[Path], None]) -> None:
    """Write a file under a temporary name and rename it when it is complete.

    Raises:
        OutputError: The file cannot be written; a previous file is unchanged.
    """
    try:
        target = Path(os.path.realpath(path))  # a link is kept
        if target.exists() and not target.is_file():  # a pipe or device must not be replaced
            write(target)
            return
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{path.name}.")
        try:
            os.close(handle)
            write(Path(name))
            # mkstemp creates private files; results get the permissions of any new file.
            Path(name).chmod(0o666 & ~_umask())
            Path(name).replace(target)
        finally:
            Path(name).unlink(missing_ok=True)
    except OutputError as error:  # rows of the store cannot be read
        raise OutputError(f"{path}: {error}") from error
    except OSError as error:
        raise _cannot_write(path, error) from error


def _json(parts: Sequence[Results]) -> Iterator[str]:
    from trioeval.report.formats.document import run_document
    from trioeval.report.formats.json import json_chunks

    yield from json_chunks(run_document(parts))
    yield "\n"


def _yaml(parts: Sequence[Results]) -> Iterator[str]:
    from trioeval.report.formats.document import run_document
    from trioeval.report.formats.yaml import yaml_chunks

    return yaml_chunks(run_document(parts))


def _csv(parts: Sequence[Results]) -> Iterator[str]:
    from trioeval.report.formats.csv import csv_chunks

    return csv_chunks(*parts)


def _xml(parts: Sequence[Results]) -> Iterator[str]:
    from trioeval.report.formats.document import run_document
    from trioeval.report.formats.junit import HEADER, xml_chunks

    yield HEADER
    yield from xml_chunks("promptfoo", run_document(parts))


def _junit(parts: Sequence[Results]) -> Iterator[str]:
    from trioeval.report.formats.junit import junit_chunks

    return junit_chunks(*parts)


def _datasette(parts: Sequence[Results]) -> Iterator[str]:
    from trioeval.report.formats.datasette import datasette_chunks

    return datasette_chunks(*parts)


def _markdown(parts: Sequence[Results]) -> Iterator[str]:
    from trioeval.report.formats.markdown import markdown_chunks

    return markdown_chunks(*parts)


def _html(parts: Sequence[Results]) -> Iterator[str]:
    from trioeval.report.html_report import html_chunks

    return html_chunks(*parts)


FORMATS: Mapping[str, Callable[[Sequence[Results]], Iterator[str]]] = {
    ".json": _json,
    ".yaml": _yaml,
    ".yml": _yaml,
    ".txt": _yaml,
    ".csv": _csv,
    ".html": _html,
    ".md": _markdown,
    ".xml": _xml,
    _JUNIT: _junit,
    _DATASETTE: _datasette,
}
"""The function that yields the text of a document, by suffix."""


def _nothing_missing() -> None:
    """Return None: no optional package is needed."""


@attrs.frozen
class BinaryFormat:
    """A format of result files that are not text."""

    files: Callable[[Path, Sequence[Results]], Mapping[Path, Callable[[Path], None]]]
    """Returns the files of a result file by name, each with a function that writes it to the path that it is
    given, where an empty file exists. It and these functions may raise OutputError and OSError."""
    check: Callable[[], str | None] = _nothing_missing
    """Returns what is missing and how to install it; called before any call costs money."""

    @classmethod
    def of_one(
        cls,
        write: Callable[[Path, Sequence[Results]], None],
        check: Callable[[], str | None] = _nothing_missing,
    ) -> "BinaryFormat":
        """Return the format of a single file, which has the requested name.

        Args:
            write: Writes the file to the path that it is given, where an empty file exists.
            check: Returns what is missing and how to install it.
        """
        return cls(lambda path, parts: {path: lambda temporary: write(temporary, parts)}, check)


def _inspect_logs(path: Path, parts: Sequence[Results]) -> Mapping[Path, Callable[[Path], None]]:
    from trioeval.report.formats.inspect_log import logs_of, write_log

    return {
        name: partial(write_log, column=column) for name, column in logs_of(path, parts).items()
    }


def _parquet(path: Path, parts: Sequence[Results]) -> None:
    from trioeval.report.formats.parquet import write_parquet

    write_parquet(path, parts)


def _missing_for_parquet() -> str | None:
    from trioeval.report.formats.parquet import missing_for_parquet

    return missing_for_parquet()


FORMATS_BINARY: Mapping[str, BinaryFormat] = {
    ".eval": BinaryFormat(_inspect_logs),
    ".parquet": BinaryFormat.of_one(_parquet, _missing_for_parquet),
}
"""The formats that are not text, by suffix."""


def _open_text(path: Path) -> IO[str]:
    # Lone surrogates, which JSON replies may contain, are written as JSON escapes.
    return path.open("w", encoding="utf-8", errors="backslashreplace", newline="\n")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _cannot_write(path: Path, error: OSError) -> OutputError:
    return OutputError(f"{path}: cannot be written: {error.strerror or error}")

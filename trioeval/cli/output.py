"""Result files: JSON Lines as the run goes, everything else at its end."""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO

import attrs

from trioeval.errors import OutputError, UsageError
from trioeval.report import Results, json_chunks, run_document

LINES = ".jsonl"


def check_outputs(paths: Sequence[Path]) -> None:
    """Refuse files that could not be written, before anything is paid for; make their folders.

    Raises:
        UsageError: A suffix is not known, or needs a package that is not there, or a folder cannot be
            written to.
    """
    for path in paths:
        suffix = output_suffix(path)
        binary = FORMATS_BINARY.get(suffix)
        if suffix != LINES and suffix not in FORMATS and binary is None:
            known = ", ".join(sorted([*FORMATS, *FORMATS_BINARY, LINES]))
            msg = f"-o {path}: the suffix must be one of {known}, got {path.suffix!r}"
            raise UsageError(msg)
        if binary is not None and (missing := binary.check()) is not None:
            raise UsageError(f"-o {path}: {missing}")
        if path.is_dir():
            msg = f"-o {path}: is a folder"
            raise UsageError(msg)
        folder = path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = error.strerror or error
            raise UsageError(f"-o {path}: the folder {folder} cannot be made: {reason}") from None
        try:
            # Access rights do not say it of every file system: /proc takes no files.
            with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{path.name}."):
                pass
        except OSError as error:
            reason = error.strerror or error
            msg = f"-o {path}: the folder {folder} cannot be written to: {reason}"
            raise UsageError(msg) from None
        if path.exists() and not os.access(path, os.W_OK):
            raise UsageError(f"-o {path}: cannot be written to")


def output_suffix(path: Path) -> str:
    """The end of a name that says what is to be written.

    Example:
        >>> output_suffix(Path("a.b.junit.XML")), output_suffix(Path("a.b.xml"))
        ('.junit.xml', '.xml')
    """
    name = path.name.lower()
    longer = (suffix for suffix in (_JUNIT, _DATASETTE) if name.endswith(suffix))
    return next(longer, path.suffix.lower())


_JUNIT, _DATASETTE = ".junit.xml", ".datasette.json"


@attrs.define
class LinesFile:
    """A JSON Lines file that gets one line a row, each written out before the next row comes.

    A disk that fills up must not cost the replies that are under way: the first error is kept, and
    nothing is written after it.
    """

    path: Path
    error: OutputError | None = None
    _file: IO[str] | None = None

    def open(self) -> None:
        """Begin an empty file.

        Raises:
            OutputError: It cannot be opened.
        """
        try:
            self._file = _open_text(self.path)
        except OSError as error:
            raise _cannot_write(self.path, error) from error

    def add(self, text: str) -> None:
        """Append a row as JSON text without line breaks. Never raises; see `error`."""
        if self._file is None or self.error is not None:
            return
        try:
            self._file.write(text + "\n")
            self._file.flush()
        except OSError as error:
            self.error = _cannot_write(self.path, error)

    def close(self) -> None:
        """No row will follow."""
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                self.error = self.error or _cannot_write(self.path, error)


def write_results(path: Path, parts: Sequence[Results]) -> Sequence[Path]:
    """Write a result file, in the format of its suffix, whole or not at all.

    Returns:
        The files that were written: `path`, or what stands for it beside it.

    Raises:
        OutputError: It cannot be written; what stood there before still does.
    """
    suffix = output_suffix(path)
    if suffix in FORMATS:
        write_whole(path, FORMATS[suffix](parts))
        return [path]
    try:
        files = FORMATS_BINARY[suffix].files(path, parts)
    except OutputError as error:
        raise OutputError(f"-o {path}: {error}") from error
    for name, write in files.items():
        _write_file(name, write)
    return list(files)


def write_whole(path: Path, chunks: Iterable[str]) -> None:
    """Write a text file whole or not at all.

    Raises:
        OutputError: It cannot be written; what stood there before still does.
    """

    def write(temporary: Path) -> None:
        with _open_text(temporary) as file:
            file.writelines(chunks)

    _write_file(path, write)


def _write_file(path: Path, write: Callable[[Path], None]) -> None:
    """Have a file written under another name first, which is its own when it is whole.

    Raises:
        OutputError: It cannot be written; what stood there before still does.
    """
    try:
        target = Path(os.path.realpath(path))  # a link stays one
        if target.exists() and not target.is_file():  # a pipe or a device is no file to be replaced
            write(target)
            return
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{path.name}.")
        try:
            os.close(handle)
            write(Path(name))
            # mkstemp makes files for one's own eyes; results get the rights of any new file.
            Path(name).chmod(0o666 & ~_umask())
            Path(name).replace(target)
        finally:
            Path(name).unlink(missing_ok=True)
    except OutputError as error:  # rows cannot be read
        raise OutputError(f"-o {path}: {error}") from error
    except OSError as error:
        raise _cannot_write(path, error) from error


def _json(parts: Sequence[Results]) -> Iterator[str]:
    yield from json_chunks(run_document(parts))
    yield "\n"


def _yaml(parts: Sequence[Results]) -> Iterator[str]:
    from trioeval.report.formats.yaml import yaml_chunks  # noqa: PLC0415 - rarely needed

    return yaml_chunks(run_document(parts))


def _csv(parts: Sequence[Results]) -> Iterator[str]:
    from trioeval.report.formats.csv import csv_chunks  # noqa: PLC0415 - rarely needed

    return csv_chunks(*parts)


def _xml(parts: Sequence[Results]) -> Iterator[str]:
    from trioeval.report.formats.junit import HEADER, xml_chunks  # noqa: PLC0415 - rarely needed

    yield HEADER
    yield from xml_chunks("promptfoo", run_document(parts))


def _junit(parts: Sequence[Results]) -> Iterator[str]:
    from trioeval.report.formats.junit import junit_chunks  # noqa: PLC0415 - rarely needed

    return junit_chunks(*parts)


def _datasette(parts: Sequence[Results]) -> Iterator[str]:
    from trioeval.report.formats.datasette import datasette_chunks  # noqa: PLC0415 - rarely needed

    return datasette_chunks(*parts)


def _markdown(parts: Sequence[Results]) -> Iterator[str]:
    from trioeval.report.formats.markdown import markdown_chunks  # noqa: PLC0415 - rarely needed

    return markdown_chunks(*parts)


def _html(parts: Sequence[Results]) -> Iterator[str]:
    from trioeval.report.html_report import html_chunks  # noqa: PLC0415 - rarely needed

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
"""What makes the text of a document, by the end of its name."""


def _nothing_missing() -> None:
    """It needs no package that may be missing."""


@attrs.frozen
class BinaryFormat:
    """A kind of result file that is no text."""

    files: Callable[[Path, Sequence[Results]], Mapping[Path, Callable[[Path], None]]]
    """Gives what `-o` of a path makes: the files by their names, each with what writes it to the name that it
    is given, where an empty file stands. May raise OutputError, and OSError, as may those."""
    check: Callable[[], str | None] = _nothing_missing
    """Gives what is missing here that it needs, and how to get it; asked before anything is paid for."""

    @classmethod
    def of_one(
        cls,
        write: Callable[[Path, Sequence[Results]], None],
        check: Callable[[], str | None] = _nothing_missing,
    ) -> "BinaryFormat":
        """That of a single file, which bears the name that was asked for.

        Args:
            write: Writes it to the path that it is given, where an empty file stands.
            check: See there.
        """
        return cls(lambda path, parts: {path: lambda temporary: write(temporary, parts)}, check)


def _inspect_logs(path: Path, parts: Sequence[Results]) -> Mapping[Path, Callable[[Path], None]]:
    from trioeval.report.formats.inspect_log import logs_of, write_log  # noqa: PLC0415 - rarely needed

    return {
        name: partial(write_log, column=column) for name, column in logs_of(path, parts).items()
    }


def _parquet(path: Path, parts: Sequence[Results]) -> None:
    from trioeval.report.formats.parquet import write_parquet  # noqa: PLC0415 - rarely needed

    write_parquet(path, parts)


def _missing_for_parquet() -> str | None:
    from trioeval.report.formats.parquet import missing_for_parquet  # noqa: PLC0415 - rarely needed

    return missing_for_parquet()


FORMATS_BINARY: Mapping[str, BinaryFormat] = {
    ".eval": BinaryFormat(_inspect_logs),
    ".parquet": BinaryFormat.of_one(_parquet, _missing_for_parquet),
}
"""What writes a file that is no text, by the end of its name."""


def _open_text(path: Path) -> IO[str]:
    # Lone surrogates, which JSON replies may hold, become the escapes that JSON has for them.
    return path.open("w", encoding="utf-8", errors="backslashreplace", newline="\n")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _cannot_write(path: Path, error: OSError) -> OutputError:
    return OutputError(f"-o {path}: cannot be written: {error.strerror or error}")

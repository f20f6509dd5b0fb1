"""Result files: JSON Lines as the run goes, JSON documents at its end."""

import json
import math
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import attrs

from trioeval.errors import OutputError, UsageError
from trioeval.report import row_json
from trioeval.tasks import Row

SUFFIXES = (".json", ".jsonl")


def check_outputs(paths: Sequence[Path]) -> None:
    """Refuse files that could not be written, before anything is paid for.

    Raises:
        UsageError: A suffix is not known, or a folder cannot be written to.
    """
    for path in paths:
        if path.suffix not in SUFFIXES:
            msg = f"-o {path}: the suffix must be one of {', '.join(SUFFIXES)}, got {path.suffix!r}"
            raise UsageError(msg)
        if path.is_dir():
            msg = f"-o {path}: is a folder"
            raise UsageError(msg)
        folder = path.parent
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            msg = f"-o {path}: the folder {folder} is not there or cannot be written to"
            raise UsageError(msg)


@attrs.define
class RowLines:
    """A JSON Lines file that gets one line a row, each written out before the next row comes.

    A disk that fills up must not cost the replies that are under way: the first error is kept, and
    nothing is written after it.
    """

    path: Path
    eval_id: str
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

    def add(self, row: Row) -> None:
        """Append a row. Never raises; see `error`."""
        if self._file is None or self.error is not None:
            return
        try:
            self._file.write(_to_json(row_json(row, self.eval_id)) + "\n")
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


def write_document(path: Path, document: dict[str, Any]) -> None:
    """Write a JSON document whole or not at all.

    Raises:
        OutputError: It cannot be written; what stood there before still does.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            os.close(handle)
            with _open_text(Path(name)) as file:
                file.write(_to_json(document, indent=2) + "\n")
            # mkstemp makes files for one's own eyes; results get the rights of any new file.
            Path(name).chmod(0o666 & ~_umask())
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _cannot_write(path, error) from error


def _open_text(path: Path) -> IO[str]:
    # Lone surrogates, which JSON replies may hold, become the escapes that JSON has for them.
    return path.open("w", encoding="utf-8", errors="backslashreplace")


def _to_json(value: Any, indent: int | None = None) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=False, indent=indent, default=str)


def _finite(value: Any) -> Any:
    """The same value with null for numbers that JSON does not have, as JavaScript writes them."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: _finite(part) for key, part in value.items()}
        case list() | tuple():
            return [_finite(part) for part in value]
        case _:
            return value


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _cannot_write(path: Path, error: OSError) -> OutputError:
    return OutputError(f"-o {path}: cannot be written: {error.strerror or error}")

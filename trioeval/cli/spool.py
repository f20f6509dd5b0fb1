"""Rows on their way to documents that need all of them: in a file without a name, one JSON line a row.

A run may have more rows than fit into memory, and a document tells its totals before its rows. So rows wait
on disk, in the folder that the document goes to: where it has room, they have.
"""

import contextlib
import json
import tempfile
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import attrs

from trioeval.errors import OutputError


@attrs.define
class Spool:
    """Rows that were added, to be read again and again. `error` is the first that writing met."""

    folder: Path
    error: OutputError | None = None
    _file: IO[bytes] | None = None
    _size: int = 0
    _places: list["array[int]"] = attrs.field(factory=list)
    """Of each column, where its rows begin: 8 bytes a row."""

    def open(self) -> None:
        """Begin with no rows.

        Raises:
            OutputError: No file can be made in the folder.
        """
        try:
            self._file = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115 - closed by `close`
        except OSError as error:
            raise OutputError(f"rows cannot be kept in {self.folder}: {error.strerror}") from error

    def add(self, text: str, column: int) -> None:
        """Append a row as JSON text without line breaks. Never raises; see `error`."""
        if self._file is None or self.error is not None:
            return
        # Lone surrogates, which JSON replies may hold, become the escapes that JSON has for them.
        line = text.encode("utf-8", "backslashreplace") + b"\n"
        try:
            self._file.write(line)
        except OSError as error:
            self.error = OutputError(f"rows cannot be kept in {self.folder}: {error.strerror}")
            return
        while len(self._places) <= column:
            self._places.append(array("q"))
        self._places[column].append(self._size)
        self._size += len(line)

    def rows(self, column: int | None = None) -> Iterator[dict[str, Any]]:
        """The rows of one column, or all, in the order in which they came.

        Raises:
            OutputError: They cannot be read.
        """
        if self._file is None:
            return
        try:
            if column is None:
                self._file.seek(0)
                while line := self._file.readline():
                    yield json.loads(line)
            elif column < len(self._places):
                for place in self._places[column]:
                    self._file.seek(place)
                    yield json.loads(self._file.readline())
        except OSError as error:
            raise OutputError(f"kept rows cannot be read: {error.strerror}") from error

    def close(self) -> None:
        """Forget all rows."""
        if self._file is None:
            return
        # It writes out what its buffer holds, which a full disk refuses, and is closed all the same.
        with contextlib.suppress(OSError):
            self._file.close()

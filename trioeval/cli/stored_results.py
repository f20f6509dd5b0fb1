"""The stored runs that a command reads, in the database that its flags and the environment name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from trioeval.cli.environment import EnvironmentSettings, existing_database
from trioeval.cli.run.results import write_documents
from trioeval.errors import OutputError
from trioeval.report.files import LINES, output_suffix, write_lines
from trioeval.report.results import Results
from trioeval.store.reader import StoreReader, read_store


@contextmanager
def open_runs(db: Path | None, environment: EnvironmentSettings) -> Iterator[StoreReader]:
    """Open the database of runs for reading while the block runs.

    Raises:
        UsageError: The database does not exist.
        StoreError: It cannot be read.
    """
    with read_store(existing_database(db, environment)) as reader:
        yield reader


def write_stored(outputs: Sequence[Path], results: Sequence[Results]) -> Sequence[OutputError]:
    """Write result files of a stored run, and return the errors of those that could not be written."""
    unwritten = []
    for path in outputs:
        if output_suffix(path) == LINES:
            try:
                write_lines(path, results)
            except OutputError as error:
                unwritten.append(error)
    return [*unwritten, *write_documents(outputs, results)]

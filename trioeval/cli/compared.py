"""`trioeval compare`: two runs row by row."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import attrs

from trioeval.cli.environment import read_environment
from trioeval.cli.exits import Exit
from trioeval.cli.stored_results import open_runs
from trioeval.cli.terminal import draw, pour, show
from trioeval.report import json_chunks
from trioeval.report.compare import By, Comparison
from trioeval.report.compare_tables import (
    changes_table,
    compared_line,
    compared_table,
    comparison_json,
    first_of,
)
from trioeval.store import Reader, RunFacts

_SHOWN = 20  # rows that are not as they were
_NAME = 40  # characters of the name of a test


@attrs.frozen(kw_only=True)
class Terms:
    """What is asked of a comparison besides its rows."""

    fail_if: Literal["worse", "different"] | None = None
    """What makes the command exit with 100."""
    confidence: float = 0.95
    """0 to 1."""
    cluster: str | None = None
    """A key of metadata, or a variable."""


def compare_runs(
    db: Path | None,
    before: str,
    after: str,
    *,
    by: By,
    all_changed: bool,
    as_json: bool,
    terms: Terms,
    outputs: Sequence[Path],
) -> int:
    """Show what became better, worse or another answer from one run to another.

    Raises:
        UsageError: One of them is not there.
        StoreError: The database cannot be read.
    """
    with open_runs(db, read_environment(os.environ)) as reader:
        old, new = reader.run(before), reader.run(after)
        comparison = Comparison(partial(_records, reader, old), by=by)
        changes = comparison.changes(_records(reader, new))
        if as_json:
            pour(json_chunks(comparison_json(old.id, new.id, comparison, changes)))
            show("")
            return Exit.OK
        shown, more = (list(changes), 0) if all_changed else first_of(changes, _SHOWN)
    show(f"from {old.id} to {new.id}")
    if shown:
        draw(changes_table(shown, _NAME), sys.stdout)
    if more:
        show(f"… and {more} more; --changed shows them all")
    draw(compared_table(comparison), sys.stdout)
    show(compared_line(comparison))
    return Exit.OK


def _records(reader: Reader, run: RunFacts) -> Iterator[Mapping[str, Any]]:
    for task in run.tasks:
        yield from reader.records(run, task)

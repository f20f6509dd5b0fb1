"""The recorded rows of a resumed task whose tests were not known at the start of the run.

Its suite may be unchanged although its tests differ: a dataset was extended, or made again. So each recorded
row is compared when its test is known. The common part of all of its tests is known before, and is part of
the digest of the task.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from trioeval.columns import is_columns
from trioeval.evaluation.identity import Identities, recorded_row_id, settings_digest
from trioeval.evaluation.journal import ReusedRows
from trioeval.evaluation.prepared import PreparedTask
from trioeval.suite.expand import Expansion

_DATASET = "dataset"


@attrs.frozen(eq=False, repr=False)
class _SameRows:
    """A subset of recorded rows."""

    _rows: ReusedRows
    _indices: frozenset[int] = attrs.field(repr=False)

    def __contains__(self, index: object) -> bool:
        return index in self._indices

    def __len__(self) -> int:
        return len(self._indices)

    def record(self, index: int, /) -> Mapping[str, Any]:
        """Return the record of a row, as in `ReusedRows`."""
        return self._rows.record(index)


def same_rows(rows: ReusedRows, steps: Expansion) -> ReusedRows:
    """Return the rows that have the same provider, prompt and variables as the current steps."""
    identities, entries = Identities(), steps.providers
    same = []
    for step in steps:
        if step.index in rows:
            entry = entries[step.column.provider_index]
            if identities.of(step, entry).id == recorded_row_id(rows.record(step.index)):
                same.append(step.index)
    return _SameRows(rows, frozenset(same))


def task_digest(part: PreparedTask, sources: Callable[[str], str | None] | None = None) -> str:
    """Return a digest of everything in a task that affects its rows; see `settings_digest`.

    If its tests are not known, that includes their common part. Datasets detect changes themselves.
    """
    prepared = part.prepared
    if is_columns(prepared.suite.settings):
        return _DATASET
    found = settings_digest(prepared.suite, sources)
    if part.prepare_with_rows is None:
        return found
    identities, entries = Identities(sources), prepared.steps.providers
    contents = [
        identities.of(step, entries[step.column.provider_index]).content for step in prepared.steps
    ]
    return hashlib.sha256("\n".join([found, *contents]).encode()).hexdigest()[:32]

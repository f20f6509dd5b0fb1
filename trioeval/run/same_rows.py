"""Rows that are there already, of a task whose tests were not known when its run went on.

Its suite may say what it said, and its tests be others all the same: a dataset was extended, or made anew.
So each row that is kept is looked at when its test is known. What all of its tests have in common is known
before, and is part of what is said of the task as a whole.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from trioeval.columns.model import ColumnsSettings
from trioeval.evaluation.identity import Identities, row_id_of, settings_digest
from trioeval.evaluation.journal import KeptRows
from trioeval.evaluation.prepared import PreparedTask
from trioeval.suite.expand import Expansion

_DATASET = "dataset"


@attrs.frozen(eq=False)
class _Same:
    """Some of the rows that are kept."""

    _rows: KeptRows
    _indices: frozenset[int] = attrs.field(repr=False)

    def __contains__(self, index: object) -> bool:
        return index in self._indices

    def __len__(self) -> int:
        return len(self._indices)

    def record(self, index: int, /) -> Mapping[str, Any]:
        """See `KeptRows`."""
        return self._rows.record(index)


def same_rows(rows: KeptRows, steps: Expansion) -> KeptRows:
    """Those rows that are of the same provider, prompt and variables as the steps that stand there now."""
    identities, entries = Identities(), steps.providers
    same = []
    for step in steps:
        if step.index in rows:
            entry = entries[step.column.provider_index]
            if identities.of(step, entry).id == row_id_of(rows.record(step.index)):
                same.append(step.index)
    return _Same(rows, frozenset(same))


def task_digest(part: PreparedTask, sources: Callable[[str], str | None] | None = None) -> str:
    """What of a task decides how its rows end, whatever they are; see `settings_digest`.

    Of one whose tests are not known that is also what they have in common. A dataset knows itself whether it
    is another one.
    """
    prepared = part.prepared
    if isinstance(prepared.suite.settings, ColumnsSettings):
        return _DATASET
    found = settings_digest(prepared.suite, sources)
    if part.settle is None:
        return found
    identities, entries = Identities(sources), prepared.steps.providers
    contents = [
        identities.of(step, entries[step.column.provider_index]).content for step in prepared.steps
    ]
    return hashlib.sha256("\n".join([found, *contents]).encode()).hexdigest()[:32]

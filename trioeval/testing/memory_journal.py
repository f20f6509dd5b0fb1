"""A journal in memory, which can be cut after any of its writes: what a crash leaves of a run.

    journal = MemoryJournal()
    await run_suite(suite, emit=emit, journal=journal)
    await run_suite(suite, emit=emit, journal=journal.cut(17))

The second execution finds what the first one had written down by its seventeenth write, as if the program
had died there. What is kept is what `trioeval.store` keeps of a run, without a file, a thread or a clock.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from trioeval.providers import Reply
from trioeval.report import row_json
from trioeval.tasks.journal import CallKey, CallRecord, Paid
from trioeval.tasks.retries import Retry, runs_again
from trioeval.tasks.rows import Row


@attrs.frozen
class WrittenRow:
    """A row as it was written down."""

    task: str | None
    index: int
    outcome: str
    record: Mapping[str, Any]
    """As `trioeval.report.row_json` makes it, read back from its text."""


Write: TypeAlias = CallRecord | WrittenRow


@attrs.frozen
class KeptRecords:
    """Rows that are there already; a `trioeval.tasks.journal.KeptRows`."""

    by_index: Mapping[int, WrittenRow]

    def __contains__(self, index: object) -> bool:
        return index in self.by_index

    def __len__(self) -> int:
        return len(self.by_index)

    def record(self, index: int) -> Mapping[str, Any]:
        """What was recorded of one."""
        return self.by_index[index].record


@attrs.define(eq=False)
class MemoryJournal:
    """A `trioeval.tasks.journal.Journal` of one execution, with what earlier ones have written."""

    earlier: Sequence[Write] = ()
    writes: list[Write] = attrs.field(init=False, factory=list)
    """Of this execution, in order."""
    _replies: dict[CallKey, Paid] = attrs.field(init=False, factory=dict)
    """By their question; of earlier executions."""

    def __attrs_post_init__(self) -> None:
        for write in self.earlier:
            if isinstance(write, CallRecord) and isinstance(write.answer, Reply):
                self._replies[write.key] = Paid(write.answer, write.latency_ms, write.cached)

    def cut(self, after: int) -> "MemoryJournal":
        """What another execution finds if only the first writes are there, those of earlier ones counted."""
        return MemoryJournal((*self.earlier, *self.writes)[:after])

    def records(self, task: str | None = None) -> Mapping[int, Mapping[str, Any]]:
        """What is known of the rows of a task, by index."""
        return {row.index: row.record for row in _last((*self.earlier, *self.writes), task)}

    @property
    def resumed(self) -> bool:
        """Whether an earlier execution wrote anything."""
        return bool(self.earlier)

    def call(self, call: CallRecord) -> None:
        """Write down a call."""
        self.writes.append(call)

    def recall(self, key: CallKey) -> Paid | None:
        """The reply that an earlier execution got."""
        return self._replies.get(key)

    def row(self, row: Row) -> None:
        """Write down a row."""
        record = json.loads(json.dumps(row_json(row, "memory")))
        self.writes.append(WrittenRow(row.task, row.index, row.outcome, record))

    async def durable(self, row: Row | None = None) -> None:
        """Everything is as safe as it will ever be."""

    def kept(self, task: str | None) -> KeptRecords:
        """Those that an earlier execution brought to an end."""
        return KeptRecords({row.index: row for row in _last(self.earlier, task) if _is_over(row)})


def _last(writes: Sequence[Write], task: str | None) -> Sequence[WrittenRow]:
    """The last that was written of each row of a task, by index."""
    rows = (write for write in writes if isinstance(write, WrittenRow) and write.task == task)
    found = {row.index: row for row in rows}
    return [found[index] for index in sorted(found)]


def _is_over(row: WrittenRow) -> bool:
    return not runs_again(Retry(), row.outcome, passed=None, index=row.index)

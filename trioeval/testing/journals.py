"""A journal in memory that can be cut after any write, to model a crash.

    journal = MemoryJournal()
    await run_suite(suite, emit=emit, journal=journal)
    await run_suite(suite, emit=emit, journal=journal.cut(17))

The second execution finds what the first one had written by its seventeenth write, as if the program had died
there. It stores what `trioeval.store` stores of a run, without a file, a thread or a clock.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from trioeval.columns.files import GroupFile
from trioeval.columns.graph import RowGrouping
from trioeval.columns.journal import MadeRecord, RestoredGroup
from trioeval.columns.result import DatasetResult, DroppedRow
from trioeval.evaluation.journal import CallKey, CallRecord, RecordedReply
from trioeval.evaluation.prepared import PreparedSuite
from trioeval.evaluation.reconcile import Retry, needs_new_replies, runs_again
from trioeval.evaluation.row import Row, RowsNotRun
from trioeval.evaluation.status import has_ended
from trioeval.providers import Reply
from trioeval.report.row import row_json

# The dataset of a journal in memory, whose writes are interleaved with those of its run.


@attrs.frozen
class DatasetIdentity:
    """The identity of a dataset."""

    grouping: RowGrouping
    fingerprint: Mapping[str, str]


@attrs.frozen
class Stage:
    """The start or end of a stage of the whole dataset."""

    name: str
    state: str


DatasetFact: TypeAlias = DatasetIdentity | MadeRecord | DroppedRow | GroupFile | Stage


@attrs.frozen
class DatasetWrite:
    """A write to the dataset of a task."""

    task: str | None
    what: DatasetFact


@attrs.define(eq=False, repr=False)
class MemoryDataset:
    """A `trioeval.columns.journal.DatasetJournal` of one execution."""

    task: str | None
    earlier: Sequence[DatasetFact]
    """The writes of earlier executions, in order."""
    _writes: list[Any]
    """The list to which it writes."""
    _stages: dict[str, str] = attrs.field(init=False, factory=dict)
    _before: Sequence[DatasetFact] = attrs.field(init=False)
    _grouping: RowGrouping | None = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._before = _counting(self.earlier)
        identity = _identity_in(self.earlier)
        self._grouping = None if identity is None else identity.grouping
        self._stages = {one.name: one.state for one in self._before if isinstance(one, Stage)}

    @property
    def resumed(self) -> bool:
        """True if an earlier execution wrote anything."""
        return self._grouping is not None

    @property
    def grouping(self) -> RowGrouping | None:
        """The grouping of rows in earlier executions."""
        return self._grouping

    def on_start(self, grouping: RowGrouping, fingerprint: Mapping[str, str]) -> None:
        """Record the identity of the dataset; for another one than before, only made cells count."""
        identity = DatasetIdentity(grouping, dict(fingerprint))
        self._write(identity)
        self._before = _counting([*self._before, identity])
        self._stages = {one.name: one.state for one in self._before if isinstance(one, Stage)}

    def on_made(self, record: MadeRecord) -> None:
        """Record what a job has made."""
        self._write(record)

    def on_dropped(self, row: DroppedRow) -> None:
        """Record that a row was dropped."""
        self._write(row)

    def on_written(self, group: GroupFile) -> None:
        """Record that a group is written."""
        self._write(group)

    def on_stage(self, name: str, state: str) -> None:
        """Record that a stage has started, or is over."""
        self._write(Stage(name, state))
        self._stages[name] = state

    def stages(self) -> Mapping[str, str]:
        """The recorded states of stages."""
        return dict(self._stages)

    def groups(self) -> Sequence[GroupFile]:
        """The groups that were written before."""
        found = {one.group: one for one in self._before if isinstance(one, GroupFile)}
        return [found[group] for group in sorted(found)]

    def groups_to_rewrite(self) -> frozenset[int]:
        """The groups to be written again: none, unless requested."""
        return frozenset()

    def restored(self, group: int, rows: range) -> RestoredGroup:
        """Return the recorded cells of a group; the last of each."""
        made: dict[tuple[str, int, bool], MadeRecord] = {}
        dropped: dict[int, DroppedRow] = {}
        for one in self._before:
            match one:
                case MadeRecord():
                    own = {*one.values, *one.skipped}
                    is_cell = own == {one.unit}
                    if (one.unit in rows) if is_cell else (one.unit == group):
                        made[one.producer, one.unit, is_cell] = one
                case DroppedRow() if one.row in rows:
                    dropped[one.row] = one
        return RestoredGroup(made=tuple(made.values()), dropped=tuple(dropped.values()))

    async def durable(self) -> None:
        """Return at once: everything is as durable as it can be."""

    def _write(self, fact: DatasetFact) -> None:
        self._writes.append(DatasetWrite(self.task, fact))


def _identity_in(facts: Sequence[DatasetFact]) -> DatasetIdentity | None:
    found = [one for one in facts if isinstance(one, DatasetIdentity)]
    return found[-1] if found else None


def _counting(facts: Sequence[DatasetFact]) -> list[DatasetFact]:
    """Return the facts that count: of an earlier, different dataset only made cells."""
    counting: list[DatasetFact] = []
    identity: DatasetIdentity | None = None
    for one in facts:
        if isinstance(one, DatasetIdentity):
            if identity is not None:
                old, new = identity.grouping, one.grouping
                is_longer = old.size == new.size and new.targets[: len(old.targets)] == old.targets
                if not is_longer or identity.fingerprint != one.fingerprint:
                    counting = [
                        made
                        for made in counting
                        if isinstance(made, MadeRecord)
                        and (is_longer or {*made.values, *made.skipped} == {made.unit})
                    ]
            identity = one
        counting.append(one)
    return counting


_ERROR = 2  # `failureReason` of a row without a verdict


@attrs.frozen
class WrittenRow:
    """A row as it was written."""

    task: str | None
    index: int
    outcome: str
    record: Mapping[str, Any]
    """The result of `trioeval.report.row_json`, read back from its text."""


@attrs.frozen
class Marked:
    """A row marked to be run again."""

    task: str | None
    index: int
    anew: bool = False
    """True if its providers are called again instead of reusing replies."""


@attrs.frozen
class Rejected:
    """A request whose replies were unusable."""

    key: CallKey


@attrs.frozen
class NamedJob:
    """The job that a call has created at its service; None removes it."""

    key: CallKey
    name: str | None


Write: TypeAlias = CallRecord | WrittenRow | Marked | Rejected | NamedJob | DatasetWrite


@attrs.frozen
class MemoryJob:
    """The record of the job of one call; a `trioeval.providers.base.KeptJob`."""

    _key: CallKey
    _earlier: Sequence[Write]
    _writes: list[Write]

    def find(self) -> str | None:
        """Return the last recorded name."""
        every = (*self._earlier, *self._writes)
        found = [one for one in every if isinstance(one, NamedJob) and one.key == self._key]
        return found[-1].name if found else None

    def note(self, name: str) -> None:
        """Record the name of a job."""
        self._writes.append(NamedJob(self._key, name))

    async def keep(self, name: str) -> None:
        """Record the name of a job; it is durable at once."""
        self.note(name)

    def drop(self) -> None:
        """Remove the record."""
        if self.find() is not None:
            self._writes.append(NamedJob(self._key, None))


@attrs.frozen
class KeptRecords:
    """The rows that are already finished; a `trioeval.evaluation.journal.ReusedRows`."""

    by_index: Mapping[int, WrittenRow]

    def __contains__(self, index: object) -> bool:
        return index in self.by_index

    def __len__(self) -> int:
        return len(self.by_index)

    def record(self, index: int) -> Mapping[str, Any]:
        """Return the record of a row."""
        return self.by_index[index].record


@attrs.define(eq=False, repr=False)
class MemoryJournal:
    """A `trioeval.run.journal.RunJournal` of one execution, with the writes of earlier ones."""

    earlier: Sequence[Write] = ()
    writes: list[Write] = attrs.field(init=False, factory=list)
    """The writes of this execution, in order."""
    _replies: dict[CallKey, RecordedReply] = attrs.field(init=False, factory=dict)
    """Replies of earlier executions, by request."""
    _anew: set[tuple[str | None, int]] = attrs.field(init=False, factory=set)
    """The rows for which new replies are requested."""

    def __attrs_post_init__(self) -> None:
        for write in self.earlier:
            match write:
                case CallRecord(answer=Reply() as reply):
                    self._replies[write.key] = RecordedReply(reply, write.latency_ms, write.cached)
                case Rejected(key=key):
                    self._replies.pop(key, None)
                case WrittenRow() if has_ended(write.outcome):
                    self._anew.discard((write.task, write.index))
                case Marked(anew=True):
                    self._anew.add((write.task, write.index))
                    self._replies = {
                        key: paid
                        for key, paid in self._replies.items()
                        if (key.task, key.index) != (write.task, write.index)
                    }

    def cut(self, after: int) -> "MemoryJournal":
        """Return the journal of another execution that finds only the first writes."""
        return MemoryJournal((*self.earlier, *self.writes)[:after])

    def again(self, retry: Retry) -> "MemoryJournal":
        """Return the journal of another execution that runs rows again."""
        there = (*self.earlier, *self.writes)
        marks = []
        for place, row in _standing(there).items():
            passed = None if row.record["failureReason"] == _ERROR else row.record["success"]
            if runs_again(retry, row.outcome, passed=passed, index=row.index):
                anew = needs_new_replies(retry, row.outcome, passed=passed, index=row.index)
                marks.append(Marked(*place, anew))
        return MemoryJournal((*there, *marks))

    def records(self, task: str | None = None) -> Mapping[int, Mapping[str, Any]]:
        """Return the recorded rows of a task, by index."""
        rows = _standing((*self.earlier, *self.writes))
        return {index: row.record for (of, index), row in rows.items() if of == task}

    @property
    def resumed(self) -> bool:
        """True if an earlier execution wrote anything."""
        return bool(self.earlier)

    def begin(self, suite: PreparedSuite) -> None:
        """Do nothing: the test knows what is run."""

    async def end(self, *, finished: bool, duration: float) -> None:
        """Do nothing: a run in memory has no other owner."""

    def call(self, call: CallRecord) -> None:
        """Record a call."""
        self.writes.append(call)

    def recorded_reply(self, key: CallKey) -> RecordedReply | None:
        """Return the reply that an earlier execution got."""
        return self._replies.get(key)

    def job(self, key: CallKey) -> "MemoryJob":
        """Return the record of the job of a call."""
        return MemoryJob(key, self.earlier, self.writes)

    def row(self, row: Row) -> None:
        """Record a row."""
        record = json.loads(json.dumps(row_json(row, "memory")))
        self.writes.append(WrittenRow(row.task, row.index, row.outcome, record))

    def first_single_row(self, task: str | None, rows: range) -> int:  # noqa: ARG002
        """Return the first row: in memory each row is written separately."""
        return rows.start

    def rows_not_run(self, rows: RowsNotRun) -> None:
        """Do nothing: never called."""

    def superseding_record(self, row: Row) -> Mapping[str, Any] | None:
        """Return the record that replaces a row without an end, if there is one."""
        stands = _standing((*self.earlier, *self.writes))[row.task, row.index]
        return stands.record if has_ended(stands.outcome) and not has_ended(row.outcome) else None

    def reject(self, key: CallKey) -> None:
        """Record that the reply to a request was unusable."""
        self.writes.append(Rejected(key))

    def needs_new_reply(self, task: str | None, index: int) -> bool:
        """Return whether new replies are requested for a row."""
        return (task, index) in self._anew

    async def durable(self, row: Row | None = None, *, urgent: bool = True) -> None:
        """Return at once: everything is as durable as it can be."""

    def reused_rows(self, task: str | None) -> KeptRecords:
        """Return the rows that an earlier execution finished and that are not to be run again."""
        last = {
            (write.task, write.index): write
            for write in self.earlier
            if isinstance(write, WrittenRow | Marked)
        }
        return KeptRecords(
            {
                index: row
                for (of, index), row in last.items()
                if of == task and isinstance(row, WrittenRow) and has_ended(row.outcome)
            }
        )

    def dataset(self, task: str | None) -> MemoryDataset:
        """Return the dataset of a task, which writes to the same journal."""
        earlier = [
            one.what for one in self.earlier if isinstance(one, DatasetWrite) and one.task == task
        ]
        return MemoryDataset(task, earlier, self.writes)

    def dataset_ended(self, result: DatasetResult) -> None:
        """Do nothing: the end of a dataset is derived from its writes."""

    def agents(self, task: str | None) -> None:
        """Return None: processes are not recorded, since none survives a cut."""


def _standing(writes: Iterable[Write]) -> Mapping[tuple[str | None, int], WrittenRow]:
    """Return the last finished version of each row; the last one if none is finished."""
    found: dict[tuple[str | None, int], WrittenRow] = {}
    for write in writes:
        if isinstance(write, WrittenRow):
            place = write.task, write.index
            if (
                place not in found
                or has_ended(write.outcome)
                or not has_ended(found[place].outcome)
            ):
                found[place] = write
    return found
